//! Statistics and watchers, as far as the transcripts do not show them.

use crate::harness::{Client, Running, stats};
use relativist_testing::{patience, poll, wait_until};
use std::collections::HashMap;
use std::fmt::Write as _;
use std::io::Read as _;
use std::net::UdpSocket;

fn number(client: &mut Client, group: &str, name: &str) -> u64 {
    let stats: HashMap<String, String> = stats(client, group).into_iter().collect();
    stats[name].parse().unwrap()
}

#[test]
fn commands_move_the_counters() {
    let server = Running::start("-t 1 --debug-time");
    let mut client = server.connect();
    let before = stats(&mut client, "");
    client.send(
        "set a 0 0 1\r\n1\r\nget a\r\nget a none\r\ngets none\r\nadd a 0 0 1\r\nx\r\nappend a 0 0 1\r\n2\r\n\
         incr a 1\r\nincr none 1\r\ndecr a 1\r\ndecr none 1\r\ndecr none 1\r\ndelete none\r\ntouch a 0\r\n\
         gat 0 a none\r\ncas a 0 0 1 0\r\nx\r\ncas none 0 0 1 0\r\nx\r\nset gone 0 -1 1\r\nx\r\nget gone\r\n\
         flush_all\r\nflush_all x\r\nget a\r\nset b 0 0 1\r\nx\r\ndelete b\r\nset c 0 0 2000000\r\n",
    );
    client.send(vec![b'x'; 2_000_002]);
    client.read_until(b"SERVER_ERROR object too large for cache\r\n");
    let wanted = [
        ("cmd_get", 6),
        ("cmd_set", 7),
        ("cmd_flush", 2),
        ("cmd_touch", 3),
        ("get_hits", 2),
        ("get_misses", 4),
        ("get_expired", 1),
        ("get_flushed", 1),
        ("delete_misses", 1),
        ("delete_hits", 1),
        ("incr_misses", 1),
        ("incr_hits", 1),
        ("decr_misses", 2),
        ("decr_hits", 1),
        ("cas_misses", 1),
        ("cas_hits", 0),
        ("cas_badval", 1),
        ("touch_hits", 2),
        ("touch_misses", 1),
        ("store_too_large", 1),
        ("store_no_memory", 0),
        ("total_connections", 1),
        ("curr_connections", 1),
        ("total_items", 4),
        ("curr_items", 0),
        ("bytes", 0),
    ];
    for (name, value) in wanted {
        assert_eq!(number(&mut client, "", name), value, "{name}");
    }
    assert!(number(&mut client, "", "bytes_read") > 2_000_000);

    client.ask("stats reset\r\n", "RESET\r\n");
    assert_eq!(number(&mut client, "", "cmd_get"), 0);
    assert_eq!(number(&mut client, "", "curr_connections"), 1);
    assert_eq!(before.len(), stats(&mut client, "").len());
}

/// The counters that requests of the meta and binary protocols change.
const COUNTERS: [&str; 19] = [
    "cmd_get",
    "cmd_set",
    "cmd_touch",
    "cmd_meta",
    "get_hits",
    "get_misses",
    "get_expired",
    "delete_misses",
    "delete_hits",
    "incr_misses",
    "incr_hits",
    "decr_misses",
    "decr_hits",
    "cas_misses",
    "cas_hits",
    "cas_badval",
    "touch_hits",
    "touch_misses",
    "total_items",
];

/// Sends each request, and expects that it adds one to these counters and nothing to the others.
/// The replies end with that to `no_operation`.
fn expect_counts(client: &mut Client, observer: &mut Client, no_operation: [&[u8]; 2], cases: &[(Vec<u8>, &str)]) {
    let mut counters = || {
        let all: HashMap<String, String> = stats(observer, "").into_iter().collect();
        COUNTERS.map(|name| all[name].parse::<u64>().unwrap())
    };
    let mut before = counters();
    for (request, wanted) in cases {
        client.send([request.as_slice(), no_operation[0]].concat());
        client.read_until(no_operation[1]);
        let after = counters();
        let changed = COUNTERS.iter().enumerate().filter(|(index, _)| after[*index] != before[*index]);
        let changed: Vec<_> = changed.map(|(_, name)| *name).collect();
        assert_eq!(changed.join(" "), *wanted, "{}", request[..request.len().min(40)].escape_ascii());
        before = after;
    }
}

