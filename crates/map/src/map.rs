//! The map: construction, size, and access through an exclusive reference.

use std::hash::{BuildHasher, Hash, RandomState};

use equivalent::Equivalent;
use relativist_bucket::{AllocError, Boxed, Form, Inline, Private, Process, Table};
use relativist_rcu::{Domain, Guard, is_reading, is_reclaiming};

use crate::builder::Builder;
use crate::entry::{Entry, Hashing, Stores};
use crate::iter::{IterMut, ValuesMut};
use crate::pinned::Pinned;

/// The number of operations whose memory is requested at once.
pub(crate) const BATCH: usize = 16;

/// A concurrent hash map. Lookups are wait-free, even while the map grows or shrinks.
///
/// Each entry has memory of its own. It keeps its address as long as it is in the map, and may be
/// of any type that is `Send + Sync + 'static`. [`FlatMap`] is faster for small entries.
///
/// [`Map`] has the methods of the map, and [`Pinned`] those of the handle that [`Map::pin`]
/// returns.
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
pub type HashMap<K, V, S = RandomState> = Map<K, V, S, Boxed>;

/// A concurrent hash map that stores entries in its buckets. Lookups are wait-free, even while the
/// map grows or shrinks.
///
/// It has the methods of [`HashMap`]. A hit in a map that exceeds the processor's caches takes one
/// cache miss less, and an update allocates no entry. Take it for entries of up to some 64 bytes.
/// Keys and values have to be [`Relocatable`](crate::Relocatable), because a resize moves entries
/// while threads read them: that excludes atomics and locks that are not behind a pointer.
///
/// What differs from a [`HashMap`]:
///
/// * Entries change their addresses when they move. So compare values, not addresses. Closures of
///   [`Pinned::update`] and the like run again if the entry has moved.
/// * Each growth hashes all keys. (Of a `HashMap`, only some do: each has room for 2^16 times as
///   many entries as the one before.) A key whose `Hash` panics or blocks keeps the map from
///   growing: operations stay right, and take time in proportion to the entries per bucket.
///
/// ```
/// use relativist::FlatMap;
///
/// let map: FlatMap<u64, u64> = FlatMap::new();
/// map.pin().insert(1, 10);
/// assert_eq!(map.pin().get(&1), Some(&10));
/// ```
///
/// ```compile_fail,E0277
/// use relativist::FlatMap;
/// use std::sync::atomic::AtomicU64;
///
/// let counters = FlatMap::new();
/// counters.pin().insert("hits", AtomicU64::new(0)); // error: not `Relocatable`
/// ```
pub type FlatMap<K, V, S = RandomState> = Map<K, V, S, Inline>;

