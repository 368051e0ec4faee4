//! Updates of a table that no other thread can see: they take no locks, and growing waits for no
//! reader.
//!
//! A table that is borrowed mutably has no reader and no updater, because all that find links in it
//! borrow it. Only the background worker may still use it, and only with the resizer's mutex.

use std::ptr::{NonNull, null_mut};

use super::array::{AllocError, Array};
use super::group::{Change, Place, prepare, walk};
use super::head::{Head, Word};
use super::inner::{TableInner, bits_for};
use super::link::{Chained, links_from};
use super::resizer::Resizer;
use super::{Hash, Link, Table};
use crate::policy::Resizing;
use relativist_core::sync::{MutexGuard, Relaxed};

/// Exclusive access to a table. Keeps the background worker from it.
pub struct Exclusive<'t> {
    inner: &'t TableInner,
    _resizer: MutexGuard<'t, Resizer>,
    /// The only array. Its chains are cut.
    array: Array<'t>,
    /// The number of links that were inserted and are not counted yet.
    inserted: usize,
}

/// A place in the table: either a link that matched, or the place for a new one. No other update
/// may come before the place is used.
pub struct ExclusivePlace<'t> {
    head: &'t Head,
    word: Word,
    place: Place,
    hash: Hash,
}

impl ExclusivePlace<'_> {
    /// Returns whether a link with the key is there.
    pub fn is_occupied(&self) -> bool {
        self.place.found.is_some()
    }
}

impl Table {
    /// Returns the interface for updates without locks, which the exclusive reference allows.
    pub fn exclusive(&mut self) -> Exclusive<'_> {
        let inner = self.inner();
        // Waits for the worker at most, which waits for no reader.
        let mut resizer = inner.lock_resizer();
        // SAFETY: the table is borrowed mutably.
        let array = unsafe { inner.settle_unseen(&mut resizer) };
        Exclusive { inner, _resizer: resizer, array, inserted: 0 }
    }
}

impl<'t> Exclusive<'t> {
    /// Makes room for as many more links, as far as there is memory for the buckets.
    pub fn reserve(&mut self, additional: usize) {
        let wanted = self.inner.policy.buckets_for(self.len().saturating_add(additional));
        if wanted > self.array.len() {
            self.grow(bits_for(wanted));
        }
    }

    /// Grows if the policy wants that for as many more links. Call it before they are inserted.
    pub fn expect(&mut self, additional: usize) {
        let policy = self.inner.policy;
        if policy.resizing != Resizing::Automatic {
            return;
        }
        let wanted = policy.wanted(self.len() + additional, self.array.len());
        if let Some(wanted) = wanted.filter(|&wanted| wanted > self.array.len()) {
            self.grow(bits_for(wanted));
        }
    }

    fn len(&self) -> usize {
        self.inner.count.sum() + self.inserted
    }

    /// Prefetches what insertions of these hashes will read. Takes at most [`Table::BATCH`] of
    /// them.
    pub fn prefetch(&self, hashes: &[Hash]) {
        // SAFETY: no other thread uses the table.
        unsafe { self.array.prefetch_for_updates::<Link>(hashes) };
    }

    /// Finds the link with this hash for which `is_match` returns true, or the place for a new one.
    pub fn find(&self, hash: Hash, is_match: impl FnMut(NonNull<Link>) -> bool) -> ExclusivePlace<'t> {
        let (head, scale) = self.array.head_and_scale(hash);
        let word = head.load();
        let place =
            if word.is_after(hash, scale) { Place::at_start(word.first()) } else { walk(word.first(), hash, is_match) };
        ExclusivePlace { head, word, place, hash }
    }

    /// Puts a link into the place, and returns the one that it replaces, which belongs to the
    /// caller now.
    ///
    /// # Safety
    ///
    /// The same as for [`VacantEntry::insert`](super::VacantEntry::insert), and the place was found
    /// by this `Exclusive` after its last change.
    pub unsafe fn put(&mut self, at: &ExclusivePlace<'t>, new: NonNull<Link>) -> Option<NonNull<Link>> {
        let ExclusivePlace { head, word, place, hash } = *at;
        prepare(new, hash, place.after);
        let change = if at.is_occupied() { Change::Replace } else { Change::Insert };
        head.store(place.updated(word, self.array.scale(), new.as_ptr(), change, hash));
        place.link(new.as_ptr());
        self.inserted += usize::from(change == Change::Insert);
        place.found
    }

    /// Grows to 2^`bits` buckets. Without memory the table stays as it is.
    fn grow(&mut self, bits: u32) {
        // SAFETY: no other thread uses the table.
        if let Ok(array) = unsafe { self.inner.grow_unseen(self.array, bits, self.len() > 0) } {
            self.array = array;
        }
    }
}

