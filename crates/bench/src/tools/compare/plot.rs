//! Draws comparisons: an SVG for each subject, workload and kind of entries. It has a panel for each
//! printed table, and the panel has a bar for each candidate and number of threads.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, anyhow, ensure};
use plotters::coord::Shift;
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};
use serde::Deserialize;

use super::job::Setting;
use super::{Results, Section};
use crate::harness::chart::{Drawn, GRID, INK, prepare};
use crate::harness::comparison::{CandidateResult, Comparison, names};
use crate::harness::fonts;
use crate::harness::machine::Machine;
use crate::harness::options::spell;
use crate::harness::report::{LAYOUT, significant};

const WIDTH: u32 = 720;
const BAR: u32 = 11;
const GAP: u32 = 7;
const NAMES_WIDTH: u32 = 190;
const LABELS_WIDTH: u32 = 105;
const ABOVE_PANEL: u32 = 34;
const BELOW_PANEL: u32 = 56;
const LINE: u32 = 16;

/// Bars that are more than `CUT` times as long as our longest one are cut, so that the others stay
/// readable.
const CUT: f64 = 5.0;

const EXPLANATION: &str = "Shorter is better. Bars: median over rounds; lines: quartiles; figures: median, and how many \
                           times ours it is (of a handle: our handle).";

/// Colours of our bars and of competitors' bars, from few to many threads, of one processor after
/// the other.
const OURS: [RGBColor; 4] =
    [RGBColor(150, 200, 240), RGBColor(84, 152, 216), RGBColor(30, 104, 172), RGBColor(12, 58, 106)];
const COMPETITORS: [RGBColor; 4] =
    [RGBColor(212, 215, 220), RGBColor(172, 178, 187), RGBColor(130, 137, 149), RGBColor(86, 93, 106)];

/// Draw the results of `compare` on several machines together
///
/// Reads files that `compare --json` wrote. Draws an SVG for each workload and type of entries,
/// with a panel for each cell, and in each panel a bar for each candidate, processor and number of
/// threads. If files contain the same measurement of the same processor, the first one counts.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Files that `compare --json` wrote
    #[arg(required = true, value_name = "FILE")]
    files: Vec<PathBuf>,

    /// Folder for the pictures
    #[arg(long, value_name = "DIR")]
    out: PathBuf,
}

/// The part of a report that is drawn. Names are borrowed from the text of the file.
#[derive(Deserialize)]
#[serde(bound(deserialize = "'de: 'static"))]
struct Document {
    machine: Machine,
    results: Results,
}

/// What tells whether a file can be drawn.
#[derive(Deserialize)]
struct Header {
    layout: u32,
    command: String,
}

pub fn run(args: &Args) -> Result<()> {
    prepare(&args.out)?;
    let documents = args.files.iter().map(|file| read(file)).collect::<Result<Vec<_>>>()?;
    let mut machines: Vec<String> = documents.iter().map(|document| document.machine.to_string()).collect();
    machines.sort_unstable();
    machines.dedup();
    let mut comparisons = Vec::new();
    for Document { machine, results } in documents {
        let named = results.comparisons.into_iter().map(|mut comparison| {
            comparison.setting.processor = Some(machine.processor());
            comparison
        });
        comparisons.extend(named);
    }
    // The sort is stable, so the first of several measurements stays the first.
    comparisons.sort_by_key(|Comparison { setting, .. }| setting.entries);
    let caption = format!("relativist-bench compare, drawn by relativist-bench plot\n{}", machines.join("\n"));
    draw(&args.out, &comparisons, &caption)
}

fn read(file: &Path) -> Result<Document> {
    let text = fs::read_to_string(file).with_context(|| format!("cannot read {}", file.display()))?;
    let not_ours = || format!("{} is no result of compare of this version", file.display());
    let header: Header = serde_json::from_str(&text).with_context(not_ours)?;
    ensure!(header.command == "compare" && header.layout == LAYOUT, not_ours());
    // The names in comparisons have no other owner. This happens once per file, and the program
    // ends afterwards.
    serde_json::from_str(text.leak()).with_context(not_ours)
}

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

/// Returns the name of a picture, such as `maps-hit-u64.svg`.
fn file_name(setting: &Setting) -> String {
    let kind = setting.kind.map_or_else(String::new, |kind| format!("-{}", spell(&kind)));
    format!("{}-{}{kind}.svg", setting.subject, setting.workload)
}

fn names_of(section: &Section<'_>) -> Vec<&'static str> {
    names(section.columns.iter().map(|(_, comparison)| *comparison))
}

/// Returns row, column and content of each bar.
fn bars<'c>(section: &Section<'c>) -> Vec<(usize, usize, &'c CandidateResult)> {
    let mut bars = Vec::new();
    for (row, name) in names_of(section).into_iter().enumerate() {
        for (column, (_, comparison)) in section.columns.iter().enumerate() {
            bars.extend(comparison.result(name).map(|result| (row, column, result)));
        }
    }
    bars
}

