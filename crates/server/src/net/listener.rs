//! Listening sockets.

use super::stream::Stream;
use crate::execute::Transport;
use crate::options::{Address, Binding, Host, Options, Security};
use crate::process::inherited::Inherited;
use mio::net::{TcpListener, UnixListener};
use nix::libc::mode_t;
use nix::sys::stat::{Mode, umask};
use socket2::{Domain, Socket, Type};
use std::fmt;
use std::fmt::Write as _;
use std::fs;
use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, ToSocketAddrs};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// A non-blocking listening socket.
#[derive(Debug)]
pub(crate) struct Listener {
    socket: ListeningSocket,
    /// The protocol of its connections.
    pub(super) binding: Binding,
    /// Whether its connections are encrypted.
    pub(super) security: Security,
    /// Whether its clients have to log in, if anyone has to.
    pub(super) requires_login: bool,
}

#[derive(Debug)]
enum ListeningSocket {
    Tcp(TcpListener),
    Unix(UnixListener, Arc<str>),
}

/// A socket that is bound to its address and does not listen yet: clients that connect are refused.
#[derive(Debug)]
pub(crate) struct Bound {
    socket: Socket,
    /// The path of a Unix socket.
    path: Option<Arc<str>>,
    /// The listen backlog; none if the socket was adopted and listens already.
    backlog: Option<i32>,
    binding: Binding,
    security: Security,
    requires_login: bool,
}

impl Bound {
    /// Another descriptor of the socket.
    pub(crate) fn duplicate(&self) -> io::Result<OwnedFd> {
        self.socket.as_fd().try_clone_to_owned()
    }

    /// Lets clients connect.
    pub(crate) fn listen(self) -> io::Result<Listener> {
        let Bound { socket, path, backlog, binding, security, requires_login } = self;
        if let Some(backlog) = backlog {
            socket.listen(backlog)?;
        }
        let socket = match path {
            None => ListeningSocket::Tcp(TcpListener::from_std(socket.into())),
            Some(path) => ListeningSocket::Unix(UnixListener::from_std(OwnedFd::from(socket).into()), path),
        };
        Ok(Listener { socket, binding, security, requires_login })
    }
}

impl Listener {
    /// Accepts a waiting connection, and returns its transport. The error is "would block" if none
    /// waits.
    pub(super) fn accept(&self) -> io::Result<(Stream, Transport)> {
        match &self.socket {
            ListeningSocket::Tcp(listener) => {
                let (stream, peer) = listener.accept()?;
                // Nagle's algorithm would only delay: replies are written whole. If this fails
                // because the client has gone, the next read reports that.
                let _ = stream.set_nodelay(true);
                let local = stream.local_addr().unwrap_or(peer);
                Ok((Stream::Tcp(stream), Transport::Tcp { peer, local }))
            }
            ListeningSocket::Unix(listener, path) => {
                Ok((Stream::Unix(listener.accept()?.0), Transport::Unix(Arc::clone(path))))
            }
        }
    }

    /// The address, if it is a TCP socket.
    pub(crate) fn tcp_address(&self) -> Option<SocketAddr> {
        match &self.socket {
            ListeningSocket::Tcp(listener) => listener.local_addr().ok(),
            ListeningSocket::Unix(..) => None,
        }
    }

    /// Its descriptor and address, as `stats conns` shows them.
    pub(crate) fn describe(&self) -> (i32, String) {
        match &self.socket {
            ListeningSocket::Tcp(listener) => (listener.as_raw_fd(), format!("tcp:{self}")),
            ListeningSocket::Unix(listener, _) => (listener.as_raw_fd(), format!("unix:{self}")),
        }
    }

    /// The source to register with the poll.
    pub(super) fn source(&mut self) -> &mut dyn mio::event::Source {
        match &mut self.socket {
            ListeningSocket::Tcp(listener) => listener,
            ListeningSocket::Unix(listener, _) => listener,
        }
    }
}

impl fmt::Display for Listener {
    /// The TCP address, or the path of the Unix socket.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.socket {
            ListeningSocket::Tcp(listener) => match listener.local_addr() {
                Ok(address) => address.fmt(f),
                Err(_) => f.write_str("unknown"),
            },
            ListeningSocket::Unix(_, path) => f.write_str(path),
        }
    }
}

