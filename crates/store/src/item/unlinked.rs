//! Items that are not in the table yet: writing them, linking them, and giving them up.

use crate::expiry::Expiry;
use crate::item::item_ref::ItemRef;
use crate::item::large_value::ReservedValue;
use crate::item::layout::{HAS_CAS, HEADER, Layout, NUMBER, SHORT, link_at};
use crate::item::new::ItemInit;
use crate::item::status::{AtomicStatus, Marks, Status, VISIT_INTERVAL};
use crate::memory::allocator::ItemAllocator;
use crate::memory::request::{AllocContext, OutOfMemory};
use crate::work::{self, Work};
use relativist_rcu::Guard;
use relativist_table::CompactLink;
use std::ptr::NonNull;

/// Copies of fewer bytes are not charged.
const MIN_CHARGED: usize = 1 << 10;

/// An item that is not in the table. Its memory is freed on drop.
pub(crate) struct UnlinkedItem<'h> {
    pub(crate) item: ItemRef<'h>,
    /// The bytes that it occupies.
    pub(crate) size: usize,
    /// The marks that it inherits.
    pub(crate) inherits: Marks,
    pub(crate) allocator: &'h ItemAllocator,
}

impl<'h> UnlinkedItem<'h> {
    /// A copy of `item` that is made at `now`, to take its place with these `visits`.
    pub(crate) fn copy(
        item: ItemRef<'_>,
        visits: u8,
        now: u32,
        allocator: &'h ItemAllocator,
        table: impl FnOnce() -> usize,
    ) -> Result<UnlinkedItem<'h>, OutOfMemory> {
        UnlinkedItem::new(&ItemInit::copy(item, now), allocator, AllocContext::Relocation { visits }, table)
    }

    /// A copy of `item` with this expiry, to take the place of an item that has no room for one. It
    /// takes over the status. The bucket lock is held, and released only when the copy is linked.
    pub(crate) fn with_expiry(
        item: ItemRef<'_>,
        expiry: Expiry,
        now: u32,
        allocator: &'h ItemAllocator,
        table: impl FnOnce() -> usize,
    ) -> Result<UnlinkedItem<'h>, OutOfMemory> {
        let init = ItemInit { expiry, has_expiry: true, ..ItemInit::copy(item, now) };
        let copy = UnlinkedItem::new(&init, allocator, AllocContext::UnderBucketLock, table)?;
        copy.item.status().adopt(item.status().pass_on(), now);
        Ok(copy)
    }

    /// Writes an item, if there is room. `table` returns the table's bytes.
    #[inline(always)]
    pub(crate) fn new(
        init: &ItemInit<'_>,
        allocator: &'h ItemAllocator,
        context: AllocContext,
        table: impl FnOnce() -> usize,
    ) -> Result<UnlinkedItem<'h>, OutOfMemory> {
        let layout = init.layout();
        let size = layout.footprint();
        let place = allocator.allocate(size, context, table)?;
        // A small copy is part of the request.
        if size >= MIN_CHARGED {
            work::charge(Work::Bytes(size));
        }
        // From here to the end nothing may panic: a block with an unfinished item could never be
        // swept.
        // SAFETY: fresh memory of this size, aligned for items, which stays allocated while the
        // unlinked item exists.
        let item = unsafe {
            let item: ItemRef<'_> = ItemRef::at(place);
            write::<false>(item, init, layout);
            item
        };
        item.block().note_expiry(init.expiry);
        item.block().note_due(init.now.saturating_add(VISIT_INTERVAL));
        if let Some(number) = init.number {
            item.block().note_number(number);
        }
        Ok(UnlinkedItem { item, size, inherits: init.inherits, allocator })
    }

    /// Writes the item around a received value, if its memory has the right shape.
    pub(crate) fn around(
        init: &ItemInit<'_>,
        reserved: &ReservedValue,
        allocator: &'h ItemAllocator,
    ) -> Option<UnlinkedItem<'h>> {
        let layout = init.layout();
        let place = reserved.attach(layout, allocator)?;
        // As in `new`, nothing may panic.
        // SAFETY: as in `new`. The value is already in the place where an item of this layout has
        // it.
        let item = unsafe {
            let item: ItemRef<'_> = ItemRef::at(place);
            write::<true>(item, init, layout);
            item
        };
        item.block().note_expiry(init.expiry);
        item.block().note_due(init.now.saturating_add(VISIT_INTERVAL));
        Some(UnlinkedItem { item, size: layout.footprint(), inherits: init.inherits, allocator })
    }

    pub(crate) fn expiry(&self) -> Expiry {
        self.item.expiry()
    }

    /// Takes over those marks of `item` that this item inherits, before it replaces `item`. The
    /// bucket lock is held.
    pub(crate) fn inherit(&self, item: ItemRef<'_>) {
        if self.inherits == Marks::NONE {
            return;
        }
        let status = item.status().load();
        // Other marks do not change, because of the lock.
        let may_change = self.inherits.has(Marks::FETCHED) && !status.marks().has(Marks::FETCHED);
        let status = if may_change { item.status().pass_on() } else { status };
        self.item.status().mark(status.marks() & self.inherits, None);
    }

    /// Takes over from `item`, of which this is a copy, the fields that may have changed since, and
    /// sets its `visits`, before it replaces `item`. The bucket lock is held.
    pub(crate) fn take_over(&self, item: ItemRef<'_>, visits: u8, now: u32) {
        let is_set = self.item.set_expiry(item.expiry());
        debug_assert!(is_set, "a copy has the same layout");
        self.item.status().take_over(item.status().pass_on(), visits, now);
    }

    /// Counts the item as linked, passes its link to `insert`, which puts it into the table, and
    /// returns the item. It is pending until then, so its block is not swept before.
    #[inline]
    pub(crate) fn link<'g>(self, guard: &'g Guard, insert: impl FnOnce(NonNull<CompactLink>)) -> ItemRef<'g> {
        let UnlinkedItem { item, size, allocator, .. } = self;
        std::mem::forget(self);
        allocator.count_linked(size, guard);
        // SAFETY: items that are linked during a read section stay allocated until it ends.
        let item = unsafe { item.for_section(guard) };
        insert(item.link());
        item.block().finish_pending();
        item
    }
}

