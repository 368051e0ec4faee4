//! Straight lines through the measurements, and tables of our results and the paper's.

use serde::Serialize;

use super::candidates::NAMES;
use super::cold::Pass;
use super::quantity::{Line, QUANTITIES, Quantity};
use super::{Results, Setting, cold};
use relativist_bench::harness::comparison::{Comparison, overview};
use relativist_bench::harness::report::{significant, table};
use relativist_bench::harness::stats::Summary;

pub fn describe(results: &Results) -> String {
    let mut text = "Intercept in ns, and slope in ns per byte of the key (iteration: per entry), of lines \
                    through the key sizes that have specialised routines. SPARC 4/40 and Alpha AXP 3000/600 are the \
                    paper's.\n\n"
        .to_owned();
    let header: Vec<&str> = ["operation", "SPARC", "Alpha"].into_iter().chain(NAMES).collect();
    text += &table(&header, QUANTITIES.into_iter().map(|quantity| row(results, quantity)));
    text +=
        "\nOne operation with each size of keys in turn, ns per operation; cold: after much other code has run.\n\n";
    for quantity in cold::QUANTITIES {
        let passes = results.passes.iter().filter(|comparison| comparison.setting.quantity == quantity);
        let columns: Vec<_> = passes
            .map(|comparison| (if comparison.setting.cold { "cold" } else { "warm" }.to_owned(), comparison))
            .collect();
        text += &format!("{}\n\n", overview(quantity.title(), &columns));
    }
    text + &specialisation(results)
}

fn row(results: &Results, quantity: Quantity) -> Vec<String> {
    let spelled = |(intercept, slope): Line| format!("{} + {}", significant(intercept), significant(slope));
    let fitted = |name| {
        let fit = results.fits.iter().find(|fit| fit.quantity == quantity && fit.name == name);
        fit.map_or_else(String::new, |fit| spelled((fit.intercept, fit.slope)))
    };
    let printed = quantity.printed().map(spelled);
    [quantity.title().to_owned()].into_iter().chain(printed).chain(NAMES.map(fitted)).collect()
}

/// Formats the paper's comparison of its builds.
fn specialisation(results: &Results) -> String {
    let is_such = |setting: &Setting| setting.quantity == Quantity::Hit && setting.is_specialised();
    let hits = results.comparisons.iter().filter(|comparison| is_such(&comparison.setting));
    let warm = Summary::of(hits.filter_map(new_over_old));
    let cold = |comparison: &&Comparison<Pass>| comparison.setting.cold && comparison.setting.quantity == Quantity::Hit;
    let cold = results.passes.iter().find(cold).and_then(new_over_old);
    let (Some(warm), Some(cold)) = (warm, cold) else { return String::new() };
    format!(
        "Lookups (cache hit) with specialised routines for the size of keys take {} of the time of those without (median over these sizes); with a \
         cold instruction cache they take {} (the paper, on the Alpha: roughly 70 % better, and 15 % worse).\n",
        significant(warm.median),
        significant(cold)
    )
}

fn new_over_old<S>(comparison: &Comparison<S>) -> Option<f64> {
    comparison.candidates.iter().find(|result| result.name == "new").map(|result| result.ratio.median)
}

/// A line by least squares. (The paper's lines were fitted by eye.)
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
