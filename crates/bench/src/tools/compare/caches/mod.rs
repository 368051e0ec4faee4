//! Caches for Rust programs.

pub mod candidates;

use std::array::from_fn;
use std::sync::atomic::{AtomicU64, Ordering};

use anyhow::Result;

use super::job::{Context, Job, Setting, Shared, shared};
use super::memory::{ChildArgs, Memory, memory};
use super::{Entry, Subject, Work, work};
use crate::harness::keys::scramble;
use crate::harness::sampling::Samples;
use candidates::{BATCH, Cache, Name};

#[derive(Clone, Copy, Debug)]
pub struct Caches;

const SIZES: &[u64] = &[1 << 20];

impl Subject for Caches {
    const NAME: &'static str = "caches";
    const MIN_ENTRIES: u64 = 1024;
    type Candidate = Name;
    const CANDIDATES: &'static [Entry<Name>] = &[
        Entry { name: "relativist", title: "relativist", what: Name::Relativist },
        Entry { name: "moka", title: "moka", what: Name::Moka },
        Entry { name: "quick-cache", title: "quick_cache", what: Name::QuickCache },
        #[cfg(feature = "foyer")]
        Entry { name: "foyer", title: "foyer", what: Name::Foyer },
        #[cfg(feature = "mini-moka")]
        Entry { name: "mini-moka", title: "mini-moka", what: Name::MiniMoka },
    ];
    const WORKLOADS: &'static [Entry<Work<Self>>] = &[
        work("hit", "Hits, all keys equally likely", SIZES, |context, setting| drawn(context, setting, &HITS, None)),
        work("hit-zipf", "Hits, Zipf 0.99", SIZES, |context, setting| {
            drawn(context, setting, &HITS, Some(Samples::zipf(setting.entries)))
        }),
        work("miss", "Misses", SIZES, |context, setting| drawn(context, setting, &MISSES, None)),
        work(
            "get-or-insert",
            "Lookups of which 80 % hit, and insertions of what is absent",
            SIZES,
            |context, setting| drawn(context, setting, &LOOKUPS, None),
        ),
        work("evict", "Insertions of new keys into a full cache", SIZES, evictions),
        work("memory", "A full cache", SIZES, memory),
    ];
    type Options = ();

    /// Fills a cache, replaces all entries once, and measures.
    fn resident(cache: &Name, args: &ChildArgs) -> Result<f64> {
        let mut memory = Memory::now()?;
        let filled = Filled::new(*cache, args.entries, args.entries);
        for _ in 0..args.entries / BATCH {
            filled.evict();
            filled.cache.settle();
        }
        Ok(memory.grown()? as f64 / args.entries as f64)
    }
}

/// A cache, and what is in it.
struct Filled {
    cache: Box<dyn Cache>,
    /// The index of the next new key.
    next: AtomicU64,
}

impl Filled {
    fn new(name: Name, entries: u64, capacity: u64) -> Self {
        let cache = name.of_entries(capacity);
        for index in 0..entries {
            let key = scramble(index);
            cache.insert(key, key);
            // moka would reject insertions that it has not looked at before.
            if index % BATCH == 0 {
                cache.settle();
            }
        }
        cache.settle();
        Self { cache, next: AtomicU64::new(entries) }
    }

    /// Inserts a batch of new keys.
    fn evict(&self) -> (u64, u64) {
        // Relaxed: the counter orders nothing.
        let first = self.next.fetch_add(BATCH, Ordering::Relaxed);
        self.cache.insert_all(&from_fn(|index| scramble(first + index as u64)));
        (BATCH, 0)
    }
}

/// Returns caches with `entries` entries, and room for `capacity`.
fn filled<'a>(context: Context<'a, Caches>, setting: &Setting, capacity: u64) -> Shared<'a, Vec<Filled>> {
    let (candidates, entries) = (context.candidates(setting), setting.entries);
    shared(move || Ok(candidates.iter().map(|cache| Filled::new(cache.what, entries, capacity)).collect()))
}

/// Operations on keys that are drawn from a range.
struct Drawn {
    /// The capacity of the cache, and the indices of the first and the last key, in multiples of
    /// the entries.
    capacity: f64,
    first: f64,
    last: f64,
    /// Runs a batch. Returns the number of results that are wrong.
    run: fn(&dyn Cache, &[u64; BATCH as usize]) -> u64,
}

const HITS: Drawn = Drawn { capacity: 2.0, first: 0.0, last: 1.0, run: |cache, keys| cache.misses(keys) };
const MISSES: Drawn = Drawn { capacity: 2.0, first: 1.0, last: 2.0, run: |cache, keys| BATCH - cache.misses(keys) };
/// With keys that are equally likely, each policy keeps the same part of them.
const LOOKUPS: Drawn = Drawn {
    capacity: 1.0,
    first: 0.0,
    last: 1.25,
    run: |cache, keys| {
        cache.get_or_insert_all(keys);
        0
    },
};

/// Plans operations on keys, drawn from `samples` if there are some.
fn drawn<'a>(
    context: Context<'a, Caches>,
    setting: &Setting,
    operations: &'static Drawn,
    samples: Option<Samples>,
) -> Result<Vec<Job<'a>>> {
    let times = |factor: f64| (setting.entries as f64 * factor) as u64;
    let keys = times(operations.first)..times(operations.last);
    let caches = filled(context, setting, times(operations.capacity));
    Ok(context.drawn(setting, &caches, keys, samples, move |filled, mut draws| {
        Box::new(move || (BATCH, (operations.run)(&*filled.cache, &from_fn(|_| scramble(draws.draw().1)))))
    }))
}

fn evictions<'a>(context: Context<'a, Caches>, setting: &Setting) -> Result<Vec<Job<'a>>> {
    let caches = filled(context, setting, setting.entries);
    Ok(context.drawn(setting, &caches, 0..setting.entries, None, |filled, _| Box::new(|| filled.evict())))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn caches_keep_their_limits() {
        for Entry { what: name, .. } in Caches::CANDIDATES {
            let cache = name.of_weight(1000, 10);
            (1..=100).for_each(|value| cache.insert(value, value));
            cache.insert(2000, 2000);
            cache.settle();
            assert_eq!(cache.get(2000), None, "{name:?}");
            let weight: u64 = (1..=100).filter_map(|key| cache.get(key)).sum();
            assert!((1..=1000).contains(&weight), "{name:?}: {weight}");
        }
    }

    #[test]
    fn all_keys_hit_in_a_cache_with_room() {
        for Entry { what: name, .. } in Caches::CANDIDATES {
            let filled = Filled::new(*name, 5120, 10_240);
            for first in (0..5120).step_by(BATCH as usize) {
                assert_eq!(filled.cache.misses(&from_fn(|index| scramble(first + index as u64))), 0, "{name:?}");
            }
            assert_ne!(filled.cache.misses(&from_fn(|index| scramble(6000 + index as u64))), 0, "{name:?}");
            filled.evict();
            assert_eq!(filled.next.into_inner(), 5120 + BATCH);
        }
    }
}
