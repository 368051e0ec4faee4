//! What a table holds when it is cleared, dropped or taken apart.
//!
//! To clear a table, a thread publishes an empty array. An update that has loaded the old array may
//! go on there. It overlaps with the clear and counts as having come before it: it has loaded the
//! array before the clear has replaced it, and an operation that begins later does not find what it
//! has done. So entries are dropped when all readers have left that may use the old array, and the
//! arrays to which its buckets may be moving. The number of entries belongs to these arrays as
//! well, and a new one begins with the empty array.

use std::marker::PhantomData;
use std::mem::{forget, needs_drop};
use std::ops::Range;
use std::ptr::NonNull;
use std::sync::Arc;

use relativist_core::unwind::contain;

use crate::array::{AllocError, Array, Segment};
use crate::form::{Expected, Form, Holds, Readers};
use crate::table::Table;
use crate::word::Hash;

impl<E, F: Holds<E>> Table<E, F> {
    /// Removes all entries at once. Takes constant time, and time in proportion to the entries to
    /// drop them, which happens after a grace period on a thread that runs deferred functions. It
    /// drops them in slices of some thousand buckets.
    ///
    /// # Errors
    ///
    /// Returns an error if there is no memory for an empty array: the table stays as it was.
    pub fn clear(&self) -> Result<(), AllocError> {
        let section = self.enter();
        let empty = Array::<E, F>::first(self.floor)?;
        empty.family().count.size_changed(empty.len());
        let old = loop {
            let old = section.array();
            if self.array.replace(old, empty) {
                break old;
            }
            // Another thread has finished a resize, or has cleared the table.
        };
        // SAFETY: operations that begin now do not find it.
        unsafe { self.retire_contents(old, section.guard()) };
        Ok(())
    }

    /// Drops the entries of an array and of its successors after a grace period, and frees the
    /// arrays.
    ///
    /// # Safety
    ///
    /// The array was replaced by one that is not its successor.
    unsafe fn retire_contents(&self, array: Array<'_, E, F>, guard: &<F::Domain as Readers>::Guard<'_>) {
        /// The number of buckets of a slice. A shrink may join the buckets at its end, so it is a
        /// power of two.
        const SLICE: usize = 1024;
        let arrays = Arc::new(Arrays::<E, F> { first: array.into_raw(), _of: PhantomData });
        let bytes = array.bytes() / (array.len() / SLICE).max(1);
        for start in (0..array.len()).step_by(SLICE) {
            let slice = Slice { arrays: Arc::clone(&arrays), buckets: start..array.len().min(start + SLICE) };
            let slice = NonNull::from(Box::leak(Box::new(slice))).cast();
            let bytes = bytes + if F::BOXED { SLICE.min(array.len()) * size_of::<E>() } else { 0 };
            // SAFETY: by the time at which the function runs, the readers have left that may use
            // the arrays. `Holds` permits to drop entries on that thread.
            unsafe {
                self.domain.defer(guard, slice, bytes, |slice| {
                    let slice: Box<Slice<E, F>> = Box::from_raw(slice.cast().as_ptr());
                    let Slice { arrays, buckets } = *slice;
                    let array = Array::<E, F>::from_raw(arrays.first);
                    dispose_of(array, buckets);
                    drop(arrays);
                });
            }
        }
    }
}

impl<E, F: Form> Table<E, F> {
    /// Takes all entries out of the table.
    pub fn into_entries(self) -> IntoEntries<E, F> {
        // SAFETY: no other thread uses the table.
        let array: Array<'static, E, F> = unsafe { self.array.load() };
        // SAFETY: the table is forgotten, so the domain is read once.
        let domain = unsafe { std::ptr::read(&raw const self.domain) };
        forget(self);
        // A private domain drops what was removed before.
        drop(domain);
        IntoEntries(Walk::of(array))
    }

