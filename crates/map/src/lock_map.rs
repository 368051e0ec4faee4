//! A map with a lock per entry, for values that change in place.

mod collect;
mod entry;
mod guard;
mod iter;
mod lockable;
mod node;

use std::hash::{BuildHasher, Hash, RandomState};
use std::ptr::NonNull;

use equivalent::Equivalent;
use relativist_bucket::{AllocError, Boxed, Form, Hash as Mixed, Inline, Section, Table};
use relativist_core::prefetch::prefetch_for_write;
use relativist_core::sync::parking::SpinWait;
use relativist_core::sync::yield_now;
use relativist_rcu::without_reclaiming;

pub use self::entry::{Entry, OccupiedEntry, VacantEntry};
pub use self::guard::{RefMut, WouldBlock};
pub use self::iter::{ExtractIf, IntoIter, Iter};
use self::lockable::{Attempt, Lockable, WakeNext};
pub use self::node::{Locked, Stores};
use crate::entry::Hashing;
use crate::key::converted;
use crate::map::assert_may_shrink;

/// A concurrent hash map with a lock for each entry: values are changed in place.
///
/// Take it for values that change in part and often: counters, sessions, lists that grow, token
/// buckets. Where most operations read, a [`HashMap`](crate::HashMap) is faster, because its
/// lookups take no lock.
///
/// Each entry has memory of its own. [`FlatLockMap`] is faster for small entries. Both are forms of
/// [`Map`], which has their methods.
///
/// ```
/// use relativist::LockMap;
///
/// #[derive(Default)]
/// struct Session { user: String, requests: u64 }
///
/// let sessions: LockMap<u32, Session> = LockMap::new();
/// sessions.insert(7, Session { user: "ada".into(), requests: 0 });
/// if let Some(mut session) = sessions.lock(&7) {
///     session.requests += 1; // other threads wait if they want this entry
/// }
/// sessions.entry(8).or_default().user.push_str("grace");
/// sessions.retain(|_, session| session.requests > 0);
/// assert_eq!(sessions.len(), 1);
/// ```
///
/// [`Map::lock`] is what other maps call `get_mut` (and `get`). It returns a guard, [`RefMut`],
/// which dereferences to the value. [`Map::entry`] also locks keys that are absent.
pub type LockMap<K, V, S = RandomState> = Map<K, V, S, Boxed>;

/// A [`LockMap`] that stores entries in its buckets. A change in a map that exceeds the processor's
/// caches takes one cache miss less, and an insertion allocates no entry.
///
/// It has the methods of [`LockMap`]. Take it for entries of up to some 100 bytes, if threads hold
/// locks for a moment only. What differs:
///
/// * Keys have to be [`Relocatable`](crate::Relocatable), because a resize moves entries while
///   threads compare keys: most types are, and the trait can be derived. Values may be of any type
///   that is `Send + 'static`, because a resize moves only what nobody has locked.
/// * **As long as an entry is locked, a resize does not end**, and the map cannot grow again. No
///   thread waits: operations stay right, and take time in proportion to the entries per bucket.
///   So [reserve room](Map::try_reserve) before you hold an entry of a small map for long: 100,000
///   insertions into a new map beside it take seconds.
/// * Each growth hashes all keys. A key whose `Hash` panics or blocks has the same effect.
///
/// ```
/// let hits: relativist::FlatLockMap<u64, u64> = relativist::FlatLockMap::new();
/// *hits.entry(7).or_default() += 1;
/// assert_eq!(hits.get_copied(&7), Some(1));
/// ```
pub type FlatLockMap<K, V, S = RandomState> = Map<K, V, S, Inline>;

