//! Servers: their processes, and their CPU time and memory.

use std::collections::BTreeMap;
use std::fmt;
use std::net::TcpListener;
use std::path::PathBuf;
use std::process::{Command, ExitStatus, Stdio};
use std::str::FromStr;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, bail, ensure};
use nix::time::clock_getcpuclockid;
use nix::unistd::Pid;
use procfs::ProcResult;
use procfs::net::{TcpNetEntry, TcpState, UnixNetEntry};
use procfs::process::{FDInfo, FDTarget, Process};
use serde::{Deserialize, Serialize};
use tempfile::TempDir;

use crate::client::{Address, PATIENCE};
use crate::cores::Cores;
use crate::supervisor::{Supervised, tie};

/// How long to wait between two attempts to reach a server that does not listen yet.
const RETRY: Duration = Duration::from_millis(5);

/// How long the supervisor may take to report a server's end.
const NOTICE: Duration = Duration::from_secs(1);

/// CPU time and memory of a process so far.
#[derive(Clone, Copy, Debug)]
pub struct Usage {
    /// CPU time of all threads, in nanoseconds.
    cpu: Duration,
    /// User and system time in kernel ticks. Ticks are coarse, so they only split `cpu` into its
    /// two parts.
    user_ticks: u64,
    system_ticks: u64,
    /// Bytes of the resident set.
    resident: u64,
}

/// CPU time of a process during a window, and its memory at the end.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Cost {
    /// CPU seconds in user mode, estimated from the share of user ticks.
    pub user_seconds: f64,
    /// CPU seconds in the kernel, estimated in the same way.
    pub system_seconds: f64,
    /// Bytes of the resident set at the end.
    pub resident_bytes: u64,
}

impl Cost {
    /// Returns the CPU seconds in user mode and in the kernel together.
    pub fn seconds(&self) -> f64 {
        self.user_seconds + self.system_seconds
    }
}

impl Usage {
    /// Reads the usage of a process from `/proc`.
    pub fn of(process: u32) -> Result<Self> {
        let ask = || {
            let cpu = clock_getcpuclockid(Pid::from_raw(process as i32))?.now()?;
            let process = Process::new(process as i32)?;
            let (stat, kibibytes) = (process.stat()?, process.status()?.vmrss.context("no resident set")?);
            let (user_ticks, system_ticks, resident) = (stat.utime, stat.stime, kibibytes << 10);
            Ok::<_, anyhow::Error>(Self { cpu: cpu.into(), user_ticks, system_ticks, resident })
        };
        ask().with_context(|| format!("the server (process {process}) is gone"))
    }

    /// Returns the bytes of the resident set.
    pub fn resident(&self) -> u64 {
        self.resident
    }

    /// Returns the difference to an earlier time.
    pub fn since(&self, before: &Self) -> Cost {
        let seconds = self.cpu.saturating_sub(before.cpu).as_secs_f64();
        let [user, system] = [self.user_ticks - before.user_ticks, self.system_ticks - before.system_ticks];
        let share = if user + system > 0 { user as f64 / (user + system) as f64 } else { 0.0 };
        Cost { user_seconds: seconds * share, system_seconds: seconds * (1.0 - share), resident_bytes: self.resident }
    }
}

/// A server that is measured: started by this program, or already running.
#[derive(Debug)]
pub struct Server {
    /// Where the server listens.
    pub address: Address,
    /// The server's process id, if the process is on this machine.
    pub process: Option<u32>,
    started: Option<Started>,
}

/// A server process that ends when this is dropped.
#[derive(Debug)]
struct Started {
    supervised: Supervised,
    /// The process that takes over from this one.
    successor: Option<Supervised>,
    /// The command that starts a successor, if the server can hand over.
    succession: Option<ServerCommand>,
    _folder: Option<TempDir>,
}

impl Server {
    /// Uses a server that is already running.
    pub fn running(address: Address) -> Result<Self> {
        drop(address.connect()?);
        // A server without statistics can still be measured.
        let statistics =
            if address.is_local() { address.statistics("stats").unwrap_or_default() } else { BTreeMap::new() };
        // If the server runs in another namespace or behind a forwarder, its process id may belong
        // to a different process here.
        let listens = |&pid: &u32| is_listening(pid, &address).unwrap_or(false);
        let process = statistics.get("pid").and_then(|pid| pid.parse().ok()).filter(listens);
        Ok(Self { address, process, started: None })
    }

    /// Starts a server. Appends memcached's options `-l` and `-p`, or `-s`, with the address to the
    /// command. Returns when the server accepts connections.
    pub fn start(command: &ServerCommand, unix: bool, cores: &Cores) -> Result<Self> {
        let folder = unix.then(folder_of_sockets).transpose()?;
        let address = folder.as_ref().map_or_else(free_port, |folder| Ok(path_in(folder)))?;
        let supervised = cores.confine(|| command.start_at(&address))??;
        let started = Started { supervised, successor: None, succession: None, _folder: folder };
        Self::listening(address, command, started)
    }

