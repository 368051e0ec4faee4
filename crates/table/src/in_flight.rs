//! The link that a rename is moving. Lookups find it here while it is in no chain.
//!
//! A [rename](super::Table::rename) takes a link out of the chain of its old hash and puts one into
//! the chain of the new hash. In between the link is *in flight*: a lookup that reaches the end of
//! its chain without a match looks here. What it finds depends on the stage:
//!
//! | stage | effect |
//! |---|---|
//! | empty | no rename is in progress |
//! | `OldKey` | a lookup of the old hash finds the link in flight |
//! | `NewKey` | a lookup of the new hash finds the link in flight |
//! | `Recheck` | the link is in a chain again; a lookup that missed may have walked too early, and walks again |
//!
//! The transition from `OldKey` to `NewKey` is one store: at that instant the entry changes its
//! key. Lookups that hit do not look here, and neither do misses that the head's summary answers.
//! Therefore the summaries of both hashes must let lookups pass while a link is in flight.

use std::ptr::{self, NonNull, null_mut};
use std::sync::OnceLock;

use super::Hash;
use super::group::Change;
use super::link::AnyLink;
use relativist_core::sync::{Acquire, AtomicPtr, AtomicU64, Relaxed, Release};

/// The rename in progress, if any. Only the holder of the resizer's mutex changes it, so there is
/// at most one rename at a time. Exception: in the stage [`OldKey`](Self::answer_old_key), an
/// update that holds the lock of the old hash may change the link.
pub(super) struct InFlightRename<L> {
    /// Null (empty), the old or the new one of `links`, or [`recheck`].
    stage: AtomicPtr<InFlightLink<L>>,
    /// Made by the first rename, because most tables have none.
    links: OnceLock<Box<InFlightLinks<L>>>,
}

struct InFlightLinks<L> {
    old_key: InFlightLink<L>,
    new_key: InFlightLink<L>,
}

struct InFlightLink<L> {
    hash: AtomicU64,
    link: AtomicPtr<L>,
}

/// Stands for the stage `Recheck`.
const fn recheck<L>() -> *mut InFlightLink<L> {
    NonNull::dangling().as_ptr()
}

/// What a lookup does after a miss in its chain.
pub(super) enum MissOutcome<L> {
    Nothing,
    /// This link is the only one that may match.
    Link(NonNull<L>),
    /// Walk the chain again. The second walk decides.
    WalkAgain,
}

impl<L: AnyLink> InFlightRename<L> {
    pub(super) fn new() -> Self {
        Self { stage: AtomicPtr::new(null_mut()), links: OnceLock::new() }
    }

    /// Makes what a rename needs, before it locks buckets. Aborts if there is no memory.
    pub(super) fn prepare(&self) {
        self.links();
    }

    fn links(&self) -> &InFlightLinks<L> {
        self.links
            .get_or_init(|| Box::new(InFlightLinks { old_key: InFlightLink::new(), new_key: InFlightLink::new() }))
    }

    /// Returns whether no rename is in progress. Links that cannot be renamed cost no load.
    #[inline(always)]
    pub(super) fn is_empty(&self) -> bool {
        // Acquire: pairs with the Release in `enter`: a thread that sees no rename sees the chains
        // as the last rename left them.
        // litmus: rename-unlinked, rename-ended
        !L::CAN_BE_RENAMED || self.stage.load(Acquire).is_null()
    }

    /// Returns how to remove a link from a chain: the link in flight may need the same bit of the
    /// summary.
    #[inline(always)]
    pub(super) fn kind_of_removal(&self) -> Change {
        if self.is_empty() { Change::Remove } else { Change::Unlink }
    }

