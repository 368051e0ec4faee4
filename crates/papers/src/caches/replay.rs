//! Replays a trace on the tables of a kernel.

use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use serde::Serialize;

use super::events::{Action, CACHES, Cache, Event, Trace};
use super::kernel::Kernel;
use super::table::{Met, Table};
use relativist_bench::harness::rounds::order;
use relativist_bench::hashing::histogram::Histogram;

#[derive(Clone, Debug, Serialize)]
pub struct Outcome {
    pub kernel: Kernel,
    /// For each run, the lookups per second in all four caches together.
    pub throughputs: Vec<f64>,
    /// The time of all runs in seconds.
    pub seconds: f64,
    /// Results of each cache; they are the same in every run.
    pub caches: Vec<CacheOutcome>,
}

/// The results of one cache.
#[derive(Clone, Debug, Serialize)]
pub struct CacheOutcome {
    pub cache: Cache,
    pub met: Met,
    /// Sizes of buckets when the caches were fullest.
    pub full: Histogram,
    /// Sizes of buckets after the users deleted their files.
    pub after: Histogram,
}

#[cfg(test)]
impl Outcome {
    pub fn cache(&self, cache: Cache) -> &CacheOutcome {
        &self.caches[cache as usize]
    }
}

/// Replays the trace of each kernel on its tables, `runs` times in turns.
pub fn run(kernels: &[(Kernel, &Trace)], runs: u32, mut done: impl FnMut()) -> Result<Vec<Outcome>> {
    let fresh = |(kernel, _): &(Kernel, &Trace)| Outcome {
        kernel: kernel.clone(),
        throughputs: Vec::new(),
        seconds: 0.0,
        caches: Vec::new(),
    };
    let mut outcomes: Vec<Outcome> = kernels.iter().map(fresh).collect();
    for run in 0..runs as usize {
        for index in order(run, kernels.len()) {
            let (kernel, trace) = &kernels[index];
            let (elapsed, caches) = replay(kernel, trace)?;
            let outcome = &mut outcomes[index];
            outcome.throughputs.push(trace.lookups() as f64 / elapsed.as_secs_f64());
            outcome.seconds += elapsed.as_secs_f64();
            outcome.caches = caches;
            done();
        }
    }
    Ok(outcomes)
}

fn replay(kernel: &Kernel, trace: &Trace) -> Result<(Duration, Vec<CacheOutcome>)> {
    let functions = CACHES.map(|cache| kernel.choice(cache).resolve());
    let mut tables = Vec::new();
    for (cache, (function, bits)) in CACHES.into_iter().zip(&functions) {
        tables.push(Table::new(function.as_ref(), *bits, &trace.keys[cache as usize]));
    }
    let (work, rest) = trace.events.split_at(trace.full);
    let mut elapsed = perform(&mut tables, trace, work)?;
    let full: Vec<Histogram> = tables.iter().map(Table::histogram).collect();
    elapsed += perform(&mut tables, trace, rest)?;
    let outcome = |((cache, full), table): ((Cache, Histogram), &Table<'_>)| CacheOutcome {
        cache,
        met: table.met,
        full,
        after: table.histogram(),
    };
    Ok((elapsed, CACHES.into_iter().zip(full).zip(&tables).map(outcome).collect()))
}

fn perform(tables: &mut [Table<'_>], trace: &Trace, events: &[Event]) -> Result<Duration> {
    let start = Instant::now();
    let mut wrong = 0;
    for &Event { cache, action, object } in events {
        let table = &mut tables[cache as usize];
        let key = || &trace.keys[cache as usize][object as usize];
        match action {
            Action::Hit => wrong += u64::from(table.find(key()) != Some(object)),
            Action::Miss => wrong += u64::from(table.find(key()).is_some()),
            Action::Insert => table.insert(object),
            Action::Remove => table.remove(object),
        }
    }
    let elapsed = start.elapsed();
    ensure!(wrong == 0, "{wrong} lookups returned a wrong result");
    Ok(elapsed)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::caches::scripts::{generate, tests::tree};
    use crate::caches::vfs::simulate;

    /// Section 3.2: with the reference's function, most buckets of the buffer cache are empty, and
    /// the largest is many times larger than with a multiplicative function. Section 3.4: with the
    /// reference's 256 buckets, a miss in the inode cache visits n/m inodes; with more buckets it
    /// visits few.
    #[test]
    fn the_papers_findings_show() {
        let trace = simulate(&generate(&tree(), 12, 3), 64 << 20, false);
        let kernels =
            [Kernel::reference(), Kernel::combined("A", "page-mult", "buffer-mult-11")].map(|kernel| (kernel, &trace));
        let [reference, a] = <[Outcome; 2]>::try_from(run(&kernels, 1, || ()).unwrap()).unwrap();
        let (old, new) = (&reference.cache(Cache::Buffer).full, &a.cache(Cache::Buffer).full);
        assert_eq!(old.entries, new.entries);
        assert!(old.largest() >= 2 * new.largest(), "{} and {}", old.largest(), new.largest());
        assert!(old.empty() as f64 / old.buckets as f64 > 1.1 * new.empty() as f64 / new.buckets as f64);
        let (small, large) = (reference.cache(Cache::Inode), a.cache(Cache::Inode));
        assert!(small.met.probes() > 3.0 * large.met.probes(), "{} and {}", small.met.probes(), large.met.probes());
        // The lookups do not depend on the tables.
        for cache in CACHES {
            let hits = [&reference, &a].map(|outcome| (outcome.cache(cache).met.hits, outcome.cache(cache).met.misses));
            assert_eq!(hits[0], hits[1], "{cache:?}");
        }
        assert!(
            reference.cache(Cache::Inode).met.hit_rate() < 0.5 && reference.cache(Cache::Dentry).met.hit_rate() > 0.5
        );
    }
}
