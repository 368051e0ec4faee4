//! The table of the models, what threads do with it, and how models are explored.

use std::mem::MaybeUninit;
use std::ptr::NonNull;
use std::sync::{Arc, Mutex};

pub use crate::models::{Shared, explore, is_quick, unless_quick};
use loom::cell::UnsafeCell;
use loom::thread;
use relativist_rcu::{GracePeriod, Guard, read, wait_for_readers};
use relativist_table::{Entry, Hash, Link, Resizing, Table};

pub const COARSE: usize = 2;
pub const FINE: usize = 4;

/// Each of these buckets has two places.
pub const FINER: usize = 8;

pub const RESIDENTS: [u64; 2] = [1, 5];

/// Returns the hash of place `n` of sixteen: 0 to 7 are in the first of two buckets, 0 to 3 in the
/// first of four.
pub fn at(n: u64) -> Hash {
    exactly(n << 60)
}

/// Returns a hash at the same place, with the same summary bit, and after it in the order.
pub fn next_to(n: u64) -> Hash {
    exactly(n << 60 | 1)
}

/// Returns the hash whose mixed value is `mixed`.
pub fn exactly(mixed: u64) -> Hash {
    // Newton's iteration for the inverse of an odd number modulo 2^64: each step doubles the number
    // of right bits.
    let factor = Hash::new(1).get();
    let inverse = (0..6).fold(1u64, |x, _| x.wrapping_mul(2u64.wrapping_sub(factor.wrapping_mul(x))));
    let hash = Hash::new(mixed.wrapping_mul(inverse));
    assert_eq!(hash.get(), mixed);
    hash
}

#[repr(C)]
pub struct Node {
    pub link: Link,
    /// Written before the node is published and when it is disposed of. Loom fails the model if a
    /// read of it races with either.
    pub content: UnsafeCell<u64>,
}

/// Drops a node. Loom checks that all accesses of other threads happened before; a later access
/// finds garbage.
pub unsafe fn dispose(link: NonNull<Link>) {
    let node = link.cast::<Node>();
    // SAFETY: all links of these tables are in such nodes, whose memory stays allocated until the
    // end of the model.
    unsafe {
        node.as_ref().content.with_mut(|content| *content = 0);
        node.drop_in_place();
        node.cast::<u8>().write_bytes(0xFF, size_of::<Node>());
    }
}

/// A table, and the memory of all nodes that were ever in it.
pub struct Scene {
    pub table: Table,
    #[expect(clippy::vec_box, reason = "links stay in their place")]
    pub nodes: Mutex<Vec<Box<MaybeUninit<Node>>>>,
}

// SAFETY: threads access nodes only through the table, which synchronises them.
unsafe impl Send for Scene {}
// SAFETY: as above.
unsafe impl Sync for Scene {}

impl Scene {
    pub fn new(buckets: usize, places: &[u64]) -> Arc<Self> {
        Self::with(Resizing::Manual, buckets, places)
    }

    /// Loom has no background worker, so no table resizes itself. An automatic one still knows that
    /// it is too small.
    pub fn with(resizing: Resizing, buckets: usize, places: &[u64]) -> Arc<Self> {
        let table = Table::new(buckets, resizing, dispose).unwrap();
        let scene = Arc::new(Self { table, nodes: Mutex::default() });
        places.iter().for_each(|&n| scene.insert(at(n), &read()));
        scene
    }

    pub fn node(&self, hash: Hash) -> NonNull<Link> {
        let mut node = Box::new(MaybeUninit::new(Node { link: Link::new(hash), content: UnsafeCell::new(0) }));
        let link = NonNull::from(&mut *node).cast();
        self.nodes.lock().unwrap().push(node);
        // SAFETY: just made, and not shared yet.
        unsafe { link.cast::<Node>().as_ref() }.content.with_mut(|content| unsafe { *content = hash.get() });
        link
    }

    pub fn insert(&self, hash: Hash, guard: &Guard) {
        let new = self.node(hash);
        match self.table.entry(hash, |link| is(link, hash), guard) {
            // SAFETY: a fresh node.
            Entry::Vacant(entry) => unsafe { entry.insert(new) },
            Entry::Occupied(_) => panic!("no other thread inserts this one"),
        }
    }

    /// Unlinks a node, which the caller has to reclaim.
    pub fn unlink(&self, hash: Hash, guard: &Guard) -> NonNull<Link> {
        match self.table.entry(hash, |link| is(link, hash), guard) {
            Entry::Occupied(entry) => entry.remove(),
            Entry::Vacant(_) => panic!("a link that is in the table was not found by an update"),
        }
    }

    pub fn replace(&self, hash: Hash, guard: &Guard) -> NonNull<Link> {
        let new = self.node(hash);
        match self.table.entry(hash, |link| is(link, hash), guard) {
            // SAFETY: a fresh node.
            Entry::Occupied(entry) => unsafe { entry.replace(new) },
            Entry::Vacant(_) => panic!("a link that is in the table was not found by an update"),
        }
    }

