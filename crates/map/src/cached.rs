//! A handle that remembers the last key that was found.

use std::fmt;
use std::hash::{BuildHasher, Hash};

use equivalent::Equivalent;

use crate::map::Pinned;
use relativist_table::CachedLookup;
use relativist_table::node::Node;

/// A pinned map that looks up the key that it found last without hashing it again; returned by
/// [`Pinned::cached`].
///
/// This is the lookup cache of Mosberger's "Map Library Design Notes" (1996, section 2.3), for maps
/// that change concurrently: it compares the key, and then checks whether the bucket is unchanged.
/// So it never returns an entry that is no longer in the map.
///
/// *When to use it:* if runs of the same key are likely (packets of one connection, rows in the
/// order of a foreign key) and hashing costs more than comparing: long keys, or SipHash, std's
/// default. With integer keys and a hasher like FxHash the gain is small. If no key repeats, the
/// cost is a comparison, and a second load of the head that the lookup has just loaded. The handle
/// remembers only entries that are the first of their chain (four of five, at half an entry per
/// bucket), and looks up the others as usual.
///
/// ```
/// let map = relativist::HashMap::from([("one", 1), ("two", 2)]);
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
    last: Option<(CachedLookup<'p>, &'p Node<K, V>)>,
}

impl<'m, K, V, S> Pinned<'m, K, V, S> {
    /// Returns a handle for lookups that remembers the last key that it found. Each caller creates
    /// its own.
    pub fn cached(&self) -> Cached<'_, 'm, K, V, S> {
        Cached { pinned: self, last: None }
    }
}

impl<'p, K: Hash + Eq, V, S: BuildHasher> Cached<'p, '_, K, V, S> {
    /// Returns the value of a key, with the guarantees of [`HashMap::get`](crate::HashMap::get).
    /// Wait-free.
    #[inline]
    pub fn get<Q>(&mut self, key: &Q) -> Option<&'p V>
    where
        Q: Hash + Equivalent<K> + ?Sized,
    {
        let table = &self.pinned.map().table;
        let is_same = |(lookup, node): &(CachedLookup<'p>, &'p Node<K, V>)| {
            key.equivalent(&node.key) && lookup.is_still_valid(table, self.pinned.guard())
        };
        match self.last.as_ref().filter(|last| is_same(last)) {
            Some((_, node)) => Some(&node.value),
            None => self.look_up(key),
        }
    }

    #[inline]
    fn look_up<Q>(&mut self, key: &Q) -> Option<&'p V>
    where
        Q: Hash + Equivalent<K> + ?Sized,
    {
        let pinned: &'p Pinned<'_, K, V, S> = self.pinned;
        let (map, guard) = (pinned.map(), pinned.guard());
        let hash = map.hash(key);
        let link = map.table.find(hash, map.has_key(key), guard)?;
        // SAFETY: found in this map under the guard, which lives as long as the pinned map.
        let node = unsafe { map.node(link) };
        self.last = map.table.cached_lookup(hash, link, guard).map(|lookup| (lookup, node));
        Some(&node.value)
    }
}

impl<K, V, S> fmt::Debug for Cached<'_, '_, K, V, S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Cached")
    }
}
