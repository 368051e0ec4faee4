//! Tests of the memory limit, with and without eviction.

use relativist_testing as _;

use relativist_cache::Clock;
use relativist_cache::{
    Cache, Change, Content, CountError, Direction, EvictionObserver, Expiry, Hit, ITEM_OVERHEAD, Lookup, Marks, Mode,
    New, Present, Store, Value,
};
use std::collections::HashSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Barrier, Mutex};
use std::thread;
use std::time::Duration;

#[path = "support/pins.rs"]
mod pins;

const NOW: u32 = 1_700_000_000;
const MAX_VALUE: usize = 4 << 20;

fn cache(limit: usize) -> (Cache, Arc<Clock>) {
    let clock = Arc::new(Clock::new(NOW));
    (Cache::new(Arc::clone(&clock), limit, MAX_VALUE).unwrap(), clock)
}

fn set(cache: &Cache, key: &str, value: &[u8]) -> Store {
    set_until(cache, key, value, 0)
}

fn set_until(cache: &Cache, key: &str, value: &[u8], exptime: i32) -> Store {
    let stored = cache.store(Mode::Set, key.as_bytes(), Content { flags: 0, exptime, value });
    let usage = cache.usage();
    assert!(usage.mapped_bytes + usage.table_bytes <= usage.limit, "{usage:?}");
    assert!(usage.item_bytes <= usage.mapped_bytes, "{usage:?}");
    stored
}

fn has(cache: &Cache, key: &str) -> bool {
    cache.get(key.as_bytes(), |_| ()) == Lookup::Hit
}

fn key(index: usize) -> String {
    format!("key{index:07}")
}

/// Stores numbered items until one is refused or evicted, and returns their number.
fn fill(cache: &Cache, value: &[u8]) -> usize {
    let before = cache.usage().sweeps.evictions;
    let is_full = |index: &usize| {
        set(cache, &key(*index), value) == Store::OutOfMemory || cache.usage().sweeps.evictions > before
    };
    (0..).find(is_full).unwrap()
}

