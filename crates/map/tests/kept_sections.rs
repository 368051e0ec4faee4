//! T5: growth does not wait for readers. In a process of its own, because read sections delay
//! deferred functions of the whole process.
#![cfg(not(relativist_loom))]

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use relativist::{HashMap, Resizing, Stats, read};
use relativist_testing::wait_until;

const ENTRIES: u64 = 1 << 17;

/// Tests take turns: the readers of one would delay the cuts of the others.
static TURN: Mutex<()> = Mutex::new(());

fn take_turn() -> MutexGuard<'static, ()> {
    TURN.lock().unwrap_or_else(PoisonError::into_inner)
}

#[track_caller]
fn wait_for_buckets(map: &HashMap<u64, u64>, buckets: u64) {
    wait_until(&format!("{buckets} buckets"), || map.buckets() as u64 >= buckets);
}

/// Returns the average number of links that a successful lookup reads.
fn links_per_hit(stats: &Stats) -> f64 {
    let links: usize = stats.chain_lengths.iter().enumerate().map(|(n, chains)| chains * n * (n + 1) / 2).sum();
    links as f64 / stats.entries as f64
}

/// A thread that stays in a read section until `leave`.
struct Reader {
    leave: Sender<()>,
    thread: JoinHandle<()>,
}

impl Reader {
    fn enter() -> Self {
        let (entered, is_inside) = channel();
        let (leave, may_leave): (_, Receiver<()>) = channel();
        let thread = thread::spawn(move || {
            let _guard = read();
            entered.send(()).unwrap();
            let _ = may_leave.recv();
        });
        is_inside.recv().unwrap();
        Self { leave, thread }
    }

    fn leave(self) {
        drop(self.leave);
        self.thread.join().unwrap();
    }
}

fn assert_holds(map: &HashMap<u64, u64>, keys: std::ops::Range<u64>) {
    let pinned = map.pin();
    assert!(keys.clone().all(|n| pinned.get(&n) == Some(&n)));
    assert_eq!(pinned.get(&keys.end), None);
    assert_eq!(pinned.len() as u64, keys.end - keys.start);
    assert_eq!(pinned.iter().count() as u64, keys.end - keys.start);
}

/// The loop that users of other maps write: one handle for all insertions, in several threads.
#[test]
fn a_map_grows_under_the_handle_that_fills_it() {
    let _turn = take_turn();
    let map = HashMap::new();
    let pinned = map.pin();
    let mut filled = 0;
    for entries in [100, 1_000, 10_000] {
        (filled..entries).for_each(|n| _ = pinned.insert(n, n));
        filled = entries;
        wait_for_buckets(&map, entries / 2);
    }
    let stats = map.stats();
    assert!(stats.grows >= 3 && stats.grace_periods == 0, "chains were cut under a reader: {stats:?}");
    thread::scope(|scope| {
        for half in 0..2 {
            let map = &map;
            scope.spawn(move || {
                let pinned = map.pin();
                (filled..ENTRIES).filter(|n| n % 2 == half).for_each(|n| _ = pinned.insert(n, n));
            });
        }
    });
    wait_until("short chains", || links_per_hit(&map.stats()) <= 4.0);
    assert_holds(&map, 0..ENTRIES);
    wait_for_buckets(&map, ENTRIES / 2);
    assert!(map.is_resizing(), "chains were cut under a reader");
    (0..ENTRIES / 2).for_each(|n| assert_eq!(pinned.remove(&n), Some(&n)));
    assert_holds(&map, ENTRIES / 2..ENTRIES);
    drop(pinned);
    wait_until("chains to be cut, as the readers have left", || !map.is_resizing());
    assert_holds(&map, ENTRIES / 2..ENTRIES);
    map.resize_to(16).unwrap();
    map.resize_to(1 << 16).unwrap();
    assert_holds(&map, ENTRIES / 2..ENTRIES);
}

/// A reader that sleeps in its section delays the growth of no map: neither of one that has grown
/// just before, nor of a new one. A resize by hand publishes its array meanwhile.
#[test]
fn a_reader_that_stays_delays_no_growth() {
    let _turn = take_turn();
    let grown = HashMap::new();
    (0..100).for_each(|n| _ = grown.pin().insert(n, n));
    wait_for_buckets(&grown, 100);
    wait_until("the end of growth", || !grown.is_resizing());
    let by_hand: HashMap<u64, u64> = HashMap::<u64, u64>::builder().resizing(Resizing::Manual).build().unwrap();
    let fresh = HashMap::new();
    let reader = Reader::enter();
    thread::scope(|scope| {
        let resized = scope.spawn(|| by_hand.resize_to(1024));
        for map in [&grown, &fresh] {
            for n in 0..ENTRIES {
                map.pin().insert(n, n);
            }
            wait_for_buckets(map, ENTRIES / 2);
        }
        wait_until("the array of the resize by hand", || by_hand.buckets() == 1024);
        assert!(!resized.is_finished(), "the resize by hand returned before chains were cut");
        reader.leave();
        resized.join().unwrap().unwrap();
    });
    for map in [&grown, &fresh] {
        wait_until("chains to be cut, as the reader has left", || !map.is_resizing());
        assert_holds(map, 0..ENTRIES);
    }
}

/// T1: readers stay for a moment, one after the other. So several growths happen before a cut, and
/// cuts and shrinks happen in the gaps. No lookup misses an entry that is there.
#[test]
fn residents_are_found_while_growths_stack_up() {
    const RESIDENTS: u64 = 64;
    const ROUNDS: u64 = 6;
    let _turn = take_turn();
    let map: HashMap<u64, u64> = HashMap::new();
    (0..RESIDENTS).for_each(|n| _ = map.pin().insert(n, n));
    let done = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            while !done.load(Relaxed) {
                let _guard = read();
                thread::sleep(Duration::from_millis(3));
            }
        });
        scope.spawn(|| {
            while !done.load(Relaxed) {
                let pinned = map.pin();
                (0..RESIDENTS).for_each(|n| assert_eq!(pinned.get(&n), Some(&n), "a resident was missed"));
            }
        });
        let updaters: Vec<_> = (0..2)
            .map(|updater| {
                let map = &map;
                scope.spawn(move || {
                    for round in 0..ROUNDS {
                        let keys = (RESIDENTS..RESIDENTS + (1 << 14)).filter(|n| n % 2 == updater);
                        let pinned = map.pin();
                        keys.clone().for_each(|n| assert_eq!(pinned.insert(n, round), None));
                        keys.for_each(|n| assert_eq!(pinned.remove(&n), Some(&round)));
                    }
                })
            })
            .collect();
        let outcomes: Vec<_> = updaters.into_iter().map(thread::ScopedJoinHandle::join).collect();
        done.store(true, Relaxed);
        outcomes.into_iter().for_each(|outcome| outcome.unwrap());
    });
    assert_holds(&map, 0..RESIDENTS);
}

/// Dropping a map whose chains are uncut drops all entries and frees all arrays.
#[test]
fn an_uncut_map_is_dropped_whole() {
    let _turn = take_turn();
    let token = Arc::new(());
    let reader = Reader::enter();
    let map = HashMap::new();
    for n in 0..10_000 {
        map.pin().insert(n, token.clone());
    }
    wait_until("a resize", || map.is_resizing());
    drop(map);
    wait_until("all entries to be dropped", || Arc::strong_count(&token) == 1);
    reader.leave();
}
