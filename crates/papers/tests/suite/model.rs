//! Compares tables with std's map, on one thread.

use std::collections::HashMap;

use relativist_papers::tables::{Resize, Table};

use relativist_testing::random::Random;

pub fn fixed<T: Table>() {
    let table = T::with_buckets(8);
    run(&table, |_| ());
}

pub fn resized<T: Resize>() {
    let table = T::with_buckets(8);
    run(&table, |random| {
        let buckets = 8 << random.below(10);
        table.resize_to(buckets);
        assert_eq!(table.buckets(), buckets);
    });
}

/// Performs random operations, and sometimes calls `interfere` in between.
fn run<T: Table>(table: &T, mut interfere: impl FnMut(&mut Random)) {
    const KEYS: u64 = 500;
    let mut random = Random::new(1);
    let mut model = HashMap::new();
    for round in 0..20_000 {
        let key = random.below(KEYS);
        match random.below(3) {
            0 => assert_eq!(table.get(key), model.get(&key).copied()),
            1 => {
                let absent = !model.contains_key(&key);
                assert_eq!(table.insert(key, round), absent);
                model.entry(key).or_insert(round);
            }
            _ => assert_eq!(table.remove(key), model.remove(&key)),
        }
        if round % 100 == 0 {
            interfere(&mut random);
            (0..KEYS).for_each(|key| assert_eq!(table.get(key), model.get(&key).copied()));
        }
    }
}

/// Checks that each resize is counted, and that its allocations are freed.
pub fn costs<T: Resize>() {
    let table = T::with_buckets(8);
    (0..200).for_each(|key| assert!(table.insert(key, key)));
    let mut before = table.costs();
    for buckets in [8, 64, 8192, 8192, 64, 8] {
        table.resize_to(buckets);
        let after = table.costs();
        assert!(after.waits >= before.waits && after.peak_bytes >= before.peak_bytes.max(after.bytes));
        assert!(after.bytes >= 8 * buckets, "a word per bucket at least");
        before = after;
    }
    assert!(before.bytes <= 4096, "{} bytes of 8 buckets", before.bytes);
    assert!(before.peak_bytes >= 8 * 8192);
    assert_eq!((0..200).filter(|&key| table.get(key) == Some(key)).count(), 200);
}
