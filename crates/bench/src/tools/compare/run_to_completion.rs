//! Workloads that run to completion. A table is made for each measurement, and only one exists at a
//! time.
//!
//! The reported time is that of the slowest thread, because it is the time of the whole task. It is
//! divided by the number of that thread's operations. Background work of a table has to end before
//! the next table is made.

use std::ops::Range;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use anyhow::{Result, ensure};

use crate::harness::comparison::{Comparison, Measured, compare, compare_several};
use crate::harness::latency::{Latencies, Percentiles, time_nothing};
use crate::harness::workers::run_to_completion;
use crate::tables::candidate::Candidate;
use crate::tables::mixes::{MIXES, Own};
use crate::tools::compare::candidates::{Name, competitors};
use crate::tools::compare::setting::{Metric, Setting};
use crate::tools::compare::{Context, Job};

/// Plans conc-map-bench's mixes. The number of operations is `entries`.
pub fn mixes<'a>(context: Context<'a>, setting: &Setting) -> Vec<Job<'a>> {
    let jobs = MIXES.iter().flat_map(|&mix| {
        let setting = Setting { mix: Some(mix.name), ..setting.clone() };
        per_threads(context, &setting, move |setting, table| {
            let each = setting.entries / u64::from(setting.threads);
            let owns = (0..setting.threads.into())
                .map(|thread| Mutex::new(Own::new(0, thread, each / 4 * u64::from(mix.prefilled_quarters))));
            let owns: Vec<Mutex<Own>> = owns.collect();
            for own in &owns {
                fill(table, own.lock().expect("no worker panics").present())?;
            }
            table.settle();
            measure(context, setting, table, |thread| {
                let mut own = owns[thread].lock().expect("no worker panics");
                (each, table.mix(mix, &mut own, each))
            })
        })
    });
    jobs.collect()
}

pub fn grow<'a>(context: Context<'a>, setting: &Setting) -> Vec<Job<'a>> {
    per_threads(context, setting, move |setting, table| {
        measure(context, setting, table, |thread| {
            let share = share(setting, thread);
            (share.end - share.start, table.fill(&mut share.into_iter()))
        })
    })
}

/// Plans the removal of all keys one by one, in the order in which they were inserted.
pub fn remove<'a>(context: Context<'a>, setting: &Setting) -> Vec<Job<'a>> {
    per_threads_with_capacity(context, setting, context.capacity(setting.entries), move |setting, table| {
        fill(table, 0..setting.entries)?;
        table.settle();
        measure(context, setting, table, |thread| {
            let share = share(setting, thread);
            (share.end - share.start, table.remove(share))
        })
    })
}

pub fn clear<'a>(context: Context<'a>, setting: &Setting) -> Vec<Job<'a>> {
    let capacity = context.capacity(setting.entries);
    vec![job(context, setting.clone(), capacity, move |setting, table| {
        fill(table, 0..setting.entries)?;
        table.settle();
        let measured = measure(context, setting, table, |_| {
            table.clear();
            (setting.entries, 0)
        })?;
        ensure!(table.iterate().0 == 0, "{}: not empty after it was cleared", table.name());
        Ok(measured)
    })]
}

/// Plans latencies of single insertions, while the table grows from empty.
pub fn latencies<'a>(context: Context<'a>, setting: &Setting) -> Vec<Job<'a>> {
    let args = context.args;
    let jobs = args.threads.iter().map(|&threads| {
        let setting = Setting { threads, ..setting.clone() };
        let names = candidates(context, &setting);
        Job::new((names.len() + 1) * args.rounds as usize, move |bar| {
            let mut called: Vec<_> = names.iter().map(|name| name.make(setting.kind, 0).name()).collect();
            called.push("harness alone");
            let of = |metric, unit| (Setting { metric: Some(metric), ..setting.clone() }, unit);
            let metrics = [
                of(Metric::P50, "ns per insertion"),
                of(Metric::P99, "ns per insertion"),
                of(Metric::P999, "ns per insertion"),
                of(Metric::P9999, "ns per insertion"),
                of(Metric::Longest, "us per insertion"),
                of(Metric::LongestScheduled, "us per insertion"),
            ];
            let comparisons = compare_several(metrics, &called, args.rounds, bar, |candidate, _| {
                let latencies = match names.get(candidate) {
                    Some(name) => insert_timed(context, &setting, *name)?,
                    None => timed(context, &setting, |share, latencies| {
                        time_nothing(share.end - share.start, latencies);
                        0
                    })?,
                };
                let found = latencies.percentiles();
                // If the system does not report the time without a CPU, it cannot be subtracted.
                let scheduled = found.longest_scheduled.unwrap_or(found.longest);
                let Percentiles { p50, p99, p999, p9999, longest, .. } = found;
                let values = [p50, p99, p999, p9999, longest / 1e3, scheduled / 1e3];
                Ok(values.map(Measured::single))
            })?;
            Ok(comparisons.into())
        })
    });
    jobs.collect()
}

