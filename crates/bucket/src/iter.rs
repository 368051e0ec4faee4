//! Iteration: bucket by bucket, in the array that was current at the start, or where its buckets
//! have moved since. Or by the order of hashes, over any number of sections.

use std::iter::FusedIterator;
use std::ops::Range;

use crate::array::{Array, Segment};
use crate::form::{Expected, Form};
use crate::table::{Keys, Section, find_in};
use crate::word::{Hash, Slots, Word};

/// The lowest and the highest of some hashes.
pub type HashRange = (Hash, Hash);

/// An iterator over the entries of a table. It sees an entry that is in the table throughout
/// exactly once, and a key that is not removed meanwhile at most once.
pub struct Iter<'g, E, F: Form, K> {
    array: Array<'g, E, F>,
    keys: &'g K,
    /// The buckets that are left.
    buckets: Range<usize>,
    /// A segment, and those of its slots that are left.
    segment: Segment<'g, E, F>,
    slots: Slots,
    /// What is left of a bucket that has several segments or has moved.
    collected: Vec<&'g E>,
}

// SAFETY: it returns references to entries, and calls `keys`. The section protects what other
// threads find as well: what they find, the thread that made the iterator could have found.
unsafe impl<E: Sync, F: Form, K: Sync> Send for Iter<'_, E, F, K> {}
// SAFETY: as above.
unsafe impl<E: Sync, F: Form, K: Sync> Sync for Iter<'_, E, F, K> {}

impl<E, F: Form> Section<'_, E, F> {
    /// Returns an iterator over the entries.
    pub fn iter<'g, K: Keys<E>>(&'g self, keys: &'g K) -> Iter<'g, E, F, K> {
        let array = self.array();
        Iter {
            array,
            keys,
            buckets: 0..array.len(),
            segment: array.bucket_at(0),
            slots: Slots::default(),
            collected: Vec::new(),
        }
    }
}

impl<E, F: Form> Section<'_, E, F> {
    /// Calls `visit` with each entry whose hash is in `range` and in the bucket of its lowest hash.
    /// Returns the last hash of that bucket, or of the range.
    ///
    /// Whoever goes through all hashes like this, in one section or in many, finds each entry that
    /// is in the table throughout exactly once, because its hash stays. (Inline entries that are
    /// replaced meanwhile may be found twice.)
    pub fn visit_bucket(&self, range: HashRange, keys: &impl Keys<E>, mut visit: impl FnMut(&E)) -> Hash {
        let (array, first, word) = self.bucket_now(range.0);
        let bucket = array.bucket_of(range.0);
        array.prefetch_entries_after(bucket);
        let last = array.last_hash(bucket);
        // A bucket has entries outside of the range only if the table has shrunk, or at its end.
        let is_whole = array.first_hash(bucket) == range.0 && last <= range.1;
        for (segment, word) in first.chain(word) {
            for slot in word.live() {
                // SAFETY: the word was loaded in this section, as long as which the entry lives.
                let entry = unsafe { F::get::<E>(segment.slot(slot), Expected::Any).map(|entry| entry.as_ref()) };
                let Some(entry) = entry else { continue };
                let is_in_range = |hash| range.0 <= hash && hash <= range.1;
                if is_whole || is_in_range(keys.hash(entry)) {
                    visit(entry);
                }
            }
        }
        last.min(range.1)
    }

    /// Finds the entry that `is_it` accepts, in the buckets of a range of hashes.
    pub fn find_in_range(&self, range: HashRange, mut is_it: impl FnMut(&E) -> bool) -> Option<&E> {
        let mut from = range.0;
        loop {
            let (array, first, word) = self.bucket_now(from);
            for (segment, word) in first.chain(word) {
                for slot in word.live() {
                    // SAFETY: as in `visit_bucket`.
                    let entry = unsafe { F::get::<E>(segment.slot(slot), Expected::Any).map(|entry| entry.as_ref()) };
                    if let Some(entry) = entry.filter(|entry| is_it(entry)) {
                        return Some(entry);
                    }
                }
            }
            // The bucket may have been split since.
            from = array.last_hash(array.bucket_of(from)).next().filter(|next| *next <= range.1)?;
        }
    }

    /// Returns the bucket of a hash, where its entries are now.
    fn bucket_now(&self, hash: Hash) -> (Array<'_, E, F>, Segment<'_, E, F>, Word) {
        let mut array = self.array();
        loop {
            let first = array.bucket(hash);
            let word = first.word();
            if !word.is_moved() {
                return (array, first, word);
            }
            array = array.next().expect("a bucket moves to the next array");
        }
    }
}

