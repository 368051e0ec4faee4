//! The progress on the terminal, and the report as text.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressStyle};
use parking_lot::Mutex;

use super::tally::{Found, Tally};
use crate::harness::report::table;

/// How often the progress is written if stderr is not a terminal.
const INTERVAL: Duration = Duration::from_secs(60);

/// The progress on stderr: a line that changes on a terminal, and otherwise a line per minute. New
/// examples of differences and new outages are written as they appear.
#[derive(Debug)]
pub(super) struct Screen {
    bar: ProgressBar,
    names: [&'static str; 2],
    seen: Mutex<Seen>,
}

#[derive(Debug)]
struct Seen {
    written: Instant,
    /// The number of differences that were shown, by kind, and of outages.
    examples: BTreeMap<&'static str, usize>,
    outages: usize,
}

impl Screen {
    pub(super) fn new(names: [&'static str; 2]) -> Self {
        let style = ProgressStyle::with_template("{elapsed} {msg}").expect("the template is a constant");
        let seen = Seen { written: Instant::now(), examples: BTreeMap::new(), outages: 0 };
        Self { bar: ProgressBar::new_spinner().with_style(style), names, seen: Mutex::new(seen) }
    }

    fn write(&self, line: &str) {
        self.bar.suspend(|| eprintln!("relativist-bench: {line}"));
    }

    pub(super) fn show(&self, tally: &Tally) {
        let found = tally.found();
        let mut seen = self.seen.lock();
        let seen = &mut *seen;
        for outage in found.listed_outages.iter().skip(seen.outages) {
            self.write(&format!("{} is not used for now: {}", self.names[1], outage.reason));
        }
        seen.outages = found.listed_outages.len();
        for (difference, kind) in &found.differences {
            let shown = seen.examples.entry(difference.name()).or_default();
            for example in kind.examples.iter().skip(*shown) {
                self.write(&format!("different {}: {}", difference.name(), example.line(self.names)));
            }
            *shown = kind.examples.len();
        }
        let Found { requests, same, different, missing_on_secondary, .. } = found;
        let line = format!(
            "{requests} requests, {same} replies agree, {different} differ, {missing_on_secondary} items missing on {}",
            self.names[1]
        );
        if self.bar.is_hidden() && seen.written.elapsed() >= INTERVAL {
            seen.written = Instant::now();
            self.write(&line);
        }
        self.bar.set_message(line);
    }

    pub(super) fn finish(&self) {
        self.bar.finish_and_clear();
    }
}

impl super::tally::Example {
    fn line(&self, [primary, secondary]: [&str; 2]) -> String {
        format!(
            "{} with key {} at {:.1} s: {primary} replied {}, {secondary} {}",
            self.request, self.key, self.at, self.primary, self.secondary
        )
    }
}

impl Found {
    /// Returns what limits the value of the comparison.
    pub(super) fn warnings(&self, [primary, secondary]: [&str; 2]) -> Vec<String> {
        let mut warnings = Vec::new();
        if self.lost() > 0 {
            warnings.push(format!(
                "{} items that do not expire were missing on {secondary}, but it has evicted {}",
                self.lasting_missing_on_secondary,
                self.lasting_missing_on_secondary - self.lost()
            ));
        }
        if self.same + self.different == 0 {
            warnings.push("nothing was compared".into());
        }
        if self.not_compared.not_understood > 0 {
            let count = self.not_compared.not_understood;
            warnings.push(format!("{count} replies of {primary} were not understood"));
        }
        warnings
    }
}

/// Formats the report.
pub(super) fn describe(found: &Found, names: [&str; 2]) -> String {
    let [primary, secondary] = names;
    let mut text = format!(
        "{} clients sent {} requests in {:.0} s. Clients got the replies of {primary}.\n\n",
        found.clients, found.requests, found.seconds
    );
    let other = &found.not_compared;
    let rows = [
        ("agree".to_owned(), found.same),
        ("differ".into(), found.different),
        (format!("missing on {primary} only"), found.missing_on_primary),
        (format!("missing on {secondary} only"), found.missing_on_secondary),
        ("memory was short on one server".into(), found.out_of_memory),
        ("not compared: not known to be the same item before".into(), other.unknown),
        ("not compared: another client changed the item at the same time".into(), other.overlapped),
        (format!("not compared: CAS value of {secondary} unknown"), other.cas_unknown),
        ("not compared: request for one server".into(), other.primary_only),
        ("not compared: too large".into(), other.too_large),
        (format!("not compared: reply of {primary} not understood"), other.not_understood),
        (format!("not compared: {primary} closed the connection without a reply"), other.unanswered),
        (format!("not compared: {secondary} not used"), other.not_sent),
    ];
    let rows = rows.into_iter().filter(|(_, count)| *count > 0).map(|(name, count)| vec![name, count.to_string()]);
    text += &table(&["replies, by key", "count"], rows);
    let evictions = |evictions: Option<u64>| evictions.map_or("an unknown number".into(), |count| count.to_string());
    let share = |hits: u64| format!("{:.2} %", hits as f64 * 100.0 / found.reads.max(1) as f64);
    let _ = write!(
        text,
        "\nReads found an item in {} of the cases on {primary}, and in {} on {secondary}. Evictions: {} on {primary}, {} on {secondary}.\n",
        share(found.hits_of_primary),
        share(found.hits_of_secondary),
        evictions(found.evictions_of_primary),
        evictions(found.evictions_of_secondary)
    );
    for (difference, kind) in &found.differences {
        let _ = writeln!(text, "\nDifferent {}, {} times:\n", difference.name(), kind.count);
        for example in &kind.examples {
            let _ = writeln!(text, "- {}", example.line(names));
        }
    }
    if found.outages > 0 {
        let _ = writeln!(text, "\n{secondary} was not used {} times:\n", found.outages);
        for outage in &found.listed_outages {
            let lasted = outage.lasted.map_or("until the end".into(), |lasted| format!("for {lasted:.1} s"));
            let _ = writeln!(text, "- at {:.1} s, {lasted}: {}", outage.at, outage.reason);
        }
    }
    text
}
