//! Two threads that do something at the same time, again and again.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::SeqCst};
use std::thread;
use std::time::{Duration, Instant};

use crate::patience;

/// The number of rounds of [`assert_meet`], unless they take long.
pub const ROUNDS: u64 = 20_000;

/// There are fewer rounds if they take longer than this: if both threads share a busy core, each
/// round takes several time slices.
const TIME: Duration = Duration::from_secs(10);

/// Releases both threads as simultaneously as possible. They spin for long before they yield, so
/// that they sometimes run at the same time even on a busy machine.
fn meet(arrived: &AtomicUsize, round: u64) {
    let (both, begin) = (2 * (round as usize + 1), Instant::now());
    arrived.fetch_add(1, SeqCst);
    let mut looks = 0;
    while arrived.load(SeqCst) < both {
        looks += 1;
        if looks % 20_000 > 0 {
            std::hint::spin_loop();
            continue;
        }
        assert!(begin.elapsed() < patience(), "the other thread does not arrive");
        thread::yield_now();
    }
}

/// Keeps the calling thread on the first or second processor of the process, if it has two: two
/// threads that share one see each other's stores at once.
#[cfg(target_os = "linux")]
fn stay_on_processor(nth: u64) {
    // SAFETY: both sets are ours and of the size that is passed; zeros are an empty set.
    unsafe {
        let size = size_of::<libc::cpu_set_t>();
        let (mut all, mut one): (libc::cpu_set_t, libc::cpu_set_t) = std::mem::zeroed();
        libc::sched_getaffinity(0, size, &mut all);
        let mut processors = (0..libc::CPU_SETSIZE as usize).filter(|&cpu| libc::CPU_ISSET(cpu, &all));
        if let Some(cpu) = processors.nth(nth as usize) {
            libc::CPU_SET(cpu, &mut one);
            libc::sched_setaffinity(0, size, &one);
        }
    }
}

#[cfg(not(target_os = "linux"))]
fn stay_on_processor(_: u64) {}

/// Lets two threads insert a key each and then look for the other's, round by round. At least one
/// must find it. `insert_and_look` gets the thread's own key and that of the other one, below twice
/// [`ROUNDS`].
///
/// # Panics
///
/// Panics if there is a round in which both have missed.
pub fn assert_meet(insert_and_look: impl Fn(u64, u64) -> bool + Sync) {
    let (arrived, end, begin) = (AtomicUsize::new(0), AtomicU64::new(ROUNDS), Instant::now());
    let run = |mine: u64| -> Vec<bool> {
        stay_on_processor(mine);
        let round = |round| {
            // One thread ends the test for both, before they meet in the first round that is left
            // out.
            if mine == 0 && begin.elapsed() > TIME {
                end.store(round, SeqCst);
            }
            meet(&arrived, round);
            if round >= end.load(SeqCst) {
                return None;
            }
            Some(insert_and_look(2 * round + mine, 2 * round + 1 - mine))
        };
        (0..ROUNDS).map_while(round).collect()
    };
    let (one, two) = thread::scope(|scope| {
        let (one, two) = (scope.spawn(|| run(0)), scope.spawn(|| run(1)));
        (one.join().unwrap(), two.join().unwrap())
    });
    assert_eq!(one.len(), two.len());
    let missed = one.iter().zip(&two).filter(|&(one, two)| !one && !two).count();
    assert_eq!(missed, 0, "rounds in which both missed");
}
