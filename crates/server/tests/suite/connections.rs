//! How bytes get in and out: splits, batches, slow readers, closes, limits.

use crate::harness::{Client, Running};
use std::fmt::Write as _;
use std::io::BufRead as _;
use std::net::{Shutdown, TcpStream};
use std::thread;

#[test]
fn draining_lets_clients_finish_and_no_more_come() {
    let mut server = Running::start("-t 1 --drain 600 --admin 0");
    let mut client = server.connect();
    client.ask("mn\r\n", "MN\r\n");
    server.drain();
    // A connection may still be made by the kernel until the listener is closed, but is not served for long then.
    while TcpStream::connect(server.address).is_ok() {
        std::thread::yield_now();
    }
    client.ask("set a 0 0 1\r\nx\r\n", "STORED\r\n");
    assert_eq!(crate::admin::ask(&server, "GET /healthz HTTP/1.1\r\n\r\n"), (503, "stopping\n".into()));
    drop(client);
    server.wait().expect("it stops when the last client has left");
}

#[test]
fn a_drain_can_be_cut_short() {
    let mut server = Running::start("-t 1 --drain 600");
    let mut client = server.connect();
    client.ask("mn\r\n", "MN\r\n");
    server.drain();
    client.ask("mn\r\n", "MN\r\n");
    server.stop().expect("it was running").expect("it stops");
    client.expect_close();
}

#[test]
fn a_conversation_survives_any_split() {
    let server = Running::start("-t 1");
    let request = b"set split 5 0 10\r\n01234\r6789\r\nget split none\r\nincr split 1\r\ndelete split\r\nbogus\r\n";
    let answer = b"STORED\r\nVALUE split 5 10\r\n01234\r6789\r\nEND\r\n\
                   CLIENT_ERROR cannot increment or decrement non-numeric value\r\nDELETED\r\nERROR\r\n";
    let mut client = server.connect();
    for at in 1..request.len() {
        client.send(&request[..at]);
        // An answer in between shows that the first part was read on its own.
        thread::yield_now();
        client.send(&request[at..]);
        client.expect(answer);
    }
    for byte in request {
        client.send([*byte]);
    }
    client.expect(answer);
}

#[test]
fn ten_thousand_commands_in_one_go_are_answered_in_order() {
    let server = Running::start("-t 1");
    let (mut request, mut answer) = (String::new(), String::new());
    for i in 0..5_000 {
        write!(request, "set k{i} 0 0 6\r\n{i:06}\r\nget k{i} k{}\r\n", i + 1).unwrap();
        write!(answer, "STORED\r\nVALUE k{i} 0 6\r\n{i:06}\r\nEND\r\n").unwrap();
    }
    let mut client = server.connect();
    let mut writer = Client(client.0.try_clone().unwrap());
    thread::scope(|scope| {
        scope.spawn(move || writer.send(request));
        client.expect(answer);
    });
}

/// Asks for 64 MiB by one command and for as much again by many, and reads nothing until all is sent. That is more than
/// sockets buffer, so the server must hold back, go on when there is room, and lose nothing.
#[test]
fn a_slow_reader_gets_everything_and_holds_up_nobody() {
    let server = Running::start("-t 1");
    let value = "v".repeat(1 << 20 >> 2);
    let mut client = server.connect();
    client.ask(format!("set big 0 0 {}\r\n{value}\r\n", value.len()), "STORED\r\n");
    client.send(format!("get{}\r\n", " big".repeat(256)));
    client.send("get big\r\n".repeat(256));

    let mut other = server.connect();
    for _ in 0..100 {
        other.ask("get nothing\r\n", "END\r\n");
    }

    let hit = format!("VALUE big 0 {}\r\n{value}\r\n", value.len());
    for _ in 0..256 {
        client.expect(&hit);
    }
    client.expect("END\r\n");
    for _ in 0..256 {
        client.expect(&hit);
        client.expect("END\r\n");
    }
    client.ask("version\r\n", "VERSION 1.6.45\r\n");
}

