//! Models of a cache, explored by loom: lookups beside updates of the same shard. In models a
//! segment has three slots, and a table grows from the third entry on.

use std::cell::Cell;
use std::hash::{BuildHasher, Hasher};

use loom::cell::UnsafeCell;
use loom::sync::Arc;
use loom::sync::atomic::AtomicUsize;
use loom::thread;

use crate::{Builder, Cache, read};
use relativist_core::sync::Relaxed;

thread_local! {
    /// The number of values that are not dropped yet. All threads of a model run on one thread.
    static ALIVE: Cell<isize> = const { Cell::new(0) };
}

/// A value that is written when it is dropped: loom fails a model if a read races with that.
struct Value(UnsafeCell<u64>);

// SAFETY: a number may be sent to any thread.
unsafe impl Send for Value {}
// SAFETY: loom checks that no thread accesses the cell while another one writes to it.
unsafe impl Sync for Value {}

impl Value {
    fn new(number: u64) -> Self {
        ALIVE.set(ALIVE.get() + 1);
        let value = Self(UnsafeCell::new(0));
        // Loom sees that this comes before all reads, or does not.
        // SAFETY: no other thread has it.
        value.0.with_mut(|value| unsafe { *value = number });
        value
    }

    fn number(&self) -> u64 {
        // SAFETY: see `Sync`.
        self.0.with(|number| unsafe { *number })
    }
}

impl Clone for Value {
    fn clone(&self) -> Self {
        Self::new(self.number())
    }
}

impl Drop for Value {
    fn drop(&mut self) {
        ALIVE.set(ALIVE.get() - 1);
        // SAFETY: see `Sync`.
        self.0.with_mut(|number| unsafe { *number = u64::MAX });
    }
}

/// Keys below 8 are in the first bucket of a table, and have the same tag. 64 is in the last one.
#[derive(Clone, Copy, Default)]
struct Places(u64);

impl BuildHasher for Places {
    type Hasher = Self;

    fn build_hasher(&self) -> Self {
        *self
    }
}

impl Hasher for Places {
    fn finish(&self) -> u64 {
        match self.0 {
            ..8 => 0,
            64 => u64::MAX,
            key => u64::MAX / key,
        }
    }

    fn write(&mut self, _: &[u8]) {}

    fn write_u64(&mut self, key: u64) {
        self.0 = key;
    }
}

type Modelled = Cache<u64, Value, Places>;

fn builder(capacity: u64) -> Builder<u64, Value, Places> {
    Cache::builder().capacity(capacity).hasher(Places::default())
}

/// Explores what `reads` sees while `updates` runs in another thread, on a cache with these keys.
fn explore(keys: u64, capacity: u64, updates: fn(&Modelled), reads: fn(&Modelled)) {
    let mut model = loom::model::Builder::new();
    model.preemption_bound.get_or_insert(2);
    model.max_branches = 10_000;
    model.check(move || {
        ALIVE.set(0);
        let cache = builder(capacity).build();
        (1..=keys).for_each(|key| cache.insert(key, Value::new(key)));
        let updated = cache.clone();
        let updating = thread::spawn(move || updates(&updated));
        reads(&cache);
        updating.join().unwrap();
        assert!(cache.weight() <= cache.capacity());
        cache.run_pending_tasks();
        assert_eq!(ALIVE.get(), cache.len() as isize);
        drop(cache);
        assert_eq!(ALIVE.get(), 0);
    });
}

fn number(cache: &Modelled, key: u64) -> Option<u64> {
    cache.get_ref(&key, &read()).map(Value::number)
}

/// A slot is used for the first time.
#[test]
fn a_new_key_is_found_as_it_was_made() {
    explore(
        1,
        10,
        |cache| cache.insert(2, Value::new(2)),
        |cache| {
            assert!([None, Some(2)].contains(&number(cache, 2)));
            assert_eq!(number(cache, 1), Some(1));
        },
    );
}

/// A slot is used again for another key, beside one that stays.
#[test]
fn a_key_that_stays_is_found() {
    explore(
        2,
        10,
        |cache| {
            cache.invalidate(&1);
            cache.insert(3, Value::new(3));
        },
        |cache| {
            assert_eq!(number(cache, 2), Some(2));
            assert!([None, Some(1)].contains(&number(cache, 1)));
            assert!([None, Some(3)].contains(&number(cache, 3)));
        },
    );
}

