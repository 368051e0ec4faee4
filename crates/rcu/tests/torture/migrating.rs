//! Torture of a private domain (D1, D3): guards that go from thread to thread.
//!
//! As in the other torture test, a removed object is 1 old, and one older with each grace period
//! from then on. A thread enters a section, finds an object, and leaves both, guard and object, in
//! a bag. Another thread takes them out some time later, and looks at the age of the object before
//! it drops the guard. So slots are freed by other threads than those that take them.

use std::collections::VecDeque;
use std::ptr::NonNull;
use std::sync::Mutex;
use std::sync::atomic::{
    AtomicBool, AtomicPtr, AtomicU64, AtomicUsize,
    Ordering::{AcqRel, Acquire, Relaxed},
};
use std::thread;
use std::time::{Duration, Instant};

use relativist_rcu::{Barrier, Domain, DomainGuard, set_barrier};

use super::{ALONE, FREED_AT, Random, duration};

/// The number of guards in the bag from which threads take out more than they put in.
const BAG: usize = 100;

struct Torture {
    domain: Domain,
    current: AtomicPtr<AtomicUsize>,
    stop: AtomicBool,
    /// The number of sections that ended with their object at this age.
    seen: [AtomicU64; FREED_AT + 1],
}

/// A section, and an object that was found in it.
struct Section<'d> {
    guard: DomainGuard<'d>,
    found: &'d AtomicUsize,
}

type Bag<'d> = Mutex<VecDeque<Section<'d>>>;

impl Torture {
    fn new_object() -> *mut AtomicUsize {
        Box::into_raw(Box::new(AtomicUsize::new(0)))
    }

    fn enter(&self) -> Section<'_> {
        let guard = self.domain.read();
        // SAFETY: what the test is about: it lives as long as the guard.
        Section { guard, found: unsafe { &*self.current.load(Acquire) } }
    }

    fn leave(&self, section: Section<'_>) {
        self.seen[section.found.load(Relaxed).min(FREED_AT)].fetch_add(1, Relaxed);
        drop(section.guard);
    }

    fn keep_reading<'d>(&'d self, bag: &Bag<'d>, seed: u64) {
        let mut random = Random(seed);
        while !self.stop.load(Relaxed) {
            let section = self.enter();
            if random.one_in(3) {
                self.leave(self.enter());
            }
            let taken = {
                let mut bag = bag.lock().unwrap();
                if random.one_in(2) {
                    bag.push_back(section)
                } else {
                    bag.push_front(section)
                }
                let count = if bag.len() < BAG { random.next() % 3 } else { 5 };
                let taken: Vec<_> = (0..count).filter_map(|_| bag.pop_front()).collect();
                // Now and then, all the old ones.
                if random.one_in(50) { bag.drain(..).chain(taken).collect() } else { taken }
            };
            taken.into_iter().for_each(|section| self.leave(section));
        }
    }

    /// Replaces the object, and returns the old one, at age 1.
    fn replace(&self) -> NonNull<AtomicUsize> {
        let old = NonNull::new(self.current.swap(Self::new_object(), AcqRel)).expect("never null");
        // SAFETY: only the thread that removed it frees it.
        unsafe { old.as_ref() }.store(1, Relaxed);
        old
    }

    /// Makes an object older. Frees it when it is old enough, and returns whether it did.
    ///
    /// # Safety
    ///
    /// The object was removed, and is the caller's to free.
    unsafe fn grow_older(object: NonNull<AtomicUsize>) -> bool {
        // SAFETY: not freed before it is old enough.
        let is_old = unsafe { object.as_ref() }.fetch_add(1, Relaxed) + 1 == FREED_AT;
        if is_old {
            // SAFETY: it was a box, and this is the only time that it reaches this age.
            drop(unsafe { Box::from_raw(object.as_ptr()) });
        }
        is_old
    }

    fn keep_replacing(&self) {
        let mut pipe = VecDeque::new();
        while !self.stop.load(Relaxed) || !pipe.is_empty() {
            if !self.stop.load(Relaxed) {
                pipe.push_back(self.replace());
            }
            self.domain.wait_for_readers();
            // SAFETY: this thread removed what is in its pipe.
            pipe.retain(|&object| !unsafe { Self::grow_older(object) });
        }
    }

    /// Lets the domain free old objects. The deferred function makes them two old, which no reader
    /// may see.
    fn keep_deferring(&self) {
        let free = |object: NonNull<()>| {
            let object = object.cast::<AtomicUsize>();
            // SAFETY: the thread that removed the object has left it to this function.
            while !unsafe { Self::grow_older(object) } {}
        };
        while !self.stop.load(Relaxed) {
            let old = self.replace();
            // SAFETY: removed above.
            unsafe { self.domain.defer_raw(old.cast(), size_of::<AtomicUsize>(), free) };
            if self.domain.pending() > 20_000 {
                self.domain.reclaim();
                thread::yield_now();
            }
        }
    }
}

/// Tortures a private domain with this barrier, which a process can have only one of.
pub fn migrate(with: Barrier) {
    if let Err(refusal) = set_barrier(with) {
        println!("not run: {refusal}");
        return;
    }
    let _alone = ALONE.lock();
    let torture = Torture {
        domain: Domain::new(),
        current: AtomicPtr::new(Torture::new_object()),
        stop: AtomicBool::new(false),
        seen: Default::default(),
    };
    let bag = Bag::default();
    let failed = || torture.seen[2..].iter().any(|count| count.load(Relaxed) > 0);
    thread::scope(|scope| {
        let (torture, bag) = (&torture, &bag);
        let readers: Vec<_> =
            (1..=3).map(|seed| scope.spawn(move || torture.keep_reading(bag, seed << 32 | 1))).collect();
        let writers = [scope.spawn(|| torture.keep_replacing()), scope.spawn(|| torture.keep_deferring())];
        let start = Instant::now();
        while start.elapsed() < duration() / 2 && !failed() {
            thread::sleep(Duration::from_millis(10));
        }
        torture.stop.store(true, Relaxed);
        readers.into_iter().for_each(|reader| reader.join().expect("a reader panicked"));
        // Otherwise the writers would wait for these for ever.
        bag.lock().unwrap().drain(..).for_each(|section| torture.leave(section));
        writers.into_iter().for_each(|writer| writer.join().expect("a writer panicked"));
    });
    // SAFETY: it is a box, and no reader is left.
    drop(unsafe { Box::from_raw(torture.current.load(Relaxed)) });
    let seen: Vec<u64> = torture.seen.iter().map(|count| count.load(Relaxed)).collect();
    let periods = torture.domain.grace_periods();
    println!("{with:?}: sections by age of what they saw: {seen:?}, {periods} grace periods");
    assert!(!failed(), "a grace period passed over a guard");
    assert!(seen[0] > 0 && seen[1] > 0 && periods > 2, "nothing happened");
}
