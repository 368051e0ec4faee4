//! The dependencies of a crate on other crates of the workspace.

use crate::table::{CRATES, Crate};
use std::collections::BTreeSet;
use toml::de::{DeTable, DeValue};

/// The crate that all tests may use.
const TESTING: &str = "relativist-testing";

/// How the dependencies in a manifest differ from those in the table. The crates in `below` are
/// those that may be used.
pub fn violations(rules: &Crate, below: &[Crate], manifest: &str) -> Vec<String> {
    let name = rules.name;
    let mut found = Vec::new();
    let code = dependencies(manifest, &["dependencies", "build-dependencies"]);
    let mut tests = dependencies(manifest, &["dev-dependencies"]);
    // A crate's tests may use the crate itself, with other features.
    tests.retain(|dependency| dependency != TESTING && dependency != name && !code.contains(dependency));
    for (what, actual, expected) in [("code", &code, rules.uses), ("tests", &tests, rules.tests_use)] {
        let expected: BTreeSet<String> = expected.iter().map(ToString::to_string).collect();
        if *actual != expected {
            found.push(format!("{name}: by Cargo.toml its {what} uses {actual:?}, and by the table {expected:?}"));
        }
    }
    for used in rules.uses.iter().filter(|used| below.iter().all(|below| below.name != **used)) {
        found.push(format!("{name}: {used} is not above it in the table"));
    }
    found
}

/// The crates of the workspace in these sections of a manifest, those for some targets included.
fn dependencies(manifest: &str, sections: &[&str]) -> BTreeSet<String> {
    let manifest = DeTable::parse(manifest).expect("the manifest is in TOML").into_inner();
    let mut tables = vec![&manifest];
    if let Some(DeValue::Table(targets)) = manifest.get("target").map(|value| value.get_ref()) {
        tables.extend(targets.values().filter_map(|target| target.get_ref().as_table()));
    }
    let sections = tables.iter().flat_map(|table| sections.iter().filter_map(|name| table.get(*name)));
    let names = sections.filter_map(|section| section.get_ref().as_table()).flat_map(DeTable::iter);
    let names = names.map(|(name, value)| {
        let renamed = value.get_ref().as_table().and_then(|table| table.get("package")?.get_ref().as_str());
        renamed.unwrap_or(name.get_ref()).to_owned()
    });
    names.filter(|name| CRATES.iter().any(|rules| rules.name == name)).collect()
}
