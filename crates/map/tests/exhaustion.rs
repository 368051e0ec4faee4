//! The map without memory, from the n-th allocation on, for every n. In a program of its own,
//! because it needs an allocator that can fail.
//!
//! Operations that report exhaustion must leave the map as it was. All others behave as those of
//! std's collections: they succeed, panic or abort, as their documentation says. A child process
//! runs them.
#![cfg(not(relativist_loom))]

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::ptr::null_mut;
use std::thread;

use relativist::{Boxed, Inline, Map, Private, Stores};
use relativist_rcu::defer;
use relativist_testing as _;

thread_local! {
    /// How many allocations the thread has left.
    static LEFT: Cell<u64> = const { Cell::new(u64::MAX) };
    /// Larger ones are refused.
    static MAX_SIZE: Cell<usize> = const { Cell::new(usize::MAX) };
    /// Whether an allocation was refused.
    static FAILED: Cell<bool> = const { Cell::new(false) };
}

/// The system's allocator, which refuses memory to a thread that has used up its allocations
/// ([`LEFT`]), or that asks for too much at once ([`MAX_SIZE`]).
struct Failing;

// SAFETY: memory comes from the system's allocator, or the result is null.
unsafe impl GlobalAlloc for Failing {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let left = LEFT.get();
        if left == 0 || layout.size() > MAX_SIZE.get() {
            FAILED.set(true);
            return null_mut();
        }
        if left != u64::MAX {
            LEFT.set(left - 1);
        }
        // SAFETY: guaranteed by the caller.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        // SAFETY: guaranteed by the caller.
        unsafe { System.dealloc(memory, layout) };
    }
}

#[global_allocator]
static ALLOCATOR: Failing = Failing;

fn with_allocations<T>(n: u64, act: impl FnOnce() -> T) -> T {
    LEFT.set(n);
    let result = act();
    LEFT.set(u64::MAX);
    result
}

type Numbers<F> = Map<u64, u64, std::hash::RandomState, F>;

/// Returns a map with this number of entries. All that a thread allocates once has been allocated.
fn warm<F: Stores<u64, u64>>(entries: u64) -> Numbers<F> {
    let map = Numbers::<F>::new();
    map.reserve(1000);
    (0..entries).for_each(|n| _ = map.pin().insert(n, n));
    defer(|| ());
    map
}

/// Runs `act` without memory for arrays. There is enough for nodes and later segments.
fn without_arrays<T>(act: impl FnOnce() -> T) -> T {
    MAX_SIZE.set(16 << 10);
    let result = act();
    MAX_SIZE.set(usize::MAX);
    result
}

/// B10: if the new array cannot be allocated, the table keeps the old one. Later it grows and
/// shrinks.
fn keeps_the_old_array<F: Stores<u64, u64>>() {
    let map = warm::<F>(1000);
    let room = map.capacity();
    let holds = |entries: u64| (0..entries).all(|n| map.pin().get(&n) == Some(&n)) && map.len() as u64 == entries;
    let has_failed = without_arrays(|| {
        let fails = [map.try_reserve(10_000).is_err(), Numbers::<F>::builder().capacity(2000).try_build().is_err()];
        assert!(fails == [true; 2] && map.capacity() == room && holds(1000));
        (1000..10_000).for_each(|n| assert_eq!(map.pin().insert(n, n), None));
        FAILED.replace(false)
    });
    assert!(has_failed && map.capacity() == room && holds(10_000));
    (10_000..20_000).for_each(|n| assert_eq!(map.pin().insert(n, n), None));
    assert!(map.capacity() >= 15_000 && holds(20_000), "room for {}", map.capacity());
    let room = map.capacity();
    map.pin().retain(|n, _| *n < 5000);
    assert!(without_arrays(|| map.shrink_to_fit()).is_err() || map.capacity() < room);
    map.shrink_to_fit().unwrap();
    assert!(map.capacity() < room && holds(5000));
}

#[test]
fn tables_keep_the_old_array() {
    keeps_the_old_array::<Boxed>();
    keeps_the_old_array::<Inline>();
    keeps_the_old_array::<Private>();
}

