//! The memory limit. One test in a process of its own: bytes waiting to be freed are counted for the whole process.

use relativistd::clock::Clock;
use relativistd::engine::{Content, CountError, Direction, Engine, ITEM_OVERHEAD, Lookup, Mode, Relativistic, Store};
use std::sync::Arc;

const LIMIT: usize = 1 << 20;

/// Large enough that the limit holds fewer items than make the table grow: its size would change what fits.
const VALUE: [u8; 2000] = [b'v'; 2000];

fn set(engine: &Relativistic, key: &str, value: &[u8]) -> Store {
    engine.store(Mode::Set, key.as_bytes(), Content { flags: 0, exptime: 0, value })
}

fn has(engine: &Relativistic, key: &str) -> bool {
    engine.get(key.as_bytes(), |_| ()) == Lookup::Hit
}

/// Stores numbered items until one is refused, and returns how many there are.
fn fill(engine: &Relativistic) -> usize {
    (0..).find(|index| set(engine, &format!("key{index:05}"), &VALUE) == Store::OutOfMemory).unwrap()
}

#[test]
fn the_limit() {
    let clock = Arc::new(Clock::new(1_700_000_000));
    let engine = Relativistic::new(clock, LIMIT, 1 << 20).unwrap();
    let empty = engine.usage();
    assert_eq!((empty.items, empty.item_bytes, empty.limit), (0, 0, LIMIT));

    // Full: to the byte, the table included.
    let count = fill(&engine);
    let full = engine.usage();
    assert_eq!(full.items, count);
    assert_eq!(full.item_bytes, count * (ITEM_OVERHEAD + 8 + VALUE.len()));
    assert!(full.item_bytes + full.table_bytes <= LIMIT);
    assert!(full.item_bytes + full.table_bytes + ITEM_OVERHEAD + 8 + VALUE.len() > LIMIT);

    // A refused set takes the old value with it, so that nobody reads what was overwritten; others leave it alone.
    let larger = [b'l'; 5000];
    let content = Content { flags: 0, exptime: 0, value: &larger };
    for mode in [Mode::Add, Mode::Replace, Mode::Append, Mode::Prepend, Mode::CompareUnique(1)] {
        assert_eq!(engine.store(mode, b"key00000", content), Store::OutOfMemory, "{mode:?}");
        assert!(has(&engine, "key00000"));
    }
    assert_eq!(set(&engine, "key00000", &larger), Store::OutOfMemory);
    assert!(!has(&engine, "key00000"));

    // Overwriting works at the brim, however much was retired a moment ago, while there is room for old and new.
    for _ in 0..10_000 {
        assert_eq!(set(&engine, "key00001", &VALUE), Store::Stored);
    }

    // Deleting makes room at once, for those who wait for it.
    for index in 0..count {
        engine.delete(format!("key{index:05}").as_bytes());
    }
    assert_eq!((engine.usage().items, engine.usage().item_bytes), (0, 0));
    assert_eq!(fill(&engine), count);

    // Counting needs room when it makes a new item.
    for index in 0..count {
        engine.delete(format!("key{index:05}").as_bytes());
    }
    let empty_budget = Relativistic::new(Arc::new(Clock::new(1)), empty.table_bytes + ITEM_OVERHEAD + 2, 100).unwrap();
    assert_eq!(set(&empty_budget, "n", b"1"), Store::Stored);
    assert_eq!(empty_budget.count(b"n", Direction::Up, 1), Err(CountError::OutOfMemory));
    assert!(has(&empty_budget, "n"));
}
