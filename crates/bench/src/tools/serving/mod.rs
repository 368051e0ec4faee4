//! `relativist-bench serving` compares relativistd with memcached and with its performance targets.

pub mod targets;

use std::time::Duration;

use anyhow::Result;
use clap::{ValueEnum, value_parser};
use indicatif::ProgressBar;
use serde::Serialize;

use crate::harness::comparison::Verdict;
use crate::harness::options::{Output, spell};
use crate::harness::report::{Report, significant, table};
use crate::harness::rounds::progress;
use crate::harness::workers::Cpus;
use crate::memcached::measure::{Figure, Measured, Plan, Ratio, Source, in_turns};
use crate::memcached::recurring::{self, Recurring};
use crate::memcached::screen::{latencies, range};
use crate::memcached::workload::Workload;
use crate::memcached::{Conditions, warn};
use crate::tools::serving::targets::Row;
use relativist_check::client::allow_connections;
use relativist_check::cores::Cores;
use relativist_check::interruption::{self, Ending};
use relativist_check::options::parse_seconds;
use relativist_check::server::ServerCommand;

/// Compare relativistd with memcached on the workloads that have performance targets
///
/// Each workload runs on both servers in turns, in a changing order, as with `relativist-bench
/// load`. First there is one server thread on the first allowed CPU and one client thread on the
/// second, then two threads each that share both CPUs. --server-cores and --client-cores select
/// other CPUs. Targets are ratios of the servers' CPU time per request in the same round; in the
/// last workload, of the latency of GETs. The exit status is 1 if a target was missed. If a server
/// refused or failed requests, the verdict is void and counts as missed. The options -t, -m and the
/// address to listen on are appended to the commands.
///
/// memcached 1.6.18 writes the replies to GETs that arrive together one by one. Later versions
/// (such as 1.6.45) combine them in one write. Consider the version when you judge the pipelined
/// workload.
#[derive(Debug, clap::Args, Serialize)]
pub struct Args {
    /// Command of the server that has the targets
    #[arg(long, value_name = "COMMAND", default_value = "relativistd")]
    #[serde(skip)]
    exec: ServerCommand,

    /// Command of the server with which it is compared
    #[arg(long, value_name = "COMMAND", default_value = "memcached -u root")]
    #[serde(skip)]
    vs: ServerCommand,

    /// Workloads [default: all]
    #[arg(long, alias = "work", value_enum, value_delimiter = ',')]
    #[serde(rename = "work")]
    workload: Vec<Row>,

    /// Numbers of server threads, each measured separately
    #[arg(long, value_delimiter = ',', default_values_t = [1, 2], value_parser = value_parser!(u16).range(1..=64))]
    threads: Vec<u16>,

    #[command(flatten)]
    conditions: Conditions,

    /// Let servers listen on Unix sockets
    #[arg(long)]
    unix: bool,

    /// Measurements of each server; growth has at most five
    #[arg(long, default_value_t = 5, value_parser = value_parser!(u32).range(1..=10_000))]
    rounds: u32,

    /// Seconds per measurement; ignored for growth, where a measurement ends when the items are
    /// stored
    #[arg(long, default_value_t = 2.0, value_parser = parse_seconds)]
    seconds: f64,

    /// Use a tenth of the items, and two rounds of 0.2 seconds, for a first impression
    #[arg(long)]
    quick: bool,

    #[command(flatten)]
    #[serde(skip)]
    output: Output,
}

#[derive(Debug, Serialize)]
struct Outcome {
    row: Row,
    threads: u16,
    #[serde(rename = "work")]
    workload: Workload,
    servers: Vec<Measured>,
    /// For each server, the latencies that recur in every round.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    recurring: Vec<Recurring>,
    /// The ratio that has a target, and whether it was met; `None` if a value is missing.
    judged: Option<Judged>,
}

#[derive(Debug, Serialize)]
struct Judged {
    #[serde(flatten)]
    ratio: Ratio,
    verdict: Verdict,
    /// The failures of the servers that make the verdict void.
    void: Vec<String>,
}

#[derive(Debug, Serialize)]
struct Results {
    outcomes: Vec<Outcome>,
}

impl Args {
    fn rounds_of(&self, row: Row) -> u32 {
        if self.quick { 2 } else { self.rounds }.min(row.max_rounds())
    }

    fn rows(&self) -> Vec<Row> {
        let all = Row::value_variants().iter().copied();
        all.filter(|row| self.workload.is_empty() || self.workload.contains(row)).collect()
    }

