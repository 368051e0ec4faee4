//! A worker thread: one event loop over its connections.

use super::backend::{Backend, Event, Waker};
use super::buffer::Pool;
use super::connection::{Connection, Ending, NextState, OUTPUT_LIMIT, Terms};
use super::epoll::Epoll;
use super::stream::Stream;
use super::tls::Tls;
#[cfg(target_os = "linux")]
use super::uring::Uring;
use crate::execute::{Executor, Listed, Session, SharedState, TURN, Transport};
use crate::limits::buffers::{BufferBytes, WorkerUsage};
use crate::limits::connections::ConnectionPermit;
use crate::limits::slow_clients::{MIN_BYTES, PERIOD};
use crate::observability::log::{Level, Log};
use crate::observability::stats::Counters;
use crate::options::{Binding, IoKind};
use crate::process::stopper::Stopper;
use crossbeam_utils::CachePadded;
use relativist_memcache as memcache;
use relativist_store::{MAX_BATCH_KEYS, work};
use rustls::server::UnbufferedServerConnection;
use std::collections::VecDeque;
use std::fmt;
use std::io;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, TryRecvError, channel};
use std::thread;
use std::time::Duration;

/// How often the worker looks for connections that were silent for too long.
const SILENCE_CHECK: Duration = Duration::from_secs(1);

/// The maximum duration of a TLS handshake, in seconds.
const HANDSHAKE_LIMIT: u32 = 30;

/// The number of requests that a connection executes in a row while no other connection waits,
/// before the worker checks for new connections and the waker. `-R` may raise it.
const MAX_REQUESTS_ALONE: u32 = 1024;

/// Maximum number of accepted connections that a worker takes over before it serves others.
const MAX_ADMITTED: usize = 64;

/// The maximum [work] that the connections within long commands have in one iteration of the loop:
/// about a millisecond.
const MAX_LONG_TURNS: u64 = 5 * TURN;

/// A connection on its way to a worker.
pub(crate) struct AcceptedConnection {
    pub(super) stream: Stream,
    pub(super) transport: Transport,
    pub(super) binding: Binding,
    pub(super) requires_login: bool,
    /// The TLS session, if it is encrypted.
    pub(super) tls: Option<Box<UnbufferedServerConnection>>,
    pub(super) pass: ConnectionPermit,
}

/// A connection, and its place on the list of sessions.
struct ConnectionSlot {
    connection: Connection,
    listed: Listed,
}

/// The other end of a worker, through which it receives connections. Dropping it stops the worker.
pub(crate) struct WorkerHandle {
    /// Bounded by the limit on connections: each connection in it has a permit.
    inbox: Option<Sender<AcceptedConnection>>,
    waker: Arc<Waker>,
}

/// The connections to be served next.
#[derive(Default)]
struct Turns {
    queue: VecDeque<usize>,
    /// Those within a command that takes long. New ones are among them, because each of thousands
    /// may send such a command.
    long: VecDeque<usize>,
}

impl Turns {
    fn is_empty(&self) -> bool {
        self.queue.is_empty() && self.long.is_empty()
    }

    fn enqueue(&mut self, connection: &mut Connection, key: usize) {
        if !connection.is_queued {
            connection.is_queued = true;
            let queue = if connection.takes_long { &mut self.long } else { &mut self.queue };
            queue.push_back(key);
        }
    }
}

/// An event loop and its connections.
struct Worker<B> {
    backend: B,
    inbox: Receiver<AcceptedConnection>,
    shared: Arc<SharedState>,
    counters: Arc<CachePadded<Counters>>,
    /// The number of its counters.
    thread: usize,
    /// Its number among those that may be within long commands, and whether it waits for that.
    long_turns: usize,
    waits_for_long_turns: bool,
    slots: Slots,
    turns: Turns,
    /// Connections that receive log lines.
    watchers: Vec<usize>,
    pool: Pool,
    usage: WorkerUsage,
    /// The second of the last check for silent connections.
    checked: u32,
    /// The seconds after which idle connections are closed (`idle_timeout`), when last looked up.
    idle_timeout: u32,
    /// How many sessions were revoked, when last looked up.
    revocations: u64,
    /// Whether some connection may pin memory of items.
    pins_memory: bool,
}

