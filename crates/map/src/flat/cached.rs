//! A handle that remembers the last key that was found.

use std::fmt;
use std::hash::{BuildHasher, Hash};
use std::ptr;

use equivalent::Equivalent;

use super::map::Pinned;
use super::segment::{Entry, Place};

/// A pinned map that looks up the key that it found last without hashing it again; returned by
/// [`Pinned::cached`].
///
/// It compares the key, and then checks that the entry is still in its place: so it never returns
/// an entry that is no longer in the map. [`Cached`](crate::Cached) of `HashMap` says when to use
/// it. The handle remembers only entries that are in the first segment of their bucket (at the
/// highest load, four of five), and looks up the others as usual.
///
/// ```
/// let map = relativist::FlatMap::from([("one", 1), ("two", 2)]);
/// let pinned = map.pin();
/// let mut cached = pinned.cached();
/// assert_eq!(cached.get("one"), Some(&1));
/// assert_eq!(cached.get("one"), Some(&1)); // not hashed again
/// map.pin().insert("one", 11);
/// assert_eq!(cached.get("one"), Some(&11));
/// map.pin().remove("one");
/// assert_eq!(cached.get("one"), None);
/// ```
pub struct Cached<'p, 'm, K, V, S> {
    pinned: &'p Pinned<'m, K, V, S>,
    last: Option<FoundEntry<'p, K, V>>,
}

/// An entry that a lookup has found in the first segment of its bucket.
struct FoundEntry<'p, K, V> {
    place: Place<'p, K, V>,
    entry: &'p Entry<K, V>,
}

impl<K, V> FoundEntry<'_, K, V> {
    /// Returns whether a lookup would find the entry now. Wait-free: one load.
    ///
    /// If the slot is live, the entry is in the map: other threads can have vacated the slot since
    /// it was found, but not used it again, because the guard under which it was found is still
    /// alive. If the bucket has moved, the slot is not live.
    #[inline]
    fn is_still_valid(&self) -> bool {
        self.place.is_live()
    }
}

impl<'m, K, V, S> Pinned<'m, K, V, S> {
    /// Returns a handle for lookups that remembers the last key that it found. Each caller creates
    /// its own.
    pub fn cached(&self) -> Cached<'_, 'm, K, V, S> {
        Cached { pinned: self, last: None }
    }
}

impl<'p, K: Hash + Eq, V, S: BuildHasher> Cached<'p, '_, K, V, S> {
    /// Returns the value of a key, with the guarantees of [`FlatMap::get`](super::FlatMap::get).
    /// Wait-free.
    #[inline]
    pub fn get<Q>(&mut self, key: &Q) -> Option<&'p V>
    where
        Q: Hash + Equivalent<K> + ?Sized,
    {
        match self.last.as_ref().filter(|last| key.equivalent(&last.entry.key) && last.is_still_valid()) {
            Some(last) => Some(&last.entry.value),
            None => self.look_up(key),
        }
    }

    #[inline]
    fn look_up<Q>(&mut self, key: &Q) -> Option<&'p V>
    where
        Q: Hash + Equivalent<K> + ?Sized,
    {
        let (table, guard) = (&self.pinned.map().table, self.pinned.guard());
        let hash = table.hash(key);
        let place = table.find_place(hash, |found| key.equivalent(found), guard)?;
        // SAFETY: live in this section, which lasts as long as the pinned map.
        let entry = unsafe { place.entry() };
        // During a resize this may be another array than that of the entry.
        let is_in_first_segment = ptr::eq(place.segment, table.array(guard).bucket(hash));
        self.last = is_in_first_segment.then_some(FoundEntry { place, entry });
        Some(&entry.value)
    }
}

impl<K, V, S> fmt::Debug for Cached<'_, '_, K, V, S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Cached")
    }
}
