//! A map together with a guard.

use std::borrow::Borrow;
use std::fmt;
use std::hash::{BuildHasher, Hash};

use relativist_rcu::Guard;

use crate::access::OccupiedError;
use crate::iter::Iter;
use crate::map::HashMap;

/// A map in a read section: all operations on entries, without a guard to pass. From [`HashMap::pin`].
///
/// References that it returns live as long as the handle. It stays on its thread, like the guard in it, so it can't be held
/// across an `.await` of a task that may move:
///
/// ```compile_fail
/// async fn wait() {}
/// async fn task(map: &relativist::HashMap<u32, u32>) {
///     let pinned = map.pin();
///     wait().await; // error further down: the future is not `Send`
///     pinned.get(&1);
/// }
/// fn spawn(future: impl Future + Send) {}
/// # let map = relativist::HashMap::new();
/// spawn(task(&map));
/// ```
///
/// ```
/// async fn wait() {}
/// async fn task(map: &relativist::HashMap<u32, u32>) {
///     wait().await;
///     map.pin().get(&1);
/// }
/// fn spawn(future: impl Future + Send) {}
/// # let map = relativist::HashMap::new();
/// spawn(task(&map));
/// ```
pub struct Pinned<'m, K, V, S> {
    map: &'m HashMap<K, V, S>,
    guard: Guard,
}

impl<'m, K, V, S> Pinned<'m, K, V, S> {
    #[inline(always)]
    pub(crate) fn new(map: &'m HashMap<K, V, S>, guard: Guard) -> Self {
        Self { map, guard }
    }

    /// The map.
    pub fn map(&self) -> &'m HashMap<K, V, S> {
        self.map
    }

    /// The guard, for use with other maps.
    pub fn guard(&self) -> &Guard {
        &self.guard
    }

    /// See [`HashMap::len`].
    pub fn len(&self) -> usize {
        self.map.len()
    }

    /// See [`HashMap::is_empty`].
    pub fn is_empty(&self) -> bool {
        self.map.is_empty()
    }

    /// See [`HashMap::iter`].
    pub fn iter(&self) -> Iter<'_, K, V> {
        self.map.iter(&self.guard)
    }
}

impl<K: Hash + Eq, V, S: BuildHasher> Pinned<'_, K, V, S> {
    /// See [`HashMap::get`].
    #[inline]
    pub fn get<Q>(&self, key: &Q) -> Option<&V>
    where
        K: Borrow<Q>,
        Q: Hash + Eq + ?Sized,
    {
        self.map.get(key, &self.guard)
    }

    /// See [`HashMap::get_key_value`].
    #[inline]
    pub fn get_key_value<Q>(&self, key: &Q) -> Option<(&K, &V)>
    where
        K: Borrow<Q>,
        Q: Hash + Eq + ?Sized,
    {
        self.map.get_key_value(key, &self.guard)
    }

    /// See [`HashMap::contains_key`].
    #[inline]
    pub fn contains_key<Q>(&self, key: &Q) -> bool
    where
        K: Borrow<Q>,
        Q: Hash + Eq + ?Sized,
    {
        self.map.contains_key(key, &self.guard)
    }
}

impl<K, V, S> Pinned<'_, K, V, S>
where
    K: Hash + Eq + Send + Sync + 'static,
    V: Send + Sync + 'static,
    S: BuildHasher,
{
    /// See [`HashMap::insert`].
    pub fn insert(&self, key: K, value: V) -> Option<&V> {
        self.map.insert(key, value, &self.guard)
    }

    /// See [`HashMap::try_insert`].
    ///
    /// # Errors
    ///
    /// When the key is in the map.
    pub fn try_insert(&self, key: K, value: V) -> Result<&V, OccupiedError<'_, V>> {
        self.map.try_insert(key, value, &self.guard)
    }

    /// See [`HashMap::remove`].
    pub fn remove<Q>(&self, key: &Q) -> Option<&V>
    where
        K: Borrow<Q>,
        Q: Hash + Eq + ?Sized,
    {
        self.map.remove(key, &self.guard)
    }

    /// See [`HashMap::clear`].
    pub fn clear(&self) {
        self.map.clear(&self.guard);
    }
}

impl<'p, K, V, S> IntoIterator for &'p Pinned<'_, K, V, S> {
    type Item = (&'p K, &'p V);
    type IntoIter = Iter<'p, K, V>;

    fn into_iter(self) -> Iter<'p, K, V> {
        self.iter()
    }
}

impl<K: fmt::Debug, V: fmt::Debug, S> fmt::Debug for Pinned<'_, K, V, S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.map.fmt(f)
    }
}
