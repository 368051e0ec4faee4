//! Tests of the start of the server: its actions as root, and what clients and operators see before
//! it serves.

use super::{
    Daemon, PROGRAM, ask_version, converse, logs, patience, poll, ports, program, program_after, program_for_all_users,
    run, serve, wait_until,
};
use crate::certificates::Authority;
use nix::sys::signal::{Signal, kill};
use nix::sys::stat::Mode;
use nix::unistd::{Pid, Uid, User, chown, mkfifo};
use rustls::{ClientConnection, Stream};
use std::fs::{self, File, Permissions};
use std::io::{BufRead, BufReader, ErrorKind, Read, Write};
use std::net::{TcpListener, TcpStream, UdpSocket};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::os::unix::net::UnixStream;
use std::process::{Command, Stdio};

/// Returns the user `nobody`, if this process can change to it.
fn nobody() -> Option<User> {
    let user = User::from_name("nobody").ok().flatten().filter(|_| Uid::effective().is_root());
    if user.is_none() {
        eprintln!("not tested: only root can become nobody");
    }
    user
}

/// Returns an address that no other test uses, and ports that are free at it.
fn free_ports<const N: usize>() -> (String, [u16; N]) {
    let [high, low, ..] = (std::process::id() as u16).to_be_bytes();
    let host = format!("127.77.{high}.{low}");
    let sockets = [(); N].map(|()| TcpListener::bind((&*host, 0)).unwrap());
    let ports = sockets.each_ref().map(|socket| socket.local_addr().unwrap().port());
    (host, ports)
}

/// The status and the text of the reply to a check (`/healthz`, `/readyz`).
fn check(path: &str, address: (&str, u16)) -> Option<String> {
    let mut stream = TcpStream::connect(address).ok()?;
    stream.set_read_timeout(Some(patience())).unwrap();
    write!(stream, "GET {path} HTTP/1.1\r\n\r\n").unwrap();
    let mut reply = String::new();
    stream.read_to_string(&mut reply).expect("a reply in time");
    let (head, body) = reply.split_once("\r\n\r\n").expect("a head");
    Some(format!("{} {}", head.split(' ').nth(1).expect("a status"), body.trim()))
}

/// The snapshot is a pipe, so that reading it takes as long as the test wants.
#[test]
fn no_client_is_served_before_the_snapshot_is_read() {
    let folder = tempfile::tempdir().unwrap();
    let (items, port_file) = (folder.path().join("items"), folder.path().join("ports"));
    // Opening the pipe blocks the server until the test opens it for writing.
    mkfifo(&items, Mode::S_IRUSR | Mode::S_IWUSR).unwrap();
    let (host, [port, admin]) = free_ports();
    let mut command = program();
    command.args(["-t", "1", "-v", "-o", "drop_privileges", "-l", &host, "-p", &port.to_string()]);
    command.args(["-U", &port.to_string(), "--admin", &format!("{host}:{admin}"), "-e"]).arg(&items);
    let mut daemon = Daemon::start(command.env("MEMCACHED_PORT_FILENAME", &port_file));
    assert_eq!(poll("a reply", || check("/readyz", (&host, admin))), "503 starting");
    assert_eq!(check("/healthz", (&host, admin)).unwrap(), "200 ok");
    // The snapshot is not trusted, so the sandbox comes first.
    let status = fs::read_to_string(format!("/proc/{}/status", daemon.0.id())).unwrap_or_default();

    assert_eq!(TcpStream::connect((&*host, port)).unwrap_err().kind(), ErrorKind::ConnectionRefused);
    assert!(!port_file.exists(), "programs that wait for the port file would connect");
    let asker = UdpSocket::bind((&*host, 0)).unwrap();
    asker.connect((&*host, port)).unwrap();
    asker.send(b"\0\x01\0\0\0\x01\0\0set early 0 0 1\r\nx\r\n").unwrap();
    for signal in [Signal::SIGHUP, Signal::SIGUSR2] {
        kill(Pid::from_raw(daemon.0.id() as i32), signal).unwrap();
    }
    assert_eq!(check("/readyz", (&host, admin)).unwrap(), "503 starting");
    assert_eq!(daemon.0.try_wait().unwrap(), None, "the server ended at a signal");

    // Close the pipe without writing to it.
    drop(File::options().write(true).open(&items).unwrap());
    wait_until("the port file", || port_file.exists());
    assert_eq!(check("/readyz", (&host, admin)).unwrap(), "200 ok");
    ask_version(&mut TcpStream::connect((&*host, port)).unwrap());
    asker.set_read_timeout(Some(patience())).unwrap();
    asker.send(b"\0\x02\0\0\0\x01\0\0mg early\r\n").unwrap();
    let mut reply = [0; 100];
    let count = asker.recv(&mut reply).unwrap();
    assert_eq!(reply[..count].escape_ascii().to_string(), r"\x00\x02\x00\x00\x00\x01\x00\x00EN\r\n");
    wait_until("the snapshot that was asked for meanwhile", || items.is_file());
    let (code, stderr) = daemon.end(Signal::SIGTERM);
    assert_eq!(code, Some(0), "{stderr}");
    assert!(status.contains("Seccomp:\t2") || !stderr.contains("system calls are confined"), "{status}");
}