impl<'g, E, F: Form, K: Keys<E>> Iter<'g, E, F, K> {
    /// Splits off the second half of the buckets that are left. `None` if there are few.
    pub fn split(&mut self) -> Option<Self> {
        if self.buckets.len() < 2 {
            return None;
        }
        let middle = self.buckets.start + self.buckets.len() / 2;
        let other = Self { buckets: middle..self.buckets.end, slots: Slots::default(), collected: Vec::new(), ..*self };
        self.buckets.end = middle;
        Some(other)
    }

    /// Returns the entry that has the key of one that the iterator has returned, if the table still
    /// has an entry with that key, and at another address.
    #[cold]
    pub fn moved(&self, entry: &'g E) -> Option<&'g E> {
        let now = find_in(self.array, self.keys.hash(entry), |other| self.keys.same(entry, other))?;
        // If it is at the same address, the table was cleared.
        Some(now).filter(|now| !std::ptr::eq(*now, entry))
    }

    /// Goes on to the next bucket. Returns false if there is none.
    #[inline]
    fn advance(&mut self) -> bool {
        let Some(bucket) = self.buckets.next() else { return false };
        self.array.prefetch_entries_after(bucket);
        let first = self.array.bucket_at(bucket);
        let word = first.word();
        if word.has_later() {
            self.collected.clear();
            self.collect(self.array, bucket, &|_| true);
        } else {
            (self.segment, self.slots) = (first, word.live());
        }
        true
    }

    /// Collects the entries of a bucket that `is_wanted` accepts.
    #[cold]
    fn collect(&mut self, array: Array<'g, E, F>, bucket: usize, is_wanted: &dyn Fn(&E) -> bool) {
        let first = array.bucket_at(bucket);
        let before = self.collected.len();
        // The second look shows whether the segments are those of one instant. Words do not return
        // to an earlier value in a section, except for the state of the bucket. While an update
        // moves an entry to a later segment, both places show it. Then the bucket is locked.
        const ATTEMPTS: usize = 4;
        for attempt in 1.. {
            let segments: Vec<_> = first.chain(first.word()).collect();
            if segments[0].1.is_moved() {
                break;
            }
            let is_snapshot = || {
                let tags = |(segment, word): (Segment<'g, E, F>, Word)| (segment.key(), word.tags());
                let word = first.word();
                !word.is_locked() && segments.iter().copied().map(tags).eq(first.chain(word).map(tags))
            };
            // Boxed entries keep their slots.
            if !F::BOXED && attempt < ATTEMPTS && !is_snapshot() {
                continue;
            }
            for &(segment, word) in &segments {
                for slot in word.live() {
                    // SAFETY: the word was loaded in the section of the guard.
                    let entry = unsafe { F::get::<E>(segment.slot(slot), Expected::Any).map(|entry| entry.as_ref()) };
                    let Some(entry) = entry else { continue };
                    // While other threads replace entries all the time, an entry may be seen in its
                    // old place and in its new one.
                    let is_double = !F::BOXED
                        && attempt >= ATTEMPTS
                        && self.collected[before..].iter().any(|other| self.keys.same(other, entry));
                    if !is_double && is_wanted(entry) {
                        self.collected.push(entry);
                    }
                }
            }
            return;
        }
        let next = array.next().expect("a bucket moves to the next array");
        if next.bits() >= array.bits() {
            let added = next.bits() - array.bits();
            (bucket << added..(bucket + 1) << added).for_each(|part| self.collect(next, part, is_wanted));
        } else {
            // The bucket has entries of others, which the iteration has seen there or will see.
            let keys = self.keys;
            let is_here = |entry: &E| array.bucket_of(keys.hash(entry)) == bucket && is_wanted(entry);
            self.collect(next, bucket >> (array.bits() - next.bits()), &is_here);
        }
    }
}

impl<'g, E, F: Form, K: Keys<E>> Iterator for Iter<'g, E, F, K> {
    type Item = &'g E;

    #[inline]
    fn next(&mut self) -> Option<&'g E> {
        loop {
            for slot in self.slots.by_ref() {
                // SAFETY: the word was loaded in the section of the guard.
                if let Some(entry) = unsafe { F::get(self.segment.slot(slot), Expected::Any) } {
                    // SAFETY: it lives as long as the guard.
                    return Some(unsafe { entry.as_ref() });
                }
            }
            if let Some(entry) = self.collected.pop() {
                return Some(entry);
            }
            if !self.advance() {
                return None;
            }
        }
    }
}

impl<E, F: Form, K: Keys<E>> FusedIterator for Iter<'_, E, F, K> {}
