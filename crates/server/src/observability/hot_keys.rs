//! Hot keys: the most read and the most written keys of the last minute.
//!
//! Each thread samples its own commands, counts the sampled keys by Space-Saving, and writes no
//! memory that other threads write. A request for the keys merges the sketches of all threads. A
//! thread never waits for that: it drops a sample while its sketch is being read.
//!
//! **The sample.** A thread decrements a counter for each key, and samples the key when the counter
//! is 0. The distance to the next sample is random, so that no pattern of the clients is sampled
//! always or never. Its mean grows with the load: a thread samples at most about 16,384 keys a
//! second of each kind. A sample counts as many events as the distance stands for. So a sketch
//! costs a bounded share of a thread's time, and slow loads are counted exactly.
//!
//! **Secrecy.** Keys may be secret, and metrics require no password. So keys are known by a keyed
//! hash (SipHash-1-3), whose secret is drawn at each start. Equal keys have equal hashes, but
//! hashing guesses does not find the key. The keys themselves are kept only if the operator wants
//! to see them ([`Mode::Clear`]).

mod report;
mod sketch;
mod storms;
mod window;

use crate::observability::counter::Counter;
use crate::observability::log::{Level, Log};
use clap::ValueEnum;
use relativist_memcache::encode_percent;
pub use report::{HotKey, Kind, REPORTED, Report};
use sketch::Counted;
use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};
use std::sync::{Mutex, PoisonError};
use storms::Storms;
use window::Window;

/// About the number of keys that a thread samples in a second, of each kind. A minute of one thread
/// has a million samples then. That is enough to distinguish the sixteenth key of Zipf's
/// distribution from the seventeenth.
const BUDGET: u64 = 1 << 14;

/// Whether hot keys are found, and how they are shown.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq, ValueEnum)]
pub enum Mode {
    /// Do not look for them
    Off,
    /// Show their hashes
    #[default]
    Hashed,
    /// Show the keys, also to all clients of --admin
    Clear,
}

impl Mode {
    /// Its name in `stats hotkeys`.
    pub fn name(self) -> &'static str {
        match self {
            Mode::Off => "off",
            Mode::Hashed => "hashed",
            Mode::Clear => "clear",
        }
    }
}

/// The keys of one thread. Only that thread records keys; all threads may read them.
#[derive(Debug, Default)]
pub struct ThreadKeys([Sampler; Kind::ALL.len()]);

impl ThreadKeys {
    /// Counts that a key was used: one in many times.
    #[inline]
    pub fn record(&self, kind: Kind, key: &[u8], bytes: usize, now: impl FnOnce() -> u32) {
        let sampler = &self.0[kind as usize];
        let left = sampler.left.get().wrapping_sub(1);
        sampler.left.set(left);
        if left == 0 {
            sampler.sample(key, bytes, now());
        }
    }
}

/// The keys of one thread and kind.
#[derive(Debug, Default)]
struct Sampler {
    /// The number of keys up to the next sample. Without samples it begins at 0, and never returns
    /// to it.
    left: Counter,
    samples: Option<Box<Mutex<Samples>>>,
}

#[derive(Debug)]
struct Samples {
    mode: Mode,
    hasher: RandomState,
    pace: Pace,
    window: Window,
}

impl Sampler {
    fn new(mode: Mode, hasher: &RandomState, seed: u64) -> Sampler {
        if mode == Mode::Off {
            return Sampler::default();
        }
        let samples = Samples { mode, hasher: hasher.clone(), pace: Pace::new(seed), window: Window::new() };
        let left = Counter::default();
        left.set(1);
        Sampler { left, samples: Some(Box::new(Mutex::new(samples))) }
    }

    #[cold]
    #[inline(never)]
    fn sample(&self, key: &[u8], bytes: usize, now: u32) {
        let Some(samples) = &self.samples else { return };
        let Ok(mut samples) = samples.try_lock() else {
            // Another thread reads the sketch. Take the next key.
            return self.left.set(1);
        };
        let Samples { mode, hasher, pace, window } = &mut *samples;
        let events = pace.distance;
        let shown = if *mode == Mode::Clear { key } else { b"" };
        window.add(now, hasher.hash_one(key), shown, [events, events * bytes as u64]);
        self.left.set(pace.advance(now));
    }
}

