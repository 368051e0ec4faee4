//! Models of the flat map. Loom also fails a model if a thread writes to a slot while another
//! thread may read it.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};

use loom::thread;
use relativist::Resizing;
use relativist::flat::FlatMap;
use relativist_rcu::{Guard, clock, read, wait_for_readers};

use crate::hashing::{Hashing, UNMIXED};
use crate::models::{Shared, explore, unless_quick};

/// Keys below 16 are in the order of their hashes, and have different tags and filter bits. In a
/// table of two buckets, keys 0 to 7 are in the first bucket; in a table of four, keys 0 to 3.
const PLACES: Hashing = Hashing(|n| (UNMIXED.0)(n << 60 | (n & 15) << 20));

type Map = FlatMap<u64, u64, Hashing>;

/// Returns a map of two buckets, in which these keys have the value 0.
fn map(keys: &[u64]) -> Arc<Map> {
    map_with(PLACES, keys)
}

fn map_with(hashing: Hashing, keys: &[u64]) -> Arc<Map> {
    let map: Map = relativist::flat::Builder::new().resizing(Resizing::Manual).hasher(hashing).build().unwrap();
    assert_eq!(map.buckets(), 2);
    keys.iter().for_each(|&key| assert_eq!(map.pin().insert(key, 0), None));
    Arc::new(map)
}

fn get(map: &Map, key: u64, guard: &Guard) -> Option<u64> {
    map.get(&key, guard).copied()
}

/// Checks by an iteration, lookups and `len` that the map has exactly these entries. No other
/// thread uses the map.
fn assert_holds(map: &Map, entries: &[(u64, u64)]) {
    let guard = read();
    let mut seen: Vec<_> = map.iter(&guard).map(|(&key, &value)| (key, value)).collect();
    seen.sort_unstable();
    assert_eq!(seen, entries);
    entries.iter().for_each(|&(key, value)| assert_eq!(get(map, key, &guard), Some(value), "lookup of {key}"));
    assert_eq!(map.len(), entries.len());
}

/// Runs a function on another thread, with the guard of the caller.
fn alongside(map: &Arc<Map>, shared: Shared, work: impl FnOnce(&Map, &Guard) + 'static) -> thread::JoinHandle<()> {
    let map = map.clone();
    thread::spawn(move || work(&map, shared.guard()))
}

/// Looks a key up twice, while another thread gives it these values one after the other. Checks
/// that the second lookup finds no older value than the first one.
fn assert_follows(map: &Map, key: u64, values: &[Option<u64>], guard: &Guard) {
    let look = || {
        let found = get(map, key, guard);
        values.iter().position(|&value| value == found).unwrap_or_else(|| panic!("{key} has never been {found:?}"))
    };
    let (first, second) = (look(), look());
    assert!(first <= second, "{key} was {:?}, and then {:?}", values[first], values[second]);
}

/// One update, or several, of key 0 in a bucket with residents.
struct Case {
    residents: &'static [u64],
    prepare: fn(&Map),
    update: fn(&Map, &Guard),
    /// The values of key 0, one after the other.
    values: &'static [Option<u64>],
}

impl Case {
    fn map(&self) -> Arc<Map> {
        let map = map(self.residents);
        (self.prepare)(&map);
        map
    }

    /// Looks key 0 up twice, and a resident once, during the update.
    fn look(&'static self, preemptions: usize) {
        explore(preemptions, || {
            let map = self.map();
            let guard = read();
            // SAFETY: the thread is joined before the guard is dropped.
            let shared = unsafe { Shared::new(&guard) };
            let updater = alongside(&map, shared, self.update);
            assert_follows(&map, 0, self.values, &guard);
            self.assert_resident(&map, &guard);
            updater.join().unwrap();
            drop(guard);
            self.assert_done(&map);
        });
    }

    /// Looks up the resident that was inserted last.
    fn assert_resident(&self, map: &Map, guard: &Guard) {
        let resident = self.residents.last().unwrap();
        assert_eq!(get(map, *resident, guard), Some(0), "a resident was missed");
    }

    fn assert_done(&self, map: &Map) {
        let mut entries: Vec<_> = self.residents.iter().map(|&key| (key, 0)).collect();
        entries.extend(self.values.last().unwrap().map(|value| (0, value)));
        entries.sort_unstable();
        assert_holds(map, &entries);
    }
}

