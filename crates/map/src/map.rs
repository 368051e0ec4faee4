//! The map: construction, size and resizing; and what maps have in common.

mod access;
mod atomic;
mod collect;
mod pinned;

use std::fmt;
use std::hash::{BuildHasher, Hash, RandomState};
use std::marker::PhantomData;
use std::ptr::NonNull;

use equivalent::Equivalent;
use relativist_rcu::{Guard, is_reading, read};

use crate::builder::Builder;
use crate::bulk::{Drain, ExtractIf};
use crate::iter::{Iter, Keys, Values};
use crate::results::{Change, CompareExchangeError, ExhaustedError, OccupiedError};
use relativist_table::Policy;
use relativist_table::Stats;
use relativist_table::node::Node;
use relativist_table::{self as raw, AllocError, Link};

/// A concurrent hash map. Lookups are wait-free, even while the map grows or shrinks.
///
/// Lookups, iteration and updates take a shared reference to the map and happen inside a read
/// section. A [`pinned`](HashMap::pin) handle or the caller's [`Guard`](relativist_rcu::Guard)
/// represents the section. References to keys and values live as long as the handle or guard:
///
/// ```
/// use relativist::HashMap;
///
/// let map = HashMap::new();
/// let pinned = map.pin();
/// pinned.insert("one", 1);
/// assert_eq!(pinned.get("one"), Some(&1));
/// assert_eq!(pinned.insert("one", 11), Some(&1));
/// assert_eq!(pinned.remove("one"), Some(&11));
/// assert!(pinned.is_empty());
/// ```
///
/// The reference that `get` returns cannot be used after the handle was dropped:
///
/// ```compile_fail,E0716
/// # let map = relativist::HashMap::from([("one", 1)]);
/// let one = map.pin().get("one"); // error: the handle is dropped at the end of the statement
/// assert_eq!(one, Some(&1));
/// ```
///
/// ```
/// # let map = relativist::HashMap::from([("one", 1)]);
/// let pinned = map.pin();
/// let one = pinned.get("one");
/// assert_eq!(one, Some(&1));
/// ```
///
/// The map cannot be dropped while it is in use:
///
/// ```compile_fail,E0505
/// # let map = relativist::HashMap::from([("one", 1)]);
/// let guard = relativist::read();
/// let one = map.get("one", &guard);
/// drop(map); // error: borrowed
/// assert_eq!(one, Some(&1));
/// ```
///
/// ```
/// # let map = relativist::HashMap::from([("one", 1)]);
/// let guard = relativist::read();
/// let one = map.get("one", &guard).copied();
/// drop(map);
/// assert_eq!(one, Some(1));
/// ```
///
/// Keys and values can be inserted through a shared reference. The types of keys and values are
/// therefore *invariant*, as in `Mutex<T>`: the compiler does not convert a map of a subtype to a
/// map of its supertype. Otherwise a function that needs a `&'static str` could be inserted where
/// other code expects one that takes any `&str`:
///
/// ```compile_fail,E0308
/// # use relativist::HashMap;
/// type TakesAny = for<'a> fn(&'a str);
/// type TakesStatic = fn(&'static str);
///
/// fn narrow(map: &HashMap<u32, TakesAny>) -> &HashMap<u32, TakesStatic> {
///     map // error: mismatched types
/// }
/// ```
///
/// ```
/// # use relativist::HashMap;
/// type TakesAny = for<'a> fn(&'a str);
/// type TakesStatic = fn(&'static str);
///
/// fn narrow(map: &HashMap<u32, TakesAny>, key: u32) -> Option<TakesStatic> {
///     map.pin().get(&key).map(|&takes_any| takes_any as TakesStatic) // values that are taken out may be converted
/// }
/// # let map: HashMap<u32, TakesAny> = HashMap::new();
/// # assert!(narrow(&map, 1).is_none());
/// ```
///
/// # Costs and progress
///
/// | operation | progress | costs |
/// |---|---|---|
/// | lookup | wait-free | a head and half a chain, at up to one entry per bucket |
/// | iteration step | wait-free | the same on average: a few chains at a time are prefetched |
/// | insert, replace, remove | blocks on updates of the same bucket | the same, a short lock, one allocation or deferred free |
/// | update, compute and the like | the same, and again if another thread changes the entry meanwhile | a lookup and one of those per attempt, one new entry at a time |
/// | automatic resizing | growth waits for no reader, shrinking may | a background thread, see [`Resizing`](crate::Resizing) |
///
/// Memory: an entry takes one allocation of 16 bytes plus key and value, and 8 to 32 bytes of
/// buckets (up to 64 after many have been removed). An empty map takes 256 bytes: 232 in two
/// allocations, and 24 of its own with the default hasher. It starts no thread. The first resize
/// allocates what it needs. A map of some hundred buckets, or one that several threads update at
/// the same time, counts its entries in 128 bytes per thread (at most 64 threads have their own).
///
/// # Keys
///
/// Hashing and comparing are compiled for the type of the key. Comparing keys of a fixed size,
/// integers and byte arrays, takes a few loads, from memory that the lookup has fetched with the
/// link anyway. Keys behind a pointer, `String` or `Box<[u8]>`, cost one more cache miss, and a
/// call of a comparison that does not know the length at compile time (Mosberger, "Map Library
/// Design Notes", 1996, section 3; `benches/key_size.rs`).
///
/// # Bounds
///
/// Replaced and removed entries are dropped after a grace period, on any thread: updates need keys
/// and values that are `Send + Sync + 'static`. The number of entries that wait is bounded
/// ([`relativist_rcu::defer`]). Do not hold a handle or guard for long while updating: entries that
/// are removed in that time are dropped only after the handle or guard.
///
/// **Large values.** The bound is [`MAX_DEFERRED`](relativist_rcu::MAX_DEFERRED) entries or
/// [`MAX_DEFERRED_BYTES`](relativist_rcu::MAX_DEFERRED_BYTES) per thread. The bytes are those of
/// the entries themselves: link, key and value. What keys and values own on the heap does not
/// count. If each value is a `Vec` of 1 MiB, then 256 GiB may wait for a reader that stays in its
/// section. Even without such a reader a thread collects about 1024 removed entries (1 GiB) before
/// it reclaims them. If that is too much, call [`relativist_rcu::barrier`] outside of handles and
/// guards, each time the thread has replaced or removed as many bytes as you can afford.
///
/// `Eq` of keys may run under a bucket's lock during updates. It may look keys up, in this map and
/// others, and update other maps. An update of the same map would wait for itself, and panics. (Two
/// maps whose keys update the other map can deadlock, as with any two locks.) Closures run without
/// locks and may use the map. But a closure that updates its own key is called again and again,
/// without end, because the entry is never the one that was passed to it.
///
/// # Fork and allocators
///
/// Maps are not fork-safe. Locks that another thread of the parent held stay locked in the child of
/// a `fork`: those of buckets, of resizers, and of the background thread's queue. Lookups and
/// iterations take no locks, so they work in the child. An update or a resize in the child may wait
/// for ever, unless the parent had only one thread when it forked. (Resizing an automatic map
/// starts a second thread.) A child that needs more than lookups should call `exec` first.
///
/// A global allocator must not update maps: updates allocate, partly under locks.
///
/// # Dropping
///
/// Dropping the map drops its entries at once. If the background thread is resizing the map at that
/// moment, it drops the entries when it is done.
///
/// # Panics in keys, values and closures
///
/// After a panic the map stays usable: each entry is as before the operation or as after it, no
/// lock is held, and nothing is leaked. An operation that is one atomic step has taken effect as a
/// whole or not at all.
///
/// The destructors of removed and replaced entries run after the operation. The panic hook reports
/// a panic there; the panic does not reach the caller. If a destructor panics while the map is
/// dropped, the other entries are dropped before the panic continues; a second panic before that
/// aborts the process, as with std's collections.
pub struct HashMap<K, V, S = RandomState> {
    pub(crate) table: raw::Table,
    pub(crate) hasher: S,
    _owns: PhantomData<Owned<K, V>>,
}

