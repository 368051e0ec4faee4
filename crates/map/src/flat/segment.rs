//! Segments: the memory of entries. A bucket is a chain of them, of which the first is in the
//! array.

use std::alloc::{Layout, alloc, dealloc, handle_alloc_error};
use std::io::{Write, stderr};
use std::iter::successors;
use std::mem::MaybeUninit;
use std::panic::RefUnwindSafe;
use std::ptr::{NonNull, null_mut};
use std::sync::Once;

use relativist_rcu::{Guard, clock, defer_raw};

use super::word::{Tag, Word};
use relativist_core::sync::{
    AcqRel, Acquire, AtomicBits, AtomicPtr, Relaxed, Release, UnsafeCell, fence_after_exchange,
};

/// A key and its value.
pub(crate) struct Entry<K, V> {
    pub(crate) key: K,
    pub(crate) value: V,
}

impl<K, V> Entry<K, V> {
    pub(crate) fn pair(&self) -> (&K, &V) {
        (&self.key, &self.value)
    }
}

/// The bits of an entry, which may be copied, because dropping them drops nothing.
pub(super) type EntryBits<K, V> = MaybeUninit<Entry<K, V>>;

/// A segment of a bucket. With entries of 16 bytes it fills a cache line.
///
/// The holder of the bucket's lock writes the word, the link, and free slots. (A removal may
/// exchange the word of a first segment while no thread holds the lock.) Readers load a word and
/// read the slots that it shows as live. No thread writes to these before the readers have left
/// their sections.
#[repr(C, align(64))]
pub(super) struct Segment<K, V> {
    word: AtomicBits,
    next: AtomicPtr<Self>,
    slots: [UnsafeCell<EntryBits<K, V>>; Word::SLOTS],
}

/// A slot is written only while no thread has a reference to it. So after a panic, an entry is
/// broken only if its key or value is.
impl<K: RefUnwindSafe, V: RefUnwindSafe> RefUnwindSafe for Segment<K, V> {}

/// The place of an entry: a slot of a segment.
pub(super) struct Place<'g, K, V> {
    pub(super) segment: &'g Segment<K, V>,
    pub(super) slot: usize,
}

impl<K, V> Clone for Place<'_, K, V> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<K, V> Copy for Place<'_, K, V> {}

impl<'g, K, V> Place<'g, K, V> {
    #[inline(always)]
    fn cell(self) -> &'g UnsafeCell<EntryBits<K, V>> {
        debug_assert!(self.slot < Word::SLOTS);
        // SAFETY: slots are taken from words, which have this number of them.
        unsafe { self.segment.slots.get_unchecked(self.slot) }
    }

    /// Returns the entry.
    ///
    /// # Safety
    ///
    /// The slot is or was live, and since then the caller has been in a read section that lasts for
    /// `'g`, or has held the lock of the bucket.
    #[inline(always)]
    pub(super) unsafe fn entry(self) -> &'g Entry<K, V> {
        // SAFETY: guaranteed by the caller. A slot is initialised before it is live.
        unsafe { self.bits().assume_init_ref() }
    }

    /// Returns whether the slot is live. A slot of a first segment is not after its bucket has
    /// moved. A slot of a later segment stays live then, and when its segment is replaced by a
    /// copy.
    #[inline]
    pub(super) fn is_live(self) -> bool {
        self.segment.word().live().any(|slot| slot == self.slot)
    }

    /// Returns the bits of the entry. A copy of an `Entry` would claim that its `Box`es have no
    /// other owner. A copy of `MaybeUninit` does not.
    ///
    /// # Safety
    ///
    /// As for [`entry`](Self::entry).
    #[inline(always)]
    pub(super) unsafe fn bits(self) -> &'g EntryBits<K, V> {
        // SAFETY: no thread writes to the slot before the caller has left its section. Under the
        // lock, only the caller writes.
        self.cell().with(|slot| unsafe { &*slot })
    }

    /// Drops the entry.
    ///
    /// # Safety
    ///
    /// The slot is live, no other thread has access to it, and the entry is not used any more.
    pub(super) unsafe fn drop_in_place(self) {
        // SAFETY: guaranteed by the caller.
        self.cell().with_mut(|slot| unsafe { (*slot).assume_init_drop() });
    }

    /// Copies the bits of an entry into the slot.
    ///
    /// # Safety
    ///
    /// The slot is free, and the caller holds the lock of the bucket or is the only thread that can
    /// find the segment.
    #[inline(always)]
    pub(super) unsafe fn write(self, entry: &EntryBits<K, V>) {
        // SAFETY: no thread reads a free slot, and the lock excludes other writers. So `entry` does
        // not overlap with the slot either.
        self.cell().with_mut(|slot| unsafe { slot.copy_from_nonoverlapping(entry, 1) });
    }
}

