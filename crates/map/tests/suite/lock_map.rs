//! The lock map in one form, which is `super::Form`: what a lock excludes, and what it does not.

use std::hash::{BuildHasher, Hash, RandomState};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::Stdio;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::thread;
use std::time::Duration;

use relativist::Relocatable;
use relativist::lock_map::{self, Entry, WouldBlock};
use relativist_testing::{alone, poll, wait_until};

use super::Form;
use crate::hashing::{EQUAL, Hashing, MIXED, TOGETHER};
use crate::in_time;
use crate::tracked::{Tally, Tracked};

type LockMap<K, V, S = RandomState> = lock_map::Map<K, V, S, Form>;

/// Runs `action` on another thread, and returns a function that returns whether it has ended.
fn begin(action: impl FnOnce() + Send + 'static) -> impl Fn() -> bool {
    let thread = thread::spawn(action);
    move || thread.is_finished()
}

/// Checks that an action does not end before the guard of a key is dropped, and ends then.
#[track_caller]
fn assert_waits<R>(what: &str, action: impl FnOnce(&LockMap<u64, u64>) -> R + Send + 'static) {
    let map = Arc::new(LockMap::from([(1, 10), (2, 20)]));
    let guard = map.lock(&1).unwrap();
    let shared = Arc::clone(&map);
    let has_ended = begin(move || _ = action(&shared));
    thread::sleep(Duration::from_millis(20));
    assert!(!has_ended(), "{what} does not wait for the lock");
    assert!(map.contains_key(&1), "{what}: what is locked is in the map");
    drop(guard);
    wait_until(what, has_ended);
}

#[test]
fn what_is_locked_stays() {
    assert_waits("lock", |map| drop(map.lock(&1)));
    assert_waits("get_cloned", |map| map.get_cloned(&1));
    assert_waits("insert", |map| map.insert(1, 11));
    assert_waits("entry", |map| drop(map.entry(1)));
    assert_waits("remove", |map| map.remove(&1));
    assert_waits("remove_if", |map| map.remove_if(&1, |_, _| true));
    assert_waits("retain", |map| map.retain(|_, _| false));
    assert_waits("extract_if", |map| map.extract_if(|_, _| true).count());
    assert_waits("clear", |map| map.clear());
    assert_waits("iter", |map| map.iter().count());
    assert_waits("alter_all", |map| map.alter_all(|_, value| *value += 1));
    assert_waits("clone", |map| map.clone());
}

#[test]
fn try_lock_and_debug_do_not_wait() {
    let map = LockMap::from([(1, 10), (2, 20)]);
    let guard = map.lock(&1).unwrap();
    let refused: WouldBlock = map.try_lock(&1).unwrap_err();
    assert_eq!(refused.to_string(), "the entry is locked by another guard");
    assert!(map.try_lock(&3).is_ok_and(|absent| absent.is_none()));
    let shown = format!("{map:?}");
    assert!(shown.contains("1: <locked>") && shown.contains("2: 20"), "{shown}");
    assert_eq!(format!("{guard:?} {guard}"), "RefMut { key: 1, value: 10 } 10");
}

/// An entry that a resize moves is not locked.
#[test]
fn debug_shows_entries_that_move() {
    let map: LockMap<i32, i32> = (0..2000).map(|key| (key, 7)).collect();
    let is_done = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            (2000..100_000).for_each(|key| _ = map.insert(key, 7));
            is_done.store(true, Relaxed);
        });
        while !is_done.load(Relaxed) {
            let shown = format!("{map:?}");
            assert!(!shown.contains("<locked>"));
            assert!(shown.matches(": 7").count() >= 2000);
        }
    });
}

