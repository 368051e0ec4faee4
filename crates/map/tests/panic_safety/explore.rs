//! Makes each call of user code in an operation panic in turn, and checks what is left.

use std::collections::BTreeMap;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};

use relativist::{AllocError, Stats, read};
use relativist_testing::{patience, wait_until};

use crate::operations::{Map, Operation, Set, builder};
use crate::parts::{Bench, KEYS, Name, Part};
use crate::tested::{RESIZED_TO, build, build_set};

/// What an operation that panics may have done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Effect {
    /// All or nothing.
    Step,
    /// Some entries are as before, some as after.
    Entries,
    /// The same, and some are leaked, as documented.
    Leaks,
}

/// Keys with values.
type Contents = BTreeMap<u64, u64>;

/// What the suite needs of maps, sets and tables.
pub trait Subject: Send + Sync + Sized + 'static {
    /// Holds the keys 0 to 3.
    fn new() -> Self;
    fn iterated(&self) -> Vec<(u64, u64)>;
    fn found(&self, key: u64) -> Option<u64>;
    fn len(&self) -> usize;
    fn put(&self, key: u64, value: u64);
    fn remove(&self, key: u64);
    fn resize_to(&self, buckets: usize) -> Result<(), AllocError>;
    fn stats(&self) -> Stats;
}

impl Subject for Map {
    fn new() -> Self {
        let map: Self = build(builder());
        (0..4).for_each(|n| map.put(n, n + 10));
        map
    }

    fn iterated(&self) -> Vec<(u64, u64)> {
        self.pin().iter().map(|(key, value)| (key.n(), value.n())).collect()
    }

    fn found(&self, key: u64) -> Option<u64> {
        self.pin().get(&Name(key)).map(Part::n)
    }

    fn len(&self) -> usize {
        Self::len(self)
    }

    fn put(&self, key: u64, value: u64) {
        self.pin().insert(Part::new(key), Part::new(value));
    }

    fn remove(&self, key: u64) {
        self.pin().remove(&Name(key));
    }

    fn resize_to(&self, buckets: usize) -> Result<(), AllocError> {
        Self::resize_to(self, buckets)
    }

    fn stats(&self) -> Stats {
        Self::stats(self)
    }
}

/// Elements are their own values.
impl Subject for Set {
    fn new() -> Self {
        let set: Self = build_set(builder());
        (0..4).for_each(|n| set.put(n, n));
        set
    }

    fn iterated(&self) -> Vec<(u64, u64)> {
        self.pin().iter().map(|element| (element.n(), element.n())).collect()
    }

    fn found(&self, key: u64) -> Option<u64> {
        self.pin().get(&Name(key)).map(Part::n)
    }

    fn len(&self) -> usize {
        Self::len(self)
    }

    fn put(&self, key: u64, _: u64) {
        self.pin().replace(Part::new(key));
    }

    fn remove(&self, key: u64) {
        self.pin().remove(&Name(key));
    }

    fn resize_to(&self, buckets: usize) -> Result<(), AllocError> {
        self.as_map().resize_to(buckets)
    }

    fn stats(&self) -> Stats {
        self.as_map().stats()
    }
}

/// Returns what the subject holds. Checks that iteration, lookups and count agree.
fn contents(subject: &impl Subject) -> Contents {
    let iterated = subject.iterated();
    let contents: Contents = iterated.iter().copied().collect();
    assert_eq!((contents.len(), subject.len()), (iterated.len(), iterated.len()), "{iterated:?}");
    let found = (0..KEYS).filter_map(|n| Some((n, subject.found(n)?)));
    assert_eq!(contents, found.collect());
    contents
}

/// Updates all keys, grows and shrinks, and then restores all entries.
fn use_it(subject: &impl Subject) {
    let before = contents(subject);
    (0..KEYS).for_each(|n| subject.put(n, n));
    assert_eq!(contents(subject), (0..KEYS).map(|n| (n, n)).collect());
    for buckets in [32, 2] {
        subject.resize_to(buckets).unwrap();
        assert_eq!(subject.stats().buckets, buckets);
        assert_eq!(subject.stats().entries, subject.len());
    }
    (0..KEYS).for_each(|n| subject.remove(n));
    assert_eq!(contents(subject), Contents::new());
    before.iter().for_each(|(&n, &value)| subject.put(n, value));
    assert_eq!(contents(subject), before);
}

