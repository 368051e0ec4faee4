//! Measurements of several candidates in turns, and the loops that all of them share.

use std::cell::LazyCell;
use std::ops::Range;
use std::rc::Rc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use anyhow::{Context as _, Result, anyhow, ensure};
use indicatif::ProgressBar;
use serde::{Deserialize, Serialize};

use super::{Entry, Options, Subject, selected};
use crate::harness::comparison::{Comparison, Measured, compare_several};
use crate::harness::keys::seed;
use crate::harness::report::{count, threads};
use crate::harness::sampling::{Draws, Samples};
use crate::harness::workers::{Cpus, Window, run, run_to_completion};
use crate::tables::entries::Kind;

/// The parameters that all candidates of a comparison share.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Setting {
    pub subject: &'static str,
    pub workload: &'static str,
    /// The name of the workload in reports.
    pub title: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kind: Option<Kind>,
    /// 0 if the workload has no entries.
    pub entries: u64,
    pub threads: u16,
    /// The other parameters, or which one this is of several values of a measurement.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub detail: String,
    /// The processor, in pictures of results from several machines.
    #[serde(skip)]
    pub processor: Option<String>,
}

impl Setting {
    /// Makes a setting with one thread.
    pub fn new(
        subject: &'static str,
        workload: &'static str,
        title: &'static str,
        kind: Option<Kind>,
        entries: u64,
    ) -> Self {
        Self { subject, workload, title, kind, entries, threads: 1, detail: String::new(), processor: None }
    }

    pub fn with_detail(&self, detail: impl Into<String>) -> Self {
        Self { detail: detail.into(), ..self.clone() }
    }

    /// Returns the heading of a table of comparisons that differ only in the number of threads.
    pub fn title(&self) -> String {
        let kind = self.kind.map(|kind| kind.name().to_owned());
        let entries = (self.entries > 0).then(|| format!("{} entries", count(self.entries)));
        let detail = (!self.detail.is_empty()).then(|| self.detail.clone());
        let parts = [Some(self.title.to_owned()), kind, entries, detail];
        parts.into_iter().flatten().collect::<Vec<_>>().join(", ")
    }

    /// Returns the heading of this comparison's column.
    pub fn label(&self) -> String {
        let threads = threads(self.threads);
        self.processor.as_ref().map_or(threads.clone(), |processor| format!("{processor}, {threads}"))
    }
}

/// One measurement of all candidates in turns, round by round. It gives one or more values, and a
/// comparison for each.
pub struct Job<'a> {
    values: Vec<(Setting, &'static str)>,
    names: Vec<&'static str>,
    rounds: u32,
    measure: Box<dyn FnMut(usize, usize) -> Result<Vec<Measured>> + 'a>,
}

impl<'a> Job<'a> {
    /// Makes a job in which `measure(candidate, round)` measures nanoseconds.
    pub fn new(
        setting: Setting,
        names: Vec<&'static str>,
        rounds: u32,
        measure: impl Fn(usize, usize) -> Result<Measured> + 'a,
    ) -> Self {
        let one = move |candidate, round| Ok(vec![measure(candidate, round)?]);
        Self::several(vec![(setting, "ns")], names, rounds, one)
    }

    /// Makes a job that gives `values`, each with its unit.
    pub fn several(
        values: Vec<(Setting, &'static str)>,
        names: Vec<&'static str>,
        rounds: u32,
        measure: impl FnMut(usize, usize) -> Result<Vec<Measured>> + 'a,
    ) -> Self {
        Self { values, names, rounds, measure: Box::new(measure) }
    }

    pub fn measurements(&self) -> usize {
        self.names.len() * self.rounds as usize
    }

    pub fn run(mut self, bar: &ProgressBar) -> Result<Vec<Comparison<Setting>>> {
        let names = &self.names;
        compare_several(self.values, names, self.rounds, bar, |candidate, round| {
            (self.measure)(candidate, round).with_context(|| names[candidate])
        })
    }
}

/// What several jobs share. The first of them makes it, and it is dropped with the last.
pub type Shared<'a, T> = Rc<LazyCell<Result<T>, Box<dyn FnOnce() -> Result<T> + 'a>>>;

pub fn shared<'a, T>(make: impl FnOnce() -> Result<T> + 'a) -> Shared<'a, T> {
    Rc::new(LazyCell::new(Box::new(make)))
}

/// Returns what jobs share, and makes it if necessary.
pub fn made<'s, T>(shared: &'s Shared<'_, T>) -> Result<&'s T> {
    LazyCell::force(shared).as_ref().map_err(|error| anyhow!("{error:#}"))
}