#[test]
fn a_vacant_key_is_absent_and_locked() {
    let map = Arc::new(LockMap::<u64, u64>::new());
    let Entry::Vacant(vacant) = map.entry(1) else { panic!("it is absent") };
    assert_eq!(vacant.key(), &1);
    assert!(!map.contains_key(&1) && map.try_lock(&1).is_err());
    let shared = Arc::clone(&map);
    let has_ended = begin(move || *shared.entry(1).or_insert(5) += 1);
    thread::sleep(Duration::from_millis(20));
    assert!(!has_ended(), "`entry` waits for the key");
    *vacant.insert(100) += 10;
    wait_until("the other thread to add", has_ended);
    assert_eq!(map.get_copied(&1), Some(111));

    // Not inserted: the next one finds it absent.
    let Entry::Vacant(vacant) = map.entry(2) else { panic!("it is absent") };
    let shared = Arc::clone(&map);
    let has_ended = begin(move || *shared.entry(2).or_insert(5) += 1);
    drop(vacant);
    wait_until("the other thread to insert", has_ended);
    assert_eq!((map.get_copied(&2), map.len()), (Some(6), 2));
}

/// Of all threads that want a key, one makes its value.
#[test]
fn values_are_made_once() {
    let map = LockMap::<u64, u64>::new();
    let made = AtomicU64::new(0);
    thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for key in 0..500 {
                    let make = || {
                        made.fetch_add(1, Relaxed);
                        0
                    };
                    *map.entry(key).or_insert_with(make) += 1;
                }
            });
        }
    });
    assert_eq!(made.load(Relaxed), 500);
    assert!(map.iter().all(|value| *value == 4));
}

#[test]
fn keys_are_made_only_if_they_are_absent() {
    #[derive(PartialEq, Eq, Hash, Relocatable)]
    struct Name(String);
    static MADE: AtomicU64 = AtomicU64::new(0);
    impl From<&str> for Name {
        fn from(name: &str) -> Self {
            MADE.fetch_add(1, Relaxed);
            Self(name.replace("wrong", "other"))
        }
    }
    impl std::borrow::Borrow<str> for Name {
        fn borrow(&self) -> &str {
            &self.0
        }
    }
    let map = LockMap::<Name, u32>::new();
    (0..10).for_each(|_| *map.entry_ref("a").or_default() += 1);
    assert_eq!((MADE.load(Relaxed), map.get_copied("a")), (1, Some(10)));
    let wrong = catch_unwind(AssertUnwindSafe(|| map.entry_ref("wrong").or_default().value() + 1));
    assert!(wrong.is_err() && map.len() == 1, "a key under the hash of another one");
}

/// Whoever holds an entry may use all others, whatever other threads do: no two entries share a
/// lock, not even in one bucket.
#[test]
fn locks_of_different_keys_are_independent() {
    in_time(|| {
        let map = LockMap::<u64, u64, Hashing>::with_hasher(TOGETHER);
        (0..64).for_each(|key| _ = map.insert(key, key));
        let held = map.lock(&7).unwrap();
        thread::scope(|scope| {
            scope.spawn(|| {
                (0..64).filter(|key| *key != 7).filter_map(|key| map.lock(&key)).for_each(|mut value| *value += 1)
            });
            scope.spawn(|| (100..1000).for_each(|key| _ = map.insert(key, key)));
            scope.spawn(|| (8..40).for_each(|key| _ = map.remove(&key)));
            scope.spawn(|| map.try_reserve(100_000).unwrap());
        });
        assert!(map.lock(&8).is_none() && map.insert(8, 8).is_none());
        drop(held);
    });
}

/// A value may be a lock that lets threads sleep at its own address, such as those of the crate
/// `parking_lot`: what wakes them wakes no thread that waits for the entry.
#[test]
fn sleepers_are_apart_from_those_of_the_value() {
    in_time(|| {
        #[repr(align(16))]
        struct Value(u64);
        let map = Arc::new(LockMap::from([(1, Value(0))]));
        let mut guard = map.lock(&1).unwrap();
        let shared = Arc::clone(&map);
        let has_ended = begin(move || shared.lock(&1).unwrap().0 += 1);
        let value = std::ptr::from_mut(&mut *guard).addr();
        // On a busy machine it takes long until the other thread sleeps.
        for _ in 0..20 {
            thread::sleep(Duration::from_millis(20));
            for address in value - 64..value + 64 {
                // SAFETY: no thread of this test sleeps there.
                let woken = unsafe { parking_lot_core::unpark_all(address, parking_lot_core::UnparkToken(1)) };
                assert_eq!(woken, 0, "a thread sleeps at the address of an object");
            }
        }
        assert!(!has_ended() && guard.0 == 0);
        drop(guard);
        wait_until("the other thread to lock", has_ended);
    });
}

