//! The builder: flat maps and sets with options.

use std::hash::RandomState;
use std::ops::RangeInclusive;

use super::map::FlatMap;
use super::relocate::Relocatable;
use super::set::FlatSet;
use super::table::Table;
use crate::builder::{BuildError, Options, implement_builder};
use relativist_table::{Policy, Resizing};

/// Creates a [`FlatMap`] or a [`FlatSet`] with options.
///
/// ```
/// use relativist::{FlatMap, Resizing};
/// let map: FlatMap<u64, u64, _> = FlatMap::<u64, u64>::builder()
///     .capacity(1 << 16)
///     .resizing(Resizing::Manual)
///     .hasher(std::hash::RandomState::new())
///     .build()?;
/// assert_eq!(map.buckets(), 1 << 15);
/// # Ok::<(), relativist::BuildError>(())
/// ```
///
/// Contradictory bounds are an error:
///
/// ```
/// use relativist::{BuildError, flat};
/// let bounds_too_close = flat::Builder::new().load_factor(0.5..=0.75).build::<u64, u64>();
/// assert!(matches!(bounds_too_close, Err(BuildError::Policy(_))));
/// ```
#[derive(Debug, Clone)]
#[must_use = "a builder does nothing until `build`"]
pub struct Builder<S = RandomState> {
    options: Options,
    hasher: S,
}

implement_builder!(FlatMap, "0.375..=3.0");

impl<S> Builder<S> {
    /// Creates a [`FlatMap`].
    ///
    /// # Errors
    ///
    /// Returns an error if the bounds contradict each other, or if the buckets cannot be allocated.
    pub fn build<K: Relocatable, V: Relocatable>(self) -> Result<FlatMap<K, V, S>, BuildError> {
        let Self { mut options, hasher } = self;
        options.load_factor.get_or_insert(Policy::FLAT_LOADS);
        let (buckets, policy) = options.buckets_and_policy(Policy::smallest_for)?;
        Ok(FlatMap::of(Table::new(buckets, policy, hasher)?))
    }

    /// Creates a [`FlatSet`].
    ///
    /// # Errors
    ///
    /// See [`Builder::build`].
    pub fn build_set<T: Relocatable>(self) -> Result<FlatSet<T, S>, BuildError> {
        self.build().map(FlatSet::of)
    }
}
