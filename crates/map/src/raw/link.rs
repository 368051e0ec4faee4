//! What makes an object linkable.

use std::ptr::{NonNull, null_mut};

use super::Hash;
use crate::mutation;
use crate::sync::{Acquire, AtomicPtr, Relaxed, Release};

/// The part of an object by which a table holds it: 16 bytes, to be embedded, usually first in a `#[repr(C)]` struct.
///
/// The table never moves or copies what surrounds the link.
#[repr(C, align(8))]
#[derive(Debug)]
pub struct Link {
    pub(super) next: AtomicPtr<Link>,
    pub(super) hash: Hash,
}

impl Link {
    /// A link that is in no table. The hash can't change later: it is the link's place.
    #[inline]
    pub fn new(hash: Hash) -> Self {
        Self { next: AtomicPtr::new(null_mut()), hash }
    }

    /// The hash it was made with.
    #[inline]
    pub fn hash(&self) -> Hash {
        self.hash
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
        self.next.store(next, mutation::unless("relaxed-link", Release));
    }
}

/// The links of a chain with their hashes. The successor is read before a link is handed out, so that it may be freed.
///
/// # Safety
///
/// What the chain leads to is alive while it is walked: the caller holds its lock, or is in the read section in which it found
/// `first`, or is the only one left.
pub(super) unsafe fn links_from(first: *mut Link) -> impl Iterator<Item = (NonNull<Link>, Hash)> {
    let mut next = first;
    std::iter::from_fn(move || {
        let link = NonNull::new(next)?;
        // SAFETY: alive, says the caller.
        let current = unsafe { link.as_ref() };
        next = current.next();
        Some((link, current.hash))
    })
}
