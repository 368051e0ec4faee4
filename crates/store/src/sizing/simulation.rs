//! The eviction policy without memory: which items a cache would have.

use crate::expiry::Expiry;
use crate::policy::{self, EvictFor, MeanSizes, QUEUES};
use foldhash::fast::FixedState;
use std::collections::{HashMap, VecDeque};

/// The largest block, as in the cache.
const MAX_BLOCK: u64 = 1 << 16;

/// A cache has at least this many blocks. Otherwise its blocks are smaller.
const MIN_BLOCKS: u64 = 64;

/// The number of entries of removed objects that blocks may have, besides as many as there are
/// objects.
const MAX_DEAD: usize = 1 << 10;

/// An object as it is stored.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Stored {
    /// Its bytes. More than 2^32 - 1 count as that.
    pub size: u64,
    /// When it expires.
    pub expiry: Expiry,
}

impl Stored {
    /// An object that never expires.
    pub fn lasting(size: u64) -> Stored {
        Stored { size, expiry: Expiry::NEVER }
    }
}

/// The items that a cache would have, known by the hashes of their keys. Applies the decisions of
/// [`policy`] to blocks that contain only objects.
///
/// ```
/// use relativist_store::policy::EvictFor;
/// use relativist_store::sizing::{Simulation, Stored};
///
/// let mut cache = Simulation::new(100, EvictFor::Requests);
/// assert!(!cache.get(1, 0));
/// cache.put(1, Stored::lasting(60), 0);
/// assert!(cache.get(1, 0));
/// cache.put(2, Stored::lasting(60), 0);
/// assert_eq!(cache.len(), 1, "they don't fit together");
/// ```
#[derive(Debug)]
pub struct Simulation {
    capacity: u64,
    block: u64,
    goal: EvictFor,
    mean_sizes: MeanSizes,
    bytes: u64,
    level: u64,
    queues: [Queue; QUEUES],
    /// The number of entries in all queues, those of removed objects included.
    entries: usize,
    objects: HashMap<u64, Object, FixedState>,
    /// The number of the last object that was stored.
    last_number: u32,
    has_evicted: bool,
}

#[derive(Clone, Copy, Debug)]
struct Object {
    size: u32,
    expiry: Expiry,
    /// Distinguishes it from an earlier object with the same hash, which may still have an entry.
    number: u32,
    visits: u8,
    was_visited: bool,
}

/// Blocks, and the entries of all of them in one buffer. A buffer for each block would take much
/// memory, because the simulated blocks are small, and their numbers of entries differ.
#[derive(Debug)]
struct Queue {
    blocks: VecDeque<Block>,
    /// Hashes and numbers.
    entries: VecDeque<(u64, u32)>,
}

#[derive(Debug, Default)]
struct Block {
    /// The number of its entries.
    count: usize,
    bytes: u64,
    stamp: u64,
}

impl Simulation {
    /// An empty cache of `capacity` bytes, whose eviction has this goal. Its blocks are as large as
    /// those of a [`Cache`](crate::Cache), but smaller if there would be fewer than 64.
    pub fn new(capacity: u64, goal: EvictFor) -> Simulation {
        let queues = [const { Queue { blocks: VecDeque::new(), entries: VecDeque::new() } }; QUEUES];
        let objects = HashMap::default();
        let mut simulation = Simulation {
            capacity,
            block: 0,
            goal,
            mean_sizes: MeanSizes::new(),
            bytes: 0,
            level: 0,
            queues,
            entries: 0,
            objects,
            last_number: 0,
            has_evicted: false,
        };
        simulation.resize([capacity, block_for(capacity)], 0);
        simulation
    }

    /// The number of objects in the cache.
    pub fn len(&self) -> usize {
        self.objects.len()
    }

    /// Whether the cache is empty.
    pub fn is_empty(&self) -> bool {
        self.objects.is_empty()
    }

    /// The bytes of all objects in the cache.
    #[cfg(test)]
    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Whether the cache has ever evicted an object to make room.
    pub(super) fn has_evicted(&self) -> bool {
        self.has_evicted
    }

    /// Looks up an object at `now`, which then counts as visited. Returns whether it is there.
    pub fn get(&mut self, hash: u64, now: u32) -> bool {
        match self.objects.get_mut(&hash) {
            Some(object) if !object.expiry.has_passed(now) => {
                object.was_visited = true;
                true
            }
            Some(_) => {
                self.remove(hash);
                false
            }
            None => false,
        }
    }

