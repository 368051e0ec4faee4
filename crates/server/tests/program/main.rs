//! Tests of the program: command line, signals, exit statuses.

#[path = "../support/certificates.rs"]
#[allow(dead_code, reason = "the suite needs more of it")]
mod certificates;
mod hand_over;
mod reload;
mod sandbox;
mod snapshot;
mod start;
mod systemd;
mod tenants;
mod terminal;
mod tls;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use relativist_testing::{patience, poll, wait_until};
use std::fs;
use std::io::{BufRead, Read, Write};
use std::net::{TcpStream, UdpSocket};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};

const PROGRAM: &str = env!("CARGO_BIN_EXE_relativistd");

fn program() -> Command {
    program_at(Path::new(PROGRAM))
}

fn program_at(path: &Path) -> Command {
    let mut command = Command::new(path);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

/// Returns the program, which a shell becomes after these commands.
fn program_after(commands: &str) -> Command {
    let mut command = Command::new("sh");
    command.args(["-c", &format!("{commands} && exec \"$0\" \"$@\""), PROGRAM]);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

/// Copies the program to a folder where all users can run it: the build may be below a folder that
/// only root may enter.
fn program_for_all_users(folder: &Path) -> PathBuf {
    fs::set_permissions(folder, fs::Permissions::from_mode(0o777)).unwrap();
    let copy = folder.join("relativistd");
    // In a process of its own: a child of another test could inherit the open file, and then the
    // copy cannot be executed yet.
    let status = Command::new("install").args(["-m", "755", PROGRAM]).arg(&copy).status().unwrap();
    assert!(status.success());
    copy
}

fn run(flags: &str) -> Output {
    program().args(flags.split_whitespace()).output().expect("the program starts")
}

/// A running program. Dropping it kills the process.
struct Daemon(Child);

impl Daemon {
    fn start(command: &mut Command) -> Daemon {
        Daemon(command.spawn().expect("the program starts"))
    }

    /// Sends a signal, and returns the exit status and the output to stderr.
    fn end(mut self, signal: Signal) -> (Option<i32>, String) {
        kill(Pid::from_raw(self.0.id() as i32), signal).unwrap();
        let mut stderr = String::new();
        self.0.stderr.take().unwrap().read_to_string(&mut stderr).unwrap();
        (self.0.wait().unwrap().code(), stderr)
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Starts a server on a port of the kernel's choice. Returns it with the port, when it serves.
fn serve(command: &mut Command) -> (Daemon, u16) {
    let folder = tempfile::tempdir().unwrap();
    // The user of -u writes the file.
    fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o777)).unwrap();
    let file = folder.path().join("ports");
    let daemon = Daemon::start(command.args(["-p", "-1"]).env("MEMCACHED_PORT_FILENAME", &file));
    (daemon, ports(&file)[0])
}

/// Waits for the file that the server writes, and returns its ports.
fn ports(file: &Path) -> Vec<u16> {
    let text = poll("the port file", || fs::read_to_string(file).ok());
    text.lines().map(|line| line.strip_prefix("TCP INET: ").expect(line).parse().expect(line)).collect()
}

/// Whether the program logs `text` before it ends.
fn logs(stderr: &mut impl BufRead, text: &str) -> bool {
    stderr.lines().map_while(Result::ok).any(|line| line.contains(text))
}

/// Sends requests on a new connection, and returns the replies.
fn converse(port: u16, requests: &str) -> String {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).unwrap();
    let mut replies = String::new();
    stream.write_all(requests.as_bytes()).unwrap();
    stream.write_all(b"quit\r\n").unwrap();
    stream.read_to_string(&mut replies).unwrap();
    replies
}

/// Sends a request on an open connection, and expects exactly this reply.
#[track_caller]
fn expect(stream: &mut (impl Read + Write), request: impl AsRef<[u8]>, reply: impl AsRef<[u8]>) {
    stream.write_all(request.as_ref()).unwrap();
    let mut got = vec![0; reply.as_ref().len()];
    stream.read_exact(&mut got).unwrap();
    assert!(got == reply.as_ref(), "{}", got.escape_ascii());
}

fn ask_version(stream: &mut (impl Read + Write)) {
    stream.write_all(b"version\r\nquit\r\n").unwrap();
    let mut reply = String::new();
    stream.read_to_string(&mut reply).unwrap();
    assert_eq!(reply, "VERSION 1.6.45\r\n");
}

/// Clients that want one key are reported, once.
#[test]
fn a_storm_on_a_key_is_logged_once() {
    let (mut daemon, port) = serve(program().args(["-t", "1"]));
    let mut stderr = std::io::BufReader::new(daemon.0.stderr.take().unwrap());
    // Goes on until the server has ended, so that it has a reason to report the storm again.
    let storm = std::thread::spawn(move || {
        let gets = "get wanted\r\n".repeat(1000);
        let replies = &mut [0; 5000];
        let mut stream = TcpStream::connect(("127.0.0.1", port)).unwrap();
        while stream.write_all(gets.as_bytes()).is_ok() && stream.read_exact(replies).is_ok() {}
    });
    let message = "a storm on one key: ";
    assert!(logs(&mut stderr, message));
    // The server looks for storms every second.
    let uptime = || -> u32 {
        let stats = converse(port, "stats\r\n");
        stats.lines().find_map(|line| line.strip_prefix("STAT uptime ")).unwrap().parse().unwrap()
    };
    let reported = uptime();
    wait_until("four seconds", || uptime() > reported + 3);
    kill(Pid::from_raw(daemon.0.id() as i32), Signal::SIGTERM).unwrap();
    assert!(!logs(&mut stderr, message), "it is reported twice");
    assert_eq!(daemon.0.wait().unwrap().code(), Some(0));
    storm.join().unwrap();
}

/// Clients do not wait for those who read the log, and neither does the end.
#[test]
fn a_log_that_nobody_reads_is_lost() {
    let (mut daemon, port) = serve(program().args(["-t", "1"]));
    let lost = || -> u64 {
        let stats = converse(port, "stats\r\n");
        stats.lines().find_map(|line| line.strip_prefix("STAT log_worker_dropped ")).unwrap().parse().unwrap()
    };
    assert_eq!((converse(port, "verbosity 2\r\n").as_str(), lost()), ("OK\r\n", 0));
    let requests = format!("get {}\r\n", "k".repeat(200)).repeat(1000);
    while lost() == 0 {
        assert_eq!(converse(port, &requests), "END\r\n".repeat(1000));
    }
    let mut stderr = std::io::BufReader::new(daemon.0.stderr.take().unwrap());
    assert!(logs(&mut stderr, " log messages were lost: "));
    let before = lost();
    while lost() == before {
        converse(port, &requests);
    }
    kill(Pid::from_raw(daemon.0.id() as i32), Signal::SIGTERM).unwrap();
    assert_eq!(daemon.0.wait().unwrap().code(), Some(0));
}

#[test]
fn help_and_version() {
    let help = run("-h");
    assert_eq!(help.status.code(), Some(0));
    let text = String::from_utf8(help.stdout).unwrap();
    for name in ["--port", "--listen", "--threads", "--memory-limit", "--conn-limit", "--verbose", "--unix-socket"] {
        assert!(text.contains(name), "{name} is not in the help");
    }
    assert!(!text.contains("debug-time"), "a flag for tests is advertised");
    let version = run("-V");
    assert_eq!(version.status.code(), Some(0));
    let text = String::from_utf8(version.stdout).unwrap();
    assert!(text.starts_with("relativistd ") && text.contains("memcached 1.6.45"), "{text}");
}

#[test]
fn wrong_flags_get_a_message_and_the_exit_status_of_memcached() {
    for (flags, status, message) in [
        ("--nonsense", 1, "--nonsense"),
        ("-p http", 1, "http"),
        ("-m none", 1, "none"),
        ("-t 0", 1, "0"),
        ("-l [::1", 1, "bracket"),
        ("-o nonsense=1", 1, "Illegal suboption \"nonsense\""),
        ("-o hashpower", 1, "Missing hashpower argument"),
        ("-I 2k -m 1 -Z", 64, "TLS"),
        ("-S -l proto[negotiating]:127.0.0.1", 64, "SASL (-S) needs the binary protocol"),
        ("-Y /nonexistent/users", 71, "/nonexistent/users"),
        ("-p -1 -l 192.0.2.1", 71, "192.0.2.1"),
        ("-s /nonexistent/socket", 71, "/nonexistent/socket"),
    ] {
        let output = run(flags);
        let stderr = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(status), "{flags}: {stderr}");
        assert!(stderr.contains(message), "{flags}: {stderr}");
    }
}

