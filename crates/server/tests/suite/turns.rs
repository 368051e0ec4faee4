//! What the turn of a client may take of the time of others, counted in work, not in time.

use crate::admin::metrics;
use crate::harness::{Io, Running, on_each_backend, stat};
use relativist_testing::{patience, wait_until};
use std::net::UdpSocket;

on_each_backend! {
    no_command_takes_much_longer_than_a_turn
    the_announcement_of_a_large_value_evicts_nothing
    a_full_cache_without_eviction_refuses_a_large_value_at_once
    long_requests_are_counted_also_if_nobody_else_waits
    who_leaves_a_long_command_frees_the_connection
    statistics_are_work
}

/// In seconds: 200 us, and one step: a copy of the value, and the sweep of the blocks that make
/// room for it.
const MAX_TURN: f64 = 0.000_2 + 0.001;

fn no_command_takes_much_longer_than_a_turn(io: Io) {
    let server = io.start("-t 1 -m 64 --admin 0 -o track_sizes");
    let mut client = server.connect();
    let number = format!("5{}", " ".repeat(1_000_000));
    client.ask(format!("set number 0 0 {}\r\n{number}\r\n", number.len()), "STORED\r\n");
    let items = 5_000;
    let sets: String = (0..items).map(|item| format!("set key-{item} 0 0 1 noreply\r\nx\r\n")).collect();
    client.send(sets);
    let keys: String = (0..100).map(|item| format!(" missing-{item}")).collect();
    let long = [
        "incr number 1 noreply\r\n".repeat(200),
        "append number 0 0 1 noreply\r\nx\r\n".repeat(100),
        "md number I q\r\n".repeat(100),
        "touch number 0 noreply\r\n".repeat(100),
        format!("get{keys}\r\n").repeat(100),
        format!("gat 0{keys}\r\n").repeat(100),
        "stats table\r\n".repeat(3),
        "stats memory\r\n".repeat(3),
        "stats sizes\r\n".repeat(3),
        "stats conns\r\n".repeat(3),
        "lru_crawler metadump all\r\n".into(),
        "lru_crawler mgdump all\r\n".into(),
        "stats cachedump 1 0\r\n".into(),
    ];
    for requests in long {
        client.send(format!("{requests}mn\r\n"));
        client.read_until(b"MN\r\n");
        let longest = metrics(&server)["longest_turn_seconds"];
        assert!(longest <= MAX_TURN, "{requests:.30}: {longest}");
    }
}

/// Several turns make room for a value larger than a MiB, and none before an eighth of it has
/// arrived.
fn the_announcement_of_a_large_value_evicts_nothing(io: Io) {
    let server = io.start("-t 1 -m 64 -I 8m --admin 0");
    let mut client = server.connect();
    let value = "x".repeat(500);
    let sets: String = (0..1_000).map(|item| format!("set {item}-# 0 0 500 noreply\r\n{value}\r\n")).collect();
    let is_full = |round: u32| {
        client.ask(format!("{}mn\r\n", sets.replace('#', &round.to_string())), "MN\r\n");
        stat(&mut client, "evictions") > 0
    };
    assert!((0..1_000).any(is_full));
    let before = stat(&mut client, "evictions");
    let large = 6 << 20;
    let mut announcing = server.connect();
    announcing.send(format!("set large 0 0 {large}\r\n"));
    announcing.send(vec![b'y'; 700_000]);
    (0..20).for_each(|_| client.ask("mn\r\n", "MN\r\n"));
    assert_eq!(stat(&mut client, "evictions"), before);
    announcing.send(vec![b'y'; large - 700_000]);
    announcing.ask("\r\n", "STORED\r\n");
    assert!(stat(&mut client, "evictions") > before);
    let longest = metrics(&server)["longest_turn_seconds"];
    // The sweep of one block is a step. It takes about 100 of them, or 3 ms.
    assert!(longest <= 0.000_5, "{longest}");
}

/// Without eviction there is nothing to make room from, and nobody waits.
fn a_full_cache_without_eviction_refuses_a_large_value_at_once(io: Io) {
    let server = io.start("-t 1 -m 64 -I 8m -M --admin 0");
    let mut client = server.connect();
    let value = "x".repeat(1_000_000);
    let is_full = |item: u32| {
        client.send(format!("set {item} 0 0 1000000\r\n{value}\r\n"));
        client.read_until(b"\r\n") != b"STORED\r\n"
    };
    assert!((0..100).any(is_full));
    let large = vec![b'y'; 5 << 20];
    client.send(format!("set large 0 0 {}\r\n", large.len()));
    client.send(&large);
    client.ask("\r\n", "SERVER_ERROR out of memory storing object\r\n");
    let longest = metrics(&server)["longest_turn_seconds"];
    assert!(longest <= MAX_TURN, "{longest}");
}

