//! The side of the server that hands over.

use super::wire::{SHORT_PATIENCE, TICK, Wire};
use super::{BEGIN, GO, LOADED};
use crate::execute::SharedState;
use crate::observability::log::{self, Level};
use crate::process::inherited::Passed;
use crate::process::stopper::Stopper;
use crate::snapshot;
use mio::net::UnixListener;
use mio::{Events, Interest, Poll, Token};
use socket2::Socket;
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
        let offer = Offer { listener, shared: Arc::clone(shared), stopper };
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
            while let Ok((stream, _)) = self.listener.accept() {
                match self.hand_over(UnixStream::from(OwnedFd::from(stream))) {
                    Ok(()) => return self.stopper.stop(),
                    Err(error) => log.write(
                        Level::Warning,
                        format_args!("no successor has taken over, and this server goes on: {error}"),
                    ),
                }
            }
        }
    }

    /// Hands over to the process at the other end. If that fails, the server goes on.
    fn hand_over(&self, stream: UnixStream) -> io::Result<()> {
        let stopper = &self.stopper;
        let mut wire = Wire::new(stream, || stopper.is_stopping())?;
        let successor = wire.check_peer(None)?;
        let greeting = wire.receive_header();
        // Also if the versions differ: the other side reports that, too.
        match greeting {
            Ok(_) => wire.send_header(&self.shared.gate.sockets())?,
            Err(error) => {
                wire.send_header(&Passed::default())?;
                return Err(error);
            }
        }
        wire.expect(BEGIN)?;
        let start = Instant::now();
        wire.patience = SHORT_PATIENCE;
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