#[test]
fn the_server_starts_without_ports() {
    let mut daemon = Daemon::start(program().args(["-p", "0"]));
    let mut stderr = BufReader::new(daemon.0.stderr.take().unwrap());
    assert!(logs(&mut stderr, "no client can connect"));
    assert_eq!(daemon.0.try_wait().unwrap(), None);
}

#[test]
#[cfg(target_os = "linux")]
fn an_automatic_memory_limit_is_logged() {
    let (daemon, port) = serve(program().args(["-m", "auto"]));
    let stats = converse(port, "stats\r\n");
    let (status, stderr) = daemon.end(Signal::SIGTERM);
    assert_eq!(status, Some(0), "{stderr}");
    let bytes = stats.lines().find_map(|line| line.strip_prefix("STAT limit_maxbytes ")).expect("a line");
    let mebibytes = bytes.trim().parse::<u64>().unwrap() >> 20;
    assert_eq!(stderr.matches(&format!("-m auto: {mebibytes} MiB for items and table, of ")).count(), 1, "{stderr}");
}

/// Clients at this address must send certificates, which the server cannot verify.
#[test]
fn without_an_authority_an_mtls_address_refuses_all_clients() {
    let (authority, folder) = (Authority::new(), tempfile::tempdir().unwrap());
    authority.issue("client", |_| ());
    let port_file = folder.path().join("ports");
    let words = ["server.crt", "server.key"].map(|file| authority.path(file).display().to_string());
    let mut command = program();
    command.args(["-p", "-1", "-t", "1", "-l", "notls:127.0.0.1,mtls:127.0.0.2", "-Z", "-o"]);
    command.arg(format!("ssl_chain_cert={},ssl_key={}", words[0], words[1]));
    let daemon = Daemon::start(command.env("MEMCACHED_PORT_FILENAME", &port_file));
    let ports = ports(&port_file);
    for config in [authority.client(), authority.client_as(&authority, "client")] {
        let mut connection = ClientConnection::new(config, "localhost".try_into().unwrap()).unwrap();
        let mut socket = TcpStream::connect(("127.0.0.2", ports[1])).unwrap();
        let mut stream = Stream::new(&mut connection, &mut socket);
        assert!(stream.write_all(b"version\r\n").and_then(|()| stream.read_exact(&mut [0])).is_err());
    }
    ask_version(&mut TcpStream::connect(("127.0.0.1", ports[0])).unwrap());
    let (status, stderr) = daemon.end(Signal::SIGTERM);
    assert_eq!(status, Some(0));
    assert!(stderr.contains("no client can connect to mtls: addresses"), "{stderr}");
}

/// Starts a server, and asserts that it has locked its memory or logged why not.
fn locks_memory(command: &mut Command) {
    let (daemon, port) = serve(command.args(["-m", "64", "-k"]));
    let status = fs::read_to_string(format!("/proc/{}/status", daemon.0.id())).unwrap();
    assert_eq!(converse(port, "set a 0 0 1\r\nx\r\n"), "STORED\r\n");
    let (code, stderr) = daemon.end(Signal::SIGTERM);
    assert_eq!(code, Some(0), "{stderr}");
    let locked = status.lines().find_map(|line| line.strip_prefix("VmLck:")).expect("a line");
    let has_locked = locked.trim() != "0 kB";
    assert_eq!(stderr.contains("cannot keep memory out of swap"), !has_locked, "{locked}: {stderr}");
}

#[test]
#[cfg(target_os = "linux")]
fn memory_is_locked_for_other_users_than_root() {
    if nobody().is_none() {
        return;
    }
    for io in ["auto", "epoll"] {
        locks_memory(program().args(["-u", "nobody", "--io", io]));
    }
}

