//! What a command puts into the cache.

use crate::expiry::Expiry;
use crate::item::reserved::ReservedValue;
use crate::item::status::Marks;

/// What goes into a new item.
#[derive(Clone, Copy, Debug)]
pub struct New<'a> {
    /// A number that the client gets back with the value.
    pub flags: u32,
    /// When the item ends.
    pub expiry: Expiry,
    /// The bytes.
    pub value: Value<'a>,
    /// The CAS value that the client wants it to have; otherwise one is drawn that is larger than
    /// all drawn before.
    pub cas: Option<u64>,
    /// What has happened to it already.
    pub marks: Marks,
    /// What has happened to it already if it has happened to the item in whose place it is put. Not
    /// decided by a look at that item's marks: a lookup may set one in the meantime.
    pub inherits: Marks,
}

impl<'a> New<'a> {
    /// An item that never ends and to which nothing has happened.
    pub fn plain(flags: u32, value: Value<'a>) -> New<'a> {
        New { flags, expiry: Expiry::NEVER, value, cas: None, marks: Marks::NONE, inherits: Marks::NONE }
    }
}

/// The value of a new item. What refers to the value of a present item stands alone where there is
/// none.
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
    /// Bytes that are new.
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
