//! The policy of `relativistd` alone, where only the sizes of objects count; and whole caches.

use std::collections::VecDeque;

use anyhow::Result;
use relativist_cache::policy;

use super::reference::Cache;
use crate::tools::engines::engine::{Engine, Plan};

/// Applies the decisions of [`policy`] to blocks that contain only objects.
pub(super) struct Policy<'t> {
    sizes: &'t [u64],
    capacity: u64,
    block: u64,
    bytes: u64,
    level: u64,
    queues: [VecDeque<Block>; policy::QUEUES],
    /// For each object in the cache, its credit of visits, and whether it was visited since the
    /// policy last examined it.
    cached: Vec<Option<(u8, bool)>>,
}

#[derive(Default)]
struct Block {
    objects: Vec<u32>,
    bytes: u64,
    stamp: u64,
}

impl<'t> Policy<'t> {
    /// Makes an empty cache. Its blocks are as large as the server's, but smaller if there would be
    /// fewer than 64.
    pub(super) fn new(sizes: &'t [u64], capacity: u64) -> Self {
        const MAX_BLOCK: u64 = 1 << 16;
        let queues = [const { VecDeque::new() }; policy::QUEUES];
        let block = (capacity / 64).min(MAX_BLOCK);
        Self { sizes, capacity, block, bytes: 0, level: 0, queues, cached: vec![None; sizes.len()] }
    }

    fn push(&mut self, object: u32) {
        let size = self.sizes[object as usize];
        let visits = self.cached[object as usize].map_or(0, |(visits, _)| visits);
        let queue = &mut self.queues[policy::queue(size as usize, visits)];
        if queue.back().is_none_or(|block| block.bytes + size > self.block) {
            queue.push_back(Block::default());
        }
        if let Some(block) = queue.back_mut() {
            block.objects.push(object);
            block.bytes += size;
            block.stamp = self.level;
        }
    }

    fn evict(&mut self) {
        let queues = self.queues.iter().enumerate();
        let heads = queues.filter_map(|(index, queue)| Some((queue.front()?.stamp + policy::worth(index), index)));
        let Some((priority, index)) = heads.min() else { return };
        self.level = self.level.max(priority);
        for object in self.queues[index].pop_front().unwrap_or_default().objects {
            let fate = self.cached[object as usize].and_then(|(visits, visited)| policy::verdict(visits, visited));
            self.cached[object as usize] = fate.map(|visits| (visits, false));
            match fate {
                Some(_) => self.push(object),
                None => self.bytes -= self.sizes[object as usize],
            }
        }
    }
}

impl Cache for Policy<'_> {
    fn request(&mut self, object: u32) -> bool {
        let size = self.sizes[object as usize];
        if let Some((_, was_visited)) = &mut self.cached[object as usize] {
            *was_visited = true;
            return true;
        }
        if size > self.capacity {
            return false;
        }
        while self.bytes + size > self.capacity {
            self.evict();
        }
        self.bytes += size;
        self.cached[object as usize] = Some((0, false));
        self.push(object);
        false
    }
}

/// A whole cache. The capacity limits all of its memory. Each object has a key of 8 bytes; the rest
/// of its size is the value.
pub(super) struct Whole<'t> {
    sizes: &'t [u64],
    engine: Box<dyn Engine>,
    /// The value that is stored: zeros.
    zeros: Vec<u8>,
    found: Vec<u8>,
}

impl<'t> Whole<'t> {
    /// Makes a cache by `make`.
    pub(super) fn new<E: Engine + 'static>(
        sizes: &'t [u64],
        limit: u64,
        make: impl Fn(Plan) -> Result<E>,
    ) -> Result<Self> {
        let largest_item = sizes.iter().copied().max().unwrap_or(0);
        let mean_item = sizes.iter().sum::<u64>() / (sizes.len() as u64).max(1);
        let engine = Box::new(make(Plan { limit, mean_item, largest_item })?);
        Ok(Self { sizes, engine, zeros: vec![0; usize::try_from(largest_item)?], found: Vec::new() })
    }
}

impl Cache for Whole<'_> {
    fn request(&mut self, object: u32) -> bool {
        let key = u64::from(object).to_be_bytes();
        self.found.clear();
        if self.engine.get(&key, &mut self.found) {
            return true;
        }
        let length = (self.sizes[object as usize] as usize).saturating_sub(key.len());
        // If there is no room for it, it is not stored.
        let _ = self.engine.set(&key, &self.zeros[..length]);
        false
    }
}
