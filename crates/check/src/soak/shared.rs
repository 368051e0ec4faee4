//! The state that all clients share: the model of shared items, the server's clock, and counts.
//!
//! The state of a shared item is not known exactly, but some properties must hold. A value is
//! complete, and was written by some client. CAS values only rise: the number in a reply is at
//! least any number that was reported before the request was sent. A counter never decreases, and
//! at the end it has grown by the sum of the acknowledged increments.

use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU32, AtomicU64, Ordering::Relaxed};
use std::sync::{Mutex, MutexGuard, PoisonError, RwLock};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use rand::RngExt;
use rand::rngs::SmallRng;

use super::Plan;
use super::evictions::Ledger;
use super::model::When;
use super::reply::Reply;
use super::request::{Ask, Key, Mark, Mode, Pool, Request, Text};
use crate::client::reply::{Facts, Reported};

const VALUES: u16 = 16;
const COUNTERS: u16 = 8;

/// Each new counter starts from another multiple of this number.
const BEGINNINGS: u64 = 1 << 40;

/// What was known of a shared item when a request was sent: lower bounds, and a CAS value.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Floor {
    cas: u64,
    number: u64,
    seen: Option<(u64, u64)>,
}

impl Floor {
    /// Returns a number of the counter and the CAS value that belongs to it, if known.
    pub(super) fn seen(&self) -> Option<(u64, u64)> {
        self.seen
    }
}

/// The last reported state of a shared value.
#[derive(Debug, Default)]
struct Last {
    cas: u64,
    mark: Mark,
}

#[derive(Debug, Default)]
struct Counter {
    floor: u64,
    seen: Option<(u64, u64)>,
    /// The sum of all requested increments. `acknowledged` is the sum of those that the server
    /// confirmed.
    sent: u64,
    acknowledged: u64,
    /// How often the counter was created. `beginning` is its initial value.
    births: u32,
    beginning: u64,
    /// Whether the counter may have been created by a request without a reply.
    is_unsure: bool,
}

/// What is known about the server's clock.
#[derive(Debug)]
pub(super) struct Clock {
    began: Instant,
    /// The last second that the server reported.
    seen: AtomicU32,
    /// An upper bound of the server's time when the run began, in milliseconds since 1970.
    ahead: AtomicI64,
}

impl Clock {
    /// Records the second that the server reported in reply to a request sent at `asked`, which
    /// counts from the beginning of the run.
    pub(super) fn learn(&self, second: u32, asked: Duration) {
        self.seen.fetch_max(second, Relaxed);
        self.ahead.fetch_max((i64::from(second) + 1) * 1000 - asked.as_millis() as i64, Relaxed);
    }

    pub(super) fn elapsed(&self) -> Duration {
        self.began.elapsed()
    }

    /// Returns the earliest second that the server's clock may show now.
    pub(super) fn earliest(&self) -> u32 {
        self.seen.load(Relaxed)
    }

    /// Returns the latest second that the server's clock may show now. The clock may lag when the
    /// server is busy, but does not run ahead. One second is added in case it lagged at every
    /// observation.
    pub(super) fn latest(&self) -> u32 {
        ((self.elapsed().as_millis() as i64 + self.ahead.load(Relaxed)) / 1000 + 1) as u32
    }

    /// Returns the interval from a request until now. `earliest` is the clock before the request.
    pub(super) fn since(&self, earliest: u32) -> When {
        When { earliest, latest: self.latest() }
    }
}

/// The state that all clients share.
#[derive(Debug)]
pub(super) struct Common<'a> {
    pub(super) plan: &'a Plan,
    pub(super) pool: Pool,
    pub(super) clock: Clock,
    /// The maximum size of all items of a client together, in bytes.
    pub(super) bytes_per_client: usize,
    pub(super) largest: usize,
    /// Held shared by clients with requests in flight, and exclusively by the client that flushes.
    pub(super) pause: RwLock<()>,
    pub(super) flushes: AtomicU64,
    values: Vec<Mutex<Last>>,
    counters: Vec<Mutex<Counter>>,
    /// For each client, the last version of a shared value that it has written.
    versions: Vec<AtomicU32>,
    beginnings: AtomicU64,
    pub(super) is_over: AtomicBool,
    pub(super) counts: Counts,
    pub(super) ledger: Mutex<Ledger>,
}

#[derive(Debug, Default)]
pub(super) struct Counts {
    pub(super) requests: AtomicU64,
    pub(super) resets: AtomicU64,
    pub(super) hand_overs: AtomicU64,
    /// Connections that the server has closed.
    pub(super) closed: AtomicU64,
    pub(super) refusals: AtomicU64,
    pub(super) missing: AtomicU64,
    pub(super) evictions: AtomicU64,
    /// The number of items that may be missing although no watcher was notified of their eviction.
    pub(super) excused: AtomicU64,
    pub(super) most_resident: AtomicU64,
    /// The server process whose evictions are known, if the server is replaced during the run.
    pub(super) observed: AtomicU64,
}

