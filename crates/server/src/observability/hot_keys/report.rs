//! A report of hot keys.

use std::cmp::Reverse;

/// The number of keys in a report.
pub const REPORTED: usize = 16;

/// What was done with a key.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Kind {
    /// Asked for or touched, found or not. The bytes are those of the values sent.
    Read,
    /// Stored, counted up or down, or deleted. The bytes are those of the values received.
    Write,
}

impl Kind {
    /// Both kinds.
    pub const ALL: [Kind; 2] = [Kind::Read, Kind::Write];

    /// Its name in reports.
    pub fn name(self) -> &'static str {
        match self {
            Kind::Read => "read",
            Kind::Write => "write",
        }
    }
}

/// A hot key.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct HotKey {
    pub(super) hash: u64,
    /// The hash in hexadecimal; or the key, with special characters as in `watch`.
    pub name: String,
    /// How often it was used.
    pub events: u64,
    /// The bytes of its values.
    pub bytes: u64,
}

/// The hot keys of one kind.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Report {
    /// The length of the time that was observed, about a minute.
    pub seconds: u32,
    /// How often all keys were used.
    pub events: u64,
    /// At most [`REPORTED`] keys, the most used first.
    pub keys: Vec<HotKey>,
}

impl Report {
    /// Converts a sum over the observed time.
    pub fn per_second(&self, sum: u64) -> f64 {
        sum as f64 / f64::from(self.seconds)
    }

    /// Adds the keys of a tenant, which are other keys.
    pub(crate) fn join(&mut self, tenant: &str, other: Report) {
        self.events += other.events;
        let named = other.keys.into_iter().map(|key| HotKey { name: format!("{tenant}/{}", key.name), ..key });
        self.keys.extend(named);
        self.keys.sort_by_key(|key| Reverse(key.events));
        self.keys.truncate(REPORTED);
    }

    /// The key's share of all events.
    pub fn share(&self, key: &HotKey) -> f64 {
        key.events as f64 / self.events.max(1) as f64
    }
}
