//! Every subcommand, run as a process with tiny measurements: it ends well, prints its tables, and leaves JSON of the
//! documented shape. Nothing here looks at a time.

use std::process::{Command, Output};

use serde_json::Value;

fn relativist(line: &str) -> Output {
    Command::new(env!("CARGO_BIN_EXE_relativist")).args(line.split_whitespace()).output().expect("the binary starts")
}

/// Runs `line` with `--json`; returns stdout and the document.
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
    assert_eq!(document["layout"], 1);
    assert_eq!(document["command"], command);
    assert_eq!(document["command_line"][1], command);
    assert!(document["started"].as_u64().unwrap() > 1_600_000_000);
    assert!(document["warnings"].is_array());
    assert!(document["machine"]["cpus_allowed"].as_u64().unwrap() >= 1);
    assert!(document["versions"]["rustc"].as_str().unwrap().starts_with("rustc "));
    let measured = document["versions"]["measured"].as_array().unwrap();
    assert!(measured.iter().any(|version| version.as_str().unwrap().starts_with("papaya 0.")), "{measured:?}");
}

/// Checks that each contest has `contenders` contenders with `rounds` samples above zero of `threads` threads.
fn check_contests(contests: &Value, contenders: usize, rounds: usize) {
    for contest in contests.as_array().unwrap() {
        let standings = contest["contenders"].as_array().unwrap();
        assert_eq!(standings.len(), contenders, "{contest}");
        for standing in standings {
            assert!(standing["nanoseconds"]["median"].as_f64().unwrap() > 0.0);
            assert!(standing["ratio"]["median"].as_f64().unwrap() > 0.0);
            let samples = standing["samples"].as_array().unwrap();
            assert_eq!(samples.len(), rounds);
            for sample in samples {
                let threads = contest["threads"].as_u64().unwrap_or(1) as usize;
                assert_eq!(sample["threads"].as_array().unwrap().len(), threads);
            }
        }
    }
}

#[test]
fn resize_reports_all_cases() {
    let line = "resize --entries 2^8 --shift1 5 --shift2 6 --readers 1 --resizer --seconds 0.01 --runs 2";
    let (text, document) = measure(line);
    for expected in
        ["| 2^5 buckets", "| 2^6 buckets", "| resizing 2^5 <-> 2^6", "over the slower fixed size", "Misses: 0"]
    {
        assert!(text.contains(expected), "{expected}: {text}");
    }
    assert_eq!(document["parameters"]["entries"], 256);
    let results = &document["results"];
    assert_eq!(results["misses"], 0);
    assert_eq!(results["samples"].as_array().unwrap().len(), 6);
    let cases = results["cases"].as_array().unwrap();
    assert_eq!(cases.len(), 3);
    assert!(cases.iter().all(|case| case["lookups_per_second"]["median"].as_f64().unwrap() > 0.0));
    assert_eq!(cases[0]["grace_periods"], 0);
    assert!(cases[2]["grace_periods"].as_u64().unwrap() > 0);
    assert!(results["continuous_to_slower_fixed"]["median"].as_f64().unwrap() > 0.0);
}

#[test]
fn resize_can_burden_the_fixed_cases() {
    let line = "resize --entries 64 --shift1 3 --shift2 5 --readers 2 --resizer --spinner --seconds 0.005 --runs 1";
    let (text, document) = measure(line);
    assert!(text.contains("busy thread"), "{text}");
    assert_eq!(document["results"]["samples"][0]["per_reader"].as_array().unwrap().len(), 2);
    assert_eq!(document["results"]["samples"][0]["resizes_per_second"], 0.0);
}

#[test]
fn resize_without_a_resizer_has_two_cases_and_no_ratio() {
    let (text, document) = measure("resize --entries 64 --shift1 3 --shift2 5 --readers 1 --seconds 0.005 --runs 1");
    assert!(!text.contains("slower"), "{text}");
    assert_eq!(document["results"]["cases"].as_array().unwrap().len(), 2);
    assert!(document["results"]["continuous_to_slower_fixed"].is_null());
}

#[test]
fn lookup_measures_hits_and_misses_of_every_table() {
    let (text, document) = measure("lookup --entries 2^8,100 --threads 1,2 --rounds 2 --millis 1");
    let tables =
        ["relativist ", "papaya ", "papaya, guard kept", "scc::HashIndex ", "dashmap", "hashbrown", "harness alone"];
    for expected in tables {
        assert!(text.contains(expected), "{expected}: {text}");
    }
    let contests = &document["results"]["contests"];
    assert_eq!(contests.as_array().unwrap().len(), 2 * 2 * 2);
    assert_eq!(contests[0]["contenders"][0]["name"], "relativist");
    assert_eq!((&contests[0]["workload"], &contests[1]["workload"]), (&"hit".into(), &"miss".into()));
    check_contests(contests, 9, 2);
}

#[test]
fn lookup_takes_every_hash_function_and_grown_tables() {
    for hasher in ["foldhash", "fx", "identity"] {
        let line =
            format!("lookup --entries 300 --threads 1 --rounds 1 --millis 1 --hasher {hasher} --grow --tables papaya");
        let (_, document) = measure(&line);
        assert_eq!(document["parameters"]["hasher"], hasher);
        check_contests(&document["results"]["contests"], 4, 1);
    }
}

#[test]
fn update_measures_every_mix() {
    let (text, document) = measure("update --entries 2^8 --updates 10,50 --threads 1,2 --rounds 2 --millis 1");
    assert!(text.contains("50 % updates, 2 threads"), "{text}");
    let contests = &document["results"]["contests"];
    assert_eq!(contests.as_array().unwrap().len(), 4);
    assert_eq!(contests[1]["updates_percent"], 50);
    check_contests(contests, 4, 2);
}

#[test]
fn rcu_measures_sections_waits_and_reclamation() {
    let schemes = if cfg!(feature = "liburcu") { 4 } else { 3 };
    for barrier in ["membarrier", "fence"] {
        let line =
            format!("rcu --barrier {barrier} --threads 1,2 --rounds 2 --millis 1 --objects 1000 --reclaim-rounds 2");
        let (text, document) = measure(&line);
        assert!(text.contains("can't wait for readers"), "{text}");
        let results = &document["results"];
        assert_eq!(results["sections"].as_array().unwrap().len(), 4);
        check_contests(&results["sections"], schemes, 2);
        check_contests(&results["waits"], schemes - 2, 2);
        check_contests(&results["reclamation"], schemes, 2);
    }
}

#[test]
fn wrong_options_are_refused_with_an_explanation() {
    let refused = [
        ("lookup --entries 2^40", "at most 2^32"),
        ("lookup --entries none", "such as 65536 or 2^16"),
        ("lookup --rounds 0", "--rounds"),
        ("update --entries 4", "too few to divide among the threads"),
        ("update --updates 0", "--updates"),
        ("resize --shift1 9 --shift2 9", "nothing to resize"),
        ("resize --json /nonexistent/folder/file", "cannot create /nonexistent/folder/file"),
        ("rcu --barrier none", "--barrier"),
    ];
    for (line, explanation) in refused {
        let output = relativist(line);
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success(), "{line}");
        assert!(stderr.contains(explanation), "{line}: {stderr}");
        assert!(output.stdout.is_empty(), "{line}");
    }
}
