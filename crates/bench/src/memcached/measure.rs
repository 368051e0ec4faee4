//! Measures servers in turns, A B A B, with the same workload.

use std::collections::BTreeMap;
use std::fmt;
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use indicatif::ProgressBar;
use serde::{Deserialize, Serialize};

use super::generator::Generator;
use super::tally::{Percentiles, Window};
use super::workload::Workload;
use crate::harness::rounds::order;
use crate::harness::stats::{Summary, ratios};
use crate::harness::workers;
use relativist_check::client::Address;
use relativist_check::cores::Cores;
use relativist_check::interruption;
use relativist_check::server::{Cost, Server, ServerCommand};

/// The number and length of measurements, and the CPUs.
#[derive(Clone, Debug)]
pub struct Plan {
    pub rounds: u32,
    /// The number of the first round, for callers that measure rounds one by one. Each round draws
    /// other keys.
    pub first_round: usize,
    /// The measured time. Ignored for growth, which ends when the items are stored.
    pub measured: Duration,
    /// If given, latencies of GETs are also kept for each interval of this length.
    pub slot: Option<Duration>,
    pub unix: bool,
    /// The CPUs of started servers.
    pub server_cores: Cores,
    pub client_cores: Cores,
}

#[derive(Clone, Debug)]
pub enum Source {
    Running(Address),
    /// A server that is started for the measurement.
    Command(ServerCommand),
}

impl Source {
    pub fn name(&self) -> String {
        match self {
            Self::Running(address) => address.to_string(),
            Self::Command(command) => command.to_string(),
        }
    }

    fn version(&self) -> Option<String> {
        match self {
            Self::Running(address) => Some(address.statistics("stats").ok()?.remove("version")?),
            Self::Command(command) => command.version(),
        }
    }

    fn server(&self, plan: &Plan) -> Result<Server> {
        match self {
            Self::Running(address) => Server::running(address.clone()),
            Self::Command(command) => Server::start(command, plan.unix, &plan.server_cores),
        }
    }
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Sample {
    pub requests: u64,
    pub seconds: f64,
    /// Latencies of GETs, in nanoseconds.
    pub gets: Option<Percentiles>,
    /// Latencies of SETs, in nanoseconds.
    pub sets: Option<Percentiles>,
    /// The share of requested keys that were found.
    pub hit_ratio: Option<f64>,
    /// The number of requested keys that had been stored and were not found.
    #[serde(default)]
    pub missed: u64,
    /// The number of requests that the server refused.
    pub refused: u64,
    /// The reply to the first refused request.
    pub refusal: Option<String>,
    /// The number of requests of an open loop that were not answered in time.
    pub late: u64,
    #[serde(default)]
    pub broken: u64,
    /// The number of requests without a reply when their connection broke.
    #[serde(default)]
    pub lost: u64,
    /// Why the first broken connection broke.
    #[serde(default)]
    pub breakage: Option<String>,
    /// The CPU time of the clients in seconds.
    pub client_seconds: f64,
    /// CPU time and memory of the server, if known.
    pub server: Option<Cost>,
    /// The contention of the server's locks during the measurement, if the server counts it: the
    /// increase of each statistic.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub contention: BTreeMap<String, f64>,
    /// Latencies of GETs over time: the start of each interval in seconds, and its percentiles.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub timeline: Vec<(f64, Percentiles)>,
}

impl Sample {
    pub fn rate(&self) -> f64 {
        self.requests as f64 / self.seconds
    }

    /// Returns the server's CPU time per request, in microseconds.
    pub fn server_microseconds(&self) -> Option<f64> {
        Some(self.server?.seconds() * 1e6 / self.requests as f64)
    }

