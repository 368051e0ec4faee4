//! The policy of `relativistd` alone, where only the sizes of objects count; and whole caches.

use anyhow::Result;
use relativist_store::policy::EvictFor;
use relativist_store::sizing::{FACTORS, Simulation, Stored};

use super::reference::Cache;
use crate::tools::compare::caches::candidates::{self, Name};
use crate::tools::compare::engines::engine::{Engine, Plan};

/// The decisions of the policy for blocks that contain only objects.
pub(super) struct Policy<'t> {
    sizes: &'t [u64],
    simulation: Simulation,
}

impl<'t> Policy<'t> {
    /// Makes an empty cache.
    pub(super) fn new(sizes: &'t [u64], capacity: u64, goal: EvictFor) -> Self {
        Self { sizes, simulation: Simulation::new(capacity, goal) }
    }
}

impl Cache for Policy<'_> {
    fn request(&mut self, object: u32) -> bool {
        let is_hit = self.simulation.get(object.into(), 0);
        if !is_hit {
            self.simulation.put(object.into(), Stored::lasting(self.sizes[object as usize]), 0);
        }
        is_hit
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
    requests: u64,
    misses: u64,
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
        Ok(Self {
            sizes,
            engine,
            zeros: vec![0; usize::try_from(largest_item)?],
            found: Vec::new(),
            requests: 0,
            misses: 0,
        })
    }
}

impl Cache for Whole<'_> {
    fn request(&mut self, object: u32) -> bool {
        // The requests that the cache may collect before its estimates have to advance.
        const COLLECTED: u64 = 1000;
        if self.requests.is_multiple_of(COLLECTED) {
            self.estimated_misses();
        }
        self.requests += 1;
        let key = u64::from(object).to_be_bytes();
        self.found.clear();
        if self.engine.get(&key, &mut self.found) {
            return true;
        }
        self.misses += 1;
        let length = (self.sizes[object as usize] as usize).saturating_sub(key.len());
        // If there is no room for it, it is not stored.
        let _ = self.engine.set(&key, &self.zeros[..length]);
        false
    }

    fn estimated_misses(&self) -> Option<[f64; FACTORS.len()]> {
        self.engine.estimated_misses(self.requests, self.misses)
    }
}

/// A cache for Rust programs. An entry weighs as much as the object, and is its size.
pub(super) struct InProcess<'t> {
    sizes: &'t [u64],
    cache: Box<dyn candidates::Cache>,
}

impl<'t> InProcess<'t> {
    /// Makes an empty cache.
    pub(super) fn new(sizes: &'t [u64], capacity: u64, name: Name) -> Self {
        let mean_size = sizes.iter().sum::<u64>() / (sizes.len() as u64).max(1);
        let entries = (capacity / mean_size.max(1)).clamp(1, sizes.len().max(1) as u64);
        Self { sizes, cache: name.of_weight(capacity, entries) }
    }
}

impl Cache for InProcess<'_> {
    fn request(&mut self, object: u32) -> bool {
        let is_hit = self.cache.get(object.into()).is_some();
        if !is_hit {
            self.cache.insert(object.into(), self.sizes[object as usize]);
        }
        // So that it keeps to its limit, and counts the visit.
        self.cache.settle();
        is_hit
    }
}