    /// Returns the entries, which the caller may change, except for their hashes and keys.
    pub fn entries_mut(&mut self) -> EntriesMut<'_, E, F> {
        // SAFETY: no other thread uses the table as long as it is borrowed.
        EntriesMut(Walk::of(unsafe { self.array.load() }), PhantomData)
    }

    /// Finds an entry, which the caller may change, except for its hash and key.
    pub fn find_mut(&mut self, hash: Hash, mut is_match: impl FnMut(&E) -> bool) -> Option<&mut E> {
        // SAFETY: no other thread uses the table as long as it is borrowed.
        let mut array: Array<'_, E, F> = unsafe { self.array.load() };
        let mut first = array.bucket(hash);
        while first.word().is_moved() {
            array = array.next().expect("a bucket moves to the next array");
            first = array.bucket(hash);
        }
        first.chain(first.word()).find_map(|(segment, word)| {
            // SAFETY: the slots are live.
            let found = unsafe { segment.find(word.matches(hash.tag()), array.expected(hash), &mut is_match) };
            // SAFETY: as above; the pointer permits changes since the entry was inserted.
            found.map(|(_, mut entry)| unsafe { entry.as_mut() })
        })
    }
}

/// An array and its successors, without entries and later segments.
struct Arrays<E, F: Form> {
    first: NonNull<()>,
    _of: PhantomData<(E, F)>,
}

impl<E, F: Form> Drop for Arrays<E, F> {
    fn drop(&mut self) {
        // SAFETY: the last owner has the arrays for itself.
        let mut next = Some(unsafe { Array::<E, F>::from_raw(self.first) });
        while let Some(array) = next {
            next = array.next();
            // SAFETY: as above.
            unsafe { array.free() };
        }
    }
}

/// Buckets whose contents are dropped together.
struct Slice<E, F: Form> {
    arrays: Arc<Arrays<E, F>>,
    buckets: Range<usize>,
}

/// Calls a function with the first segment of each of these buckets, in this array or where it has
/// moved.
///
/// # Safety
///
/// No other thread changes the table.
unsafe fn for_each_bucket<'t, E, F: Form>(
    array: Array<'t, E, F>,
    buckets: Range<usize>,
    visit: &mut impl FnMut(Segment<'t, E, F>),
) {
    for bucket in buckets {
        array.prefetch_entries_after(bucket);
        let first = array.bucket_at(bucket);
        if !first.word().is_moved() {
            visit(first);
            continue;
        }
        let next = array.next().expect("a bucket moves to the next array");
        let Some(range) = range_in(array, bucket, next) else { continue };
        // SAFETY: guaranteed by the caller.
        unsafe { for_each_bucket(next, range, visit) };
    }
}

/// Returns the addresses of the entries of a bucket that no other thread changes.
fn entries_of<'t, E: 't, F: Form + 't>(first: Segment<'t, E, F>) -> impl Iterator<Item = NonNull<E>> + use<'t, E, F> {
    let get = |segment: Segment<'t, E, F>, slot| {
        // SAFETY: the slot is live.
        unsafe { F::get(segment.slot(slot), Expected::Any) }
    };
    first.chain(first.word()).flat_map(move |(segment, word)| word.live().filter_map(move |slot| get(segment, slot)))
}

/// Frees the later segments of a bucket.
///
/// # Safety
///
/// No thread uses the bucket any more.
unsafe fn free_later<E, F: Form>(first: Segment<'_, E, F>) {
    let later = first.chain(first.word()).nth(1).map(|(segment, _)| segment);
    // SAFETY: guaranteed by the caller.
    unsafe { Segment::free_chain(later) };
}

/// Returns the buckets of `next` to which a bucket has moved. `None` if several buckets have become
/// one, and this is not the first of them.
fn range_in<E, F: Form>(array: Array<'_, E, F>, bucket: usize, next: Array<'_, E, F>) -> Option<Range<usize>> {
    if next.bits() >= array.bits() {
        let added = next.bits() - array.bits();
        return Some(bucket << added..(bucket + 1) << added);
    }
    let lost = array.bits() - next.bits();
    (bucket % (1 << lost) == 0).then(|| bucket >> lost..(bucket >> lost) + 1)
}

/// Drops the entries of these buckets, and frees their later segments. Panics of destructors are
/// contained: the panic hook has reported them.
///
/// # Safety
///
/// No thread uses the buckets any more, and their entries are dropped once.
unsafe fn dispose_of<E, F: Form>(array: Array<'_, E, F>, buckets: Range<usize>) {
    let dispose = |first| {
        // SAFETY: guaranteed by the caller.
        let dispose = |entry| unsafe { F::dispose(entry) };
        if needs_drop::<E>() {
            entries_of(first).for_each(|entry| _ = contain(|| dispose(entry)));
        } else if F::BOXED {
            entries_of(first).for_each(dispose);
        }
        // SAFETY: as above.
        unsafe { free_later(first) };
    };
    // SAFETY: as above.
    unsafe { for_each_bucket(array, buckets, &mut { dispose }) };
}

