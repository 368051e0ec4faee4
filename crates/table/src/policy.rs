//! The policy of resizing: when to resize, and to which size. It is a pure function of the numbers
//! of entries and buckets.
//!
//! A table grows when its load (entries per bucket) exceeds an upper bound, and shrinks when it
//! falls below a lower one. After either, the load is between a quarter and half of the upper
//! bound. The lower bound is at most an eighth of the upper. So the number of entries has to double
//! or to halve before the next resize, and small changes do not cause repeated resizes. By default
//! the bounds are 1/8 and 1, and after a resize the load is between 1/4 and 1/2.
//!
//! A table that grows steadily grows by a factor of 4 each time, and moves each entry 1/3 times on
//! average. With a factor of 2, between loads of 1/2 and 1, it would move each entry once. The
//! average load determines the memory, and how many links a lookup walks. It is the same as for
//! growing by a factor of 2 between loads of 3/8 and 3/4.

use std::fmt;
use std::num::NonZeroU8;
use std::ops::RangeInclusive;

/// Whether a table is resized automatically.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Resizing {
    /// A background thread, one per process, grows the table above one entry per bucket and shrinks
    /// it below 1/8, but never below its initial size, unless a [`Policy`] says otherwise.
    #[default]
    Automatic,
    /// Only calls like `resize_to` resize the table.
    Manual,
}

/// The policy by which a table is resized: when, and within which bounds.
///
/// ```
/// use relativist_table::{Policy, Resizing};
/// let policy = Policy::from(Resizing::Automatic).load_factor(0.25..=2.0)?.buckets(1 << 10..=1 << 20)?;
/// # Ok::<(), relativist_table::PolicyError>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Policy {
    pub(crate) resizing: Resizing,
    /// In single precision, and numbers of buckets as logarithms, because each table has a policy.
    low: f32,
    high: f32,
    /// `None` for the initial number of buckets of the table.
    floor_bits: Option<NonZeroU8>,
    ceiling_bits: u8,
}

/// The error for bounds that a [`Policy`] cannot have.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub enum PolicyError {
    /// The upper bound of the load is not between 1/4 and 8, or the lower one not between 0 and an
    /// eighth of it.
    LoadFactor(RangeInclusive<f64>),
    /// The minimum number of buckets exceeds the maximum.
    Buckets(RangeInclusive<usize>),
}

impl fmt::Display for PolicyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::LoadFactor(bounds) => write!(
                f,
                "a load factor of {bounds:?}: the upper bound has to be between {} and {}, the lower one at most a {}th of it",
                Policy::UPPER_BOUNDS.start(),
                Policy::UPPER_BOUNDS.end(),
                Policy::MIN_RATIO
            ),
            Self::Buckets(bounds) => write!(f, "at least {} buckets and at most {}", bounds.start(), bounds.end()),
        }
    }
}

impl std::error::Error for PolicyError {}

impl From<Resizing> for Policy {
    fn from(resizing: Resizing) -> Self {
        Self { resizing, low: 0.125, high: 1.0, floor_bits: None, ceiling_bits: Self::MAX_BUCKETS.ilog2() as u8 }
    }
}

impl Default for Policy {
    fn default() -> Self {
        Self::from(Resizing::default())
    }
}

impl Policy {
    /// Returns whether the table is resized automatically.
    pub fn resizing(&self) -> Resizing {
        self.resizing
    }

    /// The number of buckets without a limit: a power of two that exceeds all memory.
    const MAX_BUCKETS: usize = 1 << 62;
    /// The limits of the upper bound. Counts may be off by a sixteenth of the buckets, so a table
    /// could not keep to a smaller bound.
    const UPPER_BOUNDS: RangeInclusive<f64> = 0.25..=8.0;
    /// The minimum ratio of the bounds. It prevents repeated resizes: see the top of this file.
    const MIN_RATIO: f64 = 8.0;

