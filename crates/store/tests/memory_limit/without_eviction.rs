//! Caches that refuse new items when they are full.

use super::{cache, fill, has, key, set};
use relativist_store::{Content, ITEM_OVERHEAD, Lookup, Mode, Store};

#[test]
fn without_eviction_stores_that_do_not_fit_are_refused() {
    let (cache, _) = cache(1 << 20);
    let cache = cache.without_eviction();
    let value = [b'v'; 2000];
    let count = fill(&cache, &value);
    let full = cache.usage();
    // They have room for an expiry, so that setting one needs no memory.
    assert_eq!((full.items, full.item_bytes), (count, count * (ITEM_OVERHEAD + 4 + 10 + 2000).next_multiple_of(8)));
    assert!((0..count).all(|index| cache.touch(key(index).as_bytes(), 1000)));
    assert_eq!(cache.usage().item_bytes, full.item_bytes);
    assert!(full.item_bytes > full.limit * 5 / 6, "{full:?}");

    // A refused set removes the old value, so that no client reads it later. Other refused stores
    // keep the old value.
    let larger = vec![b'l'; 500_000];
    let content = Content { flags: 0, exptime: 0, value: &larger };
    for mode in [Mode::Add, Mode::Replace, Mode::Append, Mode::Prepend, Mode::Cas(1)] {
        assert_eq!(cache.store(mode, key(0).as_bytes(), content), Store::OutOfMemory, "{mode:?}");
        assert!(has(&cache, &key(0)));
    }
    assert_eq!(set(&cache, &key(0), &larger), Store::OutOfMemory);
    assert!(!has(&cache, &key(0)));

    // Deleted items make room, and no other item was evicted.
    for index in 0..count / 2 {
        cache.delete(key(index).as_bytes());
    }
    assert_eq!(set(&cache, &key(0), &vec![b'l'; 300_000]), Store::Stored);
    assert!((count / 2..count).all(|index| has(&cache, &key(index))));
    assert_eq!(cache.usage().sweeps.evictions, 0);
}

/// The blocks of small caches are small, and items of a few KiB would leave much of a block of
/// their own unused.
#[test]
fn small_caches_hold_items_of_a_few_kib() {
    for (limit, size) in [(1 << 18, 1900), (1 << 20, 2000), (1 << 20, 5000), (2 << 20, 10_000), (4 << 20, 10_000)] {
        let (cache, _) = cache(limit);
        let cache = cache.without_eviction();
        fill(&cache, &vec![b'v'; size]);
        let full = cache.usage();
        assert!(full.item_bytes > limit * 4 / 5, "{limit} bytes for values of {size}: {full:?}");
    }
}

/// In a full cache without eviction, scattered deleted items make room, although no block becomes
/// empty. They do so although the table is about to grow.
#[test]
fn without_eviction_scattered_deleted_items_make_room() {
    let (cache, _) = cache(4 << 20);
    let cache = cache.without_eviction();
    let value = [b'v'; 200];
    let count = fill(&cache, &value);
    for index in (0..count).step_by(2) {
        cache.delete(key(index).as_bytes());
    }
    for index in 0..count / 4 {
        assert_eq!(set(&cache, &format!("new{index}"), &value), Store::Stored, "{index} of {}", count / 4);
    }
    assert!((0..count).all(|index| has(&cache, &key(index)) == (index % 2 == 1)));
    assert_eq!(cache.usage().sweeps.evictions, 0);
}

/// In a full cache without eviction, deleted items make room if they are more than a sixteenth of
/// each block. (An item that moves has to store its number from then on, so it takes some bytes
/// more, which are few for these items.)
#[test]
fn without_eviction_few_scattered_deleted_items_make_room() {
    let (cache, _) = cache(4 << 20);
    let cache = cache.without_eviction();
    let value = [b'v'; 1000];
    let count = fill(&cache, &value);
    let deleted = (0..count).step_by(10).filter(|&index| cache.delete(key(index).as_bytes())).count();
    let stored = (0..deleted).filter(|index| set(&cache, &format!("new{index}"), &value) == Store::Stored).count();
    assert!(stored > deleted * 3 / 4, "{stored} in place of {deleted}");
    assert!((0..count).all(|index| has(&cache, &key(index)) == (index % 10 > 0)));
    assert_eq!(cache.usage().sweeps.evictions, 0);
}

/// In a cache with too many blocks to examine in one pass, deleted items make room even if they are
/// all in the last blocks.
#[test]
fn without_eviction_few_deleted_items_are_found_in_a_large_heap() {
    let (cache, _) = cache(192 << 20);
    let cache = cache.without_eviction();
    let value = [b'v'; 3000];
    let count = fill(&cache, &value);
    let last = (count - count / 10..count).step_by(8);
    let deleted = last.filter(|&index| cache.delete(key(index).as_bytes())).count();
    let stored = (0..deleted).filter(|index| set(&cache, &format!("new{index}"), &value) == Store::Stored).count();
    assert!(stored > deleted / 2, "{stored} in place of {deleted}, of {count}");
    assert_eq!(cache.usage().sweeps.evictions, 0);
}

/// All free blocks are too small for the new item, and a store that holds a bucket's lock does not
/// unmap memory.
#[test]
fn a_growing_value_uses_blocks_of_another_size() {
    let (cache, _) = cache(4 << 20);
    let cache = cache.without_eviction();
    assert_eq!(set(&cache, "k", &vec![b'k'; 300_000]), Store::Stored);
    let count = fill(&cache, &[b'v'; 100_000]);
    for index in 0..count {
        assert!(cache.delete(key(index).as_bytes()));
    }
    let content = Content { flags: 0, exptime: 0, value: &vec![b'k'; 700_000] };
    assert_eq!(cache.store(Mode::Append, b"k", content), Store::Stored);
    assert_eq!(cache.get(b"k", |hit| assert!(hit.value == vec![b'k'; 1_000_000])), Lookup::Hit);
}

/// In a full cache without eviction, stores are refused without a search until enough items were
/// removed.
#[test]
fn refusals_are_cheap() {
    let (cache, _) = cache(4 << 20);
    let cache = cache.without_eviction();
    let count = fill(&cache, &[b'v'; 200]);
    for index in (0..count).step_by(10) {
        cache.delete(key(index).as_bytes());
    }
    let (before, tries) = (cache.usage().sweeps.blocks, 10_000);
    let is_refused = |index: &usize| {
        let value = vec![b'n'; [100, 3_000, 50_000, 1_000_000][index % 4]];
        let content = Content { flags: 0, exptime: 0, value: &value };
        cache.store(Mode::Add, format!("new{index}").as_bytes(), content) == Store::OutOfMemory
    };
    let refused = (0..tries).filter(is_refused).count();
    assert!(refused > tries / 2, "only {refused} were refused");
    let swept = cache.usage().sweeps.blocks - before;
    assert!(swept < 100, "{swept} blocks were swept without success");
}
