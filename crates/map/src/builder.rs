//! The builder of maps and sets, with more options than `new` and `with_capacity`.

use std::fmt;
use std::hash::RandomState;
use std::ops::RangeInclusive;

use crate::flat::{self, FlatMap, FlatSet, Relocatable};
use crate::map::HashMap;
use crate::node::Node;
use crate::policy::{Policy, PolicyError, Resizing};
use crate::raw::{AllocError, Table};
use crate::set::HashSet;

/// Creates maps and sets with options; returned by [`HashMap::builder`] and those of the other maps
/// and sets. The method at the end determines what is made, whichever of them returned the builder.
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
/// Contradictory bounds are an error:
///
/// ```
/// use relativist::{BuildError, HashMap};
/// let bounds_too_close = HashMap::<u64, u64>::builder().load_factor(0.5..=0.75).build::<u64, u64>();
/// assert!(matches!(bounds_too_close, Err(BuildError::Policy(_))));
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

/// The initial size of a map.
#[derive(Debug, Clone, Copy)]
enum Room {
    Entries(usize),
    /// As many entries as fit into this number of bytes, together with their buckets.
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
    /// Sets the initial capacity, in entries. 0 by default.
    pub fn capacity(self, capacity: usize) -> Self {
        Self { room: Room::Entries(capacity), ..self }
    }

    /// Sets the initial capacity to as many entries as fit into `bytes`, together with their
    /// buckets, and never allocates more buckets than that. Replaces [`Builder::capacity`]; see
    /// [`HashMap::with_capacity_for_memory`].
    pub fn memory(self, bytes: usize) -> Self {
        Self { room: Room::Bytes(bytes), ..self }
    }

    /// Sets the minimum capacity: an automatic map never shrinks below the size for this number of
    /// entries. By default this is the initial capacity.
    pub fn floor(self, entries: usize) -> Self {
        Self { floor: Some(entries), ..self }
    }

    /// Sets the maximum capacity: an automatic map never grows beyond the size for this number of
    /// entries. With more entries, chains get longer. Only [`HashMap::resize_to`] exceeds this. No
    /// limit by default.
    pub fn ceiling(self, entries: usize) -> Self {
        Self { ceiling: Some(entries), ..self }
    }

    /// Sets the range of entries per bucket outside of which an automatic map is resized;
    /// [`Policy::load_factor`] lists the limits. `0.125..=1.0` by default, and `0.375..=3.0` for
    /// [`build_flat`](Builder::build_flat).
    pub fn load_factor(self, bounds: RangeInclusive<f64>) -> Self {
        Self { load_factor: Some(bounds), ..self }
    }

    /// Sets whether the map is resized automatically. [`Resizing::Automatic`] by default.
    pub fn resizing(self, resizing: Resizing) -> Self {
        Self { resizing, ..self }
    }

    /// Sets the hasher. The default is [`RandomState`], which is slow, but protects against keys
    /// that are chosen to collide.
    pub fn hasher<T>(self, hasher: T) -> Builder<T> {
        let Self { room, floor, ceiling, load_factor, resizing, .. } = self;
        Builder { room, floor, ceiling, load_factor, resizing, hasher }
    }

    /// Creates a [`HashMap`]; [`Builder::build_flat`] creates a [`FlatMap`].
    ///
    /// Aborts if there is no memory for the map itself: 152 bytes in addition to the buckets.
    ///
    /// # Errors
    ///
    /// Returns an error if the bounds contradict each other, or if the buckets cannot be allocated.
    pub fn build<K, V>(self) -> Result<HashMap<K, V, S>, BuildError> {
        let (buckets, policy) =
            self.buckets_and_policy(Table::BYTES_PER_BUCKET, size_of::<Node<K, V>>(), Policy::buckets_for)?;
        let table = Table::new(buckets, policy, Node::<K, V>::dispose)?;
        Ok(HashMap::of(table, self.hasher))
    }

    /// Creates a [`FlatMap`]. Its load factor is `0.375..=3.0` by default.
    ///
    /// # Errors
    ///
    /// See [`Builder::build`].
    pub fn build_flat<K: Relocatable, V: Relocatable>(self) -> Result<FlatMap<K, V, S>, BuildError> {
        let loads = self.load_factor.clone().unwrap_or(Policy::FLAT_LOADS);
        let flat = Self { load_factor: Some(loads), ..self };
        // At the highest load a third of the buckets have a second segment.
        let bucket_bytes = flat::Table::<K, V, S>::BYTES_PER_SEGMENT * 4 / 3;
        let (buckets, policy) = flat.buckets_and_policy(bucket_bytes, 0, Policy::smallest_for)?;
        Ok(FlatMap::of(flat::Table::new(buckets, policy, flat.hasher)?))
    }

    /// Creates the set.
    ///
    /// # Errors
    ///
    /// See [`Builder::build`].
    pub fn build_set<T>(self) -> Result<HashSet<T, S>, BuildError> {
        self.build().map(HashSet::of)
    }

    /// Creates a [`FlatSet`]; see [`Builder::build_flat`].
    ///
    /// # Errors
    ///
    /// See [`Builder::build`].
    pub fn build_flat_set<T: Relocatable>(self) -> Result<FlatSet<T, S>, BuildError> {
        self.build_flat().map(FlatSet::of)
    }

    /// `bucket_bytes` and `entry_bytes` are the memory that a bucket takes, and an entry in
    /// addition to it. `buckets_for` returns the initial number of buckets for a number of entries.
    fn buckets_and_policy(
        &self,
        bucket_bytes: usize,
        entry_bytes: usize,
        buckets_for: fn(&Policy, usize) -> usize,
    ) -> Result<(usize, Policy), PolicyError> {
        let policy = Policy::from(self.resizing);
        let policy = self.load_factor.clone().map_or(Ok(policy), |bounds| policy.load_factor(bounds))?;
        let buckets_for = |entries| buckets_for(&policy, entries);
        let (buckets, most) = match self.room {
            Room::Entries(entries) => (buckets_for(entries), usize::MAX),
            Room::Bytes(bytes) => {
                let buckets = policy.buckets_for_memory(bytes, bucket_bytes, entry_bytes);
                (buckets, buckets)
            }
        };
        let floor = self.floor.map_or(buckets, buckets_for);
        let ceiling = self.ceiling.map_or(most, buckets_for);
        let buckets = buckets.max(floor);
        // The initial size has to be within the bounds, too.
        policy.buckets(buckets..=ceiling)?;
        Ok((buckets, policy.buckets(floor..=ceiling)?))
    }
}

/// A map could not be created with these options.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub enum BuildError {
    /// The buckets cannot be allocated.
    Alloc(AllocError),
    /// The bounds contradict each other.
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
