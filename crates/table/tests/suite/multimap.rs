//! The table as a multimap: duplicates of a hash and of a key, compared with a plain vector.

use std::cell::Cell;
use std::ptr::NonNull;

use proptest::collection::vec;
use proptest::prelude::*;
use proptest::test_runner::{Config, RngAlgorithm, TestRng, TestRunner};
use relativist_rcu::{defer_raw, read};
use relativist_table::{Entry, Hash, Link, Resizing, Table};

use crate::tally::{Counted, Tally};

#[repr(C)]
struct Object {
    link: Link,
    key: u64,
    value: Counted,
}

impl Object {
    fn new(key: u64, tally: &'static Tally) -> Box<Self> {
        Box::new(Self { link: Link::new(hash_of(key)), key, value: Counted::new(tally) })
    }

    fn into_link(self: Box<Self>) -> NonNull<Link> {
        NonNull::from(Box::leak(self)).cast()
    }

    /// Requires a link in a table of objects, under its lock or in a read section that lasts for
    /// `'a`.
    fn of<'a>(link: NonNull<Link>) -> &'a Self {
        // SAFETY: such links are the first fields of objects, and alive.
        unsafe { link.cast().as_ref() }
    }

    unsafe fn dispose(link: NonNull<Link>) {
        // SAFETY: made by `into_link`, and unlinked.
        drop(unsafe { Box::from_raw(link.cast::<Self>().as_ptr()) });
    }

    fn retire(link: NonNull<Link>) {
        // SAFETY: unlinked by the caller, and freed once.
        unsafe { defer_raw(link.cast(), size_of::<Self>(), |link| Self::dispose(link.cast())) };
    }
}

/// Returns the hash of a key. Two keys share each hash.
fn hash_of(key: u64) -> Hash {
    Hash::new(key / 2)
}

#[derive(Debug, Clone)]
enum Operation {
    Add(u64),
    RemoveOne(u64),
    ReplaceOne(u64),
    ResizeTo(usize),
}

fn operations() -> impl Strategy<Value = Vec<Operation>> {
    let key = || 0..16u64;
    vec(
        prop_oneof![
            6 => key().prop_map(Operation::Add),
            4 => key().prop_map(Operation::RemoveOne),
            2 => key().prop_map(Operation::ReplaceOne),
            2 => (0..9u32).prop_map(|bits| Operation::ResizeTo(1 << bits)),
        ],
        1..150,
    )
}

struct Pair {
    table: Table,
    tally: &'static Tally,
    /// Key and identity of each object, in no order.
    model: Vec<(u64, u64)>,
}

impl Pair {
    fn new(tally: &'static Tally) -> Self {
        let table = Table::new(2, Resizing::Manual, Object::dispose).unwrap();
        Self { table, tally, model: Vec::new() }
    }

    fn apply(&mut self, operation: Operation) {
        match operation {
            Operation::Add(key) => self.add(key),
            Operation::RemoveOne(key) => self.remove_one(key),
            Operation::ReplaceOne(key) => self.replace_one(key),
            Operation::ResizeTo(buckets) => self.table.resize_to(buckets).unwrap(),
        }
    }

    /// Adds an object, also if the key is present.
    fn add(&mut self, key: u64) {
        let object = Object::new(key, self.tally);
        self.model.push((key, object.value.id()));
        // SAFETY: a fresh object.
        unsafe { self.table.insert(object.into_link(), &read()) };
    }

    fn remove_one(&mut self, key: u64) {
        let guard = read();
        match self.table.entry(hash_of(key), |link| Object::of(link).key == key, &guard) {
            Entry::Occupied(entry) => {
                let link = entry.remove();
                forget(&mut self.model, key, Object::of(link).value.id());
                Object::retire(link);
            }
            Entry::Vacant(_) => assert!(self.ids(|its| its == key).is_empty()),
        }
    }

    /// Replaces the last object with this key, so that there are others before it.
    fn replace_one(&mut self, key: u64) {
        let Some(&id) = self.ids(|its| its == key).last() else { return };
        let guard = read();
        let is_it = |link| Object::of(link).value.id() == id;
        let Entry::Occupied(entry) = self.table.entry(hash_of(key), is_it, &guard) else {
            panic!("{key} was lost");
        };
        let object = Object::new(key, self.tally);
        self.model.push((key, object.value.id()));
        // SAFETY: a fresh object.
        let old = unsafe { entry.replace(object.into_link()) };
        forget(&mut self.model, key, Object::of(old).value.id());
        Object::retire(old);
    }

    /// Returns the identities of the objects with such keys, in their order.
    fn ids(&self, is_such: impl Fn(u64) -> bool) -> Vec<u64> {
        let mut ids: Vec<u64> = self.model.iter().filter(|it| is_such(it.0)).map(|it| it.1).collect();
        ids.sort_unstable();
        ids
    }

    fn assert_equal(&self) {
        let guard = read();
        for key in 0..16 {
            let mut asked = Vec::new();
            let found = self.table.find(
                hash_of(key),
                |link| {
                    asked.push(Object::of(link).value.id());
                    false
                },
                &guard,
            );
            assert!(found.is_none());
            let all: Vec<u64> =
                self.table.find_all(hash_of(key), &guard).map(|link| Object::of(link).value.id()).collect();
            assert_eq!(all, asked, "in the same order");
            asked.sort_unstable();
            assert_eq!(asked, self.ids(|its| its / 2 == key / 2), "a lookup asks about all links with the hash, once");
            let found = self.table.find(hash_of(key), |link| Object::of(link).key == key, &guard);
            assert_eq!(found.is_some(), !self.ids(|its| its == key).is_empty(), "T1");
        }
        let last = Cell::new(0);
        let in_order = |link: &NonNull<Link>| last.replace(Object::of(*link).link.hash().get()) <= last.get();
        let mut seen: Vec<u64> = self
            .table
            .iter(&guard)
            .inspect(|link| assert!(in_order(link)))
            .map(|link| Object::of(link).value.id())
            .collect();
        seen.sort_unstable();
        assert_eq!(seen, self.ids(|_| true), "T7");
        assert_eq!((self.table.len(), self.table.stats().entries), (self.model.len(), self.model.len()));
    }
}

fn forget(model: &mut Vec<(u64, u64)>, key: u64, id: u64) {
    let at = model.iter().position(|&it| it == (key, id)).expect("removed what was not there");
    model.swap_remove(at);
}

#[test]
fn holds_duplicates_of_hashes_and_keys() {
    static TALLY: Tally = Tally::new();
    let config = Config { cases: 80, failure_persistence: None, ..Config::default() };
    let mut runner = TestRunner::new_with_rng(config, TestRng::deterministic_rng(RngAlgorithm::ChaCha));
    let result = runner.run(&operations(), |operations| {
        let mut pair = Pair::new(&TALLY);
        for operation in operations {
            pair.apply(operation);
            pair.assert_equal();
        }
        drop(pair);
        TALLY.assert_live(0);
        Ok(())
    });
    result.unwrap_or_else(|error| panic!("{error}"));
}

/// An entry that is dropped without a change has released its lock.
#[test]
fn entries_unlock_when_dropped() {
    static TALLY: Tally = Tally::new();
    let mut pair = Pair::new(&TALLY);
    pair.add(1);
    let guard = read();
    for _ in 0..2 {
        let entry = pair.table.entry(hash_of(1), |_| true, &guard);
        assert!(matches!(&entry, Entry::Occupied(entry) if Object::of(entry.get()).key == 1));
        drop(entry);
        drop(pair.table.entry(hash_of(1), |_| false, &guard));
    }
}
