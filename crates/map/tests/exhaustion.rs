//! The map without memory, from the n-th allocation on, for every n. In a program of its own,
//! because it needs an allocator that can fail.
//!
//! Operations that report exhaustion must leave the map as it was. All others behave as those of
//! std's collections: they succeed, panic or abort, as their documentation says. A child process
//! runs them.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::env;
use std::ptr::{null_mut, without_provenance_mut};
use std::thread;

use relativist::{ExhaustedError, FlatMap, HashMap, Resizing};
use relativist_rcu::defer;
use relativist_testing::own_program;

thread_local! {
    /// How many allocations the thread has left.
    static LEFT: Cell<u64> = const { Cell::new(u64::MAX) };
    /// Whether an allocation was refused.
    static FAILED: Cell<bool> = const { Cell::new(false) };
    /// Whether segments of flat maps get addresses for which their links have no room.
    static FAR: Cell<bool> = const { Cell::new(false) };
}

/// The lowest such address. There is no memory.
const FAR_ADDRESS: usize = 1 << 48;

/// The system's allocator, which refuses memory to a thread that has used up its allocations
/// ([`LEFT`]).
struct Failing;

// SAFETY: memory comes from the system's allocator, or the result is null. What has a far address
// is not accessed: that is tested.
unsafe impl GlobalAlloc for Failing {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let left = LEFT.get();
        if left == 0 {
            FAILED.set(true);
            return null_mut();
        }
        if left != u64::MAX {
            LEFT.set(left - 1);
        }
        // Only segments have this alignment.
        if FAR.get() && layout.align() == 64 {
            return without_provenance_mut(FAR_ADDRESS);
        }
        // SAFETY: guaranteed by the caller.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        if memory.addr() == FAR_ADDRESS {
            return;
        }
        // SAFETY: guaranteed by the caller.
        unsafe { System.dealloc(memory, layout) };
    }
}

#[global_allocator]
static ALLOCATOR: Failing = Failing;

fn without_memory<T>(act: impl FnOnce() -> T) -> T {
    with_allocations(0, act)
}

fn with_allocations<T>(n: u64, act: impl FnOnce() -> T) -> T {
    LEFT.set(n);
    let result = act();
    LEFT.set(u64::MAX);
    result
}

type Map = HashMap<String, Vec<u64>>;

fn manual() -> Map {
    HashMap::<String, Vec<u64>>::builder().resizing(Resizing::Manual).build().unwrap()
}

/// Inserts these entries until there is no memory for one, and returns that one.
fn insert_until_exhausted(
    map: &Map,
    entries: &mut Vec<(String, Vec<u64>)>,
) -> Option<ExhaustedError<String, Vec<u64>>> {
    loop {
        let (key, value) = entries.pop()?;
        if let Err(error) = map.pin().checked_insert(key, value) {
            return Some(error);
        }
    }
}

#[test]
fn checked_insert_gives_key_and_value_back() {
    let map = manual();
    map.resize_to(1 << 16).unwrap();
    map.pin().insert("there".into(), vec![0]);
    // More entries than a thread's stock of free nodes holds.
    let mut entries: Vec<_> = (0..100_000).map(|n| (n.to_string(), vec![n])).collect();
    let mut again = vec![("there".to_string(), vec![1])];
    let (error, not_replaced) =
        without_memory(|| (insert_until_exhausted(&map, &mut entries), insert_until_exhausted(&map, &mut again)));
    let error = error.expect("no memory is left");
    assert_eq!(error.key, error.value[0].to_string());
    assert!(error.to_string().contains("cannot allocate"), "{error}");
    assert!(format!("{error:?}").starts_with("ExhaustedError"));
    assert_eq!(not_replaced.map(|error| error.value), Some(vec![1]));

    let pinned = map.pin();
    assert_eq!((pinned.contains_key(&error.key), pinned.get("there")), (false, Some(&vec![0])));
    assert_eq!(pinned.len(), 100_000 - entries.len());
    assert_eq!(pinned.checked_insert(error.key, error.value).unwrap(), None);
    assert_eq!(pinned.checked_insert("there".into(), vec![1]).unwrap(), Some(&vec![0]));
}

/// Memory for a later segment is missing, to insert an entry as well as to replace one.
#[test]
fn a_flat_map_gives_key_and_value_back() {
    let map: FlatMap<u64, u64> = FlatMap::<u64, u64>::builder().resizing(Resizing::Manual).build().unwrap();
    // This thread enters a section before memory is exhausted.
    let pinned = map.pin();
    let fill = |keys: std::ops::Range<u64>| keys.map(|n| pinned.checked_insert(n, n)).filter_map(Result::err).count();
    let refused = without_memory(|| fill(0..100));
    assert_eq!(refused, 100 - pinned.len(), "each error stands for an entry");
    assert!((3..=6).contains(&pinned.len()), "two buckets have room for {} entries", pinned.len());
    assert_eq!((0..100).filter(|n| pinned.get(n) == Some(n)).count(), pinned.len());

    // Under the handle each replacement takes a slot, until none is left.
    let present = *pinned.keys().next().unwrap();
    let error = without_memory(|| (1..9).find_map(|n| pinned.checked_insert(present, 1000 + n).err())).unwrap();
    assert_eq!((error.key, error.value), (present, pinned.get(&present).unwrap().max(&1000) + 1));
    let (before, len) = (*pinned.get(&present).unwrap(), pinned.len());
    assert_eq!(pinned.checked_insert(present, 7).unwrap(), Some(&before));
    assert_eq!((pinned.get(&present), pinned.len(), pinned.iter().count()), (Some(&7), len, len));
    assert_eq!(fill(0..100), 0);
    assert!((0..100).all(|n| pinned.get(&n) == Some(&n)));
    drop(pinned);
    map.resize_to(64).unwrap();
    assert_eq!((map.len(), map.stats().entries), (100, 100));
}

