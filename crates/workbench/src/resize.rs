//! `relativist resize`: do lookups notice that the table is being resized?
//!
//! The benchmark of Triplett, McKenney and Walpole ("Resizable, Scalable, Concurrent Hash Tables via Relativistic
//! Programming", USENIX ATC 2011, section 6.1, there a kernel module called `rcuhashbash-resize`): readers look up random
//! keys that are present while the table has the one size, the other, or changes between the two without pause.

use std::fmt::Write;
use std::hint;
use std::path::PathBuf;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use anyhow::{Result, bail, ensure};
use clap::value_parser;
use serde::Serialize;

use crate::keys::{Indices, seed};
use crate::options::{HashFunction, parse_count, parse_seconds};
use crate::report::{Report, cells, count, significant, table};
use crate::rounds::{order, progress};
use crate::stats::{Summary, ratios};
use crate::tables::hashers::{Foldhash, Fx, Identity, TableHasher};
use crate::tables::relativist::Relativist;
use crate::tables::{Lookup, Resize, Table};
use crate::workers::{Clock, Cpus, Window, least_cpu_share, run as work};

/// Lookups between two looks at the clock's flag.
const BATCH: u64 = 256;

/// Measure lookups while the table is resized continuously, as the ATC 2011 paper's rcuhashbash-resize does
///
/// Each reader looks up random keys of 0 .. entries-1, all of which are present, with a read section per lookup. The cases
/// are measured in turns, run by run, on one and the same table: 2^shift1 buckets; 2^shift2 buckets; and with --resizer,
/// one further thread that resizes from the one to the other and back without pause. A lookup that finds nothing, or a
/// wrong value, is a failure: the command says so and exits with status 1.
///
/// If resizing costs lookups little, the continuous case lies between the two fixed sizes. The ratio printed is
/// continuous over the slower fixed size, run by run.
///
/// The paper always had a free CPU for the resizer. With more readers than CPUs-1 the resizer takes time from readers, and
/// the fixed cases have to be burdened alike: --spinner runs a thread in them that does nothing but loop.
#[derive(Debug, clap::Args, Serialize)]
pub struct Args {
    /// Entries in the table: a number such as 65536 or 2^16
    #[arg(long, default_value = "65536", value_parser = parse_count)]
    entries: u64,

    /// Base-two logarithm of the first number of buckets
    #[arg(long, default_value_t = 13, value_parser = value_parser!(u8).range(1..=30))]
    shift1: u8,

    /// Base-two logarithm of the other number of buckets
    #[arg(long, default_value_t = 14, value_parser = value_parser!(u8).range(1..=30))]
    shift2: u8,

    /// Reader threads [default: one for each CPU, less one for the resizer]
    #[arg(long, value_parser = value_parser!(u16).range(1..=1024))]
    readers: Option<u16>,

    /// Measure continuous resizing, too
    #[arg(long)]
    resizer: bool,

    /// Run a busy thread in place of the resizer in the fixed cases
    #[arg(long, requires = "resizer")]
    spinner: bool,

    /// Seconds per measurement [default: 10, with --quick 1]
    #[arg(long, value_parser = parse_seconds)]
    seconds: Option<f64>,

    /// Measurements of each case [default: 10, with --quick 5]
    #[arg(long, value_parser = value_parser!(u32).range(1..=10_000))]
    runs: Option<u32>,

    /// A first impression in seconds instead of minutes
    #[arg(long)]
    quick: bool,

    /// Hash function of the table
    #[arg(long, value_enum, default_value_t = HashFunction::Foldhash)]
    hasher: HashFunction,

    /// What time a lookup is said to take; resizes are timed by the wall clock
    #[arg(long, value_enum, default_value_t = Clock::Wall)]
    clock: Clock,

    /// Write every sample, the command line, versions, machine and parameters to this file
    #[arg(long, value_name = "FILE")]
    #[serde(skip)]
    json: Option<PathBuf>,
}

/// The options with their defaults filled in.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
struct Parameters {
    entries: u64,
    shift1: u8,
    shift2: u8,
    readers: usize,
    resizer: bool,
    spinner: bool,
    seconds: f64,
    runs: usize,
    hasher: HashFunction,
    clock: Clock,
}

