//! The measurements, their order, and the figures that show them.

use serde::{Deserialize, Serialize};

use super::Parameters;
use super::draw::Frame;
use crate::lookups::candidates::{Name, Sizing};
use crate::lookups::measure::{Case, Keys, Sample, Setting};
use relativist_bench::harness::chart::Line;
use relativist_bench::harness::options::HashFunction;
use relativist_bench::harness::rounds::order;
use relativist_bench::harness::stats::Summary;

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Step {
    pub table: Name,
    /// The number of the run.
    pub run: usize,
    pub readers: usize,
    pub case: Case,
    /// The order of keys, if the step measures resizes; `None` for the steps of figures.
    pub keys: Option<Keys>,
}

/// All measurements in order. Each run measures all candidates in turns, once for each number of
/// readers.
pub struct Plan {
    pub steps: Vec<Step>,
    setting: Setting,
}

impl Plan {
    pub fn of(parameters: &Parameters) -> Self {
        let (one, other) = parameters.setting.shifts;
        let continuous = Case::Continuous { shifts: parameters.setting.shifts };
        let mut candidates = Vec::new();
        for &table in &parameters.tables {
            let cases = match table.sizing() {
                Sizing::AtAnyTime => vec![Case::Fixed { shift: one }, Case::Fixed { shift: other }, continuous],
                Sizing::WhenMade => vec![Case::Fixed { shift: one }, Case::Fixed { shift: other }],
                Sizing::Own => vec![Case::Own],
            };
            candidates.extend(cases.into_iter().map(|case| (table, case, None)));
        }
        let resizable = || parameters.tables.iter().filter(|table| table.sizing() == Sizing::AtAnyTime);
        let resizes: Vec<_> = [Keys::Sequential, Keys::Shuffled]
            .into_iter()
            .flat_map(|keys| resizable().map(move |&table| (table, continuous, Some(keys))))
            .collect();
        let mut steps = Vec::new();
        for run in 0..parameters.runs {
            let mut turn = |readers, candidates: &[(Name, Case, Option<Keys>)]| {
                let step = |index: usize| {
                    let (table, case, keys) = candidates[index];
                    Step { table, run, readers, case, keys }
                };
                steps.extend(order(run, candidates.len()).map(step));
            };
            parameters.readers.iter().for_each(|&readers| turn(readers, &candidates));
            turn(parameters.readers[0], &resizes);
        }
        Self { steps, setting: parameters.setting.clone() }
    }

    /// Returns the setting of a step, including how its table is filled.
    pub fn setting(&self, step: &Step) -> Setting {
        match step.keys {
            None => self.setting.clone(),
            Some(keys) => Setting { keys, hasher: HashFunction::Identity, ..self.setting.clone() },
        }
    }
}

#[derive(Debug)]
pub struct Figure {
    pub file: &'static str,
    /// The number of the figure in the paper.
    pub number: &'static str,
    pub title: &'static str,
    /// Whether the axis of lookups is logarithmic.
    pub logarithmic: bool,
    shows: Shows,
}

#[derive(Debug)]
enum Shows {
    /// All tables, at the first fixed size.
    Fixed,
    /// All resizable tables during resizes, except rwlock, whose line would be at zero.
    Continuous,
    /// One table, at both fixed sizes and during resizes between them.
    Table(Name),
}

