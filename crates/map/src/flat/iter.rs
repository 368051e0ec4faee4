//! Iteration: one bucket after the other, in the order of hashes.

use std::fmt;
use std::hash::{BuildHasher, Hash};
use std::iter::FusedIterator;
#[cfg(feature = "rayon")]
use std::ops::RangeInclusive;
use std::ptr;
use std::sync::Arc;

use relativist_rcu::Guard;
use relativist_rcu::hint::cold_path;

use super::array::Array;
use super::map::FlatMap;
use super::segment::{Entry, Place, Segment};
use super::table::Table;
use super::word::{Slots, Word};
use crate::raw;
use crate::sync::yield_now;

/// Iterations prefetch the later segments of buckets this number ahead: enough for the memory to
/// arrive in time. The processor itself prefetches first segments, which follow each other.
pub(super) const PREFETCHED: usize = 8;

/// An iterator over the entries of a flat map; see [`FlatMap::iter`](super::FlatMap::iter).
pub struct Iter<'g, K, V, S> {
    table: &'g Table<K, V, S>,
    guard: &'g Guard,
    /// The present array when the iterator last looked.
    array: Array<'g, K, V>,
    /// The first hash of the next bucket; `None` after the last.
    next: Option<u64>,
    /// The last hash of the iteration.
    last: u64,
    /// The first segment of the present bucket, and its word.
    first: (&'g Segment<K, V>, Word),
    /// A segment of the present bucket, its word, and its slots that are left. `None` after the
    /// last segment.
    segment: Option<&'g Segment<K, V>>,
    word: Word,
    slots: Slots,
    /// The first and the last hash of the entries to return, if the bucket has others, too. Those
    /// come after the last hash of the iteration, or it has returned them already: the table was
    /// larger then, and they were in an earlier bucket.
    only: Option<(u64, u64)>,
}

impl<'g, K, V, S> Iter<'g, K, V, S> {
    pub(crate) fn new(table: &'g Table<K, V, S>, from: u64, guard: &'g Guard) -> Self {
        let array = table.array(guard);
        let (word, slots) = (Word::EMPTY, Word::EMPTY.live());
        let first = (array.bucket_at(0), word);
        Self { table, guard, array, next: Some(from), last: u64::MAX, first, segment: None, word, slots, only: None }
    }

    /// Iterates over the entries whose mixed hashes are in a range.
    #[cfg(feature = "rayon")]
    pub(super) fn part(table: &'g Table<K, V, S>, range: RangeInclusive<u64>, guard: &'g Guard) -> Self {
        let (first, last) = range.into_inner();
        Self { last, ..Self::new(table, first, guard) }
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
        let mut array = self.array;
        let (bucket, word) = loop {
            let bucket = array.bucket_of(hash);
            let word = array.bucket_at(bucket).word();
            if !word.is_moved() {
                break (bucket, word);
            }
            cold_path();
            self.array = self.table.array(self.guard);
            array = array.next().expect("a bucket moves to the next array");
        };
        array.prefetch_later(bucket + PREFETCHED);
        let (lowest, highest) = array.hashes_of(bucket);
        self.next = highest.checked_add(1);
        self.only = (lowest < from || highest > self.last).then_some((from, self.last));
        let first = array.bucket_at(bucket);
        self.first = (first, word);
        self.segment = Some(first);
        self.word = word;
        self.slots = word.live();
        true
    }
}

impl<'g, K: Hash + Eq, V, S: BuildHasher> Iter<'g, K, V, S> {
    #[inline]
    pub(super) fn next_place(&mut self) -> Option<Place<'g, K, V>> {
        loop {
            if let Some(place) = self.next_place_in_bucket() {
                return Some(place);
            }
            if !self.enter_next_bucket() {
                return None;
            }
        }
    }

    /// Returns the next entry of the present bucket. Returns `None` after the last one, and if the
    /// iterator is in no bucket.
    pub(super) fn next_in_bucket(&mut self) -> Option<&'g Entry<K, V>> {
        // SAFETY: the slot was live in this section.
        self.next_place_in_bucket().map(|place| unsafe { place.entry() })
    }

    #[inline(always)]
    fn next_place_in_bucket(&mut self) -> Option<Place<'g, K, V>> {
        while let Some(segment) = self.segment {
            while let Some(slot) = self.slots.next() {
                let place = Place { segment, slot };
                if (ptr::eq(segment, self.first.0) || self.is_new(place)) && self.is_in_range(place) {
                    return Some(place);
                }
            }
            // SAFETY: the link is loaded under the guard.
            self.segment = unsafe { segment.next().segment() };
            self.word = self.segment.map_or(Word::EMPTY, Segment::word);
            self.slots = self.word.live();
        }
        None
    }

    /// Returns whether the word of the first segment had no entry with the key of this later place.
    /// If it had one, the iterator has returned that one already: an update may have moved it to a
    /// later segment since.
    fn is_new(&self, place: Place<'g, K, V>) -> bool {
        let (first, word) = self.first;
        // SAFETY: both words were loaded under the guard, and showed the slots as live.
        let key = |place: Place<'g, K, V>| unsafe { &place.entry().key };
        !word.matches(self.word.tag(place.slot)).any(|slot| *key(Place { segment: first, slot }) == *key(place))
    }

    #[inline(always)]
    fn is_in_range(&self, place: Place<'g, K, V>) -> bool {
        self.only.is_none_or(|(from, last)| {
            // SAFETY: the word was loaded under the guard, and showed the slot as live.
            let key = unsafe { &place.entry().key };
            (from..=last).contains(&self.table.hash(key).get())
        })
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
