//! A bounded cache whose hits are wait-free: [`Cache`].
//!
//! # Eviction
//!
//! The policy is that of this project's server ([design](Cache#which-entries-are-evicted)), for
//! single entries: GreedyDual with probation, where a hit only sets a mark. With it go *ghosts*,
//! the hashes of new entries that were evicted lately, in 32 bits each.
//!
//! # Memory
//!
//! An entry is one allocation: 48 bytes plus key and value (a `u64` each: 64, a cache line), and 16
//! more if entries may expire. The buckets take 8 to 32 bytes per entry, and ghosts 5 in a cache
//! that is full.
//!
//! # Limits
//!
//! * Keys and values are `Send + Sync + 'static`, because they are dropped after a grace period, on
//!   any thread. Evicted values that await it do not count; [`relativist_rcu::MAX_DEFERRED`]
//!   says how many there may be.
//! * A hit returns a clone, or needs a guard. Values that are expensive to clone belong into an
//!   `Arc`.
//! * Insertions that evict take the lock of a shard, and a few cache misses. If they are a quarter
//!   of all operations, a cache with locks, like `quick_cache`, may be faster.

#[cfg(test)]
use relativist_testing as _;

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;

mod background;
mod builder;
mod compute;
mod core;
mod entry;
mod expiry;
mod flight;
mod ghosts;
mod incoming;
mod limit;
mod load;
mod nodes;
mod queues;
mod stats;

use std::fmt;
use std::hash::{BuildHasher, Hash, RandomState};
use std::iter::FusedIterator;
use std::panic::{RefUnwindSafe, UnwindSafe};

use equivalent::Equivalent;
pub use relativist_rcu::{Guard, read};

pub use self::builder::Builder;
pub use self::compute::{Change, ComputeError};
use self::core::{AnyCore, Core, with_core};
use self::entry::{Deadlines, Entry, Lifespan, Unlimited};
use self::expiry::Purpose;
use self::flight::Flights;
pub use self::stats::Stats;
use relativist_table as table;

/// A bounded cache. Hits are wait-free, and write nothing that threads share.
///
/// ```
/// use std::sync::Arc;
/// use std::time::Duration;
///
/// use relativist_cache::Cache;
///
/// let pages: Cache<String, Arc<[u8]>> = Cache::builder()
///     .capacity(64 << 20) // bytes, because of the weigher
///     .weigher(|url: &String, page: &Arc<[u8]>| (url.len() + page.len()) as u64)
///     .time_to_live(Duration::from_secs(60))
///     .build();
///
/// fn render(url: &str) -> Arc<[u8]> {
///     url.as_bytes().into()
/// }
/// let page = pages.get_or_insert_with("/".into(), || render("/"));
/// assert_eq!(&*page, b"/");
/// assert_eq!(pages.get("/"), Some(page));
/// ```
///
/// Threads share a cache by reference, or in an `Arc`. It is not `Clone`.
///
/// # The limit
///
/// The sum of the weights of all entries never exceeds the capacity, however keys hash, and not
/// even while [`set_capacity`](Cache::set_capacity) changes it. An entry may be as heavy as
/// the whole cache. A heavier one is refused, and [given back](TooHeavy). The weight of an entry is
/// 1 without a [weigher](Builder::weigher), and never changes while the entry is in the cache.
///
/// # Which entries are evicted
///
/// A new entry is *on probation*. If it is not requested again before its turn to be evicted comes,
/// it goes; otherwise it becomes *protected*, for many times as long. Each time an entry's turn
/// comes, it stays if it was requested since the last time, or was requested often before. Of two
/// entries that are requested equally often, the lighter one stays longer, by about the root of the
/// ratio of their weights. The hash of an entry that fails its probation is remembered for a while.
/// If the key comes back in this time, it is protected at once.
///
/// So entries that are requested once, as in a scan, do not displace those that are in use, and
/// entries that are no longer requested leave in the end.
///
/// # Expiry
///
/// Entries may expire [some time after their insertion](Builder::time_to_live), [after their last
/// hit](Builder::time_to_idle), or at a [time of their own](Builder::expire_after). An expired
/// entry is never returned. A background thread, one per process, frees it, and so does an
/// insertion that reaches it when it evicts. Only lookups of entries that can expire read the
/// clock.
///
/// # Costs and progress
///
/// | operation | progress | costs |
/// |---|---|---|
/// | hit | wait-free, apart from `clone` | a lookup in a hash table; the first hit after a look of the eviction sets a mark |
/// | miss | wait-free | a lookup |
/// | insertion | blocks on updates of the same bucket and evictions from the same shard | an allocation and at most two short locks; in most cases one or two more for each entry that it evicts |
/// | eviction | the same | looks at one entry on average, and at 257 at most |
/// | removal | the same, and wait-free if the key is absent and no thread loads it | a lookup, two short locks, a deferred free |
/// | [`compute`](Cache::compute) | as insertions and removals; other updates of the key make it start again | a lookup and an insertion or a removal for each attempt |
/// | [load](Cache::get_or_insert_with) | blocks while another thread loads the same key | a miss, the loader, an insertion |
/// | `invalidate_all`, `remove_expired` | as removals | proportional to the entries |
///
/// # Async tasks
///
/// Tasks may call `get`, `insert` and `remove` directly: they do not wait for I/O, and `insert` and
/// `remove` wait for readers only if one stays so long that too many removed entries cannot be
/// freed. [`Cache::get_or_insert_async`] waits without blocking the thread, on any executor.
///
/// # Panics in keys, values and closures
///
/// After a panic in `Hash`, `Eq`, `Clone`, a destructor, or a function that was passed to the
/// builder or as a loader, the cache stays usable and its weight exact, and no key stays locked.
/// A panic in the [function for evicted entries](Builder::on_evict) does not reach the caller.
/// `Eq` of keys may run under a bucket's lock. It may look keys up, but must not update the same
/// cache, which panics, and must not wait for a thread that does. Nor should it update another
/// cache: while a loaded value is inserted, this panics if that cache loads the key.
pub struct Cache<K, V, S = RandomState> {
    core: AnyCore<K, V, S>,
}

