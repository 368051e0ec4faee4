//! T9: whichever call of user code panics, the table goes on. User code is all that compares,
//! visits and frees links.
//!
//! Each operation runs repeatedly, each time on a fresh table: the first call of user code panics,
//! then the second, and so on until the operation runs to its end. Checked each time: each entry is
//! as before the operation or as after it; iteration, lookups and the count agree; no lock is held;
//! and nothing is leaked.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::ptr::NonNull;
use std::sync::mpsc::channel;
use std::thread;

use relativist_rcu::{Guard, barrier, defer_raw, is_reading, read};
use relativist_table::{Entry, Hash, Link, Resizing, Table};
use relativist_testing::wait_until;

use crate::tally::{Counted, Tally};

/// An operation, and whether it may leak what it has unlinked when it panics, as documented.
type Operation = (&'static str, Effect, fn(&Table));

/// What an operation that panics may have done.
#[derive(Clone, Copy, PartialEq)]
enum Effect {
    /// All or nothing.
    Step,
    /// Some entries are as before, some as after, and some are leaked, as documented.
    Leaks,
}

use Effect::{Leaks, Step};

thread_local! {
    /// The number of calls of this thread that are left until one panics; 0 if none will.
    static FUSE: Cell<u64> = const { Cell::new(0) };
}

/// The payload of the panics that the test causes.
struct Fired;

/// Called by all user code that the table calls.
fn tick() {
    let left = FUSE.get();
    FUSE.set(left.saturating_sub(1));
    if left == 1 {
        // Does not run the panic hook, which would print too much.
        resume_unwind(Box::new(Fired));
    }
}

/// Makes the `n`-th call within `act` panic. Returns whether there was such a call.
fn fires(n: u64, act: impl FnOnce()) -> bool {
    FUSE.set(n);
    let result = catch_unwind(AssertUnwindSafe(act));
    let fired = FUSE.replace(0) == 0;
    match result {
        // The panic may have been in a deferred function, where it goes no further.
        Ok(()) => {}
        Err(payload) if payload.is::<Fired>() => assert!(fired),
        Err(payload) => resume_unwind(payload),
    }
    fired
}

static TALLY: Tally = Tally::new();

/// The tables have keys below this.
const KEYS: u64 = 6;

#[repr(C)]
struct Node {
    link: Link,
    key: u64,
    value: u64,
    _counted: Counted,
}

unsafe fn dispose(link: NonNull<Link>) {
    // SAFETY: all links of these tables are in such nodes, which came from boxes.
    drop(unsafe { Box::from_raw(link.cast::<Node>().as_ptr()) });
    tick();
}

/// Keys that are equal modulo 3 share a hash.
fn hash(n: u64) -> Hash {
    Hash::new(n % 3)
}

fn link(n: u64, value: u64) -> NonNull<Link> {
    let node = Node { link: Link::new(hash(n)), key: n, value, _counted: Counted::new(&TALLY) };
    NonNull::from(Box::leak(Box::new(node))).cast()
}

fn node<'g>(link: NonNull<Link>) -> &'g Node {
    // SAFETY: all links of these tables are in such nodes, and alive for the guard that each caller
    // has.
    unsafe { link.cast().as_ref() }
}

fn is(n: u64) -> impl Fn(NonNull<Link>) -> bool {
    move |link| {
        tick();
        node(link).key == n
    }
}

fn retire(link: NonNull<Link>) {
    // SAFETY: unlinked, so no new reader finds it.
    unsafe { defer_raw(link.cast(), size_of::<Node>(), |link| dispose(link.cast())) };
}

fn table(entries: impl Iterator<Item = (u64, u64)>) -> Table {
    let table = Table::new(4, Resizing::Manual, dispose).unwrap();
    // SAFETY: a fresh link.
    entries.for_each(|(n, value)| unsafe { table.insert(link(n, value), &read()) });
    table
}

fn entry_of(link: NonNull<Link>) -> (u64, u64) {
    (node(link).key, node(link).value)
}

fn find(table: &Table, n: u64, guard: &Guard) -> Option<u64> {
    table.find(hash(n), is(n), guard).map(|link| node(link).value)
}

fn put(table: &Table, n: u64, value: u64) {
    let guard = read();
    match table.entry(hash(n), is(n), &guard) {
        // SAFETY: a fresh link.
        Entry::Vacant(entry) => unsafe { entry.insert(link(n, value)) },
        // SAFETY: as above.
        Entry::Occupied(entry) => retire(unsafe { entry.replace(link(n, value)) }),
    }
}

fn remove(table: &Table, n: u64) {
    let guard = read();
    if let Some(link) = table.remove(hash(n), is(n), &guard) {
        retire(link);
    }
}

const OPERATIONS: &[Operation] = &[
    ("Table::find", Step, |table| _ = find(table, 2, &read())),
    ("Table::prefetch", Step, |table| table.prefetch(&[hash(0)], |_| tick(), &read())),
    ("Table::find_all", Step, |table| table.find_all(hash(0), &read()).for_each(|_| tick())),
    ("Table::iter", Step, |table| table.iter(&read()).for_each(|_| tick())),
    ("Table::iter_from", Step, |table| table.iter_from(1, &read()).for_each(|_| tick())),
    ("Table::scan", Step, |table| _ = table.scan(0, 1, &read(), |_| tick())),
    ("Table::entry, inserts", Step, |table| put(table, 4, 90)),
    ("Table::entry, replaces", Step, |table| put(table, 2, 90)),
    ("Table::entry, dropped", Step, |table| {
        let guard = read();
        let _entries = (table.entry(hash(2), is(2), &guard), tick());
    }),
    // SAFETY: a fresh link.
    ("Table::insert", Step, |table| unsafe { table.insert(link(5, 90), &read()) }),
    ("Table::remove", Step, |table| remove(table, 2)),
    ("Table::clear", Leaks, |table| table.clear(&read(), |link| (retire(link), tick()).1)),
    ("Table::new", Step, |_| drop(table((0..6).map(|n| (n, n))))),
];

/// Keys with values.
type Contents = BTreeMap<u64, u64>;

/// Returns what the table holds. Checks that iteration, lookups and count agree.
fn contents(table: &Table) -> Contents {
    let guard = read();
    let iterated: Vec<(u64, u64)> = table.iter(&guard).map(entry_of).collect();
    let contents: Contents = iterated.iter().copied().collect();
    assert_eq!((contents.len(), table.len()), (iterated.len(), iterated.len()), "{iterated:?}");
    assert_eq!(contents, (0..KEYS).filter_map(|n| Some((n, find(table, n, &guard)?))).collect());
    contents
}

/// Updates all keys, grows and shrinks, and then restores all entries.
fn use_it(table: &Table) {
    let before = contents(table);
    (0..KEYS).for_each(|n| put(table, n, n));
    assert_eq!(contents(table), (0..KEYS).map(|n| (n, n)).collect());
    for buckets in [32, 2] {
        table.resize_to(buckets).unwrap();
        assert_eq!((table.stats().buckets, table.stats().entries), (buckets, table.len()));
    }
    (0..KEYS).for_each(|n| remove(table, n));
    assert_eq!(contents(table), Contents::new());
    before.iter().for_each(|(&n, &value)| put(table, n, value));
    assert_eq!(contents(table), before);
}

/// Runs `act` at rest, or during a resize to this number of buckets: the new array is published,
/// and a reader delays the rest.
fn run(table: &Table, resizing_to: Option<usize>, act: impl FnOnce()) {
    let Some(buckets) = resizing_to else { return act() };
    thread::scope(|scope| {
        let (leave, left) = channel::<()>();
        let (entered, inside) = channel();
        scope.spawn(move || {
            let _guard = read();
            entered.send(()).unwrap();
            // Returns when the sender is dropped.
            let _ = left.recv();
        });
        inside.recv().unwrap();
        scope.spawn(|| table.resize_to(buckets).unwrap());
        wait_until("the new array", || table.buckets() == buckets);
        act();
        contents(table);
        drop(leave);
    });
}

/// Makes each call of user code in the operation panic in turn. Returns the number of panics.
fn explore(&(name, effect, operation): &Operation, resizing_to: Option<usize>) -> u64 {
    let attempt = |n| {
        let before = TALLY.live();
        let table = table((0..4).map(|n| (n, n + 10)));
        let mut fired = false;
        run(&table, resizing_to, || fired = fires(n, || operation(&table)));
        let now = contents(&table);
        // Another thread would wait for a lock that is still held, and this one would panic.
        thread::scope(|scope| scope.spawn(|| use_it(&table)).join().unwrap());
        assert!(!is_reading(), "a read section is still open");
        use_it(&table);
        drop(table);
        barrier();
        TALLY.assert_live(if effect == Leaks { TALLY.live() } else { before });
        (fired, now)
    };
    let before: Contents = (0..4).map(|n| (n, n + 10)).collect();
    let (_, after) = attempt(u64::MAX);
    for n in 1.. {
        let (fired, now) = attempt(n);
        let what = format!("{name}, panic at call {n}, resizing to {resizing_to:?}");
        let is_one_of_both = |key| [&before, &after].iter().any(|contents| contents.get(&key) == now.get(&key));
        assert!((0..KEYS).all(is_one_of_both), "{what}: {before:?} became {now:?} instead of {after:?}");
        assert!(effect != Step || now == before || now == after, "{what}: half done: {now:?}");
        if !fired {
            return n - 1;
        }
    }
    unreachable!("some attempt is the last")
}

#[test]
fn the_table_survives_each_panic() {
    for resizing_to in [None, Some(16), Some(2)] {
        // AddressSanitizer would find leaks that are documented.
        let is_checked = |operation: &&Operation| operation.1 != Leaks || !cfg!(relativist_sanitizer = "address");
        let panics: u64 = OPERATIONS.iter().filter(is_checked).map(|operation| explore(operation, resizing_to)).sum();
        assert!(panics >= 20, "only {panics} calls of user code");
    }
}
