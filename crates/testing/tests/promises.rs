//! Checks that `crates/server/tests/promises.txt` names the tests that show each promise of
//! SECURITY.md.

use relativist_testing as _;

use std::fs;
use std::path::Path;

/// Reads a file, whose path is relative to the workspace.
fn read(path: &str) -> Option<String> {
    fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(path)).ok()
}

/// The text with one blank for each run of blanks and line ends.
fn normal(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// The paragraphs, list items and tables of a text. Left out are headings, and lines that only
/// announce a list.
fn parts(text: &str) -> Vec<String> {
    let mut parts = vec![String::new()];
    for line in text.lines() {
        if line.is_empty() || line.starts_with("- ") {
            parts.push(String::new());
        }
        *parts.last_mut().expect("there is one") += &format!("{line}\n");
    }
    let parts = parts.iter().map(|part| normal(part));
    parts.filter(|part| !part.is_empty() && !part.starts_with('#') && !part.ends_with(':')).collect()
}

/// What is wrong with the name of a test: `FILE.rs FUNCTION`, or another file alone.
fn problem_with(test: &str) -> Option<String> {
    let (path, function) = test.split_once(' ').map_or((test, None), |(path, function)| (path, Some(function)));
    let Some(text) = read(path) else { return Some(format!("there is no file {path}")) };
    match function {
        None if path.ends_with(".rs") => Some(format!("a function of {path} is missing")),
        Some(name) if !text.contains(&format!("fn {name}(")) => Some(format!("{path} has no function {name}")),
        _ => None,
    }
}

#[test]
fn each_promise_names_its_tests() {
    let security = read("SECURITY.md").expect("SECURITY.md");
    let table = read("crates/server/tests/promises.txt").expect("the table");
    let (text, mut problems, mut phrases) = (normal(&security), Vec::new(), Vec::new());
    for line in table.lines().filter(|line| !line.is_empty() && !line.starts_with('#')) {
        let Some((phrase, tests)) = line.split_once(" => ") else {
            problems.push(format!("no \" => \" in: {line}"));
            continue;
        };
        match text.matches(phrase).count() {
            1 => (),
            count => problems.push(format!("SECURITY.md has {count} times, instead of once: {phrase}")),
        }
        if !tests.starts_with("none: ") {
            problems.extend(tests.split(", ").filter_map(problem_with).map(|what| format!("{what} (for: {phrase})")));
        }
        phrases.push(phrase);
    }
    let unproved = parts(&security).into_iter().filter(|part| !phrases.iter().any(|phrase| part.contains(phrase)));
    problems.extend(unproved.map(|part| format!("no line of promises.txt is for: {part:.100}")));
    assert!(problems.is_empty(), "{} problems:\n{}", problems.len(), problems.join("\n"));
}
