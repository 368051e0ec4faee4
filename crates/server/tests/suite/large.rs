//! Large values, which are received into the cache's memory and sent from it.

use crate::admin::metrics;
use crate::harness::{Client, Io, Running, on_each_backend, stat};
use relativist_testing::wait_until;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

on_each_backend! {
    large_values_survive_any_split
    every_store_takes_large_values
    a_value_with_a_wrong_end_is_not_stored
    clients_that_leave_within_a_value_free_its_memory
    slow_senders_hold_bounded_memory_and_delay_no_other_client
    a_value_refused_in_place_is_collected_in_the_buffer
    slow_readers_get_the_old_values
    replies_are_whole_during_changes
    clients_that_are_too_slow_are_closed
}

/// Twice the minimum size of a value that is received in place, and some bytes.
const SIZE: usize = (32 << 10) + 77;

/// Returns a value that repeats `number`.
fn value(number: u64, size: usize) -> Vec<u8> {
    let mut value = format!("{number:015} ").into_bytes().repeat(size.div_ceil(16));
    value.truncate(size);
    value
}

fn set(key: &str, value: &[u8]) -> Vec<u8> {
    [format!("set {key} 0 0 {}\r\n", value.len()).as_bytes(), value, b"\r\n"].concat()
}

fn hit(key: &str, value: &[u8]) -> Vec<u8> {
    [format!("VALUE {key} 0 {}\r\n", value.len()).as_bytes(), value, b"\r\nEND\r\n"].concat()
}

/// Returns a metric of a server with `--admin`.
pub fn metric(server: &Running, name: &str) -> u64 {
    metrics(server)[name] as u64
}

/// Waits until a metric is fine, because other threads may still be changing it.
#[track_caller]
pub fn assert_becomes(server: &Running, name: &str, is_fine: impl Fn(u64) -> bool) {
    wait_until(name, || is_fine(metric(server, name)));
}

/// Encodes a packet of the binary protocol.
fn packet(opcode: u8, extras: &[u8], key: &[u8], value: &[u8]) -> Vec<u8> {
    let body = (extras.len() + key.len() + value.len()) as u32;
    let mut packet = vec![0x80, opcode, 0, key.len() as u8, extras.len() as u8, 0, 0, 0];
    packet.extend_from_slice(&body.to_be_bytes());
    packet.extend_from_slice(&[0; 12]);
    [&packet, extras, key, value].concat()
}

/// Returns a first request, a large store followed by another request, and the replies to these
/// two, for each protocol. The binary reply is compared only up to its CAS value, which the test
/// does not know.
fn conversations() -> [(Vec<u8>, Vec<u8>, Vec<u8>); 3] {
    let value = value(1, SIZE);
    let line = format!("VALUE k 7 {SIZE}\r\n");
    let classic = [format!("set k 7 0 {SIZE}\r\n").as_bytes(), &value, b"\r\nget k\r\nmn\r\n"].concat();
    let meta = [format!("ms aw== {SIZE} b F7 E99 c\r\n").as_bytes(), &value, b"\r\nget k\r\nmn\r\n"].concat();
    let found = [line.as_bytes(), &value, b"\r\nEND\r\nMN\r\n"].concat();
    let quiet_set = packet(0x11, &[0, 0, 0, 7, 0, 0, 0, 0], b"k", &value);
    let binary = [quiet_set, packet(0x0a, b"", b"", b"")].concat();
    let noop = [&[0x81, 0x0a][..], &[0; 22]].concat();
    [
        (b"mn\r\n".to_vec(), classic, [b"STORED\r\n", &*found].concat()),
        (b"mn\r\n".to_vec(), meta, [b"HD c99\r\n", &*found].concat()),
        (packet(0x0a, b"", b"", b""), binary, noop),
    ]
}

