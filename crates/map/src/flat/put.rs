//! Insertions and replacements of single entries.

use std::hash::{BuildHasher, Hash};
use std::mem::{ManuallyDrop, MaybeUninit, forget};
use std::ptr;
use std::sync::Arc;

use relativist_core::prefetch::prefetch;
use relativist_rcu::{Guard, clock};

use super::bucket::unlock;
use super::relocate::Relocatable;
use super::segment::{Entry, EntryBits, Place, Segment};
use super::table::Table;
use super::word::Tag;
use relativist_core::reentrancy;
use relativist_table as raw;

/// An entry that is about to be put into the table. Unless it is forgotten, it drops the entry.
///
/// As soon as a word shows the slot with the bits as live, they are shared with other threads.
/// After that the entry must not even be moved as an `Entry`: a `Box` in it would claim that no
/// other thread uses the memory to which it points.
struct Unplaced<K, V>(EntryBits<K, V>);

impl<K, V> Unplaced<K, V> {
    #[inline(always)]
    fn new(entry: Entry<K, V>) -> Self {
        Self(MaybeUninit::new(entry))
    }

    #[inline(always)]
    fn get(&self) -> &Entry<K, V> {
        // SAFETY: initialised in `new`.
        unsafe { self.0.assume_init_ref() }
    }

    /// Returns the entry. No live slot has its bits.
    fn into_entry(self) -> Entry<K, V> {
        let this = ManuallyDrop::new(self);
        // SAFETY: initialised in `new`, and read once, because `this` is not dropped.
        unsafe { this.0.assume_init_read() }
    }
}

impl<K, V> Drop for Unplaced<K, V> {
    fn drop(&mut self) {
        // SAFETY: initialised in `new`. A thread that has put the bits into a live slot forgets
        // this value, so it drops no entry of the table.
        unsafe { self.0.assume_init_drop() };
    }
}