    /// Stores an object at `now`, in place of one with the same hash, and evicts others. An object
    /// that is larger than the cache is not stored.
    pub fn put(&mut self, hash: u64, stored: Stored, now: u32) {
        self.remove(hash);
        let size = u32::try_from(stored.size).unwrap_or(u32::MAX);
        if u64::from(size) > self.capacity {
            return;
        }
        self.make_room(self.capacity - u64::from(size), now);
        self.bytes += u64::from(size);
        self.last_number = self.last_number.wrapping_add(1);
        let number = self.last_number;
        let object = Object { size, expiry: stored.expiry, number, visits: 0, was_visited: false };
        self.objects.insert(hash, object);
        self.push(hash, object);
    }

    /// Sets when an object expires, if it is there.
    pub(super) fn set_expiry(&mut self, hash: u64, expiry: Expiry) {
        if let Some(object) = self.objects.get_mut(&hash) {
            object.expiry = expiry;
        }
    }

    /// Returns whether an object is there at `now`, which then does not count as visited.
    pub(super) fn has(&self, hash: u64, now: u32) -> bool {
        self.objects.get(&hash).is_some_and(|object| !object.expiry.has_passed(now))
    }

    /// Removes an object, if it is there.
    pub fn remove(&mut self, hash: u64) {
        if let Some(object) = self.objects.remove(&hash) {
            self.bytes -= u64::from(object.size);
            self.drop_dead_entries();
        }
    }

    /// Removes all objects for which `keeps` is false, and those that have expired at `now`.
    pub(super) fn retain(&mut self, now: u32, keeps: impl Fn(u64) -> bool) {
        self.objects.retain(|&hash, object| !object.expiry.has_passed(now) && keeps(hash));
        self.bytes = self.objects.values().map(|object| u64::from(object.size)).sum();
        self.drop_dead_entries();
    }

    /// Changes the size of the cache and that of its blocks.
    pub(super) fn resize(&mut self, [capacity, block]: [u64; 2], now: u32) {
        (self.capacity, self.block) = (capacity, block);
        self.make_room(capacity, now);
    }

    /// What its eviction makes few of.
    pub(super) fn evicts_for(&self) -> EvictFor {
        self.goal
    }

    /// Sets what its eviction makes few of.
    pub(super) fn set_evict_for(&mut self, goal: EvictFor) {
        self.goal = goal;
    }

    /// Evicts until there are at most `bytes`.
    fn make_room(&mut self, bytes: u64, now: u32) {
        while self.bytes > bytes && self.evict(now) {}
    }

    fn push(&mut self, hash: u64, object: Object) {
        let size = u64::from(object.size);
        let queue = &mut self.queues[policy::queue(object.size as usize, object.visits)];
        if queue.blocks.back().is_none_or(|block| block.bytes + size > self.block) {
            queue.blocks.push_back(Block::default());
        }
        if let Some(block) = queue.blocks.back_mut() {
            queue.entries.push_back((hash, object.number));
            block.count += 1;
            block.bytes += size;
            block.stamp = self.level;
            self.entries += 1;
        }
    }

    /// Evicts a block. Returns false if there is none.
    fn evict(&mut self, now: u32) -> bool {
        let queues = self.queues.iter().enumerate();
        let priority = |(index, queue): (usize, &Queue)| {
            Some((queue.blocks.front()?.stamp + self.mean_sizes.worth(index, self.goal), index))
        };
        let heads = queues.filter_map(priority);
        let Some((priority, index)) = heads.min() else { return false };
        self.level = self.level.max(priority);
        let block = self.queues[index].blocks.pop_front().unwrap_or_default();
        let (mut items, mut bytes) = (0, 0);
        for _ in 0..block.count {
            // Objects that stay are appended, perhaps to the same queue.
            let Some((hash, number)) = self.queues[index].entries.pop_front() else { break };
            self.entries -= 1;
            let Some(object) = self.objects.get_mut(&hash).filter(|object| object.number == number) else { continue };
            items += 1;
            bytes += u64::from(object.size);
            let is_alive = !object.expiry.has_passed(now);
            let visits = policy::verdict(object.visits, object.was_visited).filter(|_| is_alive);
            if let Some(visits) = visits {
                (object.visits, object.was_visited) = (visits, false);
                let object = *object;
                self.push(hash, object);
            } else {
                self.has_evicted |= is_alive;
                self.bytes -= u64::from(object.size);
                self.objects.remove(&hash);
            }
        }
        self.mean_sizes.note(index, items, bytes);
        true
    }