impl Drop for UnlinkedItem<'_> {
    fn drop(&mut self) {
        self.allocator.abandon(self.item.address(), self.size);
    }
}

/// Writes an item; with `AROUND`, all but its value, which is there already.
///
/// # Safety
/// `layout` is that of `init`. At the item's address is memory of its size, aligned for items, that
/// no other thread uses, except a value that is there already.
#[inline(always)]
unsafe fn write<const AROUND: bool>(item: ItemRef<'_>, init: &ItemInit<'_>, layout: Layout) {
    let place = item.address();
    let (options, length) = (layout.options, init.value_len);
    let number = init.number.map(u64::to_le_bytes);
    let number = number.as_ref().map_or(&b""[..], |bytes| &bytes[..NUMBER]);
    let given = init.cas.map(u64::to_ne_bytes);
    let given = given.as_ref().map_or(&b""[..], |bytes| bytes);
    let has_cas = if given.is_empty() { 0 } else { HAS_CAS };
    let status = Status::new(init.now, init.marks, options);
    let link = CompactLink::with_user_bit(init.hash, link_at(place) > 0);
    // SAFETY: the memory is large and aligned enough for all fields.
    unsafe {
        item.link().write(link);
        item.status_place().write(AtomicStatus::new(status));
        if options.has_expiry {
            place.add(HEADER).cast::<u32>().write(init.expiry.to_bits());
        }
        place.add(options.value_len_at()).write(length as u8);
        place.add(options.key_len_at()).write(init.key_len);
    }
    let mut end = place.as_ptr().wrapping_add(options.key_len_at() + size_of_val(&init.key_len));
    // SAFETY: the memory has room for all pieces after the header. Sources are slices elsewhere, so
    // nothing overlaps.
    unsafe {
        if options.is_extended {
            end = append(end, &(length >> SHORT | has_cas).to_ne_bytes());
        }
        if options.has_flags {
            end = append(end, &init.flags.to_ne_bytes());
        }
        end = append_key(end, init.key);
        if AROUND {
            append(end.wrapping_add(init.value_len as usize), given);
            return;
        }
        end = append(end, init.value[0]);
        end.write_bytes(b' ', init.blanks);
        end = end.wrapping_add(init.blanks);
        for rare in [init.value[1], number, given] {
            if !rare.is_empty() {
                end = append(end, rare);
            }
        }
    }
}

