//! Items: the table's link, a header, the key and the value, in one piece of a block's memory.
//!
//! ```text
//! 0      16       22          24       28       32        33        33 + options
//! | link | number | value len | expiry | status | key len | options | key bytes | value bytes | given cas |
//! ```
//!
//! The number orders items, so a flush knows which were stored before. It is drawn from a counter.
//! It is also the item's CAS value, unless a client has set one; that is stored after the value (8
//! bytes, [`Marks::CLIENT_CAS`]).
//!
//! The [status](crate::item::status) says which options there are: the upper half of the value's
//! length, and the client flags. So an item has [`ITEM_OVERHEAD`] = 33 bytes besides key and value,
//! 2 more if the value has at least 64 KiB, 4 more with flags that are not zero, and up to 7 for
//! the alignment of the next item's link. The table takes another 2 to 8, at loads between 1 and 4.
//!
//! An item is written while it is an [`UnlinkedItem`](crate::item::unlinked), owned by one thread.
//! Once in the table it is shared and does not change, except for its expiry and status, which are
//! atomic. Readers copy values without a lock, so a new value is always a new item. An item whose
//! block is evicted may move: a copy with the same number takes its place in the table, and readers
//! are done with the old one before its memory is used again.

use crate::item::reserved::ItemShape;
use crate::item::status::{AtomicStatus, Marks, Status};
use crate::memory::block;
use relativist::raw::Link;
use std::mem::offset_of;
use std::sync::atomic::AtomicU32;

/// The longest key, in bytes.
pub const MAX_KEY: usize = 250;

/// Bytes that an item occupies besides its key and value, if it has no options.
pub const ITEM_OVERHEAD: usize = offset_of!(Item, key_len) + size_of::<u8>();

/// The header. The options, and the bytes of key and value, follow its last field in the same piece
/// of memory. A `&Item` must not be used to access them, so items are passed as [`ItemRef`].
#[repr(C)]
pub(crate) struct Item {
    /// First, so that a pointer to the link is a pointer to the item.
    pub(crate) link: Link,
    /// Drawn when the item was linked. 48 bits are enough for a million stores a second for nine
    /// years.
    pub(crate) number: [u16; 3],
    pub(crate) value_len: u16,
    pub(crate) expiry: AtomicU32,
    pub(crate) status: AtomicStatus,
    pub(crate) key_len: u8,
}

/// The bytes of a CAS value after the value.
pub(crate) const CLIENT_CAS: usize = size_of::<u64>();

/// The parts of an item.
#[derive(Clone, Copy, Eq, PartialEq)]
pub(crate) struct Layout {
    pub(crate) options: Options,
    pub(crate) key_len: usize,
    pub(crate) value_len: usize,
}

impl Layout {
    /// The layout of a future item.
    pub(crate) fn of(shape: &ItemShape) -> Layout {
        let &ItemShape { key_len, value_len, has_flags, has_cas } = shape;
        let is_long = value_len > u16::MAX.into();
        Layout { options: Options { is_long, has_flags, has_cas }, key_len, value_len }
    }

    pub(crate) fn value_len(&self) -> usize {
        self.value_len
    }

    /// The offset of the value in the item.
    pub(crate) fn value_start(&self) -> usize {
        ITEM_OVERHEAD + self.options.size() + self.key_len
    }

    /// The bytes that the item occupies in its block.
    pub(crate) fn footprint(&self) -> usize {
        block::footprint(self.size())
    }

    /// The sum of the lengths of all parts.
    pub(crate) fn size(&self) -> usize {
        let cas = if self.options.has_cas { CLIENT_CAS } else { 0 };
        ITEM_OVERHEAD + self.options.size() + self.key_len + self.value_len + cas
    }
}

/// The optional parts of an item.
#[derive(Clone, Copy, Eq, PartialEq)]
pub(crate) struct Options {
    pub(crate) is_long: bool,
    pub(crate) has_flags: bool,
    /// The CAS value after the value.
    pub(crate) has_cas: bool,
}

impl Options {
    pub(crate) fn of(status: Status) -> Options {
        let has_cas = status.marks().has(Marks::CLIENT_CAS);
        Options { is_long: status.is_long(), has_flags: status.has_flags(), has_cas }
    }

    /// The bytes of the options before the key.
    pub(crate) fn size(self) -> usize {
        usize::from(self.is_long) * size_of::<u16>() + usize::from(self.has_flags) * size_of::<u32>()
    }
}