fn nothing(_: &Map) {}

fn insert(value: u64, map: &Map, guard: &Guard) {
    map.insert(0, value, guard);
}

/// T3: lookups see each update of a first segment as one step.
#[test]
fn lookups_during_updates() {
    static CASES: [Case; 3] = [
        Case {
            residents: &[1],
            prepare: nothing,
            update: |map, guard| {
                insert(1, map, guard);
                insert(2, map, guard);
            },
            values: &[None, Some(1), Some(2)],
        },
        Case {
            residents: &[1],
            prepare: |map| insert(1, map, &read()),
            update: |map, guard| assert_eq!(map.remove(&0, guard), Some(&1)),
            values: &[Some(1), None],
        },
        Case {
            residents: &[1],
            prepare: |map| insert(1, map, &read()),
            update: |map, guard| {
                map.remove(&0, guard);
                insert(2, map, guard);
            },
            values: &[Some(1), None, Some(2)],
        },
    ];
    CASES.iter().for_each(|case| case.look(3));
}

/// T3: lookups see each update as one step also if the first segment is full. An entry of it that
/// is replaced moves to a later segment.
#[test]
fn lookups_in_later_segments() {
    static CASES: [Case; 5] = [
        Case {
            residents: &[1, 4, 5, 6],
            prepare: |map| insert(1, map, &read()),
            update: |map, guard| assert_eq!(map.remove(&0, guard), Some(&1)),
            values: &[Some(1), None],
        },
        Case {
            residents: &[1, 4],
            prepare: nothing,
            update: |map, guard| {
                insert(1, map, guard);
                insert(2, map, guard);
            },
            values: &[None, Some(1), Some(2)],
        },
        Case {
            residents: &[1, 4],
            prepare: |map| insert(1, map, &read()),
            update: |map, guard| insert(2, map, guard),
            values: &[Some(1), Some(2)],
        },
        Case {
            residents: &[1, 4, 5],
            prepare: nothing,
            update: |map, guard| insert(1, map, guard),
            values: &[None, Some(1)],
        },
        Case {
            residents: &[1, 4, 5],
            prepare: |map| insert(1, map, &read()),
            update: |map, guard| assert_eq!(map.remove(&0, guard), Some(&1)),
            values: &[Some(1), None],
        },
    ];
    CASES.iter().for_each(|case| case.look(2));
}

/// T3: as above, while a later segment has an entry with the same tag as the one that is inserted
/// into the first segment, and then moved. So lookups read the later segment from the beginning.
#[test]
fn lookups_of_entries_that_move_to_a_later_segment() {
    static CASE: Case = Case {
        residents: &[1, 4, 16],
        prepare: |map| {
            // This moves key 16 to a later segment.
            assert_eq!(map.insert(16, 0, &read()), Some(&0));
            // Its slot becomes free.
            (0..clock::GRACE_PERIODS).for_each(|_| wait_for_readers());
        },
        update: |map, guard| {
            insert(1, map, guard);
            insert(2, map, guard);
        },
        values: &[None, Some(1), Some(2)],
    };
    CASE.look(unless_quick(2));
}

/// T3, T8: later segments are replaced by a copy when all their slots are live or vacated.
#[test]
fn lookups_while_later_segments_are_copied() {
    static CASE: Case = Case {
        residents: &[1, 4, 5, 6],
        prepare: |map| insert(1, map, &read()),
        update: |map, guard| {
            insert(2, map, guard);
            insert(3, map, guard);
        },
        values: &[Some(1), Some(2), Some(3)],
    };
    CASE.look(unless_quick(2));
}

/// The table is resized while other threads look a key up, and update it. The updater moves
/// buckets, too.
fn resize(case: &'static Case, from: usize, to: usize, preemptions: usize) {
    explore(preemptions, move || {
        let map = case.map();
        map.resize_to(from).unwrap();
        // Lets two grace periods pass, so that a shrink does not wait for the threads below.
        wait_for_readers();
        wait_for_readers();
        let guard = read();
        // SAFETY: the threads are joined before the guard is dropped.
        let shared = unsafe { Shared::new(&guard) };
        let resizer = alongside(&map, shared, move |map, _| map.resize_to(to).unwrap());
        let updater = alongside(&map, shared, case.update);
        assert_follows(&map, 0, case.values, &guard);
        resizer.join().unwrap();
        updater.join().unwrap();
        drop(guard);
        assert_eq!(map.buckets(), to);
        case.assert_done(&map);
    });
}

