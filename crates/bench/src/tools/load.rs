//! `relativist-bench load`: a load generator for any memcached server.

use std::time::Duration;

use anyhow::{Result, ensure};
use clap::value_parser;
use serde::Serialize;

use crate::harness::options::Output;
use crate::harness::report::Report;
use crate::harness::rounds::progress;
use crate::harness::workers::Cpus;
use crate::memcached::measure::{Figure, Measured, Plan, Ratio, Source, in_turns};
use crate::memcached::screen::describe;
use crate::memcached::workload::Workload;
use crate::memcached::{Conditions, warn};
use relativist_check::client::allow_connections;
use relativist_check::client::{Address, Place};
use relativist_check::interruption::{self, Ending};
use relativist_check::options::parse_seconds;
use relativist_check::server::ServerCommand;

/// Put load on one memcached server, or on several in turns with the same workload
///
/// Simulates many clients per thread, each with a connection. In a closed loop a client sends
/// --depth requests in one write and waits for all replies. In an open loop (--rate) clients send
/// each request when it is due, and its latency counts from then, so a stall delays all requests
/// that are due during the stall. All requests that are due within the measured time are sent, if
/// necessary after it. Clients then wait for missing replies, at most for the measured time plus 10
/// s. Requests that are still unanswered count as late. Key and value of every reply are checked; a
/// wrong one ends the run. Refused requests are counted. If a connection breaks, its unanswered
/// requests count as lost, and the client connects again. In an open loop, the time that lost
/// requests had waited counts as their latency.
///
/// --exec and --vs start servers; put the command in quotes. The options -l and -p, or -s, with the
/// address are appended. Servers are measured in turns, in a changing order, with the same keys.
/// Ratios are taken between measurements of the same round. Programs in the folder of
/// relativist-bench are preferred to those in PATH. If root starts memcached, it needs -u.
///
/// CPU time is what the kernel accounts to the server's process and to the client threads during
/// the measurement. If the clients use all of their CPU time, they are the bottleneck: give them
/// CPUs of their own (--client-cores), and compare CPU time per request rather than requests per
/// second.
#[derive(Debug, clap::Args, Serialize)]
pub struct Args {
    /// Address of a running server: HOST:PORT or unix:PATH [default: 127.0.0.1:11211]
    #[arg(long, value_name = "ADDR", conflicts_with_all = ["exec", "vs", "unix", "server_cores", "grow"])]
    #[serde(skip)]
    server: Option<Place>,

    /// Start this server
    #[arg(long, value_name = "COMMAND")]
    #[serde(skip)]
    exec: Option<ServerCommand>,

    /// Also start this server, and compare the first one with it; may be repeated
    #[arg(long, value_name = "COMMAND", requires = "exec")]
    #[serde(skip)]
    vs: Vec<ServerCommand>,

    /// Let started servers listen on Unix sockets
    #[arg(long, requires = "exec")]
    unix: bool,

    #[command(flatten)]
    #[serde(rename = "work")]
    workload: Workload,

    #[command(flatten)]
    conditions: Conditions,

    /// Measurements of each server
    #[arg(long, default_value_t = 5, value_parser = value_parser!(u32).range(1..=10_000))]
    rounds: u32,

    /// Seconds per measurement; ignored with --grow, where a measurement ends when the items are
    /// stored
    #[arg(long, default_value_t = 2.0, value_parser = parse_seconds)]
    seconds: f64,

    /// In the JSON file, also keep the latencies of GETs for each interval of this length
    #[arg(long, value_name = "SECONDS", value_parser = parse_seconds)]
    timeline: Option<f64>,

    #[command(flatten)]
    #[serde(skip)]
    output: Output,
}

impl Args {
    fn plan(&self) -> Plan {
        Plan {
            rounds: self.rounds,
            first_round: 0,
            measured: Duration::from_secs_f64(self.seconds),
            slot: self.timeline.map(Duration::from_secs_f64),
            unix: self.unix,
            server_cores: self.conditions.server_cores.clone().unwrap_or_default(),
            client_cores: self.conditions.client_cores.clone().unwrap_or_default(),
        }
    }

    fn sources(&self) -> Result<Vec<Source>> {
        Ok(match (&self.exec, &self.server) {
            (Some(first), _) => [first].into_iter().chain(&self.vs).cloned().map(Source::Command).collect(),
            (None, Some(place)) => vec![Source::Running(place.find()?)],
            (None, None) => vec![Source::Running(Address::Tcp(([127, 0, 0, 1], 11211).into()))],
        })
    }
}

#[derive(Debug, Serialize)]
struct Results {
    servers: Vec<Measured>,
    comparisons: Vec<Comparison>,
}

/// The comparison of the first server with another one.
#[derive(Debug, Serialize)]
struct Comparison {
    over: String,
    ratios: Vec<Ratio>,
}

pub fn run(args: &Args) -> Result<Ending> {
    args.workload.check()?;
    ensure!(
        args.exec.is_some() || args.workload.grow.is_none(),
        "--grow needs --exec, because each measurement starts a new server"
    );
    let threads = usize::from(args.workload.threads);
    let mut report = Report::begin("load", args.output.json.as_deref(), &Cpus::allowed(), threads)?;
    allow_connections()?;
    interruption::handle_signals("this round")?;
    let (plan, sources) = (args.plan(), args.sources()?);
    let bar = progress(plan.rounds as usize * sources.len());
    let servers = in_turns(&args.workload, &plan, &sources, &bar)?;
    bar.finish_and_clear();
    let done = servers[0].samples.len();
    let ending = Ending::of(done == args.rounds as usize);
    if ending == Ending::Interrupted {
        report.warn(format!("interrupted: {done} of {} rounds were measured", args.rounds));
    }
    warn(&mut report, &args.workload, &servers);
    let compare = |other: &Measured| {
        let ratios = Figure::of_workload(&args.workload).iter().filter_map(|&figure| servers[0].ratio(other, figure));
        Comparison { over: other.name.clone(), ratios: ratios.collect() }
    };
    let comparisons = servers[1..].iter().map(compare).collect();
    let text = format!("{}\n\n{}", args.workload, describe(&args.workload, &servers));
    report.finish(args, &Results { servers, comparisons }, &text)?;
    Ok(ending)
}
