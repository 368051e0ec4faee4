//! Maps and sets for `serde` (feature `serde`).

use std::fmt;
use std::hash::{BuildHasher, Hash};
use std::marker::PhantomData;

use relativist_rcu::read;
use serde::de::{Deserialize, Deserializer, MapAccess, SeqAccess, Visitor};
use serde::ser::{Serialize, Serializer};

use crate::flat::{FlatMap, FlatSet, Relocatable};
use crate::map::HashMap;
use crate::set::HashSet;

/// The maximum number of entries for which buckets are allocated before the input is read. The
/// number that the input announces may be wrong.
const MAX_TRUSTED: usize = 4096;

/// Reads maps of this type.
struct Entries<M>(PhantomData<M>);

/// Reads sets of this type.
struct Elements<T>(PhantomData<T>);

/// The lists are the bounds for iterating over a map, and those of keys, values and hashers for
/// updates.
macro_rules! serialize {
    ($Map:ident, $Set:ident, iterate: [$($iterate:tt)*], keys: [$($key:tt)*], values: [$($value:tt)*], hashers: [$($hasher:tt)*]) => {
        #[doc = concat!("Serializes the entries that [`", stringify!($Map), "::iter`] sees. The number of entries is")]
        /// passed to formats that need it beforehand.
        impl<K: Serialize, V: Serialize, S> Serialize for $Map<K, V, S> where $($iterate)* {
            fn serialize<R: Serializer>(&self, serializer: R) -> Result<R::Ok, R::Error> {
                let guard = read();
                // Collected first, because the number must be correct even if other threads update
                // the map.
                let entries: Vec<_> = self.iter(&guard).collect();
                serializer.collect_map(entries)
            }
        }

        impl<K: Serialize, S> Serialize for $Set<K, S> where $($iterate)* {
            fn serialize<R: Serializer>(&self, serializer: R) -> Result<R::Ok, R::Error> {
                let pinned = self.pin();
                let elements: Vec<_> = pinned.iter().collect();
                serializer.collect_seq(elements)
            }
        }

        /// If several entries have equal keys, the last one is kept.
        impl<'de, K, V, S> Deserialize<'de> for $Map<K, V, S>
        where
            K: Deserialize<'de> + $($key)*,
            V: Deserialize<'de> + $($value)*,
            S: Default + $($hasher)*,
        {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                deserializer.deserialize_map(Entries::<Self>(PhantomData))
            }
        }

        /// The first one of several equal elements is kept.
        impl<'de, T, S> Deserialize<'de> for $Set<T, S>
        where
            T: Deserialize<'de> + $($key)*,
            S: Default + $($hasher)*,
        {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                deserializer.deserialize_seq(Elements::<Self>(PhantomData))
            }
        }

        impl<'de, K, V, S> Visitor<'de> for Entries<$Map<K, V, S>>
        where
            K: Deserialize<'de> + $($key)*,
            V: Deserialize<'de> + $($value)*,
            S: Default + $($hasher)*,
        {
            type Value = $Map<K, V, S>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a map")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<Self::Value, A::Error> {
                let map = $Map::default();
                map.expect(entries.size_hint().unwrap_or(0).min(MAX_TRUSTED));
                while let Some((key, value)) = entries.next_entry()? {
                    map.pin().insert(key, value);
                }
                Ok(map)
            }
        }

        impl<'de, T, S> Visitor<'de> for Elements<$Set<T, S>>
        where
            T: Deserialize<'de> + $($key)*,
            S: Default + $($hasher)*,
        {
            type Value = $Set<T, S>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a set")
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut elements: A) -> Result<Self::Value, A::Error> {
                let set = $Set::default();
                set.as_map().expect(elements.size_hint().unwrap_or(0).min(MAX_TRUSTED));
                while let Some(element) = elements.next_element()? {
                    set.pin().insert(element);
                }
                Ok(set)
            }
        }
    };
}

serialize! {
    HashMap, HashSet,
    iterate: [],
    keys: [Hash + Eq + Send + Sync + 'static], values: [Send + Sync + 'static], hashers: [BuildHasher]
}

serialize! {
    FlatMap, FlatSet,
    iterate: [K: Hash + Eq, S: BuildHasher],
    keys: [Hash + Eq + Relocatable], values: [Relocatable], hashers: [BuildHasher + Send + Sync + 'static]
}
