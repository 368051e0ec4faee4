//! Iteration: one bucket after the other, in the order of hashes.

use std::fmt;
use std::hash::{BuildHasher, Hash};
use std::iter::FusedIterator;
use std::mem;
#[cfg(feature = "rayon")]
use std::ops::RangeInclusive;
use std::sync::Arc;

use relativist_core::hint::cold_path;
use relativist_rcu::Guard;

use super::array::Array;
use super::map::FlatMap;
use super::segment::{Entry, Place, Segment};
use super::table::Table;
use super::word::{Slots, Word};
use relativist_core::sync::yield_now;
use relativist_table as raw;

/// Iterations prefetch the later segments of buckets this number ahead: enough for the memory to
/// arrive in time. The processor itself prefetches first segments, which follow each other.
pub(super) const PREFETCHED: usize = 32;

/// An iterator over the entries of a flat map; see [`FlatMap::iter`](super::FlatMap::iter).
pub struct Iter<'g, K, V, S> {
    table: &'g Table<K, V, S>,
    guard: &'g Guard,
    /// The present array when the iterator last looked.
    array: Array<'g, K, V>,
    /// The first hash of the next batch; `None` after the last.
    next: Option<u64>,
    /// The last hash of the iteration.
    last: u64,
    batch: Batch<'g, K, V>,
    /// Where the iterator is, if it is in the later segments of a bucket.
    later: Option<Later<'g, K, V>>,
    /// The first and the last hash of the entries to return, if the bucket has others, too. Those
    /// come after the last hash of the iteration, or it has returned them already: the table was
    /// larger then, and they were in an earlier bucket.
    only: Option<(u64, u64)>,
}

/// The buckets that an iterator visits next, of one array. The words of all of them are loaded at
/// once, without a branch on whether a slot is live: the processor would mispredict it for most
/// buckets.
struct Batch<'g, K, V> {
    buckets: &'g [Segment<K, V>],
    /// Four bits for each bucket: its three slots that were live, and whether there may be later
    /// segments.
    found: u64,
    /// What is left of `found` for the short path of [`Iter::next_place`].
    left: u64,
    /// What is left of `found` after the bucket of `later`. `left` is 0 meanwhile.
    after_later: u64,
}

impl<'g, K, V> Batch<'g, K, V> {
    const BITS: usize = Word::SLOTS + 1;
    const BUCKETS: usize = u64::BITS as usize / Self::BITS;
    /// The bit of a bucket for its later segments.
    const LATER: usize = Word::SLOTS;

    /// Takes the next bit of `left`: a bucket, and a slot or `LATER`.
    #[inline(always)]
    fn pop(&mut self) -> Option<(usize, usize)> {
        if self.left == 0 {
            return None;
        }
        let bit = self.left.trailing_zeros() as usize;
        self.left &= self.left - 1;
        Some((bit / Self::BITS, bit % Self::BITS))
    }

    #[inline(always)]
    fn place(&self, bucket: usize, slot: usize) -> Place<'g, K, V> {
        Place { segment: &self.buckets[bucket], slot }
    }

    /// Returns whether `key` was in the first segment of a bucket. If it was, the iterator has
    /// returned that entry already: an update may have moved it to a later segment since.
    fn has_in_first(&self, bucket: usize, key: &K) -> bool
    where
        K: Eq,
    {
        let mut slots = (0..Word::SLOTS).filter(|slot| self.found >> (bucket * Self::BITS + slot) & 1 != 0);
        // SAFETY: the word was loaded under the guard, and showed the slot as live.
        slots.any(|slot| unsafe { self.place(bucket, slot).entry() }.key == *key)
    }
}

/// A later segment of a bucket, and its slots that are left.
struct Later<'g, K, V> {
    /// The number of the bucket in the batch.
    bucket: usize,
    segment: &'g Segment<K, V>,
    slots: Slots,
}

impl<'g, K, V, S> Iter<'g, K, V, S> {
    /// Begins with the bucket of a hash.
    pub(crate) fn new(table: &'g Table<K, V, S>, from: u64, guard: &'g Guard) -> Self {
        let array = table.array(guard);
        let batch = Batch { buckets: &[], found: 0, left: 0, after_later: 0 };
        Self { table, guard, array, next: Some(from), last: u64::MAX, batch, later: None, only: None }
    }

    /// Iterates over the entries whose mixed hashes are in a range.
    #[cfg(feature = "rayon")]
    pub(super) fn part(table: &'g Table<K, V, S>, range: RangeInclusive<u64>, guard: &'g Guard) -> Self {
        let (first, last) = range.into_inner();
        Self { last, ..Self::new(table, first, guard) }
    }

