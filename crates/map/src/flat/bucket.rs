//! A locked bucket, and how updates change it.
//!
//! Lookups may read the bucket at any time. They load the word of the first segment, then its link,
//! then the words of later segments, and each word shows them which slots they may read. So a
//! change that must be one step is one store:
//!
//! * An entry is *inserted* by the store of the word that shows it.
//! * An entry is *replaced* by one store that shows the new entry and hides the old one. If both
//!   are in the same segment, that is a store of its word. If the old entry is in a later segment
//!   without a free slot, it is a store of the link, which replaces all later segments by a copy.
//! * An entry of a first segment without a free slot is moved to a later segment before it is
//!   replaced. For a while both segments have it, with the same value. (Otherwise two lookups in
//!   sequence could find the new value and then the old one: the first of them may have read the
//!   first word before the old entry was inserted, and then find the new value in the later
//!   segment.)
//! * An entry is never moved to an earlier segment: a lookup that has passed that segment would
//!   miss the entry.

use std::ptr;

use relativist_rcu::contention::Site;
use relativist_rcu::{Guard, clock};

use super::chain::Chain;
use super::segment::{EntryBits, Link, Place, Segment};
use super::table::Table;
use super::word::{Slots, Tag, Word};
use relativist_core::reentrancy;
#[cfg(not(relativist_loom))]
use relativist_core::sleepers::Sleepers;
use relativist_table::Hash;

/// The locks of buckets.
static BUCKET: Site = Site::new("flat_bucket");

/// A bucket whose lock the thread holds. Dropping it unlocks the bucket.
pub(super) struct LockedBucket<'t, K, V, S> {
    table: &'t Table<K, V, S>,
    guard: &'t Guard,
    first: &'t Segment<K, V>,
    /// The word of the first segment, as it will be when the bucket is unlocked.
    pub(super) word: Word,
}

impl<K, V, S> Table<K, V, S> {
    /// Locks the bucket of a hash.
    ///
    /// # Panics
    ///
    /// Panics if this thread holds another lock of the table.
    #[inline(always)]
    pub(super) fn lock<'t>(&'t self, hash: Hash, guard: &'t Guard) -> LockedBucket<'t, K, V, S> {
        reentrancy::enter(self);
        let mut array = self.array(guard);
        loop {
            let first = array.bucket(hash);
            if let Some(word) = lock(first) {
                return LockedBucket { table: self, guard, first, word };
            }
            array = array.next().expect("a bucket moves to the next array");
        }
    }

    /// Locks the bucket of a first segment, if its word still is `word`, which is not locked.
    ///
    /// # Panics
    ///
    /// As [`lock`](Self::lock).
    #[inline(always)]
    pub(super) fn lock_unchanged<'t>(
        &'t self,
        first: &'t Segment<K, V>,
        word: Word,
        guard: &'t Guard,
    ) -> Option<LockedBucket<'t, K, V, S>> {
        reentrancy::enter(self);
        if first.try_lock(word) {
            return Some(LockedBucket { table: self, guard, first, word });
        }
        reentrancy::leave(self);
        None
    }

    /// Locks the bucket of a hash. Also returns the last hash of the bucket.
    pub(super) fn lock_with_range<'t>(&'t self, hash: Hash, guard: &'t Guard) -> (LockedBucket<'t, K, V, S>, u64) {
        let bucket = self.lock(hash, guard);
        let mut array = self.array(guard);
        // The bucket is in the present array or a later one: an array is replaced only when all its
        // buckets have moved, and this one is locked.
        while !ptr::eq(array.bucket(hash), bucket.first) {
            array = array.next().expect("the bucket is locked, so it has not moved");
        }
        let last = array.hashes_of(array.bucket_of(hash)).1;
        (bucket, last)
    }
}

