//! Summaries of samples. They use medians and ranges, not means, because measurements on shared
//! machines have outliers on one side.

use serde::{Deserialize, Serialize};

/// Median, range and quartiles of a set of samples.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Summary {
    pub samples: usize,
    /// Middle sample, or the mean of the two middle ones.
    pub median: f64,
    pub min: f64,
    pub max: f64,
    /// A quarter of the samples is at most this.
    pub lower_quartile: f64,
    /// A quarter of the samples is at least this.
    pub upper_quartile: f64,
}

impl Summary {
    /// Summarises `samples`; `None` when there are none.
    pub fn of(samples: impl IntoIterator<Item = f64>) -> Option<Self> {
        let mut sorted: Vec<f64> = samples.into_iter().collect();
        assert!(sorted.iter().all(|sample| !sample.is_nan()), "a sample is not a number");
        sorted.sort_by(f64::total_cmp);
        let (min, max) = (*sorted.first()?, *sorted.last()?);
        let [lower_quartile, median, upper_quartile] = [0.25, 0.5, 0.75].map(|share| quantile(&sorted, share));
        Some(Self { samples: sorted.len(), median, min, max, lower_quartile, upper_quartile })
    }

    /// Returns the range divided by the median.
    pub fn spread(&self) -> f64 {
        (self.max - self.min) / self.median
    }
}

/// Interpolates between the two samples nearest in rank. There must be at least one sample.
pub fn quantile(sorted: &[f64], share: f64) -> f64 {
    let rank = share * (sorted.len() - 1) as f64;
    let (below, above) = (sorted[rank.floor() as usize], sorted[rank.ceil() as usize]);
    below + (above - below) * rank.fract()
}

/// Summarises `numerators[i] / denominators[i]`: quotients of samples taken in the same round. A
/// sample without a counterpart is left out.
pub fn ratios(numerators: &[f64], denominators: &[f64]) -> Option<Summary> {
    // 0 / 0 counts as 1.
    Summary::of(numerators.iter().zip(denominators).map(|(n, d)| if n == d { 1.0 } else { n / d }))
}

/// A mean with its standard deviation, as the older papers report.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Mean {
    pub mean: f64,
    /// The standard deviation of the samples; 0 for a single sample.
    pub deviation: f64,
}

impl Mean {
    /// Returns mean and deviation of at least one sample.
    pub fn of(samples: &[f64]) -> Self {
        let count = samples.len() as f64;
        let mean = samples.iter().sum::<f64>() / count;
        let squares = samples.iter().map(|sample| (sample - mean).powi(2)).sum::<f64>();
        Self { mean, deviation: (squares / (count - 1.0).max(1.0)).sqrt() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn odd_count_has_a_middle() {
        let summary = Summary::of([5.0, 1.0, 3.0]).unwrap();
        assert_eq!((summary.samples, summary.median, summary.min, summary.max), (3, 3.0, 1.0, 5.0));
    }

    #[test]
    fn quartiles_lie_between_samples() {
        let summary = Summary::of([1.0, 2.0, 3.0, 4.0, 5.0]).unwrap();
        assert_eq!((summary.lower_quartile, summary.upper_quartile), (2.0, 4.0));
        let summary = Summary::of([1.0, 2.0]).unwrap();
        assert_eq!((summary.lower_quartile, summary.upper_quartile), (1.25, 1.75));
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
        assert_eq!(ratios(&[0.0], &[0.0]).unwrap().median, 1.0);
    }

    #[test]
    fn deviations_are_of_samples() {
        assert_eq!(Mean::of(&[1.0, 3.0, 5.0]), Mean { mean: 3.0, deviation: 2.0 });
        assert_eq!(Mean::of(&[7.0]), Mean { mean: 7.0, deviation: 0.0 });
    }
}
