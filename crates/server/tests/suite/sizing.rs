//! Signals for sizing: `stats sizing`, the metrics and the page.

use crate::admin::{get, metrics};
use crate::harness::{Client, Running, stats};
use crate::tenants;
use relativist_testing::poll;
use serde_json::Value;
use std::collections::HashMap;

/// Returns `stats sizing` when it has counted this many lookups: it follows in the background.
fn sizing(client: &mut Client, lookups: &str) -> HashMap<String, String> {
    poll("all lookups in the statistics", || {
        let stats: HashMap<String, String> = stats(client, "sizing").into_iter().collect();
        (stats["lookups"] == lookups).then_some(stats)
    })
}

/// Returns `/stats.json` and the metrics of the same moment: the maintenance thread may evict.
fn page_and_metrics(server: &Running) -> (Value, HashMap<String, f64>) {
    poll("a moment without evictions", || {
        let page = || -> Value { serde_json::from_str(&get(server, "/stats.json")).unwrap() };
        let (before, metrics, after) = (page(), metrics(server), page());
        (before["evictions"] == after["evictions"]).then_some((after, metrics))
    })
}

/// Stops the clock of the client's server.
fn paused(mut client: Client) -> Client {
    client.ask("debugtime p\r\n", "OK\r\n");
    client
}

/// Stores more than fits, and asks for recent items and for some that are not there.
fn busy(flags: &str, connect: impl FnOnce(&Running) -> Client) -> (Running, Client) {
    let server = Running::start(flags);
    let mut client = connect(&server);
    let value = "v".repeat(1000);
    let fetch = |n: u32| format!("get key{n}\r\nget none{n}\r\n");
    let found = |n: u32| format!("VALUE key{n} 0 1000\r\n{value}\r\nEND\r\nEND\r\n");
    for n in 0..20_000 {
        client.send(format!("set key{n} 0 0 1000 noreply\r\n{value}\r\n"));
        if n % 10 == 9 {
            client.ask(fetch(n), found(n));
        }
        // The buffers of events must not overflow.
        if n % 2000 == 1999 {
            sizing(&mut client, &format!("{}", (n + 1) / 5));
        }
    }
    (server, client)
}

#[test]
fn statistics_metrics_and_page_agree() {
    let (server, mut client) = busy("-t 1 -m 8 --admin 0 --debug-time", |server| paused(server.connect()));
    let stats = sizing(&mut client, "4000");
    assert_eq!((stats["sizing"].as_str(), stats["hit_ratio"].as_str()), ("on", "0.5000"));
    let (page, metrics) = page_and_metrics(&server);
    let metric = |name: String| metrics.get(&name).copied();
    let (mut ready, shown) = (0, &page["sizing"]);
    for (index, percent) in [25_u32, 50, 100, 200, 400].into_iter().enumerate() {
        let stat = |name: &str| stats[&format!("memory:{percent}:{name}")].as_str();
        let row = &shown["memory"][index];
        assert_eq!(row[0], f64::from(percent) / 100.0);
        assert_eq!(stat("bytes"), row[1].to_string());
        assert_eq!(Value::from(stat("status")), row[2]);
        let label = format!("{{memory=\"{}\"}}", row[0].as_f64().unwrap());
        let ratio = row[3].as_f64();
        let difference = metric(format!("sizing_hit_ratio{label}")).zip(ratio).map(|(one, other)| (one - other).abs());
        assert_eq!(difference.map(|difference| difference < 1e-9), ratio.map(|_| true));
        let is_ready = stat("status") == "ready";
        assert_eq!(metric(format!("sizing_is_ready{label}")), Some(u8::from(is_ready).into()));
        assert_eq!(stat("hit_ratio"), ratio.map_or("unknown".into(), |ratio| format!("{ratio:.4}")));
        ready += u32::from(is_ready);
    }
    // The items asked for had just been stored, so they are in each of these caches.
    let quarter: f64 = stats["memory:25:hit_ratio"].parse().unwrap();
    assert!(ready >= 3 && (quarter - 0.5).abs() < 0.01, "{stats:?}");
    assert_eq!(stats["memory:400:status"], "filling");
    for class in shown["working_set"].as_array().unwrap() {
        for (field, name) in [(1, "items"), (2, "bytes")] {
            assert_eq!(stats[&format!("working_set:{}:{name}", class[0])], class[field].to_string());
            assert_eq!(metric(format!("working_set_{name}{{from=\"{}\"}}", class[0])), class[field].as_f64());
        }
    }
    let items: f64 = stats["working_set:1024:items"].parse().unwrap();
    assert!((items / 20_000.0 - 1.0).abs() < 0.1, "{items}");
    // No time has passed.
    for name in ["idle", "lifetime"] {
        assert_eq!(stats[&format!("evicted_{name}:p90")], "60");
        assert_eq!(page["evicted"][name], serde_json::json!([60, 60, 60]));
        let evictions = page["evictions"].as_f64();
        assert_eq!(metric(format!("evicted_{name}_seconds_count")), evictions);
        assert_eq!(metric(format!("evicted_{name}_seconds_bucket{{le=\"60\"}}")), evictions);
    }
}

