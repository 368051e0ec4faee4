//! What all clients have in common: items that all of them touch, the server's clock, and what they
//! have seen together.
//!
//! Of a shared item nobody can say what it must be, but some things must hold: a value is one that
//! was written, and whole; uniques only rise, from what anybody was told before a request was sent
//! to what is told in its answer; a counter never goes back, and in the end it has been counted up
//! by the sum of what was acknowledged.

use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU32, AtomicU64, Ordering::Relaxed};
use std::sync::{Mutex, MutexGuard, PoisonError, RwLock};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use rand::RngExt;
use rand::rngs::SmallRng;

use super::Plan;
use super::evictions::Ledger;
use super::model::When;
use super::reply::{Facts, Reply, Told};
use super::request::{Ask, Key, Mark, Mode, Pool, Request, Text};

const VALUES: u16 = 16;
const COUNTERS: u16 = 8;

/// Counters that were created anew count from another multiple of this.
const BEGINNINGS: u64 = 1 << 40;

/// What was known of a shared item when a request was sent.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Floor {
    unique: u64,
    number: u64,
    seen: Option<(u64, u64)>,
}

impl Floor {
    /// A number that a counter had, and the unique that it had then.
    pub(super) fn seen(&self) -> Option<(u64, u64)> {
        self.seen
    }
}

/// The newest that anybody was told of a shared value.
#[derive(Debug, Default)]
struct Newest {
    unique: u64,
    mark: Mark,
}

#[derive(Debug, Default)]
struct Counter {
    floor: u64,
    seen: Option<(u64, u64)>,
    /// How much it was to be counted up; and how much of that was acknowledged.
    sent: u64,
    acknowledged: u64,
    /// How often it was created, and where it began then.
    births: u32,
    beginning: u64,
    /// It may have been created without anybody being told.
    is_unsure: bool,
}

/// The server's clock, as far as it is known.
#[derive(Debug)]
pub(super) struct Clock {
    began: Instant,
    /// The last second that the server told.
    seen: AtomicU32,
    /// Milliseconds of its time that have passed since 1970 when we began; it is not more.
    ahead: AtomicI64,
}

impl Clock {
    /// The server told this second after it was asked at `asked`, since we began.
    pub(super) fn learn(&self, second: u32, asked: Duration) {
        self.seen.fetch_max(second, Relaxed);
        self.ahead.fetch_max((i64::from(second) + 1) * 1000 - asked.as_millis() as i64, Relaxed);
    }

    pub(super) fn elapsed(&self) -> Duration {
        self.began.elapsed()
    }

    /// The server's clock shows this second or a later one.
    pub(super) fn earliest(&self) -> u32 {
        self.seen.load(Relaxed)
    }

    /// The server's clock shows this second or an earlier one: it may lag behind by what it was
    /// busy, but does not hurry. The second that is added is for one that lagged whenever it was
    /// asked.
    pub(super) fn latest(&self) -> u32 {
        ((self.elapsed().as_millis() as i64 + self.ahead.load(Relaxed)) / 1000 + 1) as u32
    }

    /// What was asked then is answered now.
    pub(super) fn since(&self, earliest: u32) -> When {
        When { earliest, latest: self.latest() }
    }
}

