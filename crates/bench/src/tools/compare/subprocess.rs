//! Workloads that measure the resident set. Each table runs in its own process, which is this
//! program, started again as `relativist-bench compare-child`. The memory of that process before
//! the table is made is the same for all tables, and is subtracted.

use std::env::current_exe;
use std::process::{Command, Stdio};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use serde::{Deserialize, Serialize};
use sysinfo::{ProcessRefreshKind, ProcessesToUpdate, System, get_current_pid};

use crate::harness::comparison::{Measured, compare_several};
use crate::harness::keys::{Indices, seed};
use crate::harness::options::{parse_count, spell};
use crate::harness::stats::Summary;
use crate::harness::workers::{Clock, Cpus, Window, run as run_workers};
use crate::tables::candidate::BATCH;
use crate::tables::entries::Kind;
use crate::tables::mixes::{CHURN, Own};
use crate::tools::compare::candidates::{Name, competitors};
use crate::tools::compare::setting::{Metric, Setting, Workload};
use crate::tools::compare::{Context, Job};
use relativist_check::options::parse_seconds;

/// How long the reader holds a guard in churn.
const GUARD_TIME: Duration = Duration::from_millis(100);

/// The number of memory samples while the number of entries doubles.
const SAMPLES: u64 = 64;

/// The resident set by time or by number of entries, measured in one process.
#[derive(Clone, Debug, Serialize)]
pub struct Trace {
    #[serde(flatten)]
    setting: Setting,
    name: &'static str,
    round: usize,
    #[serde(flatten)]
    findings: Findings,
}

/// The results of a child process, which writes them to its stdout.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct Findings {
    /// Resident bytes by number of entries (memory) or by seconds (churn). The bytes from before
    /// the table was made are subtracted.
    resident: Vec<(f64, u64)>,
    /// Nanoseconds per operation of the updating thread.
    nanoseconds: Option<f64>,
}

/// The arguments of the child process, which does one measurement.
#[derive(Debug, clap::Args)]
pub struct Args {
    #[arg(long, value_enum)]
    workload: Workload,
    #[arg(long, value_enum)]
    table: Name,
    #[arg(long, value_enum)]
    kind: Kind,
    #[arg(long, value_parser = parse_count)]
    entries: u64,
    #[arg(long, value_parser = parse_seconds)]
    seconds: f64,
}

/// Plans the measurement of bytes per entry, averaged while the number of entries doubles.
pub fn memory<'a>(context: Context<'a>, setting: &Setting) -> Vec<Job<'a>> {
    let setting = setting.clone();
    let names = candidates(context, &setting, true);
    let rounds = context.args.rounds.min(3);
    vec![Job::new(names.len() * rounds as usize, move |bar| {
        let comparisons = compare_several(
            [(setting.clone(), "bytes per entry")],
            &called(&names, &setting),
            rounds,
            bar,
            |candidate, round| {
                let findings = start_child(context, &setting, names[candidate], round, 1.0)?;
                let each = findings.resident.iter().map(|&(entries, bytes)| bytes as f64 / entries);
                Ok([Measured::single(each.sum::<f64>() / findings.resident.len() as f64)])
            },
        )?;
        Ok(comparisons.into())
    })]
}

/// Plans the measurement of the resident set while entries are replaced and a reader holds its
/// guard.
pub fn churn<'a>(context: Context<'a>, setting: &Setting) -> Vec<Job<'a>> {
    let setting = Setting { threads: 2, ..setting.clone() };
    let names = candidates(context, &setting, false);
    vec![Job::new(names.len(), move |bar| {
        let of = |metric, unit| (Setting { metric: Some(metric), ..setting.clone() }, unit);
        let metrics = [of(Metric::Growth, "end / start"), of(Metric::Peak, "MiB"), of(Metric::Operations, "ns")];
        let comparisons = compare_several(metrics, &called(&names, &setting), 1, bar, |candidate, round| {
            let seconds = context.args.seconds.unwrap_or(60.0);
            let findings = start_child(context, &setting, names[candidate], round, seconds)?;
            let peak = findings.resident.iter().map(|&(_, bytes)| bytes).max().unwrap_or(0);
            let nanoseconds = findings.nanoseconds.context("the measuring process reported no time")?;
            Ok([growth(&findings.resident)?, peak as f64 / 1_048_576.0, nanoseconds].map(Measured::single))
        })?;
        Ok(comparisons.into())
    })]
}

