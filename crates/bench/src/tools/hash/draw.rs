//! Draws the pictures of a section as SVG.

use anyhow::Result;

use super::section::{Row, Section};
use crate::harness::chart::{Chart, Line};
use crate::harness::stats::Summary;

/// A picture and the name of its file, without extension.
#[derive(Debug)]
pub struct Picture {
    pub name: &'static str,
    pub svg: String,
}

/// Draws two pictures of a section: bucket sizes compared with those of a random function, and
/// entries visited by table size.
pub fn pictures(section: &Section) -> Result<Vec<Picture>> {
    let Some(advised) = section.advised() else { return Ok(Vec::new()) };
    let title = format!("Bucket sizes with 2^{} buckets", advised.bits);
    let sizes = Chart {
        title: &title,
        x_label: "Entries in a bucket",
        y_label: "Buckets",
        logarithmic: false,
        unit: 1.0,
        caption: "",
    };
    let probes = Chart {
        title: "Entries that a miss visits, by table size",
        x_label: "Buckets (logarithm to base 2)",
        y_label: "Entries",
        logarithmic: true,
        ..sizes
    };
    Ok(vec![
        Picture { name: "sizes", svg: sizes.svg(&sizes_of(section, advised))? },
        Picture { name: "probes", svg: probes.svg(&probes_of(section, advised.bits))? },
    ])
}

fn line(label: String, points: impl Iterator<Item = (f64, f64)>) -> Line {
    let point = |(x, y)| Some((x, Summary::of([y])?));
    Line { label, points: points.filter_map(point).collect() }
}

fn sizes_of(section: &Section, advised: &Row) -> Vec<Line> {
    let worst = section.worst().filter(|worst| worst.function != advised.function);
    let load = advised.histogram.load();
    // Larger sizes are cut off: the long tail of a poor function would leave little room for the
    // others.
    let last = (load + 5.0 * load.sqrt() + 3.0) as usize;
    let of = |row: &Row| {
        let buckets = |size: usize| row.histogram.sizes.get(size).copied().unwrap_or(0) as f64;
        let label = format!("{}, largest {}", row.function, row.largest);
        line(label, (0..=last).map(|size| (size as f64, buckets(size))))
    };
    let expected = (0..=last).map(|size| (size as f64, advised.histogram.expected(size as u64)));
    let random = line("a random function (Poisson)".into(), expected);
    [of(advised), random].into_iter().chain(worst.map(of)).collect()
}

fn probes_of(section: &Section, bits: u32) -> Vec<Line> {
    let random = section.sizes().map(|rows| {
        let bits = rows[0].bits;
        (f64::from(bits), section.keys as f64 / 2f64.powi(bits as i32))
    });
    let of = |function: &str| {
        let rows = section.rows.iter().filter(|row| row.function == function);
        line(function.into(), rows.map(|row| (f64::from(row.bits), row.probes_per_miss)))
    };
    let outstanding = outstanding(section, bits).into_iter().map(of);
    [line("a random function".into(), random)].into_iter().chain(outstanding).collect()
}

/// Returns the functions whose lookups in tables of this size visit the fewest entries, and those
/// that visit the most.
fn outstanding(section: &Section, bits: u32) -> Vec<&str> {
    let mut rows: Vec<&Row> = section.rows.iter().filter(|row| row.bits == bits).collect();
    rows.sort_by(|one, other| one.probes_per_miss.total_cmp(&other.probes_per_miss));
    let (few, most) = (rows.len().min(4), rows.len().saturating_sub(3).max(rows.len().min(4)));
    rows[..few].iter().chain(&rows[most..]).map(|row| row.function.as_str()).collect()
}
