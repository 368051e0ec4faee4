//! A locked bucket, or a locked group of buckets while the table is resized, and how updates change
//! it.
//!
//! A bucket of the *base* array and the finer buckets that it covers form a *group*. While the
//! table is resized, the links of a group form one chain, which starts at the head in the base
//! array. Heads of finer arrays lead into that chain. The base head is the lock of the group. An
//! update that holds it changes everything that leads to the link: the predecessor or the base
//! head, and in each array that it maintains, the head of the bucket if the link is its first.
//!
//! Which arrays does an update maintain? While the table grows: the published array, and the one
//! that is being filled to replace it. While it shrinks: the one by which the update entered. It
//! does not maintain older arrays. A lookup that entered by an older array began before the newer
//! one was published, so it overlaps with the update and may count as having come before it. It
//! still finds every link that is in the table throughout, because a removed link still leads to
//! the links that came after it.
//!
//! Lookups that run at the same time may enter by different arrays. A lookup by an older array must
//! not see a change that a lookup which begins *afterwards*, by a newer array, does not see.
//! Therefore changes reach the newest array first.
//!
//! A lookup that has loaded an old head word may reach new links. It must find no link that a later
//! lookup misses because of the summary. Therefore summaries announce a link before its predecessor
//! leads to it.

use std::ptr::{NonNull, null_mut};

use relativist_core::prefetch::prefetch;
use relativist_rcu::Guard;

use super::array::Array;
use super::hash::Scale;
use super::head::{Head, Word};
use super::inner::TableInner;
use super::link::AnyLink;
use super::{Hash, Link};
use relativist_core::reentrancy;

/// Exclusive access to the chain that a hash belongs to. Unlocks when dropped.
pub(super) struct LockedGroup<'g, L: AnyLink = Link> {
    inner: &'g TableInner<L>,
    /// The array of the head that is locked.
    array: Array<'g>,
    head: &'g Head,
    /// What `head` held when it was locked.
    word: Word,
    scale: Scale,
    /// During a resize: the finer heads that the update maintains, in the order of their
    /// publication.
    levels: [Option<Level<'g>>; 2],
}

/// The head of a finer array that covers the hash.
struct Level<'g> {
    array: Array<'g>,
    head: &'g Head,
}

/// A place in a chain.
pub(super) struct Place<L: AnyLink = Link> {
    /// The link before this place; `None` at the start of the chain.
    before: Option<NonNull<L>>,
    /// The link there that matches.
    pub(super) found: Option<NonNull<L>>,
    /// The link after it.
    pub(super) after: *mut L,
}

impl<L: AnyLink> Clone for Place<L> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<L: AnyLink> Copy for Place<L> {}

/// How an update changes the summaries.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Change {
    Insert,
    Replace,
    Remove,
}

impl<L: AnyLink> TableInner<L> {
    /// Locks the head that guards the chain of this hash. Panics if this thread holds another lock
    /// of the table.
    #[inline(always)]
    pub(super) fn lock_group<'g>(&'g self, hash: Hash, guard: &'g Guard) -> LockedGroup<'g, L> {
        reentrancy::enter(self);
        let array = self.array(guard);
        let (head, scale) = array.head_and_scale(hash);
        if let Some(word) = head.try_lock_if_settled() {
            return LockedGroup { inner: self, array, head, word, scale, levels: [None, None] };
        }
        self.lock_chain_slowly(hash, guard)
    }

    /// Locks the chain if another thread has locked the bucket, or a resize is in progress.
    #[cold]
    fn lock_chain_slowly<'g>(&'g self, hash: Hash, guard: &'g Guard) -> LockedGroup<'g, L> {
        loop {
            let array = self.array(guard);
            let head = array.head(hash);
            match head.lock_owner() {
                Ok(word) => return self.locked(array, head, word, hash, None),
                // The group was cut since the array was loaded: a finer array is published.
                Err(word) if word.is_moved() => {}
                Err(_) => {
                    if let Some(group) = self.try_lock_base(array, hash) {
                        return group;
                    }
                }
            }
            // The resizer has made progress meanwhile: start again from the array that is published
            // now.
        }
    }

    /// Locks the base head for a hash whose head in `array` follows it. `None` if it no longer
    /// does.
    fn try_lock_base<'g>(&'g self, array: Array<'g>, hash: Hash) -> Option<LockedGroup<'g, L>> {
        let base = array.base()?;
        // Prefetches the link that is most likely the predecessor. The exchange below waits for all
        // earlier loads, and delays all later ones.
        if let Some(first) = (Level { array, head: array.head(hash) }).first_before::<L>(hash, base) {
            prefetch(first);
        }
        let head = base.head(hash);
        let word = head.lock_owner().ok()?;
        // As long as `base` is the base, only the holder of this lock changes whether the head
        // follows. If it does not, then it followed the base of an earlier resize, whose groups
        // were cut, and does not follow this one yet: this lock is not that of the chain.
        if !array.head(hash).load().follows() {
            head.unlock(word);
            return None;
        }
        Some(self.locked(base, head, word, hash, Some(array)))
    }

