//! A bounded cache for Rust programs, whose hits take no lock: [`Cache`].
//!
//! ```
//! use relativist_cache::Cache;
//!
//! let squares: Cache<u64, u64> = Cache::new(1000);
//! assert_eq!(squares.get_or_insert_with(12, || 12 * 12), 144);
//! assert_eq!(squares.get(&12), Some(144));
//! ```
//!
//! # Memory
//!
//! An entry is an allocation of 8 bytes plus key and value (a `u64` each: 24), with 24 more if
//! entries may expire, and 40 to 50 bytes of what eviction knows about it. The tables take 14 to 30
//! bytes per entry, and the hashes of entries that were evicted lately 5 in a cache that is full.
//!
//! # Limits
//!
//! * Keys and values are `Send + Sync + 'static`, because they are dropped after a grace period, on
//!   any thread. [How many may wait for that](Cache#values-that-readers-may-still-have) is bounded.
//! * A hit returns a clone, or needs a guard. Values that are expensive to clone belong into an
//!   `Arc`.

#[cfg(test)]
use relativist_testing as _;

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;

mod array;
mod background;
mod builder;
mod cause;
mod compute;
mod core;
mod expiry;
mod flight;
mod ghosts;
mod iter;
mod key;
mod lead;
mod limit;
mod load;
#[cfg(all(test, relativist_loom))]
mod loom_tests;
mod node;
mod queues;
mod shard;
mod stats;
mod table;
mod update;

use std::fmt;
use std::hash::{BuildHasher, Hash, RandomState};
use std::panic::{RefUnwindSafe, UnwindSafe};
use std::sync::Arc;
use std::time::Duration;

use equivalent::Equivalent;
use relativist_bucket as bucket;
pub use relativist_rcu::{Guard, read};

pub use self::builder::Builder;
pub use self::cause::RemovalCause;
use self::core::Core;
use self::expiry::Purpose;
pub use self::iter::Iter;
use self::node::{Deadlines, Unlimited};
pub use self::stats::Stats;

/// A bounded cache. Hits are wait-free, and write at most a mark in their entry that is not set yet
/// (and the entry's deadline now and then, if hits [move it](Builder::time_to_idle)).
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
/// This is a handle: its clones are the same cache. Clone it into each thread or task.
///
/// # The limit
///
/// The sum of the weights of all entries never exceeds the capacity, however keys hash, and not
/// even while [`set_capacity`](Cache::set_capacity) changes it. An entry may be as heavy as
/// the whole cache. A heavier one is not kept; [`try_insert`](Cache::try_insert) gives it back. The
/// weight of an entry is 1 without a [weigher](Builder::weigher), and never changes while the entry
/// is in the cache.
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
/// So entries that are requested once, as in a scan, do not displace those that are requested
/// often, and entries that are no longer requested leave in the end.
///
/// Values in an `Arc` may [stay as long as the program has them](Builder::keep_in_use).
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
/// | insertion | blocks on updates of the same shard | a lookup, an allocation and a short lock |
/// | eviction | under the lock of the insertion | looks at one entry, and at up to two more for each hit since the last one |
/// | removal | as insertions | a lookup and a short lock |
/// | [`compute`](Cache::compute) | as insertions; other updates of the key make it start again | a lookup and an insertion or a removal for each attempt |
/// | [load](Cache::get_or_insert_with) | blocks while another thread loads the same key | a miss, the loader, an insertion |
/// | [`invalidate_all`](Cache::invalidate_all) | as insertions | constant |
/// | [`retain`](Cache::retain), [`iter`](Cache::iter) | as removals; a step of `iter` is wait-free | proportional to the entries |
///
/// An eviction looks at 257 entries of a shard at most (and at 256 [in
/// use](Builder::keep_in_use)). With a weigher and few entries in each shard, it may go from shard
/// to shard 256 times.
///
/// There are up to 64 shards, by the numbers of processors and entries. No update pays for the
/// resize of a table: each moves a few buckets.
///
/// # Values that readers may still have
///
/// A value that has left the cache is dropped when no reader can have a reference to it. Until
/// then its weight does not count towards the capacity. The sum of these weights is bounded: above
/// a quarter of the capacity (at least 1 MiB with a weigher, and 1024 entries without), an update
/// waits until readers have left, and [`Stats::stalls`] counts it. Only updates of shards that have
/// more than their share wait, so the sum may reach twice that. (What a thread is dropping at the
/// moment does not count.) A thread that itself holds a [guard](read) cannot wait, and may exceed
/// this by what it replaces and removes meanwhile. So do not hold a guard while you wait for
/// another thread that updates a cache. The background thread does not wait either, so entries
/// that expire or were invalidated may exceed this, too.
///
/// # Async tasks
///
/// Tasks may call all functions directly, except for those that call a loader: none waits for I/O,
/// and updates wait for readers only as said above. [`Cache::get_or_insert_async`] and the other
/// async functions wait for another loader without blocking the thread, on any executor.
///
/// # Panics in keys, values and closures
///
/// After a panic in `Hash`, `Eq`, `Clone`, a destructor, or a function that was passed to the
/// builder or as a loader, the cache stays usable and its weight exact, and no key stays locked. No
/// code of the user runs under a lock, so all of it may use the cache. A panic in the [function for
/// removed entries](Builder::on_removal) or in the destructor of a removed entry does not reach the
/// caller.
pub struct Cache<K, V, S = RandomState> {
    core: AnyCore<K, V, S>,
}

