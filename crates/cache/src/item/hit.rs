//! What a command is shown of an item.

use crate::expiry::Expiry;
use crate::item::new::{New, Value, decimal_digits};
use crate::item::status::Marks;
use crate::item::value_ref::{ValueRef, ValueSource};
use crate::memory::block_ref::LARGE_VALUE;

/// A found item.
#[derive(Clone, Copy, Debug)]
pub struct Hit<'a> {
    /// Its key.
    pub key: &'a [u8],
    /// The number that the client stored with it.
    pub flags: u32,
    /// The CAS value: different from that of all items stored before and after, unless a client has
    /// given it.
    pub cas: u64,
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
    /// Its number, which no other item has. A copy that a sweep makes keeps it.
    pub number: u64,
    /// Its memory, if its value may be pinned.
    pub source: Option<ValueSource<'a>>,
}

impl Hit<'_> {
    /// Pins the value, to be kept for longer than it is shown. None if it is smaller than
    /// [`LARGE_VALUE`], or if too much is pinned already: copy it then.
    #[inline(always)]
    pub fn pin(&self) -> Option<ValueRef> {
        if self.value.len() < LARGE_VALUE { None } else { self.source.and_then(ValueSource::pin) }
    }

    /// Seconds until it ends; none for never.
    pub fn ttl(&self) -> Option<u32> {
        (self.expiry != Expiry::NEVER).then(|| self.expiry.to_bits().saturating_sub(self.now))
    }

    /// What replaces the item when the number in it becomes `number`. A client that has won the
    /// right to renew a stale item keeps it if the text does not grow.
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
        let (cas, marks) = (None, Marks::NONE);
        New { flags: self.flags, expiry: self.expiry, value, cas, marks, inherits: keeps }
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
