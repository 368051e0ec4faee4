//! Expired and flushed items: when their memory is freed, and at what cost.

use super::{NOW, cache, fill, has, key, set, set_until};
use relativist_store::{Cache, Lookup, New, Present, Value};
use std::thread;

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
    assert_eq!(usage.item_bytes, 1000 * 124);
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
    // As large as the others, so that it is in the same block.
    let new = key(10);
    cache.put(new.as_bytes(), &New::plain(0, Value::Whole(b"v")), flush, |_| ()).unwrap();
    assert!(!has(&cache, &new), "its key was locked before the flush, so it counts as stored before");
    cache.maintain();
    assert_eq!(cache.usage().items, 0);
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

/// In an idle cache some items expire in every second. The background must not read all items again
/// each time.
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
    assert!(read < 2 * 31 * 1100, "not read twice a day: {read} items");
}
