//! The handle: a map together with a read section, and all operations on entries.
//!
//! Operations that read an entry and then change it are optimistic. They look the entry up, call
//! the caller's closure outside of locks, and replace *exactly the entry* that was looked up. If
//! another thread has changed it since, or it has moved, they start again.

use std::convert::Infallible;
use std::fmt;
use std::hash::{BuildHasher, Hash, RandomState};

use equivalent::Equivalent;
use relativist_bucket::{Boxed, Form, Hash as Mixed, Process, Section};
use relativist_rcu::Guard;

use crate::entry::{Entry, Stores};
use crate::iter::{Drain, ExtractIf, Iter, Keys, Values};
use crate::key::{Borrowed, KeySource, Owned};
use crate::map::{BATCH, Map};
use crate::results::{Change, CompareExchangeError, OccupiedError};

/// The new entry, or the one that has its key, and the new one.
type PutNew<'p, K, V> = Result<&'p Entry<K, V>, (&'p Entry<K, V>, Entry<K, V>)>;

/// A map together with a read section. It has all operations on entries. Returned by [`Map::pin`]
/// and [`Map::pin_with`].
///
/// The references that it returns live as long as the handle:
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
/// A map cannot be dropped while it has handles:
///
/// ```compile_fail,E0505
/// # let map = relativist::HashMap::from([("one", 1)]);
/// let pinned = map.pin();
/// drop(map); // error: borrowed
/// assert_eq!(pinned.get("one"), Some(&1));
/// ```
///
/// The handle of a [`HashMap`](crate::HashMap) or a [`FlatMap`](crate::FlatMap) stays on its
/// thread, so it cannot be held across an `.await` of a task that may move to another thread:
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
pub struct Pinned<'m, K, V, S = RandomState, F: Form = Boxed> {
    pub(crate) map: &'m Map<K, V, S, F>,
    pub(crate) section: Section<'m, Entry<K, V>, F>,
}

impl<'m, K, V, S, F: Form> Pinned<'m, K, V, S, F> {
    /// Returns the map.
    pub fn map(&self) -> &'m Map<K, V, S, F> {
        self.map
    }

    /// See [`Map::len`].
    pub fn len(&self) -> usize {
        self.map.len()
    }

    /// See [`Map::is_empty`].
    pub fn is_empty(&self) -> bool {
        self.map.is_empty()
    }
}

impl<K, V, S, F: Form<Domain = Process>> Pinned<'_, K, V, S, F> {
    /// Returns the guard, for use with other maps.
    pub fn guard(&self) -> &Guard {
        self.section.guard()
    }
}

