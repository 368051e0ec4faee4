//! Large values that are sent from the cache's memory, and received into it. The values do not
//! change while they are pinned, the cache stays within its limit, and frees all memory at the end.
//! In debug builds the cache overwrites a block before its reuse, so a test that still reads the
//! old values fails.

use super::{MAX_VALUE, cache, has, key, set};
use relativist_store::{Cache, ItemShape, LARGE_VALUE, Lookup, Mode, ReservedValue, Store, Usage, ValueRef};
use std::collections::VecDeque;
use std::thread;

const MEBIBYTE: usize = 1 << 20;

/// Returns a value that repeats `number`.
fn value(number: u64, size: usize) -> Vec<u8> {
    let mut value = number.to_le_bytes().repeat(size.div_ceil(8));
    value.truncate(size);
    value
}

fn is_whole(value: &[u8]) -> bool {
    let number = u64::from_le_bytes(value[..8].try_into().unwrap());
    value == self::value(number, value.len())
}

fn pin(cache: &Cache, key: &str) -> Option<ValueRef> {
    let mut pin = None;
    cache.get(key.as_bytes(), |hit| {
        pin = hit.pin();
        assert!(pin.as_ref().is_none_or(|pin| pin.as_ptr() == hit.value.as_ptr()), "the value was copied");
    });
    pin
}

fn reserve(cache: &Cache, key: &str, value_len: usize) -> Option<ReservedValue> {
    cache.reserve(&ItemShape { key_len: key.len(), value_len, has_flags: false, has_cas: false })
}

/// Reserves memory for `value`, and receives it in pieces.
fn receive(cache: &Cache, key: &str, value: &[u8]) -> Option<ReservedValue> {
    let mut reserved = reserve(cache, key, value.len())?;
    for piece in value.chunks(value.len() / 3 + 1) {
        assert!(!reserved.is_complete());
        assert_eq!(reserved.take(piece), piece.len());
    }
    assert!(reserved.is_complete() && reserved.rest().is_empty());
    assert_eq!(reserved.take(b"more"), 0);
    Some(reserved)
}

fn store_reserved(cache: &Cache, mode: Mode, key: &str, reserved: &ReservedValue) -> Store {
    cache.store_reserved(mode, key.as_bytes(), 0, 0, reserved)
}

fn assert_within_limit(usage: &Usage) {
    assert!(usage.mapped_bytes + usage.table_bytes <= usage.limit, "{usage:?}");
    assert!(usage.pinned_bytes <= usage.mapped_bytes, "{usage:?}");
}

/// Asserts that all memory is freed after a flush.
#[track_caller]
fn assert_all_is_freed(cache: &Cache) {
    cache.flush(0);
    (0..20).for_each(|_| cache.maintain());
    let usage = cache.usage();
    assert_eq!((usage.items, usage.item_bytes, usage.pinned_bytes), (0, 0, 0));
    assert!(usage.mapped_bytes <= usage.limit / 8, "{usage:?}");
}

#[test]
fn a_pinned_value_outlives_its_item() {
    let (cache, _) = cache(8 * MEBIBYTE);
    let size = 300_000;
    for fate in ["stays", "overwritten", "deleted", "flushed"] {
        let kept = value(7, size);
        assert_eq!(set(&cache, "k", &kept), Store::Stored);
        let (first, second) = (pin(&cache, "k").unwrap(), pin(&cache, "k").unwrap());
        let pinned = cache.usage().pinned_bytes;
        assert!((size..size + 8192).contains(&pinned), "a block pinned twice must count once: {pinned}");
        match fate {
            "overwritten" => assert_eq!(set(&cache, "k", &value(8, size)), Store::Stored),
            "deleted" => assert!(cache.delete(b"k")),
            "flushed" => cache.flush(0),
            _ => (),
        }
        // Store three times the limit in values of the same size, so that each block is reused.
        for index in 0..80 {
            assert_eq!(set(&cache, &key(index), &value(index as u64, size)), Store::Stored);
            assert_within_limit(&cache.usage());
        }
        assert_eq!(has(&cache, "k"), fate == "stays", "a pinned item is not evicted");
        assert!(*first == *kept && *second == *kept, "{fate}");
        drop(first);
        assert_eq!((cache.usage().pinned_bytes, &*second), (pinned, &*kept), "{fate}");
        drop(second);
        assert_all_is_freed(&cache);
    }
}

