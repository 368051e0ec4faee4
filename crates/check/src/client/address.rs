//! Where servers are, and what they report about themselves.

use std::collections::BTreeMap;
use std::fmt;
use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream, ToSocketAddrs};
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use rustix::io::Errno;
use socket2::{Domain, SockAddr, Socket, Type};

use super::{PATIENCE, shown};

/// How long a server may take to accept a connection at each address, if its name has several.
const ONE_OF_SEVERAL: Duration = Duration::from_secs(1);

/// The maximum size of a reply to `stats`.
const MAX_STATS: usize = 1 << 16;

/// The address of a server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Address {
    /// A TCP port.
    Tcp(SocketAddr),
    /// The path of a Unix socket.
    Unix(PathBuf),
}

impl Address {
    /// Opens a connection. Over TCP, small requests are sent at once (`TCP_NODELAY`).
    ///
    /// # Errors
    /// No server listens at the address.
    pub fn connect(&self) -> Result<Socket> {
        let connect = || {
            let (socket, address) = self.socket()?;
            socket.connect(&address)?;
            Ok::<_, std::io::Error>(socket)
        };
        connect().with_context(|| format!("cannot connect to {self}"))
    }

    /// Opens a connection within this time.
    ///
    /// # Errors
    /// No server listens at the address.
    pub fn connect_within(&self, patience: Duration) -> std::io::Result<Socket> {
        let (socket, address) = self.socket()?;
        match self {
            Self::Tcp(_) => socket.connect_timeout(&address, patience)?,
            Self::Unix(_) => socket.connect(&address)?,
        }
        Ok(socket)
    }

    /// Opens a non-blocking connection. It is established when the socket becomes writable without
    /// an error.
    ///
    /// # Errors
    /// The system refuses to connect.
    pub fn begin_to_connect(&self) -> std::io::Result<Socket> {
        let (socket, address) = self.socket()?;
        socket.set_nonblocking(true)?;
        match socket.connect(&address) {
            Err(error) if error.raw_os_error() != Some(Errno::INPROGRESS.raw_os_error()) => Err(error),
            _ => Ok(socket),
        }
    }

    fn socket(&self) -> std::io::Result<(Socket, SockAddr)> {
        let (domain, address) = match self {
            Self::Tcp(address) => (Domain::for_address(*address), SockAddr::from(*address)),
            Self::Unix(path) => (Domain::UNIX, SockAddr::unix(path)?),
        };
        let socket = Socket::new(domain, Type::STREAM, None)?;
        if let Self::Tcp(_) = self {
            socket.set_tcp_nodelay(true)?;
        }
        Ok((socket, address))
    }

    /// Sends `request`, such as `stats`, and returns the statistics in the reply, by name.
    ///
    /// # Errors
    /// The server does not reply, or with something else than statistics.
    pub fn statistics(&self, request: &str) -> Result<BTreeMap<String, String>> {
        statistics(&mut self.connect()?, request)
    }

    pub(crate) fn is_local(&self) -> bool {
        match self {
            Self::Tcp(address) => address.ip().is_loopback(),
            Self::Unix(_) => true,
        }
    }
}

/// Sends `request`, such as `stats`, on an open connection, and returns the statistics in the
/// reply, by name.
///
/// # Errors
/// The server does not reply, or with something else than statistics.
pub fn statistics(socket: &mut Socket, request: &str) -> Result<BTreeMap<String, String>> {
    socket.set_read_timeout(Some(PATIENCE))?;
    socket.write_all(format!("{request}\r\n").as_bytes())?;
    let mut answer = Vec::new();
    let mut buffer = [0; 4096];
    while !answer.ends_with(b"END\r\n") {
        let count = match socket.read(&mut buffer) {
            // A signal interrupted the read, such as SIGCONT after a stop.
            Err(error) if error.kind() == ErrorKind::Interrupted => continue,
            other => other.with_context(|| format!("no reply to {request}"))?,
        };
        answer.extend_from_slice(&buffer[..count]);
        let goes_on = count > 0 && answer.starts_with(b"STAT ") && answer.len() < MAX_STATS;
        ensure!(goes_on || answer == b"END\r\n", "not a reply to {request}: {}", shown(&answer));
    }
    let text = String::from_utf8_lossy(&answer);
    let pair = |line: &str| {
        let (name, value) = line.strip_prefix("STAT ")?.split_once(' ')?;
        Some((name.to_owned(), value.to_owned()))
    };
    Ok(text.lines().filter_map(pair).collect())
}

/// The location of a server, as given by the user.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place(String);

impl Place {
    /// Resolves the address. If the name has several addresses, returns the first at which a server
    /// listens.
    ///
    /// # Errors
    /// The name has no address, or several at which no server listens.
    pub fn find(&self) -> Result<Address> {
        let Self(text) = self;
        if let Some(path) = text.strip_prefix("unix:") {
            return Ok(Address::Unix(path.into()));
        }
        let found: Vec<_> = text.to_socket_addrs().with_context(|| format!("cannot find {text}"))?.collect();
        let answers = |address: &&SocketAddr| TcpStream::connect_timeout(address, ONE_OF_SEVERAL).is_ok();
        let address = match &found[..] {
            [only] => Some(only),
            several => several.iter().find(answers),
        };
        let address = address.with_context(|| format!("no server listens at {text}, which is {found:?}"))?;
        Ok(Address::Tcp(*address))
    }
}

impl FromStr for Place {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let is_port =
            || text.rsplit_once(':').is_some_and(|(host, port)| !host.is_empty() && port.parse::<u16>().is_ok());
        let is_path = text.strip_prefix("unix:").is_some_and(|path| !path.is_empty());
        if is_path || is_port() { Ok(Self(text.into())) } else { Err("expected HOST:PORT or unix:PATH") }
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp(address) => address.fmt(f),
            Self::Unix(path) => write!(f, "unix:{}", path.display()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_ports_and_paths() {
        let found = |text: &str| text.parse::<Place>().unwrap().find();
        assert_eq!(found("unix:/a/b").unwrap(), Address::Unix("/a/b".into()));
        assert_eq!(found("127.0.0.1:80").unwrap().to_string(), "127.0.0.1:80");
        assert_eq!(found("[::1]:80").unwrap().to_string(), "[::1]:80");
        for wrong in ["127.0.0.1", ":80", "host:", "host:70000", "unix:", ""] {
            assert_eq!(wrong.parse::<Place>(), Err("expected HOST:PORT or unix:PATH"), "{wrong}");
        }
    }
}
