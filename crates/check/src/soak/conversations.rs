//! Tests that relativistd, in this process, passes with every configuration, and that faulty
//! servers are detected.

use std::io::{Read, Write};

use super::{Length, Plan, Replacement, Summary, soak};
use crate::faulty::Fault;
use crate::running::Running;

fn plan(clients: u16, batches: u64) -> Plan {
    let length = Length::Batches(batches);
    let replacement = Replacement::Never;
    Plan { prefix: "soak".into(), seed: 7, clients, keys: 300, length, others_flush: false, replacement }
}

/// Runs `soak` against a server with these flags. Limits values to 100 KiB, because the tests'
/// unoptimized code copies slowly.
fn soaked(flags: &str, batches: u64) -> Summary {
    let server = Running::start(&format!("{flags} -I 100k"));
    let summary =
        soak(&plan(8, batches), &server.address, None, None).unwrap_or_else(|fault| panic!("{flags}: {fault:#}"));
    assert!(summary.requests > 8 * batches * 10 && summary.resets > 0, "{flags}: {summary}");
    summary
}

/// Sends requests, and waits until the server has executed them: `reply` is all that it replies.
fn ask(server: &Running, requests: &[u8], reply: &[u8]) {
    let (mut socket, mut got) = (server.address.connect().unwrap(), vec![0; reply.len()]);
    socket.write_all(requests).unwrap();
    socket.read_exact(&mut got).unwrap();
    assert_eq!(got, reply);
}

/// The items need twice the server's memory.
#[test]
fn what_is_evicted_is_missing_and_nothing_else_is() {
    let summary = soaked("-m 8 --io epoll", 39);
    assert!(summary.evictions > 0 && summary.missing > 0, "{summary}");
    assert_eq!(summary.refusals, 0, "{summary}");
}

#[test]
fn nothing_is_missing_where_nothing_is_evicted() {
    let ample = soaked("-m 1024", 45);
    assert_eq!((ample.missing, ample.evictions, ample.refusals), (0, 0, 0), "{ample}");
    assert_eq!(ample.flushes, 1);
    let full = soaked("-m 8 -M --io epoll", 39);
    assert!(full.missing == 0 && full.evictions == 0 && full.refusals > 0, "{full}");
}

#[test]
fn servers_that_do_wrong_are_found_out() {
    let server = Running::start("-m 1024 -I 100k");
    for (fault, explanation) in [
        (Fault::Request(b"\nadd ", b"\nset "), "are missing"),
        (Fault::Request(b"\nappend ", b"\nprepend "), "a wrong value"),
        // The message depends on whether another client has seen the number in between.
        (Fault::Request(b"\nincr ", b"\ndecr "), "a wrong number|already"),
        (Fault::Request(b"\nincr soakcounter-", b"\ndecr soakcounter-"), "already"),
        (Fault::Request(b" MR O", b" MS O"), "there can be none"),
        (Fault::Request(b"\nmd ", b"\nmg "), "there can be none"),
        (Fault::Request(b" R20 ", b" R0 "), "the first client that asks must win the item"),
        (Fault::Request(b"\nmn\r\n", b"\nflush_all noreply\r\nmn\r\n"), "are missing"),
        (Fault::Request(b"\x80\x02\0", b"\x80\x01\0"), "a reply to another request"),
        (Fault::Request(b"\x80\x05\0", b"\x80\x06\0"), "a reply to another request"),
        (Fault::Reply(b"\r\nv", b"\r\nw"), "a wrong value"),
        (Fault::Reply(b"\r\nm", b"\r\nn"), "not written by any client"),
        (Fault::Reply(b"\nSTORED\r\n", b"\nEXISTS\r\n"), "not a possible reply"),
        (Fault::Reply(b"\nMN\r\n", b"\nMN\r\nMN\r\n"), "too many"),
        // CAS values start at a random number, so the proxy adds a digit in front instead of
        // replacing one.
        (Fault::Reply(b" c", b" c9"), "CAS value"),
        (Fault::Reply(b" t-1 ", b" t7 "), "a wrong time to live"),
        (Fault::Reply(b" Z\r\n", b" W\r\n"), "wrong claimed flag"),
        (Fault::Reply(b" X W\r\n", b" W\r\n"), "wrong stale flag"),
    ] {
        let wrong = match fault {
            Fault::Request(from, to) => format!("{} is heard as {}", from.escape_ascii(), to.escape_ascii()),
            Fault::Reply(from, to) => format!("{} is said as {}", from.escape_ascii(), to.escape_ascii()),
        };
        let found = soak(&plan(3, 200), &fault.of(&server.address), None, None).map(|summary| summary.to_string());
        let found = found.expect_err(&wrong).to_string();
        let is_explained = explanation.split('|').any(|explanation| found.contains(explanation));
        assert!(is_explained, "{wrong}: {found}");
        // Items of one faulty server must not remain for the next one.
        ask(&server, b"flush_all\r\n", b"OK\r\n");
    }
}

/// Only a server that is replaced may close connections, and then another process serves.
#[test]
fn a_server_that_closes_connections_is_found_out() {
    let server = Running::start("-m 1024 -I 100k");
    let fault = Fault::Request(b"\nmn\r\n", b"\nquit\r\n");
    for (replacement, explanation) in
        [(Replacement::Never, "the server closed the connection"), (Replacement::Elsewhere, "but was not replaced")]
    {
        let plan = Plan { replacement, ..plan(3, 200) };
        let found = soak(&plan, &fault.of(&server.address), None, None).map(|summary| summary.to_string());
        let found = found.expect_err(explanation).to_string();
        assert!(found.contains(explanation), "{found}");
        ask(&server, b"flush_all\r\n", b"OK\r\n");
    }
}

/// Items are lost while others are evicted. The evictions do not excuse the loss.
#[test]
fn what_is_lost_among_evictions_is_found_out() {
    let server = Running::start("-m 8 -I 100k");
    // Fills the memory, so that evictions begin with the first request.
    let mut filler = Vec::new();
    for index in 0..400 {
        write!(filler, "set filler{index} 0 0 50000 noreply\r\n{:50000}\r\n", "").unwrap();
    }
    filler.extend(b"mn\r\n");
    ask(&server, &filler, b"MN\r\n");
    let fault = Fault::Request(
        b"\nmn\r\n",
        b"\ndelete soak1-0-0 noreply\r\ndelete soak1-1-0 noreply\r\ndelete soak1-2-0 noreply\r\nmn\r\n",
    );
    let found = soak(&plan(8, 39), &fault.of(&server.address), None, None).map(|summary| summary.to_string());
    let found = found.expect_err("items are lost").to_string();
    let evictions = server.address.statistics("stats").unwrap()["evictions"].parse::<u64>().unwrap();
    assert!(found.contains("not evicted") && evictions > 100, "{evictions} evictions: {found}");
}

#[test]
fn requests_follow_from_the_seed() {
    let drawn = |seed| {
        let plan = Plan { seed, ..plan(1, 1) };
        let common = super::shared::Common::new(&plan, 1 << 20, 1 << 20);
        let slots: Vec<super::model::Slot> = (0..100).map(|_| super::model::Slot::default()).collect();
        let mut draw = super::draw::Draw::new(seed, 0);
        draw.begin(0, 1_000);
        (0..100).map(|_| format!("{:?}", draw.draw(false, &slots, &common))).collect::<Vec<_>>()
    };
    assert_eq!(drawn(1), drawn(1));
    assert_ne!(drawn(1), drawn(2));
}
