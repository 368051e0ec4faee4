//! The layout of an item: the table's link, a header, the key and the value, in one piece.
//!
//! ```text
//! 0                 12         12 or 16    13 or 17
//! | link and status | (expiry) | value len | key len | (options) | key | value | (number) | (given cas) |
//! ```
//!
//! Items are aligned to 4 bytes, and their links to 8. In an item at a multiple of 8 the link comes
//! before the status, and in the others after it. A bit of the link says which, so an item is found
//! from its link.
//!
//! Every item has a number of its own, so a flush knows which items were stored before. It follows
//! from the item's place in its block, see [`crate::memory::block`]. Only a copy of another item
//! stores a number: that of the other item. The number is also the item's CAS value, unless a
//! client has set one; that is stored, too.
//!
//! The [status](crate::item::status) says which options there are: the expiry, the extension, the
//! client flags, and the number. The extension has the upper bits of the value's length, and says
//! whether there is a client's CAS value. So an item has [`ITEM_OVERHEAD`] = 14 bytes besides key
//! and value, 4 more if it may expire, 4 more if the value has at least 256 bytes, 4 more with
//! flags that are not zero, 7 more if it is a copy, and up to 3 for the alignment of the next item.
//! The table takes another 2 to 8, at loads between 1 and 4.
//!
//! **An item without an expiry** never expires. A command that sets one replaces the item by a copy
//! with the same number. Two kinds of items have the field from the beginning, so that such a
//! command neither copies much nor needs memory that there is not: those with large values, and all
//! items of a cache that may not evict others.

use crate::memory::block::{self, ITEM_ALIGN};
use crate::memory::block_ref::LARGE_VALUE;
use relativist_table::CompactLink;
use std::ptr::NonNull;

/// The longest key, in bytes.
pub const MAX_KEY: usize = 250;

/// Bytes that an item occupies besides its key and value, if it has no options.
pub const ITEM_OVERHEAD: usize = HEADER + 2 * size_of::<u8>();

/// The bytes of link and status. The expiry, if there is one, follows them, because its place must
/// be aligned.
pub(crate) const HEADER: usize = size_of::<CompactLink>() + STATUS;

/// The bytes of the [status](crate::item::status).
pub(crate) const STATUS: usize = size_of::<u32>();

const _: () = assert!(align_of::<CompactLink>() == 2 * ITEM_ALIGN && STATUS == ITEM_ALIGN);
const _: () = assert!(HEADER.is_multiple_of(size_of::<u32>()));
// Otherwise two items would have the same number.
const _: () = assert!(block::footprint(ITEM_OVERHEAD + 1) >= block::NUMBER_UNIT);

/// The offset of the link in an item at `address`.
#[inline(always)]
pub(crate) fn link_at(address: NonNull<u8>) -> usize {
    address.addr().get() % align_of::<CompactLink>()
}

/// The offset of the status in an item at `address`.
#[inline(always)]
pub(crate) fn status_at(address: NonNull<u8>) -> usize {
    size_of::<CompactLink>() - 2 * link_at(address)
}

/// The number of bits of the value's length before the key. The upper ones are in the extension.
pub(crate) const SHORT: u32 = u8::BITS;

/// The bit of the extension that says that a client has set the CAS value.
pub(crate) const HAS_CAS: u32 = 1 << (u32::BITS - SHORT);

/// The bytes of a number after the value. A cache that stores 1 GB a second takes 36 years to draw
/// all numbers of 56 bits: one for every 16 bytes.
pub(crate) const NUMBER: usize = 7;

/// The bytes of a CAS value after the value.
pub(crate) const CLIENT_CAS: usize = size_of::<u64>();

/// The properties of an item that must be known before its value is received.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct ItemShape {
    /// The length of the key in bytes.
    pub key_len: usize,
    /// The length of the value in bytes.
    pub value_len: usize,
    /// Whether the item has client flags other than 0.
    pub has_flags: bool,
    /// Whether the client sets the CAS value.
    pub has_cas: bool,
}

impl ItemShape {
    /// Whether the value is large enough to be received in place.
    pub(crate) fn is_large(&self) -> bool {
        self.value_len >= LARGE_VALUE
    }
}

/// The parts of an item.
#[derive(Clone, Copy, Eq, PartialEq)]
pub(crate) struct Layout {
    pub(crate) options: Options,
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
        let (has_expiry, is_extended) = (has_expiry || shape.is_large(), has_cas || value_len >> SHORT > 0);
        let options = Options { has_expiry, is_extended, has_flags, has_number: false };
        Layout { options, has_cas, key_len, value_len }
    }

    /// The offset of the value in the item.
    pub(crate) fn value_start(&self) -> usize {
        self.options.key_at() + self.key_len
    }

    /// The offset of the client's CAS value in the item.
    pub(crate) fn cas_start(&self) -> usize {
        self.value_start() + self.value_len + if self.options.has_number { NUMBER } else { 0 }
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

/// The optional parts of an item. Those before its key have four bytes each.
#[derive(Clone, Copy, Eq, PartialEq)]
pub(crate) struct Options {
    pub(crate) has_expiry: bool,
    /// Whether there is an extension: the value has at least 256 bytes, or a CAS value of a client.
    pub(crate) is_extended: bool,
    pub(crate) has_flags: bool,
    /// Whether the item stores its number, after the value.
    pub(crate) has_number: bool,
}

impl Options {
    /// The offset of the lower bits of the value's length.
    pub(crate) fn value_len_at(self) -> usize {
        HEADER + usize::from(self.has_expiry) * size_of::<u32>()
    }

    /// The offset of the length of the key.
    pub(crate) fn key_len_at(self) -> usize {
        self.value_len_at() + size_of::<u8>()
    }

    /// The offset of the key.
    pub(crate) fn key_at(self) -> usize {
        ITEM_OVERHEAD
            + (usize::from(self.has_expiry) + usize::from(self.is_extended) + usize::from(self.has_flags))
                * size_of::<u32>()
    }
}
