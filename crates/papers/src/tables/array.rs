//! Bucket arrays.

use crate::tables::chain::{self, Link};

/// The heads of all buckets, whose number is a power of two.
#[derive(Debug)]
pub(crate) struct Array(Box<[Link]>);

impl Array {
    /// Creates empty buckets.
    ///
    /// Large allocations are zeroed pages, so the links need not be written one by one.
    pub(crate) fn new(buckets: usize) -> Self {
        assert!(buckets.is_power_of_two(), "{buckets} is not a power of two");
        // SAFETY: a link of zeros is null.
        Self(unsafe { Box::new_zeroed_slice(buckets).assume_init() })
    }

    /// Returns the head of the bucket of `hash`. `hash` may also be the number of a bucket, because
    /// the bucket is the low bits of a hash.
    #[inline(always)]
    pub(crate) fn head(&self, hash: u64) -> &Link {
        // SAFETY: there is at least one bucket, so this is below their number.
        unsafe { self.0.get_unchecked(hash as usize & (self.0.len() - 1)) }
    }

    pub(crate) fn buckets(&self) -> usize {
        self.0.len()
    }

    pub(crate) fn bytes(&self) -> usize {
        size_of_val(&*self.0)
    }

    pub(crate) fn heads(&self) -> &[Link] {
        &self.0
    }

    /// Frees all nodes.
    ///
    /// # Safety
    ///
    /// No thread uses the chains any more, and no two of them share nodes.
    pub(crate) unsafe fn free_nodes(&mut self) {
        for head in &self.0 {
            // SAFETY: guaranteed by the caller.
            unsafe { chain::free(head) };
        }
    }
}
