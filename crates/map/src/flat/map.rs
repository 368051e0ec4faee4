//! The flat map: construction, size and resizing.

use std::fmt;
use std::hash::{BuildHasher, Hash, RandomState};
use std::marker::PhantomData;
use std::sync::Arc;

use equivalent::Equivalent;
use relativist_rcu::{Guard, is_reading, read};

use super::access::BATCH;
use super::builder::Builder;
use super::bulk::{Drain, ExtractIf, Keys, Values};
use super::iter::Iter;
use super::relocate::Relocatable;
use super::resize::bits_for;
use super::table::Table;
use crate::map::{define_pinned, implement_map};
use crate::results::{Change, CompareExchangeError, ExhaustedError, OccupiedError};
use relativist_table::AllocError;
use relativist_table::Policy;
use relativist_table::Stats;

/// A concurrent hash map that stores entries inside its buckets. Lookups are wait-free, even while
/// the map grows or shrinks.
///
/// The [module](super) says how it differs from [`HashMap`](crate::HashMap), and when to use which.
///
/// ```
/// use relativist::flat::FlatMap;
///
/// let map = FlatMap::new();
/// let pinned = map.pin();
/// pinned.insert("one", 1);
/// assert_eq!(pinned.get("one"), Some(&1));
/// assert_eq!(pinned.insert("one", 11), Some(&1));
/// assert_eq!(pinned.remove("one"), Some(&11));
/// assert!(pinned.is_empty());
/// ```
///
/// The reference that `get` returns cannot be used after the handle has been dropped:
///
/// ```compile_fail,E0716
/// # let map = relativist::flat::FlatMap::from([("one", 1)]);
/// let one = map.pin().get("one"); // error: the handle is dropped at the end of the statement
/// assert_eq!(one, Some(&1));
/// ```
///
/// ```
/// # let map = relativist::flat::FlatMap::from([("one", 1)]);
/// let pinned = map.pin();
/// let one = pinned.get("one");
/// assert_eq!(one, Some(&1));
/// ```
///
/// The types of keys and values are *invariant*, because they are inserted through a shared
/// reference (see [`HashMap`](crate::HashMap)):
///
/// ```compile_fail,E0308
/// # use relativist::flat::FlatMap;
/// type TakesAny = for<'a> fn(&'a str);
/// type TakesStatic = fn(&'static str);
///
/// fn narrow(map: &FlatMap<u32, TakesAny>) -> &FlatMap<u32, TakesStatic> {
///     map // error: mismatched types
/// }
/// ```
///
/// # Costs and progress
///
/// | operation | progress | costs |
/// |---|---|---|
/// | lookup | wait-free | a bucket; at the highest load a second segment for every fifth entry |
/// | iteration step | wait-free | the same |
/// | insert, replace, remove | blocks on updates of the same bucket | the same, and a short lock |
/// | update, compute and the like | the same, and again if the entry is changed or moved meanwhile | a lookup and one of those per attempt |
/// | resizing | automatic by updates and a background thread; only shrinking waits for readers | each resize copies each entry once |
///
/// # Memory
///
/// A bucket takes 16 bytes and three entries, rounded up to a multiple of 64 bytes. By default
/// there are 1.5 to 3 entries per bucket while a map grows, and at least 0.375 after removals,
/// unless the map has its initial size. During a resize a map has two arrays. Replaced arrays are
/// freed after a grace period. If a reader stays in its section while the map grows, the arrays
/// that growths replace meanwhile take less memory together than the present one.
///
/// The entry of a removed key, or of a replaced value, is dropped after a grace period; the bounds
/// are those of [`HashMap`](crate::HashMap#bounds).
///
/// # Panics in keys, values and closures
///
/// A flat map handles panics like a
/// [`HashMap`](crate::HashMap#panics-in-keys-values-and-closures), with one exception: while
/// entries move to a larger array, `Hash` of their keys runs under a lock. The panic hook reports a
/// panic there, and the resize continues. The entry stays in the map, but lookups may not find it
/// any more, and an insertion of its key may add a second entry. Iterations see the entry,
/// [`clear`](FlatMap::clear) removes it, and it is dropped with the map.
pub struct FlatMap<K, V, S = RandomState> {
    pub(super) table: Arc<Table<K, V, S>>,
    _owns: PhantomData<Owned<K, V>>,
}

define_pinned!(FlatMap);

