//! `relativist-papers figures` draws the figures of the ATC 2011 paper from measurements on this
//! machine, and compares them with the paper's claims.

pub mod claims;
pub mod draw;
pub mod html;
#[cfg(target_os = "linux")]
pub mod memcached;
pub mod plan;
pub mod store;

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use clap::value_parser;
use serde::{Deserialize, Serialize};

use crate::figures::claims::Claim;
use crate::figures::html::Section;
use crate::figures::plan::{FIGURES, Plan, Step};
use crate::figures::store::Store;
use crate::lookups::Conditions;
use crate::lookups::candidates::Name;
use crate::lookups::measure::{Filled, Keys, Sample, Setting};
use relativist_bench::harness::report::{Report, table};
use relativist_bench::harness::rounds::progress;
use relativist_bench::harness::workers::Cpus;
use relativist_check::interruption::{self, Ending};

/// Draw figures 3 to 8 of the ATC 2011 paper from measurements on this machine, and check the
/// paper's claims
///
/// Measures lookups per second by number of readers, for each table at both fixed sizes and while
/// it is resized without pause (as `relativist-papers resize` does). Also measures how long resizes
/// take, with sequential and with shuffled keys. Writes the figures as SVG, every sample as
/// JSON and CSV, and report.html to the folder --out. The report contains each figure, the paper's
/// claims, the values measured here, and whether the claims hold.
///
/// With --memcached, figure 8 is drawn too, from measurements of memcached and of both engines of
/// relativistd (as `relativist-bench load` takes them). Another plot then shows the latency of GETs
/// while the tables grow.
///
/// Samples are saved as they are taken. After Ctrl-C the report shows the samples so far. The same
/// command, given again, takes the missing samples. The whole run takes hours (with --quick:
/// minutes).
#[derive(Debug, clap::Args, Serialize)]
pub struct Args {
    /// Folder for the report, the figures and the samples
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

/// The parameters with all defaults filled in. Samples of different parameters are not mixed.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Parameters {
    /// The tables, in the order of the legends.
    pub tables: Vec<Name>,
    /// The numbers of readers, in ascending order.
    pub readers: Vec<usize>,
    pub runs: usize,
    /// The setting of all measurements, except for the keys of resizes.
    #[serde(flatten)]
    pub setting: Setting,
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
pub struct Results {
    /// The paper's claims and our measurements.
    pub claims: Vec<Claim>,
    pub samples: Vec<Sample>,
    /// Resizes with the identity as hash function, for keys inserted in either order.
    pub resizes: Vec<(Keys, Sample)>,
    /// False if measurements are missing because the run was interrupted.
    pub complete: bool,
}

pub fn run(args: &Args) -> Result<Ending> {
    let parameters = args.parameters()?;
    #[cfg(target_os = "linux")]
    args.serving.try_servers()?;
    let cpus = Cpus::allowed();
    relativist_bench::harness::chart::prepare(&args.out)?;
    let mut store = Store::open(&args.out.join("samples.jsonl"), &parameters)?;
    let threads = parameters.readers.last().unwrap_or(&1) + 1;
    let mut report = Report::begin("figures", Some(&args.out.join("samples.json")), &cpus, threads)?;
    interruption::handle_signals("this measurement")?;
    measure(&parameters, &cpus, &mut store)?;
    let mut complete = store.count() == Plan::of(&parameters).steps.len();
    let mut sections = Vec::new();
    #[cfg(target_os = "linux")]
    if let Some(part) = args.serving.measure(&args.out, &args.conditions, &cpus, &mut report)? {
        complete &= part.complete;
        sections = part.sections;
    }
    if !complete {
        report.warn("interrupted: the same command measures the rest".into());
    }
    let (mut samples, mut resizes) = (Vec::new(), Vec::new());
    for (step, sample) in store.into_samples() {
        match step.keys {
            None => samples.push(sample),
            Some(keys) => resizes.push((keys, sample)),
        }
    }
    report.warn_of_preemption(samples.iter().filter_map(|sample| sample.cpu_share));
    let mut claims = claims::judge(&parameters, &samples);
    claims.extend(sections.iter().flat_map(|section| section.claims.iter().cloned()));
    let results = Results { claims, samples, resizes, complete };
    write(&args.out, &report, &parameters, &results, &sections, cpus.count())?;
    let rows = results
        .claims
        .iter()
        .map(|claim| vec![claim.figure.into(), claim.paper.into(), claim.here.clone(), claim.verdict.to_string()]);
    let text = table(&["figure", "the paper", "here", "holds"], rows);
    report.finish(&parameters, &results, &text)?;
    eprintln!("{}: see {}", interruption::program(), args.out.join("report.html").display());
    Ok(Ending::of(complete))
}

/// Takes the measurements that are missing from the store. Ends early if the user interrupts.
fn measure(parameters: &Parameters, cpus: &Cpus, store: &mut Store<Step, Sample>) -> Result<()> {
    let plan = Plan::of(parameters);
    let bar = progress(plan.steps.len());
    let mut tables: Vec<(Name, Setting, Filled)> = Vec::new();
    for step in &plan.steps {
        if !store.has(step) && !interruption::is_wanted() {
            bar.set_message(format!("{}, {} readers, {}", step.table.label(), step.readers, step.case.name()));
            let setting = plan.setting(step);
            let known = tables.iter().position(|(name, its, _)| *name == step.table && *its == setting);
            let index = match known {
                Some(index) => index,
                None => {
                    tables.push((step.table, setting.clone(), Filled::new(step.table, &setting)?));
                    tables.len() - 1
                }
            };
            let sample = tables[index].2.measure(cpus, step.readers, step.case, step.run)?;
            store.add(step, sample)?;
        }
        bar.inc(1);
    }
    bar.finish_and_clear();
    Ok(())
}

fn write(
    folder: &Path,
    report: &Report,
    parameters: &Parameters,
    results: &Results,
    sections: &[Section],
    cpus: usize,
) -> Result<()> {
    store::write_csv(&folder.join("samples.csv"), results)?;
    let mut pictures = Vec::new();
    for figure in FIGURES {
        let caption = plan::caption(parameters, cpus);
        let curves = figure.curves(parameters, &results.samples);
        pictures.push(draw::draw(folder, &figure.frame(), &curves, &caption)?);
    }
    let page = html::page(report, parameters, results, &pictures, sections);
    let path = folder.join("report.html");
    std::fs::write(&path, page).with_context(|| format!("cannot write {}", path.display()))
}