/// With a limit on locked memory, later mappings of the server could fail.
#[test]
#[cfg(target_os = "linux")]
fn memory_is_not_locked_below_a_limit() {
    if nobody().is_none() {
        return;
    }
    if !Command::new("sh").args(["-c", "ulimit -l 300000"]).status().unwrap().success() {
        return eprintln!("not tested: the limit on locked memory cannot be raised");
    }
    let folder = tempfile::tempdir().unwrap();
    let program = program_for_all_users(folder.path());
    let mut command = Command::new("sh");
    let script = "ulimit -l 300000 && exec setpriv --reuid=65534 --clear-groups \"$0\" \"$@\"";
    command.args(["-c", script]).arg(program).stdout(Stdio::piped()).stderr(Stdio::piped());
    locks_memory(&mut command);
}

/// With a limit on virtual memory, the server reserves addresses for `-m` only, and at most half of
/// all: threads and buffers need some too.
#[test]
#[cfg(target_os = "linux")]
fn a_limit_on_virtual_memory_must_allow_for_the_cache() {
    let limited = || program_after("ulimit -v 4000000");
    let (daemon, port) = serve(limited().args(["-m", "1024"]));
    assert_eq!(converse(port, "set a 0 0 1\r\nx\r\n"), "STORED\r\n");
    assert_eq!(daemon.end(Signal::SIGTERM).0, Some(0));
    for too_much in ["2048", "4096"] {
        let refused = limited().args(["-p", "-1", "-m", too_much]).output().unwrap();
        let stderr = String::from_utf8_lossy(&refused.stderr);
        assert_eq!(refused.status.code(), Some(71), "{stderr}");
        assert!(stderr.contains("use a smaller -m, or allow more virtual memory (ulimit -v)"), "{stderr}");
    }
}

/// A cache whose addresses run out before its memory evicts, and keeps storing.
#[test]
#[cfg(target_os = "linux")]
fn a_cache_without_more_addresses_evicts() {
    let (daemon, port) = serve(program_after("ulimit -v 4000000").args(["-m", "8"]));
    // The server has reserved 160 MiB, for the limit at its start.
    assert_eq!(converse(port, "cache_memlimit 1024\r\n"), "OK\r\n");
    for (size, count) in [(400_000, 500), (100, 5_000), (70_000, 3_000), (5_000, 50)] {
        let value = "v".repeat(size);
        for first in (0..count).step_by(50) {
            let set = |n| format!("set {size}-{n} 0 0 {size}\r\n{value}\r\n");
            let replies = converse(port, &(first..first + 50).map(set).collect::<String>());
            assert_eq!(replies, "STORED\r\n".repeat(50), "{size} bytes");
        }
    }
    let stats = converse(port, "stats\r\n");
    let evictions = stats.lines().find_map(|line| line.strip_prefix("STAT evictions ")).unwrap();
    assert!(evictions.parse::<u64>().unwrap() > 100, "{stats}");
    assert_eq!(daemon.end(Signal::SIGTERM).0, Some(0));
}

/// The owner of the folder could replace the file by a link, which root would follow.
#[test]
fn root_makes_no_file_for_another_user() {
    if nobody().is_none() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("file");
    for flag in ["-s", "-P", "-e"] {
        let mut daemon = Daemon::start(program().args(["-p", "-1", "-u", "nobody", flag]).arg(&path));
        let mut stderr = BufReader::new(daemon.0.stderr.take().unwrap());
        // The server would serve if it could make the file.
        let status = poll("the end or a file", || match daemon.0.try_wait().unwrap() {
            Some(status) => Some(status.code()),
            None => path.exists().then_some(None),
        });
        assert_eq!(status, Some(71), "{flag}");
        assert!(logs(&mut stderr, "Permission denied") && !path.exists(), "{flag}");
    }
}

/// Only root may bind low ports.
#[test]
#[cfg(target_os = "linux")]
fn ports_are_bound_before_root_and_its_groups_are_given_up() {
    let Some(nobody) = nobody() else { return };
    let folder = tempfile::tempdir().unwrap();
    fs::set_permissions(folder.path(), Permissions::from_mode(0o777)).unwrap();
    let (port_file, (host, [])) = (folder.path().join("ports"), free_ports());
    let is_free = |port: &u16| TcpListener::bind((&*host, *port)).is_ok() && UdpSocket::bind((&*host, *port)).is_ok();
    let port = (512..1024).find(is_free).expect("a free port");
    let mut command = Command::new("setpriv");
    command.args(["--groups", "1,2", PROGRAM, "-u", "nobody"]);
    command.args(["-l", &host, "-p", &port.to_string(), "-U", &port.to_string()]).stderr(Stdio::null());
    let daemon = Daemon::start(command.env("MEMCACHED_PORT_FILENAME", &port_file));
    wait_until("the port file", || port_file.exists());
    let status = fs::read_to_string(format!("/proc/{}/status", daemon.0.id())).unwrap();
    let words = |name: &str| -> Vec<&str> {
        let line = status.lines().find_map(|line| line.strip_prefix(name)).expect(name);
        line.split_whitespace().collect()
    };
    assert_eq!(words("Uid:"), [&*nobody.uid.to_string(); 4]);
    assert_eq!(words("Gid:"), [&*nobody.gid.to_string(); 4]);
    assert!(!words("Groups:").iter().any(|group| ["0", "1", "2"].contains(group)), "{status}");
    assert_eq!(words("CapEff:"), ["0000000000000000"]);
    ask_version(&mut TcpStream::connect((&*host, port)).unwrap());
}

