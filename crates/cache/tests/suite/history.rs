//! A check of histories: no lookup and no load that begins after an update has returned gets what
//! was there before.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::thread;

use relativist_cache::Cache;
use relativist_testing::random::Random;

/// A call on a key: its time, the value that it has put there, and the one that it has found.
#[derive(Clone, Copy)]
struct Call {
    start: u64,
    end: u64,
    what: What,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum What {
    /// Puts a value there, or removes what is there.
    Update(Option<u64>),
    /// Its loader has made this value, which may have been put there.
    Load(u64),
    Found(u64),
}

/// Time, and the numbers of values.
struct Clock(AtomicU64);

impl Clock {
    fn tick(&self) -> u64 {
        self.0.fetch_add(1, SeqCst)
    }
}

const KEYS: u64 = 4;

/// Executes a random call, and returns its key and what it was.
fn call(cache: &Cache<u64, u64>, clock: &Clock, random: &mut Random) -> (u64, Option<Call>) {
    let key = random.below(KEYS);
    let start = clock.tick();
    let what = match random.below(12) {
        0..2 => {
            let value = clock.tick();
            cache.insert(key, value);
            Some(What::Update(Some(value)))
        }
        2 => {
            cache.invalidate(&key);
            Some(What::Update(None))
        }
        3 => {
            cache.remove(&key);
            Some(What::Update(None))
        }
        4 => {
            let value = clock.tick();
            cache.compute(key, |_| Some(value));
            Some(What::Update(Some(value)))
        }
        5 => {
            cache.compute(key, |_| None);
            Some(What::Update(None))
        }
        6 if random.below(8) == 0 => {
            cache.retain(|&other, _| other != key);
            // It may miss what is inserted meanwhile, so it proves nothing.
            None
        }
        6..10 => {
            let mut loaded = None;
            let found = cache.get_or_insert_with(key, || {
                thread::yield_now();
                *loaded.insert(clock.tick())
            });
            Some(if loaded == Some(found) { What::Load(found) } else { What::Found(found) })
        }
        _ => cache.get(&key).map(What::Found),
    };
    let end = clock.tick();
    (key, what.map(|what| Call { start, end, what }))
}

/// Checks the calls of one key.
fn check(calls: &[Call]) {
    let mut put = HashMap::new();
    for call in calls {
        match call.what {
            What::Update(Some(value)) | What::Load(value) => _ = put.insert(value, *call),
            What::Update(None) | What::Found(_) => {}
        }
    }
    let mut updates: Vec<&Call> = calls.iter().filter(|call| matches!(call.what, What::Update(_))).collect();
    updates.sort_unstable_by_key(|call| call.end);
    for found in calls {
        let What::Found(value) = found.what else { continue };
        let source = put.get(&value).expect("some call has put the value there");
        assert!(source.start < found.end, "found before it was put there");
        // The last update that has returned before, or any other one.
        let before = updates.partition_point(|call| call.end < found.start);
        let is_stale = updates[..before].iter().rev().take(64).any(|call| call.start > source.end);
        assert!(
            !is_stale,
            "a call that began at {} got {value}, which was put there until {}",
            found.start, source.end
        );
    }
}

fn histories(capacity: u64, seed: u64) {
    const THREADS: u64 = 4;
    const STEPS: usize = 20_000;
    let (cache, clock) = (Cache::new(capacity), Clock(AtomicU64::new(1)));
    let calls: Vec<(u64, Call)> = thread::scope(|scope| {
        let threads: Vec<_> = (0..THREADS)
            .map(|thread| {
                let (cache, clock) = (cache.clone(), &clock);
                scope.spawn(move || {
                    let mut random = Random::new(seed + thread);
                    let calls = (0..STEPS).map(|_| call(&cache, clock, &mut random));
                    calls.filter_map(|(key, call)| Some((key, call?))).collect::<Vec<_>>()
                })
            })
            .collect();
        threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect()
    });
    for key in 0..KEYS {
        let of_key: Vec<Call> = calls.iter().filter(|call| call.0 == key).map(|call| call.1).collect();
        assert!(of_key.len() > STEPS / 2);
        check(&of_key);
    }
}

#[test]
fn no_call_gets_what_an_earlier_one_has_removed() {
    histories(100, 1);
}

#[test]
fn no_call_gets_what_an_earlier_one_has_removed_or_evicted() {
    histories(3, 10);
}
