//! Draws comparisons: an SVG for each workload and kind of entries. It has a panel for each printed
//! table, and the panel has a bar for each candidate and number of threads.

use std::path::{Path, PathBuf};

use anyhow::{Result, anyhow};
use plotters::coord::Shift;
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};

use crate::harness::chart::{Drawn, GRID, INK};
use crate::harness::comparison::{CandidateResult, Comparison};
use crate::harness::fonts;
use crate::harness::options::spell;
use crate::harness::report::significant;
use crate::tools::compare::screen::Section;
use crate::tools::compare::setting::Setting;

const PANEL_WIDTH: u32 = 560;
const BAR: u32 = 11;
const GAP: u32 = 7;
const NAMES_WIDTH: u32 = 165;
const LABELS_WIDTH: u32 = 105;
const ABOVE_PANEL: u32 = 34;
const BELOW_PANEL: u32 = 56;
const KEY_WIDTH: u32 = 225;
const LINE: u32 = 16;

/// Bars that are more than `CUT` times as long as our longest one are cut, so that the others stay
/// readable.
const CUT: f64 = 5.0;

const EXPLANATION: &str = "Shorter is better. Bars: median over rounds; lines: quartiles; figures: median, and how many times \
                           that of relativist's HashMap it is (of a handle: of its handle).";

/// Colours of our bars and of competitors' bars, from few to many threads, of one processor after
/// the other.
pub const OURS: [RGBColor; 4] =
    [RGBColor(150, 200, 240), RGBColor(84, 152, 216), RGBColor(30, 104, 172), RGBColor(12, 58, 106)];
const COMPETITORS: [RGBColor; 4] =
    [RGBColor(212, 215, 220), RGBColor(172, 178, 187), RGBColor(130, 137, 149), RGBColor(86, 93, 106)];

/// Draws all comparisons. `caption` is written below each picture.
pub fn draw(folder: &Path, comparisons: &[Comparison<Setting>], caption: &str) -> Result<()> {
    fonts::register();
    let mut pictures: Vec<(PathBuf, Vec<&Comparison<Setting>>)> = Vec::new();
    for comparison in comparisons {
        let path = folder.join(file_name(&comparison.setting));
        match pictures.iter_mut().find(|(other, _)| *other == path) {
            Some((_, comparisons)) => comparisons.push(comparison),
            None => pictures.push((path, vec![comparison])),
        }
    }
    for (path, comparisons) in pictures {
        // Errors are formatted here, because the library's error types borrow the picture.
        draw_picture(&path, &comparisons, caption)
            .map_err(|error| anyhow!("cannot draw {}: {error}", path.display()))?;
    }
    Ok(())
}

/// Returns the name of a picture, such as `hit-u64.svg`, from the workload and the kind of entries.
fn file_name(setting: &Setting) -> String {
    format!("{}-{}.svg", spell(&setting.workload), spell(&setting.kind))
}

/// A section, and its layout in the picture.
struct Panel<'c> {
    section: Section<'c>,
    names: Vec<&'static str>,
    labels: Vec<String>,
}

impl<'c> Panel<'c> {
    fn of(section: Section<'c>) -> Self {
        Self { names: section.names(), labels: section.labels(), section }
    }

    /// Returns row, series and content of each bar.
    fn bars(&self) -> Vec<(usize, usize, &'c CandidateResult)> {
        let mut bars = Vec::new();
        for (row, name) in self.names.iter().enumerate() {
            for (series, label) in self.labels.iter().enumerate() {
                bars.extend(self.section.result(name, label).map(|result| (row, series, result)));
            }
        }
        bars
    }

    fn limit(&self) -> f64 {
        let ends = |ours: bool| {
            let bars = self.bars().into_iter().filter(|(_, _, result)| !ours || is_ours(result.name));
            bars.map(|(_, _, result)| result.value.upper_quartile).fold(0.0, f64::max)
        };
        let (all, ours) = (ends(false), ends(true));
        let limit = if ours > 0.0 { all.min(CUT * ours) } else { all };
        if limit > 0.0 { limit } else { 1.0 }
    }

    fn height(&self) -> u32 {
        ABOVE_PANEL + self.names.len() as u32 * (self.labels.len() as u32 * BAR + GAP) + BELOW_PANEL
    }
}

fn is_ours(name: &str) -> bool {
    name.starts_with("relativist")
}

type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;

