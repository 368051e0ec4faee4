//! Large values that are sent from where they lie, and received to where they will lie: they stay as they are, the limit holds, and all
//! memory comes back. (In debug builds a block that is used again is spoiled first, so who still looks at it notices.)

use super::{MAX_VALUE, engine, has, key, set};
use relativist_cache::{Cache, ItemShape, LARGE_VALUE, Lookup, Mode, ReservedValue, Store, Usage, ValueRef};
use std::collections::VecDeque;
use std::thread;

const MEBIBYTE: usize = 1 << 20;

/// A value that tells its number throughout.
fn value(number: u64, size: usize) -> Vec<u8> {
    let mut value = number.to_le_bytes().repeat(size.div_ceil(8));
    value.truncate(size);
    value
}

fn is_whole(value: &[u8]) -> bool {
    let number = u64::from_le_bytes(value[..8].try_into().unwrap());
    value == self::value(number, value.len())
}

fn pin(engine: &Cache, key: &str) -> Option<ValueRef> {
    let mut pin = None;
    engine.get(key.as_bytes(), |hit| {
        pin = hit.pin();
        assert!(pin.as_ref().is_none_or(|pin| pin.as_ptr() == hit.value.as_ptr()), "it was copied");
    });
    pin
}

fn expect(engine: &Cache, key: &str, value_len: usize) -> Option<ReservedValue> {
    engine.reserve(&ItemShape { key_len: key.len(), value_len, has_flags: false, has_cas: false })
}

/// The same, with all of `value` received in pieces.
fn arrive(engine: &Cache, key: &str, value: &[u8]) -> Option<ReservedValue> {
    let mut reserved = expect(engine, key, value.len())?;
    for piece in value.chunks(value.len() / 3 + 1) {
        assert!(!reserved.is_complete());
        assert_eq!(reserved.take(piece), piece.len());
    }
    assert!(reserved.is_complete() && reserved.rest().is_empty());
    assert_eq!(reserved.take(b"more"), 0);
    Some(reserved)
}

fn put(engine: &Cache, mode: Mode, key: &str, reserved: &ReservedValue) -> Store {
    engine.store_reserved(mode, key.as_bytes(), 0, 0, reserved)
}

fn assert_within_limit(usage: &Usage) {
    assert!(usage.mapped_bytes + usage.table_bytes <= usage.limit, "{usage:?}");
    assert!(usage.pinned_bytes <= usage.mapped_bytes, "{usage:?}");
}

/// Flushes, and lets the system have what is free.
#[track_caller]
fn assert_all_comes_back(engine: &Cache) {
    engine.flush(0);
    (0..20).for_each(|_| engine.maintain());
    let usage = engine.usage();
    assert_eq!((usage.items, usage.item_bytes, usage.pinned_bytes), (0, 0, 0));
    assert!(usage.mapped_bytes <= usage.limit / 8, "{usage:?}");
}

#[test]
fn a_lease_outlives_its_item_whatever_becomes_of_it() {
    let (engine, _) = engine(8 * MEBIBYTE);
    let size = 300_000;
    for fate in ["stays", "overwritten", "deleted", "flushed"] {
        let kept = value(7, size);
        assert_eq!(set(&engine, "k", &kept), Store::Stored);
        let (first, second) = (pin(&engine, "k").unwrap(), pin(&engine, "k").unwrap());
        let lent = engine.usage().pinned_bytes;
        assert!((size..size + 8192).contains(&lent), "one block, however often it is lent: {lent}");
        match fate {
            "overwritten" => assert_eq!(set(&engine, "k", &value(8, size)), Store::Stored),
            "deleted" => assert!(engine.delete(b"k")),
            "flushed" => engine.flush(0),
            _ => (),
        }
        // Three times what there is room for, of the same size, so that each block is used again.
        for index in 0..80 {
            assert_eq!(set(&engine, &key(index), &value(index as u64, size)), Store::Stored);
            assert_within_limit(&engine.usage());
        }
        assert_eq!(has(&engine, "k"), fate == "stays", "what is lent is not evicted, but others are");
        assert!(*first == *kept && *second == *kept, "{fate}");
        drop(first);
        assert_eq!((engine.usage().pinned_bytes, &*second), (lent, &*kept), "{fate}");
        drop(second);
        assert_all_comes_back(&engine);
    }
}

