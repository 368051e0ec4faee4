//! Checks that imports point one way, in every crate, by one [table](table::CRATES).
//!
//! The code of tests may import whatever it likes. The check reads the sources without their
//! types: it sees paths in `use` declarations, in code and in the tokens of macros, but not which
//! module defines a method.

use relativist_testing as _;

mod manifest;
mod rules;
mod samples;
mod source;
mod table;

use source::Source;
use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use table::{CRATES, Crate};

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
        manifest::violations(rules, &CRATES[..index], &text)
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
