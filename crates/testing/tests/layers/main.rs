//! Checks that imports point one way, in every crate, by one [table](table::CRATES).
//!
//! The code of tests may import whatever it likes. The check reads the sources without their
//! types: it sees paths in `use` declarations, in code and in macros, but not which module defines
//! a method.

use relativist_testing as _;

mod rules;
mod source;
mod table;

use source::Source;
use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use table::{CRATES, Crate, Forbidden, Inside};

/// The root of the workspace.
fn workspace() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// Reads a file, whose path is relative to the workspace, if there is one.
fn read(path: &Path) -> Option<String> {
    fs::read_to_string(workspace().join(path)).ok()
}

#[track_caller]
fn assert_none(violations: &[String]) {
    assert!(violations.is_empty(), "{} violations:\n{}", violations.len(), violations.join("\n"));
}

#[test]
fn every_crate_is_in_the_table() {
    let crates = fs::read_dir(workspace().join("crates")).expect("there are crates");
    let names = crates.map(|folder| folder.expect("the folder is readable").file_name().into_string().unwrap());
    let folders: BTreeSet<String> =
        names.filter(|name| read(&Path::new("crates").join(name).join("Cargo.toml")).is_some()).collect();
    assert_eq!(folders, CRATES.iter().map(|rules| rules.folder.into()).collect());
}

#[test]
fn crates_use_those_below_them() {
    let violations = CRATES.iter().enumerate().flat_map(|(index, rules)| {
        let file = Path::new("crates").join(rules.folder).join("Cargo.toml");
        let text = read(&file).unwrap_or_else(|| panic!("{} is missing", file.display()));
        rules::dependency_violations(rules, &CRATES[..index], &text)
    });
    assert_none(&violations.collect::<Vec<_>>());
}

#[test]
fn modules_import_from_the_layers_below_them() {
    assert_none(&CRATES.iter().flat_map(violations).collect::<Vec<_>>());
}

/// What is wrong with the imports of a crate.
fn violations(rules: &Crate) -> Vec<String> {
    let folder = Path::new("crates").join(rules.folder).join("src");
    let [library, program] = ["lib.rs", "main.rs"].map(|name| folder.join(name));
    if read(&library).is_none() {
        return rules::violations(rules, &Source::load(&program, &read));
    }
    let mut violations = rules::violations(rules, &Source::load(&library, &read));
    if read(&program).is_some() && Source::load(&program, &read).modules.len() > 1 {
        violations.push(format!("{}: a program has no modules next to its library", program.display()));
    }
    violations
}

/// All violations of `rules` in these files.
fn violations_in(rules: &Crate, files: &[(&str, &str)]) -> Vec<String> {
    let read = |path: &Path| files.iter().find(|(name, _)| Path::new(name) == path).map(|(_, text)| (*text).into());
    rules::violations(rules, &Source::load(Path::new("lib.rs"), &read))
}

fn sample(layers: &'static [&'static str]) -> Crate {
    Crate { name: "sample", folder: "", uses: &[], tests_use: &[], layers, inside: &[], forbidden: &[] }
}

#[test]
fn an_import_from_above_is_found_however_it_is_written() {
    let check = |low: &str| {
        let root = "mod high;\nmod low;\npub use high::Offered;";
        let high = "use crate::low::Low;\npub struct Offered(Low);\n#[macro_export] macro_rules! made { () => {} }";
        violations_in(&sample(&["low", "high"]), &[("lib.rs", root), ("high.rs", high), ("low.rs", low)])
    };
    for (low, written) in [
        ("use crate::high::*;", "crate::high::*"),
        ("pub use crate::high::Offered as _;", "crate::high::Offered"),
        ("use super::{high::{self, Offered}};", "super::high"),
        ("fn low() { use crate::Offered; }", "crate::Offered"),
        ("fn low(offered: &super::high::Offered) {}", "super::high::Offered"),
        ("fn low() { assert!(\"\" == crate::high::name()); }", "crate::high::name"),
        ("macro_rules! low { () => { $crate::high::name() } }", "crate::high::name"),
        ("fn low() { made!(); }", "made!"),
        ("mod inner { use super::super::high::Offered; }", "super::super::high::Offered"),
        ("#[cfg(any(test, feature = \"hooks\"))] use crate::high::Offered;", "crate::high::Offered"),
        ("#[cfg(not(test))] use crate::high::Offered;", "crate::high::Offered"),
        ("#[cfg(test)] const fn low() {} use crate::high::Offered;", "crate::high::Offered"),
        ("struct Low { #[cfg(test)] a: u8, high: crate::high::Offered }", "crate::high::Offered"),
    ] {
        assert_eq!(check(low), [format!("low.rs:1: {written}: high is above low (sample)")], "{low}");
    }
    for low in [
        "/* crate::high */ /// crate::high\nconst LOW: &str = \"crate::high::Offered\";",
        "#[cfg(all(test, unix))] mod tests { use crate::high::Offered; }",
        "#[cfg(test)] mod tests;",
        "impl Low { #[test] fn low() { crate::high::name() } }",
        "struct Low { #[cfg(test)] high: crate::high::Offered, low: u8 }",
        "fn low() { #[cfg(test)] let high = { crate::high::name() }; }",
        "pub(in crate::high) struct Low;",
        "use std::high::Offered; use ::high::Other;",
        "fn low(high: Low) { high.high(); high != made; }",
        "use self::inner::Low; mod inner { pub struct Low; }",
    ] {
        assert_eq!(check(low), [""; 0], "{low}");
    }
}

