//! Tests of a restart without a stall: a successor takes over sockets and items.

use super::systemd::activated;
use super::{
    Daemon, PROGRAM, converse, expect, patience, poll, ports, program, program_at, program_for_all_users, run,
    wait_until,
};
use crate::certificates::Authority;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use rustls::{ClientConnection, StreamOwned};
use std::fs::{self, File};
use std::io::{ErrorKind, Read, Write};
use std::net::{TcpListener, TcpStream, UdpSocket};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::os::unix::net::{UnixDatagram, UnixListener, UnixStream};
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use tempfile::TempDir;

const MAGIC: &[u8; 8] = b"\x89RELHAND";

/// A header of the hand-over, from a successor.
fn header(version: u32) -> Vec<u8> {
    [&MAGIC[..], &version.to_le_bytes(), &[0; 4]].concat()
}

/// Generations of a server, all in one folder.
pub(super) struct Servers {
    folder: TempDir,
    program: PathBuf,
    /// The options of all generations.
    options: String,
    /// How many were started.
    started: usize,
    /// The one that serves.
    serving: usize,
}

impl Servers {
    pub(super) fn new(options: &str) -> Servers {
        let folder = tempfile::tempdir().unwrap();
        Servers { folder, program: PROGRAM.into(), options: options.into(), started: 0, serving: 1 }
    }

    pub(super) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// The command of the next generation. It takes over from the last one, if there is one.
    fn command(&mut self) -> Command {
        let mut command = program_at(&self.program);
        command.current_dir(self.folder.path()).args(self.options.split_whitespace());
        command.args(["-v", "--hand-over", "successor"]).env("MEMCACHED_PORT_FILENAME", "ports");
        if self.started > 0 {
            command.args(["--take-over", "successor"]);
        }
        self.started += 1;
        command.stderr(File::create(self.path(&format!("log{}", self.started))).unwrap());
        command
    }

    pub(super) fn log(&self, generation: usize) -> String {
        fs::read_to_string(self.path(&format!("log{generation}"))).unwrap()
    }

    /// Starts the first generation, and returns its port.
    pub(super) fn start(&mut self) -> (Daemon, u16) {
        let daemon = Daemon::start(&mut self.command());
        let words = poll("the port file", || fs::read_to_string(self.path("ports")).ok());
        (daemon, words.lines().find_map(|line| line.strip_prefix("TCP INET: ")).unwrap().parse().unwrap())
    }

    /// Starts the next generation, and waits until the last one, `old`, has ended.
    pub(super) fn replace(&mut self, mut old: Daemon) -> Daemon {
        let new = Daemon::start(&mut self.command());
        let status = poll("the end of the old server", || old.0.try_wait().unwrap());
        let log = self.log(self.serving);
        assert!(status.success() && log.contains("handed over"), "{log}{}", self.log(self.started));
        self.serving = self.started;
        new
    }

    fn connect(&self) -> UnixStream {
        let stream = UnixStream::connect(self.path("successor")).unwrap();
        stream.set_read_timeout(Some(patience())).unwrap();
        stream
    }
}

fn get(port: u16, key: &str) -> String {
    converse(port, &format!("get {key}\r\n"))
}

#[test]
fn items_and_what_belongs_to_them_are_handed_over() {
    let mut servers = Servers::new("-p -1 -o drop_privileges");
    let (old, port) = servers.start();
    let large = "x".repeat(700_000);
    converse(port, &format!("set a 5 0 1\r\n1\r\nset b 0 1000 1\r\n2\r\nset large 0 0 700000\r\n{large}\r\n"));
    converse(port, "ms given 1 E77\r\nv\r\nms stale 1\r\ns\r\nmd stale I T30\r\n");
    let cas = |key: &str| -> u64 {
        converse(port, &format!("mg {key} c\r\n"))
            .trim_start_matches("HD c")
            .trim()
            .split('\r')
            .next()
            .unwrap()
            .parse()
            .unwrap()
    };
    let before = cas("a");
    let new = servers.replace(old);
    assert_eq!(get(port, "a"), "VALUE a 5 1\r\n1\r\nEND\r\n");
    assert!(get(port, "large") == format!("VALUE large 0 700000\r\n{large}\r\nEND\r\n"));
    let ttl: u32 = converse(port, "mg b t\r\n").trim_start_matches("HD t").trim().parse().unwrap();
    assert!((900..=1000).contains(&ttl), "{ttl}");
    assert_eq!(cas("given"), 77);
    assert!(converse(port, "mg stale v\r\n").contains(" X"), "still stale");
    assert!(cas("a") > before, "CAS values never repeat");
    assert_eq!(converse(port, &format!("cas a 0 0 1 {before}\r\n3\r\n")), "EXISTS\r\n");
    assert!(ends(new));
}

