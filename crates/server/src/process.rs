//! What the server asks of the operating system for itself: descriptors, memory, to be somebody else than root, and to run in
//! the background.

use crate::error::StartError;
use crate::log::{Level, Log};
use crate::options::Options;
use nix::sys::mman::{MlockAllFlags, mlockall};
use nix::sys::resource::{RLIM_INFINITY, Resource, getrlimit, setrlimit};
use nix::sys::wait::{WaitStatus, waitpid};
use nix::unistd::{ForkResult, Uid, User, dup2_stderr, dup2_stdin, dup2_stdout, fork, setgid, setsid, setuid};
use std::fs::{File, OpenOptions};
use std::io::{self, PipeReader, PipeWriter, Read, Write, pipe};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Descriptors needed besides one per connection: listeners, standard streams, and for each worker a queue of events and a waker.
pub(crate) fn descriptors_of_our_own(threads: u16) -> u64 {
    64 + 2 * u64::from(threads)
}

/// Raises the limit on open files so that all connections can be open.
pub(crate) fn allow_connections(options: &Options, log: &Log) {
    let connections = u64::from(options.conn_limit);
    let Ok((soft, hard)) = getrlimit(Resource::RLIMIT_NOFILE) else { return };
    let wanted = connections + descriptors_of_our_own(options.threads);
    if soft >= wanted {
        return;
    }
    // Only root may exceed the hard limit.
    let is_raised = setrlimit(Resource::RLIMIT_NOFILE, wanted, wanted.max(hard)).is_ok()
        || setrlimit(Resource::RLIMIT_NOFILE, wanted.min(hard), hard).is_ok() && wanted <= hard;
    if !is_raised {
        log.say(
            Level::Warning,
            format_args!("the limit on open files, {hard}, is too low for {connections} connections (-c)"),
        );
    }
}

/// Raises the limits that `-r` and `-k` ask for, as far as this user may.
pub(crate) fn raise_limits(options: &Options) -> Result<(), StartError> {
    if options.enable_coredumps {
        let (_, hard) = getrlimit(Resource::RLIMIT_CORE).unwrap_or_default();
        setrlimit(Resource::RLIMIT_CORE, hard, hard)
            .map_err(|error| StartError::System("cannot allow core files (-r)".into(), error.into()))?;
    }
    if options.lock_memory && setrlimit(Resource::RLIMIT_MEMLOCK, RLIM_INFINITY, RLIM_INFINITY).is_err() {
        let (_, hard) = getrlimit(Resource::RLIMIT_MEMLOCK).unwrap_or_default();
        // If this fails, too, `lock_memory` logs a warning.
        let _ = setrlimit(Resource::RLIMIT_MEMLOCK, hard, hard);
    }
    Ok(())
}

/// Locks memory for `-k`. Call this after root is given up: from then on the limit on locked
/// memory, from which root is exempt, holds for every new mapping. With a limit this locks nothing,
/// because the kernel would refuse threads and blocks of items beyond it.
pub(crate) fn lock_memory(options: &Options, log: &Log) {
    if !options.lock_memory {
        return;
    }
    // Pages are locked when they are used first: the server maps more than `-m` allows it to use.
    let on_fault = MlockAllFlags::from_bits_retain(nix::libc::MCL_ONFAULT);
    let is_locked = if has_no_lock_limit() {
        mlockall(MlockAllFlags::MCL_CURRENT | MlockAllFlags::MCL_FUTURE | on_fault).map_err(|error| error.to_string())
    } else {
        Err("the limit on locked memory has to be unlimited (ulimit -l, LimitMEMLOCK=infinity)".into())
    };
    if let Err(why) = is_locked {
        log.say(Level::Warning, format_args!("cannot keep memory out of swap (-k): {why}"));
    }
}

/// Whether this process may lock any amount of memory.
fn has_no_lock_limit() -> bool {
    const CAP_IPC_LOCK: u64 = 1 << 14;
    let is_exempt = || {
        let status = std::fs::read_to_string("/proc/self/status").ok()?;
        let capabilities = status.lines().find_map(|line| line.strip_prefix("CapEff:"))?;
        Some(u64::from_str_radix(capabilities.trim(), 16).ok()? & CAP_IPC_LOCK != 0)
    };
    getrlimit(Resource::RLIMIT_MEMLOCK).is_ok_and(|(soft, _)| soft == RLIM_INFINITY) || is_exempt() == Some(true)
}

