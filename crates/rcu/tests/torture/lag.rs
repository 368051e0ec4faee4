//! The race that the asymmetric barrier prevents (R1): a reader whose store on entry comes late.
//!
//! Before each section the reader writes to more cache lines than its processor can buffer, so that
//! its store buffer is full when it enters. It may then find an object long before other threads
//! see that it is inside. A writer that does not make that processor catch up misses the reader,
//! and the object ages while the reader uses it. Without the barrier this happens about a thousand
//! times a second, in a build with optimization; without optimization the stores come too slowly.

use std::ptr::{from_ref, null_mut, write_volatile};
use std::sync::atomic::{
    AtomicBool, AtomicPtr, AtomicUsize,
    Ordering::{AcqRel, Acquire, Relaxed},
};
use std::time::{Duration, Instant};
use std::{hint, thread};

use relativist_rcu::{Barrier, read, set_barrier, wait_for_readers};

use super::{ALONE, Random, duration};

/// A cache line that no thread reads.
type Line = [u64; 8];

/// 64 MiB.
const LINES: usize = 1 << 20;
/// More stores than the store buffers of most current processors hold.
const STORES: usize = 80;
/// Objects are reused after this number of grace periods, rather than freed: so the reader may look
/// at them even if the test fails.
const OBJECTS: usize = 4096;

/// The object that readers find, which is only its age. (See the other torture test.)
static CURRENT: AtomicPtr<AtomicUsize> = AtomicPtr::new(null_mut());
static OBJECT_AGES: [AtomicUsize; OBJECTS] = [const { AtomicUsize::new(0) }; OBJECTS];
static STOP: AtomicBool = AtomicBool::new(false);

/// Performs a lagging section, and returns the age that the object had in the end.
fn look(lines: &mut [Line], random: &mut Random) -> usize {
    for _ in 0..STORES {
        let line = &mut lines[random.next() as usize % LINES];
        // SAFETY: `line` is a reference. Volatile, so that the compiler does not leave out a store
        // that no thread reads.
        unsafe { write_volatile(&mut line[0], 1) };
    }
    let _guard = read();
    // SAFETY: one of `OBJECT_AGES`.
    let age = unsafe { &*CURRENT.load(Acquire) };
    (0..20).for_each(|_| hint::spin_loop());
    age.load(Relaxed)
}

fn keep_lagging() -> [u64; 3] {
    let (mut lines, mut random, mut seen) = (vec![[0; 8]; LINES], Random(1), [0; 3]);
    while !STOP.load(Relaxed) && seen[2] == 0 {
        seen[look(&mut lines, &mut random)] += 1;
    }
    seen
}

fn keep_replacing() {
    for (number, age) in OBJECT_AGES.iter().cycle().enumerate() {
        if STOP.load(Relaxed) {
            return;
        }
        age.store(0, Relaxed);
        let old = CURRENT.swap(from_ref(age).cast_mut(), AcqRel);
        // SAFETY: one of `OBJECT_AGES`.
        let old = unsafe { &*old };
        old.store(1, Relaxed);
        wait_for_readers();
        old.store(2, Relaxed);
        // Delays the next round by a different time each, so that it meets the reader at different
        // points of its loop.
        (0..number % 300).for_each(|_| hint::spin_loop());
    }
}

/// Runs one lagging reader against one writer.
pub fn overtake(with: Barrier) {
    let _alone = ALONE.lock();
    if let Err(refusal) = set_barrier(with) {
        println!("not run: {refusal}");
        return;
    }
    CURRENT.store(from_ref(&OBJECT_AGES[OBJECTS - 1]).cast_mut(), Relaxed);
    let reader = thread::spawn(keep_lagging);
    let writer = thread::spawn(keep_replacing);
    let start = Instant::now();
    while start.elapsed() < duration() / 3 && !reader.is_finished() {
        thread::sleep(Duration::from_millis(10));
    }
    STOP.store(true, Relaxed);
    writer.join().expect("the writer panicked");
    let seen = reader.join().expect("the reader panicked");
    println!("{with:?}: lagging sections by age of what they saw: {seen:?}");
    assert_eq!(seen[2], 0, "a grace period passed over a reader");
}
