//! Churn with changing sizes: the resident set stays within the limit, and no operation returns a
//! wrong value. This test has its own process, because it measures the resident set of the process.

use relativist_testing as _;

use relativist_store::Clock;
use relativist_store::{Cache, Content, Direction, Lookup, Mode, Store};
use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

const LIMIT: usize = 64 << 20;
const MEBIBYTE: usize = 1 << 20;
const THREADS: u64 = 4;
const KEYS: u64 = 1 << 15;

/// A small generator (xorshift64*): the same keys and sizes in every run.
struct Random(u64);

impl Random {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_F491_4F6C_DD1D) % bound
    }
}

/// Returns a value that repeats its key and version.
fn value(key: u64, version: u64, size: usize) -> Vec<u8> {
    let mark = [key.to_le_bytes(), version.to_le_bytes()].concat();
    let mut value = mark.repeat(size.div_ceil(mark.len()).max(1));
    value.truncate(size.max(mark.len()));
    value
}

fn check(key: u64, bytes: &[u8]) -> u64 {
    let version = u64::from_le_bytes(bytes[8..16].try_into().unwrap());
    assert!(bytes == value(key, version, bytes.len()), "a wrong or torn value under {key}");
    version
}

/// Returns the size of the resident set, in bytes. Returns 0 under a sanitizer, which uses many
/// times as much memory itself.
fn resident() -> usize {
    if cfg!(any(relativist_sanitizer = "thread", relativist_sanitizer = "address")) {
        return 0;
    }
    let pages = std::fs::read_to_string("/proc/self/statm").unwrap();
    pages.split(' ').nth(1).unwrap().parse::<usize>().unwrap() * 4096
}

/// The stores of a thread in one phase of the test.
#[derive(Clone, Copy)]
struct Phase {
    seed: u64,
    /// The range of the values' sizes.
    sizes: (u64, u64),
    /// The bytes of all values.
    bytes: usize,
}

/// Changes keys that only this thread changes, so that it knows the last value of each. Other
/// threads only read these keys.
fn churn(cache: &Cache, thread: u64, phase: Phase, newest: &[AtomicU64]) {
    let Phase { seed, sizes, bytes } = phase;
    let mut random = Random((thread << 32 | seed << 8) + 1);
    let (mut stored, mut deleted) = (0, HashSet::new());
    while stored < bytes {
        let key = random.below(KEYS) / THREADS * THREADS + thread;
        let name = key.to_le_bytes();
        let known = &newest[key as usize];
        match random.below(16) {
            0 => {
                cache.delete(&name);
                deleted.insert(key);
            }
            1 => _ = cache.touch(&name, 0),
            2..=5 => {
                let other = random.below(KEYS);
                // Relaxed for all of these: a thread writes `newest` before it stores the version,
                // and the table orders its stores before the hits.
                cache.get(&other.to_le_bytes(), |hit| {
                    let version = check(other, hit.value);
                    assert!(version <= newest[other as usize].load(Ordering::Relaxed), "a version not stored yet");
                });
            }
            _ => {
                let version = known.load(Ordering::Relaxed) + 1;
                known.store(version, Ordering::Relaxed);
                let size = sizes.0 + random.below(sizes.1 - sizes.0);
                let content =
                    Content { flags: (version % 2) as u32, exptime: 0, value: &value(key, version, size as usize) };
                assert_eq!(cache.store(Mode::Set, &name, content), Store::Stored);
                deleted.remove(&key);
                stored += size as usize;
            }
        }
        // A thread finds the last version of its own keys, or none.
        let lookup = cache.get(&name, |hit| {
            assert_eq!(check(key, hit.value), known.load(Ordering::Relaxed), "an old version of {key} came back");
            assert_eq!(u64::from(hit.flags), check(key, hit.value) % 2);
        });
        assert!(lookup == Lookup::Miss || (lookup == Lookup::Hit && !deleted.contains(&key)), "{key}: {lookup:?}");
    }
}

#[test]
fn the_resident_set_stays_within_the_limit() {
    let before = resident();
    let clock = Arc::new(Clock::new(1_700_000_000));
    let cache = Cache::new(clock, LIMIT, 4 * MEBIBYTE).unwrap();
    let newest: Vec<AtomicU64> = (0..KEYS).map(|_| AtomicU64::new(0)).collect();
    let share = if cfg!(debug_assertions) { 4 } else { 40 };
    let phases = [(16, 200), (1_000, 9_000), (16, 100), (10_000, 200_000), (16, 1_000), (500_000, 1_500_000), (50, 60)];
    for (seed, sizes) in (0..).zip(phases) {
        // Storing the same number of bytes in small values takes longer.
        let bytes = share * if sizes.1 <= 1_000 { MEBIBYTE / 2 } else { 5 * MEBIBYTE };
        let phase = Phase { seed, sizes, bytes };
        thread::scope(|scope| {
            for thread in 0..THREADS {
                let (cache, newest) = (&cache, &newest);
                scope.spawn(move || churn(cache, thread, phase, newest));
            }
        });
        let usage = cache.usage();
        assert!(usage.mapped_bytes + usage.table_bytes <= LIMIT, "{sizes:?}: {usage:?}");
        let grown = resident() - before;
        assert!(grown < LIMIT + LIMIT * 15 / 100 + 32 * MEBIBYTE, "{sizes:?}: {grown} resident");
    }
    assert!(cache.usage().sweeps.evictions > 0);
    assert_eq!(cache.count(b"none", Direction::Up, 1).ok(), None);
    cache.flush(0);
    cache.maintain();
    assert!((0..KEYS).all(|key| cache.get(&key.to_le_bytes(), |_| ()) != Lookup::Hit));
    assert_eq!((cache.usage().items, cache.usage().item_bytes), (0, 0));
    // Each call is one second of background work.
    (0..10).for_each(|_| cache.maintain());
    let grown = resident() - before;
    assert!(grown < 24 * MEBIBYTE, "{grown} resident with nothing stored");

    // A pinned value keeps its memory after the cache was dropped, but only until it is unpinned.
    let large = value(0, 0, MEBIBYTE);
    let content = Content { flags: 0, exptime: 0, value: &large };
    let mut kept = None;
    assert_eq!(cache.store(Mode::Set, b"large", content), Store::Stored);
    cache.get(b"large", |hit| kept = hit.pin());
    cache.delete(b"large");
    drop(cache);
    let address = kept.as_deref().map_or(0, |bytes| bytes.as_ptr().addr());
    assert!(kept.as_deref() == Some(&large[..]) && is_mapped(address));
    drop(kept);
    assert!(!is_mapped(address));
}

fn is_mapped(address: usize) -> bool {
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
    let number = |text| usize::from_str_radix(text, 16).unwrap();
    let mut ranges = maps.lines().map(|line| line.split(' ').next().unwrap().split_once('-').unwrap());
    ranges.any(|(start, end)| (number(start)..number(end)).contains(&address))
}
