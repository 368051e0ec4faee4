//! What fits within the limit, and what a store evicts.

use super::{cache, fill, has, key, set};
use relativist_store::{Cache, Content, CountError, Direction, ITEM_OVERHEAD, Mode, Store};
use relativist_testing::wait_until;
use std::thread;
use std::time::Duration;

/// An item takes nearly all of the memory. All other items were accessed, and many were
/// overwritten. The number of swept blocks is proportional to the item's size.
#[test]
fn a_huge_item_evicts_what_it_needs() {
    let (cache, _) = cache(8 << 20);
    let count = fill(&cache, &[b'v'; 100]);
    for _ in 0..3 {
        assert!((1..count).filter(|&index| has(&cache, &key(index))).count() > count / 2);
        cache.maintain();
        fill_some(&cache, count);
    }
    let before = cache.usage().sweeps;
    assert_eq!(set(&cache, "huge", &vec![b'h'; 6 << 20]), Store::Stored);
    assert!(has(&cache, "huge"));
    let swept = cache.usage().sweeps.blocks - before.blocks;
    assert!(swept < 300, "{swept} blocks of 64 KiB were swept for 6 MiB");
    // Small items then use all of the memory again.
    assert!(fill(&cache, &[b'w'; 100]) < count);
    for index in 0..count {
        assert_eq!(set(&cache, &key(index), &[b'x'; 100]), Store::Stored);
    }
    assert!(cache.usage().items > count / 2);
}

/// Items of 80 and of 88 bytes are in different classes of sizes, but worth nearly the same.
#[test]
fn items_of_nearly_the_same_size_live_nearly_equally_long() {
    const COUNT: usize = 200_000;
    let (cache, _) = cache(4 << 20);
    let values = [80, 88].map(|size| vec![b'v'; size - ITEM_OVERHEAD - key(0).len()]);
    for index in 0..COUNT {
        assert_eq!(set(&cache, &key(index), &values[index % 2]), Store::Stored);
    }
    let live = [0, 1].map(|first| (first..COUNT).step_by(2).filter(|&index| has(&cache, &key(index))).count());
    let ratio = live[0] as f64 / live[1] as f64;
    assert!((0.8..1.5).contains(&ratio), "{live:?} items of 80 and 88 bytes");
}

/// Overwrites every third item.
fn fill_some(cache: &Cache, count: usize) {
    for index in (0..count).step_by(3) {
        assert_eq!(set(cache, &key(index), &[b'o'; 100]), Store::Stored);
    }
}

/// A thread may be writing the block that another thread needs to evict.
#[test]
fn threads_that_compete_for_all_of_the_memory_succeed() {
    let (cache, _) = cache(1 << 20);
    thread::scope(|scope| {
        for name in 0..8 {
            let cache = &cache;
            scope.spawn(move || {
                let value = vec![b'v'; if name % 2 == 0 { 100_000 } else { 400_000 }];
                let content = Content { flags: 0, exptime: 0, value: &value };
                for index in 0..100 {
                    let key = format!("{name}-{index}");
                    // This does not call `set`, whose checks of the usage fail while other threads
                    // change it.
                    assert_eq!(cache.store(Mode::Set, key.as_bytes(), content), Store::Stored);
                }
            });
        }
    });
}

/// The cache uses few mappings, because the system allows only 65530.
#[test]
fn items_of_all_sizes_share_mappings() {
    let mappings = || std::fs::read_to_string("/proc/self/maps").unwrap().lines().count();
    let (cache, _) = cache(64 << 20);
    let before = mappings();
    for index in 0..3_000 {
        set(&cache, &key(index), &vec![b'v'; 18_000]);
    }
    // Delete every other item.
    for index in (0..3_000).step_by(2) {
        cache.delete(key(index).as_bytes());
    }
    (0..20).for_each(|_| cache.maintain());
    let usage = cache.usage();
    assert!(usage.items >= 1_500 && usage.mapped_bytes < 40 << 20, "{usage:?}");
    // Other tests in this process map memory, too.
    assert!(mappings() < before + 500, "{} mappings, {before} before", mappings());
}

#[test]
fn a_value_larger_than_the_limit_is_refused_and_evicts_nothing() {
    let (cache, _) = cache(1 << 20);
    assert_eq!(set(&cache, "n", b"1"), Store::Stored);
    assert_eq!(set(&cache, "large", &vec![b'l'; 1 << 20]), Store::OutOfMemory);
    assert!(has(&cache, "n"));
    assert_eq!(cache.count(b"n", Direction::Up, 1), Ok(2));
    assert_eq!(cache.count(b"large", Direction::Up, 1), Err(CountError::NotFound));
}

#[test]
fn overwriting_items_that_fit_evicts_nothing() {
    let (cache, _) = cache(4 << 20);
    let (count, value) = (15_000, [b'v'; 150]);
    for round in 0..6 {
        for index in 0..count {
            assert_eq!(set(&cache, &key((index * 7919 + round) % count), &value), Store::Stored);
        }
    }
    assert!((0..count).all(|index| has(&cache, &key(index))));
    assert_eq!((cache.usage().sweeps.evictions, cache.usage().items), (0, count));
}

