//! Tests of the admin interface (`--admin`).

use crate::certificates::Authority;
use crate::harness::{Client, Running, connect_to, stats};
use crate::openmetrics;
use relativist_store::{Hooks, TableStats};
use relativist_testing::{patience, poll};
use rustls::{ClientConnection, StreamOwned};
use serde_json::Value;
use std::collections::{HashMap, HashSet};
use std::fs;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

fn visit(server: &Running) -> TcpStream {
    let stream = TcpStream::connect(server.admin.expect("the server has --admin")).expect("the server listens");
    stream.set_read_timeout(Some(patience())).unwrap();
    stream
}

/// Sends a request, and returns the status and the body of the reply.
pub fn ask(server: &Running, request: &str) -> (u16, String) {
    let mut stream = visit(server);
    // Ignore errors: the server may refuse a request before it has read all of it.
    let _ = stream.write_all(request.as_bytes());
    let mut reply = String::new();
    stream.read_to_string(&mut reply).expect("a reply in time");
    let (head, body) = reply.split_once("\r\n\r\n").expect("a head");
    (head.split(' ').nth(1).expect("a status").parse().unwrap(), body.into())
}

pub fn get(server: &Running, path: &str) -> String {
    let (status, body) = ask(server, &format!("GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n"));
    assert_eq!(status, 200, "{path}");
    body
}

/// Starts a server, and stores, finds and misses items in many requests.
fn busy_server() -> Running {
    let server = Running::start("-t 1 --admin 0");
    let mut client = server.connect();
    for n in 0..40 {
        client.ask(format!("set k{n} 0 0 1\r\nx\r\n"), "STORED\r\n");
        client.ask("get k0\r\n", "VALUE k0 0 1\r\nx\r\nEND\r\n");
        client.ask("mg none\r\n", "EN\r\n");
    }
    server
}

/// Returns the metrics in a format, and the header that names it.
fn metrics_as(server: &Running, accept: &str) -> (String, String) {
    let mut stream = visit(server);
    write!(stream, "GET /metrics HTTP/1.1\r\nHost: localhost\r\nAccept: {accept}\r\n\r\n").unwrap();
    let mut reply = String::new();
    stream.read_to_string(&mut reply).expect("a reply in time");
    let (head, body) = reply.split_once("\r\n\r\n").expect("a head");
    let kind = head.lines().find_map(|line| line.strip_prefix("Content-Type: ")).expect("a type");
    (kind.into(), body.into())
}

#[test]
fn open_metrics_are_well_formed_and_agree_with_the_commands() {
    let server = busy_server();
    let (kind, text) = metrics_as(&server, "application/openmetrics-text;version=1.0.0,text/plain;q=0.5");
    assert_eq!(kind, "application/openmetrics-text; version=1.0.0; charset=utf-8");
    let families = openmetrics::parse(&text);
    let samples: HashMap<String, f64> =
        families.values().flat_map(|family| &family.samples).map(|sample| (sample.identity(), sample.value)).collect();
    // Labels have few values, whatever clients do.
    assert!(samples.len() < 400, "{}", samples.len());
    assert_eq!(samples["relativistd_cmd_set_total{}"], 40.0);
    assert_eq!(samples["relativistd_get_hits_total{}"], 40.0);
    assert_eq!(samples["relativistd_get_misses_total{}"], 40.0);
    assert_eq!(samples["relativistd_current_items{}"], 40.0);
    assert_eq!(samples["relativistd_connections_total{}"], 1.0);
    assert_eq!(families["relativistd_read_bytes"].unit.as_deref(), Some("bytes"));
    for kind in ["get", "set", "touch"] {
        let value = |end| samples[&format!("relativistd_command_seconds_{end}{{command=\"{kind}\",}}")];
        assert_eq!((value("count") > 0.0, value("sum") > 0.0), (kind != "touch", kind != "touch"), "{kind}");
    }
    let chains = families["relativistd_table_chains"].samples.iter().map(|sample| sample.value);
    assert_eq!(chains.sum::<f64>(), samples["relativistd_table_buckets{}"]);
}