fn large_values_survive_any_split(io: Io) {
    let server = io.start("-t 1");
    for (first, request, reply) in conversations() {
        let mut client = server.connect();
        let is_binary = first[0] == 0x80;
        let noop: &[u8] = if is_binary { &reply } else { b"MN\r\n" };
        let whole = request.len();
        let ends = whole.saturating_sub(SIZE + 60)..whole;
        // Split around the line, around the minimum size for receiving in place, and around the
        // end.
        let places = (1..60).chain([SIZE - (16 << 10), 20_000]).chain(14_000..14_010).chain(ends.step_by(SIZE / 9));
        let last = whole - 24..whole;
        for at in places.chain(last) {
            // The reply to the first request shows that the server has read the first part
            // separately.
            client.ask([&first, &request[..at]].concat(), noop);
            client.ask(&request[at..], &reply);
        }
        // Send pieces that the server reads separately if it is fast enough.
        for piece in request.chunks(4_999) {
            client.send(piece);
            thread::yield_now();
        }
        client.expect(&reply);
    }
    let mut client = server.connect();
    client.ask("get k\r\n", [format!("VALUE k 7 {SIZE}\r\n").as_bytes(), &value(1, SIZE), b"\r\nEND\r\n"].concat());
}

/// Sends `line` and part of the value. After the server has read these, sends the rest.
fn store(client: &mut Client, line: &str, value: &[u8], reply: &str) {
    client.ask([b"mn\r\n", line.as_bytes(), b"\r\n", &value[..1000]].concat(), "MN\r\n");
    client.ask([&value[1000..], b"\r\nmn\r\n"].concat(), format!("{reply}MN\r\n"));
}

fn every_store_takes_large_values(io: Io) {
    let server = io.start("-t 1");
    let mut client = server.connect();
    let values: Vec<_> = (0..8).map(|number| value(number, SIZE)).collect();
    store(&mut client, &format!("replace k 0 0 {SIZE}"), &values[0], "NOT_STORED\r\n");
    store(&mut client, &format!("add k 0 0 {SIZE}"), &values[1], "STORED\r\n");
    store(&mut client, &format!("add k 0 0 {SIZE}"), &values[2], "NOT_STORED\r\n");
    client.ask("get k\r\n", hit("k", &values[1]));
    store(&mut client, &format!("replace k 0 0 {SIZE} noreply"), &values[3], "");
    client.ask("get k\r\n", hit("k", &values[3]));
    store(&mut client, &format!("cas k 0 0 {SIZE} 1"), &values[4], "EXISTS\r\n");
    client.ask("mg k c\r\n", "HD c");
    let cas = String::from_utf8(client.read_until(b"\r\n")).unwrap();
    store(&mut client, &format!("cas k 0 0 {SIZE} {}", cas.trim()), &values[4], "STORED\r\n");
    client.ask("get k\r\n", hit("k", &values[4]));
    store(&mut client, &format!("append k 0 0 {SIZE}"), &values[5], "STORED\r\n");
    store(&mut client, &format!("prepend k 0 0 {SIZE}"), &values[6], "STORED\r\n");
    client.ask("get k\r\n", hit("k", &[&*values[6], &values[4], &values[5]].concat()));
    store(&mut client, &format!("ms k {SIZE} ME s"), &values[7], &format!("NS s{SIZE}\r\n"));
    store(&mut client, &format!("ms k {SIZE} C999999999999999999 I"), &values[7], "EX\r\n");
    store(&mut client, &format!("ms k {SIZE} C1 E1 I"), &values[2], "HD\r\n");
    client.ask("mg k s c\r\n", format!("HD s{SIZE} c1 X W\r\n"));
    store(&mut client, &format!("ms k {SIZE} MR q"), &values[7], "");
    client.ask("mg k v k\r\n", [format!("VA {SIZE} kk\r\n").as_bytes(), &values[7], b"\r\n"].concat());
    store(&mut client, &format!("ms k {SIZE} MA"), &values[0], "HD\r\n");
    client.ask("mg k v\r\n", [format!("VA {} \r\n", 2 * SIZE).trim_end(), "\r\n"].concat());
    client.expect([&*values[7], &values[0], b"\r\n"].concat());
    // An expiry counts from the end of the request. An item that is expired at once cannot be
    // fetched.
    store(&mut client, &format!("set k 0 -1 {SIZE}"), &values[0], "STORED\r\n");
    client.ask("get k\r\n", "END\r\n");
}

