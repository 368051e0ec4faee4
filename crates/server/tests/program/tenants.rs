//! Tests of tenants: SASL, reloads, snapshots and hand-overs.

use super::hand_over::Servers;
use super::reload::Reloadable;
use super::{Daemon, expect, patience, program, serve, wait_until};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use std::fs;
use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::path::Path;

const USERS: &str = "plain:secret
[tenant red memory=25%]
red:secret
[tenant blue memory=25%]
blue:secret
";

/// Users with and without a tenant.
const ALL: [&str; 3] = ["plain", "red", "blue"];

fn login(user: &str) -> String {
    format!("set login 0 0 {}\r\n{user} secret\r\n", user.len() + 7)
}

/// A connection whose server must reply in time.
fn connect(port: u16) -> TcpStream {
    let stream = TcpStream::connect(("127.0.0.1", port)).unwrap();
    stream.set_read_timeout(Some(patience())).unwrap();
    stream
}

/// Whether the server closes the connection, with a reset or without.
fn is_closed(stream: &mut TcpStream) -> bool {
    match stream.read(&mut [0]) {
        Ok(count) => count == 0,
        Err(error) => error.kind() == ErrorKind::ConnectionReset,
    }
}

/// Sends requests, ends the connection, and returns the replies.
fn converse(port: u16, requests: &str) -> String {
    let (mut stream, mut replies) = (connect(port), String::new());
    stream.write_all(requests.as_bytes()).unwrap();
    stream.shutdown(Shutdown::Write).unwrap();
    stream.read_to_string(&mut replies).expect("the server answers in time");
    replies
}

/// Logs in, sends requests, and returns the replies to them.
fn ask(port: u16, user: &str, requests: &str) -> String {
    let replies = converse(port, &format!("{}{requests}", login(user)));
    replies.strip_prefix("STORED\r\n").unwrap_or_else(|| panic!("{user}: {replies}")).into()
}

/// Whether each user has an item of its own under the same key.
fn all_have_their_own(port: u16) -> bool {
    ALL.iter().all(|user| ask(port, user, "get own\r\n") == format!("VALUE own 0 {}\r\n{user}\r\nEND\r\n", user.len()))
}

fn store_own(port: u16) {
    for user in ALL {
        let set = format!("set own 0 0 {}\r\n{user}\r\n", user.len());
        assert_eq!(ask(port, user, &set), "STORED\r\n");
    }
}

/// Starts a server with these users, and what else is in `line`.
fn start(folder: &Path, users: &str, line: &str) -> (Daemon, u16) {
    fs::write(folder.join("users"), users).unwrap();
    let mut command = program();
    serve(command.current_dir(folder).args(["-t", "2", "-v", "-Y", "users"]).args(line.split_whitespace()))
}

#[test]
fn a_snapshot_returns_items_to_their_tenants() {
    const FLAGS: &str = "-e items -o drop_privileges";
    let folder = tempfile::tempdir().unwrap();
    let (daemon, port) = start(folder.path(), USERS, FLAGS);
    store_own(port);
    assert_eq!(daemon.end(Signal::SIGTERM).0, Some(0));
    let (daemon, port) = start(folder.path(), USERS, FLAGS);
    assert!(all_have_their_own(port));
    assert_eq!(daemon.end(Signal::SIGTERM).0, Some(0));
    // Another tenant gets nothing, even if it has the users of the old one.
    let others = USERS.replace("tenant red", "tenant green");
    let (daemon, port) = start(folder.path(), &others, FLAGS);
    assert_eq!(ask(port, "red", "get own\r\n"), "END\r\n");
    assert_eq!(ask(port, "blue", "get own\r\n"), "VALUE own 0 4\r\nblue\r\nEND\r\n");
    let (status, stderr) = daemon.end(Signal::SIGTERM);
    assert!(status == Some(0) && stderr.contains("2 items from") && stderr.contains("1 left out"), "{stderr}");
    // Without tenants, the users without one have what they had.
    let (daemon, port) = start(folder.path(), "plain:secret\nred:secret\n", FLAGS);
    assert_eq!(ask(port, "red", "get own\r\n"), "VALUE own 0 5\r\nplain\r\nEND\r\n");
    assert_eq!(daemon.end(Signal::SIGTERM).0, Some(0));
}