fn insert_timed(context: Context<'_>, setting: &Setting, name: Name) -> Result<Latencies> {
    let table = name.make(setting.kind, 0);
    let latencies = timed(context, setting, |share, latencies| table.fill_timed(share, latencies))?;
    table.settle();
    Ok(latencies)
}

/// Runs threads that each do their share, and returns the latencies of all operations.
fn timed(
    context: Context<'_>,
    setting: &Setting,
    workload: impl Fn(Range<u64>, &mut Latencies) -> u64 + Sync,
) -> Result<Latencies> {
    let total = Mutex::new(Latencies::new());
    let wrong = AtomicU64::new(0);
    run_to_completion(context.cpus, setting.threads.into(), |thread| {
        let share = share(setting, thread);
        let count = share.end - share.start;
        let mut latencies = Latencies::new();
        // Relaxed: a count, read after the threads have been joined.
        wrong.fetch_add(workload(share, &mut latencies), Ordering::Relaxed);
        total.lock().expect("no worker panics").add(&latencies);
        count
    });
    let wrong = wrong.into_inner();
    ensure!(wrong == 0, "{wrong} operations returned a wrong result");
    Ok(total.into_inner().expect("no worker panics"))
}

/// Returns the candidates under `setting`, ours first.
fn candidates(context: Context<'_>, setting: &Setting) -> Vec<Name> {
    let competitors = competitors(&context.args.tables, setting.kind, setting.threads == 1);
    [Name::Relativist].into_iter().chain(competitors).collect()
}

fn per_threads<'a>(
    context: Context<'a>,
    setting: &Setting,
    run: impl Fn(&Setting, &dyn Candidate) -> Result<Measured> + Copy + 'a,
) -> Vec<Job<'a>> {
    per_threads_with_capacity(context, setting, 0, run)
}

fn per_threads_with_capacity<'a>(
    context: Context<'a>,
    setting: &Setting,
    capacity: usize,
    run: impl Fn(&Setting, &dyn Candidate) -> Result<Measured> + Copy + 'a,
) -> Vec<Job<'a>> {
    let with = |&threads: &u16| job(context, Setting { threads, ..setting.clone() }, capacity, run);
    context.args.threads.iter().map(with).collect()
}

/// Makes a job with one comparison, in which `run` measures a new table.
fn job<'a>(
    context: Context<'a>,
    setting: Setting,
    capacity: usize,
    run: impl Fn(&Setting, &dyn Candidate) -> Result<Measured> + 'a,
) -> Job<'a> {
    let names = candidates(context, &setting);
    let rounds = context.args.rounds;
    Job::new(names.len() * rounds as usize, move |bar| {
        let called: Vec<_> = names.iter().map(|name| name.make(setting.kind, 0).name()).collect();
        let comparison: Comparison<Setting> = compare(setting.clone(), &called, rounds, bar, |candidate, _| {
            let table = names[candidate].make(setting.kind, capacity);
            let measured = run(&setting, table.as_ref())?;
            table.settle();
            Ok(measured)
        })?;
        Ok(vec![comparison])
    })
}

/// Measures threads that each do their share, and return the numbers of operations and of wrong
/// results.
fn measure(
    context: Context<'_>,
    setting: &Setting,
    table: &dyn Candidate,
    part: impl Fn(usize) -> (u64, u64) + Sync,
) -> Result<Measured> {
    let wrong = AtomicU64::new(0);
    let results = run_to_completion(context.cpus, setting.threads.into(), |thread| {
        let (operations, mistaken) = part(thread);
        // Relaxed: a count, read after the threads have been joined.
        wrong.fetch_add(mistaken, Ordering::Relaxed);
        operations
    });
    let wrong = wrong.into_inner();
    ensure!(wrong == 0, "{}: {wrong} operations returned a wrong result", table.name());
    Ok(Measured::of_slowest(&results, context.args.clock))
}

fn fill(table: &dyn Candidate, indices: Range<u64>) -> Result<()> {
    let wrong = table.fill(&mut { indices });
    ensure!(wrong == 0, "{}: refused {wrong} keys that it did not hold", table.name());
    Ok(())
}

/// Returns the share of `thread` in `0..entries`.
fn share(setting: &Setting, thread: usize) -> Range<u64> {
    let (threads, thread) = (u64::from(setting.threads), thread as u64);
    setting.entries * thread / threads..setting.entries * (thread + 1) / threads
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tables::entries::Kind;
    use crate::tools::compare::setting::Workload;

    #[test]
    fn shares_are_the_whole() {
        let setting = Setting { threads: 3, ..Setting::new(Workload::Grow, Kind::U64, 100) };
        assert_eq!([0, 1, 2].map(|thread| share(&setting, thread)), [0..33, 33..66, 66..100]);
    }
}
