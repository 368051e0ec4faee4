//! The accepting thread: accepts connections, distributes them to workers, and drives the clock.

use super::listener::Listener;
use super::stream::Stream;
use super::worker::{AcceptedConnection, WorkerHandle};
use crate::execute::SharedState;
use crate::execute::Transport;
use crate::observability::log::Level;
use crate::observability::stats::Counters;
use crate::options::Security;
use crate::process::inherited::Passed;
use crate::process::stopper::Stopper;
use crate::process::systemd;
use crossbeam_utils::CachePadded;
use mio::{Events, Interest, Poll, Token, Waker};
use relativist_memcache::reply;
use rustls::server::UnbufferedServerConnection;
use std::cell::Cell;
use std::fmt;
use std::io::{self, Write};
use std::sync::Arc;
use std::time::{Duration, Instant};

const EVENTS: usize = 64;

/// Maximum number of connections accepted from one listener before the acceptor checks the clock,
/// the other listeners, and whether to stop.
const ACCEPTS: usize = 64;

/// Maximum number of connections accepted from a listener when the server begins to drain: far more
/// than the kernel queues (`-b`, and `net.core.somaxconn`, 4096 by default).
const MAX_WAITING: usize = 1 << 16;

/// How often to check whether a connection was closed, while others wait for its place or the
/// server drains.
const FULL: Duration = Duration::from_millis(10);

/// The token of the waker's events. Listeners use their index.
const WAKER: Token = Token(usize::MAX);

/// The listeners, and the workers that serve their connections.
pub(crate) struct Acceptor {
    poll: Poll,
    listeners: Vec<Listener>,
    shared: Arc<SharedState>,
    counters: Arc<CachePadded<Counters>>,
    stopper: Stopper,
    /// The idle timeout that the workers know.
    announced: Cell<(u32, u64)>,
    /// The second of the last warning.
    warned: Cell<Option<u32>>,
}

impl Acceptor {
    /// An acceptor that uses the counters of `thread`.
    pub(crate) fn new(shared: Arc<SharedState>, thread: usize, mut listeners: Vec<Listener>) -> io::Result<Acceptor> {
        let poll = Poll::new()?;
        for (index, listener) in listeners.iter_mut().enumerate() {
            poll.registry().register(listener.source(), Token(index), Interest::READABLE)?;
        }
        let waker = Arc::new(Waker::new(poll.registry(), WAKER)?);
        let stopper = Stopper::new(Arc::clone(&waker));
        shared.gate.add(move || drop(waker.wake()));
        let counters = shared.common.counters.of_thread(thread);
        let announced = Cell::new((shared.options.extended.idle_timeout, 0));
        Ok(Acceptor { poll, listeners, shared, counters, stopper, announced, warned: Cell::new(None) })
    }

    pub(crate) fn listeners(&self) -> &[Listener] {
        &self.listeners
    }

    pub(crate) fn stopper(&self) -> Stopper {
        self.stopper.clone()
    }