/// Whoever is woken and gives up wakes the next one.
#[test]
fn a_panic_after_waking_leaves_no_sleeper_behind() {
    thread_local!(static PANICS: std::cell::Cell<bool> = const { std::cell::Cell::new(false) });
    static LOOKS: AtomicU64 = AtomicU64::new(0);
    #[derive(Relocatable)]
    struct Key;
    impl PartialEq for Key {
        fn eq(&self, _: &Self) -> bool {
            if PANICS.get() {
                assert_eq!(LOOKS.fetch_add(1, Relaxed), 0, "the second comparison panics");
            }
            true
        }
    }
    impl Eq for Key {}
    impl Hash for Key {
        fn hash<H: std::hash::Hasher>(&self, _: &mut H) {}
    }
    in_time(|| {
        for _ in 0..5 {
            LOOKS.store(0, Relaxed);
            let map = Arc::new(LockMap::from([(Key, 0)]));
            let guard = map.lock(&Key).unwrap();
            let start = |panics| {
                let shared = Arc::clone(&map);
                let has_ended = begin(move || {
                    PANICS.set(panics);
                    *shared.lock(&Key).unwrap() += 1;
                });
                thread::sleep(Duration::from_millis(20));
                has_ended
            };
            // The first one gets the lock handed over. So the second one, soon after, mostly does
            // not, and looks the key up again.
            let threads = [false, true, false].map(start);
            drop(guard);
            wait_until("all to end", || threads.iter().all(|has_ended| has_ended()));
            assert_eq!(map.get_copied(&Key), Some(if LOOKS.load(Relaxed) > 1 { 2 } else { 3 }));
        }
    });
}

/// An entry whose key has another hash now stays, unlocked.
#[test]
fn a_key_that_changes_its_hash_is_refused() {
    static HASH: AtomicU64 = AtomicU64::new(1);
    #[derive(PartialEq, Eq, Relocatable)]
    struct Key;
    impl Hash for Key {
        fn hash<H: std::hash::Hasher>(&self, state: &mut H) {
            state.write_u64(HASH.load(Relaxed));
        }
    }
    let map = LockMap::<Key, u64, Hashing>::with_hasher(MIXED);
    map.insert(Key, 5);
    HASH.store(2, Relaxed);
    assert!(catch_unwind(AssertUnwindSafe(|| map.clear())).is_err());
    assert_eq!((map.len(), map.iter().map(|value| *value).sum::<u64>()), (1, 5));
}

/// No entry is seen twice by one iteration, also if it was inserted meanwhile, at the address of
/// one that was removed, in a map that has shrunk.
#[test]
fn an_iteration_sees_no_new_entry_twice() {
    // The first 64 keys share a bucket of a large map.
    const SOME_TOGETHER: Hashing = Hashing(|n| if n < 64 { (TOGETHER.0)(n) } else { (MIXED.0)(n) });
    let map = LockMap::<u64, u64, Hashing>::with_hasher(SOME_TOGETHER);
    map.try_reserve(10_000).unwrap();
    (0..64).for_each(|key| _ = map.insert(key, 0));
    let mut entries = map.iter();
    let mut seen: Vec<u64> = entries.next().map(|entry| *entry.key()).into_iter().collect();
    (0..64).for_each(|key| _ = map.remove(&key));
    relativist_rcu::barrier();
    map.shrink_to_fit().unwrap();
    (1000..1064).for_each(|key| _ = map.insert(key, 0));
    seen.extend(entries.map(|entry| *entry.key()));
    let count = seen.len();
    seen.sort_unstable();
    seen.dedup();
    assert_eq!(seen.len(), count, "seen twice");
}

/// A thread that waits for a lock holds no read section.
#[test]
fn waiting_delays_no_reclamation() {
    in_time(|| {
        let map = Arc::new(LockMap::from([(1, 1)]));
        let guard = map.lock(&1).unwrap();
        let shared = Arc::clone(&map);
        let has_ended = begin(move || drop(shared.lock(&1)));
        thread::sleep(Duration::from_millis(20));
        relativist_rcu::wait_for_readers();
        assert!(!has_ended());
        drop(guard);
        wait_until("the other thread to lock", has_ended);
    });
}

