//! The workloads, and the parameters that all candidates of a comparison share.

use clap::ValueEnum;
use serde::{Deserialize, Serialize};

use crate::harness::report::{count, threads};
use crate::harness::sampling::Distribution;
use crate::tables::entries::Kind;

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Workload {
    /// Lookups of keys that are present
    Hit,
    /// Lookups of keys that are absent
    Miss,
    /// ParlayHash's matrix: keys are drawn from a range twice as large as the table, so half of the
    /// lookups hit; half of the updates insert, half remove
    Matrix,
    /// conc-map-bench's mixes of read/insert/remove/update, without presizing: 98/1/1/0 and
    /// 10/40/40/10 on a table that is three quarters full, 5/80/5/10 on an empty one
    Mixes,
    /// Inserting all entries into an empty table, without presizing
    Grow,
    /// Latencies of single insertions while the table grows from empty
    Latency,
    /// Removal of all keys, one by one
    Remove,
    /// Removal of all entries at once, by one thread
    Clear,
    /// Iteration over all entries
    Iterate,
    /// Resident bytes per entry, averaged while the number of entries doubles; each table in a
    /// process of its own
    Memory,
    /// Resident bytes while entries are replaced and a reader holds its guard for 100 ms at a time;
    /// each table in a process of its own
    Churn,
}

/// One of several values that a workload reports.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Metric {
    P50,
    /// The 99th percentile.
    P99,
    /// The 99.9th percentile.
    P999,
    /// The 99.99th percentile.
    P9999,
    Longest,
    /// The maximum latency, after the time that the thread was runnable without a CPU is
    /// subtracted.
    LongestScheduled,
    Operations,
    /// How much the resident set grows, although the number of entries does not: its size at the
    /// end divided by its size after a tenth of the time.
    Growth,
    Peak,
}

impl Metric {
    const fn name(self) -> &'static str {
        match self {
            Self::P50 => "median",
            Self::P99 => "99 %",
            Self::P999 => "99.9 %",
            Self::P9999 => "99.99 %",
            Self::Longest => "longest",
            Self::LongestScheduled => "longest without waiting for a CPU",
            Self::Operations => "operation",
            Self::Growth => "resident set, end / start",
            Self::Peak => "largest resident set",
        }
    }
}

/// The parameters that all candidates of a comparison share.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Setting {
    #[serde(rename = "work")]
    pub workload: Workload,
    pub kind: Kind,
    pub entries: u64,
    pub threads: u16,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub distribution: Option<Distribution>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub updates_percent: Option<u8>,
    #[serde(borrow, skip_serializing_if = "Option::is_none")]
    pub mix: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub metric: Option<Metric>,
    /// The number of the group of candidates, from 0. There are several if all tables together need
    /// too much memory. Groups are measured one after the other.
    pub group: usize,
    /// The processor, in pictures of results from several machines.
    #[serde(skip)]
    pub processor: Option<String>,
}

impl Setting {
    /// Makes a setting with default values for the other fields.
    pub fn new(workload: Workload, kind: Kind, entries: u64) -> Self {
        Self {
            workload,
            kind,
            entries,
            threads: 1,
            distribution: None,
            updates_percent: None,
            mix: None,
            metric: None,
            group: 0,
            processor: None,
        }
    }

    /// Returns the heading of a table of comparisons that differ only in the number of threads.
    pub fn title(&self) -> String {
        let (what, kind, entries) = (self.what(), self.kind.name(), count(self.entries));
        let matrix = match (self.distribution, self.updates_percent) {
            (Some(distribution), Some(percent)) => format!(", {}, {percent} % updates", distribution.name()),
            _ => String::new(),
        };
        let metric = self.metric.map_or_else(String::new, |metric| format!(": {}", metric.name()));
        format!("{what}, {kind}, {entries} entries{matrix}{metric}")
    }

    fn what(&self) -> &'static str {
        match self.workload {
            Workload::Hit => "Lookups that hit",
            Workload::Miss => "Lookups that miss",
            Workload::Matrix => "Lookups and updates",
            Workload::Mixes => self.mix.unwrap_or_default(),
            Workload::Grow => "Growing from empty",
            Workload::Latency => "Single insertions into a growing table",
            Workload::Remove => "Removing all keys one by one",
            Workload::Clear => "Removing all entries at once",
            Workload::Iterate => "Iterating",
            Workload::Memory => "Memory while the entries double",
            Workload::Churn => "Replacing entries with a slow reader",
        }
    }

    /// Returns the heading of this comparison's column.
    pub fn label(&self) -> String {
        let threads = threads(self.threads);
        self.processor.as_ref().map_or(threads.clone(), |processor| format!("{processor}, {threads}"))
    }
}
