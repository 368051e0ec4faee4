//! What unauthenticated clients can do.

use crate::harness::{Client, Io, Running, connect_to, on_each_backend, stat};
use crate::replay::play;
use relativist_testing::{patience, wait_until};
use relativistd::{Options, Server};
use socket2::{Domain, Socket, Type};
use std::io::Write as _;
use std::net::{SocketAddr, TcpStream};
use tempfile::NamedTempFile;

on_each_backend! {
    unauthenticated_clients_can_do_nothing_by_text
    unauthenticated_clients_hold_little_memory
    clients_that_guess_passwords_are_closed_and_then_refused
    a_sidecar_needs_no_login
}

/// A login with the right password, and one with a wrong password.
const RIGHT: &str = "set login 0 0 12\r\nadmin secret\r\n";
const WRONG: &str = "set login 0 0 12\r\nadmin sesame\r\n";
const FAILURE: &str = "CLIENT_ERROR authentication failure\r\n";
const REFUSAL: &str = "SERVER_ERROR too many failed logins, try again later\r\n";

/// Starts a server that requires a login.
fn guarded(io: Io, flags: &str) -> Running {
    let mut file = NamedTempFile::new().unwrap();
    file.write_all(b"admin:secret\n").unwrap();
    io.start(&format!("-t 1 -Y {} {flags}", file.path().display()))
}

fn member(server: &Running) -> Client {
    let mut client = server.connect();
    client.ask(RIGHT, "STORED\r\n");
    client
}

fn a_sidecar_needs_no_login(io: Io) {
    let server = guarded(io, "-l 127.0.0.1,nologin:127.0.0.1:0");
    let mut sidecar = Client(connect_to(server.addresses[1]));
    sidecar.ask("set a 0 0 1\r\nx\r\n", "STORED\r\n");
    server.connect().ask("get a\r\n", "CLIENT_ERROR unauthenticated\r\n");
    member(&server).ask("get a\r\n", "VALUE a 0 1\r\nx\r\nEND\r\n");
    for (flags, problem) in [("-l nologin:127.0.0.1", "needs a login"), ("-S -l nologin:*", "loopback")] {
        let options = Options::parse_from_args(format!("relativistd -p -1 {flags}").split(' ')).unwrap();
        let error = Server::bind(&options).map(drop).expect_err(flags).to_string();
        assert!(error.contains(problem), "{flags}: {error}");
    }
}

fn unauthenticated_clients_can_do_nothing_by_text(io: Io) {
    let server = guarded(io, "-A --admin 0");
    let mut member = member(&server);
    member.ask("set kept 0 0 1\r\nx\r\n", "STORED\r\n");
    let requests = [
        "get kept",
        "gets kept",
        "gat 0 kept",
        "delete kept",
        "touch kept 0",
        "incr kept 1",
        "decr kept 1",
        "flush_all",
        "version",
        "verbosity 3",
        "stats",
        "stats settings",
        "stats conns",
        "stats reset",
        "watch fetchers",
        "shutdown",
        "lru_crawler metadump all",
        "lru_crawler mgdump all",
        "cache_memlimit 8",
        "slabs reassign 1 2",
        "lru mode flat",
        "refresh_certs",
        "debugtime p",
        "add kept 0 0 5",
        "cas kept 0 0 5 1",
        "append kept 0 0 5",
        "prepend kept 0 0 5",
        "mg kept v",
        "ms kept 5",
        "md kept",
        "ma kept",
        "mn now",
        "me kept",
        "quit now",
        "verbosity 3 noreply",
        "set kept",
    ];
    let mut client = server.connect();
    for request in requests {
        client.ask(format!("{request}\r\n"), "CLIENT_ERROR unauthenticated\r\n");
    }
    // A request behind a failed login in the same packet is refused, too.
    client.ask(format!("{WRONG}get kept\r\n"), format!("{FAILURE}CLIENT_ERROR unauthenticated\r\n"));
    let mut chatty = server.connect();
    (0..64).for_each(|_| chatty.ask("version\r\n", "CLIENT_ERROR unauthenticated\r\n"));
    chatty.expect_close();
    member.ask("get kept\r\n", "VALUE kept 0 1\r\nx\r\nEND\r\n");
    for (name, count) in
        [("cmd_get", 1), ("cmd_set", 1), ("cmd_touch", 0), ("cmd_flush", 0), ("cmd_meta", 0), ("auth_errors", 1)]
    {
        assert_eq!(stat(&mut member, name), count, "{name}");
    }
}