fn a_value_with_a_wrong_end_is_not_stored(io: Io) {
    let server = io.start("-t 1 --admin 0");
    let mut client = server.connect();
    let (old, new) = (value(1, SIZE), value(2, SIZE));
    client.ask(set("k", &old), "STORED\r\n");
    for end in ["xy", "\r\r", "\n\r", "x\n"] {
        for (line, reply) in [
            (format!("set k 0 0 {SIZE}"), "CLIENT_ERROR bad data chunk\r\n"),
            (format!("set k 0 0 {SIZE} noreply"), ""),
            (format!("ms k {SIZE}"), "CLIENT_ERROR bad data chunk\r\n"),
        ] {
            client.ask([b"mn\r\n", line.as_bytes(), b"\r\n", &new[..7]].concat(), "MN\r\n");
            client.ask([&new[7..], end.as_bytes(), b"mn\r\n"].concat(), format!("{reply}MN\r\n"));
        }
    }
    client.ask("get k\r\n", hit("k", &old));
    assert_becomes(&server, "memory_pinned_bytes", |bytes| bytes == 0);
}

fn clients_that_leave_within_a_value_free_its_memory(io: Io) {
    let server = io.start("-t 2 -m 64 --admin 0");
    let mut client = server.connect();
    let large = value(1, 1_000_000);
    client.ask(set("k", &large), "STORED\r\n");
    for round in 0..10 {
        let mut clients: Vec<Client> = (0..6).map(|_| server.connect()).collect();
        for (index, client) in clients.iter_mut().enumerate() {
            if index % 2 == 0 {
                client.ask([b"mn\r\n", &set("k", &large)[..100_000 * (index + 1)]].concat(), "MN\r\n");
            } else {
                client.send("get k\r\n".repeat(20));
            }
        }
        if round == 0 {
            assert!(metric(&server, "memory_pinned_bytes") > 1_000_000);
        }
    }
    assert_becomes(&server, "memory_pinned_bytes", |bytes| bytes == 0);
    client.ask("get k\r\n", hit("k", &large));
    client.ask("flush_all\r\n", "OK\r\n");
}

/// Slow clients send half of their values. Other clients are served meanwhile, and the slow clients
/// can continue later.
fn slow_senders_hold_bounded_memory_and_delay_no_other_client(io: Io) {
    const SLOW: u64 = 100;
    const SLOW_SIZE: usize = 150_000;
    let server = io.start("-t 2 -m 16 -o read_buf_mem_limit=64 --admin 0");
    let mut other = server.connect();
    let mut slow: Vec<Client> = (0..SLOW).map(|_| server.connect()).collect();
    for (number, client) in (0..).zip(&mut slow) {
        let request = set(&format!("slow{number}"), &value(number, SLOW_SIZE));
        client.ask([b"mn\r\n", &request[..SLOW_SIZE / 2]].concat(), "MN\r\n");
    }
    let lent = metric(&server, "memory_pinned_bytes");
    assert!(lent > 1_000_000 && lent <= 2 << 20, "{lent}");
    for number in 0..60 {
        let value = value(number, 700_000);
        other.ask(set("k", &value), "STORED\r\n");
        other.ask("get k\r\n", hit("k", &value));
    }
    for (number, client) in (0..).zip(&mut slow) {
        let request = set(&format!("slow{number}"), &value(number, SLOW_SIZE));
        client.ask(&request[SLOW_SIZE / 2..], "STORED\r\n");
        client.ask(format!("get slow{number}\r\n"), hit(&format!("slow{number}"), &value(number, SLOW_SIZE)));
    }
    assert!(metric(&server, "memory_heap_bytes") + metric(&server, "table_bytes") <= 16 << 20);
}

/// When the value begins, there is no room to receive it in place. There is room later, but not for
/// this value.
fn a_value_refused_in_place_is_collected_in_the_buffer(io: Io) {
    const LARGE: usize = 1_000_000;
    let server = io.start("-t 1 -m 16 --admin 0");
    let (mut first, mut second) = (server.connect(), server.connect());
    let begin = |client: &mut Client, number| {
        client.ask([b"mn\r\n", &set("k", &value(number, LARGE))[..LARGE / 4]].concat(), "MN\r\n");
    };
    for _ in 0..2 {
        let mut others: Vec<Client> = (0..2).map(|_| server.connect()).collect();
        others.iter_mut().for_each(|other| begin(other, 1));
        begin(&mut first, 2);
        let lent = metric(&server, "memory_pinned_bytes");
        assert!(lent <= 2 << 20, "{lent}");
        drop(others);
        assert_becomes(&server, "memory_pinned_bytes", |bytes| bytes == 0);
        for part in 1..3 {
            first.send(&set("k", &value(2, LARGE))[part * LARGE / 4..(part + 1) * LARGE / 4]);
            // The only worker answers `second` before or after it reads this part.
            second.ask("mn\r\n", "MN\r\n");
            assert_eq!(metric(&server, "memory_pinned_bytes"), 0);
        }
        first.ask(&set("k", &value(2, LARGE))[3 * LARGE / 4..], "STORED\r\n");
        first.ask("get k\r\n", hit("k", &value(2, LARGE)));
    }
    begin(&mut first, 3);
    assert_becomes(&server, "memory_pinned_bytes", |bytes| bytes > 0);
    first.ask(&set("k", &value(3, LARGE))[LARGE / 4..], "STORED\r\n");
}

