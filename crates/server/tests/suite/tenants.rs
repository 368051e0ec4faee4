//! Tenants that try to read, list, flush and evict each other's items, by the text protocol. The
//! binary protocol, reloads and restarts are in the tests of the program.

use crate::admin;
use crate::harness::{Client, Io, Running, on_each_backend, stat};
use relativistd::{Options, Server};
use serde_json::Value;
use std::io::Write;
use tempfile::NamedTempFile;

on_each_backend! {
    tenants_do_not_reach_each_others_items
    a_login_counts_for_the_requests_behind_it
    no_tenant_evicts_items_of_another
    large_values_stay_with_their_tenant
}

/// Users without a tenant, and three tenants.
const USERS: &str = "plain:secret
[tenant red memory=25%]
red:secret
red2:secret
[tenant blue memory=16m]
blue:secret
[tenant green memory=8m prefix=green:]
green:secret
";

/// One user of each tenant whose keys need no prefix, and one without a tenant.
const FREE: [&str; 3] = ["plain", "red", "blue"];

/// A file of users.
pub fn file(users: &str) -> NamedTempFile {
    let mut file = NamedTempFile::new().unwrap();
    file.write_all(users.as_bytes()).unwrap();
    file
}

fn shared(io: Io, flags: &str) -> Running {
    let file = file(USERS);
    io.start(&format!("-t 2 -m 64 -Y {} {flags}", file.path().display()))
}

fn login(user: &str) -> String {
    format!("set login 0 0 {}\r\n{user} secret\r\n", user.len() + 7)
}

/// A client that has logged in.
pub fn log_in(server: &Running, user: &str) -> Client {
    let mut client = server.connect();
    client.ask(login(user), "STORED\r\n");
    client
}

/// Requests for an item of another tenant, and their replies.
const ATTACKS: [(&str, &str); 29] = [
    ("get kept", "END\r\n"),
    ("gets kept kept", "END\r\n"),
    ("gat 1 kept", "END\r\n"),
    ("gats 1 kept", "END\r\n"),
    ("get kept\r\nget kept\r\nget kept", "END\r\nEND\r\nEND\r\n"),
    ("mg kept v", "EN\r\n"),
    ("mg kept v t\r\nmn", "EN\r\nMN\r\n"),
    ("mg a2VwdA== b v", "EN\r\n"),
    ("mg kept v T1", "EN\r\n"),
    ("me kept", "EN\r\n"),
    ("md kept", "NF\r\n"),
    ("md a2VwdA== b I", "NF\r\n"),
    ("ma kept", "NF\r\n"),
    ("ms kept 1 MR\r\nx", "NS\r\n"),
    ("ms kept 1 MA\r\nx", "NS\r\n"),
    ("ms kept 1 C1\r\nx", "NF\r\n"),
    ("delete kept", "NOT_FOUND\r\n"),
    ("touch kept 1", "NOT_FOUND\r\n"),
    ("incr kept 1", "NOT_FOUND\r\n"),
    ("decr kept 1", "NOT_FOUND\r\n"),
    ("append kept 0 0 1\r\nx", "NOT_STORED\r\n"),
    ("prepend kept 0 0 1\r\nx", "NOT_STORED\r\n"),
    ("replace kept 0 0 1\r\nx", "NOT_STORED\r\n"),
    ("cas kept 0 0 1 1\r\nx", "NOT_FOUND\r\n"),
    ("lru_crawler metadump all", "OK\r\nEND\r\n"),
    ("lru_crawler mgdump all", "OK\r\nEN\r\n"),
    ("stats cachedump 1 0", "END\r\n"),
    ("stats items", "END\r\n"),
    ("flush_all", "OK\r\n"),
];

fn tenants_do_not_reach_each_others_items(io: Io) {
    let server = shared(io, "--debug-time");
    let mut owners = FREE.map(|user| log_in(&server, user));
    owners[0].ask("debugtime p\r\n", "OK\r\n");
    for number in 0..owners.len() {
        let value = "VALUE kept 7 1\r\n5\r\nEND\r\n";
        owners[number].ask("set kept 7 0 1\r\n5\r\n", "STORED\r\n");
        owners[number].ask("get kept\r\n", value);
        for attacker in FREE.iter().filter(|user| **user != FREE[number]) {
            let mut attacker = log_in(&server, attacker);
            for (request, reply) in ATTACKS {
                attacker.ask(format!("{request}\r\n"), reply);
            }
            // A value that is too large removes what it would have replaced.
            attacker.send(format!("set kept 0 0 2000000\r\n{}\r\n", "x".repeat(2_000_000)));
            attacker.expect("SERVER_ERROR object too large for cache\r\n");
            // A flush in a second, and an item of its own under the same key.
            attacker.ask("flush_all 1\r\nset kept 0 0 3\r\nown\r\ndelete kept\r\n", "OK\r\nSTORED\r\nDELETED\r\n");
            owners[number].ask("get kept\r\n", value);
        }
        owners[0].ask("debugtime 2\r\n", "OK\r\n");
        owners[number].ask("get kept\r\nme none\r\n", format!("{value}EN\r\n"));
        owners[number].ask("flush_all\r\nget kept\r\n", "OK\r\nEND\r\n");
    }
    // Users of one tenant share its items.
    let mut other = log_in(&server, "red2");
    owners[1].ask("set kept 7 0 1\r\n5\r\n", "STORED\r\n");
    other.ask("get kept\r\n", "VALUE kept 7 1\r\n5\r\nEND\r\n");
}

