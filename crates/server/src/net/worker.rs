//! A worker thread: one event loop over its connections.

use super::acceptor::Stopper;
use super::backend::{Backend, Event, Waker};
use super::buffer::Pool;
use super::connection::{Connection, OUTPUT_LIMIT, Terms, Turn};
use super::epoll::Epoll;
use super::stream::Stream;
use super::tls::Tls;
#[cfg(target_os = "linux")]
use super::uring::Uring;
use crate::engine::MAX_BATCH_KEYS;
use crate::execute::{Executor, Listed, Service, Session, Topic, Transport};
use crate::limits::buffers::{Held, Ledger};
use crate::limits::connections::Pass;
use crate::limits::slow_clients::{LEAST, PERIOD};
use crate::observability::log::{Level, Log};
use crate::observability::stats::Counters;
use crate::options::{Binding, IoKind};
use crossbeam_utils::CachePadded;
use relativist_memcache as memcache;
use rustls::server::UnbufferedServerConnection;
use std::collections::VecDeque;
use std::fmt;
use std::io;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, TryRecvError, channel};
use std::thread;
use std::time::Duration;

/// How often connections are looked at that may have been silent for too long.
const SILENCE_CHECK: Duration = Duration::from_secs(1);

/// Seconds in which a client has to agree on how to encrypt.
const HANDSHAKE_LIMIT: u32 = 30;

/// Requests of a connection that is alone before newcomers and the waker get a look, unless `-R` allows more.
const MOST_ALONE: u32 = 1024;

/// A connection on its way to a worker.
pub(crate) struct Newcomer {
    pub(super) stream: Stream,
    pub(super) transport: Transport,
    pub(super) binding: Binding,
    /// What it is to be encrypted with.
    pub(super) tls: Option<Box<UnbufferedServerConnection>>,
    pub(super) pass: Pass,
}

/// A connection, and its place on the list of all.
struct Member {
    connection: Connection,
    listed: Listed,
}

/// The other end of a worker: gives it connections. Dropping it stops the worker.
pub(crate) struct WorkerHandle {
    /// Never holds more than there may be connections: each newcomer has a pass.
    inbox: Option<Sender<Newcomer>>,
    waker: Arc<Waker>,
}

/// An event loop and its connections.
struct Worker<B> {
    backend: B,
    inbox: Receiver<Newcomer>,
    service: Arc<Service>,
    counters: Arc<CachePadded<Counters>>,
    members: Members,
    /// Connections that are to have a turn.
    queue: VecDeque<usize>,
    /// Connections that watch.
    watchers: Vec<usize>,
    pool: Pool,
    ledger: Ledger,
    /// When connections were last looked at for their silence.
    checked: u32,
    /// Whether some may have large values on loan.
    has_loans: bool,
}

/// How workers do input and output: a backend that the kernel has.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Io {
    Epoll,
    #[cfg(target_os = "linux")]
    Uring,
}

/// What a worker's thread is to run.
pub(crate) type Run = Box<dyn FnOnce(&Stopper) -> io::Result<()> + Send>;

impl Io {
    /// The one that is `wanted`, if the kernel has it.
    ///
    /// # Errors
    /// Why it has not.
    pub(crate) fn choose(wanted: IoKind, log: &Log) -> io::Result<Io> {
        match wanted {
            IoKind::Epoll => Ok(Io::Epoll),
            IoKind::Uring => Io::uring(),
            IoKind::Auto => Ok(Io::uring().unwrap_or_else(|error| {
                log.say(Level::Trouble, format_args!("io_uring is not to be had ({error}): using epoll"));
                Io::Epoll
            })),
        }
    }

    #[cfg(target_os = "linux")]
    fn uring() -> io::Result<Io> {
        // Not by this thread: the end of a ring interrupts system calls of the threads that have used it.
        let attempt = thread::Builder::new().spawn(|| Uring::new(Arc::default()).map(drop))?;
        attempt.join().map_err(|_panic| io::ErrorKind::Other)?.map(|()| Io::Uring)
    }

    #[cfg(not(target_os = "linux"))]
    fn uring() -> io::Result<Io> {
        Err(io::ErrorKind::Unsupported.into())
    }

