//! Items: the table's link, a header, the key and the value, in one piece of a block's memory.
//!
//! ```text
//! 0      16       22          24       28       32        33        33 + options
//! | link | number | value len | expiry | status | key len | options | key bytes | value bytes | given unique |
//! ```
//!
//! The number says which items were stored before a flush, so it is always one that was drawn, and rises. It is the item's
//! unique, too, unless a client has given one: that stands behind the value then (8 bytes, [`Marks::GIVEN_UNIQUE`]).
//!
//! What most items don't have stands in the options, if the [status](super::status) says so: the upper half of the value's length, and the client
//! flags. So an item has [`ITEM_OVERHEAD`] = 33 bytes beside its key and value, 2 more if the value has 64 KiB, 4 more with flags that are
//! not zero, and up to 7 for the next item to be aligned, for its link. The table takes another 2 to 8, at loads between 1 and 4.
//!
//! An item is written while it is a [`Draft`], owned by one thread. Once in the table it is shared and never changes, but for
//! its expiry and status, which are atomic: readers copy values without a lock, so a new value is always a new item. One whose block
//! is evicted may move on: a copy takes its place in the table, with the same number, and readers are done with the old one before
//! its memory is used again.

use super::arrival::{Arrival, Outline};
use super::block::{self, Block};
use super::expiry::Expiry;
use super::heap::{Asks, Heap, OutOfMemory};
use super::status::{AtomicStatus, Marks, Status, VISIT_INTERVAL};
use super::{Hit, New, Value};
use relativist::raw::{Hash, Link};
use relativist_rcu::Guard;
use std::marker::PhantomData;
use std::mem::offset_of;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, Ordering};

/// The longest key, in bytes.
pub const MAX_KEY: usize = 250;

/// Bytes that an item occupies besides its key and value, if it has no options.
pub const ITEM_OVERHEAD: usize = offset_of!(Item, key_len) + size_of::<u8>();

/// The header. The options, and the bytes of key and value, follow its last field in the same piece of memory: out of the reach of
/// a `&Item`, so items are handed around as [`ItemRef`].
#[repr(C)]
struct Item {
    /// First, so that a pointer to the link is a pointer to the item.
    link: Link,
    /// Drawn when it was linked. 48 bits: enough for a million stores a second during nine years.
    number: [u16; 3],
    value_len: u16,
    expiry: AtomicU32,
    status: AtomicStatus,
    key_len: u8,
}

/// Bytes of a unique behind the value.
const GIVEN_UNIQUE: usize = size_of::<u64>();

/// An item that is linked, or was, and stays allocated for `'a`.
#[derive(Clone, Copy)]
pub(super) struct ItemRef<'a> {
    /// Good for the whole allocation.
    item: NonNull<Item>,
    lifetime: PhantomData<&'a Item>,
}