#[test]
fn small_values_are_not_lent() {
    let (engine, _) = engine(8 * MEBIBYTE);
    for (size, is_lent) in [(LARGE_VALUE - 1, false), (LARGE_VALUE, true)] {
        set(&engine, "k", &value(1, size));
        assert_eq!(pin(&engine, "k").is_some(), is_lent);
        assert_eq!(expect(&engine, "k", size).is_some(), is_lent);
    }
}

/// Who reads slowly can keep a quarter of the limit, or one value, however large.
#[test]
fn what_readers_keep_is_bounded() {
    let (engine, _) = engine(8 * MEBIBYTE);
    let size = 100_000;
    let mut leases = Vec::new();
    for index in 0..200 {
        assert_eq!(set(&engine, &key(index), &value(index as u64, size)), Store::Stored);
        leases.extend(pin(&engine, &key(index)));
        let usage = engine.usage();
        assert_within_limit(&usage);
        assert!(usage.pinned_bytes <= 2 * MEBIBYTE, "{usage:?}");
    }
    assert!((18..=20).contains(&leases.len()), "{}", leases.len());
    assert!(leases.iter().enumerate().all(|(index, pin)| **pin == value(index as u64, size)[..]));
    drop(leases.split_off(1));
    assert!(pin(&engine, &key(199)).is_some(), "there is room again");
    assert_eq!(set(&engine, "huge", &value(1, 3 * MEBIBYTE)), Store::Stored);
    assert!(pin(&engine, "huge").is_none(), "one that is too large beside others");
    drop(leases);
    assert!(pin(&engine, "huge").is_some());
    assert_all_comes_back(&engine);
}

/// However many ask for the same value at once: nobody gets it on the strength of another who is about to be refused.
#[test]
fn what_readers_keep_is_bounded_when_they_race() {
    let (engine, _) = engine(8 * MEBIBYTE);
    set(&engine, "first", &value(1, MEBIBYTE + MEBIBYTE / 2));
    set(&engine, "second", &value(2, MEBIBYTE));
    let first = pin(&engine, "first").unwrap();
    let lent = engine.usage().pinned_bytes;
    thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for _ in 0..20_000 {
                    assert!(pin(&engine, "second").is_none(), "a quarter is exceeded");
                    assert_eq!(*pin(&engine, "first").unwrap().first_chunk::<8>().unwrap(), 1_u64.to_le_bytes());
                }
            });
        }
    });
    assert_eq!(engine.usage().pinned_bytes, lent);
    drop(first);
    assert!(pin(&engine, "second").is_some());
    // Now first loans of the same value race.
    thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| (0..20_000).for_each(|_| drop(pin(&engine, "second"))));
        }
    });
    assert_all_comes_back(&engine);
}

/// The first victims would be large values that are lent. To sweep them brings nothing, so others go, as many as have to.
#[test]
fn what_is_lent_is_not_swept_in_vain() {
    for is_dead in [false, true] {
        let (engine, _) = engine(8 * MEBIBYTE);
        let leases: Vec<_> = (0..19)
            .map(|index| {
                assert_eq!(set(&engine, &format!("lent{index}"), &value(index, 100_000)), Store::Stored);
                let pin = pin(&engine, &format!("lent{index}")).unwrap();
                assert!(!is_dead || engine.delete(format!("lent{index}").as_bytes()));
                pin
            })
            .collect();
        let count = super::fill(&engine, &[b's'; 2000]);
        let before = engine.usage().sweeps;
        for index in 0..4 {
            assert_eq!(set(&engine, &format!("new{index}"), &value(index, 500_000)), Store::Stored);
        }
        let sweeps = engine.usage().sweeps;
        let (blocks, evictions) = (sweeps.blocks - before.blocks, sweeps.evictions - before.evictions);
        // Each takes the room of five blocks, of some sixty items; a few are kept free.
        assert!(blocks <= 30 && evictions <= count as u64 / 2, "{blocks} {evictions} of {count}");
        for (index, pin) in (0..).zip(&leases) {
            assert_eq!(has(&engine, &format!("lent{index}")), !is_dead);
            assert!(**pin == value(index, 100_000)[..]);
        }
        drop(leases);
        assert_all_comes_back(&engine);
    }
}