/// A concurrent hash map with a lock for each entry, in one of two forms: [`LockMap`] or
/// [`FlatLockMap`].
///
/// # What a lock excludes
///
/// **An entry that is locked is in the map**: nobody removes it, replaces it or sweeps it. And what
/// an operation has decided about an entry holds when it acts: [`Map::retain`],
/// [`Map::extract_if`] and [`Map::remove_if`] hold the lock while the closure runs and
/// until the entry is removed. So a change that was made through a guard is never lost: a sweep
/// comes before it, and the thread finds the key absent, or after it, and the sweep sees it.
///
/// Operations on a key are atomic, and linearizable. Those on all entries, [`Map::clear`]
/// included, take one lock after the other.
///
/// # Deadlocks
///
/// A lock belongs to one entry. No two entries share a lock, and growing, inserting other keys and
/// iterating take none that is held for long. So a thread that holds an entry waits for nobody who
/// wants another one. As with any mutexes:
///
/// * Two threads that lock two keys in opposite orders may wait for each other. Lock keys in a
///   fixed order, or use [`Map::try_lock`].
/// * A thread that holds an entry and wants it again waits for itself. So do operations on all
///   entries, such as [`Map::retain`] and [`Map::iter`]. In a debug build this is reported
///   on the standard error, with a backtrace.
/// * A guard that is leaked (`std::mem::forget`) leaves the entry locked for ever.
/// * Destructors of removed keys, and of what other maps have removed, run on any thread that uses
///   a map, also while it holds an entry. They must not lock entries. Nor may a thread of `rayon`
///   wait for others while it holds one: it may take up work that wants the same entry.
///
/// Threads that wait sleep, and hold no read section: an entry that is locked for long delays
/// nothing else. But do not hold a handle ([`Pinned`](crate::Pinned)) or a [`Guard`](crate::Guard)
/// while you wait for a lock: whoever holds the lock may have to wait for handles.
///
/// In async tasks, waiting blocks the thread of the executor. Keep guards short, and do not hold
/// one across an `.await`, although it is `Send`.
///
/// # Panics
///
/// There is no poisoning. If a thread panics while it holds a guard, the entry is unlocked, and its
/// value stays as it was at that moment. If a closure of [`Map::retain`] or the like panics,
/// the entry stays. If one that makes a value panics, the key stays absent.
///
/// # Memory
///
/// An entry takes eight bytes for its lock and its number, and what alignment adds. Removed values
/// are returned, or dropped by the call that removes them. Keys are dropped after a grace period,
/// on any thread.
pub struct Map<K, V, S = RandomState, F: Form = Boxed> {
    table: Table<Locked<K, V>, F>,
    hashing: Hashing<S>,
}

/// The table in a read section.
type InSection<'m, K, V, F> = Section<'m, Locked<K, V>, F>;

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
    /// Panics if the buckets cannot be allocated.
    pub fn with_capacity(capacity: usize) -> Self {
        Self::with_capacity_and_hasher(capacity, RandomState::new())
    }
}

impl<K, V, S, F: Form> Map<K, V, S, F> {
    /// Creates an empty map that hashes with `hasher`. Weak hashers are sufficient.
    pub fn with_hasher(hasher: S) -> Self {
        Self::with_capacity_and_hasher(0, hasher)
    }

    /// Combines [`Map::with_capacity`] and [`LockMap::with_hasher`].
    ///
    /// # Panics
    ///
    /// Panics if the buckets cannot be allocated.
    pub fn with_capacity_and_hasher(capacity: usize, hasher: S) -> Self {
        let table = Table::new(capacity).unwrap_or_else(|error| panic!("{error}"));
        Self { table, hashing: Hashing(hasher) }
    }

    /// Returns the number of entries. It is exact if no thread updates the map meanwhile. (Keys
    /// count for which a thread holds a [`VacantEntry`].) Takes no lock.
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

/// Access to entries. An operation waits while another thread holds the entry.
impl<K: Hash + Eq, V, S: BuildHasher, F: Form> Map<K, V, S, F> {
    /// Locks the entry of a key, and returns a guard that dereferences to the value. `None` if the
    /// key is absent, which takes no lock.
    ///
    /// ```
    /// let stock = relativist::LockMap::from([("bolts", 2)]);
    /// if let Some(mut left) = stock.lock("bolts") {
    ///     *left -= 1;
    /// }
    /// assert_eq!(stock.get_copied("bolts"), Some(1));
    /// ```
    #[inline]
    #[doc(alias = "get")]
    #[doc(alias = "get_mut")]
    pub fn lock<Q: Hash + Equivalent<K> + ?Sized>(&self, key: &Q) -> Option<RefMut<'_, K, V>> {
        self.acquire_key(self.hash(key), key)
    }

