//! The map and its handle: construction, size and resizing.

use std::fmt;
use std::hash::{BuildHasher, Hash, RandomState};
use std::ptr::NonNull;

use equivalent::Equivalent;
use relativist_rcu::{Domain, DomainGuard, is_reading};

use super::iter::{Drain, ExtractIf, Iter, Keys, Values};
use crate::builder::Builder;
use crate::map::{HashMap, implement_map};
use crate::results::{Change, CompareExchangeError, ExhaustedError, OccupiedError};
use relativist_table::Policy;
use relativist_table::Stats;
use relativist_table::node::Node;
use relativist_table::{self as raw, AllocError, Link};

/// A hash map with a private domain: handles may be held across an `.await`, keys and values may
/// borrow, and a reader that stays delays no other map.
///
/// The [module](super) says how it differs from [`HashMap`], and shows examples.
///
/// # What waits for a handle
///
/// An entry that was removed or replaced is dropped when all handles of this map have been dropped
/// that were made before, and then when a thread has removed 1024 entries or 1 MiB, calls
/// [`PrivateMap::reclaim`], or drops the map. So without a handle that stays, each thread has at
/// most a few times that many entries pending. A handle that stays adds all entries that are
/// removed meanwhile. **Nothing bounds their number,** because a thread that waited might wait for
/// its own task. Look at [`PrivateMap::pending`] where you remove entries, and slow down when it is
/// too large. It counts all entries whose memory is still needed.
///
/// When such a handle is dropped, operations drop the entries that waited for it in slices: 4096
/// for every 1024 that are removed. [`PrivateMap::reclaim`] drops all at once.
///
/// A reader of the process, such as a handle of a [`HashMap`], delays none of this, however long it
/// stays. Nor do updates of this map wait for it, except for those that reserve room first
/// (`insert_many`, `extend`, `collect`, `clone`).
///
/// # Destructors, and locks that they take
///
/// The destructors of removed keys and values run in operations that remove or replace entries, on
/// threads that use the map. So they must not take a lock that a thread holds during such an
/// operation. They may use this map and others. The panic hook reports a panic in them; it does not
/// reach the caller.
///
/// # Dropping, and leaks
///
/// Dropping the map waits for no reader: handles borrow the map, so none is left. It drops all
/// entries, and all those that are pending, on the thread that drops the map, even if the
/// background thread is resizing it.
///
/// A handle that is leaked (`std::mem::forget`) keeps the entries that are removed later from being
/// dropped before the map is. If the map is leaked, its entries are never dropped.
///
/// A map must not be reachable only from its own entries: a value that holds the last `Arc` of its
/// map leaks both.
///
/// # Fork
///
/// The child of a `fork` must not use a private map that another thread of the parent may have been
/// using, not even for lookups: see [`Domain`].
///
/// # Resizing by hand
///
/// Waits for readers of the process as long as these walk a table, and so for handles of other
/// maps, but not for handles of this one.
///
/// Everything else, such as costs, panics, and what `Eq` and closures may do, is as for
/// [`HashMap`].
pub struct PrivateMap<K, V, S = RandomState> {
    /// The domain of the handles. No one else has a reference to it.
    domain: Domain,
    /// The table disposes of links by [`PrivateMap::DISPOSE`], because the background resizer may
    /// be the last owner of the table: see `drop`.
    pub(super) map: HashMap<K, V, S>,
}

/// A [`PrivateMap`] together with a section of its domain. It has all operations on entries.
/// Returned by [`PrivateMap::pin`].
///
/// The references that it returns live as long as the handle. It is `Send` and `Sync`: it may be
/// held across an `.await`, and threads may share it.
///
/// ```
/// # use relativist::PrivateMap;
/// let map = PrivateMap::from([("one", 1)]);
/// let pinned = map.pin();
/// let one = pinned.get("one");
/// map.pin().clear();
/// std::thread::scope(|scope| _ = scope.spawn(|| assert_eq!(one, Some(&1)))); // still there
/// ```
///
/// A reference cannot be used after the handle, and a handle not after the map:
///
/// ```compile_fail,E0505
/// # use relativist::PrivateMap;
/// let map = PrivateMap::from([("one", 1)]);
/// let pinned = map.pin();
/// let one = pinned.get("one");
/// drop(pinned); // error: borrowed
/// assert_eq!(one, Some(&1));
/// ```
///
/// ```compile_fail,E0505
/// # use relativist::PrivateMap;
/// let map = PrivateMap::from([("one", 1)]);
/// let pinned = map.pin();
/// drop(map); // error: borrowed
/// assert_eq!(pinned.get("one"), Some(&1));
/// ```
pub struct Pinned<'m, K, V, S> {
    map: &'m PrivateMap<K, V, S>,
    guard: DomainGuard<'m>,
}