    /// Returns the clients' CPU time per request, in microseconds.
    pub fn client_microseconds(&self) -> f64 {
        self.client_seconds * 1e6 / self.requests as f64
    }
}

/// Returns messages about a server's failures. The caller must show them, because a failed request
/// is cheaper than a successful one, and makes the server look better.
pub fn failures<'s>(server: &str, samples: impl Iterator<Item = &'s Sample> + Clone) -> Vec<String> {
    let sum = |count: fn(&Sample) -> u64| samples.clone().map(count).sum::<u64>();
    let mut failures = Vec::new();
    if let Some(refusal) = samples.clone().find_map(|sample| sample.refusal.as_ref()) {
        failures.push(format!("{server} refused {} requests: {refusal}", sum(|sample| sample.refused)));
    }
    let missed = sum(|sample| sample.missed);
    if missed > 0 {
        failures.push(format!("{server} did not find {missed} keys that had been stored"));
    }
    let late = sum(|sample| sample.late);
    if late > 0 {
        failures.push(format!("{server} did not answer {late} requests in time: it cannot keep up with this rate"));
    }
    if let Some(breakage) = samples.clone().find_map(|sample| sample.breakage.as_ref()) {
        let (broken, lost) = (sum(|sample| sample.broken), sum(|sample| sample.lost));
        failures.push(format!("{server} broke {broken} connections, and {lost} requests were lost: {breakage}"));
    }
    failures
}

/// The measurements of a server.
#[derive(Clone, Debug, Serialize)]
pub struct Measured {
    pub name: String,
    /// The version of the server.
    pub version: Option<String>,
    pub samples: Vec<Sample>,
}

/// A value by which servers are compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Figure {
    /// The server's CPU time per request.
    Cpu,
    Rate,
    /// The 99.9th percentile of the latency of GETs.
    GetP999,
}

impl fmt::Display for Figure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Cpu => "server CPU/request",
            Self::Rate => "requests/s",
            Self::GetP999 => "GET p99.9",
        })
    }
}

impl Figure {
    /// Returns the values by which servers are compared under a workload. Percentiles are compared
    /// in an open loop only: in a closed loop, a client that waits for a stalled server sends
    /// nothing ("coordinated omission"), so high percentiles hardly show the stall.
    pub fn of_workload(workload: &Workload) -> &'static [Self] {
        if workload.rate.is_some() { &[Self::Cpu, Self::Rate, Self::GetP999] } else { &[Self::Cpu, Self::Rate] }
    }

    pub fn of(self, sample: &Sample) -> Option<f64> {
        match self {
            Self::Cpu => sample.server_microseconds(),
            Self::Rate => Some(sample.rate()),
            Self::GetP999 => Some(sample.gets?.p999),
        }
    }
}

impl Measured {
    /// Returns messages about the server's failures; see [`failures`].
    pub fn failures(&self) -> Vec<String> {
        failures(&self.name, self.samples.iter())
    }

    /// Summarises a value over all rounds; `None` if it is missing in some round.
    pub fn summary(&self, figure: impl Fn(&Sample) -> Option<f64>) -> Option<Summary> {
        Summary::of(self.samples.iter().map(figure).collect::<Option<Vec<_>>>()?)
    }

    /// Summarises this server's value divided by that of another server in the same round.
    pub fn ratio(&self, other: &Self, figure: Figure) -> Option<Ratio> {
        let of = |measured: &Self| measured.samples.iter().map(|sample| figure.of(sample)).collect::<Option<Vec<_>>>();
        let (ours, theirs) = (of(self)?, of(other)?);
        let summary = ratios(&ours, &theirs)?;
        Some(Ratio { figure, pairs: ours.iter().zip(&theirs).map(|(one, other)| one / other).collect(), summary })
    }
}

#[derive(Clone, Debug, Serialize)]
pub struct Ratio {
    pub figure: Figure,
    pub pairs: Vec<f64>,
    #[serde(flatten)]
    pub summary: Summary,
}

