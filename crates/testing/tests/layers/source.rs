//! The modules of a crate, and the paths that their code mentions. Code of tests is left out.
//!
//! Tokens are enough to find paths: a path has `::` in it, or calls a macro. A single name is that
//! of a variable, a definition, or something that a `use` declaration mentions already.

use proc_macro2::{Delimiter, Group, Spacing, TokenStream, TokenTree};
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

/// The names on the way from the crate's root to a module; none for the root itself.
pub type ModulePath = Vec<String>;

/// Reads a file, if there is one.
pub type Read<'r> = &'r dyn Fn(&Path) -> Option<String>;

/// The code of a crate.
#[derive(Default)]
pub struct Source {
    pub modules: BTreeMap<ModulePath, Module>,
    /// The module that defines each macro.
    macros: BTreeMap<String, ModulePath>,
}

#[derive(Default)]
pub struct Module {
    pub children: BTreeSet<String>,
    pub mentions: Vec<Mention>,
    /// The paths to which `use` declarations give a name. A name has several if the compiler's
    /// options choose between them.
    names: BTreeMap<String, BTreeSet<Vec<String>>>,
}

/// A path in the code of a module.
pub struct Mention {
    pub file: PathBuf,
    pub line: usize,
    /// The path as it is written. That of a macro ends with `!`, that of a glob with `*`.
    pub path: Vec<String>,
    /// Whether `pub use` offers the item in this module.
    pub is_offered: bool,
}

/// What a path leads to.
#[derive(Eq, Ord, PartialEq, PartialOrd)]
pub enum Target {
    /// A module of the crate, or an item in it.
    Module(ModulePath),
    /// An item of another crate, or of no module, such as the variant of an enum.
    Outside(Vec<String>),
}

impl Source {
    /// Loads the crate with this root, such as `src/lib.rs`.
    pub fn load(root: &Path, read: Read<'_>) -> Source {
        let mut source = Source::default();
        let mut files = vec![ModulePath::new()];
        while let Some(module) = files.pop() {
            let (file, text) = find(root, &module, read);
            let tokens = text.parse().unwrap_or_else(|error| panic!("{}: {error}", file.display()));
            Reader { source: &mut source, file: &file, files: &mut files }.read(&module, tokens);
        }
        source
    }

    /// All that the path in `module` may lead to.
    pub fn resolve(&self, module: &[String], mention: &Mention) -> BTreeSet<Target> {
        let mut targets = BTreeSet::new();
        self.follow(module, module, mention.path.clone(), &mut targets);
        targets
    }

    /// Follows a path that begins in the module `base`. Names that `importer` finds in modules
    /// around it are followed to where they come from: `use super::Name` imports what `super`
    /// imports by that name.
    fn follow(&self, importer: &[String], base: &[String], path: Vec<String>, targets: &mut BTreeSet<Target>) {
        let first = path[0].trim_end_matches('!');
        let (mut module, mut rest) = (base.to_vec(), &path[..]);
        match first {
            "crate" => (module, rest) = (ModulePath::new(), &path[1..]),
            "self" => rest = &path[1..],
            "super" => {
                let supers = path.iter().take_while(|name| *name == "super").count();
                module.truncate(base.len() - supers);
                rest = &path[supers..];
            }
            _ if self.modules[base].children.contains(first) => (),
            _ => match self.modules[base].names.get(first) {
                None => return self.outside(path, targets),
                Some(named) => return self.follow_names(importer, base, named, &path, targets),
            },
        }
        while let Some((child, tail)) = rest.split_first()
            && self.modules[&module].children.contains(child)
        {
            module.push(child.clone());
            rest = tail;
        }
        let name = rest.first().map(|name| name.trim_end_matches('!')).unwrap_or_default();
        match self.modules[&module].names.get(name) {
            Some(named) if importer.starts_with(&module) && base != module => {
                self.follow_names(importer, &module, named, rest, targets);
            }
            // Exported macros are in the root.
            _ if module.is_empty() && self.macros.contains_key(name) => {
                targets.insert(Target::Module(self.macros[name].clone()));
            }
            _ => _ = targets.insert(Target::Module(module)),
        }
    }

    /// Follows a path whose first name stands for the paths `named`.
    fn follow_names(
        &self,
        importer: &[String],
        base: &[String],
        named: &BTreeSet<Vec<String>>,
        path: &[String],
        targets: &mut BTreeSet<Target>,
    ) {
        for named in named {
            let is_itself = named[0] == path[0].trim_end_matches('!');
            let full = [named, &path[1..]].concat();
            match self.macros.get(&named[0]) {
                _ if !is_itself => self.follow(importer, base, full, targets),
                // `use name;`, where the name is that of a macro.
                Some(module) if named.len() == 1 => _ = targets.insert(Target::Module(module.clone())),
                // `use name;`, or `use name::name;`, where the name is that of a crate.
                _ => self.outside(full, targets),
            }
        }
    }