fn draw_picture(path: &Path, comparisons: &[&Comparison<Setting>], caption: &str) -> Drawn {
    let panels: Vec<Panel<'_>> = Section::of(comparisons.iter().copied()).into_iter().map(Panel::of).collect();
    let across = panels.len().clamp(1, 3);
    let rows: Vec<&[Panel<'_>]> = panels.chunks(across).collect();
    let heights: Vec<u32> = rows.iter().map(|row| row.iter().map(Panel::height).max().unwrap_or(0)).collect();
    let width = PANEL_WIDTH * across as u32;
    let (explanation, caption) = (wrapped(EXPLANATION, width), wrapped(caption, width));
    let series = series(&panels);
    let keys = keys(&series);
    let keys: Vec<_> = keys.chunks((width / KEY_WIDTH) as usize).collect();
    let header = 12 + LINE * (explanation.len() + keys.len()) as u32 + 14;
    let height = header + heights.iter().sum::<u32>() + LINE * caption.len() as u32 + 16;

    let root = SVGBackend::new(path, (width, height)).into_drawing_area();
    root.fill(&WHITE)?;
    draw_lines(&root, 12, &explanation)?;
    for (line, keys) in keys.iter().enumerate() {
        let top = (18 + LINE * (explanation.len() + line) as u32) as i32;
        for (place, (colour, name)) in keys.iter().enumerate() {
            let left = 12 + (KEY_WIDTH * place as u32) as i32;
            root.draw(&Rectangle::new([(left, top), (left + 12, top + 10)], colour.filled()))?;
            root.draw(&Text::new(name.as_str(), (left + 18, top - 1), ("sans-serif", 12).into_font().color(&INK)))?;
        }
    }
    let mut top = header;
    for (row, height) in rows.into_iter().zip(heights) {
        for (place, panel) in row.iter().enumerate() {
            let left = place as u32 * PANEL_WIDTH;
            let area = root.clone().shrink((left, top), (PANEL_WIDTH, panel.height()));
            draw_panel(&area, panel, &series)?;
        }
        top += height;
    }
    draw_lines(&root, top + 8, &caption)?;
    root.present()?;
    Ok(())
}

pub fn draw_lines(root: &Area<'_>, top: u32, lines: &[String]) -> Drawn {
    for (number, line) in lines.iter().enumerate() {
        let at = (12, (top + LINE * number as u32) as i32);
        root.draw(&Text::new(line.as_str(), at, ("sans-serif", 12).into_font().color(&INK)))?;
    }
    Ok(())
}

/// Returns the labels of all panels together.
fn series(panels: &[Panel<'_>]) -> Vec<String> {
    let mut series = Vec::new();
    for label in panels.iter().flat_map(|panel| &panel.labels) {
        if !series.contains(label) {
            series.push(label.clone());
        }
    }
    series
}

/// Returns the legend of the colours.
fn keys(series: &[String]) -> Vec<(RGBColor, String)> {
    let key = |(place, label): (usize, &String)| {
        [(OURS, "relativist"), (COMPETITORS, "others")]
            .map(|(colours, name)| (colours[place.min(OURS.len() - 1)], format!("{name}, {label}")))
    };
    series.iter().enumerate().flat_map(key).collect()
}

fn draw_panel(area: &Area<'_>, panel: &Panel<'_>, all_series: &[String]) -> Drawn {
    let bold = ("sans-serif", 14).into_font().style(FontStyle::Bold).color(&INK);
    area.draw(&Text::new(panel.section.title.as_str(), (12, 10), bold))?;
    let limit = panel.limit();
    let series = panel.labels.len() as f64;
    let row_height = series * f64::from(BAR) + f64::from(GAP);
    let mut chart = ChartBuilder::on(area)
        .margin_top(ABOVE_PANEL)
        .margin_right(LABELS_WIDTH)
        .x_label_area_size(BELOW_PANEL - 12)
        .margin_bottom(12)
        .y_label_area_size(NAMES_WIDTH)
        .build_cartesian_2d(0.0..limit, panel.names.len() as f64 * row_height..0.0)?;
    chart
        .configure_mesh()
        .disable_y_mesh()
        .disable_y_axis()
        .x_labels(6)
        .x_label_formatter(&|value| significant_tick(*value, limit))
        .x_desc(if panel.section.unit() == "ns" { "ns per operation and thread" } else { panel.section.unit() })
        .axis_desc_style(("sans-serif", 12).into_font().color(&INK))
        .label_style(("sans-serif", 11).into_font().color(&INK))
        .light_line_style(TRANSPARENT)
        .bold_line_style(GRID)
        .axis_style(INK)
        .draw()?;
    for (row, name) in panel.names.iter().enumerate() {
        let middle = row as f64 * row_height + (row_height - f64::from(GAP)) / 2.0 + f64::from(GAP) / 2.0;
        let (x, y) = chart.backend_coord(&(0.0, middle));
        let style = if is_ours(name) { FontStyle::Bold } else { FontStyle::Normal };
        let font = ("sans-serif", 12).into_font().style(style).color(&INK);
        let style = font.pos(Pos::new(HPos::Right, VPos::Center));
        let (left, top) = area.get_base_pixel();
        area.draw(&Text::new(*name, (x - left - 6, y - top), style))?;
    }
    let small = ("sans-serif", 10).into_font().color(&INK).pos(Pos::new(HPos::Left, VPos::Center));
    for (row, series, result) in panel.bars() {
        let top = row as f64 * row_height + f64::from(GAP) / 2.0 + series as f64 * f64::from(BAR);
        let (middle, bottom) = (top + f64::from(BAR) / 2.0, top + f64::from(BAR) - 1.0);
        let value = &result.value;
        let colours = if is_ours(result.name) { OURS } else { COMPETITORS };
        let place = all_series.iter().position(|label| *label == panel.labels[series]).unwrap_or(series);
        let colour = colours[place.min(OURS.len() - 1)].filled();
        let bar = Rectangle::new([(0.0, top), (value.median.min(limit), bottom)], colour);
        chart.draw_series([bar])?;
        let (from, to) = (value.lower_quartile.min(limit), value.upper_quartile.min(limit));
        chart.draw_series([PathElement::new([(from, middle), (to, middle)], INK)])?;
        let mut label = significant(value.median);
        if result.against != result.name {
            label = format!("{label} ({}x)", significant(result.ratio.median));
        }
        if value.median > limit {
            label = format!("\u{2192} {label}");
        }
        let (x, y) = chart.backend_coord(&(value.median.max(to).min(limit), middle));
        let (left, base) = area.get_base_pixel();
        area.draw(&Text::new(label, (x - left + 5, y - base), small.clone()))?;
    }
    Ok(())
}

/// Formats the number of a tick, with the digits that ticks up to `limit` need.
fn significant_tick(value: f64, limit: f64) -> String {
    if limit >= 10.0 { format!("{value:.0}") } else { format!("{value:.1}") }
}

/// Breaks text into lines that fit `pixels`, at spaces if possible.
fn wrapped(text: &str, pixels: u32) -> Vec<String> {
    // Characters of the small print are at most 7 pixels wide on average.
    let width = (pixels / 7) as usize;
    let mut lines = Vec::new();
    for paragraph in text.lines() {
        let mut line = String::new();
        for word in paragraph.split(' ') {
            if !line.is_empty() && line.len() + 1 + word.len() > width {
                lines.push(std::mem::take(&mut line));
            }
            if !line.is_empty() {
                line.push(' ');
            }
            line.push_str(word);
        }
        lines.push(line);
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::harness::comparison::{Measured, compare};
    use crate::tables::entries::Kind;
    use crate::tools::compare::setting::{Metric, Workload};
    use indicatif::ProgressBar;

    fn comparison(setting: Setting, values: &[(&'static str, f64)]) -> Comparison<Setting> {
        let names: Vec<_> = values.iter().map(|(name, _)| *name).collect();
        let one = |candidate: usize, _| Ok(Measured::single(values[candidate].1));
        compare(setting, &names, 3, &ProgressBar::hidden(), one).unwrap()
    }

    #[test]
    fn a_picture_names_everything() {
        let folder = tempfile::tempdir().unwrap();
        let setting = |threads| Setting { threads, ..Setting::new(Workload::Hit, Kind::U64, 1 << 20) };
        let values = [("relativist", 10.0), ("dashmap", 25.0), ("papaya", 900.0)];
        let comparisons = [comparison(setting(1), &values), comparison(setting(2), &values)];
        draw(folder.path(), &comparisons, "relativist-bench compare --workload hit\nA machine").unwrap();
        let picture = std::fs::read_to_string(folder.path().join("hit-u64.svg")).unwrap();
        for expected in [
            "relativist, 1 thread",
            "others, 2 threads",
            "Lookups that hit, u64 to u64, 2^20 entries",
            "ns per operation and thread",
            "25.0 (2.50x)",
            "\u{2192} 900 (90.0x)",
            "A machine",
        ] {
            assert!(picture.contains(expected), "{expected}");
        }
    }

    #[test]
    fn metrics_have_panels_of_their_own() {
        let setting = |threads, metric| Setting {
            threads,
            metric: Some(metric),
            ..Setting::new(Workload::Latency, Kind::U64, 1 << 20)
        };
        let comparisons: Vec<_> = [(1, Metric::P50), (1, Metric::Longest), (2, Metric::P50), (2, Metric::Longest)]
            .map(|(threads, metric)| comparison(setting(threads, metric), &[("relativist", 1.0)]))
            .into();
        let panels: Vec<_> = Section::of(&comparisons).into_iter().map(Panel::of).collect();
        assert_eq!(panels.iter().map(|panel| panel.labels.len()).collect::<Vec<_>>(), [2, 2]);
        assert!(panels[1].section.title.ends_with(": longest"));
    }

    #[test]
    fn lines_are_broken_at_spaces() {
        assert_eq!(wrapped("one two three\nfour", 8 * 7), ["one two", "three", "four"]);
        assert_eq!(wrapped("incompressible", 3 * 7), ["incompressible"]);
    }
}
