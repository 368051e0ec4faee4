//! Restrictions that the process imposes on itself before it serves. They limit what an attacker
//! can do after taking it over:
//!
//! * Files, by Landlock: the process can read, write, make and remove the files in [`Needs`] and no
//!   others. It cannot execute programs, listen on TCP ports, connect to TCP ports, or signal other
//!   processes. Files and sockets that were opened before stay open. This costs a request nothing.
//! * System calls, by seccomp, if the option asks for it: only those of a list ([`calls`]) are
//!   allowed. This costs each call a check against the list, and the list must keep up with the
//!   system's libraries. So other calls do not end the server. They fail as on a kernel that lacks
//!   them, which libraries can handle.
//!
//! Both apply to the calling thread, and to threads that it starts later. Neither affects signals
//! from other processes, debuggers or core files.

#[cfg(target_os = "linux")]
mod calls;
mod extent;
#[cfg(target_os = "linux")]
mod files;
mod needs;

use crate::observability::log::{Level, Log};
use crate::options::Options;
use crate::process::files::folder;
use extent::{Extent, Lack};
use needs::Needs;
use std::path::Path;

/// Confines this thread, and those that it starts later, to what a server with these options needs.
/// The server reads these `files` again on SIGHUP, and writes its ports to `port_file`. It needs
/// the system calls of io_uring if it `uses_uring`.
///
/// Restrictions that the kernel does not support are left out, and the log reports them.
pub(crate) fn enter<'f>(
    options: &Options,
    uses_uring: bool,
    files: impl IntoIterator<Item = &'f Path>,
    port_file: Option<&Path>,
    log: &Log,
) {
    let wanted = options.extended.drop_privileges;
    if wanted == Some(false) {
        return;
    }
    let mut needs = Needs::of(options, files);
    if let Some(file) = port_file {
        needs.grant(|needs| &mut needs.make, folder(file), "no ports are written there, use another folder");
    }
    // Without the option a missing restriction is not a problem.
    let level = if wanted.is_some() { Level::Warning } else { Level::Trouble };
    let report = |what: &str, outcome: Result<Extent, Lack>| match outcome {
        Ok(Extent::Whole) => log.write(Level::Trouble, format_args!("{what} are confined to what the server needs")),
        Ok(Extent::Part) => {
            log.write(level, format_args!("{what} are confined as far as this kernel, older than 6.12, supports it"))
        }
        Err(why) => log.write(level, format_args!("{what} are not confined: {why}")),
    };
    let outcome = files::confine(&needs);
    if outcome.is_ok() {
        for lost in &needs.lost {
            log.write(
                Level::Warning,
                format_args!("the sandbox does not grant access to the folder /, which contains all files: {lost}"),
            );
        }
    }
    report("files, TCP and signals", outcome);
    if wanted == Some(true) {
        report("system calls", calls::confine(uses_uring));
    }
}

#[cfg(not(target_os = "linux"))]
mod files {
    use super::extent::{Extent, Lack};
    use super::needs::Needs;

    pub(super) fn confine(_: &Needs) -> Result<Extent, Lack> {
        Err("this system has no Landlock".into())
    }
}

#[cfg(not(target_os = "linux"))]
mod calls {
    use super::extent::{Extent, Lack};

    pub(super) fn confine(_: bool) -> Result<Extent, Lack> {
        Err("this system has no seccomp".into())
    }
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;
    use nix::errno::Errno;
    use nix::sys::signal::kill;
    use nix::unistd::Pid;
    use std::fs::{self, File, Permissions};
    use std::io::ErrorKind;
    use std::net::{TcpListener, TcpStream, UdpSocket};
    use std::os::unix::fs::{PermissionsExt, chown};
    use std::process::Command;
    use std::thread;

    /// Runs `check` in a thread of its own, confined by `confine`, so that other tests are not
    /// confined. Skips it if the kernel lacks a feature.
    fn confined(confine: impl FnOnce() -> Result<Extent, Lack> + Send, check: impl FnOnce(Extent) + Send) {
        thread::scope(|scope| {
            let confined = scope.spawn(|| match confine() {
                Ok(extent) => check(extent),
                Err(why) => eprintln!("not tested: {why}"),
            });
            confined.join().expect("the checks succeed");
        });
    }

    #[track_caller]
    fn assert_denied<T>(outcome: std::io::Result<T>) {
        assert_eq!(outcome.err().map(|error| error.kind()), Some(ErrorKind::PermissionDenied));
    }