    /// Plans the measurements. With one thread, the server and the clients have a CPU each;
    /// otherwise they share as many CPUs as there are threads.
    fn plan(&self, row: Row, threads: u16) -> Result<Plan> {
        let [servers, clients] = match threads {
            1 => Cores::allowed(2)?.apart(),
            _ => [Cores::allowed(threads.into())?, Cores::allowed(threads.into())?],
        };
        Ok(Plan {
            rounds: self.rounds_of(row),
            first_round: 0,
            measured: Duration::from_secs_f64(if self.quick { 0.2 } else { self.seconds }),
            slot: (row == Row::Growth).then_some(recurring::PART),
            unix: self.unix,
            server_cores: self.conditions.server_cores.clone().unwrap_or(servers),
            client_cores: self.conditions.client_cores.clone().unwrap_or(clients),
        })
    }

    fn sources(&self, row: Row, threads: u16) -> [Source; 2] {
        let options = ["-t", &threads.to_string(), "-m", &row.megabytes().to_string()];
        [&self.exec, &self.vs].map(|command| Source::Command(command.with(&options)))
    }
}

pub fn run(args: &Args) -> Result<Ending> {
    let rows = args.rows();
    let mut report = Report::begin("serving", args.output.json.as_deref(), &Cpus::allowed(), 2)?;
    allow_connections()?;
    let runs: Vec<(u16, Row)> =
        args.threads.iter().flat_map(|&threads| rows.iter().map(move |&row| (threads, row))).collect();
    let measurements = |&(_, row): &(u16, Row)| 2 * args.rounds_of(row) as usize;
    let bar = progress(runs.iter().map(measurements).sum());
    interruption::handle_signals("this round")?;
    let mut outcomes = Vec::new();
    for &(threads, row) in &runs {
        outcomes.push(measure(args, row, threads, &bar)?);
        if interruption::is_wanted() {
            break;
        }
    }
    bar.finish_and_clear();
    let ending = ending(args, &outcomes, runs.len());
    if let Some(last) = outcomes.last()
        && ending == Ending::Interrupted
    {
        let (rounds, wanted) = (last.servers[0].samples.len(), args.rounds_of(last.row));
        let (workloads, all) = (outcomes.len(), runs.len());
        report.warn(format!(
            "interrupted: {workloads} of {all} workloads were measured, the last one for {rounds} of {wanted} rounds"
        ));
    }
    outcomes.iter().for_each(|outcome| warn(&mut report, &outcome.workload, &outcome.servers));
    let text = describe(&outcomes);
    report.finish(args, &Results { outcomes }, &text)?;
    Ok(ending)
}

/// Returns how a run of `workloads` workloads ended.
fn ending(args: &Args, outcomes: &[Outcome], workloads: usize) -> Ending {
    let is_whole = |outcome: &Outcome| outcome.servers[0].samples.len() == args.rounds_of(outcome.row) as usize;
    let is_missed = outcomes.iter().flat_map(|outcome| &outcome.judged).any(|judged| !judged.verdict.met);
    match Ending::of(outcomes.len() == workloads && outcomes.iter().all(is_whole)) {
        Ending::Complete if is_missed => Ending::Missed,
        other => other,
    }
}

fn measure(args: &Args, row: Row, threads: u16, bar: &ProgressBar) -> Result<Outcome> {
    let workload = row.workload(threads, args.quick);
    let servers = in_turns(&workload, &args.plan(row, threads)?, &args.sources(row, threads), bar)?;
    let (figure, most) = row.most();
    let judged = judge(&servers[0], &servers[1], figure, most);
    let recurring = servers.iter().filter_map(|server| Recurring::of(&server.samples)).collect();
    Ok(Outcome { row, threads, workload, recurring, judged, servers })
}

/// Checks whether the ratio of the servers' values is at most `most`; `None` if a value is missing.
fn judge(one: &Measured, other: &Measured, figure: Figure, most: f64) -> Option<Judged> {
    let ratio = one.ratio(other, figure)?;
    let void = [one.failures(), other.failures()].concat();
    let met = void.is_empty() && ratio.summary.median <= most;
    Some(Judged { ratio, verdict: Verdict { wanted: format!("<= {}", significant(most)), met }, void })
}

