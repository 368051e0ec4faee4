//! What goes into the cache and what comes out: types only.

use super::{Arrival, Expiry, LARGE_VALUE, Lease, Marks, Origin, OutOfMemory};

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
    /// If the item is the one with this unique.
    CompareUnique(u64),
}

/// A found item.
#[derive(Clone, Copy, Debug)]
pub struct Hit<'a> {
    /// Its key.
    pub key: &'a [u8],
    /// The number that the client stored with it.
    pub flags: u32,
    /// The number that tells this item from all others stored before and after, unless a client has given one.
    pub unique: u64,
    /// The bytes.
    pub value: &'a [u8],
    /// When it ends.
    pub expiry: Expiry,
    /// Seconds since it was stored or last fetched: exact to a minute, or to 17 minutes if that was
    /// more than 18 hours ago.
    pub idle: u32,
    /// What has happened to it.
    pub marks: Marks,
    /// Bytes that it occupies.
    pub size: usize,
    /// The second in which it is looked at.
    pub now: u32,
    /// Its number, which no other item has. A copy that a sweep moves keeps it.
    pub(crate) number: u64,
    /// Where it lies, if its value may be kept there.
    pub(crate) origin: Option<Origin<'a>>,
}

impl Hit<'_> {
    /// The value, to be kept for longer than it is shown. None if that is not worth it (below [`LARGE_VALUE`]), or too much is
    /// kept already.
    #[inline(always)]
    pub fn lease(&self) -> Option<Lease> {
        if self.value.len() < LARGE_VALUE { None } else { self.origin.and_then(Origin::lease) }
    }

    /// Seconds until it ends; none for never.
    pub fn ttl(&self) -> Option<u32> {
        (self.expiry != Expiry::NEVER).then(|| self.expiry.to_bits().saturating_sub(self.now))
    }

    /// What takes its place when the number in it becomes `number`. Who has claimed to renew a stale item keeps the claim if
    /// the text does not grow.
    pub fn counted<'a>(&self, number: u64) -> New<'a> {
        let fits = decimal_digits(number) <= self.value.len();
        let keeps =
            if fits { Marks::FETCHED | Marks::STALE | Marks::WON | Marks::ENCODED_KEY } else { Marks::ENCODED_KEY };
        self.successor(Value::Number(number), keeps)
    }

    /// What takes its place when its value grows.
    pub fn joined<'a>(&self, value: Value<'a>) -> New<'a> {
        self.successor(value, Marks::ENCODED_KEY)
    }

    /// What takes its place with another value, but the same flags, expiry, and those of its marks.
    pub fn successor<'a>(&self, value: Value<'a>, keeps: Marks) -> New<'a> {
        let (unique, marks) = (None, Marks::NONE);
        New { flags: self.flags, expiry: self.expiry, value, unique, marks, inherits: keeps }
    }
}

fn decimal_digits(number: u64) -> usize {
    number.checked_ilog10().map_or(1, |log| log as usize + 1)
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
    /// Changes the item, if there is one, in place. It keeps its unique.
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

/// What goes into a new item.
#[derive(Clone, Copy, Debug)]
pub struct New<'a> {
    /// A number that the client gets back with the value.
    pub flags: u32,
    /// When the item ends.
    pub expiry: Expiry,
    /// The bytes.
    pub value: Value<'a>,
    /// The unique that the client wants it to have; otherwise one is drawn that is larger than all drawn before.
    pub unique: Option<u64>,
    /// What has happened to it already.
    pub marks: Marks,
    /// What has happened to it already if it has happened to the item in whose place it is put. Not decided by a look at that
    /// item's marks: a lookup may set one in the meantime.
    pub inherits: Marks,
}

impl<'a> New<'a> {
    /// An item that never ends and to which nothing has happened.
    pub fn plain(flags: u32, value: Value<'a>) -> New<'a> {
        New { flags, expiry: Expiry::NEVER, value, unique: None, marks: Marks::NONE, inherits: Marks::NONE }
    }
}

/// The value of a new item. What refers to the value of a present item stands alone where there is none.
#[derive(Clone, Copy, Debug)]
pub enum Value<'a> {
    /// These bytes.
    Whole(&'a [u8]),
    /// What has arrived. [`Cache::put`] does not copy it if the item is as it was [expected](Cache::expect).
    Arrived(&'a Arrival),
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
    /// How much is new.
    pub(super) fn len(&self) -> usize {
        match self {
            Value::Whole(bytes) | Value::Appended(bytes) | Value::Prepended(bytes) => bytes.len(),
            Value::Arrived(arrival) => arrival.value().len(),
            Value::Kept => 0,
            Value::Number(number) => decimal_digits(*number),
        }
    }
}

/// The outcome of a lookup.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Lookup {
    /// There is one, and it was shown.
    Hit,
    /// There is none.
    Miss,
    /// There was one until it expired.
    Expired,
    /// There was one until it was flushed.
    Flushed,
}

/// The outcome of a store.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Store {
    /// Done.
    Stored,
    /// The condition of the mode does not hold, or the joined value would be too large.
    NotStored,
    /// The item has another unique than the one to compare with.
    Exists,
    /// There is no item to compare with.
    NotFound,
    /// No room. A `Set` removed the old item all the same: the client must not see a value that it has replaced.
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

/// Somebody who may want to know what is evicted.
pub trait Witness: Send + Sync {
    /// Whether he does, now. Asked once per block.
    fn is_watching(&self) -> bool;

    /// An item had to make room. Called by a thread that has better things to do; must not call the engine.
    fn evicted(&self, hit: Hit<'_>);
}
