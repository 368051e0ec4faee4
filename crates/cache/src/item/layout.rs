//! Items: the table's link, a header, the key and the value, in one piece of a block's memory.
//!
//! ```text
//! 0      8        12         12 or 16    14 or 18
//! | link | status | (expiry) | value len | key len | (options) | key | value | (number) | (given cas) |
//! ```
//!
//! Every item has a number of its own, so a flush knows which items were stored before. It follows
//! from the item's place in its block, see [`crate::memory::block`]. Only a copy of another item
//! stores a number: that of the other item. The number is also the item's CAS value, unless a
//! client has set one; that is stored, too. Two bits next to the value's length say which of these
//! two parts there are.
//!
//! The [status](crate::item::status) says which other options there are: the expiry, the upper bits
//! of the value's length, and the client flags. So an item has [`ITEM_OVERHEAD`] = 15 bytes besides
//! key and value, 4 more if it may expire, 4 more if the value has at least 16 KiB, 4 more with
//! flags that are not zero, 7 more if it is a copy, and up to 7 for the alignment of the next
//! item's link. The table takes another 2 to 8, at loads between 1 and 4.
//!
//! **An item without an expiry** never expires. A command that sets one replaces the item by a copy
//! with the same number. Two kinds of items have the field from the beginning, so that such a
//! command neither copies much nor needs memory that there is not: those with large values, and all
//! items of a cache that may not evict others.
//!
//! An item is written while it is an [`UnlinkedItem`](crate::item::unlinked), owned by one thread.
//! Once in the table it is shared and does not change, except for its expiry and status, which are
//! atomic. Readers copy values without a lock, so a new value is always a new item. An item whose
//! block is evicted may move: a copy with the same number takes its place in the table, and readers
//! are done with the old one before its memory is used again.

use crate::item::reserved::ItemShape;
use crate::item::status::AtomicStatus;
use crate::memory::block;
use relativist::raw::CompactLink;
use std::mem::offset_of;

/// The longest key, in bytes.
pub const MAX_KEY: usize = 250;

/// Bytes that an item occupies besides its key and value, if it has no options.
pub const ITEM_OVERHEAD: usize = HEADER + size_of::<u16>() + size_of::<u8>();

/// The bytes of the fields that all items have in the same place. The expiry, if there is one,
/// follows them, because its place must be aligned.
pub(crate) const HEADER: usize = offset_of!(Item, status) + size_of::<AtomicStatus>();

const _: () = assert!(HEADER.is_multiple_of(size_of::<u32>()));
// Otherwise two items would have the same number.
const _: () = assert!(block::footprint(ITEM_OVERHEAD + 1) >= block::NUMBER_UNIT);

/// The header. The other parts follow its last field in the same piece of memory. So there is no
/// `&Item`, which would include some of them: items are passed as [`ItemRef`].
#[repr(C)]
pub(crate) struct Item {
    /// First, so that a pointer to the link is a pointer to the item.
    pub(crate) link: CompactLink,
    pub(crate) status: AtomicStatus,
}

/// The number of bits of a short value's length. The upper bits of a long one are an option.
pub(crate) const SHORT: u32 = 14;

/// The bits of a short value's length. The two others say which parts follow the value.
pub(crate) const SHORT_LEN: u16 = (1 << SHORT) - 1;

/// The bit next to the value's length that says that the item stores its number.
pub(crate) const HAS_NUMBER: u16 = 1 << SHORT;

/// The bit next to the value's length that says that a client has set the CAS value.
pub(crate) const HAS_CAS: u16 = 1 << (SHORT + 1);

/// The bytes of a number after the value. A cache that stores 1 GB a second takes 36 years to draw
/// all numbers of 56 bits: one for every 16 bytes.
pub(crate) const NUMBER: usize = 7;

/// The bytes of a CAS value after the value.
pub(crate) const CLIENT_CAS: usize = size_of::<u64>();

/// The parts of an item.
#[derive(Clone, Copy, Eq, PartialEq)]
pub(crate) struct Layout {
    pub(crate) options: Options,
    /// Whether the item stores its number.
    pub(crate) has_number: bool,
    /// Whether a client has set the CAS value.
    pub(crate) has_cas: bool,
    pub(crate) key_len: usize,
    pub(crate) value_len: usize,
}

impl Layout {
    /// The layout of a future item that is no copy. It has room for an expiry in any case if its
    /// value is large.
    pub(crate) fn of(shape: &ItemShape, has_expiry: bool) -> Layout {
        let &ItemShape { key_len, value_len, has_flags, has_cas } = shape;
        let (has_expiry, is_long) = (has_expiry || shape.is_large(), value_len >> SHORT > 0);
        let options = Options { has_expiry, is_long, has_flags };
        Layout { options, has_number: false, has_cas, key_len, value_len }
    }

    pub(crate) fn value_len(&self) -> usize {
        self.value_len
    }

    /// The offset of the value in the item.
    pub(crate) fn value_start(&self) -> usize {
        self.options.key_at() + self.key_len
    }

    /// The offset of the client's CAS value in the item.
    pub(crate) fn cas_start(&self) -> usize {
        self.value_start() + self.value_len + if self.has_number { NUMBER } else { 0 }
    }

    /// The bytes that the item occupies in its block.
    pub(crate) fn footprint(&self) -> usize {
        block::footprint(self.size())
    }

    /// The sum of the lengths of all parts.
    pub(crate) fn size(&self) -> usize {
        self.cas_start() + if self.has_cas { CLIENT_CAS } else { 0 }
    }
}

/// The optional parts of an item before its key. Each has four bytes.
#[derive(Clone, Copy, Eq, PartialEq)]
pub(crate) struct Options {
    pub(crate) has_expiry: bool,
    /// The upper bits of the value's length.
    pub(crate) is_long: bool,
    pub(crate) has_flags: bool,
}

impl Options {
    /// The offset of the lower bits of the value's length.
    pub(crate) fn value_len_at(self) -> usize {
        HEADER + usize::from(self.has_expiry) * size_of::<u32>()
    }

    /// The offset of the length of the key.
    pub(crate) fn key_len_at(self) -> usize {
        self.value_len_at() + size_of::<u16>()
    }

    /// The offset of the key.
    pub(crate) fn key_at(self) -> usize {
        ITEM_OVERHEAD
            + (usize::from(self.has_expiry) + usize::from(self.is_long) + usize::from(self.has_flags))
                * size_of::<u32>()
    }
}
