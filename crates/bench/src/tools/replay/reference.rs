//! The policies with which ours is compared. They follow their publications exactly, count bytes,
//! and have no overhead.
//!
//! An object larger than the whole cache is not stored.

use std::collections::{BTreeSet, VecDeque};

use relativist_store::sizing::FACTORS;

use super::list::{Links, List};

/// A cache that stores each requested object that it does not have.
pub trait Cache {
    /// Requests `object`. Returns whether it was in the cache.
    fn request(&mut self, object: u32) -> bool;

    /// Returns how many of the requests would have missed in a quarter, half, once, twice and four
    /// times the memory, if the cache estimates that.
    fn estimated_misses(&self) -> Option<[f64; FACTORS.len()]> {
        None
    }
}

/// LRU, as in the memcached of the ATC 2011 paper. If hits do not move objects, it is FIFO.
pub(super) struct Lru<'t> {
    sizes: &'t [u64],
    capacity: u64,
    promotes: bool,
    links: Links,
    list: List,
    cached: Vec<bool>,
}

impl<'t> Lru<'t> {
    pub(super) fn new(sizes: &'t [u64], capacity: u64, promotes: bool) -> Self {
        let (links, cached) = (Links::new(sizes.len()), vec![false; sizes.len()]);
        Self { sizes, capacity, promotes, links, list: List::new(), cached }
    }
}

impl Cache for Lru<'_> {
    fn request(&mut self, object: u32) -> bool {
        let size = self.sizes[object as usize];
        if self.cached[object as usize] {
            if self.promotes {
                self.list.remove(object, size, &mut self.links);
                self.list.push(object, size, &mut self.links);
            }
            return true;
        }
        if size > self.capacity {
            return false;
        }
        while self.list.bytes + size > self.capacity
            && let Some(victim) = self.list.oldest()
        {
            self.list.remove(victim, self.sizes[victim as usize], &mut self.links);
            self.cached[victim as usize] = false;
        }
        self.list.push(object, size, &mut self.links);
        self.cached[object as usize] = true;
        false
    }
}

/// Segmented LRU (Karedla, Love and Wherry, IEEE Computer 1994): objects that were hit move to the
/// protected segment, which has four fifths of the cache. If it is full, its least recently used
/// object moves back to the probationary segment.
pub(super) struct SegmentedLru<'t> {
    sizes: &'t [u64],
    capacity: u64,
    links: Links,
    segments: [List; 2],
    /// The segment of each object.
    at: Vec<Option<usize>>,
}

impl<'t> SegmentedLru<'t> {
    pub(super) fn new(sizes: &'t [u64], capacity: u64) -> Self {
        let (links, at) = (Links::new(sizes.len()), vec![None; sizes.len()]);
        Self { sizes, capacity, links, segments: [List::new(); 2], at }
    }

    fn push(&mut self, object: u32, segment: usize) {
        self.segments[segment].push(object, self.sizes[object as usize], &mut self.links);
        self.at[object as usize] = Some(segment);
    }

    fn remove(&mut self, object: u32) -> Option<usize> {
        let segment = self.at[object as usize].take()?;
        self.segments[segment].remove(object, self.sizes[object as usize], &mut self.links);
        Some(segment)
    }
}

impl Cache for SegmentedLru<'_> {
    fn request(&mut self, object: u32) -> bool {
        let size = self.sizes[object as usize];
        if self.remove(object).is_some() {
            self.push(object, 1);
            while self.segments[1].bytes > self.capacity / 5 * 4
                && let Some(oldest) = self.segments[1].oldest()
            {
                self.remove(oldest);
                self.push(oldest, 0);
            }
            return true;
        }
        if size > self.capacity {
            return false;
        }
        while self.segments[0].bytes + self.segments[1].bytes + size > self.capacity
            && let Some(victim) = self.segments[0].oldest().or(self.segments[1].oldest())
        {
            self.remove(victim);
        }
        self.push(object, 0);
        false
    }
}

/// SIEVE (Zhang et al., NSDI 2024): a pointer (the hand) moves from the oldest object to the
/// newest. It clears the mark of visited objects, and evicts the first object that was not visited.
pub(super) struct Sieve<'t> {
    sizes: &'t [u64],
    capacity: u64,
    links: Links,
    list: List,
    hand: Option<u32>,
    /// For each object in the cache, whether it was visited.
    cached: Vec<Option<bool>>,
}

impl<'t> Sieve<'t> {
    pub(super) fn new(sizes: &'t [u64], capacity: u64) -> Self {
        let (links, cached) = (Links::new(sizes.len()), vec![None; sizes.len()]);
        Self { sizes, capacity, links, list: List::new(), hand: None, cached }
    }

    fn evict(&mut self) {
        while let Some(object) = self.hand.or(self.list.oldest()) {
            self.hand = self.links.newer(object);
            if self.cached[object as usize] == Some(true) {
                self.cached[object as usize] = Some(false);
                continue;
            }
            self.list.remove(object, self.sizes[object as usize], &mut self.links);
            self.cached[object as usize] = None;
            return;
        }
    }
}

impl Cache for Sieve<'_> {
    fn request(&mut self, object: u32) -> bool {
        let size = self.sizes[object as usize];
        if let Some(was_visited) = &mut self.cached[object as usize] {
            *was_visited = true;
            return true;
        }
        if size > self.capacity {
            return false;
        }
        while self.list.bytes + size > self.capacity {
            self.evict();
        }
        self.list.push(object, size, &mut self.links);
        self.cached[object as usize] = Some(false);
        false
    }
}