    /// Adds a path that begins with no name of a module.
    fn outside(&self, mut path: Vec<String>, targets: &mut BTreeSet<Target>) {
        match path[0].as_str() {
            "::" => _ = path.remove(0),
            "core" | "alloc" => path[0] = "std".into(),
            name if path.len() == 1 && name.ends_with('!') => {
                if let Some(module) = self.macros.get(name.trim_end_matches('!')) {
                    targets.insert(Target::Module(module.clone()));
                    return;
                }
                path.insert(0, "std".into());
            }
            _ => (),
        }
        targets.insert(Target::Outside(path));
    }
}

/// The file of a module, and its text.
fn find(root: &Path, module: &[String], read: Read<'_>) -> (PathBuf, String) {
    let folder = module.iter().fold(root.with_file_name(""), |folder, name| folder.join(name));
    let places = if module.is_empty() {
        vec![root.to_owned()]
    } else {
        vec![folder.with_extension("rs"), folder.join("mod.rs")]
    };
    let found = places.iter().find_map(|place| Some((place.clone(), read(place)?)));
    found.unwrap_or_else(|| panic!("there is no file of the module crate::{}: {places:?}", module.join("::")))
}

/// Reads a file of a crate.
struct Reader<'r> {
    source: &'r mut Source,
    file: &'r Path,
    /// Modules that have files of their own, still to be read.
    files: &'r mut Vec<ModulePath>,
}

impl Reader<'_> {
    /// Reads code of a module.
    fn read(&mut self, module: &[String], tokens: TokenStream) {
        use TokenTree::{Group, Ident, Punct};
        self.source.modules.entry(module.to_vec()).or_default();
        let tokens: Vec<TokenTree> = tokens.into_iter().collect();
        let mut at = 0;
        while at < tokens.len() {
            let rest = &tokens[at..];
            at += match rest {
                [Punct(mark), Group(attribute), ..] if mark.as_char() == '#' => {
                    2 + if is_for_tests(attribute) { item_length(&rest[2..]) } else { 0 }
                }
                [Punct(mark), Punct(_), Group(_), ..] if mark.as_char() == '#' => 3,
                [Ident(word), Ident(name), body, ..] if word == "mod" => {
                    let child = [module, &[name.to_string()]].concat();
                    self.here(module).children.insert(name.to_string());
                    match body {
                        Group(code) => self.read(&child, code.stream()),
                        _ => self.files.push(child),
                    }
                    3
                }
                [Ident(word), Punct(_), Ident(name), ..] if word == "macro_rules" => {
                    self.source.macros.insert(name.to_string(), module.to_vec());
                    3
                }
                // Not the `use<'a>` of a type.
                [Ident(word), next, ..] if word == "use" && !is(Some(next), '<') => {
                    let length = rest.iter().take_while(|token| !is(Some(token), ';')).count();
                    let is_offered = tokens[..at].iter().rev().take(2).any(|token| token.to_string() == "pub");
                    self.read_use(module, is_offered, Vec::new(), &rest[1..length]);
                    length
                }
                // `pub(crate)` or `pub(in a::b)`
                [Ident(word), Group(scope), ..] if word == "pub" && is_scope(scope) => 2,
                [Ident(_), ..] => self.read_path(module, &tokens, at),
                [Group(code), ..] => {
                    self.read(module, code.stream());
                    1
                }
                _ => 1,
            };
        }
    }

    fn here(&mut self, module: &[String]) -> &mut Module {
        self.source.modules.get_mut(module).expect("a module is added before its code")
    }

    fn mention(&mut self, module: &[String], at: &TokenTree, path: Vec<String>, is_offered: bool) {
        let (file, line) = (self.file.to_owned(), at.span().start().line);
        self.here(module).mentions.push(Mention { file, line, path, is_offered });
    }

    /// Reads a path or a name in code. Returns the number of its tokens.
    fn read_path(&mut self, module: &[String], tokens: &[TokenTree], at: usize) -> usize {
        let rest = &tokens[at..];
        let (mut path, mut length) = (vec![rest[0].to_string()], 1);
        while is(rest.get(length), ':')
            && is(rest.get(length + 1), ':')
            && let Some(TokenTree::Ident(next)) = rest.get(length + 2)
        {
            path.push(next.to_string());
            length += 3;
        }
        // `a != b` calls no macro.
        let is_macro = is(rest.get(length), '!') && !is(rest.get(length + 1), '=');
        if is_macro {
            path.last_mut().expect("it has a first name").push('!');
        }
        // Not the rest of `<T as Trait>::name`.
        let follows_colons = matches!(tokens[..at], [.., TokenTree::Punct(ref first), TokenTree::Punct(ref second)]
            if first.as_char() == ':' && first.spacing() == Spacing::Joint && second.as_char() == ':');
        if (is_macro || path.len() > 1) && !follows_colons {
            self.mention(module, &rest[0], path, false);
        }
        length
    }

    /// Reads a `use` declaration. `path` leads to this part of it.
    fn read_use(&mut self, module: &[String], is_offered: bool, mut path: Vec<String>, tokens: &[TokenTree]) {
        use TokenTree::{Group, Ident, Punct};
        let (item, name) = match tokens {
            [Punct(_), Punct(_), rest @ ..] => return self.read_use(module, is_offered, vec!["::".into()], rest),
            [Ident(name), Punct(_), Punct(_), rest @ ..] => {
                path.push(name.to_string());
                return self.read_use(module, is_offered, path, rest);
            }
            [Group(group), ..] => {
                let tokens: Vec<TokenTree> = group.stream().into_iter().collect();
                let parts = tokens.split(|token| is(Some(token), ',')).filter(|part| !part.is_empty());
                return parts.for_each(|part| self.read_use(module, is_offered, path.clone(), part));
            }
            [item, _as, name] => (item, name.to_string()),
            // `use a::b::{self}` names `b`, as `use a::b` does.
            [item] if item.to_string() == "self" => (item, path.last().expect("it is in a module").clone()),
            [item, ..] => (item, item.to_string()),
            [] => return,
        };
        if item.to_string() != "self" {
            path.push(item.to_string());
        }
        if !["_", "*"].contains(&name.as_str()) {
            self.here(module).names.entry(name).or_default().insert(path.clone());
        }
        self.mention(module, item, path, is_offered);
    }
}