#[test]
fn without_eviction_stores_that_do_not_fit_are_refused() {
    let (cache, _) = cache(1 << 20);
    let cache = cache.without_eviction();
    let value = [b'v'; 2000];
    let count = fill(&cache, &value);
    let full = cache.usage();
    assert_eq!((full.items, full.item_bytes), (count, count * (ITEM_OVERHEAD + 10 + 2000).next_multiple_of(8)));
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

/// In a full cache without eviction, scattered deleted items make room, although no block becomes
/// empty.
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
/// each block.
#[test]
fn without_eviction_few_scattered_deleted_items_make_room() {
    let (cache, _) = cache(4 << 20);
    let cache = cache.without_eviction();
    let value = [b'v'; 200];
    let count = fill(&cache, &value);
    let deleted = (0..count).step_by(10).filter(|&index| cache.delete(key(index).as_bytes())).count();
    let stored = (0..deleted).filter(|index| set(&cache, &format!("new{index}"), &value) == Store::Stored).count();
    assert!(stored > deleted * 3 / 4, "{stored} in place of {deleted}");
    assert!((0..count).all(|index| has(&cache, &key(index)) == (index % 10 > 0)));
    assert_eq!(cache.usage().sweeps.evictions, 0);
}

/// In a heap with too many blocks to examine in one pass, deleted items make room even if they are
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
fn a_lower_limit_holds_from_the_next_store_on() {
    let (cache, _) = cache(8 << 20);
    let count = fill(&cache, &[b'v'; 100]);
    cache.set_limit(2 << 20);
    store_until_within_limit(&cache, count);
    let usage = cache.usage();
    assert!(usage.items > 5_000, "{usage:?}");
    cache.set_limit(8 << 20);
    fill(&cache, &[b'w'; 100]);
    assert!(cache.usage().items > count * 9 / 10, "{usage:?} {:?}", cache.usage());
}

/// Stores until the cache is within its limit. This takes several stores, because freeing memory
/// also waits for the readers of other tests.
fn store_until_within_limit(cache: &Cache, from: usize) {
    let is_within_limit = |index: usize| {
        let content = Content { flags: 0, exptime: 0, value: &[b'v'; 100] };
        assert_eq!(cache.store(Mode::Set, key(from + index % 1000).as_bytes(), content), Store::Stored);
        let usage = cache.usage();
        usage.mapped_bytes + usage.table_bytes <= usage.limit
    };
    assert!((0..1_000_000).any(is_within_limit), "{:?}", cache.usage());
}

#[test]
fn expired_items_are_freed_in_the_background() {
    let (cache, clock) = cache(8 << 20);
    for index in 0..10_000 {
        set_until(&cache, &key(index), &[b'v'; 100], if index % 10 == 0 { 0 } else { 100 + (index % 2) as i32 });
    }
    set_until(&cache, "large", &[b'v'; 100_000], 100);
    clock.set(NOW + 99);
    cache.maintain();
    assert_eq!(cache.usage().items, 10_001);
    clock.set(NOW + 100);
    cache.maintain();
    assert_eq!(cache.usage().items, 6_000);
    clock.set(NOW + 110);
    cache.maintain();
    let usage = cache.usage();
    assert_eq!((usage.items, usage.sweeps.evictions), (1000, 0));
    assert_eq!(usage.item_bytes, 1000 * 144);
    assert!((0..10_000).step_by(10).all(|index| has(&cache, &key(index))));
}

/// A touched item expires at its new expiry, whatever the index says about its block.
#[test]
fn touched_items_expire_at_their_new_expiry() {
    let (cache, clock) = cache(8 << 20);
    for index in 0..1000 {
        set_until(&cache, &key(index), b"v", 0);
    }
    cache.touch(key(1).as_bytes(), 10);
    cache.touch(key(2).as_bytes(), 10);
    cache.touch(key(2).as_bytes(), 0);
    clock.set(NOW + 10);
    cache.maintain();
    assert_eq!(cache.usage().items, 999);
    assert!(has(&cache, &key(2)));
}

/// Either the background or a command may be the first to notice that a flush is due.
#[test]
fn flushed_items_are_freed_in_the_background() {
    for is_command_first in [false, true] {
        let (cache, clock) = cache(8 << 20);
        fill(&cache, &[b'v'; 100]);
        cache.flush(5);
        cache.maintain();
        assert!(cache.usage().items > 0);
        clock.set(NOW + 5);
        if is_command_first {
            set(&cache, "k", b"v");
            cache.delete(b"k");
        }
        cache.maintain();
        assert_eq!((cache.usage().items, cache.usage().item_bytes), (0, 0));
        // Each call is one second of background work.
        (0..10).for_each(|_| cache.maintain());
        let usage = cache.usage();
        assert!(usage.mapped_bytes < usage.limit / 8, "the memory was not unmapped: {usage:?}");
    }
}

/// The background cannot sweep a block with an item that is still being written. It sweeps the
/// block the next time.
#[test]
fn flushed_items_next_to_an_unfinished_item_are_freed() {
    let (cache, _) = cache(8 << 20);
    (0..10).for_each(|index| _ = set(&cache, &key(index), b"v"));
    let flush = |_: Present<'_>| {
        thread::scope(|scope| {
            scope.spawn(|| {
                cache.flush(0);
                cache.maintain();
            });
        });
        (true, ())
    };
    cache.put(b"new", &New::plain(0, Value::Whole(b"v")), flush, |_| ()).unwrap();
    assert!(has(&cache, "new"));
    cache.maintain();
    assert_eq!(cache.usage().items, 1, "the others were flushed");
}

/// A reader uses an item while all items of its block are dead, and other stores reuse free blocks.
#[test]
fn an_item_stays_while_a_reader_uses_it() {
    let (cache, _) = cache(8 << 20);
    let value = vec![b'k'; 300_000];
    set(&cache, "k", &value);
    let lookup = cache.get(b"k", |hit| {
        cache.delete(b"k");
        (0..10).for_each(|index| _ = set(&cache, &key(index), &[b'n'; 300_000]));
        assert!(hit.value == value);
    });
    assert_eq!(lookup, Lookup::Hit);
}

/// Lowers the limit so that the next `maintain` sweeps the oldest block.
fn make_scarce(cache: &Cache) {
    let usage = cache.usage();
    cache.set_limit(usage.mapped_bytes + usage.table_bytes + (3 << 16));
}

/// A sweep moves an item while a command holds the lock of its bucket. The sweep must copy the item
/// as the command leaves it.
#[test]
fn an_item_touched_during_a_move_expires_at_its_new_expiry() {
    let (cache, clock) = cache(8 << 20);
    set_until(&cache, "k", &[b'k'; 100], 10);
    assert!(has(&cache, "k"));
    (0..10_000).for_each(|index| _ = set(&cache, &key(index), &[b'v'; 100]));
    thread::scope(|scope| {
        let touch = |present: Present<'_>| {
            make_scarce(&cache);
            scope.spawn(|| cache.maintain());
            // Give the sweep time to copy the item. It then waits for the bucket's lock.
            thread::sleep(std::time::Duration::from_millis(20));
            let expiry = Some(Expiry::from_protocol(20, present.now));
            (Change::Mark { expiry, add: Marks::NONE, is_access: false }, ())
        };
        cache.update(b"k", touch, |_| ()).unwrap();
    });
    assert!(cache.usage().sweeps.blocks > 0);
    clock.set(NOW + 19);
    assert!(has(&cache, "k"));
    clock.set(NOW + 20);
    assert!(!has(&cache, "k"));
}

