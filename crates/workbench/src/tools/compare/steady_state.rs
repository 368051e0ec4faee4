//! Works that go on for as long as one likes, on tables that stay from round to round.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use anyhow::{Result, ensure};
use indicatif::ProgressBar;

use crate::harness::comparison::{Measured, hold};
use crate::harness::keys::{ABSENT, Indices, seed};
use crate::harness::sampling::{Distribution, Draws, Samples};
use crate::harness::workers::run;
use crate::tables::candidate::{BATCH, Contender, HarnessAlone, Lookups};
use crate::tools::compare::candidates::{Name, groups, rivals};
use crate::tools::compare::setting::{Setting, Work};
use crate::tools::compare::{Context, Job};

/// Lookups that hit, or that miss.
pub fn lookups<'a>(context: Context<'a>, setting: &Setting) -> Vec<Job<'a>> {
    let Setting { work, kind, entries, .. } = *setting;
    let rivals = rivals(&context.args.tables, kind, true);
    let jobs = groups(&rivals, kind, entries, context.memory).into_iter().enumerate().map(|(group, rivals)| {
        let names = with_ours(rivals);
        let setting = Setting { group, ..setting.clone() };
        let contenders: usize = names.iter().map(|name| name.make(kind, 0).lookups().len()).sum();
        let contenders = contenders + usize::from(group == 0);
        let measurements = contenders * context.args.threads.len() * context.args.rounds as usize;
        Job::new(measurements, move |bar| {
            let tables = filled(context, &names, &setting, bar, |index| index)?;
            let mut contenders: Vec<Arc<dyn Lookups>> = tables.into_iter().flat_map(Contender::lookups).collect();
            if group == 0 {
                contenders.push(Arc::new(HarnessAlone));
            }
            let names: Vec<_> = contenders.iter().map(|contender| contender.name()).collect();
            let range = if work == Work::Hit { 0..entries } else { ABSENT..ABSENT + entries };
            let contests = context.args.threads.iter().map(|&threads| {
                let setting = Setting { threads, ..setting.clone() };
                hold(setting, &names, context.args.rounds, bar, |contender, round| {
                    let contender = &contenders[contender];
                    in_window(context, threads, contender.name(), |thread| {
                        let mut indices = Indices::new(range.clone(), seed(round, thread));
                        move || {
                            let wrong = match work {
                                Work::Hit => contender.hits(&mut indices),
                                _ => contender.misses(&mut indices),
                            };
                            (BATCH, wrong)
                        }
                    })
                })
            });
            contests.collect()
        })
    });
    jobs.collect()
}

/// ParlayHash's matrix. Indices are drawn from `0..2 * entries`; in the beginning the even ones are present, later whichever
/// half the updates leave.
pub fn matrix<'a>(context: Context<'a>, setting: &Setting) -> Vec<Job<'a>> {
    let Setting { kind, entries, .. } = *setting;
    let args = context.args;
    let all = rivals(&args.tables, kind, args.threads.contains(&1));
    let jobs = groups(&all, kind, entries, context.memory).into_iter().enumerate().map(|(group, rivals)| {
        let names = with_ours(rivals);
        let cells = args.distributions.len() * args.updates.len();
        let per_cell: usize = args.threads.iter().map(|&threads| taking_part(&names, threads).count()).sum();
        let setting = Setting { group, ..setting.clone() };
        Job::new(per_cell * cells * args.rounds as usize, move |bar| {
            let tables = filled(context, &names, &setting, bar, |index| 2 * index)?;
            let mut contests = Vec::new();
            for &distribution in &args.distributions {
                let samples = (distribution == Distribution::Zipf).then(|| Samples::zipf(2 * entries));
                for &percent in &args.updates {
                    for &threads in &args.threads {
                        let (distribution, updates_percent) = (Some(distribution), Some(percent));
                        let setting = Setting { threads, distribution, updates_percent, ..setting.clone() };
                        let tables: Vec<_> = taking_part(&names, threads).map(|place| &tables[place]).collect();
                        let names: Vec<_> = tables.iter().map(|table| table.name()).collect();
                        contests.push(hold(setting, &names, args.rounds, bar, |contender, round| {
                            let table = &tables[contender];
                            in_window(context, threads, table.name(), |thread| {
                                let seed = seed(round, thread);
                                let mut draws = Draws::new(0..2 * entries, samples.as_ref(), percent, seed);
                                move || (BATCH, table.batch(&mut draws))
                            })
                        })?);
                    }
                }
            }
            Ok(contests)
        })
    });
    jobs.collect()
}

/// Iteration over all entries.
pub fn iterate<'a>(context: Context<'a>, setting: &Setting) -> Vec<Job<'a>> {
    let Setting { kind, entries, .. } = *setting;
    let args = context.args;
    let all = rivals(&args.tables, kind, args.threads.contains(&1));
    let jobs = groups(&all, kind, entries, context.memory).into_iter().enumerate().map(|(group, rivals)| {
        let names = with_ours(rivals);
        let contenders: usize = args.threads.iter().map(|&threads| taking_part(&names, threads).count()).sum();
        let setting = Setting { group, ..setting.clone() };
        Job::new(contenders * args.rounds as usize, move |bar| {
            let tables = filled(context, &names, &setting, bar, |index| index)?;
            let expected = (entries, (0..entries).sum());
            let contests = args.threads.iter().map(|&threads| {
                let setting = Setting { threads, ..setting.clone() };
                let tables: Vec<_> = taking_part(&names, threads).map(|place| &tables[place]).collect();
                let names: Vec<_> = tables.iter().map(|table| table.name()).collect();
                hold(setting, &names, args.rounds, bar, |contender, _| {
                    let table = &tables[contender];
                    in_window(context, threads, table.name(), |_| {
                        move || (entries, u64::from(table.iterate() != expected))
                    })
                })
            });
            contests.collect()
        })
    });
    jobs.collect()
}

/// The places of those that may be used by so many threads.
fn taking_part(names: &[Name], threads: u16) -> impl Iterator<Item = usize> {
    (0..names.len()).filter(move |&place| threads == 1 || names[place].is_synchronised())
}

fn with_ours(rivals: Vec<Name>) -> Vec<Name> {
    [Name::Relativist].into_iter().chain(rivals).collect()
}

/// The tables, each with the entries whose indices are `index_of` 0, 1, and so on, inserted in that order by one thread.
fn filled(
    context: Context<'_>,
    names: &[Name],
    setting: &Setting,
    bar: &ProgressBar,
    index_of: impl Fn(u64) -> u64,
) -> Result<Vec<Arc<dyn Contender>>> {
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

/// Measures one contender. `worker(thread)` returns a batch, which says how many operations it did, and how many gave a wrong
/// answer.
fn in_window<B: FnMut() -> (u64, u64)>(
    context: Context<'_>,
    threads: u16,
    name: &str,
    worker: impl Fn(usize) -> B + Sync,
) -> Result<Measured> {
    let wrong = AtomicU64::new(0);
    let works = run(context.cpus, threads.into(), context.window(), |thread| {
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
    ensure!(wrong == 0, "{name}: {wrong} operations gave a wrong answer");
    Ok(Measured::of(&works, context.args.clock))
}