impl<'a> Common<'a> {
    pub(super) fn new(plan: &'a Plan, bytes_per_client: usize, largest: usize) -> Self {
        let zero = || AtomicU32::new(0);
        Self {
            plan,
            pool: Pool::new(),
            clock: Clock { began: Instant::now(), seen: zero(), ahead: AtomicI64::new(i64::MIN) },
            bytes_per_client,
            largest,
            pause: RwLock::new(()),
            flushes: AtomicU64::new(0),
            values: (0..VALUES).map(|_| Mutex::default()).collect(),
            counters: (0..COUNTERS).map(|_| Mutex::default()).collect(),
            versions: (0..plan.clients).map(|_| zero()).collect(),
            beginnings: AtomicU64::new(1),
            is_over: AtomicBool::new(false),
            counts: Counts::default(),
            ledger: Mutex::default(),
        }
    }

    /// Returns the size of the largest value that the server has to store.
    pub(super) fn largest_piece(&self) -> u32 {
        (self.largest / 10 * 9) as u32
    }

    pub(super) fn next_version(&self, client: u16) -> u32 {
        // Recorded before the value is sent, so that a client that reads it finds that it was
        // written.
        self.versions[usize::from(client)].fetch_add(1, Relaxed) + 1
    }

    pub(super) fn next_beginning(&self) -> u64 {
        self.beginnings.fetch_add(1, Relaxed) * BEGINNINGS
    }

    pub(super) fn any_value(&self, random: &mut SmallRng) -> (Key, Floor) {
        let index = random.random_range(0..VALUES);
        let cas = lock(&self.values[usize::from(index)]).cas;
        (Key::Value(index), Floor { cas, ..Floor::default() })
    }

    pub(super) fn any_counter(&self, random: &mut SmallRng) -> (Key, Floor) {
        let index = random.random_range(0..COUNTERS);
        let counter = lock(&self.counters[usize::from(index)]);
        (Key::Counter(index), Floor { number: counter.floor, seen: counter.seen, cas: 0 })
    }

    /// Records a counting request before it is sent.
    pub(super) fn expect_counted(&self, index: u16, ask: &Ask, floor: Floor) {
        lock(&self.counters[usize::from(index)]).sent += step(ask, floor);
    }

    /// Records a request whose reply will not be received.
    pub(super) fn give_up(&self, request: &Request) {
        if let (Some(&(Key::Counter(index), _)), Ask::Store { mode: Mode::Add, .. }) =
            (request.keys.first(), request.ask)
        {
            lock(&self.counters[usize::from(index)]).is_unsure = true;
        }
    }

    /// Removes from the records a request that was not sent.
    pub(super) fn take_back(&self, request: &Request) {
        if let Some(&(Key::Counter(index), floor)) = request.keys.first() {
            lock(&self.counters[usize::from(index)]).sent -= step(&request.ask, floor);
        }
    }

    /// Checks a reply about a shared value.
    pub(super) fn judge_value(&self, index: u16, floor: Floor, ask: &Ask, reply: &Reply) -> Result<()> {
        let last = &self.values[usize::from(index)];
        match (ask, reply) {
            (Ask::Get { .. }, Reply::Done(reported)) => {
                let mark = self.mark(index, reported)?;
                if let (Some(mark), Some(cas)) = (mark, reported.cas) {
                    let mut last = lock(last);
                    ensure!(
                        cas != last.cas || mark == last.mark,
                        "two values with one CAS value, {:?} and {mark:?}",
                        last.mark
                    );
                    *last = Last { cas, mark };
                }
            }
            (&Ask::Store { text: Text::Marked(mark), .. }, Reply::Done(Reported { cas: Some(cas), .. })) => {
                ensure!(*cas != floor.cas, "a new value has the CAS value {cas}, which was reported before");
                *lock(last) = Last { cas: *cas, mark };
            }
            (Ask::Store { .. } | Ask::Touch { .. } | Ask::Delete { .. }, Reply::Done(_)) => (),
            (Ask::Get { .. } | Ask::Touch { .. } | Ask::Delete { .. }, Reply::NotFound) => (),
            (Ask::Store { mode: Mode::Add, .. }, Reply::NotStored) | (Ask::Store { .. }, Reply::Refused(_)) => (),
            _ => bail!("not a possible reply"),
        }
        Ok(())
    }

