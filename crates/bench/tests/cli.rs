//! Runs every subcommand as a process with tiny measurements, and checks the exit status, the
//! printed tables and the structure of the JSON. No test depends on measured times.

use relativist_testing as _;

#[cfg(target_os = "linux")]
mod started;

use std::io::{Read, Write};
use std::process::{Command, Output};

use serde_json::Value;

fn relativist(line: &str) -> Output {
    let words = shlex::split(line).expect("quotes are closed");
    Command::new(env!("CARGO_BIN_EXE_relativist-bench")).args(words).output().expect("the binary starts")
}

/// Runs the command line `line` with `--json`. Returns stdout and the JSON document.
fn measure(line: &str) -> (String, Value) {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("samples.json");
    let output = relativist(&format!("{line} --json {}", file.display()));
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{line}: {stderr}");
    let document: Value = serde_json::from_slice(&std::fs::read(file).unwrap()).unwrap();
    check_envelope(&document, line);
    (String::from_utf8(output.stdout).unwrap(), document)
}

fn check_envelope(document: &Value, line: &str) {
    let command = line.split_whitespace().next().unwrap();
    assert_eq!(document["layout"], 5);
    assert_eq!(document["command"], command);
    assert_eq!(document["command_line"][1], command);
    assert!(document["started"].as_u64().unwrap() > 1_600_000_000);
    assert!(document["warnings"].is_array());
    assert!(document["machine"]["cpus_allowed"].as_u64().unwrap() >= 1);
    assert!(document["versions"]["rustc"].as_str().unwrap().starts_with("rustc "));
    let measured = document["versions"]["measured"].as_array().unwrap();
    assert!(measured.iter().any(|version| version.as_str().unwrap().starts_with("papaya 0.")), "{measured:?}");
}

/// Checks that each comparison has `candidates` candidates, and that each candidate has `rounds`
/// samples above zero from the right number of threads.
fn check_comparisons(comparisons: &Value, candidates: usize, rounds: usize) {
    for comparison in comparisons.as_array().unwrap() {
        let candidate_results = comparison["contenders"].as_array().unwrap();
        assert_eq!(candidate_results.len(), candidates, "{comparison}");
        for result in candidate_results {
            assert!(result["value"]["median"].as_f64().unwrap() > 0.0);
            assert!(result["ratio"]["median"].as_f64().unwrap() > 0.0);
            let samples = result["samples"].as_array().unwrap();
            assert_eq!(samples.len(), rounds);
            for sample in samples {
                let threads = comparison["threads"].as_u64().unwrap_or(1) as usize;
                assert_eq!(sample["threads"].as_array().unwrap().len(), threads);
            }
        }
    }
}

/// The number of synchronised tables for keys of any type, not counting rows with handles.
const GENERIC: usize = 8;

/// The number of synchronised tables for numbers.
const TABLES: usize = GENERIC + cfg!(feature = "liburcu") as usize + cfg!(feature = "boost") as usize;

#[test]
fn compare_measures_lookups_of_every_table_and_of_handles() {
    let folder = tempfile::tempdir().unwrap();
    let line = "compare --workload hit,miss --entries 2^8,100 --threads 1,2 --rounds 2 --seconds 0.001";
    let (text, document) = measure(&format!("{line} --out {}", folder.path().display()));
    let tables = ["relativist ", "relativist, handle", "papaya ", "hashbrown, unsynchronised", "harness alone", "x |"];
    for expected in tables {
        assert!(text.contains(expected), "{expected}: {text}");
    }
    assert!(text.lines().filter(|line| line.starts_with('|')).all(|line| line.len() <= 120), "{text}");
    let comparisons = &document["results"]["comparisons"];
    assert_eq!(comparisons.as_array().unwrap().len(), 2 * 2 * 2);
    assert_eq!(comparisons[0]["contenders"][0]["name"], "relativist");
    assert_eq!((&comparisons[0]["workload"], &comparisons[7]["workload"]), (&"hit".into(), &"miss".into()));
    // Further rows: four tables with handles, the batched lookups of our two, the unsynchronised
    // table, and the harness alone.
    check_comparisons(comparisons, TABLES + 4 + 2 + 2, 2);
    for picture in ["maps-hit-u64.svg", "maps-miss-u64.svg"] {
        assert!(std::fs::read_to_string(folder.path().join(picture)).unwrap().contains("dashmap"), "{picture}");
    }
}

