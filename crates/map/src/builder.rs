//! The builder of maps.

use std::hash::RandomState;
use std::marker::PhantomData;

use relativist_bucket::{AllocError, Boxed, Form};

use crate::map::Map;

/// The types of the map, of which the builder has no value.
type Types<K, V, F> = fn() -> (K, V, F);

/// Builds a map; see [`Map::builder`].
#[derive(Debug, Clone)]
#[must_use = "call `build`"]
pub struct Builder<K, V, S = RandomState, F: Form = Boxed> {
    capacity: usize,
    hasher: S,
    _of: PhantomData<Types<K, V, F>>,
}

impl<K, V, F: Form> Builder<K, V, RandomState, F> {
    pub(crate) fn new() -> Self {
        Self { capacity: 0, hasher: RandomState::new(), _of: PhantomData }
    }
}

impl<K, V, S, F: Form> Builder<K, V, S, F> {
    /// Sets the number of entries for which the map has room at first. It never shrinks below that
    /// by itself.
    pub fn capacity(self, capacity: usize) -> Self {
        Self { capacity, ..self }
    }

    /// Sets the hasher.
    pub fn hasher<T>(self, hasher: T) -> Builder<K, V, T, F> {
        Builder { capacity: self.capacity, hasher, _of: PhantomData }
    }

    /// Builds the map.
    ///
    /// # Panics
    ///
    /// Panics if the buckets cannot be allocated.
    pub fn build(self) -> Map<K, V, S, F> {
        self.try_build().unwrap_or_else(|error| panic!("{error}"))
    }

    /// Builds the map.
    ///
    /// # Errors
    ///
    /// Returns an error if the buckets cannot be allocated.
    pub fn try_build(self) -> Result<Map<K, V, S, F>, AllocError> {
        Map::try_with(self.capacity, self.hasher)
    }
}
