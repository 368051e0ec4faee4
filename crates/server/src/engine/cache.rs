//! The relativistic engine: items in a [`relativist::raw::Table`].
//!
//! **Lookups** run inside a read section. They take no lock, and write nothing that another thread reads but the mark of an item
//! that nobody has visited since the eviction last looked at it (and the time of its last access, once a minute). Only one that meets an
//! item just when it is replaced, and would lose such a note, or one that has died, goes on under the bucket's lock. The value is
//! copied out before the section ends, so nothing can be freed under it; or, if it is large, its block is lent, which takes a counter in the
//! block (see [`super::loan`]). Resizing does not concern them.
//!
//! **Updates** all go through [`Cache::change`]: lock the key's bucket, decide by looking at the present item, link,
//! replace or unlink, unlock, and count the old item as dead in its block (see [`super::heap`]). New items are mostly
//! made before the lock is taken; `append`, `prepend` and counting make theirs from the old one while they hold it.
//!
//! **Order of stores.** An item's unique is drawn under the bucket lock, so the uniques of a key only rise, and a flush knows
//! by it what came before (see [`super::flush`]). The one counter is shared by all writers; readers never touch it.
//!
//! Expired and flushed items are unlinked by the first command that meets them, or when their block is swept (see [`super::sweep`]).

use super::expiry::Expiry;
use super::flush::Flush;
use super::global_lock::GlobalLock;
use super::hash::{KeyHasher, random};
use super::heap::{Heap, OutOfMemory, TableMemory};
use super::item::{self, ItemRef};
use super::{Change, Hit, Lookup, New, Present, Sequence, TableStats, Usage, Witness};
use crate::clock::Clock;
use crossbeam_utils::CachePadded;
use relativist::raw::{Hash, Table};
use relativist::{Policy, Resizing};
use std::ops::RangeInclusive;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

/// Buckets of an empty table: 8 KiB, below which nothing would be gained.
const FEWEST_BUCKETS: usize = 1 << 10;

/// Uniques up to this are never drawn: 0 stands for none in the protocols, and 1 is what people try who want to be wrong.
const NEVER_DRAWN: u64 = 1;

/// A server's numbers begin at random below this. So uniques that clients remember from before a
/// restart or a crash mean nothing: the chance that one fits by accident is 1 in 2^31. Not higher,
/// because some clients (meta-memcache 4.3) ignore uniques of more than 32 bits. Numbers have 48
/// bits, which last for a million stores per second during eight years.
const MAX_FIRST_NUMBER: u64 = 1 << 31;

/// Buckets that one call of [`Cache::sample_buckets`] looks at.
const SAMPLED_AT_ONCE: usize = 16;

/// Entries per bucket. A table that grows does so by four, to one: so a bucket's 8 bytes are shared by one to four items, and lookups
/// that find something walk half a step more than at the usual load for each.
const LOAD: RangeInclusive<f64> = 0.5..=4.0;

/// By how much the table grows at once, as [`Policy`] says.
const GROWTH: usize = 4;

/// Keys and values in memory, within a limit, and the table by which they are found.
///
/// All methods take `&self` and may be called from any number of threads at once. Each command takes effect at one moment
/// between its call and its return. An item that has expired or was flushed is absent for every command.
///
/// Keys are 1 to [`MAX_KEY`](super::MAX_KEY) bytes. `exptime` is as in memcached's protocol: 0 never, up to 30 days relative,
/// above that a Unix time, negative at once.
pub struct Cache {
    /// Taken around every command, if there is one.
    global_lock: Option<GlobalLock>,
    #[cfg(feature = "test-hooks")]
    hooks: Option<Arc<dyn super::Hooks>>,
    pub(super) table: Table,
    hasher: KeyHasher,
    pub(super) clock: Arc<Clock>,
    created: u32,
    pub(super) max_item: usize,
    pub(super) heap: Heap,
    pub(super) evicts: bool,
    pub(super) flush: Flush,
    /// Who wants to know what is evicted.
    pub(super) witness: Option<Arc<dyn Witness>>,
    pub(super) last_unique: CachePadded<AtomicU64>,
}

impl Cache {
    /// An empty cache that keeps item and table bytes within `limit`, and lets items grow by appending up
    /// to `max_item` bytes of key and value.
    ///
    /// # Errors
    /// When there is not even memory for the smallest table.
    pub fn new(clock: Arc<Clock>, limit: usize, max_item: usize) -> Result<Cache, OutOfMemory> {
        let policy = Policy::from(Resizing::Automatic).load_factor(LOAD).expect("the bounds are far enough apart");
        Ok(Cache {
            global_lock: None,
            #[cfg(feature = "test-hooks")]
            hooks: None,
            table: Table::new(FEWEST_BUCKETS, policy, item::dispose)
                .map_err(|_| OutOfMemory { requested: FEWEST_BUCKETS * size_of::<usize>() })?,
            hasher: KeyHasher::new(),
            created: clock.now(),
            clock,
            max_item,
            heap: Heap::new(limit),
            evicts: true,
            flush: Flush::new(),
            witness: None,
            last_unique: CachePadded::new(AtomicU64::new(NEVER_DRAWN)),
        })
    }