#[test]
fn check_reports_errors_and_does_not_serve() {
    let mut file = tempfile::NamedTempFile::new().unwrap();
    file.write_all(b"port = -1\nthreads = 0\n").unwrap();
    let path = file.path().display();
    for (flags, status, message) in [
        ("--check -p -1".into(), 0, ""),
        ("--check -f 1".into(), 64, "factor"),
        (format!("--check --config {path}"), 1, ":2: invalid value '0' for '--threads <N>'"),
    ] {
        let output = run(&flags);
        let stderr = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(status), "{flags}: {stderr}");
        assert!(stderr.contains(message), "{flags}: {stderr}");
    }
}

#[test]
fn an_unknown_user_is_an_error_for_root() {
    if !nix::unistd::Uid::effective().is_root() {
        return; // without root, the program cannot change its user, and ignores -u
    }
    assert_eq!(run("-p -1 -u nobody-of-this-name").status.code(), Some(67));
}

#[test]
fn a_taken_port_is_an_error() {
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let output = run(&format!("-p {}", taken.local_addr().unwrap().port()));
    assert_eq!(output.status.code(), Some(71));
    assert!(String::from_utf8(output.stderr).unwrap().contains("cannot listen"));
}

#[test]
fn signals_end_the_program_cleanly() {
    for signal in [Signal::SIGTERM, Signal::SIGINT, Signal::SIGUSR1] {
        let (daemon, port) = serve(&mut program());
        let mut stream = TcpStream::connect(("127.0.0.1", port)).unwrap();
        ask_version(&mut stream);
        let open = TcpStream::connect(("127.0.0.1", port)).unwrap();
        let (status, stderr) = daemon.end(signal);
        assert_eq!(status, Some(0), "{signal}: {stderr}");
        assert_eq!(stderr.contains("Gracefully stopping"), signal == Signal::SIGUSR1, "{signal}: {stderr}");
        drop(open);
        assert!(TcpStream::connect(("127.0.0.1", port)).is_err());
    }
}

