//! The array of buckets. Header and buckets are one allocation, so a reader needs only one pointer.

use std::alloc::Layout;
use std::fmt;
use std::marker::PhantomData;
use std::ops::Range;
use std::ptr::{NonNull, null_mut};

use super::hash::{Hash, Scale};
use super::head::{Head, Word};
use super::link::AnyLink;
use relativist_core::memory;
use relativist_core::sync::{Acquire, AtomicPtr, Release};

/// A bucket array could not be allocated. The table keeps the one that it has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AllocError {
    buckets: usize,
    bucket_bytes: usize,
}

impl AllocError {
    /// Creates the error for 2^`bits` buckets.
    pub fn new(bits: u32, bucket_bytes: usize) -> Self {
        Self { buckets: 1usize.checked_shl(bits).unwrap_or(usize::MAX), bucket_bytes }
    }
}

impl fmt::Display for AllocError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let bytes = self.buckets as u128 * self.bucket_bytes as u128;
        write!(f, "cannot allocate {bytes} bytes for {} buckets; the table keeps its present size", self.buckets)
    }
}

impl std::error::Error for AllocError {}

#[repr(C, align(64))]
struct Header {
    scale: Scale,
    /// The base array: its heads are the locks of the heads here that follow. Null if no head here
    /// follows.
    base: AtomicPtr<Header>,
    /// The newest finer array whose heads updates maintain while they hold a lock here. Null before
    /// the table grows.
    finer: AtomicPtr<Header>,
}

/// A pointer to a bucket array that is alive during `'a`.
pub(super) struct Array<'a> {
    header: NonNull<Header>,
    alive: PhantomData<&'a Header>,
}

impl Clone for Array<'_> {
    fn clone(&self) -> Self {
        *self
    }
}

impl Copy for Array<'_> {}

impl PartialEq for Array<'_> {
    fn eq(&self, other: &Self) -> bool {
        self.header == other.header
    }
}

/// An [`Array`] that can be replaced while other threads read it.
pub(super) struct AtomicArray(AtomicPtr<Header>);

impl AtomicArray {
    pub(super) fn new(array: Array<'_>) -> Self {
        Self(AtomicPtr::new(array.header.as_ptr()))
    }

    /// # Safety
    ///
    /// The array stored must stay alive during `'a`.
    #[inline(always)]
    pub(super) unsafe fn load<'a>(&self) -> Array<'a> {
        // Acquire: pairs with the Release in `publish`: the heads are seen as they were filled.
        // litmus: array-published, array-replaced, cut-unused, shrink-joined
        let header = self.0.load(Acquire);
        // SAFETY: never null.
        Array { header: unsafe { NonNull::new_unchecked(header) }, alive: PhantomData }
    }

    pub(super) fn publish(&self, array: Array<'_>) {
        // Release: pairs with the Acquire in `load`.
        // litmus: array-published, cut-moved, shrink-joined
        self.0.store(array.header.as_ptr(), Release);
    }
}

/// An [`Array`] that only the holder of the resizer's mutex frees.
pub(super) struct DetachedArray(NonNull<Header>);

// SAFETY: it is only used by `get`, whose callers guarantee that the array is alive. All that the
// array holds is atomic.
unsafe impl Send for DetachedArray {}

impl DetachedArray {
    pub(super) fn of(array: Array<'_>) -> Self {
        Self(array.header)
    }

    /// # Safety
    ///
    /// The array must stay alive during `'a`.
    pub(super) unsafe fn get<'a>(&self) -> Array<'a> {
        Array { header: self.0, alive: PhantomData }
    }
}

impl<'a> Array<'a> {
    /// Bounds on the bits of a bucket number. The shifts that take buckets from hashes need at
    /// least one.
    pub(super) const MIN_BITS: u32 = 1;
    pub(super) const MAX_BITS: u32 = 44;

