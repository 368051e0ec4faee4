//! Sweeps while other threads use the items of the block; counts and reports of evictions.

use super::{NOW, cache, has, key, set, set_until};
use relativist_store::{Cache, Change, EvictionObserver, Expiry, Hit, Lookup, Marks, Present};
use relativist_testing::wait_until;
use std::collections::HashSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Barrier, Mutex};
use std::thread;
use std::time::Duration;

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
            thread::sleep(Duration::from_millis(20));
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
            wait_until("the end of the sweep", || cache.usage().sweeps.blocks > 0);
            cache.set_limit(8 << 20);
            (0..5_000).for_each(|index| _ = set(&cache, &format!("new{index}"), &[b'n'; 100]));
            assert!(hit.value == [b'v'; 100]);
        });
        assert_eq!(lookup, Lookup::Hit);
    });
    assert!(!has(&cache, &key(1)));
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

    let names: HashSet<String> = (0..40_000).map(key).collect();
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