#[test]
fn clients_wait_while_there_are_no_descriptors() {
    let (daemon, port) = serve(program().args(["-t", "1"]));
    let connect = || TcpStream::connect(("127.0.0.1", port)).unwrap();
    ask_version(&mut connect());
    // Lower the limit after the start, because the program raises it when it starts.
    let limit = Command::new("prlimit").arg("--nofile=32:32").args(["--pid", &daemon.0.id().to_string()]).status();
    assert!(limit.expect("util-linux is installed").success());
    let mut streams: Vec<TcpStream> = (0..40).map(|_| connect()).collect();
    let mut last = streams.pop().unwrap();
    last.write_all(b"version\r\nquit\r\n").unwrap();
    let mut first = streams.swap_remove(0);
    ask_version(&mut first);
    last.set_nonblocking(true).unwrap();
    assert_eq!(last.peek(&mut [0]).unwrap_err().kind(), std::io::ErrorKind::WouldBlock, "the client has to wait");
    last.set_nonblocking(false).unwrap();
    drop(streams);
    let mut reply = String::new();
    last.read_to_string(&mut reply).unwrap();
    assert_eq!(reply, "VERSION 1.6.45\r\n");
    let (status, stderr) = daemon.end(Signal::SIGTERM);
    assert_eq!(status, Some(0));
    assert!(stderr.contains("cannot accept a connection"), "{stderr}");
}

#[test]
fn several_addresses_are_listened_on() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("ports");
    let mut command = program();
    command.args(["-p", "-1", "-l", "127.0.0.1,127.0.0.2", "-l", "127.0.0.3"]).env("MEMCACHED_PORT_FILENAME", &file);
    let _daemon = Daemon::start(&mut command);
    let ports = ports(&file);
    assert_eq!(ports.len(), 3);
    for (last, port) in (1..).zip(ports) {
        ask_version(&mut TcpStream::connect((format!("127.0.0.{last}"), port)).unwrap());
    }
}

#[test]
fn a_unix_socket_replaces_a_stale_one_and_is_private() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("socket");
    for _ in 0..2 {
        let daemon = Daemon::start(program().arg("-s").arg(&path));
        let mut stream = poll("the socket", || UnixStream::connect(&path).ok());
        ask_version(&mut stream);
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o700);
        assert_eq!(daemon.end(Signal::SIGTERM).0, Some(0));
        assert!(path.exists(), "left behind, as by memcached");
    }
}