#[test]
fn each_meta_command_moves_its_counters() {
    let server = Running::start("-t 1");
    let (mut client, mut observer) = (server.connect(), server.connect());
    let cases = [
        ("ms a 1\r\n1\r\n", "cmd_set total_items"),
        ("ms a 1\r\n123", "cmd_set"),
        ("ms a 1 z\r\n1\r\n", ""),
        ("ms a 1 C1\r\n1\r\n", "cmd_set cas_badval"),
        ("ms none 1 C1\r\n1\r\n", "cmd_set cas_misses"),
        ("ms a 1 C1 MA\r\n1\r\n", "cmd_set"),
        ("ms a 1 ME\r\n1\r\n", "cmd_set"),
        ("ms none 1 MR\r\n1\r\n", "cmd_set"),
        ("ms a 1 E5\r\n1\r\n", "cmd_set total_items"),
        ("ms a 1 C5\r\n1\r\n", "cmd_set cas_hits total_items"),
        ("mg a\r\n", "cmd_get get_hits"),
        ("mg a u q\r\n", "cmd_get get_hits"),
        ("mg none\r\n", "cmd_get get_misses"),
        ("mg a T0\r\n", "cmd_touch touch_hits"),
        ("mg none T0\r\n", "cmd_get get_misses"),
        ("mg b N30\r\n", "cmd_get get_hits total_items"),
        ("mg c N30 T50\r\n", "cmd_touch touch_hits total_items"),
        ("mg c N30 T50\r\n", "cmd_touch touch_hits"),
        ("ms gone 1 T-1\r\n1\r\n", "cmd_set total_items"),
        ("mg gone N30\r\n", "cmd_get get_hits get_expired total_items"),
        ("ms gone 1 T-1\r\n1\r\n", "cmd_set total_items"),
        ("mg gone T30\r\n", "cmd_get get_misses get_expired"),
        ("me a\r\n", "cmd_meta"),
        ("me none\r\n", "cmd_meta"),
        ("ma a\r\n", "incr_hits"),
        ("ma a MD\r\n", "decr_hits"),
        ("ma none\r\n", "incr_misses"),
        ("ma none MD\r\n", "decr_misses"),
        ("ma d N0\r\n", "total_items"),
        ("ma e N0 MD\r\n", "total_items"),
        ("ma a C1\r\n", ""),
        ("ma b\r\n", ""),
        ("md a C1\r\n", "delete_misses"),
        ("md none C1\r\n", "delete_misses"),
        ("md a I\r\n", ""),
        ("md a x\r\n", "total_items"),
        ("md a\r\n", "delete_hits"),
        ("md a\r\n", "delete_misses"),
    ];
    let cases = cases.map(|(request, counters)| (request.into(), counters));
    expect_counts(&mut client, &mut observer, [b"mn\r\n", b"MN\r\n"], &cases);
}

