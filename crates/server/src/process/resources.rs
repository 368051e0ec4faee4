//! The limits of the operating system on open files, core files and locked memory, and `-k`.

use crate::error::StartError;
use crate::observability::log::{Level, Log};
use nix::sys::mman::{MlockAllFlags, mlockall};
use nix::sys::resource::{RLIM_INFINITY, Resource, getrlimit, setrlimit};

/// The number of descriptors needed in addition to one per connection: listeners, standard streams,
/// and for each worker a queue of events and a waker.
pub(crate) fn descriptors_of_our_own(threads: u16) -> u64 {
    64 + 2 * u64::from(threads)
}

/// Raises the limit on open files so that a server with `threads` workers can have this number of
/// connections.
pub(crate) fn allow_connections(connections: u32, threads: u16, log: &Log) {
    let Ok((soft, hard)) = getrlimit(Resource::RLIMIT_NOFILE) else { return };
    let wanted = u64::from(connections) + descriptors_of_our_own(threads);
    if soft >= wanted {
        return;
    }
    // Only root may exceed the hard limit.
    let is_raised = setrlimit(Resource::RLIMIT_NOFILE, wanted, wanted.max(hard)).is_ok()
        || setrlimit(Resource::RLIMIT_NOFILE, wanted.min(hard), hard).is_ok() && wanted <= hard;
    if !is_raised {
        log.write(
            Level::Warning,
            format_args!("the limit on open files, {hard}, is too low for {connections} connections (-c)"),
        );
    }
}

/// Allows core files (`-r`), as large as this user may allow.
pub(crate) fn allow_core_files() -> Result<(), StartError> {
    let (_, hard) = getrlimit(Resource::RLIMIT_CORE).unwrap_or_default();
    setrlimit(Resource::RLIMIT_CORE, hard, hard)
        .map_err(|error| StartError::System("cannot allow core files (-r)".into(), error.into()))
}

/// Raises the limit on locked memory for `-k`, as far as this user may.
pub(crate) fn raise_lock_limit() {
    if setrlimit(Resource::RLIMIT_MEMLOCK, RLIM_INFINITY, RLIM_INFINITY).is_err() {
        let (_, hard) = getrlimit(Resource::RLIMIT_MEMLOCK).unwrap_or_default();
        // If this fails, too, `lock_memory` logs a warning.
        let _ = setrlimit(Resource::RLIMIT_MEMLOCK, hard, hard);
    }
}

/// Locks memory for `-k`. Call this after root is given up: from then on the limit on locked
/// memory, from which root is exempt, holds for every new mapping. With a limit this locks nothing,
/// because the kernel would refuse threads and blocks of items beyond it.
pub(crate) fn lock_memory(log: &Log) {
    // Pages are locked when they are used first: the server maps more than `-m` allows it to use.
    let on_fault = MlockAllFlags::from_bits_retain(nix::libc::MCL_ONFAULT);
    let is_locked = if has_no_lock_limit() {
        mlockall(MlockAllFlags::MCL_CURRENT | MlockAllFlags::MCL_FUTURE | on_fault).map_err(|error| error.to_string())
    } else {
        Err("the limit on locked memory must be unlimited (ulimit -l, LimitMEMLOCK=infinity)".into())
    };
    if let Err(why) = is_locked {
        log.write(Level::Warning, format_args!("cannot keep memory out of swap (-k): {why}"));
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