#[test]
fn small_values_are_not_pinned() {
    let (cache, _) = cache(8 * MEBIBYTE);
    for (size, is_pinned) in [(LARGE_VALUE - 1, false), (LARGE_VALUE, true)] {
        set(&cache, "k", &value(1, size));
        assert_eq!(pin(&cache, "k").is_some(), is_pinned);
        assert_eq!(reserve(&cache, "k", size).is_some(), is_pinned);
    }
}

/// Readers can pin a quarter of the limit, or one value of any size.
#[test]
fn memory_pinned_by_readers_is_bounded() {
    let (cache, _) = cache(8 * MEBIBYTE);
    let size = 100_000;
    let mut pins = Vec::new();
    for index in 0..200 {
        assert_eq!(set(&cache, &key(index), &value(index as u64, size)), Store::Stored);
        pins.extend(pin(&cache, &key(index)));
        let usage = cache.usage();
        assert_within_limit(&usage);
        assert!(usage.pinned_bytes <= 2 * MEBIBYTE, "{usage:?}");
    }
    assert!((18..=20).contains(&pins.len()), "{}", pins.len());
    assert!(pins.iter().enumerate().all(|(index, pin)| **pin == value(index as u64, size)[..]));
    drop(pins.split_off(1));
    assert!(pin(&cache, &key(199)).is_some(), "the limit allows another pin");
    assert_eq!(set(&cache, "huge", &value(1, 3 * MEBIBYTE)), Store::Stored);
    assert!(pin(&cache, "huge").is_none(), "a large value while another is pinned");
    drop(pins);
    assert!(pin(&cache, "huge").is_some());
    assert_all_is_freed(&cache);
}

/// Several threads pin the same value at once. None of them succeeds because of another one that is
/// about to fail.
#[test]
fn memory_pinned_by_racing_readers_is_bounded() {
    let (cache, _) = cache(8 * MEBIBYTE);
    set(&cache, "first", &value(1, MEBIBYTE + MEBIBYTE / 2));
    set(&cache, "second", &value(2, MEBIBYTE));
    let first = pin(&cache, "first").unwrap();
    let pinned = cache.usage().pinned_bytes;
    thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for _ in 0..20_000 {
                    assert!(pin(&cache, "second").is_none(), "a quarter is exceeded");
                    assert_eq!(*pin(&cache, "first").unwrap().first_chunk::<8>().unwrap(), 1_u64.to_le_bytes());
                }
            });
        }
    });
    assert_eq!(cache.usage().pinned_bytes, pinned);
    drop(first);
    assert!(pin(&cache, "second").is_some());
    // Now the first pins of the same value race.
    thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| (0..20_000).for_each(|_| drop(pin(&cache, "second"))));
        }
    });
    assert_all_is_freed(&cache);
}

/// The oldest blocks have pinned values. Sweeping them would free nothing, so the cache evicts
/// other items, and only as many as necessary.
#[test]
fn blocks_with_pinned_values_are_not_swept() {
    for is_dead in [false, true] {
        let (cache, _) = cache(8 * MEBIBYTE);
        let pins: Vec<_> = (0..19)
            .map(|index| {
                assert_eq!(set(&cache, &format!("pinned{index}"), &value(index, 100_000)), Store::Stored);
                let pin = pin(&cache, &format!("pinned{index}")).unwrap();
                assert!(!is_dead || cache.delete(format!("pinned{index}").as_bytes()));
                pin
            })
            .collect();
        let count = super::fill(&cache, &[b's'; 2000]);
        let before = cache.usage().sweeps;
        for index in 0..4 {
            assert_eq!(set(&cache, &format!("new{index}"), &value(index, 500_000)), Store::Stored);
        }
        let sweeps = cache.usage().sweeps;
        let (blocks, evictions) = (sweeps.blocks - before.blocks, sweeps.evictions - before.evictions);
        // Each value takes the room of five blocks with some sixty items each. The cache keeps a
        // few blocks free.
        assert!(blocks <= 30 && evictions <= count as u64 / 2, "{blocks} {evictions} of {count}");
        for (index, pin) in (0..).zip(&pins) {
            assert_eq!(has(&cache, &format!("pinned{index}")), !is_dead);
            assert!(**pin == value(index, 100_000)[..]);
        }
        drop(pins);
        assert_all_is_freed(&cache);
    }
}

