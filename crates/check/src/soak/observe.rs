//! Observes the server during the run: its clock, its evictions, and its memory.

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::sync::atomic::Ordering::Relaxed;
use std::thread::sleep;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};

use super::serving;
use super::shared::{Common, lock};
use crate::client::Address;
use crate::server::{Server, Usage};

const PAUSE: Duration = Duration::from_millis(50);

/// The number of observations, 10 ms apart, until an eviction must have been reported. The time is
/// long, because on a busy machine both the server and this process may get no CPU. (It is shorter
/// in tests, because some wait for evictions that are never reported.)
const MAX_CHECKS: u32 = if cfg!(test) { 250 } else { 1000 };

/// The statistic that counts evicted items. Watchers are notified of these evictions.
const EVICTIONS: &str = "evictions";

const SILENT_EVICTIONS: [&str; 2] = ["slab_reassign_evictions_nomem", "slab_reassign_busy_deletes"];

/// Statistics that count log lines that did not reach the watchers.
const LOST_LINES: [&str; 2] = ["log_worker_dropped", "log_watcher_skipped"];

/// Statistics of the memory for connections, which is not included in that of items.
const BUFFERS: [&str; 3] = ["read_buf_bytes", "read_buf_bytes_free", "response_obj_bytes"];

#[derive(Debug)]
pub(super) struct Observer<'a> {
    common: &'a Common<'a>,
    address: &'a Address,
    /// The server's memory limit for items, in bytes.
    limit: u64,
    is_watched: bool,
    present: Evictions,
    /// Evictions of the processes that have handed over. Statistics begin anew with each process.
    past: Evictions,
}

/// Evictions of a server process.
#[derive(Clone, Copy, Debug, Default)]
struct Evictions {
    process: u64,
    counted: u64,
    /// How many of them the watcher was not notified of.
    excused: u64,
    /// How many items the process has evicted before it was watched.
    unwatched: u64,
}

impl Evictions {
    /// Evictions of a process that has just taken over. They are unknown, so all missing items are
    /// excused at first.
    fn of_successor(process: u64) -> Self {
        Self { process, unwatched: u64::MAX, ..Self::default() }
    }
}

/// Returns a statistic as a number; zero if the server does not have it.
pub(super) fn number(statistics: &BTreeMap<String, String>, name: &str) -> u64 {
    statistics.get(name).and_then(|value| value.parse().ok()).unwrap_or(0)
}

/// The memory of each server thread for a request and a reply, in multiples of the largest item.
/// The statistics of connections do not include it. Growing buffers can have twice the needed size,
/// so two buffers need up to four times the largest item.
const THREAD_BUFFERS: u64 = 4;

/// Returns the maximum resident set of a server, given its limit for items and its bytes of
/// buffers.
fn bound(limit: u64, buffers: u64) -> u64 {
    limit / 100 * 105 + (16 << 20) + buffers
}

impl<'a> Observer<'a> {
    pub(super) fn new(common: &'a Common<'a>, address: &'a Address, limit: u64, is_watched: bool) -> Self {
        let (present, past) = (Evictions::default(), Evictions::default());
        Self { common, address, limit, is_watched, present, past }
    }

    /// Observes once. Returns the bytes that the server may use for buffers.
    pub(super) fn look(&mut self) -> Result<u64> {
        let asked = self.common.clock.elapsed();
        let watched = lock(&self.common.ledger).watched();
        let statistics = serving::statistics(self.common.plan, self.address, "stats")?;
        let time = statistics.get("time").and_then(|time| time.parse().ok());
        self.common.clock.learn(time.context("the server does not report the time")?, asked);
        let sum = |names: &[&str]| -> u64 { names.iter().map(|name| number(&statistics, name)).sum() };
        let (reported, silent) = (number(&statistics, EVICTIONS), sum(&SILENT_EVICTIONS));
        self.follow(if self.common.plan.is_replaced() { number(&statistics, "pid") } else { watched.process });
        let Self { present, past, common, .. } = self;
        if present.process == watched.process {
            // `watched` is older than the statistics. So the difference may include evictions whose
            // reports are on their way, and a later difference may be smaller.
            present.unwatched = present.unwatched.min(reported.saturating_sub(watched.evictions));
            common.counts.observed.store(present.process, Relaxed);
        }
        present.counted = reported + silent;
        let is_all_reported = self.is_watched && sum(&LOST_LINES) == 0;
        present.excused = if is_all_reported { silent.saturating_add(present.unwatched) } else { present.counted };
        common.counts.evictions.store(past.counted + present.counted, Relaxed);
        common.counts.excused.store(past.excused.saturating_add(present.excused), Relaxed);
        let held = sum(&BUFFERS);
        Ok(held + number(&statistics, "threads") * THREAD_BUFFERS * self.common.largest as u64)
    }

    /// Notes which process serves.
    fn follow(&mut self, process: u64) {
        let Self { present, past, .. } = self;
        if present.process != 0 && present.process != process {
            past.counted += present.counted;
            past.excused = past.excused.saturating_add(present.excused);
            *present = Evictions::of_successor(process);
        }
        present.process = process;
    }

    /// Observes until the run is over. Checks the resident set if `server` is given.
    pub(super) fn run(&mut self, server: Option<&Mutex<Server>>) -> Result<()> {
        let outcome = loop {
            let is_last = self.common.is_over.load(Relaxed);
            let outcome = self.check(server);
            if is_last || outcome.is_err() {
                break outcome;
            }
            sleep(PAUSE);
        };
        self.common.is_over.store(true, Relaxed);
        outcome
    }

    fn check(&mut self, server: Option<&Mutex<Server>>) -> Result<()> {
        let mut buffers = self.look()?;
        if let Some(server) = server {
            let usages = {
                let mut server = lock(server);
                [server.usage()?, server.usage_of_successor()]
            };
            buffers = buffers.max(self.look()?);
            for resident in usages.iter().flatten().map(Usage::resident) {
                self.common.counts.most_resident.fetch_max(resident, Relaxed);
                let bound = bound(self.limit, buffers);
                ensure!(resident <= bound, "the server uses {resident} bytes of memory; at most {bound} are allowed");
            }
        }
        if !self.common.plan.others_flush {
            self.check_missing()?;
        }
        Ok(())
    }

    /// Checks that only evicted items are missing.
    fn check_missing(&mut self) -> Result<()> {
        let Common { ledger, counts, .. } = self.common;
        let missing = lock(ledger).missing();
        for _ in 0..MAX_CHECKS {
            let excused = counts.excused.load(Relaxed);
            if lock(ledger).unexcused(missing, excused) <= excused {
                return Ok(());
            }
            // The report of an eviction may arrive later than the reply of a miss.
            sleep(PAUSE / 5);
            self.look()?;
        }
        let ledger = lock(ledger);
        let unexcused = ledger.unexcused(missing, counts.excused.load(Relaxed));
        bail!("{unexcused} items are missing that were not evicted: {}", ledger.suspicion())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buffers_come_on_top_of_what_items_may_take() {
        assert_eq!(bound(100 << 20, 7), (105 << 20) + (16 << 20) + 7);
    }
}
