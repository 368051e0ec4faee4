//! What operations on single entries return.

use std::fmt;

/// The error of [`Pinned::try_insert`](crate::Pinned::try_insert): the key is in the map.
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

/// The result of [`Pinned::compute`](crate::Pinned::compute): the value before and after.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Change<'g, V> {
    /// The value that was replaced or removed; `None` if the key was absent.
    pub old: Option<&'g V>,
    /// The value that was inserted; `None` if the entry was removed.
    pub new: Option<&'g V>,
}

/// The error of [`Pinned::compare_exchange`](crate::Pinned::compare_exchange): the value was not
/// the expected one.
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
