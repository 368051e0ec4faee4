//! Caches that several threads fill, empty and shrink: the weight stays exact, and each entry is in
//! a queue, from which it can be evicted. A removal cancels a load.

use std::sync::Arc;

use relativist::Cache;
use shuttle::rand::{Rng, thread_rng};
use shuttle::sync::atomic::{AtomicU64, Ordering::SeqCst};
use shuttle::thread::spawn;

use crate::explore;
use crate::hashing::{Hashing, UNMIXED};
use crate::tracked::{Tally, Tracked};

const THREADS: usize = 3;
const STEPS: usize = 4;
const CAPACITY: u64 = 5;

/// Weighs 1, 2 or 3.
fn weigh(&key: &u64, _: &Tracked) -> u64 {
    1 + key % 3
}

fn step(cache: &Cache<u64, Tracked, Hashing>, tally: &'static Tally) {
    let mut random = thread_rng();
    let key = random.gen_range(0..6);
    match random.gen_range(0..10) {
        0..4 => assert!(cache.insert(key, Tracked::new(key, tally)).is_ok()),
        4 | 5 => {
            let guard = relativist::read();
            if let Some(value) = cache.get_ref(&key, &guard) {
                value.assert_of(key);
            }
        }
        6 => cache.invalidate(&key),
        8 | 9 => {
            let is_new = random.gen_range(0..3) > 0;
            let decide = |old: Option<&Tracked>| {
                if let Some(old) = old {
                    old.assert_of(key);
                }
                Ok::<_, ()>(is_new.then(|| Tracked::new(key, tally)))
            };
            assert!(cache.compute(key, decide, &relativist::read()).is_ok());
        }
        _ => cache.set_capacity(random.gen_range(3..=CAPACITY)),
    }
}

#[test]
fn a_cache_stays_within_its_limit() {
    static TALLY: Tally = Tally::new();
    explore(10_000, || {
        let cache = Cache::builder().capacity(CAPACITY).weigher(weigh).hasher(UNMIXED).build();
        let cache: Arc<Cache<u64, Tracked, Hashing>> = Arc::new(cache);
        let threads: Vec<_> = (0..THREADS)
            .map(|_| {
                let cache = Arc::clone(&cache);
                spawn(move || (0..STEPS).for_each(|_| step(&cache, &TALLY)))
            })
            .collect();
        threads.into_iter().for_each(|thread| thread.join().unwrap());
        let guard = relativist::read();
        let sum: u64 = cache.iter(&guard).map(|(key, value)| weigh(key, value)).sum();
        assert_eq!(cache.weight(), sum);
        assert!(sum <= cache.capacity());
        drop(guard);
        cache.set_capacity(0);
        assert_eq!((cache.len(), cache.weight()), (0, 0));
        drop(cache);
        TALLY.assert_live(0);
    });
}

/// Threads insert the same keys into a full cache. An entry that was queued, but could not be
/// inserted, leaves its queue.
#[test]
fn refused_entries_leave_their_queues() {
    static TALLY: Tally = Tally::new();
    explore(5000, || {
        let cache: Arc<Cache<u64, Tracked, Hashing>> = Arc::new(Cache::builder().capacity(2).hasher(UNMIXED).build());
        let insert = |cache: &Cache<_, _, _>, key| assert!(cache.insert(key, Tracked::new(key, &TALLY)).is_ok());
        insert(&cache, 10);
        insert(&cache, 11);
        let threads = [[1, 2], [1, 3], [2, 1]].map(|keys| {
            let cache = Arc::clone(&cache);
            spawn(move || keys.into_iter().for_each(|key| insert(&cache, key)))
        });
        threads.into_iter().for_each(|thread| thread.join().unwrap());
        // A thread that made room for a key may find that another thread has inserted it.
        assert!((1..=2).contains(&cache.len()) && cache.weight() == cache.len() as u64);
        cache.set_capacity(0);
        assert_eq!((cache.len(), cache.weight()), (0, 0));
        drop(cache);
        TALLY.assert_live(0);
    });
}

/// A key is loaded while another thread changes what the loader reads, removes the key, and then
/// changes what it finds. Nothing stays that comes from the cancelled load.
#[test]
fn nothing_comes_back_from_a_cancelled_load() {
    explore(5000, || {
        let cache: Arc<Cache<u64, u64, Hashing>> = Arc::new(Cache::builder().capacity(2).hasher(UNMIXED).build());
        let source = Arc::new(AtomicU64::new(0));
        let load = {
            let (cache, source) = (Arc::clone(&cache), Arc::clone(&source));
            spawn(move || cache.get_or_insert_with(1, || source.load(SeqCst)))
        };
        source.store(1, SeqCst);
        cache.invalidate(&1);
        for _ in 0..3 {
            let guard = relativist::read();
            let add = |old: Option<&u64>| old.map(|n| Some(n + 100)).ok_or(());
            _ = cache.compute(1, add, &guard);
        }
        load.join().unwrap();
        assert!(cache.peek(&1).is_none_or(|value| value % 100 == 1), "{:?}", cache.peek(&1));
    });
}