/// Whoever waits for an entry that is removed, and perhaps inserted again, looks the key up again.
#[test]
fn waiting_for_an_entry_that_goes() {
    in_time(|| {
        let map = Arc::new(LockMap::from([(1, 1)]));
        for round in 0..200 {
            let Entry::Occupied(entry) = map.entry(1) else { panic!("inserted before") };
            let shared = Arc::clone(&map);
            let waiting = thread::spawn(move || shared.get_copied(&1));
            if round % 2 == 0 {
                thread::sleep(Duration::from_micros(200));
            }
            entry.remove();
            assert_eq!(map.insert(1, 2), None);
            let found = waiting.join().unwrap();
            assert!(matches!(found, None | Some(1 | 2)), "{found:?}");
            map.insert(1, 1);
        }
    });
}

#[test]
fn a_guard_may_be_dropped_elsewhere() {
    in_time(|| {
        let map = LockMap::from([(1, 1)]);
        let mut guard = map.lock(&1).unwrap();
        thread::scope(|scope| {
            scope.spawn(move || {
                *guard += 1;
                drop(guard);
            });
            assert!(matches!(map.get_copied(&1), Some(2)));
        });
    });
}

/// A child process, in a debug build, waits for itself. It says so.
#[cfg(debug_assertions)]
#[test]
fn a_thread_that_waits_for_itself_is_reported() {
    const CHILD: &str = "RELATIVIST_WAITS_FOR_ITSELF";
    if std::env::var_os(CHILD).is_some() {
        let map = LockMap::from([(1, 1)]);
        let _guard = map.lock(&1);
        drop(map.lock(&1));
        unreachable!("it waits for itself");
    }
    let mut program = relativist_testing::own_program();
    let (_, module) = module_path!().split_once("::").unwrap();
    program.args(["--exact", &format!("{module}::a_thread_that_waits_for_itself_is_reported"), "--nocapture"]);
    let mut child = program.env(CHILD, "1").stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    let mut lines = std::io::BufRead::lines(std::io::BufReader::new(child.stderr.take().unwrap()));
    let line = lines.find_map(|line| line.ok().filter(|line| line.contains("that it has locked itself")));
    child.kill().unwrap();
    child.wait().unwrap();
    assert!(line.is_some());
}

/// Seen once each: entries that are in the map throughout, while it grows, shrinks and is swept.
#[test]
fn iteration_sees_each_entry_once() {
    for hashing in [MIXED, EQUAL] {
        let keys = if hashing.hash_one(1u64) == hashing.hash_one(2u64) { 40 } else { 2000 };
        let map = LockMap::<u64, u64, Hashing>::with_hasher(hashing);
        (0..keys).for_each(|key| _ = map.insert(key, 0));
        crate::alongside::alongside(
            || {
                (keys..4 * keys).for_each(|key| _ = map.insert(key, 0));
                (keys..4 * keys).for_each(|key| _ = map.remove(&key));
            },
            || {
                for round in 1..=20 {
                    map.iter().for_each(|mut value| *value += u64::from(value.key() < &keys));
                    assert!((0..keys).all(|key| map.get_copied(&key) == Some(round)), "each was seen once");
                }
            },
        );
        map.retain(|key, _| *key < keys);
        assert_eq!(map.extract_if(|key, _| key % 2 == 0).count() as u64, keys / 2);
        map.clear();
        assert!(map.is_empty() && map.iter().next().is_none());
    }
}

#[test]
fn each_value_is_dropped_once() {
    alone(|| {
        static TALLY: Tally = Tally::new();
        let value = |key| Tracked::new(key, &TALLY);
        let map = LockMap::<u64, Tracked>::new();
        (0..100).for_each(|key| drop(map.insert(key, value(key))));
        (0..10).for_each(|key| map.insert(key, value(key)).unwrap().assert_of(key));
        (0..20).for_each(|key| map.remove(&key).unwrap().assert_of(key));
        assert_eq!(TALLY.live(), 80, "removed values do not wait for readers");
        map.retain(|key, _| key % 2 == 0);
        assert_eq!(TALLY.live(), 40);
        // Leaked guards keep nothing alive.
        std::mem::forget(map.lock(&20));
        std::mem::forget(map.entry(1000));
        let Entry::Vacant(vacant) = map.entry(1001) else { panic!("it is absent") };
        drop(vacant);
        let mut rest = map.into_iter();
        assert_eq!(rest.by_ref().take(30).count(), 30);
        drop(rest);
        TALLY.assert_live(0);
        let map = LockMap::from([(1, value(1))]);
        std::mem::forget(map.lock(&1));
        std::mem::forget(map.entry(2));
        drop(map);
        TALLY.assert_live(0);
    });
}