/// Stops a server, and returns whether it ends as it should.
fn ends(mut server: Daemon) -> bool {
    kill(Pid::from_raw(server.0.id() as i32), Signal::SIGTERM).unwrap();
    server.0.wait().unwrap().success()
}

#[test]
fn all_kinds_of_sockets_are_handed_over() {
    let mut servers = Servers::new("-p -1 -U -1 -l 127.0.0.1 --admin 127.0.0.1:0 -o drop_privileges");
    let (old, port) = servers.start();
    let words = fs::read_to_string(servers.path("ports")).unwrap();
    let udp: u16 = words.lines().find_map(|line| line.strip_prefix("UDP INET: ")).unwrap().parse().unwrap();
    let sockets = |daemon: &Daemon| {
        let folder = format!("/proc/{}/fd", daemon.0.id());
        let links = fs::read_dir(folder).unwrap().filter_map(|entry| fs::read_link(entry.unwrap().path()).ok());
        links.filter(|link| link.to_string_lossy().starts_with("socket:")).collect::<std::collections::BTreeSet<_>>()
    };
    let before = sockets(&old);
    converse(port, "set a 0 0 1\r\n1\r\n");
    let new = servers.replace(old);
    // Those of TCP, UDP, --admin, and the one for successors. Others, as of signals, are new.
    assert_eq!(before.intersection(&sockets(&new)).count(), 4, "the very same sockets");
    let asker = UdpSocket::bind("127.0.0.1:0").unwrap();
    asker.connect(("127.0.0.1", udp)).unwrap();
    asker.set_read_timeout(Some(patience())).unwrap();
    asker.send(b"\0\x01\0\0\0\x01\0\0get a\r\n").unwrap();
    let mut reply = [0; 100];
    let count = asker.recv(&mut reply).unwrap();
    assert_eq!(&reply[8..count], b"VALUE a 0 1\r\n1\r\nEND\r\n");

    let mut servers = Servers::new("-s clients");
    let old = Daemon::start(&mut servers.command());
    let ask = |requests: &[u8], path: PathBuf| {
        let mut stream = poll("the socket", || UnixStream::connect(&path).ok());
        let mut replies = String::new();
        stream.write_all(requests).unwrap();
        stream.read_to_string(&mut replies).unwrap();
        replies
    };
    assert_eq!(ask(b"set a 0 0 1\r\n1\r\nquit\r\n", servers.path("clients")), "STORED\r\n");
    let inode = fs::metadata(servers.path("clients")).unwrap().ino();
    wait_until("the socket for successors", || servers.path("successor").exists());
    let _new = servers.replace(old);
    assert_eq!(ask(b"get a\r\nquit\r\n", servers.path("clients")), "VALUE a 0 1\r\n1\r\nEND\r\n");
    assert_eq!(fs::metadata(servers.path("clients")).unwrap().ino(), inode, "the same socket");
}