#[test]
fn compare_measures_updates_with_both_kinds_of_keys() {
    let line =
        "compare --workload matrix,replace --entries 100 --updates 0,50 --threads 1,2 --rounds 1 --seconds 0.001";
    let (text, document) = measure(line);
    assert!(text.contains("Lookups and updates, strings to u64, 100 entries, Zipf 0.99, 50 % updates"), "{text}");
    let comparisons = document["results"]["comparisons"].as_array().unwrap();
    // Two kinds, distributions and numbers of threads. Without updates, none replaces.
    assert_eq!(comparisons.len(), 2 * 2 * 2 * (2 + 1));
    for comparison in comparisons {
        let tables = if comparison["kind"] == "u64" { TABLES } else { GENERIC };
        let tables = tables + usize::from(comparison["threads"] == 1);
        check_comparisons(&Value::Array(vec![comparison.clone()]), tables, 1);
    }
}

#[test]
fn compare_measures_what_comes_to_an_end() {
    let workloads = "grow,remove,clear,iterate,dependent,many,short-lived";
    let line = format!("compare maps --workload {workloads} --entries 300 --threads 2 --rounds 1 --seconds 0.001");
    let (text, document) = measure(&line);
    let expected = ["Growing", "Removing all keys", "until all are freed", "Iterating", "depend on", "per map and CPU"];
    for expected in expected {
        assert!(text.contains(expected), "{expected}: {text}");
    }
    let comparisons = document["results"]["comparisons"].as_array().unwrap();
    // `clear` and `many` have two values.
    assert_eq!(comparisons.len(), 7 + 2);
    for comparison in comparisons {
        let alone = ["clear", "many", "short-lived"].map(Value::from).contains(&comparison["workload"]);
        let tables = comparison["contenders"].as_array().unwrap().len();
        assert_eq!(tables, TABLES + usize::from(alone), "{comparison}");
    }
}

#[test]
fn compare_measures_lookups_during_resizes() {
    let line = "compare --workload resizing --entries 1000 --threads 1,2 --rounds 1 --seconds 0.001";
    let (text, document) = measure(line);
    assert!(text.contains("rate while resized [of the rate at rest]"), "{text}");
    let comparisons = &document["results"]["comparisons"];
    assert_eq!(comparisons.as_array().unwrap().len(), 2 * 3);
    for comparison in comparisons.as_array().unwrap() {
        let names: Vec<_> = comparison["contenders"].as_array().unwrap().iter().map(|c| &c["name"]).collect();
        assert_eq!(names, ["relativist", "relativist flat"]);
    }
}

#[test]
fn compare_measures_latencies() {
    let (text, document) =
        measure("compare --workload latency --entries 2000 --threads 1,2 --rounds 2 --tables dashmap");
    assert!(text.contains("longest without waiting for a CPU"), "{text}");
    let comparisons = document["results"]["comparisons"].as_array().unwrap();
    assert_eq!(comparisons.len(), 2 * 6);
    for comparison in comparisons {
        let names: Vec<_> = comparison["contenders"].as_array().unwrap().iter().map(|c| &c["name"]).collect();
        assert_eq!(names, ["relativist", "dashmap", "harness alone"]);
    }
}

#[test]
fn compare_measures_memory_in_processes_of_their_own() {
    let (text, document) = measure("compare --workload memory --entries 20000 --rounds 1 --tables papaya,dashmap");
    assert!(text.contains("[bytes per entry]"), "{text}");
    let comparisons = document["results"]["comparisons"].as_array().unwrap();
    assert_eq!((comparisons.len(), comparisons[0]["contenders"].as_array().unwrap().len()), (1, 3));
    for result in comparisons[0]["contenders"].as_array().unwrap() {
        let bytes = result["value"]["median"].as_f64().unwrap();
        assert!((16.0..1000.0).contains(&bytes), "{bytes} bytes per entry of two words");
    }
}