    /// Allocates 2^`bits` empty buckets.
    pub(super) fn allocate(bits: u32) -> Result<Self, AllocError> {
        let failed = AllocError::new(bits, size_of::<Head>());
        let layout = Self::layout(bits).ok_or(failed)?;
        let header = memory::allocate_zeroed(layout).ok_or(failed)?.cast::<Header>();
        // SAFETY: fresh memory of sufficient size and alignment.
        unsafe {
            header.write(Header {
                scale: Scale::of_bits(bits),
                base: AtomicPtr::new(null_mut()),
                finer: AtomicPtr::new(null_mut()),
            });
        }
        let array = Self { header, alive: PhantomData };
        array.make_heads();
        Ok(array)
    }

    /// Does nothing: zeroed memory is a valid array of empty heads.
    #[cfg(not(relativist_loom))]
    fn make_heads(self) {}

    /// Creates each head, because loom's atomics are not valid when zeroed.
    #[cfg(relativist_loom)]
    fn make_heads(self) {
        for bucket in 0..self.len() {
            // SAFETY: in bounds of the fresh allocation.
            unsafe { self.heads().add(bucket).write(Head::empty()) };
        }
    }

    fn layout(bits: u32) -> Option<Layout> {
        let len = 1usize.checked_shl(bits).filter(|_| bits <= Self::MAX_BITS)?;
        let (layout, offset) = Layout::new::<Header>().extend(Layout::array::<Head>(len).ok()?).ok()?;
        debug_assert_eq!(offset, size_of::<Header>());
        Some(layout)
    }

    /// # Safety
    ///
    /// No thread may use the array any more, and it is freed once.
    pub(super) unsafe fn free(self) {
        let layout = Self::layout(self.bits()).expect("it was allocated with this layout");
        // SAFETY: header and heads are valid, and no thread uses them any more. (Dropping them does
        // nothing, except that loom's atomics check this.)
        unsafe {
            std::ptr::slice_from_raw_parts_mut(self.heads(), self.len()).drop_in_place();
            self.header.drop_in_place();
        }
        // SAFETY: allocated with this layout in `allocate`; no thread uses it any more.
        unsafe { memory::free(self.header.cast(), layout) };
    }

    /// Converts the array to a pointer that can be passed to a deferred [`Array::free`].
    pub(super) fn into_raw(self) -> NonNull<()> {
        self.header.cast()
    }

    /// # Safety
    ///
    /// `raw` came from [`Array::into_raw`], and the array is alive during `'a`.
    pub(super) unsafe fn from_raw(raw: NonNull<()>) -> Self {
        Self { header: raw.cast(), alive: PhantomData }
    }

