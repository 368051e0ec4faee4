//! The policy of `relativistd` in two forms: alone, where only the sizes of objects count, and in
//! the whole cache.

use std::collections::VecDeque;
use std::sync::Arc;

use anyhow::{Result, anyhow};
use relativist_cache::Clock;
use relativist_cache::policy::{self, CLASSES};
use relativist_cache::{Content, Lookup, Mode, Store};

use super::reference::Cache;

/// Applies the decisions of [`policy`] to blocks that contain only objects.
pub(super) struct Policy<'t> {
    sizes: &'t [u64],
    capacity: u64,
    block: u64,
    bytes: u64,
    level: u64,
    queues: [VecDeque<Block>; CLASSES],
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
        let queues = [const { VecDeque::new() }; CLASSES];
        let block = (capacity / 64).min(MAX_BLOCK);
        Self { sizes, capacity, block, bytes: 0, level: 0, queues, cached: vec![None; sizes.len()] }
    }

    fn push(&mut self, object: u32) {
        let size = self.sizes[object as usize];
        let queue = &mut self.queues[policy::class(size as usize)];
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
        let heads = queues.filter_map(|(class, queue)| Some((queue.front()?.stamp + policy::worth(class), class)));
        let Some((priority, class)) = heads.min() else { return };
        self.level = self.level.max(priority);
        for object in self.queues[class].pop_front().unwrap_or_default().objects {
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

/// The cache that the server uses. The capacity limits all of its memory. Each object has a key of
/// 8 bytes; the rest of its size is the value.
pub(super) struct Whole<'t> {
    sizes: &'t [u64],
    cache: relativist_cache::Cache,
    value: Vec<u8>,
}

impl<'t> Whole<'t> {
    pub(super) fn new(sizes: &'t [u64], capacity: u64) -> Result<Self> {
        let largest = sizes.iter().copied().max().unwrap_or(0);
        let clock = Arc::new(Clock::new(1_700_000_000));
        let cache = relativist_cache::Cache::new(clock, usize::try_from(capacity)?, usize::try_from(largest)?)
            .map_err(|_| anyhow!("{capacity} bytes are too few for the cache"))?;
        Ok(Self { sizes, cache, value: vec![0; usize::try_from(largest)?] })
    }
}

impl Cache for Whole<'_> {
    fn request(&mut self, object: u32) -> bool {
        let key = u64::from(object).to_be_bytes();
        if self.cache.get(&key, |_| ()) == Lookup::Hit {
            return true;
        }
        let length = (self.sizes[object as usize] as usize).saturating_sub(key.len());
        let content = Content { flags: 0, exptime: 0, value: &self.value[..length] };
        let stored = self.cache.store(Mode::Set, &key, content);
        debug_assert!(matches!(stored, Store::Stored | Store::OutOfMemory), "a set of what was absent");
        false
    }
}