/// A segment above 2^48 counts as no memory, and stderr has the reason.
#[test]
fn a_flat_map_refuses_far_memory() {
    const CHILD: &str = "RELATIVIST_FAR";
    if env::var_os(CHILD).is_none() {
        let mut child = own_program();
        child.args(["--exact", "a_flat_map_refuses_far_memory", "--nocapture"]).env(CHILD, "");
        let output = child.output().unwrap();
        let messages = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{messages}");
        assert_eq!(messages.matches("a segment must lie below 2^48").count(), 1, "{messages}");
        return;
    }
    let map: FlatMap<u64, u64> = FlatMap::<u64, u64>::builder().resizing(Resizing::Manual).build().unwrap();
    let pinned = map.pin();
    FAR.set(true);
    let refused = (0..100).filter_map(|n| pinned.checked_insert(n, n).err()).count();
    FAR.set(false);
    assert_eq!(refused, 100 - pinned.len(), "each error stands for an entry");
    assert!((3..=6).contains(&pinned.len()), "two buckets have room for {} entries", pinned.len());
    (0..100).for_each(|n| assert!(pinned.checked_insert(n, n).is_ok()));
    assert!((0..100).all(|n| pinned.get(&n) == Some(&n)));
}

/// T6: an insertion asks the background thread to resize a map that has become too small. The
/// insertion succeeds even if there is no memory for this request.
#[test]
fn an_automatic_map_is_not_resized_without_memory() {
    // The background thread exists from now on.
    let warm = Map::new();
    (0..1000).for_each(|n: u64| _ = warm.pin().insert(n.to_string(), vec![]));
    let mut most = 0;
    for allocations in 0..50 {
        let map = Map::new();
        let mut entries: Vec<_> = (0..2000).map(|n: u64| (n.to_string(), vec![n])).collect();
        with_allocations(allocations, || insert_until_exhausted(&map, &mut entries));
        let inserted = map.len();
        most = most.max(inserted);
        (0..1000).for_each(|n: u64| _ = map.pin().insert(format!("{n} more"), vec![n]));
        assert_eq!(map.len(), inserted + 1000);
    }
    assert!(most > 2, "only {most} entries were inserted, which need no resize");
}

/// T6: if the new array cannot be allocated, the table keeps the old one.
#[test]
fn a_resize_without_memory_is_an_error() {
    let map = manual();
    map.pin().insert("there".into(), vec![0]);
    assert!(without_memory(|| map.resize_to(64)).is_err());
    assert!(without_memory(|| map.try_reserve(64)).is_err());
    assert_eq!((map.buckets(), map.pin().get("there")), (2, Some(&vec![0])));
    map.try_reserve(63).unwrap();
    assert_eq!(map.buckets(), 128);
    assert!(without_memory(|| map.shrink_to_fit()).is_err());
    assert_eq!(map.buckets(), 128);
    assert!(without_memory(|| HashMap::<u64, u64>::builder().build::<u64, u64>()).is_err());
}

