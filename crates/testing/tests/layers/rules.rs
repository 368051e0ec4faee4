//! The rules that imports must follow.

use crate::source::{Kind, Mention, ModulePath, Source, Target};
use crate::table::{Crate, Forbidden};
use std::collections::{BTreeMap, BTreeSet};

/// The name in the table of a module's own code, as opposed to that of its children.
const OWN: &str = "self";

/// All imports of a crate that break its rules, and all that is wrong with its entry in the table.
pub fn violations(rules: &Crate, source: &Source) -> Vec<String> {
    let mut found = check_layers(rules.name, "", rules.layers, source);
    for inside in rules.inside {
        found.extend(check_layers(rules.name, inside.module, inside.layers, source));
    }
    for forbidden in rules.forbidden {
        found.extend(check_forbidden(rules.name, forbidden, source));
    }
    found
}

/// An import of one part of a module by another part. The parts are its children and its own code.
struct Import<'s> {
    from: &'s str,
    to: String,
    mention: &'s Mention,
}

/// The place of a part in the layers.
#[derive(Clone, Copy)]
struct Place {
    layer: usize,
    /// The number of the cycle that it is in.
    cycle: Option<usize>,
}

/// Checks the layers of the parts of a module.
fn check_layers(name: &str, module: &str, layers: &[&str], source: &Source) -> Vec<String> {
    let path = path(module);
    let name = if path.is_empty() { name.into() } else { format!("{name}, {module}") };
    let Some(code) = source.modules.get(&path) else {
        return vec![format!("{name}: there is no module {module:?}, but the table has it")];
    };
    let imports = imports_between_parts(&path, source);
    let mut found = Vec::new();
    let places = places(layers, |problem| found.push(format!("{name}: {problem} in the table")));
    for part in places.keys().filter(|part| **part != OWN && !code.children.contains(**part)) {
        found.push(format!("{name}: there is no module {part:?}, but the table has it"));
    }
    let missing: Vec<&str> =
        code.children.iter().map(String::as_str).filter(|child| !places.contains_key(child)).collect();
    if !missing.is_empty() {
        let layers = possible_layers(&code.children, &imports);
        let missing = missing.join(", ");
        found.push(format!("{name}: the table lacks {missing}. The imports allow these layers:\n{layers}"));
    }
    found.extend(broken_cycles(&places, &imports).into_iter().map(|cycle| format!("{name}: {cycle}")));
    // Unless the table has it, a module's own code is above its children.
    let place = |part: &str| {
        let above_all = Place { layer: usize::MAX, cycle: None };
        places.get(part).copied().or((part == OWN).then_some(above_all))
    };
    let mut seen = BTreeSet::new();
    for Import { from, to, mention } in imports {
        let (Some(above), Some(below)) = (place(from), place(&to)) else { continue };
        let is_allowed = above.layer > below.layer || above.cycle.is_some() && above.cycle == below.cycle;
        // One import of a module by a file is enough.
        if is_allowed || !seen.insert((&mention.file, to.clone())) {
            continue;
        }
        let relation = if above.layer == below.layer { "in the layer of" } else { "above" };
        found.push(format!("{}: {to} is {relation} {from} ({name})", written(mention)));
    }
    found
}

/// The places of all parts in the table.
fn places<'t>(layers: &[&'t str], mut report: impl FnMut(String)) -> BTreeMap<&'t str, Place> {
    let (mut places, mut cycles) = (BTreeMap::new(), 0);
    for (layer, text) in layers.iter().enumerate() {
        let mut cycle = None;
        for word in text.split_whitespace() {
            if word.starts_with('(') {
                cycles += 1;
                cycle = Some(cycles);
            }
            let part = word.trim_matches(['(', ')']);
            if places.insert(part, Place { layer, cycle }).is_some() {
                report(format!("{part} is twice"));
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
    let below = below(imports);
    let mut cycles: BTreeMap<usize, Vec<(&str, BTreeSet<&str>)>> = BTreeMap::new();
    for (part, place) in places {
        if let Some(cycle) = place.cycle {
            cycles.entry(cycle).or_default().push((part, reached(part, &below)));
        }
    }
    let broken = cycles.into_values().filter_map(|parts| {
        let pairs = parts.iter().flat_map(|one| parts.iter().map(move |other| (one, other)));
        let mut pairs = pairs.filter(|((one, _), (other, _))| one != other || parts.len() == 1);
        let ((one, _), (other, _)) = pairs.find(|((_, reached), (other, _))| !reached.contains(other))?;
        Some(format!("{one} does not import {other}, not even by way of others: take one of them out of the ()"))
    });
    broken.collect()
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
                let is_offered = mention.kind == Kind::Facade && target.starts_with(module);
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
    let excepted: Vec<ModulePath> = forbidden.except.iter().map(|module| path(module)).collect();
    let is_in = |names: &[String], name: &str| names == path(name) || names.starts_with(&path(name));
    let (mut found, mut seen) = (Vec::new(), BTreeSet::new());
    for (module, code) in &source.modules {
        if excepted.iter().any(|excepted| module.starts_with(excepted)) {
            continue;
        }
        for mention in &code.mentions {
            let is_forbidden = source.resolve(module, mention).iter().any(|target| match target {
                Target::Outside(names) => forbidden.names.iter().any(|name| is_in(names, name)),
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

/// The lowest layers that the imports allow, as they would be in the table.
fn possible_layers(children: &BTreeSet<String>, imports: &[Import<'_>]) -> String {
    let below = below(imports);
    let mut parts: Vec<&str> = children.iter().map(String::as_str).collect();
    if imports.iter().any(|import| import.to == OWN) {
        parts.push(OWN);
    }
    let reached: BTreeMap<&str, BTreeSet<&str>> = parts.iter().map(|part| (*part, reached(part, &below))).collect();
    let are_in_cycle =
        |one: &str, other: &str| one == other || reached[one].contains(other) && reached[other].contains(one);
    let (mut placed, mut text) = (BTreeSet::new(), String::new());
    while placed.len() < parts.len() {
        let is_next = |part: &&str| {
            !placed.contains(part) && reached[part].iter().all(|to| placed.contains(to) || are_in_cycle(part, to))
        };
        let layer: Vec<&str> = parts.iter().copied().filter(is_next).collect();
        let cycles: BTreeSet<String> = layer
            .iter()
            .map(|part| {
                let cycle: Vec<&str> = layer.iter().copied().filter(|other| are_in_cycle(part, other)).collect();
                if cycle.len() > 1 { format!("({})", cycle.join(" ")) } else { cycle.concat() }
            })
            .collect();
        text += &format!("    {:?},\n", cycles.into_iter().collect::<Vec<_>>().join(" "));
        placed.extend(layer);
    }
    text
}

/// What each part imports.
fn below<'i>(imports: &'i [Import<'_>]) -> BTreeMap<&'i str, BTreeSet<&'i str>> {
    let mut below: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    for import in imports {
        below.entry(import.from).or_default().insert(&import.to);
    }
    below
}

/// All that `from` imports, directly or by way of others.
fn reached<'i>(from: &'i str, below: &BTreeMap<&'i str, BTreeSet<&'i str>>) -> BTreeSet<&'i str> {
    let (mut reached, mut next) = (BTreeSet::new(), vec![from]);
    while let Some(part) = next.pop() {
        next.extend(below.get(part).into_iter().flatten().copied().filter(|to| reached.insert(*to)));
    }
    reached
}