/// Clients request values and do not read them, while the values are overwritten, deleted and
/// flushed, and their memory is reused.
fn slow_readers_get_the_old_values(io: Io) {
    const SLOW: u64 = 24;
    const LARGE: usize = 1_000_000;
    let server = io.start("-t 2 -m 32 -o read_buf_mem_limit=256 --admin 0");
    let mut other = server.connect();
    let mut slow: Vec<Client> = Vec::new();
    for number in 0..SLOW {
        let (key, value) = (format!("k{number}"), value(number, LARGE));
        other.ask(set(&key, &value), "STORED\r\n");
        let mut client = server.connect();
        // Request more than the sockets can buffer. The first byte shows that the server is sending
        // the first reply.
        client.send(format!("get {key} {key}\r\nget {key}\r\nmg {key} v\r\n").repeat(6));
        client.expect("V");
        slow.push(client);
    }
    let lent = metric(&server, "memory_pinned_bytes");
    assert!(lent >= LARGE as u64 && lent <= 8 << 20, "{lent}");
    for number in 0..SLOW {
        match number % 3 {
            0 => other.ask(format!("delete k{number}\r\n"), "DELETED\r\n"),
            1 => other.ask(set(&format!("k{number}"), &value(100 + number, LARGE)), "STORED\r\n"),
            _ => (),
        }
    }
    other.ask("flush_all\r\n", "OK\r\n");
    for number in 0..60 {
        other.ask(set(&format!("o{number}"), &value(number, LARGE)), "STORED\r\n");
        assert!(metric(&server, "memory_heap_bytes") + metric(&server, "table_bytes") <= 32 << 20);
    }
    // Keys that the server had not yet looked up are misses.
    for (number, client) in (0..).zip(&mut slow) {
        let (key, value) = (format!("k{number}"), value(number, LARGE));
        let hit = [format!("ALUE {key} 0 {LARGE}\r\n").as_bytes(), &value, b"\r\n"].concat();
        client.expect(hit);
        client.0.shutdown(std::net::Shutdown::Write).unwrap();
        let mut rest = Vec::new();
        std::io::Read::read_to_end(&mut client.0, &mut rest).expect("the rest of the replies");
        assert!(rest.len() >= 6 * b"END\r\nEND\r\nEN\r\n".len(), "{}", rest.len());
    }
    drop(slow);
    assert_becomes(&server, "memory_pinned_bytes", |bytes| bytes == 0);
}

