//! The network: sockets, event loops, and the buffers between them and execution.
//!
//! One thread accepts. It distributes connections to the worker threads, in turn, where they stay.
//! (Letting the kernel distribute them by `SO_REUSEPORT` leaves workers idle if there are few
//! connections, does not exist for Unix sockets, and cannot enforce one limit on all connections.)
//! The accepting thread also drives the clock.
//!
//! A worker runs one event loop over non-blocking sockets. When something has arrived for a
//! connection, the worker receives once, executes all that arrived, and sends the replies at once.
//! Then it serves the next connection, however much more there may be to receive. A [`backend`]
//! receives and sends: [`epoll`] or, if the kernel supports it, [`uring`], with encryption on top
//! of either ([`tls`]). One more thread serves datagrams ([`udp`]). Every buffer is bounded: the
//! server does not read from a client that does not read its replies.
//!
//! Large values bypass the buffers. An [input](buffer) that ends within a value reserves memory of
//! the cache, and the rest is received there. An output refers to pinned values in memory of the
//! cache. For replies in one piece the [executor](crate::execute::Executor::copying) copies
//! values.

mod acceptor;
mod backend;
mod buffer;
mod connection;
mod epoll;
mod listener;
mod stream;
mod tls;
mod udp;
#[cfg(target_os = "linux")]
mod uring;
mod worker;

pub(crate) use acceptor::Acceptor;
pub(crate) use listener::{
    Bound, Listener, adopt, bind_clients, bind_tcp, bind_unix, check_host, port_file, write_port_file,
};
pub(crate) use udp::{UdpServer, bind_udp, discard_waiting};
pub(crate) use worker::{Io, WorkerHandle};