    /// Called by a lookup that has missed in the chain of this hash.
    pub(super) fn after_miss(&self, hash: Hash) -> MissOutcome<L> {
        // Acquire: pairs with the Release in `enter`: the lookup sees the link and its hash as they
        // were set. When it reads the chains again, it sees what was done to them before this
        // stage.
        // litmus: rename-in-flight, rename-announced, rename-recheck, rename-waits
        let stage = self.stage.load(Acquire);
        let links = self.links.get().into_iter().flat_map(|links| [&links.old_key, &links.new_key]);
        match links.into_iter().find(|&at| ptr::eq(stage, at)) {
            Some(in_flight) => in_flight.link_if(hash).map_or(MissOutcome::Nothing, MissOutcome::Link),
            None if stage.is_null() => MissOutcome::Nothing,
            None => MissOutcome::WalkAgain,
        }
    }

    /// Returns whether the stage is `OldKey`. Called by the rename itself.
    pub(super) fn answers_old_key(&self) -> bool {
        // Acquire: as in `after_miss`.
        // litmus: rename-in-flight
        let stage = self.stage.load(Acquire);
        self.links.get().is_some_and(|links| ptr::eq(stage, &links.old_key))
    }

    /// Returns the link in flight if it still has this old hash. The caller holds the lock of the
    /// hash, so the link stays in flight until the caller unlocks.
    #[cold]
    pub(super) fn old_link(&self, hash: Hash) -> Option<NonNull<L>> {
        if self.answers_old_key() { self.links().old_key.link_if(hash) } else { None }
    }

    /// Replaces the link that `old_link` returned, or removes it if `link` is null. The caller has
    /// held the lock since that call.
    pub(super) fn set_old_link(&self, link: *mut L) {
        // Release: pairs with the Acquire in `InFlightLink::link_if`: lookups see the link as it
        // was made.
        // litmus: rename-replaced
        self.links().old_key.link.store(link, Release);
    }

    /// Enters the stage `OldKey`. The caller holds the lock of this hash, and the link is still in
    /// its chain.
    pub(super) fn answer_old_key(&self, hash: Hash, link: NonNull<L>) {
        let old_key = &self.links().old_key;
        old_key.set(hash, link);
        self.enter(ptr::from_ref(old_key).cast_mut());
    }

    /// Enters the stage `NewKey`: the instant of the rename. The caller holds the locks of both
    /// hashes, and neither chain has the link.
    pub(super) fn answer_new_key(&self, hash: Hash, link: NonNull<L>) {
        let new_key = &self.links().new_key;
        new_key.set(hash, link);
        self.enter(ptr::from_ref(new_key).cast_mut());
    }

    /// Enters the stage `Recheck`. The caller holds the lock of the hash in whose chain the link is
    /// now. After this, lookups must not find the link here, because it can be removed as soon as
    /// the lock is released.
    pub(super) fn recheck(&self) {
        self.enter(recheck());
    }

    /// Ends the rename. No lookup may be left that began before `Recheck`.
    pub(super) fn clear(&self) {
        self.enter(null_mut());
    }

    fn enter(&self, stage: *mut InFlightLink<L>) {
        // Release: pairs with the Acquire in `is_empty`, `after_miss` and `answers_old_key`.
        // litmus: rename-in-flight, rename-announced, rename-recheck, rename-ended
        self.stage.store(stage, Release);
    }
}

impl<L> InFlightLink<L> {
    fn new() -> Self {
        Self { hash: AtomicU64::new(0), link: AtomicPtr::new(null_mut()) }
    }

    /// Sets both fields. No lookup can be reading them, because all lookups that overlapped with
    /// the last rename have left.
    fn set(&self, hash: Hash, link: NonNull<L>) {
        // Relaxed, both: published by the stage.
        self.hash.store(hash.get(), Relaxed);
        self.link.store(link.as_ptr(), Relaxed);
    }

    fn link_if(&self, hash: Hash) -> Option<NonNull<L>> {
        // Relaxed: set before the stage was published. Acquire: pairs with the Release in
        // `set_old_link`.
        // litmus: rename-in-flight, rename-replaced
        let link = || NonNull::new(self.link.load(Acquire));
        (self.hash.load(Relaxed) == hash.get()).then(link).flatten()
    }
}