#[test]
fn a_fetch_that_pauses_counts_every_key_once() {
    let server = Running::start("-t 1");
    let mut client = server.connect();
    client.ask(format!("set k 0 0 100000\r\n{}\r\n", "x".repeat(100_000)), "STORED\r\n");
    client.send(format!("gat 0{} \r\nversion\r\n", "  k none".repeat(40)));
    for _ in 0..40 {
        client.expect(format!("VALUE k 0 100000\r\n{}\r\n", "x".repeat(100_000)));
    }
    client.expect("END\r\nVERSION 1.6.45\r\n");
    client.send("stats\r\n");
    let stats = String::from_utf8(client.read_until(b"END\r\n")).unwrap();
    for line in ["STAT cmd_touch 80\r\n", "STAT touch_hits 40\r\n", "STAT touch_misses 40\r\n"] {
        assert!(stats.contains(line), "{line} is missing in {stats}");
    }
}

#[test]
fn a_half_closed_client_gets_its_answers() {
    let server = Running::start("-t 1");
    let value = "v".repeat(1 << 20 >> 1);
    let mut client = server.connect();
    client.ask(format!("set big 0 0 {}\r\n{value}\r\n", value.len()), "STORED\r\n");
    client.send(format!("{}version\r\nget unfinished", "get big\r\n".repeat(64)));
    client.0.shutdown(Shutdown::Write).unwrap();
    for _ in 0..64 {
        client.expect(format!("VALUE big 0 {}\r\n{value}\r\nEND\r\n", value.len()));
    }
    client.expect("VERSION 1.6.45\r\n");
    client.expect_close();
}

#[test]
fn quit_closes_after_the_answers_before_it() {
    let server = Running::start("-t 1");
    let mut client = server.connect();
    client.ask("version\r\nquit\r\nversion\r\n", "VERSION 1.6.45\r\n");
    client.expect_close();
}

#[test]
fn a_line_without_end_is_cut_off() {
    let server = Running::start("-t 1");
    let mut client = server.connect();
    client.send(vec![b'x'; 3_000]);
    client.expect_close();
}

#[test]
fn connections_beyond_the_limit_are_refused_until_one_leaves() {
    let server = Running::start("-t 2 -c 3");
    let mut clients: Vec<Client> = (0..3).map(|_| server.connect()).collect();
    for client in &mut clients {
        client.ask("version\r\n", "VERSION 1.6.45\r\n");
    }
    let mut refused = server.connect();
    refused.expect("ERROR Too many open connections\r\n");
    refused.expect_close();

    clients[0].send("quit\r\n");
    clients[0].expect_close();
    server.connect().ask("version\r\n", "VERSION 1.6.45\r\n");
    clients[1].ask("quit\r\n", "");
    clients[1].expect_close();
    clients[2].send("stats\r\n");
    let stats = String::from_utf8(clients[2].read_until(b"END\r\n")).unwrap();
    assert!(stats.contains("STAT rejected_connections 1\r\n"), "{stats}");
}

#[test]
fn connections_beyond_the_limit_wait_if_told_to() {
    let server = Running::start("-t 1 -c 2 -o no_maxconns_fast");
    let mut clients: Vec<Client> = (0..2).map(|_| server.connect()).collect();
    for client in &mut clients {
        client.ask("version\r\n", "VERSION 1.6.45\r\n");
    }
    let mut waiting = server.connect();
    waiting.send("version\r\n");
    // It cannot be told from a slow one that it waits; that it was not accepted can.
    loop {
        clients[0].send("stats\r\n");
        let stats = String::from_utf8(clients[0].read_until(b"END\r\n")).unwrap();
        if stats.contains("STAT accepting_conns 0\r\n") {
            assert!(stats.contains("STAT total_connections 2\r\n"), "{stats}");
            assert!(stats.contains("STAT listen_disabled_num 1\r\n"), "{stats}");
            break;
        }
    }
    clients.pop().unwrap().send("quit\r\n");
    waiting.expect("VERSION 1.6.45\r\n");
}

