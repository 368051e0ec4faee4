//! Checks of the check, with sources that are wrong.

use crate::table::{CRATES, Crate, Forbidden, Inside};
use crate::{manifest, rules, source::Source};
use std::path::Path;

/// The files of a crate `low < high`, whose root declares both. `low.rs` has this text.
fn with_low(low: &'static str) -> Vec<(&'static str, &'static str)> {
    vec![
        ("lib.rs", "mod high;\nmod low;\npub use high::Offered;"),
        ("high.rs", "use crate::low::Low;\npub struct Offered(Low);"),
        ("low.rs", low),
    ]
}

/// All violations of `rules` in these files.
#[track_caller]
fn violations(rules: &Crate, files: &[(&str, &str)]) -> Vec<String> {
    let read = |path: &Path| files.iter().find(|(name, _)| Path::new(name) == path).map(|(_, text)| (*text).into());
    rules::violations(rules, &Source::load(Path::new("lib.rs"), &read))
}

fn layered(layers: &'static [&'static str]) -> Crate {
    Crate { name: "sample", folder: "", uses: &[], tests_use: &[], layers, inside: &[], forbidden: &[] }
}

#[test]
fn an_import_from_above_is_found_however_it_is_written() {
    for (line, text, written) in [
        (1, "use crate::high::Offered;", "crate::high::Offered"),
        (1, "use crate::high;", "crate::high"),
        (1, "use crate::high::*;", "crate::high::*"),
        (1, "use crate::high::Offered as _;", "crate::high::Offered"),
        (1, "pub use crate::high::Offered;", "crate::high::Offered"),
        (2, "use crate::{\n    high::Offered,\n};", "crate::high::Offered"),
        (1, "use super::high::{self, Offered};", "super::high"),
        (2, "// A comment.\nuse super::Offered;", "super::Offered"),
        (1, "fn low() { use crate::Offered; }", "crate::Offered"),
        (1, "fn low(offered: &crate::high::Offered) {}", "crate::high::Offered"),
        (1, "fn low() -> usize { size_of::<super::high::Offered>() }", "super::high::Offered"),
        (1, "impl Clone for Vec<crate::Offered> {}", "crate::Offered"),
        (1, "fn low() { assert!(\"\" == crate::high::name()); }", "crate::high::name"),
        (2, "macro_rules! low { () => {\n    $crate::high::name() } }", "crate::high::name"),
        (1, "mod inner { use super::super::high::Offered; }", "super::super::high::Offered"),
        (1, "#[cfg(any(test, feature = \"hooks\"))] use crate::high::Offered;", "crate::high::Offered"),
        (1, "#[cfg(not(test))] use crate::high::Offered;", "crate::high::Offered"),
    ] {
        let found = violations(&layered(&["low", "high"]), &with_low(text));
        assert_eq!(found, [format!("low.rs:{line}: {written}: high is above low (sample)")], "{text}");
    }
}

#[test]
fn what_is_no_import_is_not_found() {
    for text in [
        "// use crate::high::Offered;\n/* crate::high */ /// crate::high\nstruct Low;",
        "const LOW: &str = \"crate::high::Offered\";",
        "#[cfg(test)] mod tests { use crate::high::Offered; }",
        "#[cfg(test)] mod tests;",
        "#[cfg(all(test, unix))] use crate::high::Offered;",
        "#[cfg(doctest)] use crate::high::Offered;",
        "impl Low { #[cfg(test)] fn low() { crate::high::name() } }",
        "struct Low { #[cfg(test)] high: crate::high::Offered }",
        "fn low() { #[cfg(test)] let high = crate::high::name(); }",
        "pub(in crate::high) struct Low;",
        "macro_rules! low { () => { pub(crate) struct Low; } }",
        "use std::high::Offered; use ::high::Other;",
        "fn low(high: Low) { high.high(); high; }",
        "use self::inner::Low; mod inner { pub struct Low; }",
    ] {
        assert_eq!(violations(&layered(&["low", "high"]), &with_low(text)), [""; 0], "{text}");
    }
}

#[test]
fn modules_of_one_layer_do_not_import_each_other() {
    let files = with_low("struct Low;");
    let found = violations(&layered(&["low high"]), &files);
    assert_eq!(found, ["high.rs:1: crate::low::Low: low is in the layer of high (sample)"]);
}