impl<'a> ItemRef<'a> {
    /// The item that `link` is embedded in.
    ///
    /// # Safety
    /// `link` comes from [`Draft::link`], directly or by way of the table, and the item stays allocated for `'a`.
    pub(super) unsafe fn of_link(link: NonNull<Link>) -> ItemRef<'a> {
        // The link is the first field of a `repr(C)` struct, so the address is the item's.
        ItemRef { item: link.cast(), lifetime: PhantomData }
    }

    /// The item at `address`.
    ///
    /// # Safety
    /// As for [`of_link`](Self::of_link).
    pub(super) unsafe fn at(address: NonNull<u8>) -> ItemRef<'a> {
        ItemRef { item: address.cast(), lifetime: PhantomData }
    }

    pub(super) fn link(self) -> NonNull<Link> {
        self.item.cast()
    }

    fn address(self) -> NonNull<u8> {
        self.item.cast()
    }

    pub(super) fn block(self) -> Block {
        // SAFETY: the item stays allocated for `'a`.
        unsafe { Block::of(self.address()) }
    }

    fn header(self) -> &'a Item {
        // SAFETY: the promise made to `of_link`. Nobody has a mutable reference: items are shared once they are linked.
        unsafe { self.item.as_ref() }
    }

    /// `length` of the bytes behind the header, from `start` on.
    ///
    /// # Safety
    /// The item has them.
    unsafe fn bytes(self, start: usize, length: usize) -> &'a [u8] {
        // SAFETY: within the memory that `item` points to, by the caller's promise; initialised by `Draft::new`, and not
        // written again.
        unsafe { NonNull::slice_from_raw_parts(self.address().add(ITEM_OVERHEAD + start), length).as_ref() }
    }

    pub(super) fn status(self) -> &'a AtomicStatus {
        &self.header().status
    }

    /// Where its parts are.
    #[inline]
    fn layout(self) -> Layout {
        self.layout_with(self.status().load())
    }

    #[inline]
    fn layout_with(self, status: Status) -> Layout {
        let options = Options::of(status);
        let low = usize::from(self.header().value_len);
        // SAFETY: the first option.
        let high = if options.is_long { unsafe { self.bytes(0, size_of::<u16>()) } } else { &[0, 0] };
        let high = usize::from(u16::from_ne_bytes(high.try_into().expect("two bytes were taken")));
        Layout { options, key_len: self.header().key_len.into(), value_len: low | high << u16::BITS }
    }

    pub(super) fn hash(self) -> Hash {
        self.header().link.hash()
    }

    #[inline]
    pub(super) fn key(self) -> &'a [u8] {
        self.key_with(self.status().load())
    }

    #[inline]
    fn key_with(self, status: Status) -> &'a [u8] {
        // Not by way of the layout: lookups ask for nothing else.
        let start = Options::of(status).size();
        // SAFETY: the key follows the options.
        unsafe { self.bytes(start, self.header().key_len.into()) }
    }

    pub(super) fn value(self) -> &'a [u8] {
        self.value_in(self.layout())
    }

    fn value_in(self, layout: Layout) -> &'a [u8] {
        // SAFETY: the value follows the key.
        unsafe { self.bytes(layout.options.size() + layout.key_len, layout.value_len) }
    }

    fn flags_in(self, layout: Layout) -> u32 {
        if !layout.options.has_flags {
            return 0;
        }
        // SAFETY: the last option.
        let flags = unsafe { self.bytes(layout.options.size() - size_of::<u32>(), size_of::<u32>()) };
        u32::from_ne_bytes(flags.try_into().expect("four bytes were taken"))
    }

    /// The number drawn for it: larger than those of all items linked before.
    pub(super) fn number(self) -> u64 {
        let [low, middle, high] = self.header().number.map(u64::from);
        low | middle << 16 | high << 32
    }

    fn given_unique_in(self, layout: Layout) -> Option<u64> {
        layout.options.has_unique.then(|| {
            let start = layout.options.size() + layout.key_len + layout.value_len;
            // SAFETY: the options say that the item has these bytes behind the value.
            let bytes = unsafe { self.bytes(start, GIVEN_UNIQUE) };
            u64::from_ne_bytes(bytes.try_into().expect("so many were taken"))
        })
    }

    pub(super) fn expiry(self) -> Expiry {
        // Relaxed: the word stands for itself, and bucket locks order updates of the same item.
        Expiry::from_bits(self.header().expiry.load(Ordering::Relaxed))
    }

    /// The bucket lock is held.
    pub(super) fn set_expiry(self, expiry: Expiry) {
        // SeqCst: see `Block::forget`.
        self.header().expiry.store(expiry.to_bits(), Ordering::SeqCst);
        self.block().note_expiry(expiry);
    }

    /// Its expiry, for the sweep of its block after [`Block::forget`].
    pub(super) fn expiry_when_swept(self) -> Expiry {
        // SeqCst: see `Block::forget`.
        Expiry::from_bits(self.header().expiry.load(Ordering::SeqCst))
    }

    /// Counts it as dead, after it was unlinked.
    ///
    /// # Safety
    /// The caller has unlinked it, in the section of `guard`.
    pub(super) unsafe fn bury(self, heap: &Heap, guard: &Guard) {
        // SAFETY: the caller's promise.
        if unsafe { self.die(heap, guard) } {
            heap.note_dead(self.block());
        }
    }

    /// The same, by who sweeps its block, and knows what is dead there.
    ///
    /// # Safety
    /// As for [`bury`](Self::bury).
    pub(super) unsafe fn bury_swept(self, heap: &Heap, guard: &Guard) {
        // SAFETY: the caller's promise.
        unsafe { self.die(heap, guard) };
    }

    /// # Safety
    /// As for [`bury`](Self::bury).
    unsafe fn die(self, heap: &Heap, guard: &Guard) -> bool {
        let size = self.footprint();
        self.status().set_gone();
        heap.count_unlinked(size, guard);
        // SAFETY: alive until now.
        unsafe { self.block().bury(size) }
    }

    /// What clients see of it at `now`.
    #[inline(always)]
    pub(super) fn hit(self, now: u32) -> Hit<'a> {
        self.hit_with(self.status().load(), now)
    }

    /// The same, with the `status` that it had. Inlined, so that nothing is looked up that is not told.
    #[inline(always)]
    pub(super) fn hit_with(self, status: Status, now: u32) -> Hit<'a> {
        let layout = self.layout_with(status);
        Hit {
            key: self.key_with(status),
            flags: self.flags_in(layout),
            unique: self.given_unique_in(layout).unwrap_or_else(|| self.number()),
            number: self.number(),
            value: self.value_in(layout),
            expiry: self.expiry(),
            idle: status.idle(now),
            marks: status.marks(),
            size: block::footprint(layout.size()),
            now,
            origin: None,
        }
    }

    /// The recipe of a copy, made at `now`.
    fn recipe(self, now: u32) -> Recipe<'a> {
        let layout = self.layout();
        Recipe {
            hash: self.hash(),
            key: self.key(),
            key_len: self.header().key_len,
            flags: self.flags_in(layout),
            expiry: self.expiry(),
            value: [self.value_in(layout), b""],
            value_len: layout.value_len as u32,
            unique: self.given_unique_in(layout),
            // All that stands in the status comes with `Draft::take_over`.
            marks: Marks::NONE,
            inherits: Marks::NONE,
            now,
        }
    }

    /// Bytes that it occupies in its block.
    pub(super) fn footprint(self) -> usize {
        block::footprint(self.layout().size())
    }
}

