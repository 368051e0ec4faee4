//! Tests of the sandbox: which actions it forbids to a serving program, and which it allows.

use super::{Daemon, ask_version, logs, program, program_after, serve};
use nix::sys::resource::{Resource, getrlimit};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use std::fs::{self, Permissions};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{ChildStderr, Command};

/// Starts a server with these options in this folder. Returns it with its port and its stderr.
fn start(folder: &Path, options: &[&str]) -> (Daemon, u16, BufReader<ChildStderr>) {
    start_by(program().current_dir(folder), options)
}

/// Starts a server like [`start`], with this command.
fn start_by(command: &mut Command, options: &[&str]) -> (Daemon, u16, BufReader<ChildStderr>) {
    let (mut daemon, port) = serve(command.arg("-v").args(options));
    let stderr = BufReader::new(daemon.0.stderr.take().unwrap());
    (daemon, port, stderr)
}

fn can_log_in(port: u16, user: &str, password: &str) -> bool {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).unwrap();
    let token = format!("{user} {password}");
    write!(stream, "set login 0 0 {}\r\n{token}\r\n", token.len()).unwrap();
    let mut reply = [0; 6];
    stream.read_exact(&mut reply).unwrap();
    reply == *b"STORED"
}

#[test]
fn files_in_other_folders_cannot_be_read_unless_allowed() {
    for option in ["maxconns_fast", "drop_privileges", "no_drop_privileges"] {
        let (folder, elsewhere) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let (users, others) = (folder.path().join("users"), elsewhere.path().join("users"));
        fs::write(&users, "old:user").unwrap();
        fs::write(&others, "other:user").unwrap();
        let (daemon, port, mut stderr) = start(folder.path(), &["-Y", "users", "-o", option]);
        let hang_up = || kill(Pid::from_raw(daemon.0.id() as i32), Signal::SIGHUP).unwrap();
        let is_confined = option != "no_drop_privileges";
        if is_confined {
            let line = stderr.by_ref().lines().map_while(Result::ok).find(|line| line.contains("confined")).unwrap();
            if line.contains("not confined") {
                return eprintln!("not tested: {line}");
            }
            assert!(line.contains("files, TCP and signals are confined"), "{line}");
        }
        assert!(can_log_in(port, "old", "user"));
        // Replace the old file by a new one, as editors do.
        fs::write(folder.path().join("draft"), "new:user").unwrap();
        fs::rename(folder.path().join("draft"), &users).unwrap();
        hang_up();
        assert!(logs(&mut stderr, "were reloaded") && can_log_in(port, "new", "user"));
        fs::remove_file(&users).unwrap();
        symlink(&others, &users).unwrap();
        hang_up();
        if is_confined {
            assert!(logs(&mut stderr, "nothing was reloaded: cannot read the users in"));
            assert!(can_log_in(port, "new", "user") && !can_log_in(port, "other", "user"));
        } else {
            assert!(logs(&mut stderr, "were reloaded") && can_log_in(port, "other", "user"));
        }
    }
}

/// The kernel writes core files with the rights of the process, often to `/`.
#[test]
fn allowing_core_files_allows_no_other_files() {
    let (folder, elsewhere) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let (users, others) = (folder.path().join("users"), elsewhere.path().join("users"));
    fs::write(&others, "other:user").unwrap();
    let (_, hard) = getrlimit(Resource::RLIMIT_CORE).unwrap();
    let pattern = fs::read_to_string("/proc/sys/kernel/core_pattern").unwrap();
    let is_relative = hard > 0 && !pattern.contains('/') && !pattern.starts_with(['|', '@']);
    for (working_directory, option) in [(Path::new("/"), "-F"), (Path::new("/"), "-r"), (elsewhere.path(), "-r")] {
        let _ = fs::remove_file(&users);
        fs::write(&users, "old:user").unwrap();
        let mut command = program_after(r#"ulimit -S -c "$(ulimit -H -c)""#);
        command.current_dir(working_directory);
        let (daemon, port, mut stderr) = start_by(&mut command, &["-Y", users.to_str().unwrap(), option]);
        let mut log = String::new();
        while !log.contains("confined") && stderr.read_line(&mut log).unwrap() > 0 {}
        if log.contains("not confined") {
            return eprintln!("not tested: {log}");
        }
        let is_logged = log.contains("no core files are written there");
        assert_eq!(is_logged, option == "-r" && working_directory == "/" && is_relative, "{log}");
        assert!(can_log_in(port, "old", "user"), "a server that serves handles signals");
        fs::remove_file(&users).unwrap();
        symlink(&others, &users).unwrap();
        kill(Pid::from_raw(daemon.0.id() as i32), Signal::SIGHUP).unwrap();
        assert!(logs(&mut stderr, "nothing was reloaded: cannot read the users in"), "{working_directory:?} {option}");
        assert!(can_log_in(port, "old", "user") && !can_log_in(port, "other", "user"));
    }
}

/// The kernel writes a core file with the rights of the crashed process, also if it was started as
/// root. Without root, `-u` is ignored.
#[test]
fn a_core_file_is_written_as_without_the_sandbox() {
    let folder = tempfile::tempdir().unwrap();
    let mut shell = Command::new("sh");
    shell.current_dir(folder.path()).args(["-c", "ulimit -c unlimited && kill -ABRT $$"]);
    if !shell.status().unwrap().core_dumped() {
        return eprintln!("not tested: this system writes no core files here");
    }
    fs::set_permissions(folder.path(), Permissions::from_mode(0o777)).unwrap();
    let (mut daemon, port, _stderr) = start(folder.path(), &["-r", "-u", "nobody", "-o", "drop_privileges", "-m", "8"]);
    ask_version(&mut TcpStream::connect(("127.0.0.1", port)).unwrap());
    kill(Pid::from_raw(daemon.0.id() as i32), Signal::SIGABRT).unwrap();
    assert!(daemon.0.wait().unwrap().core_dumped());
}
