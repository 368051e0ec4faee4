//! Formats sections as text.

use std::fmt::Write as _;

use super::section::{Row, Section};
use crate::harness::report::{count, significant, table};

pub const LEGEND: &str = "\
empty: buckets without entries. hit, miss: mean number of entries that a lookup visits; per 1000: in a thousand lookups at the hit rate. \
spread: variance of the bucket sizes divided by their mean; 1 for a random function, lower is better. p: the probability that a random \
function deviates at least as much from Poisson's distribution. ns: to hash a key; and the expected time of a lookup, for hashing, accessing the bucket and visiting entries.";

/// Formats a section, with the histograms of the recommended and the worst function.
pub fn text(section: &Section) -> String {
    let mut text = format!(
        "{}: {} keys, {:.0} % of lookups hit, {} ns to access an entry\n\n",
        section.title,
        section.keys,
        100.0 * section.hit_rate,
        significant(section.probe_ns)
    );
    for rows in section.sizes() {
        let _ = writeln!(text, "{} buckets:\n\n{}", count(1 << rows[0].bits), size_table(rows));
    }
    let advised = section.advised();
    let worst = section.worst().filter(|worst| advised.is_none_or(|advised| advised.function != worst.function));
    for row in advised.into_iter().chain(worst) {
        let _ = writeln!(text, "{}", histogram(row));
    }
    if let Some(advice) = &section.advice {
        let _ = writeln!(text, "{}", advice.sentence);
        if let Some(caution) = &advice.caution {
            let _ = writeln!(text, "{caution}");
        }
    }
    text + "\n"
}

/// Formats a histogram, with the heading that the paper uses.
fn histogram(row: &Row) -> String {
    format!(
        "{}: hash table size is {} buckets\nhash table contains {} objects\nlargest bucket contains {} objects\n\
         iterations/lookup: {:.0}/1000\n{}",
        row.function, row.histogram.buckets, row.histogram.entries, row.largest, row.probes_per_thousand, row.histogram
    )
}

/// The columns of every table.
const HEADER: [&str; 10] =
    ["function", "empty", "largest", "hit", "miss", "per 1000", "spread", "p", "hash ns", "lookup ns"];

fn size_table(rows: &[Row]) -> String {
    table(&HEADER, rows.iter().map(cells))
}

/// Formats the cells of a row, in the order of `HEADER`.
fn cells(row: &Row) -> Vec<String> {
    vec![
        row.function.clone(),
        format!("{:.0} %", 100.0 * row.empty as f64 / row.histogram.buckets as f64),
        row.largest.to_string(),
        significant(row.probes_per_hit),
        significant(row.probes_per_miss),
        format!("{:.0}", row.probes_per_thousand),
        significant(row.dispersion),
        row.fit.map_or("-".into(), |fit| format!("{:.3}", fit.p_value)),
        significant(row.hash_ns),
        significant(row.lookup_ns),
    ]
}