/// What an item consists of.
#[derive(Clone, Copy, Eq, PartialEq)]
pub(super) struct Layout {
    options: Options,
    key_len: usize,
    value_len: usize,
}

impl Layout {
    /// That of an item to come.
    pub(super) fn of(outline: &Outline) -> Layout {
        let &Outline { key_len, value_len, has_flags, has_unique } = outline;
        let is_long = value_len > u16::MAX.into();
        Layout { options: Options { is_long, has_flags, has_unique }, key_len, value_len }
    }

    pub(super) fn value_len(&self) -> usize {
        self.value_len
    }

    /// Where the value begins, from the beginning of the item.
    pub(super) fn value_start(&self) -> usize {
        ITEM_OVERHEAD + self.options.size() + self.key_len
    }

    /// Bytes that it occupies in its block.
    pub(super) fn footprint(&self) -> usize {
        block::footprint(self.size())
    }

    /// Bytes of all of it.
    fn size(&self) -> usize {
        let unique = if self.options.has_unique { GIVEN_UNIQUE } else { 0 };
        ITEM_OVERHEAD + self.options.size() + self.key_len + self.value_len + unique
    }
}

/// What an item has that others don't.
#[derive(Clone, Copy, Eq, PartialEq)]
struct Options {
    is_long: bool,
    has_flags: bool,
    /// Behind the value.
    has_unique: bool,
}

impl Options {
    fn of(status: Status) -> Options {
        let has_unique = status.marks().has(Marks::GIVEN_UNIQUE);
        Options { is_long: status.is_long(), has_flags: status.has_flags(), has_unique }
    }

    /// Bytes of those before the key.
    fn size(self) -> usize {
        usize::from(self.is_long) * size_of::<u16>() + usize::from(self.has_flags) * size_of::<u32>()
    }
}

/// What goes into a new item: [`New`], with its value spelled out. Its lengths are known to fit, so that nothing can go wrong once
/// there is memory for it.
#[derive(Clone, Copy)]
pub(super) struct Recipe<'a> {
    hash: Hash,
    key: &'a [u8],
    key_len: u8,
    flags: u32,
    expiry: Expiry,
    /// The value, in two pieces that are joined: either may be empty.
    value: [&'a [u8]; 2],
    value_len: u32,
    unique: Option<u64>,
    marks: Marks,
    inherits: Marks,
    now: u32,
}

