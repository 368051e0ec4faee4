//! The rules that the imports of a crate and its manifest must follow.

use crate::source::{Mention, ModulePath, Source, Target};
use crate::table::{CRATES, Crate, Forbidden};
use std::collections::{BTreeMap, BTreeSet};
use toml::de::{DeTable, DeValue};

/// The name in the table of a module's own code, as opposed to that of its children.
const OWN: &str = "self";

/// All imports of a crate that break its rules, and all that is wrong with its entry in the table.
pub fn violations(rules: &Crate, source: &Source) -> Vec<String> {
    let mut found = check_layers(rules.name, "", rules.layers, source);
    for inside in rules.inside {
        found.extend(check_layers(rules.name, inside.module, inside.layers, source));
    }
    found.extend(rules.forbidden.iter().flat_map(|forbidden| check_forbidden(rules.name, forbidden, source)));
    found
}

/// An import of one part of a module by another part. The parts are its children and its own code.
struct Import<'s> {
    from: &'s str,
    to: String,
    mention: &'s Mention,
}

/// The layer of a part of a module, and the number of the cycle that it is in.
type Place = (usize, Option<usize>);

/// Checks the layers of the parts of a module.
fn check_layers(name: &str, module: &str, layers: &[&str], source: &Source) -> Vec<String> {
    let path = path(module);
    let name = if path.is_empty() { name.into() } else { format!("{name}, {module}") };
    let Some(code) = source.modules.get(&path) else {
        return vec![format!("{name}: there is no module {module:?}, but the table has it")];
    };
    let imports = imports_between_parts(&path, source);
    let mut found = Vec::new();
    let places = places(layers, |part| found.push(format!("{name}: {part} is twice in the table")));
    let unknown = places.keys().filter(|part| **part != OWN && !code.children.contains(**part));
    found.extend(unknown.map(|part| format!("{name}: there is no module {part:?}, but the table has it")));
    let missing = code.children.iter().filter(|child| !places.contains_key(child.as_str()));
    found.extend(missing.map(|child| format!("{name}: the table lacks {child}")));
    found.extend(broken_cycles(&places, &imports).into_iter().map(|cycle| format!("{name}: {cycle}")));
    // Unless the table has it, a module's own code is above its children.
    let place = |part: &str| places.get(part).copied().or((part == OWN).then_some((usize::MAX, None)));
    let mut seen = BTreeSet::new();
    for Import { from, to, mention } in imports {
        let (Some(above), Some(below)) = (place(from), place(&to)) else { continue };
        let is_allowed = above.0 > below.0 || above.1.is_some() && above.1 == below.1;
        // One import of a module by a file is enough.
        if !is_allowed && seen.insert((&mention.file, to.clone())) {
            let relation = if above.0 == below.0 { "in the layer of" } else { "above" };
            found.push(format!("{}: {to} is {relation} {from} ({name})", written(mention)));
        }
    }
    found
}

/// The places of all parts in the table. Calls `report` with parts that have two.
fn places<'t>(layers: &[&'t str], mut report: impl FnMut(&str)) -> BTreeMap<&'t str, Place> {
    let (mut places, mut cycles) = (BTreeMap::new(), 0);
    for (layer, text) in layers.iter().enumerate() {
        let mut cycle = None;
        for word in text.split_whitespace() {
            if word.starts_with('(') {
                cycles += 1;
                cycle = Some(cycles);
            }
            let part = word.trim_matches(['(', ')']);
            if places.insert(part, (layer, cycle)).is_some() {
                report(part);
            }
            if word.ends_with(')') {
                cycle = None;
            }
        }
    }
    places
}

/// The cycles of the table in which two parts do not import each other, not even by way of others.
fn broken_cycles(places: &BTreeMap<&str, Place>, imports: &[Import<'_>]) -> Vec<String> {
    let mut broken = BTreeMap::new();
    for (one, (_, cycle)) in places.iter().filter(|(_, (_, cycle))| cycle.is_some()) {
        // All that `one` imports, directly or by way of others.
        let (mut reached, mut next) = (BTreeSet::new(), vec![*one]);
        while let Some(part) = next.pop() {
            let below = imports.iter().filter(|import| import.from == part).map(|import| import.to.as_str());
            next.extend(below.filter(|to| reached.insert(*to)));
        }
        let others = places.iter().filter(|(_, place)| place.1 == *cycle).map(|(other, _)| *other);
        if let Some(other) = others.into_iter().find(|other| !reached.contains(other)) {
            broken.entry(*cycle).or_insert(format!(
                "{one} does not import {other}, not even by way of others: take one of them out of the ()"
            ));
        }
    }
    broken.into_values().collect()
}

/// The imports that cross from one part of a module to another. A module that offers items of its
/// children (`pub use`) does not import them.
fn imports_between_parts<'s>(scope: &[String], source: &'s Source) -> Vec<Import<'s>> {
    let mut imports = Vec::new();
    for (module, code) in source.modules.iter().filter(|(module, _)| module.starts_with(scope)) {
        let from = part(module, scope);
        for mention in &code.mentions {
            for target in source.resolve(module, mention) {
                let Target::Module(target) = target else { continue };
                let is_offered = mention.is_offered && target.starts_with(module);
                if target.starts_with(scope) && part(&target, scope) != from && !is_offered {
                    imports.push(Import { from, to: part(&target, scope).into(), mention });
                }
            }
        }
    }
    imports
}

/// The part of `scope` that has the code of a module in it.
fn part<'m>(module: &'m ModulePath, scope: &[String]) -> &'m str {
    module.get(scope.len()).map_or(OWN, String::as_str)
}

fn check_forbidden(name: &str, forbidden: &Forbidden, source: &Source) -> Vec<String> {
    let is_excepted = |module: &ModulePath| forbidden.except.iter().any(|excepted| module.starts_with(&path(excepted)));
    let (mut found, mut seen) = (Vec::new(), BTreeSet::new());
    for (module, code) in source.modules.iter().filter(|(module, _)| !is_excepted(module)) {
        for mention in &code.mentions {
            let is_forbidden = source.resolve(module, mention).iter().any(|target| match target {
                Target::Outside(names) => forbidden.names.iter().any(|name| names.starts_with(&path(name))),
                Target::Module(_) => false,
            });
            if is_forbidden && seen.insert((&mention.file, mention.line)) {
                found.push(format!("{}: {} ({name})", written(mention), forbidden.why));
            }
        }
    }
    found
}

/// The names in a path such as `a::b`.
fn path(text: &str) -> Vec<String> {
    text.split("::").filter(|name| !name.is_empty()).map(String::from).collect()
}

/// Where an import is, and how it is written.
fn written(mention: &Mention) -> String {
    format!("{}:{}: {}", mention.file.display(), mention.line, mention.path.join("::").replace("::::", "::"))
}

/// How the dependencies in a manifest differ from those in the table. The crates in `below` are
/// those that may be used.
pub fn dependency_violations(rules: &Crate, below: &[Crate], manifest: &str) -> Vec<String> {
    let name = rules.name;
    let mut found = Vec::new();
    let code = dependencies(manifest, &["dependencies", "build-dependencies"]);
    let mut tests = dependencies(manifest, &["dev-dependencies"]);
    // All tests may use relativist-testing, and the crate itself with other features.
    tests.retain(|used| used != "relativist-testing" && used != name && !code.contains(used));
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
    let names = sections.filter_map(|section| section.get_ref().as_table()).flat_map(DeTable::keys);
    names.map(|name| name.get_ref().to_string()).filter(|name| CRATES.iter().any(|rules| rules.name == name)).collect()
}
