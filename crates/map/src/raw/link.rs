//! What makes an object linkable.

use std::ptr::{NonNull, null_mut};

use super::Hash;
use crate::sync::{Acquire, AtomicPtr, AtomicU64, Relaxed, Release};

/// The part of an object by which a table holds it: 16 bytes, to be embedded, usually first in a
/// `#[repr(C)]` struct.
///
/// The table never moves or copies what surrounds the link.
#[repr(C, align(8))]
#[derive(Debug)]
pub struct Link {
    next: AtomicPtr<Link>,
    /// A [`Hash`](struct@Hash). Changed by a rename while no reader can reach the link by a chain.
    hash: AtomicU64,
}

impl Link {
    /// A link that is in no table. The hash is the link's place: only
    /// [`Table::rename`](super::Table::rename) changes it.
    #[inline]
    pub fn new(hash: Hash) -> Self {
        Self { next: AtomicPtr::new(null_mut()), hash: AtomicU64::new(hash.get()) }
    }

    /// The hash it was made with, or was renamed to.
    #[inline(always)]
    pub fn hash(&self) -> Hash {
        // Relaxed: published by whatever store makes the link reachable.
        Hash::from_mixed(self.hash.load(Relaxed))
    }

    /// The same for lookups. An atomic load is an instruction of its own, where a plain one can be
    /// part of a comparison.
    ///
    /// # Safety
    ///
    /// The link was reached by a chain, within a read section that lasts: so nobody changes its
    /// hash.
    #[inline(always)]
    pub(super) unsafe fn hash_in_chain(&self) -> Hash {
        // SAFETY: `set_hash` is called when readers who reached the link by a chain have left, and
        // before others do.
        Hash::from_mixed(unsafe { *self.hash.as_ptr() })
    }

    /// Changes the hash of a link that is in no chain, and at which no reader is left who came by
    /// one.
    pub(super) fn set_hash(&self, hash: Hash) {
        // Relaxed: as above.
        self.hash.store(hash.get(), Relaxed);
    }

    /// Sets the successor of a link that no reader can reach yet.
    pub(super) fn set_next_unpublished(&self, next: *mut Link) {
        // Relaxed: published by whatever store makes the link reachable.
        self.next.store(next, Relaxed);
    }

    #[inline(always)]
    pub(super) fn next(&self) -> *mut Link {
        // Acquire: pairs with the Release in `set_next`: the next link is seen as it was published.
        self.next.load(Acquire)
    }

    /// Changes the successor under readers. The caller holds the lock of the link's bucket.
    pub(super) fn set_next(&self, next: *mut Link) {
        // Release: pairs with the Acquire in `next`.
        self.next.store(next, Release);
    }
}

/// The links of a chain with their hashes. The successor is read before a link is handed out, so
/// that it may be freed.
///
/// # Safety
///
/// What the chain leads to is alive while it is walked: the caller holds its lock, or is in the
/// read section in which it found `first`, or is the only one left.
pub(super) unsafe fn links_from(first: *mut Link) -> impl Iterator<Item = (NonNull<Link>, Hash)> {
    let mut next = first;
    std::iter::from_fn(move || {
        let link = NonNull::new(next)?;
        // SAFETY: alive, says the caller.
        let current = unsafe { link.as_ref() };
        next = current.next();
        Some((link, current.hash()))
    })
}
