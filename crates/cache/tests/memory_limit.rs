//! The memory limit, with eviction and without.

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

#[path = "support/loans.rs"]
mod loans;

const NOW: u32 = 1_700_000_000;
const MAX_VALUE: usize = 4 << 20;

fn engine(limit: usize) -> (Cache, Arc<Clock>) {
    let clock = Arc::new(Clock::new(NOW));
    (Cache::new(Arc::clone(&clock), limit, MAX_VALUE).unwrap(), clock)
}

fn set(engine: &Cache, key: &str, value: &[u8]) -> Store {
    set_until(engine, key, value, 0)
}

fn set_until(engine: &Cache, key: &str, value: &[u8], exptime: i32) -> Store {
    let stored = engine.store(Mode::Set, key.as_bytes(), Content { flags: 0, exptime, value });
    let usage = engine.usage();
    assert!(usage.mapped_bytes + usage.table_bytes <= usage.limit, "{usage:?}");
    assert!(usage.item_bytes <= usage.mapped_bytes, "{usage:?}");
    stored
}

fn has(engine: &Cache, key: &str) -> bool {
    engine.get(key.as_bytes(), |_| ()) == Lookup::Hit
}

fn key(index: usize) -> String {
    format!("key{index:07}")
}

/// Stores numbered items until one is refused or evicted, and returns how many there are.
fn fill(engine: &Cache, value: &[u8]) -> usize {
    let before = engine.usage().sweeps.evictions;
    let is_full = |index: &usize| {
        set(engine, &key(*index), value) == Store::OutOfMemory || engine.usage().sweeps.evictions > before
    };
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
    for mode in [Mode::Add, Mode::Replace, Mode::Append, Mode::Prepend, Mode::Cas(1)] {
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
    assert_eq!(engine.usage().sweeps.evictions, 0);
}

/// Full, without eviction: what is deleted here and there makes room, though no block becomes empty by that.
#[test]
fn without_eviction_scattered_deaths_make_room() {
    let (engine, _) = engine(4 << 20);
    let engine = engine.without_eviction();
    let value = [b'v'; 200];
    let count = fill(&engine, &value);
    for index in (0..count).step_by(2) {
        engine.delete(key(index).as_bytes());
    }
    for index in 0..count / 4 {
        assert_eq!(set(&engine, &format!("new{index}"), &value), Store::Stored, "{index} of {}", count / 4);
    }
    assert!((0..count).all(|index| has(&engine, &key(index)) == (index % 2 == 1)));
    assert_eq!(engine.usage().sweeps.evictions, 0);
}

/// The same if little is dead in each block, as long as that is more than a sixteenth.
#[test]
fn without_eviction_few_scattered_deaths_make_room() {
    let (engine, _) = engine(4 << 20);
    let engine = engine.without_eviction();
    let value = [b'v'; 200];
    let count = fill(&engine, &value);
    let deleted = (0..count).step_by(10).filter(|&index| engine.delete(key(index).as_bytes())).count();
    let stored = (0..deleted).filter(|index| set(&engine, &format!("new{index}"), &value) == Store::Stored).count();
    assert!(stored > deleted * 3 / 4, "{stored} in place of {deleted}");
    assert!((0..count).all(|index| has(&engine, &key(index)) == (index % 10 > 0)));
    assert_eq!(engine.usage().sweeps.evictions, 0);
}

/// The same in a heap of so many blocks that they are not all looked at in one go, and where only the last ones have lost anything.
#[test]
fn without_eviction_few_deaths_are_found_in_a_large_heap() {
    let (engine, _) = engine(192 << 20);
    let engine = engine.without_eviction();
    let value = [b'v'; 3000];
    let count = fill(&engine, &value);
    let last = (count - count / 10..count).step_by(8);
    let deleted = last.filter(|&index| engine.delete(key(index).as_bytes())).count();
    let stored = (0..deleted).filter(|index| set(&engine, &format!("new{index}"), &value) == Store::Stored).count();
    assert!(stored > deleted / 2, "{stored} in place of {deleted}, of {count}");
    assert_eq!(engine.usage().sweeps.evictions, 0);
}

/// What is free is in blocks that are too small for what is made under a key's lock, where nothing is given back to the system.
#[test]
fn what_grows_finds_room_in_what_is_free_elsewhere() {
    let (engine, _) = engine(4 << 20);
    let engine = engine.without_eviction();
    assert_eq!(set(&engine, "k", &vec![b'k'; 300_000]), Store::Stored);
    let count = fill(&engine, &[b'v'; 100_000]);
    for index in 0..count {
        assert!(engine.delete(key(index).as_bytes()));
    }
    let content = Content { flags: 0, exptime: 0, value: &vec![b'k'; 700_000] };
    assert_eq!(engine.store(Mode::Append, b"k", content), Store::Stored);
    assert_eq!(engine.get(b"k", |hit| assert!(hit.value == vec![b'k'; 1_000_000])), Lookup::Hit);
}

/// Full, without eviction: to find out once more that there is no room takes no search, as long as little has died.
#[test]
fn refusals_are_cheap() {
    let (engine, _) = engine(4 << 20);
    let engine = engine.without_eviction();
    let count = fill(&engine, &[b'v'; 200]);
    for index in (0..count).step_by(10) {
        engine.delete(key(index).as_bytes());
    }
    let (before, tries) = (engine.usage().sweeps.blocks, 10_000);
    let is_refused = |index: &usize| {
        let value = vec![b'n'; [100, 3_000, 50_000, 1_000_000][index % 4]];
        let content = Content { flags: 0, exptime: 0, value: &value };
        engine.store(Mode::Add, format!("new{index}").as_bytes(), content) == Store::OutOfMemory
    };
    let refused = (0..tries).filter(is_refused).count();
    assert!(refused > tries / 2, "only {refused} were refused");
    let swept = engine.usage().sweeps.blocks - before;
    assert!(swept < 100, "{swept} blocks were swept in vain");
}

/// Nearly all of the memory for one item, where all else is wanted, and much of it was overwritten: what it costs is in proportion to
/// its size.
#[test]
fn a_huge_item_evicts_what_it_needs() {
    let (engine, _) = engine(8 << 20);
    let count = fill(&engine, &[b'v'; 100]);
    for _ in 0..3 {
        assert!((1..count).filter(|&index| has(&engine, &key(index))).count() > count / 2);
        engine.maintain();
        fill_some(&engine, count);
    }
    let before = engine.usage().sweeps;
    assert_eq!(set(&engine, "huge", &vec![b'h'; 6 << 20]), Store::Stored);
    assert!(has(&engine, "huge"));
    let swept = engine.usage().sweeps.blocks - before.blocks;
    assert!(swept < 300, "{swept} blocks of 64 KiB were swept for 6 MiB");
    // And back again.
    assert!(fill(&engine, &[b'w'; 100]) < count);
    for index in 0..count {
        assert_eq!(set(&engine, &key(index), &[b'x'; 100]), Store::Stored);
    }
    assert!(engine.usage().items > count / 2);
}

/// Overwrites a third of the items, here and there.
fn fill_some(engine: &Cache, count: usize) {
    for index in (0..count).step_by(3) {
        assert_eq!(set(engine, &key(index), &[b'o'; 100]), Store::Stored);
    }
}

/// Each thread has in hand, at times, what another one would like to evict.
#[test]
fn threads_that_need_all_of_the_memory_at_once_all_get_it() {
    let (engine, _) = engine(1 << 20);
    thread::scope(|scope| {
        for name in 0..8 {
            let engine = &engine;
            scope.spawn(move || {
                let value = vec![b'v'; if name % 2 == 0 { 100_000 } else { 400_000 }];
                let content = Content { flags: 0, exptime: 0, value: &value };
                for index in 0..100 {
                    let key = format!("{name}-{index}");
                    // (What others do between two looks at sums makes these disagree: they are not looked at here.)
                    assert_eq!(engine.store(Mode::Set, key.as_bytes(), content), Store::Stored);
                }
            });
        }
    });
}

/// Mappings are few: the system allows 65530.
#[test]
fn items_of_all_sizes_share_mappings() {
    let mappings = || std::fs::read_to_string("/proc/self/maps").unwrap().lines().count();
    let (engine, _) = engine(64 << 20);
    let before = mappings();
    for index in 0..3_000 {
        set(&engine, &key(index), &vec![b'v'; 18_000]);
    }
    // Every other one is given back.
    for index in (0..3_000).step_by(2) {
        engine.delete(key(index).as_bytes());
    }
    (0..20).for_each(|_| engine.maintain());
    let usage = engine.usage();
    assert!(usage.items >= 1_500 && usage.mapped_bytes < 40 << 20, "{usage:?}");
    // Other tests of this process map some, too.
    assert!(mappings() < before + 500, "{} mappings, {before} before", mappings());
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
    assert_eq!((engine.usage().sweeps.evictions, engine.usage().items), (0, count));
}

/// What is dead as a whole needs no sweep, so that who overwrites large values, or removes what he stored together, has no more memory touched than
/// that takes.
#[test]
fn memory_in_which_all_is_dead_is_used_again_at_once() {
    let (engine, _) = engine(64 << 20);
    for round in 0..100 {
        assert_eq!(set(&engine, "large", &[b'l'; 300_000]), Store::Stored);
        let another = Content { flags: 0, exptime: 0, value: &[b'a'; 300_000] };
        assert_eq!(engine.store(Mode::Add, b"large", another), Store::NotStored);
        for index in 0..300 {
            set(&engine, &format!("{round} {index}"), &[b's'; 1000]);
        }
        for index in 0..300 {
            engine.delete(format!("{round} {index}").as_bytes());
        }
        // Or else readers of other tests might delay it.
        relativist_rcu::wait_for_readers();
    }
    let usage = engine.usage();
    assert!(usage.mapped_bytes < 3 << 20 && usage.sweeps.blocks == 0, "{usage:?}");
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
    assert!(engine.usage().sweeps.evictions > 10_000);
    assert!(!has(&engine, &key(1)));
}

#[test]
fn a_lower_limit_holds_from_the_next_store_on() {
    let (engine, _) = engine(8 << 20);
    let count = fill(&engine, &[b'v'; 100]);
    engine.set_limit(2 << 20);
    set_fitting(&engine, count);
    let usage = engine.usage();
    assert!(usage.items > 5_000, "{usage:?}");
    engine.set_limit(8 << 20);
    fill(&engine, &[b'w'; 100]);
    assert!(engine.usage().items > count * 9 / 10, "{usage:?} {:?}", engine.usage());
}

/// Stores until the limit is kept. That takes some: what is over it waits for the readers of other tests, too.
fn set_fitting(engine: &Cache, from: usize) {
    let is_kept = |index: usize| {
        let content = Content { flags: 0, exptime: 0, value: &[b'v'; 100] };
        assert_eq!(engine.store(Mode::Set, key(from + index % 1000).as_bytes(), content), Store::Stored);
        let usage = engine.usage();
        usage.mapped_bytes + usage.table_bytes <= usage.limit
    };
    assert!((0..1_000_000).any(is_kept), "{:?}", engine.usage());
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
    assert_eq!((usage.items, usage.sweeps.evictions), (1000, 0));
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

/// Whoever notices first that a flush is due: the background, or a command.
#[test]
fn what_was_flushed_is_freed_without_being_met() {
    for is_command_first in [false, true] {
        let (engine, clock) = engine(8 << 20);
        fill(&engine, &[b'v'; 100]);
        engine.flush(5);
        engine.maintain();
        assert!(engine.usage().items > 0);
        clock.set(NOW + 5);
        if is_command_first {
            set(&engine, "k", b"v");
            engine.delete(b"k");
        }
        engine.maintain();
        assert_eq!((engine.usage().items, engine.usage().item_bytes), (0, 0));
        // One second each.
        (0..10).for_each(|_| engine.maintain());
        let usage = engine.usage();
        assert!(usage.mapped_bytes < usage.limit / 8, "the system has got it back: {usage:?}");
    }
}

/// A block that the background can't sweep, because an item in it is not finished, is swept the next time.
#[test]
fn what_was_flushed_beside_an_item_in_the_making_is_freed() {
    let (engine, _) = engine(8 << 20);
    (0..10).for_each(|index| _ = set(&engine, &key(index), b"v"));
    let flush = |_: Present<'_>| {
        thread::scope(|scope| {
            scope.spawn(|| {
                engine.flush(0);
                engine.maintain();
            });
        });
        (true, ())
    };
    engine.put(b"new", &New::plain(0, Value::Whole(b"v")), flush, |_| ()).unwrap();
    assert!(has(&engine, "new"));
    engine.maintain();
    assert_eq!(engine.usage().items, 1, "the others were flushed");
}

/// All of its block is dead, and others take what is free, while somebody still looks at it.
#[test]
fn what_is_shown_stays_as_long_as_it_is_shown() {
    let (engine, _) = engine(8 << 20);
    let value = vec![b'k'; 300_000];
    set(&engine, "k", &value);
    let lookup = engine.get(b"k", |hit| {
        engine.delete(b"k");
        (0..10).for_each(|index| _ = set(&engine, &key(index), &[b'n'; 300_000]));
        assert!(hit.value == value);
    });
    assert_eq!(lookup, Lookup::Hit);
}

/// Makes blocks scarce: the next one who looks sweeps the oldest.
fn make_scarce(engine: &Cache) {
    let usage = engine.usage();
    engine.set_limit(usage.mapped_bytes + usage.table_bytes + (3 << 16));
}

/// Its block is swept while a command has its bucket. What moves on is what the command leaves.
#[test]
fn what_is_touched_while_it_moves_expires_when_it_was_told() {
    let (engine, clock) = engine(8 << 20);
    set_until(&engine, "k", &[b'k'; 100], 10);
    assert!(has(&engine, "k"));
    (0..10_000).for_each(|index| _ = set(&engine, &key(index), &[b'v'; 100]));
    thread::scope(|scope| {
        let touch = |present: Present<'_>| {
            make_scarce(&engine);
            scope.spawn(|| engine.maintain());
            // Time to make the copy, which then waits for the bucket.
            thread::sleep(std::time::Duration::from_millis(20));
            let expiry = Some(Expiry::from_protocol(20, present.now));
            (Change::Mark { expiry, add: Marks::NONE, is_access: false }, ())
        };
        engine.update(b"k", touch, |_| ()).unwrap();
    });
    assert!(engine.usage().sweeps.blocks > 0);
    clock.set(NOW + 19);
    assert!(has(&engine, "k"));
    clock.set(NOW + 20);
    assert!(!has(&engine, "k"));
}