/// A concurrent hash map with readers of its own: handles may be held across an `.await`, keys and
/// values may borrow, and a reader that stays delays no other map.
///
/// It has the methods of [`HashMap`]. What differs:
///
/// | | [`PrivateMap`] | [`HashMap`] |
/// |---|---|---|
/// | the handle | is `Send` and `Sync`, and may be held across an `.await` | stays on its thread |
/// | a reader that stays | delays the reclamation of this map's entries, and nothing else | delays reclamation in the whole process |
/// | keys and values | any that are `Send + Sync`, with borrows too | must be `'static` |
/// | removed entries | are dropped by threads that use or drop this map | are dropped on any thread |
/// | entries that wait | not bounded while a handle stays: see [`Map::pending`] | bounded: threads wait |
///
/// ```
/// use std::sync::Arc;
/// use relativist::PrivateMap;
///
/// async fn fetch(url: &str) -> usize { url.len() }
/// async fn compare(pages: Arc<PrivateMap<String, usize>>, url: &str) -> Option<bool> {
///     let pinned = pages.pin();
///     let known = pinned.get(url)?;
///     let fetched = fetch(url).await; // the task may go on on another thread
///     Some(*known == fetched)
/// }
/// # let pages = Arc::new(PrivateMap::from([("/".to_string(), 1)]));
/// # let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).build().unwrap();
/// # assert_eq!(runtime.block_on(runtime.spawn(compare(pages, "/"))).unwrap(), Some(true));
/// ```
///
/// Entries may borrow from the stack of a function whose threads use the map:
///
/// ```
/// use relativist::PrivateMap;
///
/// let text = String::from("to be or not to be");
/// let words: PrivateMap<&str, usize> = PrivateMap::new();
/// std::thread::scope(|scope| {
///     for half in [&text[..9], &text[9..]] {
///         let words = &words;
///         scope.spawn(move || {
///             for word in half.split_whitespace() {
///                 words.pin().update_or_insert(word, |n| n + 1, 1);
///             }
///         });
///     }
/// });
/// assert_eq!(words.pin().get("be"), Some(&2));
/// ```
///
/// What is borrowed must outlive the map:
///
/// ```compile_fail,E0597
/// use relativist::PrivateMap;
///
/// let words: PrivateMap<&str, usize> = PrivateMap::new();
/// let text = String::from("to be or not to be"); // error: dropped before `words`
/// words.pin().insert(&text[..2], 1);
/// ```
///
/// # What waits for a handle
///
/// An entry that was removed or replaced is dropped when all handles of this map have been dropped
/// that were made before, and then when a thread has removed 1024 entries or 1 MiB, calls
/// [`Map::reclaim`], or drops the map. **Nothing bounds the number of entries that wait for a
/// handle,** because a thread that waited might wait for its own task. Look at [`Map::pending`]
/// where you remove entries, and slow down when it is too large.
///
/// Destructors of removed keys and values run in operations that remove or replace entries. So they
/// must not take a lock that a thread holds during such an operation.
///
/// # Leaks and forks
///
/// A handle that is leaked (`std::mem::forget`) keeps the entries that are removed later from being
/// dropped before the map is. If the map is leaked, its entries are never dropped. The child of a
/// `fork` must not use a private map that another thread of the parent may have been using, not
/// even for lookups: see [`Domain`].
pub type PrivateMap<K, V, S = RandomState> = Map<K, V, S, Private>;

/// A concurrent hash map, in one of three forms: [`HashMap`], [`FlatMap`] or [`PrivateMap`].
///
/// Operations on entries happen in a read section. [`Map::pin`] enters one and returns a handle,
/// [`Pinned`], which has these operations. References to keys and values live as long as the
/// handle.
///
/// The types of keys and values are *invariant*, as in `Mutex<T>`, because entries are inserted
/// through a shared reference: the compiler does not convert a map of a subtype to a map of its
/// supertype.
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
/// # Costs and progress
///
/// | operation | progress | costs |
/// |---|---|---|
/// | lookup | wait-free | a word of the bucket, its slots for a hit, and the entry unless it is in the slots |
/// | iteration step | wait-free | the same, through memory in order |
/// | insert, replace, remove | blocks while another thread changes the same bucket | a lookup and a short lock |
/// | update, compute and the like | the same, and again if another thread changes the entry meanwhile | a lookup and one of those per attempt |
/// | growing and shrinking | the threads that insert and remove share the work; no thread waits for readers | each entry is copied once |
/// | clear | one step, and the entries are dropped later | constant, and in proportion to the entries to drop them |
///
/// *Wait-free* means: without waiting and without retries. The steps of a lookup grow only with the
/// entries that others insert into the same bucket, and by one for each resize that begins
/// meanwhile.
///
/// Memory: a bucket has seven slots and 16 bytes more. There are 2.2 to 4.5 entries per bucket
/// while a map grows. An empty map takes some 400 bytes. Replaced arrays of buckets are freed after
/// a grace period. Those that wait for a reader take less memory together than the present one, and
/// one that was replaced to shrink the map, if that waits, too.
///
/// # Hashers
///
/// The default hasher is that of std, SipHash, which resists attackers who choose keys. A faster
/// one, for keys that nobody chooses to your harm, takes one line. It may be weak: the map mixes
/// its results.
///
/// ```
/// type FastMap<K, V> = relativist::HashMap<K, V, rustc_hash::FxBuildHasher>;
///
/// let map: FastMap<u64, u64> = FastMap::default();
/// ```
///
/// # Entries that wait
///
/// Removed and replaced entries are dropped after a grace period, on any thread. The number that
/// waits is bounded per thread: [`MAX_DEFERRED`](relativist_rcu::MAX_DEFERRED) entries or
/// [`MAX_DEFERRED_BYTES`](relativist_rcu::MAX_DEFERRED_BYTES). What keys and values own on the heap
/// does not count. If that is too much, call [`relativist_rcu::barrier`] outside of handles and
/// guards, each time the thread has removed as many bytes as you can afford. (Entries of a
/// [`PrivateMap`] wait in the map.)
///
/// # Panics, and code that the map calls
///
/// `Hash`, `Eq`, closures and destructors run without locks, and may use the map. A closure that
/// updates its own key is called again and again, without end.
///
/// After a panic the map stays usable: each entry is as before the operation or as after it, no
/// lock is held, and nothing is leaked. The destructors of removed entries run after the operation.
/// The panic hook reports a panic there; the panic does not reach the caller.
///
/// # Fork
///
/// Locks of buckets that another thread of the parent held stay locked in the child of a `fork`.
/// Lookups and iterations take no locks. A child that needs more should call `exec` first.
pub struct Map<K, V, S = RandomState, F: Form = Boxed> {
    pub(crate) table: Table<Entry<K, V>, F>,
    pub(crate) hashing: Hashing<S>,
}