// Functions of the user may panic, but run outside of locks, and leave the cache consistent.
impl<K, V, S> UnwindSafe for Cache<K, V, S> {}
impl<K, V, S> RefUnwindSafe for Cache<K, V, S> {}

/// Why an entry was evicted; see [`Builder::on_evict`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Eviction {
    /// To make room.
    Capacity,
    /// Because it had expired.
    Expired,
}

/// The error for an entry that is heavier than the cache. Contains the entry.
#[derive(Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct TooHeavy<K, V> {
    /// The key.
    pub key: K,
    /// The value.
    pub value: V,
    /// The weight of the entry.
    pub weight: u64,
}

impl<K, V> fmt::Debug for TooHeavy<K, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TooHeavy").field("weight", &self.weight).finish_non_exhaustive()
    }
}

impl<K, V> fmt::Display for TooHeavy<K, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "an entry of weight {} is heavier than the cache", self.weight)
    }
}

impl<K, V> std::error::Error for TooHeavy<K, V> {}

impl<K, V> Cache<K, V>
where
    K: Hash + Eq + Send + Sync + 'static,
    V: Send + Sync + 'static,
{
    /// Creates a cache for this number of entries. [`Cache::builder`] has more options.
    ///
    /// ```
    /// use relativist_cache::Cache;
    ///
    /// let squares: Cache<u64, u64> = Cache::new(1000);
    /// assert_eq!(squares.get_or_insert_with(12, || 12 * 12), 144);
    /// assert_eq!(squares.get(&12), Some(144));
    /// ```
    pub fn new(capacity: u64) -> Self {
        Self::builder().capacity(capacity).build()
    }
}

impl<K, V> Cache<K, V> {
    /// Returns a [`Builder`].
    pub fn builder() -> Builder<K, V> {
        Builder::new()
    }
}

impl<K, V, S> Cache<K, V, S> {
    fn of(core: AnyCore<K, V, S>) -> Self {
        Self { core }
    }

    /// Returns the number of entries, including expired ones that were not freed yet. It is exact
    /// if no thread updates the cache meanwhile.
    pub fn len(&self) -> usize {
        with_core!(self, core => core.map.table.len())
    }

