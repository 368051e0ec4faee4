//! The builder of a cache.

use std::fmt;
use std::hash::{BuildHasher, Hash, RandomState};
use std::sync::{Arc, Weak};
use std::thread::available_parallelism;
use std::time::{Duration, Instant};

use relativist_core::sync::AtomicU32;

use super::background::Swept;
use super::cause::RemovalCause;
use super::core::{Core, Listener, Weigher};
use super::expiry::Expiry;
use super::node::Lifespan;
use super::shard::{ENOUGH_WEIGHED, IsInUse};
use super::stats::Recorder;
use super::{AnyCore, Cache};

/// The number of entries for which it pays to have another shard.
const ENTRIES_PER_SHARD: u64 = 256;

/// The number of entries that a shard should not exceed: the array of its table is allocated and
/// freed as a whole, which would take some milliseconds.
const MAX_ENTRIES_PER_SHARD: u64 = 1 << 17;

/// An update has a bit for each shard.
const MAX_SHARDS: u64 = 64;

/// The weight that may wait for readers in a small cache: bytes, if there is a weigher, or entries.
const MIN_WAITING_BYTES: u64 = 1 << 20;
const MIN_WAITING_ENTRIES: u64 = 1024;

/// Creates a [`Cache`] with options. Returned by [`Cache::builder`].
///
/// ```
/// use relativist_cache::Cache;
///
/// let pages: Cache<String, Vec<u8>> = Cache::builder()
///     .capacity(64 << 20)
///     .weigher(|url: &String, page: &Vec<u8>| (url.len() + page.len()) as u64)
///     .build();
/// assert_eq!(pages.capacity(), 64 << 20);
/// ```
#[must_use = "a builder does nothing until `build`"]
pub struct Builder<K, V, S = RandomState> {
    capacity: u64,
    estimated_entries: Option<u64>,
    weigher: Option<Weigher<K, V>>,
    listener: Option<Listener<K, V>>,
    expiry: Expiry<K, V>,
    is_in_use: Option<IsInUse<V>>,
    records: bool,
    hasher: S,
}

impl<K, V> Builder<K, V> {
    pub(super) fn new() -> Self {
        Self {
            capacity: u64::MAX,
            estimated_entries: None,
            weigher: None,
            listener: None,
            expiry: Expiry::new(),
            is_in_use: None,
            records: false,
            hasher: RandomState::new(),
        }
    }
}

impl<K, V, S> Builder<K, V, S> {
    /// Sets the maximum of the sum of all weights. Without a [weigher](Builder::weigher) this is
    /// the number of entries. No limit by default.
    #[doc(alias = "max_capacity")]
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
    /// The only use is the number of shards. Fewer entries have fewer of them, so that each has
    /// enough entries to choose from when it evicts. (With a weigher this hardly matters: shards
    /// with few entries choose together.) Millions of entries have more, so that the arrays of
    /// their tables are smaller. The tables grow as needed.
    #[doc(alias = "initial_capacity")]
    pub fn estimated_entries(mut self, entries: u64) -> Self {
        self.estimated_entries = Some(entries);
        self
    }

    /// Sets the function that is called with each entry that has left the cache, and why:
    /// [`RemovalCause`]. It is not called for entries that are left when the cache is dropped.
    ///
    /// The function is called once for each of these entries, when the entry has left the cache,
    /// and before the call returns that has removed it, on the thread of the caller. A background
    /// thread, one for all caches, removes expired entries, and those that
    /// [`Cache::invalidate_all`] has taken out. While the function blocks there, no other cache's
    /// entries are freed.
    ///
    /// The function runs outside of locks, in a read section: other threads wait for it only if
    /// they wait for readers. So it must not wait for a thread that updates a cache. And
    /// another thread may insert the key again before the function is called, or while it runs. The
    /// calls for two values of a key may then run at the same time, or in the opposite order. If
    /// you keep something for each entry, like a file, identify it by the value, and not by the key
    /// alone. Calls for entries that one call of the cache has removed are in the order of their
    /// removal.
    ///
    /// The function may use the cache. What it removes there is reported after it has returned. If
    /// it always puts the evicted entry back, the insertion does not return.
    ///
    /// A panic in the function ends only this call. The panic hook reports it, and the insertion,
    /// or whatever has removed the entry, goes on.
    ///
    /// ```
    /// use relativist_cache::{Cache, RemovalCause};
    ///
    /// let (sender, evicted) = std::sync::mpsc::channel();
    /// let cache = Cache::builder()
    ///     .capacity(1)
    ///     .on_removal(move |&key: &u32, _: &u32, cause| _ = sender.send((key, cause)))
    ///     .build();
    /// cache.insert(1, 10);
    /// cache.insert(2, 20);
    /// cache.insert(2, 21);
    /// cache.remove(&2);
    /// let causes: Vec<_> = evicted.try_iter().collect();
    /// assert_eq!(causes, [(1, RemovalCause::Size), (2, RemovalCause::Replaced), (2, RemovalCause::Explicit)]);
    /// ```
    #[doc(alias = "eviction_listener")]
    #[doc(alias = "on_evict")]
    pub fn on_removal(mut self, listener: impl Fn(&K, &V, RemovalCause) + Send + Sync + 'static) -> Self {
        self.listener = Some(Box::new(listener));
        self
    }

