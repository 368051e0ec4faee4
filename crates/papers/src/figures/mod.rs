//! `relativist-papers figures` draws the figures of the ATC 2011 paper from measurements on this
//! machine, and compares them with the paper's claims.

pub mod claims;
#[cfg(target_os = "linux")]
pub mod memcached;

use std::path::{Path, PathBuf};

use anyhow::Result;
use clap::value_parser;
use serde::Serialize;

use crate::figures::claims::Claim;
use crate::lookups::Conditions;
use crate::lookups::candidates::{Name, Sizing};
use crate::lookups::measure::{Case, Filled, Sample, Setting};
use relativist_bench::harness::chart::{Chart, Line, prepare};
use relativist_bench::harness::report::{Report, table};
use relativist_bench::harness::rounds::{order, progress};
use relativist_bench::harness::stats::Summary;
use relativist_bench::harness::workers::Cpus;
use relativist_check::interruption::{self, Ending};

/// Draw figures 3 to 8 of the ATC 2011 paper from measurements on this machine, and check the
/// paper's claims
///
/// Measures lookups per second by number of readers, for each table at both fixed sizes and while
/// it is resized without pause (as `relativist-papers resize` does). Writes the figures as SVG,
/// and every sample as JSON, to the folder --out. Prints the paper's claims, the values
/// measured here, and whether the claims hold.
///
/// With --memcached, figure 8 is drawn too, from measurements of memcached and of both engines of
/// relativistd (as `relativist-bench load` takes them).
///
/// The whole run takes hours (with --quick: minutes). After Ctrl-C the figures show the samples so
/// far.
#[derive(Debug, clap::Args, Serialize)]
pub struct Args {
    /// Folder for the figures and the samples
    #[arg(long, value_name = "DIR")]
    #[serde(skip)]
    out: PathBuf,

    /// Tables to measure in addition to those of the paper's figures; repeat the option, or
    /// separate names by commas
    #[arg(long = "table", value_name = "TABLE", value_enum, value_delimiter = ',',
          default_values_t = [Name::Relativist, Name::Fixed])]
    tables: Vec<Name>,

    /// Numbers of reader threads
    #[arg(long, value_delimiter = ',', default_values_t = [1, 2, 4, 8, 16], value_parser = value_parser!(u16).range(1..=1024))]
    readers: Vec<u16>,

    #[command(flatten)]
    conditions: Conditions,

    #[cfg(target_os = "linux")]
    #[command(flatten)]
    #[serde(skip)]
    serving: memcached::Options,
}

/// The parameters with all defaults filled in.
#[derive(Clone, Debug, Serialize)]
pub struct Parameters {
    /// The tables, in the order of the legends.
    tables: Vec<Name>,
    /// The numbers of readers, in ascending order.
    readers: Vec<usize>,
    runs: usize,
    #[serde(flatten)]
    setting: Setting,
}

impl Args {
    fn parameters(&self) -> Result<Parameters> {
        let mut tables = vec![Name::Unzip, Name::Ddds, Name::Rwlock];
        for &name in &self.tables {
            if !tables.contains(&name) {
                tables.push(name);
            }
        }
        let mut readers: Vec<usize> = self.readers.iter().copied().map(usize::from).collect();
        readers.sort_unstable();
        readers.dedup();
        Ok(Parameters { tables, readers, runs: self.conditions.runs(), setting: self.conditions.setting()? })
    }
}

#[derive(Debug, Serialize)]
struct Results {
    /// The paper's claims and our measurements.
    claims: Vec<Claim>,
    samples: Vec<Sample>,
    /// False if measurements are missing because the run was interrupted.
    complete: bool,
}

pub fn run(args: &Args) -> Result<Ending> {
    let parameters = args.parameters()?;
    #[cfg(target_os = "linux")]
    args.serving.try_servers()?;
    let cpus = Cpus::allowed();
    prepare(&args.out)?;
    interruption::handle_signals("this measurement")?;
    let threads = parameters.readers.last().unwrap_or(&1) + 1;
    let mut report = Report::begin("figures", Some(&args.out.join("samples.json")), &cpus, threads)?;
    let samples = measure(&parameters, &cpus)?;
    let mut claims = claims::judge(&parameters, &samples);
    let mut profile = String::new();
    #[cfg(target_os = "linux")]
    if let Some(part) = args.serving.measure(&args.out, &args.conditions, &cpus, &mut report)? {
        claims.extend(part.claims);
        profile = part.profile;
    }
    let complete = !interruption::is_wanted();
    if !complete {
        report.warn("interrupted: the figures show the samples so far".into());
    }
    report.warn_of_preemption(samples.iter().filter_map(|sample| sample.cpu_share));
    for figure in FIGURES {
        figure.draw(&args.out, &parameters, &samples, &caption(&parameters, cpus.count()))?;
    }
    let rows = claims
        .iter()
        .map(|claim| vec![claim.figure.into(), claim.paper.into(), claim.here.clone(), claim.verdict.to_string()]);
    let text = table(&["figure", "the paper", "here", "holds"], rows) + &profile;
    report.finish(&parameters, &Results { claims, samples, complete }, &text)?;
    Ok(Ending::of(complete))
}