/// The link to the next segment. The link of a first segment has a filter in its upper 16 bits: bit
/// *n* is set if an entry in a later segment has *n* in the last four bits of its tag.
pub(super) struct Link<K, V>(*mut Segment<K, V>);

impl<K, V> Clone for Link<K, V> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<K, V> Copy for Link<K, V> {}

impl<K, V> Link<K, V> {
    const FILTER_SHIFT: u32 = 48;
    pub(super) const NONE: Self = Self(null_mut());

    /// Returns whether an entry with this tag may be in later segments.
    #[inline(always)]
    pub(super) fn may_lead_to(self, tag: Tag) -> bool {
        self.0.addr() >> (Self::FILTER_SHIFT | tag.filter_index()) & 1 != 0
    }

    /// Returns the link with a filter that makes each lookup follow it.
    pub(super) fn with_full_filter(self) -> Self {
        self.with_filter(usize::MAX >> Self::FILTER_SHIFT)
    }

    fn filter(self) -> usize {
        self.0.addr() >> Self::FILTER_SHIFT
    }

    /// Adds bits to the filter.
    pub(super) fn with_filter(self, filter: usize) -> Self {
        Self(self.0.map_addr(|link| link | filter << Self::FILTER_SHIFT))
    }

    pub(super) fn without_filter(self) -> Self {
        Self(self.0.map_addr(|link| link & ((1 << Self::FILTER_SHIFT) - 1)))
    }

    /// Returns a link with an empty filter.
    fn to(segment: NonNull<Segment<K, V>>) -> Self {
        Self(segment.as_ptr())
    }

    /// Returns the same filter with another segment.
    pub(super) fn with_segment(self, segment: NonNull<Segment<K, V>>) -> Self {
        Self::to(segment).with_filter(self.filter())
    }

    pub(super) fn pointer(self) -> Option<NonNull<Segment<K, V>>> {
        NonNull::new(self.as_ptr())
    }

    #[inline(always)]
    pub(super) fn as_ptr(self) -> *mut Segment<K, V> {
        self.without_filter().0
    }

    /// Returns the segment to which the link leads.
    ///
    /// # Safety
    ///
    /// The link was loaded in a read section that lasts for `'g`, or under the lock.
    #[inline(always)]
    pub(super) unsafe fn segment<'g>(self) -> Option<&'g Segment<K, V>> {
        // SAFETY: a segment is freed a grace period after the link to it is removed. Only the
        // holder of the lock removes links.
        self.pointer().map(|segment| unsafe { segment.as_ref() })
    }
}

/// Says once why a segment is refused, because callers can report only that there is no memory.
#[cold]
fn report_refused(address: *const ()) {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        // Not `eprintln!`, which panics if stderr is closed.
        let _ = writeln!(stderr(), "relativist: a segment must lie below 2^48, but the allocator returned {address:p}");
    });
}

impl<K, V> Segment<K, V> {
    /// Returns an empty segment: the same as zeroed memory, except under loom.
    pub(super) fn empty() -> Self {
        let slots = std::array::from_fn(|_| UnsafeCell::new(MaybeUninit::uninit()));
        Self { word: AtomicBits::new(Word::EMPTY.bits()), next: AtomicPtr::new(null_mut()), slots }
    }

    /// Allocates an empty segment outside of arrays. Returns `None` if there is no memory, or if
    /// its address is not below 2^48.
    pub(super) fn allocate() -> Option<NonNull<Self>> {
        // SAFETY: the size is not zero.
        let segment = NonNull::new(unsafe { alloc(Layout::new::<Self>()) })?.cast::<Self>();
        if segment.addr().get() >> Link::<K, V>::FILTER_SHIFT != 0 {
            // A link has no room for the address. This must not panic, because callers hold locks.
            report_refused(segment.as_ptr().cast());
            // SAFETY: allocated above.
            unsafe { dealloc(segment.as_ptr().cast(), Layout::new::<Self>()) };
            return None;
        }
        // SAFETY: fresh memory.
        unsafe { segment.write(Self::empty()) };
        Some(segment)
    }

