//! The memory limit, with eviction and without.

use relativistd::clock::Clock;
use relativistd::engine::{Content, CountError, Direction, Engine, ITEM_OVERHEAD, Lookup, Mode, Relativistic, Store};
use std::sync::Arc;

const NOW: u32 = 1_700_000_000;
const MAX_VALUE: usize = 4 << 20;

fn engine(limit: usize) -> (Relativistic, Arc<Clock>) {
    let clock = Arc::new(Clock::new(NOW));
    (Relativistic::new(Arc::clone(&clock), limit, MAX_VALUE).unwrap(), clock)
}

fn set(engine: &Relativistic, key: &str, value: &[u8]) -> Store {
    set_until(engine, key, value, 0)
}

fn set_until(engine: &Relativistic, key: &str, value: &[u8], exptime: i32) -> Store {
    let stored = engine.store(Mode::Set, key.as_bytes(), Content { flags: 0, exptime, value });
    let usage = engine.usage();
    assert!(usage.heap_bytes + usage.table_bytes <= usage.limit, "{usage:?}");
    assert!(usage.item_bytes <= usage.heap_bytes, "{usage:?}");
    stored
}

fn has(engine: &Relativistic, key: &str) -> bool {
    engine.get(key.as_bytes(), |_| ()) == Lookup::Hit
}

fn key(index: usize) -> String {
    format!("key{index:07}")
}

/// Stores numbered items until one is refused or evicted, and returns how many there are.
fn fill(engine: &Relativistic, value: &[u8]) -> usize {
    let before = engine.usage().evictions;
    let is_full =
        |index: &usize| set(engine, &key(*index), value) == Store::OutOfMemory || engine.usage().evictions > before;
    (0..).find(is_full).unwrap()
}

#[test]
fn without_eviction_what_does_not_fit_is_refused() {
    let (engine, _) = engine(1 << 20);
    let engine = engine.without_eviction();
    let value = [b'v'; 2000];
    let count = fill(&engine, &value);
    let full = engine.usage();
    assert_eq!((full.items, full.item_bytes), (count, count * (ITEM_OVERHEAD + 10 + 2000).next_multiple_of(8)));
    assert!(full.item_bytes > full.limit * 5 / 6, "{full:?}");

    // A refused set takes the old value with it, so that nobody reads what was overwritten; others leave it alone.
    let larger = vec![b'l'; 500_000];
    let content = Content { flags: 0, exptime: 0, value: &larger };
    for mode in [Mode::Add, Mode::Replace, Mode::Append, Mode::Prepend, Mode::CompareUnique(1)] {
        assert_eq!(engine.store(mode, key(0).as_bytes(), content), Store::OutOfMemory, "{mode:?}");
        assert!(has(&engine, &key(0)));
    }
    assert_eq!(set(&engine, &key(0), &larger), Store::OutOfMemory);
    assert!(!has(&engine, &key(0)));

    // What is deleted makes room, and nothing else had to go.
    for index in 0..count / 2 {
        engine.delete(key(index).as_bytes());
    }
    assert_eq!(set(&engine, &key(0), &vec![b'l'; 300_000]), Store::Stored);
    assert!((count / 2..count).all(|index| has(&engine, &key(index))));
    assert_eq!(engine.usage().evictions, 0);
}

#[test]
fn what_is_larger_than_the_limit_is_refused_and_evicts_nothing() {
    let (engine, _) = engine(1 << 20);
    assert_eq!(set(&engine, "n", b"1"), Store::Stored);
    assert_eq!(set(&engine, "large", &vec![b'l'; 1 << 20]), Store::OutOfMemory);
    assert!(has(&engine, "n"));
    assert_eq!(engine.count(b"n", Direction::Up, 1), Ok(2));
    assert_eq!(engine.count(b"large", Direction::Up, 1), Err(CountError::NotFound));
}

#[test]
fn overwriting_what_fits_evicts_nothing() {
    let (engine, _) = engine(4 << 20);
    let (count, value) = (15_000, [b'v'; 150]);
    for round in 0..6 {
        for index in 0..count {
            assert_eq!(set(&engine, &key((index * 7919 + round) % count), &value), Store::Stored);
        }
    }
    assert!((0..count).all(|index| has(&engine, &key(index))));
    assert_eq!((engine.usage().evictions, engine.usage().items), (0, count));
}

