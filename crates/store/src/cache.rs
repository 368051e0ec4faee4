//! The cache: commands on items in a [`relativist_table::Table`].
//!
//! **Lookups** run inside a read section. They take no lock. They write shared memory only to mark
//! an item that was not visited since the eviction last examined it, and once a minute to record
//! the time of an access. Two kinds of lookup continue under the bucket's lock: those that find an
//! item just as it is replaced, and would lose such a record, and those that find an expired or
//! flushed item. The value is copied before the section ends, so it cannot be freed earlier; if it
//! is large, its block can be pinned instead (see [`crate::memory::block_ref`]). Resizes do not
//! delay lookups.
//!
//! **Updates** all use `Cache::change`: lock the key's bucket, examine its item, decide, link,
//! replace or unlink, unlock, and count the old item as freed in its block (see
//! [`crate::memory::allocator`]). Most new items are written before the lock is taken. `append`,
//! `prepend` and counting write the new item while they hold the lock, because it depends on the
//! old one.
//!
//! **Order of stores.** An item's number, which is its CAS value, follows from its place (see
//! `memory::block`). All blocks draw numbers from one counter when they are opened; commands never
//! access it. So the numbers of a key differ, but need not rise. A flush draws a line between the
//! numbers of blocks opened before and after it (see `eviction::flush`).
//!
//! Expired and flushed items are unlinked by the first command that finds them, or when their block
//! is swept (see `eviction::sweep`).
//!
//! Each file imports only this one and files above it:
//!
//! | File | Holds |
//! |---|---|
//! | `api`, `arithmetic` | what commands take and return; the arithmetic of `incr` and `decr` |
//! | `hash` | the hash of keys |
//! | `hooks`, `global_lock` | code of tests, and one lock around all commands; with features only |
//! | `change` | the step under the lock of a key's bucket |
//! | `lookup` | commands that read |
//! | `update` | commands that change an item |
//! | `operations` | the commands of the classic protocol, made of these |

mod api;
mod arithmetic;
mod change;
#[cfg(feature = "global-lock")]
mod global_lock;
mod hash;
#[cfg(feature = "test-hooks")]
mod hooks;
mod lookup;
mod operations;
mod update;

pub use api::{Change, Content, CountError, Mode, Present, Store};
pub use arithmetic::{Direction, apply, parse};
#[cfg(feature = "test-hooks")]
pub use hooks::Hooks;

use crate::TableStats;
use crate::clock::Clock;
use crate::eviction::item_store::ItemStore;
use crate::eviction::observer::EvictionObserver;
use crate::expiry::Expiry;
use crate::item::key::HashedKey;
use crate::memory::request::OutOfMemory;
use crate::policy::EvictFor;
use crate::sizing::{Observed, Report, Sizing};
use crate::usage::{MemoryUse, Sequence, Usage};
use crate::work::{self, Work};
#[cfg(feature = "global-lock")]
use global_lock::GlobalLock;
use hash::{KeyHasher, random};
use relativist_table::Hash;
use std::sync::Arc;

/// The numbers of a server begin at a random number below this. So CAS values that clients remember
/// from before a restart or a crash are invalid: the chance that one matches by accident is 1 in
/// 2^31. The bound is not higher, because some clients (meta-memcache 4.3) ignore CAS values of
/// more than 32 bits. Numbers have 56 bits (see `item::layout`).
const MAX_FIRST_NUMBER: u64 = 1 << 31;

/// The number of steps by which one call of [`Cache::maintain`] may shrink the cache: 64 MiB,
/// unless the cache is tiny.
const MAX_STEPS: usize = 128;

/// The number of blocks that one of these steps may sweep. It needs fewer, unless most items move.
const MAX_EVICTED_IN_STEP: usize = 64;

/// The number of buckets that one call of [`Cache::sample_buckets`] examines.
const SAMPLED_AT_ONCE: usize = 16;

/// Keys and values in memory, within a limit, and the table that finds them.
///
/// All methods take `&self` and may be called from any number of threads at once. Each command
/// takes effect at one moment between its call and its return. An item that has expired or was
/// flushed is absent for every command.
///
/// Keys are 1 to [`MAX_KEY`](crate::MAX_KEY) bytes. `exptime` is as in memcached's protocol: 0
/// means never, numbers up to 30 days are relative, larger ones are Unix times, and negative ones
/// are in the past.
pub struct Cache {
    #[cfg(feature = "global-lock")]
    global_lock: Option<GlobalLock>,
    #[cfg(feature = "test-hooks")]
    hooks: Option<Arc<dyn Hooks>>,
    pub(crate) store: ItemStore,
    hasher: KeyHasher,
    pub(crate) sizing: Sizing,
    created: u32,
    pub(crate) max_item: usize,
}

