//! `relativist-bench echo` is a server without a store. It shows the lower bound of the cost of any
//! server on this machine.

mod epoll;
mod uring;

use std::io::Write;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{FromRawFd, IntoRawFd, OwnedFd, RawFd};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::thread;

use anyhow::{Context, Result};
use clap::{ValueEnum, value_parser};
use socket2::{Domain, SockAddr, Socket, Type};

use crate::memcached::workload::{DEFAULT, Protocol};

/// Serve the same item for every request, to show the lower bound for the cost of a memcached
/// server
///
/// Replies to every line as to a GET that hits, with a key and value of the given sizes. Any
/// memcached server has to wait for, receive and send the same bytes, so none can be cheaper.
/// Measure it with `relativist-bench load --exec "relativist-bench echo" --no-preload --unchecked`,
/// and with the default --depth of 1.
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

    /// Number of server threads
    #[arg(short, long, default_value_t = 1, value_parser = value_parser!(u16).range(1..=1024))]
    threads: u16,

    /// System calls for waiting, receiving and sending
    #[arg(long, value_enum, default_value_t = Io::Auto)]
    io: Io,

    /// Bytes of the key
    #[arg(long, value_name = "BYTES", default_value_t = 10, value_parser = value_parser!(u16).range(1..=250))]
    key_size: u16,

    /// Bytes of the value
    #[arg(long, value_name = "BYTES", default_value_t = 100, value_parser = value_parser!(u32).range(0..=1 << 20))]
    value_size: u32,

    /// Protocol of the reply
    #[arg(long, value_enum, default_value_t = DEFAULT.protocol)]
    protocol: Protocol,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Io {
    /// io_uring where the kernel allows it, epoll otherwise
    Auto,
    /// epoll, with a system call for each receive and send
    Epoll,
    /// io_uring, with one system call for all completed operations
    Uring,
}

/// The maximum number of replies in one write.
const MAX_BATCH: usize = 64;

/// The reply, repeated `MAX_BATCH` times, so that one write answers requests that arrive together.
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
        Self { length: one.len(), bytes: one.repeat(MAX_BATCH) }
    }

    /// Returns the replies to a number of requests, in pieces for one write each.
    fn to(&self, requests: usize) -> impl Iterator<Item = &[u8]> {
        let pieces = (0..requests).step_by(MAX_BATCH);
        pieces.map(move |before| &self.bytes[..self.length * MAX_BATCH.min(requests - before)])
    }
}

/// Returns the number of requests in the received bytes, which is the number of line ends.
fn requests(bytes: &[u8]) -> usize {
    memchr::memchr_iter(b'\n', bytes).count()
}

/// Runs the subcommand, which serves until it is killed.
pub fn run(args: &Args) -> Result<()> {
    // Never freed, because the kernel may still send from these bytes when a thread ends.
    let replies: &'static Replies = Box::leak(Box::new(Replies::new(args)));
    let listener = listen(args)?;
    let serve = move |accepted: UnixStream, io: Io| match io {
        Io::Uring => uring::serve(accepted, replies),
        Io::Auto if uring::is_available() => uring::serve(accepted, replies),
        Io::Auto | Io::Epoll => epoll::serve(accepted, replies),
    };
    let (mut senders, mut threads) = (Vec::new(), Vec::new());
    for _ in 0..args.threads {
        let (sender, accepted) = UnixStream::pair().context("cannot make a pair of sockets")?;
        let io = args.io;
        senders.push(sender);
        threads.push(thread::spawn(move || serve(accepted, io)));
    }
    thread::spawn(move || accept(&listener, &mut senders));
    threads.into_iter().try_for_each(|thread| thread.join().expect("no thread panics"))
}

/// Accepts connections, and passes them to the threads in turn. (If each thread accepted
/// connections itself, the first thread to wake up would get all.) Ends on failure, which also ends
/// the threads.
fn accept(listener: &Socket, threads: &mut [UnixStream]) -> std::io::Result<()> {
    for turn in (0..threads.len()).cycle() {
        let (client, _) = listener.accept()?;
        let _ = client.set_tcp_nodelay(true);
        threads[turn].write_all(&client.into_raw_fd().to_ne_bytes())?;
    }
    Ok(())
}

/// Converts received descriptors to sockets.
///
/// # Safety
/// `bytes` were written by [`accept`], and are the only descriptors in flight.
unsafe fn received_sockets(bytes: &[u8]) -> impl Iterator<Item = Socket> {
    // SAFETY: `accept` has given up the descriptor, so this is its only owner.
    bytes.as_chunks().0.iter().map(|fd| Socket::from(unsafe { OwnedFd::from_raw_fd(RawFd::from_ne_bytes(*fd)) }))
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
        let replies = Replies { length: 2, bytes: b"ab".repeat(MAX_BATCH) };
        for requests in [0, 1, MAX_BATCH, 3 * MAX_BATCH + 5] {
            let bytes: Vec<u8> = replies.to(requests).flatten().copied().collect();
            assert_eq!(bytes, b"ab".repeat(requests));
        }
        assert_eq!(requests(b"get a\r\nget b\r\nget"), 2);
    }
}