impl Args {
    fn parameters(&self, cpus: &Cpus) -> Parameters {
        let spare = cpus.count() - usize::from(self.resizer);
        let (seconds, runs) = if self.quick { (1.0, 5) } else { (10.0, 10) };
        Parameters {
            entries: self.entries,
            shift1: self.shift1,
            shift2: self.shift2,
            readers: self.readers.map_or(spare.max(1), usize::from),
            resizer: self.resizer,
            spinner: self.spinner,
            seconds: self.seconds.unwrap_or(seconds),
            runs: self.runs.unwrap_or(runs) as usize,
            hasher: self.hasher,
            clock: self.clock,
        }
    }
}

impl Parameters {
    /// The two fixed sizes, and continuous resizing where it was asked for.
    fn cases(&self) -> Vec<Case> {
        let mut cases = vec![Case::Fixed { shift: self.shift1 }, Case::Fixed { shift: self.shift2 }];
        if self.resizer {
            cases.push(Case::Continuous { shifts: (self.shift1, self.shift2) });
        }
        cases
    }
}

/// What the table does while it is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "kind", rename_all = "lowercase")]
enum Case {
    Fixed { shift: u8 },
    Continuous { shifts: (u8, u8) },
}

impl Case {
    fn name(self) -> String {
        match self {
            Self::Fixed { shift } => format!("2^{shift} buckets"),
            Self::Continuous { shifts: (one, other) } => format!("resizing 2^{one} <-> 2^{other}"),
        }
    }
}

/// One measurement of one case.
#[derive(Clone, Debug, Serialize)]
struct Sample {
    run: usize,
    case: Case,
    lookups_per_second: f64,
    per_reader: Vec<f64>,
    resizes_per_second: f64,
    grace_periods: u64,
    /// The smallest share of its time that a reader was on a CPU, where the system tells.
    cpu_share: Option<f64>,
}

/// What is reported of one case.
#[derive(Clone, Debug, Serialize)]
struct CaseSummary {
    name: String,
    lookups_per_second: Summary,
    spread: f64,
    resizes_per_second: Summary,
    grace_periods: u64,
}

#[derive(Debug, Serialize)]
struct Results {
    cases: Vec<CaseSummary>,
    /// Continuous resizing over the slower fixed size, run by run.
    continuous_to_slower_fixed: Option<Summary>,
    misses: u64,
    samples: Vec<Sample>,
}

/// Runs the subcommand.
///
/// # Errors
/// When a lookup misses, the table can't be resized, or the report can't be written.
pub fn run(args: &Args) -> Result<()> {
    let cpus = Cpus::allowed();
    let parameters = args.parameters(&cpus);
    ensure!(parameters.shift1 != parameters.shift2, "--shift1 and --shift2 are the same: there is nothing to resize");
    let threads = parameters.readers + usize::from(parameters.resizer);
    let mut report = Report::begin("resize", args.json.as_deref(), &cpus, threads)?;
    if parameters.resizer && threads > cpus.count() && !parameters.spinner {
        report.warn("the resizer takes CPU time from the readers, the fixed cases do not: add --spinner".into());
    }
    let samples = match parameters.hasher {
        HashFunction::Foldhash => measure(&filled::<Foldhash>(&parameters)?, &parameters, &cpus),
        HashFunction::Fx => measure(&filled::<Fx>(&parameters)?, &parameters, &cpus),
        HashFunction::Identity => measure(&filled::<Identity>(&parameters)?, &parameters, &cpus),
    }?;
    report.warn_of_preemption(samples.iter().filter_map(|sample| sample.cpu_share));
    let results = summarise(&parameters, samples);
    let text = describe(&parameters, &results)?;
    report.finish(&parameters, &results, &text)
}