#[test]
fn compare_takes_tables_in_groups_when_memory_is_short() {
    let line = "compare --workload hit --entries 5000 --threads 1 --rounds 1 --seconds 0.001 --memory 1";
    let (text, document) = measure(&format!("{line} --tables dashmap,hashbrown"));
    let comparisons = document["results"]["comparisons"].as_array().unwrap();
    assert_eq!(comparisons.len(), 1);
    let names: Vec<_> = comparisons[0]["contenders"].as_array().unwrap().iter().map(|c| &c["name"]).collect();
    let ours = ["relativist", "relativist, handle", "relativist, get_many(32)"];
    let expected = [&ours[..], &["dashmap", "harness alone"], &ours, &["hashbrown, unsynchronised"]].concat();
    assert_eq!(names, expected);
    assert_eq!(text.matches("| relativist ").count(), 1, "{text}");
}

#[test]
fn compare_measures_sections_waits_and_reclamation() {
    let schemes = if cfg!(feature = "liburcu") { 5 } else { 4 };
    for barrier in ["membarrier", "fence"] {
        let line = format!("compare rcu --barrier {barrier} --threads 1,2 --rounds 2 --seconds 0.001 --entries 1000");
        let (text, document) = measure(&line);
        for expected in ["read section", "a busy reader", "until all are freed"] {
            assert!(text.contains(expected), "{expected}: {text}");
        }
        let comparisons = document["results"]["comparisons"].as_array().unwrap();
        assert_eq!(comparisons.len(), 4 + 2 + 2);
        for comparison in comparisons {
            let schemes = if comparison["workload"] == "wait" { schemes - 3 } else { schemes };
            check_comparisons(&Value::Array(vec![comparison.clone()]), schemes, 2);
        }
    }
}

#[test]
fn wrong_options_are_refused_with_an_explanation() {
    let refused = [
        ("compare --entries 2^40", "at most 2^32"),
        ("compare --entries none", "such as 65536 or 2^16"),
        ("compare --rounds 0", "--rounds"),
        ("compare --seconds 0", "between 0.001 and 3600"),
        ("compare --entries 4", "too few to measure, it takes 16"),
        ("compare --updates 101", "--updates"),
        ("compare --tables judy", "--candidates"),
        ("compare --workload matrix --entries 2^32", "too many to draw from"),
        ("compare --out /proc/none", "cannot create /proc/none"),
        ("compare rcu --barrier none", "--barrier"),
        ("compare caches --workload grow", "hit-zipf"),
        ("replay", "TRACE"),
        ("replay trace.csv --generate etc", "cannot be used with"),
        ("replay --generate etc --requests 2^31", "at most 2^30"),
        ("compare engines --entries 100", "too few to measure"),
        ("compare caches --entries 100", "too few to measure"),
        #[cfg(target_os = "linux")]
        ("load --key-size 3", "need keys of at least 5 bytes"),
        #[cfg(target_os = "linux")]
        ("load --value-size 9-1", "a range such as 64-1024"),
        #[cfg(target_os = "linux")]
        ("load --grow 200000 --rate 1000 --sets 50", "--grow needs --exec"),
        #[cfg(target_os = "linux")]
        ("load --server unix:/nonexistent/socket", "cannot connect to unix:/nonexistent/socket"),
        #[cfg(target_os = "linux")]
        ("load --exec /nonexistent/server", "cannot start server: No such file"),
        #[cfg(target_os = "linux")]
        ("load --exec false", "false ended: exit status: 1"),
        #[cfg(target_os = "linux")]
        ("load --client-cores 9999", "expected CPUs such as 0 or 0,2-3"),
        #[cfg(target_os = "linux")]
        ("serving --exec false --workload set", "false -t 1 -m 1024 ended"),
    ];
    for (line, explanation) in refused {
        let output = relativist(line);
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert!(matches!(output.status.code(), Some(1 | 2)), "{line}: {}", output.status);
        assert!(stderr.contains(explanation), "{line}: {stderr}");
        assert_eq!(
            stderr.contains("Usage:") || stderr.contains("try '--help'"),
            output.status.code() == Some(2),
            "{line}: {stderr}"
        );
        assert!(output.stdout.is_empty(), "{line}");
    }
}

