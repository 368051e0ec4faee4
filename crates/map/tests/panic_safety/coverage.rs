//! The lists of operations are complete: they contain each public function of maps, sets and
//! handles that is not named here.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use crate::boxed::names;

/// Types whose functions must be in the lists, and the name that they have there. Handles have the
/// operations of maps and sets.
const TYPES: [(&str, &str); 6] = [
    ("> Map<", "Map"),
    ("> Pinned<", "Map"),
    ("> Set<", "Set"),
    ("> PinnedSet<", "Set"),
    ("> Entry<", "Entry"),
    ("> OccupiedEntry<", "OccupiedEntry"),
];

/// Functions that call no user code except the destructor of a hasher (`Default` covers that), that
/// other operations in the lists call, or that cannot be called (`hints.rs`).
const HARMLESS: &[&str] = &[
    "as_map",
    "builder",
    "capacity",
    "domain",
    "entry",
    "get",
    "get_mut",
    "guard",
    "hasher",
    "is_empty",
    "len",
    "map",
    "new",
    "pending",
    "pin",
    "pin_with",
    "reclaim",
    "set",
    "with_capacity",
    "with_capacity_and_hasher",
    "with_hasher",
];

/// Adds `Type::function` of the source files in a folder.
fn public_functions_in(folder: &Path, names: &mut BTreeSet<String>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            public_functions_in(&path, names);
        } else {
            let map = if path.to_str().unwrap().contains("lock_map") { "LockMap" } else { "Map" };
            public_functions(&fs::read_to_string(path).unwrap(), map, names);
        }
    }
}

/// Adds the functions of a source file in which `Map` has the name `map`.
fn public_functions(source: &str, map: &str, names: &mut BTreeSet<String>) {
    let mut of = None;
    for line in source.lines() {
        if line.starts_with("impl") {
            of = TYPES.iter().find(|(name, _)| line.contains(name) && !line.contains(" for ")).map(|(_, of)| of);
        }
        let function = line.strip_prefix("    pub fn ").and_then(|rest| rest.split(['(', '<']).next());
        let of = of.map(|of| if *of == "Map" { map } else { *of });
        names.extend(of.zip(function).map(|(of, name)| format!("{of}::{name}")));
    }
}

#[test]
fn all_operations_are_in_the_lists() {
    let mut interface = BTreeSet::new();
    public_functions_in(&Path::new(env!("CARGO_MANIFEST_DIR")).join("src"), &mut interface);
    assert!(interface.len() > 60, "{interface:?}");
    let listed: BTreeSet<String> = names().map(|name| name.split(',').next().unwrap().to_string()).collect();
    let is_harmless = |name: &&String| HARMLESS.iter().any(|harmless| name.ends_with(&format!("::{harmless}")));
    let missing: Vec<_> = interface.difference(&listed).filter(|name| !is_harmless(name)).collect();
    assert_eq!(missing, [""; 0], "no panics are tested of these");
    let gone: Vec<_> = listed.difference(&interface).filter(|name| name.contains("::")).collect();
    assert_eq!(gone, [""; 0], "the crate has no such operations");
}
