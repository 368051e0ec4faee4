//! Tests of socket activation, notifications and the unit file of systemd.

use super::{Daemon, PROGRAM, ask_version, patience};
use nix::sys::signal::Signal;
use std::net::{TcpListener, TcpStream};
use std::os::fd::OwnedFd;
use std::os::unix::net::{UnixDatagram, UnixListener, UnixStream};
use std::process::{Command, Stdio};

/// Returns the program with this socket passed to it as systemd does.
pub(super) fn activated(socket: OwnedFd, flags: &[&str]) -> Command {
    let mut command = Command::new("sh");
    command.args(["-c", "LISTEN_PID=$$ LISTEN_FDS=1 exec \"$0\" \"$@\" 3<&0 </dev/null"]);
    command.arg(PROGRAM).args(flags);
    command.stdin(socket).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

#[test]
fn the_committed_unit_and_configuration_are_valid() {
    let documents = concat!(env!("CARGO_MANIFEST_DIR"), "/doc");
    let unit = std::fs::read_to_string(format!("{documents}/systemd/relativistd.service")).unwrap();
    let line = unit.lines().find_map(|line| line.strip_prefix("ExecStart=")).expect("a command");
    let (path, flags) = line.split_once(' ').unwrap();
    assert_eq!(path, "/usr/bin/relativistd");
    let flags = flags.strip_suffix(" $RELATIVISTD_OPTIONS").expect("options of /etc/default");
    // systemd creates the folder for the snapshot.
    let folder = tempfile::tempdir().unwrap();
    let flags = flags
        .replace("/etc/relativistd/", &format!("{documents}/"))
        .replace("%S/relativistd", folder.path().to_str().unwrap());
    let output = super::run(&format!("--check {flags}"));
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

#[test]
fn sockets_passed_by_systemd_are_served() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    // The address is not available, so binding it would be an error.
    let daemon = Daemon::start(&mut activated(listener.into(), &["-l", "192.0.2.1"]));
    ask_version(&mut TcpStream::connect(address).unwrap());
    assert_eq!(daemon.end(Signal::SIGTERM).0, Some(0));
    assert!(TcpStream::connect(address).is_err(), "the socket is still open");

    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("socket");
    let socket = UnixListener::bind(&path).unwrap();
    // The server does not change the owner of a socket that it has not bound.
    let _daemon = Daemon::start(&mut activated(socket.into(), &["-u", "nobody", "-s", "/nonexistent/socket"]));
    ask_version(&mut UnixStream::connect(&path).unwrap());
}

#[test]
fn a_daemon_keeps_the_sockets_passed_by_systemd() {
    let socket = TcpListener::bind("127.0.0.1:0").unwrap();
    let output = activated(socket.into(), &["-d"]).output().unwrap();
    assert_eq!(output.status.code(), Some(64));
    assert!(String::from_utf8_lossy(&output.stderr).contains("LISTEN_FDS"));
}

/// Without its prefix, a socket might accept clients without a certificate.
#[test]
fn prefixes_of_addresses_are_not_ignored() {
    let authority = crate::certificates::Authority::new();
    let socket = TcpListener::bind("127.0.0.1:0").unwrap();
    let line = format!("{} -l mtls:127.0.0.1", authority.flags());
    let output = activated(socket.into(), &line.split(' ').collect::<Vec<_>>()).output().unwrap();
    assert_eq!(output.status.code(), Some(64));
    assert!(String::from_utf8_lossy(&output.stderr).contains("ssl_verify_mode"));
}

#[test]
fn a_socket_of_another_kind_is_an_error() {
    let socket = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
    let output = activated(socket.into(), &[]).output().unwrap();
    assert_eq!(output.status.code(), Some(71));
    assert!(String::from_utf8_lossy(&output.stderr).contains("not a TCP or Unix socket that listens"));
}

#[test]
fn the_server_notifies_systemd_when_it_serves_and_stops() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("notify");
    let manager = UnixDatagram::bind(&path).unwrap();
    manager.set_read_timeout(Some(patience())).unwrap();
    let received = || {
        let mut message = [0; 256];
        let count = manager.recv(&mut message).expect("a message in time");
        String::from_utf8_lossy(&message[..count]).trim().to_owned()
    };
    let daemon = Daemon::start(super::program().args(["-p", "-1"]).env("NOTIFY_SOCKET", &path));
    assert_eq!(received(), "READY=1");
    assert_eq!(daemon.end(Signal::SIGTERM).0, Some(0));
    assert_eq!(received(), "STOPPING=1");
}
