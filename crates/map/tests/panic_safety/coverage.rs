//! The lists of operations are complete: they contain each public function and each trait of maps,
//! sets and handles that is not named here.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use crate::operations::{MAP, MAP_WAITING, SET, SET_WAITING};
use crate::tested::{self, IS_FLAT};

/// The types whose functions must be in the lists, and the name that they have there. Handles have
/// the operations of maps and sets.
const TYPES: [(&str, &str); 5] = [
    ("HashMap", "HashMap"),
    ("Pinned", "HashMap"),
    ("HashSet", "HashSet"),
    ("PinnedSet", "HashSet"),
    ("Table", "Table"),
];

/// Called by operations that are in the lists, or compiled only for loom.
const ELSEWHERE: &[&str] = &["From for HashMap", "From for HashSet", "HashMap::pin", "HashSet::as_map", "HashSet::pin"];

/// Functions, of any type, that call no user code except the destructor of a hasher. `Default`
/// covers that.
const HARMLESS: &[&str] = &[
    "add_stats",
    "assert_unlocked",
    "bucket_bytes",
    "buckets",
    "builder",
    "chains",
    "exclusive",
    "guard",
    "hasher",
    "is_empty",
    "is_resizing",
    "iter_part",
    "len",
    "map",
    "new",
    "policy",
    "prefetch_first_link",
    "prefetch_for_updates",
    "prefetch_head",
    "reserve",
    "resize_to",
    "set",
    "shrink_to_fit",
    "stats",
    "try_reserve",
    "try_unlink",
    "with_capacity",
    "with_capacity_and_hasher",
    "with_compact_links",
    "with_hasher",
];

/// Traits whose functions call no user code.
const HARMLESS_TRAITS: &[&str] = &["Eq for HashMap", "Eq for HashSet"];

/// Adds `type::function` and `Trait for Type`, as the source has them. Of the flat map, too, these
/// are `HashMap::function` and so on.
fn public_interface(folder: &Path, names: &mut BTreeSet<String>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            public_interface(&path, names);
            continue;
        }
        let is_flat = folder.ends_with("src/flat");
        let source = fs::read_to_string(&path).unwrap();
        let lines = source.lines().take_while(|line| !line.contains("mod tests"));
        if is_flat == IS_FLAT {
            let lines = lines.clone().map(|line| line.replace("FlatMap", "HashMap").replace("FlatSet", "HashSet"));
            add_functions_and_traits(lines, names);
        }
        // Both kinds of map have what macros define.
        if source.contains("macro_rules!") {
            add_functions_and_traits(
                lines.filter_map(|line| line.strip_prefix("        ")).map(without_dollars),
                names,
            );
        }
    }
}

/// Returns the line of a macro as it is after expansion. (The operators are in the lists by another
/// name.)
fn without_dollars(line: &str) -> String {
    let line = if line.contains("$Operator") { "" } else { line };
    let line = line.replace("$Map", "HashMap").replace("$Set", "HashSet");
    line.replace("$PinnedSet", "PinnedSet").replace("$Pinned", "Pinned").replace("$($vis)*", "pub")
}

fn add_functions_and_traits(lines: impl Iterator<Item = String>, names: &mut BTreeSet<String>) {
    let mut of = None;
    for line in lines {
        if line.starts_with("impl") {
            let (name_of_trait, name_of_type) = header(&line);
            let known = TYPES.iter().find(|(name, _)| *name == name_of_type.trim_start_matches('&'));
            of = known.filter(|_| name_of_trait.is_none()).map(|(_, of)| *of);
            names.extend(name_of_trait.filter(|_| known.is_some()).map(|its| format!("{its} for {name_of_type}")));
        }
        let function = line.strip_prefix("    pub ").map(|rest| rest.trim_start_matches("unsafe "));
        let name = function.and_then(|rest| rest.strip_prefix("fn ")).map(identifier);
        names.extend(of.zip(name).map(|(of, name)| format!("{of}::{name}")));
    }
}

/// Returns the names of the trait, if any, and of the type, of `impl<..> Trait<..> for Type<..>`.
fn header(line: &str) -> (Option<&str>, String) {
    let mut depth = 0;
    let generics = line.char_indices().find(|&(at, c)| {
        depth += i32::from(c == '<') - i32::from(c == '>');
        at >= 4 && depth == 0
    });
    let rest = line[generics.expect("generics are on one line").0 + 1..].trim_start();
    match rest.split_once(" for ") {
        None => (None, identifier(rest).into()),
        Some((of, subject)) => {
            let of = of.split('<').next().unwrap_or_default();
            let reference = subject.strip_prefix('&').map(|rest| rest.trim_start_matches("'p "));
            let name = reference.map_or_else(|| identifier(subject).into(), |rest| format!("&{}", identifier(rest)));
            (of.rsplit("::").next(), name)
        }
    }
}

fn identifier(text: &str) -> &str {
    text.split(|c: char| !c.is_alphanumeric() && c != '_').next().unwrap_or_default()
}

#[test]
fn all_operations_are_in_the_lists() {
    let mut interface = BTreeSet::new();
    public_interface(&Path::new(env!("CARGO_MANIFEST_DIR")).join("src"), &mut interface);
    let mut listed: BTreeSet<&str> = ELSEWHERE.iter().chain(HARMLESS_TRAITS).copied().collect();
    listed.extend(tested::other_names());
    listed.extend([MAP, MAP_WAITING].into_iter().flatten().map(|(name, ..)| *name));
    listed.extend([SET, SET_WAITING].into_iter().flatten().map(|(name, ..)| *name));
    let listed: BTreeSet<String> = listed.iter().map(|name| name.split(',').next().unwrap().to_string()).collect();
    let is_harmless = |name: &&String| HARMLESS.iter().any(|harmless| name.ends_with(&format!("::{harmless}")));
    let missing: Vec<_> = interface.difference(&listed).filter(|name| !is_harmless(name)).collect();
    assert_eq!(missing, [""; 0], "no panics are tested of these");
    let gone: Vec<_> = listed.difference(&interface).filter(|name| !name.starts_with("operators")).collect();
    assert_eq!(gone, [""; 0], "the crate has no such operations");
}