#[test]
fn each_binary_command_moves_its_counters() {
    let server = Running::start("-t 1");
    let (mut client, mut observer) = (server.connect(), server.connect());
    let packet = |opcode: u8, cas: u8, key: &str, extras: &[u8], value: &[u8]| {
        let (key_len, extras_len) = (key.len() as u8, extras.len() as u8);
        let body = (key.len() + extras.len() + value.len()) as u32;
        let front = [0x80, opcode, 0, key_len, extras_len, 0, 0, 0];
        let back = [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, cas];
        [&front[..], &body.to_be_bytes(), &back, extras, key.as_bytes(), value].concat()
    };
    let (plain, large) = ([0; 8], vec![b'x'; 1 << 20]);
    let count = |exptime: [u8; 4]| [&1_u64.to_be_bytes()[..], &[0; 8], &exptime].concat();
    let (creates, never) = (count([0; 4]), count([0xff; 4]));
    let cases = [
        (packet(0x01, 0, "a", &plain, b"1"), "cmd_set total_items"),
        (packet(0x02, 0, "a", &plain, b"1"), "cmd_set"),
        (packet(0x03, 0, "none", &plain, b"1"), "cmd_set"),
        (packet(0x01, 1, "a", &plain, b"1"), "cmd_set cas_badval"),
        (packet(0x02, 1, "a", &plain, b"1"), "cmd_set cas_badval"),
        (packet(0x03, 1, "none", &plain, b"1"), "cmd_set cas_misses"),
        (packet(0x0e, 0, "a", b"", b"1"), "cmd_set total_items"),
        (packet(0x0e, 0, "none", b"", b"1"), "cmd_set"),
        (packet(0x0e, 1, "a", b"", b"1"), "cmd_set"),
        (packet(0x01, 0, "a", &plain, &large), ""),
        (packet(0x01, 0, "a", &plain, &large[..(1 << 20) - 59]), ""),
        (packet(0x01, 0, "a", &plain, b"1"), "cmd_set total_items"),
        (packet(0x00, 0, "a", b"", b""), "cmd_get get_hits"),
        (packet(0x0c, 0, "none", b"", b""), "cmd_get get_misses"),
        (packet(0x1c, 0, "a", &[0; 4], b""), "cmd_touch touch_hits"),
        (packet(0x1d, 0, "none", &[0; 4], b""), "cmd_touch touch_misses"),
        (packet(0x05, 0, "a", &creates, b""), "incr_hits"),
        (packet(0x06, 0, "a", &creates, b""), "decr_hits"),
        (packet(0x05, 0, "none", &never, b""), "incr_misses"),
        (packet(0x06, 0, "none", &never, b""), "decr_misses"),
        (packet(0x05, 0, "b", &creates, b""), "total_items"),
        (packet(0x06, 0, "c", &creates, b""), "total_items"),
        (packet(0x05, 1, "a", &creates, b""), ""),
        (packet(0x04, 1, "a", b"", b""), ""),
        (packet(0x04, 1, "none", b"", b""), "delete_misses"),
        (packet(0x04, 0, "a", b"", b""), "delete_hits"),
        (packet(0x04, 0, "a", b"", b""), "delete_misses"),
    ];
    let no_operation = packet(0x0a, 0, "", b"", b"");
    expect_counts(
        &mut client,
        &mut observer,
        [&no_operation, b"\x81\x0a\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0"],
        &cases,
    );
}

/// Each protocol's commands count as reads or writes of their keys, with the bytes of the values.
#[test]
fn hot_keys_are_ranked_with_their_bytes() {
    let server = Running::start("-t 1 --hot-keys clear --debug-time");
    let mut client = server.connect();
    client.ask("debugtime p\r\n", "OK\r\n");
    client.ask("set a 0 0 4\r\n1234\r\nms a\\x 2\r\nhi\r\nincr a 1\r\n", "STORED\r\nHD\r\n1235\r\n");
    client.ask("delete b\r\nma a\r\n", "NOT_FOUND\r\nHD\r\n");
    client.ask("get a a b\r\nget a\r\n", "VALUE a 0 4\r\n1236\r\n".repeat(2) + "END\r\nVALUE a 0 4\r\n1236\r\nEND\r\n");
    client.ask(
        "mg b\r\ntouch b 0\r\nmg a s v\r\ngat 0 a\r\n",
        "EN\r\nNOT_FOUND\r\nVA 4 s4\r\n1236\r\nVALUE a 0 4\r\n1236\r\nEND\r\n",
    );
    let stats = stats(&mut client, "hotkeys");
    let value = |name: &str| {
        let found = stats.iter().find(|(stat, _)| stat == name);
        found.unwrap_or_else(|| panic!("{name} is not in {stats:?}")).1.as_str()
    };
    assert_eq!((value("hot_keys"), value("read:seconds")), ("clear", "1"));
    for (kind, rank, wanted) in [
        ("read", 1, ["a", "5", "20", "0.6250"]),
        ("read", 2, ["b", "3", "0", "0.3750"]),
        ("write", 1, ["a", "3", "4", "0.6000"]),
    ] {
        let fields = ["key", "per_second", "bytes_per_second", "share"];
        assert_eq!(fields.map(|field| value(&format!("{kind}:{rank}:{field}"))), wanted, "{kind} {rank}");
    }
    assert_eq!((value("read:per_second"), value("write:per_second")), ("8", "5"));
    assert_eq!(stats.len(), 1 + 2 * 2 + 4 * 5);
}

