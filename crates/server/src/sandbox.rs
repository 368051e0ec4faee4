//! What the process gives up for good when it is about to serve, so that who takes it over by a fault in it can do little:
//!
//! * Files, by Landlock: it can read, write, make and remove what is named in [`Needs`], and nothing else; execute nothing; neither
//!   listen on TCP ports nor connect to any; and signal nobody else. (What was opened before stays open: sockets above all.) This costs
//!   a request nothing.
//! * System calls, by seccomp, if that is asked for: all but those of a list ([`calls`]). It costs each call a look at the list, and the list has
//!   to keep up with the system's libraries. So what is not on it fails as if the kernel did not have it, which they are prepared for,
//!   instead of ending the server.
//!
//! Both hold for the thread that calls, and for those it starts later. Neither hinders signals, debuggers or core files.

#[cfg(target_os = "linux")]
mod calls;
#[cfg(target_os = "linux")]
mod files;

use crate::log::{Level, Log};
use crate::net::Io;
use crate::options::Options;
use crate::snapshot::folder;
use nix::sys::resource::{Resource, getrlimit};
use std::path::{Path, PathBuf};

/// What a server needs of the file system when it has been bound.
#[derive(Debug, Default)]
struct Needs {
    /// Files, and folders with all that is in them.
    read: Vec<PathBuf>,
    /// Files, and folders in which files are made, written, read, replaced and removed.
    write: Vec<PathBuf>,
}

/// How much of it holds.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Extent {
    Whole,
    /// What an older kernel can.
    Part,
}

/// Why it does not hold.
type Lack = String;

/// Confines this thread, and all that it starts, to what a server with these options needs, which does its input and output by `io`, and reads
/// these `files` again now and then.
///
/// What the kernel does not offer is left out, and the log says so.
pub(crate) fn enter<'f>(options: &Options, io: Io, files: impl IntoIterator<Item = &'f Path>, log: &Log) {
    let wanted = options.extended.drop_privileges;
    if wanted == Some(false) {
        return;
    }
    let needs = Needs::of(options, files);
    // Who has not asked for it need not care.
    let level = if wanted.is_some() { Level::Warning } else { Level::Trouble };
    let tell = |what: &str, outcome: Result<Extent, Lack>| match outcome {
        Ok(Extent::Whole) => log.say(Level::Trouble, format_args!("{what} are confined to what is needed")),
        Ok(Extent::Part) => {
            log.say(level, format_args!("{what} are confined as far as this kernel can: it is older than 6.12"))
        }
        Err(why) => log.say(level, format_args!("{what} are not confined: {why}")),
    };
    tell("files, TCP and signals", files::confine(&needs));
    if wanted == Some(true) {
        tell("system calls", calls::confine(io != Io::Epoll));
    }
}

impl Needs {
    fn of<'f>(options: &Options, files: impl IntoIterator<Item = &'f Path>) -> Needs {
        let mut needs = Needs::default();
        for file in files {
            // What is read again may be another file by then, or a link to another one, in the same place.
            needs.read.push(folder(file).into());
            needs.read.extend(file.canonicalize().iter().map(|file| folder(file).to_owned()));
        }
        needs.write.extend(options.snapshot.as_deref().map(|file| folder(file).to_owned()));
        needs.write.extend(options.pidfile.as_deref().map(|file| folder(file).to_owned()));
        needs.write.extend(core_folder());
        // Where a daemon's standard streams go.
        needs.write.push("/dev/null".into());
        // For the names in a panic's backtrace, and for the number of processors that a container may use.
        needs.read.extend(std::env::current_exe());
        needs.read.extend(["/proc/self", "/sys/fs/cgroup"].map(PathBuf::from));
        needs
    }
}

/// Where the kernel would write a core file, if this process may have one: it does so in this process's name.
fn core_folder() -> Option<PathBuf> {
    let (most, _) = getrlimit(Resource::RLIMIT_CORE).ok()?;
    let pattern = std::fs::read_to_string("/proc/sys/kernel/core_pattern").ok()?;
    // To a program or a socket it hands them over by itself.
    if most == 0 || pattern.starts_with(['|', '@']) {
        return None;
    }
    // Folders may depend on the process, too.
    let fixed = pattern.trim_end().split('%').next().unwrap_or_default();
    Some(match fixed.rsplit_once('/') {
        None => ".".into(),
        Some(("", _)) => "/".into(),
        Some((folder, _)) => folder.into(),
    })
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
    use std::fs::{self, File};
    use std::io::ErrorKind;
    use std::net::{TcpListener, TcpStream, UdpSocket};
    use std::process::Command;
    use std::thread;

    /// Runs `check` in a thread of its own, confined by `confine`: other tests go on as they are. Not at all if the kernel lacks what it takes.
    fn confined(confine: impl FnOnce() -> Result<Extent, Lack> + Send, check: impl FnOnce(Extent) + Send) {
        thread::scope(|scope| {
            let confined = scope.spawn(|| match confine() {
                Ok(extent) => check(extent),
                Err(why) => eprintln!("not tested: {why}"),
            });
            confined.join().expect("what is checked holds");
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
        let needs = Needs { read: vec![readable.clone()], write: vec![allowed.path().into()] };
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
                // As a snapshot is written.
                let (draft, file) = (allowed.path().join("draft"), allowed.path().join("file"));
                fs::write(&draft, "new").unwrap();
                fs::rename(&draft, &file).unwrap();
                File::open(allowed.path()).unwrap().sync_all().unwrap();
                assert_eq!(fs::read(&file).unwrap(), b"new");
                fs::remove_file(&file).unwrap();
                // Threads that it starts are no freer.
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
                assert_eq!(listener.accept().unwrap_err().kind(), ErrorKind::WouldBlock, "what is bound is served");
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
                ] {
                    // SAFETY: were there such a call, it would find no sense in these arguments.
                    assert_eq!(unsafe { libc::syscall(call, -1, -1, -1, -1, -1) }, -1);
                    assert_eq!(std::io::Error::last_os_error().raw_os_error(), Some(libc::ENOSYS), "{call}");
                }
                // What is needed does: threads, files, time, memory.
                thread::spawn(|| vec![1_u8; 100 << 20].len()).join().unwrap();
                fs::write(folder.path().join("file"), "x").unwrap();
                thread::sleep(std::time::Duration::from_millis(1));
            },
        );
    }

    #[test]
    fn a_core_pattern_names_a_folder() {
        // Whatever this machine has, it is there, if it is any.
        assert!(core_folder().is_none_or(|folder| folder.is_dir() || folder.is_absolute()));
    }

    #[test]
    fn what_options_name_is_needed() {
        let folder = tempfile::tempdir().unwrap();
        let (target, link) = (folder.path().join("in/users"), folder.path().join("users"));
        fs::create_dir(folder.path().join("in")).unwrap();
        fs::write(&target, "a:b").unwrap();
        std::os::unix::fs::symlink(&target, &link).unwrap();
        let options = Options::parse_from_args(["relativistd", "-e", "/var/lib/items", "-P", "/run/r.pid"]).unwrap();
        let needs = Needs::of(&options, [&*link]);
        let has = |paths: &[PathBuf], path: &Path| paths.iter().any(|other| other == path);
        assert!(has(&needs.read, folder.path()) && has(&needs.read, &folder.path().canonicalize().unwrap().join("in")));
        assert!(has(&needs.write, Path::new("/var/lib")) && has(&needs.write, Path::new("/run")));
    }
}