/// The figures, in the paper's order. There are two versions of figure 5; the second one shows this
/// project's own table.
pub const FIGURES: &[Figure] = &[
    Figure {
        file: "figure3",
        number: "Figure 3",
        title: "A fixed number of buckets, no resizes",
        logarithmic: false,
        shows: Shows::Fixed,
    },
    Figure {
        file: "figure4",
        number: "Figure 4",
        title: "Continuous resizing",
        logarithmic: false,
        shows: Shows::Continuous,
    },
    Figure {
        file: "figure5",
        number: "Figure 5",
        title: "RP as printed: resizing against both fixed sizes",
        logarithmic: false,
        shows: Shows::Table(Name::Unzip),
    },
    Figure {
        file: "figure5-relativist",
        number: "Figure 5, this project's table",
        title: "relativist: resizing against both fixed sizes",
        logarithmic: false,
        shows: Shows::Table(Name::Relativist),
    },
    Figure {
        file: "figure6",
        number: "Figure 6",
        title: "DDDS: resizing against both fixed sizes",
        logarithmic: false,
        shows: Shows::Table(Name::Ddds),
    },
    Figure {
        file: "figure7",
        number: "Figure 7",
        title: "Reader-writer lock: resizing against both fixed sizes",
        logarithmic: true,
        shows: Shows::Table(Name::Rwlock),
    },
];

impl Figure {
    /// Returns the texts and axes of the figure.
    pub fn frame(&self) -> Frame {
        let &Self { file, number, title, logarithmic, .. } = self;
        let (x, y) = ("Reader threads", "Lookups per second (millions)");
        Frame { file, number, title, x, y, unit: 1e6, logarithmic }
    }

    /// Returns the lines of the figure, as far as they have been measured.
    pub fn curves(&self, parameters: &Parameters, samples: &[Sample]) -> Vec<Line> {
        let (one, other) = parameters.setting.shifts;
        let continuous = Case::Continuous { shifts: parameters.setting.shifts };
        let lines: Vec<(Name, Case, String)> = match self.shows {
            Shows::Fixed => {
                let case =
                    |name: Name| if name.sizing() == Sizing::Own { Case::Own } else { Case::Fixed { shift: one } };
                parameters.tables.iter().map(|&name| (name, case(name), name.label())).collect()
            }
            Shows::Continuous => {
                let shown = |name: &&Name| name.sizing() == Sizing::AtAnyTime && **name != Name::Rwlock;
                parameters.tables.iter().filter(shown).map(|&name| (name, continuous, name.label())).collect()
            }
            Shows::Table(name) => vec![
                (name, Case::Fixed { shift: one }, buckets(one)),
                (name, Case::Fixed { shift: other }, buckets(other)),
                (name, continuous, "resize".into()),
            ],
        };
        let curve = |(name, case, label)| {
            let point = |&readers: &usize| Some((readers as f64, Summary::of(rates(samples, name, readers, case))?));
            Line { label, points: parameters.readers.iter().filter_map(point).collect() }
        };
        lines.into_iter().map(curve).filter(|curve| !curve.points.is_empty()).collect()
    }
}

/// Returns the lookups per second of each run.
pub fn rates(samples: &[Sample], table: Name, readers: usize, case: Case) -> Vec<f64> {
    let matching = samples.iter().filter(|s| s.table == table && s.readers == readers && s.case == case);
    matching.map(|sample| sample.lookups_per_second).collect()
}

/// Formats a number of buckets as in the paper, such as `8k`.
pub fn buckets(shift: u8) -> String {
    if shift >= 10 { format!("{}k", 1u64 << (shift - 10)) } else { (1u64 << shift).to_string() }
}

/// Returns the caption of all figures.
pub fn caption(parameters: &Parameters, cpus: usize) -> String {
    let Setting { entries, seconds, hasher, spinner, .. } = &parameters.setting;
    let (one, other) = parameters.setting.shifts;
    let mut caption = format!(
        "{entries} entries, {} and {} buckets, {hasher}; medians of {} runs of {seconds} s, bars show quartiles.",
        buckets(one),
        buckets(other),
        parameters.runs
    );
    let most = parameters.readers.last().unwrap_or(&1) + 1;
    if most > cpus {
        caption += &format!(
            "\n{cpus} CPUs: with more than {} readers, or {} with a resizer, threads share CPUs and are not pinned.",
            cpus,
            cpus - 1
        );
    }
    if *spinner {
        caption += "\nIn cases without a resizer, a busy thread ran as a substitute.";
    }
    caption
}
