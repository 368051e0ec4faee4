//! Formats results for the screen.

use super::measure::{Figure, Measured, Sample};
use super::tally::Percentiles;
use super::workload::Workload;
use crate::harness::report::{significant, table};
use crate::harness::stats::Summary;

/// Formats a table of medians over rounds for each server, the latencies, and the ratios of the
/// first server to the others.
pub fn describe(workload: &Workload, measured: &[Measured]) -> String {
    let header =
        ["server", "requests/s", "server µs", "user", "system", "client µs", "hits", "refused", "lost", "late", "MiB"];
    let mut text = String::from("CPU time per request, of the server and of the clients; medians over rounds:\n\n");
    text += &table(
        &header,
        measured.iter().map(|measured| {
            let of = |figure: &dyn Fn(&Sample) -> Option<f64>| measured.summary(figure);
            let per_request = |seconds: f64, sample: &Sample| seconds * 1e6 / sample.requests as f64;
            let sum = |count: fn(&Sample) -> u64| measured.samples.iter().map(count).sum::<u64>().to_string();
            vec![
                measured.name.clone(),
                cell(of(&|sample| Some(sample.rate()))),
                cell(of(&Sample::server_microseconds)),
                cell(of(&|sample| Some(per_request(sample.server?.user_seconds, sample)))),
                cell(of(&|sample| Some(per_request(sample.server?.system_seconds, sample)))),
                cell(of(&|sample| Some(sample.client_microseconds()))),
                of(&|sample| sample.hit_ratio).map_or("-".into(), |ratio| format!("{:.2} %", ratio.median * 100.0)),
                sum(|sample| sample.refused),
                sum(|sample| sample.lost),
                sum(|sample| sample.late),
                cell(of(&|sample| Some(sample.server?.resident_bytes as f64 / 1_048_576.0))),
            ]
        }),
    );
    text.push('\n');
    text += &latencies(workload, measured);
    if let [first, others @ ..] = measured
        && !others.is_empty()
    {
        text += &format!("\n{} divided by each other server, in the same rounds; medians (ranges):\n\n", first.name);
        let figures = Figure::of_workload(workload);
        let header: Vec<String> = ["over".into()].into_iter().chain(figures.iter().map(Figure::to_string)).collect();
        text += &table(
            &header.iter().map(String::as_str).collect::<Vec<_>>(),
            others.iter().map(|other| {
                let ratio = |figure| first.ratio(other, figure).map(|ratio| ratio.summary);
                let cells = figures.iter().map(|&figure| range(ratio(figure)));
                [other.name.clone()].into_iter().chain(cells).collect()
            }),
        );
    }
    text + &locks(measured)
}

/// Formats a table of latencies, after a line that explains it.
pub fn latencies(workload: &Workload, measured: &[Measured]) -> String {
    let mut text = String::from("Latency in µs, medians over rounds; max is the maximum of all rounds");
    text += if workload.rate.is_some() { ":\n\n" } else { " (closed loop: stalls are under-counted, see --rate):\n\n" };
    let header = ["server", "", "p50", "p90", "p99", "p99.9", "p99.99", "max"];
    let rows = measured.iter().flat_map(|measured| {
        let row = |kind: &str, of: fn(&Sample) -> Option<Percentiles>| {
            let at = |figure: fn(&Percentiles) -> f64| measured.summary(|sample| Some(figure(&of(sample)?) / 1e3));
            let mut row = vec![measured.name.clone(), kind.to_owned()];
            let figures: [fn(&Percentiles) -> f64; 5] = [|p| p.p50, |p| p.p90, |p| p.p99, |p| p.p999, |p| p.p9999];
            row.extend(figures.map(|figure| cell(at(figure))));
            row.push(significant(at(|p| p.max)?.max));
            Some(row)
        };
        [row("GET", |sample| sample.gets), row("SET", |sample| sample.sets)].into_iter().flatten()
    });
    text + &table(&header, rows)
}

/// Formats the lock contention of servers that count it: those built with the feature `contention`.
fn locks(measured: &[Measured]) -> String {
    let of = |measured: &'_ Measured| {
        let names = measured.samples.first().map(|sample| sample.contention.keys().cloned().collect::<Vec<_>>());
        let row = |name: String| {
            let count = measured.summary(|sample| sample.contention.get(&name).copied())?;
            (count.max > 0.0).then(|| vec![measured.name.clone(), name, significant(count.median)])
        };
        names.unwrap_or_default().into_iter().filter_map(row).collect::<Vec<_>>()
    };
    let rows: Vec<Vec<String>> = measured.iter().flat_map(of).collect();
    if rows.is_empty() {
        return String::new();
    }
    let heading = "\nLock contention of the servers (`stats contention`) during measurements; medians over rounds:\n\n";
    heading.to_owned() + &table(&["server", "", "count"], rows)
}

fn cell(summary: Option<Summary>) -> String {
    summary.map_or("-".into(), |summary| significant(summary.median))
}

/// Formats the median and the range.
pub fn range(summary: Option<Summary>) -> String {
    summary.map_or("-".into(), |Summary { median, min, max, .. }| format!("{median:.3} ({min:.3} to {max:.3})"))
}