/// Uses the subject on another thread, so that the test fails instead of hanging if a lock is still
/// held. Then on this thread, which would panic if it counted as holding a lock.
fn assert_usable<S: Subject>(subject: &Arc<S>) {
    let (done, ended) = channel();
    let (bench, shared) = (Bench::current(), Arc::clone(subject));
    let thread = thread::spawn(move || {
        bench.enter();
        use_it(&*shared);
        drop(shared);
        done.send(()).unwrap();
    });
    ended.recv_timeout(patience()).expect("the map cannot be used: a lock may still be held");
    thread.join().unwrap();
    assert!(!relativist_rcu::is_reading(), "a read section is still open");
    use_it(&**subject);
}

/// Whether a resize is in progress, and to what size.
#[derive(Debug, Clone, Copy)]
enum Setting {
    AtRest,
    ResizingTo(usize),
}

impl Setting {
    /// Runs `act` at rest, or during a resize: the new array is published, and a reader delays the
    /// rest.
    fn run<S: Subject>(self, subject: &Arc<S>, act: impl FnOnce()) {
        let Self::ResizingTo(buckets) = self else { return act() };
        let reader = Reader::enter();
        let resized = Arc::clone(subject);
        let resizer = thread::spawn(move || resized.resize_to(buckets).unwrap());
        wait_until("the new array", || subject.stats().buckets == buckets);
        act();
        contents(&**subject);
        drop(reader);
        resizer.join().unwrap();
    }
}

/// A thread in a read section, until this is dropped.
struct Reader(Option<(Sender<()>, JoinHandle<()>)>);

impl Reader {
    fn enter() -> Self {
        let (leave, left): (_, Receiver<()>) = channel();
        let (entered, inside) = channel();
        let thread = thread::spawn(move || {
            let _guard = read();
            entered.send(()).unwrap();
            // Returns when the sender is dropped.
            let _ = left.recv();
        });
        inside.recv().unwrap();
        Self(Some((leave, thread)))
    }
}

impl Drop for Reader {
    fn drop(&mut self) {
        let (leave, thread) = self.0.take().expect("dropped once");
        drop(leave);
        thread.join().unwrap();
    }
}

/// Makes each call of user code panic in turn, in each operation. Returns the number of panics.
fn explore<S: Subject>(operations: &[&[Operation<S>]], setting: Setting) -> u64 {
    operations.iter().copied().flatten().map(|operation| explore_one(operation, setting)).sum()
}

fn explore_one<S: Subject>(&(name, effect, operation): &Operation<S>, setting: Setting) -> u64 {
    let bench = Bench::current();
    let attempt = |n| {
        let before = bench.tally.live();
        let subject = Arc::new(S::new());
        let mut fired = false;
        setting.run(&subject, || fired = bench.fires(n, || operation(&subject)));
        let now = contents(&*subject);
        assert_usable(&subject);
        drop(subject);
        relativist_rcu::barrier();
        bench.tally.assert_live(if effect == Effect::Leaks { bench.tally.live() } else { before });
        (fired, now)
    };
    let before = contents(&S::new());
    let (_, after) = attempt(u64::MAX);
    for n in 1.. {
        let _running = Running(name, n, setting);
        let (fired, now) = attempt(n);
        let is_one_of_both = |key| [&before, &after].iter().any(|contents| contents.get(&key) == now.get(&key));
        assert!((0..KEYS).all(is_one_of_both), "{before:?} became {now:?} instead of {after:?}");
        assert!(effect != Effect::Step || now == before || now == after, "half done: {now:?}");
        if !fired {
            return n - 1;
        }
    }
    unreachable!("some attempt is the last")
}

/// Prints what failed.
struct Running(&'static str, u64, Setting);

impl Drop for Running {
    fn drop(&mut self) {
        if thread::panicking() {
            eprintln!("{}, panic at call {}, {:?}", self.0, self.1, self.2);
        }
    }
}

/// Only one test runs at a time: the readers of one would delay the others.
fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Runs all operations of a subject, at rest and during resizes; those in `waiting` only at rest.
pub fn test<S: Subject>(operations: &[&[Operation<S>]], waiting: &[&[Operation<S>]]) {
    let _alone = alone();
    Bench::set_up();
    let panics = explore(operations, Setting::AtRest) + explore(waiting, Setting::AtRest);
    println!("{panics} panics at rest");
    for &buckets in RESIZED_TO {
        let panics = explore(operations, Setting::ResizingTo(buckets));
        println!("{panics} panics during a resize to {buckets} buckets");
    }
}
