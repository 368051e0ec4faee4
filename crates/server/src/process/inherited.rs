//! Listening sockets that a process inherits from its predecessor, when a server hands over to
//! another process.

use socket2::{Socket, Type};
use std::cell::RefCell;
use std::fs;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::path::Path;

/// Listening sockets that one process hands to another.
#[derive(Debug, Default)]
pub(crate) struct Passed {
    pub(crate) sockets: Vec<OwnedFd>,
    /// How many of them, from the first on, systemd has opened.
    pub(crate) of_systemd: usize,
}

/// Listening sockets of a predecessor that were not claimed yet; none without a predecessor.
#[derive(Debug, Default)]
pub(crate) struct Inherited {
    /// Those that systemd has opened.
    of_systemd: RefCell<Vec<Socket>>,
    others: RefCell<Vec<Socket>>,
}

impl Inherited {
    /// The sockets that a predecessor has passed.
    pub(crate) fn new(passed: Passed) -> Inherited {
        let mut sockets = passed.sockets.into_iter().map(Socket::from);
        let of_systemd = RefCell::new(sockets.by_ref().take(passed.of_systemd).collect());
        Inherited { of_systemd, others: RefCell::new(sockets.collect()) }
    }

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