    /// A worker that counts on the counters of `thread`: its handle, and what its thread is to run. That returns when the handle is
    /// dropped, or a client has the server end.
    ///
    /// # Errors
    /// When the kernel has no memory or descriptors for it.
    pub(crate) fn worker(self, service: &Arc<Service>, thread: usize) -> io::Result<(WorkerHandle, Run)> {
        fn prepare<B: Backend>(service: &Arc<Service>, thread: usize) -> io::Result<(WorkerHandle, Run)> {
            let (worker, handle) = Worker::<B>::new(Arc::clone(service), thread)?;
            Ok((handle, Box::new(|stopper| worker.run(stopper))))
        }
        match (self, &service.tls) {
            (Io::Epoll, None) => prepare::<Epoll>(service, thread),
            (Io::Epoll, Some(_)) => prepare::<Tls<Epoll>>(service, thread),
            #[cfg(target_os = "linux")]
            (Io::Uring, None) => prepare::<Uring>(service, thread),
            #[cfg(target_os = "linux")]
            (Io::Uring, Some(_)) => prepare::<Tls<Uring>>(service, thread),
        }
    }
}

/// The connections, each where the backend's number for it says.
#[derive(Default)]
struct Members(Vec<Option<Member>>);

impl Members {
    fn insert(&mut self, key: usize, member: Member) {
        if key >= self.0.len() {
            self.0.resize_with(key + 1, || None);
        }
        self.0[key] = Some(member);
    }

    fn get_mut(&mut self, key: usize) -> Option<&mut Connection> {
        self.0.get_mut(key)?.as_mut().map(|member| &mut member.connection)
    }

    fn remove(&mut self, key: usize) -> Option<Member> {
        self.0.get_mut(key)?.take()
    }

    fn iter_mut(&mut self) -> impl Iterator<Item = (usize, &mut Connection)> {
        let members = self.0.iter_mut().enumerate();
        members.filter_map(|(key, member)| Some((key, &mut member.as_mut()?.connection)))
    }

    fn iter(&self) -> impl Iterator<Item = (usize, &Connection)> {
        let members = self.0.iter().enumerate();
        members.filter_map(|(key, member)| Some((key, &member.as_ref()?.connection)))
    }
}

impl WorkerHandle {
    /// Hands a connection over. It is dropped if the worker is gone.
    pub(super) fn give(&self, newcomer: Newcomer) -> io::Result<()> {
        if let Some(inbox) = &self.inbox {
            // A worker that is gone stops the server; the connection ends with it.
            let _ = inbox.send(newcomer);
        }
        self.wake()
    }

    /// Has it look around.
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
    /// A worker that counts on the counters of `thread`, and its handle.
    fn new(service: Arc<Service>, thread: usize) -> io::Result<(Worker<B>, WorkerHandle)> {
        let counters = service.counters.of_thread(thread);
        let backend = B::new(Arc::clone(&counters))?;
        let (sender, inbox) = channel();
        let handle = WorkerHandle { inbox: Some(sender), waker: backend.waker() };
        let worker = Worker {
            backend,
            inbox,
            service,
            counters,
            members: Members::default(),
            queue: VecDeque::new(),
            watchers: Vec::new(),
            pool: Pool::default(),
            ledger: Ledger::default(),
            checked: 0,
            has_loans: false,
        };
        Ok((worker, handle))
    }

    /// Serves until the handle is dropped. If a client has the server end it is `stopper` that does it.
    ///
    /// # Errors
    /// When the kernel reports no more events.
    fn run(mut self, stopper: &Stopper) -> io::Result<()> {
        let mut events = Vec::new();
        let has_limits = self.service.options.extended.idle_timeout > 0 || self.service.tls.is_some();
        self.backend.start()?;
        loop {
            let patience = (has_limits || self.has_loans).then_some(SILENCE_CHECK);
            let timeout = if self.queue.is_empty() { patience } else { Some(Duration::ZERO) };
            self.backend.wait(timeout, &mut self.pool, &mut events)?;
            for event in events.drain(..) {
                match event {
                    Event::Woken => {
                        if !self.admit_newcomers() {
                            return self.say_farewell();
                        }
                        self.wake_watchers();
                    }
                    Event::Ready(key) => {
                        if let Some(connection) = self.members.get_mut(key) {
                            enqueue(&mut self.queue, connection, key);
                        }
                    }
                    Event::Sent(key) => {
                        if let Some(connection) = self.members.get_mut(key) {
                            if connection.note_sent(&self.backend, self.service.ticker.clock().now()) {
                                enqueue(&mut self.queue, connection, key);
                            }
                            let held = connection.held(&self.backend);
                            self.ledger.change(&mut connection.counted, held);
                        }
                    }
                }
            }
            if patience.is_some() {
                self.close_silent();
            }
            if !self.give_turns() {
                stopper.stop();
            }
            self.keep_to_budget();
        }
    }