/// In a table of two buckets, key 0 is in a later segment.
static REPLACE: Case = Case {
    residents: &[1, 4, 5],
    prepare: |map| insert(1, map, &read()),
    update: |map, guard| insert(2, map, guard),
    values: &[Some(1), Some(2)],
};

/// T1, T3, T8: growth.
#[test]
fn lookups_and_updates_while_growing() {
    resize(&REPLACE, 2, 4, unless_quick(2));
}

/// T1, T3, T8: shrinking.
#[test]
fn lookups_and_updates_while_shrinking() {
    resize(&REPLACE, 4, 2, unless_quick(2));
}

/// T1, T3: a thread sees its own updates, and residents, while another one moves the bucket.
#[test]
fn own_updates_while_resizing() {
    for (from, to) in [(2, 4), (4, 2)] {
        explore(unless_quick(2), move || {
            let map = REPLACE.map();
            map.resize_to(from).unwrap();
            wait_for_readers();
            wait_for_readers();
            let guard = read();
            // SAFETY: the thread is joined before the guard is dropped.
            let shared = unsafe { Shared::new(&guard) };
            let resizer = alongside(&map, shared, move |map, _| map.resize_to(to).unwrap());
            insert(2, &map, &guard);
            assert_eq!(get(&map, 0, &guard), Some(2));
            REPLACE.assert_resident(&map, &guard);
            resizer.join().unwrap();
            drop(guard);
            REPLACE.assert_done(&map);
        });
    }
}

/// T8: a slot is used again only when readers that may have references to its entry have left.
#[test]
fn references_while_slots_are_used_again() {
    explore(unless_quick(2), || {
        let map = map(&[1, 4, 0]);
        let reader = {
            let map = map.clone();
            thread::spawn(move || {
                // Begins a grace period, and another one if the first one has ended.
                clock::drive();
                clock::drive();
                let guard = read();
                let found = map.get(&0, &guard);
                thread::yield_now();
                assert!([None, Some(&0), Some(&1)].contains(&found));
                found.map(|value| *value)
            })
        };
        let entry = map.remove(&0, &read()).copied();
        assert_eq!(entry, Some(0));
        clock::drive();
        clock::drive();
        map.insert(0, 1, &read());
        reader.join().unwrap();
        assert_holds(&map, &[(0, 1), (1, 0), (4, 0)]);
    });
}

/// T7: an iteration sees each entry once while one is moved to a later segment.
#[test]
fn iteration_while_entries_move_to_later_segments() {
    explore(3, || {
        let map = map(&[0, 1, 4]);
        let guard = read();
        // SAFETY: the thread is joined before the guard is dropped.
        let shared = unsafe { Shared::new(&guard) };
        let updater = alongside(&map, shared, |map, guard| insert(1, map, guard));
        let mut seen: Vec<_> = map.keys(&guard).copied().collect();
        seen.sort_unstable();
        assert_eq!(seen, [0, 1, 4]);
        updater.join().unwrap();
    });
}

/// T7: an iteration sees each entry once while the table is resized.
#[test]
fn iteration_while_buckets_move() {
    for (from, to) in [(2, 4), (4, 2)] {
        explore(unless_quick(2), move || {
            let map = map(&[0, 4, 9]);
            map.resize_to(from).unwrap();
            wait_for_readers();
            wait_for_readers();
            let guard = read();
            // SAFETY: the thread is joined before the guard is dropped.
            let shared = unsafe { Shared::new(&guard) };
            let resizer = alongside(&map, shared, move |map, _| map.resize_to(to).unwrap());
            let seen: Vec<_> = map.keys(&guard).copied().collect();
            assert_eq!(seen, [0, 4, 9]);
            resizer.join().unwrap();
        });
    }
}