    /// Distributes connections to `workers` until the server is stopped, and then drains if that
    /// was asked for. The workers stop when this returns, because it drops their handles.
    ///
    /// # Errors
    /// When the kernel reports no more events.
    pub(crate) fn run(mut self, workers: Vec<WorkerHandle>) -> io::Result<()> {
        let mut events = Events::with_capacity(EVENTS);
        let mut turn = workers.iter().cycle();
        let mut may_be_more = false;
        let mut is_full = false;
        while !self.stopper.is_stopping() {
            let timeout = match (is_full, may_be_more) {
                (true, _) => FULL,
                (false, true) => Duration::ZERO,
                (false, false) => self.shared.ticker.until_next_tick(),
            };
            match self.poll.poll(&mut events, Some(timeout)) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                other => other?,
            }
            if !self.shared.gate.pass() {
                break;
            }
            self.shared.ticker.tick();
            self.enforce_buffer_limit(&workers)?;
            self.announce_changes(&workers)?;
            // Not only listeners with an event: if accepting failed the last time, for example for
            // lack of descriptors, the waiting clients are not announced again.
            may_be_more = false;
            is_full = self.waits_when_full() && self.shared.connection_limit.pause_if_full();
            if is_full {
                continue;
            }
            for listener in &self.listeners {
                may_be_more |= self.accept_some(listener, &mut turn)?;
            }
        }
        self.drain(&workers, &mut turn, &mut events)
    }

    /// Serves open connections for a while, but accepts no more.
    fn drain<'w>(
        mut self,
        workers: &[WorkerHandle],
        turn: &mut impl Iterator<Item = &'w WorkerHandle>,
        events: &mut Events,
    ) -> io::Result<()> {
        let is_handed_over = self.shared.gate.is_handed_over();
        if !is_handed_over {
            systemd::notify_stopping();
        }
        if !is_handed_over && !self.stopper.is_stopped() {
            // Waiting clients believe that they are connected: closing the listener would reset
            // them.
            for listener in &self.listeners {
                self.accept_waiting(listener, turn)?;
            }
        }
        *self.shared.gate.sockets() = Passed::default();
        // Closing the listeners ends their registration. From now on the kernel refuses clients.
        self.listeners.clear();
        let end = Instant::now() + Duration::from_secs(self.shared.live.get().drain.into());
        while !is_handed_over
            && !self.stopper.is_stopped()
            && self.shared.connection_limit.open() > 0
            && Instant::now() < end
        {
            match self.poll.poll(events, Some(FULL)) {
                Err(error) if error.kind() != io::ErrorKind::Interrupted => return Err(error),
                _ => self.shared.ticker.tick(),
            }
            self.enforce_buffer_limit(workers)?;
        }
        // The acceptor logs this, not the workers: the watchers might be gone when the workers
        // close their connections.
        for session in self.shared.connections.sessions() {
            self.shared.publish_connection(&session, "conn_close", " reason=shutdown");
        }
        Ok(())
    }

    /// Wakes the workers while the buffers of all connections exceed their limit: a worker with
    /// large ones may be asleep.
    fn enforce_buffer_limit(&self, workers: &[WorkerHandle]) -> io::Result<()> {
        if self.shared.buffer_limit.is_exceeded() { workers.iter().try_for_each(WorkerHandle::wake) } else { Ok(()) }
    }

    /// Wakes the workers after the idle timeout was changed, because they may be asleep without
    /// one, and after users were removed, whose connections they close.
    fn announce_changes(&self, workers: &[WorkerHandle]) -> io::Result<()> {
        let now = (self.shared.live.get().extended.idle_timeout, self.shared.connections.revocations());
        if self.announced.replace(now) == now { Ok(()) } else { workers.iter().try_for_each(WorkerHandle::wake) }
    }

    /// Whether connections beyond the limit wait, instead of being refused.
    fn waits_when_full(&self) -> bool {
        !self.shared.live.get().extended.maxconns_fast
    }

    /// Accepts up to [`ACCEPTS`] waiting clients. Returns whether there may be more.
    fn accept_some<'w>(
        &self,
        listener: &Listener,
        turn: &mut impl Iterator<Item = &'w WorkerHandle>,
    ) -> io::Result<bool> {
        for _ in 0..ACCEPTS {
            if self.waits_when_full() && self.shared.connection_limit.pause_if_full() {
                return Ok(true);
            }
            match listener.accept() {
                Ok((stream, transport)) => self.admit(stream, transport, listener, turn)?,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(false),
                Err(error) if is_passing(&error) => (),
                Err(error) => {
                    self.warn(format_args!("cannot accept a connection: {error}"));
                    // There may be more, but trying again at once would fail the same way.
                    return Ok(false);
                }
            }
        }
        Ok(true)
    }

    /// Accepts all clients that wait at `listener`, unless the server is full or stopped. The
    /// number is bounded, because new clients may come meanwhile.
    fn accept_waiting<'w>(
        &self,
        listener: &Listener,
        turn: &mut impl Iterator<Item = &'w WorkerHandle>,
    ) -> io::Result<()> {
        for _ in 0..MAX_WAITING / ACCEPTS {
            let is_full = self.waits_when_full() && self.shared.connection_limit.pause_if_full();
            if is_full || self.stopper.is_stopped() || !self.accept_some(listener, turn)? {
                break;
            }
        }
        Ok(())
    }

    /// Logs a warning, at most one per second: clients could provoke any number.
    fn warn(&self, message: fmt::Arguments<'_>) {
        let now = Some(self.shared.ticker.clock().now());
        if self.warned.replace(now) != now {
            self.shared.log.write(Level::Warning, message);
        }
    }

    fn admit<'w>(
        &self,
        stream: Stream,
        transport: Transport,
        listener: &Listener,
        turn: &mut impl Iterator<Item = &'w WorkerHandle>,
    ) -> io::Result<()> {
        let Some(pass) = self.shared.connection_limit.admit() else {
            self.refuse(stream, &transport, listener.security);
            return Ok(());
        };
        let tls = match self.secure(listener.security) {
            Ok(tls) => tls,
            Err(error) => {
                self.warn(format_args!("cannot encrypt a connection: {error}"));
                return Ok(());
            }
        };
        self.counters.total_connections.bump();
        match turn.next() {
            Some(worker) => {
                let &Listener { binding, requires_login, .. } = listener;
                worker.give(AcceptedConnection { stream, transport, binding, requires_login, tls, pass })
            }
            None => Ok(()),
        }
    }

    /// The TLS session for a connection, if it is encrypted.
    fn secure(&self, security: Security) -> Result<Option<Box<UnbufferedServerConnection>>, rustls::Error> {
        match (security, &self.shared.tls) {
            (Security::Plain, _) => Ok(None),
            (Security::Tls(certificate), Some(tls)) => tls.begin(certificate).map(Some),
            (Security::Tls(_), None) => Err(rustls::Error::General("there is no certificate".into())),
        }
    }

    fn refuse(&self, mut stream: Stream, transport: &Transport, security: Security) {
        self.counters.rejected_connections.bump();
        self.shared.log.write(Level::Trouble, format_args!("connection from {transport} refused: there are too many"));
        if security == Security::Plain {
            // Best effort: a new socket has room for this line. If it has not, the client cannot be
            // informed.
            let _ = stream.write(reply::TOO_MANY_CONNECTIONS);
        }
    }
}

/// Whether accepting failed because of the one connection, not of the listener.
fn is_passing(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::ConnectionAborted | io::ErrorKind::Interrupted)
}
