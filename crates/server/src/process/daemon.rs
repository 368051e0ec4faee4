//! Running in the background (`-d`), and the file with the process id (`-P`).

use crate::error::StartError;
use crate::observability::log::{Level, Log};
use nix::sys::wait::{WaitStatus, waitpid};
use nix::unistd::{ForkResult, dup2_stderr, dup2_stdin, dup2_stdout, fork, setsid};
use std::fs::{File, OpenOptions};
use std::io::{self, PipeReader, PipeWriter, Read, Write, pipe};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Makes a daemon leave its working directory, so that the file system can be unmounted.
pub(crate) fn leave_folder(log: &Log) {
    if let Err(error) = std::env::set_current_dir("/") {
        log.write(Level::Warning, format_args!("cannot leave the present folder (-d): {error}"));
    }
}

/// Announces to the process that started a daemon that the daemon serves.
pub struct Readiness(PipeWriter);

impl Readiness {
    /// Announces that the daemon serves, and closes the terminal.
    pub fn announce(mut self, keeps_stderr: bool) {
        // The process that started the daemon may be gone.
        let _ = self.0.write_all(b"!");
        if let Ok(null) = OpenOptions::new().read(true).write(true).open("/dev/null") {
            // Failure only leaves a descriptor open.
            let _ = (dup2_stdin(&null), dup2_stdout(&null));
            if !keeps_stderr {
                let _ = dup2_stderr(&null);
            }
        }
    }
}

/// The process that returns from [`daemonize`].
pub enum Side {
    /// The daemon. It announces when it serves.
    Daemon(Readiness),
    /// The process that started the daemon, with its exit status: success once the daemon serves,
    /// otherwise the status of the daemon.
    Starter(ExitCode),
}

/// Continues in the background: in a process and session of its own, without a terminal. Call this
/// while there is only one thread.
///
/// # Errors
/// When the kernel cannot create a process or a pipe.
pub fn daemonize() -> io::Result<Side> {
    let (reader, writer) = pipe()?;
    // SAFETY: there is one thread, so the child finds no lock held by threads that it does not
    // have.
    match unsafe { fork() }? {
        ForkResult::Child => {
            drop(reader);
            setsid()?;
            Ok(Side::Daemon(Readiness(writer)))
        }
        ForkResult::Parent { child } => {
            drop(writer);
            if is_announced(reader) {
                return Ok(Side::Starter(ExitCode::SUCCESS));
            }
            let status = match waitpid(child, None) {
                Ok(WaitStatus::Exited(_, status)) => u8::try_from(status).unwrap_or(1),
                _ => 1,
            };
            Ok(Side::Starter(status.into()))
        }
    }
}

fn is_announced(mut reader: PipeReader) -> bool {
    reader.read_exact(&mut [0]).is_ok()
}

/// A file with the id of this process; removed when dropped, if it is a daemon's.
#[derive(Debug)]
pub struct PidFile(Option<PathBuf>);

impl PidFile {
    /// Writes the file.
    ///
    /// # Errors
    /// When the file cannot be written.
    pub fn write(path: &Path, is_daemons: bool) -> Result<PidFile, StartError> {
        File::create(path)
            .and_then(|mut file| writeln!(file, "{}", std::process::id()))
            .map_err(|error| StartError::System(format!("cannot write {}", path.display()), error))?;
        Ok(PidFile(is_daemons.then(|| path.to_owned())))
    }

    /// Leaves the file, which another process has replaced.
    pub fn leave(mut self) {
        self.0 = None;
    }
}

impl Drop for PidFile {
    fn drop(&mut self) {
        if let Some(path) = &self.0 {
            // The file may have been removed already.
            let _ = std::fs::remove_file(path);
        }
    }
}
