//! Updates: how a locked bucket is changed so that each lookup finds the entry before the change or
//! after it.
//!
//! **Boxed slots: the pointer is the truth.** An entry is in the table exactly while a pointer of
//! its bucket leads to it. A tag is set before its pointer, and cleared after it. So tags are hints
//! that are never missing, and a slot can be used again at once: a lookup with an old word finds no
//! pointer, or an entry with another key, or an entry with its own key that is in the table.
//!
//! **Inline slots: the tag is the truth.** A slot is written before its tag is set. It is not
//! written again until readers have left that may have loaded a word with the tag. Until then it is
//! vacated. An entry is replaced by one store of a word, which shows the new entry and hides the
//! old one. If the segment has no free slot, the old entry first moves to a later segment: it is
//! shown there, and then hidden here. (The new entry must not be shown in a later segment while the
//! old one is live here. A lookup may have passed this segment before the old entry came, and find
//! the new one. The next lookup would find the old one.) Entries never move to an earlier segment,
//! because a lookup that has passed it would miss them.
//!
//! **The filter.** Its bit is set before an entry of a later segment is shown, and cleared after
//! the last entry of its class is hidden. Lookups load it with the tags of the first segment. A
//! later segment without live entries is unlinked, and freed after a grace period. It keeps its
//! link, for lookups that have reached it.

use std::ptr::NonNull;

use relativist_core::sync::{Cell, fence_after_exchange, local};
use relativist_rcu::{clock, without_reclaiming};

use crate::array::{Array, Segment};
use crate::form::{Form, Holds, Readers};
use crate::resize::{Change, is_turn};
use crate::table::{Keys, Locked, Place, Section, find_in, find_locked, lock_if_absent};
use crate::word::{Hash, Word};

local! {
    /// The number of slots that this thread has vacated.
    static VACATED: Cell<u32> = Cell::new(0);
}