    /// Returns whether the cache has no entries; see [`Cache::len`].
    pub fn is_empty(&self) -> bool {
        with_core!(self, core => core.map.table.is_empty())
    }

    /// Returns the sum of the weights of all entries, including those that other threads are about
    /// to insert. It never exceeds the [capacity](Cache::capacity). While another thread changes
    /// the capacity, it may include the difference between the two.
    pub fn weight(&self) -> u64 {
        with_core!(self, core => core.weight())
    }

    /// Returns the maximum of the [weight](Cache::weight).
    pub fn capacity(&self) -> u64 {
        with_core!(self, core => core.capacity())
    }

    /// Returns the hasher.
    pub fn hasher(&self) -> &S {
        with_core!(self, core => &core.map.hasher)
    }

    /// Returns statistics. Takes the lock of each shard for a moment.
    ///
    /// ```
    /// use relativist_cache::Cache;
    ///
    /// let cache: Cache<u32, u32> = Cache::builder().capacity(1).record_stats().build();
    /// for n in [1, 1, 2] {
    ///     cache.get_or_insert_with(n, || n);
    /// }
    /// let stats = cache.stats();
    /// assert_eq!((stats.hits, stats.misses, stats.loads, stats.evictions), (1, 2, 2, 1));
    /// ```
    pub fn stats(&self) -> Stats {
        with_core!(self, core => core.stats())
    }
}