implement_map! {
    FlatMap, handle: Pinned, guard: Guard, visible: [pub], documented: FlatMap, batch: BATCH, changed: "changed or moved",
    lookups: [#[inline(always)]], updates: [#[inline(always)]], iterators: [K, V, S],
    iterate: [K: Hash + Eq, S: BuildHasher],
    remove_all: [K: Hash + Eq + Relocatable, V: Relocatable, S: BuildHasher + Send + Sync + 'static],
    update: [K: Hash + Eq + Relocatable, V: Relocatable, S: BuildHasher + Send + Sync + 'static],
}

/// The keys and values that the map owns; the function type makes the map invariant in them.
type Owned<K, V> = (K, V, fn(K, V) -> (K, V));

// SAFETY: the map owns its keys and values, returns shared references to them on any thread that
// has a `&FlatMap`, and moves them in and out on any thread. This is sound for types that are `Send
// + Sync`. Only updates share the hasher with the worker, and they need it to be `Send + Sync`.
unsafe impl<K: Send + Sync, V: Send + Sync, S: Send> Send for FlatMap<K, V, S> {}
// SAFETY: as above.
unsafe impl<K: Send + Sync, V: Send + Sync, S: Sync> Sync for FlatMap<K, V, S> {}

impl<K, V> FlatMap<K, V> {
    /// Creates an empty map of two buckets, which grows as needed.
    pub fn new() -> Self
    where
        K: Relocatable,
        V: Relocatable,
    {
        Self::with_hasher(RandomState::new())
    }

    /// Creates an empty map with buckets for `capacity` entries. It never shrinks below them
    /// automatically.
    ///
    /// # Panics
    ///
    /// Panics if the buckets cannot be allocated;
    /// [`Builder::build`] returns an error instead.
    pub fn with_capacity(capacity: usize) -> Self
    where
        K: Relocatable,
        V: Relocatable,
    {
        Self::with_capacity_and_hasher(capacity, RandomState::new())
    }

    /// Returns a [`Builder`], which has more options.
    pub fn builder() -> Builder {
        Builder::new()
    }
}

impl<K, V, S> FlatMap<K, V, S> {
    /// Creates an empty map of two buckets that hashes with `hasher`.
    ///
    /// Weak hashers like FxHash or the identity are sufficient: the map mixes their results
    /// ([`raw::Hash`](struct@relativist_table::Hash)).
    pub fn with_hasher(hasher: S) -> Self
    where
        K: Relocatable,
        V: Relocatable,
    {
        Self::with_capacity_and_hasher(0, hasher)
    }

    /// Combines [`FlatMap::with_capacity`] and [`FlatMap::with_hasher`].
    ///
    /// # Panics
    ///
    /// Panics if the buckets cannot be allocated.
    pub fn with_capacity_and_hasher(capacity: usize, hasher: S) -> Self
    where
        K: Relocatable,
        V: Relocatable,
    {
        let built = Builder::new().capacity(capacity).hasher(hasher).build();
        built.unwrap_or_else(|error| panic!("{error}"))
    }

    pub(crate) fn of(table: Table<K, V, S>) -> Self {
        Self { table: Arc::new(table), _owns: PhantomData }
    }

    /// Returns an empty map with the same policy, number of buckets and hasher.
    fn empty_clone(&self) -> Self
    where
        S: Clone,
    {
        let table = Table::new(self.buckets(), self.policy(), self.hasher().clone());
        Self::of(table.unwrap_or_else(|error| panic!("{error}")))
    }

    pub(super) fn into_table(self) -> Arc<Table<K, V, S>> {
        self.table
    }

    /// Enters a read section and returns a handle with all operations on entries.
    ///
    /// A handle costs so little that each operation may take its own. It may also be kept for many
    /// operations: it does not keep the map from growing. Until the handle is dropped, nothing that
    /// threads remove meanwhile is reclaimed, and no slot that they vacate is used again.
    #[inline]
    pub fn pin(&self) -> Pinned<'_, K, V, S> {
        Pinned::new(self, read())
    }

    /// Returns the number of entries. It is exact if no thread updates the map meanwhile.
    pub fn len(&self) -> usize {
        self.table.len()
    }

    /// Returns whether the map has no entries; see [`FlatMap::len`].
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the hasher.
    pub fn hasher(&self) -> &S {
        &self.table.hasher
    }

    /// Returns the policy by which the map is resized.
    pub fn policy(&self) -> Policy {
        self.table.policy
    }

    /// Returns the number of buckets.
    pub fn buckets(&self) -> usize {
        self.table.buckets(&read())
    }

    /// Returns whether a resize is in progress.
    pub fn is_resizing(&self) -> bool {
        self.table.is_resizing(&read())
    }

    /// Returns statistics about the table. Takes time proportional to buckets and entries.
    pub fn stats(&self) -> Stats {
        self.table.stats(&read())
    }
}

impl<K: Hash, V, S: BuildHasher> FlatMap<K, V, S> {
    /// Resizes to this number of buckets, rounded up to a power of two, on the calling thread.
    /// Other threads can use the map during a resize. Waits for readers if the map shrinks. An
    /// automatic map may soon be resized again, if this size does not fit its policy.
    ///
    /// # Errors
    ///
    /// Returns an error if the buckets cannot be allocated: the map stays as it was.
    ///
    /// # Panics
    ///
    /// Panics if the map is larger than that, and this thread holds a guard or a pinned handle: the
    /// thread would wait for itself. The map can grow while the thread holds one. (If another
    /// thread makes it larger meanwhile, it stays larger.)
    ///
    /// ```
    /// let map: relativist::flat::FlatMap<i32, i32> = relativist::flat::FlatMap::new();
    /// let pinned = map.pin();
    /// map.resize_to(1000)?;
    /// assert_eq!(map.buckets(), 1024);
    /// drop(pinned);
    /// map.resize_to(64)?;
    /// assert_eq!(map.buckets(), 64);
    /// # Ok::<(), relativist::AllocError>(())
    /// ```
    ///
    /// ```should_panic
    /// let map: relativist::flat::FlatMap<i32, i32> = relativist::flat::FlatMap::with_capacity(1000);
    /// let _pinned = map.pin();
    /// let _ = map.resize_to(64);
    /// ```
    pub fn resize_to(&self, buckets: usize) -> Result<(), AllocError> {
        let wanted = bits_for(buckets);
        let may_wait = !is_reading();
        if !may_wait && wanted < bits_for(self.buckets()) {
            relativist_table::assert_outside_sections("shrinking");
        }
        self.table.resize_now(|bits| Some(wanted).filter(|&wanted| may_wait || wanted > bits))
    }

    /// Makes room for `additional` more entries, so that inserting them starts no resize, up to the
    /// [`Policy`]'s ceiling. Does not wait for readers.
    ///
    /// # Panics
    ///
    /// Panics if the buckets cannot be allocated.
    pub fn reserve(&self, additional: usize) {
        self.try_reserve(additional).unwrap_or_else(|error| panic!("{error}"));
    }

    /// Like [`FlatMap::reserve`], but returns an error if the buckets cannot be allocated.
    ///
    /// # Errors
    ///
    /// Returns an error if the buckets cannot be allocated: the map stays as it was.
    ///
    /// ```
    /// let map: relativist::flat::FlatMap<i32, i32> = relativist::flat::FlatMap::new();
    /// map.try_reserve(1000)?;
    /// assert!(map.try_reserve(usize::MAX).is_err());
    /// # Ok::<(), relativist::AllocError>(())
    /// ```
    pub fn try_reserve(&self, additional: usize) -> Result<(), AllocError> {
        let wanted = self.policy().smallest_for(self.len().saturating_add(additional));
        self.table.resize_now(|bits| Some(bits_for(wanted)).filter(|&wanted| wanted > bits))
    }

    /// Shrinks to the size for the current number of entries. Waits for readers.
    ///
    /// # Errors
    ///
    /// See [`FlatMap::resize_to`].
    ///
    /// # Panics
    ///
    /// Panics if this thread holds a guard or a pinned handle, even if the map is small enough.
    pub fn shrink_to_fit(&self) -> Result<(), AllocError> {
        relativist_table::assert_outside_sections("shrinking");
        let wanted = self.policy().smallest_for(self.len());
        self.table.resize_now(|bits| Some(bits_for(wanted)).filter(|&wanted| wanted < bits))
    }
}

impl<K: Relocatable, V: Relocatable, S: Default> Default for FlatMap<K, V, S> {
    fn default() -> Self {
        Self::with_hasher(S::default())
    }
}

impl<K: fmt::Debug + Hash + Eq, V: fmt::Debug, S: BuildHasher> fmt::Debug for FlatMap<K, V, S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let guard = read();
        f.debug_map().entries(self.iter(&guard)).finish()
    }
}