    #[inline(always)]
    fn header(self) -> &'a Header {
        // SAFETY: alive during `'a`.
        unsafe { self.header.as_ref() }
    }

    #[inline(always)]
    pub(super) fn scale(self) -> Scale {
        self.header().scale
    }

    /// Returns the binary logarithm of the number of buckets.
    pub(super) fn bits(self) -> u32 {
        self.scale().bits()
    }

    pub(super) fn len(self) -> usize {
        1 << self.bits()
    }

    /// Returns the size of the array in memory.
    pub(super) fn bytes(self) -> usize {
        size_of::<Header>() + self.bucket_bytes()
    }

    pub(super) fn bucket_bytes(self) -> usize {
        self.len() * size_of::<Head>()
    }

    #[inline(always)]
    fn heads(self) -> *mut Head {
        // SAFETY: the heads follow the header in the same allocation. (The pointer is not derived
        // from `&Header`, whose provenance covers the header only.)
        unsafe { self.header.add(1).cast::<Head>().as_ptr() }
    }

    /// Returns the head of the bucket of a hash.
    #[inline(always)]
    pub(super) fn head(self, hash: Hash) -> &'a Head {
        self.head_and_scale(hash).0
    }

    /// Like `head`, but also returns the scale, so that a lookup loads it only once.
    #[inline(always)]
    pub(super) fn head_and_scale(self, hash: Hash) -> (&'a Head, Scale) {
        let scale = self.scale();
        // SAFETY: bucket numbers of this scale are less than the length.
        (unsafe { &*self.heads().add(hash.bucket(scale)) }, scale)
    }

    /// Returns all heads, in the order of the hashes.
    pub(super) fn all(self) -> &'a [Head] {
        // SAFETY: `len` heads follow the header, alive during `'a`; heads are atomic, so sharing
        // them is fine.
        unsafe { std::slice::from_raw_parts(self.heads(), self.len()) }
    }

    /// The number of buckets to prefetch at a time. Their links fit into the first-level cache, and
    /// are more than the processor can request from memory at once.
    pub(super) const BATCH: usize = 64;

    /// Prefetches the links of those buckets in the range whose heads `is_wanted` accepts, for a
    /// caller that is about to visit them all. Links lie anywhere in memory, and each step along a
    /// chain waits for the one before. So this walks the chains in parallel.
    ///
    /// # Safety
    ///
    /// The links of the chains that `is_wanted` accepts are alive: the caller is in a read section,
    /// or no other thread uses the array.
    #[cfg(not(relativist_loom))]
    pub(super) unsafe fn prefetch_chains<L: AnyLink>(self, buckets: Range<usize>, is_wanted: impl Fn(Word) -> bool) {
        use relativist_core::prefetch::prefetch;

        let mut first = buckets.start;
        for heads in self.all()[buckets].chunks(Self::BATCH) {
            let mut ends = [(0, null_mut::<L>()); Self::BATCH];
            let mut count = 0;
            for (bucket, head) in (first..).zip(heads) {
                let word = head.load();
                let link: *mut L = word.first();
                prefetch(link);
                ends[count] = (bucket, link);
                count += usize::from(!link.is_null() && is_wanted(word));
            }
            // Chains that are longer than this are rare, unless speed does not matter to the
            // caller.
            for _ in 0..8 {
                let walked = count;
                count = 0;
                for at in 0..walked {
                    let (bucket, link) = ends[at];
                    // SAFETY: not null; the caller guarantees that it is alive.
                    let link: &L = unsafe { &*link };
                    let next = link.next();
                    prefetch(next);
                    ends[count] = (bucket, next);
                    // A chain may continue into that of the next bucket.
                    count += usize::from(!next.is_null() && link.hash().bucket(self.scale()) == bucket);
                }
            }
            first += heads.len();
        }
    }

    /// Prefetches the links of `batch` buckets, starting with the bucket of `from`, and returns the
    /// hash at which the last one ends.
    ///
    /// # Safety
    ///
    /// The same as for [`Array::prefetch_chains`].
    pub(super) unsafe fn prefetch_batch<L: AnyLink>(self, from: Hash, batch: usize) -> u64 {
        let first = from.bucket(self.scale());
        let end = self.len().min(first + batch);
        // SAFETY: guaranteed by the caller.
        unsafe { self.prefetch_chains::<L>(first..end, |_| true) };
        Hash::start_of_bucket(end - 1, self.scale()).end_of_bucket(self.scale()).unwrap_or(u64::MAX)
    }

    /// Does nothing, because loom does not model caches.
    #[cfg(relativist_loom)]
    pub(super) unsafe fn prefetch_chains<L: AnyLink>(self, _: Range<usize>, _: impl Fn(Word) -> bool) {}

    /// Returns the base array, whose heads are the locks of the heads here that follow. It stays
    /// alive for a caller that has found such a head in its read section.
    pub(super) fn base(self) -> Option<Self> {
        Self::load(&self.header().base)
    }

    pub(super) fn set_base(self, base: Option<Array<'_>>) {
        Self::store(&self.header().base, base);
    }

    /// Returns the array of the finer heads that updates maintain if a head here [has
    /// finer](Word::has_finer) ones.
    pub(super) fn finer(self) -> Option<Self> {
        Self::load(&self.header().finer)
    }

    pub(super) fn set_finer(self, finer: Option<Array<'_>>) {
        Self::store(&self.header().finer, finer);
    }

    fn load(link: &AtomicPtr<Header>) -> Option<Self> {
        // Acquire: pairs with the Release in `store`: the caller sees the array as it was made.
        // litmus: base-found, base-array, finer-retargeted
        let header = NonNull::new(link.load(Acquire))?;
        Some(Self { header, alive: PhantomData })
    }

    fn store(link: &AtomicPtr<Header>, array: Option<Array<'_>>) {
        let header = array.map_or(null_mut(), |array| array.header.as_ptr());
        // Release: pairs with the Acquire in `load`.
        // litmus: base-array, finer-retargeted
        link.store(header, Release);
    }
}
