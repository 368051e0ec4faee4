//! Torture in the manner of the Linux kernel's `rcutorture`: guarantees R1, R7 and R10 of
//! `relativist_rcu::design` under load.
//!
//! Writers replace an object over and over. A removed object is 1 old, and one older with each
//! grace period from then on. A reader finds an object at the beginning of its section, and looks
//! at the age of that object at the end. 0 and 1 are correct: it was not removed, or it
//! was removed and no grace period has passed. A reader that sees 2 has had a grace period pass
//! over its section. Old objects are poisoned and freed.
//!
//! Runs for `RELATIVIST_TORTURE_SECONDS`, or 3 (the lagging reader for a third of that); run it for
//! hours after changes to the algorithm, and with `--release`.

pub mod lag;
pub mod migrating;

use std::collections::VecDeque;
use std::ptr::NonNull;
use std::sync::Mutex;
use std::sync::atomic::{
    AtomicBool, AtomicPtr, AtomicU64, AtomicUsize,
    Ordering::{AcqRel, Acquire, Relaxed},
};
use std::time::{Duration, Instant};
use std::{env, hint, thread};

use relativist_rcu::{Barrier, GracePeriod, barrier, defer_raw, grace_periods, read, set_barrier, wait_for_readers};

const SOUND: u64 = 0x5eed_5eed_5eed_5eed;
const POISON: u64 = 0xdead_dead_dead_dead;
/// The age at which an object is freed; readers that see more than 1 have failed before.
const FREED_AT: usize = 4;

struct Object {
    age: AtomicUsize,
    content: AtomicU64,
}

struct Torture {
    current: AtomicPtr<Object>,
    stop: AtomicBool,
    allocated: AtomicUsize,
    freed: AtomicUsize,
    /// How many sections ended with their object at this age.
    seen: [AtomicU64; FREED_AT + 2],
    poisoned: AtomicU64,
}

static TORTURE: Torture = Torture {
    current: AtomicPtr::new(std::ptr::null_mut()),
    stop: AtomicBool::new(false),
    allocated: AtomicUsize::new(0),
    freed: AtomicUsize::new(0),
    seen: [const { AtomicU64::new(0) }; FREED_AT + 2],
    poisoned: AtomicU64::new(0),
};

/// The tests of a process take turns: each needs grace periods at its own pace.
static ALONE: Mutex<()> = Mutex::new(());

fn duration() -> Duration {
    let seconds = env::var("RELATIVIST_TORTURE_SECONDS").map_or(3.0, |text| text.parse().expect("a number of seconds"));
    Duration::from_secs_f64(seconds)
}

/// Xorshift (Marsaglia): each thread has its own fixed seed.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    fn one_in(&mut self, chances: u64) -> bool {
        self.next() % chances == 0
    }
}

impl Object {
    fn allocate() -> *mut Self {
        TORTURE.allocated.fetch_add(1, Relaxed);
        Box::into_raw(Box::new(Self { age: AtomicUsize::new(0), content: AtomicU64::new(SOUND) }))
    }

    /// Publishes a new object and returns the old one, at age 1.
    fn replace() -> NonNull<Self> {
        let old = NonNull::new(TORTURE.current.swap(Self::allocate(), AcqRel)).expect("there is always one");
        // SAFETY: only the thread that removed it frees it.
        unsafe { old.as_ref() }.age.store(1, Relaxed);
        old
    }

    /// Called when a grace period has passed. Frees the object when it is old enough, and returns
    /// whether it did.
    ///
    /// # Safety
    ///
    /// `object` was removed, and is the caller's to free.
    unsafe fn grow_older(object: NonNull<Self>) -> bool {
        // SAFETY: not freed before it is old enough.
        let this = unsafe { object.as_ref() };
        if this.age.fetch_add(1, Relaxed) + 1 < FREED_AT {
            return false;
        }
        this.content.store(POISON, Relaxed);
        // SAFETY: it was a box, and this is the only time that it reaches this age.
        drop(unsafe { Box::from_raw(object.as_ptr()) });
        TORTURE.freed.fetch_add(1, Relaxed);
        true
    }

    /// Called as a deferred function. Defers itself again, unless `grow_older` frees the object.
    ///
    /// # Safety
    ///
    /// The same as for `grow_older`.
    unsafe fn grow_older_and_defer(object: NonNull<()>) {
        // SAFETY: guaranteed by the caller; it is freed when it is done growing.
        unsafe {
            if !Self::grow_older(object.cast()) {
                defer_raw(object, size_of::<Self>(), Self::grow_older_and_defer);
            }
        }
    }
}