/// Every object is requested twice. Objects that fit into the cache miss once.
#[test]
fn replay_reports_every_policy() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("trace.csv");
    let requests: String = (0..2000).map(|time| format!("{time}, key{}, {}\n", time % 1000, 10 + time % 100)).collect();
    std::fs::write(&file, format!("# time, key, size\n{requests}")).unwrap();
    let (text, document) = measure(&format!("replay {} --sizes 1000%,30%,100_000", file.display()));
    let mut policies = vec!["lru", "fifo", "segmented-lru", "sieve", "s3-fifo", "gdsf"];
    policies.extend(["policy", "policy-bytes", "relativistd", "relativistd-bytes"]);
    policies.extend(["segcache-merge", "segcache-s3-fifo"].iter().filter(|_| cfg!(feature = "segcache")));
    policies.extend(["relativist-cache", "moka", "quick-cache"]);
    policies.extend(["foyer"].iter().filter(|_| cfg!(feature = "foyer")));
    policies.extend(["belady", "belady-size"]);
    assert_eq!(document["results"]["requests"], 2000);
    assert_eq!(document["results"]["unique_bytes"], 59_500);
    let outcomes = document["results"]["outcomes"].as_array().unwrap();
    assert_eq!(outcomes.len(), 3 * policies.len());
    for (outcomes, policy) in outcomes.chunks(3).zip(policies) {
        assert!(text.contains(&format!("| {policy} ")), "{text}");
        assert_eq!((&outcomes[0]["policy"], &outcomes[0]["size"]), (&policy.into(), &"1000%".into()));
        assert_eq!(outcomes[0]["request_miss_ratio"], 0.5);
        assert_eq!(outcomes[0]["byte_miss_ratio"], 0.5);
        assert!(outcomes[1]["request_miss_ratio"].as_f64() > Some(0.5));
        assert_eq!(outcomes[1]["bytes"], 17_850);
    }
    let wrong = relativist("replay /dev/null");
    assert!(!wrong.status.success() && String::from_utf8_lossy(&wrong.stderr).contains("no requests"));
}

#[test]
fn replay_generates_traces() {
    for kind in ["etc", "scans", "one-hit", "shifting"] {
        let line = format!("replay --generate {kind} --requests 20_000 --sizes 10% --policies lru,gdsf,belady-size");
        let (text, document) = measure(&line);
        assert!(text.contains("20000 requests for "), "{text}");
        let outcomes = document["results"]["outcomes"].as_array().unwrap();
        let misses: Vec<f64> = outcomes.iter().map(|outcome| outcome["request_miss_ratio"].as_f64().unwrap()).collect();
        assert!(misses.is_sorted_by(|a, b| a > b) && misses[0] < 1.0, "{kind}: {misses:?}");
    }
}

#[test]
fn compare_measures_engines() {
    let caches = 1 + usize::from(cfg!(feature = "segcache"));
    let (text, document) = measure("compare engines --entries 4096 --threads 1,2 --rounds 2 --seconds 0.001");
    for expected in ["relativist-store", "[bytes per item]", "GET, Zipf 0.99", "SET of new keys", "not refused"] {
        assert!(text.contains(expected), "{expected}: {text}");
    }
    let comparisons = document["results"]["comparisons"].as_array().unwrap();
    let (room, speeds) = comparisons.split_first().unwrap();
    for cache in room["contenders"].as_array().unwrap() {
        assert!((10.0..80.0).contains(&cache["value"]["median"].as_f64().unwrap()), "{cache}");
    }
    assert_eq!((room["contenders"].as_array().unwrap().len(), speeds.len()), (caches, 6 * 2));
    let (stored, times): (Vec<_>, Vec<_>) =
        speeds.iter().cloned().partition(|comparison| comparison["detail"] == "not refused");
    check_comparisons(&Value::from(times), caches, 2);
    let ours: Vec<_> = stored.iter().map(|comparison| &comparison["contenders"][0]["value"]["min"]).collect();
    assert_eq!(ours, [100.0, 100.0], "ours refuses none");
}