/// Halts the first eviction.
struct Halt {
    is_first: AtomicBool,
    turns: Barrier,
}

impl EvictionObserver for Halt {
    fn is_watching(&self) -> bool {
        true
    }

    fn evicted(&self, _: Hit<'_>) {
        // Relaxed: stands for itself.
        if self.is_first.swap(false, Ordering::Relaxed) {
            self.turns.wait();
            self.turns.wait();
        }
    }
}

/// Somebody begins to look at an item when its block is half swept. He has to be waited for, too.
#[test]
fn who_looks_when_a_sweep_has_begun_is_waited_for() {
    let (engine, _) = engine(8 << 20);
    let halt = Arc::new(Halt { is_first: AtomicBool::new(true), turns: Barrier::new(2) });
    let engine = engine.with_observer(Arc::clone(&halt) as Arc<dyn EvictionObserver>);
    (0..10_000).for_each(|index| _ = set(&engine, &key(index), &[b'v'; 100]));
    make_scarce(&engine);
    thread::scope(|scope| {
        scope.spawn(|| engine.maintain());
        halt.turns.wait();
        // A grace period since the sweep began is not enough.
        relativist_rcu::wait_for_readers();
        // Not an access, which would save it.
        let lookup = engine.peek(key(1).as_bytes(), |hit| {
            halt.turns.wait();
            while engine.usage().sweeps.blocks == 0 {
                thread::yield_now();
            }
            engine.set_limit(8 << 20);
            (0..5_000).for_each(|index| _ = set(&engine, &format!("new{index}"), &[b'n'; 100]));
            assert!(hit.value == [b'v'; 100]);
        });
        assert_eq!(lookup, Lookup::Hit);
    });
    assert!(!has(&engine, &key(1)));
}