/// Measures all servers in turns, in an order that changes from round to round. Started servers run
/// from the first round to the last, except for growth, which needs a new server each time. If the
/// user [interrupts](interruption) the run, it ends after the current round, and there are fewer
/// samples than planned.
pub fn in_turns(workload: &Workload, plan: &Plan, sources: &[Source], bar: &ProgressBar) -> Result<Vec<Measured>> {
    workload.check()?;
    let candidate = |source| Candidate {
        source,
        generator: Generator::new(workload, &plan.client_cores),
        server: None,
        measured: Measured { name: source.name(), version: source.version(), samples: Vec::new() },
    };
    let mut candidates: Vec<Candidate<'_>> = sources.iter().map(candidate).collect();
    for round in (plan.first_round..).take(plan.rounds as usize) {
        // Ends only between rounds and after the first one, so that there is something to compare.
        if round > plan.first_round && interruption::is_wanted() {
            break;
        }
        for number in order(round, sources.len()) {
            let candidate = &mut candidates[number];
            bar.set_message(format!("{}: {workload}", candidate.measured.name));
            let sample = candidate.measure(plan, round).with_context(|| candidate.measured.name.clone())?;
            candidate.measured.samples.push(sample);
            bar.inc(1);
        }
    }
    Ok(candidates.into_iter().map(|candidate| candidate.measured).collect())
}

/// One of the servers that are measured.
struct Candidate<'a> {
    source: &'a Source,
    generator: Generator<'a>,
    server: Option<Server>,
    measured: Measured,
}

impl Candidate<'_> {
    fn measure(&mut self, plan: &Plan, round: usize) -> Result<Sample> {
        let workload = self.generator.workload();
        let mut server = match self.server.take() {
            Some(server) => server,
            None => {
                let server = self.source.server(plan)?;
                if !workload.no_preload {
                    self.generator.preload(&server.address)?;
                }
                server
            }
        };
        let sample = measure(&self.generator, plan, &mut server, round)?;
        self.server = workload.grow.is_none().then_some(server);
        Ok(sample)
    }
}

fn measure(generator: &Generator<'_>, plan: &Plan, server: &mut Server, round: usize) -> Result<Sample> {
    let workload = generator.workload();
    let measured = workload.seconds_of_growth().map_or(plan.measured, Duration::from_secs_f64);
    // The table grows only once, so there is no warm-up that could use up some of the growth.
    let warm_up = if workload.grow.is_some() { Duration::ZERO } else { workers::Window::new(plan.measured).warm_up() };
    let address = server.address.clone();
    let contention_before = contention(&address);
    let load = generator.connect(&address, round, plan.slot)?;
    let window = Window::after(warm_up, measured);
    let (tally, cost) = std::thread::scope(|scope| {
        let clients = scope.spawn(move || load.run(window));
        sleep(window.from.saturating_duration_since(Instant::now()));
        let before = server.usage();
        sleep(window.until.saturating_duration_since(Instant::now()));
        let after = server.usage();
        let tally = clients.join().expect("no thread panics");
        let cost = || Ok::<_, anyhow::Error>(after?.zip(before?).map(|(after, before)| after.since(&before)));
        // If the server has ended, that error is reported rather than the broken connections.
        cost().and_then(|cost| Ok((tally?, cost)))
    })?;
    ensure!(tally.answered > 0, "no request was answered in {} s", window.length().as_secs_f64());
    Ok(Sample {
        requests: tally.answered,
        seconds: window.length().as_secs_f64(),
        gets: tally.gets(),
        sets: tally.sets(),
        hit_ratio: (tally.asked > 0).then(|| tally.found as f64 / tally.asked as f64),
        missed: if workload.no_preload { 0 } else { tally.asked - tally.found },
        refused: tally.refused,
        client_seconds: tally.cpu.as_secs_f64(),
        timeline: tally.timeline(),
        late: tally.late,
        broken: tally.broken,
        lost: tally.lost,
        breakage: tally.breakage,
        refusal: tally.refusal,
        server: cost,
        contention: grown(contention(&address), &contention_before),
    })
}

/// Returns the server's counts of lock contention; empty if it does not count it.
fn contention(address: &Address) -> BTreeMap<String, f64> {
    let statistics = address.statistics("stats contention").unwrap_or_default();
    statistics.into_iter().filter_map(|(name, value)| Some((name, value.parse().ok()?))).collect()
}