    /// Forgets the entries of removed objects, if they are many.
    fn drop_dead_entries(&mut self) {
        if self.entries <= 2 * self.objects.len() + MAX_DEAD {
            return;
        }
        let objects = &self.objects;
        let is_live = |(hash, number): &(u64, u32)| objects.get(hash).is_some_and(|object| object.number == *number);
        for queue in &mut self.queues {
            let mut entries = queue.entries.iter();
            for block in &mut queue.blocks {
                block.count = entries.by_ref().take(block.count).filter(|entry| is_live(entry)).count();
            }
            queue.entries.retain(is_live);
            queue.blocks.retain(|block| block.count > 0);
            queue.entries.shrink_to(2 * queue.entries.len());
        }
        self.entries = self.objects.len();
    }
}

/// The size of the blocks of a cache.
pub(super) fn block_for(capacity: u64) -> u64 {
    (capacity / MIN_BLOCKS).min(MAX_BLOCK)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn visited_objects_outlive_others() {
        let mut cache = Simulation::new(6400, EvictFor::Requests);
        (0..64).for_each(|hash| cache.put(hash, Stored::lasting(100), 0));
        assert!(!cache.has_evicted());
        assert!(cache.get(3, 0));
        (64..100).for_each(|hash| cache.put(hash, Stored::lasting(100), 0));
        assert!(cache.has_evicted() && cache.has(3, 0) && !cache.has(4, 0));
        assert_eq!((cache.len(), cache.bytes), (64, 6400));
    }

    /// The sizes are in different classes, but worth nearly the same.
    #[test]
    fn objects_of_nearly_the_same_size_live_nearly_equally_long() {
        let mut cache = Simulation::new(100_000, EvictFor::Requests);
        (0..10_000).for_each(|hash| cache.put(hash, Stored::lasting(85 + hash % 2), 0));
        let live = [0, 1].map(|first| (first..10_000).step_by(2).filter(|&hash| cache.has(hash, 0)).count());
        assert!(live[0].abs_diff(live[1]) < live[0] / 4, "{live:?} objects of 85 and 86 bytes");
    }

    #[test]
    fn expired_objects_are_absent_and_are_no_evictions() {
        let mut cache = Simulation::new(1000, EvictFor::Requests);
        cache.put(1, Stored { size: 600, expiry: Expiry::from_bits(50) }, 0);
        assert!(cache.get(1, 49) && !cache.get(1, 50) && cache.is_empty());
        cache.put(1, Stored { size: 600, expiry: Expiry::from_bits(50) }, 0);
        cache.put(2, Stored { size: 600, expiry: Expiry::from_bits(50) }, 60);
        assert!(!cache.has_evicted() && cache.len() == 1);
        cache.set_expiry(2, Expiry::from_bits(100));
        assert!(cache.get(2, 99));
        cache.retain(100, |_| true);
        assert!(cache.is_empty());
    }

    #[test]
    fn entries_of_replaced_and_removed_objects_are_bounded() {
        let mut cache = Simulation::new(1 << 20, EvictFor::Requests);
        for round in 0..100_000_u64 {
            cache.put(round % 7, Stored::lasting(10), 0);
            if round % 5 == 0 {
                cache.remove(round % 7);
            }
        }
        let entries: usize = cache.queues.iter().map(|queue| queue.entries.len()).sum();
        let counted: usize = cache.queues.iter().flat_map(|queue| &queue.blocks).map(|block| block.count).sum();
        assert_eq!((cache.entries, counted), (entries, entries));
        assert!(entries <= 2 * 7 + MAX_DEAD, "{entries}");
    }

    #[test]
    fn an_object_larger_than_the_cache_is_not_stored_and_replaces_the_old_one() {
        let mut cache = Simulation::new(100, EvictFor::Requests);
        cache.put(1, Stored::lasting(10), 0);
        cache.put(1, Stored::lasting(101), 0);
        assert!(cache.is_empty() && cache.bytes == 0);
    }

    #[test]
    fn a_smaller_cache_keeps_what_fits() {
        let mut cache = Simulation::new(1000, EvictFor::Requests);
        (0..100).for_each(|hash| cache.put(hash, Stored::lasting(10), 0));
        cache.resize([200, 10], 0);
        assert_eq!((cache.len(), cache.bytes), (20, 200));
    }
}
