//! The view of an item that commands have.

use crate::expiry::Expiry;
use crate::item::item_ref::ItemRef;
use crate::item::large_value::ValueRef;
use crate::item::new::{New, Value, decimal_digits};
use crate::item::status::{Marks, Status};
use crate::memory::block;
use crate::memory::block_ref::{LARGE_VALUE, PinnedBlocks};
use std::fmt::{self, Debug, Formatter};
use std::sync::Arc;

/// A found item.
#[derive(Clone, Copy, Debug)]
pub struct Hit<'a> {
    /// The key.
    pub key: &'a [u8],
    /// The client flags: the number that the client stored with the item.
    pub flags: u32,
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
    /// The pinned blocks of the cache, if the value may be pinned.
    pub(crate) pinned: Option<&'a Arc<PinnedBlocks>>,
    /// The item's numbers. They are not read yet, because most commands do not need them, and they
    /// may lie in another cache line.
    pub(crate) numbers: Numbers<'a>,
}

/// The numbers of an item.
#[derive(Clone, Copy)]
pub(crate) struct Numbers<'a> {
    pub(crate) item: ItemRef<'a>,
    pub(crate) status: Status,
}

impl Debug for Numbers<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let layout = self.item.layout_with(self.status);
        write!(f, "{} (client: {:?})", self.item.number_in(layout), self.item.client_cas_in(layout))
    }
}

// These two are not inlined. Otherwise the compiler might not inline the functions of callers that
// are passed a hit, because they would be too large. Then it would compute every field of the hit.

#[inline(never)]
fn cas_of(item: ItemRef<'_>, status: Status) -> u64 {
    let layout = item.layout_with(status);
    item.client_cas_in(layout).unwrap_or_else(|| item.number_in(layout))
}

#[inline(never)]
fn number_of(item: ItemRef<'_>, status: Status) -> u64 {
    item.number_in(item.layout_with(status))
}

impl<'a> Hit<'a> {
    /// The view of `item` at `now`.
    #[inline(always)]
    pub(crate) fn of(item: ItemRef<'a>, now: u32) -> Hit<'a> {
        let status = item.status().load();
        Hit::with(item, status, item.expiry_with(status), now)
    }

    /// Like [`of`](Self::of), with a `status` and an `expiry` read before. Inlined, so that unused
    /// fields are not read.
    #[inline(always)]
    pub(crate) fn with(item: ItemRef<'a>, status: Status, expiry: Expiry, now: u32) -> Hit<'a> {
        let layout = item.layout_with(status);
        Hit {
            key: item.key_with(status),
            flags: item.flags_in(layout),
            value: item.value_in(layout),
            expiry,
            idle: status.idle(now),
            marks: status.marks().with_client_cas(layout.has_cas),
            size: block::footprint(layout.size()),
            now,
            pinned: None,
            numbers: Numbers { item, status },
        }
    }
}

impl Hit<'_> {
    /// Returns the CAS value: different from that of all items stored before and after, unless a
    /// client has set it. Wait-free, in constant time.
    #[inline]
    pub fn cas(&self) -> u64 {
        cas_of(self.numbers.item, self.numbers.status)
    }

    /// Returns the item's number, which no other item has. A copy made by a sweep keeps the number,
    /// and so does one made for an expiry. Wait-free, in constant time.
    #[inline]
    pub fn number(&self) -> u64 {
        number_of(self.numbers.item, self.numbers.status)
    }

    /// Pins the value, so that it can be used after this view has ended. None if it is smaller than
    /// [`LARGE_VALUE`], or if too much is pinned already: copy it then.
    #[inline(always)]
    pub fn pin(&self) -> Option<ValueRef> {
        if self.value.len() < LARGE_VALUE { None } else { ValueRef::pin(self.numbers.item, self.pinned?) }
    }

    /// Seconds until the item expires; none for never.
    pub fn ttl(&self) -> Option<u32> {
        (self.expiry != Expiry::NEVER).then(|| self.expiry.to_bits().saturating_sub(self.now))
    }

    /// The item that replaces this one when its number becomes `number`. It keeps the marks if the
    /// text does not grow: then memcached changes the item in place.
    pub fn counted<'a>(&self, number: u64) -> New<'a> {
        let fits = decimal_digits(number) <= self.value.len();
        let all = Marks::FETCHED | Marks::STALE | Marks::WON | Marks::ENCODED_KEY;
        self.successor(Value::Number(number), if fits { all } else { Marks::NONE })
    }

    /// The item that replaces this one when its value is extended.
    pub fn joined<'a>(&self, value: Value<'a>) -> New<'a> {
        self.successor(value, Marks::NONE)
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
