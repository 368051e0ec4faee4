//! The types that commands take and return.

use crate::expiry::Expiry;
use crate::item::hit::{Hit, Lookup};
use crate::item::new::New;
use crate::item::status::Marks;
use crate::memory::request::OutOfMemory;

/// The content of a new item, as the classic protocol has it.
#[derive(Clone, Copy, Debug)]
pub struct Content<'a> {
    /// The client flags: a number that the client chooses, returned with the value.
    pub flags: u32,
    /// The expiry, as in the protocol.
    pub exptime: i32,
    /// The bytes.
    pub value: &'a [u8],
}

/// The condition for a store, and how to store.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Mode {
    /// Stores always.
    Set,
    /// Stores if there is no item.
    Add,
    /// Stores if there is an item.
    Replace,
    /// Appends to the value of the item, and keeps its flags and expiry.
    Append,
    /// Prepends to the value of the item, and keeps its flags and expiry.
    Prepend,
    /// Stores if the item has this CAS value.
    Cas(u64),
}

/// The item of a key before a change.
#[derive(Clone, Copy, Debug)]
pub struct Present<'a> {
    /// The item, if it exists for clients.
    pub item: Option<Hit<'a>>,
    /// `Hit`, or why there is no item.
    pub lookup: Lookup,
    /// The second in which the command runs.
    pub now: u32,
}

/// The change that an update makes.
#[derive(Clone, Copy, Debug)]
pub enum Change<'a> {
    /// No change.
    Keep,
    /// Removes the item, if there is one.
    Remove,
    /// Changes the item, if there is one; otherwise an access is a miss. The item keeps its CAS
    /// value and its number. The first expiry of an item takes memory, unless the value is
    /// [large](crate::LARGE_VALUE) or the cache [never evicts](crate::Cache::without_eviction).
    /// Other marks take none.
    Mark {
        /// The new expiry.
        expiry: Option<Expiry>,
        /// Marks to add.
        add: Marks,
        /// Whether this is an access.
        is_access: bool,
    },
    /// Stores this item, in place of the present one if there is one.
    Put(New<'a>),
}

/// The outcome of a store.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Store {
    /// The item was stored.
    Stored,
    /// The condition of the mode does not hold, or the joined value would be too large.
    NotStored,
    /// The item has another CAS value.
    Exists,
    /// There is no item to compare with.
    NotFound,
    /// There is no room. A `Set` has removed the old item nevertheless: clients must not see a
    /// value that one of them has replaced.
    OutOfMemory,
}

/// Why counting failed.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum CountError {
    /// There is no such item.
    NotFound,
    /// The value is not a decimal number below 2^64.
    NotANumber,
    /// There is no room for the new value.
    OutOfMemory,
}

impl From<OutOfMemory> for CountError {
    fn from(_: OutOfMemory) -> CountError {
        CountError::OutOfMemory
    }
}