    /// Returns a group whose head is locked. `entered` is the array by which the update entered, if
    /// that is another one.
    #[cold]
    fn locked<'g>(
        &'g self,
        array: Array<'g>,
        head: &'g Head,
        word: Word,
        hash: Hash,
        entered: Option<Array<'g>>,
    ) -> LockedGroup<'g, L> {
        let level = |array: Array<'g>| Level { array, head: array.head(hash) };
        let grows = word.has_finer();
        let first = if grows { array.finer() } else { entered }.map(level);
        let second = first.as_ref().filter(|first| grows && first.head.load().has_finer());
        let second = second.and_then(|first| first.array.finer()).map(level);
        LockedGroup { inner: self, array, head, word, scale: array.scale(), levels: [first, second] }
    }
}

impl<L: AnyLink> LockedGroup<'_, L> {
    /// Finds the link that matches, or the place for a new link with this hash: after all links of
    /// smaller or equal hash.
    #[inline(always)]
    pub(super) fn search(&self, hash: Hash, is_match: impl FnMut(NonNull<L>) -> bool) -> Place<L> {
        match self.finest() {
            // A new link that comes first needs no look at the others.
            None if self.word.is_after(hash, self.scale) => Place::at_start(self.word.first()),
            None => walk(self.word.first(), hash, is_match),
            Some(level) => self.search_in_resize(level, hash, is_match),
        }
    }

    /// Finds the link or its place, starting at a head that is nearer. While the table grows, each
    /// update maintains the finer heads, so a search may start at one of them. While it shrinks,
    /// updates that entered by the coarse array do not maintain them, so a finer head may lead to a
    /// link that was removed.
    #[cold]
    fn search_in_resize(&self, level: &Level<'_>, hash: Hash, is_match: impl FnMut(NonNull<L>) -> bool) -> Place<L> {
        if !self.word.has_finer() {
            return walk(self.word.first(), hash, is_match);
        }
        let (entry, _) = nearest_before(self.word.first(), level.heads_before(hash, self.array), hash);
        // In an array that is being filled, later heads may not be filled yet, so this searches the
        // published one.
        let after = self.levels[0].as_ref().and_then(|level| level.first_after(hash, self.array));
        match after {
            Some(after) => walk_to(entry, after),
            None => walk(entry, hash, is_match),
        }
    }

    /// Makes the chain lead to `to` at `place`, adjusts heads and summaries, and unlocks.
    #[inline(always)]
    pub(super) fn splice(self, place: Place<L>, to: *mut L, change: Change, hash: Hash) {
        if change == Change::Insert && place.before.is_some() {
            self.announce(hash);
        }
        let word = place.updated(self.word, self.scale, to, change, hash);
        match self.finest() {
            None => place.link(to),
            Some(_) => self.splice_in_resize(place, to, change, hash, word),
        }
        self.unlock(word);
    }

    /// Changes the newest array first: see the top of this file.
    #[cold]
    fn splice_in_resize(&self, place: Place<L>, to: *mut L, change: Change, hash: Hash, word: Word) {
        let store_levels = || {
            for level in self.levels.iter().rev().flatten() {
                level.head.store(place.updated(level.head.load(), level.array.scale(), to, change, hash));
            }
        };
        if self.word.has_finer() {
            store_levels();
            place.link(to);
        } else {
            self.head.set_locked(word);
            place.link(to);
            store_levels();
        }
    }

    /// Returns the head in the newest array that this update maintains, unless it is the locked
    /// one.
    #[inline(always)]
    fn finest(&self) -> Option<&Level<'_>> {
        match &self.levels {
            [None, _] => None,
            [first, second] => second.as_ref().or(first.as_ref()),
        }
    }

    /// Sets the summary bits of a link that is about to be reachable by another one: see the top of
    /// this file.
    #[cold]
    fn announce(&self, hash: Hash) {
        if !self.word.may_contain(hash, self.scale) {
            self.head.set_locked(self.word.with_summary_of(hash, self.scale));
        }
        for level in self.levels.iter().flatten() {
            level.head.store(level.head.load().with_summary_of(hash, level.array.scale()));
        }
    }

    /// Unlinks the whole chain and unlocks. Returns the first link, and the scale of the bucket.
    /// `None` during a resize, when the chain is longer than the bucket.
    pub(super) fn unlink_all(self) -> Option<(*mut L, Scale)> {
        if self.finest().is_some() {
            return None;
        }
        let (first, scale) = (self.word.first(), self.scale);
        self.unlock(Word::EMPTY);
        Some((first, scale))
    }

    #[inline(always)]
    fn unlock(self, word: Word) {
        self.head.unlock(word);
        reentrancy::leave(self.inner);
        std::mem::forget(self);
    }
}