/// After `-R` requests that copy much, a turn ends, although it has had less than its work.
fn long_requests_are_counted_also_if_nobody_else_waits(io: Io) {
    let server = io.start("-t 1 -R 1 --admin 0");
    let mut client = server.connect();
    client.ask(format!("set k 0 0 200000\r\n{}\r\n", "x".repeat(200_000)), "STORED\r\n");
    client.send(format!("{}mn\r\n", "append k 0 0 1 noreply\r\nx\r\n".repeat(50)));
    client.read_until(b"MN\r\n");
    let longest = metrics(&server)["longest_turn_seconds"];
    // The store is 50 us, another command 25. Without the rule a turn takes 200 us.
    assert!(longest < 0.000_1, "{longest}");
}

/// A datagram of some KiB takes the thread of all datagrams for a bounded time.
#[test]
fn the_rest_of_a_datagram_is_ignored_after_much_work() {
    let server = Running::start("-t 1 -U -1");
    let mut client = server.connect();
    client.ask(format!("set k 0 0 500000\r\n{}\r\n", "x".repeat(500_000)), "STORED\r\n");
    let conns = client.list("stats conns");
    let (_, address) = conns.split_once("udp:").expect("the socket");
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    socket.set_read_timeout(Some(patience())).unwrap();
    for requests in [&"append k 0 0 1 noreply\r\nx\r\n".repeat(1_000), "mn\r\n"] {
        socket
            .send_to(&[b"\0\0\0\0\0\x01\0\0", requests.as_bytes()].concat(), address.lines().next().unwrap())
            .unwrap();
    }
    // Only the second one has a reply.
    socket.recv(&mut [0; 100]).unwrap();
    client.send("mg k s\r\n");
    let reply = String::from_utf8(client.read_until(b"\r\n")).unwrap();
    let appended = reply.trim().strip_prefix("HD s").unwrap().parse::<usize>().unwrap() - 500_000;
    assert!((1..100).contains(&appended), "{appended}");
}

/// Each of these costs much more than a lookup, so few of them fit into a turn.
fn statistics_are_work(io: Io) {
    for name in ["", " settings", " hotkeys", " sizing", " conns"] {
        let server = io.start("-t 1 -R 1000 --admin 0");
        let mut clients: Vec<_> = (0..20).map(|_| server.connect()).collect();
        clients.iter_mut().for_each(|client| client.ask("mn\r\n", "MN\r\n"));
        let client = &mut clients[0];
        client.send(format!("{}mn\r\n", format!("stats{name}\r\n").repeat(100)));
        client.read_until(b"MN\r\n");
        let longest = metrics(&server)["longest_turn_seconds"];
        assert!(longest > 0.000_15 && longest < MAX_TURN, "stats{name}: {longest}");
    }
}

/// The rest of the commands of a client that has left is not executed.
fn who_leaves_a_long_command_frees_the_connection(io: Io) {
    const COMMANDS: usize = 500;
    let server = io.start("-t 1");
    let mut other = server.connect();
    // A client that leaves early enough is noticed.
    let was_noticed = |_| {
        let number = format!("0{}", " ".repeat(1_000_000));
        other.ask(format!("set number 0 0 {}\r\n{number}\r\n", number.len()), "STORED\r\n");
        let before = stat(&mut other, "incr_hits");
        let mut client = server.connect();
        client.send(format!("mn\r\n{}", "incr number 1 noreply\r\n".repeat(COMMANDS)));
        // When it closes, its socket has a reply that it has not read: so the server gets a reset.
        wait_until("the first command", || stat(&mut other, "incr_hits") > before);
        drop(client);
        wait_until("the end of the connection", || stat(&mut other, "curr_connections") == 1);
        other.send("incr number 0\r\n");
        let reply = String::from_utf8(other.read_until(b"\r\n")).unwrap();
        reply.trim().parse::<usize>().unwrap() < COMMANDS
    };
    assert!((0..100).any(was_noticed));
}
