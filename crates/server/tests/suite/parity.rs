//! Behaviour of memcached that users rely on, and that the recorded transcripts do not show.

use crate::harness::{Client, Io, Running, on_each_backend, stat};
use relativist_store::{Cache, Content, Hooks, Mode};
use relativist_testing::wait_until;
use std::io::Read as _;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

on_each_backend! {
    requests_beyond_the_turn_count_as_yields
    a_client_that_breaks_the_protocol_is_closed_as_an_error
    stats_conns_reports_values_in_transfer
}

/// Returns the CAS value of `key`.
fn cas(client: &mut Client, key: &str) -> u64 {
    client.send(format!("mg {key} c\r\n"));
    let reply = String::from_utf8(client.read_until(b"\r\n")).unwrap();
    reply.strip_prefix("HD c").and_then(|rest| rest.split_whitespace().next()).expect(&reply).parse().unwrap()
}

/// Only the binary protocol can store such a key.
#[test]
fn a_key_with_a_line_end_ends_no_line() {
    let server = Running::start("-t 1");
    let mut binary = server.connect();
    let set = [&[0x80, 0x11, 0, 3, 8, 0, 0, 0, 0, 0, 0, 12][..], &[0; 12], &[0; 8], b"a\nb", b"v"].concat();
    let noop = [&[0x80, 0x0a][..], &[0; 22]].concat();
    binary.ask([set, noop].concat(), [&[0x81, 0x0a][..], &[0; 22]].concat());
    server.connect().ask("mg YQpi b k v\r\n", "VA 1 kYQpi b\r\nv\r\n");
}

#[test]
fn emptying_keeps_the_unique_and_invalidating_does_not() {
    let server = Running::start("-t 1");
    let mut client = server.connect();
    client.ask("set a 0 0 1\r\nx\r\n", "STORED\r\n");
    let first = cas(&mut client, "a");
    client.ask("md a x\r\n", "HD\r\n");
    assert_eq!(cas(&mut client, "a"), first);
    client.ask("md a x E7\r\n", "HD\r\n");
    assert_eq!(cas(&mut client, "a"), 7);
    client.ask("set a 0 0 1\r\nx\r\n", "STORED\r\n");
    let second = cas(&mut client, "a");
    client.ask("md a I x\r\n", "HD\r\n");
    assert!(cas(&mut client, "a") > second);
    // An emptied item counts as stored at the time it was emptied. Only a later flush removes it.
    client.ask("flush_all\r\nset a 0 0 1\r\nx\r\nmd a x\r\nmg a v\r\n", "OK\r\nSTORED\r\nHD\r\nVA 0\r\n\r\n");
    client.ask("flush_all\r\nmg a v\r\n", "OK\r\nEN\r\n");
}

fn requests_beyond_the_turn_count_as_yields(io: Io) {
    let server = io.start("-t 1 -R 20");
    let mut client = server.connect();
    for _ in 0..50 {
        client.ask("mn\r\n", "MN\r\n");
    }
    assert_eq!(stat(&mut client, "conn_yields"), 0, "one request at a time");
    // The kernel may deliver the requests one by one. Then the server executes one per turn, and
    // never yields.
    wait_until("a yield", || {
        client.ask("mn\r\n".repeat(100), "MN\r\n".repeat(100));
        stat(&mut client, "conn_yields") > 0
    });
}

fn a_client_that_breaks_the_protocol_is_closed_as_an_error(io: Io) {
    let server = io.start("-t 1");
    let mut watcher = server.connect();
    watcher.ask("watch connevents\r\n", "OK\r\n");
    let mut reason = |bytes: &[u8]| {
        let mut client = server.connect();
        client.send(bytes);
        // If data is left unread, the kernel resets the connection.
        let _ = client.0.read_to_end(&mut Vec::new());
        let line = loop {
            let line = String::from_utf8(watcher.read_until(b"\n")).unwrap();
            if line.contains("type=conn_close") {
                break line;
            }
        };
        line.split_whitespace().find_map(|word| word.strip_prefix("reason=")).expect(&line).to_owned()
    };
    let endless = [b'x'; 3000];
    // A packet with a wrong magic after a good one, and a packet whose key is longer than its body.
    let noop = [&[0x80, 0x0a][..], &[0; 22]].concat();
    let bad_magic = [&noop[..], &[0x20; 24]].concat();
    let bad_lengths = [&[0x80, 0x00, 0x00, 0x05][..], &[0; 25]].concat();
    let handshake = b"\x16\x03\x01\x00\x90\x01\r\nflush_all\r\n";
    for bytes in [&endless[..], b"GET / HTTP/1.1\r\n", handshake, &bad_magic, &bad_lengths] {
        assert_eq!(reason(bytes), "error", "{}", bytes[..bytes.len().min(40)].escape_ascii());
    }
    assert_eq!(reason(b"quit\r\n"), "normal");
    assert_eq!(reason(&[&[0x80, 0x07][..], &[0; 22]].concat()), "normal");
}