/// The table grows in the background, while small items are put where there is room and nobody asks for more.
#[test]
fn the_limit_holds_when_the_table_grows() {
    // Wherever in a block that happens.
    for size in [1_000, 1_300] {
        // Of this size little is left over when it is full of blocks, and of what moves on.
        let (engine, _) = engine((1 << 20) + (9 << 10));
        for index in 0..3_000 {
            set(&engine, &key(index), &vec![b'v'; size]);
            assert!(has(&engine, &key(index)));
        }
        let buckets = engine.usage().buckets;
        for index in 0..4_000 {
            set(&engine, &format!("s{index}"), b"s");
            // Time to grow, if it has been asked for.
            let usage = engine.usage();
            if usage.items > 4 * usage.buckets {
                (0..3).any(|_| {
                    thread::sleep(Duration::from_millis(1));
                    engine.usage().buckets > usage.buckets
                });
            }
        }
        assert!(engine.usage().buckets > buckets);
    }
}

/// Remembers who had to go.
#[derive(Default)]
struct Mourner(Mutex<Vec<String>>);

impl EvictionObserver for Mourner {
    fn is_watching(&self) -> bool {
        true
    }

    fn evicted(&self, hit: Hit<'_>) {
        assert!(!hit.marks.has(Marks::FETCHED) || hit.value == b"fetched", "{hit:?}");
        self.0.lock().unwrap().push(String::from_utf8(hit.key.to_vec()).unwrap());
    }
}