impl Drop for Exclusive<'_> {
    fn drop(&mut self) {
        self.inner.count.add_many(self.inserted as isize);
    }
}

impl TableInner {
    /// Cuts chains and frees retired arrays. Returns the only array that is left.
    ///
    /// # Safety
    ///
    /// During `'a` no thread uses the table, apart from this one and the worker.
    unsafe fn settle_unseen<'a>(&self, resizer: &mut Resizer) -> Array<'a> {
        self.finish_growth(resizer);
        if let Some(uncut) = resizer.take_uncut_if(|_| true) {
            self.cut(&uncut.base, resizer);
        }
        for array in resizer.take_retired() {
            // SAFETY: the resizer has replaced it, and the caller guarantees that it has no reader.
            unsafe { self.free_unseen(array.get()) };
        }
        // Relaxed: a statistic.
        self.resizing.store(false, Relaxed);
        // SAFETY: only the holder of the resizer's mutex replaces it.
        unsafe { self.array.load() }
    }

    /// Replaces the only array, whose chains are cut, by one of 2^`bits` buckets.
    ///
    /// # Safety
    ///
    /// No thread uses the table, apart from this one, which holds the resizer's mutex.
    unsafe fn grow_unseen<'a>(&self, old: Array<'_>, bits: u32, has_links: bool) -> Result<Array<'a>, AllocError> {
        let new = self.allocate_array(bits)?;
        if has_links {
            split(old, new);
        }
        self.array.publish(new);
        // SAFETY: guaranteed by the caller.
        unsafe { self.free_unseen(old) };
        self.size_changed(new.len());
        // Relaxed: a statistic.
        self.counts.grows.fetch_add(1, Relaxed);
        Ok(new)
    }

    /// Frees an array that was replaced.
    ///
    /// # Safety
    ///
    /// No thread uses it, and it is freed once.
    unsafe fn free_unseen(&self, array: Array<'_>) {
        // Relaxed: a statistic.
        self.counts.bucket_bytes.fetch_sub(array.bucket_bytes(), Relaxed);
        // SAFETY: guaranteed by the caller.
        unsafe { array.free() };
    }
}

/// Moves all links to the heads of a finer array, which are empty. No other thread uses them.
fn split(coarse: Array<'_>, fine: Array<'_>) {
    let scale = fine.scale();
    for (batch, heads) in coarse.all().chunks(Array::BATCH).enumerate() {
        let first = batch * Array::BATCH;
        // SAFETY: no other thread uses the links.
        unsafe { coarse.prefetch_chains::<Link>(first..first + heads.len(), |_| true) };
        for head in heads {
            let mut last: Option<(NonNull<Link>, Hash)> = None;
            // SAFETY: as above.
            for (link, hash) in unsafe { links_from(head.load().first::<Link>()) } {
                let to = fine.head(hash);
                let word = match last.filter(|(_, its)| its.shares_bucket(hash, scale)) {
                    Some(_) => to.load(),
                    None => {
                        // SAFETY: as above.
                        last.inspect(|(last, _)| unsafe { last.as_ref().set_next(null_mut()) });
                        Word::EMPTY.with_first(link.as_ptr())
                    }
                };
                to.store(word.with_summary_of(hash, scale));
                last = Some((link, hash));
            }
        }
    }
}
