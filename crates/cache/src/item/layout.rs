//! Items: the table's link, a header, the key and the value, in one piece of a block's memory.
//!
//! ```text
//! 0      16       22          24       28       32        33        33 + options
//! | link | number | value len | expiry | status | key len | options | key bytes | value bytes | given cas |
//! ```
//!
//! The number orders items, so a flush knows which were stored before. It is drawn from a counter,
//! and is the item's CAS value, too, unless a client has given one; that stands behind the value
//! then (8 bytes, [`Marks::CLIENT_CAS`]).
//!
//! Options stand where the [status](crate::item::status) says so: the upper half of the value's
//! length, and the client flags. So an item has [`ITEM_OVERHEAD`] = 33 bytes besides key and value,
//! 2 more if the value has 64 KiB, 4 more with flags that are not zero, and up to 7 for the
//! alignment of the next item's link. The table takes another 2 to 8, at loads between 1 and 4.
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
/// of memory: out of the reach of a `&Item`, so items are handed around as [`ItemRef`].
#[repr(C)]
pub(crate) struct Item {
    /// First, so that a pointer to the link is a pointer to the item.
    pub(crate) link: Link,
    /// Drawn when it was linked. 48 bits: enough for a million stores a second during nine years.
    pub(crate) number: [u16; 3],
    pub(crate) value_len: u16,
    pub(crate) expiry: AtomicU32,
    pub(crate) status: AtomicStatus,
    pub(crate) key_len: u8,
}

/// Bytes of a CAS value behind the value.
pub(crate) const CLIENT_CAS: usize = size_of::<u64>();

/// What an item consists of.
#[derive(Clone, Copy, Eq, PartialEq)]
pub(crate) struct Layout {
    pub(crate) options: Options,
    pub(crate) key_len: usize,
    pub(crate) value_len: usize,
}

impl Layout {
    /// That of an item to come.
    pub(crate) fn of(shape: &ItemShape) -> Layout {
        let &ItemShape { key_len, value_len, has_flags, has_cas } = shape;
        let is_long = value_len > u16::MAX.into();
        Layout { options: Options { is_long, has_flags, has_cas }, key_len, value_len }
    }

    pub(crate) fn value_len(&self) -> usize {
        self.value_len
    }

    /// Where the value begins, from the beginning of the item.
    pub(crate) fn value_start(&self) -> usize {
        ITEM_OVERHEAD + self.options.size() + self.key_len
    }

    /// Bytes that it occupies in its block.
    pub(crate) fn footprint(&self) -> usize {
        block::footprint(self.size())
    }

    /// Bytes of all of it.
    pub(crate) fn size(&self) -> usize {
        let cas = if self.options.has_cas { CLIENT_CAS } else { 0 };
        ITEM_OVERHEAD + self.options.size() + self.key_len + self.value_len + cas
    }
}

/// What an item has that others don't.
#[derive(Clone, Copy, Eq, PartialEq)]
pub(crate) struct Options {
    pub(crate) is_long: bool,
    pub(crate) has_flags: bool,
    /// Behind the value.
    pub(crate) has_cas: bool,
}

impl Options {
    pub(crate) fn of(status: Status) -> Options {
        let has_cas = status.marks().has(Marks::CLIENT_CAS);
        Options { is_long: status.is_long(), has_flags: status.has_flags(), has_cas }
    }

    /// Bytes of those before the key.
    pub(crate) fn size(self) -> usize {
        usize::from(self.is_long) * size_of::<u16>() + usize::from(self.has_flags) * size_of::<u32>()
    }
}