/// Whatever sizes came before, those that come now find room for as many as ever; of large ones, which the policy likes less, for
/// some.
#[test]
fn no_mix_of_sizes_takes_room_from_another() {
    let (engine, _) = engine(8 << 20);
    let most = fill(&engine, &[b's'; 20]);
    for (size, least) in [(1 << 20, 1), (20_000, 300), (3_000, 2300), (700_000, 1), (20, most * 9 / 10)] {
        let count = (2 * most).min((16 << 20) / size);
        for index in 0..count {
            assert_eq!(set(&engine, &format!("{size}-{index}"), &vec![b'x'; size]), Store::Stored, "{size}");
        }
        let kept = (0..count).filter(|index| has(&engine, &format!("{size}-{index}"))).count();
        assert!(kept >= least, "{kept} of {size} bytes after others, not {least}");
    }
}

#[test]
fn what_is_wanted_stays() {
    let (engine, _) = engine(1 << 20);
    for index in 0..20_000 {
        set(&engine, &key(index), &[b'v'; 100]);
        assert!(index == 0 || has(&engine, &key(0)), "evicted after {index}");
    }
    assert!(engine.usage().evictions > 10_000);
    assert!(!has(&engine, &key(1)));
}

#[test]
fn a_lower_limit_holds_from_the_next_store_on() {
    let (engine, _) = engine(8 << 20);
    let count = fill(&engine, &[b'v'; 100]);
    engine.set_limit(2 << 20);
    set_fitting(&engine, count);
    let usage = engine.usage();
    assert!(usage.heap_bytes + usage.table_bytes <= 2 << 20, "{usage:?}");
    engine.set_limit(8 << 20);
    assert!(fill(&engine, &[b'w'; 100]) > count * 9 / 10);
}

/// Stores until the limit is kept: a store finds room in an open block for a while.
fn set_fitting(engine: &Relativistic, from: usize) {
    for index in from..from + 1000 {
        let content = Content { flags: 0, exptime: 0, value: &[b'v'; 100] };
        assert_eq!(engine.store(Mode::Set, key(index).as_bytes(), content), Store::Stored);
    }
}

#[test]
fn what_has_expired_is_freed_without_being_met() {
    let (engine, clock) = engine(8 << 20);
    for index in 0..10_000 {
        set_until(&engine, &key(index), &[b'v'; 100], if index % 10 == 0 { 0 } else { 100 + (index % 2) as i32 });
    }
    set_until(&engine, "large", &[b'v'; 100_000], 100);
    clock.set(NOW + 99);
    engine.maintain();
    assert_eq!(engine.usage().items, 10_001);
    clock.set(NOW + 100);
    engine.maintain();
    assert_eq!(engine.usage().items, 6_000);
    clock.set(NOW + 110);
    engine.maintain();
    let usage = engine.usage();
    assert_eq!((usage.items, usage.evictions), (1000, 0));
    assert_eq!(usage.item_bytes, 1000 * 144);
    assert!((0..10_000).step_by(10).all(|index| has(&engine, &key(index))));
}

/// A touched item goes by its new expiry, whatever its block was known for.
#[test]
fn what_is_touched_expires_when_it_was_told() {
    let (engine, clock) = engine(8 << 20);
    for index in 0..1000 {
        set_until(&engine, &key(index), b"v", 0);
    }
    engine.touch(key(1).as_bytes(), 10);
    engine.touch(key(2).as_bytes(), 10);
    engine.touch(key(2).as_bytes(), 0);
    clock.set(NOW + 10);
    engine.maintain();
    assert_eq!(engine.usage().items, 999);
    assert!(has(&engine, &key(2)));
}

#[test]
fn what_was_flushed_is_freed_without_being_met() {
    let (engine, clock) = engine(8 << 20);
    fill(&engine, &[b'v'; 100]);
    engine.flush(5);
    engine.maintain();
    assert!(engine.usage().items > 0);
    clock.set(NOW + 5);
    engine.maintain();
    assert_eq!((engine.usage().items, engine.usage().item_bytes), (0, 0));
}

/// A second's few items, closed together with what expires among them, do not keep a block each.
#[test]
fn blocks_that_are_hardly_filled_are_put_together() {
    let (engine, clock) = engine(4 << 20);
    for second in 0..1000 {
        clock.set(NOW + second);
        set_until(&engine, &format!("brief{second}"), &[b'v'; 100], 1);
        for index in 0..10 {
            set_until(&engine, &format!("{second}-{index}"), &[b'v'; 100], 0);
        }
        engine.maintain();
    }
    let usage = engine.usage();
    assert_eq!(usage.evictions, 0, "{usage:?}");
    assert!(usage.items >= 10_000, "{usage:?}");
}