    /// Like [`Map::lock`], but does not wait.
    ///
    /// # Errors
    ///
    /// Returns an error if another guard holds the entry.
    ///
    /// ```
    /// let map = relativist::LockMap::from([("one", 1)]);
    /// let one = map.lock("one");
    /// assert!(map.try_lock("one").is_err());
    /// drop(one);
    /// assert_eq!(*map.try_lock("one").unwrap().expect("it is in the map"), 1);
    /// ```
    #[doc(alias = "try_get")]
    #[doc(alias = "try_get_mut")]
    pub fn try_lock<Q>(&self, key: &Q) -> Result<Option<RefMut<'_, K, V>>, WouldBlock>
    where
        Q: Hash + Equivalent<K> + ?Sized,
    {
        let hash = self.hash(key);
        loop {
            let section = self.table.enter();
            let Some(node) = section.find(hash, |node| key.equivalent(&node.key)) else { return Ok(None) };
            match node.value.try_lock() {
                // SAFETY: this thread has locked it.
                Attempt::Locked => return Ok(Some(unsafe { RefMut::new(NonNull::from(node)) })),
                Attempt::Busy => return Err(WouldBlock(())),
                Attempt::Removed => {}
                Attempt::Moved => yield_now(),
            }
        }
    }

    /// Returns a copy of the value of a key.
    pub fn get_copied<Q: Hash + Equivalent<K> + ?Sized>(&self, key: &Q) -> Option<V>
    where
        V: Copy,
    {
        self.lock(key).map(|value| *value)
    }

    /// Returns a clone of the value of a key. `clone` runs while the entry is locked.
    pub fn get_cloned<Q: Hash + Equivalent<K> + ?Sized>(&self, key: &Q) -> Option<V>
    where
        V: Clone,
    {
        self.lock(key).map(|value| V::clone(&value))
    }

    /// Returns whether the key is in the map. Takes no lock, and is wait-free.
    pub fn contains_key<Q: Hash + Equivalent<K> + ?Sized>(&self, key: &Q) -> bool {
        self.table
            .enter()
            .find(self.hash(key), |node| key.equivalent(&node.key))
            .is_some_and(|node| node.value.has_value())
    }