    /// Returns the hash with which to continue after the present batch.
    pub(crate) fn cursor(&self) -> Option<u64> {
        self.next
    }

    /// Goes on to the next batch, of up to `buckets` buckets. Returns false after the last.
    pub(super) fn enter_batch(&mut self, buckets: usize) -> bool {
        let Some(from) = self.next.filter(|&from| from <= self.last) else { return false };
        let hash = raw::Hash::from_mixed(from);
        let mut array = self.array;
        let mut has_moved = false;
        let (start, word) = loop {
            let bucket = array.bucket_of(hash);
            let word = array.bucket_at(bucket).word();
            if !word.is_moved() {
                break (bucket, word);
            }
            cold_path();
            has_moved = true;
            self.array = self.table.array(self.guard);
            array = array.next().expect("a bucket moves to the next array");
        };
        let (lowest, highest) = array.hashes_of(start);
        let is_whole = lowest == from && highest <= self.last;
        self.only = (!is_whole).then_some((from, self.last));
        // The entries of the next buckets are in this array, too, if they have not moved. But if
        // this one has moved here, then those of the next may not be here yet.
        let is_alone = has_moved || !is_whole;
        let end = if is_alone { start + 1 } else { array.buckets_to(self.last).min(start + buckets) };
        let buckets = array.buckets(start, end - start);
        let (mut found, mut passed) = (0, 0);
        for (n, first) in buckets.iter().enumerate() {
            array.prefetch_later(start + n + PREFETCHED);
            let word = if n == 0 { word } else { first.word() };
            if word.is_moved() {
                break;
            }
            let later = u64::from(first.later().is_some()) << Batch::<K, V>::LATER;
            found |= (word.live_bits() | later) << (n * Batch::<K, V>::BITS);
            passed = n + 1;
        }
        self.batch = Batch { buckets: &buckets[..passed], found, left: found, after_later: 0 };
        self.next = array.hashes_of(start + passed - 1).1.checked_add(1);
        true
    }
}

impl<'g, K: Hash + Eq, V, S: BuildHasher> Iter<'g, K, V, S> {
    #[inline]
    pub(super) fn next_place(&mut self) -> Option<Place<'g, K, V>> {
        loop {
            if let Some(place) = self.next_in_batch() {
                return Some(place);
            }
            if !self.enter_batch(Batch::<K, V>::BUCKETS) {
                return None;
            }
        }
    }

    /// Returns the next place of the present batch.
    #[inline(always)]
    pub(super) fn next_in_batch(&mut self) -> Option<Place<'g, K, V>> {
        match self.batch.pop() {
            Some((bucket, slot)) if slot != Batch::<K, V>::LATER && self.only.is_none() => {
                Some(self.batch.place(bucket, slot))
            }
            popped => self.next_further(popped),
        }
    }

    /// Continues [`next_in_batch`](Self::next_in_batch) with later segments, and with a bucket that
    /// is not wholly in the range.
    #[inline(never)]
    fn next_further(&mut self, mut popped: Option<(usize, usize)>) -> Option<Place<'g, K, V>> {
        loop {
            match popped {
                Some((bucket, Batch::<K, V>::LATER)) => self.enter_later(bucket),
                Some((bucket, slot)) => {
                    let place = self.batch.place(bucket, slot);
                    if self.is_in_range(place) {
                        return Some(place);
                    }
                }
                None if self.later.is_none() => return None,
                None => {}
            }
            if let Some(place) = self.next_in_later() {
                return Some(place);
            }
            popped = self.batch.pop();
        }
    }

    fn enter_later(&mut self, bucket: usize) {
        // SAFETY: the link is loaded under the guard.
        if let Some(segment) = unsafe { self.batch.buckets[bucket].next().segment() } {
            self.later = Some(Later { bucket, segment, slots: segment.word().live() });
            self.batch.after_later = mem::take(&mut self.batch.left);
        }
    }

    /// Returns the next place in the later segments that the iterator has entered.
    fn next_in_later(&mut self) -> Option<Place<'g, K, V>> {
        while let Some(later) = &mut self.later {
            if let Some(slot) = later.slots.next() {
                let place = Place { segment: later.segment, slot };
                // SAFETY: the word was loaded under the guard, and showed the slot as live.
                let key = unsafe { &place.entry().key };
                if !self.batch.has_in_first(later.bucket, key) && self.is_in_range(place) {
                    return Some(place);
                }
                continue;
            }
            // SAFETY: the link is loaded under the guard.
            match unsafe { later.segment.next().segment() } {
                Some(segment) => (later.segment, later.slots) = (segment, segment.word().live()),
                None => {
                    self.later = None;
                    self.batch.left = self.batch.after_later;
                }
            }
        }
        None
    }

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
