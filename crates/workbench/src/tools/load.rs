//! `relativist-bench load`: a load generator for any memcached server.

use std::time::Duration;

use anyhow::{Result, ensure};
use clap::value_parser;
use serde::Serialize;

use crate::harness::interruption::{self, Ending};
use crate::harness::options::{Output, parse_seconds};
use crate::harness::report::Report;
use crate::harness::rounds::progress;
use crate::harness::workers::Cpus;
use crate::memcached::measure::{Figure, Measured, Plan, Ratio, Source, in_turns};
use crate::memcached::screen::describe;
use crate::memcached::server::{Address, Place, ServerCommand};
use crate::memcached::workload::Workload;
use crate::memcached::{Conditions, allow_connections, warm_up, warn};

/// Put load on memcached servers, one or several in turns with the same workload
///
/// Simulates many clients per thread, each with a connection. In a closed loop a client sends
/// --depth requests by one write and waits for all replies. In an open loop (--rate) clients send
/// each request when it is due, and its latency counts from then, so a stall delays all requests
/// that are due meanwhile. Requests that are due within the measured time are sent and waited for
/// even after it. A request is late if its reply does not arrive within the measured time again
/// plus 10 s. Every reply is checked, key and value; a wrong one ends the run. Refused requests are
/// counted. So are requests that are lost with their connection, in an open loop with the time they
/// had waited; the connection is then opened again.
///
/// --exec and --vs take commands in quotes and start servers. The address to listen on is appended
/// as -l and -p, or -s. Servers are measured in turns, in a changing order, with the same keys;
/// ratios are taken pair by pair. Programs in the folder of this one are preferred to those in
/// PATH. If root starts memcached, it needs -u.
///
/// A server's CPU time is the time that the kernel accounts to its process during the measurement;
/// likewise for the clients. If clients use as much CPU as the server has, they are the bottleneck:
/// give them CPUs of their own (--client-cores), and compare CPU time per request rather than
/// requests per second.
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

    /// Started servers listen on Unix sockets
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

    /// Seconds per measurement; ignored with --grow, which ends when the items are stored
    #[arg(long, default_value_t = 2.0, value_parser = parse_seconds)]
    seconds: f64,

    /// Keep latencies of GETs per interval of this many seconds, in the JSON file
    #[arg(long, value_name = "SECONDS", value_parser = parse_seconds)]
    timeline: Option<f64>,

    #[command(flatten)]
    #[serde(skip)]
    output: Output,
}

impl Args {
    fn plan(&self) -> Plan {
        let measured = Duration::from_secs_f64(self.seconds);
        Plan {
            rounds: self.rounds,
            first_round: 0,
            measured,
            warm_up: warm_up(measured),
            slot: self.timeline.map(Duration::from_secs_f64),
            unix: self.unix,
            server_cores: self.conditions.server_cores().unwrap_or_default(),
            client_cores: self.conditions.client_cores().unwrap_or_default(),
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

/// The first server compared with another one.
#[derive(Debug, Serialize)]
struct Comparison {
    over: String,
    ratios: Vec<Ratio>,
}

pub fn run(args: &Args) -> Result<Ending> {
    args.workload.check()?;
    ensure!(args.exec.is_some() || args.workload.grow.is_none(), "--grow needs servers that it can start: --exec");
    let threads = usize::from(args.workload.threads);
    let mut report = Report::begin("load", args.output.json.as_deref(), &Cpus::allowed(), threads)?;
    allow_connections()?;
    interruption::heed("this round")?;
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