#[test]
fn both_formats_have_the_same_samples() {
    let server = busy_server();
    let names = |text: &str| -> Vec<String> {
        let samples = text.lines().filter(|line| !line.starts_with('#'));
        samples.map(|line| line.rsplit_once(' ').expect(line).0.to_owned()).collect()
    };
    // The estimate of the working set may come between the two.
    let text = poll("both formats to have the same samples", || {
        let (kind, text) = metrics_as(&server, "text/plain");
        assert_eq!(kind, "text/plain; version=0.0.4; charset=utf-8");
        let open = metrics_as(&server, "application/openmetrics-text").1;
        (names(&text) == names(&open)).then_some(text)
    });
    let mut announced = HashSet::new();
    for line in text.lines() {
        if let Some(rest) = line.strip_prefix("# TYPE ") {
            assert!(announced.insert(rest.split(' ').next().unwrap()), "twice: {line}");
        } else if !line.starts_with("# HELP ") {
            let name = line.split(['{', ' ']).next().unwrap();
            let histogram = ["_bucket", "_sum", "_count"].iter().find_map(|suffix| name.strip_suffix(suffix));
            assert!(announced.contains(name) || histogram.is_some_and(|name| announced.contains(name)), "{line}");
        }
    }
}

#[test]
fn the_numbers_of_the_page_are_consistent() {
    let server = busy_server();
    server.connect().ask("stats reset\r\n", "RESET\r\n");
    let stats: Value = serde_json::from_str(&get(&server, "/stats.json?whatever")).unwrap();
    assert_eq!(stats["counters"]["cmd_get"], 80, "a reset does not change the counters of the page");
    assert_eq!(stats["items"], 40);
    assert_eq!(stats["table"]["entries"], 40);
    let chains = stats["table"]["chain_lengths"].as_array().unwrap();
    assert_eq!(chains.iter().map(|count| count.as_u64().unwrap()).sum::<u64>(), stats["table"]["buckets"]);
    let gets = stats["latencies"]["get"].as_array().unwrap();
    assert!(gets.iter().any(|bucket| bucket[1].as_u64() > Some(0)), "{gets:?}");
    assert_eq!(stats["connections"]["limit"], 1024);
}

/// Returns the parts of the memory by `/stats.json`, after checking that `/metrics` has the same
/// and that they add up to what is mapped.
pub fn memory(server: &Running) -> Vec<(String, u64)> {
    let page: Value = serde_json::from_str(&get(server, "/stats.json")).unwrap();
    let parts: Vec<(String, u64)> = serde_json::from_value(page["memory"]["parts"].clone()).unwrap();
    let metrics = get(server, "/metrics");
    for (kind, bytes) in &parts {
        let line = format!("\nrelativistd_memory_bytes{{kind=\"{kind}\"}} {bytes}\n");
        assert!(metrics.contains(&line), "{line} is not in {metrics}");
    }
    let table = parts.iter().find(|(kind, _)| kind == "table").expect("a part");
    let of_blocks = parts.iter().map(|(_, bytes)| bytes).sum::<u64>() - table.1;
    assert_eq!(page["memory"]["heap"], of_blocks);
    parts
}

#[test]
fn the_page_loads_no_other_resource() {
    let page = get(&Running::start("-t 1 --admin 0"), "/");
    assert!(page.starts_with("<!doctype html>") && page.contains("<html lang="));
    let svg = "http://www.w3.org/2000/svg";
    assert!(!page.replace(svg, "").contains("//www") && !page.contains(" src=") && !page.contains("@import"));
    assert!(!page.contains("url("));
}

#[test]
fn only_reading_requests_are_accepted() {
    let server = Running::start("-t 1 --admin 0");
    assert_eq!(get(&server, "/healthz"), "ok\n");
    assert_eq!(get(&server, "/readyz"), "ok\n");
    assert_eq!(ask(&server, "HEAD / HTTP/1.1\r\n\r\n"), (200, String::new()));
    assert_eq!(ask(&server, "GET /etc/passwd HTTP/1.1\r\n\r\n").0, 404);
    assert_eq!(ask(&server, "POST / HTTP/1.1\r\n\r\n").0, 405);
    assert_eq!(ask(&server, "get key\r\n\0\r\n").0, 400);
    assert_eq!(ask(&server, &format!("GET /{}", "x".repeat((8 << 10) - 5))).0, 431);
}

/// A web page whose name means the server's address must not read what it answers.
#[test]
fn only_known_hosts_are_answered() {
    let server = Running::start("-t 1 --admin 0 --admin-host one.example.com --admin-host two");
    let ask_as = |host: &str| ask(&server, &format!("GET /healthz HTTP/1.1\r\nHost: {host}\r\n\r\n"));
    for host in ["127.0.0.1", "[::1]:80", "localhost", "one.example.com:9150", "two"] {
        assert_eq!(ask_as(host), (200, "ok\n".into()), "{host}");
    }
    let (status, why) = ask_as("evil.example.com");
    assert!(status == 421 && why.contains("--admin-host"), "{status} {why}");
}

