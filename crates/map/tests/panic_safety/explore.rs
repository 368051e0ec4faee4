//! Makes each call of user code in an operation panic in turn, and checks what is left.

use std::collections::BTreeMap;
use std::env;
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};

use relativist::read;
use relativist_testing::patience;

use super::operations::{Effect, MAP, Map, Operation, SET, Set, key, new};
use crate::parts::{Bench, KEYS, Name, Part, Ticking};

/// Keys from here on are in maps that grow.
const OTHERS: u64 = 1000;

/// What the suite needs of maps and sets.
pub trait Subject: Send + Sync + Sized + 'static {
    /// Holds the keys 0 to 3.
    fn new() -> Self;
    fn iterated(&self) -> Vec<(u64, u64)>;
    fn found(&self, key: u64) -> Option<u64>;
    fn len(&self) -> usize;
    fn room(&self) -> usize;
    fn put(&self, key: u64, value: u64);
    fn remove(&self, key: u64);
    fn grow_and_shrink(&self);
}

impl Subject for Map {
    fn new() -> Self {
        let map = Self::with_hasher(Ticking::default());
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

    fn room(&self) -> usize {
        self.capacity()
    }

    fn put(&self, key: u64, value: u64) {
        self.pin().insert(Part::new(key), Part::new(value));
    }

    fn remove(&self, key: u64) {
        self.pin().remove(&Name(key));
    }

    fn grow_and_shrink(&self) {
        self.reserve(1000);
        // Waits several times for readers if it is large.
        if self.len() < 100 {
            self.shrink_to_fit().unwrap();
        }
    }
}

/// Elements are their own values.
impl Subject for Set {
    fn new() -> Self {
        let set = Self::with_hasher(Ticking::default());
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

    fn room(&self) -> usize {
        self.as_map().capacity()
    }

    fn put(&self, key: u64, _: u64) {
        self.pin().replace(Part::new(key));
    }

    fn remove(&self, key: u64) {
        self.pin().remove(&Name(key));
    }

    fn grow_and_shrink(&self) {
        self.as_map().reserve(1000);
        if self.len() < 100 {
            self.as_map().shrink_to_fit().unwrap();
        }
    }
}

/// Keys with values, without the other keys.
type Contents = BTreeMap<u64, u64>;

/// Returns what the subject holds. Checks that iteration, lookups and count agree.
fn contents(subject: &impl Subject) -> Contents {
    let iterated = subject.iterated();
    let all: Contents = iterated.iter().copied().collect();
    assert_eq!((all.len(), subject.len()), (iterated.len(), iterated.len()), "{iterated:?}");
    let contents: Contents = all.into_iter().filter(|&(key, _)| key < OTHERS).collect();
    let found = (0..KEYS).filter_map(|n| Some((n, subject.found(n)?)));
    assert_eq!(contents, found.collect());
    contents
}

/// Updates all keys, grows and shrinks, and then restores all entries. The caller is not in a
/// section.
fn use_it(subject: &impl Subject) {
    let before = contents(subject);
    (0..KEYS).for_each(|n| subject.put(n, n));
    assert_eq!(contents(subject), (0..KEYS).map(|n| (n, n)).collect());
    subject.grow_and_shrink();
    (0..KEYS).for_each(|n| subject.remove(n));
    assert_eq!(contents(subject), Contents::new());
    before.iter().for_each(|(&n, &value)| subject.put(n, value));
    assert_eq!(contents(subject), before);
}

/// Uses the subject on another thread, so that the test fails instead of hanging if a lock is still
/// held.
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
}

/// What goes on while operations run.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Setting {
    AtRest,
    /// Some buckets have moved to a larger array. A reader stays, because of whom no slot of a flat
    /// map is used again.
    Growing,
}

impl Setting {
    fn prepare<S: Subject>(self) -> (Arc<S>, Option<Reader>) {
        let subject = S::new();
        if self == Self::AtRest {
            return (Arc::new(subject), None);
        }
        let reader = Reader::enter();
        let put = |n: u64| {
            subject.put(n, n);
            n
        };
        // Large enough that one thread does not move all buckets at once. Growth begins somewhat
        // later than there is room for.
        let n = (OTHERS..).map(put).find(|_| subject.len() > 400 && subject.len() > subject.room()).expect("no end");
        (n + 1..n + 16).for_each(|n| _ = put(n));
        (Arc::new(subject), Some(reader))
    }
}

