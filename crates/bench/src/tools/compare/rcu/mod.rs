//! Read sections, waiting for readers, and reclamation.

#[cfg(feature = "liburcu")]
mod liburcu;
mod schemes;

use anyhow::Result;
use clap::ValueEnum;
use relativist_rcu::Barrier;
use serde::Serialize;

use super::job::{Context, Job, Setting, titles};
use super::{Entry, Subject, Work, work};
use crate::harness::comparison::Measured;
use crate::harness::report::Report;
use crate::harness::workers::{Clock, run as run_workers};
use schemes::{CROSSBEAM, PRIVATE, RELATIVIST, SEIZE, Scheme};

/// The number of read sections between two checks of the phase.
const BATCH: u64 = 1024;

#[derive(Debug, clap::Args, Serialize)]
pub struct RcuOptions {
    /// Read barrier of relativist-rcu in the whole process. To compare both, run the command twice
    #[arg(long, value_enum, default_value_t = ReadBarrier::Membarrier)]
    barrier: ReadBarrier,
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

#[derive(Clone, Copy, Debug)]
pub struct Rcu;

const fn scheme(name: &'static str, title: &'static str, what: Scheme) -> Entry<Scheme> {
    Entry { name, title, what }
}

impl Subject for Rcu {
    const NAME: &'static str = "rcu";
    const MIN_ENTRIES: u64 = 1;
    type Candidate = Scheme;
    const CANDIDATES: &'static [Entry<Scheme>] = &[
        scheme("relativist", "relativist-rcu", RELATIVIST),
        scheme("private", "relativist-rcu, private domain", PRIVATE),
        scheme("crossbeam", "crossbeam-epoch", CROSSBEAM),
        scheme("seize", "seize", SEIZE),
        #[cfg(feature = "liburcu")]
        scheme("liburcu", "liburcu (memb)", liburcu::LIBURCU),
    ];
    const WORKLOADS: &'static [Entry<Work<Self>>] = &[
        work("section", "Entering and leaving a read section", &[], |context, setting| {
            sections(context, setting, |scheme| scheme.sections)
        }),
        work("nested", "The same inside another section", &[], |context, setting| {
            sections(context, setting, |scheme| scheme.nested)
        }),
        work("wait", "Waiting for readers", &[], waits),
        work("reclaim", "Allocating and retiring objects of 32 bytes", &[1_000_000], reclaim),
    ];
    type Options = RcuOptions;

    fn begin(context: Context<'_, Self>, _: &mut Report) -> Result<()> {
        relativist_rcu::set_barrier(match context.options.more.barrier {
            ReadBarrier::Membarrier => Barrier::Membarrier,
            ReadBarrier::Fence => Barrier::Fence,
        })?;
        Ok(())
    }

    fn takes_part(scheme: &Scheme, setting: &Setting) -> bool {
        setting.workload != "wait" || scheme.wait.is_some()
    }
}

fn sections<'a>(
    context: Context<'a, Rcu>,
    setting: &Setting,
    enter_and_leave: fn(&Scheme) -> fn(u64),
) -> Result<Vec<Job<'a>>> {
    let job = |setting: Setting| {
        let candidates = context.candidates(&setting);
        Job::new(setting.clone(), titles(&candidates), context.options.rounds, move |candidate, _| {
            let sections = enter_and_leave(&candidates[candidate].what);
            context.in_window(setting.threads, |_| {
                move || {
                    sections(BATCH);
                    (BATCH, 0)
                }
            })
        })
    };
    Ok(context.per_threads(setting).into_iter().map(job).collect())
}

/// Plans the time that one thread waits, with no other thread in a section, and while a thread on
/// another CPU enters and leaves sections.
fn waits<'a>(context: Context<'a, Rcu>, setting: &Setting) -> Result<Vec<Job<'a>>> {
    let job = |(busy_readers, detail): (usize, &str)| {
        let candidates = context.candidates(setting);
        let setting = setting.with_detail(detail);
        Job::new(setting, titles(&candidates), context.options.rounds, move |candidate, _| {
            let scheme = &candidates[candidate].what;
            let wait = scheme.wait.expect("only schemes that can wait take part");
            let results = run_workers(context.cpus, busy_readers + 1, context.window(), |thread| {
                move || {
                    if thread == 0 {
                        wait();
                        1
                    } else {
                        (scheme.sections)(BATCH);
                        BATCH
                    }
                }
            });
            Ok(Measured::single(results[0].nanoseconds(Clock::Wall)))
        })
    };
    Ok([(0, "no reader"), (1, "a busy reader")].map(job).into())
}

/// Plans reclamation, with one thread. It is not pinned, because the reclaiming threads that
/// schemes start inherit the CPUs of the thread that starts them.
fn reclaim<'a>(context: Context<'a, Rcu>, setting: &Setting) -> Result<Vec<Job<'a>>> {
    let candidates = context.candidates(setting);
    let values = ["until retired", "until all are freed"].map(|detail| (setting.with_detail(detail), "ns"));
    let (objects, rounds) = (setting.entries, context.options.rounds.min(5));
    Ok(vec![Job::several(values.into(), titles(&candidates), rounds, move |candidate, _| {
        let times = (candidates[candidate].what.reclaim)(objects, None);
        let each = |time: std::time::Duration| Measured::single(time.as_secs_f64() * 1e9 / objects as f64);
        Ok(vec![each(times.retired), each(times.freed)])
    })])
}

#[cfg(test)]
mod tests {
    use super::schemes::Object;
    use super::*;
    use std::sync::atomic::{AtomicU64, Ordering};

    #[test]
    fn every_scheme_frees_every_object_before_it_says_so() {
        static FREED: AtomicU64 = AtomicU64::new(0);
        for Entry { what: scheme, title, .. } in Rcu::CANDIDATES {
            for objects in [1, 10, 5000] {
                FREED.store(0, Ordering::SeqCst);
                let times = (scheme.reclaim)(objects, Some(&FREED));
                assert_eq!(FREED.load(Ordering::SeqCst), objects, "{title}");
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
        for Entry { what: scheme, .. } in Rcu::CANDIDATES {
            (scheme.sections)(10);
            (scheme.nested)(10);
            if let Some(wait) = scheme.wait {
                wait();
            }
        }
        assert!(!relativist_rcu::is_reading());
    }
}