/// The core of a cache whose entries can expire, or of one whose entries cannot. They differ in the
/// size of an entry.
enum AnyCore<K, V, S> {
    Plain(Arc<Core<K, V, S, Unlimited>>),
    Expiring(Arc<Core<K, V, S, Deadlines>>),
}

/// Evaluates an expression with the core of a cache, whichever kind it is.
macro_rules! with_core {
    ($cache:expr, $core:ident => $result:expr) => {
        match &$cache.core {
            $crate::AnyCore::Plain($core) => $result,
            $crate::AnyCore::Expiring($core) => $result,
        }
    };
}

use with_core;

impl<K, V, S> Clone for Cache<K, V, S> {
    fn clone(&self) -> Self {
        let core = match &self.core {
            AnyCore::Plain(core) => AnyCore::Plain(Arc::clone(core)),
            AnyCore::Expiring(core) => AnyCore::Expiring(Arc::clone(core)),
        };
        Self { core }
    }
}

// Functions of the user may panic, but run outside of locks, and leave the cache consistent.
impl<K, V, S> UnwindSafe for Cache<K, V, S> {}
impl<K, V, S> RefUnwindSafe for Cache<K, V, S> {}

/// The error for an entry for which a cache has no room: it is heavier than the whole cache, or
/// than what [entries in use](Builder::keep_in_use) leave of it. Contains the entry.
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
        write!(f, "the cache has no room for an entry of weight {}", self.weight)
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
    /// Returns the number of entries, including expired ones that were not freed yet. It is exact
    /// if no thread updates the cache meanwhile.
    #[doc(alias = "entry_count")]
    pub fn len(&self) -> usize {
        usize::try_from(with_core!(self, core => core.len())).unwrap_or(usize::MAX)
    }

    /// Returns whether the cache has no entries; see [`Cache::len`].
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the sum of the weights of all entries. It never exceeds the
    /// [capacity](Cache::capacity), and is exact if no thread updates the cache meanwhile.
    #[doc(alias = "weighted_size")]
    pub fn weight(&self) -> u64 {
        with_core!(self, core => core.weight())
    }

    /// Returns the maximum of the [weight](Cache::weight): `u64::MAX` if there is no limit.
    #[doc(alias = "max_capacity")]
    #[doc(alias = "policy")]
    pub fn capacity(&self) -> u64 {
        with_core!(self, core => core.limit.capacity())
    }

    /// Returns the [time to live](Builder::time_to_live) of all entries.
    #[doc(alias = "policy")]
    pub fn time_to_live(&self) -> Option<Duration> {
        with_core!(self, core => core.expiry.as_ref()?.live)
    }

    /// Returns the [time to idle](Builder::time_to_idle) of all entries.
    #[doc(alias = "policy")]
    pub fn time_to_idle(&self) -> Option<Duration> {
        with_core!(self, core => core.expiry.as_ref()?.idle)
    }

    /// Returns the hasher.
    pub fn hasher(&self) -> &S {
        with_core!(self, core => &core.hasher)
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
        self.visit(self.hash(key), key, &read()).cloned()
    }

    /// Returns a reference to the value of a key, which stays valid as long as the guard.
    /// Wait-free. Otherwise like [`Cache::get`].
    ///
    /// ```
    /// let names = relativist_cache::Cache::new(1000);
    /// names.insert(1, String::from("one"));
    /// let guard = relativist_cache::read();
    /// let name: Option<&String> = names.get_ref(&1, &guard);
    /// assert_eq!(name.map(|name| name.len()), Some(3));
    /// ```
    #[inline]
    pub fn get_ref<'g, Q: Hash + Equivalent<K> + ?Sized>(&'g self, key: &Q, guard: &'g Guard) -> Option<&'g V> {
        self.visit(self.hash(key), key, guard)
    }

    #[inline(always)]
    fn visit<'g, Q: Equivalent<K> + ?Sized>(&'g self, hash: bucket::Hash, key: &Q, guard: &'g Guard) -> Option<&'g V> {
        match &self.core {
            AnyCore::Plain(core) => core.visit(hash, key, guard).map(|node| &node.value),
            AnyCore::Expiring(core) => visit_expiring(core, hash, key, guard),
        }
    }

    /// Returns clones of the values of several keys, in their order. Looks the keys up as
    /// [`Cache::get`] does, one after the other.
    ///
    /// ```
    /// let names = relativist_cache::Cache::new(1000);
    /// names.insert(1, "one");
    /// assert_eq!(names.get_many([&1, &2]), [Some("one"), None]);
    /// ```
    pub fn get_many<'q, Q: Hash + Equivalent<K> + ?Sized + 'q>(
        &self,
        keys: impl IntoIterator<Item = &'q Q>,
    ) -> Vec<Option<V>>
    where
        V: Clone,
    {
        keys.into_iter().map(|key| self.get(key)).collect()
    }

    /// Returns a clone of the value of a key, like [`Cache::get`], but neither marks the entry nor
    /// counts the lookup.
    pub fn peek<Q: Hash + Equivalent<K> + ?Sized>(&self, key: &Q) -> Option<V>
    where
        V: Clone,
    {
        let (hash, guard) = (self.hash(key), read());
        with_core!(self, core => core.find(hash, key, Purpose::Peek, &guard).map(|node| node.value.clone()))
    }

    /// Returns whether the key is in the cache and has not expired. Wait-free. Neither marks the
    /// entry nor counts the lookup.
    #[doc(alias = "contains")]
    pub fn contains_key<Q: Hash + Equivalent<K> + ?Sized>(&self, key: &Q) -> bool {
        let (hash, guard) = (self.hash(key), read());
        with_core!(self, core => core.find(hash, key, Purpose::Peek, &guard).is_some())
    }

    /// Returns after which time the entry of a key expires, if there is no hit until then:
    /// [`Duration::MAX`] if it never does. `None` if the key is not in the cache.
    ///
    /// ```
    /// use std::time::Duration;
    /// use relativist_cache::Cache;
    ///
    /// let cache = Cache::builder().time_to_live(Duration::from_secs(60)).build();
    /// cache.insert("a", 1);
    /// assert!(cache.remaining_lifetime("a") <= Some(Duration::from_secs(60)));
    /// assert_eq!(cache.remaining_lifetime("b"), None);
    /// ```
    pub fn remaining_lifetime<Q: Hash + Equivalent<K> + ?Sized>(&self, key: &Q) -> Option<Duration> {
        let (hash, guard) = (self.hash(key), read());
        with_core!(self, core => {
            let node = core.find(hash, key, Purpose::Peek, &guard)?;
            let left = core.expiry.as_ref().and_then(|expiry| expiry.time_left(node));
            Some(left.unwrap_or(Duration::MAX))
        })
    }

    /// Sets the value of a key. Evicts other entries if there is no room. The previous value of the
    /// key is found until the new one replaces it, unless another insertion evicts it meanwhile.
    ///
    /// An entry that is heavier than the whole cache is dropped, and so is one for which entries
    /// [in use](Builder::keep_in_use) leave no room. The previous value of the key is removed even
    /// so, because it is out of date. [`Cache::try_insert`] gives the entry back.
    ///
    /// If the key is being loaded, the value that is loaded does not replace this one, and those
    /// that wait for the load look the key up again.
    ///
    /// Blocks on other updates of the same shard, and if all of the capacity belongs to entries
    /// that other threads are inserting or removing at this moment. Costs a lookup, an allocation
    /// and a short lock.
    ///
    /// # Panics
    ///
    /// Panics in the functions of the [`Builder`], apart from [`Builder::on_removal`], and in
    /// `Hash` and `Eq` of keys reach the caller; the cache stays usable, and its weight exact.
    pub fn insert(&self, key: K, value: V) {
        // It is documented that the entry is dropped.
        _ = self.try_insert(key, value);
    }

    /// Sets the value of a key, like [`Cache::insert`], but gives an entry back that is too heavy.
    ///
    /// # Errors
    ///
    /// Returns the entry if it is heavier than the whole cache, or [entries in
    /// use](Builder::keep_in_use) leave no room for it. The previous value of the key is removed,
    /// because it is out of date.
    ///
    /// # Panics
    ///
    /// See [`Cache::insert`].
    ///
    /// ```
    /// use relativist_cache::Cache;
    ///
    /// let cache: Cache<&str, Vec<u8>> = Cache::builder().capacity(100).weigher(|_, value: &Vec<u8>| value.len() as u64).build();
    /// assert!(cache.try_insert("fits", vec![0; 60]).is_ok());
    /// let refused = cache.try_insert("too heavy", vec![0; 101]).unwrap_err();
    /// assert_eq!((refused.key, refused.value.len(), refused.weight), ("too heavy", 101, 101));
    /// ```
    pub fn try_insert(&self, key: K, value: V) -> Result<(), TooHeavy<K, V>> {
        with_core!(self, core => core.insert(key, value))
    }

    /// Returns a clone of the value of a key. If the key is missing, inserts this value. To compute
    /// the value only if it is missing, use [`Cache::get_or_insert_with`].
    ///
    /// ```
    /// let first = relativist_cache::Cache::new(1000);
    /// assert_eq!(first.get_or_insert("winner", "Ann"), "Ann");
    /// assert_eq!(first.get_or_insert("winner", "Bob"), "Ann");
    /// ```
    pub fn get_or_insert(&self, key: K, value: V) -> V
    where
        K: Clone,
        V: Clone,
    {
        self.get_or_insert_with(key, || value)
    }

    /// Removes a key, and returns a clone of its value, unless it had expired.
    ///
    /// If the key is being loaded, the value that is loaded is not kept, and those that wait for
    /// the load look the key up again. A load that begins after this has returned gets no older
    /// value. Blocks on other updates of the same shard.
    ///
    /// # Panics
    ///
    /// See [`Cache::insert`].
    pub fn remove<Q: Hash + Equivalent<K> + ?Sized>(&self, key: &Q) -> Option<V>
    where
        V: Clone,
    {
        let hash = self.hash(key);
        with_core!(self, core => {
            let mut update = core.update();
            // SAFETY: it stays alive as long as the update.
            let node = unsafe { update.remove(hash, key)?.as_ref() };
            core.is_alive(node, Purpose::Peek).then(|| node.value.clone())
        })
    }

    /// Removes a key, like [`Cache::remove`], but returns nothing: `V` need not be `Clone`.
    ///
    /// # Panics
    ///
    /// See [`Cache::insert`].
    pub fn invalidate<Q: Hash + Equivalent<K> + ?Sized>(&self, key: &Q) {
        let hash = self.hash(key);
        with_core!(self, core => _ = core.update().remove(hash, key));
    }

    /// Removes a key if `condition` returns true for its value, in one atomic step. Returns a clone
    /// of the value that was removed.
    ///
    /// `condition` runs outside of locks, and again if the value was replaced meanwhile. It runs in
    /// a read section: it must not wait for a thread that updates a cache.
    ///
    /// # Panics
    ///
    /// See [`Cache::insert`].
    ///
    /// ```
    /// let cache = relativist_cache::Cache::new(1000);
    /// cache.insert("a", 1);
    /// assert_eq!(cache.remove_if("a", |_, value| *value > 1), None);
    /// assert_eq!(cache.remove_if("a", |_, value| *value == 1), Some(1));
    /// ```
    pub fn remove_if<Q: Hash + Equivalent<K> + ?Sized>(
        &self,
        key: &Q,
        mut condition: impl FnMut(&K, &V) -> bool,
    ) -> Option<V>
    where
        V: Clone,
    {
        let hash = self.hash(key);
        with_core!(self, core => {
            loop {
                let mut update = core.update();
                // SAFETY: it stays alive as long as the update.
                let node = unsafe { update.compare(hash, key).found?.as_ref() };
                if !core.is_alive(node, Purpose::Peek) || !condition(&node.key, &node.value) {
                    return None;
                }
                let value = node.value.clone();
                if update.remove_exactly(core.shard_of(hash), node.into(), RemovalCause::Explicit, true) {
                    return Some(value);
                }
            }
        })
    }

    /// Removes the entries for which `keep` returns false, one by one. Entries that are inserted
    /// meanwhile may not be seen, and loads of absent keys go on.
    ///
    /// `keep` runs outside of locks, in a read section: it must not wait for a thread that updates
    /// a cache. An entry that is replaced meanwhile stays.
    ///
    /// # Panics
    ///
    /// See [`Cache::insert`].
    ///
    /// ```
    /// let pages = relativist_cache::Cache::new(1000);
    /// pages.extend([("/news/1", 200), ("/about", 200)]);
    /// pages.retain(|url, _| !url.starts_with("/news/"));
    /// assert_eq!(pages.len(), 1);
    /// ```
    #[doc(alias = "invalidate_entries_if")]
    pub fn retain(&self, mut keep: impl FnMut(&K, &V) -> bool) {
        with_core!(self, core => {
            core.remove_all(RemovalCause::Explicit, |node| {
                core.is_alive(node, Purpose::Peek) && !keep(&node.key, &node.value)
            });
        });
    }

    /// Inserts entries, as [`Cache::insert`] does. (`Extend` needs a handle that is mutable.)
    pub fn extend(&self, entries: impl IntoIterator<Item = (K, V)>) {
        entries.into_iter().for_each(|(key, value)| self.insert(key, value));
    }

    /// Removes all entries that were inserted before the call. No lookup that begins later finds
    /// them. Keys that are being loaded are treated as by [`Cache::remove`].
    ///
    /// Takes constant time. The entries are dropped, and passed to the [function for removed
    /// entries](Builder::on_removal), on a background thread and by insertions that need their
    /// room.
    #[doc(alias = "clear")]
    pub fn invalidate_all(&self) {
        with_core!(self, core => core.invalidate_all());
    }

    /// Changes the capacity. If it becomes smaller, evicts entries until the rest fits, and lowers
    /// the capacity step by step with the weight. Evicts [entries in use](Builder::keep_in_use)
    /// last.
    ///
    /// # Panics
    ///
    /// See [`Cache::insert`].
    ///
    /// ```
    /// let cache = relativist_cache::Cache::new(100);
    /// (0..100).for_each(|n| cache.insert(n, n));
    /// cache.set_capacity(10);
    /// assert_eq!(cache.len(), 10);
    /// ```
    pub fn set_capacity(&self, capacity: u64) {
        with_core!(self, core => core.set_capacity(capacity));
    }

    /// Frees the entries that have expired or were invalidated, and waits for readers to drop what
    /// was removed. **Not needed**: all this also happens in the background. It is for tests that
    /// count destructors, or look at [`Cache::len`] or at calls of the listener after an expiry.
    ///
    /// Takes time proportional to the number of entries. If this thread holds a guard, or in a
    /// destructor or a listener, does not wait for other threads.
    #[doc(alias = "remove_expired")]
    pub fn run_pending_tasks(&self) {
        with_core!(self, core => core.run_pending_tasks());
    }

    /// Iterates over clones of the entries that have not expired, in an arbitrary order. Does not
    /// mark them as visited.
    ///
    /// An entry that is in the cache throughout is seen exactly once; one that is inserted,
    /// replaced or removed meanwhile may be seen or not. Holds no guard and no lock between two
    /// steps. Clones some hundred entries at a time.
    ///
    /// ```
    /// let cache = relativist_cache::Cache::new(100);
    /// (0..10).for_each(|n| cache.insert(n, n * n));
    /// assert_eq!(cache.iter().map(|(_, square)| square).sum::<i32>(), 285);
    /// ```
    pub fn iter(&self) -> Iter<'_, K, V, S>
    where
        K: Clone,
        V: Clone,
    {
        Iter::new(self)
    }

    #[inline(always)]
    fn hash<Q: Hash + ?Sized>(&self, key: &Q) -> bucket::Hash {
        with_core!(self, core => core.hash(key))
    }
}

