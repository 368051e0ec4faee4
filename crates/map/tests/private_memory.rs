//! The memory of entries of a map with a private domain waits for readers of the process, after the
//! entries have been dropped. A binary of its own, because it replaces the global allocator, and
//! there is one test, because the counts are those of the whole process.

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::Instant;

use relativist::{PrivateMap, Resizing};
use relativist_rcu::{barrier, read};
use relativist_testing::patience;

/// Too large for threads to keep the memory of its node. No other allocation of this program has
/// the size of a node.
struct Value([u64; 50]);
const NODE: usize = 16 + 8 + size_of::<Value>();

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

/// T11, and the memory of what the resizer may still be walking over.
#[test]
fn memory_waits_for_readers_of_the_process() {
    let map = relativist::Builder::new().resizing(Resizing::Manual).build_private().unwrap();
    let insert = |map: &PrivateMap<u64, Value>, keys: std::ops::Range<u64>| {
        keys.for_each(|n| assert!(map.pin().insert(n, Value([1; 50])).is_none()));
    };
    insert(&map, 0..1000);
    assert_eq!(nodes(), 1000);
    let guard = read();
    let handle = map.pin();
    (0..400).for_each(|n| assert!(map.pin().remove(&n).is_some()));
    (0..100).for_each(|_| _ = map.reclaim());
    assert_eq!((dropped(), nodes()), (0, 1000), "entries wait for the handle");
    drop(handle);
    while map.reclaim() > 0 {}
    assert_eq!((dropped(), nodes()), (400, 1000), "their memory waits for the reader of the process");
    drop(guard);
    barrier();
    assert_eq!((dropped(), nodes()), (400, 600));
    // Updates free memory, too, without a call of `reclaim` or `barrier`.
    let end = Instant::now() + patience();
    let mut rounds = 0;
    while rounds < 20 || nodes() > 600 + 8 * 1024 {
        assert!(Instant::now() < end, "{} nodes for 600 entries after {rounds} rounds", nodes());
        insert(&map, 1000..2000);
        (1000..2000).for_each(|n| assert!(map.pin().remove(&n).is_some()));
        rounds += 1;
    }
    // Entries that the caller moves out.
    map.pin().remove(&999);
    let guard = read();
    let mut entries = map.into_iter();
    assert_eq!(entries.by_ref().take(99).count(), 99);
    drop(entries);
    assert_eq!(dropped(), 400 + 1000 * rounds + 600, "the map drops all entries");
    drop(guard);
    barrier();
    assert_eq!(nodes(), 0);
}
