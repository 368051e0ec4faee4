//! The builder of a cache.

use std::fmt;
use std::hash::{BuildHasher, Hash, RandomState};
use std::sync::{Arc, Weak};
use std::thread::available_parallelism;
use std::time::{Duration, Instant};

use super::core::{AnyCore, Core, Listener, Weigher};
use super::entry::Lifespan;
use super::expiry::{Expiry, Sweep};
use super::stats::Recorder;
use super::{Cache, Eviction};
use crate::nodes::Nodes;

/// The number of entries for which it pays to have another shard.
const ENTRIES_PER_SHARD: u64 = 512;
const MAX_SHARDS: usize = 64;

/// Creates a [`Cache`] with options. Returned by [`Cache::builder`].
///
/// ```
/// use relativist_cache::Cache;
///
/// let pages: Cache<String, Vec<u8>> = Cache::builder()
///     .capacity(64 << 20)
///     .weigher(|url: &String, page: &Vec<u8>| (url.len() + page.len()) as u64)
///     .estimated_entries(10_000)
///     .build();
/// assert_eq!(pages.capacity(), 64 << 20);
/// ```
#[must_use = "a builder does nothing until `build`"]
pub struct Builder<K, V, S = RandomState> {
    capacity: u64,
    estimated_entries: Option<u64>,
    weigher: Option<Weigher<K, V>>,
    on_evict: Option<Listener<K, V>>,
    expiry: Expiry<K, V>,
    records: bool,
    hasher: S,
}

impl<K, V> Builder<K, V> {
    pub(super) fn new() -> Self {
        Self {
            capacity: u64::MAX,
            estimated_entries: None,
            weigher: None,
            on_evict: None,
            expiry: Expiry::new(),
            records: false,
            hasher: RandomState::new(),
        }
    }
}

impl<K, V, S> Builder<K, V, S> {
    /// Sets the maximum of the sum of all weights. Without a [weigher](Builder::weigher) this is
    /// the number of entries. No limit by default.
    pub fn capacity(mut self, capacity: u64) -> Self {
        self.capacity = capacity;
        self
    }

    /// Sets the function that returns the weight of an entry, usually its size in bytes. A weight
    /// of 0 is taken as 1.
    ///
    /// The function runs once for each insertion, outside of locks. If it panics, nothing is
    /// inserted.
    pub fn weigher(mut self, weigher: impl Fn(&K, &V) -> u64 + Send + Sync + 'static) -> Self {
        self.weigher = Some(Box::new(weigher));
        self
    }

    /// Sets about how many entries the cache will have when it is full. By default this is the
    /// capacity if all entries weigh 1, and unknown otherwise.
    ///
    /// The estimate determines how many threads can insert and evict at the same time: several from
    /// 1024 entries on. If it is set, the cache also allocates the buckets for these entries at
    /// once: 8 to 16 bytes per entry. An estimate that is too low costs speed, and one that is too
    /// high memory.
    pub fn estimated_entries(mut self, entries: u64) -> Self {
        self.estimated_entries = Some(entries);
        self
    }

    /// Sets the function that is called with each entry that the cache has removed by itself: to
    /// make room, or because it had expired. It is not called for entries that the program removes
    /// or replaces, even if they had expired (as when a load replaces one), nor for those that are
    /// left when the cache is dropped.
    ///
    /// The function is called once for each of these entries, when the entry has left the cache,
    /// and before the call returns that has removed it: an insertion, [`Cache::set_capacity`] or
    /// [`Cache::remove_expired`], on the thread of the caller. A background thread, one for all
    /// caches, removes expired entries too. While the function blocks there, no expired entry is
    /// freed.
    ///
    /// The function runs in a read section, and outside of locks: no other thread waits for it. So
    /// another thread may insert the key again before the function is called, or while it runs. The
    /// calls for two values of a key may then run at the same time, or in the opposite order. If
    /// you keep something for each entry, like a file, identify it by the value, and not by the key
    /// alone.
    ///
    /// The function may use the cache. If it inserts, that may evict the next entry and call it
    /// again, on the same stack. If it always puts the evicted entry back, no room is ever made,
    /// and the insertion does not return.
    ///
    /// A panic in the function ends only this call. The panic hook reports it, and the insertion,
    /// or whatever has removed the entry, goes on.
    pub fn on_evict(mut self, listener: impl Fn(&K, &V, Eviction) + Send + Sync + 'static) -> Self {
        self.on_evict = Some(Box::new(listener));
        self
    }

