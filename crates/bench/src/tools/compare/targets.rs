//! Performance targets of relativist for cells of the tables. Ratios are the competitor's time
//! divided by ours.

use crate::harness::comparison::{Comparison, Verdict};
use crate::harness::report::significant;
use crate::tools::compare::setting::{Metric, Setting, Workload};

#[derive(Clone, Copy, Debug, PartialEq)]
enum Want {
    Ahead,
    /// The competitor takes at least this many times as long.
    Ratio(f64),
    /// A variant of our table takes at most this many times as long.
    Faster(f64),
    /// Our own value is at most this.
    AtMost(f64),
    /// Our flat map's value is at most this share of the named competitor's.
    Share(f64, &'static str),
}

/// Compares every candidate with the corresponding variant of our table, and decides which targets
/// were met.
pub fn judge(comparison: &mut Comparison<Setting>) {
    let names: Vec<_> = comparison.candidates.iter().map(|result| result.name).collect();
    for name in names.into_iter().filter(|name| name.ends_with(", handle") && *name != OUR_HANDLE) {
        comparison.compare(name, OUR_HANDLE);
    }
    let medians: Vec<_> = comparison.candidates.iter().map(|result| (result.name, result.value.median)).collect();
    for result in &mut comparison.candidates {
        let Some(want) = wanted(&comparison.setting, result.name) else { continue };
        let (ratio, value) = (result.ratio.median, result.value.median);
        let (wanted, met) = match want {
            Want::Ahead => ("> 1".into(), ratio > 1.0),
            Want::Ratio(least) => (format!(">= {}", significant(least)), ratio >= least),
            Want::Faster(most) => (format!("<= {}", significant(most)), ratio <= most),
            Want::AtMost(most) => (format!("<= {}", significant(most)), value <= most),
            Want::Share(share, of) => {
                let Some((_, other)) = medians.iter().find(|(name, _)| *name == of) else { continue };
                (format!("<= {} {of}", significant(share)), value <= share * other)
            }
        };
        result.verdict = Some(Verdict { wanted, met });
    }
}

const FLAT: &str = "relativist flat";
const OUR_HANDLE: &str = "relativist, handle";
const OUR_BATCHES: &str = "relativist, get_many(32)";

fn wanted(setting: &Setting, name: &str) -> Option<Want> {
    let two_threads = setting.threads == 2;
    let ours = name.starts_with("relativist");
    let competitor = !ours && name != "harness alone" && name != "hashbrown, unsynchronised";
    match setting.workload {
        Workload::Hit | Workload::Miss if setting.threads <= 2 => match (setting.workload, name) {
            (Workload::Hit, "hashbrown, unsynchronised") => Some(Want::Ratio(1.0 / 1.6)),
            (Workload::Hit, "scc::HashIndex") => Some(Want::Ratio(1.3)),
            (Workload::Miss, "scc::HashIndex") => Some(Want::Ratio(1.5)),
            (Workload::Hit, "papaya") => Some(Want::Ratio(2.0)),
            (Workload::Hit, OUR_BATCHES) if setting.entries == 1 << 23 => Some(Want::Faster(1.0 / 1.5)),
            _ => competitor.then_some(Want::Ahead),
        },
        Workload::Matrix => match (setting.updates_percent, name) {
            (Some(0), _) if setting.threads <= 2 => competitor.then_some(Want::Ahead),
            (Some(1..=10), _) if two_threads => competitor.then_some(Want::Ahead),
            (Some(50), "papaya" | "cds_lfht") if two_threads => Some(Want::Ahead),
            (Some(50), "dashmap" | "scc::HashIndex" | "scc::HashMap") if two_threads => Some(Want::Ratio(1.0)),
            _ => None,
        },
        Workload::Grow if two_threads => competitor.then_some(Want::Ratio(1.0)),
        Workload::Latency if setting.metric == Some(Metric::LongestScheduled) => match name {
            "relativist" => Some(Want::AtMost(1000.0)),
            "dashmap" => Some(Want::Ratio(10.0)),
            FLAT => Some(Want::Share(0.1, "dashmap")),
            _ => None,
        },
        Workload::Memory if name == "relativist" && setting.kind == crate::tables::entries::Kind::U64 => {
            Some(Want::AtMost(48.0))
        }
        Workload::Churn if name == "relativist" && setting.metric == Some(Metric::Growth) => Some(Want::AtMost(1.05)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::harness::comparison::{Measured, compare};
    use crate::tables::entries::Kind;
    use indicatif::ProgressBar;

    fn judged(setting: Setting, values: &[(&'static str, f64)]) -> Vec<Option<(String, bool)>> {
        let names: Vec<_> = values.iter().map(|(name, _)| *name).collect();
        let one = |candidate: usize, _| Ok(Measured::single(values[candidate].1));
        let mut comparison = compare(setting, &names, 1, &ProgressBar::hidden(), one).unwrap();
        judge(&mut comparison);
        let verdict = |verdict: Verdict| (verdict.wanted, verdict.met);
        comparison.candidates.into_iter().map(|result| result.verdict.map(verdict)).collect()
    }

    fn target(wanted: &str, met: bool) -> Option<(String, bool)> {
        Some((wanted.into(), met))
    }

    #[test]
    fn hits_have_a_target_for_each_competitor() {
        let values = [
            ("relativist", 10.0),
            ("relativist, handle", 5.0),
            ("papaya", 19.0),
            ("papaya, handle", 6.0),
            ("scc::HashIndex", 13.0),
            ("dashmap", 10.0),
            ("hashbrown, unsynchronised", 6.0),
            ("harness alone", 1.0),
        ];
        let expected = [
            None,
            None,
            target(">= 2.00", false),
            target("> 1", true),
            target(">= 1.30", true),
            target("> 1", false),
            target(">= 0.62", false),
            None,
        ];
        assert_eq!(judged(Setting::new(Workload::Hit, Kind::U64, 8), &values), expected);
        let large = Setting::new(Workload::Hit, Kind::U64, 1 << 23);
        let batches = [("relativist", 150.0), ("relativist, get_many(32)", 99.0)];
        assert_eq!(judged(large, &batches), [None, target("<= 0.67", true)]);
        let many = Setting { threads: 4, ..Setting::new(Workload::Hit, Kind::U64, 8) };
        assert_eq!(judged(many, &values)[2], None);
    }

    #[test]
    fn updates_have_targets_on_two_threads() {
        let setting = |updates, threads| Setting {
            threads,
            updates_percent: Some(updates),
            ..Setting::new(Workload::Matrix, Kind::U64, 8)
        };
        let values = [("relativist", 10.0), ("papaya", 10.0), ("dashmap", 10.0), ("boost", 9.0)];
        assert_eq!(judged(setting(50, 2), &values)[1..], [target("> 1", false), target(">= 1.00", true), None]);
        assert_eq!(judged(setting(10, 2), &values)[3], target("> 1", false));
        assert_eq!(judged(setting(10, 1), &values)[3], None);
        assert_eq!(judged(setting(0, 1), &values)[3], target("> 1", false));
    }

    #[test]
    fn some_targets_are_our_own() {
        let memory = Setting::new(Workload::Memory, Kind::U64, 8);
        assert_eq!(judged(memory.clone(), &[("relativist", 48.0), ("dashmap", 20.0)]), [target("<= 48.0", true), None]);
        assert_eq!(judged(memory, &[("relativist", 48.1)]), [target("<= 48.0", false)]);
        let latency =
            Setting { metric: Some(Metric::LongestScheduled), ..Setting::new(Workload::Latency, Kind::U64, 8) };
        let expected = [target("<= 1000", true), target(">= 10.0", false), target("<= 0.10 dashmap", true)];
        let values = [("relativist", 900.0), ("dashmap", 8000.0), ("relativist flat", 800.0)];
        assert_eq!(judged(latency.clone(), &values), expected);
        assert_eq!(judged(latency, &[("relativist", 900.0), ("relativist flat", 800.0)])[1], None);
    }
}