#[test]
fn compare_measures_caches() {
    let (text, document) = measure("compare caches --entries 4096 --threads 1,2 --rounds 2 --seconds 0.001");
    for expected in ["Hits, Zipf 0.99", "Insertions of new keys into a full cache", "quick_cache", "[bytes per entry]"]
    {
        assert!(text.contains(expected), "{expected}: {text}");
    }
    let comparisons = &document["results"]["comparisons"];
    assert_eq!(comparisons.as_array().unwrap().len(), 5 * 2 + 1);
    let optional = usize::from(cfg!(feature = "foyer")) + usize::from(cfg!(feature = "mini-moka"));
    check_comparisons(comparisons, 3 + optional, 2);
}

/// Results of all subjects can be drawn together.
#[test]
fn plot_draws_what_compare_wrote() {
    let folder = tempfile::tempdir().unwrap();
    let files = ["maps --workload miss", "caches --workload hit", "rcu --workload section"].map(|line| {
        let file = folder.path().join(line.split(' ').next().unwrap());
        let line = format!("compare {line} --threads 1 --rounds 1 --seconds 0.001 --json {}", file.display());
        let output = relativist(&format!("{line} {}", if line.contains("rcu") { "" } else { "--entries 1024" }));
        assert!(output.status.success(), "{line}: {}", String::from_utf8_lossy(&output.stderr));
        file.display().to_string()
    });
    let output = relativist(&format!("plot {} --out {}", files.join(" "), folder.path().display()));
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    for (picture, expected) in
        [("maps-miss-u64.svg", "dashmap"), ("caches-hit.svg", "moka"), ("rcu-section.svg", "crossbeam-epoch")]
    {
        assert!(std::fs::read_to_string(folder.path().join(picture)).unwrap().contains(expected), "{picture}");
    }
}

#[test]
fn hash_recommends_a_function_for_generated_keys() {
    let functions = "buffer-one-to-one,buffer-mult-11,foldhash";
    let line =
        format!("hash --pattern blocks:2000:16 --function {functions} --sizes 2^10,2^11 --hit-rate 0.5 --probe-ns 5");
    let (text, document) = measure(&line);
    for expected in [
        "blocks:2000:16: 2000 keys, 50 % of lookups hit",
        "2^10 buckets:",
        "| foldhash",
        "Take ",
        "size  buckets  objects  sum-pct",
    ] {
        assert!(text.contains(expected), "{expected}: {text}");
    }
    let section = &document["results"][0];
    assert_eq!((&section["keys"], &section["probe_ns"]), (&2000.into(), &5.0.into()));
    let rows = section["rows"].as_array().unwrap();
    assert_eq!(rows.len(), 6);
    for row in rows {
        let sizes: Vec<u64> =
            row["histogram"]["sizes"].as_array().unwrap().iter().map(|n| n.as_u64().unwrap()).collect();
        assert_eq!(sizes.iter().sum::<u64>(), 1 << row["bits"].as_u64().unwrap());
        assert_eq!((0..).zip(&sizes).map(|(size, buckets)| size * buckets).sum::<u64>(), 2000);
        let probes = (row["probes_per_hit"].as_f64().unwrap() + row["probes_per_miss"].as_f64().unwrap()) * 500.0;
        assert!((row["probes_per_thousand"].as_f64().unwrap() - probes).abs() < 1e-6);
    }
    let empty = |name: &str| rows.iter().find(|row| row["function"] == name).unwrap()["empty"].as_u64().unwrap();
    assert!(empty("buffer-one-to-one") > 2 * empty("foldhash"), "regular blocks");
    assert_ne!(section["advice"]["function"], "buffer-one-to-one");
}

#[test]
fn hash_asks_a_server_for_its_keys() {
    use std::io::{Read, Write};
    let options = relativistd::Options::parse_from_args(["relativistd", "-p", "-1", "-t", "1"]).unwrap();
    let server = relativistd::Server::bind(&options).unwrap();
    let (address, stopper) = (server.addresses()[0], server.stopper());
    let running = std::thread::spawn(|| server.run());
    let mut client = std::net::TcpStream::connect(address).unwrap();
    let sets: String = (0..100).map(|n| format!("set key:{n} 0 0 1\r\nx\r\n")).collect();
    client.write_all(format!("{sets}quit\r\n").as_bytes()).unwrap();
    client.read_to_string(&mut String::new()).unwrap();
    let (_, document) =
        measure(&format!("hash --server {address} --max-keys 64 --function siphash,fnv-1a --probe-ns 5"));
    let section = &document["results"][0];
    assert_eq!(section["keys"], 64);
    assert_eq!(section["rows"].as_array().unwrap().len(), 6);
    stopper.stop();
    running.join().unwrap().unwrap();
}

