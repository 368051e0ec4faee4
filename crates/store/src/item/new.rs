//! The contents of new items: as a command gives them, and as they are written.

use crate::expiry::Expiry;
use crate::item::item_ref::ItemRef;
use crate::item::key::HashedKey;
use crate::item::large_value::ReservedValue;
use crate::item::layout::{ItemShape, Layout};
use crate::item::status::Marks;
use relativist_table::Hash;

/// The contents of a new item.
#[derive(Clone, Copy, Debug)]
pub struct New<'a> {
    /// The client flags: a number that the client chooses, returned with the value.
    pub flags: u32,
    /// When the item expires.
    pub expiry: Expiry,
    /// The value.
    pub value: Value<'a>,
    /// The CAS value that the client sets; if it sets none, the item gets one that no other
    /// item has had.
    pub cas: Option<u64>,
    /// The marks of the item.
    pub marks: Marks,
    /// The marks that the item takes over from the item that it replaces, if that has them. Its
    /// marks must not be read earlier for this, because a lookup may set one in the meantime.
    pub inherits: Marks,
}

impl<'a> New<'a> {
    /// An item that never expires and has no marks.
    pub fn plain(flags: u32, value: Value<'a>) -> New<'a> {
        New { flags, expiry: Expiry::NEVER, value, cas: None, marks: Marks::NONE, inherits: Marks::NONE }
    }
}

/// The value of a new item. If no item is replaced, the present value is empty.
#[derive(Clone, Copy, Debug)]
pub enum Value<'a> {
    /// These bytes.
    Whole(&'a [u8]),
    /// A received value. [`Cache::put`](crate::Cache::put) does not copy it if the item has the
    /// shape for which it was [reserved](crate::Cache::reserve).
    Reserved(&'a ReservedValue),
    /// The present value.
    Kept,
    /// The present value, and these bytes.
    Appended(&'a [u8]),
    /// These bytes, and the present value.
    Prepended(&'a [u8]),
    /// This number in decimal, padded with spaces to the length of the present value.
    Number(u64),
}

impl Value<'_> {
    /// The number of new bytes.
    pub(crate) fn len(&self) -> usize {
        match self {
            Value::Whole(bytes) | Value::Appended(bytes) | Value::Prepended(bytes) => bytes.len(),
            Value::Reserved(reserved) => reserved.value().len(),
            Value::Kept => 0,
            Value::Number(number) => decimal_digits(*number),
        }
    }
}

/// The length of `number` in decimal.
pub(crate) fn decimal_digits(number: u64) -> usize {
    number.checked_ilog10().map_or(1, |log| log as usize + 1)
}

/// The contents of a new item: [`New`] with its value resolved. The lengths are checked, so that
/// writing the item cannot fail once there is memory for it.
#[derive(Clone, Copy)]
pub(crate) struct ItemInit<'a> {
    pub(crate) hash: Hash,
    pub(crate) key: &'a [u8],
    pub(crate) key_len: u8,
    pub(crate) flags: u32,
    pub(crate) expiry: Expiry,
    /// Whether the item has room for an expiry.
    pub(crate) has_expiry: bool,
    /// The value, in two pieces, each of which may be empty.
    pub(crate) value: [&'a [u8]; 2],
    /// The blanks after these pieces.
    pub(crate) blanks: usize,
    pub(crate) value_len: u32,
    /// The number, if the item is a copy of the one that has it.
    pub(crate) number: Option<u64>,
    pub(crate) cas: Option<u64>,
    pub(crate) marks: Marks,
    pub(crate) inherits: Marks,
    pub(crate) now: u32,
}

impl<'a> ItemInit<'a> {
    /// The contents for `new` under `key`, to replace an item with the value `present`. `text` is a
    /// buffer for a number.
    ///
    /// # Panics
    /// If the key or the value is too long for an item's header.
    #[inline(always)]
    pub(crate) fn new(
        key: HashedKey<'a>,
        new: &New<'a>,
        present: &'a [u8],
        text: &'a mut String,
        now: u32,
    ) -> ItemInit<'a> {
        let mut blanks = 0;
        let value = match new.value {
            Value::Whole(bytes) => [bytes, b""],
            Value::Reserved(reserved) => [reserved.value(), b""],
            Value::Kept => [present, b""],
            Value::Appended(bytes) => [present, bytes],
            Value::Prepended(bytes) => [bytes, present],
            Value::Number(number) => {
                *text = number.to_string();
                blanks = present.len().saturating_sub(text.len());
                [text.as_bytes(), b""]
            }
        };
        let HashedKey { bytes: key, hash } = key;
        let key_len = u8::try_from(key.len()).expect("keys are at most 250 bytes");
        let value_len = u32::try_from(value[0].len() + value[1].len() + blanks).expect("values are below 4 GiB");
        let &New { flags, expiry, cas, marks, inherits, .. } = new;
        let (has_expiry, number) = (expiry != Expiry::NEVER, None);
        ItemInit {
            hash,
            key,
            key_len,
            flags,
            expiry,
            has_expiry,
            value,
            blanks,
            value_len,
            number,
            cas,
            marks,
            inherits,
            now,
        }
    }

    /// The contents of a copy of `item` that is made at `now`.
    pub(crate) fn copy(item: ItemRef<'a>, now: u32) -> ItemInit<'a> {
        let layout = item.layout();
        ItemInit {
            hash: item.hash(),
            key: item.key(),
            key_len: layout.key_len as u8,
            flags: item.flags_in(layout),
            expiry: item.expiry(),
            has_expiry: layout.options.has_expiry,
            value: [item.value_in(layout), b""],
            blanks: 0,
            value_len: layout.value_len as u32,
            number: Some(item.number_in(layout)),
            cas: item.client_cas_in(layout),
            // `UnlinkedItem::take_over` sets everything that is in the status.
            marks: Marks::NONE,
            inherits: Marks::NONE,
            now,
        }
    }

    pub(crate) fn layout(&self) -> Layout {
        let shape = ItemShape {
            key_len: self.key_len.into(),
            value_len: self.value_len as usize,
            has_flags: self.flags != 0,
            has_cas: self.cas.is_some(),
        };
        let mut layout = Layout::of(&shape, self.has_expiry);
        layout.options.has_number = self.number.is_some();
        layout
    }
}