/// The clients announce a login of the maximum size, and send all of it except the end. A client
/// that sends more is closed.
fn unauthenticated_clients_hold_little_memory(io: Io) {
    const CLIENTS: u64 = 200;
    /// The buffers of a login and of its line. Each may be twice as large as its content.
    const MAX_BYTES: u64 = 2 * (16 << 10) + (8 << 10);
    let server = guarded(io, "");
    let mut member = member(&server);
    let token = "x".repeat(16384);
    let mut unauthenticated: Vec<Client> = (0..CLIENTS).map(|_| server.connect()).collect();
    for client in &mut unauthenticated {
        client.ask("get before\r\n", "CLIENT_ERROR unauthenticated\r\n");
        client.send(format!(
            "set login 0 0 16384\r
{token}"
        ));
    }
    // The last requests may not have arrived yet.
    wait_until("all logins", || stat(&mut member, "read_buf_bytes") >= CLIENTS * 16384);
    let held = stat(&mut member, "read_buf_bytes") + stat(&mut member, "response_obj_bytes");
    assert!(held < CLIENTS * MAX_BYTES, "{held}");
    for client in &mut unauthenticated {
        client.ask("\r\n", "CLIENT_ERROR bad authentication token format\r\n");
    }
    let mut endless = server.connect();
    // The server may close the connection before it has read everything.
    let _ = endless.0.write_all("x".repeat(4 << 20).as_bytes());
    endless.expect_close();
    server.connect().ask("set login 0 0 16385\r\n", "CLIENT_ERROR auth token too long\r\n");
}

fn clients_that_guess_passwords_are_closed_and_then_refused(io: Io) {
    let server = guarded(io, "--debug-time");
    let mut member = member(&server);
    member.ask("debugtime p\r\n", "OK\r\n");
    for _ in 0..4 {
        let mut guesser = server.connect();
        (0..8).for_each(|_| guesser.ask(WRONG, FAILURE));
        guesser.expect_close();
    }
    // The server refuses these logins without checking the password.
    for login in [WRONG, RIGHT] {
        let mut guesser = server.connect();
        guesser.ask(login, REFUSAL);
        guesser.expect_close();
    }
    // Clients from other addresses can log in, and clients that are logged in stay.
    let elsewhere = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
    elsewhere.bind(&SocketAddr::from(([127, 0, 0, 2], 0)).into()).unwrap();
    elsewhere.connect(&server.address.into()).unwrap();
    elsewhere.set_read_timeout(Some(patience())).unwrap();
    Client(TcpStream::from(elsewhere)).ask(RIGHT, "STORED\r\n");
    assert_eq!(stat(&mut member, "auth_errors"), 4 * 8 + 2);
    // The server refuses logins only for a while.
    member.ask("debugtime 4\r\n", "OK\r\n");
    server.connect().ask(RIGHT, "STORED\r\n");
}

#[test]
fn datagrams_and_logins_exclude_each_other() {
    for login in ["-Y /nonexistent", "-S"] {
        let options = Options::parse_from_args(format!("relativistd -p -1 -U -1 {login}").split(' ')).unwrap();
        let error = Server::bind(&options).err().expect("datagrams have no logins");
        assert!(error.to_string().contains("UDP (-U) has no logins"), "{error}");
    }
}

/// Each request that is not part of a login closes the connection.
#[test]
fn unauthenticated_clients_can_do_nothing_by_the_binary_protocol() {
    const OPEN: [u8; 4] = [0x0b, 0x20, 0x21, 0x22];
    let mut script = String::from("@file pwdb ops:hunter2\\n\n@env MEMCACHED_SASL_PWDB={file:pwdb}\n@args -S -A\n\n");
    let closed = (0..=0x24).filter(|opcode| !OPEN.contains(opcode));
    for opcode in closed.clone() {
        script += &format!(
            ">x 80 {opcode:02x} 0001 00 00 0000 00000001 00000001 0000000000000000\n> k\n\
             <x 81 {opcode:02x} 0000 00 00 0020 0000000d 00000001 0000000000000000\n< Auth failure.\n@closed\n@new\n"
        );
    }
    for io in Io::available() {
        assert_eq!(play(&script, io, None), 2 * closed.clone().count(), "{}", io.flag());
    }
}

/// Failed SASL logins have the same limits as text logins: after eight, the connection is closed;
/// after 32, the server does not check passwords.
#[test]
fn clients_that_guess_passwords_by_sasl_are_closed() {
    let mut script = String::from("@file pwdb ops:hunter2\\n\n@env MEMCACHED_SASL_PWDB={file:pwdb}\n@args -S\n\n");
    let guess = |password: &str| {
        format!(">x 80 21 0005 00 00 0000 00000011 00000001 0000000000000000\n> PLAIN\\0ops\\0{password}\n")
    };
    let failure = "<x 81 21 0000 00 00 0020 0000000d 00000001 0000000000000000\n< Auth failure.\n\n";
    for _ in 0..4 {
        script += &format!("{}@closed\n@new\n", (guess("hunter3") + failure).repeat(8));
    }
    script += &format!("{}{failure}@closed\n", guess("hunter2"));
    for io in Io::available() {
        assert_eq!(play(&script, io, None), 38, "{}", io.flag());
    }
}
