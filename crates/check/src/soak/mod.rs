//! Random requests from many connections. Every reply is compared with a model.
//!
//! | Module | Holds |
//! |---|---|
//! | `request`, `reply` | requests and replies, independent of the protocol |
//! | `text`, `binary` | their encoding |
//! | `draw` | random requests |
//! | `model` | the model of a key that only one client uses |
//! | `shared` | the model of keys that all clients share, and their common state |
//! | `connection`, `client` | sending batches, and checking the replies |
//! | `hand_over` | replacing the server by successors |
//! | `serving` | which process serves a connection, if the server is replaced |
//! | `observe` | the server's clock and memory |
//! | `evictions` | reported evictions and missing items |
//! | `stopped` | a process of clients that is stopped from time to time |

mod binary;
mod client;
mod connection;
#[cfg(test)]
mod conversations;
mod draw;
mod evictions;
mod hand_over;
mod model;
mod observe;
mod reply;
mod request;
mod serving;
mod shared;
mod stopped;
mod text;

use std::fmt;
use std::sync::Mutex;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use clap::value_parser;

use self::client::Client;
use self::evictions::Watcher;
use self::observe::{Observer, number};
use self::shared::Common;
use self::stopped::Stopped;
use crate::client::allow_connections;
use crate::client::{Address, Place};
use crate::cores::Cores;
use crate::interruption::{self, Ending};
use crate::options::parse_seconds;
use crate::server::{Server, ServerCommand};

/// The items of all clients need up to this many times the server's memory limit, so that it has to
/// evict.
const TIMES_LIMIT: u64 = 2;

/// The items of all clients need at most this many bytes. A server with a large limit keeps all of
/// them.
const MAX_BYTES: u64 = 256 << 20;

/// What a run does.
#[derive(Debug, clap::Args)]
#[command(group(clap::ArgGroup::new("who").required(true).args(["server", "exec"])))]
pub struct Args {
    /// Address of a running server: HOST:PORT or unix:PATH
    #[arg(long, value_name = "ADDR")]
    server: Option<Place>,

    /// Start this server, and end it after the run
    #[arg(long, value_name = "COMMAND")]
    exec: Option<ServerCommand>,

    /// Let the started server listen on a Unix socket
    #[arg(long, conflicts_with = "server")]
    unix: bool,

    /// Let a successor take over from the started server again and again, after this time. The
    /// command must be a relativistd; this program adds --hand-over and --take-over to it
    #[arg(long, value_name = "SECONDS", conflicts_with = "server", value_parser = parse_seconds)]
    hand_over: Option<f64>,

    /// Seconds to run
    #[arg(long, default_value_t = 3600.0, value_parser = parse_seconds)]
    seconds: f64,

    /// Seed of the random requests. It determines the requests, except for CAS values, but not
    /// their timing
    #[arg(long, default_value_t = 1)]
    seed: u64,

    /// Number of clients, each with a connection for the text protocols and one for the binary
    /// protocol
    #[arg(long, default_value_t = 16, value_parser = value_parser!(u16).range(1..=1024))]
    clients: u16,

    /// Number of keys that only one client uses, per client
    #[arg(long, default_value_t = 4000, value_parser = value_parser!(u32).range(8..=1_000_000))]
    keys: u32,

    /// For internal use: other clients run at the same time, flush everything, and stop this
    /// process
    #[arg(long, hide = true, requires = "server")]
    beside: bool,

    /// For internal use: another process replaces the server
    #[arg(long, hide = true, requires = "beside")]
    replaced: bool,
}

/// Whether the server is replaced during the run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Replacement {
    Never,
    /// By this process, each time after this duration.
    Every(Duration),
    /// By another process.
    Elsewhere,
}

/// How long a client runs.
#[derive(Clone, Copy, Debug)]
enum Length {
    Time(Duration),
    /// A number of batches, for reproducible runs.
    #[cfg(test)]
    Batches(u64),
}

impl Length {
    fn goes_on(self, batch: u64, elapsed: Duration) -> bool {
        // Only the variant for tests uses it.
        let _ = batch;
        match self {
            Self::Time(time) => elapsed < time && !interruption::is_wanted(),
            #[cfg(test)]
            Self::Batches(batches) => batch < batches,
        }
    }
}

#[derive(Clone, Debug)]
struct Plan {
    prefix: String,
    seed: u64,
    clients: u16,
    keys: u32,
    length: Length,
    /// Whether clients in another process flush everything. The clients of this process then do not
    /// flush, and items may be missing.
    others_flush: bool,
    replacement: Replacement,
}

impl Plan {
    fn is_replaced(&self) -> bool {
        self.replacement != Replacement::Never
    }
}

#[derive(Clone, Copy, Debug)]
struct Summary {
    requests: u64,
    resets: u64,
    flushes: u64,
    refusals: u64,
    missing: u64,
    evictions: u64,
    most_resident: u64,
    hand_overs: u64,
    closed: u64,
    unreported: u64,
}

