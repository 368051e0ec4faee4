//! The sockets of a server: those that systemd has opened, those of a predecessor, and new ones.

use crate::admin::Admin;
use crate::error::StartError;
use crate::net::{Bound, Listener, adopt, bind_clients, bind_tcp, bind_udp, bind_unix, discard_waiting};
use crate::observability::log::{Level, Log};
use crate::options::{Address, Options};
use crate::process::inherited::{Inherited, Passed};
use crate::process::systemd;
use mio::net::UdpSocket;
use socket2::Socket;
use std::io;
use std::net::SocketAddr;
use std::os::fd::AsFd;
use std::path::Path;

/// The mode of the socket for successors.
const PRIVATE: u32 = 0o600;

/// All sockets of a server.
pub(super) struct Sockets {
    /// Those for clients. They do not listen yet, unless they did before.
    pub(super) listeners: Vec<Bound>,
    pub(super) udp: Vec<UdpSocket>,
    pub(super) admin: Option<Admin>,
    /// The one for successors.
    pub(super) hand_over: Option<Socket>,
    /// Whether systemd has opened the sockets for clients, for this process or a predecessor.
    are_adopted: bool,
    /// The sockets of the predecessor that are not in use.
    inherited: Inherited,
    /// Whether there is a predecessor.
    are_inherited: bool,
}

/// Sockets to which clients and successors can connect.
pub(super) struct Listening {
    pub(super) listeners: Vec<Listener>,
    pub(super) udp: Vec<UdpSocket>,
    /// The one for successors.
    pub(super) hand_over: Option<Socket>,
}

impl Sockets {
    /// The sockets that root may have to bind.
    pub(super) fn bind(options: &Options, inherited: Inherited, log: &Log) -> Result<Sockets, StartError> {
        let mut adopted = systemd::sockets()?;
        if adopted.is_empty() {
            adopted = inherited.of_systemd();
        }
        let are_adopted = !adopted.is_empty();
        let (listeners, udp) = if are_adopted {
            (adopt_all(adopted, options)?, Vec::new())
        } else {
            (bind_ports(options, &inherited)?, bind_datagrams(options, &inherited)?)
        };
        let admin =
            options.admin.map(|address| listen_admin(address, &options.admin_host, &inherited, log)).transpose()?;
        let are_inherited = options.take_over.is_some();
        Ok(Sockets { listeners, udp, admin, hand_over: None, are_adopted, inherited, are_inherited })
    }

    /// Adds the sockets that are made after root was given up.
    pub(super) fn bind_paths(&mut self, options: &Options) -> Result<(), StartError> {
        let cannot = |path: &Path, error| StartError::System(format!("cannot listen on {}", path.display()), error);
        if let Some(path) = options.unix_socket.as_deref().filter(|_| !self.are_adopted) {
            self.listeners.push(bind_clients(path, options, &self.inherited).map_err(|error| cannot(path, error))?);
        }
        if let Some(path) = options.hand_over.as_deref() {
            let bind = || bind_unix(path, PRIVATE);
            let socket = self.inherited.unix(path).map_or_else(bind, Ok).map_err(|error| cannot(path, error))?;
            self.hand_over = Some(socket);
        }
        // Clients of addresses that are no longer among the options are refused from now on.
        self.inherited = Inherited::default();
        Ok(())
    }

    /// Descriptors of all sockets for a successor; none if there can be no successor.
    pub(super) fn duplicate(&self) -> io::Result<Passed> {
        let Some(hand_over) = &self.hand_over else { return Ok(Passed::default()) };
        let listeners = self.listeners.iter().map(Bound::duplicate);
        let udp = self.udp.iter().map(|socket| socket.as_fd().try_clone_to_owned());
        let others = self.admin.iter().map(Admin::duplicate).chain([hand_over.as_fd().try_clone_to_owned()]);
        let of_systemd = if self.are_adopted { self.listeners.len() } else { 0 };
        Ok(Passed { sockets: listeners.chain(udp).chain(others).collect::<io::Result<_>>()?, of_systemd })
    }

    /// Lets clients and successors connect.
    pub(super) fn listen(self) -> Result<Listening, StartError> {
        let cannot = |error| StartError::System("cannot listen".into(), error);
        let listeners = self.listeners.into_iter().map(Bound::listen).collect::<io::Result<_>>().map_err(cannot)?;
        if !self.are_inherited {
            self.udp.iter().for_each(discard_waiting);
        }
        // Successors come one at a time.
        self.hand_over.iter().try_for_each(|socket| socket.listen(1)).map_err(cannot)?;
        Ok(Listening { listeners, udp: self.udp, hand_over: self.hand_over })
    }
}

/// Adopts sockets that systemd opened, in place of those that the options name.
fn adopt_all(sockets: Vec<Socket>, options: &Options) -> Result<Vec<Bound>, StartError> {
    // If the prefixes were ignored, connections could silently be in plain text.
    if options.listen.iter().any(|address| address.security.is_some()) {
        let problem =
            "the TLS prefixes of -l do not apply to sockets of systemd: use -o ssl_verify_mode, which applies to all";
        return Err(StartError::Usage(problem.into()));
    }
    let adopt = |socket| adopt(socket, options);
    let cannot = |error| StartError::System("cannot use a socket of systemd (LISTEN_FDS)".into(), error);
    sockets.into_iter().map(adopt).collect::<io::Result<_>>().map_err(cannot)
}

/// Binds the TCP ports that the options name. There are none if the options name a Unix socket,
/// which takes their place.
fn bind_ports(options: &Options, inherited: &Inherited) -> Result<Vec<Bound>, StartError> {
    match options.tcp_port() {
        Some(port) if options.unix_socket.is_none() => {
            bind_all(options, port, |address| bind_tcp(address, port, options, inherited))
        }
        _ => Ok(Vec::new()),
    }
}

fn bind_datagrams(options: &Options, inherited: &Inherited) -> Result<Vec<UdpSocket>, StartError> {
    let Some(port) = options.udp_port() else { return Ok(Vec::new()) };
    bind_all(options, port, |address| bind_udp(address, port, inherited))
}

fn bind_all<T>(
    options: &Options,
    port: u16,
    bind: impl Fn(&Address) -> io::Result<Vec<T>>,
) -> Result<Vec<T>, StartError> {
    let mut all = Vec::new();
    for address in options.addresses() {
        all.extend(bind(&address).map_err(|error| {
            let place = if address.port.is_some() { format!("{address}") } else { format!("{address}, port {port}") };
            StartError::System(format!("cannot listen on {place}"), error)
        })?);
    }
    Ok(all)
}

fn listen_admin(address: SocketAddr, hosts: &[String], inherited: &Inherited, log: &Log) -> Result<Admin, StartError> {
    let admin = Admin::bind(address, hosts, inherited)
        .map_err(|error| StartError::System(format!("cannot listen on {address} (--admin)"), error))?;
    if !address.ip().is_loopback() {
        log.write(
            Level::Warning,
            format_args!("the statistics at {address} (--admin) are open to every client that can connect"),
        );
    }
    Ok(admin)
}