/// Performs a read section: finds the object, stays for a while, and checks the age of the object.
fn look(random: &mut Random) {
    let guard = read();
    let nested = random.one_in(4).then(read);
    // SAFETY: what the whole test is about: found inside a section, it lives until the end of that.
    let object = unsafe { &*TORTURE.current.load(Acquire) };
    stay(random);
    drop(nested);
    if random.one_in(8) {
        drop((read(), read()));
    }
    let (age, content) = (object.age.load(Relaxed), object.content.load(Relaxed));
    drop(guard);
    TORTURE.seen[age.min(FREED_AT + 1)].fetch_add(1, Relaxed);
    TORTURE.poisoned.fetch_add(u64::from(content != SOUND), Relaxed);
}

/// Stays in the section: usually not at all, sometimes for longer than many grace periods.
fn stay(random: &mut Random) {
    if random.one_in(20_000) {
        thread::sleep(Duration::from_millis(20));
    } else if random.one_in(2_000) {
        thread::sleep(Duration::from_micros(200));
    } else if random.one_in(50) {
        thread::yield_now();
    } else if random.one_in(4) {
        (0..100).for_each(|_| hint::spin_loop());
    }
}

fn keep_reading(seed: u64) {
    let mut random = Random(seed);
    while !TORTURE.stop.load(Relaxed) {
        look(&mut random);
    }
}

/// Readers that come and go.
fn keep_coming(seed: u64) {
    let mut random = Random(seed);
    while !TORTURE.stop.load(Relaxed) {
        let seed = random.next();
        let visitor = thread::spawn(move || {
            let mut random = Random(seed);
            (0..50).for_each(|_| look(&mut random));
        });
        visitor.join().expect("a reader panicked");
    }
}

/// Removes objects, and lets them grow older with each grace period that `pass` waits for.
fn keep_replacing(pass: fn()) {
    let mut pipe = VecDeque::new();
    while !TORTURE.stop.load(Relaxed) || !pipe.is_empty() {
        if !TORTURE.stop.load(Relaxed) {
            pipe.push_back(Object::replace());
        }
        pass();
        // SAFETY: this thread removed what is in its pipe.
        pipe.retain(|&object| !unsafe { Object::grow_older(object) });
    }
}

fn poll_until_passed() {
    let grace = GracePeriod::start();
    while !grace.has_passed() {
        thread::yield_now();
    }
}

fn keep_deferring() {
    while !TORTURE.stop.load(Relaxed) {
        let old = Object::replace().cast();
        // SAFETY: this thread removed it, and leaves it to the deferred function.
        unsafe { defer_raw(old, size_of::<Object>(), Object::grow_older_and_defer) };
    }
}

/// Tortures RCU with this barrier, which a process can have only one of.
pub fn torture(with: Barrier) {
    if let Err(refusal) = set_barrier(with) {
        println!("not run: {refusal}");
        return;
    }
    let _alone = ALONE.lock();
    TORTURE.current.store(Object::allocate(), Relaxed);
    let mut threads: Vec<_> = (1..=3).map(|seed| thread::spawn(move || keep_reading(seed << 32 | 1))).collect();
    threads.push(thread::spawn(|| keep_coming(SOUND)));
    threads.push(thread::spawn(|| keep_replacing(wait_for_readers)));
    threads.push(thread::spawn(|| keep_replacing(poll_until_passed)));
    threads.push(thread::spawn(keep_deferring));

    let start = Instant::now();
    let failed = || TORTURE.seen[2..].iter().chain([&TORTURE.poisoned]).any(|count| count.load(Relaxed) > 0);
    while start.elapsed() < duration() && !failed() {
        thread::sleep(Duration::from_millis(10));
    }
    TORTURE.stop.store(true, Relaxed);
    threads.into_iter().for_each(|thread| thread.join().expect("a thread panicked"));
    report(with);
}

fn report(with: Barrier) {
    // Each barrier covers what was deferred before it, and objects are deferred anew at each age.
    (1..FREED_AT).for_each(|_| barrier());
    let seen: Vec<u64> = TORTURE.seen.iter().map(|count| count.load(Relaxed)).collect();
    let (allocated, freed) = (TORTURE.allocated.load(Relaxed), TORTURE.freed.load(Relaxed));
    println!("{with:?}: {} sections by age of what they saw: {seen:?}", seen.iter().sum::<u64>());
    println!("{} grace periods, {freed} of {allocated} objects freed", grace_periods());
    assert!(seen[2..].iter().all(|&count| count == 0), "a grace period passed over a reader");
    assert_eq!(TORTURE.poisoned.load(Relaxed), 0, "a reader held a freed object");
    assert!(seen[0] > 0 && freed > 0, "nothing happened");
    assert_eq!(freed, allocated - 1, "all but the current object");
}
