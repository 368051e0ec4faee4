//! Tests of connections: split requests, batches, slow readers, closes, limits.

use crate::harness::{Client, Io, connect_to, on_each_backend, stat};
use relativist_testing::wait_until;
use relativistd::{Options, Server};
use std::fmt::Write as _;
use std::io::{BufRead as _, ErrorKind, Read as _, Write as _};
use std::net::{Shutdown, TcpStream};
use std::thread;

on_each_backend! {
    draining_lets_clients_finish_and_accepts_no_others
    clients_that_wait_when_the_server_drains_are_served
    a_drain_can_be_cut_short
    a_conversation_survives_any_split
    ten_thousand_commands_in_one_go_are_answered_in_order
    gets_see_the_stores_before_them_and_no_later_ones
    a_slow_reader_gets_everything_and_delays_no_other_client
    requests_behind_unread_replies_are_not_buffered
    a_fetch_that_pauses_counts_every_key_once
    a_fetch_of_many_misses_pauses
    a_half_closed_client_gets_its_replies
    quit_closes_after_the_replies_before_it
    a_line_without_end_is_cut_off
    connections_beyond_the_limit_are_refused_until_one_leaves
    connections_beyond_the_limit_wait_if_configured
    a_dump_waits_for_its_reader
    a_slow_watcher_loses_lines
    watchers_see_connections_close_at_the_end
    busy_connections_yield_to_others
    idle_connections_are_cheap_and_all_are_served
    many_clients_are_served_at_once
    stopping_closes_busy_connections
    slow_connections_hold_bounded_memory
}

fn draining_lets_clients_finish_and_accepts_no_others(io: Io) {
    let mut server = io.start("-t 1 --drain 600 --admin 0");
    let mut client = server.connect();
    client.ask("mn\r\n", "MN\r\n");
    server.drain();
    // Until the listener is closed, the kernel may still accept a connection, which the server then
    // closes.
    wait_until("a refused connection", || {
        TcpStream::connect(server.address).is_err_and(|error| error.kind() == ErrorKind::ConnectionRefused)
    });
    client.ask("set a 0 0 1\r\nx\r\n", "STORED\r\n");
    assert_eq!(crate::admin::ask(&server, "GET /readyz HTTP/1.1\r\n\r\n"), (503, "stopping\n".into()));
    assert_eq!(crate::admin::ask(&server, "GET /healthz HTTP/1.1\r\n\r\n"), (200, "ok\n".into()));
    drop(client);
    server.wait().expect("the server stops when the last client has left");
}

fn clients_that_wait_when_the_server_drains_are_served(io: Io) {
    const CLIENTS: usize = 300;
    let line = format!("relativistd -p -1 -t 1 --drain 600 {}", io.flag());
    let server = Server::bind(&Options::parse_from_args(line.split(' ')).unwrap()).unwrap();
    // The clients are connected, but wait in the kernel's queue until the server accepts them.
    let mut clients: Vec<_> = (0..CLIENTS).map(|_| Client(connect_to(server.addresses()[0]))).collect();
    server.stopper().drain();
    thread::scope(|scope| {
        let running = scope.spawn(|| server.run());
        for client in &mut clients {
            client.ask("mn\r\n", "MN\r\n");
        }
        drop(clients);
        running.join().unwrap().expect("the server stops when the last client has left");
    });
}

fn a_drain_can_be_cut_short(io: Io) {
    let mut server = io.start("-t 1 --drain 600");
    let mut client = server.connect();
    client.ask("mn\r\n", "MN\r\n");
    server.drain();
    client.ask("mn\r\n", "MN\r\n");
    server.stop().expect("the server was running").expect("the server stops");
    client.expect_close();
}

fn a_conversation_survives_any_split(io: Io) {
    let server = io.start("-t 1");
    let request = b"set split 5 0 10\r\n01234\r6789\r\nget split none\r\nincr split 1\r\ndelete split\r\nbogus\r\n";
    let reply = b"STORED\r\nVALUE split 5 10\r\n01234\r6789\r\nEND\r\n\
                   CLIENT_ERROR cannot increment or decrement non-numeric value\r\nDELETED\r\nERROR\r\n";
    let mut client = server.connect();
    for at in 1..request.len() {
        client.send(&request[..at]);
        // Yield, so that the server may read the first part separately.
        thread::yield_now();
        client.send(&request[at..]);
        client.expect(reply);
    }
    for byte in request {
        client.send([*byte]);
    }
    client.expect(reply);
}