implement_map! {
    PrivateMap, handle: Pinned, guard: DomainGuard<'_>, visible: [], documented: HashMap,
    batch: raw::Table::BATCH, changed: "changed",
    lookups: [#[inline]], updates: [], iterators: [K, V],
    iterate: [],
    remove_all: [K: Send + Sync, V: Send + Sync],
    update: [K: Hash + Eq + Send + Sync, V: Send + Sync, S: BuildHasher],
}

impl<K, V> PrivateMap<K, V> {
    /// Creates an empty map of two buckets, which grows as needed.
    pub fn new() -> Self {
        Self::with_hasher(RandomState::new())
    }

    /// Creates an empty map with buckets for `capacity` entries. It never shrinks below them
    /// automatically. [`Builder::build_private`] has more options.
    ///
    /// # Panics
    ///
    /// Panics if the buckets cannot be allocated.
    pub fn with_capacity(capacity: usize) -> Self {
        Self::with_capacity_and_hasher(capacity, RandomState::new())
    }
}

impl<K, V, S> PrivateMap<K, V, S> {
    /// Creates an empty map of two buckets that hashes with `hasher`. See
    /// [`HashMap::with_hasher`].
    pub fn with_hasher(hasher: S) -> Self {
        Self::with_capacity_and_hasher(0, hasher)
    }

    /// Combines [`PrivateMap::with_capacity`] and [`PrivateMap::with_hasher`].
    ///
    /// # Panics
    ///
    /// Panics if the buckets cannot be allocated.
    pub fn with_capacity_and_hasher(capacity: usize, hasher: S) -> Self {
        let built = Builder::new().capacity(capacity).hasher(hasher).build_private();
        built.unwrap_or_else(|error| panic!("{error}"))
    }

    /// Disposes of links that are left in a table that is dropped. Key and value were dropped or
    /// moved out before: any thread may call this.
    pub(crate) const DISPOSE: unsafe fn(NonNull<Link>) = Node::<K, V>::free;

    /// `table` is new, and disposes of links by [`PrivateMap::DISPOSE`].
    pub(crate) fn of(table: raw::Table, hasher: S) -> Self {
        Self { domain: Domain::new(), map: HashMap::of(table.with_links_of_a_domain(), hasher) }
    }

    /// Returns an empty map with the same policy, number of buckets and hasher.
    fn empty_clone(&self) -> Self
    where
        S: Clone,
    {
        let table = raw::Table::new(self.buckets(), self.policy(), Self::DISPOSE);
        Self::of(table.unwrap_or_else(|error| panic!("{error}")), self.hasher().clone())
    }

    /// Enters a section of the map's domain and returns a handle with all operations on entries.
    /// Wait-free. A thread's first call allocates, and so does one with more handles than ever
    /// before.
    ///
    /// The handle may stay as long as its user likes. What it delays is only the reclamation of
    /// entries that are removed from this map: see [above](PrivateMap#what-waits-for-a-handle).
    #[inline]
    pub fn pin(&self) -> Pinned<'_, K, V, S> {
        Pinned { map: self, guard: self.enter() }
    }

    /// Drops entries that were removed and that no handle can have found, without waiting, and
    /// returns the number of those that are left. Returns at once inside a deferred function, such
    /// as the destructor of a removed entry.
    ///
    /// Entries that were removed since the last call become due in the next one. To drop them all,
    /// call this repeatedly, and let other tasks or threads run in between.
    ///
    /// ```
    /// use std::sync::Arc;
    ///
    /// let value = Arc::new(1);
    /// let map = relativist::PrivateMap::from([("one", Arc::clone(&value))]);
    /// map.pin().remove("one");
    /// while map.reclaim() > 0 {}
    /// assert_eq!(Arc::strong_count(&value), 1);
    /// ```
    pub fn reclaim(&self) -> u64 {
        self.domain.reclaim()
    }

    /// Returns the number of entries that were removed or replaced, and whose keys, values and
    /// memory are still there. An estimate, while other threads use the map.
    pub fn pending(&self) -> u64 {
        self.domain.pending()
    }

    /// See [`HashMap::len`].
    pub fn len(&self) -> usize {
        self.map.len()
    }

    /// See [`HashMap::is_empty`].
    pub fn is_empty(&self) -> bool {
        self.map.is_empty()
    }

    /// Returns the hasher.
    pub fn hasher(&self) -> &S {
        self.map.hasher()
    }

    /// Returns the policy by which the map is resized.
    pub fn policy(&self) -> Policy {
        self.map.policy()
    }

    /// Returns the number of buckets.
    pub fn buckets(&self) -> usize {
        self.map.buckets()
    }

    /// Returns whether a resize is in progress.
    pub fn is_resizing(&self) -> bool {
        self.map.is_resizing()
    }

    /// Resizes on the calling thread: see [`HashMap::resize_to`]. Waits for readers of the process,
    /// but not for handles of this map.
    ///
    /// # Errors
    ///
    /// Returns an error if the buckets cannot be allocated: the map stays as it was.
    ///
    /// # Panics
    ///
    /// Panics if this thread holds a guard of the process, or a handle of a [`HashMap`].
    ///
    /// ```
    /// let map: relativist::PrivateMap<i32, i32> = relativist::PrivateMap::new();
    /// let _pinned = map.pin();
    /// map.resize_to(1000)?;
    /// assert_eq!(map.buckets(), 1024);
    /// # Ok::<(), relativist::AllocError>(())
    /// ```
    pub fn resize_to(&self, buckets: usize) -> Result<(), AllocError> {
        self.map.resize_to(buckets)
    }

    /// Makes room for `additional` more entries: see [`HashMap::reserve`].
    ///
    /// # Panics
    ///
    /// Panics if the buckets cannot be allocated, and where [`PrivateMap::resize_to`] panics.
    pub fn reserve(&self, additional: usize) {
        self.map.reserve(additional);
    }

    /// Like [`PrivateMap::reserve`], but returns an error if the buckets cannot be allocated.
    ///
    /// # Errors
    ///
    /// See [`PrivateMap::resize_to`].
    ///
    /// # Panics
    ///
    /// See [`PrivateMap::resize_to`].
    pub fn try_reserve(&self, additional: usize) -> Result<(), AllocError> {
        self.map.try_reserve(additional)
    }

    /// Shrinks to the size for the current number of entries. Otherwise like
    /// [`PrivateMap::resize_to`].
    ///
    /// # Errors
    ///
    /// See [`PrivateMap::resize_to`].
    ///
    /// # Panics
    ///
    /// See [`PrivateMap::resize_to`].
    pub fn shrink_to_fit(&self) -> Result<(), AllocError> {
        self.map.shrink_to_fit()
    }

    /// Returns statistics about the table. Walks all of it.
    pub fn stats(&self) -> Stats {
        // Links that are removed meanwhile stay alive.
        let _guard = self.enter();
        self.map.stats()
    }

    #[inline(always)]
    pub(super) fn enter(&self) -> DomainGuard<'_> {
        self.domain.read()
    }

    /// Defers the drop of an entry until no handle can have found it, and returns its node, which
    /// the caller's handle keeps alive. Runs destructors of other entries, so the caller must not
    /// be in a section of the process that it has entered itself.
    ///
    /// # Safety
    ///
    /// The caller has unlinked it from this map. `guard` is one of this map's domain, and was taken
    /// before.
    pub(super) unsafe fn retire<'g>(&self, link: NonNull<Link>, guard: &'g DomainGuard<'_>) -> &'g Node<K, V>
    where
        K: Send + Sync,
        V: Send + Sync,
    {
        let bytes = size_of::<Node<K, V>>();
        // SAFETY: threads find entries and walk over links only while they have a guard of the
        // domain (`stats`, too), and with a guard that is taken from now on, none gets to this one.
        // The resizer reads only links in locked chains, so it does not get to it either. Threads
        // that run deferred functions of the domain have a reference to the map, or own it: so its
        // keys and values live, and are `Send`.
        unsafe { self.domain.defer_raw(link.cast(), bytes, |link| Node::<K, V>::dispose(link.cast())) };
        // SAFETY: found in this map.
        unsafe { self.node(link, guard) }
    }

    /// # Safety
    ///
    /// `guard` is one of this map's domain, and `link` was in this map at some time since it was
    /// taken.
    #[inline(always)]
    pub(super) unsafe fn node<'g>(&self, link: NonNull<Link>, _guard: &'g DomainGuard<'_>) -> &'g Node<K, V> {
        // SAFETY: all links in the table are in nodes of this type. An entry that is removed is
        // dropped after the guard. Any other entry is dropped with the map, which the guard
        // borrows.
        unsafe { Node::of(link) }
    }
}

impl<K, V, S> Drop for PrivateMap<K, V, S> {
    /// Drops the keys and values that are in the map. They must not be left to the table, because
    /// the last owner of that may be the background resizer. The domain then drops what is pending.
    fn drop(&mut self) {
        if std::mem::needs_drop::<(K, V)>() {
            // SAFETY: the map is being dropped.
            unsafe { self.drop_entries() };
        }
    }
}

impl<K, V, S: Default> Default for PrivateMap<K, V, S> {
    fn default() -> Self {
        Self::with_hasher(S::default())
    }
}

impl<K: fmt::Debug, V: fmt::Debug, S> fmt::Debug for PrivateMap<K, V, S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map().entries(self.pin().iter()).finish()
    }
}

impl<'m, K, V, S> Pinned<'m, K, V, S> {
    /// Returns the map.
    pub fn map(&self) -> &'m PrivateMap<K, V, S> {
        self.map
    }
}
