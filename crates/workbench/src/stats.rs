//! Summaries of samples: medians and ranges, because measurements on shared machines have outliers on one side.

use serde::Serialize;

/// What is reported of a set of samples.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Summary {
    /// Number of samples.
    pub samples: usize,
    /// Middle sample, or the mean of the two middle ones.
    pub median: f64,
    /// Smallest sample.
    pub min: f64,
    /// Largest sample.
    pub max: f64,
}

impl Summary {
    /// Summarises `samples`; `None` when there are none.
    ///
    /// # Panics
    /// When a sample is not a number.
    #[must_use]
    pub fn of(samples: impl IntoIterator<Item = f64>) -> Option<Self> {
        let mut sorted: Vec<f64> = samples.into_iter().collect();
        assert!(sorted.iter().all(|sample| !sample.is_nan()), "a sample is not a number");
        sorted.sort_by(f64::total_cmp);
        let (min, max) = (*sorted.first()?, *sorted.last()?);
        let middle = sorted.len() / 2;
        let median =
            if sorted.len() % 2 == 1 { sorted[middle] } else { f64::midpoint(sorted[middle - 1], sorted[middle]) };
        Some(Self { samples: sorted.len(), median, min, max })
    }

    /// The range in relation to the median: 0.1 says that all samples lie within a tenth of it.
    #[must_use]
    pub fn spread(&self) -> f64 {
        (self.max - self.min) / self.median
    }
}

/// Summarises `numerators[i] / denominators[i]`: quotients of samples taken in the same round.
#[must_use]
pub fn ratios(numerators: &[f64], denominators: &[f64]) -> Option<Summary> {
    debug_assert_eq!(numerators.len(), denominators.len(), "one sample of each per round");
    Summary::of(numerators.iter().zip(denominators).map(|(n, d)| n / d))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn odd_count_has_a_middle() {
        let summary = Summary::of([5.0, 1.0, 3.0]).unwrap();
        assert_eq!(summary, Summary { samples: 3, median: 3.0, min: 1.0, max: 5.0 });
    }

    #[test]
    fn even_count_takes_the_mean_of_the_middle_two() {
        assert_eq!(Summary::of([4.0, 1.0, 2.0, 100.0]).unwrap().median, 3.0);
    }

    #[test]
    fn spread_is_the_range_over_the_median() {
        assert_eq!(Summary::of([9.0, 10.0, 12.0]).unwrap().spread(), 0.3);
    }

    #[test]
    fn nothing_has_no_summary() {
        assert_eq!(Summary::of([]), None);
    }

    #[test]
    #[should_panic(expected = "not a number")]
    fn a_sample_that_is_no_number_is_refused() {
        let _ = Summary::of([1.0, f64::NAN]);
    }

    #[test]
    fn ratios_are_taken_pair_by_pair() {
        // The ratio of the medians would be 1; pair by pair it is 2.
        let summary = ratios(&[2.0, 4.0, 20.0], &[1.0, 2.0, 10.0]).unwrap();
        assert_eq!((summary.median, summary.min, summary.max), (2.0, 2.0, 2.0));
        assert_eq!(ratios(&[1.0, 2.0, 3.0], &[3.0, 2.0, 1.0]).unwrap().median, 1.0);
    }
}