/// Decides which keys are sampled.
#[derive(Debug)]
struct Pace {
    /// The mean distance from one sample to the next: the number of events for which a sample
    /// counts.
    distance: u64,
    /// The second of the last sample, and the samples and the events in it so far.
    second: u32,
    samples: u64,
    events: u64,
    random: fastrand::Rng,
}

impl Pace {
    fn new(seed: u64) -> Pace {
        Pace { distance: 1, second: 0, samples: 0, events: 0, random: fastrand::Rng::with_seed(seed) }
    }

    /// Notes a sample, and returns the number of keys up to the next one.
    fn advance(&mut self, now: u32) -> u64 {
        if self.second != now {
            // As many samples as the budget if the load stays as it was.
            self.distance = self.events.div_ceil(BUDGET).max(1);
            (self.second, self.samples, self.events) = (now, 0, 0);
        }
        self.samples += 1;
        self.events += self.distance;
        // The load has grown.
        if self.samples.is_multiple_of(BUDGET + BUDGET / 8) {
            self.distance *= 2;
        }
        self.random.u64(1..2 * self.distance)
    }
}

/// The hot keys of all threads.
#[derive(Debug)]
pub struct HotKeys {
    mode: Mode,
    hasher: RandomState,
    storms: Mutex<Storms>,
}

impl HotKeys {
    /// Begins to look for hot keys. They are in the [`ThreadKeys`] that this makes.
    pub fn new(mode: Mode) -> HotKeys {
        HotKeys { mode, hasher: RandomState::new(), storms: Mutex::default() }
    }

    /// Returns the keys of a thread that has this number.
    pub(super) fn thread(&self, number: usize) -> ThreadKeys {
        let seed = self.hasher.hash_one(number);
        ThreadKeys(Kind::ALL.map(|kind| Sampler::new(self.mode, &self.hasher, seed.wrapping_add(kind as u64))))
    }

    /// Merges the keys of `threads` in the minute that ends at `now`. The server was started in the
    /// second `started`. None if hot keys are not looked for.
    pub(super) fn report<'t>(
        &self,
        kind: Kind,
        threads: impl Iterator<Item = &'t ThreadKeys>,
        (started, now): (u32, u32),
    ) -> Option<Report> {
        if self.mode == Mode::Off {
            return None;
        }
        let (mut merged, mut events) = (HashMap::<u64, Counted>::new(), 0);
        for samples in threads.filter_map(|thread| thread.0[kind as usize].samples.as_ref()) {
            let samples = samples.lock().unwrap_or_else(PoisonError::into_inner);
            events += samples.window.each(now, |counted| match merged.get_mut(&counted.hash) {
                Some(sum) => (sum.count, sum.bytes) = (sum.count + counted.count, sum.bytes + counted.bytes),
                None => _ = merged.insert(counted.hash, counted.clone()),
            });
        }
        let mut keys: Vec<Counted> = merged.into_values().collect();
        keys.sort_unstable_by(|one, other| (other.count, &one.key, one.hash).cmp(&(one.count, &other.key, other.hash)));
        keys.truncate(REPORTED);
        let keys = keys.into_iter().map(|counted| self.shown(counted)).collect();
        Some(Report { seconds: window::seconds(started, now), events, keys })
    }

    fn shown(&self, Counted { hash, key, count, bytes }: Counted) -> HotKey {
        let name = match self.mode {
            Mode::Clear => encode_percent(&key).to_string(),
            _ => format!("{hash:016x}"),
        };
        HotKey { hash, name, events: count, bytes }
    }

    /// Logs the storms that have begun, each once. Call it about once a second.
    pub(super) fn log_storms(&self, kind: Kind, report: &Report, tenant: &str, log: &Log) {
        let mut storms = self.storms.lock().unwrap_or_else(PoisonError::into_inner);
        let of = if tenant.is_empty() { String::new() } else { format!(" of tenant {tenant}") };
        for key in storms.begun(kind, report) {
            log.write(
                Level::Warning,
                format_args!(
                    "a storm on one key: {:.0} {}s per second, {:.0} % of all{of}, are for {} (see `stats hotkeys`)",
                    report.per_second(key.events),
                    kind.name(),
                    100.0 * report.share(key),
                    key.name
                ),
            );
        }
    }
}

#[cfg(test)]
mod tests;