/// A thread in a read section, until this is dropped.
struct Reader(Option<(Sender<()>, JoinHandle<()>)>);

impl Reader {
    fn enter() -> Self {
        let ((leave, left), (entered, inside)) = (channel::<()>(), channel());
        let thread = thread::spawn(move || {
            let _guard = read();
            entered.send(()).unwrap();
            // Returns when the sender is dropped.
            _ = left.recv();
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

/// Makes calls of user code in an operation panic in turn: each call at rest, and during a growth
/// each that comes later than the last by one part in `RELATIVIST_PANIC_SHARE`. Returns the number
/// of panics.
fn explore<S: Subject>(&(name, effect, operation): &Operation<S>, setting: Setting) -> u64 {
    let bench = Bench::current();
    let attempt = |n| {
        let before = bench.tally.live();
        let (subject, reader) = setting.prepare::<S>();
        let fired = bench.fires(n, || operation(&subject));
        let now = contents(&*subject);
        drop(reader);
        assert_usable(&subject);
        drop(subject);
        relativist_rcu::barrier();
        bench.tally.assert_live(before);
        (fired, now)
    };
    let share = env::var("RELATIVIST_PANIC_SHARE").map_or(2, |text| text.parse().expect("a number"));
    let before = contents(&S::new());
    let (_, after) = attempt(u64::MAX);
    let (mut n, mut panics) = (1, 0);
    loop {
        let _running = Running(name, n, setting);
        let (fired, now) = attempt(n);
        let is_one_of_both = |key| [&before, &after].iter().any(|contents| contents.get(&key) == now.get(&key));
        assert!((0..KEYS).all(is_one_of_both), "{before:?} became {now:?} instead of {after:?}");
        assert!(effect != Effect::Step || now == before || now == after, "half done: {now:?}");
        if !fired {
            return panics;
        }
        panics += 1;
        // During a growth, an operation that helps has many calls that are alike.
        n += if setting == Setting::AtRest { 1 } else { 1 + n / share };
    }
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
    let alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    Bench::set_up();
    alone
}

pub fn test<S: Subject>(operations: &[Operation<S>]) {
    let _alone = alone();
    for setting in [Setting::AtRest, Setting::Growing] {
        // The reader would not leave.
        let ends = |(name, ..): &&Operation<S>| setting == Setting::AtRest || !name.ends_with("with the destructors");
        let panics: u64 = operations.iter().filter(ends).map(|operation| explore(operation, setting)).sum();
        println!("{panics} panics, {setting:?}");
    }
}

#[test]
fn maps_survive_each_panic() {
    test(MAP);
}

#[test]
fn sets_survive_each_panic() {
    test(SET);
}

/// Makes a map larger, by hand or by insertions, while the `n`-th call of user code panics. Returns
/// whether there was such a call.
fn grow_with_panic(n: u64, grow: fn(&Map)) -> bool {
    const ENTRIES: u64 = 40;
    let bench = Bench::current();
    let live = bench.tally.live();
    let map = Map::with_hasher(Ticking::default());
    (0..ENTRIES).for_each(|n| _ = map.pin().insert(key(n), new()));
    let fired = bench.fires(n, || grow(&map));
    let mut keys: Vec<u64> = map.pin().keys().map(Part::n).collect();
    keys.sort_unstable();
    assert!(keys.len() == map.len() && keys.iter().zip(0..).all(|(&key, n)| key == n), "{keys:?}");
    assert!(keys.len() as u64 >= ENTRIES && keys.iter().all(|&n| map.pin().contains_key(&Name(n))));
    map.reserve(2000);
    assert!(map.capacity() >= 2000, "the growth goes on");
    if n % 2 == 0 {
        map.pin().clear();
        assert_eq!((map.len(), map.pin().iter().count()), (0, 0));
    }
    drop(map);
    bench.tally.assert_live(live);
    fired
}

/// A panic of `Hash` while entries move goes no further, and no entry is lost.
#[test]
fn growth_survives_each_panic() {
    let _alone = alone();
    let growths: [fn(&Map); 2] =
        [|map| map.reserve(500), |map| (40..200).for_each(|n| _ = map.pin().insert(key(n), new()))];
    for grow in growths {
        assert!((1..).step_by(3).take_while(|&n| grow_with_panic(n, grow)).count() < 5000);
    }
}