#[test]
fn the_log_has_requests_and_replies_without_values() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("ports");
    let mut command = program();
    command.args(["-p", "-1", "-U", "-1", "-l", "127.0.0.1", "-I", "32k", "-vv"]);
    let daemon = Daemon::start(command.env("MEMCACHED_PORT_FILENAME", &file));
    let words = poll("the port file", || fs::read_to_string(&file).ok());
    let port = |protocol: &str| {
        let port = words.lines().find_map(|line| line.strip_prefix(protocol)?.strip_prefix(" INET: "));
        port.expect(&words).parse::<u16>().unwrap()
    };
    let mut client = TcpStream::connect(("127.0.0.1", port("TCP"))).unwrap();
    let mut ask = |request: &[u8], reply: &[u8]| expect(&mut client, request, reply);
    // One value is received in several pieces, and one is too large to be stored.
    let [large, too_large] = [30_000, 1 << 20].map(|length| "secret".repeat(length / 6));
    ask(b"set a 0 0 6\r\nsecret\r\nget b\r\nget a\r\n", b"STORED\r\nEND\r\nVALUE a 0 6\r\nsecret\r\nEND\r\n");
    ask(format!("set large 0 0 {}\r\n{large}\r\n", large.len()).as_bytes(), b"STORED\r\n");
    let refused = format!("set more 0 0 {0}\r\n{too_large}{too_large}\r\n", 2 * too_large.len());
    ask(refused.as_bytes(), b"SERVER_ERROR object too large for cache\r\n");
    ask(b"incr a x\r\n", b"CLIENT_ERROR invalid numeric delta argument\r\n");
    // This value is too large, and the next line is not a command, so it could be part of a value.
    let asker = UdpSocket::bind("127.0.0.1:0").unwrap();
    asker.connect(("127.0.0.1", port("UDP"))).unwrap();
    asker.set_read_timeout(Some(patience())).unwrap();
    let header = b"\0\x01\0\0\0\x01\0\0";
    let unstorable = [&header[..], b"set datagram 0 0 42000\r\n", &b"secret".repeat(7000), b"\r\n"].concat();
    asker.send(&unstorable).unwrap();
    asker.recv(&mut [0; 1000]).unwrap();
    asker.send(b"\0\x01\0\0\0\x01\0\0set datagram 0 0 3\r\nsecretsecret\r\n").unwrap();
    asker.recv(&mut [0; 1000]).unwrap();
    ask(b"set a 0 0 x\r\nsecret\r\n", b"CLIENT_ERROR bad command line format\r\nERROR\r\n");
    ask(b"my secret noreply\r\nget b\r\n", b"END\r\n");
    ask(b"verbosity 0\r\nget quietly\r\n", b"OK\r\nEND\r\n");
    let (_, stderr) = daemon.end(Signal::SIGTERM);
    for logged in
        ["set a 0 0 6", "get b", "get a", "set large 0 0 30000", "set more 0 0 ", "incr a x", "set datagram 0 0 3"]
    {
        assert!(stderr.lines().any(|line| line.contains(" <") && line.contains(logged)), "{logged}: {stderr}");
    }
    for logged in [" STORED", " END", " VALUE a 0 6 (26 bytes in all)", " CLIENT_ERROR invalid", " SERVER_ERROR object"]
    {
        assert!(stderr.lines().any(|line| line.contains(" >") && line.contains(logged)), "{logged}: {stderr}");
    }
    assert!(!stderr.contains("secret") && !stderr.contains("quietly"), "{stderr}");
}

#[test]
fn the_log_has_no_passwords() {
    let folder = tempfile::tempdir().unwrap();
    let users = folder.path().join("users");
    fs::write(&users, "zq7:secret\n").unwrap();
    let (daemon, port) = serve(program().args(["-t", "1", "-vv", "-Y"]).arg(&users));
    let connect = || TcpStream::connect(("127.0.0.1", port)).unwrap();
    // The password follows after the server has read the line: by then its only thread has served
    // another client.
    let (mut client, mut other) = (connect(), connect());
    client.write_all(b"set auth 0 0 10\r\n").unwrap();
    expect(&mut other, "get a\r\n", "CLIENT_ERROR unauthenticated\r\n");
    expect(&mut client, "zq7 secret\r\n", "STORED\r\n");
    expect(&mut client, "get a\r\n", "END\r\n");
    expect(&mut other, "set auth 0 0 12\r\nzq7 secretly\r\n", "CLIENT_ERROR authentication failure\r\n");
    // This login is longer than announced.
    let mut client = connect();
    expect(&mut client, "set auth 0 0 4\r\nzq7 secret\r\n", "CLIENT_ERROR");
    drop(client);
    let (_, stderr) = daemon.end(Signal::SIGTERM);
    assert!(stderr.contains(" STORED") && stderr.contains(" get a"), "{stderr}");
    assert!(
        stderr.lines().any(|line| line.contains("a login of connection ") && line.ends_with(" failed")),
        "{stderr}"
    );
    assert!(!["secret", "cret", "zq7"].iter().any(|part| stderr.contains(part)), "{stderr}");
}