impl<K, V, S> Cache<K, V, S>
where
    K: Hash + Eq + Send + Sync + 'static,
    V: Send + Sync + 'static,
    S: BuildHasher,
{
    /// Returns a clone of the value of a key. Wait-free, apart from `clone`, which runs in the read
    /// section of the lookup.
    ///
    /// Marks the entry as visited, so that it is evicted later. The mark is set once between two
    /// looks of the eviction; other hits only read what threads share.
    ///
    /// If clones are expensive, store the values in an `Arc`, or use [`Cache::get_ref`].
    #[inline]
    pub fn get<Q: Hash + Equivalent<K> + ?Sized>(&self, key: &Q) -> Option<V>
    where
        V: Clone,
    {
        self.get_hashed(self.hash(key), key)
    }

    #[inline(always)]
    fn get_hashed<Q: Equivalent<K> + ?Sized>(&self, hash: table::Hash, key: &Q) -> Option<V>
    where
        V: Clone,
    {
        self.visit(hash, key, &read()).cloned()
    }

    /// Returns a reference to the value of a key, which stays valid as long as the guard.
    /// Wait-free. Otherwise like [`Cache::get`].
    ///
    /// ```
    /// let names = relativist_cache::Cache::new(1000);
    /// names.insert(1, String::from("one"))?;
    /// let guard = relativist_cache::read();
    /// let name: Option<&String> = names.get_ref(&1, &guard);
    /// assert_eq!(name.map(|name| name.len()), Some(3));
    /// # Ok::<(), relativist_cache::TooHeavy<u32, String>>(())
    /// ```
    #[inline]
    pub fn get_ref<'g, Q: Hash + Equivalent<K> + ?Sized>(&'g self, key: &Q, guard: &'g Guard) -> Option<&'g V> {
        self.visit(self.hash(key), key, guard)
    }

    #[inline(always)]
    fn visit<'g, Q: Equivalent<K> + ?Sized>(&'g self, hash: table::Hash, key: &Q, guard: &'g Guard) -> Option<&'g V> {
        match &self.core {
            AnyCore::Plain(core) => core.visit(hash, key, guard),
            AnyCore::Expiring(core) => core.visit_expiring(hash, key, guard),
        }
    }

    /// Returns a clone of the value of a key, like [`Cache::get`], but neither marks the entry nor
    /// counts the lookup.
    pub fn peek<Q: Hash + Equivalent<K> + ?Sized>(&self, key: &Q) -> Option<V>
    where
        V: Clone,
    {
        self.peek_hashed(self.hash(key), key)
    }

    fn peek_hashed<Q: Equivalent<K> + ?Sized>(&self, hash: table::Hash, key: &Q) -> Option<V>
    where
        V: Clone,
    {
        let guard = read();
        with_core!(self, core => core.find(hash, key, Purpose::Peek, &guard).map(|node| node.value.value.clone()))
    }

    /// Returns whether the key is in the cache and has not expired. Wait-free. Neither marks the
    /// entry nor counts the lookup.
    pub fn contains<Q: Hash + Equivalent<K> + ?Sized>(&self, key: &Q) -> bool {
        let guard = read();
        with_core!(self, core => core.find(core.map.hash(key), key, Purpose::Peek, &guard).is_some())
    }

    /// Sets the value of a key. Evicts other entries if there is no room. The previous value of the
    /// key is found until the new one replaces it, unless another insertion evicts it meanwhile.
    ///
    /// If the key is being loaded, the value that is loaded does not replace this one, and those
    /// that wait for the load look the key up again.
    ///
    /// Blocks on other updates of the same bucket and on evictions from the same shard, and if all
    /// of the capacity belongs to entries that other threads are inserting or removing at this
    /// moment. Costs an allocation, at most two short locks, and in most cases one or two more for
    /// each evicted entry.
    ///
    /// # Errors
    ///
    /// Returns the entry if it is heavier than the whole cache. The previous value of the key is
    /// removed, because it is out of date.
    ///
    /// # Panics
    ///
    /// Panics if it is called by `Eq` of a key that is being compared in the same cache under the
    /// lock of a bucket, or in any cache while a loaded value is inserted there and this cache
    /// loads the key, or if this thread has [entries](relativist_table::Entry) of 8 tables. Panics
    /// in the functions of the [`Builder`], apart from [`Builder::on_evict`], and in `Hash` and
    /// `Eq` of keys reach the caller; the cache stays usable, and its weight exact.
    ///
    /// ```
    /// use relativist_cache::Cache;
    ///
    /// let cache: Cache<&str, Vec<u8>> = Cache::builder().capacity(100).weigher(|_, value: &Vec<u8>| value.len() as u64).build();
    /// assert!(cache.insert("fits", vec![0; 60]).is_ok());
    /// let refused = cache.insert("too heavy", vec![0; 101]).unwrap_err();
    /// assert_eq!((refused.key, refused.value.len(), refused.weight), ("too heavy", 101, 101));
    /// assert!(cache.insert("fits now", vec![0; 50]).is_ok()); // evicts the other entry
    /// assert_eq!((cache.len(), cache.weight()), (1, 50));
    /// ```
    pub fn insert(&self, key: K, value: V) -> Result<(), TooHeavy<K, V>> {
        with_core!(self, core => core.set(key, value))
    }

    /// Removes a key, and returns a clone of its value. Wait-free if the key is absent and no
    /// thread loads it; otherwise blocks on other updates of the same bucket.
    ///
    /// If the key is being loaded, the value that is loaded is not kept, and those that wait for
    /// the load look the key up again.
    ///
    /// # Panics
    ///
    /// See [`Cache::insert`].
    pub fn remove<Q: Hash + Equivalent<K> + ?Sized>(&self, key: &Q) -> Option<V>
    where
        V: Clone,
    {
        let guard = read();
        with_core!(self, core => {
            let entry = core.invalidate(key, &guard)?;
            core.is_alive(entry, Purpose::Peek).then(|| entry.value.clone())
        })
    }

    /// Removes a key, like [`Cache::remove`], but returns nothing: `V` need not be `Clone`.
    ///
    /// # Panics
    ///
    /// See [`Cache::insert`].
    pub fn invalidate<Q: Hash + Equivalent<K> + ?Sized>(&self, key: &Q) {
        let guard = read();
        with_core!(self, core => _ = core.invalidate(key, &guard));
    }

    #[inline(always)]
    fn hash<Q: Hash + ?Sized>(&self, key: &Q) -> table::Hash {
        with_core!(self, core => core.map.hash(key))
    }

    fn flights(&self) -> &Flights<K, V> {
        with_core!(self, core => &core.flights)
    }

    /// Removes all entries, one by one. Entries that are inserted meanwhile may stay. Keys that are
    /// being loaded are treated as by [`Cache::remove`].
    ///
    /// Takes time proportional to the number of entries. Lookups are not affected.
    ///
    /// # Panics
    ///
    /// See [`Cache::insert`].
    pub fn invalidate_all(&self) {
        with_core!(self, core => {
            core.cancel_all_loads();
            core.clear();
        });
    }

    /// Changes the capacity. If it becomes smaller, evicts entries until the rest fits, and lowers
    /// the capacity step by step with the weight.
    ///
    /// # Panics
    ///
    /// See [`Cache::insert`].
    ///
    /// ```
    /// let cache = relativist_cache::Cache::new(100);
    /// (0..100).for_each(|n| cache.insert(n, n).unwrap());
    /// cache.set_capacity(10);
    /// assert_eq!(cache.len(), 10);
    /// ```
    pub fn set_capacity(&self, capacity: u64) {
        with_core!(self, core => core.set_capacity(capacity));
    }

    /// Frees the entries that have expired. A background thread does this too, from time to time.
    ///
    /// Takes time proportional to the number of entries. Lookups are not affected.
    pub fn remove_expired(&self) {
        with_core!(self, core => core.remove_expired());
    }

    /// Iterates over the entries that have not expired, in an arbitrary order. Does not mark them
    /// as visited.
    ///
    /// An entry that is in the cache throughout is seen exactly once; one that is inserted or
    /// removed meanwhile may be seen or not. Each step is wait-free, except for the empty buckets
    /// that it passes.
    ///
    /// ```
    /// let cache = relativist_cache::Cache::new(100);
    /// (0..10).for_each(|n| cache.insert(n, n * n).unwrap());
    /// let guard = relativist_cache::read();
    /// assert_eq!(cache.iter(&guard).map(|(_, square)| square).sum::<i32>(), 285);
    /// ```
    pub fn iter<'g>(&'g self, guard: &'g Guard) -> Iter<'g, K, V, S> {
        let entries = match &self.core {
            AnyCore::Plain(core) => AnyEntries::Plain(Entries::new(core, guard)),
            AnyCore::Expiring(core) => AnyEntries::Expiring(Entries::new(core, guard)),
        };
        Iter { entries }
    }
}