/// T3: after a clear, lookups find none of the entries that were in the map before, while the table
/// is resized.
#[test]
fn clear_while_buckets_move() {
    for (from, to) in [(2, 4), (4, 2)] {
        explore(unless_quick(2), move || {
            let map = map(&[0, 4, 9]);
            map.resize_to(from).unwrap();
            wait_for_readers();
            wait_for_readers();
            let guard = read();
            // SAFETY: the thread is joined before the guard is dropped.
            let shared = unsafe { Shared::new(&guard) };
            let resizer = alongside(&map, shared, move |map, _| map.resize_to(to).unwrap());
            map.clear(&guard);
            [0, 4, 9].iter().for_each(|&key| assert_eq!(get(&map, key, &guard), None, "{key} was removed"));
            resizer.join().unwrap();
            drop(guard);
            assert_holds(&map, &[]);
        });
    }
}

/// T3: updates of one bucket exclude each other, even if they do not change its first word.
#[test]
fn updates_of_later_segments() {
    explore(3, || {
        let map = map(&[1, 4, 5]);
        let guard = read();
        // SAFETY: the thread is joined before the guard is dropped.
        let shared = unsafe { Shared::new(&guard) };
        let updater = alongside(&map, shared, |map, guard| _ = map.insert(2, 0, guard));
        map.insert(0, 0, &guard);
        updater.join().unwrap();
        drop(guard);
        assert_holds(&map, &[(0, 0), (1, 0), (2, 0), (4, 0), (5, 0)]);
    });
}

/// T3: a removal that takes no lock neither undoes an update that holds the lock, nor is undone by
/// it, and only one of two removals returns the entry.
#[test]
fn removals_without_the_lock() {
    explore(3, || {
        let map = map(&[0]);
        let guard = read();
        // SAFETY: the thread is joined before the guard is dropped.
        let shared = unsafe { Shared::new(&guard) };
        let updater = alongside(&map, shared, |map, guard| {
            map.insert(1, 0, guard);
            map.remove(&1, guard).expect("no other thread removes it");
        });
        map.remove(&0, &guard).expect("no other thread removes it");
        updater.join().unwrap();
        drop(guard);
        assert_holds(&map, &[]);
    });
    explore(3, || {
        let map = map(&[0]);
        let guard = read();
        // SAFETY: as above.
        let shared = unsafe { Shared::new(&guard) };
        let removals = Arc::new(AtomicUsize::new(0));
        let other = removals.clone();
        // Relaxed: joining the thread orders them.
        let updater = alongside(&map, shared, move |map, guard| {
            other.fetch_add(usize::from(map.remove(&0, guard).is_some()), Relaxed);
        });
        removals.fetch_add(usize::from(map.remove(&0, &guard).is_some()), Relaxed);
        updater.join().unwrap();
        drop(guard);
        assert_eq!(removals.load(Relaxed), 1);
        assert_holds(&map, &[]);
    });
}

/// T3: an operation that reads an entry first changes exactly that entry.
#[test]
fn increments() {
    explore(3, || {
        let map = map(&[0]);
        let guard = read();
        // SAFETY: the thread is joined before the guard is dropped.
        let shared = unsafe { Shared::new(&guard) };
        let updater = alongside(&map, shared, |map, guard| _ = map.update(0, |n| n + 1, guard));
        map.update(0, |n| n + 1, &guard);
        updater.join().unwrap();
        drop(guard);
        assert_holds(&map, &[(0, 2)]);
    });
}

/// T8: threads that move different buckets write to different ones, even if `Hash` returns
/// something else each time.
#[test]
fn movers_stay_apart_with_any_hash() {
    static LIES: AtomicBool = AtomicBool::new(false);
    const LYING: Hashing = Hashing(|n| if LIES.load(Relaxed) { 0 } else { (PLACES.0)(n) });
    explore(unless_quick(2), || {
        LIES.store(false, Relaxed);
        let map = map_with(LYING, &[1, 9]);
        LIES.store(true, Relaxed);
        let guard = read();
        // SAFETY: the threads are joined before the guard is dropped.
        let shared = unsafe { Shared::new(&guard) };
        let updater = alongside(&map, shared, |map, guard| _ = map.insert(2, 0, guard));
        let resizer = alongside(&map, shared, |map, _| map.resize_to(4).unwrap());
        resizer.join().unwrap();
        updater.join().unwrap();
        let mut seen: Vec<_> = map.keys(&guard).copied().collect();
        seen.sort_unstable();
        assert_eq!(seen, [1, 2, 9]);
    });
}