    /// Iterates over the entries, in an arbitrary order. Locks each entry when it gets there, until
    /// its guard is dropped.
    ///
    /// An entry that is in the map throughout is seen exactly once, however often the map is
    /// resized. One that is inserted or removed meanwhile may be seen or not. Between two steps,
    /// the iterator holds neither a lock nor a read section.
    ///
    /// ```
    /// let map = relativist::LockMap::from([("one", 1), ("two", 2)]);
    /// for mut value in &map {
    ///     *value *= 10;
    /// }
    /// assert_eq!(map.iter().map(|value| *value).sum::<i32>(), 30);
    /// ```
    #[doc(alias = "iter_mut")]
    pub fn iter(&self) -> Iter<'_, K, V, S, F> {
        Iter::new(self)
    }

    /// Changes all values, one after the other, each under its lock.
    #[doc(alias = "alter")]
    pub fn alter_all(&self, mut alter: impl FnMut(&K, &mut V)) {
        for mut guard in self {
            let (key, value) = guard.pair_mut();
            alter(key, value);
        }
    }

    #[inline(always)]
    fn hash<Q: Hash + ?Sized>(&self, key: &Q) -> Mixed {
        self.hashing.of(key)
    }

    /// Finds the entry of a key and locks it.
    #[inline(always)]
    fn acquire_key<Q: Equivalent<K> + ?Sized>(&self, hash: Mixed, key: &Q) -> Option<RefMut<'_, K, V>> {
        let find = |section: &InSection<'_, K, V, F>| {
            let node = section.find(hash, |node| {
                prefetch_end(node);
                key.equivalent(&node.key)
            })?;
            Some(NonNull::from(node))
        };
        let section = self.table.enter();
        let node = find(&section)?;
        // SAFETY: found in this section.
        if unsafe { node.as_ref() }.value.try_lock() == Attempt::Locked {
            // SAFETY: this thread has locked it.
            return Some(unsafe { RefMut::new(node) });
        }
        drop(section);
        self.acquire(find)
    }

    /// Finds an entry and locks it.
    #[inline(never)]
    fn acquire<'m>(
        &'m self,
        find: impl Fn(&InSection<'m, K, V, F>) -> Option<NonNull<Locked<K, V>>>,
    ) -> Option<RefMut<'m, K, V>> {
        let mut next = WakeNext::NOBODY;
        loop {
            let section = self.table.enter();
            let node = find(&section)?;
            // SAFETY: found in this section.
            match unsafe { self.acquire_found(section, node, next) } {
                Ok(guard) => return Some(guard),
                Err(woken) => next = woken,
            }
        }
    }

    /// Locks an entry. Fails if it was removed, or may have been while this thread slept. `next` is
    /// the duty from an attempt before.
    ///
    /// # Safety
    ///
    /// The entry was in the table of this map during the section.
    #[inline(always)]
    unsafe fn acquire_found<'m>(
        &'m self,
        section: InSection<'m, K, V, F>,
        node: NonNull<Locked<K, V>>,
        next: WakeNext,
    ) -> Result<RefMut<'m, K, V>, WakeNext> {
        // SAFETY: guaranteed by the caller. `sleep` does not use it when it has left the section.
        let value = unsafe { &node.as_ref().value };
        let attempt = value.try_lock();
        if attempt == Attempt::Moved {
            drop(section);
            yield_now();
            return Err(next);
        }
        if value.is_passed(&next) {
            next.fulfil();
        } else {
            // Before this thread sleeps, perhaps for long.
            drop(next);
        }
        match attempt {
            // SAFETY: this thread has locked it.
            Attempt::Locked => Ok(unsafe { RefMut::new(node) }),
            Attempt::Removed | Attempt::Moved => Err(WakeNext::NOBODY),
            // SAFETY: guaranteed by the caller.
            Attempt::Busy => unsafe { self.wait_for(section, node) },
        }
    }

    /// Waits for an entry that another thread holds; see `acquire_found`.
    ///
    /// # Safety
    ///
    /// As for `acquire_found`.
    #[cold]
    unsafe fn wait_for<'m>(
        &'m self,
        section: InSection<'m, K, V, F>,
        node: NonNull<Locked<K, V>>,
    ) -> Result<RefMut<'m, K, V>, WakeNext> {
        // SAFETY: guaranteed by the caller.
        let value = unsafe { &raw const (*node.as_ptr()).value };
        let mut spins = SpinWait::new();
        loop {
            // SAFETY: as above.
            match unsafe { (*value).try_lock() } {
                Attempt::Locked => break,
                Attempt::Removed | Attempt::Moved => return Err(WakeNext::NOBODY),
                Attempt::Busy if spins.spin() => {}
                Attempt::Busy => {
                    // Deferred functions, which may park, run later.
                    let leave = || without_reclaiming(|| drop(section));
                    // SAFETY: as above.
                    unsafe { Lockable::sleep(value, leave) }?;
                    break;
                }
            }
        }
        // SAFETY: this thread has locked it.
        Ok(unsafe { RefMut::new(node) })
    }
}

/// Insertions and removals. An operation waits while another thread holds the entry.
impl<K: Hash + Eq, V, S: BuildHasher, F: Stores<K, V>> Map<K, V, S, F> {
    /// Sets the value of a key, and returns the previous one. The key in the map stays, as in std's
    /// map.
    ///
    /// ```
    /// let map = relativist::LockMap::new();
    /// assert_eq!(map.insert("one", 1), None);
    /// assert_eq!(map.insert("one", 11), Some(1));
    /// ```
    pub fn insert(&self, key: K, value: V) -> Option<V> {
        let hash = self.hash(&key);
        let mut node = Locked { key, value: Lockable::new(value) };
        let mut next = WakeNext::NOBODY;
        loop {
            let section = self.table.enter();
            let present = match section.try_insert(hash, node, &self.hashing) {
                Ok(_) => return None,
                Err((present, rejected)) => {
                    node = rejected;
                    NonNull::from(present)
                }
            };
            // SAFETY: found in this section.
            match unsafe { self.acquire_found(section, present, next) } {
                Ok(mut guard) => {
                    let Locked { key, value } = node;
                    let value = value.into_value().expect("it was made with a value");
                    let previous = std::mem::replace(&mut *guard, value);
                    drop(guard);
                    drop(key);
                    return Some(previous);
                }
                Err(woken) => next = woken,
            }
        }
    }

