//! Threads that look up, update, iterate and clear at the same time.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;
use std::time::Instant;

use relativist_bucket::{Boxed, Hash, Holds, Inline, Keys, Private, Relocatable, Table};
use relativist_testing::{ROUNDS, assert_meet};

use crate::scene::{Chosen, Entry, PART, Random};

/// B1, B7: keys that stay are found by each lookup, and seen once by each iteration, while other
/// keys come and go, and the table grows and shrinks.
fn residents_are_found<F: Holds<Entry>>(shared: u64, rounds: u64)
where
    Table<Entry, F>: Sync,
{
    const RESIDENTS: u64 = 100;
    let keys = Chosen { shared };
    let table: Table<Entry, F> = Table::new(0).unwrap();
    for key in 0..RESIDENTS {
        table.enter().insert(keys.hash_of(key), Entry::new(key, 0), &keys);
    }
    let done = AtomicBool::new(false);
    thread::scope(|scope| {
        let (table, done) = (&table, &done);
        scope.spawn(move || {
            let mut random = Random(7);
            while !done.load(Relaxed) {
                let section = table.enter();
                for _ in 0..100 {
                    let key = random.below(RESIDENTS);
                    let entry = section.find(keys.hash_of(key), |entry| entry.key == key).expect("a resident");
                    assert_eq!(entry.value, *entry.boxed);
                }
                let mut seen = [0; RESIDENTS as usize];
                for entry in section.iter(&keys).filter(|entry| entry.key < RESIDENTS) {
                    seen[entry.key as usize] += 1;
                }
                assert_eq!(seen, [1; RESIDENTS as usize]);
            }
        });
        let writers: Vec<_> = (0..2u64)
            .map(|writer| {
                scope.spawn(move || {
                    let mut random = Random(writer);
                    for round in 0..rounds {
                        let keys_of_round = (round * 2 + writer + 1) * 100_000..;
                        let keys_of_round = keys_of_round.take(3000 / PART as usize);
                        for key in keys_of_round.clone() {
                            table.enter().insert(keys.hash_of(key), Entry::new(key, round), &keys);
                            let resident = random.below(RESIDENTS);
                            table.enter().insert(keys.hash_of(resident), Entry::new(resident, key), &keys);
                        }
                        for key in keys_of_round {
                            let is_it = |entry: &Entry| entry.key == key;
                            let section = table.enter();
                            let removed = section.remove(keys.hash_of(key), is_it, &keys);
                            assert_eq!(*removed.expect("only this thread removes it").boxed, round);
                        }
                        if round % 4 == 3 {
                            table.shrink_to_fit(&keys).unwrap();
                        }
                    }
                })
            })
            .collect();
        writers.into_iter().for_each(|writer| writer.join().unwrap());
        done.store(true, Relaxed);
    });
    assert_eq!(table.len(), RESIDENTS as usize);
}

#[test]
fn residents() {
    residents_are_found::<Boxed>(1, 12);
    residents_are_found::<Inline>(1, 12);
    residents_are_found::<Private>(1, 6);
    residents_are_found::<Boxed>(8, 6);
    residents_are_found::<Inline>(8, 6);
}

/// B3: increments by several threads are not lost, and each key is in the table once, though
/// others clear it: what was counted before a clear is gone as a whole.
fn increments_are_not_lost<F: Holds<Entry>>() {
    let keys = Chosen { shared: 4 };
    let table: Table<Entry, F> = Table::new(0).unwrap();
    let total = AtomicU64::new(0);
    thread::scope(|scope| {
        for thread in 0..3u64 {
            let (table, total) = (&table, &total);
            scope.spawn(move || {
                let mut random = Random(thread);
                for _ in 0..30_000 / PART {
                    let key = random.below(64);
                    let hash = keys.hash_of(key);
                    let section = table.enter();
                    loop {
                        let found = section.find(hash, |entry| entry.key == key);
                        let value = found.map_or(1, |entry| entry.value + 1);
                        let entry = Entry::new(key, value);
                        let is_done = match found {
                            Some(found) => section.replace(hash, found, entry, &keys).is_ok(),
                            None => section.try_insert(hash, entry, &keys).is_ok(),
                        };
                        if is_done {
                            break;
                        }
                    }
                    total.fetch_add(1, Relaxed);
                }
            });
        }
    });
    let sum: u64 = table.into_entries().map(|entry| entry.value).sum();
    assert_eq!(sum, total.load(Relaxed));
}

#[test]
fn increments() {
    increments_are_not_lost::<Boxed>();
    increments_are_not_lost::<Inline>();
    increments_are_not_lost::<Private>();
}