/// The table with the keys 0 .. entries-1, each its own value.
fn filled<H: TableHasher>(parameters: &Parameters) -> Result<Relativist<u64, u64, H>> {
    let table = Relativist::manual()?;
    // Given its buckets first: a table that never resizes itself would be filled in quadratic time.
    table.resize_to(1 << parameters.shift1)?;
    for key in 0..parameters.entries {
        Relativist::insert(&mut table.session(), key, key);
    }
    Ok(table)
}

/// Measures every case in turns.
fn measure<T: Resize>(table: &T, parameters: &Parameters, cpus: &Cpus) -> Result<Vec<Sample>> {
    let cases = parameters.cases();
    let bar = progress(cases.len() * parameters.runs);
    let mut samples = Vec::new();
    for run in 0..parameters.runs {
        for case in order(run, cases.len()).map(|index| cases[index]) {
            bar.set_message(case.name());
            samples.push(measure_once(table, parameters, cpus, case, run)?);
            bar.inc(1);
        }
    }
    bar.finish_and_clear();
    Ok(samples)
}

fn measure_once<T: Resize>(table: &T, parameters: &Parameters, cpus: &Cpus, case: Case, run: usize) -> Result<Sample> {
    let (Case::Fixed { shift } | Case::Continuous { shifts: (shift, _) }) = case;
    table.resize_to(1 << shift)?;
    let misses = AtomicU64::new(0);
    let failure = Mutex::new(None);
    let before = table.observe().grace_periods;
    let companion = matches!(case, Case::Continuous { .. }) || parameters.spinner;
    let window = Window::new(Duration::from_secs_f64(parameters.seconds));
    let works = work(cpus, parameters.readers + usize::from(companion), window, |thread| -> Box<dyn FnMut() -> u64> {
        if thread < parameters.readers {
            let keys = Indices::new(0..parameters.entries, seed(run, thread));
            reader(table, keys, &misses)
        } else if let Case::Continuous { shifts } = case {
            resizer(table, shifts, &failure)
        } else {
            Box::new(spin)
        }
    });
    if let Some(error) = failure.into_inner().expect("no worker panics") {
        return Err(error);
    }
    match misses.into_inner() {
        0 => {}
        misses => bail!("{misses} lookups missed a key that is in the table (run {run}, {})", case.name()),
    }
    let (readers, others) = works.split_at(parameters.readers);
    let per_reader: Vec<f64> = readers.iter().map(|work| work.per_second(parameters.clock)).collect();
    let resizing = matches!(case, Case::Continuous { .. });
    Ok(Sample {
        run,
        case,
        lookups_per_second: per_reader.iter().sum(),
        per_reader,
        resizes_per_second: if resizing { others.iter().map(|work| work.per_second(Clock::Wall)).sum() } else { 0.0 },
        grace_periods: table.observe().grace_periods - before,
        cpu_share: least_cpu_share(readers),
    })
}

/// Looks up keys that are all present, and counts those that it does not find.
fn reader<'a, T: Lookup<Key = u64, Value = u64>>(
    table: &'a T,
    mut keys: Indices,
    misses: &'a AtomicU64,
) -> Box<dyn FnMut() -> u64 + 'a> {
    Box::new(move || {
        let missed = look_up(table, &mut keys);
        if missed != 0 {
            // Relaxed: a count, read after the workers have been joined.
            misses.fetch_add(missed, Ordering::Relaxed);
        }
        BATCH
    })
}

#[inline(never)]
fn look_up<T: Lookup<Key = u64, Value = u64>>(table: &T, keys: &mut Indices) -> u64 {
    let mut session = table.session();
    let mut stream = *keys;
    let mut missed = 0;
    for _ in 0..BATCH {
        let key = stream.draw();
        missed += u64::from(T::get(&mut session, &key) != Some(key));
    }
    *keys = stream;
    missed
}

/// Resizes to the second size and back; keeps the first error and then rests.
fn resizer<'a, T: Resize>(
    table: &'a T,
    (one, other): (u8, u8),
    failure: &'a Mutex<Option<anyhow::Error>>,
) -> Box<dyn FnMut() -> u64 + 'a> {
    let mut failed = false;
    Box::new(move || {
        if failed {
            thread::sleep(Duration::from_millis(1));
            return 0;
        }
        let there_and_back = table.resize_to(1 << other).and_then(|()| table.resize_to(1 << one));
        if let Err(error) = there_and_back {
            failed = true;
            *failure.lock().expect("no worker panics") = Some(error);
        }
        2
    })
}