/// Returns the median of the last fifth of the samples divided by the median of the first fifth.
/// The first tenth is left out, because the table settles then.
fn growth(resident: &[(f64, u64)]) -> Result<f64> {
    let settled = &resident[resident.len() / 10..];
    let fifth = (settled.len() / 5).max(1);
    let median = |part: &[(f64, u64)]| Summary::of(part.iter().map(|&(_, bytes)| bytes as f64)).map(|s| s.median);
    let (first, last) = (settled.get(..fifth), settled.get(settled.len().saturating_sub(fifth)..));
    let medians = first.and_then(median).zip(last.and_then(median));
    let (first, last) = medians.context("too short to see whether memory grows: give more --seconds")?;
    Ok(last / first)
}

fn candidates(context: Context<'_>, setting: &Setting, may_be_unsynchronised: bool) -> Vec<Name> {
    let competitors = competitors(&context.args.tables, setting.kind, may_be_unsynchronised);
    [Name::Relativist].into_iter().chain(competitors).collect()
}

fn called(names: &[Name], setting: &Setting) -> Vec<&'static str> {
    names.iter().map(|name| name.make(setting.kind, 0).name()).collect()
}

fn start_child(context: Context<'_>, setting: &Setting, table: Name, round: usize, seconds: f64) -> Result<Findings> {
    let mut command = Command::new(current_exe().context("cannot find this program to start it again")?);
    command.args(["compare-child", "--workload", &spell(&setting.workload), "--table", &spell(&table)]);
    command.args(["--kind", &spell(&setting.kind), "--entries", &setting.entries.to_string()]);
    command.args(["--seconds", &seconds.to_string()]);
    #[cfg(target_os = "linux")]
    relativist_check::supervisor::tie(&mut command);
    let output = command.stderr(Stdio::inherit()).output().context("cannot start this program again")?;
    let name = table.make(setting.kind, 0).name();
    ensure!(output.status.success(), "{name}: the measuring process failed: {}", output.status);
    let findings: Findings =
        serde_json::from_slice(&output.stdout).context("cannot parse the output of the measuring process")?;
    let trace = Trace { setting: setting.clone(), name, round, findings: findings.clone() };
    context.traces.lock().expect("no thread panics while it holds this").push(trace);
    Ok(findings)
}

pub fn run(args: &Args) -> Result<()> {
    let mut memory = Memory::now()?;
    let findings = match args.workload {
        Workload::Churn => replace_entries(args, &mut memory)?,
        _ => double(args, &mut memory)?,
    };
    println!("{}", serde_json::to_string(&findings)?);
    Ok(())
}

/// Grows a table from empty to `entries`, and then to twice as many. Samples memory during the
/// second part.
fn double(args: &Args, memory: &mut Memory) -> Result<Findings> {
    let table = args.table.make(args.kind, 0);
    let mut resident = Vec::new();
    let mut present = 0;
    for look in 1..=SAMPLES {
        let entries = args.entries + args.entries * look / SAMPLES;
        ensure!(table.fill(&mut (present..entries)) == 0, "{}: refused keys that it did not hold", table.name());
        present = entries;
        resident.push((entries as f64, memory.grown()?));
    }
    Ok(Findings { resident, nanoseconds: None })
}