/// How workers do input and output: a backend that the kernel supports.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Io {
    Epoll,
    #[cfg(target_os = "linux")]
    Uring,
}

/// The function that a worker's thread runs.
pub(crate) type Run = Box<dyn FnOnce(&Stopper) -> io::Result<()> + Send>;

impl Io {
    /// Returns the backend for `wanted`, if the kernel supports it.
    ///
    /// # Errors
    /// Why the kernel does not support it.
    pub(crate) fn choose(wanted: IoKind, log: &Log) -> io::Result<Io> {
        match wanted {
            IoKind::Epoll => Ok(Io::Epoll),
            IoKind::Uring => Io::uring(),
            IoKind::Auto => Ok(Io::uring().unwrap_or_else(|error| {
                log.write(Level::Trouble, format_args!("io_uring unavailable ({error}); using epoll"));
                Io::Epoll
            })),
        }
    }

    #[cfg(target_os = "linux")]
    fn uring() -> io::Result<Io> {
        // In another thread: closing a ring interrupts system calls of the threads that have used
        // it.
        let attempt = thread::Builder::new().spawn(|| Uring::new(Arc::default()).map(drop))?;
        attempt.join().map_err(|_panic| io::ErrorKind::Other)?.map(|()| Io::Uring)
    }

    #[cfg(not(target_os = "linux"))]
    fn uring() -> io::Result<Io> {
        Err(io::ErrorKind::Unsupported.into())
    }

    /// Creates a worker that uses the counters of `thread`: its handle, and the function that its
    /// thread runs. The function returns when the handle is dropped, or when a client shuts the
    /// server down.
    ///
    /// # Errors
    /// When the kernel has no memory or descriptors for it.
    pub(crate) fn worker(self, shared: &Arc<SharedState>, thread: usize) -> io::Result<(WorkerHandle, Run)> {
        fn prepare<B: Backend>(shared: &Arc<SharedState>, thread: usize) -> io::Result<(WorkerHandle, Run)> {
            let (worker, handle) = Worker::<B>::new(Arc::clone(shared), thread)?;
            Ok((handle, Box::new(|stopper| worker.run(stopper))))
        }
        match (self, &shared.tls) {
            (Io::Epoll, None) => prepare::<Epoll>(shared, thread),
            (Io::Epoll, Some(_)) => prepare::<Tls<Epoll>>(shared, thread),
            #[cfg(target_os = "linux")]
            (Io::Uring, None) => prepare::<Uring>(shared, thread),
            #[cfg(target_os = "linux")]
            (Io::Uring, Some(_)) => prepare::<Tls<Uring>>(shared, thread),
        }
    }
}

/// The connections, indexed by the backend's numbers.
#[derive(Default)]
struct Slots(Vec<Option<ConnectionSlot>>);

impl Slots {
    fn insert(&mut self, key: usize, slot: ConnectionSlot) {
        if key >= self.0.len() {
            self.0.resize_with(key + 1, || None);
        }
        self.0[key] = Some(slot);
    }

    fn get(&self, key: usize) -> Option<&Connection> {
        self.0.get(key)?.as_ref().map(|slot| &slot.connection)
    }

    fn get_mut(&mut self, key: usize) -> Option<&mut Connection> {
        self.0.get_mut(key)?.as_mut().map(|slot| &mut slot.connection)
    }

    fn remove(&mut self, key: usize) -> Option<ConnectionSlot> {
        self.0.get_mut(key)?.take()
    }

    fn iter_mut(&mut self) -> impl Iterator<Item = (usize, &mut Connection)> {
        let slots = self.0.iter_mut().enumerate();
        slots.filter_map(|(key, slot)| Some((key, &mut slot.as_mut()?.connection)))
    }

    fn iter(&self) -> impl Iterator<Item = (usize, &Connection)> {
        let slots = self.0.iter().enumerate();
        slots.filter_map(|(key, slot)| Some((key, &slot.as_ref()?.connection)))
    }
}

