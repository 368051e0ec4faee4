//! What operations on single entries return.

use std::fmt;

/// The error of [`HashMap::try_insert`](crate::HashMap::try_insert) and
/// [`FlatMap::try_insert`](crate::FlatMap::try_insert): the key is in the map.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OccupiedError<'g, V> {
    /// The value in the map.
    pub current: &'g V,
    /// The value that was not inserted.
    pub value: V,
}

impl<V: fmt::Debug> fmt::Display for OccupiedError<'_, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "not inserted {:?}: the key has the value {:?}", self.value, self.current)
    }
}

impl<V: fmt::Debug> std::error::Error for OccupiedError<'_, V> {}

/// The error of [`HashMap::checked_insert`](crate::HashMap::checked_insert) and
/// [`FlatMap::checked_insert`](crate::FlatMap::checked_insert): there was no memory for the entry.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct ExhaustedError<K, V> {
    /// The key that was not inserted.
    pub key: K,
    /// The value that was not inserted.
    pub value: V,
}

impl<K, V> fmt::Debug for ExhaustedError<K, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ExhaustedError").finish_non_exhaustive()
    }
}

impl<K, V> fmt::Display for ExhaustedError<K, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("cannot allocate memory for an entry")
    }
}

impl<K, V> std::error::Error for ExhaustedError<K, V> {}

/// The result of [`HashMap::compute`](crate::HashMap::compute) and
/// [`FlatMap::compute`](crate::FlatMap::compute): the value before and after.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Change<'g, V> {
    /// The value that was replaced or removed; `None` if the key was absent.
    pub old: Option<&'g V>,
    /// The value that was inserted; `None` if the entry was removed.
    pub new: Option<&'g V>,
}

/// The error of [`HashMap::compare_exchange`](crate::HashMap::compare_exchange) and
/// [`FlatMap::compare_exchange`](crate::FlatMap::compare_exchange): the value was not the expected
/// one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CompareExchangeError<'g, V> {
    /// The value in the map; `None` if the key is absent.
    pub current: Option<&'g V>,
    /// The value that was not inserted.
    pub new: V,
}

impl<V: fmt::Debug> fmt::Display for CompareExchangeError<'_, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.current {
            Some(current) => write!(f, "not exchanged for {:?}: the key has the value {current:?}", self.new),
            None => write!(f, "not exchanged for {:?}: the key is not in the map", self.new),
        }
    }
}

impl<V: fmt::Debug> std::error::Error for CompareExchangeError<'_, V> {}
