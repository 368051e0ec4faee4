//! seccomp: the system calls that this thread may make.
//!
//! The list has the calls that the server makes, and those that the standard library, the C library
//! and the allocator may make for it, also on other kernels and with other library versions. None
//! of them starts a program or another process, opens a socket other than a Unix socket, changes
//! the user of the process, or reads, limits or signals other processes by id. seccomp does not
//! inspect memory that arguments point to, and some calls have many uses: `prctl`, `fcntl`,
//! `setsockopt`. io_uring can do some things that are not on the list, such as opening sockets;
//! Landlock restricts these, too. io_uring is on the list only if the server uses it.

use super::extent::{Extent, Lack};
use libc::{c_long, c_ulong};
use seccompiler::{
    BackendError, BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter,
    SeccompRule,
};

/// Calls that are allowed with any arguments.
#[rustfmt::skip]
const ALLOWED: &[c_long] = &[
    // Memory.
    libc::SYS_brk, libc::SYS_mmap, libc::SYS_munmap, libc::SYS_mremap, libc::SYS_mprotect, libc::SYS_madvise,
    libc::SYS_mlock, libc::SYS_munlock, libc::SYS_mbind, libc::SYS_get_mempolicy, libc::SYS_membarrier,
    // Threads. clone3 is not on the list, because its arguments cannot be inspected; the library
    // then uses clone.
    libc::SYS_futex, libc::SYS_set_robust_list, libc::SYS_rseq, libc::SYS_set_tid_address,
    libc::SYS_sched_yield, libc::SYS_sched_getaffinity, libc::SYS_getcpu, libc::SYS_prctl, libc::SYS_gettid,
    libc::SYS_getpid, libc::SYS_exit, libc::SYS_exit_group,
    // Time.
    libc::SYS_clock_gettime, libc::SYS_clock_getres, libc::SYS_gettimeofday, libc::SYS_nanosleep, libc::SYS_clock_nanosleep,
    // Signals.
    libc::SYS_rt_sigaction, libc::SYS_rt_sigprocmask, libc::SYS_rt_sigreturn, libc::SYS_sigaltstack, libc::SYS_restart_syscall,
    // Sockets. Bound ones listen after a snapshot was read; others can't be opened (see below).
    libc::SYS_listen, libc::SYS_accept, libc::SYS_accept4, libc::SYS_connect, libc::SYS_recvfrom, libc::SYS_recvmsg, libc::SYS_sendto,
    libc::SYS_sendmsg, libc::SYS_shutdown, libc::SYS_getsockopt, libc::SYS_setsockopt, libc::SYS_getsockname,
    libc::SYS_getpeername,
    // Waiting for them.
    libc::SYS_epoll_create1, libc::SYS_epoll_ctl, libc::SYS_epoll_pwait, libc::SYS_epoll_pwait2, libc::SYS_eventfd2,
    libc::SYS_ppoll, libc::SYS_pselect6,
    // Files.
    libc::SYS_openat, libc::SYS_close, libc::SYS_read, libc::SYS_readv, libc::SYS_pread64, libc::SYS_write, libc::SYS_writev,
    libc::SYS_pwrite64, libc::SYS_lseek, libc::SYS_fsync, libc::SYS_fdatasync, libc::SYS_ftruncate, libc::SYS_fallocate,
    libc::SYS_fstat, libc::SYS_newfstatat, libc::SYS_statx, libc::SYS_faccessat, libc::SYS_faccessat2, libc::SYS_readlinkat,
    libc::SYS_getcwd, libc::SYS_getdents64, libc::SYS_renameat2, libc::SYS_unlinkat, libc::SYS_fcntl,
    libc::SYS_dup, libc::SYS_dup3, libc::SYS_pipe2,
    // Properties of the system and the process.
    libc::SYS_getrandom, libc::SYS_getrusage, libc::SYS_sysinfo, libc::SYS_uname, libc::SYS_getuid,
    libc::SYS_geteuid, libc::SYS_getgid, libc::SYS_getegid,
];

/// The older names of some of these, which newer architectures don't have.
#[cfg(target_arch = "x86_64")]
#[rustfmt::skip]
const OLDER: &[c_long] = &[
    libc::SYS_open, libc::SYS_stat, libc::SYS_lstat, libc::SYS_access, libc::SYS_readlink, libc::SYS_rename, libc::SYS_unlink,
    libc::SYS_renameat, libc::SYS_dup2, libc::SYS_pipe, libc::SYS_poll, libc::SYS_select, libc::SYS_epoll_wait,
    libc::SYS_getrlimit, libc::SYS_time,
];
/// `renameat`, which has no name in the crate.
#[cfg(target_arch = "aarch64")]
const OLDER: &[c_long] = &[38];
#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
const OLDER: &[c_long] = &[];

/// Requests of `ioctl`: make a descriptor non-blocking or close-on-exec, and query whether it is a
/// terminal.
const REQUESTS: [c_ulong; 4] = [libc::FIONBIO, libc::FIOCLEX, libc::TCGETS, libc::TIOCGWINSZ];

const URING: &[c_long] = &[libc::SYS_io_uring_setup, libc::SYS_io_uring_enter, libc::SYS_io_uring_register];

/// Confines this thread.
pub(super) fn confine(uses_uring: bool) -> Result<Extent, Lack> {
    let program = filter(uses_uring).map_err(|error| error.to_string())?;
    seccompiler::apply_filter(&program).map_err(|error| error.to_string())?;
    Ok(Extent::Whole)
}

fn filter(uses_uring: bool) -> Result<BpfProgram, BackendError> {
    // A call without rules is allowed with any arguments.
    let any = |call: &c_long| (*call, Vec::new());
    let uring = if uses_uring { URING } else { &[] };
    let thread = libc::CLONE_THREAD as u64;
    let conditional = [
        (libc::SYS_socket, only_if(0, SeccompCmpOp::Eq, [libc::AF_UNIX as u64])?),
        (libc::SYS_socketpair, only_if(0, SeccompCmpOp::Eq, [libc::AF_UNIX as u64])?),
        (libc::SYS_clone, only_if(0, SeccompCmpOp::MaskedEq(thread), [thread])?),
        (libc::SYS_ioctl, only_if(1, SeccompCmpOp::Eq, REQUESTS.map(u64::from))?),
        // A signal to itself is how a process aborts.
        (libc::SYS_tgkill, only_if(0, SeccompCmpOp::Eq, [std::process::id().into()])?),
        (libc::SYS_prlimit64, only_if(0, SeccompCmpOp::Eq, [0])?),
    ];
    SeccompFilter::new(
        ALLOWED.iter().chain(OLDER).chain(uring).map(any).chain(conditional).collect(),
        SeccompAction::Errno(libc::ENOSYS as u32),
        SeccompAction::Allow,
        std::env::consts::ARCH.try_into()?,
    )?
    .try_into()
}

/// Rules for calls whose argument compares to one of these values. The kernel uses only 32 bits of
/// the argument.
fn only_if<const N: usize>(
    argument: u8,
    comparison: SeccompCmpOp,
    values: [u64; N],
) -> Result<Vec<SeccompRule>, BackendError> {
    let rule = |value| {
        let condition = SeccompCondition::new(argument, SeccompCmpArgLen::Dword, comparison.clone(), value)?;
        SeccompRule::new(vec![condition])
    };
    values.into_iter().map(rule).collect()
}
