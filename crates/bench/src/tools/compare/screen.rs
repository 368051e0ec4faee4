//! Formats comparisons as tables that fit a screen of 120 columns, with a list of the targets at
//! the end.

use std::fmt::Write;

use anyhow::Result;

use crate::harness::comparison::{CandidateResult, Comparison};
use crate::harness::report::{significant, table};
use crate::tools::compare::setting::Setting;

/// Comparisons with the same title: the columns of one table, or one panel of a plot.
pub struct Section<'c> {
    pub title: String,
    comparisons: Vec<&'c Comparison<Setting>>,
}

impl<'c> Section<'c> {
    /// Groups comparisons into sections, in the order of their first occurrence.
    pub fn of(comparisons: impl IntoIterator<Item = &'c Comparison<Setting>>) -> Vec<Self> {
        let mut sections: Vec<Self> = Vec::new();
        for comparison in comparisons {
            let title = comparison.setting.title();
            match sections.iter_mut().find(|section| section.title == title) {
                Some(section) => section.comparisons.push(comparison),
                None => sections.push(Self { title, comparisons: vec![comparison] }),
            }
        }
        sections
    }

    pub fn labels(&self) -> Vec<String> {
        let mut labels = Vec::new();
        for label in self.comparisons.iter().map(|comparison| comparison.setting.label()) {
            if !labels.contains(&label) {
                labels.push(label);
            }
        }
        labels
    }

    /// Returns the unit of all values.
    pub fn unit(&self) -> &'static str {
        self.comparisons.first().map_or("", |comparison| comparison.unit)
    }

    pub fn names(&self) -> Vec<&'static str> {
        let mut names = Vec::new();
        for result in self.comparisons.iter().flat_map(|comparison| &comparison.candidates) {
            if !names.contains(&result.name) {
                names.push(result.name);
            }
        }
        names
    }

    /// Returns the result for a cell. For a candidate that takes part in several groups, it is the
    /// result in the first group.
    pub fn result(&self, name: &str, label: &str) -> Option<&'c CandidateResult> {
        let labelled = self.comparisons.iter().filter(|comparison| comparison.setting.label() == label);
        labelled.flat_map(|comparison| &comparison.candidates).find(|result| result.name == name)
    }
}

pub fn describe(rounds: u32, comparisons: &[Comparison<Setting>]) -> Result<String> {
    let mut text = String::new();
    writeln!(
        text,
        "Median (quartiles) of {rounds} rounds, in nanoseconds per operation and thread unless noted otherwise;"
    )?;
    writeln!(text, "then the ratio to ours in the same rounds, and whether the target was met, if there is one.")?;
    let sections = Section::of(comparisons);
    for section in &sections {
        let unit = if section.unit() == "ns" { String::new() } else { format!(" [{}]", section.unit()) };
        writeln!(text, "\n{}{unit}\n", section.title)?;
        for (part, labels) in section.labels().chunks(2).enumerate() {
            let header: Vec<&str> = ["table"].into_iter().chain(labels.iter().map(String::as_str)).collect();
            let rows = section.names().into_iter().map(|name| {
                let cells = labels.iter().map(|label| section.result(name, label).map_or_else(String::new, cell));
                [name.to_owned()].into_iter().chain(cells).collect()
            });
            let gap = if part == 0 { "" } else { "\n" };
            write!(text, "{gap}{}", table(&header, rows))?;
        }
    }
    write!(text, "{}", summary(&sections)?)?;
    Ok(text)
}

fn cell(result: &CandidateResult) -> String {
    let value = &result.value;
    let numbers = [value.median, value.lower_quartile, value.upper_quartile].map(significant);
    let mut cell = format!("{} ({}-{})", numbers[0], numbers[1], numbers[2]);
    if result.against != result.name {
        let _ = write!(cell, " {}x", significant(result.ratio.median));
    }
    if let Some(verdict) = &result.verdict {
        let _ = write!(cell, " {}: {}", if verdict.met { "met" } else { "MISSED" }, verdict.wanted);
    }
    cell
}

/// Formats the number of targets that were met, and a list of those that were missed.
fn summary(sections: &[Section<'_>]) -> Result<String> {
    let (mut met, mut missed) = (0, Vec::new());
    for section in sections {
        for label in section.labels() {
            for name in section.names() {
                let Some(result) = section.result(name, &label) else { continue };
                let Some(verdict) = &result.verdict else { continue };
                if verdict.met {
                    met += 1;
                    continue;
                }
                let found = if result.against == name {
                    significant(result.value.median)
                } else {
                    format!("{}x", significant(result.ratio.median))
                };
                missed.push(format!("- {}, {label}: {name} {found}, wanted {}", section.title, verdict.wanted));
            }
        }
    }
    let mut text = String::new();
    if met + missed.len() > 0 {
        writeln!(text, "\nTargets met: {met} of {}.", met + missed.len())?;
    }
    if !missed.is_empty() {
        writeln!(text, "Missed:\n{}", missed.join("\n"))?;
    }
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::harness::comparison::{Measured, compare};
    use crate::tables::entries::Kind;
    use crate::tools::compare::setting::Workload;
    use crate::tools::compare::targets::judge;
    use indicatif::ProgressBar;

    fn comparison(threads: u16, group: usize, values: &[(&'static str, f64)]) -> Comparison<Setting> {
        let setting = Setting { threads, group, ..Setting::new(Workload::Miss, Kind::U64, 1 << 20) };
        let names: Vec<_> = values.iter().map(|(name, _)| *name).collect();
        let one = |candidate: usize, round| Ok(Measured::single(values[candidate].1 + f64::from(round as u8)));
        let mut comparison = compare(setting, &names, 5, &ProgressBar::hidden(), one).unwrap();
        judge(&mut comparison);
        comparison
    }

    #[test]
    fn tables_fit_the_screen() {
        let values = [
            ("relativist", 100.0),
            ("relativist, handle", 200.0),
            ("scc::HashIndex, handle", 300.0),
            ("boost::concurrent_flat_map", 400.0),
        ];
        let comparisons = [1, 2, 16].map(|threads| comparison(threads, 0, &values));
        let text = describe(5, &comparisons).unwrap();
        assert!(text.contains(" 102 (101-103) |"), "{text}");
        assert!(text.contains("302 (301-303) 1.50x met: > 1"), "{text}");
        assert!(text.contains("16 threads"), "{text}");
        assert!(text.lines().filter(|line| line.starts_with('|')).all(|line| line.len() <= 120), "{text}");
        assert!(text.contains("Targets met: 4 of 4."), "{text}");
    }

    #[test]
    fn groups_are_one_table() {
        let comparisons = [
            comparison(1, 0, &[("relativist", 1.0), ("papaya", 2.0)]),
            comparison(1, 1, &[("relativist", 1.0), ("dashmap", 2.0)]),
        ];
        let sections = Section::of(&comparisons);
        assert_eq!(sections.len(), 1);
        assert_eq!(sections[0].names(), ["relativist", "papaya", "dashmap"]);
        assert_eq!(sections[0].labels(), ["1 thread"]);
        assert!(sections[0].result("dashmap", "1 thread").is_some());
        assert!(sections[0].result("dashmap", "2 threads").is_none());
    }

    #[test]
    fn what_was_missed_is_said() {
        let text = describe(5, &[comparison(1, 0, &[("relativist", 100.0), ("dashmap", 50.0)])]).unwrap();
        assert!(text.contains("0.51x MISSED: > 1"), "{text}");
        assert!(text.contains("Targets met: 0 of 1.\nMissed:\n- Lookups that miss"), "{text}");
    }
}