    /// Sets the hasher. The default is [`RandomState`], which is slow, but protects against keys
    /// that are chosen to collide.
    pub fn hasher<T>(self, hasher: T) -> Builder<K, V, T> {
        let Self { capacity, estimated_entries, weigher, on_evict, expiry, records, hasher: _ } = self;
        Builder { capacity, estimated_entries, weigher, on_evict, expiry, records, hasher }
    }

    /// Makes the cache count hits and misses, for [`Cache::stats`]. That adds about a nanosecond to
    /// a lookup. Each thread counts on a cache line of its own (as long as there are at most 64).
    pub fn record_stats(mut self) -> Self {
        self.records = true;
        self
    }

    /// Creates the cache.
    ///
    /// # Panics
    ///
    /// Panics if there is no memory for the buckets of the [estimated
    /// entries](Builder::estimated_entries).
    pub fn build(self) -> Cache<K, V, S>
    where
        K: Hash + Eq + Send + Sync + 'static,
        V: Send + Sync + 'static,
        S: BuildHasher + Send + Sync + 'static,
    {
        if !self.expiry.is_limited() {
            return Cache::of(AnyCore::Plain(Arc::new(self.core())));
        }
        let core = Arc::new(self.core());
        if let Some(expiry) = &core.expiry {
            let cache = Arc::downgrade(&core) as Weak<dyn Sweep>;
            // Nothing has set it before.
            let _ = expiry.cache.set(cache);
        }
        Cache::of(AnyCore::Expiring(core))
    }

    fn core<L: Lifespan>(self) -> Core<K, V, S, L>
    where
        S: BuildHasher,
    {
        let shards = self.shards();
        let entries = usize::try_from(self.estimated_entries.unwrap_or(0)).unwrap_or(usize::MAX);
        let map = Nodes::new(entries, self.hasher);
        let mut core = Core::new(map, self.capacity, shards);
        core.weigher = self.weigher;
        core.on_evict = self.on_evict;
        core.expiry = self.expiry.started();
        core.recorder = self.records.then(Recorder::new);
        core
    }

    /// Returns the number of shards: a power of two, and one if the number of entries is unknown.
    fn shards(&self) -> usize {
        let all_weigh_one = self.weigher.is_none();
        let entries = self.estimated_entries.or(all_weigh_one.then_some(self.capacity)).unwrap_or(0);
        let threads = available_parallelism().map_or(1, usize::from).next_power_of_two();
        let useful = usize::try_from(entries / ENTRIES_PER_SHARD).unwrap_or(usize::MAX);
        let useful = useful.checked_ilog2().map_or(1, |bits| 1 << bits);
        (4 * threads).min(useful).min(MAX_SHARDS)
    }
}

/// Options of entries that expire.
///
/// An expired entry is never returned. A background thread, one per process, frees it some time
/// after its deadline, and so does an insertion that evicts it.
impl<K, V, S> Builder<K, V, S> {
    /// Sets the time after its insertion at which an entry expires. No limit by default.
    pub fn time_to_live(mut self, time: Duration) -> Self {
        self.expiry.live = Some(time);
        self
    }

    /// Sets the time after its last hit at which an entry expires. No limit by default.
    ///
    /// So that not every hit writes, hits within 1/64 of this time count as one. An entry may
    /// expire earlier by this much.
    pub fn time_to_idle(mut self, time: Duration) -> Self {
        self.expiry.idle = Some(time);
        self
    }

    /// Sets the function that returns the time to live of an entry, or `None` if it has no limit of
    /// its own. [`Builder::time_to_live`] and [`Builder::time_to_idle`] limit it in any case.
    ///
    /// The function runs once for each insertion, outside of locks. If it panics, nothing is
    /// inserted.
    pub fn expire_after(mut self, after: impl Fn(&K, &V) -> Option<Duration> + Send + Sync + 'static) -> Self {
        self.expiry.after = Some(Box::new(after));
        self
    }

    /// Sets the clock by which entries expire, for tests. [`Instant::now`] by default.
    pub fn clock(mut self, clock: impl Fn() -> Instant + Send + Sync + 'static) -> Self {
        self.expiry.clock = Some(Box::new(clock));
        self
    }
}

impl<K, V, S: fmt::Debug> fmt::Debug for Builder<K, V, S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Builder")
            .field("capacity", &self.capacity)
            .field("hasher", &self.hasher)
            .finish_non_exhaustive()
    }
}