impl fmt::Display for Summary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { requests, resets, flushes, refusals, missing, evictions, most_resident, .. } = self;
        let Self { hand_overs, closed, unreported, .. } = self;
        writeln!(f, "{requests} answers, none wrong")?;
        writeln!(
            f,
            "{missing} items were missing, the server has evicted {evictions}; {refusals} requests were refused for lack of memory"
        )?;
        write!(f, "everything was flushed {flushes} times, {resets} connections broke in the middle of a batch")?;
        if *most_resident > 0 {
            write!(f, "; the server took up to {} MiB", most_resident >> 20)?;
        }
        if *hand_overs > 0 {
            write!(
                f,
                "\nthe server was replaced {hand_overs} times, and closed {closed} connections that were in use; \
                 successors have evicted {unreported} items before they were watched"
            )?;
        }
        Ok(())
    }
}

pub fn run(args: &Args) -> Result<Ending> {
    allow_connections()?;
    interruption::handle_signals("the current batches")?;
    let begun = Instant::now();
    let plan = Plan {
        prefix: if args.beside { "stopped" } else { "soak" }.into(),
        seed: args.seed,
        clients: args.clients,
        keys: args.keys,
        length: Length::Time(Duration::from_secs_f64(args.seconds)),
        others_flush: args.beside,
        replacement: match args.hand_over {
            Some(seconds) => Replacement::Every(Duration::from_secs_f64(seconds)),
            None if args.replaced => Replacement::Elsewhere,
            None => Replacement::Never,
        },
    };
    let server = match (&args.exec, &args.server) {
        (Some(command), _) if plan.is_replaced() => Server::start_replaceable(command, args.unix)?,
        (Some(command), _) => Server::start(command, args.unix, &Cores::default())?,
        (None, place) => Server::running(place.as_ref().context("--server or --exec")?.find()?)?,
    };
    let address = server.address.clone();
    let stopped = (!args.beside).then(|| Stopped::start(&plan, &address, args.seconds)).transpose()?;
    let server = Mutex::new(server);
    let measured = args.exec.is_some().then_some(&server);
    let summary = soak(&plan, &address, measured, stopped)?;
    // The ending is `Complete` if no signal has arrived.
    let ending = Ending::of(false);
    if ending == Ending::Interrupted {
        eprintln!("relativist-check: interrupted after {} of {} s", begun.elapsed().as_secs(), args.seconds);
    }
    println!("{summary}");
    Ok(ending)
}

/// Runs against a server, and checks its memory if `server` is given.
fn soak(plan: &Plan, address: &Address, server: Option<&Mutex<Server>>, stopped: Option<Stopped>) -> Result<Summary> {
    let statistics = serving::statistics(plan, address, "stats")?;
    let settings = serving::statistics(plan, address, "stats settings")?;
    let limit = number(&statistics, "limit_maxbytes");
    let largest = number(&settings, "item_size_max") as usize;
    ensure!(limit > 0 && largest > 0, "the server does not report its limits");
    let bytes_per_client = (TIMES_LIMIT * limit).min(MAX_BYTES) / u64::from(plan.clients);
    let common = Common::new(plan, bytes_per_client as usize, largest);
    let watcher = Watcher::start(&common, address)?;
    ensure!(watcher.is_some() || !plan.is_replaced(), "the server refuses to report evictions");
    let mut observer = Observer::new(&common, address, limit, watcher.is_some());
    observer.look()?;
    let faults: Vec<String> = thread::scope(|scope| {
        let observer = scope.spawn(move || observer.run(server));
        let listener = watcher.as_ref().map(|watcher| scope.spawn(|| watcher.run()));
        let stopped = stopped.map(|stopped| scope.spawn(|| stopped.run(&common)));
        let (end, ended) = mpsc::channel();
        let replacer = match (plan.replacement, server) {
            (Replacement::Every(time), Some(server)) => {
                let common = &common;
                Some(scope.spawn(move || hand_over::run(server, time, common, &ended)))
            }
            _ => None,
        };
        let clients: Vec<_> = (0..plan.clients)
            .map(|index| Client::new(index, &common, address))
            .map(|mut client| scope.spawn(move || client.run()))
            .collect();
        let clients = clients.into_iter().map(|client| client.join().expect("no client panics"));
        // Only one client's error is reported, because those of other clients may be its
        // consequences.
        let first = clients.collect::<Vec<_>>().into_iter().find(Result::is_err);
        let stopped = stopped.map(|stopped| stopped.join().expect("it does not panic"));
        // The observer looks a last time when the run is over, so the server must stay then.
        drop::<mpsc::Sender<()>>(end);
        let replacer = replacer.map(|replacer| replacer.join().expect("it does not panic"));
        common.is_over.store(true, Relaxed);
        let observer = observer.join().expect("it does not panic");
        watcher.iter().for_each(Watcher::stop);
        let listener = listener.map(|listener| listener.join().expect("it does not panic"));
        let outcomes = [first, stopped, replacer, Some(observer), listener].into_iter().flatten();
        outcomes.filter_map(|outcome| outcome.err().map(|error| format!("{error:#}"))).collect()
    });
    ensure!(faults.is_empty(), "{}", faults.join("\n"));
    let counts = &common.counts;
    Ok(Summary {
        requests: counts.requests.load(Relaxed),
        resets: counts.resets.load(Relaxed),
        flushes: common.flushes.load(Relaxed),
        refusals: counts.refusals.load(Relaxed),
        missing: counts.missing.load(Relaxed),
        evictions: counts.evictions.load(Relaxed),
        most_resident: counts.most_resident.load(Relaxed),
        hand_overs: counts.hand_overs.load(Relaxed),
        closed: counts.closed.load(Relaxed),
        unreported: counts.excused.load(Relaxed),
    })
}
