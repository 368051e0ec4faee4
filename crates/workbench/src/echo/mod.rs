//! `relativist echo`: a server without a store, which costs what any server on this machine costs.

mod epoll;
mod uring;

use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::thread;

use anyhow::{Context, Result};
use clap::{ValueEnum, value_parser};
use socket2::{Domain, SockAddr, Socket, Type};

use crate::load::work::{DEFAULT, Protocol};

/// Serve the same item to whoever asks: the floor under the cost of memcached servers
///
/// Answers every line that arrives with the reply to a GET that hits, of the given sizes, whatever was asked for. What such a server needs
/// per request, receiving, waiting and sending the same bytes as a memcached server, no server can go below. To be measured by `relativist
/// load --exec "relativist echo" --no-preload --unchecked`, with one request outstanding per client.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// TCP port
    #[arg(short, long, default_value_t = 11211)]
    port: u16,

    /// Address to listen on
    #[arg(short, long, default_value = "127.0.0.1")]
    listen: IpAddr,

    /// Unix socket to listen on instead
    #[arg(short = 's', long, value_name = "PATH")]
    unix_socket: Option<PathBuf>,

    /// Threads
    #[arg(short, long, default_value_t = 1, value_parser = value_parser!(u16).range(1..=1024))]
    threads: u16,

    /// How to wait, receive and send
    #[arg(long, value_enum, default_value_t = Io::Auto)]
    io: Io,

    /// Bytes of the key
    #[arg(long, value_name = "BYTES", default_value_t = 10, value_parser = value_parser!(u16).range(1..=250))]
    key_size: u16,

    /// Bytes of the value
    #[arg(long, value_name = "BYTES", default_value_t = 100, value_parser = value_parser!(u32).range(0..=1 << 20))]
    value_size: u32,

    /// The syntax of the reply
    #[arg(long, value_enum, default_value_t = DEFAULT.protocol)]
    protocol: Protocol,
}

/// What the kernel offers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Io {
    /// io_uring where the kernel allows it, epoll otherwise
    Auto,
    /// Readiness, and a system call for each receiving and sending
    Epoll,
    /// Completions, and one system call for all that happened meanwhile
    Uring,
}

/// Requests that arrived together are answered by one write if they are not more.
const TOGETHER: usize = 64;

/// The reply, so many times that requests that arrive together are answered together.
#[derive(Debug)]
struct Replies {
    length: usize,
    bytes: Vec<u8>,
}

impl Replies {
    fn new(args: &Args) -> Self {
        let key = "k".repeat(args.key_size.into());
        let size = args.value_size;
        let (before, after) = match args.protocol {
            Protocol::Classic => (format!("VALUE {key} 0 {size}\r\n"), "\r\nEND\r\n"),
            Protocol::Meta => (format!("VA {size} k{key}\r\n"), "\r\n"),
        };
        let value = "v".repeat(size as usize);
        let one = [before.as_str(), &value, after].concat().into_bytes();
        Self { length: one.len(), bytes: one.repeat(TOGETHER) }
    }

    /// The replies to a number of requests, in pieces.
    fn to(&self, requests: usize) -> impl Iterator<Item = &[u8]> {
        let pieces = (0..requests).step_by(TOGETHER);
        pieces.map(move |before| &self.bytes[..self.length * TOGETHER.min(requests - before)])
    }
}

/// How many requests there are in what arrived: they end with lines.
fn requests(bytes: &[u8]) -> usize {
    memchr::memchr_iter(b'\n', bytes).count()
}

/// Runs the subcommand: serves until it is killed.
///
/// # Errors
/// When it can't listen, or the kernel refuses what it needs.
pub fn run(args: &Args) -> Result<()> {
    // The kernel may be sending from them when a thread gives up.
    let replies: &'static Replies = Box::leak(Box::new(Replies::new(args)));
    let listener = listen(args)?;
    thread::scope(|scope| {
        let serve = || match args.io {
            Io::Uring => uring::serve(&listener, replies),
            Io::Auto if uring::is_available() => uring::serve(&listener, replies),
            Io::Auto | Io::Epoll => epoll::serve(&listener, replies),
        };
        let threads: Vec<_> = (0..args.threads).map(|_| scope.spawn(serve)).collect();
        threads.into_iter().try_for_each(|thread| thread.join().expect("no thread panics"))
    })
}

fn listen(args: &Args) -> Result<Socket> {
    let address = SocketAddr::new(args.listen, args.port);
    let (domain, address) = match &args.unix_socket {
        Some(path) => (Domain::UNIX, SockAddr::unix(path)?),
        None => (Domain::for_address(address), SockAddr::from(address)),
    };
    let listen = || {
        let socket = Socket::new(domain, Type::STREAM, None)?;
        if domain != Domain::UNIX {
            socket.set_reuse_address(true)?;
        }
        socket.bind(&address)?;
        socket.listen(1024)?;
        Ok::<_, std::io::Error>(socket)
    };
    listen().context("cannot listen")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn replies_are_as_many_as_requests() {
        let replies = Replies { length: 2, bytes: b"ab".repeat(TOGETHER) };
        for requests in [0, 1, TOGETHER, 3 * TOGETHER + 5] {
            let bytes: Vec<u8> = replies.to(requests).flatten().copied().collect();
            assert_eq!(bytes, b"ab".repeat(requests));
        }
        assert_eq!(requests(b"get a\r\nget b\r\nget"), 2);
    }
}
