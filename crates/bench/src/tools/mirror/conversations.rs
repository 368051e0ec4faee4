//! Tests of whole mirrors between clients and servers in this process: relativistd on both sides,
//! and servers that reply wrongly, stall or break.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use relativist_testing::patience;

use super::report::{Fate, Found, Tally};
use super::secondary::Mirror;
use super::{listen, serve};
use crate::memcached::conversations::Running;
use relativist_check::client::Address;
use relativist_check::faulty::Fault;

/// A mirror in threads of its own.
struct Mirrored {
    address: Address,
    mirror: Arc<Mirror>,
    is_over: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Mirrored {
    fn start(primary: &Address, secondary: &Address, wait: Duration) -> Self {
        let addresses = [primary.clone(), secondary.clone()];
        let mirror =
            Arc::new(Mirror::new(addresses, wait, 10_000, 1 << 20, Tally::new(["memcached", "relativistd"], 3, true)));
        let is_over = Arc::new(AtomicBool::new(false));
        let listener = listen(&Address::Tcp(([127, 0, 0, 1], 0).into())).unwrap();
        let address = Address::Tcp(listener.local_addr().unwrap().as_socket().unwrap());
        let (in_thread, ends) = (Arc::clone(&mirror), Arc::clone(&is_over));
        let thread = thread::spawn(move || serve(&in_thread, &listener, 100, || ends.load(Relaxed)).unwrap());
        Self { address, mirror, is_over, thread: Some(thread) }
    }

    fn client(&self) -> Client {
        let Address::Tcp(address) = self.address else { panic!() };
        let stream = TcpStream::connect(address).unwrap();
        stream.set_read_timeout(Some(patience())).unwrap();
        Client(stream)
    }

    /// Waits until the counts are as wanted.
    fn wait(&self, what: &str, is_done: impl Fn(&Found) -> bool) -> Found {
        let begun = Instant::now();
        loop {
            let found = self.mirror.tally.found();
            if is_done(&found) {
                return found;
            }
            assert!(begun.elapsed() < patience(), "{what}: {found:#?}");
            thread::sleep(Duration::from_millis(1));
        }
    }
}

impl Drop for Mirrored {
    fn drop(&mut self) {
        self.is_over.store(true, Relaxed);
        let ended = self.thread.take().unwrap().join();
        assert!(ended.is_ok() || thread::panicking());
    }
}

struct Client(TcpStream);

impl Client {
    /// Sends `request`, and expects exactly `reply`.
    fn ask(&mut self, request: impl AsRef<[u8]>, reply: impl AsRef<[u8]>) {
        self.0.write_all(request.as_ref()).unwrap();
        let mut received = vec![0; reply.as_ref().len()];
        let read = self.0.read_exact(&mut received);
        let (request, reply) = (request.as_ref().escape_ascii(), reply.as_ref().escape_ascii());
        assert!(read.is_ok(), "{request}: {read:?}");
        assert_eq!(received.escape_ascii().to_string(), reply.to_string(), "{request}");
    }