#[test]
fn hot_keys_show_hashes_by_default_and_nothing_if_they_are_off() {
    let server = Running::start("-t 1");
    let mut client = server.connect();
    client.ask("get secret\r\n", "END\r\n");
    let stats: HashMap<String, String> = stats(&mut client, "hotkeys").into_iter().collect();
    assert_eq!(stats["hot_keys"], "hashed");
    let hash = &stats["read:1:key"];
    assert!(hash.len() == 16 && hash.bytes().all(|byte| byte.is_ascii_hexdigit()), "{hash}");
    assert!(stats.values().all(|value| value != "secret"));
    let server = Running::start("-t 1 --hot-keys off");
    server.connect().ask("get secret\r\nstats hotkeys\r\n", "END\r\nSTAT hot_keys off\r\nEND\r\n");
}

#[test]
fn evictions_are_counted_and_watched() {
    let server = Running::start("-t 1 -m 8");
    let (mut client, mut watcher) = (server.connect(), server.connect());
    watcher.ask("watch evictions\r\n", "OK\r\n");
    let value = "v".repeat(100_000);
    for index in 0..200 {
        client.send(format!("set key{index} 0 1000 {}\r\n{value}\r\n", value.len()));
        client.expect("STORED\r\n");
    }
    let line = String::from_utf8(watcher.read_until(b" size=100000\n")).unwrap();
    let (_, event) = line.split_once(" type=").unwrap();
    assert!(event.starts_with("eviction key=key") && event.contains(" fetch=no ttl="), "{line}");
    // The background may still be evicting items between two counts.
    let evictions = poll("equal counts of evictions", || {
        let counts = [
            ("", "evictions"),
            ("", "evicted_unfetched"),
            ("items", "items:1:evicted"),
            ("items", "items:1:evicted_nonzero"),
        ]
        .map(|(group, name)| number(&mut client, group, name));
        counts.iter().all(|count| *count == counts[0]).then_some(counts[0])
    });
    assert!((100..200).contains(&evictions), "{evictions}");
    wait_until("a reset without evictions after it", || {
        client.ask("stats reset\r\n", "RESET\r\n");
        number(&mut client, "", "evictions") == 0
    });
}

/// The lines are those of memcached 1.6.18, except the sizes of values that are too large, and
/// duplicate lines for a lookup.
#[test]
fn watchers_see_every_lookup_and_store() {
    let server = Running::start("-t 1");
    let (mut client, mut watcher) = (server.connect(), server.connect());
    watcher.ask("watch fetchers mutations deletions\r\n", "OK\r\n");
    let mut shows = |request: &[u8], reply: &[u8], wanted: &[&str]| {
        client.ask(request, reply);
        for line in wanted {
            let reported = String::from_utf8(watcher.read_until(b"\n")).unwrap();
            let (_, event) = reported.split_once(" type=").expect(&reported);
            let words: Vec<&str> = event.split_whitespace().filter(|word| !word.starts_with("cfd=")).collect();
            assert_eq!(words.join(" "), *line, "{}", request[..request.len().min(40)].escape_ascii());
        }
    };
    let missing = "item_get key=k status=not_found clsid=0 size=0";
    let found = "item_get key=k status=found clsid=1 size=1";
    let stored = "item_store key=k status=stored cmd=set ttl=0 clsid=1 size=1";
    shows(b"incr k 1\r\n", b"NOT_FOUND\r\n", &[missing]);
    shows(b"touch k 0\r\n", b"NOT_FOUND\r\n", &[missing]);
    shows(b"delete k\r\n", b"NOT_FOUND\r\n", &[missing]);
    shows(b"set k 0 0 1\r\n5\r\n", b"STORED\r\n", &[missing, stored]);
    shows(b"incr k 1\r\n", b"6\r\n", &[found]);
    shows(b"decr k 1\r\n", b"5\r\n", &[found]);
    shows(b"ma k\r\n", b"HD\r\n", &[found]);
    shows(b"touch k 0\r\n", b"TOUCHED\r\n", &[found]);
    shows(b"delete k\r\n", b"DELETED\r\n", &[found, "deleted key=k cmd=delete clsid=1 size=1"]);
    let added = "item_store key=k status=stored cmd=add ttl=0 clsid=1 size=1";
    shows(b"ma k N0 J7\r\n", b"HD\r\n", &[missing, added]);
    shows(b"md k\r\n", b"HD\r\n", &[found, "deleted key=k cmd=md clsid=1 size=1"]);

    let too_large = |command, ttl| format!("item_store key=k status=too_large cmd={command} ttl={ttl} clsid=1 size=0");
    let value = "x".repeat(2_000_000);
    let refusal = b"SERVER_ERROR object too large for cache\r\n";
    let set = format!("set k 0 7 2000000\r\n{value}\r\n");
    shows(set.as_bytes(), refusal, &[&too_large("set", 7), missing]);
    for command in ["add", "append", "cas"] {
        let cas = if command == "cas" { " 1" } else { "" };
        let store = format!("{command} k 0 7 2000000{cas}\r\n{value}\r\n");
        shows(store.as_bytes(), refusal, &[&too_large(command, 7)]);
    }
    let meta = format!("ms k 2000000\r\n{value}\r\n");
    shows(meta.as_bytes(), refusal, &[&too_large("ms", 0), missing]);

    let mut binary = server.connect();
    binary.send(
        [&b"\x80\x01\0\x01\x08\0\0\0\0\x1e\x84\x89\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\x09k"[..], value.as_bytes()]
            .concat(),
    );
    binary.expect(b"\x81\x01\0\0\0\0\0\x03");
    let reported = String::from_utf8(watcher.read_until(b"\n")).unwrap();
    assert!(reported.contains("status=too_large cmd=set ttl=9 "), "{reported}");

    let mut idle = server.connect();
    idle.ask("watch proxyreqs proxyevents proxyuser\r\n", "OK\r\n");
}