/// A batch of operations. Returns the numbers of operations and of wrong results.
pub type Batch<'m> = Box<dyn FnMut() -> (u64, u64) + 'm>;

/// What workloads need in order to plan and to measure.
#[derive(Clone, Copy, Debug)]
pub struct Context<'a, S: Subject> {
    pub options: &'a Options<S>,
    pub cpus: &'a Cpus,
}

impl<'a, S: Subject> Context<'a, S> {
    pub fn window(self) -> Window {
        Window::new(Duration::from_secs_f64(self.options.seconds))
    }

    /// Returns ours and the selected candidates that can be measured under `setting`.
    pub fn candidates(self, setting: &Setting) -> Vec<&'static Entry<S::Candidate>> {
        let others = selected(&S::CANDIDATES[1..], &self.options.candidates);
        let all = [&S::CANDIDATES[0]].into_iter().chain(others);
        all.filter(|candidate| S::takes_part(&candidate.what, setting)).collect()
    }

    /// Returns `setting` with each number of threads.
    pub fn per_threads(self, setting: &Setting) -> Vec<Setting> {
        self.options.threads.iter().map(|&threads| Setting { threads, ..setting.clone() }).collect()
    }

    /// Plans measurements of candidates that are kept from round to round, with each number of
    /// threads. `batches(candidate, draws)` returns a batch. It draws from `keys`, or from
    /// `samples` if there are some.
    pub fn drawn<T: Sync + 'a>(
        self,
        setting: &Setting,
        kept: &Shared<'a, Vec<T>>,
        keys: Range<u64>,
        samples: Option<Samples>,
        batches: impl for<'k> Fn(&'k T, Draws<'k>) -> Batch<'k> + Copy + Sync + 'a,
    ) -> Vec<Job<'a>> {
        let (samples, names) = (Rc::new(samples), titles(&self.candidates(setting)));
        let job = |setting: Setting| {
            let (kept, keys, samples) = (Shared::clone(kept), keys.clone(), Rc::clone(&samples));
            Job::new(setting.clone(), names.clone(), self.options.rounds, move |candidate, round| {
                let (candidate, samples) = (&made(&kept)?[candidate], (*samples).as_ref());
                let draws = |thread| Draws::new(keys.clone(), samples, 0, seed(round, thread));
                self.in_window(setting.threads, |thread| batches(candidate, draws(thread)))
            })
        };
        self.per_threads(setting).into_iter().map(job).collect()
    }

    /// Runs threads for the time of a measurement. `worker(thread)` returns a batch, which returns
    /// the numbers of operations and of wrong results.
    pub fn in_window<B: FnMut() -> (u64, u64)>(
        self,
        threads: u16,
        worker: impl Fn(usize) -> B + Sync,
    ) -> Result<Measured> {
        let all_wrong = AtomicU64::new(0);
        let results = run(self.cpus, threads.into(), self.window(), |thread| {
            let mut batch = worker(thread);
            let all_wrong = &all_wrong;
            move || {
                let (operations, wrong) = batch();
                if wrong != 0 {
                    // Relaxed: a count, read after the workers have been joined.
                    all_wrong.fetch_add(wrong, Ordering::Relaxed);
                }
                operations
            }
        });
        check(all_wrong.into_inner())?;
        Ok(Measured::of(&results, self.options.clock))
    }

    /// Runs threads that each do their share, which returns the numbers of operations and of wrong
    /// results. Measures the slowest thread, because its time is that of the whole task.
    pub fn to_completion(self, threads: u16, share: impl Fn(usize) -> (u64, u64) + Sync) -> Result<Measured> {
        let all_wrong = AtomicU64::new(0);
        let results = run_to_completion(self.cpus, threads.into(), |thread| {
            let (operations, wrong) = share(thread);
            // Relaxed: a count, read after the threads have been joined.
            all_wrong.fetch_add(wrong, Ordering::Relaxed);
            operations
        });
        check(all_wrong.into_inner())?;
        Ok(Measured::of_slowest(&results, self.options.clock))
    }
}

fn check(wrong: u64) -> Result<()> {
    ensure!(wrong == 0, "{wrong} operations returned a wrong result");
    Ok(())
}

/// Returns the names of candidates in reports.
pub fn titles<T>(candidates: &[&'static Entry<T>]) -> Vec<&'static str> {
    candidates.iter().map(|candidate| candidate.title).collect()
}