/// Where too much is lent for a store, it is refused before anything has gone for it; with the loan the hindrance goes.
#[test]
fn a_store_that_loans_make_impossible_evicts_nothing() {
    let (engine, _) = engine(8 * MEBIBYTE);
    let huge = value(1, MAX_VALUE - 1000);
    assert_eq!(set(&engine, "lent", &huge), Store::Stored);
    let kept = pin(&engine, "lent").unwrap();
    for (round, is_dead) in [false, true].into_iter().enumerate() {
        assert!(!is_dead || engine.delete(b"lent"));
        super::fill(&engine, &[b's'; 2000]);
        let before = engine.usage();
        assert_eq!(set(&engine, &format!("huge{round}"), &huge), Store::OutOfMemory);
        let after = engine.usage();
        assert_eq!((after.items, after.sweeps.evictions), (before.items, before.sweeps.evictions));
    }
    assert!(*kept == *huge);
    drop(kept);
    assert_eq!(set(&engine, "huge", &huge), Store::Stored);
    assert_all_comes_back(&engine);
}

/// Who sends slowly can keep an eighth of the limit, or one value, however large.
#[test]
fn what_senders_keep_is_bounded() {
    let (engine, _) = engine(8 * MEBIBYTE);
    let size = 100_000;
    let mut arrivals: Vec<_> = (0..1000).filter_map(|index| expect(&engine, &key(index), size)).collect();
    let usage = engine.usage();
    assert!((9..=10).contains(&arrivals.len()) && usage.pinned_bytes <= MEBIBYTE, "{usage:?}");
    for index in 0..300 {
        assert_eq!(set(&engine, &format!("other{index}"), &value(9, size)), Store::Stored);
        assert_within_limit(&engine.usage());
    }
    for (index, reserved) in arrivals.iter_mut().enumerate() {
        reserved.take(&value(index as u64, size));
        assert_eq!(put(&engine, Mode::Set, &key(index), reserved), Store::Stored);
    }
    for index in 0..arrivals.len() {
        engine.get(key(index).as_bytes(), |hit| assert!(hit.value == value(index as u64, size)));
    }
    drop(arrivals);
    assert!(expect(&engine, "huge", 3 * MEBIBYTE).is_some());
    assert!(expect(&engine, "too large", MAX_VALUE).is_none());
    assert_all_comes_back(&engine);
}

#[test]
fn what_arrives_is_stored_where_it_is() {
    let (engine, _) = engine(8 * MEBIBYTE);
    for size in [LARGE_VALUE, 65_536, 70_001, 2 * MEBIBYTE] {
        let sent = value(size as u64, size);
        let reserved = arrive(&engine, "k", &sent).unwrap();
        assert_eq!(put(&engine, Mode::Set, "k", &reserved), Store::Stored);
        let lookup = engine.get(b"k", |hit| {
            assert_eq!(hit.value.as_ptr(), reserved.value().as_ptr(), "it was copied");
            assert!(hit.value == sent && hit.key == b"k" && hit.flags == 0);
        });
        assert_eq!(lookup, Lookup::Hit);
        assert_eq!(put(&engine, Mode::Set, "k", &reserved), Store::Stored, "once more, as a copy");
        drop(reserved);
        assert!(*pin(&engine, "k").unwrap() == *sent);
    }
    assert_all_comes_back(&engine);
}

