//! The raw table as a subject of the suite. Its user code includes the functions that compare, move
//! and free links.

use std::ptr::NonNull;

use relativist::{AllocError, Resizing, Stats, read};
use relativist_rcu::{Guard, defer_raw};
use relativist_table::{Entry, Hash, Link, Table};

use crate::explore::Effect::{Leaks, Step};
use crate::explore::Subject;
use crate::operations::Operation;
use crate::parts::{Part, hash_of, tick};

#[repr(C)]
struct Node {
    link: Link,
    part: Part,
    key: u64,
}

unsafe fn dispose(link: NonNull<Link>) {
    // SAFETY: all links of these tables are in such nodes, which came from boxes.
    drop(unsafe { Box::from_raw(link.cast::<Node>().as_ptr()) });
}

fn hash(n: u64) -> Hash {
    Hash::new(hash_of(n))
}

fn link(n: u64, value: u64) -> NonNull<Link> {
    let (link, part) = (Link::new(hash(n)), Part::new(value));
    NonNull::from(Box::leak(Box::new(Node { link, part, key: n }))).cast()
}

fn node<'g>(link: NonNull<Link>) -> &'g Node {
    // SAFETY: all links of these tables are in such nodes, and alive for the guard that each caller
    // has.
    unsafe { link.cast().as_ref() }
}

fn is(n: u64) -> impl Fn(NonNull<Link>) -> bool {
    move |link| {
        tick();
        node(link).key == n
    }
}

fn retire(link: NonNull<Link>) {
    // SAFETY: unlinked, so no new reader finds it.
    unsafe { defer_raw(link.cast(), size_of::<Node>(), |link| dispose(link.cast())) };
}

fn table(entries: impl Iterator<Item = (u64, u64)>) -> Table {
    let table = Table::new(4, Resizing::Manual, dispose).unwrap();
    // SAFETY: a fresh link.
    entries.for_each(|(n, value)| unsafe { table.insert(link(n, value), &read()) });
    table
}

fn entry_of(link: NonNull<Link>) -> (u64, u64) {
    (node(link).key, node(link).part.n())
}

fn find(table: &Table, n: u64, guard: &Guard) -> Option<u64> {
    table.find(hash(n), is(n), guard).map(|link| node(link).part.n())
}

fn put(table: &Table, n: u64, value: u64) {
    let guard = read();
    match table.entry(hash(n), is(n), &guard) {
        // SAFETY: a fresh link.
        Entry::Vacant(entry) => unsafe { entry.insert(link(n, value)) },
        // SAFETY: as above.
        Entry::Occupied(entry) => retire(unsafe { entry.replace(link(n, value)) }),
    }
}

fn remove(table: &Table, n: u64) {
    let guard = read();
    if let Some(link) = table.remove(hash(n), is(n), &guard) {
        retire(link);
    }
}

fn insert_if_absent(table: &Table, n: u64, value: u64) {
    /// Freed if it is not inserted, also if a comparison panics.
    struct Fresh(NonNull<Link>);
    impl Drop for Fresh {
        fn drop(&mut self) {
            // SAFETY: in no table.
            unsafe { dispose(self.0) };
        }
    }
    let new = Fresh(link(n, value));
    // SAFETY: a fresh link.
    if unsafe { table.insert_if_absent(new.0, is(n), &read()) } {
        std::mem::forget(new);
    }
}

fn unlink(table: &Table, n: u64) {
    let guard = read();
    let found = table.find(hash(n), is(n), &guard).expect("it is in the table");
    // SAFETY: found under the guard.
    retire(table.unlink(unsafe { found.as_ref() }, &guard).expect("no other thread removes it"));
}

impl Subject for Table {
    fn new() -> Self {
        table((0..4).map(|n| (n, n + 10)))
    }

    fn iterated(&self) -> Vec<(u64, u64)> {
        self.iter(&read()).map(entry_of).collect()
    }

    fn found(&self, key: u64) -> Option<u64> {
        find(self, key, &read())
    }

    fn len(&self) -> usize {
        Self::len(self)
    }

    fn put(&self, key: u64, value: u64) {
        put(self, key, value);
    }

    fn remove(&self, key: u64) {
        remove(self, key);
    }

    fn resize_to(&self, buckets: usize) -> Result<(), AllocError> {
        Self::resize_to(self, buckets)
    }

    fn stats(&self) -> Stats {
        Self::stats(self)
    }
}

pub const TABLE: &[Operation<Table>] = &[
    ("Table::find", Step, |table| _ = find(table, 2, &read())),
    ("Table::find_many", Step, |table| {
        table.find_many(&[0, 2, 5].map(hash), |n, link| is(2)(link) && n == 1, |_, _| tick(), &read());
    }),
    ("Table::prefetch", Step, |table| table.prefetch(&[hash(0)], |_| tick(), &read())),
    ("Table::find_all", Step, |table| table.find_all(hash(0), &read()).for_each(|_| tick())),
    ("Table::iter", Step, |table| table.iter(&read()).for_each(|_| tick())),
    ("Table::iter_from", Step, |table| table.iter_from(1, &read()).for_each(|_| tick())),
    ("Table::scan", Step, |table| _ = table.scan(0, 1, &read(), |_| tick())),
    ("Table::entry, inserts", Step, |table| put(table, 4, 90)),
    ("Table::entry, replaces", Step, |table| put(table, 2, 90)),
    ("Table::entry, dropped", Step, |table| {
        let guard = read();
        let _entries = (table.entry(hash(2), is(2), &guard), tick());
    }),
    // SAFETY: a fresh link.
    ("Table::insert", Step, |table| unsafe { table.insert(link(5, 90), &read()) }),
    ("Table::insert_if_absent", Step, |table| insert_if_absent(table, 4, 90)),
    ("Table::insert_if_absent, present", Step, |table| insert_if_absent(table, 2, 90)),
    ("Table::remove", Step, |table| remove(table, 2)),
    ("Table::unlink", Step, |table| unlink(table, 2)),
    ("Table::clear", Leaks, |table| table.clear(&read(), |link| (retire(link), tick()).1)),
    ("Table::new", Step, |_| drop(table((0..6).map(|n| (n, n))))),
];