    /// Sets the hasher. The default is [`RandomState`], which is slow, but protects against keys
    /// that are chosen to collide.
    pub fn hasher<T>(self, hasher: T) -> Builder<K, V, T> {
        let Self { capacity, estimated_entries, weigher, listener, expiry, is_in_use, records, hasher: _ } = self;
        Builder { capacity, estimated_entries, weigher, listener, expiry, is_in_use, records, hasher }
    }

    /// Makes the cache count hits and misses, for [`Cache::stats`]. That adds about a nanosecond to
    /// a lookup. Each thread counts on a cache line of its own (as long as there are at most 64).
    pub fn record_stats(mut self) -> Self {
        self.records = true;
        self
    }

    /// Creates the cache.
    pub fn build(self) -> Cache<K, V, S>
    where
        K: Hash + Eq + Send + Sync + 'static,
        V: Send + Sync + 'static,
        S: BuildHasher + Send + Sync + 'static,
    {
        if self.expiry.is_limited() {
            Cache { core: AnyCore::Expiring(self.core()) }
        } else {
            Cache { core: AnyCore::Plain(self.core()) }
        }
    }

    fn core<L: Lifespan>(self) -> Arc<Core<K, V, S, L>>
    where
        K: Send + Sync + 'static,
        V: Send + Sync + 'static,
        S: Send + Sync + 'static,
    {
        let min_waiting = if self.weigher.is_some() { MIN_WAITING_BYTES } else { MIN_WAITING_ENTRIES };
        let shards = self.shards();
        let mut core = Core::new(self.hasher, self.capacity, shards, min_waiting);
        core.level = (shards > 1 && self.weigher.is_some()).then(AtomicU32::default);
        core.weigher = self.weigher;
        core.listener = self.listener;
        core.expiry = self.expiry.started();
        core.is_in_use = self.is_in_use;
        core.recorder = self.records.then(Recorder::new);
        let core = Arc::new(core);
        let own = Arc::downgrade(&core) as Weak<dyn Swept>;
        // Nothing has set it before.
        let _ = core.own.set(own);
        core
    }

    /// Returns the number of shards: a power of two.
    fn shards(&self) -> usize {
        let all_weigh_one = self.weigher.is_none();
        let entries = self.estimated_entries.or(all_weigh_one.then_some(self.capacity));
        let threads = available_parallelism().map_or(1, |threads| threads.get() as u64).next_power_of_two();
        let per_shard = if all_weigh_one { ENTRIES_PER_SHARD } else { ENOUGH_WEIGHED };
        let by_threads = 8 * threads;
        let shards = entries
            .map_or(by_threads, |entries| by_threads.max(entries / MAX_ENTRIES_PER_SHARD).min(entries / per_shard));
        1 << shards.clamp(1, MAX_SHARDS).ilog2()
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
        self.expiry.after_create = Some(Box::new(after));
        self
    }

    /// Sets the function that returns the time that an entry has left after a hit, or `None` if it
    /// then has no limit of its own. It gets the time that the entry has had left. To change
    /// nothing, return that. [`Builder::time_to_live`] limits it in any case.
    ///
    /// The function runs for each hit, in its read section, and must not wait. So that not every
    /// hit writes, a time that differs by less than 1/64 changes nothing.
    ///
    /// ```
    /// use std::time::Duration;
    /// use relativist_cache::Cache;
    ///
    /// // A hit gives an entry 10 s more, but never shortens its time.
    /// let extended = |left: Option<Duration>| left.map(|left| left.max(Duration::from_secs(10)));
    /// let cache: Cache<u32, u32> = Cache::builder()
    ///     .expire_after(|_, _| Some(Duration::from_secs(1)))
    ///     .expire_after_read(move |_, _, left| extended(left))
    ///     .build();
    /// cache.insert(1, 1);
    /// assert!(cache.remaining_lifetime(&1) <= Some(Duration::from_secs(1)));
    /// cache.get(&1);
    /// assert!(cache.remaining_lifetime(&1) > Some(Duration::from_secs(5)));
    /// ```
    pub fn expire_after_read(
        mut self,
        after: impl Fn(&K, &V, Option<Duration>) -> Option<Duration> + Send + Sync + 'static,
    ) -> Self {
        self.expiry.after_read = Some(Box::new(after));
        self
    }