impl<'g> Level<'g> {
    /// Returns the heads of earlier buckets, within the bucket of `base`.
    fn heads_before(&self, hash: Hash, base: Array<'_>) -> &'g [Head] {
        let bucket = hash.bucket(self.array.scale());
        let group = hash.bucket(base.scale()) << (self.array.bits() - base.bits());
        &self.array.all()[group..bucket]
    }

    /// Returns the first link of the nearest earlier bucket that has links, if that is near.
    #[cold]
    fn first_before<L>(&self, hash: Hash, base: Array<'_>) -> Option<*mut L> {
        /// A number of buckets.
        const MAX_DISTANCE: usize = 16;
        let heads = self.heads_before(hash, base).iter().rev().take(MAX_DISTANCE);
        heads.map(|head| head.load().first()).find(|first: &*mut L| !first.is_null())
    }

    /// Returns the link that comes after the place of this hash, while the table grows, if heads
    /// alone show that no link of its bucket comes before it or has the same hash. Null for the end
    /// of the chain.
    #[cold]
    fn first_after<L>(&self, hash: Hash, base: Array<'_>) -> Option<*mut L> {
        /// A number of buckets. Beyond it, walking the links costs less.
        const MAX_DISTANCE: usize = 32;
        let scale = self.array.scale();
        let word = self.head.load();
        if !word.is_empty() {
            return word.is_after(hash, scale).then(|| word.first());
        }
        let bucket = hash.bucket(scale);
        let factor_bits = self.array.bits() - base.bits();
        let end = ((bucket >> factor_bits) + 1) << factor_bits;
        let heads = &self.array.all()[bucket + 1..end];
        let words = heads.iter().take(MAX_DISTANCE).map(Head::load);
        let first = words.map(Word::first).find(|first: &*mut L| !first.is_null());
        first.or((heads.len() <= MAX_DISTANCE).then_some(null_mut()))
    }
}

impl<L: AnyLink> Drop for LockedGroup<'_, L> {
    fn drop(&mut self) {
        self.head.unlock(self.word);
        reentrancy::leave(self.inner);
    }
}

impl<L: AnyLink> Place<L> {
    /// Returns the place at the start of a chain, in front of this link.
    fn at_start(after: *mut L) -> Self {
        Self { before: None, found: None, after }
    }

    /// Changes the predecessor, if there is one. The caller changes the heads.
    #[inline(always)]
    fn link(&self, to: *mut L) {
        if let Some(before) = self.before {
            // SAFETY: in the chain that the caller has locked, hence alive. `to` is in this chain,
            // or enters it now.
            unsafe { before.as_ref().set_next(to) };
        }
    }

    /// Returns what a head of this bucket holds after the change, in an array of this scale.
    #[inline(always)]
    fn updated(&self, word: Word, scale: Scale, to: *mut L, change: Change, hash: Hash) -> Word {
        let is_here = |link: NonNull<L>| {
            // SAFETY: all these links are in the chain that the caller has locked, or about to
            // enter it.
            unsafe { link.as_ref() }.hash().shares_bucket(hash, scale)
        };
        let is_first = !self.before.is_some_and(is_here);
        // The chain may be longer than this bucket, so the next link may belong to another bucket.
        let first = if NonNull::new(to).is_some_and(is_here) { to } else { std::ptr::null_mut() };
        let word = if is_first { word.with_first(first) } else { word };
        match change {
            Change::Insert => word.with_summary_of(hash, scale),
            Change::Remove if self.is_sole_user_of_its_summary_bit(hash, scale) => word.without_summary_of(hash, scale),
            Change::Remove | Change::Replace => word,
        }
    }

    /// Returns whether no neighbour needs the same summary bit. (The chain is sorted, so no other
    /// links matter.)
    #[inline(always)]
    fn is_sole_user_of_its_summary_bit(&self, hash: Hash, scale: Scale) -> bool {
        let shares_bit = |link: NonNull<L>| {
            // SAFETY: as in `updated`.
            unsafe { link.as_ref() }.hash().shares_summary_bit(hash, scale)
        };
        let is_shared = self.before.is_some_and(shares_bit) || NonNull::new(self.after).is_some_and(shares_bit);
        !is_shared
    }
}

