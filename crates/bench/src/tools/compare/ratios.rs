//! Draws how many times as fast the flat map is as the node map, in all cells.

use std::path::Path;

use anyhow::{Result, anyhow};
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};

use crate::harness::chart::{Drawn, GRID, INK};
use crate::harness::comparison::Comparison;
use crate::harness::fonts;
use crate::harness::report::{count, significant};
use crate::harness::sampling::Distribution;
use crate::tables::entries::Kind;
use crate::tools::compare::plot::{OURS, draw_lines};
use crate::tools::compare::setting::{Metric, Setting, Workload};

const WIDTH: u32 = 760;
const NAMES_WIDTH: u32 = 250;
const BAR: u32 = 11;
const GAP: u32 = 7;
const HEADER: u32 = 58;
const BELOW: u32 = 30;
const KEY_WIDTH: i32 = 190;

/// The ends of the logarithmic axis.
const RANGE: (f64, f64) = (0.25, 8.0);

const EXPLANATION: &str =
    "Time of relativist's HashMap divided by that of FlatMap, medians: to the right of 1, FlatMap is faster.";

/// The ratios of a cell, each with its number of threads and processor.
type Row = (String, Vec<(String, f64)>);

/// Draws `flat.svg`, unless no comparison has both maps.
pub fn draw(folder: &Path, comparisons: &[Comparison<Setting>]) -> Result<()> {
    let rows = rows(comparisons);
    if rows.is_empty() {
        return Ok(());
    }
    fonts::register();
    let path = folder.join("flat.svg");
    // Errors are formatted here, because the library's error types borrow the picture.
    draw_rows(&path, &rows).map_err(|error| anyhow!("cannot draw {}: {error}", path.display()))
}

fn rows(comparisons: &[Comparison<Setting>]) -> Vec<Row> {
    let mut rows: Vec<Row> = Vec::new();
    for comparison in comparisons {
        let median = |name| comparison.candidates.iter().find(|result| result.name == name).map(|r| r.value.median);
        let both = median("relativist").zip(median("relativist flat"));
        let (Some(cell), Some((nodes, flat))) = (cell(&comparison.setting), both) else { continue };
        let place = rows.iter().position(|(known, _)| *known == cell).unwrap_or_else(|| {
            rows.push((cell, Vec::new()));
            rows.len() - 1
        });
        let label = comparison.setting.label();
        if rows[place].1.iter().all(|(known, _)| *known != label) {
            rows[place].1.push((label, nodes / flat));
        }
    }
    rows.sort_by_key(|(cell, _)| (order(cell), cell.contains("strings")));
    rows
}

/// The workloads in the order in which they are drawn.
const ORDER: [&str; 9] =
    ["hits", "misses", "10 % updates", "50 % updates", "growing", "longest", "removing", "iterating", "clearing"];

fn order(cell: &str) -> usize {
    ORDER.iter().position(|workload| cell.starts_with(workload)).unwrap_or(ORDER.len())
}

/// Returns the name of a cell that is drawn: without Zipf's distribution and most percentiles.
fn cell(setting: &Setting) -> Option<String> {
    let what = match (setting.workload, setting.updates_percent, setting.metric) {
        (Workload::Hit, ..) => "hits".into(),
        (Workload::Miss, ..) => "misses".into(),
        (Workload::Matrix, Some(percent @ 1..), _) => format!("{percent} % updates"),
        (Workload::Grow, ..) => "growing from empty".into(),
        (Workload::Latency, _, Some(Metric::LongestScheduled)) => "longest insertion while growing".into(),
        (Workload::Remove, ..) => "removing all keys".into(),
        (Workload::Iterate, ..) => "iterating".into(),
        (Workload::Clear, ..) => "clearing".into(),
        _ => return None,
    };
    let zipf = setting.distribution == Some(Distribution::Zipf);
    let kind = if setting.kind == Kind::Strings { ", strings" } else { "" };
    (!zipf).then(|| format!("{what}{kind}, {}", count(setting.entries)))
}

/// Returns the labels of all rows, each once.
fn labels(rows: &[Row]) -> Vec<&str> {
    let mut labels = Vec::new();
    for (label, _) in rows.iter().flat_map(|(_, ratios)| ratios) {
        if !labels.contains(&label.as_str()) {
            labels.push(label);
        }
    }
    labels
}

fn draw_rows(path: &Path, rows: &[Row]) -> Drawn {
    let labels = labels(rows);
    let row_height = labels.len() as u32 * BAR + GAP;
    let rows_height = rows.len() as u32 * row_height;
    let (width, height) = (WIDTH, HEADER + rows_height + BELOW);
    let root = SVGBackend::new(path, (width, height)).into_drawing_area();
    root.fill(&WHITE)?;
    draw_lines(&root, 12, &[EXPLANATION.to_owned()])?;
    let text = ("sans-serif", 12).into_font().color(&INK);
    for (place, label) in labels.iter().enumerate() {
        let left = 12 + KEY_WIDTH * place as i32;
        root.draw(&Rectangle::new([(left, 34), (left + 12, 44)], colour(place).filled()))?;
        root.draw(&Text::new(*label, (left + 18, 33), text.clone()))?;
    }
    let mut chart = ChartBuilder::on(&root)
        .margin_top(HEADER)
        .margin_right(60)
        .x_label_area_size(BELOW)
        .y_label_area_size(NAMES_WIDTH)
        .build_cartesian_2d((RANGE.0..RANGE.1).log_scale().base(2.0), f64::from(rows_height)..0.0)?;
    chart
        .configure_mesh()
        .disable_y_mesh()
        .disable_y_axis()
        .x_label_formatter(&|value| format!("{value}"))
        .label_style(("sans-serif", 11).into_font().color(&INK))
        .light_line_style(TRANSPARENT)
        .bold_line_style(GRID)
        .axis_style(INK)
        .draw()?;
    let small = ("sans-serif", 10).into_font().color(&INK).pos(Pos::new(HPos::Left, VPos::Center));
    for (row, (cell, ratios)) in rows.iter().enumerate() {
        let top = f64::from(row as u32 * row_height + GAP / 2);
        let at = chart.backend_coord(&(RANGE.0, top + f64::from(row_height - GAP) / 2.0));
        root.draw(&Text::new(cell.as_str(), (at.0 - 6, at.1), text.clone().pos(Pos::new(HPos::Right, VPos::Center))))?;
        for (label, ratio) in ratios {
            let place = labels.iter().position(|known| known == label).unwrap_or(0);
            let (top, end) = (top + f64::from(place as u32 * BAR), ratio.clamp(RANGE.0, RANGE.1));
            let corners = [(1.0, top), (end, top + f64::from(BAR) - 1.0)];
            chart.draw_series([Rectangle::new(corners, colour(place).filled())])?;
            let at = chart.backend_coord(&(end.max(1.0), top + f64::from(BAR) / 2.0));
            root.draw(&Text::new(significant(*ratio), (at.0 + 4, at.1), small.clone()))?;
        }
    }
    chart.draw_series([PathElement::new([(1.0, 0.0), (1.0, f64::from(rows_height))], INK)])?;
    root.present()?;
    Ok(())
}

fn colour(place: usize) -> RGBColor {
    OURS[place.min(OURS.len() - 1)]
}