/// # Lookups
impl<K: Hash + Eq, V, S: BuildHasher, F: Form> Pinned<'_, K, V, S, F> {
    #[inline(always)]
    pub(crate) fn find<Q: Hash + Equivalent<K> + ?Sized>(&self, key: &Q) -> Option<&Entry<K, V>> {
        self.find_hashed(self.map.hashing.of(key), key)
    }

    #[inline(always)]
    fn find_hashed<Q: Equivalent<K> + ?Sized>(&self, hash: Mixed, key: &Q) -> Option<&Entry<K, V>> {
        self.section.find(hash, |entry| key.equivalent(&entry.key))
    }

    /// Returns the value of a key. Wait-free.
    ///
    /// Finds every key that is in the map throughout the call, also during resizes.
    #[inline]
    pub fn get<Q: Hash + Equivalent<K> + ?Sized>(&self, key: &Q) -> Option<&V> {
        self.find(key).map(|entry| &entry.value)
    }

    /// Returns the key that is in the map, and its value. Wait-free.
    #[inline]
    pub fn get_key_value<Q: Hash + Equivalent<K> + ?Sized>(&self, key: &Q) -> Option<(&K, &V)> {
        self.find(key).map(Entry::pair)
    }

    /// Returns whether the key is in the map. Wait-free.
    #[inline]
    pub fn contains_key<Q: Hash + Equivalent<K> + ?Sized>(&self, key: &Q) -> bool {
        self.find(key).is_some()
    }

    /// Returns the values of several keys.
    ///
    /// Each lookup is wait-free and linearizable on its own, like [`Pinned::get`]. This is faster
    /// if the map is larger than the processor's cache, because it requests the memory for a batch
    /// of lookups at once, while a loop of single lookups waits for one after the other. It
    /// allocates nothing.
    ///
    /// ```
    /// let map = relativist::HashMap::from([("one", 1), ("two", 2), ("three", 3)]);
    /// let pinned = map.pin();
    /// assert_eq!(pinned.get_many(["three", "four", "one"]), [Some(&3), None, Some(&1)]);
    /// ```
    pub fn get_many<Q, const N: usize>(&self, keys: [&Q; N]) -> [Option<&V>; N]
    where
        Q: Hash + Equivalent<K> + ?Sized,
    {
        let mut values = [None; N];
        let hashes = keys.map(|key| self.map.hashing.of(key));
        for start in (0..N).step_by(BATCH) {
            let batch = start..N.min(start + BATCH);
            let hashes = &hashes[batch.clone()];
            hashes.iter().for_each(|&hash| self.section.prefetch_word(hash));
            hashes.iter().for_each(|&hash| self.section.prefetch_slots(hash));
            hashes.iter().for_each(|&hash| self.section.prefetch_entry(hash));
            for (value, (&hash, key)) in values[batch.clone()].iter_mut().zip(hashes.iter().zip(&keys[batch])) {
                *value = self.find_hashed(hash, *key).map(|entry| &entry.value);
            }
        }
        values
    }

    /// Iterates over the entries, in an arbitrary order.
    ///
    /// An entry that is in the map throughout is seen exactly once, however often the map is
    /// resized. One that is inserted or removed during the iteration may be seen or not. A key is
    /// not seen twice, unless it is removed and inserted again. The whole iteration takes time in
    /// proportion to buckets and entries.
    ///
    /// A step is wait-free. It calls `Hash` or `Eq` of keys only if a resize or replacements are in
    /// progress.
    pub fn iter(&self) -> Iter<'_, K, V, S, F> {
        Iter(self.section.iter(&self.map.hashing))
    }

    /// Iterates over the keys; see [`Pinned::iter`].
    pub fn keys(&self) -> Keys<'_, K, V, S, F> {
        Keys(self.iter())
    }

    /// Iterates over the values; see [`Pinned::iter`].
    pub fn values(&self) -> Values<'_, K, V, S, F> {
        Values(self.iter())
    }
}

