//! Resizes by hand.

use relativist_table::{Resizing, Table};

/// Resizes by hand free the replaced array, or let it wait for readers outside the table. T6: if the
/// new array cannot be allocated, the table keeps the old one.
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