fn a_login_counts_for_the_requests_behind_it(io: Io) {
    let server = shared(io, "");
    let mut eager = server.connect();
    let value = "VALUE a 0 1\r\nx\r\nEND\r\n";
    let requests = format!("{}set a 0 0 1\r\nx\r\nget a\r\nget a\r\n", login("blue"));
    eager.ask(requests, format!("STORED\r\nSTORED\r\n{value}{value}"));
    log_in(&server, "blue").ask("get a\r\n", value);
    for other in ["plain", "red"] {
        let mut client = server.connect();
        client.ask(format!("{}get a\r\nget a\r\n", login(other)), "STORED\r\nEND\r\nEND\r\n");
    }
}

/// A tenant stores twenty times as much as it may keep. All others keep all that they have.
fn no_tenant_evicts_items_of_another(io: Io) {
    const ITEMS: usize = 500;
    let server = shared(io, "");
    let value = "x".repeat(10_000);
    let fill = |client: &mut Client, count: usize| {
        for first in (0..count).step_by(100) {
            let set = |n| format!("set k{n} 0 0 {} noreply\r\n{value}\r\n", value.len());
            client.ask(format!("{}mn\r\n", (first..first + 100).map(set).collect::<String>()), "MN\r\n");
        }
    };
    let mut owners = ["plain", "red"].map(|user| log_in(&server, user));
    owners.iter_mut().for_each(|owner| fill(owner, ITEMS));
    let mut greedy = log_in(&server, "blue");
    fill(&mut greedy, 20 * 16 * 100);
    assert!(stat(&mut greedy, "evictions") > 10_000);
    assert_eq!(stat(&mut greedy, "limit_maxbytes"), 16 << 20);
    assert!(stat(&mut greedy, "curr_items") < 1_700);
    for (owner, limit) in owners.iter_mut().zip([24 << 20, 16 << 20]) {
        let gets: String = (0..ITEMS).map(|n| format!("mg k{n}\r\n")).collect();
        owner.ask(gets, "HD\r\n".repeat(ITEMS));
        assert_eq!((stat(owner, "evictions"), stat(owner, "curr_items")), (0, ITEMS as u64));
        assert_eq!(stat(owner, "limit_maxbytes"), limit);
        assert_eq!(stat(owner, "cmd_get"), ITEMS as u64, "only its own");
    }
}

/// Large values are received into memory of the cache, and sent from there.
fn large_values_stay_with_their_tenant(io: Io) {
    let server = shared(io, "");
    let mut clients = FREE.map(|user| log_in(&server, user));
    let value = |number: usize| FREE[number].repeat(100_000);
    for (number, client) in clients.iter_mut().enumerate() {
        client.ask(format!("set a 0 0 {}\r\n{}\r\n", value(number).len(), value(number)), "STORED\r\n");
    }
    for (number, client) in clients.iter_mut().enumerate() {
        client.ask("get a\r\n", format!("VALUE a 0 {}\r\n{}\r\nEND\r\n", value(number).len(), value(number)));
    }
}

#[test]
fn watchers_and_hot_keys_show_only_the_own_tenant() {
    let server = shared(Io::Epoll, "--hot-keys clear -D _");
    for attacker in FREE {
        let (mut watcher, mut own) = (log_in(&server, attacker), log_in(&server, attacker));
        watcher.ask("watch fetchers mutations evictions deletions\r\n", "OK\r\n");
        for name in FREE.iter().filter(|user| **user != attacker) {
            let mut owner = log_in(&server, name);
            owner.ask(format!("set {name}_k 0 0 1\r\nx\r\nget {name}_k\r\n"), "STORED\r\n");
            owner.expect(format!("VALUE {name}_k 0 1\r\nx\r\nEND\r\n"));
            owner.ask(format!("delete {name}_k\r\n"), "DELETED\r\n");
        }
        own.ask("get seen_k\r\nget seen_k\r\n", "END\r\nEND\r\n");
        let line = String::from_utf8(watcher.read_until(b"\n")).unwrap();
        assert!(line.contains("key=seen_k"), "{line}");
        let keys = own.list("stats hotkeys");
        let names: Vec<&str> = keys.lines().filter_map(|line| Some(line.split_once(":key ")?.1)).collect();
        let is_own = |name: &str| name.strip_suffix("_k").is_some_and(|name| [attacker, "seen"].contains(&name));
        assert!(names.contains(&"seen_k") && names.iter().all(|name| is_own(name)), "{keys}");
        let counts = own.list("stats detail dump");
        let mut prefixes = counts.lines().filter_map(|line| line.strip_prefix("PREFIX ")?.split(' ').next());
        assert!(counts.contains("seen") && prefixes.all(|name| [attacker, "seen"].contains(&name)), "{counts}");
    }
}