/// # Updates of a key
///
/// An update is one atomic step, and linearizable: other threads see the map before it or after it.
/// It blocks while another thread changes the same bucket.
impl<K: Hash + Eq, V, S: BuildHasher, F: Stores<K, V>> Pinned<'_, K, V, S, F> {
    /// Sets the value of a key, and returns the previous one. A lookup sees either of them, and at
    /// no instant neither.
    ///
    /// The entry is replaced as a whole, with its key, which matters if equal keys can be
    /// distinguished. (std's map keeps the old key.)
    #[inline]
    pub fn insert(&self, key: K, value: V) -> Option<&V> {
        let hash = self.map.hashing.of(&key);
        self.section.insert(hash, Entry { key, value }, &self.map.hashing).map(|old| &old.value)
    }

    /// Inserts an entry if the key is not in the map, and returns a reference to the value.
    /// Wait-free if the key is present.
    ///
    /// # Errors
    ///
    /// Returns an error if the key is in the map. The error contains the value in the map, and
    /// `value`.
    ///
    /// ```
    /// let map = relativist::HashMap::from([("a", 1)]);
    /// let pinned = map.pin();
    /// let error = pinned.try_insert("a", 2).unwrap_err();
    /// assert_eq!((error.current, error.value), (&1, 2));
    /// assert_eq!(pinned.try_insert("b", 3), Ok(&3));
    /// ```
    #[inline]
    pub fn try_insert(&self, key: K, value: V) -> Result<&V, OccupiedError<'_, V>> {
        let hash = self.map.hashing.of(&key);
        match self.put_new(hash, key, value) {
            Ok(new) => Ok(&new.value),
            Err((current, Entry { key, value })) => {
                // First: if its destructor panicked later, the result would be leaked.
                drop(key);
                Err(OccupiedError { current: &current.value, value })
            }
        }
    }

    #[inline(always)]
    fn put_new(&self, hash: Mixed, key: K, value: V) -> PutNew<'_, K, V> {
        self.section.try_insert(hash, Entry { key, value }, &self.map.hashing)
    }

    #[inline(always)]
    fn replace<'p>(
        &'p self,
        hash: Mixed,
        old: &'p Entry<K, V>,
        key: K,
        value: V,
    ) -> Result<&'p Entry<K, V>, Entry<K, V>> {
        self.section.replace(hash, old, Entry { key, value }, &self.map.hashing)
    }

    #[inline(always)]
    fn remove_exactly(&self, hash: Mixed, entry: &Entry<K, V>) -> bool {
        self.section.remove_exactly(hash, entry, &self.map.hashing)
    }

    /// Returns the value of a key. Inserts the key with `value` if it is absent. Wait-free if it is
    /// present.
    ///
    /// ```
    /// let map = relativist::HashMap::new();
    /// let pinned = map.pin();
    /// assert_eq!(pinned.get_or_insert("a", 1), &1);
    /// assert_eq!(pinned.get_or_insert("a", 2), &1);
    /// ```
    pub fn get_or_insert(&self, key: K, value: V) -> &V {
        self.get_or_insert_with(key, || value)
    }

    /// Returns the value of a key. Inserts the key with the result of `value` if it is absent.
    /// Wait-free if it is present.
    ///
    /// `value` runs at most once, outside of locks. If several threads miss the same key at the
    /// same time, each calls its `value`. One result is inserted, the others are dropped, and all
    /// threads get the one in the map.
    ///
    /// ```
    /// let map = relativist::HashMap::new();
    /// assert_eq!(map.pin().get_or_insert_with("seven", || "seven".len()), &5);
    /// ```
    #[doc(alias = "entry")]
    #[doc(alias = "or_insert_with")]
    pub fn get_or_insert_with(&self, key: K, value: impl FnOnce() -> V) -> &V {
        self.get_or_insert_by(Owned(Some(key)), value)
    }

    /// Like [`Pinned::get_or_insert_with`], by reference: converts it to a key only if the key is
    /// absent. So a hit allocates nothing.
    ///
    /// ```
    /// let lengths = relativist::HashMap::<String, usize>::new();
    /// let pinned = lengths.pin();
    /// assert_eq!(pinned.get_or_insert_with_ref("seven", || "seven".len()), &5);
    /// assert_eq!(pinned.get_or_insert_with_ref("seven", || unreachable!("it is present")), &5);
    /// ```
    ///
    /// # Panics
    ///
    /// Panics if the conversion returns another key.
    #[doc(alias = "entry_ref")]
    pub fn get_or_insert_with_ref<'q, Q>(&self, key: &'q Q, value: impl FnOnce() -> V) -> &V
    where
        Q: Hash + Equivalent<K> + ?Sized,
        K: From<&'q Q>,
    {
        self.get_or_insert_by(Borrowed::new(key), value)
    }

    fn get_or_insert_by(&self, mut key: impl KeySource<K>, value: impl FnOnce() -> V) -> &V {
        let hash = self.map.hashing.of(key.query());
        if let Some(entry) = self.find_hashed(hash, key.query()) {
            return &entry.value;
        }
        let value = value();
        match self.put_new(hash, key.take(), value) {
            Ok(new) => &new.value,
            Err((current, _)) => &current.value,
        }
    }

    /// Returns the value of a key. Inserts the key with the default value if it is absent.
    #[doc(alias = "or_default")]
    pub fn get_or_default(&self, key: K) -> &V
    where
        V: Default,
    {
        self.get_or_insert_with(key, V::default)
    }

    /// Replaces the value of a key by the result of `update`, and returns the new value. Returns
    /// `None` if the key is absent.
    ///
    /// Other threads see the old value or the new one. `update` runs outside of locks, and runs
    /// again if another thread has changed the entry, or a [`FlatMap`](crate::FlatMap) has moved
    /// it: only the last result is inserted. The old value is not moved out, because other threads
    /// may be reading it. `key` replaces the key in the map, as with [`Pinned::insert`].
    ///
    /// ```
    /// let map = relativist::HashMap::from([("a", 1)]);
    /// let pinned = map.pin();
    /// assert_eq!(pinned.update("a", |n| n + 1), Some(&2));
    /// assert_eq!(pinned.update("b", |n| n + 1), None);
    /// ```
    #[doc(alias = "alter")]
    #[doc(alias = "get_mut")]
    pub fn update(&self, key: K, update: impl FnMut(&V) -> V) -> Option<&V> {
        self.update_by(&mut Owned(Some(key)), update)
    }

    /// Like [`Pinned::update`], by reference: converts it to a key only if the key is present.
    ///
    /// # Panics
    ///
    /// Panics if the conversion returns another key.
    ///
    /// ```
    /// let map = relativist::HashMap::from([("a".to_string(), 1)]);
    /// assert_eq!(map.pin().update_ref("a", |n| n + 1), Some(&2));
    /// assert_eq!(map.pin().update_ref("b", |n| n + 1), None);
    /// ```
    pub fn update_ref<'q, Q>(&self, key: &'q Q, update: impl FnMut(&V) -> V) -> Option<&V>
    where
        Q: Hash + Equivalent<K> + ?Sized,
        K: From<&'q Q>,
    {
        self.update_by(&mut Borrowed::new(key), update)
    }

    /// Like [`Pinned::update`], but inserts `value` if the key is absent.
    ///
    /// ```
    /// let words = relativist::HashMap::new();
    /// for word in ["no", "more", "no", "less"] {
    ///     words.pin().update_or_insert(word, |n| n + 1, 1);
    /// }
    /// assert_eq!(words.pin().get("no"), Some(&2));
    /// ```
    #[doc(alias = "and_modify")]
    pub fn update_or_insert(&self, key: K, update: impl FnMut(&V) -> V, value: V) -> &V {
        self.update_or_insert_with(key, update, || value)
    }

    /// Like [`Pinned::update`], but inserts the result of `value` if the key is absent. `value`
    /// runs at most once.
    pub fn update_or_insert_with(&self, key: K, mut update: impl FnMut(&V) -> V, value: impl FnOnce() -> V) -> &V {
        self.update_or_insert_by(Owned(Some(key)), &mut update, value)
    }

    /// Like [`Pinned::update_or_insert_with`], by reference: the new entry gets a key that is
    /// converted from it.
    ///
    /// # Panics
    ///
    /// Panics if the conversion returns another key.
    pub fn update_or_insert_with_ref<'q, Q>(
        &self,
        key: &'q Q,
        mut update: impl FnMut(&V) -> V,
        value: impl FnOnce() -> V,
    ) -> &V
    where
        Q: Hash + Equivalent<K> + ?Sized,
        K: From<&'q Q>,
    {
        self.update_or_insert_by(Borrowed::new(key), &mut update, value)
    }

    fn update_or_insert_by(
        &self,
        mut key: impl KeySource<K>,
        update: &mut impl FnMut(&V) -> V,
        value: impl FnOnce() -> V,
    ) -> &V {
        if let Some(new) = self.update_by(&mut key, &mut *update) {
            return new;
        }
        let hash = self.map.hashing.of(key.query());
        let mut value = value();
        loop {
            match self.put_new(hash, key.take(), value) {
                Ok(new) => return &new.value,
                Err((_, entry)) => {
                    key.give_back(entry.key);
                    value = entry.value;
                }
            }
            if let Some(new) = self.update_by(&mut key, &mut *update) {
                return new;
            }
        }
    }

    /// Updates a value. Returns `None` if the key is absent.
    fn update_by(&self, key: &mut impl KeySource<K>, mut update: impl FnMut(&V) -> V) -> Option<&V> {
        let hash = self.map.hashing.of(key.query());
        loop {
            let old = self.find_hashed(hash, key.query())?;
            let new = update(&old.value);
            match self.replace(hash, old, key.take(), new) {
                Ok(new) => return Some(&new.value),
                Err(entry) => key.give_back(entry.key),
            }
        }
    }

    /// Calls `decide` with the value of a key, or `None`, and applies the result: `Some(value)`
    /// sets the value, `None` removes the entry. All other operations on an entry are special
    /// cases of this one, or of [`Pinned::try_compute`].
    ///
    /// `decide` runs outside of locks, and runs again if another thread has changed the entry, or a
    /// [`FlatMap`](crate::FlatMap) has moved it: only its last result is applied. So what it
    /// decides, and what happens, is one atomic step. It may use the map. If there is a new value,
    /// `key` replaces the key in the map, as with [`Pinned::insert`].
    ///
    /// ```
    /// let map = relativist::HashMap::from([("bolts", 2)]);
    /// let pinned = map.pin();
    /// let change = pinned.compute("bolts", |left| left.map(|n| n - 1).filter(|n| *n > 0));
    /// assert_eq!((change.old, change.new), (Some(&2), Some(&1)));
    /// pinned.compute("bolts", |left| left.map(|n| n - 1).filter(|n| *n > 0));
    /// assert!(map.is_empty());
    /// ```
    #[doc(alias = "entry")]
    pub fn compute<'p>(&'p self, key: K, mut decide: impl FnMut(Option<&'p V>) -> Option<V>) -> Change<'p, V> {
        let Ok(change) = self.try_compute(key, |value| Ok::<_, Infallible>(decide(value)));
        change
    }

    /// Like [`Pinned::compute`], but `decide` may fail: then nothing changes.
    ///
    /// # Errors
    ///
    /// Returns the error of `decide`.
    ///
    /// ```
    /// use relativist::HashMap;
    ///
    /// /// Takes one from the stock. Removes the entry when none is left.
    /// fn take(stock: &HashMap<&'static str, u32>, what: &'static str) -> Result<(), String> {
    ///     stock.pin().try_compute(what, |left| match left {
    ///         None => Err(format!("no {what} left")),
    ///         Some(1) => Ok(None),
    ///         Some(n) => Ok(Some(n - 1)),
    ///     })?;
    ///     Ok(())
    /// }
    ///
    /// let stock = HashMap::from([("bolts", 2)]);
    /// assert_eq!(take(&stock, "bolts"), Ok(()));
    /// assert_eq!(take(&stock, "bolts"), Ok(()));
    /// assert_eq!(take(&stock, "bolts"), Err("no bolts left".into()));
    /// assert!(stock.is_empty());
    /// ```
    pub fn try_compute<'p, E>(
        &'p self,
        key: K,
        decide: impl FnMut(Option<&'p V>) -> Result<Option<V>, E>,
    ) -> Result<Change<'p, V>, E> {
        self.compute_by(Owned(Some(key)), decide)
    }

    /// Like [`Pinned::compute`], by reference: converts it to a key only if there is a new value.
    ///
    /// # Panics
    ///
    /// Panics if the conversion returns another key.
    pub fn compute_ref<'p, 'q, Q>(
        &'p self,
        key: &'q Q,
        mut decide: impl FnMut(Option<&'p V>) -> Option<V>,
    ) -> Change<'p, V>
    where
        Q: Hash + Equivalent<K> + ?Sized,
        K: From<&'q Q>,
    {
        let Ok(change) = self.compute_by(Borrowed::new(key), |value| Ok::<_, Infallible>(decide(value)));
        change
    }

    fn compute_by<'p, E>(
        &'p self,
        mut key: impl KeySource<K>,
        mut decide: impl FnMut(Option<&'p V>) -> Result<Option<V>, E>,
    ) -> Result<Change<'p, V>, E> {
        let hash = self.map.hashing.of(key.query());
        loop {
            let found = self.find_hashed(hash, key.query());
            let old = found.map(|entry| &entry.value);
            let decision = match decide(old) {
                Ok(decision) => decision,
                Err(error) => {
                    // The key is dropped first: if its destructor panicked later, the error would
                    // be leaked.
                    drop(key);
                    return Err(error);
                }
            };
            match (found, decision) {
                (None, None) => return Ok(Change { old, new: None }),
                (Some(entry), None) => {
                    if self.remove_exactly(hash, entry) {
                        return Ok(Change { old, new: None });
                    }
                }
                (_, Some(value)) => {
                    let done = match found {
                        None => self.put_new(hash, key.take(), value).map_err(|(_, entry)| entry),
                        Some(old) => self.replace(hash, old, key.take(), value),
                    };
                    match done {
                        Ok(new) => return Ok(Change { old, new: Some(&new.value) }),
                        Err(entry) => key.give_back(entry.key),
                    }
                }
            }
        }
    }

    /// Replaces the value of a key if it equals `current`, and returns the replaced value.
    ///
    /// Values are compared outside of locks. To insert if there is no value, use
    /// [`Pinned::try_insert`]; to remove conditionally, [`Pinned::remove_if`].
    ///
    /// # Errors
    ///
    /// Returns an error if the value is a different one, or the key is absent. The error contains
    /// the value in the map, if any, and `new`.
    ///
    /// ```
    /// let map = relativist::HashMap::from([("a", 1)]);
    /// let pinned = map.pin();
    /// assert_eq!(pinned.compare_exchange("a", &1, 2), Ok(&1));
    /// let error = pinned.compare_exchange("a", &1, 3).unwrap_err();
    /// assert_eq!((error.current, error.new), (Some(&2), 3));
    /// ```
    pub fn compare_exchange(&self, mut key: K, current: &V, mut new: V) -> Result<&V, CompareExchangeError<'_, V>>
    where
        V: PartialEq,
    {
        let hash = self.map.hashing.of(&key);
        loop {
            let found = self.find_hashed(hash, &key);
            let Some(old) = found.filter(|entry| entry.value == *current) else {
                drop(key); // first, as in `compute`
                return Err(CompareExchangeError { current: found.map(|entry| &entry.value), new });
            };
            match self.replace(hash, old, key, new) {
                Ok(_) => return Ok(&old.value),
                Err(entry) => (key, new) = (entry.key, entry.value),
            }
        }
    }

    /// Removes a key and returns its value, which stays valid as long as the handle and is dropped
    /// after a grace period. Wait-free if the key is absent.
    #[inline]
    pub fn remove<Q: Hash + Equivalent<K> + ?Sized>(&self, key: &Q) -> Option<&V> {
        self.remove_entry(key).map(|(_, value)| value)
    }

    /// Like [`Pinned::remove`], but also returns the key that was in the map.
    #[inline]
    pub fn remove_entry<Q: Hash + Equivalent<K> + ?Sized>(&self, key: &Q) -> Option<(&K, &V)> {
        let hash = self.map.hashing.of(key);
        let removed = self.section.remove(hash, |entry| key.equivalent(&entry.key), &self.map.hashing);
        removed.map(Entry::pair)
    }

    /// Removes a key if `condition` returns true for its entry, and returns the entry, which is
    /// valid as long as the handle. Wait-free if the key is absent.
    ///
    /// `condition` runs outside of locks, and runs again if another thread has changed the entry,
    /// or a [`FlatMap`](crate::FlatMap) has moved it: the removed entry is one for which it
    /// returned true. Values that change in place may have changed since: see [`Pinned::retain`].
    ///
    /// ```
    /// let map = relativist::HashMap::from([("a", 1)]);
    /// let pinned = map.pin();
    /// assert_eq!(pinned.remove_if("a", |_, &n| n > 1), None);
    /// assert_eq!(pinned.remove_if("a", |_, &n| n == 1), Some((&"a", &1)));
    /// ```
    pub fn remove_if<Q>(&self, key: &Q, mut condition: impl FnMut(&K, &V) -> bool) -> Option<(&K, &V)>
    where
        Q: Hash + Equivalent<K> + ?Sized,
    {
        let hash = self.map.hashing.of(key);
        loop {
            let entry = self.find_hashed(hash, key).filter(|entry| condition(&entry.key, &entry.value))?;
            if self.remove_exactly(hash, entry) {
                return Some(entry.pair());
            }
        }
    }
}