impl<K, V, F: Form> Map<K, V, RandomState, F> {
    /// Creates an empty map, which grows as needed.
    pub fn new() -> Self {
        Self::with_hasher(RandomState::new())
    }

    /// Creates an empty map with room for `capacity` entries. It never shrinks below that by
    /// itself.
    ///
    /// # Panics
    ///
    /// Panics if the buckets cannot be allocated; [`Builder::try_build`] returns an error instead.
    pub fn with_capacity(capacity: usize) -> Self {
        Self::with_capacity_and_hasher(capacity, RandomState::new())
    }

    /// Returns a [`Builder`].
    ///
    /// ```
    /// let map = relativist::HashMap::<&str, u32>::builder().capacity(1000).try_build()?;
    /// assert!(map.capacity() >= 1000);
    /// # Ok::<(), relativist::AllocError>(())
    /// ```
    pub fn builder() -> Builder<K, V, RandomState, F> {
        Builder::new()
    }
}

impl<K, V, S, F: Form> Map<K, V, S, F> {
    /// Creates an empty map that hashes with `hasher`. Weak hashers are sufficient.
    pub fn with_hasher(hasher: S) -> Self {
        Self::with_capacity_and_hasher(0, hasher)
    }

    /// Combines [`Map::with_capacity`] and [`Map::with_hasher`].
    ///
    /// # Panics
    ///
    /// Panics if the buckets cannot be allocated.
    pub fn with_capacity_and_hasher(capacity: usize, hasher: S) -> Self {
        Self::try_with(capacity, hasher).unwrap_or_else(|error| panic!("{error}"))
    }

    pub(crate) fn try_with(capacity: usize, hasher: S) -> Result<Self, AllocError> {
        Ok(Self { table: Table::new(capacity)?, hashing: Hashing(hasher) })
    }

    /// Enters a read section and returns a handle with all operations on entries.
    ///
    /// A handle costs two loads and two stores, so each operation may take its own. It may also be
    /// kept for many operations: it keeps no map from growing. Until the handle is dropped, nothing
    /// that threads remove is reclaimed (for a [`PrivateMap`], nothing of this map).
    #[inline]
    pub fn pin(&self) -> Pinned<'_, K, V, S, F> {
        Pinned { map: self, section: self.table.enter() }
    }

    /// Returns the number of entries. It is exact if no thread updates the map meanwhile. Adds up
    /// one counter, or one per thread in large maps. Takes no lock.
    pub fn len(&self) -> usize {
        self.table.len()
    }

    /// Returns whether the map has no entries; see [`Map::len`].
    pub fn is_empty(&self) -> bool {
        self.table.is_empty()
    }

    /// Returns the number of entries that the map has room for before it grows.
    pub fn capacity(&self) -> usize {
        self.table.capacity()
    }

    /// Returns the hasher.
    pub fn hasher(&self) -> &S {
        &self.hashing.0
    }
}