    /// Ends the process: there is no memory for a segment.
    #[cold]
    pub(crate) fn abort() -> ! {
        handle_alloc_error(Layout::new::<Self>())
    }

    /// Frees a segment that is not in an array. Entries in it are not dropped.
    ///
    /// # Safety
    ///
    /// It came from [`allocate`](Self::allocate), and no thread uses it any more.
    pub(super) unsafe fn free(segment: NonNull<Self>) {
        // SAFETY: guaranteed by the caller. (Dropping the segment drops no entries: its slots are
        // `MaybeUninit`. Under loom it checks that all accesses happened before.)
        unsafe {
            segment.drop_in_place();
            dealloc(segment.as_ptr().cast(), Layout::new::<Self>());
        }
    }

    /// Frees all segments of a chain; see [`free`](Self::free).
    ///
    /// # Safety
    ///
    /// As for [`free`](Self::free), for each of them.
    pub(super) unsafe fn free_chain(mut link: Link<K, V>) {
        while let Some(segment) = link.pointer() {
            // SAFETY: guaranteed by the caller.
            unsafe {
                link = segment.as_ref().next();
                Self::free(segment);
            }
        }
    }

    /// Frees all segments of a chain after a grace period.
    ///
    /// # Safety
    ///
    /// They came from [`allocate`](Self::allocate), and no later reader can find them.
    pub(super) unsafe fn retire_chain(link: Link<K, V>) {
        let Some(first) = link.pointer() else { return };
        // SAFETY: guaranteed by the caller. The links of segments that have left the table do not
        // change.
        unsafe {
            let segments = successors(link.segment(), |segment| segment.next().segment());
            let bytes = segments.count() * size_of::<Self>();
            defer_raw(first.cast(), bytes, |first| Self::free_chain(Link::to(first.cast())));
        }
    }

    #[inline(always)]
    pub(super) fn word(&self) -> Word {
        // Acquire: pairs with the Release of `set_word`, `exchange_word`, `try_lock` and
        // `try_remove`. The caller sees the entries of live slots as they were written. If the word
        // shows that the bucket has moved, the caller sees the link to the next array and the array
        // with its entries.
        // litmus: flat-entry, flat-later-entry, flat-moved, flat-moved-later, flat-stamp
        // litmus: flat-removed-continues
        Word::from_bits(self.word.load(Acquire))
    }

    /// Sets the word, without unlocking the bucket. The caller holds the lock, or is the only
    /// thread that can find the segment. So no removal exchanges the word meanwhile.
    pub(super) fn set_word(&self, word: Word) {
        // Release: pairs with the Acquire in `word`.
        // litmus: flat-later-entry, flat-moved-later, flat-announced
        self.word.store(word.bits(), Release);
    }

    /// Sets the word of a first segment that is locked, and so unlocks it.
    #[inline(always)]
    pub(super) fn exchange_word(&self, word: Word) {
        // AcqRel: Release pairs with the Acquire in `word` and `try_lock`. An exchange, because a
        // lookup by this thread must not overtake the store; see `Head::unlock`.
        // litmus: flat-entry, flat-locked, flat-moved, flat-stamp, flat-update-then-lookup
        // litmus: flat-next-array, flat-removed-continues
        self.word.swap(word.bits(), AcqRel);
    }

    /// Locks the bucket of this first segment, if its word still is `word`, which is not locked.
    #[inline(always)]
    pub(super) fn try_lock(&self, word: Word) -> bool {
        // AcqRel: Acquire pairs with the Release of `exchange_word`; Release keeps publishing the
        // entries to readers that load this word. On failure the caller loads again, hence Relaxed.
        // litmus: flat-locked, flat-removed-once
        self.word.compare_exchange(word.bits(), word.locked().bits(), AcqRel, Relaxed).is_ok()
    }

    /// Vacates a live slot of this first segment without locking the bucket. Returns false, and
    /// changes nothing, if the bucket is locked or the word is no longer `word`.
    ///
    /// The caller has loaded `word` in its section. If the word is the same now, the slot still has
    /// the entry that it had then: a slot that another thread has vacated since does not become
    /// live again before the section ends.
    #[inline(always)]
    pub(super) fn try_remove(&self, word: Word, slot: usize, guard: &Guard) -> bool {
        self.try_vacate(word, |begun| word.with_vacated(slot, begun), guard)
    }

