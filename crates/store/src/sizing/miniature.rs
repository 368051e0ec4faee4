//! A cache in miniature: a simulation of some of the keys, in as small a part of the memory.
//!
//! Waldspurger et al. ("Cache Modeling and Optimization using Miniature Simulations", USENIX ATC
//! 2017) simulate a policy with a sample of the keys, chosen by hash, in a cache that is as much
//! smaller. That works for any policy. SHARDS (FAST 2015), from which the sample comes, computes
//! the reuse distances that only LRU has. The rest is as in SHARDS of a fixed size: if the sample
//! has too many objects, the rate is halved, and the objects that are no longer in the sample are
//! dropped. And as in SHARDS-adj, misses are compared with the number of *all* requests. The sample
//! may have more or fewer requests than expected, because few keys have most of them. But these
//! keys rarely miss.

use super::events::{Event, Kind};
use super::simulation::{Simulation, Stored, block_for};
use crate::policy::EvictFor;

/// The maximum number of objects in a simulation. A hash map of 2^14 places is full then.
pub(super) const MAX_OBJECTS: usize = (1 << 14) / 8 * 7;

/// The maximum number of blocks of a miniature. A cache may have more.
const MAX_BLOCKS: u64 = 1 << 10;

/// A cache in miniature.
#[derive(Debug)]
pub(super) struct Miniature {
    simulation: Simulation,
    /// The size of the cache that this stands for, in bytes.
    capacity: u64,
    /// One key in 2^`halvings` is in the sample.
    halvings: u32,
    /// Estimated misses since the start.
    misses: f64,
}

impl Miniature {
    /// A miniature of an empty cache of `capacity` bytes.
    pub(super) fn new(capacity: u64, goal: EvictFor) -> Miniature {
        let simulation = Simulation::new(0, goal);
        let mut miniature = Miniature { simulation, capacity, halvings: 0, misses: 0.0 };
        miniature.rescale(0);
        miniature
    }

    /// How often the sample was halved.
    pub(super) fn halvings(&self) -> u32 {
        self.halvings
    }

    /// The number of objects in the simulation.
    pub(super) fn objects(&self) -> usize {
        self.simulation.len()
    }

    /// Estimated misses since the start.
    pub(super) fn misses(&self) -> f64 {
        self.misses
    }

    /// Whether the cache was full: it has evicted something.
    pub(super) fn was_full(&self) -> bool {
        self.simulation.has_evicted()
    }

    /// Carries out a command on a key, if it is in the sample.
    pub(super) fn apply(&mut self, event: &Event, now: u32) {
        if !is_sampled(event.hash, self.halvings) {
            return;
        }
        let (simulation, hash) = (&mut self.simulation, event.hash);
        let stored = Stored { size: event.size.into(), expiry: event.expiry };
        match event.kind {
            Kind::Hit if simulation.get(hash, now) => simulation.set_expiry(hash, event.expiry),
            // The client would have stored it after the miss.
            Kind::Hit => {
                self.misses += f64::from(self.halvings).exp2();
                simulation.put(hash, stored, now);
            }
            Kind::Miss => {
                if !simulation.get(hash, now) {
                    self.misses += f64::from(self.halvings).exp2();
                }
            }
            // The client has stored it because it has missed it, which it would not have here.
            Kind::Store { replaces: false } if simulation.has(hash, now) => simulation.set_expiry(hash, event.expiry),
            Kind::Store { .. } => simulation.put(hash, stored, now),
            Kind::Touch => simulation.set_expiry(hash, event.expiry),
            Kind::Remove => simulation.remove(hash),
        }
        while self.simulation.len() > MAX_OBJECTS {
            self.halve(now);
        }
    }

    /// Samples half of the keys that were sampled so far.
    pub(super) fn halve(&mut self, now: u32) {
        self.halvings += 1;
        let halvings = self.halvings;
        self.simulation.retain(now, |hash| is_sampled(hash, halvings));
        self.rescale(now);
    }

    /// Begins an empty simulation with twice as many keys, and keeps the estimated misses so far.
    pub(super) fn begin_with_more(&mut self, now: u32) {
        let goal = self.simulation.evicts_for();
        (self.simulation, self.halvings) = (Simulation::new(0, goal), self.halvings - 1);
        self.rescale(now);
    }

    /// Changes the size of the cache that this stands for.
    pub(super) fn resize(&mut self, capacity: u64, now: u32) {
        self.capacity = capacity;
        self.rescale(now);
    }

    /// Sets what the simulated eviction makes few of.
    pub(super) fn set_evict_for(&mut self, goal: EvictFor) {
        self.simulation.set_evict_for(goal);
    }

    /// Drops what has expired.
    pub(super) fn drop_expired(&mut self, now: u32) {
        self.simulation.retain(now, |_| true);
    }

    fn rescale(&mut self, now: u32) {
        let blocks = (self.capacity / block_for(self.capacity).max(1)).min(MAX_BLOCKS);
        let capacity = self.capacity >> self.halvings;
        self.simulation.resize([capacity, capacity / blocks.max(1)], now);
    }
}

/// Whether a key with this hash is in a sample of one key in 2^`halvings`.
pub(super) fn is_sampled(hash: u64, halvings: u32) -> bool {
    hash <= last_sampled(halvings)
}

/// The largest hash in a sample of one key in 2^`halvings`.
pub(super) fn last_sampled(halvings: u32) -> u64 {
    u64::MAX.checked_shr(halvings).unwrap_or(0)
}