/// # Updates of many keys
///
/// An operation removes exactly the entry that it has read. If another thread has replaced that
/// entry meanwhile, the new one stays. (A [`FlatMap`](crate::FlatMap) cannot tell a replaced entry
/// from one that has moved: there the closure runs again, for the new entry.)
impl<K: Hash + Eq, V, S: BuildHasher, F: Stores<K, V>> Pinned<'_, K, V, S, F> {
    /// Removes all entries in one atomic step. The entries are dropped after a grace period. The
    /// map has the room that it was made with. As after other removals, the thread waits for
    /// readers when it leaves its section if too many bytes wait already.
    ///
    /// # Panics
    ///
    /// Panics if there is no memory for the buckets of an empty map.
    pub fn clear(&self) {
        self.map.table.clear().unwrap_or_else(|error| panic!("{error}"));
    }

    /// Removes the entries for which `keep` returns false. `keep` runs outside of locks, once for
    /// each entry that [`Pinned::iter`] would see.
    ///
    /// Of values that are replaced, decision and removal are one atomic step. A value that changes
    /// in place, such as a mutex, may change between the call of `keep` and the removal:
    /// [`LockMap`](crate::LockMap) excludes that.
    ///
    /// ```
    /// let map: relativist::HashMap<u32, u32> = (0..10).map(|n| (n, n * n)).collect();
    /// map.pin().retain(|_, square| square % 2 == 0);
    /// assert_eq!(map.len(), 5);
    /// ```
    pub fn retain(&self, mut keep: impl FnMut(&K, &V) -> bool) {
        self.extract_if(|key, value| !keep(key, value)).for_each(drop);
    }

    /// Returns an iterator that removes the entries for which `extract` returns true. Entries that
    /// the iterator does not reach stay. Each entry is returned to one thread only, even if several
    /// threads remove entries. What is atomic: see [`Pinned::retain`].
    ///
    /// ```
    /// let map: relativist::HashMap<u32, u32> = (0..10).map(|n| (n, n * n)).collect();
    /// let pinned = map.pin();
    /// let odd: u32 = pinned.extract_if(|_, square| square % 2 == 1).map(|(_, square)| square).sum();
    /// assert_eq!((odd, map.len()), (1 + 9 + 25 + 49 + 81, 5));
    /// ```
    pub fn extract_if<P: FnMut(&K, &V) -> bool>(&self, extract: P) -> ExtractIf<'_, K, V, S, F, P> {
        let pinned = Pinned { map: self.map, section: self.section.borrow() };
        ExtractIf { pinned, entries: self.iter(), extract }
    }

    /// Removes all entries and returns them. Entries that the iterator has not reached are removed
    /// when it is dropped. [`Pinned::clear`] is faster.
    ///
    /// ```
    /// let map: relativist::HashMap<u32, u32> = (0..10).map(|n| (n, n * n)).collect();
    /// assert_eq!(map.pin().drain().count(), 10);
    /// assert!(map.is_empty());
    /// ```
    pub fn drain(&self) -> Drain<'_, K, V, S, F> {
        Drain(self.extract_if(|_, _| true))
    }

    /// Removes exactly this entry, if it is in the map.
    pub(crate) fn unlink(&self, entry: &Entry<K, V>) -> bool {
        self.remove_exactly(self.map.hashing.of(&entry.key), entry)
    }

    /// Inserts an entry, and returns the one that it replaces.
    pub(crate) fn put(&self, key: K, value: V) -> Option<&Entry<K, V>> {
        let hash = self.map.hashing.of(&key);
        self.section.insert(hash, Entry { key, value }, &self.map.hashing)
    }

    /// Returns the entry with a key, which is inserted if it is absent.
    pub(crate) fn get_or_put(&self, key: K, value: V) -> &Entry<K, V> {
        let hash = self.map.hashing.of(&key);
        match self.put_new(hash, key, value) {
            Ok(entry) | Err((entry, _)) => entry,
        }
    }
}

impl<'p, K: Hash + Eq, V, S: BuildHasher, F: Form> IntoIterator for &'p Pinned<'_, K, V, S, F> {
    type Item = (&'p K, &'p V);
    type IntoIter = Iter<'p, K, V, S, F>;

    fn into_iter(self) -> Self::IntoIter {
        self.iter()
    }
}

impl<K: fmt::Debug + Hash + Eq, V: fmt::Debug, S: BuildHasher, F: Form> fmt::Debug for Pinned<'_, K, V, S, F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map().entries(self).finish()
    }
}
