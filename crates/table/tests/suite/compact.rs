//! Tables of compact links.

use std::cell::UnsafeCell;
use std::collections::BTreeSet;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread;

use relativist_rcu::{read, wait_for_readers};
use relativist_table::{CompactLink, Entry, Hash, Policy, Resizing, Table};
use relativist_testing::random::mix;

#[repr(C)]
struct Object {
    link: CompactLink,
    key: u64,
}

/// Every 16 keys differ only in bits that a compact link does not have.
fn hash(key: u64) -> Hash {
    Hash::from_mixed((mix(key / 16) >> 37 << 37) + key % 16)
}

fn key(link: NonNull<CompactLink>) -> u64 {
    // SAFETY: the links of these tables are in such objects, which outlive the tables.
    let object = unsafe { link.cast::<Object>().as_ref() };
    assert_eq!(object.link.user_bit(), object.key % 2 == 1);
    object.key
}

/// A table, and objects side by side: on the heap of a program with threads, objects may lie
/// further apart than compact links reach.
struct Scene {
    table: Table<CompactLink>,
    objects: Box<[UnsafeCell<Object>]>,
}

// SAFETY: objects do not change, except for their links, which are atomic.
unsafe impl Sync for Scene {}

impl Scene {
    fn new(keys: u64) -> Self {
        let object = |key| UnsafeCell::new(Object { link: CompactLink::with_user_bit(hash(key), key % 2 == 1), key });
        let table = Table::with_compact_links(2, Resizing::Manual, |_| ()).unwrap();
        Self { table, objects: (0..keys).map(object).collect() }
    }

    /// Inserts the object of this key, which no other thread updates.
    fn insert(&self, new: u64) {
        let link = NonNull::new(self.objects[new as usize].get()).unwrap().cast();
        match self.table.entry(hash(new), |link| key(link) == new, &read()) {
            // SAFETY: the callers wait for readers before they insert an object again.
            Entry::Vacant(entry) => unsafe { entry.insert(link) },
            Entry::Occupied(_) => panic!("{new} is in the table"),
        }
    }

    fn remove(&self, old: u64) -> bool {
        self.table.remove(hash(old), |link| key(link) == old, &read()).is_some()
    }

    fn has(&self, wanted: u64) -> bool {
        self.table.find(hash(wanted), |link| key(link) == wanted, &read()).is_some()
    }
}

/// T1, T7: keys with equal partial hashes are distinguished, in tables of all sizes.
#[test]
fn keys_with_equal_partial_hashes_are_distinguished() {
    const KEYS: u64 = if cfg!(miri) { 100 } else { 2000 };
    let scene = Scene::new(KEYS);
    (0..KEYS).for_each(|n| scene.insert(n));
    for buckets in [64, 4096, 16, 1024, 2] {
        scene.table.resize_to(buckets).unwrap();
        assert!((0..2 * KEYS).all(|n| scene.has(n) == (n < KEYS)), "in {buckets} buckets");
        let guard = read();
        let seen: Vec<u64> = scene.table.iter(&guard).map(key).collect();
        assert_eq!(seen.len(), KEYS as usize);
        assert!(seen.into_iter().collect::<BTreeSet<_>>().into_iter().eq(0..KEYS));
    }
    assert!((0..KEYS).step_by(3).all(|n| scene.remove(n) && !scene.remove(n)));
    scene.table.resize_to(512).unwrap();
    assert!((0..KEYS).all(|n| scene.has(n) == (n % 3 != 0)));
}

/// More buckets than there are partial hashes would stay empty.
#[test]
fn a_table_grows_up_to_one_bucket_per_partial_hash() {
    let table = Scene::new(0).table;
    assert_eq!(table.policy().buckets_for(usize::MAX), 1 << 27);
    let policy = Policy::default().buckets(2..=64).unwrap();
    let table = Table::with_compact_links(2, policy, |_| ()).unwrap();
    assert_eq!(table.policy().buckets_for(usize::MAX), 64);
}

/// T1: lookups find what is in the table throughout, while it is resized and updated.
#[test]
fn lookups_find_residents_during_resizes_and_updates() {
    const KEYS: u64 = if cfg!(miri) { 40 } else { 800 };
    let (scene, is_done) = (Scene::new(KEYS), AtomicBool::new(false));
    (0..KEYS).step_by(2).for_each(|n| scene.insert(n));
    thread::scope(|scope| {
        scope.spawn(|| {
            while !is_done.load(Relaxed) {
                assert!((0..KEYS).step_by(2).all(|n| scene.has(n)), "a resident was missed");
            }
        });
        scope.spawn(|| {
            while !is_done.load(Relaxed) {
                (1..KEYS).step_by(2).for_each(|n| scene.insert(n));
                assert!((1..KEYS).step_by(2).all(|n| scene.remove(n)));
                wait_for_readers();
            }
        });
        for buckets in [4, 512, 8, 64, 2].into_iter().cycle().take(if cfg!(miri) { 5 } else { 200 }) {
            scene.table.resize_to(buckets).unwrap();
        }
        is_done.store(true, Relaxed);
    });
    assert_eq!(scene.table.len(), KEYS as usize / 2);
}