fn describe(outcomes: &[Outcome]) -> String {
    let header = ["workload", "threads", "ratio of", "median (from, to)", "target", "met", "ours", "theirs"];
    let rows = outcomes.iter().flat_map(|Outcome { row, threads, servers, judged, .. }| {
        judged.iter().map(move |Judged { ratio, verdict, void }| {
            let value = |server: usize| {
                let unit = if ratio.figure == Figure::GetP999 { 1e3 } else { 1.0 };
                let summary = servers[server].summary(|sample| ratio.figure.of(sample));
                summary.map_or("-".into(), |summary| format!("{} µs", significant(summary.median / unit)))
            };
            vec![
                spell(row),
                threads.to_string(),
                ratio.figure.to_string(),
                range(Some(ratio.summary)),
                verdict.wanted.clone(),
                match verdict.met {
                    true => "yes",
                    false if void.is_empty() => "no",
                    false => "void",
                }
                .into(),
                value(0),
                value(1),
            ]
        })
    });
    let mut text = table(&header, rows);
    text.push('\n');
    for Outcome { row, threads, servers, .. } in outcomes {
        for failure in servers.iter().flat_map(Measured::failures) {
            text += &format!("{} with {threads} threads is void: {failure}\n", spell(row));
        }
    }
    for outcome in outcomes.iter().filter(|outcome| outcome.workload.rate.is_some()) {
        text += &describe_latencies(outcome);
    }
    text.push('\n');
    for Outcome { row, workload, .. } in outcomes.iter().filter(|outcome| outcome.threads == outcomes[0].threads) {
        text += &format!("{}: {workload}\n", spell(row));
    }
    let versions: Vec<&str> = outcomes
        .first()
        .map(|outcome| outcome.servers.iter().filter_map(|server| server.version.as_deref()).collect())
        .unwrap_or_default();
    text + &format!("\n{}\n", versions.join(" against "))
}

/// Formats the latencies of an open loop.
fn describe_latencies(outcome: &Outcome) -> String {
    let Outcome { row, threads, workload, servers, recurring, .. } = outcome;
    let mut text = format!("\n{} with {threads} threads. ", spell(row));
    text += &latencies(workload, servers);
    text += &format!(
        "\nThe latencies that recur in every round, which the server causes and not the machine: {}, in µs:\n\n",
        recurring::NAME
    );
    text += &table(
        &["server", "p50", "p90", "p99", "max", "tenths"],
        servers.iter().zip(recurring).map(|(server, recurring)| {
            let Recurring { p50, p90, p99, max, parts } = recurring;
            let latencies = [p50, p90, p99, max].map(|latency| significant(latency / 1e3));
            [server.name.clone()].into_iter().chain(latencies).chain([parts.to_string()]).collect()
        }),
    );
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memcached::measure::Sample;

    fn measured(requests: u64, missed: u64) -> Measured {
        let sample = format!(
            r#"{{"requests": {requests}, "seconds": 1.0, "missed": {missed}, "refused": 0, "late": 0, "client_seconds": 1.0}}"#
        );
        let sample: Sample = serde_json::from_str(&sample).unwrap();
        Measured { name: "server".into(), version: None, samples: vec![sample] }
    }

    #[test]
    fn a_verdict_is_void_if_not_all_was_done() {
        let judge = |one, other| judge(&one, &other, Figure::Rate, 0.75).unwrap();
        let half = judge(measured(1, 0), measured(2, 0));
        assert!(half.verdict.met && half.void.is_empty());
        assert!(!judge(measured(2, 0), measured(2, 0)).verdict.met);
        for (ours, theirs) in [(1, 0), (0, 1)] {
            let void = judge(measured(1, ours), measured(2, theirs));
            assert!(!void.verdict.met);
            assert_eq!(void.void, ["server did not find 1 keys that had been stored"]);
        }
    }

    /// Scripts rely on the exit status to see that a target was missed.
    #[test]
    fn a_missed_target_is_an_ending_of_its_own() {
        #[derive(clap::Parser)]
        struct Line {
            #[command(flatten)]
            args: Args,
        }

        let line: Line = clap::Parser::parse_from(["serving", "--rounds", "1"]);
        let outcome = |ours| {
            let servers = vec![measured(ours, 0), measured(2, 0)];
            let judged = judge(&servers[0], &servers[1], Figure::Rate, 0.75);
            Outcome {
                row: Row::Set,
                threads: 1,
                workload: Row::Set.workload(1, true),
                servers,
                recurring: Vec::new(),
                judged,
            }
        };
        assert_eq!(ending(&line.args, &[outcome(1)], 1), Ending::Complete);
        assert_eq!(ending(&line.args, &[outcome(1), outcome(2)], 2), Ending::Missed);
    }
}