    /// Flushes everything at `second`, which may be one that the protocol can't say.
    pub(crate) fn flush_at(&self, second: u32) {
        self.flush.at(second);
    }

    /// The same cache, with uniques that begin at random. Call this before anything is stored.
    #[must_use]
    pub fn with_random_uniques(self) -> Cache {
        let last_unique = CachePadded::new(AtomicU64::new(NEVER_DRAWN + random() % MAX_FIRST_NUMBER));
        Cache { last_unique, ..self }
    }

    /// The same cache, refusing new items instead of evicting others.
    #[must_use]
    pub fn without_eviction(self) -> Cache {
        Cache { evicts: false, ..self }
    }

    /// The same cache, telling `witness` what it evicts.
    #[must_use]
    pub fn with_witness(self, witness: Arc<dyn Witness>) -> Cache {
        Cache { witness: Some(witness), ..self }
    }

    /// The same cache, in which one thread at a time runs a command: for comparison.
    #[must_use]
    pub fn with_global_lock(self) -> Cache {
        Cache { global_lock: Some(GlobalLock::default()), ..self }
    }

    /// The same cache, which runs the code of a test between its steps.
    #[cfg(feature = "test-hooks")]
    #[must_use]
    pub fn with_hooks(self, hooks: Arc<dyn super::Hooks>) -> Cache {
        Cache { hooks: Some(hooks), ..self }
    }

    /// The second in which the calling command runs. Executes a flush that has come due by then.
    pub(super) fn begin(&self) -> u32 {
        let now = self.clock.now();
        self.flush.catch_up(now, &self.last_unique);
        now
    }

    pub(super) fn hash(&self, key: &[u8]) -> Hash {
        Hash::new(self.hasher.hash(key))
    }

    /// `Hit` if the item is there for clients.
    pub(super) fn state(&self, item: ItemRef<'_>, now: u32) -> Lookup {
        if item.expiry().has_passed(now) {
            Lookup::Expired
        } else if self.flush.covers(item.number()) {
            Lookup::Flushed
        } else {
            Lookup::Hit
        }
    }

    /// What the table takes, and will take if it grows soon: the old array and the new one are there at the same time. (The old one
    /// is freed some milliseconds after the table has grown; during these it is not counted.)
    pub(super) fn table_memory(&self) -> TableMemory {
        let (buckets, is_resizing) = (self.table.buckets(), self.table.is_resizing());
        // This is told when blocks are asked for: that has to be in time for the last one before it grows.
        let soon = self.table.len() + self.heap.most_unasked();
        let grows = is_resizing || soon as f64 > 0.95 * buckets as f64 * LOAD.end();
        // Who resizes it may be late, and catches up in one step.
        let grown = self.table.policy().buckets_for(soon).max(GROWTH * buckets);
        let bytes = |buckets| buckets * size_of::<usize>();
        TableMemory {
            bytes: bytes(buckets),
            charge: bytes(buckets) + if grows { bytes(grown) } else { 0 },
            is_resizing,
        }
    }

    pub(super) fn table_charge(&self) -> usize {
        self.table_memory().charge
    }
}

/// The commands.
impl Cache {
    /// The second in which a command that begins now runs.
    pub fn now(&self) -> u32 {
        self.clock.now()
    }

