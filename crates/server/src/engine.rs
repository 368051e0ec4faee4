//! The storage engine: keys and values in memory, under a byte budget.
//!
//! An engine is handed a [`Clock`](crate::clock::Clock) and knows what an item is; it knows neither the wire formats nor
//! connections. Commands may come from any number of threads at once, and each takes effect at one moment between its call
//! and its return. An item that has expired or was flushed is absent for every command.
//!
//! All commands of all protocols come down to four steps on one key: [`get`](Engine::get), [`peek`](Engine::peek),
//! [`put`](Engine::put) and [`update`](Engine::update). What is put may be [expected](Engine::expect) before, and what is shown may be
//! [kept](Hit::lease) for longer: so large values are not copied. The commands of the classic protocol, built on them, are provided
//! here; those of the others are built in [`execute`](crate::execute).
//!
//! [`Relativistic`] is the implementation: lookups take no lock and write no shared memory, but once for an item that
//! nobody has read since the eviction last looked at it, and once a minute for the time of its last access; and to count who keeps a large
//! value. One that would write so to an item just when another takes its place, or that meets one that has died, goes on under the key's
//! lock. [`GlobalLock`] is the same behind one mutex, for comparison.
//!
//! Items lie in blocks of the engine's own memory (`heap`), within a hard limit. What to evict says [`policy`].

mod arena;
mod arithmetic;
mod arrival;
mod block;
mod central;
mod expiry;
mod flush;
mod global_lock;
mod hash;
mod heap;
mod item;
mod loan;
mod poison;
pub mod policy;
mod relativistic;
mod status;
mod sweep;

pub use arithmetic::{Direction, apply, parse};
pub use arrival::{Arrival, Outline};
pub use expiry::Expiry;
pub use global_lock::GlobalLock;
pub use heap::OutOfMemory;
pub use item::{ITEM_OVERHEAD, MAX_KEY};
pub use loan::{LARGE_VALUE, Lease};
pub use relativist::Stats as TableStats;
pub use relativistic::Relativistic;
pub use status::Marks;

pub(crate) use loan::Origin;
use std::ops::AddAssign;

/// Keys that [`Engine::get_many`] looks up at a time.
pub const MOST_AT_ONCE: usize = relativist::raw::Table::BATCH;

