//! Maps and sets for `serde` (feature `serde`).

use std::fmt;
use std::hash::{BuildHasher, Hash};
use std::marker::PhantomData;

use relativist_bucket::Form;
use serde::de::{Deserialize, Deserializer, MapAccess, SeqAccess, Visitor};
use serde::ser::{Error, Serialize, SerializeMap, Serializer};

use crate::entry::Stores;
use crate::lock_map;
use crate::map::Map;
use crate::set::Set;

/// Returns for how many entries of this type buckets are allocated before the input is read. The
/// number that the input announces may be wrong.
fn trusted<E>(announced: Option<usize>) -> usize {
    const MAX_BYTES: usize = 64 << 10;
    announced.unwrap_or(0).min(MAX_BYTES / size_of::<E>().max(1))
}

/// Serializes the entries that [`Pinned::iter`](crate::Pinned::iter) sees. The number of entries is
/// passed to formats that need it beforehand.
impl<K: Serialize + Hash + Eq, V: Serialize, S: BuildHasher, F: Form> Serialize for Map<K, V, S, F> {
    fn serialize<R: Serializer>(&self, serializer: R) -> Result<R::Ok, R::Error> {
        let pinned = self.pin();
        // Collected first, because the number must be correct even if other threads update the map.
        let entries: Vec<_> = pinned.iter().collect();
        serializer.collect_map(entries)
    }
}

impl<T: Serialize + Hash + Eq, S: BuildHasher, F: Form> Serialize for Set<T, S, F> {
    fn serialize<R: Serializer>(&self, serializer: R) -> Result<R::Ok, R::Error> {
        let pinned = self.pin();
        let elements: Vec<_> = pinned.iter().collect();
        serializer.collect_seq(elements)
    }
}

/// Serializes the entries, one after the other, each under its lock. A format that is not for
/// humans gets the number of entries beforehand: serializing fails if other threads change it
/// meanwhile.
impl<K: Serialize + Hash + Eq, V: Serialize, S: BuildHasher, F: Form> Serialize for lock_map::Map<K, V, S, F> {
    fn serialize<R: Serializer>(&self, serializer: R) -> Result<R::Ok, R::Error> {
        let expected = (!serializer.is_human_readable()).then(|| self.len());
        let mut map = serializer.serialize_map(expected)?;
        let mut count = 0;
        for entry in self {
            map.serialize_entry(entry.key(), entry.value())?;
            count += 1;
        }
        if expected.is_some_and(|expected| expected != count) {
            return Err(R::Error::custom(
                "other threads have inserted or removed entries: serialize a clone of the map",
            ));
        }
        map.end()
    }
}

/// Reads maps of this type.
struct Entries<M>(PhantomData<M>);

/// Reads sets of this type.
struct Elements<T>(PhantomData<T>);

/// If several entries have equal keys, the last one is kept.
impl<'de, K, V, S, F> Deserialize<'de> for Map<K, V, S, F>
where
    K: Deserialize<'de> + Hash + Eq,
    V: Deserialize<'de>,
    S: Default + BuildHasher,
    F: Stores<K, V>,
{
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(Entries::<Self>(PhantomData))
    }
}

/// If several entries have equal keys, the last value is kept.
impl<'de, K, V, S, F> Deserialize<'de> for lock_map::Map<K, V, S, F>
where
    K: Deserialize<'de> + Hash + Eq,
    V: Deserialize<'de>,
    S: Default + BuildHasher,
    F: lock_map::Stores<K, V>,
{
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(Entries::<Self>(PhantomData))
    }
}

/// The first one of several equal elements is kept.
impl<'de, T, S, F> Deserialize<'de> for Set<T, S, F>
where
    T: Deserialize<'de> + Hash + Eq,
    S: Default + BuildHasher,
    F: Stores<T, ()>,
{
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_seq(Elements::<Self>(PhantomData))
    }
}

impl<'de, K, V, S, F> Visitor<'de> for Entries<Map<K, V, S, F>>
where
    K: Deserialize<'de> + Hash + Eq,
    V: Deserialize<'de>,
    S: Default + BuildHasher,
    F: Stores<K, V>,
{
    type Value = Map<K, V, S, F>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a map")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<Self::Value, A::Error> {
        let map = Map::default();
        // Without memory for the buckets the map grows as far as it can.
        _ = map.try_reserve(trusted::<(K, V)>(entries.size_hint()));
        while let Some((key, value)) = entries.next_entry()? {
            map.pin().insert(key, value);
        }
        Ok(map)
    }
}

impl<'de, K, V, S, F> Visitor<'de> for Entries<lock_map::Map<K, V, S, F>>
where
    K: Deserialize<'de> + Hash + Eq,
    V: Deserialize<'de>,
    S: Default + BuildHasher,
    F: lock_map::Stores<K, V>,
{
    type Value = lock_map::Map<K, V, S, F>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a map")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<Self::Value, A::Error> {
        let map = lock_map::Map::default();
        // As above.
        _ = map.try_reserve(trusted::<(K, V)>(entries.size_hint()));
        while let Some((key, value)) = entries.next_entry()? {
            map.insert(key, value);
        }
        Ok(map)
    }
}

impl<'de, T, S, F> Visitor<'de> for Elements<Set<T, S, F>>
where
    T: Deserialize<'de> + Hash + Eq,
    S: Default + BuildHasher,
    F: Stores<T, ()>,
{
    type Value = Set<T, S, F>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a set")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut elements: A) -> Result<Self::Value, A::Error> {
        let set = Set::default();
        // As above.
        _ = set.as_map().try_reserve(trusted::<T>(elements.size_hint()));
        while let Some(element) = elements.next_element()? {
            set.pin().insert(element);
        }
        Ok(set)
    }
}