fn grown(mut after: BTreeMap<String, f64>, before: &BTreeMap<String, f64>) -> BTreeMap<String, f64> {
    after.iter_mut().for_each(|(name, value)| *value -= before.get(name).unwrap_or(&0.0));
    after
}

#[cfg(test)]
mod tests {
    use super::super::workload::DEFAULT;
    use super::*;

    fn sample(requests: u64, server_seconds: f64) -> Sample {
        let cost =
            Cost { user_seconds: server_seconds / 4.0, system_seconds: server_seconds * 0.75, resident_bytes: 1 };
        Sample { requests, seconds: 2.0, client_seconds: 1.0, server: Some(cost), ..Sample::default() }
    }

    fn measured(samples: &[(u64, f64)]) -> Measured {
        let samples = samples.iter().map(|&(requests, seconds)| sample(requests, seconds)).collect();
        Measured { name: "server".into(), version: None, samples }
    }

    #[test]
    fn ratios_are_taken_pair_by_pair() {
        // The second round was twice as slow for both.
        let (one, other) = (measured(&[(1000, 0.5), (1000, 1.0)]), measured(&[(500, 0.5), (500, 1.0)]));
        let cpu = one.ratio(&other, Figure::Cpu).unwrap();
        assert_eq!((cpu.pairs, cpu.summary.median), (vec![0.5, 0.5], 0.5));
        assert_eq!(one.ratio(&other, Figure::Rate).unwrap().summary.median, 2.0);
        assert!(one.ratio(&other, Figure::GetP999).is_none());
        assert_eq!(one.samples[0].server_microseconds(), Some(500.0));
        assert_eq!(one.samples[0].client_microseconds(), 1000.0);
    }

    #[test]
    fn what_was_not_done_is_said() {
        assert!(measured(&[(1000, 0.5)]).failures().is_empty());
        let failed = Sample {
            missed: 2,
            refused: 3,
            refusal: Some("SERVER_ERROR".into()),
            late: 4,
            broken: 5,
            lost: 6,
            breakage: Some("reset".into()),
            ..sample(1000, 0.5)
        };
        let server = Measured { samples: vec![sample(1000, 0.5), failed.clone(), failed], ..measured(&[]) };
        assert_eq!(
            server.failures(),
            [
                "server refused 6 requests: SERVER_ERROR",
                "server did not find 4 keys that had been stored",
                "server did not answer 8 requests in time: it cannot keep up with this rate",
                "server broke 10 connections, and 12 requests were lost: reset"
            ]
        );
    }

    #[test]
    fn tails_are_compared_in_open_loops_only() {
        let open = Workload { rate: Some(1000.0), ..DEFAULT };
        assert!(Figure::of_workload(&open).contains(&Figure::GetP999));
        assert!(!Figure::of_workload(&DEFAULT).contains(&Figure::GetP999));
    }

    #[test]
    fn contention_is_what_was_added() {
        let counts = |counts: &[(&str, f64)]| counts.iter().map(|&(name, count)| (name.to_owned(), count)).collect();
        let grown = grown(counts(&[("a", 5.0), ("b", 2.0)]), &counts(&[("a", 3.0)]));
        assert_eq!(grown, counts(&[("a", 2.0), ("b", 2.0)]));
    }

    #[test]
    fn locks_are_reported_if_they_were_counted() {
        let describe = |server: &Measured| super::super::screen::describe(&DEFAULT, std::slice::from_ref(server));
        let mut server = measured(&[(1000, 0.5)]);
        assert!(!describe(&server).contains("Locks"));
        server.samples[0].contention = [("bucket_contended".into(), 12.0), ("bucket_waited".into(), 0.0)].into();
        let text = describe(&server);
        assert!(text.contains("bucket_contended") && text.contains("12") && !text.contains("bucket_waited"), "{text}");
    }
}