impl<E, F: Holds<E>> Section<'_, E, F> {
    /// Inserts an entry, and returns the one with the same key that it replaces.
    ///
    /// Blocks while another thread changes the bucket.
    #[inline]
    pub fn insert<'g>(&'g self, hash: Hash, entry: E, keys: &impl Keys<E>) -> Option<&'g E> {
        let array = self.array();
        array.bucket(hash).prefetch_for_write();
        self.help_in(array, keys);
        let new = F::new(entry);
        let (mut locked, place) = self.lock_for(array, hash, &new, keys);
        let Some(old) = place else {
            locked.insert(hash, new);
            self.count(locked.unlock(), Change::Inserted);
            return None;
        };
        let removed = old.entry;
        locked.replace(self, old, hash, new);
        locked.unlock();
        // SAFETY: this thread has replaced it, under the guard.
        unsafe {
            F::retire(removed, &self.table.domain, self.guard());
            Some(removed.as_ref())
        }
    }

    /// Inserts an entry if its key is not in the table.
    ///
    /// # Errors
    ///
    /// Returns the entry in the table and the new one if the key is in the table.
    #[inline]
    pub fn try_insert<'g>(&'g self, hash: Hash, entry: E, keys: &impl Keys<E>) -> Result<&'g E, (&'g E, E)> {
        let array = self.array();
        if let Some(current) = find_in(array, hash, |other| keys.same(&entry, other)) {
            return Err((current, entry));
        }
        self.help_in(array, keys);
        let new = F::new(entry);
        let (mut locked, place) = self.lock_for(array, hash, &new, keys);
        if let Some(current) = place {
            locked.unlock();
            // SAFETY: it was in the table under the guard.
            return Err((unsafe { current.entry.as_ref() }, F::into_entry(new)));
        }
        let entry = locked.insert(hash, new);
        self.count(locked.unlock(), Change::Inserted);
        // SAFETY: it was in the table under the guard.
        Ok(unsafe { entry.as_ref() })
    }

    /// Locks the bucket of an entry that is about to be inserted, and finds the one with its key.
    #[inline(always)]
    fn lock_for<'g>(
        &'g self,
        array: Array<'g, E, F>,
        hash: Hash,
        new: &F::New<E>,
        keys: &impl Keys<E>,
    ) -> (Locked<'g, E, F>, Option<Place<'g, E, F>>) {
        match lock_if_absent(array, hash) {
            Some(locked) => (locked, None),
            None => self.lock_and_find(hash, |other: &E| keys.same(F::entry(new), other)),
        }
    }

    /// Replaces exactly the entry `old`, and returns the new one.
    ///
    /// # Errors
    ///
    /// Returns the new entry if the old one is no longer in the table, or no longer at its address.
    pub fn replace<'g>(&'g self, hash: Hash, old: &'g E, entry: E, keys: &impl Keys<E>) -> Result<&'g E, E> {
        let new = F::new(entry);
        let mut locked = self.lock(hash);
        let Some(place) = find_locked(&locked, hash, |entry| std::ptr::eq(entry, old)) else {
            locked.unlock();
            return Err(F::into_entry(new));
        };
        let removed = place.entry;
        let entry = locked.replace(self, place, hash, new);
        locked.unlock();
        // SAFETY: this thread has replaced the old entry, and the new one was in the table under
        // the guard.
        unsafe {
            F::retire(removed, &self.table.domain, self.guard());
            // Not before the replacement, because moves change the addresses of inline entries.
            self.help(keys);
            Ok(entry.as_ref())
        }
    }

    /// Removes the entry that `is_match` accepts, and returns it. Wait-free if there is none.
    #[inline]
    pub fn remove<'g>(
        &'g self,
        hash: Hash,
        mut is_match: impl FnMut(&E) -> bool,
        keys: &impl Keys<E>,
    ) -> Option<&'g E> {
        loop {
            let entry = self.find(hash, &mut is_match)?;
            if self.remove_exactly(hash, entry, keys) {
                return Some(entry);
            }
            // Removed, replaced or moved since.
        }
    }

    /// Removes exactly this entry. Returns false if it is no longer in the table, or no longer at
    /// its address.
    #[inline]
    pub fn remove_exactly<'g>(&'g self, hash: Hash, entry: &'g E, keys: &impl Keys<E>) -> bool {
        let is_removed = self.take_exactly(hash, entry);
        if is_removed {
            self.help(keys);
        }
        is_removed
    }

    /// Like [`Section::remove_exactly`], but moves no buckets, and so runs no user code. Call
    /// [`Section::help`] afterwards.
    #[inline(always)]
    pub fn take_exactly<'g>(&'g self, hash: Hash, entry: &'g E) -> bool {
        let Some((array, removed)) = self.unlink(hash, entry) else { return false };
        self.count(array, Change::Removed);
        // SAFETY: this thread has removed it.
        unsafe { F::retire(removed, &self.table.domain, self.guard()) };
        true
    }

    /// Removes exactly this entry from its bucket. Also returns the array in which it was.
    #[inline(always)]
    fn unlink<'g>(&'g self, hash: Hash, entry: &'g E) -> Option<(Array<'g, E, F>, NonNull<E>)> {
        if !F::BOXED {
            let array = self.array();
            let first = array.bucket(hash);
            let word = first.word();
            // SAFETY: the word was loaded under the guard.
            let found = unsafe {
                first.find(word.matches(hash.tag()), crate::form::Expected::Any, |other| std::ptr::eq(other, entry))
            };
            if let Some((slot, found)) = found.filter(|_| !word.is_locked()) {
                // If the word is the same now, the slot still has this entry: a slot that another
                // thread has vacated is not used again in this section.
                let is_removed = first.try_exchange(word, word.with_vacated(slot, F::Domain::begun(self.guard())));
                // Makes the exchange a full barrier, like the one that unlocks a bucket (B3).
                // litmus: bucket-update-then-lookup
                fence_after_exchange();
                if is_removed {
                    self.vacated();
                    return Some((array, found));
                }
            }
        }
        let mut locked = self.lock(hash);
        let place = find_locked(&locked, hash, |other| std::ptr::eq(other, entry));
        let removed = place.map(|place| {
            locked.remove(self, place.segment, place.slot);
            place.entry
        });
        Some((locked.unlock(), removed?))
    }
}

