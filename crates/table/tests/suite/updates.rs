//! Updates, and who waits for them.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr::NonNull;

use relativist_rcu::read;
use relativist_table::{Entry, Hash, Link, Resizing, Table};
use relativist_testing::{ROUNDS, assert_meet};

/// T9: the entries of several tables, dropped in whatever order, leave the thread free to update
/// them all. While it has an entry of a table, updates of that table panic, because they would wait
/// for themselves.
#[test]
fn updates_during_an_entry_panic() {
    let tables = [(); 3].map(|()| Table::new(64, Resizing::Manual, |_| ()).unwrap());
    let guard = read();
    let entry = |n: usize| tables[n].entry(Hash::new(7), |_| true, &guard);
    let refusal = |n: usize| {
        let update = || drop(tables[n].entry(Hash::new(8), |_| true, &guard));
        let panic = catch_unwind(AssertUnwindSafe(update)).expect_err("the table was updated under its own lock");
        panic
            .downcast_ref::<&str>()
            .map_or_else(|| panic.downcast_ref::<String>().unwrap().clone(), |text| (*text).into())
    };
    for order in [[0, 1, 2], [2, 1, 0], [1, 0, 2], [1, 2, 0]] {
        let mut entries = [0, 1, 2].map(|n| Some(entry(n)));
        for n in order {
            assert!(refusal(n).contains("wait for itself"));
            assert!(matches!(entries[n].take(), Some(Entry::Vacant(_))));
            drop(entry(n));
        }
    }
}

#[repr(C, align(128))]
struct Object {
    link: Link,
    key: u64,
}

/// T3 in real time: two threads that each insert a link and then look for the other's do not both
/// miss. Nothing is allocated or hashed in between, so the lookup begins while a store without a
/// barrier would still be in the processor's buffer.
#[test]
fn two_threads_that_link_and_look_find_each_other() {
    let object = |key| Object { link: Link::new(Hash::new(key)), key };
    let objects: Vec<Object> = (0..2 * ROUNDS).map(object).collect();
    // Dropped before the objects that it leads to.
    let table = Table::new(1 << 17, Resizing::Manual, |_| ()).unwrap();
    assert_meet(|own, other| {
        // SAFETY: all links of the table are in such objects, which live longer than the table.
        let is_other = |link: NonNull<Link>| unsafe { link.cast::<Object>().as_ref() }.key == other;
        let guard = read();
        // SAFETY: in no table yet, and alive as long as this one is used.
        unsafe { table.insert(NonNull::from(&objects[own as usize]).cast(), &guard) };
        table.find(Hash::new(other), is_other, &guard).is_some()
    });
}
