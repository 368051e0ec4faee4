//! One measurement: readers that look up random keys, together with a resizer, a busy thread, or
//! nothing.

use std::hint;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use clap::ValueEnum;
use rand::SeedableRng;
use rand::rngs::SmallRng;
use rand::seq::SliceRandom;
use relativist_rcu::contention::{self, Counts};
use serde::Serialize;

use super::candidates::{BATCH, Name, Sizing, Subject};
use relativist_bench::harness::keys::{Indices, seed};
use relativist_bench::harness::options::HashFunction;
use relativist_bench::harness::workers::{Clock, Cpus, Window, WorkerResult, min_cpu_share, run as run_workers};

/// The order in which the keys 0 .. entries-1 are inserted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Keys {
    /// In ascending order, as in the paper. With the identity as hash function, each expansion then
    /// separates all neighbours in a chain
    Sequential,
    /// In random order
    Shuffled,
}

/// The state of the table while it is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "kind", rename_all = "lowercase")]
pub enum Case {
    /// The table has 2^`shift` buckets.
    Fixed { shift: u8 },
    /// The table is resized from one size to the other and back, without pause.
    Continuous {
        /// The binary logarithms of both numbers of buckets.
        shifts: (u8, u8),
    },
    /// The table chooses its own size.
    Own,
}

impl Case {
    pub fn name(self) -> String {
        match self {
            Self::Fixed { shift } => format!("2^{shift} buckets"),
            Self::Continuous { shifts: (one, other) } => format!("resizing 2^{one} <-> 2^{other}"),
            Self::Own => "a size of its own".into(),
        }
    }
}

/// The parameters that all measurements of a run share.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Setting {
    pub entries: u64,
    /// The order in which the keys are inserted.
    pub keys: Keys,
    /// The binary logarithms of the two numbers of buckets.
    pub shifts: (u8, u8),
    /// Whether a busy thread runs in the fixed cases, as a substitute for the resizer.
    pub spinner: bool,
    /// Seconds per measurement.
    pub seconds: f64,
    /// The hash function of all tables.
    pub hasher: HashFunction,
}

/// One measurement of one table in one case.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Sample {
    pub table: Name,
    /// The number of the run, from 0.
    pub run: usize,
    pub readers: usize,
    pub case: Case,
    pub lookups_per_second: f64,
    pub per_reader: Vec<f64>,
    pub resizes_per_second: f64,
    pub expand: Resizes,
    pub shrink: Resizes,
    /// The first resize of the table, to the larger size and without readers. No earlier resize has
    /// ordered its chains.
    pub first_expand: Resizes,
    /// The minimum, over the readers, of the share of time spent on a CPU, if the system reports
    /// it.
    pub cpu_share: Option<f64>,
    /// Lock contention during warm-up and measurement, if it is counted.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub locks: Vec<LockCounts>,
}

/// The contention of the locks of one kind.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct LockCounts {
    pub site: String,
    pub acquisitions: u64,
    /// How often a thread found the lock held by another one.
    pub contended: u64,
    /// The seconds that all threads together waited.
    pub waited: f64,
}

