//! Tests of the messages of a server that is started by hand.

use super::{ask_version, program, serve, wait_until};
use nix::fcntl::{FcntlArg, OFlag, fcntl};
use nix::pty::{OpenptyResult, openpty};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use std::fs::{self, File};
use std::io::Read;
use std::net::TcpStream;
use std::os::fd::OwnedFd;
use std::process::Stdio;

/// A pseudoterminal, as seen by its user.
struct Terminal {
    /// The file is non-blocking: programs of other tests may have the other end open, so a read
    /// would not end.
    screen: File,
    shown: String,
}

impl Terminal {
    /// Opens a terminal, and returns it with the end for a program.
    fn open() -> (Terminal, OwnedFd) {
        let OpenptyResult { master, slave } = openpty(None, None).unwrap();
        fcntl(&master, FcntlArg::F_SETFL(OFlag::O_NONBLOCK)).unwrap();
        (Terminal { screen: master.into(), shown: String::new() }, slave)
    }

    /// Returns all text that was printed to the terminal.
    fn shown(&mut self) -> &str {
        let mut bytes = [0; 1000];
        while let Ok(count @ 1..) = self.screen.read(&mut bytes) {
            self.shown.push_str(str::from_utf8(&bytes[..count]).unwrap());
        }
        &self.shown
    }
}

/// Returns the lines of a log, without the warning about running as root.
fn without_warnings(log: &str) -> Vec<&str> {
    log.lines().filter(|line| !line.contains("running as root")).collect()
}

#[test]
fn a_terminal_shows_where_the_server_listens_and_how_to_stop_it() {
    let (mut terminal, end) = Terminal::open();
    // The sandbox must not keep the server from recognizing the terminal.
    let (mut daemon, port) = serve(program().args(["-o", "drop_privileges"]).stderr(Stdio::from(end)));
    let line = format!(" INFO relativistd: listening on 127.0.0.1:{port}; press Ctrl-C to stop");
    wait_until("the line", || terminal.shown().contains("to stop\r\n"));
    // Ctrl-C sends this signal.
    kill(Pid::from_raw(daemon.0.id() as i32), Signal::SIGINT).unwrap();
    assert!(daemon.0.wait().unwrap().success());
    assert_eq!(without_warnings(terminal.shown()), [line]);
}

#[test]
fn a_file_or_pipe_shows_nothing() {
    let (daemon, port) = serve(&mut program());
    // A server that replies to requests also handles signals.
    ask_version(&mut TcpStream::connect(("127.0.0.1", port)).unwrap());
    let (status, log) = daemon.end(Signal::SIGTERM);
    assert_eq!((status, without_warnings(&log)), (Some(0), Vec::new()));
}

#[test]
fn a_terminal_shows_nothing_of_a_daemon() {
    let folder = tempfile::tempdir().unwrap();
    let pid_file = folder.path().join("pid");
    let (mut terminal, end) = Terminal::open();
    let mut command = program();
    command.args(["-d", "-p", "-1", "-P"]).arg(&pid_file).stderr(Stdio::from(end));
    assert!(command.status().unwrap().success());
    let pid = fs::read_to_string(&pid_file).unwrap().trim().parse().unwrap();
    kill(Pid::from_raw(pid), Signal::SIGTERM).unwrap();
    wait_until("the end of the daemon", || !pid_file.exists());
    assert_eq!(without_warnings(terminal.shown()), Vec::<&str>::new());
}