    /// Disconnects after all replies have arrived, and expects none that was not read.
    fn end(mut self) {
        self.0.shutdown(std::net::Shutdown::Write).unwrap();
        let mut rest = Vec::new();
        self.0.read_to_end(&mut rest).unwrap();
        assert_eq!(rest.escape_ascii().to_string(), "");
    }
}

/// A time limit for replies that is longer than any test waits.
fn unreached() -> Duration {
    2 * patience()
}

const FLUSH: &str = "flush_all\r\n";

/// The requests of a client of the text protocols, with a reply for each, in a batch.
const TEXT: [(&str, &str); 26] = [
    ("set k 7 0 5\r\nhello\r\n", "STORED\r\n"),
    ("get k\r\n", "VALUE k 7 5\r\nhello\r\nEND\r\n"),
    ("get k none k\r\n", "VALUE k 7 5\r\nhello\r\nVALUE k 7 5\r\nhello\r\nEND\r\n"),
    ("append k 0 0 1\r\n!\r\n", "STORED\r\n"),
    ("set n 0 0 1 noreply\r\n5\r\n", ""),
    ("incr n 3\r\n", "8\r\n"),
    ("incr k 3\r\n", "CLIENT_ERROR cannot increment or decrement non-numeric value\r\n"),
    ("mg k v q\r\n", "VA 6\r\nhello!\r\n"),
    ("mg none v q\r\n", ""),
    ("mn\r\n", "MN\r\n"),
    ("mn\r\n", "MN\r\n"),
    ("mg k t f s h O1\r\n", "HD t-1 f7 s6 h1 O1\r\n"),
    ("ms fresh 4 T100\r\nMN\r\n\r\n", "HD\r\n"),
    ("mg fresh v k\r\n", "VA 4 kfresh\r\nMN\r\n\r\n"),
    ("mg Zm9v b N30 v\r\n", "VA 0 W\r\n\r\n"),
    ("ma c N0 J7 v\r\n", "VA 1\r\n7\r\n"),
    ("delete k\r\n", "DELETED\r\n"),
    ("get k\r\n", "END\r\n"),
    ("touch n 50\r\n", "TOUCHED\r\n"),
    ("gat 90 n\r\n", "VALUE n 0 1\r\n8\r\nEND\r\n"),
    ("nonsense\r\n", "ERROR\r\n"),
    ("set k 0 0 bad\r\n", "CLIENT_ERROR bad command line format\r\n"),
    ("set k 0 0 1\r\ntoo long\r\n", "CLIENT_ERROR bad data chunk\r\nERROR\r\n"),
    (FLUSH, "OK\r\n"),
    ("get n\r\n", "END\r\n"),
    ("version\r\n", "VERSION 1.6.45\r\n"),
];

#[test]
fn clients_get_the_replies_of_the_primary_and_equal_servers_agree() {
    let servers = [Running::start("-I 100k"), Running::start("-I 100k")];
    let mirrored = Mirrored::start(&servers[0].address, &servers[1].address, unreached());
    let mut client = mirrored.client();
    let idle = || mirrored.wait("comparison", |_| mirrored.mirror.is_idle());
    let (requests, replies): (Vec<_>, Vec<_>) =
        TEXT.iter().copied().take_while(|(request, _)| *request != FLUSH).unzip();
    client.ask(requests.concat(), replies.concat());
    for (request, reply) in [(FLUSH, "OK\r\n")].into_iter().chain(TEXT) {
        // Requests that overlap with a flush are not compared.
        let is_flush = request == FLUSH;
        is_flush.then(idle);
        client.ask(request, reply);
        is_flush.then(idle);
    }
    // Values that are too large for the mirror, and for the server.
    for (size, reply) in [(20_000, "STORED\r\n"), (200_000, "SERVER_ERROR object too large for cache\r\n")] {
        client.ask(format!("set large 0 0 {size}\r\n{}\r\n", "x".repeat(size)), reply);
    }
    client.end();
    let found = idle();
    assert!(found.count(Fate::Same) >= 50 && found.count(Fate::TooLarge) == 2, "{found:#?}");
    assert_eq!((found.different(), found.outages, found.count(Fate::NotUnderstood)), (0, 0, 0), "{found:#?}");
    assert_eq!((found.count(Fate::MissingOnPrimary), found.count(Fate::LastingMissing)), (0, 0), "{found:#?}");
}

#[test]
fn cas_values_are_those_of_the_primary() {
    let servers = [Running::start(""), Running::start("")];
    let mirrored = Mirrored::start(&servers[0].address, &servers[1].address, unreached());
    let mut client = mirrored.client();
    client.ask("set k 0 0 1\r\na\r\n", "STORED\r\n");
    let cas = servers[0].address.connect().unwrap();
    (&cas).write_all(b"mg k c\r\nquit\r\n").unwrap();
    let cas = std::io::read_to_string(&cas).unwrap().trim().strip_prefix("HD c").unwrap().to_owned();
    client.ask(format!("cas k 0 0 1 {cas}\r\nb\r\n"), "STORED\r\n");
    // The CAS value is no longer that of the item.
    client.ask(format!("cas k 0 0 1 {cas}\r\nx\r\n"), "EXISTS\r\n");
    client.ask("get k\r\n", "VALUE k 0 1\r\nb\r\nEND\r\n");
    let found = mirrored.wait("comparison", |found| found.count(Fate::Same) == 3);
    assert_eq!((found.different(), found.count(Fate::CasUnknown)), (0, 1), "{found:#?}");
    let mut direct = Client(TcpStream::connect(servers[1].address.to_string()).unwrap());
    direct.ask("get k\r\n", "VALUE k 0 1\r\nb\r\nEND\r\n");
}

#[test]
fn the_binary_protocol_is_mirrored() {
    let servers = [Running::start(""), Running::start("")];
    let mirrored = Mirrored::start(&servers[0].address, &servers[1].address, unreached());
    let packet = |opcode: u8, extras: &[u8], key: &[u8], value: &[u8]| {
        let mut bytes = [0; 24];
        (bytes[0], bytes[1], bytes[3], bytes[4]) = (0x80, opcode, key.len() as u8, extras.len() as u8);
        bytes[11] = (extras.len() + key.len() + value.len()) as u8;
        [&bytes[..], extras, key, value].concat()
    };
    let mut client = mirrored.client();
    let requests = [
        packet(0x11, &[0; 8], b"k", b"quiet"),
        packet(0x09, b"", b"none", b""),
        packet(0x00, b"", b"k", b""),
        packet(0x0a, b"", b"", b""),
        packet(0x04, b"", b"k", b""),
    ];
    client.0.write_all(&requests.concat()).unwrap();
    let mut replies = vec![0; 24 + 4 + 5 + 24 + 24];
    client.0.read_exact(&mut replies).unwrap();
    assert!(replies[28..33] == *b"quiet" && replies[34] == 0x0a && replies[58] == 0x04, "{}", replies.escape_ascii());
    client.end();
    let found = mirrored.wait("comparison", |found| found.count(Fate::Same) == 4);
    assert_eq!((found.different(), found.outages), (0, 0), "{found:#?}");
}

#[test]
fn wrong_replies_of_the_secondary_are_reported() {
    let servers = [Running::start(""), Running::start("")];
    for (fault, difference) in [
        (Fault::Reply(b"hello", b"jello"), Fate::Value),
        (Fault::Reply(b"VALUE k 7", b"VALUE k 8"), Fate::Status),
        (Fault::Reply(b"STORED", b"ERROR"), Fate::Error),
        (Fault::Reply(b"STORED\r\n", b"STO\r\nRED\r\n"), Fate::Malformed),
        (Fault::Request(b"delete k", b"touch k 0"), Fate::Status),
        (Fault::Reply(b"t-1", b"t50"), Fate::TimeToLive),
    ] {
        let mirrored = Mirrored::start(&servers[0].address, &fault.of(&servers[1].address), unreached());
        let mut client = mirrored.client();
        for (request, reply) in &TEXT[..18] {
            client.ask(request, reply);
            // The next request may depend on what was found out.
            let asked = mirrored.mirror.tally.found().requests;
            let is_done = |found: &Found| found.requests == asked && mirrored.mirror.is_idle();
            mirrored.wait("idle", is_done);
        }
        let found = mirrored.wait("difference", |found| found.examples.contains_key(&difference));
        let example = &found.examples[&difference][0];
        assert!(example.key == "k" && example.primary != example.secondary, "{found:#?}");
        client.ask("flush_all\r\n", "OK\r\n");
        client.end();
    }
}

/// A lost item is not a difference by itself, but it is counted.
#[test]
fn items_that_the_secondary_loses_are_counted() {
    let servers = [Running::start(""), Running::start("")];
    let mirrored = Mirrored::start(&servers[0].address, &servers[1].address, unreached());
    let mut client = mirrored.client();
    client.ask("set k 0 0 1\r\na\r\n", "STORED\r\n");
    mirrored.wait("store", |found| found.count(Fate::Same) == 1);
    let mut direct = Client(TcpStream::connect(servers[1].address.to_string()).unwrap());
    direct.ask("delete k\r\n", "DELETED\r\n");
    for _ in 0..2 {
        client.ask("get k\r\n", "VALUE k 0 1\r\na\r\nEND\r\n");
    }
    let found = mirrored.wait("reads", |found| found.reads == 2);
    assert_eq!((found.count(Fate::LastingMissing), found.count(Fate::Unknown), found.different()), (1, 1, 0));
    assert_eq!(Found { evictions: [None, Some(0)], ..found }.lost(), 1);
}

/// A server that accepts connections and never replies, or closes them.
fn useless(closes: bool) -> Address {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = Address::Tcp(listener.local_addr().unwrap());
    // This thread runs until the test process ends.
    thread::spawn(move || {
        let mut kept = Vec::new();
        for client in listener.incoming().flatten() {
            if !closes {
                kept.push(client);
            }
        }
    });
    address
}

#[test]
fn clients_do_not_notice_a_secondary_that_stalls_or_breaks() {
    let primary = Running::start("");
    let nobody = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    for (secondary, limit, reason) in [
        (useless(false), Duration::from_millis(50), "no reply within"),
        (useless(true), unreached(), "closed|reset|broken|Broken"),
        (Address::Tcp(nobody), unreached(), "refused"),
    ] {
        let mirrored = Mirrored::start(&primary.address, &secondary, limit);
        let mut client = mirrored.client();
        client.ask("set k 0 0 1\r\na\r\n", "STORED\r\n");
        let found = mirrored.wait("outage", |found| found.outages == 1);
        let why = &found.listed_outages[0].reason;
        assert!(reason.split('|').any(|reason| why.contains(reason)), "{why}");
        // More than may wait for the secondary.
        for _ in 0..300 {
            client.ask(format!("set k 0 0 9000\r\n{:9000}\r\n", ""), "STORED\r\n");
        }
        client.end();
        let found = mirrored.wait("requests", |found| found.requests == 301);
        assert!(
            found.count(Fate::NotSent) >= 300 && found.different() == 0 && found.count(Fate::Same) == 0,
            "{found:#?}"
        );
    }
}

#[test]
fn the_backlog_is_bounded() {
    let primary = Running::start("");
    let mirrored = Mirrored::start(&primary.address, &useless(false), unreached());
    let mut client = mirrored.client();
    for _ in 0..300 {
        client.ask(format!("set k 0 0 9000\r\n{:9000}\r\n", ""), "STORED\r\n");
    }
    let found = mirrored.wait("outage", |found| found.outages == 1);
    assert!(found.listed_outages[0].reason.contains("wait for the secondary"), "{found:#?}");
    mirrored.wait("idle", |_| mirrored.mirror.is_idle());
}

/// What the secondary missed while it was away is not reported as a difference.
#[test]
fn a_secondary_that_comes_back_is_compared_again() {
    let primary = Running::start("");
    // No other test uses this address, so the port stays free while no server listens.
    let [high, low] = (std::process::id() as u16).to_be_bytes();
    let host = format!("-l 127.78.{high}.{low}");
    let secondary = Running::start(&host);
    let address = secondary.address.clone();
    let mirrored = Mirrored::start(&primary.address, &address, unreached());
    let mut client = mirrored.client();
    client.ask("set k 0 0 1\r\na\r\n", "STORED\r\n");
    mirrored.wait("store", |found| found.count(Fate::Same) == 1);
    drop(secondary);
    client.ask("set k 0 0 1\r\nb\r\n", "STORED\r\n");
    mirrored.wait("outage", |found| found.outages == 1);
    let Address::Tcp(at) = address else { panic!() };
    let _back = Running::start(&format!("{host} -p {}", at.port()));
    mirrored.wait("return", |found| found.listed_outages[0].lasted.is_some());
    client.ask("get k\r\n", "VALUE k 0 1\r\nb\r\nEND\r\n");
    client.ask("set k 0 0 1\r\nc\r\n", "STORED\r\n");
    client.ask("get k\r\n", "VALUE k 0 1\r\nc\r\nEND\r\n");
    let found = mirrored.wait("comparison", |found| found.count(Fate::Same) == 3);
    assert_eq!(
        (found.different(), found.count(Fate::LastingMissing), found.count(Fate::Unknown)),
        (0, 0, 1),
        "{found:#?}"
    );
    client.end();
}

/// What a client has sent before it breaks reaches both servers, although the client receives no
/// reply: all of it is compared.
#[test]
fn both_servers_get_what_a_client_sends_before_it_breaks() {
    let servers = [Running::start(""), Running::start("")];
    // A primary that executes nothing before the client has gone.
    let gate = TcpListener::bind("127.0.0.1:0").unwrap();
    let primary = Address::Tcp(gate.local_addr().unwrap());
    let mirrored = Mirrored::start(&primary, &servers[1].address, unreached());
    // These replies are larger than what the mirror receives at once.
    let requests: Vec<String> = std::iter::once(format!("set large 0 0 9000\r\n{:9000}\r\n", ""))
        .chain((0..30).map(|_| "get large\r\n".into()))
        .chain((0..100).map(|key| format!("set k{key} 0 0 1\r\na\r\n")))
        .collect();
    let count = requests.len() as u64;
    let mut client = mirrored.client();
    client.0.write_all(requests.concat().as_bytes()).unwrap();
    // The mirror drops the beginning of a request: neither server gets it.
    client.0.write_all(b"set k0 0 0 1\r\n").unwrap();
    mirrored.wait("requests", |found| found.requests == count);
    socket2::SockRef::from(&client.0).set_linger(Some(Duration::ZERO)).unwrap();
    drop(client);

    let (mut from_mirror, _) = gate.accept().unwrap();
    let mut to_primary = TcpStream::connect(servers[0].address.to_string()).unwrap();
    let (mut from_primary, mut to_mirror) = (to_primary.try_clone().unwrap(), from_mirror.try_clone().unwrap());
    for stream in [&from_mirror, &from_primary] {
        stream.set_read_timeout(Some(patience())).unwrap();
    }
    let replies = thread::spawn(move || std::io::copy(&mut from_primary, &mut to_mirror).map(drop));
    std::io::copy(&mut from_mirror, &mut to_primary).unwrap();
    to_primary.shutdown(std::net::Shutdown::Write).unwrap();
    replies.join().unwrap().unwrap();
    from_mirror.shutdown(std::net::Shutdown::Write).unwrap();

    let found = mirrored.wait("comparison", |found| found.count(Fate::Same) == count);
    assert_eq!((found.requests, found.different(), found.count(Fate::Unanswered)), (count, 0, 0), "{found:#?}");
    for server in &servers {
        let mut direct = Client(TcpStream::connect(server.address.to_string()).unwrap());
        direct.ask("get k0 k99\r\n", "VALUE k0 0 1\r\na\r\nVALUE k99 0 1\r\na\r\nEND\r\n");
    }
}

/// A primary that breaks has answered only a part of the requests. It is not known what it has done
/// with the others.
#[test]
fn requests_without_a_reply_of_the_primary_are_counted() {
    let secondary = Running::start("");
    let primary = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = Address::Tcp(primary.local_addr().unwrap());
    let mirrored = Mirrored::start(&address, &secondary.address, unreached());
    let mut client = mirrored.client();
    client.0.write_all(b"set a 0 0 1\r\na\r\nset b 0 0 1\r\nb\r\n").unwrap();
    let (mut from_mirror, _) = primary.accept().unwrap();
    from_mirror.read_exact(&mut [0; "set a 0 0 1\r\na\r\nmn\r\nset b 0 0 1\r\nb\r\nmn\r\n".len()]).unwrap();
    from_mirror.write_all(b"STORED\r\nMN\r\n").unwrap();
    drop(from_mirror);
    let found = mirrored.wait("comparison", |found| found.count(Fate::Same) + found.count(Fate::Unanswered) == 2);
    assert_eq!((found.count(Fate::Same), found.different()), (1, 0), "{found:#?}");
    client.ask("", "STORED\r\n");
    client.end();
    let mut direct = Client(TcpStream::connect(secondary.address.to_string()).unwrap());
    direct.ask("get a b\r\n", "VALUE a 0 1\r\na\r\nEND\r\n");
}