fn is(token: Option<&TokenTree>, wanted: char) -> bool {
    matches!(token, Some(TokenTree::Punct(punct)) if punct.as_char() == wanted)
}

/// Whether the group after `pub` says who may see the item.
fn is_scope(group: &Group) -> bool {
    let first = group.stream().into_iter().next().map(|token| token.to_string());
    first.is_some_and(|word| ["crate", "self", "super", "in"].contains(&word.as_str()))
}

/// The number of tokens of the item, statement or field at the beginning.
fn item_length(tokens: &[TokenTree]) -> usize {
    let mut words = tokens.iter().filter(|token| matches!(token, TokenTree::Ident(_))).map(ToString::to_string);
    let mut words = words.by_ref().filter(|word| word != "pub");
    let (first, second) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
    let is_value = first == "const" && !["fn", "unsafe", "extern"].contains(&second.as_str());
    let ends_with_semicolon = is_value || ["use", "let", "static", "type"].contains(&first.as_str());
    let is_item = ["async", "const", "enum", "extern", "fn", "impl", "mod", "struct", "trait", "union", "unsafe"]
        .contains(&first.as_str());
    let is_end = |token: &TokenTree| match token {
        TokenTree::Group(group) => !ends_with_semicolon && group.delimiter() == Delimiter::Brace,
        token => is(Some(token), ';') || !ends_with_semicolon && !is_item && is(Some(token), ','),
    };
    tokens.iter().position(is_end).map_or(tokens.len(), |end| end + 1)
}

/// Whether what has this attribute exists only in tests.
fn is_for_tests(attribute: &Group) -> bool {
    let tokens: Vec<TokenTree> = attribute.stream().into_iter().collect();
    match &tokens[..] {
        [TokenTree::Ident(name)] => name == "test",
        [TokenTree::Ident(name), TokenTree::Group(condition)] if name == "cfg" => needs_test("all", condition),
        _ => false,
    }
}

/// Whether `any` or `all` conditions in this group hold only in tests.
fn needs_test(combined_by: &str, conditions: &Group) -> bool {
    let tokens: Vec<TokenTree> = conditions.stream().into_iter().collect();
    let mut parts = tokens.split(|token| is(Some(token), ',')).filter(|part| !part.is_empty()).map(|part| match part {
        [TokenTree::Ident(name)] => name == "test" || name == "doctest",
        [TokenTree::Ident(name), TokenTree::Group(inner)] => needs_test(&name.to_string(), inner),
        _ => false,
    });
    match combined_by {
        "all" => parts.any(|needs| needs),
        "any" => parts.all(|needs| needs),
        _ => false,
    }
}