fn ten_thousand_commands_in_one_go_are_answered_in_order(io: Io) {
    let server = io.start("-t 1");
    let (mut request, mut reply) = (String::new(), String::new());
    for i in 0..5_000 {
        write!(request, "set k{i} 0 0 6\r\n{i:06}\r\nget k{i} k{}\r\n", i + 1).unwrap();
        write!(reply, "STORED\r\nVALUE k{i} 0 6\r\n{i:06}\r\nEND\r\n").unwrap();
    }
    let mut client = server.connect();
    let mut writer = Client(client.0.try_clone().unwrap());
    thread::scope(|scope| {
        scope.spawn(move || writer.send(request));
        client.expect(reply);
    });
}

/// The server looks up keys of several requests at once, but executes the requests in order.
fn gets_see_the_stores_before_them_and_no_later_ones(io: Io) {
    let server = io.start("-t 1");
    let (mut request, mut reply, mut gets) = (String::new(), String::new(), 0);
    for i in 0..400 {
        write!(request, "set k 0 0 3\r\n{i:03}\r\n").unwrap();
        reply.push_str("STORED\r\n");
        for n in 0..i % 71 {
            let (command, hit) = match n % 5 {
                0 => ("get none", ""),
                1 if n % 3 == 0 => ("get none k", "VALUE k 0 3\r\n{}\r\n"),
                2 if n % 7 == 0 => ("gets none", ""),
                _ => ("get k", "VALUE k 0 3\r\n{}\r\n"),
            };
            gets += command.split(' ').count() - 1;
            write!(request, "{command}\r\n").unwrap();
            write!(reply, "{}END\r\n", hit.replace("{}", &format!("{i:03}"))).unwrap();
        }
    }
    let mut client = server.connect();
    let mut writer = Client(client.0.try_clone().unwrap());
    thread::scope(|scope| {
        scope.spawn(move || writer.send(request));
        client.expect(reply);
    });
    assert_eq!(stat(&mut client, "cmd_get"), gets as u64);
}