/// Stores rising numbers under one key until it is over, and reconnects when the server closes the
/// connection. Checks that no connection is refused, and that no acknowledged store is lost.
fn store_numbers(port: u16, key: &str, is_over: &AtomicBool) -> (u64, usize) {
    let (mut stored, mut next, mut connections) = (0, 1, 0);
    // Relaxed: nothing else depends on it.
    while !is_over.load(Ordering::Relaxed) {
        let mut stream = TcpStream::connect(("127.0.0.1", port)).expect("no connection is refused");
        stream.set_read_timeout(Some(patience())).unwrap();
        connections += 1;
        // What happened to the last request is unknown, if its reply is missing.
        let Ok(found) = ask(&mut stream, format!("mg {key} v\r\n")) else { continue };
        if stored > 0 {
            let found: u64 = found.split("\r\n").nth(1).expect(&found).parse().expect(&found);
            assert!(found == stored || found == next, "{key}: {found} instead of {stored}, and {next} was unclear");
            stored = found;
        }
        next = next.max(stored) + 1;
        while !is_over.load(Ordering::Relaxed) {
            let value = next.to_string();
            match ask(&mut stream, format!("ms {key} {}\r\n{value}\r\n", value.len())) {
                Err(_) => break,
                Ok(reply) => assert_eq!(reply, "HD\r\n"),
            }
            (stored, next) = (next, next + 1);
        }
    }
    (stored, connections)
}

/// The reply to one request of the meta protocol.
fn ask(stream: &mut TcpStream, request: String) -> std::io::Result<String> {
    stream.write_all(request.as_bytes())?;
    let (mut reply, mut piece) = (Vec::new(), [0; 100]);
    loop {
        let count = stream.read(&mut piece)?;
        if count == 0 {
            return Err(ErrorKind::UnexpectedEof.into());
        }
        reply.extend_from_slice(&piece[..count]);
        let lines = reply.iter().filter(|byte| **byte == b'\n').count();
        if reply.ends_with(b"\r\n") && lines == if reply.starts_with(b"VA") { 2 } else { 1 } {
            return Ok(String::from_utf8(reply).unwrap());
        }
    }
}

#[test]
fn under_load_no_connection_is_refused_and_no_store_is_lost() {
    for io in ["auto", "epoll"] {
        let mut servers = Servers::new(&format!("-p -1 -t 2 --io {io}"));
        let (mut server, port) = servers.start();
        let sets: String = (0..20_000).map(|n| format!("set old{n} 0 0 100 noreply\r\n{n:0100}\r\n")).collect();
        converse(port, &sets);
        let is_over = AtomicBool::new(false);
        let _server = thread::scope(|scope| {
            let clients: Vec<_> = (0..4)
                .map(|client| {
                    let (key, is_over) = (format!("k{client}"), &is_over);
                    scope.spawn(move || (store_numbers(port, &key, is_over), key))
                })
                .collect();
            for _ in 0..4 {
                server = servers.replace(server);
            }
            // Relaxed: as above.
            is_over.store(true, Ordering::Relaxed);
            for client in clients {
                let ((stored, connections), key) = client.join().unwrap();
                assert!(stored > 0 && connections >= 2, "{stored} {connections}");
                assert_eq!(get(port, &key).split("\r\n").nth(1), Some(&*stored.to_string()));
            }
            server
        });
        let gets: String = (0..20_000).map(|n| format!("mg old{n}\r\n")).collect();
        assert_eq!(converse(port, &gets).matches("HD").count(), 20_000);
    }
}

