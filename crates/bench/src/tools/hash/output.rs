//! Formats sections as text and as CSV.

use std::fmt::Write as _;
use std::path::Path;

use anyhow::{Context, Result};

use super::section::{Row, Section};
use crate::harness::report::{count, significant, table};

pub const LEGEND: &str = "\
empty: buckets without entries. hit, miss: mean number of entries that a lookup visits; per 1000: in a thousand lookups at the hit rate. \
spread: variance of the bucket sizes divided by their mean; 1 for a random function, lower is better. p: the probability that a random \
function deviates at least as much from Poisson's distribution. avalanche: the share of the bucket's bits that change with a bit of the key, \
ideally 50 %; dead: bits of the key that never change the bucket. ns: to hash a key; and the expected time of a lookup, for hashing, \
accessing the bucket and visiting entries. code: bytes of code that hashing executes.";

/// Formats a section. With `all_histograms`, the text has the histograms of all functions,
/// otherwise only those of the recommended and the worst function.
pub fn text(section: &Section, all_histograms: bool) -> String {
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
    let shown: Vec<&Row> = if all_histograms {
        section.rows.iter().collect()
    } else {
        let advised = section.advised();
        let worst = section.worst().filter(|worst| advised.is_none_or(|advised| advised.function != worst.function));
        advised.into_iter().chain(worst).collect()
    };
    for row in shown {
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
pub fn histogram(row: &Row) -> String {
    format!(
        "{}: hash table size is {} buckets\nhash table contains {} objects\nlargest bucket contains {} objects\n\
         iterations/lookup: {:.0}/1000\n{}",
        row.function, row.histogram.buckets, row.histogram.entries, row.largest, row.probes_per_thousand, row.histogram
    )
}

/// The columns of every table.
const HEADER: [&str; 12] = [
    "function",
    "empty",
    "largest",
    "hit",
    "miss",
    "per 1000",
    "spread",
    "p",
    "avalanche",
    "dead",
    "hash ns",
    "lookup ns",
];

fn size_table(rows: &[Row]) -> String {
    table(&header(rows), rows.iter().map(cells))
}

/// Returns `HEADER` and the optional columns of these rows.
pub fn header(rows: &[Row]) -> Vec<&'static str> {
    let counted = rows.iter().any(|row| row.instructions.is_some());
    HEADER.into_iter().chain(["instructions", "code"].into_iter().filter(|_| counted)).collect()
}

/// Formats the cells of a row, in the order of [`header`].
pub fn cells(row: &Row) -> Vec<String> {
    let percent = |share: f64| format!("{:.0} %", 100.0 * share);
    let avalanche =
        |part: fn(&super::avalanche::Avalanche) -> f64| row.avalanche.as_ref().map(part).map_or("-".into(), percent);
    let mut cells = vec![
        row.function.clone(),
        percent(row.empty as f64 / row.histogram.buckets as f64),
        row.largest.to_string(),
        significant(row.probes_per_hit),
        significant(row.probes_per_miss),
        format!("{:.0}", row.probes_per_thousand),
        significant(row.dispersion),
        row.fit.map_or("-".into(), |fit| format!("{:.3}", fit.p_value)),
        avalanche(|avalanche| avalanche.mean),
        avalanche(|avalanche| avalanche.dead),
        significant(row.hash_ns),
        significant(row.lookup_ns),
    ];
    cells.extend(row.instructions.map(significant));
    cells.extend(row.code_bytes.map(|bytes| bytes.to_string()));
    cells
}

/// Writes a line for each row of each section.
pub fn write_csv(path: &Path, sections: &[Section]) -> Result<()> {
    let write = || -> Result<()> {
        let mut writer = csv::Writer::from_path(path)?;
        writer.write_record([
            "keys_of",
            "function",
            "buckets",
            "entries",
            "empty",
            "largest",
            "probes_per_hit",
            "probes_per_miss",
            "probes_per_thousand",
            "dispersion",
            "chi_square",
            "degrees",
            "p_value",
            "avalanche",
            "dead_bits",
            "hash_ns",
            "instructions",
            "code_bytes",
            "lookup_ns",
        ])?;
        for section in sections {
            for row in &section.rows {
                writer.write_record(record(&section.title, row))?;
            }
        }
        Ok(writer.flush()?)
    };
    write().with_context(|| format!("cannot write {}", path.display()))
}

fn record(title: &str, row: &Row) -> Vec<String> {
    let optional = |number: Option<f64>| number.map_or(String::new(), |number| number.to_string());
    vec![
        title.into(),
        row.function.clone(),
        row.histogram.buckets.to_string(),
        row.histogram.entries.to_string(),
        row.empty.to_string(),
        row.largest.to_string(),
        row.probes_per_hit.to_string(),
        row.probes_per_miss.to_string(),
        row.probes_per_thousand.to_string(),
        row.dispersion.to_string(),
        optional(row.fit.map(|fit| fit.chi_square)),
        optional(row.fit.map(|fit| fit.degrees.into())),
        optional(row.fit.map(|fit| fit.p_value)),
        optional(row.avalanche.map(|avalanche| avalanche.mean)),
        optional(row.avalanche.map(|avalanche| avalanche.dead)),
        row.hash_ns.to_string(),
        optional(row.instructions),
        row.code_bytes.map_or(String::new(), |bytes| bytes.to_string()),
        row.lookup_ns.to_string(),
    ]
}
