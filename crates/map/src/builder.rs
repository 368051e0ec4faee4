//! Builders: maps and sets with options.

use std::fmt;
use std::hash::RandomState;
use std::ops::RangeInclusive;
use std::ptr::NonNull;

use crate::map::HashMap;
use crate::private::PrivateMap;
use crate::set::HashSet;
use relativist_table::node::Node;
use relativist_table::{AllocError, Link, Table};
use relativist_table::{Policy, PolicyError, Resizing};

/// Creates a [`HashMap`], a [`HashSet`] or a [`PrivateMap`] with options.
/// [`flat::Builder`](crate::flat::Builder) does this for a `FlatMap`.
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
/// use relativist::{BuildError, Builder};
/// let bounds_too_close = Builder::new().load_factor(0.5..=0.75).build::<u64, u64>();
/// assert!(matches!(bounds_too_close, Err(BuildError::Policy(_))));
/// ```
#[derive(Debug, Clone)]
#[must_use = "a builder does nothing until `build`"]
pub struct Builder<S = RandomState> {
    options: Options,
    hasher: S,
}

/// Implements what builders have in common. `$loads` are the default bounds of the load.
macro_rules! implement_builder {
    ($Map:ident, $loads:literal) => {
        impl Builder {
            /// Returns a builder with the default options.
            pub fn new() -> Self {
                Self { options: Options::default(), hasher: RandomState::new() }
            }
        }

        impl Default for Builder {
            fn default() -> Self {
                Self::new()
            }
        }

        impl<S> Builder<S> {
            fn with(self, set: impl FnOnce(&mut Options)) -> Self {
                let Self { mut options, hasher } = self;
                set(&mut options);
                Self { options, hasher }
            }

            /// Sets the initial capacity, in entries. 0 by default.
            pub fn capacity(self, capacity: usize) -> Self {
                self.with(|options| options.capacity = capacity)
            }

            /// Sets the minimum capacity: an automatic map never shrinks below the size for this
            /// number of entries. By default this is the initial capacity.
            pub fn floor(self, entries: usize) -> Self {
                self.with(|options| options.floor = Some(entries))
            }

            /// Sets the maximum capacity: an automatic map never grows beyond the size for this
            /// number of entries. With more entries, lookups take longer. Only
            #[doc = concat!("[`", stringify!($Map), "::resize_to`] exceeds this. No limit by default.")]
            pub fn ceiling(self, entries: usize) -> Self {
                self.with(|options| options.ceiling = Some(entries))
            }

            /// Sets the range of entries per bucket outside of which an automatic map is resized;
            #[doc = concat!("[`Policy::load_factor`] lists the limits. `", $loads, "` by default.")]
            pub fn load_factor(self, bounds: RangeInclusive<f64>) -> Self {
                self.with(|options| options.load_factor = Some(bounds))
            }

            /// Sets whether the map is resized automatically. [`Resizing::Automatic`] by default.
            pub fn resizing(self, resizing: Resizing) -> Self {
                self.with(|options| options.resizing = resizing)
            }

            /// Sets the hasher. The default is [`RandomState`], which is slow, but protects against
            /// keys that are chosen to collide.
            pub fn hasher<T>(self, hasher: T) -> Builder<T> {
                Builder { options: self.options, hasher }
            }
        }
    };
}

pub(crate) use implement_builder;

implement_builder!(HashMap, "0.125..=1.0");

impl<S> Builder<S> {
    /// Creates a [`HashMap`].
    ///
    /// Aborts if there is no memory for the map itself: 152 bytes in addition to the buckets.
    ///
    /// # Errors
    ///
    /// Returns an error if the bounds contradict each other, or if the buckets cannot be allocated.
    pub fn build<K, V>(self) -> Result<HashMap<K, V, S>, BuildError> {
        let (table, hasher) = self.build_table(Node::<K, V>::dispose)?;
        Ok(HashMap::of(table, hasher))
    }

    /// Creates a [`PrivateMap`].
    ///
    /// # Errors
    ///
    /// See [`Builder::build`].
    pub fn build_private<K, V>(self) -> Result<PrivateMap<K, V, S>, BuildError> {
        let (table, hasher) = self.build_table(PrivateMap::<K, V, S>::DISPOSE)?;
        Ok(PrivateMap::of(table, hasher))
    }

    fn build_table(self, dispose: unsafe fn(NonNull<Link>)) -> Result<(Table, S), BuildError> {
        let (buckets, policy) = self.options.buckets_and_policy(Policy::buckets_for)?;
        Ok((Table::new(buckets, policy, dispose)?, self.hasher))
    }

    /// Creates a [`HashSet`].
    ///
    /// # Errors
    ///
    /// See [`Builder::build`].
    pub fn build_set<T>(self) -> Result<HashSet<T, S>, BuildError> {
        self.build().map(HashSet::of)
    }
}

/// The options of a builder, except for the hasher.
#[derive(Debug, Clone, Default)]
pub(crate) struct Options {
    pub(crate) capacity: usize,
    pub(crate) floor: Option<usize>,
    pub(crate) ceiling: Option<usize>,
    pub(crate) load_factor: Option<RangeInclusive<f64>>,
    pub(crate) resizing: Resizing,
}

impl Options {
    /// `buckets_for` returns the initial number of buckets for a number of entries.
    pub(crate) fn buckets_and_policy(
        &self,
        buckets_for: fn(&Policy, usize) -> usize,
    ) -> Result<(usize, Policy), PolicyError> {
        let policy = Policy::from(self.resizing);
        let policy = self.load_factor.clone().map_or(Ok(policy), |bounds| policy.load_factor(bounds))?;
        let buckets_for = |entries| buckets_for(&policy, entries);
        let buckets = buckets_for(self.capacity);
        let floor = self.floor.map_or(buckets, buckets_for);
        let ceiling = self.ceiling.map_or(usize::MAX, buckets_for);
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