/// Runs two threads. One replaces half of the entries. The other one looks up the other half, and
/// holds each guard for `GUARD_TIME`.
fn replace_entries(args: &Args, memory: &mut Memory) -> Result<Findings> {
    let table = args.table.make(args.kind, 0);
    let staying = 0..args.entries / 2;
    let own = Mutex::new(Own::new(0, 0, args.entries - args.entries / 2));
    let wrong = table.fill(&mut staying.clone()) + table.fill(&mut own.lock().expect("not poisoned").present());
    ensure!(wrong == 0, "{}: refused keys that it did not hold", table.name());
    table.settle();
    let ways = std::sync::Arc::clone(&table).lookups();
    let reader = ways.iter().find(|way| way.name().contains("handle")).unwrap_or(&ways[0]);

    let window = Window::new(Duration::from_secs_f64(args.seconds));
    let (wrong, ended) = (AtomicU64::new(0), AtomicBool::new(false));
    // Relaxed, below: a count and a signal; results come back through joins.
    let count_wrong = |mistaken| wrong.fetch_add(mistaken, Ordering::Relaxed);
    let (results, resident) = thread::scope(|scope| {
        let watcher = scope.spawn(|| watch(memory, &ended, Duration::from_secs_f64(args.seconds / 200.0)));
        let results = run_workers(&Cpus::allowed(), 2, window, |thread| -> Box<dyn FnMut() -> u64> {
            let mut indices = Indices::new(staying.clone(), seed(0, thread));
            let (table, own, reader, count_wrong) = (&table, &own, &reader, &count_wrong);
            match thread {
                0 => Box::new(move || {
                    count_wrong(table.mix(CHURN, &mut own.lock().expect("not poisoned"), BATCH));
                    BATCH
                }),
                _ => Box::new(move || {
                    count_wrong(reader.linger(&mut indices, GUARD_TIME.min(Duration::from_secs_f64(args.seconds))));
                    1
                }),
            }
        });
        ended.store(true, Ordering::Relaxed);
        (results, watcher.join().expect("the watcher panicked"))
    });
    let wrong = wrong.into_inner();
    ensure!(wrong == 0, "{}: {wrong} operations returned a wrong result", table.name());
    Ok(Findings { resident: resident?, nanoseconds: Some(results[0].nanoseconds(Clock::Wall)) })
}

/// Samples memory until `ended` is set, and once more.
fn watch(memory: &mut Memory, ended: &AtomicBool, pause: Duration) -> Result<Vec<(f64, u64)>> {
    let began = Instant::now();
    let mut resident = Vec::new();
    loop {
        // Relaxed: a signal only.
        let last = ended.load(Ordering::Relaxed);
        resident.push((began.elapsed().as_secs_f64(), memory.grown()?));
        if last {
            return Ok(resident);
        }
        thread::sleep(pause);
    }
}

/// The resident set of this process.
pub struct Memory {
    system: System,
    before: u64,
}

impl Memory {
    pub fn now() -> Result<Self> {
        let mut memory = Self { system: System::new()?, before: 0 };
        // Measured twice, because the first measurement allocates.
        memory.before = memory.resident()?;
        memory.before = memory.resident()?;
        Ok(memory)
    }

    /// Returns by how many bytes the resident set has grown since the beginning.
    pub fn grown(&mut self) -> Result<u64> {
        Ok(self.resident()?.saturating_sub(self.before))
    }

    fn resident(&mut self) -> Result<u64> {
        let process = get_current_pid().map_err(anyhow::Error::msg)?;
        let only_memory = ProcessRefreshKind::nothing().with_memory();
        self.system.refresh_processes_specifics(ProcessesToUpdate::Some(&[process]), false, only_memory);
        Ok(self.system.process(process).context("the system does not report the resident set")?.memory())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn growth_is_that_of_the_end_over_the_start() {
        let flat: Vec<_> = (0..100).map(|second| (f64::from(second), if second < 10 { 1 } else { 500 })).collect();
        assert_eq!(growth(&flat).unwrap(), 1.0);
        let leaking: Vec<_> = (0..100).map(|second| (f64::from(second), 100 + second as u64)).collect();
        assert!((growth(&leaking).unwrap() - 190.5 / 118.5).abs() < 1e-9);
        assert!(growth(&[]).is_err());
    }

    #[test]
    fn memory_that_is_used_is_seen() {
        let mut memory = Memory::now().unwrap();
        let before = memory.grown().unwrap();
        let block = vec![1u8; 256 << 20];
        let grown = memory.grown().unwrap() - before;
        // Other tests of this process allocate and free at the same time.
        assert!(grown > 128 << 20, "{grown}");
        drop(block);
    }
}