/// Returns the end of the axis.
fn limit(section: &Section<'_>) -> f64 {
    let end = |ours: bool| {
        let bars = bars(section).into_iter().filter(|(_, _, result)| !ours || is_ours(result.name));
        bars.map(|(_, _, result)| result.value.upper_quartile).fold(0.0, f64::max)
    };
    let (all, ours) = (end(false), end(true));
    let limit = if ours > 0.0 { all.min(CUT * ours) } else { all };
    if limit > 0.0 { limit } else { 1.0 }
}

fn height(section: &Section<'_>) -> u32 {
    ABOVE_PANEL + names_of(section).len() as u32 * (section.columns.len() as u32 * BAR + GAP) + BELOW_PANEL
}

fn is_ours(name: &str) -> bool {
    name.starts_with("relativist")
}

type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;

fn draw_picture(path: &Path, comparisons: &[&Comparison<Setting>], caption: &str) -> Drawn {
    let sections = Section::of(comparisons.iter().copied());
    let mut labels: Vec<&String> = Vec::new();
    for (label, _) in sections.iter().flat_map(|section| &section.columns) {
        if !labels.contains(&label) {
            labels.push(label);
        }
    }
    let (explanation, caption) = (wrapped(EXPLANATION), wrapped(caption));
    let header = 12 + LINE * (explanation.len() + labels.len()) as u32 + 14;
    let below = LINE * caption.len() as u32 + 16;
    let root = SVGBackend::new(path, (WIDTH, header + sections.iter().map(height).sum::<u32>() + below));
    let root = root.into_drawing_area();
    root.fill(&WHITE)?;
    draw_lines(&root, 12, &explanation)?;
    for (line, label) in labels.iter().enumerate() {
        let top = (18 + LINE * (explanation.len() + line) as u32) as i32;
        for (left, colours, name) in [(12, OURS, "relativist"), (12 + WIDTH as i32 / 2, COMPETITORS, "others")] {
            root.draw(&Rectangle::new([(left, top), (left + 12, top + 10)], shade(colours, line).filled()))?;
            let font = ("sans-serif", 12).into_font().color(&INK);
            root.draw(&Text::new(format!("{name}, {label}"), (left + 18, top - 1), font))?;
        }
    }
    let mut top = header;
    for section in &sections {
        let area = root.clone().shrink((0, top), (WIDTH, height(section)));
        draw_panel(&area, section, &labels)?;
        top += height(section);
    }
    draw_lines(&root, top + 8, &caption)?;
    root.present()?;
    Ok(())
}

fn shade(colours: [RGBColor; 4], place: usize) -> RGBColor {
    colours[place.min(colours.len() - 1)]
}

fn draw_lines(root: &Area<'_>, top: u32, lines: &[String]) -> Drawn {
    for (number, line) in lines.iter().enumerate() {
        let at = (12, (top + LINE * number as u32) as i32);
        root.draw(&Text::new(line.as_str(), at, ("sans-serif", 12).into_font().color(&INK)))?;
    }
    Ok(())
}

fn draw_panel(area: &Area<'_>, section: &Section<'_>, labels: &[&String]) -> Drawn {
    let bold = ("sans-serif", 14).into_font().style(FontStyle::Bold).color(&INK);
    area.draw(&Text::new(section.title.as_str(), (12, 10), bold))?;
    let (limit, names) = (limit(section), names_of(section));
    let row_height = section.columns.len() as f64 * f64::from(BAR) + f64::from(GAP);
    let mut chart = ChartBuilder::on(area)
        .margin_top(ABOVE_PANEL)
        .margin_right(LABELS_WIDTH)
        .x_label_area_size(BELOW_PANEL - 12)
        .margin_bottom(12)
        .y_label_area_size(NAMES_WIDTH)
        .build_cartesian_2d(0.0..limit, names.len() as f64 * row_height..0.0)?;
    chart
        .configure_mesh()
        .disable_y_mesh()
        .disable_y_axis()
        .x_labels(6)
        .x_label_formatter(&|value| if limit >= 10.0 { format!("{value:.0}") } else { format!("{value:.1}") })
        .x_desc(if section.unit == "ns" { "ns per operation and thread" } else { section.unit })
        .axis_desc_style(("sans-serif", 12).into_font().color(&INK))
        .label_style(("sans-serif", 11).into_font().color(&INK))
        .light_line_style(TRANSPARENT)
        .bold_line_style(GRID)
        .axis_style(INK)
        .draw()?;
    let (left, base) = area.get_base_pixel();
    for (row, name) in names.iter().enumerate() {
        let (x, y) = chart.backend_coord(&(0.0, (row as f64 + 0.5) * row_height));
        let style = if is_ours(name) { FontStyle::Bold } else { FontStyle::Normal };
        let font = ("sans-serif", 12).into_font().style(style).color(&INK);
        let style = font.pos(Pos::new(HPos::Right, VPos::Center));
        area.draw(&Text::new(*name, (x - left - 6, y - base), style))?;
    }
    let small = ("sans-serif", 10).into_font().color(&INK).pos(Pos::new(HPos::Left, VPos::Center));
    for (row, column, result) in bars(section) {
        let top = row as f64 * row_height + f64::from(GAP) / 2.0 + column as f64 * f64::from(BAR);
        let (middle, bottom) = (top + f64::from(BAR) / 2.0, top + f64::from(BAR) - 1.0);
        let value = &result.value;
        let place = labels.iter().position(|label| **label == section.columns[column].0).unwrap_or(column);
        let colour = shade(if is_ours(result.name) { OURS } else { COMPETITORS }, place).filled();
        chart.draw_series([Rectangle::new([(0.0, top), (value.median.min(limit), bottom)], colour)])?;
        let (from, to) = (value.lower_quartile.min(limit), value.upper_quartile.min(limit));
        chart.draw_series([PathElement::new([(from, middle), (to, middle)], INK)])?;
        let (x, y) = chart.backend_coord(&(value.median.max(to).min(limit), middle));
        area.draw(&Text::new(figures(result, limit), (x - left + 5, y - base), small.clone()))?;
    }
    Ok(())
}

