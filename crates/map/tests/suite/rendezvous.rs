//! T3 in real time: when an update has returned, every lookup that begins finds it done, whatever its key and thread.

use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::thread;

use relativist::{HashMap, Resizing};

const ROUNDS: u64 = 20_000;

/// Lets both threads through at the same time, as nearly as can be.
fn meet(arrived: &AtomicUsize, round: u64) {
    let both = 2 * (round as usize + 1);
    arrived.fetch_add(1, SeqCst);
    let mut looks = 0;
    while arrived.load(SeqCst) < both {
        looks += 1;
        if looks % 256 == 0 { thread::yield_now() } else { std::hint::spin_loop() }
    }
}

/// Of two threads that insert a key each, and then look for the other's, at least one finds it.
#[test]
fn two_who_insert_and_look_for_each_other_meet() {
    let map = HashMap::<u64, ()>::builder().capacity(2 * ROUNDS as usize).resizing(Resizing::Manual).build().unwrap();
    let arrived = AtomicUsize::new(0);
    let insert_and_look = |mine: u64| -> Vec<bool> {
        let pinned = map.pin();
        let round = |round| {
            meet(&arrived, round);
            pinned.insert(2 * round + mine, ());
            pinned.contains_key(&(2 * round + 1 - mine))
        };
        (0..ROUNDS).map(round).collect()
    };
    let (one, two) = thread::scope(|scope| {
        let one = scope.spawn(|| insert_and_look(0));
        (insert_and_look(1), one.join().unwrap())
    });
    let missed = one.iter().zip(&two).filter(|&(one, two)| !one && !two).count();
    assert_eq!(missed, 0, "rounds in which both missed");
}
