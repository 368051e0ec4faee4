//! Workloads without a natural end, on tables that are kept from round to round.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use anyhow::{Result, ensure};
use indicatif::ProgressBar;

use crate::harness::comparison::{Measured, compare};
use crate::harness::keys::{ABSENT, Indices, seed};
use crate::harness::sampling::{Distribution, Draws, Samples};
use crate::harness::workers::run;
use crate::tables::candidate::{BATCH, Candidate, HarnessAlone, Lookups};
use crate::tools::compare::candidates::{Name, competitors, groups};
use crate::tools::compare::setting::{Setting, Workload};
use crate::tools::compare::{Context, Job};

/// Plans lookups that hit, or that miss.
pub fn lookups<'a>(context: Context<'a>, setting: &Setting) -> Vec<Job<'a>> {
    let Setting { workload, kind, entries, .. } = *setting;
    let competitors = competitors(&context.args.tables, kind, true);
    let jobs =
        groups(&competitors, kind, entries, context.memory).into_iter().enumerate().map(|(group, competitors)| {
            let names = with_ours(competitors);
            let setting = Setting { group, ..setting.clone() };
            let candidates: usize = names.iter().map(|name| name.make(kind, 0).lookups().len()).sum();
            let candidates = candidates + usize::from(group == 0);
            let measurements = candidates * context.args.threads.len() * context.args.rounds as usize;
            Job::new(measurements, move |bar| {
                let tables = filled(context, &names, &setting, bar, |index| index)?;
                let mut candidates: Vec<Arc<dyn Lookups>> = tables.into_iter().flat_map(Candidate::lookups).collect();
                if group == 0 {
                    candidates.push(Arc::new(HarnessAlone));
                }
                let names: Vec<_> = candidates.iter().map(|candidate| candidate.name()).collect();
                let range = if workload == Workload::Hit { 0..entries } else { ABSENT..ABSENT + entries };
                let comparisons = context.args.threads.iter().map(|&threads| {
                    let setting = Setting { threads, ..setting.clone() };
                    compare(setting, &names, context.args.rounds, bar, |candidate, round| {
                        let candidate = &candidates[candidate];
                        in_window(context, threads, candidate.name(), |thread| {
                            let mut indices = Indices::new(range.clone(), seed(round, thread));
                            move || {
                                let wrong = match workload {
                                    Workload::Hit => candidate.hits(&mut indices),
                                    _ => candidate.misses(&mut indices),
                                };
                                (BATCH, wrong)
                            }
                        })
                    })
                });
                comparisons.collect()
            })
        });
    jobs.collect()
}

/// Plans ParlayHash's matrix. Indices are drawn from `0..2 * entries`. At first the even ones are
/// present, later a random half.
pub fn matrix<'a>(context: Context<'a>, setting: &Setting) -> Vec<Job<'a>> {
    let Setting { kind, entries, .. } = *setting;
    let args = context.args;
    let all = competitors(&args.tables, kind, args.threads.contains(&1));
    let jobs = groups(&all, kind, entries, context.memory).into_iter().enumerate().map(|(group, competitors)| {
        let names = with_ours(competitors);
        let cells = args.distributions.len() * args.updates.len();
        let per_cell: usize = args.threads.iter().map(|&threads| taking_part(&names, threads).count()).sum();
        let setting = Setting { group, ..setting.clone() };
        Job::new(per_cell * cells * args.rounds as usize, move |bar| {
            let tables = filled(context, &names, &setting, bar, |index| 2 * index)?;
            let mut comparisons = Vec::new();
            for &distribution in &args.distributions {
                let samples = (distribution == Distribution::Zipf).then(|| Samples::zipf(2 * entries));
                for &percent in &args.updates {
                    for &threads in &args.threads {
                        let (distribution, updates_percent) = (Some(distribution), Some(percent));
                        let setting = Setting { threads, distribution, updates_percent, ..setting.clone() };
                        let tables: Vec<_> = taking_part(&names, threads).map(|place| &tables[place]).collect();
                        let names: Vec<_> = tables.iter().map(|table| table.name()).collect();
                        comparisons.push(compare(setting, &names, args.rounds, bar, |candidate, round| {
                            let table = &tables[candidate];
                            in_window(context, threads, table.name(), |thread| {
                                let seed = seed(round, thread);
                                let mut draws = Draws::new(0..2 * entries, samples.as_ref(), percent, seed);
                                move || (BATCH, table.batch(&mut draws))
                            })
                        })?);
                    }
                }
            }
            Ok(comparisons)
        })
    });
    jobs.collect()
}

