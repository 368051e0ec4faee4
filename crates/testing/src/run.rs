//! Programs that tests run, signal, and search for descendants.

use std::fs::{self, File};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, ExitStatus};

use crate::poll;

/// An environment variable that marks all descendants of a run, whatever their parents and sessions
/// are.
const MARKER: &str = "RELATIVIST_TEST_RUN";

/// A program in its own process group, as if a terminal had started it, and in its own folder. Its
/// stdout and stderr are files there, because processes that it leaves behind would hold pipes
/// open. Dropping the run kills the program and its descendants.
#[derive(Debug)]
pub struct Run<F: AsRef<Path>> {
    child: Child,
    folder: F,
}

impl<F: AsRef<Path>> Run<F> {
    /// Starts `command` in `folder`, which exists and is empty.
    pub fn begin(folder: F, mut command: Command) -> Self {
        let path = folder.as_ref();
        let [stdout, stderr] =
            ["stdout", "stderr"].map(|name| File::create(path.join(name)).expect("the folder exists"));
        command.env(MARKER, path).current_dir(path).process_group(0).stdout(stdout).stderr(stderr);
        let child = command.spawn().expect("the program can be started");
        Self { child, folder }
    }

    /// Returns the contents of a file in the folder, or nothing if there is no such file.
    pub fn read(&self, name: &str) -> String {
        fs::read_to_string(self.folder.as_ref().join(name)).unwrap_or_default()
    }

    /// Waits until the program ends.
    #[track_caller]
    pub fn status(&mut self) -> ExitStatus {
        poll("the end of the run", || self.ended())
    }

    /// Returns the exit status, if the program has ended.
    pub fn ended(&mut self) -> Option<ExitStatus> {
        self.child.try_wait().expect("it is a child of this process")
    }

    /// Returns the program and its descendants, with their arguments. Zombies have no arguments.
    pub fn processes(&self) -> Vec<(i32, String)> {
        let marker = format!("{MARKER}={}\0", self.folder.as_ref().display());
        let find = |pid: i32| {
            let read =
                |file: &str| Some(String::from_utf8_lossy(&fs::read(format!("/proc/{pid}/{file}")).ok()?).into_owned());
            read("environ").filter(|environment| environment.contains(&marker))?;
            Some((pid, read("cmdline")?))
        };
        let entries = fs::read_dir("/proc").expect("the system has /proc");
        let pids = entries.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok());
        pids.filter_map(find).collect()
    }

    /// Sends a signal to the process group of the program.
    pub fn signal(&self, signal: i32) {
        send(-(self.child.id() as i32), signal).expect("the program runs");
    }
}

impl<F: AsRef<Path>> Drop for Run<F> {
    fn drop(&mut self) {
        // The processes may have ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
        for (process, _) in self.processes() {
            let _ = send(process, libc::SIGKILL);
        }
    }
}

/// Sends a signal to a process, or to a process group if the number is negative.
///
/// # Errors
/// There is no such process, or it belongs to another user.
pub fn send(process: i32, signal: i32) -> std::io::Result<()> {
    // SAFETY: `kill` accesses no memory of this process.
    match unsafe { libc::kill(process, signal) } {
        0 => Ok(()),
        _ => Err(std::io::Error::last_os_error()),
    }
}
