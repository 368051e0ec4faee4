//! Models of the resize, explored by loom: all interleavings up to a number of preemptions, and
//! what the memory model allows loads to see.
//!
//! ```sh
//! RUSTFLAGS="--cfg relativist_loom" cargo test --release -p relativist --test loom
//! ```
//!
//! The scene is a single group: a coarse bucket with the places 0 to 7, of which two fine buckets
//! have 0 to 3 and 4 to 7. Places 1 and 5 are *residents*, which nobody removes. The hard cases are
//! 0 and 4, each the first link of a fine bucket, and 3, the last before a cut.
#![cfg(all(relativist_loom, not(relativist_shuttle)))]

#[path = "loom/rename.rs"]
mod rename;

use std::mem::MaybeUninit;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex};

use loom::cell::UnsafeCell;
use loom::thread;
use relativist::Resizing;
use relativist::raw::{Entry, Hash, Link, Table};
use relativist_rcu::{GracePeriod, Guard, barrier, read, wait_for_readers};

const COARSE: usize = 2;
const FINE: usize = 4;
/// Each of these buckets has two places.
const FINER: usize = 8;
const RESIDENTS: [u64; 2] = [1, 5];

/// The hash of place `n` of sixteen: 0 to 7 are in the first of two buckets, 0 to 3 in the first of
/// four.
fn at(n: u64) -> Hash {
    exactly(n << 60)
}

/// A hash at the same place, so that summaries can't tell the two, and after it in the order.
fn next_to(n: u64) -> Hash {
    exactly(n << 60 | 1)
}

/// The hash that is `mixed` after mixing.
fn exactly(mixed: u64) -> Hash {
    // Newton's iteration for the inverse of an odd number modulo 2^64: each step doubles the number
    // of right bits.
    let factor = Hash::new(1).get();
    let inverse = (0..6).fold(1u64, |x, _| x.wrapping_mul(2u64.wrapping_sub(factor.wrapping_mul(x))));
    let hash = Hash::new(mixed.wrapping_mul(inverse));
    assert_eq!(hash.get(), mixed);
    hash
}

#[repr(C)]
struct Node {
    link: Link,
    /// Written before the node is published and when it is disposed of. Loom fails the model if a
    /// read of it races with either.
    content: UnsafeCell<u64>,
    /// What it has been renamed to. Loom doesn't see this.
    name: AtomicU64,
}

/// The end of a node. Its atomics and its cell check that all accesses by others happened before;
/// whoever comes later finds garbage.
unsafe fn dispose(link: NonNull<Link>) {
    let node = link.cast::<Node>();
    // SAFETY: all links of these tables are in such nodes, and the memory stays allocated until the
    // end of the model.
    unsafe {
        node.as_ref().content.with_mut(|content| *content = 0);
        node.drop_in_place();
        node.cast::<u8>().write_bytes(0xFF, size_of::<Node>());
    }
}

/// A table, and the memory of all nodes that were ever in it.
struct Scene {
    table: Table,
    #[expect(clippy::vec_box, reason = "links stay in their place")]
    nodes: Mutex<Vec<Box<MaybeUninit<Node>>>>,
}

// SAFETY: nodes are used by way of the table, which is made for that.
unsafe impl Send for Scene {}
// SAFETY: as above.
unsafe impl Sync for Scene {}

impl Scene {
    fn new(buckets: usize, places: &[u64]) -> Arc<Self> {
        Self::with(Resizing::Manual, buckets, places)
    }

    /// Loom has no background worker: an automatic table differs in that it knows to be too small.
    fn with(resizing: Resizing, buckets: usize, places: &[u64]) -> Arc<Self> {
        let table = Table::new(buckets, resizing, dispose).unwrap();
        let scene = Arc::new(Self { table, nodes: Mutex::default() });
        places.iter().for_each(|&n| scene.insert(at(n), &read()));
        scene
    }