    /// Sends those who watch what they were told at last, as far as their sockets take it at once.
    fn say_farewell(mut self) -> io::Result<()> {
        for key in std::mem::take(&mut self.watchers) {
            self.give_turn(key);
        }
        // What was not sent yet, but only handed over.
        self.backend.wait(Some(Duration::ZERO), &mut self.pool, &mut Vec::new())
    }

    /// Takes over the connections handed in. False when there will be no more.
    fn admit_newcomers(&mut self) -> bool {
        loop {
            match self.inbox.try_recv() {
                Ok(newcomer) => self.admit(newcomer),
                Err(TryRecvError::Empty) => return true,
                Err(TryRecvError::Disconnected) => return false,
            }
        }
    }

    /// Takes a connection over. One that the kernel won't watch (for lack of memory, say) is closed; the others stay.
    fn admit(&mut self, Newcomer { stream, transport, binding, tls, pass }: Newcomer) {
        let id = stream.id();
        let key = match self.backend.open(stream) {
            Ok(key) => key,
            Err(error) => {
                return self.service.log.say(Level::Warning, format_args!("cannot serve a connection: {error}"));
            }
        };
        if let Some(tls) = tls {
            self.backend.encrypt(key, tls);
        }
        let service = &self.service;
        let session = Arc::new(Session::new(id, transport, service.ticker.clock().now()));
        let terms = Terms {
            limits: service.limits(),
            binding,
            requires_text_login: service.options.auth_file.is_some(),
            requires_sasl: service.options.enable_sasl,
        };
        let listed = service.connections.enter(Arc::clone(&session));
        service.log.say(Level::Connection, format_args!("<{id} connection from {}", session.transport));
        tell(service, &session, "conn_new", "");
        self.members.insert(key, Member { connection: Connection::new(key, session, terms, pass), listed });
    }

    /// One turn for everybody who is in the queue now, or for some if they need too much memory. False if a client has the server end.
    fn give_turns(&mut self) -> bool {
        let mut near = 0;
        for _ in 0..self.queue.len() {
            if near == 0 {
                near = self.bring_near();
            }
            near -= 1;
            let Some(key) = self.queue.pop_front() else { break };
            if !self.give_turn(key) {
                return false;
            }
            // Not only when all had their turn: thousands may add to what is held. What a backend sends is freed when it has waited.
            if self.ledger.tell(&self.service.budget) && self.keep_to_budget() {
                break;
            }
        }
        true
    }

    /// Begins to fetch what the first commands of those who are next in the queue will need, so that they need not wait for memory one
    /// after the other. Returns how many are next.
    fn bring_near(&self) -> usize {
        let mut keys = [&[][..]; MAX_BATCH_KEYS];
        let arrived = self.queue.iter().take(MAX_BATCH_KEYS).map(|&key| self.backend.arrived(key));
        let found =
            keys.iter_mut().zip(arrived.filter_map(memcache::peek_key)).map(|(place, key)| *place = key).count();
        if found > 1 {
            self.service.engine.prefetch(&keys[..found]);
        }
        self.queue.len().clamp(1, MAX_BATCH_KEYS)
    }

    fn give_turn(&mut self, key: usize) -> bool {
        let executor = Executor::new(&self.service, &self.counters, OUTPUT_LIMIT);
        let Some(connection) = self.members.get_mut(key) else { return true };
        connection.is_queued = false;
        let most = self.service.options.max_reqs_per_event;
        // Who is alone takes nobody's time, as far as is known.
        let most = if self.queue.is_empty() { most.max(MOST_ALONE) } else { most };
        let turn = connection.turn(&executor, &mut self.backend, &mut self.pool, most);
        let held = connection.held(&self.backend);
        self.ledger.change(&mut connection.counted, held);
        self.has_loans |= connection.has_loans(&self.backend);
        match turn {
            Ok(Turn::Wait) => (),
            Ok(Turn::Again) => enqueue(&mut self.queue, connection, key),
            Ok(Turn::Watch) => {
                if let Some(subscription) = &connection.subscription {
                    let waker = self.backend.waker();
                    // A worker that cannot be woken is gone.
                    subscription.set_wake(move || drop(waker.wake()));
                }
                self.watchers.push(key);
                // What was told before there was a way to wake is there already.
                enqueue(&mut self.queue, connection, key);
            }
            Ok(Turn::Close { is_at_fault }) => self.close(key, if is_at_fault { "error" } else { "normal" }),
            Ok(Turn::Shutdown) => return false,
            Err(error) => {
                let Session { id, transport, .. } = &*connection.session;
                self.service.log.say(Level::Trouble, format_args!("connection {id} from {transport} lost: {error}"));
                self.close(key, "error");
            }
        }
        true
    }