#[test]
fn what_sweeps_do_is_counted_and_told() {
    let (engine, clock) = engine(1 << 20);
    let mourner = Arc::new(Mourner::default());
    let engine = engine.with_observer(Arc::clone(&mourner) as Arc<dyn EvictionObserver>);
    for index in 0..3 {
        set_until(&engine, &format!("expires{index}"), &[b'v'; 100], 10);
    }
    has(&engine, "expires0");
    clock.set(NOW + 10);
    engine.maintain();
    let sweeps = engine.usage().sweeps;
    assert_eq!((sweeps.crawler_reclaimed, sweeps.expired_unfetched, sweeps.reclaimed), (3, 2, 0));
    assert!(sweeps.crawled >= 3);

    let names: HashSet<String> = (0..20_000).map(key).collect();
    for (index, name) in names.iter().enumerate() {
        set_until(&engine, name, b"fetched", (index % 2 * 1000) as i32);
        if index % 4 == 0 {
            assert!(has(&engine, name));
        }
    }
    let sweeps = engine.usage().sweeps;
    let gone = mourner.0.lock().unwrap().clone();
    assert!(sweeps.evictions > 1000 && sweeps.evictions == gone.len() as u64, "{sweeps:?}");
    let distinct: HashSet<String> = gone.into_iter().collect();
    assert!(distinct.len() as u64 == sweeps.evictions && distinct.is_subset(&names));
    assert!(distinct.iter().all(|name| !has(&engine, name)));
    assert!(sweeps.evicted_unfetched > 0 && sweeps.evicted_unfetched <= sweeps.evictions);
    assert!(sweeps.evicted_nonzero > 0 && sweeps.evicted_nonzero < sweeps.evictions);

    // What has expired by now is not evicted, but reclaimed.
    clock.set(NOW + 2000);
    for index in 0..20_000 {
        set(&engine, &format!("new{index}"), b"v");
    }
    assert!(engine.usage().sweeps.reclaimed > 1000, "{:?}", engine.usage());
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
    assert_eq!(usage.sweeps.evictions, 0, "{usage:?}");
    assert!(usage.items >= 10_000, "{usage:?}");
}

