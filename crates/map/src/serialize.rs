//! Maps and sets for `serde` (feature `serde`).

use std::fmt;
use std::hash::{BuildHasher, Hash};
use std::marker::PhantomData;

use relativist_rcu::read;
use serde::de::{Deserialize, Deserializer, MapAccess, SeqAccess, Visitor};
use serde::ser::{Serialize, Serializer};

use crate::map::HashMap;
use crate::set::HashSet;

/// The maximum number of entries for which buckets are allocated before the input is read. The
/// number that the input announces may be wrong.
const MAX_TRUSTED: usize = 4096;

/// Serializes the entries that [`HashMap::iter`] sees. The number of entries is passed to formats
/// that need it beforehand.
impl<K: Serialize, V: Serialize, S> Serialize for HashMap<K, V, S> {
    fn serialize<T: Serializer>(&self, serializer: T) -> Result<T::Ok, T::Error> {
        let guard = read();
        // Collected first, because the number must be correct even if other threads update the map.
        let entries: Vec<_> = self.iter(&guard).collect();
        serializer.collect_map(entries)
    }
}

impl<T: Serialize, S> Serialize for HashSet<T, S> {
    fn serialize<R: Serializer>(&self, serializer: R) -> Result<R::Ok, R::Error> {
        let guard = read();
        let elements: Vec<_> = self.as_map().keys(&guard).collect();
        serializer.collect_seq(elements)
    }
}

/// If several entries have equal keys, the last one is kept.
impl<'de, K, V, S> Deserialize<'de> for HashMap<K, V, S>
where
    K: Deserialize<'de> + Hash + Eq + Send + Sync + 'static,
    V: Deserialize<'de> + Send + Sync + 'static,
    S: BuildHasher + Default,
{
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(Entries(PhantomData))
    }
}

/// The first one of several equal elements is kept.
impl<'de, T, S> Deserialize<'de> for HashSet<T, S>
where
    T: Deserialize<'de> + Hash + Eq + Send + Sync + 'static,
    S: BuildHasher + Default,
{
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_seq(Elements(PhantomData))
    }
}

struct Entries<K, V, S>(PhantomData<HashMap<K, V, S>>);

impl<'de, K, V, S> Visitor<'de> for Entries<K, V, S>
where
    K: Deserialize<'de> + Hash + Eq + Send + Sync + 'static,
    V: Deserialize<'de> + Send + Sync + 'static,
    S: BuildHasher + Default,
{
    type Value = HashMap<K, V, S>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a map")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<Self::Value, A::Error> {
        let map = HashMap::default();
        map.expect(entries.size_hint().unwrap_or(0).min(MAX_TRUSTED));
        while let Some((key, value)) = entries.next_entry()? {
            map.pin().insert(key, value);
        }
        Ok(map)
    }
}

struct Elements<T, S>(PhantomData<HashSet<T, S>>);

impl<'de, T, S> Visitor<'de> for Elements<T, S>
where
    T: Deserialize<'de> + Hash + Eq + Send + Sync + 'static,
    S: BuildHasher + Default,
{
    type Value = HashSet<T, S>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a set")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut elements: A) -> Result<Self::Value, A::Error> {
        let set = HashSet::default();
        set.as_map().expect(elements.size_hint().unwrap_or(0).min(MAX_TRUSTED));
        while let Some(element) = elements.next_element()? {
            set.pin().insert(element);
        }
        Ok(set)
    }
}