/// Returns a link shortly before the place of this hash in a group whose chains are uncut, and the
/// number of steps. If there is none, returns `start`, the first link of the group. `heads` are
/// those of the earlier buckets.
///
/// Two searches take turns, because either may be long: along the chain from its start, which is
/// short if the table is sparse; and back from the bucket, head by head, which is short if it is
/// not. In a group of n heads, they take about sqrt(n / 16) steps at most.
#[cold]
fn nearest_before<L: AnyLink>(start: *mut L, heads: &[Head], hash: Hash) -> (*mut L, usize) {
    /// Heads lie side by side, so reading several costs as much as one step along the chain.
    const HEADS_PER_STEP: usize = 16;
    let is_before = |link: *mut L| {
        // SAFETY: null, or in the chain that the caller has locked.
        unsafe { link.as_ref() }.is_some_and(|link| link.hash() < hash)
    };
    let mut before = start;
    if !is_before(start) {
        return (start, 0);
    }
    let mut steps = 0;
    for heads in heads.rchunks(HEADS_PER_STEP) {
        steps += 1;
        // The chains of heads that no longer follow were cut off.
        let words = heads.iter().rev().map(Head::load).take_while(|word| word.follows());
        if let Some(first) = words.map(Word::first).find(|first: &*mut L| !first.is_null()) {
            return (first, steps);
        }
        // SAFETY: as above, and not null.
        let next = unsafe { &*before }.next();
        if !is_before(next) {
            break;
        }
        before = next;
    }
    (before, steps)
}

/// Finds a link, or the place for it, starting at `next`. All links before `next` have smaller
/// hashes.
#[inline(always)]
fn walk<L: AnyLink>(mut next: *mut L, hash: Hash, mut is_match: impl FnMut(NonNull<L>) -> bool) -> Place<L> {
    let mut before = None;
    while let Some(link) = NonNull::new(next) {
        // SAFETY: reachable from a head whose lock the caller holds: not removed, hence alive.
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

/// Returns the place in front of `after`. Starts at `next`, which is `after` or a link before it.
/// Does not read `after`.
fn walk_to<L: AnyLink>(mut next: *mut L, after: *mut L) -> Place<L> {
    let mut before = None;
    while let Some(link) = NonNull::new(next).filter(|link| link.as_ptr() != after) {
        before = Some(link);
        // SAFETY: as in `walk`.
        next = unsafe { link.as_ref() }.next();
    }
    Place { before, found: None, after: next }
}

/// Prepares a link for insertion.
#[inline(always)]
pub(super) fn prepare<L: AnyLink>(new: NonNull<L>, hash: Hash, next: *mut L) {
    // SAFETY: the caller guarantees that it is valid.
    let new = unsafe { new.as_ref() };
    assert!(new.hash() == hash, "the link's hash is {:?}, the entry's {hash:?}", new.hash());
    // Panics if a head cannot hold the address. The link may be the first of its bucket later, even
    // if it is inserted behind another one now.
    let _ = Word::EMPTY.with_first(std::ptr::from_ref(new).cast_mut());
    // SAFETY: the caller guarantees that the link is in no table. `next` is in the chain that it
    // enters.
    unsafe { new.set_next_unpublished(next) };
}

#[cfg(all(test, not(relativist_loom)))]
mod tests {
    use relativist_rcu::read;
    use relativist_testing::random::Random;

    use super::*;
    use crate::policy::Resizing;
    use crate::{Link, Table};

    unsafe fn dispose(link: NonNull<Link>) {
        // SAFETY: all links of these tables are boxed.
        drop(unsafe { Box::from_raw(link.as_ptr()) });
    }

    /// An update of a table that grew, and whose chains are uncut because a reader stays, takes few
    /// steps to its place, whether the table is sparse or not.
    #[test]
    fn updates_take_few_steps_to_their_place_in_uncut_chains() {
        const BITS: u32 = 18;
        /// The table has two groups.
        const HEADS: f64 = (1 << (BITS - 1)) as f64;
        for links in [0, 1, 10, 100, 1000, 10_000, 100_000] {
            let table = Table::new(2, Resizing::Manual, dispose).expect("memory for two buckets");
            table.inner().grow(BITS, &mut table.inner().lock_resizer()).expect("memory for the buckets");
            let mut random = Random::new(links);
            for _ in 0..links {
                let link = NonNull::from(Box::leak(Box::new(Link::new(Hash::from_mixed(random.below(u64::MAX))))));
                // SAFETY: a fresh link.
                unsafe { table.insert(link, &read()) };
            }
            let mut most = 0;
            for _ in 0..2000 {
                let (hash, guard) = (Hash::from_mixed(random.below(u64::MAX)), read());
                let group = table.inner().lock_group(hash, &guard);
                let level = group.finest().expect("chains are uncut");
                let (near, steps) = nearest_before(group.word.first(), level.heads_before(hash, group.array), hash);
                most = most.max(steps);
                let all = walk(group.word.first::<Link>(), hash, |_| false);
                let found = walk(near, hash, |_| false);
                assert_eq!((found.before, found.after), (all.before, all.after), "the place of {hash:?}");
            }
            assert!((most as f64) < 2.0 * (HEADS / 16.0).sqrt(), "{most} steps in a table of {links} links");
        }
    }
}