/// Locks the bucket of a first segment, and returns its word. Returns `None` if the bucket has
/// moved.
#[inline(always)]
pub(super) fn lock<K, V>(first: &Segment<K, V>) -> Option<Word> {
    let mut spins = 0;
    let mut attempt = BUCKET.attempt();
    loop {
        let word = first.word();
        if word.is_moved() {
            return None;
        }
        if word.is_locked() {
            attempt.contended();
            wait(first, &mut spins);
            continue;
        }
        if first.try_lock(word) {
            attempt.acquired();
            return Some(word);
        }
    }
}

/// Sets the word of a first segment, which also unlocks the bucket.
#[inline(always)]
pub(super) fn unlock<K, V>(first: &Segment<K, V>, word: Word) {
    first.exchange_word(word);
    wake_waiters(first);
}

#[cfg(not(relativist_loom))]
static SLEEPERS: Sleepers = Sleepers::new();

#[cfg(not(relativist_loom))]
#[cold]
fn wait<K, V>(first: &Segment<K, V>, spins: &mut u32) {
    SLEEPERS.wait(spins, ptr::from_ref(first).addr(), || first.word().is_locked());
}

/// Wakes threads that sleep until the bucket is unlocked. Also makes the exchange that has unlocked
/// it a full barrier.
#[cfg(not(relativist_loom))]
#[inline(always)]
fn wake_waiters<K, V>(first: &Segment<K, V>) {
    SLEEPERS.wake(ptr::from_ref(first).addr());
}

#[cfg(relativist_loom)]
fn wait<K, V>(_: &Segment<K, V>, _: &mut u32) {
    relativist_core::sync::yield_now();
}

#[cfg(relativist_loom)]
fn wake_waiters<K, V>(_: &Segment<K, V>) {}

impl<K, V, S> Drop for LockedBucket<'_, K, V, S> {
    #[inline(always)]
    fn drop(&mut self) {
        unlock(self.first, self.word);
        reentrancy::leave(self.table);
    }
}

