//! New items that a command puts into the cache.

use crate::expiry::Expiry;
use crate::item::reserved::ReservedValue;
use crate::item::status::Marks;

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