#[cfg(unix)]
mod child {
    use std::env::var;
    use std::os::unix::process::ExitStatusExt;
    use std::panic::{AssertUnwindSafe, catch_unwind};
    use std::process::{Stdio, exit};

    use relativist_rcu::barrier;
    use relativist_testing::own_program;

    use super::*;

    type Infallible<F> = (&'static str, fn(&Numbers<F>));

    /// Operations that may panic or abort without memory. Another thread makes the map, so this
    /// thread has allocated nothing yet. Insertions need memory for nodes, for later segments (as
    /// the map has a few buckets only), and to defer.
    fn operations<F: Stores<u64, u64>>() -> [Infallible<F>; 9] {
        [
            ("with_capacity", |_| drop(Numbers::<F>::with_capacity(1000))),
            ("reserve", |map| map.reserve(10_000)),
            ("insert", |map| (0..20).for_each(|n| _ = map.pin().insert(n, 2))),
            ("insert many", |map| _ = map.insert_many((1000..3000).map(|n| (n, n)))),
            ("update", |map| _ = map.pin().update(1, |n| n + 1)),
            ("remove", |map| _ = map.pin().remove(&1)),
            ("clear", |map| map.pin().clear()),
            ("clone", |map| drop(map.clone())),
            ("iter", |map| map.pin().iter().for_each(|_| ())),
        ]
    }

    /// The variable that names a form, an operation and the number of allocations that succeed.
    const CHILD: &str = "RELATIVIST_EXHAUSTION";
    /// Exit codes of the child: no allocation failed; some failed, and the operation did not abort.
    const ENOUGH: i32 = 10;
    const SURVIVED: i32 = 11;

    /// Runs in the child: runs the operation, checks the map, and returns the exit code.
    fn run_child<F: Stores<u64, u64>>(name: &str, n: u64) -> i32
    where
        Numbers<F>: Send,
    {
        let (_, operation) = operations::<F>().into_iter().find(|(its, _)| *its == name).unwrap();
        let map = thread::scope(|scope| scope.spawn(|| warm::<F>(10)).join().unwrap());
        let result = with_allocations(n, || catch_unwind(AssertUnwindSafe(|| operation(&map))));
        LEFT.set(u64::MAX);
        drop(result);
        map.reserve(500);
        (5000..5100).for_each(|n| assert_eq!(map.pin().insert(n, n), None));
        assert_eq!(map.pin().iter().count(), map.len());
        barrier();
        if FAILED.get() { SURVIVED } else { ENOUGH }
    }

    /// Whichever allocation is the first to fail, an operation succeeds, reports it, panics, or
    /// aborts with a message.
    #[test]
    fn nothing_worse_than_an_abort() {
        if let Ok(child) = var(CHILD) {
            let parts: Vec<&str> = child.split('/').collect();
            let n = parts[2].parse().unwrap();
            exit(match parts[0] {
                "boxed" => run_child::<Boxed>(parts[1], n),
                "inline" => run_child::<Inline>(parts[1], n),
                _ => run_child::<Private>(parts[1], n),
            });
        }
        for (form, (name, _)) in ["boxed", "inline", "private"]
            .iter()
            .flat_map(|form| operations::<Boxed>().map(|operation| (form, operation)))
        {
            let has_enough = |n: u64| {
                let mut child = own_program();
                child.args(["--exact", "child::nothing_worse_than_an_abort", "--nocapture"]);
                let output = child.env(CHILD, format!("{form}/{name}/{n}")).stdout(Stdio::null()).output().unwrap();
                let said = String::from_utf8_lossy(&output.stderr);
                let aborted = output.status.signal() == Some(libc::SIGABRT) && said.contains("memory allocation of");
                let ended = matches!(output.status.code(), Some(ENOUGH | SURVIVED));
                assert!(ended || aborted, "{form} {name} with {n} allocations: {}: {said}", output.status);
                output.status.code() == Some(ENOUGH)
            };
            // Each allocation at first, and then some of them.
            let numbers = std::iter::successors(Some(0), |n| Some(n + 1 + n / 8));
            assert!(numbers.take_while(|&n| n < 100_000).any(has_enough), "{name} needs too many allocations");
        }
    }
}
