//! The side of the successor.

use super::wire::{Passed, Wire};
use super::{BEGIN, GO, LOADED};
use crate::error::StartError;
use crate::observability::log::{Level, Log};
use crate::options::Options;
use crate::security::privileges;
use crate::snapshot;
use crate::tenants::Caches;
use relativist_store::{OutOfMemory, Ticker};
use socket2::{Socket, Type};
use std::cell::RefCell;
use std::fs;
use std::io::{self, Read, Write};
use std::net::SocketAddr;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Instant;

/// Listening sockets of a predecessor that were not claimed yet; none without a predecessor.
#[derive(Debug, Default)]
pub(crate) struct Inherited {
    /// Those that systemd has opened.
    of_systemd: RefCell<Vec<Socket>>,
    others: RefCell<Vec<Socket>>,
}

/// A server that hands over to this process.
pub(crate) struct Predecessor {
    wire: Wire<fn() -> bool>,
    path: PathBuf,
}

impl Inherited {
    /// Claims the sockets that systemd has opened for a predecessor.
    pub(crate) fn of_systemd(&self) -> Vec<Socket> {
        self.of_systemd.take()
    }

    /// Claims the socket of this type at `address`, where port 0 stands for any port.
    pub(crate) fn at(&self, kind: Type, address: SocketAddr) -> Option<Socket> {
        self.claim(kind, |socket| {
            socket.local_addr().ok().and_then(|local| local.as_socket()).is_some_and(|local| {
                local.ip() == address.ip() && (address.port() == 0 || local.port() == address.port())
            })
        })
    }

    /// Claims the Unix socket at `path`.
    pub(crate) fn unix(&self, path: &Path) -> Option<Socket> {
        // Either of them may be relative.
        let whole = |path: &Path| fs::canonicalize(path).ok();
        let is_same = |other: &Path| other == path || whole(path).is_some_and(|path| whole(other) == Some(path));
        self.claim(Type::STREAM, |socket| {
            socket.local_addr().is_ok_and(|local| local.as_pathname().is_some_and(is_same))
        })
    }

    fn claim(&self, kind: Type, matches: impl Fn(&Socket) -> bool) -> Option<Socket> {
        let mut sockets = self.others.borrow_mut();
        let at = sockets.iter().position(|socket| socket.r#type().is_ok_and(|it| it == kind) && matches(socket))?;
        Some(sockets.remove(at))
    }
}

impl Predecessor {
    /// Connects to the server that `options` name, if they name one, and receives its sockets.
    pub(crate) fn meet(options: &Options) -> Result<(Option<Predecessor>, Inherited), StartError> {
        let Some(path) = &options.take_over else { return Ok((None, Inherited::default())) };
        // This process may still be root, and the server may have become another user.
        let friend = options.user.as_deref().map(privileges::user).transpose()?.map(|user| user.uid);
        let meet = || {
            let never: fn() -> bool = || false;
            let mut wire = Wire::new(UnixStream::connect(path)?, never)?;
            wire.check_peer(friend)?;
            wire.send_header(&Passed::default())?;
            let Passed { sockets, of_systemd } = wire.receive_header()?;
            let mut sockets = sockets.into_iter().map(Socket::from);
            let of_systemd = RefCell::new(sockets.by_ref().take(of_systemd).collect());
            let inherited = Inherited { of_systemd, others: RefCell::new(sockets.collect()) };
            Ok((Some(Predecessor { wire, path: path.clone() }), inherited))
        };
        meet().map_err(|error| cannot_take_over(path, error))
    }

    /// Caches made by `make`, with the clock of `ticker`, and with the items of the server, which
    /// executes no requests from now on.
    pub(crate) fn take_items(
        &mut self,
        make: impl FnOnce() -> Result<Caches, OutOfMemory>,
        ticker: &Ticker,
        log: &Log,
    ) -> Result<Caches, StartError> {
        let (caches, start) = (make().map_err(|_| StartError::NoMemory)?, Instant::now());
        let take = || {
            self.wire.write_all(&[BEGIN])?;
            let mut last_cas = [0; 8];
            self.wire.read_exact(&mut last_cas)?;
            let caches = caches.with_cas_after(u64::from_le_bytes(last_cas));
            let (items, left_out) = snapshot::receive(&mut self.wire, |name| caches.named(name), ticker)?;
            Ok((caches, items, left_out))
        };
        let (caches, items, left_out) = take().map_err(|error| cannot_take_over(&self.path, error))?;
        let (path, took) = (self.path.display(), start.elapsed());
        log.write(Level::Trouble, format_args!("{items} items from {path} in {took:.1?}, {left_out} left out"));
        Ok(caches)
    }

    /// Lets the server end. This process must serve if this succeeds, and must not if it fails.
    pub(crate) fn replace(mut self) -> Result<(), StartError> {
        let replaced = self.wire.write_all(&[LOADED]).and_then(|()| self.wire.expect(GO));
        replaced.map_err(|error| cannot_take_over(&self.path, error))
    }
}

fn cannot_take_over(path: &Path, error: io::Error) -> StartError {
    StartError::System(format!("cannot take over from the server at {} (--take-over)", path.display()), error)
}
