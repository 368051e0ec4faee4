//! `relativist-bench rcu` measures the costs of read sections, waiting and reclamation in
//! relativist-rcu and in its competitors.

mod crossbeam;
#[cfg(feature = "liburcu")]
mod liburcu;
mod ours;
mod scheme;
mod seize;

use std::fmt::Write;

use anyhow::Result;
use clap::{ValueEnum, value_parser};
use relativist_rcu::Barrier;
use serde::Serialize;

use crate::harness::comparison::{self, Comparison, Measured};
use crate::harness::options::{Output, Rounds, parse_count};
use crate::harness::report::{Report, count, threads};
use crate::harness::rounds::progress;
use crate::harness::workers::{Clock, Cpus, Window, run as run_workers};
use scheme::Scheme;

/// The number of read sections between two checks of the phase.
const BATCH: u64 = 1024;

/// Measure read sections, waiting for readers and reclamation, against crossbeam-epoch, seize and
/// liburcu
///
/// relativist-rcu is measured twice: the domain of the process, and a private domain.
///
/// Read sections: the time to enter and leave an outermost section, and a section inside another
/// one, with only a compiler barrier in between. Waiting: the time of wait_for_readers() and of
/// liburcu's synchronize_rcu(), with no thread in a section, and with a thread on another CPU that
/// enters and leaves sections without pause (crossbeam-epoch and seize have no such function).
/// Reclamation: the time to allocate and retire an object of 32 bytes (by defer_drop,
/// defer_destroy, retire or call_rcu), without and with the time until all objects have been freed.
///
/// Waiting and reclamation are always timed by elapsed time, because they include sleeping.
///
/// --barrier selects the read barrier of relativist-rcu for the whole process. To compare both, run
/// the command twice.
///
/// liburcu takes part if relativist-bench was built with --features liburcu, which needs Debian's
/// liburcu-dev. Its "memb" flavour is measured, inlined into loops in C.
#[derive(Debug, clap::Args, Serialize)]
pub struct Args {
    /// Read barrier of relativist-rcu
    #[arg(long, value_enum, default_value_t = ReadBarrier::Membarrier)]
    barrier: ReadBarrier,

    /// Objects retired in each measurement of reclamation
    #[arg(long, default_value = "1_000_000", value_parser = parse_count)]
    objects: u64,

    #[command(flatten)]
    #[serde(flatten)]
    rounds: Rounds,

    /// Rounds for measuring reclamation
    #[arg(long, default_value_t = 5, value_parser = value_parser!(u32).range(1..=10_000))]
    reclaim_rounds: u32,

    #[command(flatten)]
    #[serde(skip)]
    output: Output,
}

