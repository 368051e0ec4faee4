//! A locked bucket, or a locked group of buckets that is being resized, and how updates change it.
//!
//! A coarse bucket and the fine buckets that it covers are a *group*. While a group is in transition its links form one
//! chain, which starts at the coarse head; the fine heads are entries into it. Whoever updates then holds the lock of the
//! coarse head and keeps right what leads to the link: the predecessor (or the coarse head), and the fine head if the link is
//! the first of its fine bucket.
//!
//! Readers may come by either array: those who began before the new one was published by the older, all later ones by
//! the newer. So that no lookup by the older array sees a change which a lookup that begins *afterwards*, by the newer one,
//! does not see yet, changes reach the newer array first. A lookup by the older one began before the array was
//! replaced; if it misses the change, it counts as having come before it.
//!
//! A lookup may be guided by an old head word, too, into links that are new. So that it finds none which a later lookup denies on the
//! strength of the summary alone, summaries announce a link before its predecessor leads to it.

use std::ptr::NonNull;

use relativist_rcu::Guard;

use super::array::Array;
use super::hash::Scale;
use super::head::{Head, Word};
use super::table::Core;
use super::{Hash, Link, held};
use crate::mutation;

/// Exclusive access to the chain that a hash belongs to. Unlocks when dropped.
pub(super) struct Group<'g> {
    core: &'g Core,
    array: Array<'g>,
    head: &'g Head,
    /// What `head` held when it was locked.
    word: Word,
    scale: Scale,
    /// In transition: the other entry to keep right.
    fine: Option<Fine<'g>>,
}

struct Fine<'g> {
    array: Array<'g>,
    head: &'g Head,
    scale: Scale,
    /// The first bucket of the group.
    first: usize,
}

/// A place in a chain.
#[derive(Clone, Copy)]
pub(super) struct Place {
    /// The link before it; `None` when it is the first.
    before: Option<NonNull<Link>>,
    /// The link there that matches.
    pub(super) found: Option<NonNull<Link>>,
    /// The link after it.
    pub(super) after: *mut Link,
}

/// How an update changes the summaries.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Change {
    Insert,
    Replace,
    Remove,
    /// Takes a link out of the chain that lookups are to find all the same: the summary goes on announcing it.
    Unlink,
}

impl Core {
    /// Locks what has to be locked to change the chain of this hash. Panics if this thread holds another lock of the table.
    #[inline(always)]
    pub(super) fn lock_group<'g>(&'g self, hash: Hash, guard: &'g Guard) -> Group<'g> {
        held::enter(self);
        self.lock_chain(hash, guard)
    }

    /// A second group for a [rename](super::rename), which holds the resizer's mutex.
    pub(super) fn lock_another<'g>(&'g self, hash: Hash, guard: &'g Guard) -> Group<'g> {
        held::enter_again(self);
        self.lock_chain(hash, guard)
    }

    /// The same for who has entered the table in this thread's list of tables.
    #[inline(always)]
    fn lock_chain<'g>(&'g self, hash: Hash, guard: &'g Guard) -> Group<'g> {
        let array = self.array(guard);
        let (head, scale) = array.head_and_scale(hash);
        if let Some(word) = head.try_lock_if_settled() {
            return Group { core: self, array, head, word, scale, fine: None };
        }
        self.lock_chain_otherwise(hash, guard)
    }

    /// The bucket is locked or in transition.
    #[cold]
    fn lock_chain_otherwise<'g>(&'g self, hash: Hash, guard: &'g Guard) -> Group<'g> {
        loop {
            let array = self.array(guard);
            let head = array.head(hash);
            if mutation::is("ignore-transition") {
                return Group { core: self, array, head, word: head.lock(), scale: array.scale(), fine: None };
            }
            if let Some(word) = head.lock_if_settled() {
                return Group { core: self, array, head, word, scale: array.scale(), fine: None };
            }
            // In transition. No partner: the transition has ended since we looked, look again.
            let Some(partner) = array.partner() else { continue };
            let (coarse, fine) = if array.bits() < partner.bits() { (array, partner) } else { (partner, array) };
            let head = coarse.head(hash);
            let word = head.lock();
            if word.is_moved() && !mutation::is("ignore-moved") {
                // The group has grown since we looked: its fine heads can be locked now.
                head.unlock(word);
                continue;
            }
            let first = hash.bucket(coarse.scale()) << (fine.bits() - coarse.bits());
            let fine = Fine { array: fine, head: fine.head(hash), scale: fine.scale(), first };
            return Group { core: self, array: coarse, head, word, scale: coarse.scale(), fine: Some(fine) };
        }
    }
}