/// Looks up an entry that may expire, which reads the clock. Not inlined, so that there is only one
/// lookup in the code of [`Cache::get`], which is inlined then.
#[inline(never)]
fn visit_expiring<'g, K, V, S, Q>(
    core: &'g Core<K, V, S, Deadlines>,
    hash: bucket::Hash,
    key: &Q,
    guard: &'g Guard,
) -> Option<&'g V>
where
    S: BuildHasher,
    Q: Equivalent<K> + ?Sized,
{
    core.visit(hash, key, guard).map(|node| &node.value)
}

impl<K, V, S> Extend<(K, V)> for Cache<K, V, S>
where
    K: Hash + Eq + Send + Sync + 'static,
    V: Send + Sync + 'static,
    S: BuildHasher,
{
    fn extend<I: IntoIterator<Item = (K, V)>>(&mut self, entries: I) {
        Cache::extend(self, entries);
    }
}

/// Makes a cache without a limit.
impl<K, V> FromIterator<(K, V)> for Cache<K, V>
where
    K: Hash + Eq + Send + Sync + 'static,
    V: Send + Sync + 'static,
{
    fn from_iter<I: IntoIterator<Item = (K, V)>>(entries: I) -> Self {
        let cache = Self::builder().build();
        Cache::extend(&cache, entries);
        cache
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