#[test]
fn the_statistics_show_the_table_growing_and_shrinking() {
    const ITEMS: usize = 66_000;
    let server = Running::start("-t 1 -U -1");
    let mut client = server.connect();
    let conns = stats(&mut client, "conns");
    let place = conns.iter().position(|(_, value)| value.starts_with("udp:127.0.0.1:")).expect("the socket");
    assert!(conns[place + 1].0.ends_with(":state") && conns[place + 1].1 == "conn_read", "{conns:?}");
    let by_datagram = || {
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        socket.set_read_timeout(Some(patience())).unwrap();
        socket.send_to(b"\0\0\0\0\0\x01\0\0stats table\r\n", &conns[place].1["udp:".len()..]).unwrap();
        let mut reply = [0; 1500];
        let count = socket.recv(&mut reply).unwrap();
        String::from_utf8_lossy(&reply[8..count]).into_owned()
    };
    let start = number(&mut client, "", "hash_power_level");
    let (mut sets, mut deletes) = (String::new(), String::new());
    for i in 0..ITEMS {
        write!(sets, "set k{i} 0 0 1 noreply\r\nx\r\n").unwrap();
        write!(deletes, "delete k{i} noreply\r\n").unwrap();
    }
    client.send(sets);
    assert_eq!(number(&mut client, "", "curr_items"), ITEMS as u64);
    wait_until("a larger table", || number(&mut client, "", "hash_power_level") > start + 5);
    assert!(by_datagram().contains("too long for UDP"), "a long group was sent in a datagram");
    let table: HashMap<String, String> = stats(&mut client, "table").into_iter().collect();
    assert_eq!(table["entries"], ITEMS.to_string());
    assert!(table["grows"] != "0" && table["longest_chain"] != "0");
    let chains = table.iter().filter(|(name, _)| name.starts_with("chains_of_"));
    assert_eq!(chains.map(|(_, count)| count.parse::<usize>().unwrap()).sum::<usize>().to_string(), table["buckets"]);
    client.send(deletes);
    assert_eq!(number(&mut client, "", "curr_items"), 0);
    wait_until("a smaller table", || number(&mut client, "", "hash_power_level") == start);
    assert!(number(&mut client, "table", "shrinks") > 0);
    assert!(by_datagram().starts_with("STAT buckets "));
}

