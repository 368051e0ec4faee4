//! A shared reference to an item that is in the table, or was.

use crate::expiry::Expiry;
use crate::item::layout::{CLIENT_CAS, HAS_CAS, HEADER, Layout, NUMBER, SHORT, STATUS, link_at, status_at};
use crate::item::status::{AtomicStatus, Status};
use crate::memory::allocator::ItemAllocator;
use crate::memory::block::{self, Block};
use relativist_rcu::Guard;
use relativist_table::{CompactLink, Hash};
use std::marker::PhantomData;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, Ordering};

/// An item that is linked, or was, and stays allocated for `'a`.
#[derive(Clone, Copy)]
pub(crate) struct ItemRef<'a> {
    /// Valid for access to the whole allocation.
    address: NonNull<u8>,
    /// The place of the item's status, which lookups have already computed.
    status: NonNull<AtomicStatus>,
    lifetime: PhantomData<&'a [u8]>,
}

impl<'a> ItemRef<'a> {
    /// The item that `link` is embedded in.
    ///
    /// # Safety
    /// `link` is the link of an item, directly or by way of the table, and the item stays allocated
    /// for `'a`.
    #[inline(always)]
    pub(crate) unsafe fn of_link(link: NonNull<CompactLink>) -> ItemRef<'a> {
        // SAFETY: the item is allocated, and what changes in a link is atomic.
        let is_status_first = unsafe { link.as_ref() }.user_bit();
        // Computed without a branch: -1 if the status is first, otherwise 0.
        let mask = -isize::from(is_status_first);
        const LINK: isize = size_of::<CompactLink>().cast_signed();
        // SAFETY: both places are in the item. It begins with the status if that is first, and
        // otherwise with the link, which the status follows.
        unsafe {
            let address = link.cast::<u8>().offset(mask * STATUS.cast_signed());
            ItemRef { address, status: address.offset(LINK + mask * LINK).cast(), lifetime: PhantomData }
        }
    }

    /// The item at `address`.
    ///
    /// # Safety
    /// As for [`of_link`](Self::of_link).
    #[inline]
    pub(crate) unsafe fn at(address: NonNull<u8>) -> ItemRef<'a> {
        // SAFETY: in the item, which has its status there.
        let status = unsafe { address.add(status_at(address)) }.cast();
        ItemRef { address, status, lifetime: PhantomData }
    }

    /// The same item, for the section of `guard`.
    ///
    /// # Safety
    /// The item stays allocated until the section ends.
    pub(crate) unsafe fn for_section<'g>(self, _guard: &'g Guard) -> ItemRef<'g> {
        ItemRef { lifetime: PhantomData, ..self }
    }

    pub(crate) fn link(self) -> NonNull<CompactLink> {
        // SAFETY: the item has its link there.
        unsafe { self.address.add(link_at(self.address)) }.cast()
    }

    pub(crate) fn address(self) -> NonNull<u8> {
        self.address
    }

    pub(crate) fn block(self) -> Block {
        // SAFETY: the item stays allocated for `'a`.
        unsafe { Block::of(self.address()) }
    }

    /// The `length` bytes from `start` on.
    ///
    /// # Safety
    /// The item has these bytes, after its header and expiry.
    pub(crate) unsafe fn bytes(self, start: usize, length: usize) -> &'a [u8] {
        // SAFETY: within the memory that `address` points to, by the caller's promise; initialised
        // by `UnlinkedItem::new`, and not written again.
        unsafe { NonNull::slice_from_raw_parts(self.address().add(start), length).as_ref() }
    }

    /// The four bytes of an option from `start` on.
    ///
    /// # Safety
    /// The item has this option there.
    unsafe fn option(self, start: usize) -> u32 {
        // SAFETY: the caller's promise.
        let bytes = unsafe { self.bytes(start, size_of::<u32>()) };
        u32::from_ne_bytes(bytes.try_into().expect("four bytes were taken"))
    }

    /// The place of the status, which may not be written yet.
    pub(crate) fn status_place(self) -> NonNull<AtomicStatus> {
        self.status
    }

    pub(crate) fn status(self) -> &'a AtomicStatus {
        // SAFETY: the promise made to `of_link`; the item has its status there, which is atomic.
        unsafe { self.status.as_ref() }
    }

    /// The expiry's place, if the item has one.
    #[inline]
    fn expiry_field(self, status: Status) -> Option<&'a AtomicU32> {
        let has_expiry = status.options().has_expiry;
        // SAFETY: the item has the field, which is atomic; its place is aligned, because the item
        // is.
        has_expiry.then(|| unsafe { self.address().add(HEADER).cast::<AtomicU32>().as_ref() })
    }

    /// The places of the item's parts.
    #[inline]
    pub(crate) fn layout(self) -> Layout {
        self.layout_with(self.status().load())
    }

    #[inline]
    pub(crate) fn layout_with(self, status: Status) -> Layout {
        let options = status.options();
        // SAFETY: the item has this byte there; written once, before the item was linked.
        let low = unsafe { self.address().add(options.value_len_at()).read() };
        // SAFETY: the first option after the length of the key.
        let extension = if options.is_extended { unsafe { self.option(options.key_len_at() + 1) } } else { 0 };
        Layout {
            options,
            has_cas: extension & HAS_CAS != 0,
            key_len: self.key_len_with(status).into(),
            value_len: usize::from(low) | ((extension & !HAS_CAS) as usize) << SHORT,
        }
    }

    fn key_len_with(self, status: Status) -> u8 {
        // SAFETY: the item has this byte there; written once, before the item was linked.
        unsafe { self.address().add(status.options().key_len_at()).read() }
    }

    pub(crate) fn hash(self) -> Hash {
        // SAFETY: the promise made to `of_link`; what changes in a link is atomic.
        unsafe { self.link().as_ref() }.hash()
    }

    #[inline]
    pub(crate) fn key(self) -> &'a [u8] {
        self.key_with(self.status().load())
    }

    #[inline]
    pub(crate) fn key_with(self, status: Status) -> &'a [u8] {
        // Computed without the layout, because lookups need only this.
        // SAFETY: the item has its key there.
        unsafe { self.bytes(status.options().key_at(), self.key_len_with(status).into()) }
    }

    pub(crate) fn value(self) -> &'a [u8] {
        self.value_in(self.layout())
    }

    pub(crate) fn value_in(self, layout: Layout) -> &'a [u8] {
        // SAFETY: the value follows the key.
        unsafe { self.bytes(layout.value_start(), layout.value_len) }
    }

    pub(crate) fn flags_in(self, layout: Layout) -> u32 {
        if !layout.options.has_flags {
            return 0;
        }
        // SAFETY: the last option, which the key follows.
        unsafe { self.option(layout.options.key_at() - size_of::<u32>()) }
    }

    /// The item's number, which no other item has, except copies of this one.
    pub(crate) fn number(self) -> u64 {
        self.number_in(self.layout())
    }

    pub(crate) fn number_in(self, layout: Layout) -> u64 {
        if !layout.options.has_number {
            return self.block().number_at(self.address());
        }
        let mut number = [0; size_of::<u64>()];
        // SAFETY: the layout says that the item has these bytes after the value.
        number[..NUMBER].copy_from_slice(unsafe { self.bytes(layout.value_start() + layout.value_len, NUMBER) });
        u64::from_le_bytes(number)
    }

    pub(crate) fn client_cas_in(self, layout: Layout) -> Option<u64> {
        layout.has_cas.then(|| {
            // SAFETY: the layout says that the item has these bytes at its end.
            let bytes = unsafe { self.bytes(layout.cas_start(), CLIENT_CAS) };
            u64::from_ne_bytes(bytes.try_into().expect("the slice has this length"))
        })
    }

    pub(crate) fn expiry(self) -> Expiry {
        self.expiry_with(self.status().load())
    }

    #[inline]
    pub(crate) fn expiry_with(self, status: Status) -> Expiry {
        // Relaxed: no other data depends on the word, and bucket locks order updates of the same
        // item.
        self.expiry_field(status).map_or(Expiry::NEVER, |field| Expiry::from_bits(field.load(Ordering::Relaxed)))
    }

    /// Sets the expiry. Returns false if the item has no room for it, and must be replaced by [a
    /// copy](crate::item::unlinked::UnlinkedItem::with_expiry). The bucket lock is held.
    #[must_use]
    pub(crate) fn set_expiry(self, expiry: Expiry) -> bool {
        let Some(field) = self.expiry_field(self.status().load()) else { return expiry == Expiry::NEVER };
        // SeqCst: see `Block::forget`.
        field.store(expiry.to_bits(), Ordering::SeqCst);
        self.block().note_expiry(expiry);
        true
    }

    /// The item's expiry, for the sweep of its block after [`Block::forget`].
    pub(crate) fn expiry_when_swept(self) -> Expiry {
        // SeqCst: see `Block::forget`.
        let field = self.expiry_field(self.status().load());
        field.map_or(Expiry::NEVER, |field| Expiry::from_bits(field.load(Ordering::SeqCst)))
    }

    /// Counts the item as freed, after it was unlinked.
    ///
    /// # Safety
    /// The caller has unlinked the item, in the section of `guard`.
    pub(crate) unsafe fn free_item(self, allocator: &ItemAllocator, guard: &Guard) {
        // SAFETY: the caller's promise.
        if unsafe { self.die(allocator, guard) } {
            allocator.note_freed(self.block());
        }
    }

    /// Like [`free_item`](Self::free_item), for the sweep of its block, which does not have to be
    /// notified.
    ///
    /// # Safety
    /// As for [`free_item`](Self::free_item).
    pub(crate) unsafe fn free_item_in_sweep(self, allocator: &ItemAllocator, guard: &Guard) {
        // SAFETY: the caller's promise.
        unsafe { self.die(allocator, guard) };
    }

    /// Marks the item as unlinked, and counts it as freed. Returns whether the pool must be
    /// notified.
    ///
    /// # Safety
    /// As for [`free_item`](Self::free_item).
    #[inline]
    unsafe fn die(self, allocator: &ItemAllocator, guard: &Guard) -> bool {
        let size = self.footprint();
        self.status().set_gone();
        allocator.count_unlinked(size, guard);
        // SAFETY: alive until now.
        unsafe { self.block().free_item(size) }
    }

    /// The bytes that the item occupies in its block.
    pub(crate) fn footprint(self) -> usize {
        block::footprint(self.layout().size())
    }
}

/// The items in `block`, freed ones included.
///
/// # Safety
/// The block is closed, no item in it is being written, and it stays the caller's for `'a`.
pub(crate) unsafe fn items_of<'a>(block: Block) -> impl Iterator<Item = ItemRef<'a>> {
    // SAFETY: `Block::items` passes the address of an item, which stays allocated by the caller's
    // promise.
    let at = |address| unsafe { ItemRef::at(address) };
    // SAFETY: the caller's promise.
    unsafe { block.items(move |address| at(address).footprint()) }.map(at)
}

/// Frees an item that was in a table when the table was dropped.
///
/// # Safety
/// `link` is the link of an item that no thread uses any more, and the allocator is gone or being
/// dropped.
pub(crate) unsafe fn dispose(link: NonNull<CompactLink>) {
    // SAFETY: the item is allocated until it is freed.
    let item: ItemRef<'_> = unsafe { ItemRef::of_link(link) };
    // SAFETY: only the table still referred to it.
    unsafe { item.block().sub_live_at_teardown(item.footprint()) };
}
