//! Runs every subcommand as a process with tiny measurements, and checks the exit status, the
//! printed tables and the structure of the JSON. No test depends on measured times.

use relativist_testing as _;

use std::process::{Command, Output};

use serde_json::Value;

fn relativist(line: &str) -> Output {
    let words = shlex::split(line).expect("quotes are closed");
    Command::new(env!("CARGO_BIN_EXE_relativist-papers")).args(words).output().expect("the binary starts")
}

/// Runs the command line `line` with `--json`. Returns stdout and the JSON document.
fn measure(line: &str) -> (String, Value) {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("samples.json");
    let output = relativist(&format!("{line} --json {}", file.display()));
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{line}: {stderr}");
    let document: Value = serde_json::from_slice(&std::fs::read(file).unwrap()).unwrap();
    assert_eq!(document["command"], line.split_whitespace().next().unwrap());
    (String::from_utf8(output.stdout).unwrap(), document)
}

/// Checks that each comparison has `candidates` candidates, and that each candidate has one sample
/// above zero.
fn check_comparisons(comparisons: &Value, candidates: usize) {
    for comparison in comparisons.as_array().unwrap() {
        let results = comparison["contenders"].as_array().unwrap();
        assert_eq!(results.len(), candidates, "{comparison}");
        for result in results {
            assert!(result["value"]["median"].as_f64().unwrap() > 0.0, "{result}");
            assert_eq!(result["samples"].as_array().unwrap().len(), 1, "{result}");
        }
    }
}

#[test]
fn wrong_options_are_refused_with_an_explanation() {
    let refused = [
        ("resize --shift1 9 --shift2 9", "nothing to resize"),
        ("resize --json /nonexistent/folder/file", "cannot create /nonexistent/folder/file"),
        ("resize --entries 2^40", "at most 2^32"),
        ("caches --tree /nonexistent/folder", "/nonexistent/folder"),
        #[cfg(target_os = "linux")]
        ("figures --out /proc/none --relativistd false --memcached=false", "false ended"),
    ];
    for (line, explanation) in refused {
        let output = relativist(line);
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert!(matches!(output.status.code(), Some(1 | 2)), "{line}: {}", output.status);
        assert!(stderr.contains(explanation), "{line}: {stderr}");
        assert!(output.stdout.is_empty(), "{line}");
    }
}

#[test]
fn lever_prints_the_papers_values_next_to_ours() {
    let output = relativist("lever");
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success());
    for expected in ["Histogram 1", "Histogram 5", "Table 1", "12047", "50 min 25 s"] {
        assert!(text.contains(expected), "{expected}: {text}");
    }
}

#[test]
fn caches_prints_tables_next_to_the_papers() {
    let folder = tempfile::tempdir().unwrap();
    for n in 0..20 {
        std::fs::write(folder.path().join(format!("file{n}.c")), "int a;\n".repeat(20 * n)).unwrap();
    }
    let line =
        format!("caches --tree {} --tables 4,6 --quick --commands 1 --runs 2 --memory 16", folder.path().display());
    let (text, document) = measure(&line);
    for expected in ["Table 4", "4361.3", "Table 6", "4596.2", "2.2.16", "our table's"] {
        assert!(text.contains(expected), "{expected}: {text}");
    }
    let outcomes = document["results"]["tables"][1]["outcomes"][0].as_array().unwrap();
    assert_eq!(outcomes.len(), 6);
    for outcome in outcomes {
        assert_eq!(outcome["throughputs"].as_array().unwrap().len(), 2);
        assert_eq!(outcome["caches"].as_array().unwrap().len(), 4);
        assert_eq!(outcome["caches"][2]["met"]["hits"], outcomes[0]["caches"][2]["met"]["hits"]);
    }
}

#[test]
fn xkernel_fits_lines_next_to_the_papers() {
    let (text, document) = measure("xkernel --key-bytes 1,4,8 --entries 1,10 --rounds 1 --micros 1");
    for expected in ["360 + 4.00", "lookup (cache miss)", "w/collision", "15 % worse"] {
        assert!(text.contains(expected), "{expected}: {text}");
    }
    let results = &document["results"];
    check_comparisons(&results["contests"], 5);
    check_comparisons(&results["passes"], 5);
    assert_eq!(results["contests"].as_array().unwrap().len(), 4 * 3 + 2);
    assert_eq!(results["fits"].as_array().unwrap().len(), 5 * 5);
}

#[test]
fn resize_reports_all_cases() {
    let line = "resize --entries 2^8 --shift1 5 --shift2 6 --readers 1 --resizer --seconds 0.01 --runs 2";
    let (text, document) = measure(line);
    for expected in
        [" 2^5 buckets |", " 2^6 buckets |", " resizing 2^5 <-> 2^6 |", "over the slower fixed size", "Misses: 0"]
    {
        assert!(text.contains(expected), "{expected}: {text}");
    }
    assert_eq!(document["parameters"]["entries"], 256);
    let results = &document["results"];
    assert_eq!(results["misses"], 0);
    let samples = results["samples"].as_array().unwrap();
    assert_eq!(samples.len(), 6);
    for sample in samples {
        let is_resized = sample["case"]["kind"] == "continuous";
        assert!(sample["lookups_per_second"].as_f64().unwrap() > 0.0);
        assert_eq!(sample["resizes_per_second"].as_f64().unwrap() > 0.0, is_resized);
        assert!(sample["expand"]["waits"].as_f64().unwrap() <= 1.0, "guarantee T5");
    }
    let comparison = &results["comparisons"][0];
    assert!(comparison["continuous_to_slower_fixed"]["median"].as_f64().unwrap() > 0.0);
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
    assert_eq!(document["results"]["samples"].as_array().unwrap().len(), 2);
    assert_eq!(document["results"]["comparisons"].as_array().unwrap().len(), 0);
}