/// Keeps a CPU as busy as the resizer would.
fn spin() -> u64 {
    for _ in 0..1024 {
        hint::spin_loop();
    }
    1
}

fn summarise(parameters: &Parameters, samples: Vec<Sample>) -> Results {
    let of_case = |case: Case| samples.iter().filter(move |sample| sample.case == case);
    let rates = |case| of_case(case).map(|sample| sample.lookups_per_second).collect::<Vec<_>>();
    let cases: Vec<CaseSummary> = parameters
        .cases()
        .into_iter()
        .map(|case| {
            let lookups_per_second = Summary::of(rates(case)).expect("at least one run");
            CaseSummary {
                name: case.name(),
                spread: lookups_per_second.spread(),
                lookups_per_second,
                resizes_per_second: Summary::of(of_case(case).map(|s| s.resizes_per_second)).expect("at least one run"),
                grace_periods: of_case(case).map(|sample| sample.grace_periods).sum(),
            }
        })
        .collect();
    let slower = usize::from(cases[1].lookups_per_second.median < cases[0].lookups_per_second.median);
    let continuous_to_slower_fixed = parameters
        .cases()
        .get(2)
        .and_then(|&continuous| ratios(&rates(continuous), &rates(parameters.cases()[slower])));
    Results { cases, continuous_to_slower_fixed, misses: 0, samples }
}