    /// Sets the numbers of entries per bucket below which a table shrinks and above which it grows;
    /// 1/8 and 1 by default. With a lower bound of 0 it never shrinks.
    ///
    /// A higher load needs fewer buckets, of 8 bytes each, but lookups walk more links, on average
    /// half the load.
    ///
    /// # Errors
    ///
    /// Returns an error unless the upper bound is between 1/4 and 8, and the lower one between 0
    /// and an eighth of the upper.
    pub fn load_factor(self, bounds: RangeInclusive<f64>) -> Result<Self, PolicyError> {
        let (low, high) = (*bounds.start(), *bounds.end());
        // Allows for rounding: bounds like 0.1 and 0.8 are not binary fractions.
        let max_low = high / Self::MIN_RATIO * (1.0 + 1e-9);
        if !Self::UPPER_BOUNDS.contains(&high) || !(0.0..=max_low).contains(&low) {
            return Err(PolicyError::LoadFactor(bounds));
        }
        Ok(Self { low: low as f32, high: high as f32, ..self })
    }

    /// Sets the minimum and the maximum number of buckets, each rounded up to a power of two. By
    /// default a table is not shrunk below its initial size, and grows without limit. When a table
    /// cannot grow, its chains get longer.
    ///
    /// # Errors
    ///
    /// Returns an error if the range is empty.
    pub fn buckets(self, bounds: RangeInclusive<usize>) -> Result<Self, PolicyError> {
        if bounds.is_empty() {
            return Err(PolicyError::Buckets(bounds));
        }
        let round = |buckets: usize| buckets.checked_next_power_of_two().unwrap_or(Self::MAX_BUCKETS).max(2);
        let ceiling_bits = round(*bounds.end()).ilog2() as u8;
        Ok(Self { floor_bits: bits_of(round(*bounds.start())), ceiling_bits, ..self })
    }

    /// Returns the policy for a table that has no use for more than 2^`bits` buckets.
    pub fn up_to_bits(self, bits: u32) -> Self {
        Self { ceiling_bits: self.ceiling_bits.min(bits as u8), ..self }
    }

    /// Returns the policy for a table that initially has this number of buckets.
    pub fn starting_with(self, buckets: usize) -> Self {
        Self { floor_bits: self.floor_bits.or(bits_of(buckets)), ..self }
    }

    /// Returns the number of buckets that a table with this number of entries should have, if it is
    /// not `buckets`.
    pub fn wanted(&self, entries: usize, buckets: usize) -> Option<usize> {
        let floor = self.floor_bits.map_or(0, |bits| 1 << bits.get());
        let overloaded = entries > at_load(buckets, self.high) && buckets < self.ceiling();
        let wasteful = entries < at_load(buckets, self.low) && buckets > floor;
        let wanted = || self.buckets_for(entries).max(floor);
        (overloaded || wasteful).then(wanted).filter(|&wanted| wanted != buckets)
    }

    /// Returns the number of buckets to which a table with this number of entries is resized, if it
    /// is resized: a power of two, up to the ceiling. Ignores the floor. Takes constant time.
    ///
    /// ```
    /// use relativist_table::Policy;
    /// assert_eq!(Policy::default().buckets_for(1000), 2048);
    /// ```
    pub fn buckets_for(&self, entries: usize) -> usize {
        let buckets = (entries as f64 / self.target()).ceil() as usize;
        buckets.checked_next_power_of_two().unwrap_or(Self::MAX_BUCKETS).clamp(2, self.ceiling())
    }

    /// Returns the load that is not exceeded after a resize.
    fn target(&self) -> f64 {
        f64::from(self.high) / 2.0
    }

    fn ceiling(&self) -> usize {
        1 << self.ceiling_bits
    }
}

fn at_load(buckets: usize, load: f32) -> usize {
    (buckets as f64 * f64::from(load)) as usize
}

