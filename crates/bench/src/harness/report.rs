//! The output of a run: tables on stdout, warnings on stderr, and a JSON file with every sample.

use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::Context;
use comfy_table::{CellAlignment, Table, presets};
use serde::Serialize;

use crate::harness::machine::{Machine, Versions};
use crate::harness::stats::Summary;
use crate::harness::workers::Cpus;
use relativist_check::interruption::program;

/// Version of the JSON layout; incremented when a field is removed or changes its meaning.
pub const LAYOUT: u32 = 5;

/// The report of one run of a subcommand.
#[derive(Debug)]
pub struct Report {
    command: &'static str,
    started: u64,
    machine: Machine,
    warnings: Vec<String>,
    json: Option<Json>,
}

#[derive(Debug)]
enum Json {
    Stdout,
    File(PathBuf, File),
}

#[derive(Serialize)]
struct Document<'a, P, R> {
    layout: u32,
    command: &'a str,
    command_line: Vec<String>,
    /// Seconds since 1970-01-01 UTC.
    started: u64,
    versions: Versions,
    machine: &'a Machine,
    warnings: &'a [String],
    parameters: &'a P,
    results: &'a R,
}

impl Report {
    /// Begins a report on `command`, which will use up to `threads` threads.
    ///
    /// Opens the JSON file now, so that a wrong path is reported before the measurement. Its
    /// previous content is kept until the new report is written. `-` is stdout.
    pub fn begin(command: &'static str, json: Option<&Path>, cpus: &Cpus, threads: usize) -> anyhow::Result<Self> {
        let create = |path: &Path| -> anyhow::Result<_> {
            if path == Path::new("-") {
                return Ok(Json::Stdout);
            }
            let file = File::options().write(true).create(true).truncate(false).open(path);
            Ok(Json::File(path.to_owned(), file.with_context(|| format!("cannot create {}", path.display()))?))
        };
        let json = json.map(create).transpose()?;
        let started = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
        let mut report = Self { command, started, machine: Machine::here(cpus), warnings: Vec::new(), json };
        report.warn_of_circumstances(cpus, threads);
        Ok(report)
    }

    /// Returns the caption of pictures: the command, the versions and the machine.
    pub fn caption(&self) -> String {
        let command: Vec<String> = std::env::args().skip(1).collect();
        format!("{} {}\n{}\n{}", program(), command.join(" "), Versions::here(), self.machine)
    }

    fn warn_of_circumstances(&mut self, cpus: &Cpus, threads: usize) {
        if cfg!(debug_assertions) {
            self.warn("this is a debug build; build with --release to measure".into());
        }
        if let Some(load) = self.machine.disturbance() {
            self.warn(format!("the machine is busy (load average {load:.2}); stop other work and repeat"));
        }
        if threads > cpus.count() {
            self.warn(format!(
                "{threads} threads on {} CPUs: they are not pinned and share CPUs, so the results depend on the scheduler \
                 as much as the candidates",
                cpus.count()
            ));
        }
    }

    /// Writes a warning to stderr, and later to the JSON file.
    pub fn warn(&mut self, warning: String) {
        eprintln!("{}: warning: {warning}", program());
        self.warnings.push(warning);
    }

    /// Warns if threads were preempted: if the median of `shares`, the shares of time on a CPU, is
    /// below 95 %.
    pub fn warn_of_preemption(&mut self, shares: impl Iterator<Item = f64>) {
        if let Some(median) = Summary::of(shares).map(|summary| summary.median).filter(|&median| median < 0.95) {
            self.warn(format!(
                "measuring threads were on a CPU for only {:.0} % of the time, and the rest is in the figures, too: stop \
                 other work, or use fewer threads",
                median * 100.0
            ));
        }
    }

    pub fn warnings(&self) -> &[String] {
        &self.warnings
    }