    fn node(&self, hash: Hash) -> NonNull<Link> {
        let mut node = Box::new(MaybeUninit::new(Node {
            link: Link::new(hash),
            content: UnsafeCell::new(0),
            name: AtomicU64::new(hash.get()),
        }));
        let link = NonNull::from(&mut *node).cast();
        self.nodes.lock().unwrap().push(node);
        // SAFETY: just made, and not shared yet.
        unsafe { link.cast::<Node>().as_ref() }.content.with_mut(|content| unsafe { *content = hash.get() });
        link
    }

    fn insert(&self, hash: Hash, guard: &Guard) {
        let new = self.node(hash);
        match self.table.entry(hash, |link| is(link, hash), guard) {
            // SAFETY: a fresh node.
            Entry::Vacant(entry) => unsafe { entry.insert(new) },
            Entry::Occupied(_) => panic!("nobody else inserts this one"),
        }
    }

    /// Unlinks a node, which the caller has to reclaim.
    fn unlink(&self, hash: Hash, guard: &Guard) -> NonNull<Link> {
        match self.table.entry(hash, |link| is(link, hash), guard) {
            Entry::Occupied(entry) => entry.remove(),
            Entry::Vacant(_) => panic!("a link that is in the table was not found by an update"),
        }
    }

    fn replace(&self, hash: Hash, guard: &Guard) -> NonNull<Link> {
        let new = self.node(hash);
        match self.table.entry(hash, |link| is(link, hash), guard) {
            // SAFETY: a fresh node.
            Entry::Occupied(entry) => unsafe { entry.replace(new) },
            Entry::Vacant(_) => panic!("a link that is in the table was not found by an update"),
        }
    }

    fn find(&self, hash: Hash, guard: &Guard) -> Option<NonNull<Link>> {
        self.table.find(hash, |link| is(link, hash), guard)
    }

    /// The places that are found by iteration.
    fn iterate(&self, guard: &Guard) -> Vec<u64> {
        // SAFETY: found under the guard.
        self.table.iter(guard).map(|link| unsafe { link.as_ref() }.hash().get() >> 60).collect()
    }