#[test]
fn the_table_must_fit_the_modules() {
    let files = [
        ("lib.rs", "mod a;\nmod b;\nmod c;\nmod d;\npub const LIMIT: u8 = 1;"),
        ("a.rs", "use crate::b;"),
        ("b/mod.rs", "mod one;\nmod two;\npub use one::One;"),
        ("b/one.rs", "use super::two::Two;"),
        ("b/two.rs", "use crate::c;"),
        ("c.rs", "use crate::a;\nuse crate::LIMIT;"),
        ("d.rs", ""),
    ];
    for (layers, expected) in [
        (&["self", "(a b c) d"][..], None),
        (&["(a b c) d"], Some("c.rs:2: crate::LIMIT: self is above c (sample)")),
        (&["self", "(a b) d", "c"], Some("b/two.rs:1: crate::c: c is above b (sample)")),
        (&["self", "(a b c)", "c d"], Some("sample: c is twice in the table")),
        (&["self", "(a b c) d e"], Some("sample: there is no module \"e\", but the table has it")),
        (&["self", "(a b c)"], Some("sample: the table lacks d")),
        (
            &["self", "(a b c d)"],
            Some("sample: a does not import d, not even by way of others: take one of them out of the ()"),
        ),
    ] {
        let found = violations_in(&sample(layers), &files);
        assert_eq!(found.first().map(String::as_str), expected, "{layers:?}: {found:?}");
    }
    let inside =
        |layers| Crate { inside: vec![Inside { module: "b", layers }].leak(), ..sample(&["self", "(a b c) d"]) };
    assert_eq!(violations_in(&inside(&["two", "one"]), &files), [""; 0]);
    let expected = ["b/one.rs:1: super::two::Two: two is in the layer of one (sample, b)"];
    assert_eq!(violations_in(&inside(&["one two"]), &files), expected);
}

#[test]
fn forbidden_names_and_dependencies_are_found() {
    let names = &["std::net", "std::println!", "mio"];
    let forbidden = vec![Forbidden { names, except: &["exempt"], why: "no I/O" }].leak();
    let rules = Crate { forbidden, ..sample(&["exempt"]) };
    for (text, written) in [
        ("use std::{fmt, net::TcpStream};", Some("std::net::TcpStream")),
        ("use core::net::IpAddr;", Some("core::net::IpAddr")),
        ("use ::mio::Poll;", Some("::mio::Poll")),
        ("use std::net as n; fn read() { n::TcpStream::connect(); }", Some("std::net")),
        ("fn write() { debug_assert!(println!() == ()); }", Some("println!")),
        ("use std::io::Read; use std::network; fn println() {}", None),
        ("mod exempt { fn write() { println!(); } mod inner { use std::net; } }", None),
    ] {
        let text = if text.contains("exempt") { text.into() } else { format!("mod exempt {{}} {text}") };
        let expected: Vec<_> =
            written.map(|written| format!("lib.rs:1: {written}: no I/O (sample)")).into_iter().collect();
        assert_eq!(violations_in(&rules, &[("lib.rs", &text)]), expected, "{text}");
    }
    let rcu = CRATES.iter().position(|rules| rules.name == "relativist-rcu").expect("it is in the table");
    let with = |rest: &str| {
        let manifest = format!("[dependencies]\nrelativist-core.workspace = true\nlibc = \"1\"\n{rest}");
        rules::dependency_violations(&CRATES[rcu], &CRATES[..rcu], &manifest)
    };
    assert_eq!(with("[dev-dependencies]\nrelativist-testing.workspace = true"), [""; 0]);
    for section in ["build-dependencies", "target.'cfg(unix)'.dependencies", "dev-dependencies"] {
        let found = with(&format!("[{section}]\nrelativistd = \"1\""));
        assert!(found.len() == 1 && found[0].contains("by Cargo.toml its"), "{section}: {found:?}");
    }
}
