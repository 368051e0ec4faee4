//! The links that objects embed, so that they can be in a table.

use std::ptr::{NonNull, null_mut, with_exposed_provenance_mut};

use super::Hash;
use relativist_core::sync::{Acquire, AtomicBits, AtomicPtr, Relaxed, Release};

/// The part of an object that links it into a table: 16 bytes, embedded in the object, usually as
/// the first field of a `#[repr(C)]` struct.
///
/// The table never moves or copies the object around the link.
#[repr(C, align(8))]
#[derive(Debug)]
pub struct Link {
    next: AtomicPtr<Link>,
    hash: Hash,
}

impl Link {
    /// Creates a link that is in no table. The hash determines its place.
    #[inline]
    pub fn new(hash: Hash) -> Self {
        Self { next: AtomicPtr::new(null_mut()), hash }
    }

    /// Returns the hash that was passed to [`Link::new`].
    #[inline(always)]
    pub fn hash(&self) -> Hash {
        self.hash
    }
}

/// A link of half the size, for tables whose objects lie close together: 8 bytes, embedded like a
/// [`Link`].
///
/// It has the upper 27 bits of the hash, a bit for the user, and the distance to the next link
/// instead of its address.
/// So all links of a table must lie within a range of [`CompactLink::RANGE`] bytes. Otherwise
/// updates and resizes panic, and later updates of the same bucket may wait forever. Objects from a
/// general allocator may lie further apart: use an arena. Beyond 2^23 buckets the summaries of the
/// table rule out less and less. Two links whose hashes differ only in the lower 37 bits count as
/// links of equal hash.
///
/// ```
/// use relativist_table::{CompactLink, Hash};
/// let hash = Hash::new(42);
/// assert_eq!(CompactLink::new(hash).hash().get(), hash.get() >> 37 << 37);
/// assert_eq!(size_of::<CompactLink>(), 8);
/// ```
#[repr(C, align(8))]
#[derive(Debug)]
pub struct CompactLink {
    /// The upper 27 bits: those of the hash. The next one: the user's. Neither changes. The others:
    /// the distance from this link to the next, in units of 8 bytes, as a signed number; 0 at the
    /// end of a chain.
    word: AtomicBits,
}

impl CompactLink {
    /// The range in which all links of a table must lie, in bytes: 256 GiB.
    pub const RANGE: usize = 1 << (Self::DISTANCE_BITS - 1 + Self::UNIT_BITS);

    const UNIT_BITS: u32 = align_of::<Self>().ilog2();
    const DISTANCE_BITS: u32 = 36;
    const DISTANCE: u64 = (1 << Self::DISTANCE_BITS) - 1;
    const USER_BIT: u64 = 1 << Self::DISTANCE_BITS;
    const HASH: u64 = !(Self::USER_BIT | Self::DISTANCE);
    /// The bits of the hash that a link has.
    pub(super) const HASH_BITS: u32 = Self::HASH.count_ones();

    /// Creates a link that is in no table. The hash determines its place.
    #[inline]
    pub fn new(hash: Hash) -> Self {
        Self::with_user_bit(hash, false)
    }

    /// Creates a link like [`CompactLink::new`], with a bit that the table ignores. It can say
    /// where in an object the link is.
    ///
    /// ```
    /// use relativist_table::{CompactLink, Hash};
    /// assert!(CompactLink::with_user_bit(Hash::new(42), true).user_bit());
    /// ```
    #[inline]
    pub fn with_user_bit(hash: Hash, bit: bool) -> Self {
        let user_bit = if bit { Self::USER_BIT } else { 0 };
        Self { word: AtomicBits::new(hash.get() & Self::HASH | user_bit) }
    }

    /// Returns the upper 27 bits of the hash; the others are zero.
    #[inline(always)]
    pub fn hash(&self) -> Hash {
        // Relaxed: published by the store that makes the link reachable.
        Hash::from_mixed(self.word.load(Relaxed) & Self::HASH)
    }

    /// Returns the bit that was passed to [`CompactLink::with_user_bit`].
    #[inline(always)]
    pub fn user_bit(&self) -> bool {
        // Relaxed: as in `hash`.
        self.word.load(Relaxed) & Self::USER_BIT != 0
    }

    /// Returns the word of this link with another successor. Relaxed: only the holder of the
    /// bucket's lock, or of a link that no reader can reach, changes the word.
    #[inline(always)]
    fn word_before(&self, next: *mut Self) -> u64 {
        let constant = self.word.load(Relaxed) & !Self::DISTANCE;
        if next.is_null() {
            return constant;
        }
        let bytes = next.expose_provenance().wrapping_sub(self.address()) as i64;
        assert!(
            bytes.unsigned_abs() < Self::RANGE as u64,
            "the links of a table must lie within {} bytes: {self:p} and {next:p}",
            Self::RANGE
        );
        constant | (bytes >> Self::UNIT_BITS) as u64 & Self::DISTANCE
    }

    #[inline(always)]
    fn address(&self) -> usize {
        std::ptr::from_ref(self).addr()
    }
}

/// The kinds of links: [`Link`] and [`CompactLink`]. Code outside of this crate cannot add others.
pub trait AnyLink: Chained {}

impl AnyLink for Link {}
impl AnyLink for CompactLink {}

/// What a table does with a link.
pub trait Chained: Send + Sync + 'static {
    /// Returns the part of a hash that links of this kind have.
    fn part_of(hash: Hash) -> Hash;

    /// Returns the hash of the link.
    fn hash(&self) -> Hash;

    /// Sets the successor of a link that no reader can reach yet.
    ///
    /// # Safety
    ///
    /// The link is in no table. `next` is null, or in the chain that the link is about to enter.
    unsafe fn set_next_unpublished(&self, next: *mut Self);

    /// Returns the successor.
    fn next(&self) -> *mut Self;

    /// Changes the successor while readers may use the link.
    ///
    /// # Safety
    ///
    /// The caller holds the lock of the link's chain. `next` is null, or in that chain, or about to
    /// enter it.
    unsafe fn set_next(&self, next: *mut Self);
}

