//! References to large values that outlive the command that found them.

use crate::item::item_ref::ItemRef;
use crate::memory::block_ref::{BlockRef, PinnedBlocks};
use std::fmt::{self, Debug, Formatter};
use std::ops::Deref;
use std::ptr::NonNull;
use std::sync::Arc;

/// A pinned value, which outlives the command that found it. Neither its bytes nor its address
/// change, even if the item is replaced or removed. Its memory counts as the cache's until this is
/// dropped, on any thread.
pub struct ValueRef {
    value: NonNull<[u8]>,
    _block_ref: BlockRef,
}

// SAFETY: the bytes are not written while they are pinned, so all threads may read them; a pin may
// end on any thread.
unsafe impl Send for ValueRef {}
// SAFETY: as above.
unsafe impl Sync for ValueRef {}

impl Deref for ValueRef {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        // SAFETY: the value of an item that was linked, so it is initialised and does not change;
        // the pin keeps its memory.
        unsafe { self.value.as_ref() }
    }
}

impl Debug for ValueRef {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "ValueRef({} bytes)", self.len())
    }
}

/// The memory of an item, from which its value can be pinned.
#[derive(Clone, Copy)]
pub struct ValueSource<'a> {
    item: ItemRef<'a>,
    pinned: &'a Arc<PinnedBlocks>,
}

impl<'a> ValueSource<'a> {
    pub(crate) fn new(item: ItemRef<'a>, pinned: &'a Arc<PinnedBlocks>) -> ValueSource<'a> {
        ValueSource { item, pinned }
    }

    /// See [`Hit::pin`](crate::Hit::pin).
    #[cold]
    pub fn pin(self) -> Option<ValueRef> {
        let value = NonNull::from(self.item.value());
        // SAFETY: the item stays allocated for `'a`.
        unsafe { BlockRef::pin(self.item.block(), self.pinned) }.map(|_block_ref| ValueRef { value, _block_ref })
    }
}

impl Debug for ValueSource<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_str("ValueSource")
    }
}