/// Formats what is written next to a bar. An arrow marks one that was cut.
fn figures(result: &CandidateResult, limit: f64) -> String {
    let arrow = if result.value.median > limit { "\u{2192} " } else { "" };
    let ratio = significant(result.ratio.median);
    let ratio = if result.against == result.name { String::new() } else { format!(" ({ratio}x)") };
    format!("{arrow}{}{ratio}", significant(result.value.median))
}

/// Breaks text into lines that fit the picture, at spaces if possible.
fn wrapped(text: &str) -> Vec<String> {
    // Characters of the small print are at most 7 pixels wide on average.
    let width = (WIDTH / 7) as usize;
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
    use crate::harness::workers::Cpus;
    use crate::tables::entries::Kind;
    use indicatif::ProgressBar;

    fn compared(threads: u16, detail: &str, values: &[(&'static str, f64)]) -> Comparison<Setting> {
        let setting = Setting::new("maps", "hit", "Lookups that hit", Some(Kind::U64), 1 << 20);
        let setting = Setting { threads, ..setting.with_detail(detail) };
        let names: Vec<_> = values.iter().map(|(name, _)| *name).collect();
        let one = |candidate: usize, _| Ok(Measured::single(values[candidate].1));
        compare(setting, &names, 3, &ProgressBar::hidden(), one).unwrap()
    }

    #[test]
    fn a_picture_names_everything() {
        let folder = tempfile::tempdir().unwrap();
        let values = [("relativist", 10.0), ("dashmap", 25.0), ("papaya", 900.0)];
        let comparisons = [compared(1, "", &values), compared(2, "", &values), compared(1, "longest", &values)];
        draw(folder.path(), &comparisons, "relativist-bench compare --workload hit\nA machine").unwrap();
        let picture = fs::read_to_string(folder.path().join("maps-hit-u64.svg")).unwrap();
        for expected in [
            "relativist, 1 thread",
            "others, 2 threads",
            "Lookups that hit, u64 to u64, 2^20 entries",
            "2^20 entries, longest",
            "ns per operation and thread",
            "25.0 (2.50x)",
            "\u{2192} 900 (90.0x)",
            "A machine",
        ] {
            assert!(picture.contains(expected), "{expected}");
        }
    }

    fn write(file: &Path, command: &str, layout: u32) {
        let comparisons = vec![compared(1, "", &[("relativist", 10.0), ("dashmap", 25.0)])];
        let (machine, results) = (Machine::here(&Cpus::allowed()), Results { comparisons });
        let document =
            serde_json::json!({ "layout": layout, "command": command, "machine": machine, "results": results });
        fs::write(file, document.to_string()).unwrap();
    }

    #[test]
    fn results_are_drawn_again() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("hit.json");
        write(&file, "compare", LAYOUT);
        run(&Args { files: vec![file.clone()], out: folder.path().to_owned() }).unwrap();
        let processor = read(&file).unwrap().machine.processor();
        let picture = fs::read_to_string(folder.path().join("maps-hit-u64.svg")).unwrap();
        assert!(picture.contains(&format!("{processor}, 1 thread")) && picture.contains("25.0 (2.50x)"));
    }

    #[test]
    fn other_files_are_refused() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("other.json");
        write(&file, "resize", LAYOUT);
        assert!(read(&file).is_err());
        write(&file, "compare", LAYOUT - 1);
        assert!(read(&file).is_err());
    }

    #[test]
    fn lines_are_broken_at_spaces() {
        let (one, other) = ("x".repeat(60), "y".repeat(60));
        assert_eq!(wrapped(&format!("{one} {other}\nthree")), [one, other, "three".into()]);
        assert_eq!(wrapped(&"z".repeat(200)), ["z".repeat(200)]);
    }
}