type Numbers = HashMap<u64, u64>;
type Fallible = (&'static str, fn(&Numbers) -> bool);

/// Operations that report exhaustion. They return whether they succeeded.
const FALLIBLE: [Fallible; 7] = [
    ("checked_insert, absent", |map| map.pin().checked_insert(100, 1).is_ok()),
    ("checked_insert, present", |map| map.pin().checked_insert(1, 100).is_ok()),
    ("checked_insert, many", |map| (100..200).all(|n| map.pin().checked_insert(n, n).is_ok())),
    ("resize_to, more", |map| map.resize_to(1 << 10).is_ok()),
    ("resize_to, fewer", |map| map.resize_to(2).is_ok()),
    ("try_reserve", |map| map.try_reserve(1000).is_ok()),
    ("shrink_to_fit", |map| map.shrink_to_fit().is_ok()),
];

/// Returns a map with this number of entries in 256 buckets. All that a thread allocates once has
/// been allocated.
fn warm(resizing: Resizing, entries: u64) -> Numbers {
    let map = Numbers::builder().capacity(128).floor(0).resizing(resizing).build().unwrap();
    (&map).extend((0..entries).map(|n| (n, n)));
    defer(|| ());
    map
}

/// T6, T9: whichever allocation is the first to fail, an operation that reports the failure has
/// changed nothing. Runs on a new thread, because that has no free nodes.
#[test]
fn whatever_is_reported_has_changed_nothing() {
    let attempt = |operation: fn(&Numbers) -> bool, n| {
        let map = warm(Resizing::Manual, 10);
        let buckets = map.buckets();
        let is_done = with_allocations(n, || operation(&map));
        if !is_done {
            let pinned = map.pin();
            assert!((0..10).all(|n| pinned.get(&n) == Some(&n)));
            assert_eq!((pinned.iter().count(), map.stats().entries), (map.len(), map.len()));
            assert_eq!(map.buckets(), buckets);
        }
        map.resize_to(64).unwrap();
        (200..300).for_each(|n| assert_eq!(map.pin().insert(n, n), None));
        is_done
    };
    for (name, operation) in FALLIBLE {
        let fails = |n: &u64| !thread::scope(|scope| scope.spawn(|| attempt(operation, *n)).join().unwrap());
        let failures = (0..1000).take_while(fails).count();
        assert!((1..1000).contains(&failures), "{name} fails {failures} times");
    }
}

#[cfg(unix)]
mod child {
    use std::env::var;
    use std::os::unix::process::ExitStatusExt;
    use std::panic::{AssertUnwindSafe, catch_unwind};
    use std::process::{Stdio, exit};

    use relativist::HashSet;
    use relativist_rcu::{Published, barrier, defer_drop, read};

    use super::*;

    type Infallible = (&'static str, u64, fn(&Numbers));

    /// Operations that may panic or abort without memory, each with the number of entries of its
    /// map. Another thread makes the map, so this thread has allocated nothing yet.
    const INFALLIBLE: [Infallible; 15] = [
        ("build", 10, |_| _ = Numbers::builder().build::<u64, u64>().is_ok()),
        ("checked_insert", 250, |map| (1000..1010).for_each(|n| _ = map.pin().checked_insert(n, n).is_ok())),
        ("with_capacity", 10, |_| drop(Numbers::with_capacity(1000))),
        ("reserve", 10, |map| map.reserve(1000)),
        ("insert", 10, |map| _ = map.pin().insert(1, 2)),
        ("get_or_insert", 10, |map| _ = map.pin().get_or_insert(1000, 2)),
        ("update", 10, |map| _ = map.pin().update(1, |n| n + 1)),
        ("remove", 10, |map| _ = map.pin().remove(&1)),
        ("clear", 10, |map| map.pin().clear()),
        ("clone", 10, |map| drop(map.clone())),
        ("collect", 10, |_| drop((0..10).collect::<HashSet<u64>>())),
        ("iter", 10, |map| map.pin().iter().for_each(|_| ())),
        ("defer", 10, |_| defer(|| ())),
        ("defer_drop", 10, |_| defer_drop(Box::new(1))),
        ("Published", 10, |_| {
            let published = Published::new(1);
            published.publish(2);
            drop(read());
            barrier();
        }),
    ];

    /// The variable that names an operation and the number of allocations that succeed.
    const CHILD: &str = "RELATIVIST_EXHAUSTION";
    /// Exit codes of the child: no allocation failed; some failed, and the operation did not abort.
    const ENOUGH: i32 = 10;
    const SURVIVED: i32 = 11;

    /// Runs in the child: runs the operation, checks the map, and returns the exit code.
    fn run_child(entries: u64, operation: fn(&Numbers), n: u64) -> i32 {
        let map = thread::spawn(move || warm(Resizing::Automatic, entries)).join().unwrap();
        let result = catch_unwind(AssertUnwindSafe(|| with_allocations(n, || operation(&map))));
        LEFT.set(u64::MAX);
        drop(result);
        map.resize_to(64).unwrap();
        (2000..2100).for_each(|n| assert_eq!(map.pin().insert(n, n), None));
        assert_eq!(map.pin().iter().count(), map.len());
        barrier();
        if FAILED.get() { SURVIVED } else { ENOUGH }
    }

    /// Whichever allocation is the first to fail, an operation succeeds, reports it, panics, or
    /// aborts with a message.
    #[test]
    fn nothing_worse_than_an_abort() {
        if let Ok(child) = var(CHILD) {
            let (name, n) = child.split_once('/').unwrap();
            let (_, entries, operation) = INFALLIBLE.iter().find(|(its, ..)| *its == name).unwrap();
            exit(run_child(*entries, *operation, n.parse().unwrap()));
        }
        for (name, ..) in INFALLIBLE {
            let has_enough = |n: u64| {
                let mut child = own_program();
                child
                    .args(["--exact", "child::nothing_worse_than_an_abort", "--nocapture"])
                    .env(CHILD, format!("{name}/{n}"));
                let output = child.stdout(Stdio::null()).output().unwrap();
                let said = String::from_utf8_lossy(&output.stderr);
                let aborted = output.status.signal() == Some(libc::SIGABRT) && said.contains("memory allocation of");
                let ended = matches!(output.status.code(), Some(ENOUGH | SURVIVED));
                assert!(ended || aborted, "{name} with {n} allocations: {}: {said}", output.status);
                output.status.code() == Some(ENOUGH)
            };
            assert!((0..1000).any(has_enough), "{name} needs a thousand allocations");
        }
    }
}