    pub fn find(&self, hash: Hash, guard: &Guard) -> Option<NonNull<Link>> {
        self.table.find(hash, |link| is(link, hash), guard)
    }

    /// Returns the places that an iteration finds.
    pub fn iterate(&self, guard: &Guard) -> Vec<u64> {
        // SAFETY: found under the guard.
        self.table.iter(guard).map(|link| unsafe { link.as_ref() }.hash().get() >> 60).collect()
    }

    /// Checks that the table holds these places, by each kind of lookup. No other thread uses it.
    pub fn assert_holds(&self, places: &[u64]) {
        let guard = read();
        assert_eq!(self.iterate(&guard), places);
        for n in 0..16 {
            assert_eq!(self.find(at(n), &guard).is_some(), places.contains(&n), "lookup of {n}");
        }
        assert_eq!(self.table.len(), places.len());
        for &n in places {
            self.unlink(at(n), &guard);
        }
        assert!(self.table.is_empty() && self.iterate(&guard).is_empty());
    }

    /// Empties the table, and returns the places that had links, in order. Does not reclaim the
    /// links.
    pub fn clear(&self, guard: &Guard) -> Vec<u64> {
        let mut places = Vec::new();
        // SAFETY: alive for the guard.
        self.table.clear(guard, |link| places.push(unsafe { link.as_ref() }.hash().get() >> 60));
        assert!(places.is_sorted());
        places
    }
}

/// Reads a node, and returns whether it has this hash.
pub fn is(link: NonNull<Link>, hash: Hash) -> bool {
    // SAFETY: the table asks about links of its own.
    let node = unsafe { link.cast::<Node>().as_ref() };
    // SAFETY: loom checks that no write races with this.
    node.content.with(|content| unsafe { *content } == hash.get())
}

pub fn reclaim(link: NonNull<Link>) {
    wait_for_readers();
    // SAFETY: unlinked, and a grace period has passed.
    unsafe { dispose(link) };
}

/// An update of a model.
#[derive(Clone, Copy, Debug)]
pub enum Update {
    Insert(u64),
    Remove(u64),
    Replace(u64),
}

pub use Update::{Insert, Remove, Replace};

/// First of both buckets, first of the second fine bucket, last before the cut, last of all; and
/// each again in reverse.
pub const UPDATES: [Update; 11] = [
    Insert(0),
    Insert(4),
    Insert(3),
    Insert(7),
    Remove(0),
    Remove(4),
    Remove(3),
    Remove(7),
    Replace(0),
    Replace(4),
    Replace(3),
];

impl Update {
    pub fn place(self) -> u64 {
        let (Insert(n) | Remove(n) | Replace(n)) = self;
        n
    }

    /// Returns the residents, and this update's place if `is_taken`.
    pub fn places(self, residents: &[u64], is_taken: bool) -> Vec<u64> {
        let mut places: Vec<u64> = residents.iter().copied().chain(is_taken.then_some(self.place())).collect();
        places.sort_unstable();
        places
    }

    pub fn before(self, residents: &[u64]) -> Vec<u64> {
        self.places(residents, !matches!(self, Insert(_)))
    }

    pub fn after(self, residents: &[u64]) -> Vec<u64> {
        self.places(residents, !matches!(self, Remove(_)))
    }

    /// Performs the update, and returns the link that the caller has to reclaim.
    pub fn run(self, scene: &Scene, guard: &Guard) -> Option<NonNull<Link>> {
        let hash = at(self.place());
        match self {
            Insert(_) => {
                scene.insert(hash, guard);
                None
            }
            Remove(_) => Some(scene.unlink(hash, guard)),
            Replace(_) => Some(scene.replace(hash, guard)),
        }
    }
}

/// Runs a model of growing, and one of shrinking.
pub fn each_way(mut model: impl FnMut(usize, usize)) {
    model(COARSE, FINE);
    model(FINE, COARSE);
}

/// Resizes on another thread while `others` use the table inside one section that began before.
pub fn resize_alongside(scene: &Arc<Scene>, to: usize, others: impl FnOnce(Shared)) {
    let guard = read();
    let resizer = {
        let scene = scene.clone();
        thread::spawn(move || scene.table.resize_to(to).unwrap())
    };
    // SAFETY: `others` join the threads that they start.
    others(unsafe { Shared::new(&guard) });
    drop(guard);
    resizer.join().unwrap();
}

/// Lets the resizer run until it waits for this thread. Loom does not explore what may happen
/// before.
pub fn let_wait() {
    loom::stop_exploring();
    thread::yield_now();
    loom::explore();
}

/// Grows by two arrays, and cuts chains once.
pub fn grow_twice(scene: &Scene) {
    scene.table.grow_uncut(FINE).unwrap();
    // Begins a grace period that does not count for the next growth.
    GracePeriod::start().has_passed();
    scene.table.grow_uncut(FINER).unwrap();
    scene.table.resize_to(FINER).unwrap();
}
