//! Contests as tables that fit a screen of 120 columns, and the targets in a list at the end.

use std::fmt::Write;

use anyhow::Result;

use crate::harness::comparison::{Contest, Standing};
use crate::harness::report::{significant, table};
use crate::tools::compare::setting::Setting;

/// Contests with a title in common: the columns of one table, or the panel of one plot.
pub struct Section<'c> {
    /// What they have in common.
    pub title: String,
    contests: Vec<&'c Contest<Setting>>,
}

impl<'c> Section<'c> {
    /// Divides contests into sections, in the order in which they come.
    #[must_use]
    pub fn of(contests: impl IntoIterator<Item = &'c Contest<Setting>>) -> Vec<Self> {
        let mut sections: Vec<Self> = Vec::new();
        for contest in contests {
            let title = contest.setting.title();
            match sections.iter_mut().find(|section| section.title == title) {
                Some(section) => section.contests.push(contest),
                None => sections.push(Self { title, contests: vec![contest] }),
            }
        }
        sections
    }

    /// The columns, each once.
    #[must_use]
    pub fn labels(&self) -> Vec<String> {
        let mut labels = Vec::new();
        for label in self.contests.iter().map(|contest| contest.setting.label()) {
            if !labels.contains(&label) {
                labels.push(label);
            }
        }
        labels
    }

    /// What all values are measured in.
    #[must_use]
    pub fn unit(&self) -> &'static str {
        self.contests.first().map_or("", |contest| contest.unit)
    }

    /// The rows: contenders, each once.
    #[must_use]
    pub fn names(&self) -> Vec<&'static str> {
        let mut names = Vec::new();
        for standing in self.contests.iter().flat_map(|contest| &contest.contenders) {
            if !names.contains(&standing.name) {
                names.push(standing.name);
            }
        }
        names
    }

    /// What is in a cell. Contenders that take part in several groups are shown as they were in the first.
    #[must_use]
    pub fn standing(&self, name: &str, label: &str) -> Option<&'c Standing> {
        let labelled = self.contests.iter().filter(|contest| contest.setting.label() == label);
        labelled.flat_map(|contest| &contest.contenders).find(|standing| standing.name == name)
    }
}

/// Everything that is printed.
///
/// # Errors
/// Never: memory can be written to.
pub fn describe(rounds: u32, contests: &[Contest<Setting>]) -> Result<String> {
    let mut text = String::new();
    writeln!(
        text,
        "Median (quartiles) of {rounds} rounds, nanoseconds per operation and thread unless it says otherwise;"
    )?;
    writeln!(
        text,
        "then how many times as much that is as ours, in the same rounds, and the target, where there is one."
    )?;
    let sections = Section::of(contests);
    for section in &sections {
        let unit = if section.unit() == "ns" { String::new() } else { format!(" [{}]", section.unit()) };
        writeln!(text, "\n{}{unit}\n", section.title)?;
        for (part, labels) in section.labels().chunks(2).enumerate() {
            let header: Vec<&str> = ["table"].into_iter().chain(labels.iter().map(String::as_str)).collect();
            let rows = section.names().into_iter().map(|name| {
                let cells = labels.iter().map(|label| section.standing(name, label).map_or_else(String::new, cell));
                [name.to_owned()].into_iter().chain(cells).collect()
            });
            let gap = if part == 0 { "" } else { "\n" };
            write!(text, "{gap}{}", table(&header, rows))?;
        }
    }
    write!(text, "{}", summary(&sections)?)?;
    Ok(text)
}

fn cell(standing: &Standing) -> String {
    let value = &standing.value;
    let numbers = [value.median, value.lower_quartile, value.upper_quartile].map(significant);
    let mut cell = format!("{} ({}-{})", numbers[0], numbers[1], numbers[2]);
    if standing.against != standing.name {
        let _ = write!(cell, " {}x", significant(standing.ratio.median));
    }
    if let Some(verdict) = &standing.verdict {
        let _ = write!(cell, " {}: {}", if verdict.met { "met" } else { "MISSED" }, verdict.wanted);
    }
    cell
}

/// How many targets were met, and each that was not.
fn summary(sections: &[Section<'_>]) -> Result<String> {
    let (mut met, mut missed) = (0, Vec::new());
    for section in sections {
        for label in section.labels() {
            for name in section.names() {
                let Some(standing) = section.standing(name, &label) else { continue };
                let Some(verdict) = &standing.verdict else { continue };
                if verdict.met {
                    met += 1;
                    continue;
                }
                let found = if standing.against == name {
                    significant(standing.value.median)
                } else {
                    format!("{}x", significant(standing.ratio.median))
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
    use crate::harness::comparison::{Measured, hold};
    use crate::tables::entries::Kind;
    use crate::tools::compare::setting::Work;
    use crate::tools::compare::targets::judge;
    use indicatif::ProgressBar;

    fn contest(threads: u16, group: usize, values: &[(&'static str, f64)]) -> Contest<Setting> {
        let setting = Setting { threads, group, ..Setting::new(Work::Miss, Kind::U64, 1 << 20) };
        let names: Vec<_> = values.iter().map(|(name, _)| *name).collect();
        let one = |contender: usize, round| Ok(Measured::single(values[contender].1 + f64::from(round as u8)));
        let mut contest = hold(setting, &names, 5, &ProgressBar::hidden(), one).unwrap();
        judge(&mut contest);
        contest
    }

    #[test]
    fn tables_fit_the_screen() {
        let values = [
            ("relativist", 100.0),
            ("relativist, handle", 200.0),
            ("scc::HashIndex, handle", 300.0),
            ("tbb::concurrent_hash_map", 400.0),
        ];
        let contests = [1, 2, 16].map(|threads| contest(threads, 0, &values));
        let text = describe(5, &contests).unwrap();
        assert!(text.contains(" 102 (101-103) |"), "{text}");
        assert!(text.contains("302 (301-303) 1.50x met: > 1"), "{text}");
        assert!(text.contains("16 threads"), "{text}");
        assert!(text.lines().filter(|line| line.starts_with('|')).all(|line| line.len() <= 120), "{text}");
        assert!(text.contains("Targets met: 4 of 4."), "{text}");
    }

    #[test]
    fn groups_are_one_table() {
        let contests = [
            contest(1, 0, &[("relativist", 1.0), ("papaya", 2.0)]),
            contest(1, 1, &[("relativist", 1.0), ("dashmap", 2.0)]),
        ];
        let sections = Section::of(&contests);
        assert_eq!(sections.len(), 1);
        assert_eq!(sections[0].names(), ["relativist", "papaya", "dashmap"]);
        assert_eq!(sections[0].labels(), ["1 thread"]);
        assert!(sections[0].standing("dashmap", "1 thread").is_some());
        assert!(sections[0].standing("dashmap", "2 threads").is_none());
    }

    #[test]
    fn what_was_missed_is_said() {
        let text = describe(5, &[contest(1, 0, &[("relativist", 100.0), ("dashmap", 50.0)])]).unwrap();
        assert!(text.contains("0.51x MISSED: > 1"), "{text}");
        assert!(text.contains("Targets met: 0 of 1.\nMissed:\n- Lookups that miss"), "{text}");
    }
}