    /// Sets the function that returns the time to live of a value that replaces another one. It
    /// gets the new value, and the time that the old one has left, which is `None` if it never
    /// expires. Without this function, [`Builder::expire_after`] decides.
    ///
    /// The function runs outside of locks, perhaps more than once for an insertion.
    pub fn expire_after_update(
        mut self,
        after: impl Fn(&K, &V, Option<Duration>) -> Option<Duration> + Send + Sync + 'static,
    ) -> Self {
        self.expiry.after_update = Some(Box::new(after));
        self
    }

    /// Makes [loads](Cache::get_or_insert_with) refresh entries that are older than this: the first
    /// caller that finds one calls its loader, and others get the old value meanwhile. If the
    /// loader fails, the old value stays, and is refreshed after the same time again, or until
    /// it expires.
    ///
    /// Use it with a longer [time to live](Builder::time_to_live), so that callers of popular keys
    /// do not wait for loads. [`Cache::get`] does not refresh, because it has no loader.
    ///
    /// ```
    /// use std::time::Duration;
    /// use relativist_cache::Cache;
    ///
    /// let rates: Cache<&str, f64> = Cache::builder()
    ///     .refresh_after(Duration::from_secs(60))
    ///     .time_to_live(Duration::from_secs(600))
    ///     .build();
    /// assert_eq!(rates.get_or_insert_with("EUR", || 1.1), 1.1);
    /// assert_eq!(rates.get_or_insert_with("EUR", || 1.2), 1.1); // for a minute
    /// ```
    #[doc(alias = "refresh_after_write")]
    pub fn refresh_after(mut self, age: Duration) -> Self {
        self.expiry.refresh = Some(age);
        self
    }

    /// Sets the clock by which entries expire, for tests. [`Instant::now`] by default.
    pub fn clock(mut self, clock: impl Fn() -> Instant + Send + Sync + 'static) -> Self {
        self.expiry.clock = Some(Box::new(clock));
        self
    }
}

/// Options of values in an `Arc`.
impl<K, T: ?Sized, S> Builder<K, Arc<T>, S> {
    /// Keeps entries that are in use: no insertion evicts an entry while its value has other
    /// owners, such as callers that still have a clone. So as long as somebody has a value, lookups
    /// find the same one. Costs nothing in hits.
    ///
    /// When the turn of an entry in use comes, it stays, as if it had been requested. If an
    /// insertion finds 256 entries in use in each shard, or fewer if there are no more, and no
    /// other entry, it gives up. Then the new entry is not kept, as if it were heavier than the
    /// whole cache; [`Cache::try_insert`] gives it back, and functions that load return it.
    ///
    /// Entries in use leave the cache if they expire, or if the program replaces or removes them.
    /// [`Cache::set_capacity`] evicts them if there are no others. A [`Weak`] is no owner, nor is
    /// a reference from [`Cache::get_ref`]. An entry that is found at the moment when it is evicted
    /// leaves the cache even so.
    ///
    /// ```
    /// use std::sync::Arc;
    /// use relativist_cache::Cache;
    ///
    /// let pools: Cache<u32, Arc<str>> = Cache::builder().capacity(2).keep_in_use().build();
    /// let used = pools.get_or_insert_with(1, || "a pool".into());
    /// (2..100).for_each(|n| pools.insert(n, "another pool".into()));
    /// assert!(pools.get(&1).is_some_and(|pool| Arc::ptr_eq(&pool, &used)));
    ///
    /// let also_used = pools.get_or_insert_with(100, || "a pool".into());
    /// assert!(pools.try_insert(101, "no room".into()).is_err());
    /// drop(also_used);
    /// assert!(pools.try_insert(101, "a pool".into()).is_ok());
    /// ```
    #[doc(alias = "is_pinned")]
    pub fn keep_in_use(mut self) -> Self {
        self.is_in_use = Some(|value| Arc::strong_count(value) > 1);
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