/// The parts add up to what is mapped, with items of all sizes and in both protocols.
#[test]
fn the_memory_is_accounted_for() {
    let server = Running::start("-t 1 -m 8 --admin 0");
    let mut client = server.connect();
    let (mut sets, mut keys, mut values) = (String::new(), 0, 0);
    for i in 0..3000 {
        let (key, value) = (format!("k{i}"), "v".repeat(if i == 0 { 100_000 } else { i % 100 }));
        (keys, values) = (keys + key.len(), values + value.len());
        write!(sets, "set {key} {} 0 {} noreply\r\n{value}\r\n", i % 2, value.len()).unwrap();
    }
    client.send(sets);
    assert_eq!(number(&mut client, "", "curr_items"), 3000);
    let reported = stats(&mut client, "memory");
    let memory: HashMap<&str, u64> =
        reported.iter().map(|(name, bytes)| (name.as_str(), bytes.parse().unwrap())).collect();
    assert_eq!((memory["keys"], memory["values"]), (keys as u64, values as u64));
    let of_items: u64 = ["keys", "values", "item_headers", "alignment"].iter().map(|part| memory[part]).sum();
    assert_eq!(of_items, number(&mut client, "", "bytes"));
    assert_eq!(memory["limit"], 8 << 20);
    let parts = &reported[..reported.len() - 2];
    assert_eq!(parts.iter().map(|(_, bytes)| bytes.parse::<u64>().unwrap()).sum::<u64>(), memory["mapped"]);
    assert_eq!(memory["in_transit"], 0, "{reported:?}");
    let shown = crate::admin::memory(&server);
    let names: Vec<&String> = parts.iter().map(|(name, _)| name).collect();
    assert_eq!(shown.iter().map(|(kind, _)| kind).collect::<Vec<_>>(), names);
    assert_eq!(shown[..2], [("keys".into(), keys as u64), ("values".into(), values as u64)]);
}

/// A megabyte of counts is more than the server buffers at a time.
#[test]
fn counts_by_prefix_are_sent_in_pieces() {
    const PREFIXES: usize = 5_000;
    let server = Running::start("-t 1 -D :");
    let mut client = server.connect();
    let prefix = |index| format!("{index:0>200}");
    let gets: String = (0..PREFIXES).map(|index| format!("mg {}:k\r\n", prefix(index))).collect();
    client.ask(gets, "EN\r\n".repeat(PREFIXES));
    let lines: String =
        (0..PREFIXES).map(|index| format!("PREFIX {} get 1 hit 0 set 0 del 0\r\n", prefix(index))).collect();
    client.ask("stats detail dump\r\n", lines.clone() + "END\r\n");

    let mut binary = server.connect();
    binary.send(b"\x80\x10\0\x0b\0\0\0\0\0\0\0\x0b\0\0\0\0\0\0\0\0\0\0\0\0detail dump");
    let mut reported = Vec::new();
    loop {
        let mut header = [0; 24];
        binary.0.read_exact(&mut header).unwrap();
        let mut body = vec![0; u32::from_be_bytes(header[8..12].try_into().unwrap()) as usize];
        binary.0.read_exact(&mut body).unwrap();
        assert!(body.len() < 64 << 10, "{} bytes at once", body.len());
        match body.strip_prefix(b"detailed") {
            Some(some) => reported.extend_from_slice(some),
            None => break assert!(body.is_empty()),
        }
    }
    assert!(reported == lines.as_bytes());
}

#[test]
fn contention_is_reported_per_kind_of_lock_if_it_is_counted() {
    let server = Running::start("-t 1");
    let mut client = server.connect();
    client.ask("set a 0 0 1\r\n1\r\n", "STORED\r\n");
    let before: HashMap<String, String> = stats(&mut client, "contention").into_iter().collect();
    if !relativist_rcu::contention::ENABLED {
        assert_eq!(before["contention_status"], "disabled");
        return;
    }
    for site in ["heap_central", "heap_stripe", "map_bucket"] {
        assert!(before[&format!("{site}:acquisitions")] != "0", "{site}");
        assert!(before.contains_key(&format!("{site}:contended")) && before.contains_key(&format!("{site}:waited_us")));
    }
    client.ask("set b 0 0 1\r\n1\r\n", "STORED\r\n");
    let site = "map_bucket:acquisitions";
    assert!(number(&mut client, "contention", site) > before[site].parse().unwrap());
}