/// Resolves `address` to socket addresses, at `default_port` if it names no port.
pub(super) fn resolve(address: &Address, default_port: u16) -> io::Result<Vec<SocketAddr>> {
    let port = address.port.unwrap_or(default_port);
    match &address.host {
        Host::All => {
            Ok(vec![SocketAddr::from((Ipv4Addr::UNSPECIFIED, port)), SocketAddr::from((Ipv6Addr::UNSPECIFIED, port))])
        }
        Host::Name(name) => Ok((name.as_str(), port).to_socket_addrs()?.collect()),
    }
}

/// Opens a socket on each of `addresses`, to which `address` was resolved. On a host without IPv6,
/// `*` means only the IPv4 address.
pub(super) fn open_each<T>(
    address: &Address,
    addresses: Vec<SocketAddr>,
    open: impl Fn(SocketAddr) -> io::Result<T>,
) -> io::Result<Vec<T>> {
    let mut opened = Vec::new();
    for at in addresses {
        match open(at) {
            Ok(socket) => opened.push(socket),
            Err(error) if address.host == Host::All && at.is_ipv6() && is_missing_family(&error) => (),
            Err(error) => return Err(error),
        }
    }
    Ok(opened)
}

/// Looks up the host of `address`.
///
/// # Errors
/// When there is no such host.
pub(crate) fn check_host(address: &Address) -> io::Result<()> {
    resolve(address, 0).map(drop)
}

/// Binds sockets to `address`, at `default_port` if it names no port. A host name can have several
/// addresses.
pub(crate) fn bind_tcp(
    address: &Address,
    default_port: u16,
    options: &Options,
    inherited: &Inherited,
) -> io::Result<Vec<Bound>> {
    let requires_login = !address.without_login;
    let default = if requires_login { options.binding_protocol() } else { options.protocol.unwrap_or_default() };
    let binding = address.binding.unwrap_or(default);
    let security = address.security.unwrap_or(options.security());
    open_each(address, resolve(address, default_port)?, |at| {
        if !requires_login && !at.ip().is_loopback() {
            let problem = "only listeners on loopback addresses can do without a login (nologin:)";
            return Err(io::Error::new(io::ErrorKind::InvalidInput, problem));
        }
        let bind = || {
            let socket = Socket::new(Domain::for_address(at), Type::STREAM, None)?;
            prepare(&socket, at)?;
            // Lets a restarted server bind the port while old connections linger.
            socket.set_reuse_address(true)?;
            keep_alive(&socket)?;
            socket.bind(&at.into())?;
            Ok::<_, io::Error>(socket)
        };
        let socket = inherited.at(Type::STREAM, at).map_or_else(bind, Ok)?;
        Ok(Bound { socket, path: None, backlog: Some(options.listen_backlog), binding, security, requires_login })
    })
}

/// A socket that another process opened and bound, and that listens.
pub(crate) fn adopt(socket: Socket, options: &Options) -> io::Result<Bound> {
    let wrong = || io::Error::new(io::ErrorKind::InvalidInput, "not a TCP or Unix socket that listens");
    if socket.r#type()? != Type::STREAM || !socket.is_listener()? {
        return Err(wrong());
    }
    socket.set_nonblocking(true)?;
    let path = match socket.domain()? {
        Domain::IPV4 | Domain::IPV6 => {
            keep_alive(&socket)?;
            None
        }
        Domain::UNIX => {
            Some(socket.local_addr()?.as_pathname().map_or("".into(), |path| path.to_string_lossy().into()))
        }
        _ => return Err(wrong()),
    };
    let security = if path.is_none() { options.security() } else { Security::Plain };
    Ok(Bound { socket, path, backlog: None, binding: options.binding_protocol(), security, requires_login: true })
}

/// Lets the kernel close connections of clients that are gone; connections inherit this from their
/// listener. Otherwise a client that lost power or network would hold a connection for ever.
fn keep_alive(listener: &Socket) -> io::Result<()> {
    listener.set_keepalive(true)
}

/// Sets the options that all network sockets have in common.
pub(super) fn prepare(socket: &Socket, address: SocketAddr) -> io::Result<()> {
    if address.is_ipv6() {
        // Lets `*` bind one port for both address families.
        socket.set_only_v6(true)?;
    }
    socket.set_nonblocking(true)
}