impl Group<'_> {
    /// Finds the link that matches, or the place where one with this hash belongs: after all of smaller or equal hash.
    #[inline(always)]
    pub(super) fn search(&self, hash: Hash, mut is_match: impl FnMut(NonNull<Link>) -> bool) -> Place {
        let mut before = None;
        let mut next = match &self.fine {
            // Where a new link comes first, there is no need to look at the others.
            None if self.word.is_after(hash, self.scale) => {
                return Place { before, found: None, after: self.word.first() };
            }
            // While the table grows, each update keeps the fine heads right. While it shrinks, those that came by the coarse array don't,
            // and a fine head may lead to a link that has been removed.
            Some(fine) if self.word.in_transition() || mutation::is("stale-entry") => {
                fine.entry_before(hash).unwrap_or_else(|| self.word.first())
            }
            _ => self.word.first(),
        };
        while let Some(link) = NonNull::new(next) {
            // SAFETY: reachable from a head whose lock we hold: not removed, hence alive.
            let current = unsafe { link.as_ref() };
            let its = current.hash();
            if its > hash {
                break;
            }
            let after = current.next();
            if its == hash && is_match(link) {
                return Place { before, found: Some(link), after };
            }
            before = Some(link);
            next = after;
        }
        Place { before, found: None, after: next }
    }

    /// Makes the chain lead to `to` at `place`, adjusts heads and summaries, and unlocks.
    #[inline(always)]
    pub(super) fn splice(self, place: Place, to: *mut Link, change: Change, hash: Hash) {
        let is_late = mutation::is("mark-late");
        if change == Change::Insert && !is_late {
            self.mark_occupied(hash);
        }
        if change == Change::Insert && place.before.is_some() && !mutation::is("unannounced") {
            self.announce(hash);
        }
        let word = place.updated(self.word, self.scale, to, change, hash);
        match &self.fine {
            None => place.link(to),
            Some(_) => self.splice_in_transition(place, to, change, hash, word),
        }
        let array = self.array;
        self.unlock(word);
        if is_late {
            // SAFETY: as in `mark_occupied`.
            unsafe { array.mark_occupied(hash) };
        }
    }

    #[cold]
    fn splice_in_transition(&self, place: Place, to: *mut Link, change: Change, hash: Hash, word: Word) {
        match &self.fine {
            None => (),
            Some(fine) if mutation::is("forget-fine") => {
                let _ = fine;
                place.link(to);
            }
            Some(fine) => {
                let fine_word = place.updated(fine.head.load(), fine.scale, to, change, hash);
                // The newer array first: see the top of this file. The coarse head is marked only when the group grows.
                if self.word.in_transition() != mutation::is("older-first") {
                    fine.head.store(fine_word);
                    place.link(to);
                } else {
                    self.head.set_locked(word);
                    place.link(to);
                    fine.head.store(fine_word);
                }
            }
        }
    }

    /// Tells iterations of the buckets that are empty and about to have a link: see `occupancy.rs`.
    #[inline(always)]
    fn mark_occupied(&self, hash: Hash) {
        if self.word.first().is_null() {
            // SAFETY: the array was found under the guard that lives for `'g`.
            unsafe { self.array.mark_occupied(hash) };
        }
        if let Some(fine) = &self.fine {
            fine.mark_occupied(hash);
        }
    }

    /// Sets the summary bits of a link that is about to be reachable by another one: see the top of this file.
    #[cold]
    fn announce(&self, hash: Hash) {
        if !self.word.may_contain(hash, self.scale) {
            self.head.set_locked(self.word.with_summary_of(hash, self.scale));
        }
        if let Some(fine) = &self.fine {
            fine.head.store(fine.head.load().with_summary_of(hash, fine.scale));
        }
    }

    /// As [`Group::splice`], but keeps the lock. For groups that are not in transition.
    pub(super) fn splice_locked(&mut self, place: Place, to: *mut Link, change: Change, hash: Hash) {
        if change == Change::Insert && !mutation::is("unmarked-rename") {
            self.mark_occupied(hash);
        }
        self.set_locked(place.updated(self.word, self.scale, to, change, hash));
        place.link(to);
    }

    /// Unlinks the whole chain and unlocks, and returns the first link, and how large the bucket was; `None` for a group in transition, where it is longer than
    /// the bucket.
    pub(super) fn unlink_all(self) -> Option<(*mut Link, Scale)> {
        if self.fine.is_some() {
            return None;
        }
        let (first, scale) = (self.word.first(), self.scale);
        let word = match self.core.hand.kind_of_removal() {
            Change::Remove => Word::EMPTY,
            _ => self.word.with_first(std::ptr::null_mut()),
        };
        self.unlock(word);
        Some((first, scale))
    }

    /// Links in a link behind those of equal hash, and keeps the lock.
    pub(super) fn insert_locked(&mut self, new: NonNull<Link>, hash: Hash) {
        let place = self.search(hash, |_| false);
        prepare(new, hash, place.after);
        self.splice_locked(place, new.as_ptr(), Change::Insert, hash);
    }

    /// Sets the summary bit of a link that lookups are about to find.
    pub(super) fn announce_locked(&mut self, hash: Hash) {
        self.set_locked(self.word.with_summary_of(hash, self.scale));
    }

    /// Clears the summary bit of a link that lookups don't find any more, if no other needs it.
    pub(super) fn forget_locked(&mut self, hash: Hash) {
        if self.search(hash, |_| false).is_last_of_its_kind(hash, self.scale) {
            self.set_locked(self.word.without_summary_of(hash, self.scale));
        }
    }

    fn set_locked(&mut self, word: Word) {
        debug_assert!(self.fine.is_none());
        self.head.set_locked(word);
        self.word = word;
    }

    #[inline(always)]
    fn unlock(self, word: Word) {
        self.head.unlock(word);
        held::leave(self.core);
        std::mem::forget(self);
    }
}