/// Closures and destructors may use the map, except for the entry that is locked.
#[test]
fn closures_may_use_the_map() {
    in_time(|| {
        let map = LockMap::<u64, u64>::from_iter((0..100).map(|n| (n, n)));
        map.entry(1000).or_insert_with(|| map.remove(&0).unwrap());
        map.remove_if(&1000, |_, _| map.insert(1001, 1).is_none());
        map.retain(|key, _| (map.insert(2000 + key, 0), key % 2 == 0).1 || *key >= 1000);
        assert!(map.contains_key(&2002) && !map.contains_key(&3));
    });
}

#[test]
fn histories_are_linearizable() {
    use crate::history::{Recorder, is_linearizable};
    for round in 0..300 {
        let map = LockMap::<u64, u64, Hashing>::with_hasher([MIXED, EQUAL, TOGETHER][round % 3]);
        let recorder = Recorder::without_clear(3);
        let threads: Vec<_> = thread::scope(|scope| {
            let record = |thread| recorder.record(&&map, 12, (round * 4 + thread) as u64);
            let threads: Vec<_> = (0..3).map(|thread| scope.spawn(move || record(thread))).collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).collect()
        });
        assert!(is_linearizable(&threads), "{threads:#?}");
    }
}

#[test]
fn formats_get_the_right_number() {
    let map = LockMap::from([("a".to_string(), 1), ("b".to_string(), 2)]);
    let json = serde_json::to_string(&map).unwrap();
    let read: LockMap<String, u32> = serde_json::from_str(&json).unwrap();
    assert_eq!((read.get_copied("a"), read.get_copied("b"), read.len()), (Some(1), Some(2), 2));
    let one = LockMap::from([(1u8, 2u8)]);
    use serde_test::{Configure, Token, assert_ser_tokens};
    let tokens = |len| [Token::Map { len }, Token::U8(1), Token::U8(2), Token::MapEnd];
    assert_ser_tokens(&one.clone().compact(), &tokens(Some(1)));
    assert_ser_tokens(&one.readable(), &tokens(None));
}

#[test]
fn parallel_iteration_locks_each_entry() {
    use rayon::prelude::*;
    let map: LockMap<u64, u64> = (0..5000).into_par_iter().map(|n| (n, n)).collect();
    map.par_iter().for_each(|mut value| *value += 1);
    assert!(map.iter().all(|value| *value == value.key() + 1));
    assert_eq!(map.par_iter().count(), 5000);
}

/// A thread that is woken while others want the lock gets it in the end.
#[test]
fn nobody_waits_for_ever() {
    in_time(|| {
        let map = Arc::new(LockMap::from([(1, 0u64)]));
        let done = Arc::new(AtomicBool::new(false));
        let busy = {
            let (map, done) = (Arc::clone(&map), Arc::clone(&done));
            begin(move || {
                while !done.load(Relaxed) {
                    *map.lock(&1).unwrap() += 1;
                }
            })
        };
        poll("the other thread to begin", || map.get_copied(&1).filter(|n| *n > 0));
        (0..100).for_each(|_| drop(map.lock(&1)));
        done.store(true, Relaxed);
        wait_until("the other thread to end", busy);
    });
}