/// Takes all measurements: run by run, and in each run all tables in turns, once for each number of
/// readers. Ends early if the user interrupts.
fn measure(parameters: &Parameters, cpus: &Cpus) -> Result<Vec<Sample>> {
    let fill = |&name: &Name| Filled::new(name, &parameters.setting);
    let tables = parameters.tables.iter().map(fill).collect::<Result<Vec<_>>>()?;
    let cases: Vec<(&Filled, Case)> =
        tables.iter().flat_map(|table| table.cases(true).into_iter().map(move |case| (table, case))).collect();
    let bar = progress(parameters.runs * parameters.readers.len() * cases.len());
    let mut samples = Vec::new();
    for run in 0..parameters.runs {
        for &readers in &parameters.readers {
            for (table, case) in order(run, cases.len()).map(|index| cases[index]) {
                if !interruption::is_wanted() {
                    bar.set_message(format!("{}, {readers} readers, {}", table.name.label(), case.name()));
                    samples.push(table.measure(cpus, readers, case, run)?);
                }
                bar.inc(1);
            }
        }
    }
    bar.finish_and_clear();
    Ok(samples)
}

/// A figure of lookups per second by readers.
#[derive(Debug)]
struct Figure {
    file: &'static str,
    title: &'static str,
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
const FIGURES: [Figure; 6] = [
    Figure { file: "figure3", title: "Figure 3: A fixed number of buckets, no resizes", shows: Shows::Fixed },
    Figure { file: "figure4", title: "Figure 4: Continuous resizing", shows: Shows::Continuous },
    Figure {
        file: "figure5",
        title: "Figure 5: RP as printed: resizing against both fixed sizes",
        shows: Shows::Table(Name::Unzip),
    },
    Figure {
        file: "figure5-relativist",
        title: "Figure 5, this project's table: resizing against both fixed sizes",
        shows: Shows::Table(Name::Relativist),
    },
    Figure {
        file: "figure6",
        title: "Figure 6: DDDS: resizing against both fixed sizes",
        shows: Shows::Table(Name::Ddds),
    },
    Figure {
        file: "figure7",
        title: "Figure 7: Reader-writer lock: resizing against both fixed sizes",
        shows: Shows::Table(Name::Rwlock),
    },
];

impl Figure {
    fn draw(&self, folder: &Path, parameters: &Parameters, samples: &[Sample], caption: &str) -> Result<()> {
        let chart = Chart {
            title: self.title,
            x_label: "Reader threads",
            y_label: "Lookups per second (millions)",
            logarithmic: self.file == "figure7",
            unit: 1e6,
            caption,
        };
        chart.draw(folder, self.file, &self.curves(parameters, samples)).map(drop)
    }

    /// Returns the lines of the figure, as far as they have been measured.
    fn curves(&self, parameters: &Parameters, samples: &[Sample]) -> Vec<Line> {
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
fn rates(samples: &[Sample], table: Name, readers: usize, case: Case) -> Vec<f64> {
    let matching = samples.iter().filter(|s| s.table == table && s.readers == readers && s.case == case);
    matching.map(|sample| sample.lookups_per_second).collect()
}

/// Formats a number of buckets as in the paper, such as `8k`.
fn buckets(shift: u8) -> String {
    if shift >= 10 { format!("{}k", 1u64 << (shift - 10)) } else { (1u64 << shift).to_string() }
}

/// Returns the caption of all figures.
fn caption(parameters: &Parameters, cpus: usize) -> String {
    let Setting { entries, seconds, hasher, spinner, shifts: (one, other), .. } = &parameters.setting;
    let mut caption = format!(
        "{entries} entries, {} and {} buckets, {hasher}; medians of {} runs of {seconds} s, bars show quartiles.",
        buckets(*one),
        buckets(*other),
        parameters.runs
    );
    if parameters.readers.last().unwrap_or(&1) + 1 > cpus {
        caption += &format!(
            "\n{cpus} CPUs: with more than {cpus} readers, or {} with a resizer, threads share CPUs and are not pinned.",
            cpus - 1
        );
    }
    if *spinner {
        caption += "\nIn cases without a resizer, a busy thread ran as a substitute.";
    }
    caption
}