/// Pauses the first eviction.
struct Halt {
    is_first: AtomicBool,
    turns: Barrier,
}

impl EvictionObserver for Halt {
    fn is_watching(&self) -> bool {
        true
    }

    fn evicted(&self, _: Hit<'_>) {
        // Relaxed, because the flag publishes no other data.
        if self.is_first.swap(false, Ordering::Relaxed) {
            self.turns.wait();
            self.turns.wait();
        }
    }
}

/// A reader begins to use an item when its block is half swept. The sweep must wait for this
/// reader, too.
#[test]
fn a_sweep_waits_for_readers_that_begin_during_it() {
    let (cache, _) = cache(8 << 20);
    let halt = Arc::new(Halt { is_first: AtomicBool::new(true), turns: Barrier::new(2) });
    let cache = cache.with_observer(Arc::clone(&halt) as Arc<dyn EvictionObserver>);
    (0..10_000).for_each(|index| _ = set(&cache, &key(index), &[b'v'; 100]));
    make_scarce(&cache);
    thread::scope(|scope| {
        scope.spawn(|| cache.maintain());
        halt.turns.wait();
        // One grace period after the sweep began is not enough.
        relativist_rcu::wait_for_readers();
        // `peek` does not count as an access, which would keep the item.
        let lookup = cache.peek(key(1).as_bytes(), |hit| {
            halt.turns.wait();
            while cache.usage().sweeps.blocks == 0 {
                thread::yield_now();
            }
            cache.set_limit(8 << 20);
            (0..5_000).for_each(|index| _ = set(&cache, &format!("new{index}"), &[b'n'; 100]));
            assert!(hit.value == [b'v'; 100]);
        });
        assert_eq!(lookup, Lookup::Hit);
    });
    assert!(!has(&cache, &key(1)));
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
        let is_grown = (0..60_000).any(|_| {
            thread::sleep(Duration::from_millis(1));
            cache.usage().buckets > buckets
        });
        assert!(is_grown, "{:?}", cache.usage());
        set(&cache, "last", b"s");
    }
}

/// Records the keys of evicted items.
#[derive(Default)]
struct EvictionLog(Mutex<Vec<String>>);

impl EvictionObserver for EvictionLog {
    fn is_watching(&self) -> bool {
        true
    }

    fn evicted(&self, hit: Hit<'_>) {
        assert!(!hit.marks.has(Marks::FETCHED) || hit.value == b"fetched", "{hit:?}");
        self.0.lock().unwrap().push(String::from_utf8(hit.key.to_vec()).unwrap());
    }
}

#[test]
fn sweeps_are_counted_and_observed() {
    let (cache, clock) = cache(1 << 20);
    let evicted = Arc::new(EvictionLog::default());
    let cache = cache.with_observer(Arc::clone(&evicted) as Arc<dyn EvictionObserver>);
    for index in 0..3 {
        set_until(&cache, &format!("expires{index}"), &[b'v'; 100], 10);
    }
    has(&cache, "expires0");
    clock.set(NOW + 10);
    cache.maintain();
    let sweeps = cache.usage().sweeps;
    assert_eq!((sweeps.crawler_reclaimed, sweeps.expired_unfetched, sweeps.reclaimed), (3, 2, 0));
    assert!(sweeps.crawled >= 3);

    let names: HashSet<String> = (0..20_000).map(key).collect();
    for (index, name) in names.iter().enumerate() {
        set_until(&cache, name, b"fetched", (index % 2 * 1000) as i32);
        if index % 4 == 0 {
            assert!(has(&cache, name));
        }
    }
    let sweeps = cache.usage().sweeps;
    let gone = evicted.0.lock().unwrap().clone();
    assert!(sweeps.evictions > 1000 && sweeps.evictions == gone.len() as u64, "{sweeps:?}");
    let distinct: HashSet<String> = gone.into_iter().collect();
    assert!(distinct.len() as u64 == sweeps.evictions && distinct.is_subset(&names));
    assert!(distinct.iter().all(|name| !has(&cache, name)));
    assert!(sweeps.evicted_unfetched > 0 && sweeps.evicted_unfetched <= sweeps.evictions);
    assert!(sweeps.evicted_nonzero > 0 && sweeps.evicted_nonzero < sweeps.evictions);

    // Items that have expired by now are reclaimed, not evicted.
    clock.set(NOW + 2000);
    for index in 0..20_000 {
        set(&cache, &format!("new{index}"), b"v");
    }
    assert!(cache.usage().sweeps.reclaimed > 1000, "{:?}", cache.usage());
}