    /// Writes the JSON document, and prints `text` to stdout, or to stderr if the document goes to
    /// stdout.
    pub fn finish(mut self, parameters: &impl Serialize, results: &impl Serialize, text: &str) -> anyhow::Result<()> {
        let print = || std::io::stdout().write_all(text.as_bytes()).context("cannot write to stdout");
        match self.json.take() {
            None => print(),
            Some(Json::Stdout) => {
                eprint!("{text}");
                self.write(std::io::stdout(), parameters, results).context("cannot write to stdout")
            }
            Some(Json::File(path, file)) => {
                // This fails for a terminal, which needs no truncation.
                let _ = file.set_len(0);
                let written = self.write(file, parameters, results);
                written.with_context(|| format!("cannot write {}", path.display())).and_then(|()| print())
            }
        }
    }

    fn write(&self, to: impl Write, parameters: &impl Serialize, results: &impl Serialize) -> anyhow::Result<()> {
        let document = Document {
            layout: LAYOUT,
            command: self.command,
            command_line: std::env::args().collect(),
            started: self.started,
            versions: Versions::here(),
            machine: &self.machine,
            warnings: &self.warnings,
            parameters,
            results,
        };
        let mut writer = BufWriter::new(to);
        serde_json::to_writer_pretty(&mut writer, &document)?;
        writeln!(writer)?;
        Ok(writer.flush()?)
    }
}

/// Formats a Markdown table: the first column is aligned to the left, the others to the right.
pub fn table(header: &[&str], rows: impl IntoIterator<Item = Vec<String>>) -> String {
    let mut table = Table::new();
    table.load_style(presets::ASCII_MARKDOWN).set_header(header).add_rows(rows);
    for column in table.column_iter_mut().skip(1) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    format!("{table}\n")
}

/// Formats median, minimum, maximum and spread as cells of a table.
pub fn cells(summary: &Summary, number: impl Fn(f64) -> String) -> Vec<String> {
    let spread = format!("{:.1} %", summary.spread() * 100.0);
    vec![number(summary.median), number(summary.min), number(summary.max), spread]
}

/// Formats a number with three or four significant digits.
pub fn significant(number: f64) -> String {
    match number.abs() {
        n if n < 10.0 => format!("{number:.2}"),
        n if n < 100.0 => format!("{number:.1}"),
        _ => format!("{number:.0}"),
    }
}

/// Formats a number of threads: `1 thread`, `2 threads`.
pub fn threads(number: u16) -> String {
    format!("{number} thread{}", if number == 1 { "" } else { "s" })
}

/// Formats a count of entries or buckets: as `2^16` if it is a power of two, otherwise in digits.
pub fn count(number: u64) -> String {
    if number >= 1024 && number.is_power_of_two() { format!("2^{}", number.ilog2()) } else { number.to_string() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_report_that_is_not_finished_leaves_what_was_there() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("report.json");
        let begin = || Report::begin("test", Some(&path), &Cpus::allowed(), 1).unwrap();
        begin().finish(&"x".repeat(1000), &"first", "").unwrap();
        drop(begin());
        assert!(std::fs::read_to_string(&path).unwrap().contains("\"first\""));
        begin().finish(&"", &"second", "").unwrap();
        let document: serde_json::Value = serde_json::from_reader(File::open(&path).unwrap()).unwrap();
        assert_eq!(document["results"], "second");
        assert!(Report::begin("test", Some(folder.path()), &Cpus::allowed(), 1).is_err());
    }

    #[test]
    fn tables_are_markdown() {
        let text = table(&["table", "ns"], [vec!["a".into(), "1.00".into()], vec!["bcd".into(), "22.0".into()]]);
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines.len(), 4);
        assert!(lines[1].starts_with("|--"), "{text}");
        assert_eq!(lines[2].replace(' ', ""), "|a|1.00|");
    }

    #[test]
    fn numbers_keep_three_digits() {
        assert_eq!(["6.54", "65.4", "654"], [6.543, 65.43, 654.3].map(significant).each_ref().map(String::as_str));
    }

    #[test]
    fn counts_show_powers_of_two() {
        assert_eq!(["256", "2^16", "100000"], [256, 65536, 100_000].map(count).each_ref().map(String::as_str));
    }
}
