//! Models of tables of compact links, which have the hash and the distance in one word.

use std::ptr::NonNull;
use std::sync::Arc;

use loom::cell::UnsafeCell;
use loom::thread;
use relativist_rcu::{Guard, read, wait_for_readers};
use relativist_table::{CompactLink, Entry, Hash, Resizing, Table};

use crate::scene::{FINE, Shared, at, each_way, exactly, explore, unless_quick};

#[repr(C)]
struct Node {
    link: CompactLink,
    /// Loom fails the model if a read of it races with a write.
    hash: UnsafeCell<Hash>,
}

/// A table, and nodes side by side: on the heap, they may lie further apart than links reach.
struct Scene {
    table: Table<CompactLink>,
    nodes: Box<[Node]>,
}

// SAFETY: threads access nodes only through the table, which synchronises them.
unsafe impl Send for Scene {}
// SAFETY: as above.
unsafe impl Sync for Scene {}

impl Scene {
    /// A table of the first `linked` of these.
    fn new(buckets: usize, hashes: &[Hash], linked: usize) -> Arc<Self> {
        let node = |&hash| Node { link: CompactLink::new(hash), hash: UnsafeCell::new(hash) };
        let table = Table::with_compact_links(buckets, Resizing::Manual, |_| ()).unwrap();
        let scene = Arc::new(Self { table, nodes: hashes.iter().map(node).collect() });
        (0..linked).for_each(|index| scene.insert(index, &read()));
        scene
    }

    fn insert(&self, index: usize, guard: &Guard) {
        let node = &self.nodes[index];
        // SAFETY: no thread writes it now.
        let hash = node.hash.with(|hash| unsafe { *hash });
        match self.table.entry(hash, |link| is(link, hash), guard) {
            // SAFETY: no table has had this node.
            Entry::Vacant(entry) => unsafe { entry.insert(NonNull::from(node).cast()) },
            Entry::Occupied(_) => panic!("no other thread inserts this one"),
        }
    }

    fn has(&self, hash: Hash, guard: &Guard) -> bool {
        self.table.find(hash, |link| is(link, hash), guard).is_some()
    }

    fn unlink(&self, hash: Hash, guard: &Guard) -> NonNull<CompactLink> {
        self.table.remove(hash, |link| is(link, hash), guard).expect("a link that is in the table")
    }

    /// Unlinks a node, and writes to it when all readers have left.
    fn remove(&self, hash: Hash) {
        let link = self.unlink(hash, &read());
        wait_for_readers();
        // SAFETY: a node of this scene. Loom checks that no other thread reads it.
        unsafe { link.cast::<Node>().as_ref() }.hash.with_mut(|hash| unsafe { *hash = exactly(0) });
    }
}

/// Reads a node, and returns whether it has this hash.
fn is(link: NonNull<CompactLink>, hash: Hash) -> bool {
    // SAFETY: the table asks about links of its own. Loom checks that no write races with the read.
    unsafe { link.cast::<Node>().as_ref() }.hash.with(|its| unsafe { *its } == hash)
}

/// Returns a hash at this place, with the same summary bit, and the next in the order.
fn next_to(n: u64) -> Hash {
    exactly(n << 60 | 1 << 37)
}

/// T1, T8: lookups during a removal and a resize find the residents, and no link that was
/// reclaimed.
#[test]
fn lookups_while_resizing_and_removing() {
    each_way(|from, to| {
        explore(1, move || {
            let scene = Scene::new(from, &[1, 3, 4, 5].map(at), 4);
            let reader = {
                let scene = scene.clone();
                thread::spawn(move || {
                    let guard = read();
                    assert!([1, 3, 5].iter().all(|&n| scene.has(at(n), &guard)), "a resident was missed");
                    scene.has(at(4), &guard);
                })
            };
            scene.remove(at(4));
            scene.table.resize_to(to).unwrap();
            reader.join().unwrap();
            assert_eq!([1, 3, 4, 5].map(|n| scene.has(at(n), &read())), [true, true, false, true]);
        });
    });
}

/// T3: after a resize, lookups find what an update during it has left. The update and the resize
/// change the successor of the same link.
#[test]
fn updates_while_resizing() {
    each_way(|from, to| {
        explore(unless_quick(2), move || {
            let scene = Scene::new(from, &[3, 5, 4].map(at), 2);
            let writer = {
                let scene = scene.clone();
                thread::spawn(move || scene.insert(2, &read()))
            };
            scene.table.resize_to(to).unwrap();
            writer.join().unwrap();
            let guard = read();
            assert!((3..6).all(|n| scene.has(at(n), &guard)));
            assert_eq!(scene.table.iter(&guard).count(), 3);
        });
    });
}

/// T3: a lookup that loaded the head before a removal may find a link that was inserted after it.
/// Then the next lookup finds that link, too.
#[test]
fn lookups_agree_after_a_stale_head() {
    explore(unless_quick(2), || {
        let scene = Scene::new(FINE, &[at(1), at(2), next_to(2)], 2);
        let guard = read();
        // SAFETY: the thread that uses it is joined first.
        let shared = unsafe { Shared::new(&guard) };
        let writer = {
            let scene = scene.clone();
            thread::spawn(move || {
                scene.unlink(at(2), shared.guard());
                scene.insert(2, shared.guard());
            })
        };
        let (first, second) = (scene.has(next_to(2), &guard), scene.has(next_to(2), &guard));
        assert!(!first || second, "an insertion was seen, and then not");
        writer.join().unwrap();
    });
}
