//! T9, and R9 of `relativist_rcu::design`: if the kernel refuses `membarrier` to a thread, the
//! process aborts with a message. A panic would unwind out of a resize, and the next resize would
//! lose keys.
#![cfg(all(target_os = "linux", not(relativist_loom)))]

use std::os::unix::process::ExitStatusExt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::thread;

use relativist_rcu::{Barrier, active_barrier, wait_for_readers};
use relativist_table::{Resizing, Table};
use relativist_testing::own_program;

const ROLE: &str = "RELATIVIST_REFUSED_BARRIER";

/// Makes `membarrier` fail with EPERM in this thread.
fn forbid_membarrier() {
    let step = |code, jt, jf, k| libc::sock_filter { code, jt, jf, k };
    let mut filter = [
        step(0x20, 0, 0, 0), // load the number of the system call
        step(0x15, 0, 1, libc::SYS_membarrier as u32),
        step(0x06, 0, 0, libc::SECCOMP_RET_ERRNO | libc::EPERM as u32),
        step(0x06, 0, 0, libc::SECCOMP_RET_ALLOW),
    ];
    let program = libc::sock_fprog { len: filter.len() as u16, filter: filter.as_mut_ptr() };
    // SAFETY: `program` and the filter that it points to live longer than the calls.
    unsafe {
        assert_eq!(libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), 0);
        assert_eq!(libc::prctl(libc::PR_SET_SECCOMP, libc::SECCOMP_MODE_FILTER, &program), 0);
    }
}

/// Does nothing in the test process itself. `ends_by_abort` runs this in a process of its own.
#[test]
fn child() {
    let action: fn(&Table) = match std::env::var(ROLE).as_deref() {
        Ok("grow") => |table| table.resize_to(256).unwrap(),
        Ok("wait") => |_| wait_for_readers(),
        _ => return,
    };
    let no_core = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: `no_core` lives longer than the call.
    assert_eq!(unsafe { libc::setrlimit(libc::RLIMIT_CORE, &no_core) }, 0);
    let table = Table::new(64, Resizing::Manual, |_| unreachable!("it is empty")).unwrap();
    let sandboxed = || {
        forbid_membarrier();
        let _ = catch_unwind(AssertUnwindSafe(|| action(&table)));
    };
    thread::scope(|scope| _ = scope.spawn(sandboxed).join());
}

#[test]
fn ends_by_abort() {
    if active_barrier() != Barrier::Membarrier {
        return eprintln!("not run: this kernel or sandbox refuses membarrier");
    }
    for role in ["grow", "wait"] {
        let mut command = own_program();
        command.args(["--exact", "child", "--test-threads", "1", "--nocapture"]).env(ROLE, role);
        let output = command.output().unwrap();
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.signal(), Some(libc::SIGABRT), "{role}: {}\n{stderr}", output.status);
        assert!(stderr.contains("membarrier failed"), "{role}: no explanation: {stderr}");
        assert!(stderr.contains("set_barrier(Barrier::Fence)"), "{role}: no remedy: {stderr}");
    }
}