#[test]
fn a_snapshot_of_a_running_server_has_all_tenants() {
    let folder = tempfile::tempdir().unwrap();
    let (daemon, port) = start(folder.path(), USERS, "-e items --warm-after-crash");
    store_own(port);
    kill(Pid::from_raw(daemon.0.id() as i32), Signal::SIGUSR2).unwrap();
    wait_until("the snapshot", || folder.path().join("items").exists());
    daemon.end(Signal::SIGKILL);
    let (_daemon, port) = start(folder.path(), USERS, "-e items --warm-after-crash");
    assert!(all_have_their_own(port));
}

#[test]
fn a_successor_takes_over_the_items_of_each_tenant() {
    let mut servers = Servers::new("-p -1 -t 2 -Y users");
    fs::write(servers.path("users"), USERS).unwrap();
    let (mut daemon, port) = servers.start();
    store_own(port);
    let cas = |user: &str| -> u64 {
        let reply = ask(port, user, "set new 0 0 1\r\nx\r\nmg new c\r\n");
        reply.trim_end().rsplit('c').next().unwrap().parse().expect(&reply)
    };
    for _ in 0..2 {
        let old = ALL.map(cas);
        daemon = servers.replace(daemon);
        assert!(all_have_their_own(port));
        let new = ALL.map(cas);
        assert!(new.iter().min() > old.iter().max(), "no CAS value is assigned twice: {old:?} {new:?}");
    }
    drop(daemon);
}

/// A client that has logged in.
fn log_in(port: u16, user: &str) -> TcpStream {
    let mut client = connect(port);
    expect(&mut client, login(user), "STORED\r\n");
    client
}

/// The limits of all users' caches in MiB, as their statistics say.
fn limits(server: &Reloadable) -> [u64; 3] {
    ALL.map(|user| {
        let stats = ask(server.port, user, "stats\r\n");
        let limit = stats.lines().find_map(|line| line.strip_prefix("STAT limit_maxbytes ")).expect(user);
        limit.parse::<u64>().unwrap() >> 20
    })
}

/// Tenants change while clients are connected.
#[test]
fn a_reload_changes_adds_and_removes_tenants() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("users"), "plain:secret\nred:secret\nblue:secret\n").unwrap();
    let options = "verbose = 1\nauth-file = 'users'\n";
    let mut server = Reloadable::start_in(folder, options, "-o drop_privileges");
    let change = |server: &mut Reloadable, users: &str| {
        fs::write(server.path("users"), users).unwrap();
        server.hang_up();
    };
    assert_eq!(limits(&server), [64, 64, 64]);
    // A user that gets a cache must not keep a connection to that of others.
    let (mut early, mut plain) = (log_in(server.port, "red"), log_in(server.port, "plain"));
    change(&mut server, USERS);
    assert!(is_closed(&mut early));
    assert_eq!(limits(&server), [32, 16, 16]);
    store_own(server.port);
    expect(&mut plain, "mn\r\n", "MN\r\n");
    change(&mut server, &USERS.replace("red memory=25%", "red memory=10m"));
    assert_eq!(limits(&server), [38, 10, 16]);
    server.reload(&format!("{options}memory-limit = 128\n"));
    assert_eq!(limits(&server), [86, 10, 32]);
    server.reload(options);
    assert!(all_have_their_own(server.port));
    // Mistakes change nothing.
    for wrong in ["plain:secret\n[tenant red]\n", "[tenant red memory=80%]\nred:x\n[tenant blue memory=80%]\n"] {
        change(&mut server, wrong);
    }
    change(&mut server, &USERS.replace("red memory=25%", "red memory=10m prefix=red:"));
    let log = server.log();
    for problem in ["tenant red needs memory=", "more than -m", "the prefix of tenant red cannot change"] {
        assert!(log.lines().any(|line| line.contains("nothing was reloaded") && line.contains(problem)), "{log}");
    }
    assert!(all_have_their_own(server.port));
    assert_eq!(limits(&server), [38, 10, 16]);
    // So is one of a user that has another password.
    let (mut late, changed) = (log_in(server.port, "blue"), USERS.replace("blue:secret", "blue:other"));
    change(&mut server, &changed.replace("red memory=25%", "red memory=10m"));
    assert!(is_closed(&mut late));
    change(&mut server, &USERS.replace("red memory=25%", "red memory=10m"));
    // An idle connection of a removed tenant is closed, and the items are gone.
    let (mut idle, mut kept) = (log_in(server.port, "red"), log_in(server.port, "blue"));
    change(&mut server, "plain:secret\n[tenant blue memory=25%]\nblue:secret\n");
    assert!(is_closed(&mut idle));
    expect(&mut kept, "mn\r\n", "MN\r\n");
    assert!(converse(server.port, &login("red")).contains("authentication failure"));
    change(&mut server, USERS);
    assert_eq!(ask(server.port, "red", "get own\r\n"), "END\r\n");
    assert_eq!(ask(server.port, "blue", "get own\r\n"), "VALUE own 0 4\r\nblue\r\nEND\r\n");
    let log = server.log();
    for line in
        ["tenant red was added", "tenant red was removed", "its user was removed, or has another password or tenant"]
    {
        assert!(log.contains(line), "{line}: {log}");
    }
}

