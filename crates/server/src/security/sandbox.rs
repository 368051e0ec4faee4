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
#[cfg(target_os = "linux")]
mod files;

use crate::observability::log::{Level, Log};
use crate::options::Options;
use crate::process::files::folder;
use nix::sys::resource::{Resource, getrlimit};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

/// What a server needs in the file system after it has bound its sockets.
#[derive(Debug, Default)]
struct Needs {
    /// Files, and folders with all that is in them.
    read: Vec<PathBuf>,
    /// Files, and folders in which files are made, written, read, replaced and removed.
    write: Vec<PathBuf>,
    /// Folders in which files are made, written and removed, but not read.
    make: Vec<PathBuf>,
    /// Paths that are not granted because they are in `/`: a rule for a folder covers everything
    /// below it.
    lost: BTreeSet<&'static str>,
}

/// How much of a restriction is in force.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Extent {
    Whole,
    /// What an older kernel supports.
    Part,
}

/// Why a restriction is not in force.
type Lack = String;

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

impl Needs {
    fn of<'f>(options: &Options, files: impl IntoIterator<Item = &'f Path>) -> Needs {
        let mut needs = Needs::default();
        for file in files {
            // The file that is read later may be a new file, or a link, at the same path.
            for file in file.canonicalize().as_deref().into_iter().chain([file]) {
                needs.grant(|needs| &mut needs.read, folder(file), "SIGHUP reads no files there, use another folder");
            }
        }
        if let Some(file) = &options.snapshot {
            needs.grant(|needs| &mut needs.write, folder(file), "no snapshot is written there, use another folder");
        }
        if let Some(file) = &options.pidfile {
            needs.grant(|needs| &mut needs.make, folder(file), "no pid file is written there (-P), use another folder");
        }
        if let Some(folder) = options.enable_coredumps.then(core_folder).flatten() {
            let lost = "no core files are written there (-r), use WorkingDirectory= or an absolute core_pattern";
            needs.grant(|needs| &mut needs.make, &folder, lost);
        }
        // For the standard streams of a daemon.
        needs.write.push("/dev/null".into());
        // For the names in a panic's backtrace, and for the number of processors that a container
        // may use.
        needs.read.extend(std::env::current_exe());
        needs.read.extend(["/proc/self", "/sys/fs/cgroup"].map(PathBuf::from));
        needs
    }

    /// Adds a folder to a list. If it is `/`, adds `lost` instead: what the server cannot do
    /// without it.
    fn grant(&mut self, list: fn(&mut Needs) -> &mut Vec<PathBuf>, folder: &Path, lost: &'static str) {
        if folder.canonicalize().is_ok_and(|folder| folder.parent().is_none()) {
            self.lost.insert(lost);
        } else {
            list(self).push(folder.into());
        }
    }
}

/// The folder in which the kernel would write a core file, if this process may have one. The kernel
/// writes it with the rights of this process.
fn core_folder() -> Option<PathBuf> {
    let (most, _) = getrlimit(Resource::RLIMIT_CORE).ok()?;
    let pattern = std::fs::read_to_string("/proc/sys/kernel/core_pattern").ok()?;
    if most == 0 { None } else { folder_of_pattern(pattern.trim_end()).map(PathBuf::from) }
}

fn folder_of_pattern(pattern: &str) -> Option<&Path> {
    // The kernel passes core files to a program or a socket with rights of its own.
    if pattern.starts_with(['|', '@']) {
        return None;
    }
    // The folder's path may also contain variables: take what precedes them.
    let fixed = pattern.split('%').next().unwrap_or_default();
    Some(Path::new(match fixed.rsplit_once('/') {
        None => ".",
        Some(("", _)) => "/",
        Some((folder, _)) => folder,
    }))
}

#[cfg(not(target_os = "linux"))]
mod files {
    pub(super) fn confine(_: &super::Needs) -> Result<super::Extent, super::Lack> {
        Err("this system has no Landlock".into())
    }
}

#[cfg(not(target_os = "linux"))]
mod calls {
    pub(super) fn confine(_: bool) -> Result<super::Extent, super::Lack> {
        Err("this system has no seccomp".into())
    }
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;
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
                // What SECURITY.md says Landlock cannot restrict.
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

    #[test]
    fn a_core_pattern_names_a_folder() {
        for (pattern, folder) in [
            ("core", "."),
            ("core.%e.%p", "."),
            ("cores/core.%p", "cores"),
            ("/var/crash/core.%p", "/var/crash"),
            ("/var/crash/%e/core", "/var/crash"),
            ("/core", "/"),
            ("/%e/core", "/"),
        ] {
            assert_eq!(folder_of_pattern(pattern), Some(Path::new(folder)), "{pattern}");
        }
        assert_eq!(folder_of_pattern("|/usr/bin/handler %p"), None);
        assert_eq!(folder_of_pattern("@/run/handler"), None);
    }

    #[test]
    fn the_root_is_never_granted() {
        let options = Options::parse_from_args(["relativistd", "-e", "/items", "-P", "/../r.pid"]).unwrap();
        let needs = Needs::of(&options, [Path::new("/proc/self/root/users")]);
        let lists = [&needs.read, &needs.write, &needs.make];
        for path in lists.into_iter().flatten() {
            assert_ne!(path.canonicalize().ok().as_deref(), Some(Path::new("/")), "{path:?}");
        }
        assert_eq!(needs.lost.len(), 3, "{:?}", needs.lost);
    }

    #[test]
    fn core_files_need_a_folder_only_if_enabled() {
        let options = |args: &[&str]| Options::parse_from_args([&["relativistd"], args].concat()).unwrap();
        assert_eq!(Needs::of(&options(&[]), []).make, Vec::<PathBuf>::new());
        let granted = Needs::of(&options(&["-r"]), []);
        assert_eq!(granted.make.len() + granted.lost.len(), usize::from(core_folder().is_some()));
    }

    #[test]
    fn files_named_by_options_are_needed() {
        let folder = tempfile::tempdir().unwrap();
        let (target, link) = (folder.path().join("in/users"), folder.path().join("users"));
        fs::create_dir(folder.path().join("in")).unwrap();
        fs::write(&target, "a:b").unwrap();
        std::os::unix::fs::symlink(&target, &link).unwrap();
        let options = Options::parse_from_args(["relativistd", "-e", "/var/lib/items", "-P", "/run/r.pid"]).unwrap();
        let needs = Needs::of(&options, [&*link]);
        let has = |paths: &[PathBuf], path: &Path| paths.iter().any(|other| other == path);
        assert!(has(&needs.read, folder.path()) && has(&needs.read, &folder.path().canonicalize().unwrap().join("in")));
        assert!(has(&needs.write, Path::new("/var/lib")) && has(&needs.make, Path::new("/run")));
        assert!(!has(&needs.write, Path::new("/run")), "pid files need not be read");
    }
}
