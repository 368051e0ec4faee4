//! Tables of our results and the paper's, and pictures.

use std::path::Path;

use anyhow::Result;

use super::candidates::NAMES;
use super::cold::Pass;
use super::quantity::{Line, QUANTITIES, Quantity};
use super::{Results, Setting, cold};
use relativist_bench::harness::chart;
use relativist_bench::harness::comparison::{Comparison, overview};
use relativist_bench::harness::options::spell;
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

/// Draws a picture for each quantity: the time of each candidate by size of keys or number of
/// entries.
pub fn draw(folder: &Path, results: &Results, caption: &str) -> Result<()> {
    for quantity in QUANTITIES {
        let comparisons: Vec<_> =
            results.comparisons.iter().filter(|comparison| comparison.setting.quantity == quantity).collect();
        let line = |(index, name): (usize, &&str)| chart::Line {
            label: (*name).to_owned(),
            points: comparisons.iter().map(|at| (at.setting.variable(), at.candidates[index].value)).collect(),
        };
        let lines: Vec<_> = NAMES.iter().enumerate().map(line).collect();
        let by_entries = quantity == Quantity::Iterate;
        let chart = chart::Chart {
            title: quantity.title(),
            x_label: if by_entries { "Entries" } else { "Bytes of a key" },
            y_label: "ns",
            logarithmic: by_entries,
            unit: 1.0,
            caption,
        };
        chart.draw(folder, &format!("xkernel-{}", spell(&quantity)), &lines)?;
    }
    Ok(())
}