/// A part that shrinks gives its memory to the others. Its users store meanwhile.
#[test]
fn memory_of_a_smaller_part_is_given_back() {
    let folder = tempfile::tempdir().unwrap();
    let users =
        |percent: u32| format!("[tenant red memory={percent}%]\nred:secret\n[tenant blue memory=25%]\nblue:secret\n");
    fs::write(folder.path().join("users"), users(75)).unwrap();
    let mut server = Reloadable::start_in(folder, "verbose = 1\nauth-file = 'users'\n", "");
    let value = "x".repeat(10_000);
    let set = |n: u32| format!("set k{n} 0 0 10000 noreply\r\n{value}\r\n");
    ask(server.port, "red", &(0..4_000).map(set).collect::<String>());
    let mapped = |server: &Reloadable| -> u64 {
        let memory = ask(server.port, "red", "stats memory\r\n");
        memory.lines().find_map(|line| line.strip_prefix("STAT mapped ")).expect("it is there").parse().unwrap()
    };
    assert!(mapped(&server) > 30 << 20);
    fs::write(server.path("users"), users(25)).unwrap();
    server.hang_up();
    wait_until("a smaller cache", || {
        assert_eq!(ask(server.port, "red", "set k 0 0 1\r\nx\r\n"), "STORED\r\n");
        mapped(&server) <= 16 << 20
    });
}

/// A packet of the binary protocol.
fn packet(opcode: u8, key: &[u8], extras: &[u8], value: &[u8]) -> Vec<u8> {
    let body = (key.len() + extras.len() + value.len()) as u32;
    let [key_0, key_1] = (key.len() as u16).to_be_bytes();
    let head = [&[0x80, opcode, key_0, key_1, extras.len() as u8, 0, 0, 0][..], &body.to_be_bytes(), &[0; 12]].concat();
    [&head, extras, key, value].concat()
}

/// A client of the binary protocol.
struct Binary(TcpStream);

impl Binary {
    /// Sends a request, and returns the status and the body of the reply.
    fn ask(&mut self, request: &[u8]) -> (u16, Vec<u8>) {
        self.0.write_all(request).unwrap();
        let mut head = [0; 24];
        self.0.read_exact(&mut head).unwrap();
        let mut body = vec![0; u32::from_be_bytes([head[8], head[9], head[10], head[11]]) as usize];
        self.0.read_exact(&mut body).unwrap();
        (u16::from_be_bytes([head[6], head[7]]), body)
    }

    fn log_in(&mut self, user: &str) -> u16 {
        self.ask(&packet(0x21, b"PLAIN", b"", format!("\0{user}\0secret").as_bytes())).0
    }

    /// The names in the answer to `stat`.
    fn stats(&mut self, group: &[u8]) -> Vec<(String, String)> {
        let (mut stats, mut request) = (Vec::new(), packet(0x10, group, b"", b""));
        loop {
            self.0.write_all(&std::mem::take(&mut request)).unwrap();
            let mut head = [0; 24];
            self.0.read_exact(&mut head).unwrap();
            let mut body = vec![0; u32::from_be_bytes([head[8], head[9], head[10], head[11]]) as usize];
            self.0.read_exact(&mut body).unwrap();
            let key = usize::from(u16::from_be_bytes([head[2], head[3]]));
            if key == 0 {
                return stats;
            }
            let text = |bytes: &[u8]| String::from_utf8(bytes.into()).unwrap();
            stats.push((text(&body[..key]), text(&body[key..])));
        }
    }
}