/// A thread clears the table again and again while others insert, remove and look up their own
/// keys. An entry that a thread inserts is found or was cleared; none is dropped twice or leaked
/// (sanitizers), and at the end the number of entries is right.
fn clearing<F: Holds<Entry>>() {
    let keys = Chosen { shared: 2 };
    let table: Table<Entry, F> = Table::new(0).unwrap();
    thread::scope(|scope| {
        let table = &table;
        let workers: Vec<_> = (0..2u64)
            .map(|thread| {
                scope.spawn(move || {
                    let mut random = Random(thread);
                    for n in 0..60_000 / PART {
                        let key = random.below(2000) * 2 + thread;
                        let hash = keys.hash_of(key);
                        let section = table.enter();
                        if random.below(3) > 0 {
                            section.insert(hash, Entry::new(key, n), &keys);
                        } else if let Some(entry) = section.remove(hash, |entry| entry.key == key, &keys) {
                            assert_eq!(entry.value, *entry.boxed);
                            assert!(section.find(hash, |entry| entry.key == key).is_none());
                        }
                    }
                })
            })
            .collect();
        while !workers.iter().all(|worker| worker.is_finished()) {
            table.clear().unwrap();
            thread::yield_now();
        }
    });
    let entries = table.enter().iter(&keys).count();
    assert_eq!(table.len(), entries);
    table.clear().unwrap();
    assert_eq!((table.len(), table.enter().iter(&keys).count()), (0, 0));
}

#[test]
fn clears() {
    clearing::<Boxed>();
    clearing::<Inline>();
    clearing::<Private>();
}

/// B3: two threads each replace an entry, and then look for what the other one has written. At
/// least one finds it. Nothing between the two is a barrier: the entry needs no drop, and is not
/// counted.
#[test]
#[cfg_attr(miri, ignore = "two processors have to meet, often")]
fn two_threads_that_replace_and_look_find_each_other() {
    #[derive(Clone, Copy)]
    struct Pair(u64, bool);
    // SAFETY: no field changes through a shared reference.
    unsafe impl Relocatable for Pair {}
    struct Plain;
    impl Keys<Pair> for Plain {
        fn hash(&self, pair: &Pair) -> Hash {
            Hash::new(pair.0)
        }
        fn same(&self, one: &Pair, other: &Pair) -> bool {
            one.0 == other.0
        }
    }
    let seconds = std::env::var("RELATIVIST_STRESS_SECONDS").map_or(0.5, |seconds| seconds.parse().unwrap());
    let begin = Instant::now();
    // On a busy machine both threads seldom run at the same time.
    while begin.elapsed().as_secs_f64() < seconds {
        let table: Table<Pair, Inline> = Table::new(8 * ROUNDS as usize).unwrap();
        for key in 0..2 * ROUNDS {
            table.enter().insert(Hash::new(key), Pair(key, false), &Plain);
        }
        assert_meet(|own, other| {
            let section = table.enter();
            section.insert(Hash::new(own), Pair(own, true), &Plain).expect("it is there");
            section.find(Hash::new(other), |pair| pair.0 == other).expect("it is there").1
        });
    }
}

/// B5: `Hash` blocks in a thread that has moved some buckets. Other threads end the growth.
#[test]
fn a_growth_ends_while_hash_blocks() {
    /// Blocks when the hash of this key is computed.
    struct Blocks(u64, Sender<()>, Receiver<()>);
    impl Keys<Entry> for Blocks {
        fn hash(&self, entry: &Entry) -> Hash {
            if entry.key == self.0 {
                self.1.send(()).unwrap();
                self.2.recv().unwrap();
            }
            Hash::new(entry.key)
        }
        fn same(&self, one: &Entry, other: &Entry) -> bool {
            one.key == other.key
        }
    }
    let keys = Chosen { shared: 1 };
    let table: Arc<Table<Entry, Inline>> = Arc::new(Table::new(500).unwrap());
    for key in 0..500 {
        table.enter().insert(keys.hash_of(key), Entry::new(key, 0), &keys);
    }
    // The tenth bucket or so: the keys before it are moved first.
    let blocked = table.enter().iter(&keys).nth(40).unwrap().key;
    let (is_blocked, go_on, has_grown) = (channel(), channel(), channel());
    let blocking = Blocks(blocked, is_blocked.0, go_on.1);
    let [first, second] = [(); 2].map(|()| Arc::clone(&table));
    let first = thread::spawn(move || first.reserve(1000, &blocking).unwrap());
    is_blocked.1.recv().unwrap();
    let second = thread::spawn(move || {
        second.reserve(1000, &keys).unwrap();
        has_grown.0.send(()).unwrap();
    });
    has_grown.1.recv_timeout(relativist_testing::patience()).expect("the growth ends");
    go_on.0.send(()).unwrap();
    first.join().unwrap();
    second.join().unwrap();
}