impl WorkerHandle {
    /// Hands a connection over. It is dropped if the worker is gone.
    pub(super) fn give(&self, accepted: AcceptedConnection) -> io::Result<()> {
        if let Some(inbox) = &self.inbox {
            // A worker that is gone stops the server; the connection ends with it.
            let _ = inbox.send(accepted);
        }
        self.wake()
    }

    /// Wakes the worker.
    pub(super) fn wake(&self) -> io::Result<()> {
        self.waker.wake()
    }
}

impl Drop for WorkerHandle {
    fn drop(&mut self) {
        drop(self.inbox.take());
        // If the worker cannot be woken it is gone already.
        let _ = self.waker.wake();
    }
}

impl<B: Backend> Worker<B> {
    /// Creates a worker that uses the counters of `thread`, and its handle.
    fn new(shared: Arc<SharedState>, thread: usize) -> io::Result<(Worker<B>, WorkerHandle)> {
        let counters = shared.common.counters.of_thread(thread);
        let backend = B::new(Arc::clone(&counters))?;
        let (sender, inbox) = channel();
        let handle = WorkerHandle { inbox: Some(sender), waker: backend.waker() };
        let idle_timeout = shared.options.extended.idle_timeout;
        let waker = backend.waker();
        // If it cannot be woken it is gone already.
        shared.gate.add(move || drop(waker.wake()));
        let waker = backend.waker();
        let long_turns = shared.long_turns.add(move || drop(waker.wake()));
        let worker = Worker {
            backend,
            inbox,
            shared,
            counters,
            thread,
            long_turns,
            waits_for_long_turns: false,
            slots: Slots::default(),
            turns: Turns::default(),
            watchers: Vec::new(),
            pool: Pool::default(),
            usage: WorkerUsage::default(),
            checked: 0,
            idle_timeout,
            revocations: 0,
            pins_memory: false,
        };
        Ok((worker, handle))
    }

    /// Serves until the handle is dropped. If a client shuts the server down, the worker uses
    /// `stopper`.
    ///
    /// # Errors
    /// When the kernel reports no more events.
    fn run(mut self, stopper: &Stopper) -> io::Result<()> {
        let mut events = Vec::new();
        self.backend.start()?;
        loop {
            let has_limits = self.idle_timeout > 0 || self.shared.tls.is_some();
            let are_slow_closed = self.pins_memory || self.shared.buffer_limit.is_short();
            let max_wait = (has_limits || are_slow_closed).then_some(SILENCE_CHECK);
            let is_idle = self.turns.queue.is_empty() && (self.turns.long.is_empty() || self.waits_for_long_turns);
            let timeout = if is_idle { max_wait } else { Some(Duration::ZERO) };
            self.backend.wait(timeout, &mut self.pool, &mut events)?;
            if !self.shared.gate.pass() {
                return self.flush_watchers();
            }
            for event in events.drain(..) {
                match event {
                    Event::Woken => {
                        if !self.admit_some() {
                            return self.flush_watchers();
                        }
                        self.wake_watchers();
                        self.idle_timeout = self.shared.live.get().extended.idle_timeout;
                        self.close_revoked();
                    }
                    Event::Ready(key) => {
                        if let Some(connection) = self.slots.get_mut(key) {
                            self.turns.enqueue(connection, key);
                        }
                    }
                    Event::Sent(key) => {
                        if let Some(connection) = self.slots.get_mut(key) {
                            if connection.note_sent(&self.backend, self.shared.ticker.clock().now()) {
                                self.turns.enqueue(connection, key);
                            }
                            let held = connection.held(&self.backend);
                            self.usage.change(&mut connection.counted, held);
                        }
                    }
                }
            }
            if max_wait.is_some() {
                self.close_silent();
            }
            if !self.give_turns() {
                stopper.stop();
            }
            self.enforce_buffer_limit();
            let idle = self.pool.bytes() + self.backend.shared_buffers();
            self.usage.publish_idle(idle, &self.shared.buffer_limit);
        }
    }

