//! A locked bucket, and how updates change it.
//!
//! Lookups may read the bucket at any time. They load the word of the first segment, then its link,
//! then the words of later segments, and each word shows them which slots they may read. So a
//! change that must be one step is one store:
//!
//! * An entry is *inserted* by the store of the word that shows it.
//! * An entry is *replaced* by a store that shows the new one and no longer the old one. Both are
//!   in the same segment, or both are among the later segments, and the store replaces all of
//!   these. An entry of a first segment without a free slot is moved to a later segment before it
//!   is replaced: it is in both for a while, with the same value. (If the new value were stored in
//!   the later segment at once, a lookup could find it there, because it has read the first word
//!   before the old one was inserted, and the next lookup the old value.)
//! * An entry is never moved to an earlier segment, where a lookup that has passed would miss it.

use std::ptr;

use relativist_rcu::contention::Site;
use relativist_rcu::{Guard, clock};

use super::chain::Chain;
use super::segment::{EntryBits, Link, Place, Segment};
use super::table::Table;
use super::word::{Slots, Tag, Word};
use crate::raw::Hash;
use crate::reentrancy;
#[cfg(not(relativist_loom))]
use crate::sleepers::Sleepers;

/// The locks of buckets.
static BUCKET: Site = Site::new("flat_bucket");

/// A bucket whose lock the thread holds. Dropping it unlocks the bucket.
pub(super) struct LockedBucket<'t, K, V, S> {
    table: &'t Table<K, V, S>,
    guard: &'t Guard,
    first: &'t Segment<K, V>,
    /// The word of the first segment, as it will be when the bucket is unlocked.
    word: Word,
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

    /// Locks the bucket of a hash, and returns the last hash of the bucket, too.
    pub(super) fn lock_with_range<'t>(&'t self, hash: Hash, guard: &'t Guard) -> (LockedBucket<'t, K, V, S>, u64) {
        let bucket = self.lock(hash, guard);
        let mut array = self.array(guard);
        // The array may have been replaced since, but the bucket is in one of these until it is
        // unlocked.
        while !ptr::eq(array.bucket(hash), bucket.first) {
            array = array.next().expect("the bucket is locked, so it has not moved");
        }
        let last = array.hashes_of(array.bucket_of(hash)).1;
        (bucket, last)
    }
}

/// Locks the bucket of a first segment, and returns its word. Returns `None` if it has moved.
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

/// Unlocks the bucket of a first segment, and sets its word.
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

/// Makes the exchange that has unlocked the bucket a full barrier.
#[cfg(not(relativist_loom))]
#[inline(always)]
fn wake_waiters<K, V>(first: &Segment<K, V>) {
    SLEEPERS.wake(ptr::from_ref(first).addr());
}

#[cfg(relativist_loom)]
fn wait<K, V>(_: &Segment<K, V>, _: &mut u32) {
    crate::sync::yield_now();
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
        // SAFETY: under the lock.
        unsafe { self.first.find(self.word, tag, is_match, |place| place) }
    }

    /// Inserts an entry whose key is not in the bucket. Returns `None` if there is no memory.
    #[inline(always)]
    pub(super) fn insert(&mut self, tag: Tag, entry: &EntryBits<K, V>) -> Option<Place<'t, K, V>> {
        let (word, mut free) = self.word.with_free_slots(1);
        let Some(slot) = free.next() else { return self.insert_later(tag, entry) };
        let place = Place { segment: self.first, slot };
        // SAFETY: the slot is free.
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
        // SAFETY: the slot is free.
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

    /// Removes all entries, and passes each to `removed`, to which they now belong.
    pub(super) fn remove_all(&mut self, mut removed: impl FnMut(Place<'t, K, V>)) {
        let begun = self.begun();
        let slots = self.word.live();
        self.word = slots.fold(self.word, |word, slot| word.with_vacated(slot, begun));
        // Lookups that come now find nothing in this segment, and no link to later ones.
        self.first.set_word(self.word.locked());
        slots.for_each(|slot| removed(Place { segment: self.first, slot }));
        let later = self.first.next();
        self.first.set_next(Link::NONE);
        let mut link = later;
        // SAFETY: under the lock, which no other thread has taken since.
        while let Some(segment) = unsafe { link.segment() } {
            segment.word().live().for_each(|slot| removed(Place { segment, slot }));
            link = segment.next();
        }
        // SAFETY: lookups no longer find them.
        unsafe { Segment::retire_chain(later) };
    }

    /// Returns the latest grace period that has begun. Slots that are vacated under this lock are
    /// stamped with it.
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
        // SAFETY: the slot is free.
        unsafe { place.write(entry) };
        self.announce(tag);
        segment.set_word(word.with_tag(place.slot, tag));
        Some(place)
    }

    /// Moves an entry of the first segment to a later one that has another free slot.
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
        // SAFETY: the slot is free.
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

    /// Removes bits from the filter that no live entry of later segments needs.
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

    /// Makes lookups of this tag look into later segments.
    fn announce(&self, tag: Tag) {
        let link = self.first.next();
        self.first.set_next(link.with_filter(tag.filter_bit()));
    }

    /// Returns a later segment with this number of free slots, its word, and the slots. Adds one if
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
            // Most slots are vacated. If a segment were added each time, a thread that stays in a
            // section would make the chain grow without bound.
            return self.rebuild_later(None, |chain| chain.room(wanted));
        }
        let added = Segment::allocate()?;
        last.set_next(last.next().with_segment(added));
        // SAFETY: freed a grace period after it was removed.
        let added = unsafe { added.as_ref() };
        Some((added, Word::EMPTY, Word::EMPTY.with_free_slots(wanted).1))
    }

    /// Replaces the later segments by a copy in which all slots are live or free. The copy is
    /// without the entry in `old`, and `add` adds to it before lookups can find it.
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
        done.recv_timeout(Duration::from_secs(10)).expect("the bucket is unlocked");
    }
}