/// If too much memory is pinned for a store, the store is refused before it evicts anything. It
/// succeeds after the value is unpinned.
#[test]
fn a_store_that_pins_make_impossible_evicts_nothing() {
    let (cache, _) = cache(8 * MEBIBYTE);
    let huge = value(1, MAX_VALUE - 1000);
    assert_eq!(set(&cache, "pinned", &huge), Store::Stored);
    let kept = pin(&cache, "pinned").unwrap();
    for (round, is_dead) in [false, true].into_iter().enumerate() {
        assert!(!is_dead || cache.delete(b"pinned"));
        super::fill(&cache, &[b's'; 2000]);
        let before = cache.usage();
        assert_eq!(set(&cache, &format!("huge{round}"), &huge), Store::OutOfMemory);
        let after = cache.usage();
        assert_eq!((after.items, after.sweeps.evictions), (before.items, before.sweeps.evictions));
    }
    assert!(*kept == *huge);
    drop(kept);
    assert_eq!(set(&cache, "huge", &huge), Store::Stored);
    assert_all_is_freed(&cache);
}

/// Senders can reserve an eighth of the limit, or one value of any size.
#[test]
fn memory_reserved_by_senders_is_bounded() {
    let (cache, _) = cache(8 * MEBIBYTE);
    let size = 100_000;
    let mut arrivals: Vec<_> = (0..1000).filter_map(|index| reserve(&cache, &key(index), size)).collect();
    let usage = cache.usage();
    assert!((9..=10).contains(&arrivals.len()) && usage.pinned_bytes <= MEBIBYTE, "{usage:?}");
    for index in 0..300 {
        assert_eq!(set(&cache, &format!("other{index}"), &value(9, size)), Store::Stored);
        assert_within_limit(&cache.usage());
    }
    for (index, reserved) in arrivals.iter_mut().enumerate() {
        reserved.take(&value(index as u64, size));
        assert_eq!(store_reserved(&cache, Mode::Set, &key(index), reserved), Store::Stored);
    }
    for index in 0..arrivals.len() {
        cache.get(key(index).as_bytes(), |hit| assert!(hit.value == value(index as u64, size)));
    }
    drop(arrivals);
    assert!(reserve(&cache, "huge", 3 * MEBIBYTE).is_some());
    assert!(reserve(&cache, "too large", MAX_VALUE).is_none());
    assert_all_is_freed(&cache);
}

#[test]
fn a_received_value_is_stored_in_place() {
    let (cache, _) = cache(8 * MEBIBYTE);
    for size in [LARGE_VALUE, 65_536, 70_001, 2 * MEBIBYTE] {
        let sent = value(size as u64, size);
        let reserved = receive(&cache, "k", &sent).unwrap();
        assert_eq!(store_reserved(&cache, Mode::Set, "k", &reserved), Store::Stored);
        let lookup = cache.get(b"k", |hit| {
            assert_eq!(hit.value.as_ptr(), reserved.value().as_ptr(), "the value was copied");
            assert!(hit.value == sent && hit.key == b"k" && hit.flags == 0);
        });
        assert_eq!(lookup, Lookup::Hit);
        assert_eq!(store_reserved(&cache, Mode::Set, "k", &reserved), Store::Stored, "stored again, as a copy");
        drop(reserved);
        assert!(*pin(&cache, "k").unwrap() == *sent);
    }
    assert_all_is_freed(&cache);
}