    /// Looks up `key` and shows the item to `visit` if there is one, as it was before. The item then counts as fetched.
    pub fn get(&self, key: &[u8], visit: impl FnOnce(Hit<'_>)) -> Lookup {
        let lookup = match &self.global_lock {
            None => self.get_inner(key, visit),
            Some(lock) => lock.run(|| self.get_inner(key, visit)),
        };
        #[cfg(feature = "test-hooks")]
        self.hooks.iter().for_each(|hooks| hooks.after_get(self, key));
        lookup
    }

    /// Looks up several keys as [`get`](Self::get) does, one after the other, and calls `visit` for each with the key's index and the
    /// item, or why there is none. Ends when `visit` returns false, or after [`MAX_BATCH_KEYS`](super::MAX_BATCH_KEYS). Returns the
    /// number of keys that it has looked up.
    pub fn get_many(&self, keys: &[&[u8]], visit: impl FnMut(usize, Result<Hit<'_>, Lookup>) -> bool) -> usize {
        match &self.global_lock {
            None => self.get_many_inner(keys, visit),
            Some(lock) => lock.run(|| self.get_many_inner(keys, visit)),
        }
    }

    /// Fetches what commands on these keys will read into the processor's caches, for
    /// [`MAX_BATCH_KEYS`](super::MAX_BATCH_KEYS) keys at most, so that their waits for memory overlap. Changes nothing, and takes no
    /// lock.
    pub fn prefetch(&self, keys: &[&[u8]]) {
        self.prefetch_keys(keys, &relativist_rcu::read());
    }

    /// Looks up `key` and shows the item to `visit` if there is one; leaves no trace.
    pub fn peek(&self, key: &[u8], visit: impl FnOnce(Hit<'_>)) -> Lookup {
        match &self.global_lock {
            None => self.peek_inner(key, visit),
            Some(lock) => lock.run(|| self.peek_inner(key, visit)),
        }
    }

    /// Stores `new` if `permit`, which is shown the present item, allows it; then shows the new item. The new item is made before the
    /// key is locked.
    ///
    /// # Errors
    /// When there is no room. `permit` was not called then.
    pub fn put<R>(
        &self,
        key: &[u8],
        new: &New<'_>,
        permit: impl FnOnce(Present<'_>) -> (bool, R),
        show: impl FnOnce(Hit<'_>),
    ) -> Result<R, OutOfMemory> {
        match &self.global_lock {
            None => self.put_inner(key, new, permit, show),
            Some(lock) => lock.run(|| self.put_inner(key, new, permit, show)),
        }
    }

    /// Shows `decide` the item under `key`, makes the change that it returns, and then shows the
    /// item that is there now, if any. If the change is a [mark](super::Change::Mark), the item is shown
    /// with the marks and the idle time that it had just before: they may differ from what `decide`
    /// saw, because lookups take no lock. The key is locked while `decide` runs, so it must not
    /// call the cache. It may be called again; only its last answer counts.
    ///
    /// # Errors
    /// When there is no room for what was to be put. Nothing was changed then.
    pub fn update<'a, R>(
        &self,
        key: &[u8],
        decide: impl FnMut(Present<'_>) -> (Change<'a>, R),
        show: impl FnOnce(Hit<'_>),
    ) -> Result<R, OutOfMemory> {
        match &self.global_lock {
            None => self.update_inner(key, decide, show),
            Some(lock) => lock.run(|| self.update_inner(key, decide, show)),
        }
    }

    /// Shows some items, and returns the cursor to continue from; none when all were shown. Begins at 0. An item that is there from
    /// the first call to the last is shown once.
    pub fn scan(&self, cursor: u64, visit: impl FnMut(Hit<'_>)) -> Option<u64> {
        match &self.global_lock {
            None => self.scan_inner(cursor, visit),
            Some(lock) => lock.run(|| self.scan_inner(cursor, visit)),
        }
    }

    /// Drops everything stored before the moment `exptime`, which is now for zero, negative and past ones. A new flush
    /// replaces one that is still to come. A moment before the cache was created drops nothing.
    pub fn flush(&self, exptime: i32) {
        match &self.global_lock {
            None => self.flush_inner(exptime),
            Some(lock) => lock.run(|| self.flush_inner(exptime)),
        }
    }

    /// What a copy of this cache must know besides the items: see [`Sequence`].
    pub fn sequence(&self) -> Sequence {
        self.begin();
        let (flushed, pending_flush) = self.flush.state();
        Sequence { flushed, pending_flush }
    }

    /// Sets the limit of what items, table and all memory that waits to be freed may occupy together. What exceeds a smaller limit is
    /// evicted as new items come.
    pub fn set_limit(&self, bytes: usize) {
        self.heap.set_limit(bytes);
    }

    /// Frees what has expired. Call it every second or so, from a thread that may wait for others. Takes no global lock, so commands go
    /// on meanwhile.
    pub fn maintain(&self) {
        self.sweep_expired(self.begin());
        self.evict_ahead();
        self.heap.trim();
    }

    /// The largest item: bytes of key and value together.
    pub fn max_item(&self) -> usize {
        self.max_item
    }

    /// Sums that are cheap to compute.
    pub fn usage(&self) -> Usage {
        Usage {
            items: self.table.len(),
            item_bytes: self.heap.linked(),
            buckets: self.table.buckets(),
            table_bytes: self.table_memory().bytes,
            is_resizing: self.table.is_resizing(),
            heap_bytes: self.heap.mapped(),
            lent_bytes: self.heap.loans().bytes(),
            limit: self.heap.limit(),
            sweeps: self.heap.sweeps(),
        }
    }

    /// Adds what some buckets of the table look like to `stats`, and returns the cursor to continue from; none when those were the last.
    /// Begins at 0.
    pub fn sample_buckets(&self, stats: &mut TableStats, cursor: u64) -> Option<u64> {
        #[cfg(feature = "test-hooks")]
        if let Some(replaced) = self.hooks.as_ref().and_then(|hooks| hooks.sample_buckets(stats, cursor)) {
            return replaced;
        }
        self.table.add_stats(stats, cursor, SAMPLED_AT_ONCE)
    }

    /// What all buckets look like. Takes time in proportion to the table.
    pub fn table_stats(&self) -> TableStats {
        let mut stats = TableStats::default();
        let mut cursor = Some(0);
        while let Some(from) = cursor {
            cursor = self.sample_buckets(&mut stats, from);
        }
        stats
    }

    fn flush_inner(&self, exptime: i32) {
        let now = self.begin();
        match Expiry::from_protocol(exptime, now).to_bits() {
            second if second > now => self.flush.at(second),
            second if exptime > 0 && second < self.created => self.flush.cancel(),
            // Also for a moment that has passed since the start: items do not know when they were stored, and a cache may
            // drop too much, but must not keep what it was told to drop.
            _ => self.flush.now(&self.last_unique),
        }
    }
}