/// B13: nobody who resizes the map waits for an entry that is locked. It stays in the map, and
/// where it is. Afterwards the map grows and shrinks on.
#[test]
fn resizing_does_not_wait_for_a_locked_entry() {
    in_time(|| {
        let map = LockMap::<u64, u64, Hashing>::with_hasher(MIXED);
        (0..1000).for_each(|key| _ = map.insert(key, key));
        for _ in 0..2 {
            let mut held = map.lock(&7).unwrap();
            let address = std::ptr::from_ref(held.value());
            (1000..5000).for_each(|key| _ = map.insert(key, key));
            map.try_reserve(100_000).unwrap();
            (1000..5000).for_each(|key| assert_eq!(map.remove(&key), Some(key)));
            map.shrink_to_fit().unwrap();
            assert!((0..1000).filter(|key| *key != 7).all(|key| map.get_copied(&key) == Some(key)));
            assert!(map.contains_key(&7) && map.try_lock(&7).is_err());
            assert_eq!(std::ptr::from_ref(held.value()), address);
            *held += 10;
            drop(held);
            map.try_reserve(100_000).unwrap();
            assert!(map.capacity() > 100_000);
            map.shrink_to_fit().unwrap();
            assert!(map.capacity() < 10_000);
            *map.lock(&7).unwrap() -= 10;
        }
        assert_eq!(map.iter().map(|value| *value).sum::<u64>(), 999 * 500);
    });
}

/// A thread helps each of the maps that it uses in turn to grow, also if one of them cannot.
#[test]
fn maps_grow_beside_one_that_cannot() {
    for helps_before in 0..2 {
        let (stuck, map) = (LockMap::new(), LockMap::new());
        stuck.insert(0, 0);
        let _guard = stuck.lock(&0);
        (1..500 + helps_before).for_each(|key| _ = stuck.insert(key, key));
        for key in 0..5000 {
            map.insert(key, key);
            // The number of its entries stays.
            if key % 2 == 0 {
                stuck.insert(1000, 0)
            } else {
                stuck.remove(&1000)
            };
        }
        assert!(map.capacity() > 2500, "{} entries in a map with a capacity of {}", map.len(), map.capacity());
    }
}

/// When a resize has moved an entry, nobody sleeps at its old address, at which there may be an
/// entry of another map next, with a value of another type.
#[test]
fn nobody_sleeps_where_an_entry_was() {
    in_time(|| {
        for _ in 0..40 {
            let map = Arc::new(LockMap::<u64, u64>::from_iter((0..20).map(|key| (key, 0))));
            let guard = map.lock(&7).unwrap();
            let value = std::ptr::from_ref(guard.value()).addr();
            let threads: Vec<_> = (0..6)
                .map(|_| {
                    let shared = Arc::clone(&map);
                    begin(move || *shared.lock(&7).unwrap() += 1)
                })
                .collect();
            thread::sleep(Duration::from_millis(5));
            // The old memory is not used again, by the map of another test, before it is examined.
            let section = relativist_rcu::read();
            drop(guard);
            // One thread is awake by now. The others find the entry where it is, or is going.
            map.try_reserve(1000).unwrap();
            let is_moved = map.lock(&7).is_some_and(|now| std::ptr::from_ref(now.value()).addr() != value);
            for address in (value - 32..value + 32).filter(|_| is_moved) {
                // SAFETY: threads of this test sleep there if they sleep at an old address. They
                // look the key up again.
                let woken = unsafe { parking_lot_core::unpark_all(!address, parking_lot_core::UnparkToken(1)) };
                assert_eq!(woken, 0, "threads sleep at the address of an entry that has moved");
            }
            drop(section);
            wait_until("all to lock", || threads.iter().all(|has_ended| has_ended()));
            assert_eq!(map.get_copied(&7), Some(6));
        }
    });
}

/// B13: threads that sleep at an entry find it where a resize has moved it.
#[test]
fn sleepers_follow_an_entry_that_moves() {
    in_time(|| {
        for round in 0..20 {
            let map = Arc::new(LockMap::<u64, u64>::from_iter((0..100).map(|key| (key, 0u64))));
            let guard = map.lock(&7).unwrap();
            let threads: Vec<_> = (0..4)
                .map(|_| {
                    let shared = Arc::clone(&map);
                    begin(move || *shared.lock(&7).unwrap() += 1)
                })
                .collect();
            thread::sleep(Duration::from_millis(round % 5));
            drop(guard);
            map.try_reserve(1000 << (round % 4)).unwrap();
            wait_until("all to lock", || threads.iter().all(|has_ended| has_ended()));
            assert_eq!(map.get_copied(&7), Some(4));
        }
    });
}