impl<'a> Recipe<'a> {
    /// The recipe for `new` under `key`, in the place of an item with the value `present`. `text` is room for a number.
    ///
    /// # Panics
    /// If the key or the value is longer than an item can say.
    pub(super) fn new(
        hash: Hash,
        key: &'a [u8],
        new: &New<'a>,
        present: &'a [u8],
        text: &'a mut String,
        now: u32,
    ) -> Recipe<'a> {
        let value = match new.value {
            Value::Whole(bytes) => [bytes, b""],
            Value::Arrived(arrival) => [arrival.value(), b""],
            Value::Kept => [present, b""],
            Value::Appended(bytes) => [present, bytes],
            Value::Prepended(bytes) => [bytes, present],
            Value::Number(number) => {
                // Padded by hand: a format has an upper limit of its own for the width.
                *text = number.to_string();
                text.extend(std::iter::repeat_n(' ', present.len().saturating_sub(text.len())));
                [text.as_bytes(), b""]
            }
        };
        let key_len = u8::try_from(key.len()).expect("keys are at most 250 bytes");
        let value_len = u32::try_from(value[0].len() + value[1].len()).expect("values are below 4 GiB");
        let &New { flags, expiry, unique, marks, inherits, .. } = new;
        Recipe { hash, key, key_len, flags, expiry, value, value_len, unique, marks, inherits, now }
    }

    fn layout(&self) -> Layout {
        Layout::of(&Outline {
            key_len: self.key_len.into(),
            value_len: self.value_len as usize,
            has_flags: self.flags != 0,
            has_unique: self.unique.is_some(),
        })
    }

    /// Bytes of the item.
    fn size(&self) -> usize {
        self.layout().size()
    }
}

/// An item that is not in the table: owned here, given back on drop.
pub(super) struct Draft<'h> {
    item: ItemRef<'h>,
    /// What it occupies.
    size: usize,
    /// The marks that it inherits.
    inherits: Marks,
    heap: &'h Heap,
}

impl<'h> Draft<'h> {
    /// A copy of `item` that is made at `now`, to take its place.
    pub(super) fn copy(
        item: ItemRef<'_>,
        now: u32,
        heap: &'h Heap,
        table: impl FnOnce() -> usize,
    ) -> Result<Draft<'h>, OutOfMemory> {
        Draft::new(&item.recipe(now), heap, Asks::Mover, table)
    }

    /// Makes an item, if there is room; `table` tells the table's bytes.
    pub(super) fn new(
        recipe: &Recipe<'_>,
        heap: &'h Heap,
        who: Asks,
        table: impl FnOnce() -> usize,
    ) -> Result<Draft<'h>, OutOfMemory> {
        let size = block::footprint(recipe.size());
        let place = heap.allocate(size, who, table)?;
        // From here to the end nothing panics: a block with an item that was begun and not written could never be swept.
        // SAFETY: fresh memory of this size, aligned for items, which stays allocated while the draft is there.
        let item: ItemRef<'_> = unsafe {
            write::<false>(place, recipe);
            ItemRef::at(place)
        };
        item.block().note_expiry(recipe.expiry);
        item.block().note_due(recipe.now.saturating_add(VISIT_INTERVAL));
        Ok(Draft { item, size, inherits: recipe.inherits, heap })
    }

    /// Makes the item around the value that has arrived, which `recipe` is about, if that lies as it should.
    pub(super) fn around(recipe: &Recipe<'_>, arrival: &Arrival, heap: &'h Heap) -> Option<Draft<'h>> {
        let place = arrival.turn_over(recipe.layout(), heap)?;
        // As in `new`, nothing panics.
        // SAFETY: as in `new`, but for the value, which lies where an item of this layout has it.
        let item: ItemRef<'_> = unsafe {
            write::<true>(place, recipe);
            ItemRef::at(place)
        };
        item.block().note_expiry(recipe.expiry);
        item.block().note_due(recipe.now.saturating_add(VISIT_INTERVAL));
        Some(Draft { item, size: block::footprint(recipe.size()), inherits: recipe.inherits, heap })
    }

    pub(super) fn expiry(&self) -> Expiry {
        self.item.expiry()
    }

    /// Takes over those of `item`'s marks that this inherits: it is about to be linked in its place. The bucket lock is held.
    pub(super) fn inherit(&self, item: ItemRef<'_>) {
        let status = item.status().load();
        // Other marks do not change, because of the lock.
        let may_change = self.inherits.has(Marks::FETCHED) && !status.marks().has(Marks::FETCHED);
        let status = if may_change { item.status().pass_on() } else { status };
        self.item.status().mark(status.marks() & self.inherits, None);
    }

    /// Takes over from `item`, of which this is a copy that is about to be linked in its place,
    /// what may have changed since, and gives it `visits`. The bucket lock is held.
    pub(super) fn take_over(&self, item: ItemRef<'_>, visits: u8, now: u32) {
        self.item.set_expiry(item.expiry());
        self.item.status().take_over(item.status().pass_on(), visits, now);
    }

    /// Gives the item its number and hands it to `link`, which puts it into the table.
    pub(super) fn link(self, number: u64, guard: &Guard, link: impl FnOnce(NonNull<Link>)) -> NonNull<Link> {
        let Draft { item, size, heap, .. } = self;
        std::mem::forget(self);
        let block = item.block();
        block.note_number(number);
        // SAFETY: the draft owned the item, so nobody else refers to it.
        unsafe { (*item.item.as_ptr()).number = [number as u16, (number >> 16) as u16, (number >> 32) as u16] };
        heap.count_linked(size, guard);
        // The block may not be swept before the item can be found in the table.
        link(item.link());
        block.finish_draft();
        item.link()
    }
}