    /// What is in the table now, by each way of looking; nobody else is using it.
    fn assert_holds(&self, places: &[u64]) {
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
}

/// Reads the content of a node, and says whether it is the one looked for.
fn is(link: NonNull<Link>, hash: Hash) -> bool {
    // SAFETY: the table asks about links of its own.
    let node = unsafe { link.cast::<Node>().as_ref() };
    node.content.with(|content| unsafe { *content } == hash.get()) || node.name.load(Relaxed) == hash.get()
}

fn reclaim(link: NonNull<Link>) {
    wait_for_readers();
    // SAFETY: unlinked, and a grace period has passed.
    unsafe { dispose(link) };
}

/// The number of preemptions for models that take minutes with two: one if `RELATIVIST_LOOM_QUICK`
/// is set.
fn unless_quick(preemptions: usize) -> usize {
    if is_quick() { 1 } else { preemptions }
}

fn is_quick() -> bool {
    std::env::var_os("RELATIVIST_LOOM_QUICK").is_some()
}

/// Explores a model with so many preemptions, if `LOOM_MAX_PREEMPTIONS` doesn't say otherwise.
fn explore(preemptions: usize, model: impl Fn() + Send + Sync + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = builder.preemption_bound.or(Some(preemptions));
    builder.max_branches = 10_000;
    let executions = Arc::new(AtomicUsize::new(0));
    let counted = executions.clone();
    builder.check(move || {
        counted.fetch_add(1, Relaxed);
        model();
    });
    println!("{} executions", executions.load(Relaxed));
}

/// What a writer does in a model.
#[derive(Clone, Copy, Debug)]
enum Update {
    Insert(u64),
    Remove(u64),
    Replace(u64),
}

use Update::{Insert, Remove, Replace};

/// First of both buckets, first of the second fine bucket, last before the cut, last of all; and
/// each again in reverse.
const UPDATES: [Update; 11] = [
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
    fn place(self) -> u64 {
        let (Insert(n) | Remove(n) | Replace(n)) = self;
        n
    }

    /// The residents, and the place concerned if it is taken.
    fn places(self, residents: &[u64], is_taken: bool) -> Vec<u64> {
        let mut places: Vec<u64> = residents.iter().copied().chain(is_taken.then_some(self.place())).collect();
        places.sort_unstable();
        places
    }

    fn before(self, residents: &[u64]) -> Vec<u64> {
        self.places(residents, !matches!(self, Insert(_)))
    }

    fn after(self, residents: &[u64]) -> Vec<u64> {
        self.places(residents, !matches!(self, Remove(_)))
    }

    /// Does it, and returns what has to be reclaimed.
    fn run(self, scene: &Scene, guard: &Guard) -> Option<NonNull<Link>> {
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

/// Both directions.
fn each_way(mut model: impl FnMut(usize, usize)) {
    model(COARSE, FINE);
    model(FINE, COARSE);
}

/// T1, T8: whoever looks while the table changes from one size to the other finds the residents,
/// and nothing reclaimed.
fn lookups(from: usize, to: usize) {
    explore(unless_quick(2), move || {
        // Two in a fine bucket, which the summary tells apart, and one in the other.
        let residents = [1, 3, 5];
        let scene = Scene::new(from, &residents);
        let reader = {
            let scene = scene.clone();
            thread::spawn(move || {
                let guard = read();
                assert!(residents.iter().all(|&n| scene.find(at(n), &guard).is_some()), "a resident was missed");
            })
        };
        scene.table.resize_to(to).unwrap();
        reader.join().unwrap();
        scene.assert_holds(&residents);
    });
}

#[test]
fn lookups_while_growing() {
    lookups(COARSE, FINE);
}

#[test]
fn lookups_while_shrinking() {
    lookups(FINE, COARSE);
}

/// T1: the table grows again before any reader has left. Chains are cut when the readers of the
/// last growth have left.
#[test]
fn lookups_while_growing_twice() {
    explore(unless_quick(2), move || {
        let residents = [1, 3, 5];
        let scene = Scene::new(COARSE, &residents);
        let reader = {
            let scene = scene.clone();
            thread::spawn(move || {
                let guard = read();
                assert!(scene.find(at(3), &guard).is_some(), "a resident was missed");
            })
        };
        grow_twice(&scene);
        reader.join().unwrap();
        scene.assert_holds(&residents);
    });
}

/// Grows by two arrays, and cuts chains once.
fn grow_twice(scene: &Scene) {
    scene.table.grow_uncut(FINE).unwrap();
    // Begins a grace period that does not count for the next growth.
    GracePeriod::start().has_passed();
    scene.table.grow_uncut(FINER).unwrap();
    scene.table.resize_to(FINER).unwrap();
}

/// T2: lookups of a bucket end though an update holds its lock, and though the resizer waits in the
/// midst of a transition.
#[test]
fn lookups_wait_for_nobody() {
    each_way(|from, to| {
        explore(2, move || {
            let scene = Scene::new(from, &RESIDENTS);
            resize_alongside(&scene, to, |shared| {
                let_wait();
                let entry = scene.table.entry(at(4), |link| is(link, at(4)), shared.guard());
                let reader = {
                    let scene = scene.clone();
                    thread::spawn(move || {
                        let is_there = |n| scene.find(at(n), shared.guard()).is_some();
                        assert_eq!([0, 1, 4, 5].map(is_there), [false, true, false, true]);
                    })
                };
                reader.join().unwrap();
                drop(entry);
            });
            scene.assert_holds(&RESIDENTS);
        });
    });
}

/// A guard that threads share, so that loom has fewer sections to explore.
#[derive(Clone, Copy)]
struct Shared(&'static Guard);

// SAFETY: the guard is of use only to keep its section open, which the thread that owns it does
// until all others are done.
unsafe impl Send for Shared {}

impl Shared {
    /// # Safety
    ///
    /// The guard outlives all uses.
    unsafe fn new(guard: &Guard) -> Self {
        // SAFETY: the caller's promise.
        Self(unsafe { &*std::ptr::from_ref(guard) })
    }

    fn guard(self) -> &'static Guard {
        self.0
    }
}

/// Resizes on another thread while `others` use the table inside one section that began before.
fn resize_alongside(scene: &Arc<Scene>, to: usize, others: impl FnOnce(Shared)) {
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

/// Lets the resizer get to its wait for us. What may happen until then is not explored.
fn let_wait() {
    loom::stop_exploring();
    thread::yield_now();
    loom::explore();
}

/// T7: an iteration sees the residents once each, and so in order.
#[test]
fn iteration_while_resizing() {
    each_way(|from, to| {
        explore(2, move || {
            let scene = Scene::new(from, &[1, 5, 9]);
            resize_alongside(&scene, to, |shared| assert_eq!(scene.iterate(shared.guard()), [1, 5, 9]));
        });
    });
}

/// T7: so does a scan, which lets go of its guard between its steps.
#[test]
fn scan_while_resizing() {
    each_way(|from, to| {
        explore(unless_quick(2), move || {
            let scene = Scene::new(from, &[1, 5, 9]);
            let resizer = {
                let scene = scene.clone();
                thread::spawn(move || scene.table.resize_to(to).unwrap())
            };
            let mut seen = Vec::new();
            let mut next = Some(0);
            while let Some(cursor) = next {
                // SAFETY: found under the guard.
                let visit = |link: NonNull<Link>| seen.push(unsafe { link.as_ref() }.hash().get() >> 60);
                next = scene.table.scan(cursor, 1, &read(), visit);
            }
            assert_eq!(seen, [1, 5, 9]);
            resizer.join().unwrap();
        });
    });
}

/// So many buckets that iterations skip the empty ones while there are fewer than four links: each
/// has two places.
const SPARSE: usize = FINER;

/// A table with a summary of the buckets that are not empty, open for being filled.
fn sparse_scene(buckets: usize, places: &[u64]) -> Arc<Scene> {
    let scene = Scene::new(buckets, places);
    assert_eq!(scene.iterate(&read()), places);
    wait_for_readers();
    scene
}

/// T7: a link that was found is seen by the iteration that comes after.
#[test]
fn sparse_iteration_sees_insertions() {
    explore(2, || {
        let scene = sparse_scene(SPARSE, &RESIDENTS);
        assert_eq!(scene.iterate(&read()), RESIDENTS);
        let writer = {
            let scene = scene.clone();
            thread::spawn(move || scene.insert(at(7), &read()))
        };
        let guard = read();
        let found = scene.find(at(7), &guard).is_some();
        let seen = scene.iterate(&guard);
        assert!(seen == [1, 5, 7] || !found && seen == RESIDENTS, "{seen:?}");
        drop(guard);
        writer.join().unwrap();
        assert_eq!(scene.iterate(&read()), [1, 5, 7]);
    });
}

/// T7: the update may have begun before there was a summary.
#[test]
fn sparse_iteration_waits_for_updates_that_know() {
    explore(unless_quick(2), || {
        let scene = Scene::new(SPARSE, &RESIDENTS);
        let writer = {
            let scene = scene.clone();
            thread::spawn(move || scene.insert(at(7), &read()))
        };
        for _ in 0..2 {
            let seen = scene.iterate(&read());
            assert!(seen == [1, 5, 7] || seen == RESIDENTS, "{seen:?}");
        }
        writer.join().unwrap();
        assert_eq!(scene.iterate(&read()), [1, 5, 7]);
    });
}

/// T7: what one iteration has noted another one relies upon.
#[test]
fn sparse_iterations_share_their_notes() {
    explore(2, || {
        let scene = sparse_scene(SPARSE, &RESIDENTS);
        let other = {
            let scene = scene.clone();
            thread::spawn(move || assert_eq!(scene.iterate(&read()), RESIDENTS))
        };
        assert_eq!(scene.iterate(&read()), RESIDENTS);
        other.join().unwrap();
    });
}

/// T8: a summary that is replaced lives on for those who have found it.
#[test]
fn sparse_iteration_replaces_a_stale_summary() {
    explore(2, || {
        let scene = sparse_scene(SPARSE, &RESIDENTS);
        assert_eq!(scene.iterate(&read()), RESIDENTS);
        for n in RESIDENTS {
            scene.unlink(at(n), &read());
        }
        let writer = {
            let scene = scene.clone();
            thread::spawn(move || scene.insert(at(7), &read()))
        };
        let seen = scene.iterate(&read());
        assert!(seen.is_empty() || seen == [7]);
        writer.join().unwrap();
        assert_eq!(scene.iterate(&read()), [7]);
        barrier();
    });
}

/// T7: an iteration may use the summary of the old array and then find a new one that has none.
#[test]
fn sparse_iteration_while_growing() {
    explore(1, || {
        let scene = sparse_scene(FINE, &[5]);
        resize_alongside(&scene, SPARSE, |shared| assert_eq!(scene.iterate(shared.guard()), [5]));
        assert_eq!(scene.iterate(&read()), [5]);
    });
}

/// T7: the summary of the new array may be in use while its groups are still in transition.
#[test]
fn sparse_iteration_sees_insertions_while_resizing() {
    explore(1, || {
        let scene = Scene::new(FINE, &RESIDENTS);
        let guard = read();
        let resizer = {
            let scene = scene.clone();
            thread::spawn(move || scene.table.resize_to(SPARSE).unwrap())
        };
        let_wait();
        drop(guard);
        loom::stop_exploring();
        assert_eq!(scene.iterate(&read()), RESIDENTS);
        wait_for_readers();
        assert_eq!(scene.iterate(&read()), RESIDENTS);
        loom::explore();
        scene.insert(at(7), &read());
        assert_eq!(scene.iterate(&read()), [1, 5, 7]);
        resizer.join().unwrap();
        assert_eq!(scene.iterate(&read()), [1, 5, 7]);
    });
}

/// An update beside the transition is in the table afterwards, whichever way one looks, and so is
/// all else.
fn updates(from: usize, to: usize, residents: &'static [u64], updates: &[Update]) {
    for &update in updates {
        explore(unless_quick(2), move || {
            let scene = Scene::with(Resizing::Automatic, from, &update.before(residents));
            let writer = {
                let scene = scene.clone();
                thread::spawn(move || _ = update.run(&scene, &read()))
            };
            scene.table.resize_to(to).unwrap();
            writer.join().unwrap();
            scene.assert_holds(&update.after(residents));
        });
    }
}

#[test]
fn updates_while_growing() {
    updates(COARSE, FINE, &RESIDENTS, &UPDATES);
}

#[test]
fn updates_while_shrinking() {
    updates(FINE, COARSE, &RESIDENTS, &UPDATES);
}

/// One head covers more heads than the resizer changes in one step.
#[test]
fn updates_while_joining_in_steps() {
    updates(FINER, COARSE, &RESIDENTS, &[Insert(0), Insert(4), Remove(3), Replace(4)]);
}

#[test]
fn updates_while_cutting_in_steps() {
    for update in [Insert(4), Remove(4), Replace(4), Insert(3), Insert(7)] {
        explore(1, move || {
            let scene = Scene::new(COARSE, &update.before(&RESIDENTS));
            scene.table.grow_uncut(FINER).unwrap();
            let writer = {
                let scene = scene.clone();
                thread::spawn(move || _ = update.run(&scene, &read()))
            };
            scene.table.resize_to(FINER).unwrap();
            writer.join().unwrap();
            scene.assert_holds(&update.after(&RESIDENTS));
        });
    }
}

/// T1: an update keeps right the published array, and the one that is being filled to replace it.
#[test]
fn updates_while_growing_twice() {
    for update in [Insert(4), Remove(4), Insert(3)] {
        explore(1, move || {
            let scene = Scene::new(COARSE, &update.before(&RESIDENTS));
            let writer = {
                let scene = scene.clone();
                thread::spawn(move || _ = update.run(&scene, &read()))
            };
            grow_twice(&scene);
            writer.join().unwrap();
            scene.assert_holds(&update.after(&RESIDENTS));
        });
    }
}

/// The same for a table that is uncut already when the update begins: this has fewer interleavings.
#[test]
fn updates_of_an_uncut_table() {
    for update in UPDATES {
        explore(unless_quick(2), move || {
            let scene = Scene::new(COARSE, &update.before(&RESIDENTS));
            scene.table.grow_uncut(FINE).unwrap();
            let writer = {
                let scene = scene.clone();
                thread::spawn(move || _ = update.run(&scene, &read()))
            };
            scene.table.grow_uncut(FINER).unwrap();
            writer.join().unwrap();
            scene.table.resize_to(FINER).unwrap();
            scene.assert_holds(&update.after(&RESIDENTS));
        });
    }
}

/// A group whose links are all in one fine bucket, or that has none, is entered into the fine heads
/// without its lock.
#[test]
fn updates_of_one_side_while_growing() {
    let one_side = [Insert(0), Insert(4), Remove(0), Remove(4), Replace(4)];
    for residents in [&[][..], &[1], &[5]] {
        updates(COARSE, FINE, residents, &one_side);
    }
}

/// With more links than buckets the resizer does not look at chains that need no cut.
#[test]
fn updates_while_growing_in_haste() {
    updates(COARSE, FINE, &[1, 2, 9, 10, 11], &[Insert(0), Insert(4), Remove(0), Remove(4)]);
}

impl Scene {
    /// Empties the table, and returns the places that had links, in order. These are not reclaimed.
    fn clear(&self, guard: &Guard) -> Vec<u64> {
        let mut places = Vec::new();
        // SAFETY: alive for the guard.
        self.table.clear(guard, |link| places.push(unsafe { link.as_ref() }.hash().get() >> 60));
        assert!(places.is_sorted());
        places
    }
}

/// Nothing that was there is left when the table has been emptied beside a transition, and each
/// link was handed out once.
#[test]
fn clearing_while_resizing() {
    each_way(|from, to| {
        explore(unless_quick(2), move || {
            let scene = Scene::new(from, &[1, 3, 5]);
            let writer = {
                let scene = scene.clone();
                thread::spawn(move || assert_eq!(scene.clear(&read()), [1, 3, 5]))
            };
            scene.table.resize_to(to).unwrap();
            writer.join().unwrap();
            scene.assert_holds(&[]);
        });
    });
}

/// Two who empty a table share its links.
#[test]
fn clearing_during_clearing() {
    explore(2, || {
        let scene = Scene::new(COARSE, &[1, 3, 9]);
        let other = {
            let scene = scene.clone();
            thread::spawn(move || scene.clear(&read()))
        };
        let mut places = scene.clear(&read());
        places.extend(other.join().unwrap());
        places.sort_unstable();
        assert_eq!(places, [1, 3, 9]);
        scene.assert_holds(&[]);
    });
}

/// T8: neither a reader nor the resizer touches what has been removed and reclaimed meanwhile.
#[test]
fn reclamation_while_resizing() {
    each_way(|from, to| {
        explore(unless_quick(2), move || {
            let scene = Scene::new(from, &[1, 4, 5]);
            let writer = {
                let scene = scene.clone();
                thread::spawn(move || {
                    let removed = scene.unlink(at(4), &read());
                    reclaim(removed);
                })
            };
            scene.table.resize_to(to).unwrap();
            writer.join().unwrap();
            scene.assert_holds(&RESIDENTS);
        });
    });
}

/// T9: an entry that comes to nothing leaves no lock held, in a table at rest and in one under way.
#[test]
fn entries_unlock_while_resizing() {
    each_way(|from, to| {
        explore(unless_quick(2), move || {
            let scene = Scene::new(from, &RESIDENTS);
            resize_alongside(&scene, to, |shared| {
                for hash in [at(4), at(5)] {
                    drop(scene.table.entry(hash, |link| is(link, hash), shared.guard()));
                }
                scene.insert(at(4), shared.guard());
            });
            scene.assert_holds(&[1, 4, 5]);
        });
    });
}

/// T4: the resizer waits for readers meanwhile, but updates don't. Updates of either fine bucket at
/// once: the one lock that counts for the group keeps them apart.
#[test]
fn two_updates_while_resizing() {
    each_way(|from, to| {
        let pairs = [(Remove(4), Insert(3)), (Insert(4), Insert(3)), (Remove(4), Remove(3))];
        for &(mine, other) in &pairs[..if is_quick() { 1 } else { 3 }] {
            let is_there = |updates: [Update; 2], present: fn(Update) -> bool| {
                let mut places: Vec<u64> = updates.into_iter().filter(|&u| present(u)).map(Update::place).collect();
                places.extend(RESIDENTS);
                places.sort_unstable();
                places
            };
            let before = is_there([mine, other], |update| matches!(update, Remove(_)));
            let after = is_there([mine, other], |update| matches!(update, Insert(_)));
            explore(1, move || {
                let scene = Scene::new(from, &before);
                resize_alongside(&scene, to, |shared| {
                    let writer = {
                        let scene = scene.clone();
                        thread::spawn(move || _ = other.run(&scene, shared.guard()))
                    };
                    mine.run(&scene, shared.guard());
                    writer.join().unwrap();
                });
                scene.assert_holds(&after);
            });
        }
    });
}

/// T3: what one lookup has seen of an update, the next one does not deny, though the first came by
/// the older array.
fn lookups_agree(from: usize, to: usize) {
    for update in [Insert(4), Remove(4), Replace(4), Insert(3), Remove(3)] {
        explore(unless_quick(2), move || {
            let scene = Scene::new(from, &update.before(&RESIDENTS));
            resize_alongside(&scene, to, |shared| {
                let look = || scene.find(at(update.place()), shared.guard());
                let old = look();
                let writer = {
                    let scene = scene.clone();
                    thread::spawn(move || _ = update.run(&scene, shared.guard()))
                };
                let (first, second) = (look(), look());
                assert!(first == old || second == first, "{update:?} was seen, and then not");
                writer.join().unwrap();
            });
        });
    }
}

#[test]
fn lookups_agree_while_growing() {
    lookups_agree(COARSE, FINE);
}

#[test]
fn lookups_agree_while_shrinking() {
    lookups_agree(FINE, COARSE);
}

/// T3: nor if the table is uncut, and the first lookup entered by the array that is being replaced.
#[test]
fn lookups_agree_while_growing_twice() {
    for update in [Insert(4), Remove(4), Replace(4), Insert(2), Remove(2)] {
        explore(unless_quick(2), move || {
            let scene = Scene::new(COARSE, &update.before(&RESIDENTS));
            scene.table.grow_uncut(FINE).unwrap();
            let guard = read();
            let resizer = {
                let scene = scene.clone();
                thread::spawn(move || scene.table.grow_uncut(FINER).unwrap())
            };
            // SAFETY: the threads that use it are joined first.
            let shared = unsafe { Shared::new(&guard) };
            let look = || scene.find(at(update.place()), shared.guard());
            let old = look();
            let writer = {
                let scene = scene.clone();
                thread::spawn(move || _ = update.run(&scene, shared.guard()))
            };
            let (first, second) = (look(), look());
            assert!(first == old || second == first, "{update:?} was seen, and then not");
            writer.join().unwrap();
            let last = look();
            assert_eq!(last.is_some(), !matches!(update, Remove(_)), "{update:?} has returned, and was not seen");
            resizer.join().unwrap();
            drop(guard);
        });
    }
}

/// T3: a lookup that still has the head word from before a removal may find what was inserted
/// since. Then so does the next.
fn lookups_agree_after_a_stale_head(from: usize, to: usize) {
    explore(unless_quick(2), move || {
        let scene = Scene::new(from, &[1, 2]);
        resize_alongside(&scene, to, |shared| {
            let_wait();
            let writer = {
                let scene = scene.clone();
                thread::spawn(move || {
                    scene.unlink(at(2), shared.guard());
                    scene.insert(next_to(2), shared.guard());
                })
            };
            let look = || scene.find(next_to(2), shared.guard()).is_some();
            let (first, second) = (look(), look());
            assert!(!first || second, "an insertion was seen, and then not");
            writer.join().unwrap();
        });
    });
}

#[test]
fn lookups_agree_after_a_stale_head_at_rest() {
    lookups_agree_after_a_stale_head(FINE, FINE);
}

#[test]
fn lookups_agree_after_a_stale_head_while_resizing() {
    each_way(lookups_agree_after_a_stale_head);
}

/// An update that has found heads of one resize stays correct during the next one, which begins at
/// once.
fn updates_across(sizes: &'static [usize]) {
    for update in [Insert(4), Remove(4)] {
        explore(1, move || {
            let scene = Scene::new(sizes[0], &update.before(&RESIDENTS));
            let writer = {
                let scene = scene.clone();
                thread::spawn(move || _ = update.run(&scene, &read()))
            };
            sizes[1..].iter().for_each(|&size| scene.table.resize_to(size).unwrap());
            writer.join().unwrap();
            scene.assert_holds(&update.after(&RESIDENTS));
        });
    }
}

/// The table has grown and is uncut when the update begins. So it may hold what it has found of
/// that growth while chains are cut, and while the table shrinks.
#[test]
fn updates_across_a_cut_and_shrinking() {
    explore(unless_quick(2), move || {
        let update = Insert(4);
        let scene = Scene::new(COARSE, &update.before(&RESIDENTS));
        scene.table.grow_uncut(FINE).unwrap();
        let writer = {
            let scene = scene.clone();
            thread::spawn(move || _ = update.run(&scene, &read()))
        };
        scene.table.resize_to(COARSE).unwrap();
        writer.join().unwrap();
        scene.assert_holds(&update.after(&RESIDENTS));
    });
}

#[test]
fn updates_across_growing_and_shrinking() {
    updates_across(&[COARSE, FINE, COARSE]);
}

#[test]
fn updates_across_shrinking_and_growing() {
    updates_across(&[FINE, COARSE, FINE]);
}

#[test]
fn updates_across_shrinking_twice() {
    updates_across(&[FINER, FINE, COARSE]);
}

#[test]
fn updates_across_growing_twice() {
    updates_across(&[COARSE, FINE, FINER]);
}

/// The coarse array of a table that has grown is freed when nobody looks at its marks any more.
#[test]
fn arrays_are_freed_behind_updates() {
    explore(unless_quick(2), || {
        let scene = Scene::new(COARSE, &RESIDENTS);
        let writer = {
            let scene = scene.clone();
            thread::spawn(move || scene.insert(at(4), &read()))
        };
        scene.table.resize_to(FINE).unwrap();
        barrier();
        writer.join().unwrap();
    });
}
