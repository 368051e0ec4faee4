//! Counts of what was compared, examples of what differed, and the report.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::time::Instant;

use parking_lot::Mutex;
use serde::Serialize;

use super::request::Request;
use crate::harness::report::table;

/// The maximum number of outages of the secondary that are listed.
const MAX_OUTAGES: usize = 20;

/// What became of a reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Fate {
    Same,
    /// Differences: the items have different values, or different numbers.
    Value,
    /// Flags or other properties differ.
    Status,
    TimeToLive,
    /// One of the replies is an error, or they are different errors.
    Error,
    /// One server has an item that both must have removed.
    Presence,
    /// The reply of the secondary is malformed.
    Malformed,
    /// The item is missing on one server only.
    MissingOnPrimary,
    /// The item is missing on the secondary, where it may have expired a moment earlier.
    ExpiringMissing,
    /// The item does not expire: the secondary has evicted or lost it.
    LastingMissing,
    /// One server, or both, refused the request for lack of memory.
    OutOfMemory,
    /// Not compared: the servers were not known to hold the same item.
    Unknown,
    /// A write of another client to the same key overlapped.
    Overlapped,
    /// The CAS value of the secondary was unknown, and the primary refused the request.
    CasUnknown,
    /// The request is for one server, such as `stats`.
    PrimaryOnly,
    /// The request or the reply is too large to keep.
    TooLarge,
    /// The primary's reply was not understood.
    NotUnderstood,
    /// The primary closed the connection instead of replying.
    Unanswered,
    /// The secondary was not reachable, or was too slow.
    NotSent,
}

impl Fate {
    fn is_difference(self) -> bool {
        (Self::Value..=Self::Malformed).contains(&self)
    }

    fn describe(self, [primary, secondary]: [&str; 2]) -> String {
        match self {
            Self::Same => "agree".into(),
            Self::Value => "different value".into(),
            Self::Status => "different status".into(),
            Self::TimeToLive => "different time to live".into(),
            Self::Error => "different error".into(),
            Self::Presence => "different presence".into(),
            Self::Malformed => format!("malformed reply of {secondary}"),
            Self::MissingOnPrimary => format!("missing on {primary} only"),
            Self::ExpiringMissing => format!("missing on {secondary} only, with an expiry"),
            Self::LastingMissing => format!("missing on {secondary} only, without an expiry"),
            Self::OutOfMemory => "memory was short on one server".into(),
            Self::Unknown => "not compared: not known to be the same item before".into(),
            Self::Overlapped => "not compared: another client changed the item at the same time".into(),
            Self::CasUnknown => format!("not compared: CAS value of {secondary} unknown"),
            Self::PrimaryOnly => "not compared: request for one server".into(),
            Self::TooLarge => "not compared: too large".into(),
            Self::NotUnderstood => format!("not compared: reply of {primary} not understood"),
            Self::Unanswered => format!("not compared: {primary} closed the connection without a reply"),
            Self::NotSent => format!("not compared: {secondary} not used"),
        }
    }
}

/// What the mirror has found.
#[derive(Clone, Debug, Default, Serialize)]
pub(super) struct Found {
    pub(super) seconds: f64,
    pub(super) clients: u64,
    /// Requests of clients.
    pub(super) requests: u64,
    /// Counts of keys: a `get` of three keys counts three times.
    pub(super) replies: BTreeMap<Fate, u64>,
    pub(super) examples: BTreeMap<Fate, Vec<Example>>,
    /// How many items each server has evicted meanwhile, if it reports that.
    pub(super) evictions: [Option<u64>; 2],
    /// Reads that both servers answered, and how many of them were hits of each.
    pub(super) reads: u64,
    pub(super) hits: [u64; 2],
    pub(super) outages: u64,
    pub(super) listed_outages: Vec<Outage>,
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

impl Example {
    fn line(&self, [primary, secondary]: [&str; 2]) -> String {
        let Self { at, request, key, primary: said, secondary: replied } = self;
        format!("{request} with key {key} at {at:.1} s: {primary} replied {said}, {secondary} {replied}")
    }
}

impl Found {
    pub(super) fn count(&self, fate: Fate) -> u64 {
        self.replies.get(&fate).copied().unwrap_or(0)
    }

    pub(super) fn different(&self) -> u64 {
        self.replies.iter().filter(|(fate, _)| fate.is_difference()).map(|(_, count)| count).sum()
    }

    /// Returns the number of items that do not expire and were missing on the secondary although it
    /// has not evicted them.
    pub(super) fn lost(&self) -> u64 {
        self.evictions[1].map_or(0, |evictions| self.count(Fate::LastingMissing).saturating_sub(evictions))
    }

    /// Formats the counts in one line.
    pub(super) fn summary(&self) -> String {
        let (requests, same, different) = (self.requests, self.count(Fate::Same), self.different());
        let missing = self.count(Fate::LastingMissing) + self.count(Fate::ExpiringMissing);
        format!("{requests} requests, {same} replies agree, {different} differ, {missing} items are missing")
    }