/// A dump of 20 MB that nobody reads for a while: the server must hold back, and go on where it was.
#[test]
fn a_dump_waits_for_its_reader() {
    const ITEMS: usize = 100_000;
    let server = Running::start("-t 1");
    let mut client = server.connect();
    let key = |index| format!("{:0>200}", index);
    for batch in 0..ITEMS / 1000 {
        let mut request = String::new();
        for index in batch * 1000..(batch + 1) * 1000 {
            write!(request, "ms {} 1 q\r\nx\r\n", key(index)).unwrap();
        }
        client.ask(request + "mn\r\n", "MN\r\n");
    }
    client.send("lru_crawler mgdump all\r\n");
    let mut other = server.connect();
    other.ask("get nothing\r\n", "END\r\n");
    client.expect("OK\r\n");
    let mut lines = std::io::BufReader::new(&client.0).lines().map(|line| line.expect("the dump goes on"));
    let mut keys: Vec<String> = lines.by_ref().take_while(|line| line != "EN").collect();
    keys.sort_unstable();
    keys.dedup();
    assert_eq!(keys.len(), ITEMS);
    assert_eq!(keys[7], format!("mg {}", key(7)));
}

/// A watcher that reads nothing loses lines, and holds up nobody.
#[test]
fn a_slow_watcher_is_left_behind() {
    let server = Running::start("-t 1 -o watcher_logbuf_size=1");
    let mut watcher = server.connect();
    watcher.ask("watch fetchers\r\n", "OK\r\n");
    let mut client = server.connect();
    for _ in 0..100 {
        client.ask("mg nothing\r\n".repeat(1000), "EN\r\n".repeat(1000));
    }
    client.send("stats\r\n");
    let stats = String::from_utf8(client.read_until(b"END\r\n")).unwrap();
    let skipped = stats.lines().find_map(|line| line.strip_prefix("STAT log_watcher_skipped ")).unwrap();
    assert!(skipped.parse::<u64>().unwrap() > 0, "{stats}");
    drop(watcher);
    client.ask("version\r\n", "VERSION 1.6.45\r\n");
}

#[test]
fn busy_connections_let_others_go_first() {
    let server = Running::start("-t 1 -R 1");
    let mut clients: Vec<Client> = (0..2).map(|_| server.connect()).collect();
    for client in &mut clients {
        client.send("version\r\n".repeat(2_000));
    }
    for client in &mut clients {
        client.expect("VERSION 1.6.45\r\n".repeat(2_000));
    }
}

#[test]
fn idle_connections_are_cheap_and_all_are_served() {
    let server = Running::start("-t 3");
    let mut clients: Vec<Client> = (0..200).map(|_| server.connect()).collect();
    for (index, client) in clients.iter_mut().enumerate() {
        client.ask(format!("set k{index} 0 0 1\r\nx\r\n"), "STORED\r\n");
    }
    for (index, client) in clients.iter_mut().enumerate().rev() {
        client.ask(format!("delete k{index}\r\n"), "DELETED\r\n");
    }
}

#[test]
fn stopping_closes_connections_in_the_middle_of_work() {
    let mut server = Running::start("-t 2");
    let mut idle = server.connect();
    idle.ask("version\r\n", "VERSION 1.6.45\r\n");
    let mut busy = server.connect();
    busy.ask("set k 0 0 100000\r\n".to_owned() + &"x".repeat(100_000) + "\r\n", "STORED\r\n");
    busy.send("get k\r\n".repeat(1_000));
    let mut half = server.connect();
    half.send("set half 0 0 10\r\n0123");
    server.stop().expect("it was running").expect("it stops well");
    idle.expect_close();
    half.expect_close();
    assert!(std::net::TcpStream::connect(server.address).is_err(), "nobody listens any more");
}
