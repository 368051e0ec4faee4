//! A worker thread: one event loop over its connections.

use super::buffer::Pool;
use super::connection::{Connection, OUTPUT_LIMIT, Terms, Turn};
use super::stream::Stream;
use crate::engine::Engine;
use crate::execute::{Executor, Listed, Service, Session, Topic, Transport};
use crate::gate::Pass;
use crate::log::Level;
use crate::options::Binding;
use crate::stats::Counters;
use crossbeam_utils::CachePadded;
use mio::{Events, Interest, Poll, Token, Waker};
use slab::Slab;
use std::collections::VecDeque;
use std::io;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, TryRecvError, channel};
use std::time::Duration;

/// Events taken from the kernel at a time.
const EVENTS: usize = 1024;

/// What the waker's events carry; connections carry their place in the slab.
const WAKER: Token = Token(usize::MAX);

/// How often connections are looked at that may have been silent for too long.
const SILENCE_CHECK: Duration = Duration::from_secs(1);

/// A connection on its way to a worker.
pub(crate) struct Newcomer {
    pub(super) stream: Stream,
    pub(super) transport: Transport,
    pub(super) binding: Binding,
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
pub(crate) struct Worker<E> {
    poll: Poll,
    inbox: Receiver<Newcomer>,
    service: Arc<Service<E>>,
    counters: Arc<CachePadded<Counters>>,
    members: Slab<Member>,
    /// Connections that are to have a turn.
    queue: VecDeque<usize>,
    /// Connections that watch.
    watchers: Vec<usize>,
    pool: Pool,
    /// When connections were last looked at for their silence.
    checked: u32,
    /// Shared with the handle: a wake-up that was not delivered yet would be lost if the last waker were dropped.
    waker: Arc<Waker>,
}

impl WorkerHandle {
    /// Hands a connection over. It is dropped if the worker is gone.
    pub(super) fn give(&self, newcomer: Newcomer) -> io::Result<()> {
        if let Some(inbox) = &self.inbox {
            // A worker that is gone stops the server; the connection ends with it.
            let _ = inbox.send(newcomer);
        }
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

impl<E: Engine> Worker<E> {
    /// A worker that counts on the counters of `thread`, and its handle.
    pub(crate) fn new(service: Arc<Service<E>>, thread: usize) -> io::Result<(Worker<E>, WorkerHandle)> {
        let poll = Poll::new()?;
        let waker = Arc::new(Waker::new(poll.registry(), WAKER)?);
        let (sender, inbox) = channel();
        let counters = service.counters.of_thread(thread);
        let worker = Worker {
            poll,
            inbox,
            service,
            counters,
            members: Slab::new(),
            queue: VecDeque::new(),
            watchers: Vec::new(),
            pool: Pool::default(),
            checked: 0,
            waker: Arc::clone(&waker),
        };
        Ok((worker, WorkerHandle { inbox: Some(sender), waker }))
    }

    /// Serves until the handle is dropped, or a client has the server end.
    ///
    /// # Errors
    /// When the kernel reports no more events.
    pub(crate) fn run(mut self) -> io::Result<()> {
        let mut events = Events::with_capacity(EVENTS);
        let patience = (self.service.options.extended.idle_timeout > 0).then_some(SILENCE_CHECK);
        loop {
            let timeout = if self.queue.is_empty() { patience } else { Some(Duration::ZERO) };
            match self.poll.poll(&mut events, timeout) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                other => other?,
            }
            for event in &events {
                if event.token() == WAKER {
                    if !self.admit_newcomers() {
                        return Ok(());
                    }
                    self.wake_watchers();
                } else if let Some(Member { connection, .. }) = self.members.get_mut(event.token().0) {
                    connection.note(event);
                    enqueue(&mut self.queue, connection, event.token().0);
                }
            }
            if patience.is_some() {
                self.close_silent();
            }
            if !self.give_turns() {
                return Ok(());
            }
        }
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
    fn admit(&mut self, Newcomer { mut stream, transport, binding, pass }: Newcomer) {
        let entry = self.members.vacant_entry();
        let interests = Interest::READABLE | Interest::WRITABLE;
        if let Err(error) = self.poll.registry().register(&mut stream, Token(entry.key()), interests) {
            return self.service.log.say(Level::Warning, format_args!("cannot serve a connection: {error}"));
        }
        let service = &self.service;
        let session = Arc::new(Session::new(stream.id(), transport, service.ticker.clock().now()));
        let terms = Terms {
            limits: service.limits(),
            binding,
            requires_text_login: service.options.auth_file.is_some(),
            requires_sasl: service.options.enable_sasl,
        };
        let listed = service.connections.enter(Arc::clone(&session));
        tell(service, &session, "conn_new", "");
        entry.insert(Member { connection: Connection::new(stream, session, terms, pass), listed });
    }

    /// One turn for everybody who is in the queue now. False if a client has the server end.
    fn give_turns(&mut self) -> bool {
        for _ in 0..self.queue.len() {
            let Some(key) = self.queue.pop_front() else { break };
            if !self.give_turn(key) {
                return false;
            }
        }
        true
    }

    fn give_turn(&mut self, key: usize) -> bool {
        let executor = Executor::new(&self.service, &self.counters, OUTPUT_LIMIT);
        let Some(Member { connection, .. }) = self.members.get_mut(key) else { return true };
        connection.is_queued = false;
        // Who is alone takes nobody's time.
        let most = if self.queue.is_empty() { u32::MAX } else { self.service.options.max_reqs_per_event };
        match connection.turn(&executor, &self.counters, &mut self.pool, most) {
            Ok(Turn::Wait) => (),
            Ok(Turn::Again) => enqueue(&mut self.queue, connection, key),
            Ok(Turn::Watch) => {
                if let Some(subscription) = &connection.subscription {
                    let waker = Arc::clone(&self.waker);
                    // A worker that cannot be woken is gone.
                    subscription.set_wake(move || drop(waker.wake()));
                }
                self.watchers.push(key);
                // What was told before there was a way to wake is there already.
                enqueue(&mut self.queue, connection, key);
            }
            Ok(Turn::Close) => self.close(key, "normal"),
            Ok(Turn::Shutdown) => return false,
            Err(error) => {
                self.service.log.say(Level::Trouble, format_args!("connection lost: {error}"));
                self.close(key, "error");
            }
        }
        true
    }

    fn wake_watchers(&mut self) {
        for &key in &self.watchers {
            if let Some(Member { connection, .. }) = self.members.get_mut(key) {
                enqueue(&mut self.queue, connection, key);
            }
        }
    }

    /// Closes the TCP connections from which nothing came for too long.
    fn close_silent(&mut self) {
        let now = self.service.ticker.clock().now();
        if std::mem::replace(&mut self.checked, now) == now {
            return;
        }
        let patience = self.service.options.extended.idle_timeout;
        let is_silent = |connection: &Connection| {
            let session = &connection.session;
            matches!(session.transport, Transport::Tcp { .. })
                && session.silence(now) > patience
                && connection.awaits_client()
        };
        let silent: Vec<usize> =
            self.members.iter().filter(|(_, member)| is_silent(&member.connection)).map(|(key, _)| key).collect();
        for key in silent {
            self.counters.idle_kicks.bump();
            self.close(key, "idle_timeout");
        }
    }

    /// Dropping the socket closes it, which also ends its registration.
    fn close(&mut self, key: usize, reason: &str) {
        let Member { connection, listed } = self.members.remove(key);
        self.service.connections.leave(listed);
        tell(&self.service, &connection.session, "conn_close", &format!(" reason={reason}"));
        if let Some(subscription) = &connection.subscription {
            self.service.watch.unsubscribe(subscription);
            self.watchers.retain(|watcher| *watcher != key);
        }
        self.service.log.say(Level::Connection, format_args!("connection closed"));
    }
}

/// Tells those who watch connections.
fn tell<E>(service: &Service<E>, session: &Session, event: &str, reason: &str) {
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