    /// Returns the mark of the reported value, if any. Fails if it was not written for this key.
    fn mark(&self, index: u16, reported: &Reported) -> Result<Option<Mark>> {
        ensure!(
            reported.facts.is_none_or(|facts| facts == Facts::default()),
            "a shared value is stale or claimed, which no request causes"
        );
        let Some(value) = &reported.value else { return Ok(None) };
        let mark = self.pool.mark(value).context("a value that was not written by any client, or is incomplete")?;
        ensure!(mark.key == index, "the value of another key: {mark:?}");
        let versions = self.versions.get(usize::from(mark.writer)).context("an unknown client")?;
        ensure!(mark.version <= versions.load(Relaxed), "a version that was not written yet: {mark:?}");
        ensure!(reported.flags.is_none_or(|flags| flags == mark.version), "the flags of another version than {mark:?}");
        Ok(Some(mark))
    }

    /// Checks a reply about a counter.
    pub(super) fn judge_counter(&self, index: u16, floor: Floor, ask: &Ask, reply: &Reply) -> Result<()> {
        let mut counter = lock(&self.counters[usize::from(index)]);
        let step = step(ask, floor);
        match (ask, reply) {
            (Ask::Get { .. }, Reply::Done(reported)) => {
                if let Some(value) = &reported.value {
                    let number = std::str::from_utf8(value).ok().and_then(|digits| digits.parse().ok());
                    let number = number.context("not a number")?;
                    counter.see(number, floor.number)?;
                    counter.seen = reported.cas.map(|cas| (number, cas)).or(counter.seen);
                }
            }
            (Ask::Count { .. }, Reply::Done(reported)) => {
                counter.acknowledged += step;
                if let Some(number) = reported.number {
                    counter.see(number, floor.number.max(number / BEGINNINGS * BEGINNINGS) + step)?;
                }
            }
            (&Ask::Store { mode: Mode::Add, text: Text::Number(number), .. }, Reply::Done(_)) => {
                (counter.births, counter.beginning) = (counter.births + 1, number);
            }
            (Ask::Store { mode: Mode::Add, .. }, Reply::NotStored) | (Ask::Get { .. }, Reply::NotFound) => (),
            (Ask::Store { .. }, Reply::Done(_)) => counter.acknowledged += step,
            (Ask::Store { .. } | Ask::Count { .. }, Reply::NotFound | Reply::Refused(_))
            | (Ask::Store { .. }, Reply::Exists) => counter.sent -= step,
            _ => bail!("not a possible reply"),
        }
        Ok(())
    }

    /// Checks a counter while no client counts: no acknowledged increment may be lost, and none may
    /// be executed twice. Returns whether the counter is missing.
    pub(super) fn balance(&self, index: u16, number: Option<u64>) -> Result<bool> {
        let counter = lock(&self.counters[usize::from(index)]);
        let Counter { sent, acknowledged, births, beginning, is_unsure, .. } = *counter;
        if births != 1 || is_unsure {
            return Ok(false);
        }
        let Some(number) = number else { return Ok(true) };
        if number / BEGINNINGS == beginning / BEGINNINGS {
            let bounds = beginning + acknowledged..=beginning + sent;
            ensure!(bounds.contains(&number), "counter {index} is {number}, not in {bounds:?}");
        }
        Ok(false)
    }

    /// Resets the records after everything was flushed, when requests are in flight only on
    /// abandoned connections.
    pub(super) fn flushed(&self) {
        for counter in &self.counters {
            let mut counter = lock(counter);
            let unsettled = counter.sent - counter.acknowledged;
            *counter = Counter { sent: unsettled, floor: counter.floor, ..Counter::default() };
        }
        lock(&self.ledger).flushed();
        self.flushes.fetch_add(1, Relaxed);
    }

    pub(super) fn counters() -> impl Iterator<Item = u16> {
        0..COUNTERS
    }

    /// Records a missing item. Returns its name if more items are missing than the server is known
    /// to have evicted; the caller then records the requests that led to it.
    pub(super) fn miss(&self, name: Vec<u8>) -> Option<Vec<u8>> {
        self.counts.missing.fetch_add(1, Relaxed);
        let is_suspect = !self.plan.others_flush && lock(&self.ledger).miss(&name) > self.counts.excused.load(Relaxed);
        is_suspect.then_some(name)
    }
}

impl Counter {
    fn see(&mut self, number: u64, floor: u64) -> Result<()> {
        // A counter that was created again has another beginning.
        let is_same = number / BEGINNINGS == floor / BEGINNINGS;
        ensure!(!is_same || number >= floor, "the counter was {floor} already, and is now {number}");
        self.floor = self.floor.max(number);
        Ok(())
    }
}

/// Returns the increment of a counting request.
fn step(ask: &Ask, floor: Floor) -> u64 {
    match (ask, floor.seen) {
        (Ask::Count { delta, .. }, _) => *delta,
        (Ask::Store { text: Text::Number(number), compare: Some(_), .. }, Some((before, _))) => number - before,
        _ => 0,
    }
}

pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