/// Writes `piece` to `place`, and returns the end.
///
/// # Safety
/// There is room for `piece`, which does not overlap with that place.
#[inline(always)]
unsafe fn append(place: *mut u8, piece: &[u8]) -> *mut u8 {
    // SAFETY: the caller's promise.
    unsafe { place.copy_from_nonoverlapping(piece.as_ptr(), piece.len()) };
    place.wrapping_add(piece.len())
}

/// Like [`append`], for a key. Many have 8 to 16 bytes, and are written as their first and last 8,
/// which may overlap.
///
/// # Safety
/// As for [`append`].
#[inline(always)]
unsafe fn append_key(place: *mut u8, key: &[u8]) -> *mut u8 {
    const WORD: usize = size_of::<u64>();
    const MAX: usize = 2 * WORD;
    let (Some(first), Some(last), ..=MAX) = (key.first_chunk::<WORD>(), key.last_chunk::<WORD>(), key.len()) else {
        // SAFETY: the caller's promise.
        return unsafe { append(place, key) };
    };
    let last_place = place.wrapping_add(key.len() - WORD);
    // SAFETY: both are within the key's place. Arrays of bytes need no alignment.
    unsafe {
        place.cast::<[u8; WORD]>().write(*first);
        last_place.cast::<[u8; WORD]>().write(*last);
    }
    last_place.wrapping_add(WORD)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::item::hit::Hit;
    use crate::item::layout::{ITEM_OVERHEAD, MAX_KEY};
    use crate::memory::block;
    use relativist_table::Hash;

    fn init<'a>(key: &'a [u8], value: [&'a [u8]; 2]) -> ItemInit<'a> {
        let (hash, expiry, cas, marks) = (Hash::new(1), Expiry::NEVER, None, Marks::ENCODED_KEY);
        let (key_len, value_len) = (key.len() as u8, value.concat().len() as u32);
        let (flags, has_expiry, number, inherits, now) = (7, false, None, Marks::NONE, 100);
        ItemInit {
            hash,
            key,
            key_len,
            flags,
            expiry,
            has_expiry,
            value,
            blanks: 0,
            value_len,
            number,
            cas,
            marks,
            inherits,
            now,
        }
    }

    fn unlinked<'h>(init: &ItemInit<'_>, allocator: &'h ItemAllocator) -> UnlinkedItem<'h> {
        UnlinkedItem::new(init, allocator, AllocContext::NoLock, || 0).unwrap()
    }

    #[test]
    fn an_item_has_14_bytes_besides_key_and_value() {
        assert_eq!(ITEM_OVERHEAD, 14);
    }

    #[test]
    fn open_blocks_hold_no_more_items_than_assumed() {
        // It has one open block of new items per class, because it is small.
        let allocator = ItemAllocator::new(1 << 20).unwrap();
        let smallest = block::footprint(ITEM_OVERHEAD + 1);
        // The smallest size of each class.
        let sizes = [smallest].into_iter().chain((4..).map(|class| block::footprint(4_usize.pow(class).div_ceil(3))));
        let most: usize =
            sizes.take_while(|&size| !allocator.is_large(size)).map(|size| allocator.capacity / size).sum();
        let assumed = allocator.max_items_in_open_blocks();
        assert!((most..most + most / 8).contains(&assumed), "{assumed} for {most}");
    }

    #[test]
    fn an_item_reads_back_as_written() {
        let allocator = ItemAllocator::new(1 << 20).unwrap();
        let [large, short, long] = [20_000, (1 << 8) - 1, 70_000].map(|length| vec![b'x'; length]);
        let cases: [(_, _, [&[u8]; 2]); 5] = [
            (7, 4, [b"one", b"two"]),
            (0, 0, [b"", b""]),
            (0, 8, [&large, b"y"]),
            (0, 0, [&short, b""]),
            (u32::MAX, 12, [&long, b"y"]),
        ];
        for (flags, options, value) in cases {
            // An original, and copies with the largest number, and with a client's CAS value, too.
            let number = (1 << 56) - 2;
            let extension = if value.concat().len() < 256 { 4 } else { 0 };
            let rests = [(None, None, 0), (Some(number), None, 7), (Some(number), Some(3), 15 + extension)];
            for (number, cas, rest) in rests {
                let init = ItemInit { flags, number, cas, ..init(&[b'k'; MAX_KEY], value) };
                let unlinked = unlinked(&init, &allocator);
                let item = unlinked.item;
                unlinked.link(&relativist_rcu::read(), |_| ());
                assert_eq!((item.key(), item.value()), (&[b'k'; MAX_KEY][..], &value.concat()[..]));
                let number = number.unwrap_or_else(|| item.block().number_at(item.address()));
                let hit = Hit::of(item, 100);
                assert_eq!((hit.flags, hit.number(), hit.cas()), (flags, number, cas.unwrap_or(number)));
                assert_eq!(item.footprint(), (14 + options + 250 + value.concat().len() + rest).next_multiple_of(4));
            }
        }
    }

    #[test]
    fn an_unlinked_item_that_is_dropped_frees_its_room() {
        let allocator = ItemAllocator::new(1 << 20).unwrap();
        let first = unlinked(&init(b"key", [b"v", b""]), &allocator).item.address();
        let second = unlinked(&init(b"other", [b"value", b""]), &allocator).item.address();
        assert_eq!(first, second);
        assert_eq!(allocator.linked(), 0);
    }

    #[test]
    fn a_cas_value_of_a_client_is_reported_and_the_number_kept() {
        let allocator = ItemAllocator::new(1 << 20).unwrap();
        let unlinked = unlinked(&ItemInit { cas: Some(u64::MAX - 1), ..init(b"key", [b"value", b""]) }, &allocator);
        let item = unlinked.item;
        unlinked.link(&relativist_rcu::read(), |_| ());
        let number = item.block().number_at(item.address());
        assert_eq!((Hit::of(item, 100).cas(), item.number(), item.value()), (u64::MAX - 1, number, &b"value"[..]));
        assert_eq!(item.footprint(), allocator.linked());
        let copy = UnlinkedItem::copy(item, 0, 100, &allocator, || 0).unwrap();
        assert_eq!((Hit::of(copy.item, 100).cas(), copy.item.number()), (u64::MAX - 1, number));
    }

    #[test]
    fn a_copy_keeps_all_but_the_visits() {
        let allocator = ItemAllocator::new(1 << 20).unwrap();
        let item = unlinked(&ItemInit { has_expiry: true, ..init(b"key", [b"value", b""]) }, &allocator);
        let copy = UnlinkedItem::copy(item.item, 0, 100, &allocator, || 0).unwrap();
        assert!(item.item.set_expiry(Expiry::from_bits(77)));
        item.item.status().access(130);
        copy.take_over(item.item, 3, 135);
        assert_eq!(
            (copy.item.key(), Hit::of(copy.item, 100).flags, copy.item.value()),
            (&b"key"[..], 7, &b"value"[..])
        );
        let status = copy.item.status().load();
        assert_eq!((copy.item.expiry().to_bits(), status.heat()), (77, (3, false)));
        assert_eq!((status.marks(), status.idle(135)), (Marks::ENCODED_KEY | Marks::FETCHED, 5));
    }

    #[test]
    fn an_item_without_room_for_an_expiry_is_copied() {
        let allocator = ItemAllocator::new(1 << 20).unwrap();
        let cas = Some(u64::MAX);
        let item = unlinked(&ItemInit { cas, ..init(b"key", [b"value", b""]) }, &allocator);
        assert!(item.item.set_expiry(Expiry::NEVER) && !item.item.set_expiry(Expiry::from_bits(77)));
        assert_eq!(item.item.expiry(), Expiry::NEVER);
        item.item.status().access(130);
        let copy = UnlinkedItem::with_expiry(item.item, Expiry::from_bits(77), 135, &allocator, || 0).unwrap();
        let (old, new) = (Hit::of(item.item, 135), Hit::of(copy.item, 135));
        assert_eq!((new.key, new.flags, new.value, new.cas()), (old.key, old.flags, old.value, u64::MAX));
        assert_eq!((new.expiry, new.marks, new.idle), (Expiry::from_bits(77), old.marks, 5));
        assert!(copy.item.status().load().heat().1, "a visit stays, because no sweep has seen it");
        assert!(copy.item.set_expiry(Expiry::from_bits(78)) && item.item.status().access(200).is_none());
    }
}