/// A block in which all items are dead is reused without a sweep. Overwriting large values, or
/// removing all items that were stored together, uses no other memory.
#[test]
fn blocks_in_which_all_items_are_dead_are_reused_at_once() {
    let (cache, _) = cache(64 << 20);
    for round in 0..100 {
        assert_eq!(set(&cache, "large", &[b'l'; 300_000]), Store::Stored);
        let another = Content { flags: 0, exptime: 0, value: &[b'a'; 300_000] };
        assert_eq!(cache.store(Mode::Add, b"large", another), Store::NotStored);
        for index in 0..300 {
            set(&cache, &format!("{round} {index}"), &[b's'; 1000]);
        }
        for index in 0..300 {
            cache.delete(format!("{round} {index}").as_bytes());
        }
        // Without this, readers of other tests might delay the reuse.
        relativist_rcu::wait_for_readers();
    }
    let usage = cache.usage();
    assert!(usage.mapped_bytes < 3 << 20 && usage.sweeps.blocks == 0, "{usage:?}");
}

/// After items of other sizes, as many items of a new size fit as usual. Of large items, which the
/// policy evicts first, at least some fit.
#[test]
fn sizes_used_before_take_no_room_from_new_sizes() {
    let (cache, _) = cache(8 << 20);
    let small_items = fill(&cache, &[b's'; 20]);
    for (size, least) in [(1 << 20, 1), (20_000, 300), (3_000, 2300), (700_000, 1), (20, small_items * 9 / 10)] {
        let count = (2 * small_items).min((16 << 20) / size);
        for index in 0..count {
            assert_eq!(set(&cache, &format!("{size}-{index}"), &vec![b'x'; size]), Store::Stored, "{size}");
        }
        let kept = (0..count).filter(|index| has(&cache, &format!("{size}-{index}"))).count();
        assert!(kept >= least, "{kept} of {size} bytes after others, not {least}");
    }
}

#[test]
fn accessed_items_stay() {
    let (cache, _) = cache(1 << 20);
    for index in 0..20_000 {
        set(&cache, &key(index), &[b'v'; 100]);
        assert!(index == 0 || has(&cache, &key(0)), "evicted after {index}: {:?}", cache.usage());
    }
    assert!(cache.usage().sweeps.evictions > 10_000);
    assert!(!has(&cache, &key(1)));
}

#[test]
fn stores_succeed_while_the_cache_shrinks_to_a_lower_limit() {
    let (cache, _) = cache(8 << 20);
    let count = fill(&cache, &[b'v'; 100]);
    cache.set_limit(2 << 20);
    shrink_while_storing(&cache, count);
    let usage = cache.usage();
    assert!(usage.items > 5_000, "{usage:?}");
    cache.set_limit(8 << 20);
    fill(&cache, &[b'w'; 100]);
    assert!(cache.usage().items > count * 9 / 10, "{usage:?} {:?}", cache.usage());
}

#[test]
fn a_lower_limit_holds_soon_without_stores() {
    let (cache, _) = cache(8 << 20);
    fill(&cache, &[b'v'; 100]);
    cache.set_limit(2 << 20);
    // Each call frees what earlier ones have evicted.
    let is_within_limit = |_| {
        cache.maintain();
        let usage = cache.usage();
        usage.mapped_bytes + usage.table_bytes <= usage.limit
    };
    assert!((0..1_000).any(is_within_limit), "{:?}", cache.usage());
    assert!(cache.usage().items > 5_000, "{:?}", cache.usage());
}

/// Stores until the cache is within its limit, and demands that each store sweeps no more than a
/// step of the shrinking, and some blocks for itself.
fn shrink_while_storing(cache: &Cache, from: usize) {
    let is_within_limit = |index: usize| {
        if index.is_multiple_of(100) {
            cache.maintain();
        }
        let content = Content { flags: 0, exptime: 0, value: &[b'v'; 100] };
        let before = cache.usage().sweeps.blocks;
        assert_eq!(cache.store(Mode::Set, key(from + index % 1000).as_bytes(), content), Store::Stored);
        let usage = cache.usage();
        assert!(usage.sweeps.blocks - before < 16, "{before}: {usage:?}");
        usage.mapped_bytes + usage.table_bytes <= usage.limit
    };
    assert!((0..1_000_000).any(is_within_limit), "{:?}", cache.usage());
}

/// The table grows in the background, while small items go into blocks with free space, so that no
/// store claims another block.
#[test]
fn the_limit_holds_when_the_table_grows() {
    // Two sizes, so that the growth begins at different places in a block.
    for size in [1_000, 1_300] {
        // With this limit, little memory is left when the blocks and the reserve for moved items
        // are allocated.
        let (cache, _) = cache((1 << 20) + (9 << 10));
        for index in 0..3_000 {
            set(&cache, &key(index), &vec![b'v'; size]);
            assert!(has(&cache, &key(index)));
        }
        let buckets = cache.usage().buckets;
        for index in 0..4_000 {
            set(&cache, &format!("s{index}"), b"s");
            // Give the background time to grow the table. If it needs longer, it grows later.
            let usage = cache.usage();
            if usage.items > 4 * usage.buckets {
                (0..3).any(|_| {
                    thread::sleep(Duration::from_millis(1));
                    cache.usage().buckets > usage.buckets
                });
            }
        }
        wait_until("the table to grow", || cache.usage().buckets > buckets);
        set(&cache, "last", b"s");
    }
}