    /// Returns what limits the value of the comparison.
    pub(super) fn warnings(&self, [primary, secondary]: [&str; 2]) -> Vec<String> {
        let mut warnings = Vec::new();
        if self.lost() > 0 {
            let lasting = self.count(Fate::LastingMissing);
            let evicted = lasting - self.lost();
            warnings.push(format!(
                "{lasting} items that do not expire were missing on {secondary}, but it has evicted {evicted}"
            ));
        }
        if self.count(Fate::Same) + self.different() == 0 {
            warnings.push("nothing was compared".into());
        }
        if self.count(Fate::NotUnderstood) > 0 {
            warnings.push(format!("{} replies of {primary} were not understood", self.count(Fate::NotUnderstood)));
        }
        warnings
    }

    /// Formats the report.
    pub(super) fn describe(&self, names: [&str; 2]) -> String {
        let [primary, secondary] = names;
        let Self { clients, requests, seconds, .. } = self;
        let mut text = format!(
            "{clients} clients sent {requests} requests in {seconds:.0} s. Clients got the replies of {primary}.\n\n"
        );
        let rows = self.replies.iter().map(|(fate, count)| vec![fate.describe(names), count.to_string()]);
        text += &table(&["replies, by key", "count"], rows);
        let rows = [0, 1].map(|server| {
            let share = self.hits[server] as f64 * 100.0 / self.reads.max(1) as f64;
            let evictions = self.evictions[server].map_or("unknown".into(), |count| count.to_string());
            vec![names[server].to_owned(), format!("{share:.2} %"), evictions]
        });
        text.push('\n');
        text += &table(&["server", "hits of reads", "evictions"], rows);
        for (fate, examples) in &self.examples {
            let _ = writeln!(text, "\n{}, {} times:\n", fate.describe(names), self.count(*fate));
            examples.iter().for_each(|example| text += &format!("- {}\n", example.line(names)));
        }
        if self.outages > 0 {
            let _ = writeln!(text, "\n{secondary} was not used {} times:\n", self.outages);
        }
        for Outage { at, reason, lasted } in &self.listed_outages {
            let lasted = lasted.map_or("until the end".into(), |lasted| format!("for {lasted:.1} s"));
            let _ = writeln!(text, "- at {at:.1} s, {lasted}: {reason}");
        }
        text
    }
}

/// What was found so far. New differences and outages are written to stderr at once.
#[derive(Debug)]
pub(super) struct Tally {
    begun: Instant,
    names: [&'static str; 2],
    max_examples: usize,
    shows_keys: bool,
    found: Mutex<Found>,
}

impl Tally {
    pub(super) fn new(names: [&'static str; 2], max_examples: usize, shows_keys: bool) -> Self {
        Self { begun: Instant::now(), names, max_examples, shows_keys, found: Mutex::default() }
    }

    pub(super) fn now(&self) -> f64 {
        self.begun.elapsed().as_secs_f64()
    }

    pub(super) fn update<T>(&self, update: impl FnOnce(&mut Found) -> T) -> T {
        update(&mut self.found.lock())
    }

    pub(super) fn count(&self, fate: Fate, keys: usize) {
        if keys > 0 {
            self.update(|found| *found.replies.entry(fate).or_default() += keys as u64);
        }
    }

    pub(super) fn found(&self) -> Found {
        Found { seconds: self.now(), ..self.found.lock().clone() }
    }

    /// Counts what both servers replied for one key. Keeps a difference if there are few examples
    /// of its kind. `key` is the key and its hash.
    pub(super) fn note(
        &self,
        fate: Fate,
        request: &Request,
        key: Option<(&[u8], u64)>,
        replies: impl FnOnce() -> [String; 2],
    ) {
        self.count(fate, 1);
        let mut found = self.found.lock();
        if !fate.is_difference() || found.examples.get(&fate).map_or(0, Vec::len) >= self.max_examples {
            return;
        }
        let [primary, secondary] = replies();
        let key = match key {
            None => "none".into(),
            Some((key, _)) if self.shows_keys => key.escape_ascii().to_string(),
            Some((_, hash)) => format!("hash {hash:016x}"),
        };
        let example = Example { at: self.now(), request: request.verb.name(), key, primary, secondary };
        eprintln!("relativist-bench: {}: {}", fate.describe(self.names), example.line(self.names));
        found.examples.entry(fate).or_default().push(example);
    }

    pub(super) fn begin_outage(&self, reason: String) {
        let at = self.now();
        eprintln!("relativist-bench: {} is not used for now: {reason}", self.names[1]);
        self.update(|found| {
            found.outages += 1;
            if found.listed_outages.len() < MAX_OUTAGES {
                found.listed_outages.push(Outage { at, reason, lasted: None });
            }
        });
    }

    pub(super) fn end_outage(&self) {
        let now = self.now();
        self.update(|found| {
            for outage in found.listed_outages.iter_mut().filter(|outage| outage.lasted.is_none()) {
                outage.lasted = Some(now - outage.at);
            }
        });
    }
}