impl LockCounts {
    /// Returns the counts since `before`, for the locks that were used.
    fn since(before: &[Counts]) -> Vec<Self> {
        let counts = contention::counts().into_iter().map(|counts| counts.since(before));
        let asked_for = counts.filter(|counts| counts.acquisitions + counts.contended > 0);
        let named = |Counts { site, acquisitions, contended, waited }| Self {
            site: site.to_owned(),
            acquisitions,
            contended,
            waited: waited.as_secs_f64(),
        };
        asked_for.map(named).collect()
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Resizes {
    pub count: u64,
    /// The mean duration of a resize in seconds.
    pub seconds: f64,
    /// The mean number of waits for readers per resize.
    pub waits: f64,
}

impl Resizes {
    /// Resizes `table` to 2^`shift` buckets, and adds the costs.
    fn time(&mut self, table: &dyn Subject, shift: u8) {
        let (began, before) = (Instant::now(), table.costs());
        table.resize_to(1 << shift);
        self.add(began.elapsed().as_secs_f64(), table.costs().waits - before.waits);
    }

    fn add(&mut self, seconds: f64, waits: u64) {
        self.count += 1;
        self.seconds += (seconds - self.seconds) / self.count as f64;
        self.waits += (waits as f64 - self.waits) / self.count as f64;
    }
}

/// A filled table, or two if its size cannot be changed.
pub struct Filled {
    pub name: Name,
    /// The cost of the first resize after filling, to the larger size.
    first_expand: Resizes,
    tables: Vec<(Option<u8>, Box<dyn Subject>)>,
    setting: Setting,
}

impl Filled {
    /// Fills a table with the keys 0 .. entries-1. The value of each key is the key.
    pub fn new(name: Name, setting: &Setting) -> Result<Self> {
        let (one, other) = setting.shifts;
        let sizes = match name.sizing() {
            Sizing::WhenMade => vec![Some(one), Some(other)],
            // Filled at the smaller size, and resized later.
            Sizing::AtAnyTime | Sizing::Own => vec![None],
        };
        let fill = |shift: Option<u8>| {
            let table = name.make(1 << shift.unwrap_or(one.min(other)), setting.hasher);
            for key in keys(setting) {
                if !table.insert(key) {
                    bail!("{}: refused key {key}, which it did not hold", name.label());
                }
            }
            Ok((shift, table))
        };
        let tables = sizes.into_iter().map(fill).collect::<Result<Vec<_>>>()?;
        let mut first_expand = Resizes::default();
        if name.sizing() == Sizing::AtAnyTime {
            first_expand.time(&*tables[0].1, one.max(other));
        }
        Ok(Self { name, first_expand, tables, setting: setting.clone() })
    }

    /// Returns the cases in which the table can be measured.
    pub fn cases(&self, resizer: bool) -> Vec<Case> {
        let (one, other) = self.setting.shifts;
        let mut cases = vec![Case::Fixed { shift: one }, Case::Fixed { shift: other }];
        match self.name.sizing() {
            Sizing::Own => cases = vec![Case::Own],
            Sizing::AtAnyTime if resizer => cases.push(Case::Continuous { shifts: self.setting.shifts }),
            Sizing::AtAnyTime | Sizing::WhenMade => {}
        }
        cases
    }

    /// Returns the table for a case, with the initial number of buckets of that case.
    pub fn prepared(&self, case: Case) -> &dyn Subject {
        let (Case::Fixed { shift } | Case::Continuous { shifts: (shift, _) }) = case else { return &*self.tables[0].1 };
        if let Some((_, table)) = self.tables.iter().find(|(made, _)| *made == Some(shift)) {
            return &**table;
        }
        let table = &*self.tables[0].1;
        table.resize_to(1 << shift);
        table
    }

    pub fn measure(&self, cpus: &Cpus, readers: usize, case: Case, run: usize) -> Result<Sample> {
        let run = Run { readers, case, number: run };
        let sample = measure(self.prepared(case), self.name, &self.setting, cpus, run)?;
        Ok(Sample { first_expand: self.first_expand, ..sample })
    }
}

/// Returns the keys in the order in which they are inserted.
fn keys(setting: &Setting) -> Vec<u64> {
    let mut keys: Vec<u64> = (0..setting.entries).collect();
    if setting.keys == Keys::Shuffled {
        keys.shuffle(&mut SmallRng::seed_from_u64(seed(0, 0)));
    }
    keys
}

/// Results of the threads, except for the numbers of lookups.
struct Findings {
    misses: AtomicU64,
    /// Resizes to the larger size, and to the smaller one.
    resizes: Mutex<[Resizes; 2]>,
}

/// One of the runs of a case.
#[derive(Clone, Copy)]
struct Run {
    readers: usize,
    case: Case,
    number: usize,
}

fn measure(table: &dyn Subject, name: Name, setting: &Setting, cpus: &Cpus, run: Run) -> Result<Sample> {
    let Run { readers, case, number: run } = run;
    let findings = Findings { misses: AtomicU64::new(0), resizes: Mutex::default() };
    let resizing = matches!(case, Case::Continuous { .. });
    let window = Window::new(Duration::from_secs_f64(setting.seconds));
    let threads = readers + usize::from(resizing || setting.spinner);
    let before = contention::counts();
    let results = run_workers(cpus, threads, window, |thread| -> Box<dyn FnMut() -> u64 + '_> {
        if thread < readers {
            let keys = Indices::new(0..setting.entries, seed(run, thread));
            reader(table, keys, &findings.misses)
        } else if let Case::Continuous { shifts } = case {
            resizer(table, shifts, Instant::now() + window.warm_up(), &findings.resizes)
        } else {
            Box::new(spin)
        }
    });
    match findings.misses.into_inner() {
        0 => {}
        misses => {
            bail!("{}: {misses} lookups missed a key that is in the table (run {run}, {})", name.label(), case.name())
        }
    }
    let (reading, others) = results.split_at(readers);
    let per_reader: Vec<f64> = reading.iter().map(|result| result.per_second(Clock::Wall)).collect();
    let per_second = |results: &[WorkerResult]| results.iter().map(|result| result.per_second(Clock::Wall)).sum();
    let [expand, shrink] = findings.resizes.into_inner().expect("no worker panics");
    Ok(Sample {
        table: name,
        run,
        readers,
        case,
        lookups_per_second: per_reader.iter().sum(),
        per_reader,
        resizes_per_second: if resizing { per_second(others) } else { 0.0 },
        expand,
        shrink,
        first_expand: Resizes::default(),
        cpu_share: min_cpu_share(reading),
        locks: LockCounts::since(&before),
    })
}

/// Returns the batch of a reader, which looks up keys that are all present, and counts misses.
fn reader<'a>(table: &'a dyn Subject, mut keys: Indices, misses: &'a AtomicU64) -> Box<dyn FnMut() -> u64 + 'a> {
    Box::new(move || {
        let missed = table.look_up(&mut keys);
        if missed != 0 {
            // Relaxed: a count, read after the workers have been joined.
            misses.fetch_add(missed, Ordering::Relaxed);
        }
        BATCH
    })
}

/// Returns the batch of the resizer, which resizes to the second size and back, and counts the
/// resizes that began after `from`.
fn resizer<'a>(
    table: &'a dyn Subject,
    (one, other): (u8, u8),
    from: Instant,
    account: &'a Mutex<[Resizes; 2]>,
) -> Box<dyn FnMut() -> u64 + 'a> {
    Box::new(move || {
        for (shift, smaller) in [(other, other < one), (one, one < other)] {
            if Instant::now() >= from {
                account.lock().expect("no worker panics")[usize::from(smaller)].time(table, shift);
            } else {
                table.resize_to(1 << shift);
            }
        }
        2
    })
}

