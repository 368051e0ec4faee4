//! What the commands take and return: types only.

use crate::expiry::Expiry;
use crate::item::hit::{Hit, Lookup};
use crate::item::new::New;
use crate::item::status::Marks;
use crate::memory::allocator::OutOfMemory;

/// What is stored with a key by the classic protocol.
#[derive(Clone, Copy, Debug)]
pub struct Content<'a> {
    /// A number that the client gets back with the value.
    pub flags: u32,
    /// When the item ends, as in the protocol.
    pub exptime: i32,
    /// The bytes.
    pub value: &'a [u8],
}

/// On which condition, and how, to store.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Mode {
    /// Always.
    Set,
    /// If there is no such item.
    Add,
    /// If there is such an item.
    Replace,
    /// After the present value, keeping its flags and expiry.
    Append,
    /// Before the present value, keeping its flags and expiry.
    Prepend,
    /// If the item has this CAS value.
    Cas(u64),
}

/// What is under a key when it is about to change.
#[derive(Clone, Copy, Debug)]
pub struct Present<'a> {
    /// The item, if there is one for clients.
    pub item: Option<Hit<'a>>,
    /// Why there is none.
    pub lookup: Lookup,
    /// The second in which this happens.
    pub now: u32,
}

/// What an update does.
#[derive(Clone, Copy, Debug)]
pub enum Change<'a> {
    /// Nothing.
    Keep,
    /// Removes the item, if there is one.
    Remove,
    /// Changes the item, if there is one, in place. It keeps its CAS value.
    Mark {
        /// Its new end.
        expiry: Option<Expiry>,
        /// What has happened to it now.
        add: Marks,
        /// Whether this is an access.
        is_access: bool,
    },
    /// Puts this in the item's place, or there if there is none.
    Put(New<'a>),
}

/// The outcome of a store.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Store {
    /// Done.
    Stored,
    /// The condition of the mode does not hold, or the joined value would be too large.
    NotStored,
    /// The item has another CAS value.
    Exists,
    /// There is no item to compare with.
    NotFound,
    /// No room. A `Set` removed the old item all the same: the client must not see a value that it
    /// has replaced.
    OutOfMemory,
}

/// Why counting failed.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum CountError {
    /// No such item.
    NotFound,
    /// The value is not a decimal number below 2^64.
    NotANumber,
    /// No room for the new value.
    OutOfMemory,
}

impl From<OutOfMemory> for CountError {
    fn from(_: OutOfMemory) -> CountError {
        CountError::OutOfMemory
    }
}