impl Cache {
    /// An empty cache that keeps item and table bytes within `limit`, and lets items grow by
    /// appending up to `max_item` bytes of key and value.
    ///
    /// # Errors
    /// When there is no memory for the smallest table, or the process may not reserve addresses for
    /// one and a half times the limit and 128 MiB more. If virtual memory is limited (`ulimit -v`),
    /// all caches together reserve at most half of it.
    pub fn new(clock: Arc<Clock>, limit: usize, max_item: usize) -> Result<Cache, OutOfMemory> {
        let created = clock.now();
        Ok(Cache {
            #[cfg(feature = "global-lock")]
            global_lock: None,
            #[cfg(feature = "test-hooks")]
            hooks: None,
            store: ItemStore::new(clock, limit)?,
            hasher: KeyHasher::new(),
            sizing: Sizing::off(),
            created,
            max_item,
        })
    }

    /// The same cache, with CAS values that begin at random. Call this before anything is stored.
    #[must_use]
    pub fn with_random_cas(self) -> Cache {
        let first = random() % MAX_FIRST_NUMBER;
        Cache { store: self.store.with_first_number(first), ..self }
    }

    /// The same cache, whose CAS values are larger than `last`, which is the
    /// [last](Self::last_cas) one of another cache. Call this before anything is stored.
    #[must_use]
    pub fn with_cas_after(self, last: u64) -> Cache {
        Cache { store: self.store.with_numbers_after(last), ..self }
    }

    /// The last CAS value that the cache may have assigned so far, or a value below all of them. It
    /// may still assign smaller ones.
    pub fn last_cas(&self) -> u64 {
        self.store.last_number()
    }

    /// The same cache, refusing new items instead of evicting others.
    #[must_use]
    pub fn without_eviction(self) -> Cache {
        Cache { store: ItemStore { evicts: false, ..self.store }, ..self }
    }

    /// The same cache, which reports evictions to `observer`.
    #[must_use]
    pub fn with_observer(self, observer: Arc<dyn EvictionObserver>) -> Cache {
        Cache { store: ItemStore { observer: Some(observer), ..self.store }, ..self }
    }

    /// The same cache, which estimates how it would do with other memory limits: see [`sizing`].
    /// `threads` is the expected number of threads that use the cache; more may. Call this before
    /// anything is stored, and then call [`advance_sizing`](Self::advance_sizing) about ten times a
    /// second.
    ///
    /// [`sizing`]: crate::sizing
    #[must_use]
    pub fn with_sizing(self, threads: usize) -> Cache {
        Cache { sizing: Sizing::new(threads, self.now(), self.observed(0, 0)), ..self }
    }

    /// The same cache, which runs the `hooks` of a test between its steps.
    #[cfg(feature = "test-hooks")]
    #[must_use]
    pub fn with_hooks(self, hooks: Arc<dyn Hooks>) -> Cache {
        Cache { hooks: Some(hooks), ..self }
    }

    pub(crate) fn hashed<'k>(&self, key: &'k [u8]) -> HashedKey<'k> {
        HashedKey { bytes: key, hash: Hash::new(self.hasher.hash(key)) }
    }
}

impl Cache {
    /// The second in which a command runs that begins now.
    pub fn now(&self) -> u32 {
        self.store.clock.now()
    }

    /// Drops everything stored before `exptime`. Zero, negative and past times mean now. A new
    /// flush replaces one that is still pending. A time before the cache was created drops nothing.
    pub fn flush(&self, exptime: i32) {
        #[cfg(feature = "global-lock")]
        let _locked = self.take_global_lock();
        let now = self.store.begin();
        match Expiry::from_protocol(exptime, now).to_bits() {
            second if second > now => self.store.flush.at(second),
            second if exptime > 0 && second < self.created => self.store.flush.cancel(),
            // Also for a time between the start and now: items do not record when they were stored.
            // A cache may drop too much, but must drop everything that it was asked to.
            _ => self.store.flush.now(&self.store.allocator.last_number),
        }
    }

    /// Flushes everything at `second`, which may be beyond the range of `exptime`.
    pub fn flush_at(&self, second: u32) {
        self.store.flush.at(second);
    }

    /// The state that a copy of this cache must have, besides the items.
    pub fn sequence(&self) -> Sequence {
        self.store.begin();
        let (flushed, pending_flush) = self.store.flush.state();
        Sequence { flushed, pending_flush }
    }