/// What all clients have in common.
#[derive(Debug)]
pub(super) struct Common<'a> {
    pub(super) plan: &'a Plan,
    pub(super) pool: Pool,
    pub(super) clock: Clock,
    /// Bytes that the items of a client may have, all together.
    pub(super) bytes_per_client: usize,
    pub(super) largest: usize,
    /// Held shared by who has requests under way, and alone by who flushes.
    pub(super) pause: RwLock<()>,
    pub(super) flushes: AtomicU64,
    values: Vec<Mutex<Newest>>,
    counters: Vec<Mutex<Counter>>,
    /// By client: the last version of a shared value.
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
    pub(super) refusals: AtomicU64,
    pub(super) missing: AtomicU64,
    pub(super) evictions: AtomicU64,
    /// Items that may be missing though nobody told of their evictions one by one.
    pub(super) excused: AtomicU64,
    pub(super) most_resident: AtomicU64,
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

    /// The largest value that is meant to be stored.
    pub(super) fn largest_piece(&self) -> u32 {
        (self.largest / 10 * 9) as u32
    }

    pub(super) fn next_version(&self, client: u16) -> u32 {
        // Before it is sent: who reads it knows that it was.
        self.versions[usize::from(client)].fetch_add(1, Relaxed) + 1
    }

    pub(super) fn next_beginning(&self) -> u64 {
        self.beginnings.fetch_add(1, Relaxed) * BEGINNINGS
    }

    pub(super) fn any_value(&self, random: &mut SmallRng) -> (Key, Floor) {
        let index = random.random_range(0..VALUES);
        let unique = lock(&self.values[usize::from(index)]).unique;
        (Key::Value(index), Floor { unique, ..Floor::default() })
    }

    pub(super) fn any_counter(&self, random: &mut SmallRng) -> (Key, Floor) {
        let index = random.random_range(0..COUNTERS);
        let counter = lock(&self.counters[usize::from(index)]);
        (Key::Counter(index), Floor { number: counter.floor, seen: counter.seen, unique: 0 })
    }

    /// A request to count is going to be sent.
    pub(super) fn expect_counted(&self, index: u16, ask: &Ask, floor: Floor) {
        lock(&self.counters[usize::from(index)]).sent += step(ask, floor);
    }

    /// A request was sent whose answer nobody will hear.
    pub(super) fn give_up(&self, request: &Request) {
        if let ((Key::Counter(index), _), Ask::Store { mode: Mode::Add, .. }) = (request.keys[0], request.ask) {
            lock(&self.counters[usize::from(index)]).is_unsure = true;
        }
    }

    /// A request was not sent after all.
    pub(super) fn take_back(&self, request: &Request) {
        if let Some(&(Key::Counter(index), floor)) = request.keys.first() {
            lock(&self.counters[usize::from(index)]).sent -= step(&request.ask, floor);
        }
    }

    /// Judges an answer about a shared value.
    pub(super) fn judge_value(&self, index: u16, floor: Floor, ask: &Ask, reply: &Reply) -> Result<()> {
        let newest = &self.values[usize::from(index)];
        match (ask, reply) {
            (Ask::Get { .. }, Reply::Done(told)) => {
                let mark = self.mark(index, told)?;
                if let (Some(mark), Some(unique)) = (mark, told.unique) {
                    ensure!(unique >= floor.unique, "the unique {unique} is lower than {}", floor.unique);
                    let mut newest = lock(newest);
                    if unique == newest.unique {
                        ensure!(newest.mark == mark, "two values with one unique, {:?} and {mark:?}", newest.mark);
                    } else if unique > newest.unique {
                        *newest = Newest { unique, mark };
                    }
                }
            }
            (&Ask::Store { text: Text::Marked(mark), .. }, Reply::Done(Told { unique: Some(unique), .. })) => {
                ensure!(*unique > floor.unique, "the new unique {unique} is not above {}", floor.unique);
                let mut newest = lock(newest);
                if *unique > newest.unique {
                    *newest = Newest { unique: *unique, mark };
                }
            }
            (Ask::Store { .. } | Ask::Touch { .. } | Ask::Delete { .. }, Reply::Done(_)) => (),
            (Ask::Get { .. } | Ask::Touch { .. } | Ask::Delete { .. }, Reply::NotFound) => (),
            (Ask::Store { mode: Mode::Add, .. }, Reply::NotStored) | (Ask::Store { .. }, Reply::Refused(_)) => (),
            _ => bail!("that is no answer"),
        }
        Ok(())
    }

    /// Of the value that is told, if one is: it must have been written, for this key.
    fn mark(&self, index: u16, told: &Told) -> Result<Option<Mark>> {
        ensure!(told.facts.is_none_or(|facts| facts == Facts::default()), "nobody makes it stale");
        let Some(value) = &told.value else { return Ok(None) };
        let mark = self.pool.mark(value).context("a value that nobody has written, or not the whole of it")?;
        ensure!(mark.key == index, "the value of another key: {mark:?}");
        let versions = self.versions.get(usize::from(mark.writer)).context("a writer that there isn't")?;
        ensure!(mark.version <= versions.load(Relaxed), "a version that was not written yet: {mark:?}");
        ensure!(told.flags.is_none_or(|flags| flags == mark.version), "the flags of another version than {mark:?}");
        Ok(Some(mark))
    }

    /// Judges an answer about a counter.
    pub(super) fn judge_counter(&self, index: u16, floor: Floor, ask: &Ask, reply: &Reply) -> Result<()> {
        let mut counter = lock(&self.counters[usize::from(index)]);
        let step = step(ask, floor);
        match (ask, reply) {
            (Ask::Get { .. }, Reply::Done(told)) => {
                if let Some(value) = &told.value {
                    let number = std::str::from_utf8(value).ok().and_then(|digits| digits.parse().ok());
                    let number = number.context("not a number")?;
                    counter.see(number, floor.number)?;
                    counter.seen = told.unique.map(|unique| (number, unique)).or(counter.seen);
                }
            }
            (Ask::Count { .. }, Reply::Done(told)) => {
                counter.acknowledged += step;
                if let Some(number) = told.number {
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
            _ => bail!("that is no answer"),
        }
        Ok(())
    }

    /// Looks at a counter while nobody counts: nothing that was acknowledged may be lost, and
    /// nothing done twice. The answer is whether the counter is missing.
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

    /// Everything was flushed, and nobody has requests under way but those whose connections were
    /// given up.
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

    /// Notes that an item is missing. Returns its name if more are than the server is known to have
    /// evicted: what led to it is to be noted.
    pub(super) fn miss(&self, name: Vec<u8>) -> Option<Vec<u8>> {
        self.counts.missing.fetch_add(1, Relaxed);
        let is_suspect = !self.plan.others_flush && lock(&self.ledger).miss(&name) > self.counts.excused.load(Relaxed);
        is_suspect.then_some(name)
    }
}

impl Counter {
    fn see(&mut self, number: u64, floor: u64) -> Result<()> {
        // One that was created anew begins somewhere else.
        let is_same = number / BEGINNINGS == floor / BEGINNINGS;
        ensure!(!is_same || number >= floor, "it was {floor} already, and is {number}");
        self.floor = self.floor.max(number);
        Ok(())
    }
}

/// By how much a request counts a counter up.
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