/// Which side pays for the ordering between readers and the threads that wait for them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize)]
#[serde(rename_all = "lowercase")]
enum ReadBarrier {
    /// The waiting thread runs a barrier on all CPUs, by the membarrier system call
    Membarrier,
    /// Every reader executes a fence when it enters a section
    Fence,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
enum Section {
    Outermost,
    Nested,
}

#[derive(Clone, Copy, Debug, Serialize)]
struct SectionSetting {
    section: Section,
    threads: u16,
}

#[derive(Clone, Copy, Debug, Serialize)]
struct WaitSetting {
    busy_readers: u16,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
enum Until {
    Retired,
    Freed,
}

#[derive(Clone, Copy, Debug, Serialize)]
struct ReclaimSetting {
    until: Until,
    objects: u64,
}

#[derive(Debug, Serialize)]
struct Results {
    sections: Vec<Comparison<SectionSetting>>,
    waits: Vec<Comparison<WaitSetting>>,
    reclamation: Vec<Comparison<ReclaimSetting>>,
}

pub fn run(args: &Args) -> Result<()> {
    let cpus = Cpus::allowed();
    relativist_rcu::set_barrier(match args.barrier {
        ReadBarrier::Membarrier => Barrier::Membarrier,
        ReadBarrier::Fence => Barrier::Fence,
    })?;
    // At least two threads: one waits while another one reads.
    let mut report = Report::begin("rcu", args.output.json.as_deref(), &cpus, args.rounds.max_threads().max(2))?;
    let schemes = schemes();
    let results = Results {
        sections: measure_sections(args, &cpus, &schemes)?,
        waits: measure_waits(args, &cpus, &schemes)?,
        reclamation: measure_reclamation(args, &schemes)?,
    };
    report.warn_of_preemption(results.sections.iter().flat_map(Comparison::cpu_shares));
    let text = describe(args, &results)?;
    report.finish(args, &results, &text)
}

/// Returns every scheme in this build, ours first.
fn schemes() -> Vec<Box<dyn Scheme>> {
    vec![
        Box::new(ours::RelativistRcu),
        Box::new(ours::PrivateDomain::new()),
        Box::new(crossbeam::CrossbeamEpoch),
        Box::new(seize::Seize::new()),
        #[cfg(feature = "liburcu")]
        Box::new(liburcu::Liburcu),
    ]
}

fn names(schemes: &[Box<dyn Scheme>]) -> Vec<&'static str> {
    schemes.iter().map(|scheme| scheme.name()).collect()
}

fn measure_sections(args: &Args, cpus: &Cpus, schemes: &[Box<dyn Scheme>]) -> Result<Vec<Comparison<SectionSetting>>> {
    let settings = args.rounds.threads.len() * 2;
    let bar = progress(settings * schemes.len() * args.rounds.rounds as usize);
    let mut comparisons = Vec::new();
    for section in [Section::Outermost, Section::Nested] {
        for &threads in &args.rounds.threads {
            let one = |index: usize, _| {
                let scheme = &*schemes[index];
                let results = run_workers(cpus, threads.into(), args.rounds.window(), |_| {
                    move || {
                        match section {
                            Section::Outermost => scheme.sections(BATCH),
                            Section::Nested => scheme.nested_sections(BATCH),
                        }
                        BATCH
                    }
                });
                Ok(Measured::of(&results, args.rounds.clock))
            };
            let setting = SectionSetting { section, threads };
            comparisons.push(comparison::compare(setting, &names(schemes), args.rounds.rounds, &bar, one)?);
        }
    }
    bar.finish_and_clear();
    Ok(comparisons)
}

fn measure_waits(args: &Args, cpus: &Cpus, schemes: &[Box<dyn Scheme>]) -> Result<Vec<Comparison<WaitSetting>>> {
    let waiting: Vec<_> = schemes.iter().filter_map(|scheme| Some((scheme, scheme.wait()?))).collect();
    let names: Vec<_> = waiting.iter().map(|(scheme, _)| scheme.name()).collect();
    let bar = progress(2 * waiting.len() * args.rounds.rounds as usize);
    let mut comparisons = Vec::new();
    for busy_readers in [0, 1] {
        let one = |index: usize, _| {
            let (scheme, wait) = &waiting[index];
            let nanoseconds = wait_once(cpus, args.rounds.window(), &***scheme, *wait, busy_readers);
            Ok(Measured::single(nanoseconds))
        };
        comparisons.push(comparison::compare(WaitSetting { busy_readers }, &names, args.rounds.rounds, &bar, one)?);
    }
    bar.finish_and_clear();
    Ok(comparisons)
}

/// Returns the elapsed nanoseconds per wait of one thread, while others enter and leave sections.
fn wait_once(cpus: &Cpus, window: Window, scheme: &dyn Scheme, wait: fn(), busy_readers: u16) -> f64 {
    let results = run_workers(cpus, usize::from(busy_readers) + 1, window, |thread| {
        move || {
            if thread == 0 {
                wait();
                1
            } else {
                scheme.sections(BATCH);
                BATCH
            }
        }
    });
    results[0].nanoseconds(Clock::Wall)
}

/// Measures on the main thread, which is not pinned, because the reclaiming threads that schemes
/// start inherit the CPUs of the thread that starts them.
fn measure_reclamation(args: &Args, schemes: &[Box<dyn Scheme>]) -> Result<Vec<Comparison<ReclaimSetting>>> {
    let bar = progress(2 * schemes.len() * args.reclaim_rounds as usize);
    let mut comparisons = Vec::new();
    for until in [Until::Retired, Until::Freed] {
        let one = |index: usize, _| {
            let times = schemes[index].reclaim(args.objects, None);
            let time = if until == Until::Retired { times.retired } else { times.freed };
            Ok(Measured::single(time.as_secs_f64() * 1e9 / args.objects as f64))
        };
        let setting = ReclaimSetting { until, objects: args.objects };
        comparisons.push(comparison::compare(setting, &names(schemes), args.reclaim_rounds, &bar, one)?);
    }
    bar.finish_and_clear();
    Ok(comparisons)
}

fn describe(args: &Args, results: &Results) -> Result<String> {
    let mut text = String::new();
    writeln!(
        text,
        "Nanoseconds: median (range) over {} rounds, ratio to relativist-rcu round by round. Its barrier: {:?}.",
        args.rounds.rounds,
        relativist_rcu::active_barrier()
    )?;
    let label = |setting: SectionSetting| {
        let section = if setting.section == Section::Outermost { "enter + leave" } else { "nested enter + leave" };
        format!("{section}, {}", threads(setting.threads))
    };
    let columns: Vec<_> = results.sections.iter().map(|comparison| (label(comparison.setting), comparison)).collect();
    writeln!(text, "\n{}", comparison::overview("per read section", &columns))?;

    let label = |busy| if busy == 0 { "no readers" } else { "a busy reader on another CPU" };
    let columns: Vec<_> = results
        .waits
        .iter()
        .map(|comparison| (label(comparison.setting.busy_readers).to_owned(), comparison))
        .collect();
    writeln!(text, "{}", comparison::overview("per wait for readers", &columns))?;
    writeln!(text, "crossbeam-epoch and seize have no function that waits for readers.\n")?;

    let label = |until| if until == Until::Retired { "allocate + retire" } else { "allocate + retire + free all" };
    let columns: Vec<_> =
        results.reclamation.iter().map(|comparison| (label(comparison.setting.until).to_owned(), comparison)).collect();
    let corner = format!("per object of 32 bytes ({} of them)", count(args.objects));
    write!(text, "{}", comparison::overview(&corner, &columns))?;
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::scheme::Object;
    use super::*;
    use std::sync::Mutex;
    use std::sync::atomic::{AtomicU64, Ordering};

    /// Freed objects are counted in one static, so schemes are tested one at a time.
    static FREED: AtomicU64 = AtomicU64::new(0);
    static COUNTING: Mutex<()> = Mutex::new(());

    #[test]
    fn every_scheme_frees_every_object_before_it_says_so() {
        let _alone = COUNTING.lock().unwrap();
        for scheme in schemes() {
            for objects in [1, 10, 5000] {
                FREED.store(0, Ordering::SeqCst);
                let times = scheme.reclaim(objects, Some(&FREED));
                assert_eq!(FREED.load(Ordering::SeqCst), objects, "{}", scheme.name());
                assert!(times.retired <= times.freed);
            }
        }
    }

    #[test]
    fn objects_have_the_size_that_is_reported() {
        assert_eq!(size_of::<Object>(), 32);
    }

    #[test]
    fn sections_leave_nothing_open() {
        for scheme in schemes() {
            scheme.sections(10);
            scheme.nested_sections(10);
            if let Some(wait) = scheme.wait() {
                wait();
            }
        }
        assert!(!relativist_rcu::is_reading());
    }

    #[test]
    fn ours_comes_first() {
        assert_eq!(schemes()[0].name(), "relativist-rcu");
    }
}
