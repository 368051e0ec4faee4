//! What `--admin` answers.

use crate::harness::{PATIENCE, Running};
use serde_json::Value;
use std::collections::{HashMap, HashSet};
use std::io::{Read, Write};
use std::net::TcpStream;

fn visit(server: &Running) -> TcpStream {
    let stream = TcpStream::connect(server.admin.expect("there is --admin")).expect("it listens");
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream
}

/// Status and body of the answer to this request.
pub fn ask(server: &Running, request: &str) -> (u16, String) {
    let mut stream = visit(server);
    // Who is refused early may not be read to the end.
    let _ = stream.write_all(request.as_bytes());
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("an answer in time");
    let (head, body) = answer.split_once("\r\n\r\n").expect("a head");
    (head.split(' ').nth(1).expect("a status").parse().unwrap(), body.into())
}

fn get(server: &Running, path: &str) -> String {
    let (status, body) = ask(server, &format!("GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n"));
    assert_eq!(status, 200, "{path}");
    body
}

/// A server whose clients have stored, found and missed something, in many turns.
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

#[test]
fn metrics_are_well_formed_and_agree_with_the_commands() {
    let server = busy_server();
    let text = get(&server, "/metrics");
    let mut announced = HashSet::new();
    let mut values = HashMap::new();
    for line in text.lines() {
        if let Some(rest) = line.strip_prefix("# TYPE ") {
            assert!(announced.insert(rest.split(' ').next().unwrap()), "twice: {line}");
        } else if !line.starts_with("# HELP ") {
            let (name, value) = line.rsplit_once(' ').expect(line);
            let family = name.split('{').next().unwrap();
            let histogram = ["_bucket", "_sum", "_count"].iter().find_map(|suffix| family.strip_suffix(suffix));
            assert!(announced.contains(family) || histogram.is_some_and(|name| announced.contains(name)), "{line}");
            assert!(values.insert(name, value.parse::<f64>().expect(line)).is_none(), "twice: {line}");
        }
    }
    assert_eq!(values["relativistd_cmd_set_total"], 40.0);
    assert_eq!(values["relativistd_get_hits_total"], 40.0);
    assert_eq!(values["relativistd_get_misses_total"], 40.0);
    assert_eq!(values["relativistd_items"], 40.0);
    assert_eq!(values["relativistd_connections_total"], 1.0);
    for kind in ["get", "set", "touch"] {
        let of_kind = format!("relativistd_command_seconds_bucket{{command=\"{kind}\",le=\"");
        let buckets: Vec<f64> = text
            .lines()
            .filter(|line| line.starts_with(&of_kind))
            .map(|line| values[line.rsplit_once(' ').unwrap().0])
            .collect();
        assert!(buckets.len() > 20 && buckets.is_sorted(), "{kind}: {buckets:?}");
        let count = values[format!("relativistd_command_seconds_count{{command=\"{kind}\"}}").as_str()];
        assert_eq!(buckets.last(), Some(&count), "{kind}");
        assert_eq!(count > 0.0, kind != "touch", "{kind}");
        assert_eq!(
            values[format!("relativistd_command_seconds_sum{{command=\"{kind}\"}}").as_str()] > 0.0,
            count > 0.0
        );
    }
}

#[test]
fn the_page_s_numbers_fit_together() {
    let server = busy_server();
    server.connect().ask("stats reset\r\n", "RESET\r\n");
    let stats: Value = serde_json::from_str(&get(&server, "/stats.json?whatever")).unwrap();
    assert_eq!(stats["counters"]["cmd_get"], 80, "whatever was reset");
    assert_eq!(stats["items"], 40);
    assert_eq!(stats["table"]["entries"], 40);
    let chains = stats["table"]["chain_lengths"].as_array().unwrap();
    assert_eq!(chains.iter().map(|count| count.as_u64().unwrap()).sum::<u64>(), stats["table"]["buckets"]);
    let gets = stats["latencies"]["get"].as_array().unwrap();
    assert!(gets.iter().any(|bucket| bucket[1].as_u64() > Some(0)), "{gets:?}");
    assert_eq!(stats["connections"]["limit"], 1024);
}

#[test]
fn the_page_needs_nothing_from_elsewhere() {
    let page = get(&Running::start("-t 1 --admin 0"), "/");
    assert!(page.starts_with("<!doctype html>") && page.contains("<html lang="));
    let svg = "http://www.w3.org/2000/svg";
    assert!(!page.replace(svg, "").contains("//www") && !page.contains(" src=") && !page.contains("@import"));
    assert!(!page.contains("url("));
}

#[test]
fn nothing_but_reading_is_possible() {
    let server = Running::start("-t 1 --admin 0");
    assert_eq!(get(&server, "/healthz"), "ok\n");
    assert_eq!(ask(&server, "HEAD / HTTP/1.1\r\n\r\n"), (200, String::new()));
    assert_eq!(ask(&server, "GET /etc/passwd HTTP/1.1\r\n\r\n").0, 404);
    assert_eq!(ask(&server, "POST / HTTP/1.1\r\n\r\n").0, 405);
    assert_eq!(ask(&server, "get key\r\n\0\r\n").0, 400);
    assert_eq!(ask(&server, &format!("GET /{}", "x".repeat((8 << 10) - 5))).0, 431);
}

#[test]
fn silent_visitors_are_few_and_hold_up_neither_the_cache_nor_the_end() {
    let server = Running::start("-t 1 --admin 0");
    let mut silent: Vec<TcpStream> = (0..8).map(|_| visit(&server)).collect();
    assert_eq!(get(&server, "/healthz"), "ok\n", "one more has a place");
    silent.extend((0..4).map(|_| visit(&server)));
    server.connect().ask("mn\r\n", "MN\r\n");
    // Nine have a place; the others see the end at once, and those nine when the server has waited long enough.
    for stream in &mut silent {
        assert_eq!(stream.read(&mut [0]).unwrap(), 0);
    }
    assert_eq!(get(&server, "/healthz"), "ok\n");
}
