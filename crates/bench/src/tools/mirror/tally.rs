//! Counts of what was compared, and examples of what differed.

use std::collections::BTreeMap;
use std::time::Instant;

use parking_lot::Mutex;
use serde::Serialize;

use super::judge::{Difference, Verdict};
use super::reply::Part;
use super::request::Request;

/// The maximum number of bytes of a reply in an example.
const MAX_SHOWN: usize = 200;

/// The maximum number of outages of the secondary that are listed.
const MAX_OUTAGES: usize = 20;

/// What the mirror has found.
#[derive(Clone, Debug, Default, Serialize)]
pub(super) struct Found {
    pub(super) seconds: f64,
    pub(super) clients: u64,
    /// Requests of clients.
    pub(super) requests: u64,
    /// The following count keys: a `get` of three keys counts three times. Replies that agree.
    pub(super) same: u64,
    pub(super) different: u64,
    pub(super) missing_on_primary: u64,
    pub(super) missing_on_secondary: u64,
    /// Of these, items that do not expire: they were evicted or lost.
    pub(super) lasting_missing_on_secondary: u64,
    pub(super) evictions_of_primary: Option<u64>,
    pub(super) evictions_of_secondary: Option<u64>,
    pub(super) out_of_memory: u64,
    pub(super) not_compared: NotCompared,
    /// Reads that both servers answered, and how many of them were hits.
    pub(super) reads: u64,
    pub(super) hits_of_primary: u64,
    pub(super) hits_of_secondary: u64,
    pub(super) differences: BTreeMap<Difference, Kind>,
    pub(super) outages: u64,
    pub(super) listed_outages: Vec<Outage>,
}

/// Why replies were not compared.
#[derive(Clone, Debug, Default, Serialize)]
pub(super) struct NotCompared {
    /// The servers were not known to hold the same item.
    pub(super) unknown: u64,
    /// A write of another client to the same key overlapped.
    pub(super) overlapped: u64,
    /// The CAS value of the secondary was unknown, and the primary refused the request.
    pub(super) cas_unknown: u64,
    /// The request is for one server, such as `stats`.
    pub(super) primary_only: u64,
    /// The request or the reply is too large to keep.
    pub(super) too_large: u64,
    /// The primary's reply was not understood.
    pub(super) not_understood: u64,
    /// The primary closed the connection instead of replying.
    pub(super) unanswered: u64,
    /// The secondary was not reachable, or was too slow.
    pub(super) not_sent: u64,
}

#[derive(Clone, Debug, Default, Serialize)]
pub(super) struct Kind {
    pub(super) count: u64,
    pub(super) examples: Vec<Example>,
}

#[derive(Clone, Debug, Serialize)]
pub(super) struct Example {
    /// Seconds since the start.
    pub(super) at: f64,
    pub(super) request: &'static str,
    /// The key, or its hash, which is another one in each run.
    pub(super) key: String,
    pub(super) primary: String,
    pub(super) secondary: String,
}

#[derive(Clone, Debug, Serialize)]
pub(super) struct Outage {
    /// Seconds since the start.
    pub(super) at: f64,
    pub(super) reason: String,
    /// Seconds until the secondary was used again.
    pub(super) lasted: Option<f64>,
}

#[derive(Debug)]
pub(super) struct Tally {
    begun: Instant,
    max_examples: usize,
    shows_keys: bool,
    found: Mutex<Found>,
}

impl Found {
    /// Returns the number of items that do not expire and were missing on the secondary although it
    /// has not evicted them.
    pub(super) fn lost(&self) -> u64 {
        self.evictions_of_secondary.map_or(0, |evictions| self.lasting_missing_on_secondary.saturating_sub(evictions))
    }
}

impl Tally {
    pub(super) fn new(max_examples: usize, shows_keys: bool) -> Self {
        Self { begun: Instant::now(), max_examples, shows_keys, found: Mutex::default() }
    }