/// An iterator over the entries of a cache; see [`Cache::iter`].
pub struct Iter<'g, K, V, S> {
    entries: AnyEntries<'g, K, V, S>,
}

enum AnyEntries<'g, K, V, S> {
    Plain(Entries<'g, K, V, S, Unlimited>),
    Expiring(Entries<'g, K, V, S, Deadlines>),
}

struct Entries<'g, K, V, S, L> {
    core: &'g Core<K, V, S, L>,
    all: nodes::Iter<'g, K, Entry<V, L>>,
}

impl<'g, K, V, S, L: Lifespan> Entries<'g, K, V, S, L> {
    fn new(core: &'g Core<K, V, S, L>, guard: &'g Guard) -> Self
    where
        K: Hash + Eq,
        S: BuildHasher,
    {
        Self { core, all: core.map.iter(guard) }
    }

    fn next(&mut self) -> Option<(&'g K, &'g V)> {
        let core = self.core;
        let node = self.all.find(|node| core.is_alive(&node.value, Purpose::Peek))?;
        Some((&node.key, &node.value.value))
    }
}

impl<'g, K, V, S> Iterator for Iter<'g, K, V, S> {
    type Item = (&'g K, &'g V);

    fn next(&mut self) -> Option<Self::Item> {
        match &mut self.entries {
            AnyEntries::Plain(entries) => entries.next(),
            AnyEntries::Expiring(entries) => entries.next(),
        }
    }
}

impl<K, V, S> FusedIterator for Iter<'_, K, V, S> {}

// As for `Cache`. Keys and values are seen by reference.
impl<K: RefUnwindSafe, V: RefUnwindSafe, S> UnwindSafe for Iter<'_, K, V, S> {}
impl<K: RefUnwindSafe, V: RefUnwindSafe, S> RefUnwindSafe for Iter<'_, K, V, S> {}

impl<K, V, S> fmt::Debug for Iter<'_, K, V, S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Iter")
    }
}

impl<K, V, S> fmt::Debug for Cache<K, V, S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Cache")
            .field("len", &self.len())
            .field("weight", &self.weight())
            .field("capacity", &self.capacity())
            .finish_non_exhaustive()
    }
}