#[test]
fn watchers_of_connections_see_only_those_of_the_own_tenant() {
    let server = shared(Io::Epoll, "");
    let mut watchers = ["plain", "red", "blue"].map(|user| log_in(&server, user));
    watchers.iter_mut().for_each(|watcher| watcher.ask("watch connevents\r\n", "OK\r\n"));
    let mut events = |user: &str, watcher: usize| {
        let mut client = log_in(&server, user);
        // A second login is no new connection.
        client.ask(login(user), "STORED\r\n");
        let port = client.0.local_addr().unwrap().port();
        drop(client);
        // Each is the next line of its watcher, so there were none about others.
        for event in ["conn_new", "conn_close"] {
            let line = String::from_utf8(watchers[watcher].read_until(b"\n")).unwrap();
            assert!(line.contains(&format!("type={event} rip=127.0.0.1 rport={port} ")), "{user}: {line}");
        }
    };
    // It does not log in, so nobody knows whose client it is.
    server.connect().ask("get a\r\n", "CLIENT_ERROR unauthenticated\r\n");
    for (user, watcher) in [("red", 1), ("blue", 2), ("plain", 0), ("red2", 1), ("plain", 0)] {
        events(user, watcher);
    }
}

/// Settings of the whole server are the operator's.
#[test]
fn no_user_changes_the_server_of_others() {
    let server = shared(Io::Epoll, "-A --debug-time");
    let mut clients = FREE.map(|user| log_in(&server, user));
    for client in &mut clients {
        for command in [
            "shutdown",
            "shutdown graceful",
            "cache_memlimit 1024",
            "verbosity 2",
            "slabs automove 0",
            "lru mode flat",
            "lru_crawler disable",
            "lru_crawler crawl all",
            "refresh_certs",
        ] {
            client.ask(format!("{command}\r\n"), "CLIENT_ERROR not allowed on a server with tenants\r\n");
        }
        client.ask("cache_memlimit 1024 noreply\r\nverbosity 1 noreply\r\nmn\r\n", "MN\r\n");
    }
    // It would let items of others expire.
    log_in(&server, "red").ask("debugtime 100\r\n", "CLIENT_ERROR not allowed on a server with tenants\r\n");
    let conns = clients[2].list("stats conns");
    assert_eq!(conns.matches(":addr tcp:127.0.0.1").count(), 2, "the listener and its own: {conns}");
}

#[test]
fn keys_without_the_prefix_are_refused() {
    const REFUSAL: &str = "CLIENT_ERROR all keys of tenant green begin with green:\r\n";
    let server = shared(Io::Epoll, "");
    let mut client = log_in(&server, "green");
    client.ask("set green:a 0 0 1\r\nx\r\n", "STORED\r\n");
    client.ask("mg Z3JlZW46YQ== b v\r\n", "VA 1\r\nx\r\n");
    client.ask("get green:a\r\n", "VALUE green:a 0 1\r\nx\r\nEND\r\n");
    for command in [
        "get other",
        "get green",
        "get green:a other",
        "gets other green:a",
        "gat 0 other",
        "delete other",
        "touch other 0",
        "incr other 1",
        "decr other 1",
        "mg other v",
        "mg b3RoZXI= b v q",
        "md other q",
        "ma other",
        "me other",
        "ms other 1\r\nx",
        "set other 0 0 1\r\nx",
        "add other 0 0 1\r\nx",
        "append other 0 0 1\r\nx",
        "cas other 0 0 1 1\r\nx",
    ] {
        client.ask(format!("{command}\r\n"), REFUSAL);
    }
    client.ask("set other 0 0 1 noreply\r\nx\r\ndelete other noreply\r\nmn\r\n", "MN\r\n");
    client.ask(format!("set other 0 0 500000\r\n{}\r\n", "x".repeat(500_000)), REFUSAL);
    let item = "VALUE green:a 0 1\r\nx\r\nEND\r\n";
    client.ask("get green:a\r\nget other\r\nget green:a\r\n", format!("{item}{REFUSAL}{item}"));
    assert_eq!(stat(&mut client, "curr_items"), 1);
}