#[test]
fn hash_says_what_is_wrong_with_keys() {
    for (line, expected) in [
        ("hash /dev/null", "there are no keys"),
        ("hash /nonexistent/keys", "cannot open"),
        ("hash --server 127.0.0.1:1", "cannot reach"),
        ("hash --pattern primes:7", "expected sequential:N"),
        ("hash --sizes 1000", "expected a power of two"),
        ("hash --function md5 /dev/null", "siphash"),
    ] {
        let output = relativist(line);
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success() && stderr.contains(expected), "{line}: {stderr}");
    }
}

#[cfg(target_os = "linux")]
#[test]
fn load_measures_a_server_that_is_running() {
    use relativistd::{Options, Server};

    let server = Server::bind(&Options::parse_from_args(["relativistd", "-p", "-1", "-t", "1"]).unwrap()).unwrap();
    let (address, stopper) = (server.addresses()[0], server.stopper());
    let running = std::thread::spawn(|| server.run());
    let line = format!("load --server {address} --clients 3 --items 300 --sets 20 --depth 4 --rounds 2 --seconds 1");
    let (text, document) = measure(&format!("{line} --popularity zipf --timeline 0.1"));
    stopper.stop();
    running.join().unwrap().unwrap();
    for expected in ["80 % GET, 20 % SET, 3 clients, 4 deep", "server µs", "p99.99", "100.00 %"] {
        assert!(text.contains(expected), "{expected}: {text}");
    }
    let server = &document["results"]["servers"][0];
    assert_eq!(server["version"], "1.6.45");
    let samples = server["samples"].as_array().unwrap();
    assert_eq!(samples.len(), 2);
    for sample in samples {
        assert!(sample["requests"].as_u64() > Some(0) && sample["gets"]["p999"].as_f64() > Some(0.0), "{sample}");
        assert!(sample["server"]["user_seconds"].is_f64() && sample["client_seconds"].as_f64() > Some(0.0), "{sample}");
        assert!(!sample["timeline"].as_array().unwrap().is_empty());
    }
}

#[cfg(target_os = "linux")]
#[test]
fn load_compares_servers_that_it_starts() {
    let folder = tempfile::tempdir().unwrap();
    let server = started::script(folder.path(), "exec SERVE");
    // In a closed loop, few requests meet a stall, so tails are not compared.
    let closed: &[&str] = &["cpu", "rate"];
    for (more, compared) in [("", closed), ("--unix --rate 2000", &["cpu", "rate", "get-p999"])] {
        let line = format!("load --exec {server} --vs '{server} --io epoll' --items 100 --protocol meta {more}");
        let (text, document) =
            measure(&format!("{line} --value-size 50 --clients 5 --threads 2 --rounds 3 --seconds 1"));
        for expected in ["meta commands", "divided by each other server, in the same rounds", "server CPU/request"] {
            assert!(text.contains(expected), "{expected}: {text}");
        }
        let results = &document["results"];
        assert_eq!(results["servers"][1]["name"], "server --io epoll");
        assert!(results["servers"][0]["version"].as_str().unwrap().starts_with("relativistd "));
        let ratios = results["comparisons"][0]["ratios"].as_array().unwrap();
        let figures: Vec<_> = ratios.iter().map(|ratio| &ratio["figure"]).collect();
        assert_eq!(figures, compared);
        assert_eq!(text.contains("stalls are under-counted"), compared == closed, "{text}");
        assert!(ratios.iter().all(|ratio| ratio["pairs"].as_array().unwrap().len() == 3), "{ratios:?}");
    }
}

