//! A link on its way from one place of the table to another: in no chain, and yet in the table.
//!
//! A [rename](super::Table::rename) takes a link out of the chain of its old hash and puts one into
//! the chain of the new hash. In between it has it *in hand*, where lookups find it who have come
//! to the end of their chain in vain:
//!
//! | stage | who has missed in the chain of the |
//! |---|---|
//! | empty | |
//! | before | old hash, finds what is in hand |
//! | after | new hash, finds what is in hand |
//! | again | new hash (or old, if the link went back) may have looked before the link came there, and looks again |
//!
//! From *before* to *after* is one store: the moment at which the entry changes its name. A hit
//! costs nothing of this, nor does a miss that the head's summary answers; hence the summaries of
//! both hashes have to say "maybe" while there is something in hand.

use std::ptr::{self, NonNull, null_mut};

use super::group::Change;
use super::{Hash, Link};
use crate::sync::{Acquire, AtomicPtr, AtomicU64, Relaxed, Release};

/// Only the holder of the resizer's mutex changes it, so there is one rename at a time. Exception:
/// in the stage `before`, an update that holds the lock of the old hash may change the link.
pub(super) struct InFlightRename {
    /// Null, `before`, `after` or [`RECHECK`].
    stage: AtomicPtr<InFlightLink>,
    old_key: InFlightLink,
    new_key: InFlightLink,
}

struct InFlightLink {
    hash: AtomicU64,
    link: AtomicPtr<Link>,
}

const RECHECK: *mut InFlightLink = NonNull::dangling().as_ptr();

/// What a lookup learns that has missed in its chain.
pub(super) enum MissOutcome {
    Nothing,
    /// This is the only one that may match.
    Link(NonNull<Link>),
    /// What the chain holds now counts.
    WalkAgain,
}

impl InFlightRename {
    pub(super) fn new() -> Self {
        Self { stage: AtomicPtr::new(null_mut()), old_key: InFlightLink::new(), new_key: InFlightLink::new() }
    }

    #[inline(always)]
    pub(super) fn is_empty(&self) -> bool {
        // Acquire: pairs with the Release in `enter`; who relies on the chain alone sees it as the
        // rename left it.
        self.stage.load(Acquire).is_null()
    }

    /// How a link is to be taken out of a chain: some link in hand may need the same bit of the
    /// summary.
    #[inline(always)]
    pub(super) fn kind_of_removal(&self) -> Change {
        if self.is_empty() { Change::Remove } else { Change::Unlink }
    }

    /// For lookups that have missed in the chain of this hash.
    pub(super) fn after_miss(&self, hash: Hash) -> MissOutcome {
        // Acquire: pairs with the Release in `enter`: the answer is seen as it was set, and the
        // next look at the chains sees what was done to them before this stage.
        let stage = self.stage.load(Acquire);
        match [&self.old_key, &self.new_key].into_iter().find(|&at| ptr::eq(stage, at)) {
            Some(in_flight) => in_flight.link_if(hash).map_or(MissOutcome::Nothing, MissOutcome::Link),
            None if stage.is_null() => MissOutcome::Nothing,
            None => MissOutcome::WalkAgain,
        }
    }

    /// Whether the stage is *before*. For the rename itself.
    pub(super) fn answers_old_key(&self) -> bool {
        // Acquire: as in `ask`.
        ptr::eq(self.stage.load(Acquire), &self.old_key)
    }

    /// For who holds the lock of this hash, and has found nothing in its chain: what it finds in
    /// hand is there until it lets go.
    #[cold]
    pub(super) fn old_link(&self, hash: Hash) -> Option<NonNull<Link>> {
        if self.answers_old_key() { self.old_key.link_if(hash) } else { None }
    }

    /// Replaces what `held` has returned, or removes it. The caller has held the lock since.
    pub(super) fn set_old_link(&self, link: *mut Link) {
        // Release: pairs with the Acquire in `InFlightLink::to`: the link is seen as it was made.
        self.old_key.link.store(link, Release);
    }

    /// Stage *before*. The caller holds the lock of this hash, and the link is still in its chain.
    pub(super) fn answer_old_key(&self, hash: Hash, link: NonNull<Link>) {
        self.old_key.set(hash, link);
        self.enter(ptr::from_ref(&self.old_key).cast_mut());
    }

    /// Stage *after*: the moment of the rename. The caller holds the locks of both hashes, and
    /// neither chain has the link.
    pub(super) fn answer_new_key(&self, hash: Hash, link: NonNull<Link>) {
        self.new_key.set(hash, link);
        self.enter(ptr::from_ref(&self.new_key).cast_mut());
    }

    /// Stage *again*. The caller holds the lock of the hash in whose chain the link is now. Later
    /// lookups needn't ask, and must not be answered: the link can be removed as soon as the lock
    /// is released.
    pub(super) fn recheck(&self) {
        self.enter(RECHECK);
    }

    /// No lookup is left that began before *again*.
    pub(super) fn clear(&self) {
        self.enter(null_mut());
    }

    fn enter(&self, stage: *mut InFlightLink) {
        // Release: pairs with the Acquire in `is_empty`, `ask` and `held`.
        self.stage.store(stage, Release);
    }
}

impl InFlightLink {
    fn new() -> Self {
        Self { hash: AtomicU64::new(0), link: AtomicPtr::new(null_mut()) }
    }

    /// Nobody can be looking: readers of the last rename have left before it ended.
    fn set(&self, hash: Hash, link: NonNull<Link>) {
        // Relaxed, both: published by the stage.
        self.hash.store(hash.get(), Relaxed);
        self.link.store(link.as_ptr(), Relaxed);
    }

    fn link_if(&self, hash: Hash) -> Option<NonNull<Link>> {
        // Relaxed: set before the stage was published. Acquire: pairs with the Release in
        // `set_held`.
        let link = || NonNull::new(self.link.load(Acquire));
        (self.hash.load(Relaxed) == hash.get()).then(link).flatten()
    }
}