impl<E, F: Form> Section<'_, E, F> {
    /// Drives grace periods now and then, because entries that need no drop would drive none, and
    /// slots would stay vacated.
    #[inline(always)]
    fn vacated(&self) {
        /// The number of slots that a thread vacates between two calls.
        const INTERVAL: u32 = 256;
        if !F::BOXED && VACATED.with(|vacated| is_turn(vacated, INTERVAL)) {
            clock::drive();
        }
    }
}

impl<'g, E, F: Form> Locked<'g, E, F> {
    /// Inserts an entry whose key is not in the bucket. Returns its address.
    #[inline(always)]
    pub(crate) fn insert(&mut self, hash: Hash, new: F::New<E>) -> NonNull<E> {
        let window = self.array.window(hash);
        let Some((word, slot)) = with_room::<F>(self.word, 1) else { return self.insert_later(hash, new) };
        self.word = word.with_tag(slot, hash.tag());
        if F::BOXED {
            self.publish();
        }
        // SAFETY: under the lock, and the slot is free.
        unsafe { F::put(self.first.slot(slot), new, window) }
    }

    #[cold]
    fn insert_later(&mut self, hash: Hash, new: F::New<E>) -> NonNull<E> {
        let (segment, word, slot) = self.room_later(None, 1);
        self.announce(hash);
        // SAFETY: under the lock, and the slot is free.
        unsafe { show(segment, word, slot, hash, new, self.array.window(hash)) }
    }

    /// Sets the filter's bit of this hash.
    fn announce(&mut self, hash: Hash) {
        self.word = self.word.with_filter_of(hash.tag());
        self.publish();
    }

    /// Replaces an entry, and returns the address of the new one.
    #[inline(always)]
    pub(crate) fn replace(
        &mut self,
        section: &Section<'_, E, F>,
        old: Place<'g, E, F>,
        hash: Hash,
        new: F::New<E>,
    ) -> NonNull<E> {
        if F::BOXED {
            // SAFETY: under the lock.
            return unsafe { F::put(old.segment.slot(old.slot), new, self.array.window(hash)) };
        }
        section.vacated();
        let begun = F::Domain::begun(section.guard());
        let room = if old.segment == self.first { with_room::<F>(self.word, 1) } else { None };
        if let Some((word, slot)) = room {
            self.word = word.with_tag(slot, hash.tag()).with_vacated(old.slot, begun);
            // SAFETY: under the lock, and the slot is free.
            return unsafe { F::put(self.first.slot(slot), new, 0) };
        }
        self.replace_later(section, &old, hash, new, begun)
    }

    #[cold]
    fn replace_later(
        &mut self,
        section: &Section<'_, E, F>,
        old: &Place<'g, E, F>,
        hash: Hash,
        new: F::New<E>,
        begun: u64,
    ) -> NonNull<E> {
        let room = if old.segment == self.first { None } else { with_room::<F>(old.segment.word(), 1) };
        if let Some((word, slot)) = room {
            // SAFETY: under the lock, and the slot is free.
            let entry = unsafe { F::put(old.segment.slot(slot), new, 0) };
            old.segment.set_word(word.with_tag(slot, hash.tag()).with_vacated(old.slot, begun));
            return entry;
        }
        // Moves the old entry to a later segment, with a free slot beside it.
        let (segment, word, slot) = self.room_later(Some(old.segment), 2);
        self.announce(hash);
        // SAFETY: under the lock; the one slot is live, and the other one free.
        unsafe { F::copy::<E>(old.segment.slot(old.slot), segment.slot(slot), 0) };
        let word = word.with_tag(slot, hash.tag());
        segment.set_word(word);
        if old.segment == self.first {
            self.word = self.word.with_vacated(old.slot, begun);
            self.publish();
        } else {
            old.segment.set_word(old.segment.word().with_vacated(old.slot, begun));
        }
        let free = word.free().next().expect("there were two");
        // SAFETY: under the lock, and the slot is free.
        let entry = unsafe { F::put(segment.slot(free), new, 0) };
        segment.set_word(word.with_tag(free, hash.tag()).with_vacated(slot, begun));
        self.tidy(section);
        entry
    }

