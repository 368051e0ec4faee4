//! The network: sockets, event loops, and the buffers between them and execution.
//!
//! One thread accepts. It hands each connection to one of the worker threads, in turn, where it stays. (Letting the kernel
//! spread connections over one listener per worker, by `SO_REUSEPORT`, leaves workers idle when there are few connections,
//! does not exist for Unix sockets, and could not enforce one limit on all connections.) The accepting thread also
//! drives the clock, having nothing else to do.
//!
//! A worker runs one event loop over non-blocking sockets. A connection gets its turn when something has arrived: it receives
//! once, executes all that arrived, and answers by one write. Then it is the next one's turn, however much more there may
//! be to receive. How bytes come and go is a [`backend`]'s: [`epoll`] or, where the kernel has it, [`uring`], with encryption
//! on top of either where it is asked for ([`tls`]). Datagrams have a thread of their own ([`udp`]). Every buffer is bounded: a client
//! that does not read its answers is not read from.
//!
//! Large values pass by the buffers. An [input](buffer) that ends within one gets room for it from the engine, and what arrives from then on
//! goes there. An output has them on loan from the engine, and refers to them where they lie. Who needs replies in one piece has the
//! [executor](crate::execute::Executor::copying) copy.

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
pub use acceptor::Stopper;
pub(crate) use listener::{Bound, Listener, adopt, bind_tcp, bind_unix, check_host, port_file, write_port_file};
pub(crate) use udp::{UdpServer, bind_udp, discard_waiting};
pub(crate) use worker::{Io, WorkerHandle};