    /// Sends the last log lines to watchers, as far as their sockets take them at once.
    fn flush_watchers(mut self) -> io::Result<()> {
        for key in std::mem::take(&mut self.watchers) {
            self.give_turn(key);
        }
        // Output that was handed over but not sent yet.
        self.backend.wait(Some(Duration::ZERO), &mut self.pool, &mut Vec::new())
    }

    /// Takes over some accepted connections. Returns false when there will be no more.
    fn admit_some(&mut self) -> bool {
        for _ in 0..MAX_ADMITTED {
            match self.inbox.try_recv() {
                Ok(accepted) => self.admit(accepted),
                Err(TryRecvError::Empty) => return true,
                Err(TryRecvError::Disconnected) => return false,
            }
        }
        // There may be more. A worker that cannot be woken is gone.
        drop(self.backend.waker().wake());
        true
    }

    /// Takes over a connection. If the kernel cannot watch it, for example for lack of memory, the
    /// connection is closed.
    fn admit(&mut self, accepted: AcceptedConnection) {
        let AcceptedConnection { stream, transport, binding, requires_login, tls, pass } = accepted;
        let id = stream.id();
        let key = match self.backend.open(stream) {
            Ok(key) => key,
            Err(error) => {
                return self.shared.log.write(Level::Warning, format_args!("cannot serve a connection: {error}"));
            }
        };
        if let Some(tls) = tls {
            self.backend.encrypt(key, tls);
        }
        let shared = &self.shared;
        let session = Arc::new(Session::new(id, transport, shared.ticker.clock().now()));
        let terms = Terms {
            limits: shared.limits(),
            binding,
            requires_text_login: requires_login && shared.options.auth_file.is_some(),
            requires_sasl: requires_login && shared.options.enable_sasl,
        };
        let listed = shared.connections.enter(Arc::clone(&session));
        shared.log.write(Level::Connection, format_args!("<{id} connection from {}", session.transport));
        shared.publish_connection(&session, "conn_new", "");
        self.slots.insert(key, ConnectionSlot { connection: Connection::new(key, session, terms, pass), listed });
    }

    /// Serves every connection in the queue once, or fewer if they need too much memory, and then
    /// some of those within long commands: for as much work as one turn has, or as the others had
    /// together, if that was more. So any number of such clients delays the others no more than one
    /// does. Returns false if a client shuts the server down.
    fn give_turns(&mut self) -> bool {
        let (mut prefetched, start) = (0, work::done());
        for _ in 0..self.turns.queue.len() {
            if prefetched == 0 {
                prefetched = self.prefetch_queued();
            }
            prefetched -= 1;
            let Some(key) = self.turns.queue.pop_front() else { break };
            if !self.give_turn(key) {
                return false;
            }
            // After each connection, because thousands of them may add to the buffers. The worker
            // must then wait, because the backend frees the buffers that it has sent only then.
            if self.usage.publish(&self.shared.buffer_limit) && self.enforce_buffer_limit() {
                return true;
            }
        }
        self.give_long_turns(work::done().wrapping_sub(start).clamp(TURN, MAX_LONG_TURNS))
    }

    /// Serves connections within long commands, for `most` work. Returns false if a client shuts
    /// the server down.
    fn give_long_turns(&mut self, most: u64) -> bool {
        if self.turns.long.is_empty() {
            if std::mem::take(&mut self.waits_for_long_turns) {
                self.shared.long_turns.leave(self.long_turns);
            }
            return true;
        }
        self.waits_for_long_turns = !self.shared.long_turns.begin(self.long_turns);
        if self.waits_for_long_turns {
            return true;
        }
        let (start, mut goes_on) = (work::done(), true);
        for _ in 0..self.turns.long.len() {
            let Some(key) = self.turns.long.pop_front() else { break };
            goes_on = self.give_turn(key);
            let has_closed = self.usage.publish(&self.shared.buffer_limit) && self.enforce_buffer_limit();
            if !goes_on || has_closed || work::done().wrapping_sub(start) >= most {
                break;
            }
        }
        self.shared.long_turns.end();
        goes_on
    }