/// Has a daemon leave the folder in which it was started, whose file system could not be unmounted as long as it serves. Core files (`-r`) are
/// written there, so it stays for them.
pub(crate) fn leave_folder(options: &Options, log: &Log) {
    if options.daemon
        && !options.enable_coredumps
        && let Err(error) = std::env::set_current_dir("/")
    {
        log.say(Level::Warning, format_args!("cannot leave the present folder (-d): {error}"));
    }
}

/// Tells the process that started a daemon that it serves.
pub struct Readiness(PipeWriter);

impl Readiness {
    /// Tells it, and lets go of the terminal.
    pub fn announce(mut self, keeps_stderr: bool) {
        // Who does not want to know any more is not told.
        let _ = self.0.write_all(b"!");
        if let Ok(null) = OpenOptions::new().read(true).write(true).open("/dev/null") {
            // A descriptor more or less does no harm.
            let _ = (dup2_stdin(&null), dup2_stdout(&null));
            if !keeps_stderr {
                let _ = dup2_stderr(&null);
            }
        }
    }
}

/// Who is here after [`daemonize`].
pub enum Side {
    /// The daemon, which tells when it serves.
    Daemon(Readiness),
    /// The process that started it, and what it is to exit with: success once the daemon serves, otherwise what that exited
    /// with.
    Starter(ExitCode),
}

/// Goes on in the background: in a process of its own, of a session without a terminal. To be called while there is only one
/// thread.
///
/// # Errors
/// When the kernel has no process or pipe to give.
pub fn daemonize() -> io::Result<Side> {
    let (reader, writer) = pipe()?;
    // SAFETY: there is one thread, so the child finds no lock held by threads that it does not have.
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
    /// Writes it.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn write(path: &Path, is_daemons: bool) -> Result<PidFile, StartError> {
        File::create(path)
            .and_then(|mut file| writeln!(file, "{}", std::process::id()))
            .map_err(|error| StartError::System(format!("cannot write {}", path.display()), error))?;
        Ok(PidFile(is_daemons.then(|| path.to_owned())))
    }
}

impl Drop for PidFile {
    fn drop(&mut self) {
        if let Some(path) = &self.0 {
            // Somebody may have removed it before.
            let _ = std::fs::remove_file(path);
        }
    }
}

/// Gives up root: becomes the user of `-u`. Does nothing if the process is not root's.
///
/// # Errors
/// If there is no such user, or the kernel refuses.
pub(crate) fn drop_privileges(options: &Options, log: &Log) -> Result<(), StartError> {
    if !Uid::effective().is_root() {
        return Ok(());
    }
    let Some(name) = options.user.as_deref() else {
        log.say(Level::Warning, format_args!("running as root; -u USER makes it somebody else after start-up"));
        return Ok(());
    };
    let user = user(name)?;
    let become_user = || {
        #[cfg(not(target_vendor = "apple"))]
        nix::unistd::initgroups(&std::ffi::CString::new(name).map_err(|_| nix::Error::EINVAL)?, user.gid)?;
        setgid(user.gid)?;
        setuid(user.uid)
    };
    if user.uid.is_root() {
        return Ok(());
    }
    become_user().map_err(|error| StartError::System(format!("cannot become user {name:?}"), error.into()))?;
    #[cfg(target_os = "linux")]
    if options.enable_coredumps {
        // Who has been somebody else gets none unless he asks for it. What the kernel refuses, it has refused to who looks for the file.
        let _ = nix::sys::prctl::set_dumpable(true);
    }
    Ok(())
}

/// The user of that name.
///
/// # Errors
/// If there is none.
pub(crate) fn user(name: &str) -> Result<User, StartError> {
    User::from_name(name).ok().flatten().ok_or_else(|| StartError::NoSuchUser(name.into()))
}