/// A key is removed and inserted again, most likely in the same slot. Once a lookup has found the
/// new entry, the next one does, too.
#[test]
fn a_key_that_has_come_back_stays() {
    explore(
        1,
        10,
        |cache| {
            cache.invalidate(&1);
            cache.insert(1, Value::new(11));
        },
        |cache| {
            let (first, second) = (number(cache, 1), number(cache, 1));
            let order = [Some(1), None, Some(11)].map(Some);
            let place = |found| order.iter().position(|&other| other == Some(found));
            assert!(place(first) <= place(second), "{first:?} and then {second:?}");
        },
    );
}

#[test]
fn a_key_that_is_replaced_is_found() {
    explore(
        1,
        10,
        |cache| {
            cache.insert(1, Value::new(11));
            cache.insert(1, Value::new(12));
        },
        |cache| {
            let first = number(cache, 1).expect("the key is present");
            let second = number(cache, 1).expect("the key is present");
            assert!(first <= second || first == 1);
        },
    );
}

/// The first insertion moves the first bucket, and the second one the last.
#[test]
fn a_key_is_found_while_the_table_grows() {
    explore(
        2,
        10,
        |cache| {
            cache.insert(64, Value::new(64));
            cache.insert(9, Value::new(9));
        },
        |cache| {
            // In one section: a later one would see all that was done before it began.
            let guard = read();
            let [first, second, one] = [64, 64, 1].map(|key| cache.get_ref(&key, &guard).map(Value::number));
            assert!(first.is_none() || second.is_some(), "{first:?} and then {second:?}");
            assert_eq!(one, Some(1));
        },
    );
}

#[test]
fn a_key_that_has_moved_can_be_removed() {
    explore(
        2,
        10,
        |cache| {
            cache.insert(9, Value::new(9));
            cache.invalidate(&1);
            assert_eq!((number(cache, 1), number(cache, 2)), (None, Some(2)));
        },
        |cache| {
            let (first, second) = (number(cache, 1), number(cache, 1));
            assert!(first.is_some() || second.is_none(), "{first:?} and then {second:?}");
            assert_eq!(number(cache, 2), Some(2));
        },
    );
}

/// Later segments come and go.
#[test]
fn a_key_in_a_later_segment_is_found() {
    explore(
        4,
        10,
        |cache| {
            cache.invalidate(&1);
            cache.insert(5, Value::new(5));
        },
        |cache| {
            assert_eq!(number(cache, 4), Some(4));
            assert_eq!(number(cache, 2), Some(2));
        },
    );
}

/// The fifth insertion moves the bucket, whose later segment is freed.
#[test]
fn a_key_in_a_later_segment_that_moves_is_found() {
    explore(4, 10, |cache| cache.insert(5, Value::new(5)), |cache| assert_eq!(number(cache, 4), Some(4)));
}

/// A value that was evicted is not dropped while a reader has it, and the two are never in the
/// cache at the same time.
#[test]
fn an_evicted_value_stays_for_its_readers() {
    explore(
        1,
        1,
        |cache| {
            cache.insert(2, Value::new(2));
            cache.run_pending_tasks();
        },
        |cache| {
            let guard = read();
            let old = cache.get_ref(&1, &guard);
            let new = cache.get_ref(&2, &guard);
            if new.is_some() {
                assert!(cache.get_ref(&1, &guard).is_none());
            }
            assert_eq!(old.map_or(1, Value::number), 1);
        },
    );
}

#[test]
fn nothing_invalidated_is_found_later() {
    explore(
        2,
        10,
        |cache| {
            cache.invalidate_all();
            assert_eq!((number(cache, 1), number(cache, 2)), (None, None));
            cache.insert(1, Value::new(11));
        },
        |cache| {
            let (second, first) = (number(cache, 2), number(cache, 1));
            assert!(second.is_some() || first != Some(1), "all leave at once");
        },
    );
}

/// The program changes what loaders read, and then invalidates. What the cache has in the end is
/// not older.
#[test]
fn a_load_from_before_an_invalidation_is_not_kept() {
    let mut model = loom::model::Builder::new();
    model.preemption_bound.get_or_insert(3);
    model.check(|| {
        let cache: Cache<u64, u64, Places> = Cache::builder().capacity(10).hasher(Places::default()).build();
        let source = Arc::new(AtomicUsize::new(1));
        let (loading, loaded) = (cache.clone(), Arc::clone(&source));
        // Relaxed, both: the cache orders them.
        let load = thread::spawn(move || loading.get_or_insert_with(1, || loaded.load(Relaxed) as u64));
        source.store(2, Relaxed);
        cache.invalidate(&1);
        assert!([None, Some(2)].contains(&cache.peek(&1)));
        load.join().unwrap();
        assert!([None, Some(2)].contains(&cache.peek(&1)));
    });
}
