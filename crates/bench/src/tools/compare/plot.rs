//! Draws comparisons: an SVG for each subject, workload and kind of entries. It has a panel for
//! each printed table, and the panel has a bar for each candidate and number of threads.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, ensure};
use maud::{Markup, html};
use serde::Deserialize;

use super::job::Setting;
use super::{Results, Section};
use crate::harness::chart::prepare;
use crate::harness::comparison::{CandidateResult, Comparison, names};
use crate::harness::machine::Machine;
use crate::harness::options::spell;
use crate::harness::report::{LAYOUT, significant};

const WIDTH: usize = 720;
const BAR: usize = 11;
const GAP: usize = 7;
/// The columns of a panel: names, bars, and figures.
const NAMES: usize = 200;
const BARS: f64 = 400.0;
/// The heights of a line of text and of the title of a panel.
const LINE: usize = 16;
const TITLE: usize = 44;

/// Bars that are more than `CUT` times as long as our longest one are cut, so that the others stay
/// readable.
const CUT: f64 = 5.0;

const EXPLANATION: &str = "Shorter is better. Bars: median over rounds; lines: quartiles; figures: median, and how many \
                           times ours it is (of a handle: our handle).";

/// Colours of our bars and of others, from few to many threads, of one processor after the other.
const OURS: [&str; 4] = ["#96c8f0", "#5498d8", "#1e68ac", "#0c3a6a"];
const OTHERS: [&str; 4] = ["#d4d7dc", "#acb2bb", "#828995", "#565d6a"];

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
    let mut pictures: Vec<(PathBuf, Vec<&Comparison<Setting>>)> = Vec::new();
    for comparison in comparisons {
        let path = folder.join(file_name(&comparison.setting));
        match pictures.iter_mut().find(|(other, _)| *other == path) {
            Some((_, comparisons)) => comparisons.push(comparison),
            None => pictures.push((path, vec![comparison])),
        }
    }
    for (path, comparisons) in pictures {
        let text = picture(&comparisons, caption).into_string();
        fs::write(&path, text).with_context(|| format!("cannot write {}", path.display()))?;
    }
    Ok(())
}

/// Returns the name of a picture, such as `maps-hit-u64.svg`.
fn file_name(setting: &Setting) -> String {
    let kind = setting.kind.map_or_else(String::new, |kind| format!("-{}", spell(&kind)));
    format!("{}-{}{kind}.svg", setting.subject, setting.workload)
}

fn is_ours(name: &str) -> bool {
    name.starts_with("relativist")
}

fn picture(comparisons: &[&Comparison<Setting>], caption: &str) -> Markup {
    let sections = Section::of(comparisons.iter().copied());
    let mut labels: Vec<&str> = Vec::new();
    for (label, _) in sections.iter().flat_map(|section| &section.columns) {
        if !labels.contains(&label.as_str()) {
            labels.push(label);
        }
    }
    let (explanation, caption) = (wrapped(EXPLANATION), wrapped(caption));
    let mut panels = Vec::new();
    let mut y = LINE * (explanation.len() + labels.len() + 1);
    for section in &sections {
        let (height, panel) = panel(section, &labels);
        panels.push(html! { g transform={ "translate(0 " (y) ")" } { (panel) } });
        y += height;
    }
    let legend = |(line, label): (usize, &&str)| {
        let y = LINE * (explanation.len() + line) + 6;
        html! {
            rect x="12" y=(y) width="12" height="10" fill=(shade(OURS, line)) {}
            text x="30" y=(y + 9) { "relativist, " (label) }
            rect x=(WIDTH / 2) y=(y) width="12" height="10" fill=(shade(OTHERS, line)) {}
            text x=(WIDTH / 2 + 18) y=(y + 9) { "others, " (label) }
        }
    };
    html! {
        svg xmlns="http://www.w3.org/2000/svg" viewBox={ "0 0 " (WIDTH) " " (y + LINE * (caption.len() + 2)) }
            font-family="sans-serif" font-size="12" fill="#282c34" {
            rect width="100%" height="100%" fill="white" {}
            (lines(&explanation, 0))
            @for entry in labels.iter().enumerate().map(legend) { (entry) }
            @for panel in panels { (panel) }
            (lines(&caption, y + LINE))
        }
    }
}

fn lines(lines: &[String], y: usize) -> Markup {
    html! { @for (number, line) in (1..).zip(lines) { text x="12" y=(y + number * LINE) { (line) } } }
}

fn shade(colours: [&'static str; 4], place: usize) -> &'static str {
    colours[place.min(colours.len() - 1)]
}

/// Draws a panel. Returns its height, too.
fn panel(section: &Section<'_>, labels: &[&str]) -> (usize, Markup) {
    let names = names(section.columns.iter().map(|(_, comparison)| *comparison));
    let results = |name| section.columns.iter().filter_map(move |(label, column)| Some((label, column.result(name)?)));
    let end = |ours: bool| {
        let bars = names.iter().filter(|name| !ours || is_ours(name)).flat_map(|name| results(name));
        bars.map(|(_, result)| result.value.upper_quartile).fold(0.0, f64::max)
    };
    let limit = if end(true) > 0.0 { end(false).min(CUT * end(true)) } else { end(false) };
    let width = |value: f64| if limit > 0.0 { value.min(limit) / limit * BARS } else { 0.0 };
    let row_height = section.columns.len() * BAR + GAP;
    let bar = |(label, result): (&String, &CandidateResult)| {
        let place = labels.iter().position(|known| known == label).unwrap_or(0);
        let value = &result.value;
        let [median, from, to] = [value.median, value.lower_quartile, value.upper_quartile].map(width);
        html! {
            rect width=(median) height=(BAR - 1) fill=(shade(if is_ours(result.name) { OURS } else { OTHERS }, place)) {}
            line x1=(from) x2=(to) y1=(BAR / 2) y2=(BAR / 2) stroke="#282c34" {}
            text x=(median.max(to) + 4.0) y=(BAR - 2) font-size="10" { (figures(result, limit)) }
        }
    };
    let unit = if section.unit == "ns" { "ns per operation and thread" } else { section.unit };
    let markup = html! {
        text x="12" y="20" font-size="14" font-weight="bold" { (section.title) }
        text x=(NAMES) y="36" { (unit) }
        @for (row, name) in names.iter().enumerate() {
            g transform={ "translate(" (NAMES) " " (TITLE + row * row_height) ")" } {
                text x="-6" y=((row_height - GAP) / 2 + 4) text-anchor="end"
                    font-weight=(if is_ours(name) { "bold" } else { "normal" }) { (name) }
                @for (column, content) in results(name).map(bar).enumerate() {
                    g transform={ "translate(0 " (column * BAR) ")" } { (content) }
                }
            }
        }
    };
    (TITLE + names.len() * row_height + GAP, markup)
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
    let width = WIDTH / 7;
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
