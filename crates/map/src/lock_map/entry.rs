//! A locked key, present or absent.

use std::fmt;
use std::hash::{BuildHasher, Hash, RandomState};
use std::mem::ManuallyDrop;
use std::ptr::NonNull;

use relativist_bucket::{Boxed, Form, Hash as Mixed};

use super::{Locked, Map, RefMut, Stores};

/// A locked key of a [`Map`], present or absent; see [`Map::entry`].
pub enum Entry<'m, K: Hash + Eq, V, S: BuildHasher = RandomState, F: Stores<K, V> = Boxed> {
    /// The key is in the map.
    Occupied(OccupiedEntry<'m, K, V, S, F>),
    /// The key is absent.
    Vacant(VacantEntry<'m, K, V, S, F>),
}

/// A locked key that is in the map.
pub struct OccupiedEntry<'m, K, V, S = RandomState, F: Form = Boxed> {
    map: &'m Map<K, V, S, F>,
    hash: Mixed,
    guard: RefMut<'m, K, V>,
}

/// A locked key that is absent. While it is held, lookups do not find the key, and other threads
/// that want to lock or insert it wait.
pub struct VacantEntry<'m, K: Hash + Eq, V, S: BuildHasher = RandomState, F: Stores<K, V> = Boxed> {
    map: &'m Map<K, V, S, F>,
    hash: Mixed,
    node: NonNull<Locked<K, V>>,
}

// SAFETY: it is like a shared reference to the key, and a value may be sent through it. Any thread
// may unlock the key.
unsafe impl<K, V, S, F> Send for VacantEntry<'_, K, V, S, F>
where
    K: Hash + Eq + Send + Sync,
    V: Send,
    S: BuildHasher + Sync,
    F: Stores<K, V>,
{
}
// SAFETY: a shared reference only leads to the key.
unsafe impl<K, V, S, F> Sync for VacantEntry<'_, K, V, S, F>
where
    K: Hash + Eq + Send + Sync,
    V: Send,
    S: BuildHasher + Sync,
    F: Stores<K, V>,
{
}

impl<'m, K: Hash + Eq, V, S: BuildHasher, F: Stores<K, V>> Entry<'m, K, V, S, F> {
    pub(super) fn occupied(map: &'m Map<K, V, S, F>, hash: Mixed, guard: RefMut<'m, K, V>) -> Self {
        Self::Occupied(OccupiedEntry { map, hash, guard })
    }

    /// Returns the key.
    pub fn key(&self) -> &K {
        match self {
            Self::Occupied(entry) => entry.key(),
            Self::Vacant(entry) => entry.key(),
        }
    }

    /// Changes the value if the key is in the map.
    ///
    /// ```
    /// let map = relativist::LockMap::from([("one", 1)]);
    /// map.entry("one").and_modify(|n| *n += 10).or_insert(0);
    /// map.entry("two").and_modify(|n| *n += 10).or_insert(0);
    /// assert_eq!((map.get_copied("one"), map.get_copied("two")), (Some(11), Some(0)));
    /// ```
    pub fn and_modify(mut self, modify: impl FnOnce(&mut V)) -> Self {
        match &mut self {
            Self::Occupied(entry) => modify(entry.get_mut()),
            // First, here and below: if its destructor panicked later, the lock would be leaked.
            Self::Vacant(_) => drop(modify),
        }
        self
    }

    /// Inserts a value if the key is absent, and returns the guard of the entry.
    pub fn or_insert(self, value: V) -> RefMut<'m, K, V> {
        self.or_insert_with(|| value)
    }

    /// Inserts the result of `value` if the key is absent, and returns the guard of the entry.
    /// `value` runs while the key is locked: of all threads that want it, one calls its function.
    ///
    /// ```
    /// let lengths = relativist::LockMap::new();
    /// assert_eq!(*lengths.entry("seven").or_insert_with(|| "seven".len()), 5);
    /// ```
    pub fn or_insert_with(self, value: impl FnOnce() -> V) -> RefMut<'m, K, V> {
        self.or_insert_with_key(|_| value())
    }

    /// Like [`Entry::or_insert_with`], and passes the key.
    pub fn or_insert_with_key(self, value: impl FnOnce(&K) -> V) -> RefMut<'m, K, V> {
        match self {
            Self::Occupied(entry) => {
                drop(value);
                entry.into_ref()
            }
            Self::Vacant(entry) => {
                let value = value(entry.key());
                entry.insert(value)
            }
        }
    }

    /// Like [`Entry::or_insert_with`], for a function that may fail.
    ///
    /// # Errors
    ///
    /// Returns the error of `value`: the key stays absent.
    pub fn or_try_insert_with<E>(self, value: impl FnOnce() -> Result<V, E>) -> Result<RefMut<'m, K, V>, E> {
        match self {
            Self::Occupied(entry) => {
                drop(value);
                Ok(entry.into_ref())
            }
            Self::Vacant(entry) => Ok(entry.insert(value()?)),
        }
    }

    /// Inserts the default value if the key is absent, and returns the guard of the entry.
    ///
    /// ```
    /// let lists = relativist::LockMap::<&str, Vec<u32>>::new();
    /// lists.entry("primes").or_default().extend([2, 3, 5]);
    /// assert_eq!(lists.lock("primes").unwrap().len(), 3);
    /// ```
    pub fn or_default(self) -> RefMut<'m, K, V>
    where
        V: Default,
    {
        self.or_insert_with(V::default)
    }

    /// Sets the value, and returns the guard of the entry.
    pub fn insert(self, value: V) -> RefMut<'m, K, V> {
        self.insert_entry(value).into_ref()
    }

    /// Sets the value, and returns the entry.
    pub fn insert_entry(self, value: V) -> OccupiedEntry<'m, K, V, S, F> {
        match self {
            Self::Occupied(mut entry) => {
                entry.insert(value);
                entry
            }
            Self::Vacant(entry) => {
                let (map, hash) = (entry.map, entry.hash);
                OccupiedEntry { map, hash, guard: entry.insert(value) }
            }
        }
    }
}