#[test]
fn a_successor_that_dies_or_fails_changes_nothing() {
    let mut servers = Servers::new("-p -1 -o drop_privileges");
    let (old, port) = servers.start();
    let value = "x".repeat(1000);
    let sets: String = (0..5_000).map(|n| format!("set k{n} 0 0 1000 noreply\r\n{value}\r\n")).collect();
    converse(port, &sets);
    let mut client = TcpStream::connect(("127.0.0.1", port)).unwrap();
    // At each stage: before the header, within it, after it, after BEGIN, amid the items, at their
    // end, and with a wrong message there.
    for stage in 0..7 {
        let stream = servers.connect();
        let read = |count: usize| {
            let mut bytes = vec![0; count];
            (&stream).read_exact(&mut bytes).unwrap();
            bytes
        };
        match stage {
            0 => (),
            1 => write_to(&stream, &header(1)[..7]),
            _ => {
                write_to(&stream, &header(1));
                assert_eq!(read(16)[..12], header(1)[..12]);
                if stage > 2 {
                    write_to(&stream, b"B");
                }
                match stage {
                    4 => drop(read(200_000)),
                    5 | 6 => {
                        // Until their number, which comes at their end.
                        let mut all = read(5_000_000);
                        while !all.windows(8).rev().take(100).any(|bytes| bytes == 5_000_u64.to_le_bytes()) {
                            all.extend(read(1));
                        }
                        if stage == 6 {
                            write_to(&stream, b"?");
                        }
                    }
                    _ => (),
                }
            }
        }
        drop(stream);
        let failures = stage + 1;
        wait_until("the failure", || {
            servers.log(1).matches("no successor has taken over, and this server goes on").count() == failures
        });
        assert_eq!(ask(&mut client, format!("ms k{stage} 1\r\ny\r\n")).unwrap(), "HD\r\n", "on the same connection");
        assert!(get(port, "k4999").contains(&value), "on a new connection");
    }
    // A successor that fails on its own, before it takes the items.
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let admin = format!("127.0.0.1:{}", taken.local_addr().unwrap().port());
    let output = servers.command().args(["--admin", &admin]).output().unwrap();
    assert_eq!(output.status.code(), Some(71));
    assert_eq!(ask(&mut client, "ms k0 1\r\nz\r\n".into()).unwrap(), "HD\r\n");
    // After all that, one that does not fail.
    let _new = servers.replace(old);
    assert_eq!(get(port, "k0"), "VALUE k0 0 1\r\nz\r\nEND\r\n");
}

/// A successor that is silent while clients wait, as one that is stopped.
#[test]
fn a_successor_that_stalls_does_not_stop_the_server() {
    let mut servers = Servers::new("-p -1 -o drop_privileges");
    let (server, port) = servers.start();
    let large = "x".repeat(900_000);
    let sets: String = (0..10).map(|n| format!("set k{n} 0 0 900000 noreply\r\n{large}\r\n")).collect();
    converse(port, &sets);
    let mut client = TcpStream::connect(("127.0.0.1", port)).unwrap();
    let stall = || {
        let stream = servers.connect();
        write_to(&stream, &header(1));
        write_to(&stream, b"B");
        // Some of the items, so that clients wait.
        (&stream).read_exact(&mut [0; 100_000]).unwrap();
        stream
    };
    let stalled = stall();
    assert_eq!(ask(&mut client, "ms a 1\r\n1\r\n".into()).unwrap(), "HD\r\n", "on the same connection");
    // The server executes requests again just before it logs that.
    wait_until("the message", || servers.log(1).contains("this server goes on: the other side has stalled"));
    assert_eq!(get(port, "a"), "VALUE a 0 1\r\n1\r\nEND\r\n");
    drop(stalled);
    // A stop ends the wait.
    let _stalled = stall();
    assert!(ends(server), "{}", servers.log(1));
}

#[test]
fn a_server_with_tls_hands_over() {
    let authority = Authority::new();
    let mut servers = Servers::new(&format!("-p -1 {},drop_privileges", authority.flags()));
    let (old, port) = servers.start();
    let connect = || {
        let session = ClientConnection::new(authority.client(), "localhost".try_into().unwrap()).unwrap();
        let socket = TcpStream::connect(("127.0.0.1", port)).unwrap();
        socket.set_read_timeout(Some(patience())).unwrap();
        StreamOwned::new(session, socket)
    };
    let mut open = connect();
    expect(&mut open, "set a 0 0 1\r\n1\r\n", "STORED\r\n");
    let new = servers.replace(old);
    // Without a `close_notify` this would be an error.
    assert_eq!(open.read(&mut [0]).unwrap(), 0);
    expect(&mut connect(), "get a\r\n", "VALUE a 0 1\r\n1\r\nEND\r\n");
    assert!(ends(new));
}