fn stats_conns_reports_values_in_transfer(io: Io) {
    let server = io.start("-t 1 -I 1m");
    let mut observer = server.connect();
    let mut state_of = |client: &Client, wanted: &str| {
        let address = format!(":addr tcp:{}\r", client.0.local_addr().unwrap());
        // The server may not have accepted the connection yet, or not have read the request.
        wait_until(wanted, || {
            let text = observer.list("stats conns");
            let mut lines = text.split('\n').skip_while(|line| !line.ends_with(&address));
            lines.find_map(|line| line.split_once(":state ")).is_some_and(|(_, state)| state.trim_end() == wanted)
        });
    };
    let mut client = server.connect();
    state_of(&client, "conn_read");
    client.send("set a 0 0 10\r\n12345");
    state_of(&client, "conn_nread");
    client.ask("67890\r\n", "STORED\r\n");
    state_of(&client, "conn_read");
    client.send("ms a 100000\r\nxx");
    state_of(&client, "conn_nread");
    client.ask(format!("{}\r\n", "x".repeat(99_998)), "HD\r\n");
    client.send("set a 0 0 2000000\r\nxx");
    state_of(&client, "conn_swallow");
    client.ask(format!("{}\r\n", "x".repeat(1_999_998)), "SERVER_ERROR object too large for cache\r\n");
    state_of(&client, "conn_read");

    let mut binary = server.connect();
    let header = [&[0x80, 0x01, 0, 1, 8, 0, 0, 0, 0, 0, 0, 14][..], &[0; 20], b"k"].concat();
    binary.send(&header[..30]);
    binary.send(&header[30..]);
    binary.send("val");
    state_of(&binary, "conn_nread");
    binary.ask("ue", [&[0x81, 0x01][..], &[0; 6]].concat());
}

/// A hook that replaces an item after the first lookup has found it.
struct Replacing {
    is_armed: AtomicBool,
    is_fetched: AtomicBool,
    looks: Mutex<u32>,
}

impl Hooks for Replacing {
    fn after_get(&self, cache: &Cache, key: &[u8]) {
        // SeqCst for both, because it is the simplest.
        if self.is_armed.swap(false, Ordering::SeqCst) {
            *self.looks.lock().unwrap() += 1;
            cache.store(Mode::Set, key, Content { flags: 7, exptime: 600, value: b"new" });
            if self.is_fetched.load(Ordering::SeqCst) {
                cache.get(key, |_| ());
            }
        }
    }
}

/// An `mg` decides on and reports one item, even if the item of its first lookup is replaced.
#[test]
fn a_claim_to_renew_reports_the_item_that_is_claimed() {
    let (is_armed, is_fetched) = (AtomicBool::new(false), AtomicBool::new(false));
    let between = Arc::new(Replacing { is_armed, is_fetched, looks: Mutex::new(0) });
    let replacing = Arc::clone(&between);
    let server = Running::start_with("-t 1 --debug-time", |cache| cache.with_hooks(between));
    let mut client = server.connect();
    client.ask("debugtime p\r\n", "OK\r\n");
    let flags = "R1000 h l f t v";
    for (is_fetched, reply) in [(false, "VA 3 h0 l0 f7 t600 W\r\nnew\r\n"), (true, "VA 3 h1 l0 f7 t600 W\r\nnew\r\n")] {
        client.ask("set k 0 500 3\r\nold\r\ndebugtime 100\r\n", "STORED\r\nOK\r\n");
        replacing.is_fetched.store(is_fetched, Ordering::SeqCst);
        replacing.is_armed.store(true, Ordering::SeqCst);
        client.ask(format!("mg k {flags}\r\n"), reply);
        client.ask(format!("mg k {flags}\r\n"), "VA 3 h1 l0 f7 t600 Z\r\nnew\r\n");
    }
    // No other request comes in between: `mg` reports the access before its own lookup.
    client.ask("set k 0 500 3\r\nold\r\ndebugtime 100\r\n", "STORED\r\nOK\r\n");
    client.ask(format!("mg k {flags}\r\n"), "VA 3 h0 l100 f0 t400 W\r\nold\r\n");
    // The first lookup misses, and then there is an item: `mg` neither creates nor claims it.
    client.ask("delete k\r\n", "DELETED\r\n");
    replacing.is_armed.store(true, Ordering::SeqCst);
    client.ask("mg k N30 h l f t v\r\n", "VA 3 h1 l0 f7 t600\r\nnew\r\n");
    assert_eq!(*replacing.looks.lock().unwrap(), 3);
}

#[test]
fn ages_are_reported_beyond_a_day() {
    let server = Running::start("-t 1 --debug-time");
    let mut client = server.connect();
    client.ask("debugtime p\r\nset k 0 0 1\r\nv\r\nset other 0 0 1\r\nv\r\n", "OK\r\nSTORED\r\nSTORED\r\n");
    client.ask("debugtime 72000\r\nget other\r\n", "OK\r\nVALUE other 0 1\r\nv\r\nEND\r\n");
    client.ask("mg k u l\r\n", "HD l72000\r\n");
    client.send("me k\r\n");
    let debug = String::from_utf8(client.read_until(b"\r\n")).unwrap();
    assert!(debug.contains(" la=72000 "), "{debug}");
    let mut age = || {
        let items = client.list("stats items");
        let line = items.lines().find_map(|line| line.strip_prefix("STAT items:1:age ")).expect("an age");
        let age: u32 = line.parse().unwrap();
        client.ask("mg k\r\n", "HD\r\n");
        age
    };
    assert_eq!((age(), age()), (72000, 0), "the age of the item that was unused for the longest time");
}