    /// Sets the limit on items, table and all memory that waits to be freed together. A higher
    /// limit holds at once. To a lower one the cache shrinks in steps, 64 MiB with each call of
    /// [`maintain`](Self::maintain); meanwhile stores succeed, and evict no more than usual. It
    /// does not shrink below the memory of its table, which shrinks when many items were
    /// evicted.
    pub fn set_limit(&self, bytes: usize) {
        self.store.allocator.set_limit(bytes);
    }

    /// Sets what eviction makes few of: requests that miss, the default, or bytes that miss. It may
    /// change at any time, and counts from the next eviction on.
    pub fn set_evict_for(&self, goal: EvictFor) {
        self.store.allocator.set_goal(goal);
    }

    /// Frees expired items, and what exceeds the limit. Call it about once a second, from a thread
    /// that may wait for others.
    pub fn maintain(&self) {
        self.store.sweep_expired(self.store.begin());
        for _ in 0..MAX_STEPS {
            let has_shrunk = self.store.allocator.lower_limit(self.store.table_charge(), self.store.evicts);
            _ = (0..MAX_EVICTED_IN_STEP).all(|_| self.store.evict_ahead());
            self.store.allocator.shed();
            if !has_shrunk {
                break;
            }
        }
        self.store.allocator.trim();
    }

    /// The largest item: bytes of key and value together.
    pub fn max_item(&self) -> usize {
        self.max_item
    }

    /// Returns the memory in use. Cheap: no item is visited.
    pub fn usage(&self) -> Usage {
        Usage {
            items: self.store.table.len(),
            item_bytes: self.store.allocator.linked(),
            buckets: self.store.table.buckets(),
            table_bytes: self.store.table_memory().bytes,
            is_resizing: self.store.table.is_resizing(),
            mapped_bytes: self.store.allocator.mapped(),
            pinned_bytes: self.store.allocator.pinned().bytes(),
            limit: self.store.allocator.limit(),
            sweeps: self.store.allocator.sweeps(),
        }
    }

    /// Passes what has happened to sampled keys on to the estimates of [`sizing`](Self::sizing).
    /// The caller counts all `lookups` since the start, and those of them that were misses.
    pub fn advance_sizing(&self, lookups: u64, misses: u64) {
        self.sizing.advance(self.now(), self.observed(lookups, misses));
    }

    fn observed(&self, lookups: u64, misses: u64) -> Observed {
        let allocator = &self.store.allocator;
        Observed {
            evict_for: self.store.allocator.goal(),
            lookups,
            misses,
            evictions: allocator.sweeps().evictions,
            item_bytes: allocator.linked() as u64,
            limit: allocator.limit() as u64,
            flushed: self.store.flush.state().0,
        }
    }

    /// How the cache would do with other memory limits, and its working set, as of the last call of
    /// [`advance_sizing`](Self::advance_sizing). None without [`with_sizing`](Self::with_sizing).
    pub fn sizing(&self) -> Option<Report> {
        self.sizing.report()
    }

    /// Adds the memory of some items to `memory`, and returns the cursor to continue from. After
    /// the last item, sets the parts that are not items, and returns none. Begin with the default
    /// and cursor 0. Then the sum of all parts is the memory mapped for items and table, if no
    /// command has changed an item meanwhile. Reads the header of each item, and writes nothing.
    pub fn sample_memory(&self, memory: &mut MemoryUse, cursor: u64) -> Option<u64> {
        let next = self.measure_items(memory, cursor);
        if next.is_none() {
            memory.table = self.store.table.bucket_bytes();
            self.store.allocator.measure_blocks(memory);
        }
        next
    }

    /// Returns where the memory goes. Takes time in proportion to the number of items.
    pub fn memory_use(&self) -> MemoryUse {
        let mut memory = MemoryUse::default();
        let mut cursor = Some(0);
        while let Some(from) = cursor {
            cursor = self.sample_memory(&mut memory, from);
        }
        memory
    }

    /// Adds statistics of some buckets of the table to `stats`, and returns the cursor to continue
    /// from; none after the last buckets. Begin with cursor 0.
    pub fn sample_buckets(&self, stats: &mut TableStats, cursor: u64) -> Option<u64> {
        work::charge(Work::Buckets(SAMPLED_AT_ONCE));
        #[cfg(feature = "test-hooks")]
        if let Some(replaced) = self.hooks.as_ref().and_then(|hooks| hooks.sample_buckets(stats, cursor)) {
            return replaced;
        }
        self.store.table.add_stats(stats, cursor, SAMPLED_AT_ONCE)
    }

    /// Statistics of all buckets. Takes time in proportion to the size of the table.
    pub fn table_stats(&self) -> TableStats {
        let mut stats = TableStats::default();
        let mut cursor = Some(0);
        while let Some(from) = cursor {
            cursor = self.sample_buckets(&mut stats, from);
        }
        stats
    }
}