/// Clients overwrite, fetch, delete and flush a few large values, while other clients request these
/// values and do not read them.
fn replies_are_whole_during_changes(io: Io) {
    const LARGE: usize = 1_000_000;
    const ROUNDS: u64 = 40;
    let server = io.start("-t 2 -m 16 --admin 0");
    let is_over = AtomicBool::new(false);
    let mut stopped: Vec<Client> = (0..4).map(|_| server.connect()).collect();
    for (number, client) in (0..).zip(&mut stopped) {
        client.ask(set(&format!("k{number}"), &value(number, LARGE)), "STORED\r\n");
        client.send("get k0 k1 k2\r\n".repeat(50));
    }
    let check = |line: &str, reply: &[u8]| {
        let number = std::str::from_utf8(&reply[..15]).unwrap().parse().unwrap();
        assert!(reply == value(number, LARGE), "{line}: a mixture of two values");
    };
    thread::scope(|scope| {
        let workers: Vec<_> = (0..4)
            .map(|worker| {
                let mut client = server.connect();
                scope.spawn(move || {
                    for round in 0..ROUNDS {
                        let key = format!("k{}", (round * 7 + worker) % 20);
                        match (round + worker) % 8 {
                            0..3 => client.ask(set(&key, &value(round * 10 + worker, LARGE)), "STORED\r\n"),
                            3 if round % 20 == 3 => client.ask("flush_all\r\n", "OK\r\n"),
                            3 => {
                                client.send(format!("delete {key}\r\n"));
                                client.read_until(b"\r\n");
                            }
                            _ => {
                                client.send(format!("get {key}\r\n"));
                                let line = String::from_utf8(client.read_until(b"\r\n")).unwrap();
                                if line != "END\r\n" {
                                    let mut reply = vec![0; LARGE + b"\r\nEND\r\n".len()];
                                    std::io::Read::read_exact(&mut client.0, &mut reply).unwrap();
                                    assert!(reply.ends_with(b"\r\nEND\r\n"));
                                    check(&line, &reply[..LARGE]);
                                }
                            }
                        }
                    }
                })
            })
            .collect();
        scope.spawn(|| {
            // Relaxed, because the flag publishes no other data.
            while !is_over.load(Ordering::Relaxed) {
                assert!(metric(&server, "memory_heap_bytes") + metric(&server, "table_bytes") <= 16 << 20);
            }
        });
        let outcomes: Vec<_> = workers.into_iter().map(|worker| worker.join()).collect();
        is_over.store(true, Ordering::Relaxed);
        assert!(outcomes.iter().all(Result::is_ok));
    });
    drop(stopped);
    assert_becomes(&server, "memory_pinned_bytes", |bytes| bytes == 0);
    server.connect().ask("flush_all\r\n", "OK\r\n");
}

/// One client stops reading within a value, and one stops sending. Two other clients continue
/// slowly.
fn clients_that_are_too_slow_are_closed(io: Io) {
    const LARGE: usize = 1_000_000;
    const STEP: usize = 100_000;
    let server = io.start("-t 1 -m 64 --debug-time --admin 0");
    let mut other = server.connect();
    other.ask("debugtime p\r\n", "OK\r\n");
    let value = value(1, LARGE);
    other.ask(set("k", &value), "STORED\r\n");
    let [mut stuck_reader, mut reader, mut stuck_sender, mut sender] = [(); 4].map(|()| server.connect());
    for client in [&mut stuck_reader, &mut reader] {
        // Request more than the sockets can buffer.
        client.send("get k\r\n".repeat(40));
        client.expect("V");
    }
    for client in [&mut stuck_sender, &mut sender] {
        client.ask([b"mn\r\n", &set("sent", &value)[..STEP]].concat(), "MN\r\n");
    }
    let replies = hit("k", &value).repeat(40);
    let (mut to_read, mut to_send) = (&replies[1..], &set("sent", &value)[STEP..]);
    for _ in 0..5 {
        // The server writes more only after the client has read the bytes before.
        let written = stat(&mut other, "bytes_written");
        while stat(&mut other, "bytes_written") < written + 500_000 {
            let (step, rest) = to_read.split_at(STEP);
            reader.expect(step);
            to_read = rest;
        }
        let read = stat(&mut other, "bytes_read");
        let (step, rest) = to_send.split_at(STEP);
        sender.send(step);
        to_send = rest;
        wait_until("the bytes", || stat(&mut other, "bytes_read") >= read + STEP as u64);
        // The worker executes the command in this turn, and checks for slow clients in the next.
        other.ask("debugtime 40\r\n", "OK\r\n");
        other.ask("mn\r\n", "MN\r\n");
    }
    wait_until("the end of two connections", || stat(&mut other, "curr_connections") == 3);
    to_read.chunks(STEP).for_each(|step| reader.expect(step));
    sender.ask(to_send, "STORED\r\n");
    assert_becomes(&server, "memory_pinned_bytes", |bytes| bytes == 0);
    for mut stuck in [stuck_reader, stuck_sender] {
        let mut rest = Vec::new();
        // After the bytes in flight, the client reads the end of the connection, or a reset.
        let _ = std::io::Read::read_to_end(&mut stuck.0, &mut rest);
        assert!(rest.len() < replies.len() - 1);
    }
}