fn is_missing_family(error: &io::Error) -> bool {
    use nix::errno::Errno;
    matches!(
        error.raw_os_error().map(Errno::from_raw),
        Some(Errno::EAFNOSUPPORT | Errno::EADDRNOTAVAIL | Errno::EPROTONOSUPPORT)
    )
}

/// The Unix socket for clients: an inherited one, or a new one.
pub(crate) fn bind_clients(path: &Path, options: &Options, inherited: &Inherited) -> io::Result<Bound> {
    let socket = inherited.unix(path).map_or_else(|| bind_unix(path, options.unix_mask), Ok)?;
    Ok(Bound {
        socket,
        path: Some(path.to_string_lossy().into()),
        backlog: Some(options.listen_backlog),
        binding: options.binding_protocol(),
        security: Security::Plain,
        requires_login: true,
    })
}

/// Makes a Unix socket of this mode at `path`, and replaces one that an earlier server left there.
/// The socket is not removed at the end, because it might belong to the next server by then.
///
/// Call this after root is given up: a user that may write to the folder can replace the socket by
/// a link or another file at any time. So this function does not use the path again once the socket
/// exists. It sets the mode of the socket by the umask, which it changes for the whole process
/// while it runs.
pub(crate) fn bind_unix(path: &Path, mode: u32) -> io::Result<Socket> {
    if fs::symlink_metadata(path).is_ok_and(|metadata| metadata.file_type().is_socket()) {
        fs::remove_file(path)?;
    }
    let socket = Socket::new(Domain::UNIX, Type::STREAM, None)?;
    socket.set_nonblocking(true)?;
    let address = socket2::SockAddr::unix(path)?;
    let before = umask(Mode::from_bits_truncate(!mode as mode_t & 0o777));
    let bound = socket.bind(&address);
    umask(before);
    bound?;
    Ok(socket)
}

/// The file to write the ports to, if the environment names one.
pub(crate) fn port_file() -> Option<PathBuf> {
    const VARIABLE: &str = "MEMCACHED_PORT_FILENAME";
    let path = PathBuf::from(std::env::var_os(VARIABLE)?);
    // A daemon leaves its working directory before it writes the file.
    Some(std::path::absolute(&path).unwrap_or(path))
}

/// Writes the ports of the sockets to `path`, for programs that start the server with `-p -1`. The
/// file appears complete.
pub(crate) fn write_port_file(path: &Path, tcp: &[SocketAddr], udp: &[SocketAddr]) -> io::Result<()> {
    let mut lines = String::new();
    for (transport, addresses) in [("TCP", tcp), ("UDP", udp)] {
        for address in addresses {
            let family = if address.is_ipv4() { "INET" } else { "INET6" };
            writeln!(lines, "{transport} {family}: {}", address.port()).expect("writing to a string does not fail");
        }
    }
    let mut draft = path.as_os_str().to_owned();
    draft.push(".lck");
    let draft = PathBuf::from(draft);
    fs::write(&draft, lines)?;
    fs::rename(draft, path)
}

#[cfg(test)]
mod tests {
    use super::*;
    use relativist_testing::poll;
    use socket2::SockRef;

    /// Connects a client to `listener` by TCP, and returns the server's side.
    fn accepted(listener: &Listener) -> Stream {
        let _client = std::net::TcpStream::connect(listener.tcp_address().unwrap()).unwrap();
        poll("a connection", || match listener.accept() {
            Ok((stream, _)) => Some(stream),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => None,
            Err(error) => panic!("{error}"),
        })
    }

    #[test]
    fn the_kernel_closes_connections_of_vanished_clients() {
        let options = Options::parse_from_args(["relativistd"]).unwrap();
        let bound = bind_tcp(&"127.0.0.1".parse().unwrap(), 0, &options, &Inherited::default()).unwrap().remove(0);
        let activated = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let adopted = adopt(activated.into(), &options).unwrap();
        for listener in [bound, adopted].map(|bound| bound.listen().unwrap()) {
            let Stream::Tcp(stream) = accepted(&listener) else { panic!("not by TCP") };
            assert!(SockRef::from(&stream).keepalive().unwrap(), "{listener:?}");
        }
    }
}