    /// Locks the entry of a key, present or absent. While the result is held, other threads that
    /// want this key wait.
    ///
    /// ```
    /// let words = relativist::LockMap::new();
    /// for word in ["no", "more", "no", "less"] {
    ///     *words.entry(word).or_insert(0) += 1;
    /// }
    /// assert_eq!(words.get_copied("no"), Some(2));
    /// ```
    pub fn entry(&self, key: K) -> Entry<'_, K, V, S, F> {
        let hash = self.hash(&key);
        match self.acquire_key(hash, &key) {
            Some(guard) => {
                // First: if its destructor panicked later, the guard would be leaked.
                drop(key);
                Entry::occupied(self, hash, guard)
            }
            None => self.reserve_key(hash, key),
        }
    }

    /// Like [`Map::entry`], by reference: converts it to a key only if the key is absent.
    ///
    /// ```
    /// let words = relativist::LockMap::<String, u32>::new();
    /// for word in ["no", "more", "no", "less"] {
    ///     *words.entry_ref(word).or_default() += 1; // allocates three strings
    /// }
    /// assert_eq!(words.get_copied("no"), Some(2));
    /// ```
    ///
    /// # Panics
    ///
    /// Panics if the conversion returns another key.
    pub fn entry_ref<'q, Q>(&self, key: &'q Q) -> Entry<'_, K, V, S, F>
    where
        Q: Hash + Equivalent<K> + ?Sized,
        K: From<&'q Q>,
    {
        let hash = self.hash(key);
        if let Some(guard) = self.acquire_key(hash, key) {
            return Entry::occupied(self, hash, guard);
        }
        self.reserve_key(hash, converted(key))
    }

    /// Locks the entry of a key that was absent a moment ago.
    fn reserve_key(&self, hash: Mixed, mut key: K) -> Entry<'_, K, V, S, F> {
        let mut next = WakeNext::NOBODY;
        loop {
            let section = self.table.enter();
            let vacant = Locked { key, value: Lockable::vacant() };
            let present = match section.try_insert(hash, vacant, &self.hashing) {
                // SAFETY: this thread has inserted it, locked.
                Ok(node) => return Entry::Vacant(unsafe { VacantEntry::new(self, hash, NonNull::from(node)) }),
                Err((present, rejected)) => {
                    key = rejected.key;
                    NonNull::from(present)
                }
            };
            // SAFETY: found in this section.
            match unsafe { self.acquire_found(section, present, next) } {
                Ok(guard) => {
                    drop(key); // first, as in `entry`
                    return Entry::occupied(self, hash, guard);
                }
                Err(woken) => next = woken,
            }
        }
    }

    /// Removes a key, and returns its value.
    ///
    /// ```
    /// let map = relativist::LockMap::from([("one", 1)]);
    /// assert_eq!(map.remove("one"), Some(1));
    /// assert_eq!(map.remove("one"), None);
    /// ```
    pub fn remove<Q: Hash + Equivalent<K> + ?Sized>(&self, key: &Q) -> Option<V> {
        self.remove_if(key, |_, _| true)
    }

    /// Removes a key, and returns a clone of the one in the map, and the value.
    pub fn remove_entry<Q: Hash + Equivalent<K> + ?Sized>(&self, key: &Q) -> Option<(K, V)>
    where
        K: Clone,
    {
        let hash = self.hash(key);
        let guard = self.acquire_key(hash, key)?;
        let key = guard.key().clone();
        Some((key, self.remove_locked(hash, guard)))
    }

    /// Removes a key if `condition` returns true for its entry, and returns the value. The entry is
    /// locked until it is removed.
    ///
    /// ```
    /// let map = relativist::LockMap::from([("one", 1)]);
    /// assert_eq!(map.remove_if("one", |_, n| *n > 1), None);
    /// assert_eq!(map.remove_if("one", |_, n| *n == 1), Some(1));
    /// ```
    #[doc(alias = "remove_if_mut")]
    pub fn remove_if<Q>(&self, key: &Q, condition: impl FnOnce(&K, &mut V) -> bool) -> Option<V>
    where
        Q: Hash + Equivalent<K> + ?Sized,
    {
        let hash = self.hash(key);
        let mut guard = self.acquire_key(hash, key)?;
        let (found, value) = guard.pair_mut();
        condition(found, value).then(|| self.remove_locked(hash, guard))
    }

    /// Removes the entries for which `keep` returns false. Each entry is locked while `keep` runs,
    /// and until it is removed.
    ///
    /// ```
    /// let map: relativist::LockMap<u32, u32> = (0..10).map(|n| (n, n * n)).collect();
    /// map.retain(|_, square| *square % 2 == 0);
    /// assert_eq!(map.len(), 5);
    /// ```
    pub fn retain(&self, mut keep: impl FnMut(&K, &mut V) -> bool) {
        for mut guard in self {
            let (key, value) = guard.pair_mut();
            if !keep(key, value) {
                let hash = self.hash(key);
                drop(self.remove_locked(hash, guard));
            }
        }
    }

    /// Returns an iterator that removes the entries for which `extract` returns true. Entries that
    /// it does not reach stay. Each entry is locked while `extract` runs, and until it is removed.
    /// Keys are cloned.
    ///
    /// ```
    /// let map: relativist::LockMap<u32, u32> = (0..10).map(|n| (n, n * n)).collect();
    /// let odd: u32 = map.extract_if(|_, square| *square % 2 == 1).map(|(_, square)| square).sum();
    /// assert_eq!((odd, map.len()), (1 + 9 + 25 + 49 + 81, 5));
    /// ```
    pub fn extract_if<P: FnMut(&K, &mut V) -> bool>(&self, extract: P) -> ExtractIf<'_, K, V, S, F, P>
    where
        K: Clone,
    {
        ExtractIf::new(self.iter(), extract)
    }

    /// Removes all entries, one after the other. Waits for those that are locked.
    pub fn clear(&self) {
        self.retain(|_, _| false);
    }

    /// Makes room for `additional` more entries, so that inserting them starts no resize. (A
    /// [`FlatLockMap`] gives up if an entry stays locked meanwhile.)
    ///
    /// # Errors
    ///
    /// Returns an error if the buckets cannot be allocated: the map stays as it was.
    pub fn try_reserve(&self, additional: usize) -> Result<(), AllocError> {
        self.table.reserve(additional, &self.hashing)
    }

    /// Shrinks the map to the size for its entries; see
    /// [`Map::shrink_to_fit`](crate::Map::shrink_to_fit).
    ///
    /// # Errors
    ///
    /// Returns an error if the buckets cannot be allocated: the map stays as it was.
    ///
    /// # Panics
    ///
    /// Panics if this thread holds a guard or a handle of RCU.
    pub fn shrink_to_fit(&self) -> Result<(), AllocError> {
        assert_may_shrink();
        self.table.shrink_to_fit(&self.hashing)
    }

    /// Removes an entry that this thread has locked, and returns its value.
    ///
    /// # Panics
    ///
    /// Panics if the entry was inserted with another hash.
    fn remove_locked(&self, hash: Mixed, guard: RefMut<'_, K, V>) -> V {
        let node = guard.into_raw();
        // SAFETY: this thread has locked it, and it has a value.
        let value = unsafe { node.as_ref().value.vacate() };
        // SAFETY: it is in this map, and has no value now.
        if !unsafe { self.remove_vacant(hash, node) } {
            // SAFETY: it is still in the map, locked, without a value.
            drop(unsafe {
                node.as_ref().value.fill(value);
                RefMut::new(node)
            });
            panic!("the key has another hash now than when it was inserted");
        }
        value
    }

    /// Removes an entry without a value, which this thread has locked. Returns false if it was
    /// inserted with another hash.
    ///
    /// # Safety
    ///
    /// The entry is in this map, and the caller uses it afterwards only if this returns false.
    unsafe fn remove_vacant(&self, hash: Mixed, node: NonNull<Locked<K, V>>) -> bool {
        let section = self.table.enter();
        // SAFETY: an entry that is locked is in the map; afterwards the section protects it.
        let node = unsafe { node.as_ref() };
        let is_removed = section.take_exactly(hash, node);
        if is_removed {
            // Before user code runs, for which those who wait for the key would wait, too.
            node.value.close();
            section.help(&self.hashing);
        }
        is_removed
    }
}

/// Prefetches the end of an entry, if it may be in another cache line than the key: locking it
/// keeps the processor from loading that line early.
#[inline(always)]
fn prefetch_end<K, V>(node: &Locked<K, V>) {
    if size_of::<Locked<K, V>>() > 32 {
        prefetch_for_write(std::ptr::from_ref(node).cast::<u8>().wrapping_add(size_of::<Locked<K, V>>() - 1));
    }
}