/// Each second stores a few items, one of which expires soon. Such items do not occupy a block per
/// second.
#[test]
fn blocks_with_few_items_are_merged() {
    let (cache, clock) = cache(4 << 20);
    for second in 0..1000 {
        clock.set(NOW + second);
        set_until(&cache, &format!("brief{second}"), &[b'v'; 100], 1);
        for index in 0..10 {
            set_until(&cache, &format!("{second}-{index}"), &[b'v'; 100], 0);
        }
        cache.maintain();
    }
    let usage = cache.usage();
    assert_eq!(usage.sweeps.evictions, 0, "{usage:?}");
    assert!(usage.items >= 10_000, "{usage:?}");
}

/// If items of an idle heap expire in every second, the number of items that the background reads
/// is proportional to the number of expired items and of minutes.
#[test]
fn idle_items_with_mixed_expiries_are_not_read_repeatedly() {
    const ITEMS: usize = 20_000;
    const HOUR: u32 = 3600;
    let (cache, clock) = cache(64 << 20);
    // From a minute to a day: as many between one and two minutes as between one and two hours.
    let ends: Vec<u32> = (0..ITEMS).map(|index| (60.0 * 1440f64.powf(index as f64 / ITEMS as f64)) as u32).collect();
    let later_than = |second: u32| ITEMS - ends.partition_point(|&end| end <= second);
    for index in 0..ITEMS {
        // Items that expire in the same second are stored far apart.
        let index = index * 7919 % ITEMS;
        set_until(&cache, &key(index), &[b'v'; 100], ends[index] as i32);
    }
    for second in 1..=HOUR {
        clock.set(NOW + second);
        cache.maintain();
        let items = cache.usage().items;
        let (alive, not_long_dead) = (later_than(second), later_than(second.saturating_sub(310)));
        assert!((alive..=not_long_dead).contains(&items), "{items} after {second} s, of which {alive} are alive");
        if second % 60 == 0 {
            assert!(items <= alive + alive / 8, "{items} after {second} s, of which {alive} are alive");
        }
    }
    let sweeps = cache.usage().sweeps;
    assert!(sweeps.crawler_reclaimed > ITEMS as u64 / 2 && sweeps.evictions == 0, "{sweeps:?}");
    assert!(sweeps.crawled < 30 * ITEMS as u64, "{sweeps:?}");
    assert!(sweeps.passes > 0 && sweeps.passes <= u64::from(HOUR));
}

/// The background also examines all blocks regularly, and so finds expiries that its index does not
/// have.
#[test]
fn items_with_an_earlier_new_expiry_are_freed_within_a_minute() {
    let (cache, clock) = cache(64 << 20);
    for index in 0..20_000 {
        set_until(&cache, &key(index), &[b'v'; 100], 0);
    }
    (0..20_000).for_each(|index| assert!(cache.touch(key(index).as_bytes(), 10)));
    let freed = (10..80).find(|second| {
        clock.set(NOW + second);
        cache.maintain();
        cache.usage().items == 0
    });
    assert!(freed.is_some_and(|second| second <= 70), "{freed:?}");
}

#[test]
fn stores_that_replace_dead_items_count_as_reclaiming() {
    let (cache, clock) = cache(64 << 20);
    for name in ["fetched", "unfetched", "alive"] {
        set_until(&cache, name, b"v", if name == "alive" { 0 } else { 10 });
    }
    assert!(has(&cache, "fetched"));
    clock.set(NOW + 10);
    for name in ["fetched", "unfetched", "alive", "new"] {
        set_until(&cache, name, b"w", 0);
    }
    let counts = |cache: &Cache| {
        let sweeps = cache.usage().sweeps;
        (sweeps.reclaimed, sweeps.expired_unfetched, sweeps.crawler_reclaimed)
    };
    assert_eq!(counts(&cache), (2, 1, 0));
    cache.flush(0);
    set_until(&cache, "new", b"x", 0);
    assert_eq!(counts(&cache), (3, 1, 0), "flushed, not expired");
}

/// One item shares its block with others, and one has its own block.
#[test]
fn idle_times_do_not_wrap() {
    let (cache, clock) = cache(8 << 20);
    for index in 0..1000 {
        set_until(&cache, &key(index), &[b'v'; 100], 0);
    }
    let large = vec![b'v'; 500_000];
    set(&cache, "large", &large);
    for hours in 1..24 * 30 {
        clock.set(NOW + hours * 3600);
        cache.maintain();
        for name in [&key(hours as usize), "large"] {
            let mut idle = 0;
            assert_eq!(cache.peek(name.as_bytes(), |hit| idle = hit.idle), Lookup::Hit);
            assert!((hours * 3600..hours * 3600 + 1024).contains(&idle), "{idle} s after {hours} h");
        }
    }
    let read = cache.usage().sweeps.crawled;
    assert!(read < 31 * 1100, "not read once a day: {read} items");
}