fn describe(parameters: &Parameters, results: &Results) -> Result<String> {
    let mut text = String::new();
    writeln!(
        text,
        "Lookups per second, {} entries, readers: {}, {}; median over {} runs of {} s each.\n",
        count(parameters.entries),
        parameters.readers,
        parameters.hasher,
        parameters.runs,
        parameters.seconds
    )?;
    let millions = |rate: f64| format!("{} M", significant(rate / 1e6));
    let rows = results.cases.iter().map(|case| {
        let mut row = vec![case.name.clone()];
        row.extend(cells(&case.lookups_per_second, millions));
        row.extend([significant(case.resizes_per_second.median), case.grace_periods.to_string()]);
        row
    });
    let header = ["case", "median", "min", "max", "spread", "resizes/s", "grace periods"];
    text.push_str(&table(&header, rows));
    if let Some(Summary { median, min, max, .. }) = results.continuous_to_slower_fixed {
        writeln!(text, "\nContinuous resizing over the slower fixed size: {median:.3} ({min:.3} to {max:.3})")?;
    }
    writeln!(text, "Misses: {}", results.misses)?;
    if parameters.spinner {
        writeln!(text, "The fixed cases ran a busy thread in place of the resizer.")?;
    }
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tables::Observation;
    use clap::Parser;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        args: Args,
    }

    fn parse(line: &str) -> Result<Args, clap::Error> {
        Line::try_parse_from(["resize"].into_iter().chain(line.split_whitespace())).map(|line| line.args)
    }

    fn parameters(line: &str) -> Parameters {
        parse(line).unwrap().parameters(&Cpus::allowed())
    }

    /// A table that loses one key while it is large.
    struct Forgetful {
        table: Relativist<u64, u64, Foldhash>,
        lost: u64,
    }

    impl Lookup for Forgetful {
        const NAME: &'static str = "forgetful";
        type Key = u64;
        type Value = u64;
        type Session<'t> = &'t Self;

        fn session(&self) -> &Self {
            self
        }

        fn get(this: &mut &Self, key: &u64) -> Option<u64> {
            Relativist::get(&mut this.table.session(), key).filter(|_| *key != this.lost)
        }
    }

    impl Resize for Forgetful {
        fn resize_to(&self, buckets: usize) -> Result<()> {
            ensure!(buckets != 1 << 7, "no room");
            self.table.resize_to(buckets)
        }

        fn observe(&self) -> Observation {
            self.table.observe()
        }
    }

    fn forgetful(lost: u64, line: &str) -> Result<Vec<Sample>> {
        let parameters = parameters(line);
        let table = Forgetful { table: filled(&parameters)?, lost };
        measure(&table, &parameters, &Cpus::allowed())
    }

    const TINY: &str = "--entries 256 --shift1 4 --shift2 6 --readers 1 --runs 2 --seconds 0.005";

    #[test]
    fn defaults_are_the_papers() {
        let parameters = parameters("--resizer --readers 3");
        let expected = Parameters {
            entries: 65536,
            shift1: 13,
            shift2: 14,
            readers: 3,
            resizer: true,
            spinner: false,
            seconds: 10.0,
            runs: 10,
            hasher: HashFunction::Foldhash,
            clock: Clock::Wall,
        };
        assert_eq!(parameters, expected);
    }

    #[test]
    fn quick_shortens_what_is_not_given() {
        assert_eq!((parameters("--quick").seconds, parameters("--quick").runs), (1.0, 5));
        assert_eq!((parameters("--quick --runs 3").seconds, parameters("--quick --runs 3").runs), (1.0, 3));
        assert_eq!(parameters("--quick --seconds 2").seconds, 2.0);
    }

    #[test]
    fn a_cpu_is_left_to_the_resizer() {
        let cpus = Cpus::allowed().count();
        assert_eq!(parameters("").readers, cpus);
        assert_eq!(parameters("--resizer").readers, (cpus - 1).max(1));
    }

    #[test]
    fn nonsense_is_refused() {
        for line in
            ["--entries 0", "--shift1 0", "--shift2 31", "--readers 0", "--seconds 0", "--seconds nan", "--runs 0"]
        {
            assert!(parse(line).is_err(), "{line}");
        }
        assert!(parse("--spinner").is_err(), "--spinner has no meaning without --resizer");
    }

    #[test]
    fn cases_are_measured_in_turns() {
        let samples = forgetful(u64::MAX, &format!("{TINY} --resizer")).unwrap();
        let shape: Vec<_> = samples.iter().map(|sample| (sample.run, sample.case.name())).collect();
        let cases = ["2^4 buckets", "2^6 buckets", "resizing 2^4 <-> 2^6"];
        let expected: Vec<_> = [0, 1, 2]
            .map(|case| (0, cases[case].into()))
            .into_iter()
            .chain([2, 1, 0].map(|case| (1, cases[case].into())))
            .collect();
        assert_eq!(shape, expected);
        assert!(
            samples
                .iter()
                .all(|sample| (sample.resizes_per_second > 0.0) == (sample.case.name().starts_with("resizing")))
        );
    }

    #[test]
    fn the_ratio_is_taken_to_the_slower_fixed_size() {
        let parameters = parameters(&format!("{TINY} --resizer"));
        let rates = [[100.0, 200.0], [50.0, 40.0], [60.0, 60.0]];
        let samples = (0..2).flat_map(|run| {
            parameters.cases().into_iter().zip(rates).map(move |(case, rates)| Sample {
                run,
                case,
                lookups_per_second: rates[run],
                per_reader: vec![rates[run]],
                resizes_per_second: 0.0,
                grace_periods: 0,
                cpu_share: None,
            })
        });
        let results = summarise(&parameters, samples.collect());
        let ratio = results.continuous_to_slower_fixed.unwrap();
        assert_eq!((ratio.min, ratio.max), (1.2, 1.5));
    }

    #[test]
    fn a_miss_is_a_failure_and_a_failing_exit_status() {
        let error = forgetful(7, &format!("{TINY} --resizer")).unwrap_err();
        assert!(error.to_string().contains("missed a key that is in the table (run 0, 2^4 buckets)"), "{error}");
        assert_eq!(crate::conclude(Err(error)), std::process::ExitCode::FAILURE);
    }

    #[test]
    fn a_failed_resize_is_an_error() {
        let line = "--entries 256 --shift1 4 --shift2 7 --readers 1 --runs 1 --seconds 0.005 --resizer";
        assert_eq!(forgetful(u64::MAX, line).unwrap_err().to_string(), "no room");
    }
}
