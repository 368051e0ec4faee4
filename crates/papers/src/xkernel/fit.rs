//! Fits straight lines to the measurements by least squares. (The paper's lines were fitted by
//! eye.)

use serde::Serialize;

use super::Setting;
use super::quantity::{Line, QUANTITIES, Quantity};
use relativist_bench::harness::comparison::Comparison;

#[derive(Clone, Copy, Debug, Serialize)]
pub struct Fit {
    pub quantity: Quantity,
    pub name: &'static str,
    /// Nanoseconds for zero bytes or zero entries.
    pub intercept: f64,
    /// Nanoseconds per byte, or per entry.
    pub slope: f64,
}

/// Fits a line for each quantity and candidate with at least two points. Key sizes without
/// specialised routines are left out, because they would be on another line.
pub fn lines(comparisons: &[Comparison<Setting>]) -> Vec<Fit> {
    let mut fits = Vec::new();
    for quantity in QUANTITIES {
        let is_on_it = |setting: &Setting| setting.quantity == quantity && setting.is_specialised();
        let comparisons: Vec<_> = comparisons.iter().filter(|comparison| is_on_it(&comparison.setting)).collect();
        let names = comparisons.first().map_or(&[][..], |comparison| &comparison.candidates);
        for (index, result) in names.iter().enumerate() {
            let point = |comparison: &&Comparison<Setting>| {
                (comparison.setting.variable(), comparison.candidates[index].value.median)
            };
            let points: Vec<_> = comparisons.iter().map(point).collect();
            let fit = |(intercept, slope)| Fit { quantity, name: result.name, intercept, slope };
            fits.extend(least_squares(&points).map(fit));
        }
    }
    fits
}

fn least_squares(points: &[(f64, f64)]) -> Option<Line> {
    let mean = |of: fn(&(f64, f64)) -> f64| points.iter().map(of).sum::<f64>() / points.len() as f64;
    let (x_mean, y_mean) = (mean(|(x, _)| *x), mean(|(_, y)| *y));
    let spread: f64 = points.iter().map(|(x, _)| (x - x_mean).powi(2)).sum();
    let slope = points.iter().map(|(x, y)| (x - x_mean) * (y - y_mean)).sum::<f64>() / spread;
    (spread > 0.0).then_some((y_mean - slope * x_mean, slope))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_found_again() {
        let points: Vec<_> = (1..=32).map(|x| (f64::from(x), 360.0 + 4.0 * f64::from(x))).collect();
        let (intercept, slope) = least_squares(&points).unwrap();
        assert!((intercept - 360.0).abs() < 1e-9 && (slope - 4.0).abs() < 1e-9, "{intercept} {slope}");
    }

    #[test]
    fn deviations_cancel_out() {
        let (intercept, slope) = least_squares(&[(0.0, 1.0), (0.0, 3.0), (4.0, 9.0), (4.0, 11.0)]).unwrap();
        assert_eq!((intercept, slope), (2.0, 2.0));
    }

    #[test]
    fn a_point_makes_no_line() {
        assert_eq!(least_squares(&[]), None);
        assert_eq!(least_squares(&[(1.0, 1.0), (1.0, 2.0)]), None);
    }
}
