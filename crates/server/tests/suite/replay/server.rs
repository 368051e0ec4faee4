//! The program under test, started with a transcript's options.

use super::script::Script;
use crate::certificates::Authority;
use crate::harness::Io;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use relativist_testing::poll;
use std::fs;
use std::net::SocketAddr;
use std::process::{Child, Command, ExitStatus, Stdio};
use tempfile::TempDir;

/// A running program. Dropping it kills the process.
pub struct Server {
    process: Child,
    directory: TempDir,
    pub tcp: SocketAddr,
    pub udp: Option<SocketAddr>,
}

impl Server {
    pub fn start(script: &Script, io: Io, authority: Option<&Authority>) -> Server {
        let directory = TempDir::new().unwrap();
        for (name, content) in &script.files {
            fs::write(directory.path().join(name), content).unwrap();
        }
        let ports = directory.path().join("ports");
        let mut command = Command::new(env!("CARGO_BIN_EXE_relativistd"));
        command.args(["-p", "-1", "-l", "127.0.0.1", "-u", "root", "--debug-time"]);
        command.args(io.flag().split_whitespace());
        // The sandbox must not change any reply.
        command.args(["-o", "drop_privileges"]);
        if cfg!(relativist_sanitizer = "address") {
            // The leak check starts another process, which the sandbox forbids.
            command.env("ASAN_OPTIONS", "detect_leaks=0");
        }
        command.args(script.args.split_whitespace().map(|arg| fill(arg, &directory)));
        if let Some(authority) = authority {
            command.args(authority.flags().split_whitespace());
        }
        if script.needs_udp {
            command.args(["-U", "-1"]);
        }
        command.envs(script.env.iter().map(|(name, value)| (name, fill(value, &directory))));
        command.env("MEMCACHED_PORT_FILENAME", &ports).stderr(Stdio::null());
        let mut process = command.spawn().expect("the program starts");
        let text = poll("the ports", || {
            assert!(process.try_wait().unwrap().is_none(), "the program ended early");
            fs::read_to_string(&ports).ok()
        });
        let port = |prefix: &str| {
            let port = text.lines().find_map(|line| line.strip_prefix(prefix))?.parse().ok()?;
            Some(SocketAddr::from(([127, 0, 0, 1], port)))
        };
        Server { process, directory, tcp: port("TCP INET: ").expect("a TCP port"), udp: port("UDP INET: ") }
    }

    pub fn write(&self, name: &str, content: &[u8]) {
        fs::write(self.directory.path().join(name), content).unwrap();
    }

    pub fn signal(&self, name: &str) {
        let signal: Signal = format!("SIG{name}").parse().expect("a signal");
        kill(Pid::from_raw(self.process.id() as i32), signal).unwrap();
    }

    /// Stops the program if it has not ended, and returns its exit status.
    pub fn stop(mut self) -> ExitStatus {
        if self.process.try_wait().unwrap().is_none() {
            // Ignore errors, because the program may have ended in between.
            let _ = kill(Pid::from_raw(self.process.id() as i32), Signal::SIGTERM);
        }
        self.process.wait().unwrap()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

fn fill(text: &str, directory: &TempDir) -> String {
    let path = directory.path().display().to_string();
    match text.split_once("{file:").and_then(|(before, rest)| Some((before, rest.split_once('}')?))) {
        Some((before, (name, after))) => format!("{before}{path}/{name}{after}"),
        None => text.replace("{dir}", &path),
    }
}