/// If items of an idle heap expire in every second, the background reads in proportion to what
/// expires and to the minutes that pass.
#[test]
fn idle_items_of_mixed_times_are_not_read_again_and_again() {
    const ITEMS: usize = 20_000;
    const HOUR: u32 = 3600;
    let (engine, clock) = engine(64 << 20);
    // From a minute to a day: as many between one and two minutes as between one and two hours.
    let ends: Vec<u32> = (0..ITEMS).map(|index| (60.0 * 1440f64.powf(index as f64 / ITEMS as f64)) as u32).collect();
    let later_than = |second: u32| ITEMS - ends.partition_point(|&end| end <= second);
    for index in 0..ITEMS {
        // Items that expire in the same second are stored far apart.
        let index = index * 7919 % ITEMS;
        set_until(&engine, &key(index), &[b'v'; 100], ends[index] as i32);
    }
    for second in 1..=HOUR {
        clock.set(NOW + second);
        engine.maintain();
        let items = engine.usage().items;
        let (alive, not_long_dead) = (later_than(second), later_than(second.saturating_sub(310)));
        assert!((alive..=not_long_dead).contains(&items), "{items} after {second} s, of which {alive} are alive");
        if second % 60 == 0 {
            assert!(items <= alive + alive / 8, "{items} after {second} s, of which {alive} are alive");
        }
    }
    let sweeps = engine.usage().sweeps;
    assert!(sweeps.crawler_reclaimed > ITEMS as u64 / 2 && sweeps.evictions == 0, "{sweeps:?}");
    assert!(sweeps.crawled < 30 * ITEMS as u64, "{sweeps:?}");
    assert!(sweeps.passes > 0 && sweeps.passes <= u64::from(HOUR));
}