    #[test]
    fn files_that_are_not_needed_cannot_be_reached() {
        let (allowed, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let (readable, secret) = (other.path().join("users"), other.path().join("secret"));
        fs::write(&readable, "a:b").unwrap();
        fs::write(&secret, "c").unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let made = tempfile::tempdir().unwrap();
        fs::write(made.path().join("old"), "d").unwrap();
        let needs = Needs {
            read: vec![readable.clone()],
            write: vec![allowed.path().into()],
            make: vec![made.path().into()],
            ..Needs::default()
        };
        confined(
            || files::confine(&needs),
            |_| {
                assert_eq!(fs::read(&readable).unwrap(), b"a:b");
                assert_denied(File::options().append(true).open(&readable));
                assert_denied(fs::read(&secret));
                assert_denied(File::options().write(true).open("/etc/passwd"));
                assert_denied(File::create(other.path().join("new")));
                assert_denied(fs::remove_file(&secret));
                assert!(fs::rename(&secret, allowed.path().join("secret")).is_err());
                assert_denied(fs::read_dir("/etc"));
                assert_denied(Command::new("/bin/true").spawn());
                // The way in which a snapshot is written.
                let (draft, file) = (allowed.path().join("draft"), allowed.path().join("file"));
                fs::write(&draft, "new").unwrap();
                fs::rename(&draft, &file).unwrap();
                File::open(allowed.path()).unwrap().sync_all().unwrap();
                assert_eq!(fs::read(&file).unwrap(), b"new");
                fs::remove_file(&file).unwrap();
                // The way in which a pid file or a core file is written.
                fs::write(made.path().join("new"), "new").unwrap();
                fs::remove_file(made.path().join("new")).unwrap();
                assert_denied(fs::read(made.path().join("old")));
                assert_denied(fs::read_dir(made.path()));
                // What SECURITY.md says is not confined.
                fs::metadata(&secret).unwrap();
                fs::set_permissions(&secret, Permissions::from_mode(0o640)).unwrap();
                chown(&secret, None, None).unwrap();
                // Threads that it starts are confined, too.
                thread::spawn(move || assert_denied(fs::read(&secret))).join().unwrap();
            },
        );
        confined(
            || files::confine(&Needs::default()),
            |extent| {
                if extent == Extent::Whole {
                    assert_denied(TcpStream::connect(address));
                    assert_denied(TcpListener::bind("127.0.0.1:0"));
                    assert_eq!(kill(Pid::parent(), None), Err(Errno::EPERM));
                }
                listener.set_nonblocking(true).unwrap();
                assert_eq!(listener.accept().unwrap_err().kind(), ErrorKind::WouldBlock, "bound sockets are served");
            },
        );
        assert_eq!(fs::read(other.path().join("secret")).unwrap(), b"c", "this thread is as free as before");
    }

    #[test]
    fn system_calls_that_are_not_needed_do_not_exist() {
        let folder = tempfile::tempdir().unwrap();
        confined(
            || calls::confine(false),
            |_| {
                assert_eq!(Command::new("/bin/true").spawn().unwrap_err().raw_os_error(), Some(libc::ENOSYS));
                assert_eq!(UdpSocket::bind("127.0.0.1:0").unwrap_err().raw_os_error(), Some(libc::ENOSYS));
                for call in [
                    libc::SYS_execve,
                    libc::SYS_setresuid,
                    libc::SYS_ptrace,
                    libc::SYS_mount,
                    libc::SYS_bpf,
                    libc::SYS_io_uring_setup,
                    // What Landlock can't restrict.
                    libc::SYS_fchmodat,
                    libc::SYS_fchownat,
                    libc::SYS_utimensat,
                    libc::SYS_setxattr,
                    libc::SYS_chdir,
                ] {
                    // SAFETY: the arguments are invalid for each of these calls.
                    assert_eq!(unsafe { libc::syscall(call, -1, -1, -1, -1, -1) }, -1);
                    assert_eq!(std::io::Error::last_os_error().raw_os_error(), Some(libc::ENOSYS), "{call}");
                }
                // Limits and signals are allowed only for the process itself, and on descriptors
                // only some queries. (The arguments have no effect if a call is allowed.)
                let (parent, own) = (std::os::unix::process::parent_id(), std::process::id());
                let outcome = |call, first: u32, second: libc::c_ulong| {
                    // SAFETY: the arguments have no effect: a null pointer for a limit or a
                    // terminal's size, signal 0, or process 0.
                    let result = unsafe { libc::syscall(call, first, second, 0, 0) };
                    if result == 0 { None } else { std::io::Error::last_os_error().raw_os_error() }
                };
                assert_eq!(outcome(libc::SYS_prlimit64, parent, libc::RLIMIT_CORE.into()), Some(libc::ENOSYS));
                assert_eq!(outcome(libc::SYS_prlimit64, 0, libc::RLIMIT_CORE.into()), None);
                assert_eq!(outcome(libc::SYS_tgkill, parent, parent.into()), Some(libc::ENOSYS));
                assert_eq!(outcome(libc::SYS_tgkill, own, own.into()), None);
                assert_eq!(outcome(libc::SYS_ioctl, 0, libc::TIOCSTI), Some(libc::ENOSYS));
                assert_ne!(outcome(libc::SYS_ioctl, u32::MAX, libc::FIONBIO), Some(libc::ENOSYS));
                // What the server needs works: threads, files, time, memory.
                thread::spawn(|| vec![1_u8; 100 << 20].len()).join().unwrap();
                fs::write(folder.path().join("file"), "x").unwrap();
                thread::sleep(std::time::Duration::from_millis(1));
            },
        );
    }
}
