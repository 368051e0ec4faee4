//! What the table of a map holds, and how it is hashed.

use std::hash::{BuildHasher, Hash};

use relativist_bucket::{Boxed, Hash as Mixed, Holds, Inline, Keys, Private, Relocatable};

/// A key and its value.
#[doc(hidden)]
pub struct Entry<K, V> {
    pub(crate) key: K,
    pub(crate) value: V,
}

impl<K, V> Entry<K, V> {
    #[inline(always)]
    pub(crate) fn pair(&self) -> (&K, &V) {
        (&self.key, &self.value)
    }
}

// SAFETY: both parts are.
unsafe impl<K: Relocatable, V: Relocatable> Relocatable for Entry<K, V> {}

/// A form of the map that can store these keys and values. Updates need it.
///
/// * [`HashMap`](crate::HashMap) stores types that are `Send + Sync + 'static`, because removed
///   entries are dropped later, on any thread.
/// * [`FlatMap`](crate::FlatMap) stores types that are [`Relocatable`].
/// * [`PrivateMap`](crate::PrivateMap) stores types that are `Send + Sync`. They may borrow.
pub trait Stores<K, V>: Holds<Entry<K, V>> {}

impl<K: Send + Sync + 'static, V: Send + Sync + 'static> Stores<K, V> for Boxed {}
impl<K: Relocatable, V: Relocatable> Stores<K, V> for Inline {}
impl<K: Send + Sync, V: Send + Sync> Stores<K, V> for Private {}

/// The hasher of a map.
#[doc(hidden)]
#[derive(Clone)]
pub struct Hashing<S>(pub(crate) S);

impl<S: BuildHasher> Hashing<S> {
    #[inline(always)]
    pub(crate) fn of<Q: Hash + ?Sized>(&self, key: &Q) -> Mixed {
        Mixed::new(self.0.hash_one(key))
    }
}

impl<K: Hash + Eq, V, S: BuildHasher> Keys<Entry<K, V>> for Hashing<S> {
    fn hash(&self, entry: &Entry<K, V>) -> Mixed {
        self.of(&entry.key)
    }

    #[inline(always)]
    fn same(&self, one: &Entry<K, V>, other: &Entry<K, V>) -> bool {
        one.key == other.key
    }
}
