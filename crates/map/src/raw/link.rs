//! The link that an object embeds, so that it can be in a table.

use std::ptr::{NonNull, null_mut};

use super::Hash;
use crate::sync::{Acquire, AtomicPtr, AtomicU64, Relaxed, Release};

/// The part of an object that links it into a table: 16 bytes, embedded in the object, usually as
/// the first field of a `#[repr(C)]` struct.
///
/// The table never moves or copies the object around the link.
#[repr(C, align(8))]
#[derive(Debug)]
pub struct Link {
    next: AtomicPtr<Link>,
    /// A [`Hash`](struct@Hash). A rename changes it while no reader can reach the link through a
    /// chain.
    hash: AtomicU64,
}

impl Link {
    /// Creates a link that is in no table. The hash determines its place; only
    /// [`Table::rename`](super::Table::rename) changes it.
    #[inline]
    pub fn new(hash: Hash) -> Self {
        Self { next: AtomicPtr::new(null_mut()), hash: AtomicU64::new(hash.get()) }
    }

    /// Returns the hash of the link: that of [`Link::new`], or that of the last rename.
    #[inline(always)]
    pub fn hash(&self) -> Hash {
        // Relaxed: published by the store that makes the link reachable.
        Hash::from_mixed(self.hash.load(Relaxed))
    }

    /// Like `hash`, but for lookups. A plain load can be part of a comparison, while an atomic load
    /// is a separate instruction.
    ///
    /// # Safety
    ///
    /// The caller has reached the link through a chain, in a read section that has not ended, so no
    /// thread changes the hash.
    #[inline(always)]
    pub(super) unsafe fn hash_in_chain(&self) -> Hash {
        // SAFETY: `set_hash` is called when the readers that reached the link through a chain have
        // left, and before others can reach it.
        Hash::from_mixed(unsafe { *self.hash.as_ptr() })
    }

    /// Changes the hash of a link that is in no chain. All readers that reached it through a chain
    /// have left.
    pub(super) fn set_hash(&self, hash: Hash) {
        // Relaxed: as above.
        self.hash.store(hash.get(), Relaxed);
    }

    /// Sets the successor of a link that no reader can reach yet.
    pub(super) fn set_next_unpublished(&self, next: *mut Link) {
        // Relaxed: published by the store that makes the link reachable.
        self.next.store(next, Relaxed);
    }

    #[inline(always)]
    pub(super) fn next(&self) -> *mut Link {
        // Acquire: pairs with the Release in `set_next`: the caller sees the next link as it was
        // published.
        // litmus: chain-next, cut-unused, cut-left, rename-unlinked, newest-first
        // litmus: summary-announced
        self.next.load(Acquire)
    }

    /// Changes the successor while readers may use the link. The caller holds the lock of the
    /// link's bucket.
    pub(super) fn set_next(&self, next: *mut Link) {
        // Release: pairs with the Acquire in `next`.
        // litmus: chain-next, cut-lockable, shrink-joined, summary-announced, rename-unlinked
        self.next.store(next, Release);
    }
}

/// Returns the links of a chain with their hashes. Reads the successor of a link before it returns
/// the link, so that the caller may free it.
///
/// # Safety
///
/// The links of the chain stay alive while it is walked: the caller holds its lock, or is in the
/// read section in which it found `first`, or no other thread uses the table.
pub(super) unsafe fn links_from(first: *mut Link) -> impl Iterator<Item = (NonNull<Link>, Hash)> {
    let mut next = first;
    std::iter::from_fn(move || {
        let link = NonNull::new(next)?;
        // SAFETY: the caller guarantees that it is alive.
        let current = unsafe { link.as_ref() };
        next = current.next();
        Some((link, current.hash()))
    })
}
