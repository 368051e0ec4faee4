//! `relativist-bench mirror`: a proxy that compares relativistd with memcached under the requests
//! of real clients.
//!
//! Each client has a connection to the primary and one to the secondary. Requests go to the primary
//! at once, and its replies to the client. A request and its reply then wait in a queue for the
//! secondary, whose reply is compared and dropped.
//!
//! | Module | Holds |
//! |---|---|
//! | `framing` | finding the end of replies |
//! | `request`, `reply` | requests and replies, independent of the protocol |
//! | `keys` | which requests overlap, and what both servers are known to hold |
//! | `judge` | the comparison of two replies |
//! | `client`, `compare` | a client's connections to the primary and to the secondary |
//! | `shadow` | whether the secondary is used, and the memory for its queue |
//! | `tally`, `screen` | what was found, and the report |

mod client;
mod compare;
#[cfg(test)]
mod conversations;
mod framing;
mod judge;
mod keys;
mod reply;
mod request;
mod screen;
mod shadow;
mod tally;

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result};
use clap::{ValueEnum, value_parser};
use serde::Serialize;
use tokio::net::{TcpListener, UnixListener};
use tokio::sync::{Semaphore, watch};
use tokio::task::JoinSet;

use self::screen::Screen;
use self::shadow::{Mirror, Stream, probe};
use self::tally::Tally;
use crate::harness::options::Output;
use crate::harness::report::Report;
use crate::harness::workers::Cpus;
use relativist_check::client::allow_connections;
use relativist_check::client::{Address, Place};
use relativist_check::interruption::{self, Ending};
use relativist_check::options::parse_seconds;

/// How often the mirror looks for signals.
const TICK: Duration = Duration::from_millis(50);

/// How long a failure to accept a connection, such as too many open files, pauses the mirror.
const PAUSE: Duration = Duration::from_millis(100);

/// Serve clients from memcached, send the same requests to relativistd, and compare the replies
///
/// Clients connect to the mirror instead of memcached. It forwards each request to both servers,
/// returns memcached's reply, and compares it with relativistd's. It runs until Ctrl-C, and then
/// reports the differences. All clients have to use the mirror: what others change on one server
/// appears as a difference.
///
/// Clients never wait for the second server. If it is too slow or its connection breaks, the mirror
/// stops using it, reports that, and connects again after a while.
///
/// Compared are the values, flags, numbers, times to live and errors of items that both servers are
/// known to hold, because they have both stored them or returned the same value before. Not
/// compared are requests for one server (stats, version, watch), and requests to a key that another
/// client changes at the same time. CAS values are each server's own: the mirror translates those
/// that clients send. Items that are missing on one server are counted separately. They may have
/// been evicted; if more are missing on the second server than it has evicted, that is a
/// difference.
///
/// The text and the binary protocol are mirrored, over TCP and Unix sockets, without TLS and
/// logins. Both servers have to know meta commands (memcached 1.6).
#[derive(Debug, clap::Args, Serialize)]
pub struct Args {
    /// Address for clients: HOST:PORT or unix:PATH
    #[arg(long, value_name = "ADDR", default_value = "127.0.0.1:11311")]
    #[serde(skip)]
    listen: Place,

    /// Address of memcached: HOST:PORT or unix:PATH
    #[arg(long, value_name = "ADDR")]
    #[serde(skip)]
    memcached: Place,

    /// Address of relativistd: HOST:PORT or unix:PATH
    #[arg(long, value_name = "ADDR")]
    #[serde(skip)]
    relativistd: Place,

    /// Server whose replies clients get
    #[arg(long, value_enum, default_value_t = Side::Memcached)]
    reply: Side,

    /// Seconds to run [default: until Ctrl-C]
    #[arg(long, value_parser = parse_seconds)]
    seconds: Option<f64>,

    /// Seconds that a reply of the second server may take
    #[arg(long, value_name = "SECONDS", default_value_t = 2.0, value_parser = parse_seconds)]
    patience: f64,

    /// Mebibytes of requests and replies that may wait for the second server
    #[arg(long, value_name = "MIB", default_value_t = 64, value_parser = value_parser!(u32).range(1..=65_536))]
    backlog: u32,

    /// Number of clients; more have to wait
    #[arg(long, default_value_t = 1024, value_parser = value_parser!(u32).range(1..=65_536))]
    clients: u32,

    /// Bytes of the largest value that is compared
    #[arg(long, value_name = "BYTES", default_value_t = 1 << 20, value_parser = value_parser!(u32).range(1..=1 << 30))]
    max_value: u32,

    /// Number of examples to keep for each kind of difference. They contain beginnings of values
    #[arg(long, default_value_t = 5, value_parser = value_parser!(u16).range(0..=1000))]
    examples: u16,

    /// Report keys in clear text instead of hashes
    #[arg(long)]
    show_keys: bool,

    /// Number of threads
    #[arg(long, default_value_t = 2, value_parser = value_parser!(u16).range(1..=1024))]
    threads: u16,

    #[command(flatten)]
    #[serde(skip)]
    output: Output,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize)]
#[serde(rename_all = "lowercase")]
enum Side {
    Memcached,
    Relativistd,
}