impl<'t, K, V, S> LockedBucket<'t, K, V, S> {
    /// Finds a key with this tag. If `is_match` panics, the bucket stays as it was.
    #[inline(always)]
    pub(super) fn find(&self, tag: Tag, is_match: impl FnMut(&K) -> bool) -> Option<Place<'t, K, V>> {
        // SAFETY: under the lock; `self.word` is what this thread has found or made of the word.
        unsafe { self.first.find(self.word, tag, is_match) }
    }

    /// Inserts an entry whose key is not in the bucket. Returns `None` if there is no memory.
    #[inline(always)]
    pub(super) fn insert(&mut self, tag: Tag, entry: &EntryBits<K, V>) -> Option<Place<'t, K, V>> {
        let (word, mut free) = self.word.with_free_slots(1);
        let Some(slot) = free.next() else { return self.insert_later(tag, entry) };
        let place = Place { segment: self.first, slot };
        // SAFETY: under the lock, and the slot is free.
        unsafe { place.write(entry) };
        self.word = word.with_tag(slot, tag);
        Some(place)
    }

    /// Replaces an entry, and returns the place of the new one. Returns `None` if there is no
    /// memory. The old entry belongs to the caller.
    #[inline(always)]
    pub(super) fn replace(
        &mut self,
        old: Place<'t, K, V>,
        tag: Tag,
        entry: &EntryBits<K, V>,
    ) -> Option<Place<'t, K, V>> {
        if !ptr::eq(old.segment, self.first) {
            return self.replace_later(old, tag, entry);
        }
        let (word, mut free) = self.word.with_free_slots(1);
        let Some(slot) = free.next() else {
            let moved = self.move_later(old, tag)?;
            return self.replace_later(moved, tag, entry);
        };
        let place = Place { segment: self.first, slot };
        // SAFETY: under the lock, and the slot is free.
        unsafe { place.write(entry) };
        self.word = word.with_tag(slot, tag).with_vacated(old.slot, self.begun());
        Some(place)
    }

    /// Removes an entry, which now belongs to the caller.
    #[inline(always)]
    pub(super) fn remove(&mut self, place: Place<'t, K, V>) {
        if ptr::eq(place.segment, self.first) {
            self.word = self.word.with_vacated(place.slot, self.begun());
        } else {
            self.remove_later(place);
        }
    }

    /// Removes all entries, and passes the segments with the slots that were live to `removed`, to
    /// which the entries now belong.
    pub(super) fn remove_all(&mut self, mut removed: impl FnMut(&'t Segment<K, V>, Slots)) {
        let slots = self.word.live();
        self.word = self.word.with_all_vacated(self.begun());
        // Lookups that load the word from here on find nothing in this segment. Removing the link
        // hides the later ones.
        self.first.set_word(self.word.locked());
        removed(self.first, slots);
        let later = self.first.next();
        self.first.set_next(Link::NONE);
        let mut link = later;
        // SAFETY: loaded under the lock. The segments are retired below.
        while let Some(segment) = unsafe { link.segment() } {
            removed(segment, segment.word().live());
            link = segment.next();
        }
        // SAFETY: they were allocated one by one, and lookups that begin now do not find them.
        unsafe { Segment::retire_chain(later) };
    }

    /// Returns the latest grace period that has begun: the stamp of slots that are vacated under
    /// this lock.
    #[inline(always)]
    fn begun(&self) -> u64 {
        // Not the number that the section stored when it began: it may be older by any number of
        // grace periods, and the slot would be reused too early.
        clock::begun(self.guard)
    }

    #[cold]
    fn insert_later(&mut self, tag: Tag, entry: &EntryBits<K, V>) -> Option<Place<'t, K, V>> {
        let (segment, word, mut free) = self.room_later(1)?;
        let place = Place { segment, slot: free.next()? };
        // SAFETY: under the lock, and the slot is free.
        unsafe { place.write(entry) };
        self.announce(tag);
        segment.set_word(word.with_tag(place.slot, tag));
        Some(place)
    }

    /// Moves an entry of the first segment to a later one. That segment then still has a free slot,
    /// for the entry that replaces the moved one.
    #[cold]
    fn move_later(&mut self, old: Place<'t, K, V>, tag: Tag) -> Option<Place<'t, K, V>> {
        let (segment, word, mut free) = self.room_later(2)?;
        let place = Place { segment, slot: free.next()? };
        // SAFETY: the slot is free, and the old one live.
        unsafe { place.write(old.bits()) };
        self.announce(tag);
        segment.set_word(word.with_tag(place.slot, tag));
        self.word = self.word.with_vacated(old.slot, self.begun());
        self.first.set_word(self.word.locked());
        Some(place)
    }

    #[cold]
    fn replace_later(&mut self, old: Place<'t, K, V>, tag: Tag, entry: &EntryBits<K, V>) -> Option<Place<'t, K, V>> {
        let segment = old.segment;
        let (word, mut free) = segment.word().with_free_slots(1);
        let Some(slot) = free.next() else {
            return self.rebuild_later(Some(old), |chain| chain.append(tag, entry));
        };
        let place = Place { segment, slot };
        // SAFETY: under the lock, and the slot is free.
        unsafe { place.write(entry) };
        segment.set_word(word.with_tag(slot, tag).with_vacated(old.slot, self.begun()));
        Some(place)
    }

    #[cold]
    fn remove_later(&mut self, place: Place<'t, K, V>) {
        let segment = place.segment;
        let word = segment.word().with_vacated(place.slot, self.begun());
        segment.set_word(word);
        self.shorten_filter();
    }

    /// Clears the bits of the filter that stand for no live entry of later segments.
    fn shorten_filter(&self) {
        let link = self.first.next();
        let mut exact = link.without_filter();
        let mut next = link;
        // SAFETY: under the lock.
        while let Some(segment) = unsafe { next.segment() } {
            let word = segment.word();
            exact = word.live().fold(exact, |link, slot| link.with_filter(word.tag(slot).filter_bit()));
            next = segment.next();
        }
        self.first.set_next(exact);
    }

    /// Sets the bit of this tag in the filter. Called before a later segment shows an entry with
    /// the tag: otherwise a lookup could skip that segment.
    fn announce(&self, tag: Tag) {
        let link = self.first.next();
        self.first.set_next(link.with_filter(tag.filter_bit()));
    }

    /// Returns a later segment with `wanted` free slots, its word, and the slots. Adds a segment if
    /// there is none. Returns `None` if there is no memory.
    fn room_later(&mut self, wanted: usize) -> Option<(&'t Segment<K, V>, Word, Slots)> {
        let mut last = self.first;
        let (mut live, mut others) = (0, 0);
        // SAFETY: under the lock.
        while let Some(segment) = unsafe { last.next().segment() } {
            let (word, free) = segment.word().with_free_slots(wanted);
            if free.are_at_least(wanted) {
                return Some((segment, word, free));
            }
            live += word.live().len();
            others += Word::SLOTS - word.live().len();
            last = segment;
        }
        if others > live {
            // Most slots are vacated. If this added a segment each time, the chain would grow
            // without bound while a reader stays in its section.
            return self.rebuild_later(None, |chain| chain.room(wanted));
        }
        let added = Segment::allocate()?;
        last.set_next(last.next().with_segment(added));
        // SAFETY: it is in the table now, and is freed a grace period after it is unlinked; the
        // guard lasts for `'t`.
        let added = unsafe { added.as_ref() };
        Some((added, Word::EMPTY, Word::EMPTY.with_free_slots(wanted).1))
    }

    /// Replaces the later segments by a copy that has no vacated slots. Leaves out the entry in
    /// `old`. `add` adds to the copy before lookups can find it. Returns `None`, and changes
    /// nothing, if there is no memory.
    fn rebuild_later<R>(
        &mut self,
        old: Option<Place<'t, K, V>>,
        add: impl FnOnce(&mut Chain<K, V>) -> Option<R>,
    ) -> Option<R> {
        let link = self.first.next();
        let mut chain = Chain::new()?;
        let mut next = link;
        // SAFETY: under the lock.
        while let Some(segment) = unsafe { next.segment() } {
            let word = segment.word();
            for slot in word.live() {
                let is_old = old.is_some_and(|old| ptr::eq(old.segment, segment) && old.slot == slot);
                if !is_old {
                    // SAFETY: the slot is live.
                    chain.append(word.tag(slot), unsafe { Place { segment, slot }.bits() })?;
                }
            }
            next = segment.next();
        }
        let result = add(&mut chain)?;
        self.first.set_next(chain.into_link());
        // SAFETY: lookups that begin now do not find the old segments. Their entries are in the
        // copy, or belong to the caller.
        unsafe { Segment::retire_chain(link) };
        Some(result)
    }
}

#[cfg(all(test, not(relativist_loom)))]
mod tests {
    use std::sync::{Arc, mpsc};
    use std::thread;
    use std::time::Duration;

    use relativist_rcu::read;

    use crate::flat::FlatMap;

    /// T4: a thread that sleeps until a bucket is unlocked continues.
    #[test]
    fn sleepers_are_woken() {
        let map = Arc::new(FlatMap::<u64, u64>::new());
        let (sender, done) = mpsc::channel();
        let guard = read();
        let bucket = map.table.lock(map.table.hash(&1u64), &guard);
        let updater = map.clone();
        thread::spawn(move || {
            updater.pin().insert(1, 1);
            sender.send(()).unwrap();
        });
        assert!(done.recv_timeout(Duration::from_millis(200)).is_err(), "the bucket is locked");
        drop(bucket);
        done.recv_timeout(relativist_testing::patience()).expect("the bucket is unlocked");
    }
}
