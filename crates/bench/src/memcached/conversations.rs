//! Tests of whole runs against servers in this process: relativistd, and servers that misbehave.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::mpsc::{self, TryRecvError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use anyhow::Result;
use relativistd::{Options, Server, StartError, Stopper};

use super::generator::Generator;
use super::tally::{Tally, Window};
use super::workload::{DEFAULT, Protocol, Sizes, Workload};
use crate::harness::sampling::Distribution;
use relativist_check::client::Address;
use relativist_check::cores::Cores;

pub(crate) struct Running {
    pub(crate) address: Address,
    stopper: Stopper,
    thread: Option<JoinHandle<Result<(), StartError>>>,
}

impl Running {
    pub(crate) fn start(flags: &str) -> Self {
        let line = format!("relativistd -p -1 -t 2 {flags}");
        let server = Server::bind(&Options::parse_from_args(line.split_whitespace()).unwrap()).unwrap();
        let (address, stopper) = (Address::Tcp(server.addresses()[0]), server.stopper());
        Self { address, stopper, thread: Some(thread::spawn(|| server.run())) }
    }

    fn items(&self) -> u64 {
        self.address.statistics("stats").unwrap()["curr_items"].parse().unwrap()
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.stopper.stop();
        self.thread.take().unwrap().join().unwrap().unwrap();
    }
}

fn run(workload: &Workload, address: &Address, millis: u64) -> Result<Tally> {
    workload.check()?;
    let cores = Cores::default();
    let generator = Generator::new(workload, &cores);
    if !workload.no_preload {
        generator.preload(address)?;
    }
    let load = generator.connect(address, 0, Some(Duration::from_millis(10)))?;
    load.run(Window::after(Duration::from_millis(1), Duration::from_millis(millis)))
}

#[test]
fn every_kind_of_work_is_done_and_checked() {
    let few = Workload { items: 500, clients: 6, threads: 2, ..DEFAULT };
    let workloads = [
        few.clone(),
        Workload { depth: 16, sets: 30, popularity: Distribution::Zipf, ..few.clone() },
        Workload { keys_per_get: 100, depth: 2, ..few.clone() },
        Workload {
            key_size: Sizes::range(3, 250),
            value_size: Sizes::range(1, 60_000),
            sets: 10,
            depth: 3,
            ..few.clone()
        },
        Workload { rate: Some(5000.0), sets: 50, ..few.clone() },
        // Large values, which take more than one read, among small ones.
        Workload { value_size: "10:9,1000000:1".parse().unwrap(), sets: 10, depth: 3, ..few.clone() },
    ];
    for workload in workloads {
        for protocol in [Protocol::Classic, Protocol::Meta] {
            let server = Running::start("");
            let workload = Workload { protocol, ..workload.clone() };
            let tally = run(&workload, &server.address, 30).unwrap();
            assert_eq!(server.items(), 500);
            assert!(tally.asked >= u64::from(workload.keys_per_get), "{workload}");
            assert_eq!((tally.found, tally.refused, tally.late), (tally.asked, 0, 0), "{workload}");
            // Only an open loop has a known number of requests.
            if workload.rate.is_some() {
                let (gets, sets) = (tally.gets().unwrap().count, tally.sets().unwrap().count);
                assert!((149..=151).contains(&(gets + sets)), "{gets} + {sets} instead of 5000 a second for 30 ms");
                assert_eq!(tally.timeline().iter().map(|(_, slot)| slot.count).sum::<u64>(), gets);
            }
        }
    }
}

#[test]
fn what_is_missing_is_a_miss() {
    let server = Running::start("");
    for (protocol, keys_per_get) in [Protocol::Classic, Protocol::Meta].into_iter().flat_map(|p| [(p, 1), (p, 7)]) {
        let workload = Workload { protocol, keys_per_get, clients: 2, no_preload: true, ..DEFAULT };
        let tally = run(&workload, &server.address, 10).unwrap();
        assert!(tally.asked > 0 && tally.found == 0, "{workload}");
    }
}

#[test]
fn tables_grow_to_their_limit() {
    let server = Running::start("");
    let workload = Workload { items: 1000, grow: Some(1500), rate: Some(20_000.0), sets: 80, clients: 4, ..DEFAULT };
    let millis = 2 * (workload.seconds_of_growth().unwrap() * 1e3) as u64;
    let tally = run(&workload, &server.address, millis).unwrap();
    assert_eq!(server.items(), 1500);
    assert_eq!(tally.found, tally.asked);
}

#[test]
fn what_a_server_is_unwilling_to_do_is_counted() {
    let server = Running::start("-I 1k -m 64");
    let workload = Workload { value_size: Sizes::one(2000), items: 10, ..DEFAULT };
    let error = run(&workload, &server.address, 10).expect_err("nothing can be stored").to_string();
    assert!(error.contains("too large"), "{error}");
    let tally = run(&Workload { no_preload: true, sets: 100, ..workload }, &server.address, 10).unwrap();
    assert!(tally.refused > 0 && tally.refusal.unwrap().contains("SERVER_ERROR"));
}

/// Starts a server that runs `does` for its first client.
fn misbehaving(does: impl FnOnce(TcpStream) + Send + 'static) -> (Address, JoinHandle<()>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = Address::Tcp(listener.local_addr().unwrap());
    (address, thread::spawn(move || does(listener.accept().unwrap().0)))
}

fn lonely(workload: Workload) -> Workload {
    Workload { clients: 1, items: 1, no_preload: true, ..workload }
}