/// systemd passes its sockets only to the first server. Its successors use them, too, although
/// their options name another address, as the first one's do.
#[test]
fn sockets_of_systemd_are_handed_over_again_and_again() {
    // systemd keeps it open.
    let socket = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = socket.local_addr().unwrap().port();
    let mut servers = Servers::new("-l 192.0.2.1");
    let flags = ["-l", "192.0.2.1", "-v", "--hand-over", "successor"];
    let mut first = activated(socket.try_clone().unwrap().into(), &flags);
    first.current_dir(servers.folder.path()).stderr(File::create(servers.path("log1")).unwrap());
    servers.started = 1;
    let mut server = Daemon::start(&mut first);
    converse(port, "set a 0 0 1\r\n1\r\n");
    for _ in 0..2 {
        server = servers.replace(server);
        assert_eq!(get(port, "a"), "VALUE a 0 1\r\n1\r\nEND\r\n");
    }
    assert!(ends(server));
}

fn write_to(mut stream: &UnixStream, bytes: &[u8]) {
    stream.write_all(bytes).unwrap();
}

#[test]
fn other_versions_refuse_each_other() {
    let mut servers = Servers::new("-p -1");
    let (_old, port) = servers.start();
    let mut stream = servers.connect();
    stream.write_all(&header(2)).unwrap();
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).unwrap();
    assert_eq!(answer, header(1), "its version, no sockets, and the end");
    wait_until("the message", || servers.log(1).contains("the other side has version 2 of the hand-over, not 1"));
    assert_eq!(get(port, "a"), "END\r\n");

    for (answer, problem) in [
        (header(2), "the other side has version 2 of the hand-over, not 1"),
        (b"HTTP/1.1 400 Bad Request\r\n".to_vec(), "does not speak the protocol of the hand-over"),
        ([&header(1)[..12], &[3, 0, 0, 0]].concat(), "3 sockets were announced, and 0 came"),
        (Vec::new(), "cannot take over"),
    ] {
        let path = servers.path("other");
        let listener = UnixListener::bind(&path).unwrap();
        let output = thread::scope(|scope| {
            scope.spawn(|| {
                let mut stream = listener.accept().unwrap().0;
                stream.read_exact(&mut [0; 16]).unwrap();
                stream.write_all(&answer).unwrap();
            });
            run(&format!("-p -1 --take-over {}", path.display()))
        });
        fs::remove_file(&path).unwrap();
        let stderr = String::from_utf8(output.stderr).unwrap();
        assert!(output.status.code() == Some(71) && stderr.contains(problem), "{stderr}");
    }
    let output = run("-p -1 --take-over /nonexistent/socket");
    assert_eq!(output.status.code(), Some(71));
}

#[test]
fn a_successor_that_says_nothing_makes_room_for_another_one() {
    let mut servers = Servers::new("-p -1");
    let (old, port) = servers.start();
    converse(port, "set a 0 0 1\r\n1\r\n");
    let mut silent: Vec<UnixStream> = (0..2).map(|_| servers.connect()).collect();
    // A part of a header is not enough.
    silent[0].write_all(MAGIC).unwrap();
    let new = servers.replace(old);
    for stream in &mut silent {
        let outcome = stream.read(&mut [0]);
        assert!(
            outcome.as_ref().is_ok_and(|count| *count == 0)
                || outcome.is_err_and(|it| it.kind() == ErrorKind::ConnectionReset)
        );
    }
    assert_eq!(get(port, "a"), "VALUE a 0 1\r\n1\r\nEND\r\n");
    assert!(ends(new));
}

#[test]
fn other_users_cannot_take_over() {
    let mut servers = Servers::new("-p -1");
    let (_old, port) = servers.start();
    assert_eq!(fs::metadata(servers.path("successor")).unwrap().permissions().mode() & 0o777, 0o600);
    if !nix::unistd::Uid::effective().is_root() {
        return eprintln!("not tested: only root can become another user");
    }
    // Even if the file lets them connect.
    servers.program = program_for_all_users(servers.folder.path());
    fs::set_permissions(servers.path("successor"), fs::Permissions::from_mode(0o777)).unwrap();
    let output = servers.command().uid(65534).output().unwrap();
    assert_eq!(output.status.code(), Some(71));
    wait_until("the refusal", || servers.log(1).contains("belongs to user 65534"));
    assert_eq!(get(port, "a"), "END\r\n");
    // The server of another user is not trusted either, unless -u names that user.
    let path = servers.path("theirs");
    let mut other = Servers::new("-p -1 -u nobody");
    fs::set_permissions(other.folder.path(), fs::Permissions::from_mode(0o777)).unwrap();
    let (old, port) = other.start();
    assert_eq!(fs::metadata(other.path("successor")).unwrap().uid(), 65534);
    std::os::unix::fs::symlink(other.path("successor"), &path).unwrap();
    let output = run(&format!("-p -1 --take-over {}", path.display()));
    assert!(String::from_utf8(output.stderr).unwrap().contains("belongs to user 65534"));
    converse(port, "set a 0 0 1\r\n1\r\n");
    let _new = other.replace(old);
    assert_eq!(get(port, "a"), "VALUE a 0 1\r\n1\r\nEND\r\n");
}