/// The background finds in its rounds what its index does not have.
#[test]
fn what_is_to_expire_earlier_than_it_was_is_freed_within_a_minute() {
    let (engine, clock) = engine(64 << 20);
    for index in 0..20_000 {
        set_until(&engine, &key(index), &[b'v'; 100], 0);
    }
    (0..20_000).for_each(|index| assert!(engine.touch(key(index).as_bytes(), 10)));
    let freed = (10..80).find(|second| {
        clock.set(NOW + second);
        engine.maintain();
        engine.usage().items == 0
    });
    assert!(freed.is_some_and(|second| second <= 70), "{freed:?}");
}

#[test]
fn stores_in_the_place_of_dead_items_count_as_reclaiming() {
    let (engine, clock) = engine(64 << 20);
    for name in ["fetched", "unfetched", "alive"] {
        set_until(&engine, name, b"v", if name == "alive" { 0 } else { 10 });
    }
    assert!(has(&engine, "fetched"));
    clock.set(NOW + 10);
    for name in ["fetched", "unfetched", "alive", "new"] {
        set_until(&engine, name, b"w", 0);
    }
    let counts = |engine: &Cache| {
        let sweeps = engine.usage().sweeps;
        (sweeps.reclaimed, sweeps.expired_unfetched, sweeps.crawler_reclaimed)
    };
    assert_eq!(counts(&engine), (2, 1, 0));
    engine.flush(0);
    set_until(&engine, "new", b"x", 0);
    assert_eq!(counts(&engine), (3, 1, 0), "flushed, not expired");
}

/// For an item in a block with others, and for one alone in its block.
#[test]
fn idle_times_do_not_wrap() {
    let (engine, clock) = engine(8 << 20);
    for index in 0..1000 {
        set_until(&engine, &key(index), &[b'v'; 100], 0);
    }
    let large = vec![b'v'; 500_000];
    set(&engine, "large", &large);
    for hours in 1..24 * 30 {
        clock.set(NOW + hours * 3600);
        engine.maintain();
        for name in [&key(hours as usize), "large"] {
            let mut idle = 0;
            assert_eq!(engine.peek(name.as_bytes(), |hit| idle = hit.idle), Lookup::Hit);
            assert!((hours * 3600..hours * 3600 + 1024).contains(&idle), "{idle} s after {hours} h");
        }
    }
    let read = engine.usage().sweeps.crawled;
    assert!(read < 31 * 1100, "once a day: {read}");
}
