//! Threads that do everything at once, under continuous resizing. Also run under the sanitizers.
//! `RELATIVIST_STRESS_SECONDS` sets the duration of each test.
//!
//! T1 to T11 are the guarantees of `relativist::design`.

use relativist_testing as _;

#[path = "support/alongside.rs"]
mod alongside;
#[path = "support/hashing.rs"]
mod hashing;
#[path = "support/stress.rs"]
mod stress;
#[path = "support/tracked.rs"]
mod tracked;

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::thread;

use relativist::Resizing;

use hashing::Hashing;
use relativist_testing::random::Random;
use stress::{ALL, rounds};

/// What the map of nodes is to the tests of `stress`.
mod tested {
    pub use relativist::HashMap;
    use relativist::{Resizing, Stats};

    use crate::hashing::Hashing;

    /// The number of entries per bucket at which it grows.
    pub const MAX_LOAD: u64 = 1;

    pub fn build<K, V>(resizing: Resizing, hashing: Hashing) -> HashMap<K, V, Hashing> {
        HashMap::<K, V>::builder().resizing(resizing).hasher(hashing).build().unwrap()
    }

    pub fn assert_waits(stats: &Stats) {
        assert_eq!(stats.grace_periods, stats.grows, "T5: one wait for each growth by hand, none for shrinking");
    }
}

/// T1, T10: keys that two threads rename back and forth, while the table is resized, and others are
/// inserted, replaced and removed.
///
/// Within one read section at most one rename takes effect. So of three lookups, of one key, the
/// other, and the first again, at least one finds the entry, and at least one does not.
#[test]
fn renamed_entries_have_one_name() {
    const RENAMED: u64 = 64;
    let map = tested::build(Resizing::Manual, Hashing(|n| n % 50));
    (&map).extend((0..RENAMED).map(|key| (key, key)));
    let other_name = |key: u64| key + ALL;
    let renames = AtomicU64::new(0);
    thread::scope(|scope| {
        for thread in 0..2 {
            let (map, renames) = (&map, &renames);
            scope.spawn(move || {
                let mut random = Random::new(thread);
                for _ in rounds() {
                    let key = random.below(RENAMED / 2) * 2 + thread;
                    let (one, other) = (key, other_name(key));
                    map.rename(&one, other).or_else(|_| map.rename(&other, one)).expect("it has one of them");
                    renames.fetch_add(1, Relaxed);
                }
            });
        }
        scope.spawn(|| {
            let mut random = Random::new(2);
            rounds().for_each(|_| map.resize_to(2 << random.below(8)).unwrap());
        });
        scope.spawn(|| {
            let mut random = Random::new(3);
            for round in rounds() {
                let (pinned, key) = (map.pin(), 2 * ALL + random.below(RENAMED));
                if round % 2 == 0 {
                    pinned.insert(key, key)
                } else {
                    pinned.remove(&key)
                };
            }
        });
        for reader in 4..6 {
            let map = &map;
            scope.spawn(move || {
                let mut random = Random::new(reader);
                for _ in rounds() {
                    let (pinned, key) = (map.pin(), random.below(RENAMED));
                    let found = [key, other_name(key), key].map(|name| pinned.get(&name));
                    assert!(found.iter().flatten().all(|&&value| value == key));
                    assert!(found.iter().any(Option::is_some), "T10: {key} had neither name");
                    assert!(found.iter().any(Option::is_none), "T10: {key} had both names");
                }
            });
        }
    });
    assert!(renames.load(Relaxed) >= 40);
    let pinned = map.pin();
    let has_one = |key: u64| pinned.contains_key(&key) != pinned.contains_key(&other_name(key));
    assert!((0..RENAMED).all(has_one));
    assert_eq!(pinned.iter().filter(|&(&key, _)| key < 2 * ALL).count() as u64, RENAMED, "T7");
}