/// Implements the operations that maps have in common. The type of the handle comes first, the type
/// of guards, the visibility of operations that take one, and the map whose methods are documented
/// in full. The lists are: attributes of lookups and of updates, the parameters of iterators; and
/// the bounds for iterating, for removing entries during an iteration, and for updates. `$BATCH` is
/// the number of lookups whose memory is requested at once, and `$changed` says why closures run
/// again.
macro_rules! implement_map {
    (
        $Map:ident, handle: $Pinned:ident, guard: $Guard:ty, visible: $visible:tt, documented: $Documented:ident,
        batch: $BATCH:expr, changed: $changed:literal,
        lookups: $lookup:tt, updates: $change:tt, iterators: $of:tt,
        iterate: $iterate:tt, remove_all: $remove_all:tt, update: $update:tt,
    ) => {
        $crate::map::access!(
            $Map, $Guard, visible: $visible, $BATCH, lookups: $lookup, updates: $change, update: $update
        );
        $crate::map::atomic!($Map, $Guard, visible: $visible, $changed, update: $update);
        $crate::map::collect!($Map, update: $update);
        $crate::map::pinned!(
            $Pinned, documented: $Documented, lookups: $lookup, updates: $change, iterators: $of,
            iterate: $iterate, remove_all: $remove_all, update: $update
        );
    };
}

