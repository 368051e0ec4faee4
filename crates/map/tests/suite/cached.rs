//! Lookups with a cache return what lookups without it would return.

use std::hash::{BuildHasher, Hasher};
use std::sync::atomic::{
    AtomicU64, AtomicUsize,
    Ordering::{Acquire, Relaxed, Release},
};

use crate::alongside::alongside;
use crate::hashing::{Hashing, IDENTITY, MIXED};
use crate::tested::{HashMap, manual};
use relativist_testing::random::Random;

/// One handle over many updates of few keys by the same thread, in tables of all sizes.
#[test]
fn sees_every_update() {
    for hashing in [MIXED, IDENTITY, Hashing(|_| 42), Hashing(|n| n % 2)] {
        for buckets in [2, 64] {
            let map: HashMap<u64, u64, Hashing> = manual(hashing);
            map.resize_to(buckets).unwrap();
            let mut model = [None; 4];
            let mut random = Random::new(buckets as u64);
            let pinned = map.pin();
            let mut cached = pinned.cached();
            for round in 0..3000 {
                let key = random.below(4);
                match random.below(12) {
                    0 => {
                        pinned.insert(key, round);
                        model[key as usize] = Some(round);
                    }
                    1 => {
                        pinned.remove(&key);
                        model[key as usize] = None;
                    }
                    // Runs of one key.
                    _ => (0..3).for_each(|_| assert_eq!(cached.get(&key).copied(), model[key as usize])),
                }
            }
        }
    }
}

/// A hasher that counts how often it is called.
struct Counting(AtomicUsize);

struct Counted(u64);

impl BuildHasher for &Counting {
    type Hasher = Counted;

    fn build_hasher(&self) -> Counted {
        self.0.fetch_add(1, Relaxed);
        Counted(0)
    }
}

impl Hasher for Counted {
    fn write(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|&byte| self.0 = self.0 << 8 | u64::from(byte));
    }

    fn finish(&self) -> u64 {
        self.0
    }
}

/// A key that was just found is not hashed again until its bucket changes.
#[test]
fn hashes_a_run_of_keys_once() {
    static COUNTING: Counting = Counting(AtomicUsize::new(0));
    let map: HashMap<u64, u64, &Counting> = HashMap::with_hasher(&COUNTING);
    map.pin().insert(1, 1);
    let pinned = map.pin();
    let mut cached = pinned.cached();
    let mut hashed = |expected| {
        let before = COUNTING.0.load(Relaxed);
        (0..10).for_each(|_| assert!(cached.get(&1).is_some()));
        assert_eq!(COUNTING.0.load(Relaxed) - before, expected);
    };
    hashed(1);
    hashed(0);
    pinned.insert(1, 2);
    hashed(1);
    hashed(0);
}

/// T3: a thread that has seen an update of another thread does not see an older value later,
/// although lookups use the cache and the table is resized.
#[test]
fn never_goes_back_in_time() {
    let map: HashMap<u64, u64, Hashing> = manual(MIXED);
    map.pin().insert(7, 0);
    let mut bits = [1, 4, 2, 6, 3].into_iter().cycle();
    let newest = AtomicU64::new(0);
    let update = || {
        for _ in 0..20 {
            let next = newest.load(Acquire) + 1;
            map.pin().remove(&7);
            map.pin().insert(7, next);
            newest.store(next, Release);
        }
        map.resize_to(1 << bits.next().unwrap()).unwrap();
    };
    alongside(update, || {
        let mut seen = 0;
        for _ in 0..300 {
            let pinned = map.pin();
            let mut cached = pinned.cached();
            for _ in 0..100 {
                let stored = newest.load(Acquire);
                if let Some(&value) = cached.get(&7) {
                    assert!(value >= stored.max(seen), "T3: {value} after {stored} and {seen}");
                    seen = value;
                }
            }
        }
    });
}
