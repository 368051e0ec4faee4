//! `relativist-bench mirror`: a proxy that compares relativistd with memcached under the requests
//! of real clients.
//!
//! Each client has a connection to the primary and one to the secondary. Requests go to the primary
//! at once, and its replies to the client. A request and its reply then wait in a queue for the
//! secondary, whose reply is compared and dropped.
//!
//! | Module | Holds |
//! |---|---|
//! | `request` | what requests do to items |
//! | `keys` | which requests overlap, and what both servers are known to hold |
//! | `report` | what was found, and the report |
//! | `judge` | the comparison of two replies |
//! | `link` | connections to servers |
//! | `connection`, `secondary` | a client's connections to the primary and to the secondary |

mod connection;
#[cfg(test)]
mod conversations;
mod judge;
mod keys;
mod link;
mod report;
mod request;
mod secondary;

use std::net::{Shutdown, TcpListener};
use std::os::unix::net::UnixListener;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use clap::{ValueEnum, value_parser};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use serde::Serialize;
use socket2::Socket;

use self::report::Tally;
use self::secondary::Mirror;
use crate::harness::options::Output;
use crate::harness::report::Report;
use crate::harness::workers::Cpus;
use relativist_check::client::allow_connections;
use relativist_check::client::{Address, Place};
use relativist_check::interruption::{self, Ending};
use relativist_check::options::parse_seconds;

/// How often the mirror looks for signals.
const TICK: Duration = Duration::from_millis(50);

/// How long the mirror waits before it connects to the secondary again.
const RETRY: Duration = Duration::from_secs(1);

/// How often the mirror writes counts.
const INTERVAL: Duration = Duration::from_secs(60);

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
/// client changes at the same time. CAS values are each server's own: requests with one are sent
/// without it if the first server has executed them. Items that are missing on one server are
/// counted separately. They may have been evicted; if more are missing on the second server than it
/// has evicted, that is a difference.
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
        let tally = Tally::new(self.names(), self.examples.into(), self.show_keys);
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

/// Listens for clients.
fn listen(address: &Address) -> Result<Socket> {
    let listen = || {
        Ok::<Socket, std::io::Error>(match address {
            Address::Tcp(address) => TcpListener::bind(address)?.into(),
            Address::Unix(path) => UnixListener::bind(path)?.into(),
        })
    };
    listen().with_context(|| format!("cannot listen at {address}"))
}

pub fn run(args: &Args) -> Result<Ending> {
    allow_connections()?;
    let mut report = Report::begin("mirror", args.output.json.as_deref(), &Cpus::allowed(), 1)?;
    interruption::handle_signals("the requests in flight")?;
    let mirror = Arc::new(args.mirror()?);
    let (names, servers) = (args.names(), [&mirror.primary, &mirror.secondary]);
    servers.iter().try_for_each(|server| mirror.probe(server))?;
    let before = servers.map(evictions);
    let address = args.listen.find()?;
    let listener = listen(&address)?;
    eprintln!("relativist-bench: mirror listens at {address}");
    let is_over = || interruption::is_wanted() || args.seconds.is_some_and(|seconds| mirror.tally.now() >= seconds);
    serve(&mirror, &listener, args.clients as usize, is_over)?;
    if let Address::Unix(path) = address {
        // Another program may have removed it.
        let _ = std::fs::remove_file(path);
    }
    let mut found = mirror.tally.found();
    found.evictions = since(before, servers.map(evictions));
    for warning in found.warnings(names) {
        report.warn(warning);
    }
    let is_faulty = found.different() > 0 || found.lost() > 0;
    report.finish(args, &found, &found.describe(names))?;
    Ok(match Ending::of(args.seconds.is_none_or(|seconds| found.seconds >= seconds)) {
        Ending::Complete if is_faulty => Ending::Missed,
        ending => ending,
    })
}

/// Serves clients until `is_over`, and then waits until what is in flight is compared, but not
/// longer than the secondary may take.
fn serve(mirror: &Arc<Mirror>, listener: &Socket, max_clients: usize, is_over: impl Fn() -> bool) -> Result<()> {
    let mut clients = Vec::new();
    let (mut written, mut number) = (Instant::now(), 0);
    let watched = Arc::downgrade(mirror);
    // A thread of its own, because the secondary may take long to answer.
    thread::spawn(move || {
        while let Some(mirror) = watched.upgrade() {
            mirror.try_again();
            drop(mirror);
            thread::sleep(RETRY);
        }
    });
    while !is_over() {
        clients.retain(|(_, thread): &(Arc<Socket>, thread::JoinHandle<()>)| !thread.is_finished());
        if written.elapsed() >= INTERVAL {
            written = Instant::now();
            eprintln!("relativist-bench: {}", mirror.tally.found().summary());
        }
        let wanted = if clients.len() < max_clients { PollFlags::IN } else { PollFlags::empty() };
        let timeout = Timespec::try_from(TICK).expect("short enough");
        if poll(&mut [PollFd::new(listener, wanted)], Some(&timeout)).unwrap_or(0) == 0 {
            continue;
        }
        let Ok((client, _)) = listener.accept() else {
            // Such as too many open files.
            thread::sleep(TICK);
            continue;
        };
        // Has no effect on Unix sockets.
        let _ = client.set_tcp_nodelay(true);
        number += 1;
        mirror.tally.update(|found| found.clients = number);
        let (client, mirror) = (Arc::new(client), Arc::clone(mirror));
        let served = Arc::clone(&client);
        // A client without a thread or a primary is disconnected.
        let serving = move || drop(connection::serve(&mirror, &served, number));
        if let Ok(thread) = thread::Builder::new().spawn(serving) {
            clients.push((client, thread));
        }
    }
    for (client, _) in &clients {
        // The client may have disconnected.
        let _ = client.shutdown(Shutdown::Read);
    }
    let end = Instant::now() + mirror.patience + TICK;
    while Instant::now() < end && !clients.iter().all(|(_, thread)| thread.is_finished()) {
        thread::sleep(Duration::from_millis(1));
    }
    Ok(())
}

/// Returns how many items a server has evicted since its start, if it reports that.
fn evictions(server: &Address) -> Option<u64> {
    server.statistics("stats").ok()?.get("evictions")?.parse().ok()
}

/// Returns the growth of each number. A server that was restarted reports a smaller number.
fn since(before: [Option<u64>; 2], after: [Option<u64>; 2]) -> [Option<u64>; 2] {
    [0, 1].map(|server| after[server]?.checked_sub(before[server]?))
}