/// The result of [`Table::put_new`]: the entry that is now in the table. Or the one that was in it,
/// and the new one.
pub(super) type PutNew<'g, K, V, New = Entry<K, V>> = Result<&'g Entry<K, V>, (&'g Entry<K, V>, New)>;

impl<K, V, S> Table<K, V, S>
where
    K: Hash + Eq + Relocatable,
    V: Relocatable,
    S: BuildHasher + Send + Sync + 'static,
{
    /// Inserts an entry, and returns the one with the same key that it replaces. Returns the new
    /// entry as the error if there is no memory for another segment.
    #[inline(always)]
    pub(crate) fn put<'g>(
        self: &'g Arc<Self>,
        hash: raw::Hash,
        entry: Entry<K, V>,
        guard: &'g Guard,
    ) -> Result<Option<&'g Entry<K, V>>, Entry<K, V>> {
        let entry = Unplaced::new(entry);
        if self.insert_in_first(hash, &entry.0, guard).is_none() {
            return self.put_slowly(hash, entry, guard);
        }
        forget(entry);
        self.count_inserted(guard);
        Ok(None)
    }

    /// Inserts an entry, if that is simple: the first segment of its bucket has a free slot, no
    /// entry of the bucket has its tag, and no other thread holds the lock. No code of the caller
    /// runs under the lock.
    #[inline(always)]
    fn insert_in_first<'g>(
        &'g self,
        hash: raw::Hash,
        entry: &EntryBits<K, V>,
        guard: &'g Guard,
    ) -> Option<Place<'g, K, V>> {
        reentrancy::assert_outside(self);
        let tag = Tag::of(hash);
        let first = self.array(guard).bucket(hash);
        let word = first.word();
        if word.is_locked_or_moved() || word.first_match(tag).is_some() {
            return None;
        }
        let Some((with_free, slot)) = word.with_free_slot() else {
            prefetch(first.next().as_ptr());
            return None;
        };
        if !first.try_lock(word) {
            return None;
        }
        if first.next().may_lead_to(tag) {
            unlock(first, word);
            return None;
        }
        let place = Place { segment: first, slot };
        // SAFETY: under the lock, and the slot is free.
        unsafe { place.write(entry) };
        unlock(first, with_free.with_tag(slot, tag));
        Some(place)
    }

    /// Replaces the entry of the same key, if that is simple: it is in the first segment of its
    /// bucket, which has a free slot, and no other thread holds the lock. Returns the old entry.
    #[inline(always)]
    fn replace_in_first<'g>(
        &'g self,
        hash: raw::Hash,
        entry: &Unplaced<K, V>,
        guard: &'g Guard,
    ) -> Option<Place<'g, K, V>> {
        let tag = Tag::of(hash);
        let first = self.array(guard).bucket(hash);
        let word = first.word();
        if word.is_locked_or_moved() {
            return None;
        }
        let old = Place { segment: first, slot: word.first_match(tag)? };
        let (with_free, slot) = word.with_free_slot()?;
        let mut bucket = self.lock_unchanged(first, word, guard)?;
        // SAFETY: live under the lock.
        if unsafe { old.entry() }.key != entry.get().key {
            return None;
        }
        // SAFETY: under the lock, and the slot is free.
        unsafe { Place { segment: first, slot }.write(&entry.0) };
        bucket.word = with_free.with_tag(slot, tag).with_vacated(old.slot, clock::begun(guard));
        Some(old)
    }

    #[inline(never)]
    fn put_slowly<'g>(
        self: &'g Arc<Self>,
        hash: raw::Hash,
        entry: Unplaced<K, V>,
        guard: &'g Guard,
    ) -> Result<Option<&'g Entry<K, V>>, Entry<K, V>> {
        if let Some(old) = self.replace_in_first(hash, &entry, guard) {
            forget(entry);
            // SAFETY: this thread has just replaced it, under the guard.
            return Ok(Some(unsafe { self.retire(old, guard) }));
        }
        let tag = Tag::of(hash);
        self.help_to_move(guard);
        // Declared after `entry`: if `Eq` panics, the bucket is unlocked before the entry is
        // dropped, whose destructor may use the table.
        let mut bucket = self.lock(hash, guard);
        if let Some(old) = bucket.find(tag, |key| *key == entry.get().key) {
            if bucket.replace(old, tag, &entry.0).is_none() {
                return Err(entry.into_entry());
            }
            drop(bucket);
            forget(entry);
            // SAFETY: this thread has just replaced it, under the guard.
            return Ok(Some(unsafe { self.retire(old, guard) }));
        }
        if bucket.insert(tag, &entry.0).is_none() {
            return Err(entry.into_entry());
        }
        drop(bucket);
        forget(entry);
        self.count_inserted(guard);
        Ok(None)
    }

    /// Inserts an entry if its key is not in the table. Otherwise returns the entry in the table,
    /// and the new one.
    #[inline]
    pub(crate) fn put_new<'g>(
        self: &'g Arc<Self>,
        hash: raw::Hash,
        entry: Entry<K, V>,
        guard: &'g Guard,
    ) -> PutNew<'g, K, V> {
        let entry = Unplaced::new(entry);
        if let Some(place) = self.insert_in_first(hash, &entry.0, guard) {
            forget(entry);
            self.count_inserted(guard);
            // SAFETY: this thread has made the slot live, in this section.
            return Ok(unsafe { place.entry() });
        }
        let tag = Tag::of(hash);
        self.help_to_move(guard);
        let mut bucket = self.lock(hash, guard); // declared after `entry`, as in `put`
        if let Some(current) = bucket.find(tag, |key| *key == entry.get().key) {
            // SAFETY: live under the lock. So its slot is not used again in this section.
            return Err((unsafe { current.entry() }, entry.into_entry()));
        }
        let Some(place) = bucket.insert(tag, &entry.0) else { Segment::<K, V>::abort() };
        drop(bucket);
        forget(entry);
        self.count_inserted(guard);
        // SAFETY: this thread has made the slot live, in this section.
        Ok(unsafe { place.entry() })
    }

    /// Replaces the entry `old`. Returns the new entry as the error if `old` is no longer in the
    /// table, or no longer at its address.
    pub(crate) fn replace<'g>(
        self: &'g Arc<Self>,
        hash: raw::Hash,
        old: &'g Entry<K, V>,
        entry: Entry<K, V>,
        guard: &'g Guard,
    ) -> Result<&'g Entry<K, V>, Entry<K, V>> {
        let entry = Unplaced::new(entry);
        let tag = Tag::of(hash);
        self.help_to_move(guard);
        let mut bucket = self.lock(hash, guard);
        let Some(old) = bucket.find(tag, |key| ptr::eq(key, &old.key)) else { return Err(entry.into_entry()) };
        let Some(place) = bucket.replace(old, tag, &entry.0) else { Segment::<K, V>::abort() };
        drop(bucket);
        forget(entry);
        // SAFETY: this thread has replaced the old entry, and made the new one live, in this
        // section.
        unsafe {
            self.retire(old, guard);
            Ok(place.entry())
        }
    }
}