    /// Removes the entry of a slot.
    pub(crate) fn remove(&mut self, section: &Section<'_, E, F>, segment: Segment<'g, E, F>, slot: usize) {
        let hidden = |word: Word| {
            if F::BOXED { word.without_tag(slot) } else { word.with_vacated(slot, F::Domain::begun(section.guard())) }
        };
        // SAFETY: under the lock.
        unsafe { F::take(segment.slot(slot)) };
        section.vacated();
        if segment == self.first {
            self.word = hidden(self.word);
        } else {
            segment.set_word(hidden(segment.word()));
            self.tidy(section);
        }
    }

    /// Returns a later segment with `wanted` free slots, behind the given one, its word, and a free
    /// slot. Adds a segment if there is none.
    fn room_later(&self, behind: Option<Segment<'g, E, F>>, wanted: usize) -> (Segment<'g, E, F>, Word, usize) {
        let mut last = self.first;
        let mut is_behind = behind.is_none_or(|behind| behind == self.first);
        for (segment, word) in self.first.chain(self.word).skip(1) {
            last = segment;
            let room = if is_behind { with_room::<F>(word, wanted) } else { None };
            if let Some((word, slot)) = room {
                return (segment, word, slot);
            }
            is_behind |= behind.is_some_and(|behind| behind == segment);
        }
        let added = Segment::allocate();
        last.set_later(Some(added));
        (added, Word::EMPTY, 0)
    }

    /// Unlinks later segments without live slots, and clears the bits of the filter that stand for
    /// no live entry.
    fn tidy(&mut self, section: &Section<'_, E, F>) {
        let mut exact = self.word.without_filter();
        let mut last = self.first;
        let mut later = self.first.later();
        while let Some(segment) = later {
            let word = segment.word();
            later = segment.later();
            if word.live().is_empty() {
                // The first link is not read once the filter has no bits, but a lookup with an
                // older word may still read it, and finds later segments or none.
                last.set_later(later);
                // SAFETY: lookups that begin when the lock is released do not find it.
                unsafe { retire_segment(segment, section) };
            } else {
                exact = word.live().fold(exact, |exact, slot| exact.with_filter_of(word.tag(slot)));
                last = segment;
            }
        }
        self.word = exact;
    }
}

/// Frees a later segment after a grace period.
///
/// # Safety
///
/// No later reader can find it.
unsafe fn retire_segment<E, F: Form>(segment: Segment<'_, E, F>, section: &Section<'_, E, F>) {
    // A private domain may run destructors here, which may wait for the lock that this thread
    // holds.
    // SAFETY: guaranteed by the caller. The lifetime ends when it is freed.
    without_reclaiming(|| unsafe {
        section.table.domain.defer(section.guard(), segment.into_raw(), Segment::<E, F>::BYTES, |raw| {
            Segment::<E, F>::from_raw(raw).free();
        });
    });
}

/// Shows an entry in a free slot of a later segment.
///
/// # Safety
///
/// The caller holds the lock, and the filter has the bit of the hash.
unsafe fn show<E, F: Form>(
    segment: Segment<'_, E, F>,
    word: Word,
    slot: usize,
    hash: Hash,
    new: F::New<E>,
    window: u16,
) -> NonNull<E> {
    let word = word.with_tag(slot, hash.tag());
    // SAFETY: guaranteed by the caller.
    unsafe {
        if F::BOXED {
            segment.set_word(word);
            F::put(segment.slot(slot), new, window)
        } else {
            let entry = F::put(segment.slot(slot), new, window);
            segment.set_word(word);
            entry
        }
    }
}

/// Returns the word and the first free slot, if `wanted` are free. If there are not as many, first
/// makes vacated slots free, if that is possible.
#[inline(always)]
fn with_room<F: Form>(word: Word, wanted: usize) -> Option<(Word, usize)> {
    let has_room = |word: Word| word.free().nth(wanted - 1).and(word.free().next());
    if let Some(slot) = has_room(word) {
        return Some((word, slot));
    }
    if F::BOXED {
        return None;
    }
    let word = word.reclaimed(clock::ended());
    Some((word, has_room(word)?))
}
