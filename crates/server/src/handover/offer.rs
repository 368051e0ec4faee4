//! The side of the server that hands over.

use super::wire::{PATIENCE_PER_GIB, SHORT_PATIENCE, TICK, Wire};
use super::{BEGIN, GO, LOADED};
use crate::execute::SharedState;
use crate::observability::log::{self, Level};
use crate::process::inherited::Passed;
use crate::process::stopper::Stopper;
use crate::snapshot;
use mio::net::UnixListener;
use mio::{Events, Interest, Poll, Token};
use socket2::Socket;
use std::cell::{Cell, RefCell};
use std::io::{self, Write};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::mpsc::{self, Receiver, Sender, TryRecvError};
use std::thread::{self, JoinHandle};
use std::time::Instant;

/// A thread that waits for successors. Dropping it ends the thread.
pub(crate) struct HandOver {
    stop: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl HandOver {
    /// Waits at `socket`, which listens, for successors of the server that `stopper` stops.
    pub(crate) fn start(socket: Socket, shared: &Arc<SharedState>, stopper: Stopper) -> io::Result<HandOver> {
        let mut listener = UnixListener::from_std(OwnedFd::from(socket).into());
        let poll = Poll::new()?;
        poll.registry().register(&mut listener, Token(0), Interest::READABLE)?;
        let (stop, stopped) = mpsc::channel();
        let offer = Offer { listener, shared: Arc::clone(shared), stopper, next: RefCell::default() };
        let thread = thread::Builder::new().name("hand-over".into()).spawn(move || offer.run(poll, &stopped))?;
        Ok(HandOver { stop: Some(stop), thread: Some(thread) })
    }
}

impl Drop for HandOver {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            // If it has panicked, no successor was served, and the server ends as without one.
            let _ = thread.join();
        }
    }
}

struct Offer {
    listener: UnixListener,
    shared: Arc<SharedState>,
    stopper: Stopper,
    /// A successor that has come while another one is served.
    next: RefCell<Option<UnixStream>>,
}

impl Offer {
    fn run(&self, mut poll: Poll, stopped: &Receiver<()>) {
        let log = &self.shared.log;
        let mut events = Events::with_capacity(1);
        while stopped.try_recv() != Err(TryRecvError::Disconnected) {
            match poll.poll(&mut events, Some(TICK)) {
                Err(error) if error.kind() != io::ErrorKind::Interrupted => {
                    return log.write(Level::Warning, format_args!("--hand-over has failed: {error}"));
                }
                _ => (),
            }
            while self.has_next() {
                let Some(stream) = self.next.take() else { break };
                match self.hand_over(stream) {
                    Ok(()) => return self.stopper.stop(),
                    Err(error) => log.write(
                        Level::Warning,
                        format_args!("no successor has taken over, and this server goes on: {error}"),
                    ),
                }
            }
        }
    }

    /// Whether another successor has come.
    fn has_next(&self) -> bool {
        let mut next = self.next.borrow_mut();
        if next.is_none() {
            *next = self.listener.accept().ok().map(|(stream, _)| UnixStream::from(OwnedFd::from(stream)));
        }
        next.is_some()
    }

    /// Hands over to the process at the other end. If that fails, the server goes on.
    fn hand_over(&self, stream: UnixStream) -> io::Result<()> {
        let stopper = &self.stopper;
        let has_greeted = Cell::new(false);
        // One that says nothing must not keep others out.
        let is_replaced = || !has_greeted.get() && self.has_next();
        let mut wire = Wire::new(stream, || stopper.is_stopping() || is_replaced())?;
        let successor = wire.check_peer(None)?;
        let greeting = wire.receive_header();
        has_greeted.set(true);
        // Also if the versions differ: the other side reports that, too.
        match greeting {
            Ok(_) => wire.send_header(&self.shared.gate.sockets())?,
            Err(error) if error.kind() == io::ErrorKind::Other && self.next.borrow().is_some() => {
                return Err(io::Error::other("another one came before it had said anything"));
            }
            Err(error) => {
                wire.send_header(&Passed::default())?;
                return Err(error);
            }
        }
        wire.expect(BEGIN)?;
        let start = Instant::now();
        wire.patience = SHORT_PATIENCE;
        let gibibytes = self.shared.usage().mapped_bytes as f64 / f64::from(1 << 30);
        wire.deadline = Some(start + 2 * SHORT_PATIENCE + PATIENCE_PER_GIB.mul_f64(gibibytes));
        let gate = self.shared.gate.close(|| stopper.is_stopping());
        let gate = gate.ok_or_else(|| io::Error::other("a thread is busy, or this server is stopping"))?;
        let items = self.send_items(&mut wire)?;
        gate.hand_over();
        let took = start.elapsed();
        log::notice(&format!("handed over {items} items to process {successor} in {took:.1?}; stopping"));
        Ok(())
    }

    fn send_items(&self, wire: &mut Wire<impl Fn() -> bool>) -> io::Result<u64> {
        let tenants = self.shared.tenants.all();
        let caches: Vec<_> = self.shared.caches(&tenants).collect();
        let last_cas = caches.iter().map(|(_, cache)| cache.last_cas()).max().unwrap_or_default();
        wire.write_all(&last_cas.to_le_bytes())?;
        let items = snapshot::send(wire, &caches, &self.shared.ticker)?;
        wire.expect(LOADED)?;
        wire.write_all(&[GO])?;
        Ok(items)
    }
}