/// The client requests 64 MiB with one command, and 64 MiB with many commands, and reads nothing
/// until it has sent all of them. The sockets cannot buffer this, so the server must pause,
/// continue when there is room, and lose nothing.
fn a_slow_reader_gets_everything_and_delays_no_other_client(io: Io) {
    let server = io.start("-t 1");
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

/// Four megabytes of requests from a client that reads no replies: most of them wait.
fn requests_behind_unread_replies_are_not_buffered(io: Io) {
    let server = io.start("-t 1");
    let value = "v".repeat(250_000);
    let mut client = server.connect();
    client.ask(format!("set big 0 0 {}\r\n{value}\r\n", value.len()), "STORED\r\n");
    let ahead = format!("set k 0 0 1000 noreply\r\n{}\r\n", &value[..1_000]).repeat(4_000);
    let mut writer = Client(client.0.try_clone().unwrap());
    let mut other = server.connect();
    thread::scope(|scope| {
        scope.spawn(move || writer.send(format!("{}{ahead}version\r\n", "get big\r\n".repeat(64))));
        for _ in 0..100 {
            let held = stat(&mut other, "read_buf_bytes");
            assert!(held <= 2 << 20, "{held}");
        }
        for _ in 0..64 {
            client.expect(format!("VALUE big 0 {}\r\n{value}\r\nEND\r\n", value.len()));
        }
        client.expect("VERSION 1.6.45\r\n");
    });
}

fn a_fetch_that_pauses_counts_every_key_once(io: Io) {
    let server = io.start("-t 1");
    let mut client = server.connect();
    client.ask(format!("set k 0 0 100000\r\n{}\r\n", "x".repeat(100_000)), "STORED\r\n");
    client.send(format!("gat 0{} \r\nversion\r\n", "  k none".repeat(40)));
    for _ in 0..40 {
        client.expect(format!("VALUE k 0 100000\r\n{}\r\n", "x".repeat(100_000)));
    }
    client.expect("END\r\nVERSION 1.6.45\r\n");
    let counts = ["cmd_touch", "touch_hits", "touch_misses"].map(|name| stat(&mut client, name));
    assert_eq!(counts, [80, 40, 40]);
}

/// Misses produce no output, but take time.
fn a_fetch_of_many_misses_pauses(io: Io) {
    let server = io.start("-t 1");
    let mut client = server.connect();
    client.ask("set k 0 0 1\r\nx\r\n", "STORED\r\n");
    client.ask(format!("get{} k\r\n", " none".repeat(5_000)), "VALUE k 0 1\r\nx\r\nEND\r\n");
    assert_eq!(stat(&mut client, "cmd_get"), 5001);
}

fn a_half_closed_client_gets_its_replies(io: Io) {
    let server = io.start("-t 1");
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

fn quit_closes_after_the_replies_before_it(io: Io) {
    let server = io.start("-t 1");
    let mut client = server.connect();
    client.ask("version\r\nquit\r\nversion\r\n", "VERSION 1.6.45\r\n");
    client.expect_close();
}

fn a_line_without_end_is_cut_off(io: Io) {
    let server = io.start("-t 1");
    let mut client = server.connect();
    client.send(vec![b'x'; 3_000]);
    client.expect_close();
}

fn connections_beyond_the_limit_are_refused_until_one_leaves(io: Io) {
    let server = io.start("-t 2 -c 3");
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
    assert_eq!(stat(&mut clients[2], "rejected_connections"), 1);
}

fn connections_beyond_the_limit_wait_if_configured(io: Io) {
    let server = io.start("-t 1 -c 2 -o no_maxconns_fast");
    let mut clients: Vec<Client> = (0..2).map(|_| server.connect()).collect();
    for client in &mut clients {
        client.ask("version\r\n", "VERSION 1.6.45\r\n");
    }
    let mut waiting = server.connect();
    waiting.send("version\r\n");
    // A client that waits cannot be distinguished from a slow one, but the statistics show that it
    // was not accepted.
    wait_until("a client that waits", || stat(&mut clients[0], "accepting_conns") == 0);
    assert_eq!(stat(&mut clients[0], "total_connections"), 2);
    assert_eq!(stat(&mut clients[0], "listen_disabled_num"), 1);
    clients.pop().unwrap().send("quit\r\n");
    waiting.expect("VERSION 1.6.45\r\n");
}

/// The client does not read a dump of 6 MB for a while. The server must pause, and continue later.
fn a_dump_waits_for_its_reader(io: Io) {
    const ITEMS: usize = 30_000;
    let server = io.start("-t 1");
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
    let mut lines = std::io::BufReader::new(&client.0).lines().map(|line| line.expect("the dump continues"));
    let mut keys: Vec<String> = lines.by_ref().take_while(|line| line != "EN").collect();
    keys.sort_unstable();
    keys.dedup();
    assert_eq!(keys.len(), ITEMS);
    assert_eq!(keys[7], format!("mg {}", key(7)));
}

/// A watcher that reads nothing loses lines, and delays no other client. When it reads again, it
/// gets the number of lost lines, and further ones.
fn a_slow_watcher_loses_lines(io: Io) {
    let server = io.start("-t 1 -o watcher_logbuf_size=1");
    let mut watcher = server.connect();
    watcher.ask("watch fetchers\r\n", "OK\r\n");
    let mut client = server.connect();
    let list = client.list("stats conns");
    assert!(list.contains(":state conn_watch\r\n"), "{list}");
    let mut published = 0;
    while stat(&mut client, "log_watcher_skipped") == 0 {
        client.ask("mg nothing\r\n".repeat(1000), "EN\r\n".repeat(1000));
        published += 1000;
    }
    let reader = thread::spawn(move || {
        let (mut received, mut skipped) = (0, 0);
        for line in std::io::BufReader::new(watcher.0).lines().map(|line| line.expect("the lines go on")) {
            match line.strip_prefix("skipped=") {
                Some(number) => skipped += number.parse::<u64>().unwrap(),
                None => received += 1,
            }
            if let Some((_, end)) = line.split_once(" key=end_") {
                let end: u64 = end.split(' ').next().unwrap().parse().unwrap();
                return (received, skipped, end);
            }
        }
        panic!("the watcher is closed")
    });
    for end in (published + 1).. {
        client.ask(format!("mg end_{end}\r\n"), "EN\r\n");
        if reader.is_finished() {
            break;
        }
    }
    let (received, skipped, end) = reader.join().unwrap();
    assert!(skipped > 0 && received + skipped == end, "{received} and {skipped} of {end} lines");
}

/// This holds for a stop from outside and for a `shutdown` command, and for a watcher on any
/// worker.
fn watchers_see_connections_close_at_the_end(io: Io) {
    for command in [None, Some("shutdown graceful\r\n")] {
        let mut server = io.start("-t 2 -A");
        let mut watcher = server.connect();
        watcher.ask("watch connevents\r\n", "OK\r\n");
        let mut clients = [server.connect(), server.connect()];
        for client in &mut clients {
            client.ask("version\r\n", "VERSION 1.6.45\r\n");
        }
        match command {
            None => server.stop().unwrap().unwrap(),
            Some(command) => {
                clients[0].send(command);
                server.wait().unwrap();
            }
        }
        let mut events = String::new();
        watcher.0.read_to_string(&mut events).unwrap();
        for client in &clients {
            let port = client.0.local_addr().unwrap().port();
            let event = format!("type=conn_close rip=127.0.0.1 rport={port} transport=tcp reason=shutdown cfd=");
            assert!(events.contains(&event), "{events}");
        }
    }
}

fn busy_connections_yield_to_others(io: Io) {
    let server = io.start("-t 1 -R 1");
    let mut clients: Vec<Client> = (0..2).map(|_| server.connect()).collect();
    for client in &mut clients {
        client.send("version\r\n".repeat(2_000));
    }
    for client in &mut clients {
        client.expect("VERSION 1.6.45\r\n".repeat(2_000));
    }
}

fn idle_connections_are_cheap_and_all_are_served(io: Io) {
    let server = io.start("-t 3");
    let mut clients: Vec<Client> = (0..200).map(|_| server.connect()).collect();
    for (index, client) in clients.iter_mut().enumerate() {
        client.ask(format!("set k{index} 0 0 1\r\nx\r\n"), "STORED\r\n");
    }
    for (index, client) in clients.iter_mut().enumerate().rev() {
        client.ask(format!("delete k{index}\r\n"), "DELETED\r\n");
    }
    let list = clients[0].list("stats conns");
    assert_eq!(list.matches(":listen_addr ").count(), 200);
    assert_eq!(list.matches(" conn_listening\r\n").count(), 1);
}

/// More data arrives at once than the server's receive buffers hold.
fn many_clients_are_served_at_once(io: Io) {
    let server = io.start("-t 1");
    let mut clients: Vec<Client> = (0..300).map(|_| server.connect()).collect();
    let value = "v".repeat(20_000);
    for (index, client) in clients.iter_mut().enumerate() {
        client.send(format!("set k{index} 0 0 {}\r\n{value}\r\n", value.len()));
    }
    for client in &mut clients {
        client.expect("STORED\r\n");
    }
    for (index, client) in clients.iter_mut().enumerate() {
        client.ask(format!("get k{index}\r\n"), format!("VALUE k{index} 0 {}\r\n{value}\r\nEND\r\n", value.len()));
    }
}

fn stopping_closes_busy_connections(io: Io) {
    let mut server = io.start("-t 2");
    let mut idle = server.connect();
    idle.ask("version\r\n", "VERSION 1.6.45\r\n");
    let mut busy = server.connect();
    busy.ask("set k 0 0 100000\r\n".to_owned() + &"x".repeat(100_000) + "\r\n", "STORED\r\n");
    busy.send("get k\r\n".repeat(1_000));
    let mut half = server.connect();
    half.send("set half 0 0 10\r\n0123");
    server.stop().expect("the server was running").expect("the server stops without an error");
    idle.expect_close();
    half.expect_close();
    assert!(std::net::TcpStream::connect(server.address).is_err(), "the server still listens");
}

/// Hundreds of clients stop in the middle of a value, or do not read their replies. Each makes the
/// server hold up to a megabyte; the limit for all of them is 8 MB. Clients that hold little
/// memory, and idle clients, stay connected.
fn slow_connections_hold_bounded_memory(io: Io) {
    const SLOW: usize = 200;
    let server = io.start("-t 2 -c 1000 -o read_buf_mem_limit=8");
    let mut idle = server.connect();
    let mut modest: Vec<Client> = (0..50).map(|_| server.connect()).collect();
    for (index, client) in modest.iter_mut().enumerate() {
        client.send(format!("version\r\nset modest{index} 0 0 9\r\n0123"));
        client.expect("VERSION 1.6.45\r\n");
    }
    let value = "v".repeat(250_000);
    idle.ask(format!("set big 0 0 {}\r\n{value}\r\n", value.len()), "STORED\r\n");
    let mut slow = Vec::new();
    for index in 0..SLOW {
        let mut client = server.connect();
        let request = match index % 2 {
            0 => format!("set slow{index} 0 0 1000000\r\n{}", &value[..200_000]),
            _ => "get big\r\n".repeat(100),
        };
        // The server may close the connection before it has read everything.
        let _ = client.0.write_all(request.as_bytes());
        slow.push(client);
    }
    let held = |client: &mut Client| stat(client, "read_buf_bytes") + stat(client, "response_obj_bytes");
    // The last requests may not have arrived yet.
    wait_until("closed connections", || stat(&mut idle, "read_buf_oom") >= SLOW as u64 / 4);
    let bytes = held(&mut idle);
    assert!(bytes > 1 << 20 && bytes < 2 * (8 << 20), "{bytes}");
    for client in &mut modest {
        client.ask("45678\r\n", "STORED\r\n");
    }
    // Replies in flight to honest clients do not take the place of those that nobody reads.
    for _ in 0..20 {
        modest.iter_mut().for_each(|client| client.send("set small 0 0 1 noreply\r\nx\r\nget small\r\n"));
        modest.iter_mut().for_each(|client| client.expect("VALUE small 0 1\r\nx\r\nEND\r\n"));
    }
    drop(slow);
    wait_until("free buffers", || held(&mut idle) < 1 << 20);
    idle.ask("get big\r\n", format!("VALUE big 0 {}\r\n{value}\r\nEND\r\n", value.len()));
}