#[test]
fn a_division_that_is_not_possible_is_refused_at_the_start() {
    for (users, problem) in [
        ("[tenant a memory=4m]\na:b", "tenant a would have 4.0 MiB of memory, and needs 8.0 MiB"),
        ("[tenant a memory=60%]\na:b\n[tenant b memory=60%]\nc:d", "all tenants together have more than -m"),
        ("[tenant a memory=65m]\na:b", "all tenants together have more than -m"),
        ("x:y\n[tenant a memory=90%]\na:b", "the tenants leave 6.4 MiB of -m to the users without a tenant"),
        ("x:y\n[tenant a]\na:b", "line 2: tenant a needs memory="),
    ] {
        let file = file(users);
        let options = format!("relativistd -p -1 -m 64 -Y {}", file.path().display());
        let options = Options::parse_from_args(options.split(' ')).unwrap();
        for error in [Server::check(&options).err(), Server::bind(&options).err()] {
            let error = error.expect(problem).to_string();
            assert!(error.contains(problem), "{error}");
        }
    }
    // If all users have tenants, nothing must be left.
    let file = file("[tenant a memory=50%]\na:secret\n[tenant b memory=50%]\nb:secret");
    let server = Running::start(&format!("-m 64 -Y {}", file.path().display()));
    assert_eq!(stat(&mut log_in(&server, "b"), "limit_maxbytes"), 32 << 20);
}

#[test]
fn metrics_and_page_show_each_tenant_and_the_sum() {
    let server = shared(Io::Epoll, "--admin 0");
    let mut clients = ["plain", "red", "red2", "blue"].map(|user| log_in(&server, user));
    clients.iter_mut().for_each(|client| client.ask("add a 0 0 1\r\nx\r\nget a\r\nget b\r\n", ""));
    for client in &mut clients {
        client.send("mn\r\n");
        client.read_until(b"MN\r\n");
    }
    let mut stranger = server.connect();
    stranger.ask("get a\r\n", "CLIENT_ERROR unauthenticated\r\n");
    let metrics = admin::get(&server, "/metrics");
    for line in [
        "tenant_connections{tenant=\"\"} 2",
        "tenant_connections{tenant=\"red\"} 2",
        "tenant_connections{tenant=\"green\"} 0",
        "tenant_items{tenant=\"\"} 1",
        "tenant_items{tenant=\"red\"} 1",
        "tenant_items{tenant=\"blue\"} 1",
        "tenant_items{tenant=\"green\"} 0",
        "tenant_get_hits_total{tenant=\"red\"} 2",
        "tenant_cmd_get_total{tenant=\"red\"} 4",
        "tenant_cmd_set_total{tenant=\"red\"} 2",
        "tenant_evictions_total{tenant=\"red\"} 0",
        "tenant_memory_limit_bytes{tenant=\"green\"} 8388608",
        "current_items 3",
        "cmd_get_total 8",
        "memory_limit_bytes 67108864",
    ] {
        assert!(metrics.lines().any(|other| other.strip_prefix("relativistd_") == Some(line)), "{line}: {metrics}");
    }
    let page = |server: &Running| -> Value { serde_json::from_str(&admin::get(server, "/stats.json")).unwrap() };
    let shown = page(&server);
    let row = |tenant: &Value| {
        let number = |name: &str| tenant[name].as_u64().unwrap();
        let requests = (number("cmd_get"), number("get_hits"));
        (number("connections"), number("items"), requests, number("evictions"), number("limit") >> 20)
    };
    let rows: Vec<_> = shown["tenants"].as_array().unwrap().iter().map(|it| (it["name"].as_str(), row(it))).collect();
    let wanted = [
        ("", (2, 1, (2, 1), 0, 24)),
        ("red", (2, 1, (4, 2), 0, 16)),
        ("blue", (1, 1, (2, 1), 0, 16)),
        ("green", (0, 0, (0, 0), 0, 8)),
    ];
    assert_eq!(rows, wanted.map(|(name, row)| (Some(name), row)));
    for (client, connections) in clients.iter_mut().zip([2, 2, 2, 1]) {
        assert_eq!(stat(client, "tenant_connections"), connections);
    }
    for tenant in shown["tenants"].as_array().unwrap() {
        let line = format!("tenant_memory_bytes{{tenant={}}} {}", tenant["name"], tenant["memory"]);
        assert!(metrics.contains(&line), "{line}: {metrics}");
    }
    assert_eq!((&shown["memory"]["limit"], &shown["memory"]["parts_limit"]), (&(64 << 20).into(), &(24 << 20).into()));
    let plain = Running::start("--admin 0");
    assert!(!admin::get(&plain, "/metrics").contains("tenant"));
    assert_eq!(page(&plain)["tenants"], serde_json::json!([]));
}