    pub(super) fn now(&self) -> f64 {
        self.begun.elapsed().as_secs_f64()
    }

    /// Calls `count` with what was found so far.
    pub(super) fn count<T>(&self, count: impl FnOnce(&mut Found) -> T) -> T {
        count(&mut self.found.lock())
    }

    /// Returns what was found so far, without the numbers that the servers report.
    pub(super) fn found(&self) -> Found {
        Found { seconds: self.now(), ..self.found.lock().clone() }
    }

    /// Counts what both servers replied for one key. `key` is the key and its hash.
    pub(super) fn note(
        &self,
        verdict: Verdict,
        request: &Request,
        key: Option<(&[u8], u64)>,
        [primary, secondary]: [&Part<'_>; 2],
    ) {
        if request.is_read() {
            let is_hit = |part: &Part<'_>| u64::from(part.presence == Some(true));
            self.count(|found| {
                found.reads += 1;
                found.hits_of_primary += is_hit(primary);
                found.hits_of_secondary += is_hit(secondary);
            });
        }
        match verdict {
            Verdict::Same => self.count(|found| found.same += 1),
            Verdict::Unknown => self.count(|found| found.not_compared.unknown += 1),
            Verdict::Overlapped => self.count(|found| found.not_compared.overlapped += 1),
            Verdict::Missing { on_secondary: false, .. } => self.count(|found| found.missing_on_primary += 1),
            Verdict::Missing { on_secondary: true, expires } => self.count(|found| {
                found.missing_on_secondary += 1;
                found.lasting_missing_on_secondary += u64::from(!expires);
            }),
            Verdict::OutOfMemory => self.count(|found| found.out_of_memory += 1),
            Verdict::Different(difference) => {
                let status = |part: &Part<'_>| match part.ttl.filter(|_| difference == Difference::TimeToLive) {
                    None => part.status.clone(),
                    Some(seconds) => format!("time to live {seconds}").into_bytes(),
                };
                let statuses = [status(primary), status(secondary)];
                let replies = [[&statuses[0], primary.value], [&statuses[1], secondary.value]];
                self.differ(difference, request, key, replies);
            }
        }
    }

    /// Counts a difference, and keeps it if there are few examples of its kind. A reply is its
    /// status and its value.
    pub(super) fn differ(
        &self,
        difference: Difference,
        request: &Request,
        key: Option<(&[u8], u64)>,
        replies: [[&[u8]; 2]; 2],
    ) {
        let mut found = self.found.lock();
        found.different += 1;
        let kind = found.differences.entry(difference).or_default();
        kind.count += 1;
        if kind.examples.len() < self.max_examples {
            let [primary, secondary] = replies.map(|[status, value]| match value {
                b"" => shown(status),
                _ => format!("{} {}", shown(status), shown(value)),
            });
            let key = match key {
                None => "none".into(),
                Some((key, _)) if self.shows_keys => key.escape_ascii().to_string(),
                Some((_, hash)) => format!("hash {hash:016x}"),
            };
            kind.examples.push(Example { at: self.now(), request: request.verb.name(), key, primary, secondary });
        }
    }

    pub(super) fn begin_outage(&self, reason: String) {
        let at = self.now();
        self.count(|found| {
            found.outages += 1;
            if found.listed_outages.len() < MAX_OUTAGES {
                found.listed_outages.push(Outage { at, reason, lasted: None });
            }
        });
    }

    pub(super) fn end_outage(&self) {
        let now = self.now();
        self.count(|found| {
            for outage in found.listed_outages.iter_mut().filter(|outage| outage.lasted.is_none()) {
                outage.lasted = Some(now - outage.at);
            }
        });
    }
}

fn shown(bytes: &[u8]) -> String {
    let more = if bytes.len() > MAX_SHOWN { format!(" and {} bytes", bytes.len() - MAX_SHOWN) } else { String::new() };
    format!("\"{}\"{more}", bytes[..bytes.len().min(MAX_SHOWN)].escape_ascii())
}