impl Fine<'_> {
    /// While the table grows, a link on the way to the place of this hash, from which the rest of the way is short, if one is soon found: the first of the fine
    /// bucket before it, or before that one. While a table grows under many insertions, merged chains are long.
    #[cold]
    fn entry_before(&self, hash: Hash) -> Option<*mut Link> {
        /// In buckets; their heads lie side by side.
        const FARTHEST: usize = 32;
        let bucket = hash.bucket(self.scale);
        let heads = &self.array.all()[bucket.saturating_sub(FARTHEST).max(self.first)..bucket];
        heads.iter().rev().map(|head| head.load().first()).find(|first| !first.is_null())
    }

    #[cold]
    fn mark_occupied(&self, hash: Hash) {
        if self.head.load().first().is_null() && !mutation::is("mark-coarse-only") {
            // SAFETY: as in `Group::mark_occupied`.
            unsafe { self.array.mark_occupied(hash) };
        }
    }
}

impl Drop for Group<'_> {
    fn drop(&mut self) {
        if !mutation::is("keep-lock") {
            self.head.unlock(self.word);
        }
        held::leave(self.core);
    }
}

impl Place {
    /// Changes the predecessor, if there is one; the heads are the caller's business.
    #[inline(always)]
    fn link(&self, to: *mut Link) {
        if let Some(before) = self.before {
            // SAFETY: in the chain that the caller has locked, hence alive.
            unsafe { before.as_ref() }.set_next(to);
        }
    }

    /// What a head of this bucket (of so many) holds after the change.
    #[inline(always)]
    fn updated(&self, word: Word, scale: Scale, to: *mut Link, change: Change, hash: Hash) -> Word {
        let is_here = |link: NonNull<Link>| {
            // SAFETY: all links that we look at are in the chain that the caller has locked, or about to enter it.
            unsafe { link.as_ref() }.hash().shares_bucket(hash, scale)
        };
        let is_first = !self.before.is_some_and(is_here);
        // In a longer chain than this bucket's the next link may belong to another one.
        let first = if NonNull::new(to).is_some_and(is_here) { to } else { std::ptr::null_mut() };
        let word = if is_first { word.with_first(first) } else { word };
        match change {
            Change::Insert if !mutation::is("forget-summary") => word.with_summary_of(hash, scale),
            Change::Remove if self.is_last_of_its_kind(hash, scale) => word.without_summary_of(hash, scale),
            Change::Insert | Change::Remove | Change::Replace | Change::Unlink => word,
        }
    }

    /// Whether the neighbours would set other bits in the summary. (The chain is sorted, so they are who counts.)
    #[inline(always)]
    fn is_last_of_its_kind(&self, hash: Hash, scale: Scale) -> bool {
        let is_kin = |link: NonNull<Link>| {
            // SAFETY: as in `updated`.
            unsafe { link.as_ref() }.hash().shares_summary(hash, scale)
        };
        let has_kin = self.before.is_some_and(is_kin) || NonNull::new(self.after).is_some_and(is_kin);
        !has_kin || mutation::is("clear-shared-summary")
    }
}

/// Makes a link ready to be reached.
#[inline(always)]
pub(super) fn prepare(new: NonNull<Link>, hash: Hash, next: *mut Link) {
    // SAFETY: who links it in vouches that it is valid.
    let new = unsafe { new.as_ref() };
    assert!(new.hash() == hash, "the link's hash is {:?}, the entry's {hash:?}", new.hash());
    // Behind another link it need not fit into a head yet, but it may be the first later.
    let _ = Word::EMPTY.with_first(std::ptr::from_ref(new).cast_mut());
    new.set_next_unpublished(next);
}
