//! The memory of entries of a map with a private domain: what it waits for, and what it does not
//! wait for. A binary of its own, because it replaces the global allocator, and there is one test,
//! because the counts are those of the whole process.

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use relativist::PrivateMap;
use relativist_rcu::{Guard, MAX_DEFERRED, barrier, read};
use relativist_testing::wait_until;

/// Too large for threads to keep the memory of its node. No other allocation of this program has
/// the size of a node.
struct Value([u64; 50]);
const NODE: usize = 8 + size_of::<Value>();

static DROPPED: AtomicUsize = AtomicUsize::new(0);

impl Drop for Value {
    fn drop(&mut self) {
        DROPPED.fetch_add(self.0[0] as usize, Relaxed);
    }
}

/// Nodes that are allocated.
static NODES: AtomicUsize = AtomicUsize::new(0);

struct Counting;

// SAFETY: forwards to the system's allocator.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        NODES.fetch_add(usize::from(layout.size() == NODE), Relaxed);
        // SAFETY: guaranteed by the caller.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        NODES.fetch_sub(usize::from(layout.size() == NODE), Relaxed);
        // SAFETY: guaranteed by the caller.
        unsafe { System.dealloc(memory, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

fn nodes() -> usize {
    NODES.load(Relaxed)
}

fn dropped() -> usize {
    DROPPED.load(Relaxed)
}

/// The maximum number of entries that an operation drops on the side.
const SLICE: usize = 4096;

/// B12: nodes wait for the handles of their map, and for nothing else: not for a reader of the
/// process, which stays here all the time, although a thread that updates another map would have to
/// wait for it. `pending` counts all nodes that wait.
#[test]
fn memory_waits_for_handles_only() {
    let map: PrivateMap<u64, Value> = PrivateMap::new();
    let value = || Value([1; 50]);
    let guard = read();
    (0..1000).for_each(|n| assert!(map.pin().insert(n, value()).is_none()));
    assert_eq!(nodes(), 1000);
    let handle = map.pin();
    (0..400).for_each(|n| assert!(map.pin().remove(&n).is_some()));
    (0..100).for_each(|_| _ = map.reclaim());
    assert_eq!((dropped(), nodes()), (0, 1000), "entries wait for the handle");
    assert!(map.pending() >= 400);
    drop(handle);
    wait_until("the entries to be dropped", || map.reclaim() == 0);
    assert_eq!((dropped(), nodes()), (400, 600), "they wait for the reader of the process");
    replace_many(&map, value);
    leave_a_backlog(&map, value);
    move_out(map, guard);
}

/// Replaces the entries of a small map more often than a thread may defer functions in the domain
/// of the process.
fn replace_many(map: &PrivateMap<u64, Value>, value: impl Fn() -> Value) {
    for n in 0..2 * MAX_DEFERRED {
        assert!(map.pin().insert(400 + n as u64 % 600, value()).is_some());
        assert!(nodes() <= 600 + map.pending() as usize, "nodes wait, and `pending` does not count them");
        assert!(map.pending() <= 4 * 1024, "{} nodes wait, although no handle stays", map.pending());
    }
    wait_until("the entries to be dropped", || map.reclaim() == 0);
    assert_eq!((dropped(), nodes()), (400 + 2 * MAX_DEFERRED, 600));
}

/// Removes many entries while a handle stays. Updates drop them in slices when it is gone, each
/// batch more than it adds.
fn leave_a_backlog(map: &PrivateMap<u64, Value>, value: impl Fn() -> Value) {
    let before = dropped();
    let replace = |n: usize| assert!(map.pin().insert(400 + n as u64 % 600, value()).is_some());
    let handle = map.pin();
    (0..MAX_DEFERRED).for_each(replace);
    assert!(dropped() == before && map.pending() >= MAX_DEFERRED as u64);
    drop(handle);
    for n in 0..MAX_DEFERRED {
        let before = dropped();
        replace(n);
        assert!(dropped() - before <= SLICE, "an insertion drops {} entries", dropped() - before);
    }
    assert!(map.pending() <= 4 * 1024, "{} entries are left", map.pending());
    wait_until("the entries to be dropped", || map.reclaim() == 0);
    assert_eq!((dropped() - before, nodes()), (2 * MAX_DEFERRED, 600));
}

/// Entries that the caller moves out. Their memory waits for nobody.
fn move_out(map: PrivateMap<u64, Value>, guard: Guard) {
    let before = dropped();
    let mut entries = map.into_iter();
    assert_eq!(entries.by_ref().take(99).count(), 99);
    assert_eq!((dropped() - before, nodes()), (99, 501));
    drop(entries);
    assert_eq!((dropped() - before, nodes()), (600, 0), "the map drops all other entries");
    drop(guard);
    barrier();
    assert_eq!(nodes(), 0);
}
