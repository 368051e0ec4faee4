//! Iteration: one bucket after the other, in the order of hashes.

use std::fmt;
use std::hash::{BuildHasher, Hash};
use std::iter::FusedIterator;
#[cfg(feature = "rayon")]
use std::ops::RangeInclusive;
use std::ptr;
use std::sync::Arc;

use relativist_rcu::Guard;

use super::map::FlatMap;
use super::segment::{Entry, Place, Segment};
use super::table::Table;
use super::word::{Slots, Word};
use crate::raw;
use crate::sync::yield_now;

/// An iterator over the entries of a flat map; see [`FlatMap::iter`](super::FlatMap::iter).
pub struct Iter<'g, K, V, S> {
    table: &'g Table<K, V, S>,
    guard: &'g Guard,
    /// The first hash of the next bucket; `None` after the last.
    next: Option<u64>,
    /// The last hash of the iteration.
    last: u64,
    bucket: Option<BucketIter<'g, K, V>>,
}

/// The rest of a bucket.
struct BucketIter<'g, K, V> {
    first: &'g Segment<K, V>,
    first_word: Word,
    segment: &'g Segment<K, V>,
    word: Word,
    slots: Slots,
    /// The first and the last hash of the entries to return, if the bucket has others, too. Those
    /// come after the last hash of the iteration, or it has returned them already: the table was
    /// larger then, and they were in an earlier bucket.
    only: Option<(u64, u64)>,
}

impl<'g, K, V, S> Iter<'g, K, V, S> {
    pub(crate) fn new(table: &'g Table<K, V, S>, from: u64, guard: &'g Guard) -> Self {
        Self { table, guard, next: Some(from), last: u64::MAX, bucket: None }
    }

    /// Iterates over the entries whose mixed hashes are in a range.
    #[cfg(feature = "rayon")]
    pub(super) fn part(table: &'g Table<K, V, S>, range: RangeInclusive<u64>, guard: &'g Guard) -> Self {
        let (first, last) = range.into_inner();
        Self { table, guard, next: Some(first), last, bucket: None }
    }

    /// Returns the hash with which to continue after the present bucket.
    pub(crate) fn cursor(&self) -> Option<u64> {
        self.next
    }

    /// Goes on to the next bucket. Returns false after the last.
    #[inline]
    fn enter_next_bucket(&mut self) -> bool {
        let Some(from) = self.next.filter(|&from| from <= self.last) else { return false };
        let hash = raw::Hash::from_mixed(from);
        let mut array = self.table.array(self.guard);
        let (first, word) = loop {
            let first = array.bucket(hash);
            let word = first.word();
            if !word.is_moved() {
                break (first, word);
            }
            array = array.next().expect("a bucket moves to the next array");
        };
        let (lowest, highest) = array.hashes_of(array.bucket_of(hash));
        self.next = highest.checked_add(1);
        let only = (lowest < from || highest > self.last).then_some((from, self.last));
        self.bucket = Some(BucketIter { first, first_word: word, segment: first, word, slots: word.live(), only });
        true
    }
}

impl<'g, K: Hash + Eq, V, S: BuildHasher> Iter<'g, K, V, S> {
    #[inline]
    pub(super) fn next_place(&mut self) -> Option<Place<'g, K, V>> {
        loop {
            if let Some(bucket) = &mut self.bucket {
                if let Some(place) = bucket.next(self.table) {
                    return Some(place);
                }
                self.bucket = None;
            }
            if !self.enter_next_bucket() {
                return None;
            }
        }
    }

    /// Returns the next entry of the present bucket. Returns `None` after the last one, and if the
    /// iterator is in no bucket.
    pub(super) fn next_in_bucket(&mut self) -> Option<&'g Entry<K, V>> {
        let place = self.bucket.as_mut()?.next(self.table);
        if place.is_none() {
            self.bucket = None;
        }
        // SAFETY: the slot was live in this section.
        place.map(|place| unsafe { place.entry() })
    }
}