#[test]
fn a_file_is_reported_once_for_each_module() {
    let files = with_low("use crate::high::Offered;\nuse crate::high::name;\nfn low() { crate::high::name() }");
    assert_eq!(violations(&layered(&["low", "high"]), &files).len(), 1);
}

#[test]
fn the_root_is_above_all_others_unless_the_table_has_it() {
    let files = [
        ("lib.rs", "mod low;\nuse low::Low;\npub const LIMIT: usize = 1;"),
        ("low.rs", "pub struct Low([u8; crate::LIMIT]);"),
    ];
    assert_eq!(violations(&layered(&["low"]), &files), ["low.rs:1: crate::LIMIT: self is above low (sample)"]);
    assert_eq!(violations(&layered(&["self", "low"]), &files), ["lib.rs:2: low::Low: low is above self (sample)"]);
    // What the root only offers is no import.
    let files = [("lib.rs", "mod low;\npub use low::Low;\npub const LIMIT: usize = 1;"), files[1]];
    assert_eq!(violations(&layered(&["self", "low"]), &files), [""; 0]);
}

#[test]
fn the_modules_of_macros_are_imported() {
    for (high, low, written) in [
        ("macro_rules! name { () => {} }", "name!();", Some("name!")),
        (
            "macro_rules! name { () => {} }\npub(crate) use name;",
            "use crate::high::name; name!();",
            Some("crate::high::name"),
        ),
        ("#[macro_export] macro_rules! name { () => {} }", "crate::name!();", Some("crate::name!")),
        ("macro_rules! name { () => {} }", "fn low(name: &str) { assert!(name == name); }", None),
    ] {
        let files = [("lib.rs", "#[macro_use]\nmod high;\nmod low;"), ("high.rs", high), ("low.rs", low)];
        let expected: Vec<_> =
            written.map(|written| format!("low.rs:1: {written}: high is above low (sample)")).into_iter().collect();
        assert_eq!(violations(&layered(&["low", "high"]), &files), expected, "{low}");
    }
}

#[test]
fn children_have_layers_of_their_own() {
    let files = [
        ("lib.rs", "mod net;"),
        ("net.rs", "mod buffer;\nmod stream;\npub use stream::Stream;\npub struct Net;"),
        ("net/buffer.rs", "use super::{Net, Stream};"),
        ("net/stream/mod.rs", "use super::Net;\npub struct Stream;"),
    ];
    let net = |layers| Crate { inside: vec![Inside { module: "net", layers }].leak(), ..layered(&["net"]) };
    assert_eq!(violations(&net(&["self", "stream", "buffer"]), &files), [""; 0]);
    assert_eq!(
        violations(&net(&["self", "buffer", "stream"]), &files),
        ["net/buffer.rs:1: super::Stream: stream is above buffer (sample, net)"]
    );
    assert_eq!(
        violations(&net(&["stream", "buffer"]), &files),
        [
            "net/buffer.rs:1: super::Net: self is above buffer (sample, net)",
            "net/stream/mod.rs:1: super::Net: self is above stream (sample, net)"
        ]
    );
}

#[test]
fn the_table_has_each_module_once() {
    let files = [("lib.rs", "mod a;\nmod b;\nmod c;"), ("a.rs", ""), ("b.rs", "use crate::a;"), ("c.rs", "")];
    assert_eq!(
        violations(&layered(&["c"]), &files),
        ["sample: the table lacks a, b. The imports allow these layers:\n    \"a c\",\n    \"b\",\n"]
    );
    assert_eq!(violations(&layered(&["a c", "b c"]), &files), ["sample: c is twice in the table"]);
    let expected = ["sample: there is no module \"d\", but the table has it"];
    assert_eq!(violations(&layered(&["a c", "b d"]), &files), expected);
    let inside = Crate { inside: &[Inside { module: "d", layers: &[] }], ..layered(&["a c", "b"]) };
    assert_eq!(violations(&inside, &files), expected.map(|problem| problem.replace("sample", "sample, d")));
}