impl<K, V, S, F: Form<Domain = Process>> Map<K, V, S, F> {
    /// Like [`Map::pin`], in the read section of a guard. The references that the handle returns
    /// live as long as the handle, and a guard may serve many maps.
    ///
    /// ```
    /// use relativist::{HashMap, read};
    ///
    /// let (names, ages) = (HashMap::from([(7, "Ada")]), HashMap::from([("Ada", 36)]));
    /// let guard = read();
    /// let (names, ages) = (names.pin_with(&guard), ages.pin_with(&guard));
    /// assert_eq!(names.get(&7).and_then(|name| ages.get(name)), Some(&36));
    /// ```
    #[inline]
    pub fn pin_with<'m>(&'m self, guard: &'m Guard) -> Pinned<'m, K, V, S, F> {
        Pinned { map: self, section: self.table.enter_with(guard) }
    }
}

/// What waits for handles of a [`PrivateMap`].
impl<K, V, S> Map<K, V, S, Private> {
    /// Drops the entries that were removed and that no handle protects any more, and returns the
    /// number of those that are left. Entries that were removed since the last call may take two
    /// calls.
    pub fn reclaim(&self) -> u64 {
        self.table.domain().reclaim()
    }

    /// Returns the number of removed entries (and parts of the table) that wait for handles.
    pub fn pending(&self) -> u64 {
        self.table.domain().pending()
    }

    /// Returns the domain of the map's handles, for statistics.
    pub fn domain(&self) -> &Domain {
        self.table.domain()
    }
}

/// Lookups that return copies and take no handle.
impl<K: Hash + Eq, V, S: BuildHasher, F: Form> Map<K, V, S, F> {
    /// Returns whether the key is in the map. Wait-free.
    #[inline]
    pub fn contains_key<Q: Hash + Equivalent<K> + ?Sized>(&self, key: &Q) -> bool {
        self.pin().contains_key(key)
    }

    /// Returns a copy of the value of a key. Wait-free.
    ///
    /// ```
    /// let map = relativist::HashMap::from([("one", 1)]);
    /// assert_eq!(map.get_copied("one"), Some(1));
    /// ```
    #[inline]
    pub fn get_copied<Q: Hash + Equivalent<K> + ?Sized>(&self, key: &Q) -> Option<V>
    where
        V: Copy,
    {
        self.pin().get(key).copied()
    }

    /// Returns a clone of the value of a key. Wait-free, apart from `clone`, which runs inside the
    /// read section.
    ///
    /// ```
    /// use std::sync::Arc;
    ///
    /// let map = relativist::HashMap::from([("one", Arc::new(1))]);
    /// assert_eq!(map.get_cloned("one").as_deref(), Some(&1));
    /// ```
    #[inline]
    pub fn get_cloned<Q: Hash + Equivalent<K> + ?Sized>(&self, key: &Q) -> Option<V>
    where
        V: Clone,
    {
        self.pin().get(key).cloned()
    }

    /// Returns the value of a key, which may be changed: no other thread uses the map. To change
    /// values that threads share, see [`Pinned::update`].
    ///
    /// ```
    /// let mut map = relativist::HashMap::from([("one", 1)]);
    /// *map.get_mut("one").unwrap() += 10;
    /// assert_eq!(map.get_copied("one"), Some(11));
    /// ```
    pub fn get_mut<Q: Hash + Equivalent<K> + ?Sized>(&mut self, key: &Q) -> Option<&mut V> {
        let hash = self.hashing.of(key);
        self.table.find_mut(hash, |entry| key.equivalent(&entry.key)).map(|entry| &mut entry.value)
    }
}

impl<K, V, S, F: Form> Map<K, V, S, F> {
    /// Iterates over the entries, whose values may be changed: no other thread uses the map.
    pub fn iter_mut(&mut self) -> IterMut<'_, K, V, F> {
        IterMut(self.table.entries_mut())
    }

    /// Iterates over the values, which may be changed: no other thread uses the map.
    ///
    /// ```
    /// let mut map = relativist::HashMap::from([("one", 1), ("two", 2)]);
    /// map.values_mut().for_each(|n| *n *= 10);
    /// assert_eq!(map.pin().values().sum::<i32>(), 30);
    /// ```
    pub fn values_mut(&mut self) -> ValuesMut<'_, K, V, F> {
        ValuesMut(self.iter_mut())
    }
}