#[test]
fn estimates_of_a_tenant_are_its_own() {
    let users = tenants::file("plain:secret\n[tenant team memory=8m]\nteam:secret\n");
    let flags = format!("-t 1 -m 16 --admin 0 --debug-time -Y {}", users.path().display());
    let (server, mut client) = busy(&flags, |server| {
        // Users of tenants cannot stop the clock of all.
        paused(tenants::log_in(server, "plain"));
        tenants::log_in(server, "team")
    });
    let stats = sizing(&mut client, "4000");
    let (page, metrics) = page_and_metrics(&server);
    let (of_none, of_team) = (&page["tenants"][0], &page["tenants"][1]);
    assert_eq!((&of_none["name"], &of_team["name"]), (&"".into(), &"team".into()));
    for (row, percent) in of_team["estimates"].as_array().unwrap().iter().zip([25_u32, 50, 100, 200, 400]) {
        let ratio = row[3].as_f64();
        let stat = &stats[&format!("memory:{percent}:hit_ratio")];
        assert_eq!(*stat, ratio.map_or("unknown".into(), |ratio| format!("{ratio:.4}")));
        let name = |tenant| format!("tenant_sizing_hit_ratio{{tenant=\"{tenant}\",memory=\"{}\"}}", row[0]);
        let label = |tenant| name(tenant).replace(".0\"", "\"");
        assert_eq!((metrics.get(&label("team")), metrics.get(&label(""))), (ratio.as_ref(), None), "{metrics:?}");
    }
    assert_ne!(stats["memory:25:hit_ratio"], "unknown");
    assert!(of_none["estimates"].as_array().unwrap().iter().all(|row| row[3].is_null()), "{page}");
}

#[test]
fn evicted_items_have_ages() {
    let server = Running::start("-t 1 -m 8 --debug-time");
    let mut client = server.connect();
    client.ask("debugtime p\r\n", "OK\r\n");
    let value = "v".repeat(500);
    let mut store = |from: u32| {
        let stores: Vec<String> = (from..from + 12_000).map(|n| format!("set key{n} 0 0 500\r\n{value}\r\n")).collect();
        for stores in stores.chunks(100) {
            client.ask(stores.concat(), "STORED\r\n".repeat(stores.len()));
        }
    };
    store(0);
    let mut admin = server.connect();
    admin.ask("debugtime 2000\r\n", "OK\r\n");
    store(12_000);
    let stats: HashMap<String, String> = stats(&mut admin, "sizing").into_iter().collect();
    assert_eq!(stats["evicted_idle:p50"], "3600", "{stats:?}");
}

#[test]
fn nothing_is_estimated_if_it_is_off() {
    let server = Running::start("-t 1 --no-sizing --admin 0");
    let mut client = server.connect();
    client.ask("set a 0 0 1\r\nx\r\nget a\r\n", "STORED\r\nVALUE a 0 1\r\nx\r\nEND\r\n");
    let stats = stats(&mut client, "sizing");
    let names = ["idle", "lifetime"].map(|name| ["p10", "p50", "p90"].map(|part| format!("evicted_{name}:{part}")));
    let wanted = [("sizing".to_owned(), "off".to_owned())].into_iter();
    let ages = names.into_iter().flatten().map(|name| (name, "none".to_owned()));
    assert_eq!(stats, wanted.chain(ages).collect::<Vec<_>>());
    let page: Value = serde_json::from_str(&get(&server, "/stats.json")).unwrap();
    assert_eq!(page["sizing"], Value::Null);
    assert!(!get(&server, "/metrics").contains("relativistd_sizing"));
}
