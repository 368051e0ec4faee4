//! The storage engine: keys and values in memory, under a byte budget.
//!
//! An engine is handed a [`Clock`](crate::clock::Clock) and knows the meaning of every classic command; it knows neither
//! the wire format nor connections. Commands may come from any number of threads at once, and each takes effect at one
//! moment between its call and its return. An item that has expired or was flushed is absent for every command.
//!
//! [`Relativistic`] is the implementation: lookups take no lock and write no shared memory.

mod arithmetic;
mod expiry;
mod flush;
mod hash;
mod item;
mod memory;
mod relativistic;

pub use arithmetic::Direction;
pub use item::{ITEM_OVERHEAD, MAX_KEY};
pub use memory::OutOfMemory;
pub use relativist::Stats as TableStats;
pub use relativistic::Relativistic;

/// What a server needs of its storage.
///
/// Keys are 1 to [`MAX_KEY`] bytes. `exptime` is as in the protocol: 0 never, up to 30 days relative, above that a Unix
/// time, negative at once.
pub trait Engine: Send + Sync + 'static {
    /// Looks up `key` and shows the item to `visit` if there is one.
    fn get(&self, key: &[u8], visit: impl FnOnce(Hit<'_>)) -> Lookup;

    /// Looks up `key`, sets the item's expiry and shows it to `visit` if there is one.
    fn get_and_touch(&self, key: &[u8], exptime: i32, visit: impl FnOnce(Hit<'_>)) -> Lookup;

    /// Stores `value` under `key` as `mode` says.
    fn store(&self, mode: Mode, key: &[u8], content: Content<'_>) -> Store;

    /// Counts the number stored under `key` up or down and returns the new one. It keeps flags, expiry, and the length of
    /// the text if the number fits, padded with spaces on the right.
    fn count(&self, key: &[u8], direction: Direction, delta: u64) -> Result<u64, CountError>;

    /// Removes `key`; false if there is no such item.
    fn delete(&self, key: &[u8]) -> bool;

    /// Sets the expiry of `key`; false if there is no such item.
    fn touch(&self, key: &[u8], exptime: i32) -> bool;

    /// Drops everything stored before the moment `exptime`, which is now for zero, negative and past ones. A new flush
    /// replaces one that is still to come. A moment before the engine was created drops nothing.
    fn flush(&self, exptime: i32);

    /// Sums that are cheap to tell.
    fn usage(&self) -> Usage;

    /// A look at every bucket; takes time in proportion to the table.
    fn table(&self) -> TableStats;
}

/// What is stored with a key.
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
    /// The number that the client stored with it.
    pub flags: u32,
    /// The number that tells this item from all others stored before and after.
    pub unique: u64,
    /// The bytes.
    pub value: &'a [u8],
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
    /// What item and table bytes together may not exceed.
    pub limit: usize,
}
