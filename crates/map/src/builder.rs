//! How maps and sets are made, where `new` and `with_capacity` leave too little choice.

use std::fmt;
use std::hash::RandomState;
use std::ops::RangeInclusive;

use crate::map::HashMap;
use crate::node::Node;
use crate::policy::{Policy, PolicyError, Resizing};
use crate::raw::{AllocError, Table};
use crate::set::HashSet;

/// Chooses how a map or a set is made; from [`HashMap::builder`].
///
/// ```
/// use relativist::{HashMap, Resizing};
/// let map: HashMap<u64, u64, _> = HashMap::<u64, u64>::builder()
///     .capacity(1 << 16)
///     .resizing(Resizing::Manual)
///     .hasher(std::hash::RandomState::new())
///     .build()?;
/// assert_eq!(map.buckets(), 1 << 17);
/// # Ok::<(), relativist::BuildError>(())
/// ```
///
/// Bounds that make no sense are an error:
///
/// ```
/// use relativist::{BuildError, HashMap};
/// let half_empty_at_best = HashMap::<u64, u64>::builder().load_factor(0.5..=0.75).build::<u64, u64>();
/// assert!(matches!(half_empty_at_best, Err(BuildError::Policy(_))));
/// ```
#[derive(Debug, Clone)]
#[must_use = "a builder does nothing until `build`"]
pub struct Builder<S = RandomState> {
    room: Room,
    floor: Option<usize>,
    ceiling: Option<usize>,
    load_factor: Option<RangeInclusive<f64>>,
    resizing: Resizing,
    hasher: S,
}

/// What a map has room for from the start.
#[derive(Debug, Clone, Copy)]
enum Room {
    Entries(usize),
    /// As many entries as fit into so many bytes, buckets and all.
    Bytes(usize),
}

impl Builder {
    pub(crate) fn new() -> Self {
        Self {
            room: Room::Entries(0),
            floor: None,
            ceiling: None,
            load_factor: None,
            resizing: Resizing::default(),
            hasher: RandomState::new(),
        }
    }
}

impl<S> Builder<S> {
    /// Room for so many entries from the start. 0 by default.
    pub fn capacity(self, capacity: usize) -> Self {
        Self { room: Room::Entries(capacity), ..self }
    }

    /// Room from the start for as many entries as fit into so many bytes, together with their
    /// buckets; and never more buckets than that. Instead of [`Builder::capacity`]; see
    /// [`HashMap::with_capacity_for_memory`].
    pub fn memory(self, bytes: usize) -> Self {
        Self { room: Room::Bytes(bytes), ..self }
    }

    /// An automatic map never shrinks below room for so many entries. By default below what it has
    /// room for from the start.
    pub fn floor(self, entries: usize) -> Self {
        Self { floor: Some(entries), ..self }
    }

    /// An automatic map never grows beyond room for so many entries: with more, chains get longer.
    /// Only [`HashMap::resize_to`] goes further. No limit by default.
    pub fn ceiling(self, entries: usize) -> Self {
        Self { ceiling: Some(entries), ..self }
    }

    /// An automatic map shrinks below and grows above so many entries per bucket; see
    /// [`Policy::load_factor`], which tells what is possible. `0.125..=1.0` by default.
    pub fn load_factor(self, bounds: RangeInclusive<f64>) -> Self {
        Self { load_factor: Some(bounds), ..self }
    }

    /// Who resizes. [`Resizing::Automatic`] by default.
    pub fn resizing(self, resizing: Resizing) -> Self {
        Self { resizing, ..self }
    }

    /// What hashes the keys. [`RandomState`] by default, which nobody can flood with collisions,
    /// and which is slow.
    pub fn hasher<T>(self, hasher: T) -> Builder<T> {
        let Self { room, floor, ceiling, load_factor, resizing, .. } = self;
        Builder { room, floor, ceiling, load_factor, resizing, hasher }
    }

    /// Makes a map.
    ///
    /// Aborts without memory for the map itself: up to 10 KiB in addition to the buckets.
    ///
    /// # Errors
    ///
    /// When the bounds contradict each other, or the buckets can't be allocated.
    pub fn build<K, V>(self) -> Result<HashMap<K, V, S>, BuildError> {
        let (buckets, policy) = self.buckets_and_policy(size_of::<Node<K, V>>())?;
        let table = Table::new(buckets, policy, Node::<K, V>::dispose)?;
        Ok(HashMap::of(table, self.hasher))
    }

    /// Makes a set.
    ///
    /// # Errors
    ///
    /// As [`Builder::build`].
    pub fn build_set<T>(self) -> Result<HashSet<T, S>, BuildError> {
        self.build().map(HashSet::of)
    }

    fn buckets_and_policy(&self, entry_bytes: usize) -> Result<(usize, Policy), PolicyError> {
        let policy = Policy::from(self.resizing);
        let policy = self.load_factor.clone().map_or(Ok(policy), |bounds| policy.load_factor(bounds))?;
        let buckets_for = |entries| policy.buckets_for(entries);
        let (buckets, most) = match self.room {
            Room::Entries(entries) => (buckets_for(entries), usize::MAX),
            Room::Bytes(bytes) => {
                let buckets = policy.buckets_for_memory(bytes, Table::BYTES_PER_BUCKET, entry_bytes);
                (buckets, buckets)
            }
        };
        let floor = self.floor.map_or(buckets, buckets_for);
        let ceiling = self.ceiling.map_or(most, buckets_for);
        let buckets = buckets.max(floor);
        // What is there from the start has to be within the bounds, too.
        policy.buckets(buckets..=ceiling)?;
        Ok((buckets, policy.buckets(floor..=ceiling)?))
    }
}

/// A map could not be made as it was asked for.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub enum BuildError {
    /// The buckets can't be allocated.
    Alloc(AllocError),
    /// The bounds make no sense.
    Policy(PolicyError),
}

impl From<AllocError> for BuildError {
    fn from(error: AllocError) -> Self {
        Self::Alloc(error)
    }
}

impl From<PolicyError> for BuildError {
    fn from(error: PolicyError) -> Self {
        Self::Policy(error)
    }
}

impl fmt::Display for BuildError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Alloc(error) => error.fmt(f),
            Self::Policy(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for BuildError {}