impl<'m, K, V, S, F: Form> OccupiedEntry<'m, K, V, S, F> {
    /// Returns the key in the map.
    pub fn key(&self) -> &K {
        self.guard.key()
    }

    /// Returns the value.
    pub fn get(&self) -> &V {
        self.guard.value()
    }

    /// Returns the value, which may be changed.
    pub fn get_mut(&mut self) -> &mut V {
        self.guard.value_mut()
    }

    /// Returns the guard of the entry.
    #[doc(alias = "into_mut")]
    pub fn into_ref(self) -> RefMut<'m, K, V> {
        self.guard
    }

    /// Sets the value, and returns the previous one.
    pub fn insert(&mut self, value: V) -> V {
        std::mem::replace(self.get_mut(), value)
    }
}

impl<K: Hash + Eq, V, S: BuildHasher, F: Stores<K, V>> OccupiedEntry<'_, K, V, S, F> {
    /// Removes the entry, and returns the value.
    ///
    /// ```
    /// use relativist::LockMap;
    /// use relativist::lock_map::Entry;
    ///
    /// let members = LockMap::from([("red", vec!["ada"])]);
    /// if let Entry::Occupied(mut entry) = members.entry("red") {
    ///     entry.get_mut().retain(|name| *name != "ada");
    ///     if entry.get().is_empty() {
    ///         entry.remove(); // nobody has added a name in between
    ///     }
    /// }
    /// assert!(members.is_empty());
    /// ```
    pub fn remove(self) -> V {
        self.map.remove_locked(self.hash, self.guard)
    }

    /// Removes the entry, and returns a clone of the key, and the value.
    pub fn remove_entry(self) -> (K, V)
    where
        K: Clone,
    {
        let key = self.key().clone();
        (key, self.remove())
    }
}

impl<'m, K: Hash + Eq, V, S: BuildHasher, F: Stores<K, V>> VacantEntry<'m, K, V, S, F> {
    /// # Safety
    ///
    /// The entry is in the map, has no value, and is locked for the result alone.
    pub(super) unsafe fn new(map: &'m Map<K, V, S, F>, hash: Mixed, node: NonNull<Locked<K, V>>) -> Self {
        Self { map, hash, node }
    }

    /// Returns the key.
    pub fn key(&self) -> &K {
        // SAFETY: an entry that is locked is in the map.
        unsafe { &self.node.as_ref().key }
    }

    /// Inserts the value, and returns the guard of the entry.
    pub fn insert(self, value: V) -> RefMut<'m, K, V> {
        let node = ManuallyDrop::new(self).node;
        // SAFETY: an entry that is locked is in the map. It has no value before, and one
        // afterwards.
        unsafe {
            node.as_ref().value.fill(value);
            RefMut::new(node)
        }
    }
}

impl<K: Hash + Eq, V, S: BuildHasher, F: Stores<K, V>> Drop for VacantEntry<'_, K, V, S, F> {
    fn drop(&mut self) {
        // SAFETY: this thread has locked the entry.
        let is_removed = unsafe { self.map.remove_vacant(self.hash, self.node) };
        debug_assert!(is_removed, "it was inserted with this hash, and only this thread removes it");
    }
}

impl<K, V, S, F> fmt::Debug for Entry<'_, K, V, S, F>
where
    K: fmt::Debug + Hash + Eq,
    V: fmt::Debug,
    S: BuildHasher,
    F: Stores<K, V>,
{
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Occupied(entry) => entry.fmt(f),
            Self::Vacant(entry) => entry.fmt(f),
        }
    }
}

impl<K: fmt::Debug, V: fmt::Debug, S, F: Form> fmt::Debug for OccupiedEntry<'_, K, V, S, F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OccupiedEntry").field("key", self.key()).field("value", self.get()).finish()
    }
}

impl<K: fmt::Debug + Hash + Eq, V, S: BuildHasher, F: Stores<K, V>> fmt::Debug for VacantEntry<'_, K, V, S, F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("VacantEntry").field(self.key()).finish()
    }
}