    /// Starts a relativistd that can [hand over](Self::hand_over) to a successor. Appends the
    /// options for that, and those of [`Server::start`].
    pub fn start_replaceable(command: &ServerCommand, unix: bool) -> Result<Self> {
        let folder = folder_of_sockets()?;
        let address = if unix { path_in(&folder) } else { free_port()? };
        let path = folder.path().join("successor");
        let path = path.to_str().context("a folder whose name is not text")?;
        let command = command.with(&["--hand-over", path]);
        let succession = Some(command.with(&["--take-over", path]));
        let supervised = command.start_at(&address)?;
        let started = Started { supervised, successor: None, succession, _folder: Some(folder) };
        Self::listening(address, &command, started)
    }

    /// Waits until a server that was started accepts connections.
    fn listening(address: Address, command: &ServerCommand, mut started: Started) -> Result<Self> {
        let process = Some(started.supervised.process);
        let began = Instant::now();
        while let Err(error) = address.connect() {
            if let Some(status) = started.supervised.ended(RETRY)? {
                bail!("{command} ended: {status}");
            }
            ensure!(began.elapsed() < PATIENCE, "{command} does not listen after {} s: {error}", PATIENCE.as_secs());
        }
        Ok(Self { address, process, started: Some(started) })
    }

    /// Starts a successor, which takes over from this server. The server must have been started by
    /// [`Server::start_replaceable`].
    pub fn hand_over(&mut self) -> Result<()> {
        let started = self.started.as_mut().context("this program has not started the server")?;
        let command = started.succession.as_ref().context("the server cannot hand over")?;
        started.successor = Some(command.start_at(&self.address)?);
        Ok(())
    }

    /// Returns whether a successor was started and has not yet taken over.
    ///
    /// # Errors
    /// When either process has ended for another reason.
    pub fn is_handing_over(&mut self) -> Result<bool> {
        self.check(Duration::ZERO)?;
        Ok(self.started.as_ref().is_some_and(|started| started.successor.is_some()))
    }

    /// Returns CPU time and memory so far, if known.
    pub fn usage(&mut self) -> Result<Option<Usage>> {
        // A server that this program did not start may have been restarted since.
        let usage = self.process.and_then(|process| Usage::of(process).ok());
        // A server that has just ended reports no usage, and its supervisor needs a moment to
        // report the end.
        self.check(if usage.is_some() { Duration::ZERO } else { NOTICE })?;
        Ok(usage)
    }

    /// Returns CPU time and memory so far of a process that is taking over, if there is one.
    pub fn usage_of_successor(&self) -> Option<Usage> {
        let successor = self.started.as_ref()?.successor.as_ref()?;
        // It may have ended, which the next check reports.
        Usage::of(successor.process).ok()
    }

    /// Fails if the server has ended, or ends within `patience`. If it has handed over, its
    /// successor becomes the server instead.
    fn check(&mut self, patience: Duration) -> Result<()> {
        let Some(started) = &mut self.started else { return Ok(()) };
        if let Some(status) = started.supervised.ended(patience)? {
            let successor = started.successor.take().filter(|_| status == ExitStatus::default().to_string());
            started.supervised = successor.with_context(|| format!("the server ended: {status}"))?;
            self.process = Some(started.supervised.process);
        }
        if let Some(successor) = &mut started.successor
            && let Some(status) = successor.ended(Duration::ZERO)?
        {
            bail!("the successor ended: {status}");
        }
        Ok(())
    }
}

fn folder_of_sockets() -> Result<TempDir> {
    TempDir::new().context("cannot make a folder for a socket")
}

/// Returns the address of a Unix socket in this folder.
fn path_in(folder: &TempDir) -> Address {
    Address::Unix(folder.path().join("socket"))
}

/// Finds a free port by listening on it. The port is free again when this returns.
fn free_port() -> Result<Address> {
    let free = TcpListener::bind(("127.0.0.1", 0)).and_then(|listener| listener.local_addr());
    Ok(Address::Tcp(free.context("no port is free")?))
}

/// Returns whether a process has a socket that listens at this address.
fn is_listening(process: u32, address: &Address) -> ProcResult<bool> {
    let inodes: Vec<u64> = match address {
        Address::Tcp(address) => {
            let here = |entry: &TcpNetEntry| {
                let ip = entry.local_address.ip().to_canonical();
                let is_here = ip == address.ip() || ip.is_unspecified();
                entry.state == TcpState::Listen && entry.local_address.port() == address.port() && is_here
            };
            // `tcp6` is missing on a kernel without IPv6.
            let entries = procfs::net::tcp()?.into_iter().chain(procfs::net::tcp6().unwrap_or_default());
            entries.filter(here).map(|entry| entry.inode).collect()
        }
        Address::Unix(path) => {
            let here = |entry: &UnixNetEntry| entry.path.as_ref() == Some(path);
            procfs::net::unix()?.into_iter().filter(here).map(|entry| entry.inode).collect()
        }
    };
    let is_one = |file: FDInfo| matches!(file.target, FDTarget::Socket(inode) if inodes.contains(&inode));
    Ok(Process::new(process as i32)?.fd()?.flatten().any(is_one))
}

