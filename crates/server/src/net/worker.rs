//! A worker thread: one event loop over its connections.

use super::buffer::Pool;
use super::connection::{Connection, OUTPUT_LIMIT, Turn};
use super::stream::Stream;
use crate::engine::Engine;
use crate::execute::{Executor, Service};
use crate::gate::Pass;
use crate::log::Level;
use crate::stats::Counters;
use crossbeam_utils::CachePadded;
use mio::{Events, Interest, Poll, Token, Waker};
use relativist_memcache::Limits;
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

/// A connection on its way to a worker.
pub(crate) struct Newcomer {
    pub(super) stream: Stream,
    pub(super) pass: Pass,
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
    connections: Slab<Connection>,
    /// Connections that are to have a turn.
    queue: VecDeque<usize>,
    pool: Pool,
    /// Shared with the handle: a wake-up that was not delivered yet would be lost if the last waker were dropped.
    _waker: Arc<Waker>,
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
        let (connections, queue, pool) = (Slab::new(), VecDeque::new(), Pool::default());
        let _waker = Arc::clone(&waker);
        let worker = Worker { poll, inbox, service, counters, connections, queue, pool, _waker };
        Ok((worker, WorkerHandle { inbox: Some(sender), waker }))
    }

    /// Serves until the handle is dropped.
    ///
    /// # Errors
    /// When the kernel reports no more events.
    pub(crate) fn run(mut self) -> io::Result<()> {
        let mut events = Events::with_capacity(EVENTS);
        loop {
            let timeout = (!self.queue.is_empty()).then_some(Duration::ZERO);
            match self.poll.poll(&mut events, timeout) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                other => other?,
            }
            for event in &events {
                if event.token() == WAKER {
                    if !self.admit_newcomers() {
                        return Ok(());
                    }
                } else if let Some(connection) = self.connections.get_mut(event.token().0) {
                    connection.note(event);
                    enqueue(&mut self.queue, connection, event.token().0);
                }
            }
            self.give_turns();
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
    fn admit(&mut self, Newcomer { mut stream, pass }: Newcomer) {
        let entry = self.connections.vacant_entry();
        let interests = Interest::READABLE | Interest::WRITABLE;
        if let Err(error) = self.poll.registry().register(&mut stream, Token(entry.key()), interests) {
            return self.service.log.say(Level::Warning, format_args!("cannot serve a connection: {error}"));
        }
        let limits = Limits { max_value: self.service.settings.max_value };
        entry.insert(Connection::new(stream, limits, pass));
    }

    /// One turn for everybody who is in the queue now.
    fn give_turns(&mut self) {
        for _ in 0..self.queue.len() {
            let Some(key) = self.queue.pop_front() else { break };
            self.give_turn(key);
        }
    }

    fn give_turn(&mut self, key: usize) {
        let executor = Executor::new(&self.service, &self.counters, OUTPUT_LIMIT);
        let connection = &mut self.connections[key];
        connection.is_queued = false;
        match connection.turn(&executor, &self.counters, &mut self.pool) {
            Ok(Turn::Wait) => (),
            Ok(Turn::Again) => {
                self.counters.conn_yields.bump();
                enqueue(&mut self.queue, connection, key);
            }
            Ok(Turn::Close) => self.close(key),
            Err(error) => {
                self.service.log.say(Level::Trouble, format_args!("connection lost: {error}"));
                self.close(key);
            }
        }
    }

    /// Dropping the socket closes it, which also ends its registration.
    fn close(&mut self, key: usize) {
        self.connections.remove(key);
        self.service.log.say(Level::Connection, format_args!("connection closed"));
    }
}

fn enqueue(queue: &mut VecDeque<usize>, connection: &mut Connection, key: usize) {
    if !connection.is_queued {
        connection.is_queued = true;
        queue.push_back(key);
    }
}