pub(crate) use {
    access::access, atomic::atomic, collect::collect, implement_map, pinned::define_pinned, pinned::pinned,
};

define_pinned!(HashMap);

implement_map! {
    HashMap, handle: Pinned, guard: Guard, visible: [pub], documented: HashMap,
    batch: raw::Table::BATCH, changed: "changed",
    lookups: [#[inline]], updates: [], iterators: [K, V],
    iterate: [],
    remove_all: [K: Send + Sync + 'static, V: Send + Sync + 'static],
    update: [K: Hash + Eq + Send + Sync + 'static, V: Send + Sync + 'static, S: BuildHasher],
}

/// The keys and values that the map owns. The function type makes the map invariant in their types,
/// because they are inserted through a shared reference. It does not affect `UnwindSafe`.
type Owned<K, V> = (K, V, fn(K, V) -> (K, V));

// SAFETY: the map owns its keys and values, returns shared references to them on any thread that
// has a `&HashMap`, and moves them in and out on any thread. This is sound for types that are `Send
// + Sync`.
unsafe impl<K: Send + Sync, V: Send + Sync, S: Send> Send for HashMap<K, V, S> {}
// SAFETY: as above.
unsafe impl<K: Send + Sync, V: Send + Sync, S: Sync> Sync for HashMap<K, V, S> {}

impl<K, V> HashMap<K, V> {
    /// Creates an empty map of two buckets, which grows as needed.
    pub fn new() -> Self {
        Self::with_hasher(RandomState::new())
    }

    /// Creates an empty map with buckets for `capacity` entries. It never shrinks below them
    /// automatically.
    ///
    /// # Panics
    ///
    /// Panics if the buckets cannot be allocated; [`Builder::build`] returns an error instead.
    pub fn with_capacity(capacity: usize) -> Self {
        Self::with_capacity_and_hasher(capacity, RandomState::new())
    }

    /// Returns a [`Builder`], which has more options.
    pub fn builder() -> Builder {
        Builder::new()
    }
}

impl<K, V, S> HashMap<K, V, S> {
    /// Creates an empty map of two buckets that hashes with `hasher`.
    ///
    /// Weak hashers like FxHash or the identity are sufficient: the map mixes their results
    /// ([`raw::Hash`]).
    pub fn with_hasher(hasher: S) -> Self {
        Self::with_capacity_and_hasher(0, hasher)
    }

    /// Combines [`HashMap::with_capacity`] and [`HashMap::with_hasher`].
    ///
    /// # Panics
    ///
    /// Panics if the buckets cannot be allocated.
    pub fn with_capacity_and_hasher(capacity: usize, hasher: S) -> Self {
        let built = Builder::new().capacity(capacity).hasher(hasher).build();
        built.unwrap_or_else(|error| panic!("{error}"))
    }

    pub(crate) fn of(table: raw::Table, hasher: S) -> Self {
        Self { table, hasher, _owns: PhantomData }
    }

    /// Returns an empty map with the same policy, number of buckets and hasher.
    fn empty_clone(&self) -> Self
    where
        S: Clone,
    {
        let table = raw::Table::new(self.buckets(), self.policy(), Node::<K, V>::dispose);
        Self::of(table.unwrap_or_else(|error| panic!("{error}")), self.hasher.clone())
    }

    /// Enters a read section and returns a handle with all operations on entries.
    ///
    /// Cheap enough for each single operation: two loads and two stores. A handle may also be kept
    /// for many operations: maps can grow while a thread holds one. Until the handle is dropped,
    /// nothing that any thread removes is reclaimed. If the map grows in that time, updates take
    /// two to three times as long (up to ten times if it becomes sparse), and longer if several
    /// threads update it, because they share the few locks that it had before.
    #[inline]
    pub fn pin(&self) -> Pinned<'_, K, V, S> {
        Pinned::new(self, read())
    }

    /// Returns the number of entries. It is exact if no thread updates the map meanwhile.
    pub fn len(&self) -> usize {
        self.table.len()
    }

    /// Returns whether the map has no entries. It is exact if no thread updates the map meanwhile.
    /// Usually cheaper than [`HashMap::len`], which adds up the counts of all threads: this reads
    /// them only if the map is large and its first buckets are empty.
    pub fn is_empty(&self) -> bool {
        self.table.is_empty()
    }

    /// Returns the hasher.
    pub fn hasher(&self) -> &S {
        &self.hasher
    }

    /// Returns the policy by which the map is resized.
    pub fn policy(&self) -> Policy {
        self.table.policy()
    }

    /// Returns the number of buckets.
    pub fn buckets(&self) -> usize {
        self.table.buckets()
    }

    /// Returns whether a resize is in progress.
    pub fn is_resizing(&self) -> bool {
        self.table.is_resizing()
    }

    /// Resizes to this many buckets, rounded up to a power of two, on the calling thread. Other
    /// threads can use the map during a resize. Waits for readers; see [`raw::Table::resize_to`].
    /// An automatic map may soon be resized again, if this size does not fit its policy.
    ///
    /// # Errors
    ///
    /// Returns an error if the buckets cannot be allocated: the map stays as it was. (The old
    /// buckets are passed to [`relativist_rcu::defer_raw`], which aborts if there is no memory for
    /// its queue.)
    ///
    /// # Panics
    ///
    /// Panics if this thread holds a guard or a pinned handle: it would wait for itself.
    ///
    /// ```
    /// let map: relativist::HashMap<i32, i32> = relativist::HashMap::new();
    /// map.resize_to(1000)?;
    /// assert_eq!(map.buckets(), 1024);
    /// # Ok::<(), relativist::AllocError>(())
    /// ```
    ///
    /// ```should_panic
    /// let map: relativist::HashMap<i32, i32> = relativist::HashMap::new();
    /// let _pinned = map.pin();
    /// let _ = map.resize_to(1000);
    /// ```
    pub fn resize_to(&self, buckets: usize) -> Result<(), AllocError> {
        self.table.resize_to(buckets)
    }

    /// Makes room for `additional` more entries, so that inserting them starts no resize, up to the
    /// [`Policy`]'s ceiling. Otherwise like [`HashMap::resize_to`].
    ///
    /// # Panics
    ///
    /// Panics if the buckets cannot be allocated, and where [`HashMap::resize_to`] panics.
    pub fn reserve(&self, additional: usize) {
        self.try_reserve(additional).unwrap_or_else(|error| panic!("{error}"));
    }

    /// Like [`HashMap::reserve`], but returns an error if the buckets cannot be allocated.
    ///
    /// # Errors
    ///
    /// See [`HashMap::resize_to`].
    ///
    /// # Panics
    ///
    /// See [`HashMap::resize_to`].
    ///
    /// ```
    /// let map: relativist::HashMap<i32, i32> = relativist::HashMap::new();
    /// map.try_reserve(1000)?;
    /// assert!(map.try_reserve(usize::MAX).is_err());
    /// # Ok::<(), relativist::AllocError>(())
    /// ```
    pub fn try_reserve(&self, additional: usize) -> Result<(), AllocError> {
        self.table.reserve(additional)
    }

    /// Shrinks to the size for the current number of entries. Otherwise like
    /// [`HashMap::resize_to`].
    ///
    /// # Errors
    ///
    /// See [`HashMap::resize_to`].
    ///
    /// # Panics
    ///
    /// See [`HashMap::resize_to`].
    pub fn shrink_to_fit(&self) -> Result<(), AllocError> {
        self.table.shrink_to_fit()
    }

    /// Returns statistics about the table. Walks all of it.
    pub fn stats(&self) -> Stats {
        self.table.stats()
    }

    /// # Safety
    ///
    /// `link` was found in this map's table, and the guard or lock that keeps it alive lasts for
    /// `'a`.
    #[inline(always)]
    pub(crate) unsafe fn node<'a>(&self, link: NonNull<Link>) -> &'a Node<K, V> {
        // SAFETY: all links in the table are in nodes of this type.
        unsafe { Node::of(link) }
    }
}

impl<K, V, S: BuildHasher> HashMap<K, V, S> {
    #[inline]
    pub(crate) fn hash<Q: Hash + ?Sized>(&self, key: &Q) -> raw::Hash {
        raw::Hash::new(self.hasher.hash_one(key))
    }

    /// Returns a function that recognizes the link of this key.
    #[inline(always)]
    pub(crate) fn has_key<Q: Equivalent<K> + ?Sized>(&self, key: &Q) -> impl Fn(NonNull<Link>) -> bool {
        // SAFETY: the table calls this with links of its own, in a read section or under their
        // lock.
        move |link| key.equivalent(&unsafe { self.node(link) }.key)
    }
}

impl<K, V, S: Default> Default for HashMap<K, V, S> {
    fn default() -> Self {
        Self::with_hasher(S::default())
    }
}

impl<K: fmt::Debug, V: fmt::Debug, S> fmt::Debug for HashMap<K, V, S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let guard = read();
        f.debug_map().entries(self.iter(&guard)).finish()
    }
}