/// The command line of a server.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ServerCommand {
    program: PathBuf,
    arguments: Vec<String>,
}

impl ServerCommand {
    /// Returns the command with more arguments at its end.
    pub fn with(&self, arguments: &[&str]) -> Self {
        let mut command = self.clone();
        command.arguments.extend(arguments.iter().map(|&argument| argument.to_owned()));
        command
    }

    /// Starts the command. Appends memcached's options for the address.
    fn start_at(&self, address: &Address) -> Result<Supervised> {
        let place = match address {
            Address::Tcp(address) => vec!["-l".into(), "127.0.0.1".into(), "-p".into(), address.port().to_string()],
            Address::Unix(path) => vec!["-s".into(), path.display().to_string()],
        };
        let supervised = Supervised::start(&self.program, &[&self.arguments[..], &place].concat());
        supervised.with_context(|| format!("cannot start {self}"))
    }

    /// Returns the version of the program: the first line that it prints with `-V`.
    pub fn version(&self) -> Option<String> {
        let mut command = Command::new(&self.program);
        // A command that ignores `-V` and starts to serve must not outlive this process.
        tie(&mut command);
        let output = command.arg("-V").stdin(Stdio::null()).output().ok()?;
        let line = String::from_utf8_lossy(&output.stdout).lines().next()?.to_owned();
        output.status.success().then_some(line)
    }
}

impl FromStr for ServerCommand {
    type Err = anyhow::Error;

    /// Splits a command into words, with a shell's quotes. A program without a path is searched
    /// first in the folder of this program.
    fn from_str(text: &str) -> Result<Self> {
        let words = shlex::split(text).ok_or_else(|| anyhow!("a quote is not closed"))?;
        let Some((name, arguments)) = words.split_first() else { bail!("expected a command") };
        let sibling = || Some(std::env::current_exe().ok()?.parent()?.join(name)).filter(|path| path.is_file());
        let program = if name.contains('/') { None } else { sibling() };
        Ok(Self { program: program.unwrap_or_else(|| name.into()), arguments: arguments.to_vec() })
    }
}

impl fmt::Display for ServerCommand {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = self.program.file_name().unwrap_or(self.program.as_os_str()).to_string_lossy();
        let words = [name.as_ref()].into_iter().chain(self.arguments.iter().map(String::as_str));
        f.write_str(&words.collect::<Vec<_>>().join(" "))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::net::UnixListener;

    #[test]
    fn what_this_process_does_costs_it_something() {
        let before = Usage::of(std::process::id()).unwrap();
        let workload: u64 = (0..2_000_000u64).map(std::hint::black_box).sum();
        assert!(workload > 0);
        let cost = Usage::of(std::process::id()).unwrap().since(&before);
        assert!(cost.seconds() > 0.0 && cost.resident_bytes > 1 << 20, "{cost:?}");
        assert!(Usage::of(u32::MAX >> 1).is_err());
    }

    #[test]
    fn a_process_listens_where_it_has_a_socket() {
        let folder = TempDir::new().unwrap();
        let path = folder.path().join("socket");
        let (port, _unix) = (TcpListener::bind("127.0.0.1:0").unwrap(), UnixListener::bind(&path).unwrap());
        let everywhere = TcpListener::bind("0.0.0.0:0").unwrap();
        let mut other = Command::new("sleep").arg("60").spawn().unwrap();
        let at = |listener: &TcpListener| Address::Tcp(([127, 0, 0, 1], listener.local_addr().unwrap().port()).into());
        let found = [at(&port), at(&everywhere), Address::Unix(path)]
            .map(|address| [std::process::id(), other.id()].map(|process| is_listening(process, &address).unwrap()));
        other.kill().unwrap();
        other.wait().unwrap();
        assert_eq!(found, [[true, false]; 3]);
        assert!(!is_listening(std::process::id(), &Address::Unix("/nonexistent".into())).unwrap());
    }

    #[test]
    fn commands_are_split_like_a_shells() {
        let command: ServerCommand = "some-server -o 'a b' -t 2".parse().unwrap();
        assert_eq!(command.arguments, ["-o", "a b", "-t", "2"]);
        assert_eq!(command.with(&["-m", "64"]).to_string(), "some-server -o a b -t 2 -m 64");
        assert!("".parse::<ServerCommand>().is_err() && "a 'b".parse::<ServerCommand>().is_err());
    }
}