#[test]
fn silent_connections_keep_nobody_from_an_answer() {
    let server = Running::start("-t 1 --admin 0");
    let mut silent: Vec<TcpStream> = (0..200).map(|_| visit(&server)).collect();
    for _ in 0..20 {
        assert_eq!(get(&server, "/healthz"), "ok\n");
        silent.extend((0..20).map(|_| visit(&server)));
    }
    server.connect().ask("mn\r\n", "MN\r\n");
    // Each of them makes room for another one, or is closed when its time is over.
    for stream in &mut silent {
        assert_eq!(stream.read(&mut [0]).unwrap(), 0);
    }
}

/// Returns the metrics, by names with labels.
pub(crate) fn metrics(server: &Running) -> HashMap<String, f64> {
    let text = get(server, "/metrics");
    let sample = |line: &str| {
        let (name, value) = line.strip_prefix("relativistd_").and_then(|line| line.rsplit_once(' ')).expect(line);
        (name.to_owned(), value.parse().expect(line))
    };
    text.lines().filter(|line| !line.starts_with('#')).map(sample).collect()
}

/// Usually a metric has the name of its statistic, without a leading `total_` and with `_total`
/// appended. These statistics have metrics with other names.
const RENAMED: [(&str, &str); 25] = [
    ("uptime", "start_time_seconds"),
    ("rusage_user", "cpu_user_seconds_total"),
    ("rusage_system", "cpu_system_seconds_total"),
    ("max_connections", "connections_limit"),
    ("curr_connections", "current_connections"),
    ("connection_structures", "current_connections"),
    ("reserved_fds", "reserved_file_descriptors"),
    ("bytes_read", "read_bytes_total"),
    ("bytes_written", "written_bytes_total"),
    ("response_obj_bytes", "buffers_out_bytes"),
    ("read_buf_bytes", "buffers_in_bytes"),
    ("read_buf_bytes_free", "buffers_idle_bytes"),
    ("limit_maxbytes", "memory_limit_bytes"),
    ("accepting_conns", "accepting_connections"),
    ("time_in_listen_disabled_us", "listen_disabled_seconds_total"),
    ("threads", "threads"),
    ("hash_power_level", "table_buckets"),
    ("hash_bytes", "table_bytes"),
    ("hash_is_expanding", "table_is_resizing"),
    ("log_worker_written", "log_watcher_sent_total"),
    ("log_watchers", "log_watchers"),
    ("time_since_server_cert_refresh", "certificate_age_seconds"),
    ("bytes", "items_bytes"),
    ("curr_items", "current_items"),
    ("version", "info"),
];

/// Statistics without a metric: constants of the process and the program, and those that are always
/// 0, because this server does not have what they count.
const WITHOUT_METRIC: [&str; 28] = [
    "pid",
    "time",
    "libevent",
    "pointer_size",
    "response_obj_oom",
    "response_obj_count",
    "read_buf_count",
    "slab_reassign_rescues",
    "slab_reassign_chunk_rescues",
    "slab_reassign_inline_reclaim",
    "slab_reassign_busy_items",
    "slab_reassign_busy_deletes",
    "slab_reassign_busy_nomem",
    "slab_reassign_last_busy_status",
    "slab_reassign_running",
    "slabs_moved",
    "lru_crawler_running",
    "lru_maintainer_juggles",
    "malloc_fails",
    "unexpected_napi_ids",
    "round_robin_fallback",
    "slab_global_page_pool",
    "lrutail_reflocked",
    "moves_to_cold",
    "moves_to_warm",
    "moves_within_lru",
    "direct_reclaims",
    "lru_bumps_dropped",
];

#[test]
fn every_statistic_has_a_metric_or_is_an_exception() {
    let authority = Authority::new();
    let flags = format!("-t 1 --admin 0 {} -o idle_timeout=100,maxconns_fast,ssl_session_cache", authority.flags());
    let server = Running::start(&flags);
    let name = "localhost".try_into().unwrap();
    let tls = ClientConnection::new(authority.client(), name).unwrap();
    let mut client = Client(StreamOwned::new(tls, connect_to(server.address)));
    client.ask("set a 0 0 1\r\nx\r\nget a\r\n", "STORED\r\nVALUE a 0 1\r\nx\r\nEND\r\n");
    let (stats, text) = (stats(&mut client, ""), get(&server, "/metrics"));
    assert!(stats.len() > 90, "{stats:?}");
    for (name, value) in stats {
        if WITHOUT_METRIC.contains(&name.as_str()) {
            continue;
        }
        let renamed = RENAMED.iter().find(|(stat, _)| *stat == name).map(|(_, metric)| (*metric).to_owned());
        let metric =
            renamed.unwrap_or_else(|| format!("{}_total", name.strip_prefix("total_").unwrap_or(name.as_str())));
        let kind = if metric.ends_with("_total") { "counter" } else { "gauge" };
        assert!(text.contains(&format!("# TYPE relativistd_{metric} {kind}\n")), "{name} {value} has no {metric}");
    }
}