/// Ctrl-C is the normal end of a mirror. The exit status is that of its report.
#[cfg(target_os = "linux")]
#[test]
fn a_mirror_reports_differences_at_its_end() {
    use relativistd::{Options, Server};
    use rustix::process::{Pid, Signal, kill_process_group};
    use std::net::TcpStream;
    use std::os::unix::net::UnixStream;
    use std::os::unix::process::CommandExt;
    use std::process::Stdio;

    fn ask(mut server: impl Read + Write, request: &str) -> String {
        server.write_all(request.as_bytes()).unwrap();
        std::io::read_to_string(server).unwrap()
    }
    let options = || Options::parse_from_args(["relativistd", "-p", "-1", "-t", "1"]).unwrap();
    let servers = [(); 2].map(|()| Server::bind(&options()).unwrap());
    let (addresses, stoppers) =
        (servers.each_ref().map(|server| server.addresses()[0]), servers.each_ref().map(Server::stopper));
    let running = servers.map(|server| std::thread::spawn(|| server.run()));
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("mirror");
    for is_faulty in [false, true] {
        let mut command = Command::new(env!("CARGO_BIN_EXE_relativist-bench"));
        command.args(["mirror", "--json", "-", "--listen", &format!("unix:{}", path.display())]);
        command.args(["--memcached", &addresses[0].to_string(), "--relativistd", &addresses[1].to_string()]);
        let run = command.process_group(0).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let client = relativist_testing::poll("the mirror", || UnixStream::connect(&path).ok());
        let mut other = client.try_clone().unwrap();
        other.write_all(b"set k 0 0 1\r\na\r\n").unwrap();
        let mut stored = [0; 8];
        other.read_exact(&mut stored).unwrap();
        let direct = |request: &str| ask(TcpStream::connect(addresses[1]).unwrap(), request);
        let is_mirrored = || direct("get k\r\nquit\r\n").starts_with("VALUE");
        relativist_testing::wait_until("the request at the second server", is_mirrored);
        if is_faulty {
            direct("set k 0 0 1\r\nb\r\nquit\r\n");
        }
        assert_eq!(ask(client, "get k\r\nquit\r\n"), "VALUE k 0 1\r\na\r\nEND\r\n");
        kill_process_group(Pid::from_child(&run), Signal::INT).unwrap();
        let output = run.wait_with_output().unwrap();
        let stderr = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(i32::from(is_faulty)), "{stderr}");
        let document: Value = serde_json::from_slice(&output.stdout).unwrap();
        let results = &document["results"];
        assert_eq!([&results["requests"], &results["reads"]], [&Value::from(3), &Value::from(1)], "{results}");
        let count = u64::from(is_faulty);
        let replies = &results["replies"];
        assert_eq!((replies["value"].as_u64(), &replies["same"]), (is_faulty.then_some(1), &(2 - count).into()));
        let example = &results["examples"]["value"][0];
        let second = example["secondary"].as_str().unwrap_or_default();
        assert_eq!((second.contains("flags: 0"), second.ends_with(r#""b""#)), (is_faulty, is_faulty), "{results}");
        assert!(!path.exists() && example["key"].as_str() != Some("k"), "{results}");
        ask(TcpStream::connect(addresses[1]).unwrap(), "delete k\r\nquit\r\n");
    }
    stoppers.iter().for_each(relativistd::Stopper::stop);
    running.into_iter().for_each(|thread| thread.join().unwrap().unwrap());
}

/// A script can append the user's options to its own.
#[test]
fn the_last_of_an_option_counts() {
    let line = "compare --workload hit --entries 64 --threads 1 --tables papaya --seconds 1 --seconds 0.002";
    let (_, document) = measure(&format!("{line} --rounds 7 --rounds 2"));
    let samples = &document["results"]["comparisons"][0]["contenders"][0]["samples"];
    assert_eq!(samples.as_array().unwrap().len(), 2);
}

/// Programs can read the document from a pipe.
#[test]
fn the_document_can_go_to_stdout() {
    let output = relativist(
        "compare --workload hit --entries 64 --threads 1 --tables papaya --seconds 0.002 --rounds 1 --json -",
    );
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && stderr.contains("| papaya"), "{stderr}");
    check_envelope(&serde_json::from_slice(&output.stdout).unwrap(), "compare");
    assert!(!std::path::Path::new("-").exists());
}

#[test]
fn the_help_lists_exit_statuses() {
    let help = String::from_utf8(relativist("--help").stdout).unwrap();
    for status in ["\n  0  ", "\n  1  ", "\n  2  ", "\n  130  ", "\n  143  "] {
        assert!(help.contains(status), "{status}: {help}");
    }
}
