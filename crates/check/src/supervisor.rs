//! The supervisor: a process between this program and a server, which ends the server whenever this
//! program ends.
//!
//! Each server has its own supervisor, which is this program, started again with the subcommand
//! `supervise`. The supervisor holds the read end of a pipe, and the workbench has the only write
//! end. However the workbench ends, even by SIGKILL, the kernel closes the write end, and the
//! supervisor kills its descendants. It is a *subreaper*: a descendant whose parent has ended
//! becomes a child of the supervisor, even if a script started it, if it runs in another session
//! (`setsid`), or if it became a daemon. So no descendant can escape.
//!
//! The supervisor cannot end two kinds of processes: those that another process starts for the
//! command (`systemd-run`, `docker run`, `ssh`), and those that it may not signal (started by
//! `sudo`). If the supervisor is killed by SIGKILL, the process that it started ends with it, but
//! not the descendants of that process.

use std::io::{BufRead, BufReader, Write};
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, ChildStdout, Command, Stdio, id};
use std::time::Duration;

use anyhow::{Context, Result, anyhow, bail};
use procfs::process::all_processes;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fd::AsFd;
use rustix::io::{Errno, retry_on_intr};
use rustix::process::{
    Pid, PidfdFlags, Signal, WaitOptions, getppid, kill_process, pidfd_open, set_child_subreaper,
    set_parent_process_death_signal, wait,
};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};

use crate::interruption;

/// Asks the kernel to kill a process when the thread that starts it ends. The thread therefore has
/// to outlive the process. Also puts the process into a process group of its own, so that Ctrl-C
/// reaches only the workbench.
pub fn tie(command: &mut Command) {
    let parent = id();
    let end_with_parent = move || {
        set_parent_process_death_signal(Some(Signal::KILL))?;
        // The parent may have ended before the request took effect.
        let is_alive = getppid().is_some_and(|pid| pid.as_raw_nonzero().get().unsigned_abs() == parent);
        if is_alive { Ok(()) } else { Err(Errno::INTR.into()) }
    };
    command.process_group(0);
    // SAFETY: between fork and exec, the closure makes two system calls that are allowed there, and
    // allocates nothing.
    unsafe { command.pre_exec(end_with_parent) };
}

/// A server under its supervisor. Dropping this ends both, and all processes that the server
/// started.
#[derive(Debug)]
pub struct Supervised {
    supervisor: Child,
    /// The supervisor's reports: a line with the server's process id, and one with its exit status.
    reports: BufReader<ChildStdout>,
    /// The server's process id.
    pub process: u32,
}

impl Drop for Supervised {
    fn drop(&mut self) {
        // `wait` closes the pipe first. The supervisor ends after its last descendant.
        let _ = self.supervisor.wait();
    }
}

impl Supervised {
    /// Starts the program under a supervisor, which is this program, started again with the
    /// subcommand `supervise`.
    ///
    /// # Errors
    /// The program cannot be started.
    pub fn start(program: &PathBuf, arguments: &[String]) -> Result<Self> {
        // Not `current_exe`: the file may have been replaced since.
        let mut command = Command::new("/proc/self/exe");
        command.arg0(interruption::program()).args(["supervise", "--"]).arg(program).args(arguments);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).process_group(0);
        let mut supervisor = command.spawn().context("cannot start this program again")?;
        let mut reports = BufReader::new(supervisor.stdout.take().expect("it is a pipe"));
        let mut report = String::new();
        let read = reports.read_line(&mut report);
        // Made before the errors are handled, so that dropping it waits for the supervisor in any
        // case.
        let mut supervised = Self { supervisor, reports, process: 0 };
        read.context("cannot read what the supervisor reports")?;
        supervised.process = report.trim_end().parse().map_err(|_| anyhow!("{}", report.trim_end()))?;
        Ok(supervised)
    }

    /// Waits up to `patience` for the server to end. Returns its exit status as text, or `None` if
    /// it is still running.
    ///
    /// # Errors
    /// The supervisor is gone.
    pub fn ended(&mut self, patience: Duration) -> Result<Option<String>> {
        if self.reports.buffer().is_empty() {
            let timeout = Timespec::try_from(patience)?;
            let mut events = [PollFd::new(self.reports.get_ref(), PollFlags::IN)];
            if retry_on_intr(|| poll(&mut events, Some(&timeout)))? == 0 {
                return Ok(None);
            }
        }
        let mut report = String::new();
        self.reports.read_line(&mut report).context("cannot read what the supervisor reports")?;
        match report.trim_end() {
            "" => bail!("the server's supervisor is gone"),
            status => Ok(Some(status.to_owned())),
        }
    }
}

/// Start a server; when stdin is closed, end it and all processes that it has started
#[derive(Debug, clap::Args)]
pub struct Args {
    /// The server and its arguments
    #[arg(required = true, trailing_var_arg = true, allow_hyphen_values = true)]
    command: Vec<std::ffi::OsString>,
}

/// Supervises the server until this process is no longer needed.
///
/// # Errors
/// Processes cannot be started, watched or ended.
pub fn run(args: &Args) -> Result<()> {
    let own = Pid::from_raw(id() as i32).context("a process has a number")?;
    set_child_subreaper(Some(own)).context("cannot become the parent of orphans")?;
    // Signals that would end this process make it end its descendants first. `exec` resets their
    // handlers, so the server gets them as usual.
    let (signalled, signal) = std::io::pipe()?;
    for number in [SIGHUP, SIGINT, SIGTERM] {
        signal_hook::low_level::pipe::register(number, signal.try_clone()?)?;
    }
    let mut command = Command::new(&args.command[0]);
    command.args(&args.command[1..]).stdin(Stdio::null()).stdout(Stdio::null());
    tie(&mut command);
    // A report that cannot be written is ignored: the workbench may be gone.
    let report = |text: String| drop(writeln!(std::io::stdout(), "{text}"));
    let mut server = match command.spawn() {
        Ok(server) => server,
        Err(error) => {
            report(error.to_string());
            return Ok(());
        }
    };
    report(server.id().to_string());
    let end = pidfd_open(Pid::from_child(&server), PidfdFlags::empty())?;
    let stdin = std::io::stdin();
    let mut events =
        [stdin.as_fd(), signalled.as_fd(), end.as_fd()].map(|file| PollFd::from_borrowed_fd(file, PollFlags::IN));
    retry_on_intr(|| poll(&mut events, None))?;
    if let Some(status) = server.try_wait()? {
        report(status.to_string());
    }
    end_descendants()
}

/// Kills children until there are none. When a child ends, its own children become children of this
/// process.
fn end_descendants() -> Result<()> {
    loop {
        let is_child = |process: &procfs::process::Process| process.stat().is_ok_and(|stat| stat.ppid == id() as i32);
        let children: Vec<i32> = all_processes()?.flatten().filter(is_child).map(|process| process.pid).collect();
        let kill = |&child: &i32| Pid::from_raw(child).map_or(Ok(()), |child| kill_process(child, Signal::KILL));
        let outcomes: Vec<_> = children.iter().map(kill).collect();
        if !outcomes.is_empty() && outcomes.iter().all(|outcome| *outcome == Err(Errno::PERM)) {
            bail!("cannot end processes {children:?}, which run as another user");
        }
        if retry_on_intr(|| wait(WaitOptions::empty())).err() == Some(Errno::CHILD) {
            return Ok(());
        }
    }
}