/// S3-FIFO (Yang et al., SOSP 2023): a small queue with a tenth of the cache, a main queue, and a
/// queue of ghosts (evicted keys) that represents as many bytes as the main queue.
pub(super) struct S3Fifo<'t> {
    sizes: &'t [u64],
    capacity: u64,
    small: Queue,
    main: Queue,
    ghosts: Queue,
    /// For each object in the cache, how often it was requested again, up to 3.
    cached: Vec<Option<u8>>,
    is_ghost: Vec<bool>,
}

#[derive(Default)]
struct Queue {
    objects: VecDeque<u32>,
    bytes: u64,
}

impl Queue {
    fn push(&mut self, object: u32, size: u64) {
        self.objects.push_back(object);
        self.bytes += size;
    }

    fn pop(&mut self, sizes: &[u64]) -> Option<u32> {
        let object = self.objects.pop_front()?;
        self.bytes -= sizes[object as usize];
        Some(object)
    }
}

impl<'t> S3Fifo<'t> {
    pub(super) fn new(sizes: &'t [u64], capacity: u64) -> Self {
        let [small, main, ghosts] = [(); 3].map(|()| Queue::default());
        let (cached, is_ghost) = (vec![None; sizes.len()], vec![false; sizes.len()]);
        Self { sizes, capacity, small, main, ghosts, cached, is_ghost }
    }

    fn size(&self, object: u32) -> u64 {
        self.sizes[object as usize]
    }

    fn evict(&mut self) {
        if self.small.bytes > self.capacity / 10 || self.main.objects.is_empty() {
            self.evict_from_small();
        } else {
            self.evict_from_main();
        }
    }

    fn evict_from_small(&mut self) {
        while let Some(object) = self.small.pop(self.sizes) {
            if self.cached[object as usize] > Some(1) {
                self.cached[object as usize] = Some(0);
                self.main.push(object, self.size(object));
            } else {
                self.cached[object as usize] = None;
                return self.remember(object);
            }
        }
    }

    fn evict_from_main(&mut self) {
        while let Some(object) = self.main.pop(self.sizes) {
            match self.cached[object as usize].and_then(|requests| requests.checked_sub(1)) {
                Some(left) => {
                    self.cached[object as usize] = Some(left);
                    self.main.push(object, self.size(object));
                }
                None => {
                    self.cached[object as usize] = None;
                    return;
                }
            }
        }
    }

    fn remember(&mut self, object: u32) {
        // The queue still holds ghosts that were requested again; `is_ghost` is false for these.
        self.is_ghost[object as usize] = true;
        self.ghosts.push(object, self.size(object));
        while self.ghosts.bytes > self.capacity / 10 * 9
            && let Some(forgotten) = self.ghosts.pop(self.sizes)
        {
            self.is_ghost[forgotten as usize] = false;
        }
    }
}

impl Cache for S3Fifo<'_> {
    fn request(&mut self, object: u32) -> bool {
        let size = self.size(object);
        if let Some(requests) = &mut self.cached[object as usize] {
            *requests = (*requests + 1).min(3);
            return true;
        }
        if size > self.capacity {
            return false;
        }
        while self.small.bytes + self.main.bytes + size > self.capacity {
            self.evict();
        }
        self.cached[object as usize] = Some(0);
        if std::mem::take(&mut self.is_ghost[object as usize]) {
            self.main.push(object, size);
        } else {
            self.small.push(object, size);
        }
        false
    }
}

/// GreedyDual-Size-Frequency (Cherkasova, HP Labs 1998): evicts the object with the lowest
/// priority. A request sets the priority of an object to the priority of the last evicted object
/// plus requests per byte.
pub(super) struct Gdsf<'t> {
    sizes: &'t [u64],
    capacity: u64,
    bytes: u64,
    level: f64,
    /// Objects by the bits of their priority. The bits have the same order as the numbers, because
    /// these are not negative.
    order: BTreeSet<(u64, u32)>,
    /// For each object in the cache, the number of its requests, and its priority.
    cached: Vec<Option<(u32, f64)>>,
}

impl<'t> Gdsf<'t> {
    pub(super) fn new(sizes: &'t [u64], capacity: u64) -> Self {
        Self { sizes, capacity, bytes: 0, level: 0.0, order: BTreeSet::new(), cached: vec![None; sizes.len()] }
    }

    fn insert(&mut self, object: u32, requests: u32) {
        let priority = self.level + f64::from(requests) / self.sizes[object as usize].max(1) as f64;
        self.order.insert((priority.to_bits(), object));
        self.cached[object as usize] = Some((requests, priority));
    }
}

impl Cache for Gdsf<'_> {
    fn request(&mut self, object: u32) -> bool {
        let size = self.sizes[object as usize];
        if let Some((requests, priority)) = self.cached[object as usize] {
            self.order.remove(&(priority.to_bits(), object));
            self.insert(object, requests + 1);
            return true;
        }
        if size > self.capacity {
            return false;
        }
        while self.bytes + size > self.capacity
            && let Some((priority, victim)) = self.order.pop_first()
        {
            self.level = f64::from_bits(priority);
            self.bytes -= self.sizes[victim as usize];
            self.cached[victim as usize] = None;
        }
        self.bytes += size;
        self.insert(object, 1);
        false
    }
}