impl<K: Hash + Eq, V, S: BuildHasher, F: Form> Map<K, V, S, F> {
    /// Makes room for `additional` more entries, so that inserting them starts no resize. Waits for
    /// no reader. Other threads can use the map meanwhile. Gives up if `Hash` of an entry panics.
    ///
    /// # Panics
    ///
    /// Panics if the buckets cannot be allocated.
    pub fn reserve(&self, additional: usize) {
        self.try_reserve(additional).unwrap_or_else(|error| panic!("{error}"));
    }

    /// Like [`Map::reserve`], but returns an error if the buckets cannot be allocated.
    ///
    /// # Errors
    ///
    /// Returns an error if the buckets cannot be allocated: the map stays as it was.
    ///
    /// ```
    /// let map: relativist::HashMap<i32, i32> = relativist::HashMap::new();
    /// map.try_reserve(1000)?;
    /// assert!(map.try_reserve(usize::MAX).is_err());
    /// # Ok::<(), relativist::AllocError>(())
    /// ```
    pub fn try_reserve(&self, additional: usize) -> Result<(), AllocError> {
        self.table.reserve(additional, &self.hashing)
    }

    /// Shrinks the map to the size for its entries. Waits for readers: in a task, call it from
    /// `spawn_blocking`. Other threads can use the map meanwhile.
    ///
    /// # Errors
    ///
    /// Returns an error if the buckets cannot be allocated: the map stays as it was.
    ///
    /// # Panics
    ///
    /// Panics if this thread holds a guard or a handle of the process, and in the destructor of an
    /// entry that was removed from a map: it would wait for itself. (A
    /// [`PrivateMap`] cannot know which thread has its handles: the call waits for ever if the
    /// caller has one.)
    pub fn shrink_to_fit(&self) -> Result<(), AllocError> {
        assert_may_shrink();
        self.table.shrink_to_fit(&self.hashing)
    }
}

impl<K: Hash + Eq, V, S: BuildHasher, F: Stores<K, V>> Map<K, V, S, F> {
    /// Inserts many entries, and returns the number of keys that are new.
    ///
    /// Each insertion is atomic, like that of [`Pinned::insert`]. The insertions together are not.
    /// This is faster than single insertions if the map is larger than the processor's cache: it
    /// takes up to 16 entries from the iterator, prefetches their buckets, and then inserts them in
    /// one read section. Makes room first if the iterator announces more entries than the map has.
    ///
    /// ```
    /// let map = relativist::HashMap::from([(1, "one")]);
    /// assert_eq!(map.insert_many([(1, "uno"), (2, "due"), (3, "tre")]), 2);
    /// assert_eq!(map.get_copied(&1), Some("uno"));
    /// ```
    pub fn insert_many(&self, entries: impl IntoIterator<Item = (K, V)>) -> usize {
        let mut entries = entries.into_iter().fuse();
        let expected = entries.size_hint().0;
        if expected > self.len() {
            // Without memory for the buckets the map grows as far as it can.
            _ = self.try_reserve(expected);
        }
        let mut batch = [const { None }; BATCH];
        let mut new = 0;
        loop {
            let mut filled = 0;
            // The places come first in `zip`, so that it takes no entry when no place is left.
            for (place, (key, value)) in batch.iter_mut().zip(&mut entries) {
                *place = Some((self.hashing.of(&key), Entry { key, value }));
                filled += 1;
            }
            let section = self.table.enter();
            batch.iter().flatten().for_each(|(hash, _)| section.prefetch_word(*hash));
            batch.iter().flatten().for_each(|(hash, _)| section.prefetch_slots(*hash));
            for (hash, entry) in batch.iter_mut().filter_map(Option::take) {
                new += usize::from(section.insert(hash, entry, &self.hashing).is_none());
            }
            if filled < BATCH {
                return new;
            }
        }
    }
}

/// Panics if this thread would wait for itself.
pub(crate) fn assert_may_shrink() {
    assert!(
        !is_reading(),
        "shrinking waits for readers, and inside a read section it would wait for itself: drop the Guard or the \
         handle of this thread first"
    );
    assert!(
        !is_reclaiming(),
        "shrinking waits until earlier buckets are freed, and inside a deferred function or the destructor of a \
         removed entry it would wait for itself"
    );
}