#[test]
fn the_pid_file_and_the_snapshot_belong_to_the_successor() {
    let mut servers = Servers::new("-p -1 -d -P pid -e items");
    assert!(servers.command().status().unwrap().success());
    let port = ports(&servers.path("ports"))[0];
    let pid = || fs::read_to_string(servers.folder.path().join("pid")).ok()?.trim().parse().ok().map(Pid::from_raw);
    let old = pid().unwrap();
    converse(port, "set a 0 0 1\r\n1\r\n");
    let mut command = program();
    command.current_dir(servers.folder.path()).args(["-p", "-1", "-d", "-P", "pid", "-e", "items"]);
    command.args(["--hand-over", "successor", "--take-over", "successor"]).env("MEMCACHED_PORT_FILENAME", "ports");
    assert!(command.status().unwrap().success());
    let new = pid().unwrap();
    assert_ne!(old, new);
    wait_until("the end of the old server", || kill(old, None).is_err());
    assert_eq!(pid(), Some(new), "the old server has not removed it");
    assert!(!servers.path("items").exists(), "the old server has written none");
    assert_eq!(get(port, "a"), "VALUE a 0 1\r\n1\r\nEND\r\n");
    kill(new, Signal::SIGTERM).unwrap();
    wait_until("the end of the new server", || !servers.path("pid").exists());
    assert!(servers.path("items").exists());
}

#[test]
fn the_successor_becomes_the_main_process_of_the_service() {
    let mut servers = Servers::new("-p -1");
    let manager = UnixDatagram::bind(servers.path("notify")).unwrap();
    manager.set_read_timeout(Some(patience())).unwrap();
    let received = || {
        let mut message = [0; 256];
        let count = manager.recv(&mut message).expect("a message in time");
        String::from_utf8_lossy(&message[..count]).trim().to_owned()
    };
    let socket = servers.path("notify");
    let old = Daemon::start(servers.command().env("NOTIFY_SOCKET", &socket));
    assert_eq!(received(), "READY=1");
    let new = Daemon::start(servers.command().env("NOTIFY_SOCKET", &socket));
    assert_eq!(received(), format!("MAINPID={}", new.0.id()));
    assert_eq!(received(), "READY=1");
    let mut old = old;
    assert!(old.0.wait().unwrap().success());
    // The old one does not report that the service stops.
    assert!(ends(new));
    assert_eq!(received(), "STOPPING=1");
    manager.set_nonblocking(true).unwrap();
    assert!(manager.recv(&mut [0]).is_err());
}

#[test]
fn a_server_without_successor_ends_as_ever() {
    let mut servers = Servers::new("-p -1 --drain 600");
    let (mut server, port) = servers.start();
    let mut open = TcpStream::connect(("127.0.0.1", port)).unwrap();
    ask(&mut open, "ms a 1\r\n1\r\n".into()).unwrap();
    kill(Pid::from_raw(server.0.id() as i32), Signal::SIGTERM).unwrap();
    poll("a refused connection", || TcpStream::connect(("127.0.0.1", port)).err());
    ask(&mut open, "ms a 1\r\n2\r\n".into()).unwrap();
    let mut stream = servers.connect();
    let _ = stream.write_all(&header(1));
    wait_until("the refusal", || servers.log(1).contains("this server is stopping"));
    drop(open);
    assert!(server.0.wait().unwrap().success());
}