/// A value whose key or flags differ from those announced is stored nevertheless.
#[test]
fn a_value_that_differs_from_its_announcement_is_copied() {
    let (cache, _) = cache(8 * MEBIBYTE);
    let sent = value(1, 50_000);
    let reserved = receive(&cache, "k", &sent).unwrap();
    assert_eq!(cache.store_reserved(Mode::Set, b"k", 7, 0, &reserved), Store::Stored, "flags");
    assert_eq!(cache.get(b"k", |hit| assert!(hit.value == sent && hit.flags == 7)), Lookup::Hit);
    assert_eq!(store_reserved(&cache, Mode::Set, "another", &reserved), Store::Stored, "a longer key");
    assert_eq!(store_reserved(&cache, Mode::Append, "k", &reserved), Store::Stored);
    assert_eq!(cache.get(b"k", |hit| assert!(hit.value == sent.repeat(2))), Lookup::Hit);
    let (other, _) = self::cache(8 * MEBIBYTE);
    assert_eq!(store_reserved(&other, Mode::Set, "k", &reserved), Store::Stored, "another cache");
    drop(reserved);
    assert_eq!(other.get(b"k", |hit| assert!(hit.value == sent)), Lookup::Hit);
    assert_all_is_freed(&cache);
}

#[test]
fn a_received_value_that_is_not_stored_is_freed() {
    let (cache, _) = cache(8 * MEBIBYTE);
    assert_eq!(set(&cache, "k", b"old"), Store::Stored);
    for round in 0..100 {
        let reserved = receive(&cache, "k", &value(round, 500_000)).unwrap();
        assert_eq!(store_reserved(&cache, Mode::Add, "k", &reserved), Store::NotStored);
        assert_eq!(store_reserved(&cache, Mode::Cas(1), "k", &reserved), Store::Exists);
        drop(reserve(&cache, "k", 500_000).unwrap());
        assert_within_limit(&cache.usage());
    }
    assert_eq!((cache.usage().items, cache.usage().sweeps.evictions), (1, 0));
    assert_all_is_freed(&cache);
}

/// The cache is dropped while connections still pin values.
#[test]
fn pins_outlive_the_cache() {
    let (cache, _) = cache(8 * MEBIBYTE);
    let kept = value(3, 200_000);
    for name in ["linked", "deleted", "lost"] {
        set(&cache, name, &kept);
    }
    let pins = ["linked", "deleted", "lost"].map(|name| pin(&cache, name).unwrap());
    cache.delete(b"deleted");
    cache.delete(b"lost");
    cache.maintain();
    let mut reserved = reserve(&cache, "k", 100_000).unwrap();
    drop(cache);
    assert_eq!(reserved.take(&kept), 100_000);
    assert!(pins.iter().all(|pin| **pin == *kept));
}

/// Threads overwrite, delete, evict and flush items, and keep some values pinned for a while.
#[test]
fn values_pinned_by_many_threads_stay_whole() {
    const SIZES: [usize; 4] = [20_000, 60_000, 100_000, 300_000];
    let (cache, _) = cache(8 * MEBIBYTE);
    thread::scope(|scope| {
        for thread in 0..4_u64 {
            let cache = &cache;
            scope.spawn(move || {
                let mut kept: VecDeque<ValueRef> = VecDeque::new();
                let mut state = thread + 1;
                for round in 0..600_u64 {
                    state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                    let (action, size) = ((state >> 33) % 16, SIZES[(state >> 40) as usize % SIZES.len()]);
                    let name = key((state >> 45) as usize % 120);
                    match action {
                        0 => _ = cache.delete(name.as_bytes()),
                        1 if round % 50 == 0 => cache.flush(0),
                        2 => cache.maintain(),
                        3..6 => {
                            let value = value(state, size);
                            if let Some(reserved) = receive(cache, &name, &value) {
                                assert_eq!(store_reserved(cache, Mode::Set, &name, &reserved), Store::Stored);
                                assert!(reserved.value() == value);
                            }
                        }
                        6 => kept.extend(reserve(cache, &name, size).map(drop).and(pin(cache, &name))),
                        7..10 => _ = set_only(cache, &name, &value(state, size)),
                        _ => kept.extend(pin(cache, &name)),
                    }
                    if kept.len() > 8 {
                        assert!(is_whole(&kept.pop_front().unwrap()));
                    }
                }
                assert!(kept.iter().all(|pin| is_whole(pin)));
            });
        }
    });
    assert_within_limit(&cache.usage());
    assert!(cache.usage().sweeps.evictions > 0);
    assert_all_is_freed(&cache);
}

/// Stores without `set`'s checks of the usage, which fail while other threads change it.
fn set_only(cache: &Cache, key: &str, value: &[u8]) -> Store {
    cache.store(Mode::Set, key.as_bytes(), relativist_store::Content { flags: 0, exptime: 0, value })
}
