//! The view of an item that commands have.

use crate::expiry::Expiry;
use crate::item::new::{New, Value, decimal_digits};
use crate::item::status::Marks;
use crate::item::value_ref::{ValueRef, ValueSource};
use crate::memory::block_ref::LARGE_VALUE;

/// A found item.
#[derive(Clone, Copy, Debug)]
pub struct Hit<'a> {
    /// The key.
    pub key: &'a [u8],
    /// The client flags: the number that the client stored with the item.
    pub flags: u32,
    /// The CAS value: different from that of all items stored before and after, unless a client has
    /// set it.
    pub cas: u64,
    /// The value.
    pub value: &'a [u8],
    /// When the item expires.
    pub expiry: Expiry,
    /// Seconds since the item was stored or last fetched: exact to a minute, or to 17 minutes if
    /// that was more than 9 hours ago.
    pub idle: u32,
    /// What has happened to the item.
    pub marks: Marks,
    /// The bytes that the item occupies.
    pub size: usize,
    /// The second of this view.
    pub now: u32,
    /// The item's number, which no other item has. A copy made by a sweep keeps the number, and so
    /// does one made for an expiry.
    pub number: u64,
    /// The item's memory, if its value may be pinned.
    pub source: Option<ValueSource<'a>>,
}

impl Hit<'_> {
    /// Pins the value, so that it can be used after this view has ended. None if it is smaller than
    /// [`LARGE_VALUE`], or if too much is pinned already: copy it then.
    #[inline(always)]
    pub fn pin(&self) -> Option<ValueRef> {
        if self.value.len() < LARGE_VALUE { None } else { self.source.and_then(ValueSource::pin) }
    }

    /// Seconds until the item expires; none for never.
    pub fn ttl(&self) -> Option<u32> {
        (self.expiry != Expiry::NEVER).then(|| self.expiry.to_bits().saturating_sub(self.now))
    }

    /// The item that replaces this one when its number becomes `number`. A client that has won the
    /// right to renew a stale item keeps it if the text does not grow.
    pub fn counted<'a>(&self, number: u64) -> New<'a> {
        let fits = decimal_digits(number) <= self.value.len();
        let keeps =
            if fits { Marks::FETCHED | Marks::STALE | Marks::WON | Marks::ENCODED_KEY } else { Marks::ENCODED_KEY };
        self.successor(Value::Number(number), keeps)
    }

    /// The item that replaces this one when its value is extended.
    pub fn joined<'a>(&self, value: Value<'a>) -> New<'a> {
        self.successor(value, Marks::ENCODED_KEY)
    }

    /// The item that replaces this one with another value, the same flags and expiry, and those of
    /// its marks that are in `keeps`.
    pub fn successor<'a>(&self, value: Value<'a>, keeps: Marks) -> New<'a> {
        let (cas, marks) = (None, Marks::NONE);
        New { flags: self.flags, expiry: self.expiry, value, cas, marks, inherits: keeps }
    }
}

/// The outcome of a lookup.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Lookup {
    /// There is an item.
    Hit,
    /// There is no item.
    Miss,
    /// The item has expired.
    Expired,
    /// The item was flushed.
    Flushed,
}