#[test]
fn hostile_answers_are_errors() {
    let key = "kkkkkkkkk0";
    let wrong_value = format!("VALUE {key} 0 100\r\n{}\r\nEND\r\n", "x".repeat(100));
    let cases = [
        (wrong_value.as_bytes(), "a wrong value of \"kkkkkkkkk0\""),
        (b"VALUE kkkkkkkkk1 0 1\r\nx\r\nEND\r\n", "a key that was not requested"),
        (b"VALUE kkkkkkkkk0 0 1000000\r\n", "a value of 1000000 bytes"),
        (b"END\r\nEND\r\n", "a reply without a request"),
        (b"STORED\r\n", "something else than a GET"),
        (b"HTTP/1.1 400 Bad Request\r\n\r\n", "not a reply: \"HTTP/1.1 400 Bad Request\""),
        (&[0; 5000], "a line without an end"),
    ];
    for (answer, explanation) in cases {
        let answer = answer.to_vec();
        let (address, server) = misbehaving(move |mut client| {
            client.read_exact(&mut [0; 5]).unwrap();
            // The client may close the connection before it has read everything.
            let _ = client.write_all(&answer);
            let _ = client.shutdown(Shutdown::Write);
            let _ = client.read_to_end(&mut Vec::new());
        });
        let error = run(&lonely(DEFAULT), &address, 60_000).expect_err(explanation).to_string();
        assert!(error.contains(explanation), "{error}");
        server.join().unwrap();
    }
}

/// The server breaks each connection at the second request: it closes the connection in the middle
/// of a reply, or resets it.
#[test]
fn connections_that_break_are_reopened_and_counted() {
    for (rate, resets) in [(None, false), (None, true), (Some(12.0), false), (Some(12.0), true)] {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = Address::Tcp(listener.local_addr().unwrap());
        let (stop, stopped) = mpsc::channel::<()>();
        let server = thread::spawn(move || {
            let mut broken = 0;
            while stopped.try_recv() == Err(TryRecvError::Empty) {
                let (mut client, _) = listener.accept().unwrap();
                let mut request = [0; 16];
                if client.read_exact(&mut request).is_err() {
                    continue;
                }
                client.write_all(b"END\r\n").unwrap();
                if client.read_exact(&mut request[..if resets { 8 } else { 16 }]).is_ok() {
                    // Unread data makes the kernel send a reset.
                    client.write_all(if resets { b"" } else { b"VALUE kkkkkkkkk0 0 100\r\nx" }).unwrap();
                    broken += 1;
                }
            }
            broken
        });
        let workload = lonely(Workload { rate, depth: 1, ..DEFAULT });
        let tally = run(&workload, &address, 500).unwrap();
        let gets = tally.gets().map_or(0, |gets| gets.count);
        stop.send(()).unwrap();
        drop(address.connect());
        let counted: u64 = server.join().unwrap();
        let Tally { broken, lost, found, breakage, .. } = tally;
        assert_eq!((broken, lost, found), (counted, counted, 0));
        // An open loop waits until all due requests have been sent. Lost requests count, too.
        if rate.is_some() {
            assert_eq!((broken, gets), (3, 6));
        }
        if let Some(breakage) = breakage {
            assert!(breakage.contains(if resets { "reset" } else { "closed a connection with 1" }), "{breakage}");
        }
    }
}

/// Refused clients connect again later, and the other clients are measured.
#[test]
fn a_server_turns_connections_away_and_is_measured() {
    let server = Running::start("-c 5");
    let workload = Workload { clients: 10, items: 10, ..DEFAULT };
    let tally = run(&workload, &server.address, 50).unwrap();
    assert!(tally.found > 0 && tally.broken >= 5 && tally.lost <= tally.broken, "{} {}", tally.broken, tally.lost);
    let breakage = tally.breakage.unwrap();
    assert!(breakage.contains("turned") || breakage.contains("reset"), "{breakage}");
}

#[test]
fn a_server_that_is_gone_fails_the_preload_and_not_the_load() {
    let (address, server) = misbehaving(drop);
    let workload = Workload { no_preload: false, ..lonely(DEFAULT) };
    let error = format!("{:#}", run(&workload, &address, 10).unwrap_err());
    assert!(error.contains("cannot store the items: ") && error.contains("the server"), "{error}");
    server.join().unwrap();
    let (address, server) = misbehaving(drop);
    let tally = run(&lonely(DEFAULT), &address, 250).unwrap();
    assert_eq!((tally.answered, tally.broken >= 1, tally.lost), (0, true, tally.broken));
    server.join().unwrap();
}

/// The server delays the first reply. All requests that are due during this delay count as slow,
/// not only one.
#[test]
fn a_stall_is_in_the_latencies_of_an_open_loop() {
    const STALL: Duration = Duration::from_millis(100);
    let (address, server) = misbehaving(|mut client| {
        let mut buffer = [0; 4096];
        let mut first = true;
        while let Ok(count @ 1..) = client.read(&mut buffer) {
            if std::mem::take(&mut first) {
                thread::sleep(STALL);
            }
            let lines = buffer[..count].iter().filter(|&&byte| byte == b'\n').count();
            client.write_all("END\r\n".repeat(lines).as_bytes()).unwrap();
        }
    });
    let tally = run(&lonely(Workload { rate: Some(1000.0), ..DEFAULT }), &address, 200).unwrap();
    let gets = tally.gets().unwrap();
    // A closed loop would have counted one long latency, because only one request is unanswered. In
    // an open loop, all requests due in the first half of the stall wait for at least half of the
    // stall, and they are a quarter of all requests.
    assert!(gets.p90 >= STALL.as_nanos() as f64 / 2.0, "{gets:?}");
    assert!((199..=201).contains(&gets.count), "{gets:?}");
    server.join().unwrap();
}