    /// Closes connections while the buffers of all hold too much: those first that hold most. True if there was one.
    fn keep_to_budget(&mut self) -> bool {
        self.ledger.tell(&self.service.budget);
        if !self.service.budget.is_exceeded() {
            return false;
        }
        let service = Arc::clone(&self.service);
        let mut has_closed = false;
        while let Some(least) = service.budget.excess(service.gate.inside()) {
            let largest = self.members.iter().max_by_key(|(_, connection)| connection.counted.sum());
            let Some((key, _)) = largest.filter(|(_, connection)| connection.counted.sum() >= least) else { break };
            has_closed = true;
            service.budget.note_closed();
            self.say_why(key, format_args!("the buffers of all hold too much"));
            self.close(key, "out_of_memory");
            self.ledger.tell(&service.budget);
        }
        has_closed
    }

    fn wake_watchers(&mut self) {
        for &key in &self.watchers {
            if let Some(connection) = self.members.get_mut(key) {
                enqueue(&mut self.queue, connection, key);
            }
        }
    }

    /// Closes the TCP connections from which nothing came for too long. Of those that are to be encrypted, nothing counts before it was agreed how.
    fn close_silent(&mut self) {
        let now = self.service.ticker.clock().now();
        if std::mem::replace(&mut self.checked, now) == now {
            return;
        }
        let patience = self.service.options.extended.idle_timeout;
        let is_silent = |key: usize, connection: &Connection| {
            let session = &connection.session;
            let silence = session.silence(now);
            // What has come is about to be looked at.
            if connection.is_queued {
                return false;
            }
            if self.backend.is_handshaking(key) {
                return silence > HANDSHAKE_LIMIT;
            }
            matches!(session.transport, Transport::Tcp { .. })
                && patience > 0
                && silence > patience
                && connection.awaits_client()
        };
        let silent: Vec<usize> =
            self.members.iter().filter(|(key, connection)| is_silent(*key, connection)).map(|(key, _)| key).collect();
        for key in silent {
            self.counters.idle_kicks.bump();
            self.close(key, "idle_timeout");
        }
        if self.has_loans {
            self.close_slow(now);
        }
    }

    /// Closes connections that keep large values on loan, and are too slow with them.
    fn close_slow(&mut self, now: u32) {
        let Worker { members, backend, .. } = self;
        let is_slow = |(key, connection): (usize, &mut Connection)| connection.is_too_slow(backend, now).then_some(key);
        for key in members.iter_mut().filter_map(is_slow).collect::<Vec<_>>() {
            self.say_why(key, format_args!("it kept large values, and moved less than {LEAST} bytes in {PERIOD} s"));
            self.counters.idle_kicks.bump();
            self.close(key, "idle_timeout");
        }
        self.has_loans = self.members.iter().any(|(_, connection)| connection.has_loans(&self.backend));
    }

    /// Says why a connection is closed by the server.
    fn say_why(&mut self, key: usize, why: fmt::Arguments<'_>) {
        if let Some(connection) = self.members.get_mut(key) {
            let Session { id, transport, .. } = &*connection.session;
            self.service.log.say(Level::Trouble, format_args!("connection {id} from {transport} closed: {why}"));
        }
    }

    fn close(&mut self, key: usize, reason: &str) {
        let Some(Member { mut connection, listed }) = self.members.remove(key) else { return };
        self.ledger.change(&mut connection.counted, Held::default());
        self.service.connections.leave(listed);
        tell(&self.service, &connection.session, "conn_close", &format!(" reason={reason}"));
        if let Some(subscription) = &connection.subscription {
            self.service.watch.unsubscribe(subscription);
            self.watchers.retain(|watcher| *watcher != key);
        }
        let id = connection.session.id;
        self.service.log.say(Level::Connection, format_args!("<{id} connection closed ({reason})"));
        drop(connection);
        self.backend.close(key);
    }
}

/// Tells those who watch connections.
pub(super) fn tell(service: &Service, session: &Session, event: &str, reason: &str) {
    if service.watch.is_watched() {
        let (address, port) = session.transport.peer();
        let (transport, id) = (session.transport.name(), session.id);
        service.watch.tell(
            Topic::Connections,
            format_args!("type={event} rip={address} rport={port} transport={transport}{reason} cfd={id}"),
        );
    }
}

fn enqueue(queue: &mut VecDeque<usize>, connection: &mut Connection, key: usize) {
    if !connection.is_queued {
        connection.is_queued = true;
        queue.push_back(key);
    }
}
