//! Memory of nodes: what is allocated, and what is given back to the allocator. A binary of its
//! own, because it replaces the global allocator.

use relativist_testing as _;

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::thread;

use relativist::HashMap;

/// Large enough that no other allocation of this program has the size of a node.
type Value = [u64; 20];
const NODE: usize = 8 + size_of::<Value>();

/// Nodes allocated since the start, and freed.
static ALLOCATED: AtomicUsize = AtomicUsize::new(0);
static FREED: AtomicUsize = AtomicUsize::new(0);

struct Counting;

// SAFETY: forwards to the system's allocator.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATED.fetch_add(usize::from(layout.size() == NODE), Relaxed);
        // SAFETY: guaranteed by the caller.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        FREED.fetch_add(usize::from(layout.size() == NODE), Relaxed);
        // SAFETY: guaranteed by the caller.
        unsafe { System.dealloc(memory, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

fn churn(map: &HashMap<u64, Value>, rounds: u64) {
    for round in 0..rounds {
        map.pin().insert(round % 8, [round; 20]);
        map.pin().remove(&(round % 8));
    }
}

/// There is one test, because the counts are those of the whole process.
#[test]
fn memory_of_removed_nodes_is_used_again_and_given_back() {
    const THREADS: usize = 40;
    const ROUNDS: usize = 20_000;
    // The maximum number of nodes that a running thread keeps. The background thread that reclaims
    // nodes keeps some, too.
    const KEPT: usize = (256 << 10) / NODE;

    let map = HashMap::new();
    for _ in 0..THREADS {
        // A scope does not wait for the destructors of thread-local variables at its end, but a
        // join does. The destructors free the memory that the thread has kept.
        thread::scope(|scope| scope.spawn(|| churn(&map, ROUNDS as u64)).join().unwrap());
    }
    drop(map);
    relativist_rcu::barrier();
    let (allocated, freed) = (ALLOCATED.load(Relaxed), FREED.load(Relaxed));
    assert!(allocated > 0, "the nodes have another size than expected");
    assert!(allocated < THREADS * ROUNDS / 2, "{allocated} nodes allocated for {} insertions", THREADS * ROUNDS);
    let left = allocated - freed;
    assert!(left <= 2 * KEPT, "{left} nodes are held by no thread");
}
