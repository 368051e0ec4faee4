//! Resizes by hand.

use std::ptr::NonNull;

use relativist_rcu::read;
use relativist_table::{Hash, Link, Resizing, Table};
use relativist_testing::wait_until;

unsafe fn dispose(link: NonNull<Link>) {
    // SAFETY: all links of this table are boxed.
    drop(unsafe { Box::from_raw(link.as_ptr()) });
}

/// Resizes by hand free the replaced array, or let it wait for readers outside the table. T6: if
/// the new array cannot be allocated, the table keeps the old one.
#[test]
fn the_bytes_of_buckets_are_those_of_the_present_array_after_a_resize_by_hand() {
    let table = Table::new(16, Resizing::Manual, |_| unreachable!("it is empty")).unwrap();
    for buckets in [1024, 2, 64, 16] {
        table.resize_to(buckets).unwrap();
        assert_eq!((table.buckets(), table.bucket_bytes()), (buckets, buckets * 8));
    }
    table.resize_to(1 << 45).unwrap_err();
    assert_eq!((table.buckets(), table.bucket_bytes()), (16, 16 * 8));
}

/// T5: an automatic table that was made too small by hand grows again, without an insertion.
#[test]
fn a_table_that_is_too_small_grows_again() {
    let table = Table::new(2, Resizing::Automatic, dispose).unwrap();
    for n in 0..1000 {
        let link = NonNull::from(Box::leak(Box::new(Link::new(Hash::new(n)))));
        // SAFETY: a fresh link.
        unsafe { table.insert(link, &read()) };
    }
    wait_until("the worker to be done with the table", || table.buckets() >= 1000 && !table.is_resizing());
    table.resize_to(2).unwrap();
    wait_until("the worker to grow the table", || table.buckets() >= 1000);
}