impl Chained for Link {
    #[inline(always)]
    fn part_of(hash: Hash) -> Hash {
        hash
    }

    #[inline(always)]
    fn hash(&self) -> Hash {
        self.hash()
    }

    #[inline(always)]
    unsafe fn set_next_unpublished(&self, next: *mut Link) {
        // Relaxed: published by the store that makes the link reachable.
        self.next.store(next, Relaxed);
    }

    #[inline(always)]
    fn next(&self) -> *mut Link {
        // Acquire: pairs with the Release in `set_next`: the caller sees the next link as it was
        // published.
        // litmus: chain-next, cut-unused, cut-left, newest-first, summary-announced
        self.next.load(Acquire)
    }

    #[inline(always)]
    unsafe fn set_next(&self, next: *mut Link) {
        // Release: pairs with the Acquire in `next`.
        // litmus: chain-next, cut-lockable, shrink-joined, summary-announced
        self.next.store(next, Release);
    }
}

impl Chained for CompactLink {
    #[inline(always)]
    fn part_of(hash: Hash) -> Hash {
        Hash::from_mixed(hash.get() & Self::HASH)
    }

    #[inline(always)]
    fn hash(&self) -> Hash {
        self.hash()
    }

    #[inline(always)]
    unsafe fn set_next_unpublished(&self, next: *mut CompactLink) {
        // Relaxed: published by the store that makes the link reachable.
        self.word.store(self.word_before(next), Relaxed);
    }

    #[inline(always)]
    fn next(&self) -> *mut CompactLink {
        // Acquire: pairs with the Release in `set_next`: the caller sees the next link as it was
        // published.
        // litmus: chain-next, cut-unused, cut-left, newest-first
        // litmus: summary-announced
        let word = self.word.load(Acquire);
        // The distance in bytes: shifted to the top, and back with its sign.
        let above = u64::BITS - Self::DISTANCE_BITS;
        let bytes = ((word << above) as i64 >> (above - Self::UNIT_BITS)) as usize;
        // The object around the next link may be in another allocation, hence exposed provenance.
        if bytes == 0 { null_mut() } else { with_exposed_provenance_mut(self.address().wrapping_add(bytes)) }
    }

    #[inline(always)]
    unsafe fn set_next(&self, next: *mut CompactLink) {
        // Release: pairs with the Acquire in `next`.
        // litmus: chain-next, cut-lockable, shrink-joined, summary-announced
        self.word.store(self.word_before(next), Release);
    }
}

/// Returns the links of a chain with their hashes. Reads the successor of a link before it returns
/// the link, so that the caller may free it.
///
/// # Safety
///
/// The links of the chain stay alive while it is walked: the caller holds its lock, or is in the
/// read section in which it found `first`, or no other thread uses the table.
pub(super) unsafe fn links_from<L: AnyLink>(first: *mut L) -> impl Iterator<Item = (NonNull<L>, Hash)> {
    let mut next = first;
    std::iter::from_fn(move || {
        let link = NonNull::new(next)?;
        // SAFETY: the caller guarantees that it is alive.
        let current = unsafe { link.as_ref() };
        next = current.next();
        Some((link, current.hash()))
    })
}

#[cfg(all(test, not(relativist_loom)))]
mod tests {
    use super::*;

    fn compact(mixed: u64, user_bit: bool) -> CompactLink {
        CompactLink::with_user_bit(Hash::from_mixed(mixed), user_bit)
    }

    #[test]
    fn a_compact_link_leads_both_ways_and_keeps_its_hash() {
        let links = [compact(!0, false), compact(1 << 37, true), compact(0, true)];
        let at = |n: usize| (&raw const links[n]).cast_mut();
        for (from, to) in [(0, 2), (2, 0), (1, 2), (1, 0)] {
            // SAFETY: these links are in no table.
            unsafe { links[from].set_next_unpublished(at(to)) };
            assert_eq!(links[from].next(), at(to));
            // SAFETY: as above.
            unsafe { links[from].set_next(null_mut()) };
            assert!(links[from].next().is_null());
        }
        assert_eq!(links.each_ref().map(|link| link.hash().get()), [!0 << 37, 1 << 37, 0]);
        assert_eq!(links.each_ref().map(CompactLink::user_bit), [false, true, true]);
    }

    #[test]
    fn a_compact_link_reaches_as_far_as_promised() {
        for user_bit in [false, true] {
            let link = compact(!0, user_bit);
            reaches_both_ways(&link);
            assert_eq!((link.hash().get(), link.user_bit()), (!0 << 37, user_bit));
        }
    }

    fn reaches_both_ways(link: &CompactLink) {
        for distance in [CompactLink::RANGE as isize - 8, 8 - CompactLink::RANGE as isize] {
            let far = std::ptr::from_ref(link).cast_mut().wrapping_byte_offset(distance);
            // SAFETY: this link is in no table.
            unsafe { link.set_next(far) };
            assert_eq!(link.next(), far);
        }
    }

    #[test]
    #[should_panic(expected = "must lie within 274877906944 bytes")]
    fn a_link_that_is_too_far_away_is_refused() {
        let link = compact(0, false);
        let too_far = (&raw const link).cast_mut().wrapping_byte_add(CompactLink::RANGE);
        // SAFETY: this link is in no table.
        unsafe { link.set_next(too_far) };
    }
}