/// What is not as it was announced is stored all the same.
#[test]
fn what_arrives_otherwise_is_copied() {
    let (engine, _) = engine(8 * MEBIBYTE);
    let sent = value(1, 50_000);
    let reserved = arrive(&engine, "k", &sent).unwrap();
    assert_eq!(engine.store_reserved(Mode::Set, b"k", 7, 0, &reserved), Store::Stored, "flags");
    assert_eq!(engine.get(b"k", |hit| assert!(hit.value == sent && hit.flags == 7)), Lookup::Hit);
    assert_eq!(put(&engine, Mode::Set, "another", &reserved), Store::Stored, "a longer key");
    assert_eq!(put(&engine, Mode::Append, "k", &reserved), Store::Stored);
    assert_eq!(engine.get(b"k", |hit| assert!(hit.value == sent.repeat(2))), Lookup::Hit);
    let (other, _) = self::engine(8 * MEBIBYTE);
    assert_eq!(put(&other, Mode::Set, "k", &reserved), Store::Stored, "another engine");
    drop(reserved);
    assert_eq!(other.get(b"k", |hit| assert!(hit.value == sent)), Lookup::Hit);
    assert_all_comes_back(&engine);
}

#[test]
fn what_arrives_in_vain_leaves_its_room() {
    let (engine, _) = engine(8 * MEBIBYTE);
    assert_eq!(set(&engine, "k", b"old"), Store::Stored);
    for round in 0..100 {
        let reserved = arrive(&engine, "k", &value(round, 500_000)).unwrap();
        assert_eq!(put(&engine, Mode::Add, "k", &reserved), Store::NotStored);
        assert_eq!(put(&engine, Mode::Cas(1), "k", &reserved), Store::Exists);
        drop(expect(&engine, "k", 500_000).unwrap());
        assert_within_limit(&engine.usage());
    }
    assert_eq!((engine.usage().items, engine.usage().sweeps.evictions), (1, 0));
    assert_all_comes_back(&engine);
}

/// The engine goes while connections still have what they have.
#[test]
fn loans_outlive_the_engine() {
    let (engine, _) = engine(8 * MEBIBYTE);
    let kept = value(3, 200_000);
    for name in ["linked", "deleted", "lost"] {
        set(&engine, name, &kept);
    }
    let leases = ["linked", "deleted", "lost"].map(|name| pin(&engine, name).unwrap());
    engine.delete(b"deleted");
    engine.delete(b"lost");
    engine.maintain();
    let mut reserved = expect(&engine, "k", 100_000).unwrap();
    drop(engine);
    assert_eq!(reserved.take(&kept), 100_000);
    assert!(leases.iter().all(|pin| **pin == *kept));
}

/// Threads overwrite, delete, evict and flush, and keep some of what they find, or of what they store, for a while.
#[test]
fn what_many_threads_keep_stays_whole() {
    const SIZES: [usize; 4] = [20_000, 60_000, 100_000, 300_000];
    let (engine, _) = engine(8 * MEBIBYTE);
    thread::scope(|scope| {
        for thread in 0..4_u64 {
            let engine = &engine;
            scope.spawn(move || {
                let mut kept: VecDeque<ValueRef> = VecDeque::new();
                let mut state = thread + 1;
                for round in 0..600_u64 {
                    state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                    let (action, size) = ((state >> 33) % 16, SIZES[(state >> 40) as usize % SIZES.len()]);
                    let name = key((state >> 45) as usize % 120);
                    match action {
                        0 => _ = engine.delete(name.as_bytes()),
                        1 if round % 50 == 0 => engine.flush(0),
                        2 => engine.maintain(),
                        3..6 => {
                            let value = value(state, size);
                            if let Some(reserved) = arrive(engine, &name, &value) {
                                assert_eq!(put(engine, Mode::Set, &name, &reserved), Store::Stored);
                                assert!(reserved.value() == value);
                            }
                        }
                        6 => kept.extend(expect(engine, &name, size).map(drop).and(pin(engine, &name))),
                        7..10 => _ = set_only(engine, &name, &value(state, size)),
                        _ => kept.extend(pin(engine, &name)),
                    }
                    if kept.len() > 8 {
                        assert!(is_whole(&kept.pop_front().unwrap()));
                    }
                }
                assert!(kept.iter().all(|pin| is_whole(pin)));
            });
        }
    });
    assert_within_limit(&engine.usage());
    assert!(engine.usage().sweeps.evictions > 0);
    assert_all_comes_back(&engine);
}

/// Without a look at sums, which others change meanwhile.
fn set_only(engine: &Cache, key: &str, value: &[u8]) -> Store {
    engine.store(Mode::Set, key.as_bytes(), relativist_cache::Content { flags: 0, exptime: 0, value })
}
