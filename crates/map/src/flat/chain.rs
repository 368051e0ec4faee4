//! A chain of segments that no other thread can find yet.

use super::segment::{EntryBits, Link, Place, Segment};
use super::word::{Slots, Tag, Word};

/// A chain of later segments that is being filled. Dropping it frees the segments and drops no
/// entries.
pub(super) struct Chain<K, V> {
    link: Link<K, V>,
}

impl<K, V> Chain<K, V> {
    /// Allocates a chain of one empty segment. Returns `None` if there is no memory.
    pub(super) fn new() -> Option<Self> {
        Some(Self { link: Link::NONE.with_segment(Segment::allocate()?) })
    }

    /// Adds an entry. Returns `None` if there is no memory.
    pub(super) fn append<'g>(&mut self, tag: Tag, entry: &EntryBits<K, V>) -> Option<Place<'g, K, V>> {
        let (segment, word, mut free) = self.room(1)?;
        let place = Place { segment, slot: free.next()? };
        // SAFETY: the slot is free, and no other thread can find the chain.
        unsafe { place.write(entry) };
        segment.set_word(word.with_tag(place.slot, tag));
        self.link = self.link.with_filter(tag.filter_bit());
        Some(place)
    }

    /// Returns a segment with `wanted` free slots, its word, and the slots. Adds a segment if there
    /// is none. Returns `None` if there is no memory. The caller chooses a `'g` at whose end the
    /// segment still exists.
    pub(super) fn room<'g>(&mut self, wanted: usize) -> Option<(&'g Segment<K, V>, Word, Slots)> {
        // SAFETY: segments are freed when the chain is dropped, or a grace period after the table
        // has unlinked them.
        let first: &'g Segment<K, V> = unsafe { self.link.segment() }?;
        // SAFETY: no other thread can find the chain.
        unsafe { room_in(first, wanted) }
    }

    /// Returns the link to the chain, with its filter. The segments now belong to the table.
    pub(super) fn into_link(self) -> Link<K, V> {
        std::mem::ManuallyDrop::new(self).link
    }
}

impl<K, V> Drop for Chain<K, V> {
    fn drop(&mut self) {
        // SAFETY: no other thread can find them.
        unsafe { Segment::free_chain(self.link) };
    }
}

/// Adds an entry to a bucket to which no other thread has access yet. Returns `None` if there is no
/// memory.
///
/// # Safety
///
/// No other thread has access to the bucket.
#[inline(always)]
pub(super) unsafe fn append_to_bucket<K, V>(first: &Segment<K, V>, tag: Tag, entry: &EntryBits<K, V>) -> Option<()> {
    let word = first.word();
    let (segment, word, mut free) = match word.with_free_slots(1) {
        (word, free) if !free.is_empty() => (first, word, free),
        _ => {
            // SAFETY: guaranteed by the caller.
            let room = unsafe { room_in(first, 1) }?;
            first.set_next(first.next().with_filter(tag.filter_bit()));
            room
        }
    };
    let place = Place { segment, slot: free.next()? };
    // SAFETY: the slot is free, and the caller guarantees the rest.
    unsafe { place.write(entry) };
    segment.set_word(word.with_tag(place.slot, tag));
    Some(())
}

/// Returns a segment with `wanted` free slots of the chain that begins at `first`. Adds a segment
/// if there is none. Returns `None` if there is no memory.
///
/// # Safety
///
/// No other thread has access to the chain.
unsafe fn room_in<K, V>(first: &Segment<K, V>, wanted: usize) -> Option<(&Segment<K, V>, Word, Slots)> {
    let mut segment = first;
    loop {
        let (word, free) = segment.word().with_free_slots(wanted);
        if free.are_at_least(wanted) {
            return Some((segment, word, free));
        }
        // SAFETY: guaranteed by the caller.
        segment = match unsafe { segment.next().segment() } {
            Some(next) => next,
            None => {
                let added = Segment::allocate()?;
                segment.set_next(segment.next().with_segment(added));
                // SAFETY: it is now in the chain, and is freed with it.
                unsafe { added.as_ref() }
            }
        };
    }
}