impl Args {
    fn mirror(&self) -> Result<Mirror> {
        let mut addresses = [self.memcached.find()?, self.relativistd.find()?];
        if self.reply == Side::Relativistd {
            addresses.reverse();
        }
        let tally = Tally::new(self.examples.into(), self.show_keys);
        let patience = Duration::from_secs_f64(self.patience);
        Ok(Mirror::new(addresses, patience, self.max_value as usize, (self.backlog as usize) << 20, tally))
    }

    fn names(&self) -> [&'static str; 2] {
        match self.reply {
            Side::Memcached => ["memcached", "relativistd"],
            Side::Relativistd => ["relativistd", "memcached"],
        }
    }
}

/// The socket for clients.
enum Listener {
    Tcp(TcpListener),
    Unix(UnixListener),
}

impl Listener {
    async fn bind(address: &Address) -> Result<Self> {
        let bind = async {
            Ok::<_, std::io::Error>(match address {
                Address::Tcp(address) => Self::Tcp(TcpListener::bind(address).await?),
                Address::Unix(path) => Self::Unix(UnixListener::bind(path)?),
            })
        };
        bind.await.with_context(|| format!("cannot listen at {address}"))
    }

    async fn accept(&self) -> std::io::Result<Stream> {
        Ok(match self {
            Self::Tcp(listener) => {
                let (client, _) = listener.accept().await?;
                client.set_nodelay(true)?;
                Box::new(client)
            }
            Self::Unix(listener) => Box::new(listener.accept().await?.0),
        })
    }
}

pub fn run(args: &Args) -> Result<Ending> {
    allow_connections()?;
    let mut report = Report::begin("mirror", args.output.json.as_deref(), &Cpus::allowed(), 1)?;
    interruption::handle_signals("the requests in flight")?;
    let mirror = Arc::new(args.mirror()?);
    let names = args.names();
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(args.threads.into()).enable_all().build()?;
    let screen = Screen::new(names);
    let found = runtime.block_on(async {
        for address in [&mirror.primary, &mirror.secondary] {
            probe(address, mirror.patience).await?;
        }
        let evictions = || [&mirror.primary, &mirror.secondary].map(evictions);
        let before = evictions();
        let listener = Listener::bind(&args.listen.find()?).await?;
        eprintln!("relativist-bench: mirror listens at {}", args.listen.find()?);
        let is_over = || interruption::is_wanted() || args.seconds.is_some_and(|seconds| mirror.tally.now() >= seconds);
        serve(&mirror, &listener, args.clients as usize, is_over, || screen.show(&mirror.tally)).await;
        let mut found = mirror.tally.found();
        let [primary, secondary] = since(before, evictions());
        (found.evictions_of_primary, found.evictions_of_secondary) = (primary, secondary);
        Ok::<_, anyhow::Error>(found)
    })?;
    // Ends the tasks of connections that are still open.
    runtime.shutdown_background();
    screen.finish();
    if let Address::Unix(path) = args.listen.find()? {
        // Another program may have removed it.
        let _ = std::fs::remove_file(path);
    }
    for warning in found.warnings(names) {
        report.warn(warning);
    }
    let is_faulty = found.different > 0 || found.lost() > 0;
    report.finish(args, &found, &screen::describe(&found, names))?;
    Ok(match Ending::of(args.seconds.is_none_or(|seconds| found.seconds >= seconds)) {
        Ending::Complete if is_faulty => Ending::Missed,
        ending => ending,
    })
}

/// Serves clients until `is_over`, and then waits until what is in flight is compared, but not
/// longer than the secondary may take. Calls `tick` from time to time.
async fn serve(
    mirror: &Arc<Mirror>,
    listener: &Listener,
    max_clients: usize,
    is_over: impl Fn() -> bool,
    tick: impl Fn(),
) {
    let (stop, stops) = watch::channel(false);
    let room = Arc::new(Semaphore::new(max_clients));
    let mut clients = JoinSet::new();
    let mut ticks = tokio::time::interval(TICK);
    let mut watching = JoinSet::new();
    let watched = Arc::clone(mirror);
    watching.spawn(async move { watched.watch_secondary().await });
    while !is_over() {
        tokio::select! {
            accepted = async {
                let place = Arc::clone(&room).acquire_owned().await.expect("it is never closed");
                (place, listener.accept().await)
            } => match accepted {
                (place, Ok(client)) => {
                    let number = mirror.tally.count(|found| {
                        found.clients += 1;
                        found.clients
                    });
                    let serving = client::serve(Arc::clone(mirror), client, number, stops.clone());
                    clients.spawn(async move {
                        // A broken connection ends, as it would without the mirror.
                        let _ = serving.await;
                        drop(place);
                    });
                }
                (_, Err(_)) => tokio::time::sleep(PAUSE).await,
            },
            _ = ticks.tick() => tick(),
            Some(_) = clients.join_next(), if !clients.is_empty() => (),
        }
    }
    stop.send_replace(true);
    let ended = async { while clients.join_next().await.is_some() {} };
    let _ = tokio::time::timeout(mirror.patience + TICK, ended).await;
    clients.shutdown().await;
}

/// Returns how many items a server has evicted since its start, if it reports that.
fn evictions(server: &Address) -> Option<u64> {
    server.statistics("stats").ok()?.get("evictions")?.parse().ok()
}

/// Returns the growth of each number. A server that was restarted reports a smaller number.
fn since(before: [Option<u64>; 2], after: [Option<u64>; 2]) -> [Option<u64>; 2] {
    [0, 1].map(|server| after[server]?.checked_sub(before[server]?))
}