#[test]
fn tenants_do_not_reach_each_others_items_by_the_binary_protocol() {
    const NOT_FOUND: u16 = 1;
    const NOT_STORED: u16 = 5;
    const AUTH_FAILURE: u16 = 0x20;
    let folder = tempfile::tempdir().unwrap();
    let users = format!("{USERS}[tenant green memory=8m prefix=green:]\ngreen:secret\n");
    fs::write(folder.path().join("users"), users).unwrap();
    let mut command = program();
    command.current_dir(folder.path()).args(["-S", "-D", "t"]).env("MEMCACHED_SASL_PWDB", "users");
    let (_daemon, port) = serve(&mut command);
    let log_in = |user: &str| {
        let mut client = Binary(connect(port));
        assert_eq!(client.log_in(user), 0);
        client
    };
    let (set, add) = ([0; 8], [0; 8]);
    let count = [&1_u64.to_be_bytes()[..], &[0; 8], &[0xff; 4]].concat();
    let attacks = [
        (packet(0x00, b"kept", b"", b""), NOT_FOUND),
        (packet(0x0c, b"kept", b"", b""), NOT_FOUND),
        (packet(0x03, b"kept", &set, b"x"), NOT_FOUND),
        (packet(0x04, b"kept", b"", b""), NOT_FOUND),
        (packet(0x05, b"kept", &count, b""), NOT_FOUND),
        (packet(0x06, b"kept", &count, b""), NOT_FOUND),
        (packet(0x0e, b"kept", b"", b"x"), NOT_STORED),
        (packet(0x0f, b"kept", b"", b"x"), NOT_STORED),
        (packet(0x1c, b"kept", &[0, 0, 0, 1], b""), NOT_FOUND),
        (packet(0x1d, b"kept", &[0, 0, 0, 1], b""), NOT_FOUND),
        (packet(0x08, b"", b"", b""), 0),
        (packet(0x02, b"kept", &add, b"own"), 0),
        (packet(0x04, b"kept", b"", b""), 0),
    ];
    for owner in ALL {
        let mut owned = log_in(owner);
        assert_eq!(owned.ask(&packet(0x01, b"kept", &set, owner.as_bytes())).0, 0);
        for attacker in ALL.iter().filter(|user| **user != owner) {
            let mut attacker = log_in(attacker);
            assert!(attacker.stats(b"items").is_empty());
            for (request, status) in &attacks {
                assert_eq!(attacker.ask(request).0, *status, "{}", request.escape_ascii());
            }
        }
        assert_eq!(owned.ask(&packet(0x00, b"kept", b"", b"")).1, [&[0; 4], owner.as_bytes()].concat());
        assert_eq!(owned.ask(&packet(0x04, b"kept", b"", b"")).0, 0);
    }
    let mut green = log_in("green");
    for (request, _) in attacks.iter().filter(|(request, _)| request[1] != 0x08) {
        assert_eq!(green.ask(request).0, AUTH_FAILURE, "{}", request.escape_ascii());
    }
    assert_eq!(green.ask(&packet(0x01, b"green:a", &set, b"x")).0, 0);
    assert_eq!(green.ask(&packet(0x00, b"green:a", b"", b"")).0, 0);
    assert!(!green.stats(b"items").is_empty());
    // A connection belongs to one tenant for good, or to none.
    let mut plain = log_in("plain");
    assert_eq!(plain.log_in("red"), AUTH_FAILURE);
    assert!(is_closed(&mut plain.0));
    assert_eq!(green.log_in("green"), 0);
    assert_eq!(green.log_in("red"), AUTH_FAILURE);
    assert!(is_closed(&mut green.0));
}

#[test]
fn the_program_checks_the_tenants() {
    let folder = tempfile::tempdir().unwrap();
    let users = folder.path().join("users");
    let check = |text: &str| {
        fs::write(&users, text).unwrap();
        super::run(&format!("--check -Y {}", users.display()))
    };
    assert_eq!(check(USERS).status.code(), Some(0));
    let wrong = check(&USERS.replace("25%", "60%"));
    let message = String::from_utf8(wrong.stderr).unwrap();
    assert!(wrong.status.code() == Some(64) && message.contains("all tenants together have more than -m"), "{message}");
}