/// Keeps a CPU busy, as the resizer would.
fn spin() -> u64 {
    for _ in 0..1024 {
        hint::spin_loop();
    }
    1
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tables::Costs;

    const SETTING: Setting = Setting {
        entries: 256,
        keys: Keys::Sequential,
        shifts: (4, 6),
        spinner: false,
        seconds: 0.005,
        hasher: HashFunction::Foldhash,
    };

    /// A table that loses one key.
    struct Forgetful {
        table: Box<dyn Subject>,
        lost: u64,
    }

    impl Subject for Forgetful {
        fn insert(&self, key: u64) -> bool {
            key == self.lost || self.table.insert(key)
        }

        fn look_up(&self, keys: &mut Indices) -> u64 {
            self.table.look_up(keys)
        }

        fn resize_to(&self, buckets: usize) {
            self.table.resize_to(buckets);
        }

        fn costs(&self) -> Costs {
            self.table.costs()
        }
    }

    #[test]
    fn a_miss_is_a_failure_and_a_failing_exit_status() {
        let table = Forgetful { table: Name::Unzip.make(16, SETTING.hasher), lost: 7 };
        assert!(keys(&SETTING).into_iter().all(|key| table.insert(key)));
        let case = Case::Fixed { shift: 4 };
        let error =
            measure(&table, Name::Unzip, &SETTING, &Cpus::allowed(), Run { readers: 1, case, number: 0 }).unwrap_err();
        assert!(error.to_string().contains("missed a key that is in the table (run 0, 2^4 buckets)"), "{error}");
        assert_eq!(relativist_check::interruption::conclude(Err(error)), std::process::ExitCode::FAILURE);
    }

    #[test]
    fn resizes_are_counted_by_direction() {
        let table = Name::Unzip.make(16, SETTING.hasher);
        assert!(keys(&SETTING).into_iter().all(|key| table.insert(key)));
        for shifts in [(4, 6), (6, 4)] {
            let account = Mutex::default();
            assert_eq!(resizer(&*table, shifts, Instant::now(), &account)(), 2);
            let [expand, shrink] = account.into_inner().unwrap();
            assert_eq!((expand.count, shrink.count), (1, 1));
            assert!(expand.waits > 1.0 && expand.seconds > 0.0, "{expand:?}");
            table.resize_to(1 << 6);
        }
        assert_eq!(table.costs().peak_bytes, (16 + 64) * 8);
    }

    #[test]
    fn shuffled_keys_are_the_same_keys() {
        let mut shuffled = keys(&Setting { keys: Keys::Shuffled, ..SETTING });
        assert_ne!(shuffled, keys(&SETTING));
        shuffled.sort_unstable();
        assert_eq!(shuffled, keys(&SETTING));
    }
}