#[test]
fn cycles_are_marked_until_they_are_broken() {
    let files = [
        ("lib.rs", "mod a;\nmod b;\nmod c;"),
        ("a.rs", "use crate::b;"),
        ("b.rs", "use crate::c;"),
        ("c.rs", "use crate::a;"),
    ];
    let found = violations(&layered(&[]), &files);
    assert_eq!(found.len(), 1);
    assert!(found[0].ends_with(":\n    \"(a b c)\",\n"), "{found:?}");
    assert_eq!(violations(&layered(&["(a b c)"]), &files), [""; 0]);
    assert_eq!(violations(&layered(&["(a b)", "c"]), &files), ["b.rs:1: crate::c: c is above b (sample)"]);
    let broken = [files[0], files[1], files[2], ("c.rs", "")];
    let found = violations(&layered(&["(a b c)"]), &broken);
    let expected = ["sample: b does not import a, not even by way of others: take one of them out of the ()"];
    assert_eq!(found, expected);
}

#[test]
fn forbidden_names_are_found_however_they_are_imported() {
    let rules = Crate {
        forbidden: &[Forbidden {
            names: &["std::net", "std::io::stdin", "std::println!", "mio"],
            except: &["exempt"],
            why: "no I/O",
        }],
        ..layered(&["exempt"])
    };
    for (text, written) in [
        ("use std::{fmt, net::TcpStream};", Some("std::net::TcpStream")),
        ("use core::net::IpAddr;", Some("core::net::IpAddr")),
        ("use ::mio::Poll;", Some("::mio::Poll")),
        ("fn read() { let poll = mio::Poll::new(); }", Some("mio::Poll::new")),
        ("fn read() { std::io::stdin(); }", Some("std::io::stdin")),
        ("use std::io as io; fn read() { io::stdin(); }", Some("io::stdin")),
        ("fn write() { println!(); }", Some("println!")),
        ("fn write() { std::println!(); }", Some("std::println!")),
        ("fn write() { debug_assert!(println!() == ()); }", Some("println!")),
        ("use std::io::Read; use std::network; fn println() {}", None),
        ("#[test] fn read() { println!(); }", None),
        ("mod exempt { fn write() { println!(); } mod inner { use std::net; } }", None),
    ] {
        let text = if text.contains("exempt") { text.into() } else { format!("mod exempt {{}} {text}") };
        let expected: Vec<String> =
            written.map(|written| format!("lib.rs:1: {written}: no I/O (sample)")).into_iter().collect();
        assert_eq!(violations(&rules, &[("lib.rs", &text)]), expected, "{text}");
    }
}

#[test]
fn dependencies_are_those_of_the_table() {
    let rules = CRATES.iter().position(|rules| rules.name == "relativist-store").expect("it is in the table");
    let with = |rest: &str| {
        let used: String = CRATES[rules].uses.iter().map(|name| format!("{name}.workspace = true\n")).collect();
        let manifest = format!("[dependencies]\n{used}libc = \"1\"\n{rest}");
        manifest::violations(&CRATES[rules], &CRATES[..rules], &manifest)
    };
    assert_eq!(with("[dev-dependencies]\nrelativist-testing.workspace = true"), [""; 0]);
    for (rest, what) in [
        ("relativistd.workspace = true", "code"),
        ("server = { package = \"relativistd\", path = \"\" }", "code"),
        ("[build-dependencies]\nrelativistd = \"1\"", "code"),
        ("[target.'cfg(unix)'.dependencies]\nrelativistd = \"1\"", "code"),
        ("[dev-dependencies]\nrelativistd = \"1\"", "tests"),
    ] {
        let found = with(rest);
        assert!(found.len() == 1 && found[0].contains(&format!("its {what} uses")), "{rest}: {found:?}");
    }
    let none_below = manifest::violations(&CRATES[rules], &[], "");
    assert_eq!(none_below.len(), 1 + CRATES[rules].uses.len(), "{none_below:?}");
}

#[test]
#[should_panic(expected = "low.rs:2: ")]
fn a_file_that_is_no_rust_is_reported() {
    violations(&layered(&["low", "high"]), &with_low("\nfn {"));
}

#[test]
#[should_panic(expected = "there is no file of the module crate::low::inner")]
fn a_missing_file_is_reported() {
    violations(&layered(&["low", "high"]), &with_low("mod inner;"));
}