#[test]
fn the_server_warns_if_it_stays_root() {
    let mut daemon = Daemon::start(program().args(["-p", "0"]));
    let mut stderr = BufReader::new(daemon.0.stderr.take().unwrap());
    let mut log = String::new();
    // The message about ports follows.
    while !log.contains("no client can connect") && stderr.read_line(&mut log).unwrap() > 0 {}
    assert_eq!(log.contains("running as root"), Uid::effective().is_root(), "{log}");
}

/// A core file contains what clients have stored.
#[test]
#[cfg(target_os = "linux")]
fn core_files_are_requested_only_if_configured() {
    for (flag, expected) in [("-v", "0"), ("-r", "4096")] {
        let mut command = Command::new("prlimit");
        command.args(["--core=0:4096", PROGRAM, flag]).stderr(Stdio::null());
        let (daemon, _) = serve(&mut command);
        let limits = fs::read_to_string(format!("/proc/{}/limits", daemon.0.id())).unwrap();
        let limit = limits.lines().find_map(|line| line.strip_prefix("Max core file size")).expect("a line");
        assert_eq!(limit.split_whitespace().next(), Some(expected), "{flag}");
    }
}

#[test]
fn a_unix_socket_belongs_to_the_user_that_the_server_becomes() {
    let Some(nobody) = nobody() else { return };
    let folder = tempfile::tempdir().unwrap();
    chown(folder.path(), Some(nobody.uid), None).unwrap();
    let path = folder.path().join("socket");
    let _daemon = Daemon::start(program().args(["-u", "nobody", "-s"]).arg(&path));
    ask_version(&mut poll("the socket", || UnixStream::connect(&path).ok()));
    let metadata = fs::metadata(&path).unwrap();
    assert_eq!((metadata.uid(), metadata.mode() & 0o777), (nobody.uid.as_raw(), 0o700));
}

/// The mode may allow more than the umask does.
#[test]
fn a_unix_socket_has_the_configured_mode() {
    let folder = tempfile::tempdir().unwrap();
    for mode in [0o777, 0o660] {
        let path = folder.path().join(format!("{mode:o}"));
        let mut command = program_after("umask 077");
        let _daemon = Daemon::start(command.args(["-a", &format!("{mode:o}"), "-s"]).arg(&path));
        ask_version(&mut poll("the socket", || UnixStream::connect(&path).ok()));
        assert_eq!(fs::metadata(&path).unwrap().mode() & 0o777, mode);
    }
}

#[test]
fn check_accepts_existing_files_and_creates_none() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).display().to_string();
    fs::write(path("users"), "ann:secret\n").unwrap();
    let user = User::from_uid(Uid::current()).ok().flatten().map_or("root".into(), |user| user.name);
    for (flags, status, message) in [
        (format!("-Y {} -e {} -P {} -s {}", path("users"), path("items"), path("pid"), path("socket")), 0, ""),
        (format!("-u {user} -l localhost,127.0.0.1:1"), 0, ""),
        ("-Y /nonexistent/users".into(), 71, "/nonexistent/users"),
        ("-e /nonexistent/items".into(), 71, "/nonexistent/items"),
        ("-P /nonexistent/pid".into(), 71, "/nonexistent/pid"),
        ("-s /nonexistent/socket".into(), 71, "/nonexistent/socket"),
        ("-u nobody-of-this-name".into(), 67, "nobody-of-this-name"),
        ("-l no.such.host.invalid".into(), 71, "no.such.host.invalid"),
    ] {
        let output = run(&format!("--check {flags}"));
        let stderr = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(status), "{flags}: {stderr}");
        assert!(stderr.contains(message), "{flags}: {stderr}");
    }
    let left: Vec<_> = fs::read_dir(folder.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(left, ["users"], "the check created no files");
}