impl<'g, K: Hash + Eq, V> BucketIter<'g, K, V> {
    #[inline]
    fn next<S: BuildHasher>(&mut self, table: &Table<K, V, S>) -> Option<Place<'g, K, V>> {
        loop {
            while let Some(slot) = self.slots.next() {
                let place = Place { segment: self.segment, slot };
                // SAFETY: the word was loaded under the guard, and showed the slot as live.
                let entry = unsafe { place.entry() };
                let is_in = |(from, last)| (from..=last).contains(&table.hash(&entry.key).get());
                if self.is_new(slot, entry) && self.only.is_none_or(is_in) {
                    return Some(place);
                }
            }
            // SAFETY: the link is loaded under the guard.
            self.segment = unsafe { self.segment.next().segment() }?;
            self.word = self.segment.word();
            self.slots = self.word.live();
        }
    }

    /// Returns whether the word of the first segment had no entry with this key. If it had one, the
    /// iterator has returned that one already: an update may have moved it to a later segment
    /// since.
    #[inline]
    fn is_new(&self, slot: usize, entry: &Entry<K, V>) -> bool {
        // SAFETY: the word was loaded under the guard, and showed the slot as live.
        let key = |slot| unsafe { &Place { segment: self.first, slot }.entry().key };
        ptr::eq(self.segment, self.first)
            || !self.first_word.matches(self.word.tag(slot)).any(|slot| *key(slot) == entry.key)
    }
}

impl<'g, K: Hash + Eq, V, S: BuildHasher> Iterator for Iter<'g, K, V, S> {
    type Item = (&'g K, &'g V);

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        // SAFETY: the slot was live in this section.
        self.next_place().map(|place| unsafe { place.entry() }.pair())
    }
}

impl<K: Hash + Eq, V, S: BuildHasher> FusedIterator for Iter<'_, K, V, S> {}

/// An iterator that moves the entries out of a map that it owns.
pub struct IntoIter<K, V, S> {
    table: Table<K, V, S>,
    /// Entries with smaller hashes have been moved out.
    next: Option<u64>,
    /// The entries that are left of the bucket before `next`.
    bucket: Vec<Entry<K, V>>,
}

/// Moves the entries out. Waits while the background thread resizes the map.
///
/// ```
/// let map = relativist::flat::FlatMap::from([("a", String::from("alpha"))]);
/// let entries: Vec<(&str, String)> = map.into_iter().collect();
/// assert_eq!(entries, [("a", "alpha".to_string())]);
/// ```
impl<K, V, S> IntoIterator for FlatMap<K, V, S> {
    type Item = (K, V);
    type IntoIter = IntoIter<K, V, S>;

    fn into_iter(self) -> IntoIter<K, V, S> {
        let mut shared = self.into_table();
        let table = loop {
            // The worker holds an `Arc` of the table while it resizes it.
            match Arc::try_unwrap(shared) {
                Ok(table) => break table,
                Err(still_shared) => shared = still_shared,
            }
            yield_now();
        };
        IntoIter { table, next: Some(0), bucket: Vec::new() }
    }
}

impl<K, V, S> Iterator for IntoIter<K, V, S> {
    type Item = (K, V);

    fn next(&mut self) -> Option<(K, V)> {
        loop {
            if let Some(Entry { key, value }) = self.bucket.pop() {
                return Some((key, value));
            }
            self.next = self.table.take_bucket(self.next?, &mut self.bucket);
        }
    }
}

impl<K, V, S> FusedIterator for IntoIter<K, V, S> {}

impl<K, V, S> fmt::Debug for IntoIter<K, V, S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("IntoIter").field("left", &(self.table.len() + self.bucket.len())).finish()
    }
}

impl<K, V, S> fmt::Debug for Iter<'_, K, V, S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Iter")
    }
}
