//! Entries in the buckets: an adapter for this project's other table, [`relativist::FlatMap`].
//!
//! A bucket is a cache line with up to three entries. Growth fills a new array while lookups use
//! both; shrinking waits for readers once.
//!
//! *Progress*: lookups are wait-free; updates wait for updates of their bucket and for entries of
//! it that are being moved; only resizers that shrink the table wait for readers.
//!
//! *A lookup costs* a read section, the loads for array and bucket, and one per segment of a bucket
//! that has overflowed.

use relativist::FlatMap;

use crate::tables::sorted::resized_by_hand;

resized_by_hand! {
    /// The library's flat table, resized by hand.
    Flat, FlatMap, "flat", 64, |before: usize, after: usize| u8::from(after < before)
}