pub fn iterate<'a>(context: Context<'a>, setting: &Setting) -> Vec<Job<'a>> {
    let Setting { kind, entries, .. } = *setting;
    let args = context.args;
    let all = competitors(&args.tables, kind, args.threads.contains(&1));
    let jobs = groups(&all, kind, entries, context.memory).into_iter().enumerate().map(|(group, competitors)| {
        let names = with_ours(competitors);
        let candidates: usize = args.threads.iter().map(|&threads| taking_part(&names, threads).count()).sum();
        let setting = Setting { group, ..setting.clone() };
        Job::new(candidates * args.rounds as usize, move |bar| {
            let tables = filled(context, &names, &setting, bar, |index| index)?;
            let expected = (entries, (0..entries).sum());
            let comparisons = args.threads.iter().map(|&threads| {
                let setting = Setting { threads, ..setting.clone() };
                let tables: Vec<_> = taking_part(&names, threads).map(|place| &tables[place]).collect();
                let names: Vec<_> = tables.iter().map(|table| table.name()).collect();
                compare(setting, &names, args.rounds, bar, |candidate, _| {
                    let table = &tables[candidate];
                    in_window(context, threads, table.name(), |_| {
                        move || (entries, u64::from(table.iterate() != expected))
                    })
                })
            });
            comparisons.collect()
        })
    });
    jobs.collect()
}

/// Returns the positions of the tables that this number of threads may use.
fn taking_part(names: &[Name], threads: u16) -> impl Iterator<Item = usize> {
    (0..names.len()).filter(move |&place| threads == 1 || names[place].is_synchronised())
}

fn with_ours(competitors: Vec<Name>) -> Vec<Name> {
    [Name::Relativist].into_iter().chain(competitors).collect()
}

/// Makes the tables. One thread fills each with the entries that have the indices `index_of(0)`,
/// `index_of(1)`, and so on, in this order.
fn filled(
    context: Context<'_>,
    names: &[Name],
    setting: &Setting,
    bar: &ProgressBar,
    index_of: impl Fn(u64) -> u64,
) -> Result<Vec<Arc<dyn Candidate>>> {
    let fill = |name: &Name| {
        let table = name.make(setting.kind, context.capacity(setting.entries));
        bar.set_message(format!("filling {}", table.name()));
        let wrong = table.fill(&mut (0..setting.entries).map(&index_of));
        ensure!(wrong == 0, "{}: refused {wrong} keys that it did not hold", table.name());
        table.settle();
        Ok(table)
    };
    names.iter().map(fill).collect()
}

/// Measures one candidate. `worker(thread)` returns a batch, which returns the numbers of
/// operations and of wrong results.
fn in_window<B: FnMut() -> (u64, u64)>(
    context: Context<'_>,
    threads: u16,
    name: &str,
    worker: impl Fn(usize) -> B + Sync,
) -> Result<Measured> {
    let wrong = AtomicU64::new(0);
    let results = run(context.cpus, threads.into(), context.window(), |thread| {
        let mut batch = worker(thread);
        let wrong = &wrong;
        move || {
            let (operations, mistaken) = batch();
            if mistaken != 0 {
                // Relaxed: a count, read after the workers have been joined.
                wrong.fetch_add(mistaken, Ordering::Relaxed);
            }
            operations
        }
    });
    let wrong = wrong.into_inner();
    ensure!(wrong == 0, "{name}: {wrong} operations returned a wrong result");
    Ok(Measured::of(&results, context.args.clock))
}