#[test]
fn metrics_of_the_process_are_reported() {
    let authority = Authority::new();
    authority.issue("server", |params| params.not_after = rcgen::date_time_ymd(2095, 1, 2));
    let folder = tempfile::tempdir().unwrap();
    let snapshot = folder.path().join("snapshot");
    let flags = format!("-t 1 --admin 0 {} --snapshot {}", authority.flags(), snapshot.display());
    let server = Running::start(&flags);
    let before = metrics(&server);
    assert!(before["resident_memory_bytes"] > 1e6 && before["cpu_user_seconds_total"] >= 0.0);
    let descriptors = before["open_file_descriptors"];
    assert!((5.0..before["file_descriptors_limit"]).contains(&descriptors), "{descriptors}");
    assert!(before["network_listen_overflows_total"] >= 0.0);
    assert!((1e-9..=0.1).contains(&before["rcu_grace_period_seconds"]), "{}", before["rcu_grace_period_seconds"]);
    assert_eq!(before["certificate_expiry_seconds"], 3_944_764_800.0, "2095-01-02");
    assert!(!before.contains_key("snapshot_age_seconds"), "no snapshot was written");
    server.save();
    let after = metrics(&server);
    assert!(after["snapshot_written_seconds"] >= after["start_time_seconds"]);
    assert!(after["snapshot_age_seconds"] < 1000.0);
    assert!(after["snapshot_duration_seconds"] > 0.0 && after["snapshot_items"] == 0.0);
    assert_eq!((after["snapshots_total"], after["snapshot_failures_total"]), (1.0, 0.0));
    // The draft of a snapshot cannot be written where a folder is.
    fs::create_dir(folder.path().join("snapshot.new")).unwrap();
    server.save();
    let failed = metrics(&server);
    assert_eq!((failed["snapshots_total"], failed["snapshot_failures_total"]), (1.0, 1.0));
    fs::remove_dir(folder.path().join("snapshot.new")).unwrap();
}

#[test]
fn a_reset_of_the_statistics_lowers_no_metric() {
    let server = Running::start("-t 1 -m 8 --admin 0");
    let mut client = server.connect();
    let value = "v".repeat(100_000);
    for index in 0..200 {
        client.ask(format!("set key{index} 0 0 {}\r\n{value}\r\n", value.len()), "STORED\r\n");
    }
    let before = metrics(&server);
    assert!(before["evictions_total"] > 100.0 && before["evicted_unfetched_total"] > 100.0);
    client.ask("stats reset\r\n", "RESET\r\n");
    let reported: HashMap<String, String> = stats(&mut client, "").into_iter().collect();
    assert!(reported["evictions"].parse::<f64>().unwrap() < before["evictions_total"]);
    let after = metrics(&server);
    for (name, value) in before.iter().filter(|(name, _)| name.ends_with("_total")) {
        assert!(after[name] >= *value, "{name}: {value}, then {}", after[name]);
    }
}

/// A cache whose table has more parts than any request could examine.
struct Endless {
    pieces: AtomicU64,
}

impl Endless {
    const PIECES: u64 = 1 << 20;
}

impl Hooks for Endless {
    fn sample_buckets(&self, _: &mut TableStats, cursor: u64) -> Option<Option<u64>> {
        // SeqCst, because it is the simplest.
        self.pieces.fetch_add(1, Ordering::SeqCst);
        Some((cursor < Endless::PIECES).then_some(cursor + 1))
    }
}

#[test]
fn a_request_examines_only_some_buckets() {
    let between = Arc::new(Endless { pieces: AtomicU64::new(0) });
    let seen = Arc::clone(&between);
    let server = Running::start_with("-t 1 --admin 0", |cache| cache.with_hooks(between));
    for path in ["/metrics", "/stats.json"] {
        let before = seen.pieces.load(Ordering::SeqCst);
        get(&server, path);
        // Meanwhile, the ticks examine as many buckets, ten times a second.
        let looked = seen.pieces.load(Ordering::SeqCst) - before;
        assert!(looked < Endless::PIECES / 4, "{path} has examined {looked} pieces");
    }
}
