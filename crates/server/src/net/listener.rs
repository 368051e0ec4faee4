//! Listening sockets.

use super::stream::Stream;
use crate::options::{Address, Host};
use mio::net::{TcpListener, UnixListener};
use socket2::{Domain, Socket, Type};
use std::fmt::Write as _;
use std::fs::{self, Permissions};
use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, ToSocketAddrs};
use std::os::fd::OwnedFd;
use std::os::unix::fs::{FileTypeExt, PermissionsExt};
use std::path::{Path, PathBuf};

/// Connections that the kernel completes before they are accepted.
const BACKLOG: i32 = 1024;

/// Who may connect to a Unix socket: its owner.
const UNIX_SOCKET_MODE: u32 = 0o700;

/// A non-blocking listening socket.
#[derive(Debug)]
pub(crate) enum Listener {
    Tcp(TcpListener),
    Unix(UnixListener),
}

impl Listener {
    /// A connection that is waiting to be accepted. "Would block" if there is none.
    pub(super) fn accept(&self) -> io::Result<Stream> {
        match self {
            Listener::Tcp(listener) => {
                let (stream, _) = listener.accept()?;
                // Answers are written whole, so there is nothing to wait for. If the client is gone already, reading tells.
                let _ = stream.set_nodelay(true);
                Ok(Stream::Tcp(stream))
            }
            Listener::Unix(listener) => Ok(Stream::Unix(listener.accept()?.0)),
        }
    }

    /// The address, if it is a TCP socket.
    pub(crate) fn tcp_address(&self) -> Option<SocketAddr> {
        match self {
            Listener::Tcp(listener) => listener.local_addr().ok(),
            Listener::Unix(_) => None,
        }
    }

    /// What the kernel's poll wants to watch.
    pub(super) fn source(&mut self) -> &mut dyn mio::event::Source {
        match self {
            Listener::Tcp(listener) => listener,
            Listener::Unix(listener) => listener,
        }
    }
}

/// Listens on `address`, at `default_port` if it names none. A host name can stand for several sockets.
pub(crate) fn bind_tcp(address: &Address, default_port: u16) -> io::Result<Vec<Listener>> {
    let port = address.port.unwrap_or(default_port);
    match &address.host {
        Host::All => {
            let mut listeners = vec![listen(SocketAddr::from((Ipv4Addr::UNSPECIFIED, port)))?];
            match listen(SocketAddr::from((Ipv6Addr::UNSPECIFIED, port))) {
                Ok(listener) => listeners.push(listener),
                // A host without IPv6 has all its addresses covered.
                Err(error) if is_missing_family(&error) => (),
                Err(error) => return Err(error),
            }
            Ok(listeners)
        }
        Host::Name(name) => (name.as_str(), port).to_socket_addrs()?.map(listen).collect(),
    }
}

fn is_missing_family(error: &io::Error) -> bool {
    use nix::errno::Errno;
    matches!(
        error.raw_os_error().map(Errno::from_raw),
        Some(Errno::EAFNOSUPPORT | Errno::EADDRNOTAVAIL | Errno::EPROTONOSUPPORT)
    )
}

fn listen(address: SocketAddr) -> io::Result<Listener> {
    let socket = Socket::new(Domain::for_address(address), Type::STREAM, None)?;
    if address.is_ipv6() {
        // So that `*` can have both families on one port.
        socket.set_only_v6(true)?;
    }
    // Lets a restarted server take over the port while old connections linger.
    socket.set_reuse_address(true)?;
    socket.set_nonblocking(true)?;
    socket.bind(&address.into())?;
    socket.listen(BACKLOG)?;
    Ok(Listener::Tcp(TcpListener::from_std(socket.into())))
}

/// Listens on a Unix socket at `path`. A socket left there by an earlier server is replaced. Ours stays behind in turn: on
/// exit it might be a successor's already.
pub(crate) fn bind_unix(path: &Path) -> io::Result<Listener> {
    if fs::symlink_metadata(path).is_ok_and(|metadata| metadata.file_type().is_socket()) {
        fs::remove_file(path)?;
    }
    let socket = Socket::new(Domain::UNIX, Type::STREAM, None)?;
    socket.set_nonblocking(true)?;
    socket.bind(&socket2::SockAddr::unix(path)?)?;
    // Before anybody can connect.
    fs::set_permissions(path, Permissions::from_mode(UNIX_SOCKET_MODE))?;
    socket.listen(BACKLOG)?;
    Ok(Listener::Unix(UnixListener::from_std(OwnedFd::from(socket).into())))
}

/// Writes the ports of `listeners` to `path`, for whoever started us with a port of the kernel's choice. The file appears
/// all at once.
pub(crate) fn write_port_file(path: &Path, listeners: &[Listener]) -> io::Result<()> {
    let mut lines = String::new();
    for address in listeners.iter().filter_map(Listener::tcp_address) {
        let family = if address.is_ipv4() { "INET" } else { "INET6" };
        writeln!(lines, "TCP {family}: {}", address.port()).expect("writing to a string does not fail");
    }
    let mut draft = path.as_os_str().to_owned();
    draft.push(".lck");
    let draft = PathBuf::from(draft);
    fs::write(&draft, lines)?;
    fs::rename(draft, path)
}
