//! A panic of `Hash` while entries move goes no further. Lookups may not find the entry from then
//! on, until the map shrinks. Iterations see it, `clear` removes it, and it is dropped with the
//! map.

use relativist::Resizing;

use crate::operations::{Map, builder, key, new};
use crate::parts::{Bench, Name, Part};
use crate::tested::build;

const ENTRIES: u64 = 40;

fn iterated(map: &Map) -> Vec<u64> {
    let mut keys: Vec<u64> = map.pin().keys().map(Part::n).collect();
    keys.sort_unstable();
    keys
}

/// Grows a map of 40 entries while the `n`-th call of user code panics. Returns whether there was
/// one.
fn grow_with_panic(n: u64) -> bool {
    let bench = Bench::current();
    let live = bench.tally.live();
    let map = build(builder().resizing(Resizing::Manual));
    (0..ENTRIES).for_each(|n| _ = map.pin().insert(key(n), new()));
    let fired = bench.fires(n, || map.resize_to(64).unwrap());
    assert!(map.buckets() == 64 && !map.is_resizing(), "the resize was completed");
    assert!(iterated(&map).into_iter().eq(0..ENTRIES), "iterations see each entry, once");
    let lost: Vec<u64> = (0..ENTRIES).filter(|n| !map.pin().contains_key(&Name(*n))).collect();
    assert!(lost.len() <= 1, "{lost:?}");
    for &n in &lost {
        // Lookups find the new one, and iterations see both.
        assert!(map.pin().insert(key(n), new()).is_none());
        assert!(map.pin().contains_key(&Name(n)));
        assert_eq!((iterated(&map).len(), map.len()), (ENTRIES as usize + 1, ENTRIES as usize + 1));
    }
    // It stays in a wrong bucket when the map grows, and all buckets are one when it has shrunk.
    map.resize_to(128).unwrap();
    assert!(iterated(&map).len() == map.len());
    map.resize_to(2).unwrap();
    assert!((0..ENTRIES).all(|n| map.pin().contains_key(&Name(n))), "{lost:?}");
    if n % 2 == 0 {
        map.pin().clear();
        assert_eq!((iterated(&map).len(), map.len()), (0, 0));
    }
    drop(map);
    bench.tally.assert_live(live);
    fired
}

#[test]
fn the_entry_is_not_lost() {
    Bench::set_up();
    let panics = (1..).take_while(|&n| grow_with_panic(n)).count();
    // At the least `hash` of each key, and `build_hasher`, `write`, `finish` and `drop` of the
    // hasher.
    assert!(panics as u64 >= 5 * ENTRIES, "{panics}");
}

/// Fills a map that grows meanwhile, until the `n`-th call of user code panics: in the insertion
/// itself, or while the thread helps to move entries. Returns whether there was such a call.
fn fill_with_panic(n: u64) -> bool {
    let bench = Bench::current();
    let live = bench.tally.live();
    let map = build(builder().resizing(Resizing::Automatic));
    let fired = bench.fires(n, || (0..4 * ENTRIES).for_each(|n| _ = map.pin().insert(key(n), new())));
    let keys = iterated(&map);
    assert!(keys.iter().copied().eq(0..map.len() as u64), "iterations see each entry, once: {keys:?}");
    assert!(keys.iter().filter(|n| !map.pin().contains_key(&Name(**n))).count() <= 1);
    map.pin().clear();
    (0..ENTRIES).for_each(|n| _ = map.pin().insert(key(n), new()));
    assert!(iterated(&map).into_iter().eq(0..ENTRIES), "no lock is held");
    drop(map);
    bench.tally.assert_live(live);
    fired
}

#[test]
fn updates_that_help_go_on() {
    Bench::set_up();
    let panics = (1..).step_by(5).take_while(|&n| fill_with_panic(n)).count();
    assert!(panics as u64 >= 4 * ENTRIES, "{panics}");
}