impl<E, F: Form> Drop for Table<E, F> {
    /// Drops all entries. If the destructor of an entry panics, the other entries are dropped
    /// before the panic continues. A second panic meanwhile aborts, as in the destructors of std's
    /// collections.
    fn drop(&mut self) {
        // SAFETY: no thread uses the table any more.
        let array: Array<'static, E, F> = unsafe { self.array.load() };
        drop(IntoEntries(Walk::of(array)));
    }
}

/// A walk over the entries of a table that no other thread uses.
struct Walk<'t, E, F: Form> {
    array: Array<'t, E, F>,
    /// The next bucket of the array.
    bucket: usize,
    /// What is left of the bucket before it.
    entries: Vec<NonNull<E>>,
    /// The number of entries that are left.
    left: usize,
}

impl<'t, E, F: Form> Walk<'t, E, F> {
    fn of(array: Array<'t, E, F>) -> Self {
        Self { array, bucket: 0, entries: Vec::new(), left: array.family().count.sum() }
    }

    fn next(&mut self) -> Option<NonNull<E>> {
        loop {
            if let Some(entry) = self.entries.pop() {
                self.left -= 1;
                return Some(entry);
            }
            if self.bucket == self.array.len() {
                return None;
            }
            let bucket = self.bucket;
            self.bucket += 1;
            // SAFETY: no other thread uses the table.
            unsafe {
                for_each_bucket(self.array, bucket..bucket + 1, &mut |first| self.entries.extend(entries_of(first)))
            };
        }
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        (self.left, Some(self.left))
    }
}

/// The entries of a table that no longer exists; see [`Table::into_entries`].
pub struct IntoEntries<E, F: Form>(Walk<'static, E, F>);

// SAFETY: it owns its entries.
unsafe impl<E: Send, F: Form> Send for IntoEntries<E, F> {}
// SAFETY: it gives no access through a shared reference.
unsafe impl<E: Sync, F: Form> Sync for IntoEntries<E, F> {}

/// The entries of a table that is borrowed mutably; see [`Table::entries_mut`].
pub struct EntriesMut<'t, E, F: Form>(Walk<'t, E, F>, PhantomData<&'t mut E>);

// SAFETY: it is like a mutable reference to each entry.
unsafe impl<E: Send, F: Form> Send for EntriesMut<'_, E, F> {}
// SAFETY: as above.
unsafe impl<E: Sync, F: Form> Sync for EntriesMut<'_, E, F> {}

impl<'t, E: 't, F: Form> Iterator for EntriesMut<'t, E, F> {
    type Item = &'t mut E;

    fn next(&mut self) -> Option<&'t mut E> {
        // SAFETY: no other thread uses the table, and each entry is returned once.
        self.0.next().map(|mut entry| unsafe { entry.as_mut() })
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        self.0.size_hint()
    }
}

impl<E, F: Form> Iterator for IntoEntries<E, F> {
    type Item = E;

    fn next(&mut self) -> Option<E> {
        // SAFETY: no other code uses the entry any more.
        self.0.next().map(|entry| unsafe { F::move_out(entry) })
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        self.0.size_hint()
    }
}

impl<E, F: Form> Drop for IntoEntries<E, F> {
    fn drop(&mut self) {
        /// Goes on when a destructor has panicked.
        struct Rest<'i, E, F: Form>(&'i mut Walk<'static, E, F>);
        impl<E, F: Form> Rest<'_, E, F> {
            fn dispose(&mut self) {
                while let Some(entry) = self.0.next() {
                    // SAFETY: no other code uses the entry any more.
                    unsafe { F::dispose(entry) };
                }
            }
        }
        impl<E, F: Form> Drop for Rest<'_, E, F> {
            fn drop(&mut self) {
                self.dispose();
                let array = self.0.array;
                // SAFETY: no other code uses the arrays any more.
                unsafe { for_each_bucket(array, 0..array.len(), &mut |first| free_later(first)) };
                drop(Arrays::<E, F> { first: array.into_raw(), _of: PhantomData });
            }
        }
        let mut rest = Rest(&mut self.0);
        if F::BOXED || needs_drop::<E>() {
            rest.dispose();
        } else {
            rest.0.bucket = rest.0.array.len();
        }
    }
}