    /// Prefetches the memory that the first commands of the next connections in the queue will
    /// need, so that their cache misses overlap. Assumes that all belong to the tenant of the
    /// first one, which is usual. Returns the number of these connections.
    fn prefetch_queued(&self) -> usize {
        let mut keys = [&[][..]; MAX_BATCH_KEYS];
        let first = self.turns.queue.front().and_then(|key| self.slots.get(*key));
        let tenant = first.and_then(|connection| connection.tenant.as_deref()).unwrap_or(&self.shared.common);
        let arrived = self.turns.queue.iter().take(MAX_BATCH_KEYS).map(|&key| self.backend.arrived(key));
        let found =
            keys.iter_mut().zip(arrived.filter_map(memcache::peek_key)).map(|(place, key)| *place = key).count();
        if found > 1 {
            tenant.cache.prefetch(&keys[..found]);
        }
        self.turns.queue.len().clamp(1, MAX_BATCH_KEYS)
    }

    fn give_turn(&mut self, key: usize) -> bool {
        let Some(connection) = self.slots.get_mut(key) else { return true };
        if connection.session.is_revoked() {
            self.close(key, "error");
            return true;
        }
        // Taken for this turn, because counting references would write memory that all threads
        // write.
        let tenant = connection.take_tenant();
        let executor = Executor::new(&self.shared, &self.counters, OUTPUT_LIMIT);
        let executor = tenant.as_ref().map_or(executor, |tenant| executor.of_tenant(tenant, self.thread));
        connection.is_queued = false;
        let most = self.shared.options.max_reqs_per_event;
        // A connection that is alone in the queue delays no other connection that the worker knows
        // of.
        let most = if self.turns.is_empty() { most.max(MAX_REQUESTS_ALONE) } else { most };
        let next = connection.on_ready(&executor, &mut self.backend, &mut self.pool, most);
        self.counters.longest_turn.set(self.counters.longest_turn.get().max(executor.work_done()));
        connection.tenant = tenant;
        let held = connection.held(&self.backend);
        self.usage.change(&mut connection.counted, held);
        self.pins_memory |= connection.pins_memory(&self.backend);
        match next {
            Ok(NextState::Wait) => (),
            Ok(NextState::Again) => self.turns.enqueue(connection, key),
            Ok(NextState::Watch) => {
                if let Some(subscription) = connection.subscription() {
                    let waker = self.backend.waker();
                    // A worker that cannot be woken is gone.
                    subscription.set_wake(move || drop(waker.wake()));
                }
                self.watchers.push(key);
                // Log lines that came before the watcher could be woken are waiting.
                self.turns.enqueue(connection, key);
            }
            Ok(NextState::End(Ending::Normal)) => self.close(key, "normal"),
            Ok(NextState::End(Ending::Fault)) => self.close(key, "error"),
            Ok(NextState::End(Ending::Shutdown)) => return false,
            Err(error) => {
                let Session { id, transport, .. } = &*connection.session;
                self.shared.log.write(Level::Trouble, format_args!("connection {id} from {transport} lost: {error}"));
                self.close(key, "error");
            }
        }
        true
    }

    /// Closes the connections with the largest buffers while all buffers together exceed their
    /// limit: first those whose clients have stalled. True if one was closed.
    fn enforce_buffer_limit(&mut self) -> bool {
        self.usage.publish(&self.shared.buffer_limit);
        if !self.shared.buffer_limit.is_exceeded() {
            return false;
        }
        let shared = Arc::clone(&self.shared);
        let mut has_closed = false;
        while let Some(least) = shared.buffer_limit.excess(shared.connection_limit.open()) {
            let large = self.slots.iter().filter(|(_, connection)| connection.counted.sum() >= least);
            let largest = large.max_by_key(|(_, connection)| (connection.is_stalled(), connection.counted.sum()));
            let Some((key, _)) = largest else { break };
            has_closed = true;
            shared.buffer_limit.note_closed();
            self.log_reason(key, format_args!("the buffers of all connections exceed their limit"));
            self.close(key, "out_of_memory");
            self.usage.publish(&shared.buffer_limit);
        }
        has_closed
    }