/// What a server needs of its storage.
///
/// Keys are 1 to [`MAX_KEY`] bytes. `exptime` is as in the classic protocol: 0 never, up to 30 days relative, above that a
/// Unix time, negative at once.
pub trait Engine: Send + Sync + 'static {
    /// The second in which a command that begins now runs.
    fn now(&self) -> u32;

    /// Looks up `key` and shows the item to `visit` if there is one, as it was before. The item then counts as fetched.
    fn get(&self, key: &[u8], visit: impl FnOnce(Hit<'_>)) -> Lookup;

    /// Looks up several keys as [`get`](Engine::get) does, one after the other, and shows each item, or why there is none, to `visit`,
    /// with the key's index. Ends when `visit` says no, or when [`MOST_AT_ONCE`] were looked up, and returns how many that were.
    fn get_many(&self, keys: &[&[u8]], visit: impl FnMut(usize, Result<Hit<'_>, Lookup>) -> bool) -> usize;

    /// Brings near what commands on these keys will look at, [`MOST_AT_ONCE`] of them at most, so that the waits for memory of all
    /// overlap. Leaves no trace.
    fn prefetch(&self, keys: &[&[u8]]);

    /// Looks up `key` and shows the item to `visit` if there is one; leaves no trace.
    fn peek(&self, key: &[u8], visit: impl FnOnce(Hit<'_>)) -> Lookup;

    /// Stores `new` if `permit` says so, who sees what is there; then shows the new item. It is made before the key is
    /// locked.
    ///
    /// # Errors
    /// When there is no room. `permit` was not asked then.
    fn put<R>(
        &self,
        key: &[u8],
        new: &New<'_>,
        permit: impl FnOnce(Present<'_>) -> (bool, R),
        show: impl FnOnce(Hit<'_>),
    ) -> Result<R, OutOfMemory>;

    /// Room for the value of an item that is to be put, so that it is received to where it will lie: to be filled, and then
    /// [put](Value::Arrived). None if that is not worth it, or too much is expected already: then the value is to be collected elsewhere. May
    /// evict and wait as [`put`](Engine::put) does.
    fn expect(&self, outline: &Outline) -> Option<Arrival>;

    /// Shows `decide` the item under `key`, makes the change that it returns, and then shows the
    /// item that is there now, if any. If the change is a [mark](Change::Mark), the item is shown
    /// with the marks and the idle time that it had just before: they may differ from what `decide`
    /// saw, because lookups take no lock. The key is locked while `decide` runs, so it must not
    /// call the engine. It may be called again; only its last answer counts.
    ///
    /// # Errors
    /// When there is no room for what was to be put. Nothing was changed then.
    fn update<'a, R>(
        &self,
        key: &[u8],
        decide: impl FnMut(Present<'_>) -> (Change<'a>, R),
        show: impl FnOnce(Hit<'_>),
    ) -> Result<R, OutOfMemory>;

    /// Shows some items, and returns where to go on; none when all were shown. Begins at 0. What is there from the first
    /// call to the last is shown once.
    fn scan(&self, cursor: u64, visit: impl FnMut(Hit<'_>)) -> Option<u64>;

    /// Drops everything stored before the moment `exptime`, which is now for zero, negative and past ones. A new flush
    /// replaces one that is still to come. A moment before the engine was created drops nothing.
    fn flush(&self, exptime: i32);

    /// What has to be known, besides the items, to go on with them elsewhere.
    fn sequence(&self) -> Sequence;

    /// Sets what items, table and all that waits to be freed may occupy together. What is too much goes as items come. False if that
    /// cannot be.
    fn set_limit(&self, bytes: usize) -> bool;

    /// Frees what has expired. To be called every second or so, from a thread that may wait for others; commands go on meanwhile.
    fn maintain(&self);

    /// The largest item: bytes of key and value together.
    fn max_item(&self) -> usize;

    /// Sums that are cheap to tell.
    fn usage(&self) -> Usage;

    /// A look at some buckets of the table: adds them to `stats`, and returns where to go on; none when that was all. Begins at 0.
    fn survey(&self, stats: &mut TableStats, cursor: u64) -> Option<u64>;

    /// A look at every bucket; takes time in proportion to the table.
    fn table(&self) -> TableStats {
        let mut stats = TableStats::default();
        let mut cursor = Some(0);
        while let Some(from) = cursor {
            cursor = self.survey(&mut stats, from);
        }
        stats
    }

    /// Stores `content` under `key` as `mode` says.
    fn store(&self, mode: Mode, key: &[u8], content: Content<'_>) -> Store {
        let Content { flags, exptime, value } = content;
        match mode {
            Mode::Append => join(self, key, Value::Appended(value)),
            Mode::Prepend => join(self, key, Value::Prepended(value)),
            _ => store_whole(self, mode, key, flags, exptime, Value::Whole(value)),
        }
    }

    /// The same of a value that was [expected](Engine::expect), unless it is to be joined.
    fn store_arrived(&self, mode: Mode, key: &[u8], flags: u32, exptime: i32, value: &Arrival) -> Store {
        match mode {
            Mode::Append | Mode::Prepend => self.store(mode, key, Content { flags, exptime, value: value.value() }),
            _ => store_whole(self, mode, key, flags, exptime, Value::Arrived(value)),
        }
    }

    /// Counts the number stored under `key` up or down and returns the new one. It keeps flags, expiry, and the length of
    /// the text if the number fits, padded with spaces on the right.
    ///
    /// # Errors
    /// When there is no item, it holds no number, or there is no room for the new one.
    fn count(&self, key: &[u8], direction: Direction, delta: u64) -> Result<u64, CountError> {
        let step = |present: Present<'_>| {
            let Some(item) = present.item else { return (Change::Keep, Err(CountError::NotFound)) };
            let Some(number) = parse(item.value) else { return (Change::Keep, Err(CountError::NotANumber)) };
            let number = apply(direction, number, delta);
            (Change::Put(item.counted(number)), Ok(number))
        };
        self.update(key, step, |_| ())?
    }

    /// Looks up `key`, sets the item's expiry and shows it to `visit` if there is one.
    fn get_and_touch(&self, key: &[u8], exptime: i32, visit: impl FnOnce(Hit<'_>)) -> Lookup {
        let touch = |present: Present<'_>| {
            let expiry = Some(Expiry::from_protocol(exptime, present.now));
            (Change::Mark { expiry, add: Marks::FETCHED, is_access: true }, present.lookup)
        };
        self.update(key, touch, visit).unwrap_or(Lookup::Miss)
    }

    /// Sets the expiry of `key`; false if there is no such item.
    fn touch(&self, key: &[u8], exptime: i32) -> bool {
        self.get_and_touch(key, exptime, |_| ()) == Lookup::Hit
    }

    /// Removes `key`; false if there is no such item.
    fn delete(&self, key: &[u8]) -> bool {
        let remove = |present: Present<'_>| (Change::Remove, present.item.is_some());
        self.update(key, remove, |_| ()).unwrap_or(false)
    }
}

fn store_whole<E: Engine + ?Sized>(
    engine: &E,
    mode: Mode,
    key: &[u8],
    flags: u32,
    exptime: i32,
    value: Value<'_>,
) -> Store {
    let new = New { expiry: Expiry::from_protocol(exptime, engine.now()), ..New::plain(flags, value) };
    let permit = |present: Present<'_>| match (mode, present.item) {
        (Mode::Add, Some(_)) | (Mode::Replace, None) => (false, Store::NotStored),
        (Mode::CompareUnique(_), None) => (false, Store::NotFound),
        (Mode::CompareUnique(unique), Some(item)) if item.unique != unique => (false, Store::Exists),
        _ => (true, Store::Stored),
    };
    engine.put(key, &new, permit, |_| ()).unwrap_or_else(|_| {
        if mode == Mode::Set {
            engine.delete(key);
        }
        Store::OutOfMemory
    })
}

fn join<E: Engine + ?Sized>(engine: &E, key: &[u8], addition: Value<'_>) -> Store {
    let limit = engine.max_item();
    let grow = |present: Present<'_>| match present.item {
        Some(item) if item.key.len() + item.value.len() + addition.len() <= limit => {
            (Change::Put(item.joined(addition)), Store::Stored)
        }
        _ => (Change::Keep, Store::NotStored),
    };
    engine.update(key, grow, |_| ()).unwrap_or(Store::OutOfMemory)
}

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
    /// What has arrived. [`Engine::put`] does not copy it if the item is as it was [expected](Engine::expect).
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
    fn len(&self) -> usize {
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

/// Where an engine stands in the order of its stores.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Sequence {
    /// The last unique drawn before the last flush: items with uniques up to it are flushed.
    pub flushed: u64,
    /// The second of a flush that is still to come.
    pub pending_flush: Option<u32>,
}

/// How much is stored.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Usage {
    /// Items in the table, expired ones included until somebody notices.
    pub items: usize,
    /// Bytes of these items.
    pub item_bytes: usize,
    /// Buckets of the table.
    pub buckets: usize,
    /// Bytes of the bucket array.
    pub table_bytes: usize,
    /// Whether the table is being resized.
    pub is_resizing: bool,
    /// Bytes of memory for items: in the table, removed and not freed yet, or free for new ones.
    pub heap_bytes: usize,
    /// Of these, bytes in the hands of connections: large values, sent from where they lie, and the blocks around them.
    pub lent_bytes: usize,
    /// What table and memory for items together may not exceed.
    pub limit: usize,
    /// What was done to make room, since the start.
    pub sweeps: Sweeps,
}

/// What became of items whose blocks were swept. (Of others that have expired, or were flushed, who meets them is told.)
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Sweeps {
    /// Blocks swept.
    pub blocks: u64,
    /// Items that had to make room.
    pub evictions: u64,
    /// Of these, how many nobody had ever fetched,
    pub evicted_unfetched: u64,
    /// how many somebody had wanted since they were last looked at,
    pub evicted_active: u64,
    /// and how many would have expired one day.
    pub evicted_nonzero: u64,
    /// Seconds since the last access to one of the last evicted, as [`Hit::idle`].
    pub evicted_time: u32,
    /// Expired or flushed items that were freed because a store needed room, or that a store
    /// replaced.
    pub reclaimed: u64,
    /// The same, found in the background.
    pub crawler_reclaimed: u64,
    /// Of both, how many had expired and nobody had ever fetched.
    pub expired_unfetched: u64,
    /// Items looked at in the background.
    pub crawled: u64,
    /// Passes of the background that looked at items.
    pub passes: u64,
}

impl Sweeps {
    /// The difference to `earlier`.
    #[must_use]
    pub fn since(&self, earlier: &Sweeps) -> Sweeps {
        let evictions = self.evictions.saturating_sub(earlier.evictions);
        Sweeps {
            blocks: self.blocks.saturating_sub(earlier.blocks),
            evictions,
            evicted_unfetched: self.evicted_unfetched.saturating_sub(earlier.evicted_unfetched),
            evicted_active: self.evicted_active.saturating_sub(earlier.evicted_active),
            evicted_nonzero: self.evicted_nonzero.saturating_sub(earlier.evicted_nonzero),
            evicted_time: if evictions > 0 { self.evicted_time } else { 0 },
            reclaimed: self.reclaimed.saturating_sub(earlier.reclaimed),
            crawler_reclaimed: self.crawler_reclaimed.saturating_sub(earlier.crawler_reclaimed),
            expired_unfetched: self.expired_unfetched.saturating_sub(earlier.expired_unfetched),
            crawled: self.crawled.saturating_sub(earlier.crawled),
            passes: self.passes.saturating_sub(earlier.passes),
        }
    }
}

impl AddAssign for Sweeps {
    fn add_assign(&mut self, other: Sweeps) {
        if other.evictions > 0 {
            self.evicted_time = other.evicted_time;
        }
        self.blocks += other.blocks;
        self.evictions += other.evictions;
        self.evicted_unfetched += other.evicted_unfetched;
        self.evicted_active += other.evicted_active;
        self.evicted_nonzero += other.evicted_nonzero;
        self.reclaimed += other.reclaimed;
        self.crawler_reclaimed += other.crawler_reclaimed;
        self.expired_unfetched += other.expired_unfetched;
        self.crawled += other.crawled;
        self.passes += other.passes;
    }
}

/// Somebody who may want to know what is evicted.
pub trait Witness: Send + Sync {
    /// Whether he does, now. Asked once per block.
    fn is_watching(&self) -> bool;

    /// An item had to make room. Called by a thread that has better things to do; must not call the engine.
    fn evicted(&self, hit: Hit<'_>);
}
