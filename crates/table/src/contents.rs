//! Disposes of the links that are left when a table is dropped.

use std::ptr::NonNull;

use super::Hash;
use super::array::Array;
use super::link::{AnyLink, links_from};

/// Disposes of all links of an array, then frees it.
///
/// If `dispose` panics, the other links are disposed of and the array is freed before the panic
/// continues. A second panic meanwhile aborts, as in the destructors of std's collections.
///
/// # Safety
///
/// No other thread uses the array or its links, and `dispose` may be called for each of them.
pub(super) unsafe fn dispose_of_all<L: AnyLink>(array: Array<'_>, dispose: unsafe fn(NonNull<L>)) {
    let buckets = array.all().iter().enumerate();
    let links = buckets.flat_map(|(bucket, head)| {
        if bucket % Array::BATCH == 0 {
            // SAFETY: no other thread uses the links.
            unsafe { array.prefetch_chains::<L>(bucket..array.len().min(bucket + Array::BATCH), |_| true) };
        }
        let here = move |hash: Hash| hash.bucket(array.scale()) == bucket;
        // SAFETY: as above.
        let links = unsafe { links_from(head.load().first()) };
        links.take_while(move |&(_, hash)| here(hash)).map(|(link, _)| link)
    });
    let mut contents = Contents { links, array, dispose };
    contents.dispose();
}

struct Contents<'a, L, I: Iterator<Item = NonNull<L>>> {
    /// The links that are left.
    links: I,
    array: Array<'a>,
    dispose: unsafe fn(NonNull<L>),
}

impl<L, I: Iterator<Item = NonNull<L>>> Contents<'_, L, I> {
    fn dispose(&mut self) {
        for link in &mut self.links {
            // SAFETY: guaranteed by the caller of `dispose_of_all`; each link is handed out once.
            unsafe { (self.dispose)(link) };
        }
    }
}

impl<L, I: Iterator<Item = NonNull<L>>> Drop for Contents<'_, L, I> {
    fn drop(&mut self) {
        // If `dispose` has panicked, some links are left.
        self.dispose();
        // SAFETY: guaranteed by the caller of `dispose_of_all`.
        unsafe { self.array.free() };
    }
}