/// Returns the logarithm of a number of buckets, which is a power of two and at least 2.
fn bits_of(buckets: usize) -> Option<NonZeroU8> {
    NonZeroU8::new(buckets.ilog2() as u8)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn default_from(floor: usize) -> Policy {
        Policy::default().starting_with(floor)
    }

    /// Bounds of all kinds: at the maximum distance, at the minimum, and ones that are not binary
    /// fractions.
    fn policies() -> [Policy; 7] {
        [(0.125, 1.0), (0.0, 0.25), (0.1, 0.8), (0.1, 0.9), (0.25, 2.0), (1.0, 8.0), (0.0, 8.0)]
            .map(|(low, high)| Policy::default().load_factor(low..=high).unwrap())
    }

    #[test]
    fn grows_past_one_and_shrinks_below_an_eighth() {
        let policy = default_from(2);
        assert_eq!(policy.wanted(128, 128), None);
        assert_eq!(policy.wanted(129, 128), Some(512));
        assert_eq!(policy.wanted(257, 128), Some(1024));
        assert_eq!(policy.wanted(16, 128), None);
        assert_eq!(policy.wanted(15, 128), Some(32));
        assert_eq!(policy.wanted(0, 128), Some(2));
    }

    #[test]
    fn grows_and_shrinks_past_other_bounds() {
        let policy = default_from(2).load_factor(0.25..=3.0).unwrap();
        assert_eq!(policy.wanted(384, 128), None);
        assert_eq!(policy.wanted(385, 128), Some(512));
        assert_eq!(policy.wanted(32, 128), None);
        assert_eq!(policy.wanted(31, 128), Some(32));
        let never_shrinks = default_from(2).load_factor(0.0..=3.0).unwrap();
        assert_eq!(never_shrinks.wanted(0, 1 << 20), None);
    }

    #[test]
    fn stays_above_the_floor() {
        let policy = default_from(64);
        assert_eq!(policy.wanted(0, 128), Some(64));
        assert_eq!(policy.wanted(0, 64), None);
        assert_eq!(
            policy.wanted(1, 32),
            None,
            "a table resized below its floor by hand stays there while it is not overloaded"
        );
        assert_eq!(policy.wanted(33, 32), Some(128));
        let lower = Policy::default().buckets(16..=1 << 20).unwrap().starting_with(64);
        assert_eq!(lower.wanted(0, 64), Some(16), "a floor below the size that the table was made with");
    }

    #[test]
    fn stays_below_the_ceiling() {
        let policy = Policy::default().buckets(2..=100).unwrap();
        assert_eq!(policy.wanted(1000, 64), Some(128), "rounded up");
        assert_eq!(policy.wanted(1000, 128), None);
        assert_eq!(
            policy.wanted(1000, 256),
            None,
            "a table resized above its ceiling by hand stays there while it is not empty"
        );
        assert_eq!(policy.wanted(1, 256), Some(2));
        assert_eq!(policy.buckets_for(1000), 128);
    }

    #[test]
    fn catches_up_in_one_step() {
        let policy = default_from(2);
        assert_eq!(policy.wanted(1 << 20, 2), Some(1 << 21));
        assert_eq!(policy.wanted(usize::MAX, 2), Some(1 << 62));
    }

    /// After a resize the next one is far away: none is wanted for half as many or nearly twice as
    /// many entries.
    #[test]
    fn has_hysteresis() {
        for policy in policies() {
            for entries in 8..5000 {
                let buckets = policy.buckets_for(entries);
                assert_eq!(policy.wanted(entries, buckets), None, "{entries} {policy:?}");
                assert_eq!(policy.wanted(entries * 2 - 1, buckets), None, "{entries} {policy:?}");
                if buckets > 2 {
                    assert_eq!(policy.wanted(entries / 2 + 1, buckets), None, "{entries} {policy:?}");
                }
            }
        }
    }

    #[test]
    fn refuses_nonsense() {
        let nan = f64::NAN;
        for (low, high) in [(0.2, 0.1), (0.2, 0.75), (-0.1, 0.75), (nan, 0.75), (0.0, nan), (0.0, 0.2), (0.0, 9.0)] {
            assert!(
                matches!(Policy::default().load_factor(low..=high), Err(PolicyError::LoadFactor(_))),
                "{low} {high}"
            );
        }
        #[expect(clippy::reversed_empty_ranges, reason = "that is the nonsense")]
        let nothing = 64..=32;
        assert_eq!(Policy::default().buckets(nothing.clone()), Err(PolicyError::Buckets(nothing)));
    }
}