#[test]
fn resize_reports_locks_if_they_are_counted() {
    let line = "resize --table mutex,relativist --entries 64 --shift1 3 --shift2 5 --readers 1 --resizer --seconds 0.01 --runs 1";
    let (text, document) = measure(line);
    let counted = cfg!(feature = "contention");
    assert_eq!(text.contains("Lock contention, including the warm-up"), counted);
    for sample in document["results"]["samples"].as_array().unwrap() {
        let locks = sample["locks"].as_array().map_or(&[][..], Vec::as_slice);
        let taken =
            |site: &str| locks.iter().any(|lock| lock["site"] == site && lock["acquisitions"].as_u64() > Some(0));
        assert_eq!(taken("mutex"), counted && sample["table"] == "mutex", "{sample}");
        let is_resized = sample["case"]["kind"] == "continuous";
        assert_eq!(taken("map_resizer"), counted && is_resized && sample["table"] == "relativist", "{sample}");
    }
}

#[test]
fn resize_measures_any_table_with_any_number_of_readers() {
    let line =
        "resize --entries 64 --shift1 5 --shift2 3 --readers 1,2 --resizer --seconds 0.02 --runs 1 --keys shuffled";
    let (text, document) = measure(&format!("{line} --hasher identity --table unzip,ddds,rwlock,fixed --table tree"));
    for expected in ["| RP ", "| DDDS ", "| rwlock ", "| fixed ", "| tree ", "expand", "random order"] {
        assert!(text.contains(expected), "{expected}: {text}");
    }
    let samples = document["results"]["samples"].as_array().unwrap();
    assert_eq!(samples.len(), 2 * (3 * 3 + 2 + 1));
    assert_eq!(document["results"]["comparisons"].as_array().unwrap().len(), 2 * 3);
}

#[test]
fn figures_are_drawn_and_claims_are_judged() {
    let folder = tempfile::tempdir().unwrap();
    let options = "--entries 64 --shift1 3 --shift2 5 --readers 1,2 --seconds 0.002 --runs 1";
    let output = relativist(&format!("figures --out {} {options}", folder.path().display()));
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    for figure in ["figure3", "figure4", "figure5", "figure5-relativist", "figure6", "figure7"] {
        let path = |extension: &str| folder.path().join(format!("{figure}.{extension}"));
        assert!(std::fs::read_to_string(path("svg")).unwrap().contains("Reader threads"), "{figure}");
    }
    assert!(String::from_utf8(output.stdout).unwrap().contains("125 times"));
    let document: Value = serde_json::from_slice(&std::fs::read(folder.path().join("samples.json")).unwrap()).unwrap();
    assert_eq!(document["command"], "figures");
    assert_eq!(document["results"]["complete"], true);
    assert_eq!(document["results"]["samples"].as_array().unwrap().len(), 2 * (4 * 3 + 2));
    let claims = document["results"]["claims"].as_array().unwrap();
    assert!(claims.len() == 9 && claims.iter().all(|claim| claim["verdict"] != "unknown"), "{claims:?}");
}

#[test]
fn instructions_need_valgrind() {
    let mut command = Command::new(env!("CARGO_BIN_EXE_relativist-papers"));
    let output = command.arg("instructions").env("PATH", "").output().unwrap();
    assert!(!output.status.success());
    assert!(String::from_utf8_lossy(&output.stderr).contains("apt install valgrind"));
}

#[test]
fn what_valgrind_runs_looks_everything_up() {
    for table in ["", "--table unzip", "--table tree"] {
        let output = relativist(&format!("instructions-child {table} --entries 64 --shift 3 --batches 1"));
        assert!(output.status.success(), "{table}: {}", String::from_utf8_lossy(&output.stderr));
    }
}

#[cfg(target_os = "linux")]
#[test]
fn interrupted_figures_are_drawn() {
    use relativist_testing::{Run, wait_until};

    let options = "--entries 64 --shift1 3 --shift2 5 --readers 1 --seconds 0.2 --runs 20";
    let mut command = Command::new(env!("CARGO_BIN_EXE_relativist-papers"));
    command.args(["figures", "--out", "out"]).args(options.split(' '));
    let folder = tempfile::tempdir().unwrap();
    let samples = folder.path().join("out/samples.json");
    let mut run = Run::begin(folder, command);
    // The program makes this file when it handles signals, before it measures.
    wait_until("the file of samples", || samples.exists());
    run.signal(libc::SIGINT);
    assert_eq!(run.status().code(), Some(130), "{}", run.read("stderr"));
    assert!(run.read("stderr").contains("interrupted: the figures show the samples so far"));
    assert!(run.read("out/figure3.svg").contains("<svg"));
    let document: Value = serde_json::from_str(&run.read("out/samples.json")).unwrap();
    assert_eq!(document["results"]["complete"], false);
    assert!(document["results"]["samples"].as_array().unwrap().len() < 20 * (4 * 3 + 2));
}