    /// Closes the connections of users that were removed.
    fn close_revoked(&mut self) {
        let revocations = self.shared.connections.revocations();
        if std::mem::replace(&mut self.revocations, revocations) == revocations {
            return;
        }
        let is_revoked = |connection: &Connection| connection.session.is_revoked();
        let revoked: Vec<usize> =
            self.slots.iter().filter(|(_, connection)| is_revoked(connection)).map(|(key, _)| key).collect();
        for key in revoked {
            self.log_reason(key, format_args!("its user was removed, or has another password or tenant"));
            self.close(key, "error");
        }
    }

    fn wake_watchers(&mut self) {
        for &key in &self.watchers {
            if let Some(connection) = self.slots.get_mut(key) {
                self.turns.enqueue(connection, key);
            }
        }
    }

    /// Closes TCP connections that were idle for too long, and encrypted ones whose handshake took
    /// too long.
    fn close_silent(&mut self) {
        let now = self.shared.ticker.clock().now();
        if std::mem::replace(&mut self.checked, now) == now {
            return;
        }
        let idle_timeout = self.idle_timeout;
        let is_silent = |key: usize, connection: &Connection| {
            let session = &connection.session;
            let silence = session.silence(now);
            // Its input will be executed soon.
            if connection.is_queued {
                return false;
            }
            if self.backend.is_handshaking(key) {
                return silence > HANDSHAKE_LIMIT;
            }
            matches!(session.transport, Transport::Tcp { .. })
                && idle_timeout > 0
                && silence > idle_timeout
                && connection.awaits_client()
        };
        let silent: Vec<usize> =
            self.slots.iter().filter(|(key, connection)| is_silent(*key, connection)).map(|(key, _)| key).collect();
        for key in silent {
            self.counters.idle_kicks.bump();
            self.close(key, "idle_timeout");
        }
        if self.pins_memory || self.shared.buffer_limit.is_short() {
            self.close_slow(now);
        }
    }

    /// Closes connections that hold memory which others need and are too slow.
    fn close_slow(&mut self, now: u32) {
        let Worker { slots, backend, shared, .. } = self;
        let are_short = shared.buffer_limit.is_short();
        let is_slow = |(key, connection): (usize, &mut Connection)| {
            connection.is_too_slow(backend, are_short, now).then(|| (key, connection.pins_memory(backend)))
        };
        for (key, pins_memory) in slots.iter_mut().filter_map(is_slow).collect::<Vec<_>>() {
            let what = if pins_memory { "it pinned large values" } else { "buffers were short" };
            self.log_reason(key, format_args!("it transferred less than {MIN_BYTES} bytes in {PERIOD} s while {what}"));
            if pins_memory {
                self.counters.idle_kicks.bump();
            } else {
                self.shared.buffer_limit.note_closed();
            }
            self.close(key, "idle_timeout");
        }
        self.pins_memory = self.slots.iter().any(|(_, connection)| connection.pins_memory(&self.backend));
    }

    /// Logs why the server closes a connection.
    fn log_reason(&mut self, key: usize, why: fmt::Arguments<'_>) {
        if let Some(connection) = self.slots.get_mut(key) {
            let Session { id, transport, .. } = &*connection.session;
            self.shared.log.write(Level::Trouble, format_args!("connection {id} from {transport} closed: {why}"));
        }
    }

    fn close(&mut self, key: usize, reason: &str) {
        let Some(ConnectionSlot { mut connection, listed }) = self.slots.remove(key) else { return };
        self.usage.change(&mut connection.counted, BufferBytes::default());
        self.shared.connections.leave(listed);
        self.shared.publish_connection(&connection.session, "conn_close", &format!(" reason={reason}"));
        if let Some(subscription) = connection.subscription() {
            let tenant = connection.session.tenant().map_or(&self.shared.common, |tenant| tenant);
            tenant.watch.unsubscribe(subscription);
            self.watchers.retain(|watcher| *watcher != key);
        }
        let id = connection.session.id;
        self.shared.log.write(Level::Connection, format_args!("<{id} connection closed ({reason})"));
        drop(connection);
        self.backend.close(key);
    }
}