#[test]
fn io_uring_is_used_or_refused_as_configured() {
    let log = |io| {
        let (daemon, port) = serve(program().args(["-vvv", "--io", io]));
        ask_version(&mut TcpStream::connect(("127.0.0.1", port)).unwrap());
        let (status, stderr) = daemon.end(Signal::SIGTERM);
        assert_eq!(status, Some(0), "{io}");
        stderr
    };
    let words = ["auto", "epoll"].map(log);
    assert!(words[1].contains("Epoll"), "{}", words[1]);
    let has_uring = words[0].contains("Uring");
    assert_eq!(words[0].contains("using epoll"), !has_uring, "{}", words[0]);
    if has_uring {
        log("uring");
    } else {
        let output = run("-p -1 --io uring");
        assert_eq!(output.status.code(), Some(71));
        assert!(String::from_utf8(output.stderr).unwrap().contains("cannot use io_uring"));
    }
}

#[test]
fn a_daemon_serves_when_its_starter_returns_and_removes_its_pid_file() {
    let folder = tempfile::tempdir().unwrap();
    let (file, pid_file) = (folder.path().join("ports"), folder.path().join("pid"));
    let mut command = program();
    command.args(["-d", "-p", "-1", "-P"]).arg(&pid_file).env("MEMCACHED_PORT_FILENAME", &file);
    let output = command.output().expect("the program starts");
    assert_eq!(output.status.code(), Some(0));
    let pid = fs::read_to_string(&pid_file).unwrap().trim().parse().map(Pid::from_raw).unwrap();
    ask_version(&mut TcpStream::connect(("127.0.0.1", ports(&file)[0])).unwrap());
    kill(pid, Signal::SIGTERM).unwrap();
    wait_until("the end of the daemon", || !pid_file.exists());
}

#[test]
fn a_daemon_changes_its_folder_and_still_finds_its_files() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("users"), "ann:secret\n").unwrap();
    for (extra, leaves) in [(None, true), (Some("-r"), false)] {
        let mut command = program();
        command
            .current_dir(folder.path())
            .args(["-d", "-p", "-1", "-t", "1", "-P", "pid", "-e", "items", "-Y", "users"]);
        command.args(extra).env("MEMCACHED_PORT_FILENAME", "ports");
        assert_eq!(command.output().expect("the program starts").status.code(), Some(0));
        let [pid_file, port_file, items] = ["pid", "ports", "items"].map(|name| folder.path().join(name));
        let pid = fs::read_to_string(&pid_file).unwrap().trim().to_owned();
        #[cfg(target_os = "linux")]
        assert_eq!(fs::read_link(format!("/proc/{pid}/cwd")).unwrap() == Path::new("/"), leaves);
        let mut stream = TcpStream::connect(("127.0.0.1", ports(&port_file)[0])).unwrap();
        expect(&mut stream, "set user 0 0 10\r\nann secret\r\n", "STORED\r\n");
        kill(Pid::from_raw(pid.parse().unwrap()), Signal::SIGTERM).unwrap();
        wait_until("the end of the daemon", || !pid_file.exists());
        assert!(items.exists(), "the snapshot is in the starter's folder");
        fs::remove_file(items).unwrap();
    }
}

#[test]
fn a_daemon_that_cannot_serve_fails_its_starter() {
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let output = run(&format!("-d -p {}", taken.local_addr().unwrap().port()));
    assert_eq!(output.status.code(), Some(71));
    assert!(String::from_utf8(output.stderr).unwrap().contains("cannot listen"));
}

#[test]
fn verbosity_logs_connections() {
    let (daemon, port) = serve(program().arg("-vv"));
    ask_version(&mut TcpStream::connect(("127.0.0.1", port)).unwrap());
    let (_, stderr) = daemon.end(Signal::SIGTERM);
    assert!(
        stderr.contains(" connection from tcp:127.0.0.1:") && stderr.contains(" connection closed (normal)"),
        "{stderr}"
    );
}

#[test]
fn messages_can_be_json() {
    let output = run("-p -1 -l 192.0.2.1 --log-format json");
    let stderr = String::from_utf8(output.stderr).unwrap();
    let lines: Vec<serde_json::Value> = stderr.lines().map(|line| serde_json::from_str(line).expect(line)).collect();
    let last = lines.last().expect("a message");
    assert_eq!(last["level"], "ERROR");
    assert!(last["message"].as_str().unwrap().contains("cannot listen on 192.0.2.1"), "{last}");
}