    /// Vacates all live slots of this first segment like [`try_remove`](Self::try_remove).
    #[inline(always)]
    pub(super) fn try_remove_all(&self, word: Word, guard: &Guard) -> bool {
        self.try_vacate(word, |begun| word.with_all_vacated(begun), guard)
    }

    #[inline(always)]
    fn try_vacate(&self, word: Word, vacated: impl FnOnce(u64) -> Word, guard: &Guard) -> bool {
        if word.is_locked() {
            return false;
        }
        // Loaded after the word, so the new stamp is not older than the one that it replaces: slots
        // that were vacated before must not look older than they are.
        let removed = vacated(clock::begun(guard));
        // AcqRel: Release pairs with the Acquire in `word`: it keeps publishing the entries of the
        // other slots, as in `try_lock`. On failure the caller locks the bucket, hence Relaxed. The
        // fence makes the exchange a full barrier, like the one that unlocks a bucket (T3).
        // litmus: flat-removed-continues, flat-removed-once, flat-update-then-lookup
        let is_removed = self.word.compare_exchange(word.bits(), removed.bits(), AcqRel, Relaxed).is_ok();
        fence_after_exchange();
        is_removed
    }

    #[inline(always)]
    pub(super) fn next(&self) -> Link<K, V> {
        // Acquire: pairs with the Release in `set_next`. The caller sees the segment as it was
        // filled.
        // litmus: flat-segment, flat-announced
        Link(self.next.load(Acquire))
    }

    /// Returns the link, or `None` if there are no later segments.
    pub(super) fn later(&self) -> Option<Link<K, V>> {
        Some(self.next()).filter(|link| link.pointer().is_some())
    }

    /// Sets the link. The caller holds the lock, or no other thread can find the segment.
    pub(super) fn set_next(&self, link: Link<K, V>) {
        // Release: pairs with the Acquire in `next`.
        // litmus: flat-segment
        self.next.store(link.0, Release);
    }

    /// Finds an entry with this tag for whose key `is_match` returns true, in the slots that `word`
    /// shows as live, and in later segments.
    ///
    /// # Safety
    ///
    /// The word was loaded from this segment in a read section that lasts for `'g`, or under the
    /// lock.
    #[inline(always)]
    pub(super) unsafe fn find<'g>(
        &'g self,
        word: Word,
        tag: Tag,
        mut is_match: impl FnMut(&K) -> bool,
    ) -> Option<Place<'g, K, V>> {
        if let Some(slot) = word.first_match(tag) {
            // SAFETY: guaranteed by the caller: the slot is live.
            if let Some(place) = unsafe { self.place_of(slot, &mut is_match) } {
                return Some(place);
            }
        } else if !self.next().may_lead_to(tag) {
            return None;
        }
        // SAFETY: guaranteed by the caller.
        unsafe { self.find_further(word, tag, is_match) }
    }

    /// Continues [`find`](Self::find) after the first slot whose tag matches.
    ///
    /// # Safety
    ///
    /// As for [`find`](Self::find).
    #[inline(never)]
    unsafe fn find_further<'g>(
        &'g self,
        word: Word,
        tag: Tag,
        mut is_match: impl FnMut(&K) -> bool,
    ) -> Option<Place<'g, K, V>> {
        // SAFETY: guaranteed by the caller.
        if let Some(place) = word.matches(tag).skip(1).find_map(|slot| unsafe { self.place_of(slot, &mut is_match) }) {
            return Some(place);
        }
        let mut link = self.next();
        if !link.may_lead_to(tag) {
            return None;
        }
        // SAFETY: as above; each word is loaded in the section.
        while let Some(segment) = unsafe { link.segment() } {
            let mut matches = segment.word().matches(tag);
            // SAFETY: as above.
            if let Some(place) = matches.find_map(|slot| unsafe { segment.place_of(slot, &mut is_match) }) {
                return Some(place);
            }
            link = segment.next();
        }
        None
    }

    /// Returns the place of a slot if its key matches.
    ///
    /// # Safety
    ///
    /// As for [`find`](Self::find): the slot is live.
    #[inline(always)]
    unsafe fn place_of(&self, slot: usize, mut is_match: impl FnMut(&K) -> bool) -> Option<Place<'_, K, V>> {
        let place = Place { segment: self, slot };
        // SAFETY: guaranteed by the caller.
        is_match(&unsafe { place.entry() }.key).then_some(place)
    }
}