impl Drop for Draft<'_> {
    fn drop(&mut self) {
        self.heap.abandon(self.item.address(), self.size);
    }
}

/// Lets go of an item that was in a table when that was torn down.
///
/// # Safety
/// `link` is the link of an item to which nobody refers any more, and the heap is gone or going.
pub(super) unsafe fn dispose(link: NonNull<Link>) {
    // SAFETY: the item is there until it is buried.
    let item: ItemRef<'_> = unsafe { ItemRef::of_link(link) };
    // SAFETY: the table was the last to refer to it.
    unsafe { item.block().settle_last(item.footprint()) };
}

/// Writes an item; with `AROUND` all but its value, which is there already.
///
/// # Safety
/// `place` is memory of the recipe's size, aligned for items, to which nobody else refers, but for the value that is there already.
unsafe fn write<const AROUND: bool>(place: NonNull<u8>, recipe: &Recipe<'_>) {
    let (options, length) = (recipe.layout().options, recipe.value_len);
    let given = recipe.unique.map(u64::to_ne_bytes);
    let given = given.as_ref().map_or(&b""[..], |bytes| bytes);
    let unique = if given.is_empty() { Marks::NONE } else { Marks::GIVEN_UNIQUE };
    let status = Status::new(recipe.now, recipe.marks.of_others() | unique, options.is_long, options.has_flags);
    let (low, high) = (length as u16, (length >> u16::BITS) as u16);
    let item = place.cast::<Item>().as_ptr();
    let mut end = place.as_ptr().wrapping_add(ITEM_OVERHEAD);
    let mut append = |piece: &[u8]| {
        // SAFETY: the memory has room for all pieces behind the header; sources are slices elsewhere, so nothing overlaps.
        unsafe { end.copy_from_nonoverlapping(piece.as_ptr(), piece.len()) };
        end = end.wrapping_add(piece.len());
    };
    // SAFETY: the memory is large and aligned enough for all fields. They are written one by one, because the header as a whole ends
    // in padding, where the rest begins.
    unsafe {
        (&raw mut (*item).link).write(Link::new(recipe.hash));
        (&raw mut (*item).number).write([0; 3]);
        (&raw mut (*item).value_len).write(low);
        (&raw mut (*item).expiry).write(AtomicU32::new(recipe.expiry.to_bits()));
        (&raw mut (*item).status).write(AtomicStatus::new(status));
        (&raw mut (*item).key_len).write(recipe.key_len);
    }
    if options.is_long {
        append(&high.to_ne_bytes());
    }
    if options.has_flags {
        append(&recipe.flags.to_ne_bytes());
    }
    append(recipe.key);
    if AROUND {
        end = end.wrapping_add(recipe.value_len as usize);
        // SAFETY: as above; the value's length is within the memory.
        return unsafe { end.copy_from_nonoverlapping(given.as_ptr(), given.len()) };
    }
    append(recipe.value[0]);
    for rare in [recipe.value[1], given] {
        if !rare.is_empty() {
            append(rare);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn recipe<'a>(key: &'a [u8], value: [&'a [u8]; 2]) -> Recipe<'a> {
        let (hash, expiry, unique, marks) = (Hash::new(1), Expiry::NEVER, None, Marks::ENCODED_KEY);
        let (key_len, value_len) = (key.len() as u8, value.concat().len() as u32);
        let inherits = Marks::NONE;
        Recipe { hash, key, key_len, flags: 7, expiry, value, value_len, unique, marks, inherits, now: 100 }
    }

    fn draft<'h>(recipe: &Recipe<'_>, heap: &'h Heap) -> Draft<'h> {
        Draft::new(recipe, heap, Asks::Unlocked, || 0).unwrap()
    }

    #[test]
    fn the_header_is_thirty_three_bytes() {
        assert_eq!(ITEM_OVERHEAD, 33);
    }

    #[test]
    fn an_item_reads_back_as_written() {
        let heap = Heap::new(1 << 20);
        let long = vec![b'x'; 70_000];
        for (flags, options, value) in [(7, 4, [&b"one"[..], b"two"]), (0, 0, [b"", b""]), (u32::MAX, 6, [&long, b"y"])]
        {
            let draft = draft(&Recipe { flags, ..recipe(&[b'k'; MAX_KEY], value) }, &heap);
            let item = draft.item;
            draft.link((1 << 48) - 2, &relativist_rcu::read(), |_| ());
            assert_eq!((item.key(), item.value()), (&[b'k'; MAX_KEY][..], &value.concat()[..]));
            assert_eq!((item.hit(100).flags, item.hit(100).unique), (flags, (1 << 48) - 2));
            assert_eq!(item.footprint(), (33 + options + 250 + value.concat().len()).next_multiple_of(8));
        }
    }

    #[test]
    fn a_draft_given_up_leaves_its_room() {
        let heap = Heap::new(1 << 20);
        let first = draft(&recipe(b"k", [b"", b""]), &heap).item.address();
        let second = draft(&recipe(b"other", [b"value", b""]), &heap).item.address();
        assert_eq!(first, second);
        assert_eq!(heap.linked(), 0);
    }

    #[test]
    fn a_given_unique_is_told_and_the_number_kept() {
        let heap = Heap::new(1 << 20);
        let draft = draft(&Recipe { unique: Some(u64::MAX - 1), ..recipe(b"key", [b"value", b""]) }, &heap);
        let item = draft.item;
        draft.link(42, &relativist_rcu::read(), |_| ());
        assert_eq!((item.hit(100).unique, item.number(), item.value()), (u64::MAX - 1, 42, &b"value"[..]));
        assert_eq!(item.footprint(), heap.linked());
        assert_eq!(Draft::copy(item, 100, &heap, || 0).unwrap().item.hit(100).unique, u64::MAX - 1);
    }

    #[test]
    fn a_copy_keeps_all_but_its_heat() {
        let heap = Heap::new(1 << 20);
        let item = draft(&recipe(b"key", [b"value", b""]), &heap);
        let copy = Draft::copy(item.item, 100, &heap, || 0).unwrap();
        item.item.set_expiry(Expiry::from_bits(77));
        item.item.status().access(130);
        copy.take_over(item.item, 3, 135);
        assert_eq!((copy.item.key(), copy.item.hit(100).flags, copy.item.value()), (&b"key"[..], 7, &b"value"[..]));
        let status = copy.item.status().load();
        assert_eq!((copy.item.expiry().to_bits(), status.heat()), (77, (3, false)));
        assert_eq!((status.marks(), status.idle(135)), (Marks::ENCODED_KEY | Marks::FETCHED, 5));
    }
}