#[test]
fn settings_report_the_configuration() {
    let server = Running::start("-t 2 -m 100 -c 50");
    let mut client = server.connect();
    let settings: HashMap<String, String> = stats(&mut client, "settings").into_iter().collect();
    assert_eq!(settings["maxbytes"], (100 << 20).to_string());
    assert_eq!(settings["maxconns"], "50");
    assert_eq!(settings["num_threads"], "2");
    assert_eq!(settings["tcpport"], server.address.port().to_string());
    assert_eq!(settings["domain_socket"], "NULL");
    assert_eq!(settings["verbosity"], "0");
    client.ask("verbosity 1\r\n", "OK\r\n");
    client.ask("verbosity 0\r\n", "OK\r\n");
    let refusal = "MEMLIMIT_ADJUST_FAILED input value is megabytes not bytes\r\n";
    client.ask("cache_memlimit 8589934592\r\n", refusal);
    client.ask("cache_memlimit 18446744073709551615\r\n", refusal);
    client.ask("cache_memlimit 131073\r\n", "MEMLIMIT_ADJUST_FAILED cannot set maxbytes to more than 131072m\r\n");
}

/// Flags give some of these sizes in KiB or MiB.
#[test]
fn settings_are_reported_in_the_units_of_memcached() {
    let reported = |flags: &str| {
        let settings: HashMap<String, String> =
            stats(&mut Running::start(flags).connect(), "settings").into_iter().collect();
        [
            "slab_chunk_max",
            "watcher_logbuf_size",
            "worker_logbuf_size",
            "ssl_wbuf_size",
            "temporary_ttl",
            "read_buf_mem_limit",
        ]
        .map(|name| settings[name].clone())
    };
    assert_eq!(reported("-t 1"), ["524288", "262144", "65536", "16384", "61", "0"]);
    let flags = "-t 1 -o slab_chunk_max=16,watcher_logbuf_size=128,worker_logbuf_size=32,ssl_wbuf_size=8,temporary_ttl=20,\
                 read_buf_mem_limit=5";
    assert_eq!(reported(flags), ["16384", "131072", "32768", "8192", "20", "5242880"]);
}

#[test]
fn unknown_groups_are_errors() {
    let server = Running::start("-t 1");
    let mut client = server.connect();
    client.ask("stats nosuchthing\r\nstats noreply\r\n", "ERROR\r\nERROR\r\n");
}

/// In the binary protocol, too, the server sends a long group in pieces, and later requests wait.
#[test]
fn long_groups_are_sent_by_the_binary_protocol() {
    const BURST: usize = 20;
    let server = Running::start("-t 1");
    let mut client = server.connect();
    let request = |key: &str| {
        let length = key.len() as u8;
        let header = [&[0x80, 0x10, 0, length, 0, 0, 0, 0, 0, 0, 0, length], [0; 12].as_slice()].concat();
        [header.as_slice(), key.as_bytes()].concat()
    };
    client.send([request("table"), request("conns"), request("memory")].concat().repeat(BURST));
    for group in 0..3 * BURST {
        let mut names = Vec::new();
        loop {
            let mut header = [0; 24];
            client.0.read_exact(&mut header).expect("the server answers in time");
            assert_eq!(header[..2], [0x81, 0x10]);
            let key = usize::from(u16::from_be_bytes([header[2], header[3]]));
            let mut body = vec![0; u32::from_be_bytes([header[8], header[9], header[10], header[11]]) as usize];
            client.0.read_exact(&mut body).expect("the server answers in time");
            if body.is_empty() {
                break;
            }
            names.push(String::from_utf8(body[..key].into()).unwrap());
        }
        match group % 3 {
            0 => assert_eq!(names[..2], ["buckets", "entries"]),
            1 => {
                let addresses = names.iter().filter(|name| name.ends_with(":addr")).count();
                assert_eq!(addresses, 2, "listener and client: {names:?}");
            }
            _ => assert_eq!((names[0].as_str(), names.len()), ("keys", 13)),
        }
    }
}
