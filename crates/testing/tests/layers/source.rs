//! The modules of a crate, and the paths that their code mentions. Code of tests is left out.

use proc_macro2::{Group, Spacing, TokenStream, TokenTree};
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use syn::punctuated::Punctuated;
use syn::visit::{self, Visit};
use syn::{Attribute, ImplItem, Item, Macro, Meta, Stmt, Token, TraitItem, UseTree, Visibility};

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
    pub kind: Kind,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Kind {
    /// `use` for the module itself.
    Use,
    /// `pub use`, which offers an item in another place.
    Facade,
    /// A path in other code.
    Path,
}

/// What a path leads to.
#[derive(Clone, Debug, Eq, Ord, PartialEq, PartialOrd)]
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
        let mut modules = vec![ModulePath::new()];
        while let Some(module) = modules.pop() {
            let (file, text) = find(root, &module, read);
            let parsed = syn::parse_file(&text)
                .unwrap_or_else(|error| panic!("{}:{}: {error}", file.display(), error.span().start().line));
            source.modules.entry(module.clone()).or_default();
            let mut reader = Reader { source: &mut source, file: &file, module, files: Vec::new() };
            reader.visit_file(&parsed);
            modules.append(&mut reader.files);
        }
        source
    }

    /// All that the path in `module` may lead to.
    pub fn resolve(&self, module: &[String], mention: &Mention) -> BTreeSet<Target> {
        let mut targets = BTreeSet::new();
        // In code one name alone is that of an item or a variable, not that of a module.
        let is_variable = mention.kind == Kind::Path
            && mention.path.len() == 1
            && self.modules[module].children.contains(&mention.path[0]);
        if !is_variable {
            self.follow(module, module, mention.path.clone(), &mut targets);
        }
        targets
    }

    /// Follows a path that begins in the module `base`. Names that `importer` finds in modules
    /// around it are followed to where they come from: `use super::Name` imports what `super`
    /// imports by that name.
    fn follow(&self, importer: &[String], base: &[String], path: Vec<String>, targets: &mut BTreeSet<Target>) {
        let (mut module, mut rest) = (base.to_vec(), &path[..]);
        match path[0].trim_end_matches('!') {
            "crate" => (module, rest) = (ModulePath::new(), &path[1..]),
            "self" => rest = &path[1..],
            "super" => {
                while let Some(("super", tail)) = rest.split_first().map(|(first, tail)| (first.as_str(), tail)) {
                    module.pop();
                    rest = tail;
                }
            }
            first if self.modules[base].children.contains(first) => (),
            first if self.modules[base].names.contains_key(first) => {
                for named in &self.modules[base].names[first] {
                    let path = [named, &path[1..]].concat();
                    match self.macros.get(first) {
                        _ if named[0] != first => self.follow(importer, base, path, targets),
                        // `use name;`, where the name is that of a macro.
                        Some(module) if named.len() == 1 => _ = targets.insert(Target::Module(module.clone())),
                        // `use name;`, or `use name::name;`, where the name is that of a crate.
                        _ => self.outside(path, targets),
                    }
                }
                return;
            }
            _ => return self.outside(path, targets),
        }
        while let Some((child, tail)) = rest.split_first()
            && self.modules[&module].children.contains(child)
        {
            module.push(child.clone());
            rest = tail;
        }
        let name = rest.first().map(|name| name.trim_end_matches('!')).unwrap_or_default();
        match self.modules[&module].names.get(name) {
            Some(names) if importer.starts_with(&module) && base != module => {
                for named in names {
                    self.follow(importer, &module, [named, &rest[1..]].concat(), targets);
                }
            }
            // Exported macros are in the root.
            _ if module.is_empty() && self.macros.contains_key(name) => {
                targets.insert(Target::Module(self.macros[name].clone()));
            }
            _ => _ = targets.insert(Target::Module(module)),
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
    let folder = root.parent().expect("the root is a file");
    let places = match module.split_last() {
        None => vec![root.to_owned()],
        Some((name, parents)) => {
            let parent = parents.iter().fold(folder.to_owned(), |folder, name| folder.join(name));
            vec![parent.join(format!("{name}.rs")), parent.join(name).join("mod.rs")]
        }
    };
    let found = places.iter().find_map(|place| Some((place.clone(), read(place)?)));
    found.unwrap_or_else(|| panic!("there is no file of the module crate::{}: {places:?}", module.join("::")))
}

/// Reads a file of a crate.
struct Reader<'r> {
    source: &'r mut Source,
    file: &'r Path,
    /// The module of the code that is being read.
    module: ModulePath,
    /// Modules declared here that have files of their own.
    files: Vec<ModulePath>,
}

impl Reader<'_> {
    fn here(&mut self) -> &mut Module {
        self.source.modules.get_mut(&self.module).expect("a module is added before its code")
    }

    fn mention(&mut self, line: usize, path: Vec<String>, kind: Kind) {
        let file = self.file.to_owned();
        self.here().mentions.push(Mention { file, line, path, kind });
    }

    /// Adds all that a `use` declaration mentions. `path` leads to this part of it.
    fn add_use(&mut self, mut path: Vec<String>, tree: &UseTree, kind: Kind) {
        let (item, name, span) = match tree {
            UseTree::Path(part) => {
                path.push(part.ident.to_string());
                return self.add_use(path, &part.tree, kind);
            }
            UseTree::Group(group) => {
                return group.items.iter().for_each(|tree| self.add_use(path.clone(), tree, kind));
            }
            UseTree::Glob(part) => ("*".into(), None, part.star_token.span),
            UseTree::Name(part) => (part.ident.to_string(), Some(part.ident.to_string()), part.ident.span()),
            UseTree::Rename(part) => (part.ident.to_string(), Some(part.rename.to_string()), part.ident.span()),
        };
        let mut name = name.filter(|name| name != "_");
        if item == "self" {
            // `use a::b::{self}` names `b`, as `use a::b` does.
            name = name.map(|name| if name == "self" { path[path.len() - 1].clone() } else { name });
        } else {
            path.push(item);
        }
        if let Some(name) = name {
            self.here().names.entry(name).or_default().insert(path.clone());
        }
        self.mention(span.start().line, path, kind);
    }

    /// Adds the paths in the tokens of a macro.
    fn add_tokens(&mut self, tokens: TokenStream) {
        let tokens: Vec<TokenTree> = tokens.into_iter().collect();
        let is =
            |at: usize, wanted| matches!(tokens.get(at), Some(TokenTree::Punct(punct)) if punct.as_char() == wanted);
        let mut at = 0;
        while at < tokens.len() {
            let start = at;
            at += 1;
            match &tokens[start] {
                TokenTree::Group(group) if !is_visibility(&tokens[..start], group) => self.add_tokens(group.stream()),
                TokenTree::Ident(first) => {
                    let mut path = vec![first.to_string()];
                    while is(at, ':')
                        && is(at + 1, ':')
                        && let Some(TokenTree::Ident(next)) = tokens.get(at + 2)
                    {
                        path.push(next.to_string());
                        at += 3;
                    }
                    // `a != b` calls no macro.
                    if is(at, '!') && !is(at + 1, '=') {
                        path.last_mut().expect("it has a first name").push('!');
                    }
                    // Not fields and methods, nor the rest of `<T as Trait>::name`.
                    if !follows_dot_or_colons(&tokens[..start]) {
                        self.mention(first.span().start().line, path, Kind::Path);
                    }
                }
                _ => (),
            }
        }
    }
}

impl<'ast> Visit<'ast> for Reader<'_> {
    fn visit_item(&mut self, item: &'ast Item) {
        if is_for_tests(attributes(item)) {
            return;
        }
        match item {
            Item::Use(part) => {
                let kind = if matches!(part.vis, Visibility::Inherited) { Kind::Use } else { Kind::Facade };
                let path = if part.leading_colon.is_some() { vec!["::".into()] } else { Vec::new() };
                self.add_use(path, &part.tree, kind);
            }
            Item::Mod(part) => {
                let name = part.ident.to_string();
                self.here().children.insert(name.clone());
                self.module.push(name);
                match &part.content {
                    None => self.files.push(self.module.clone()),
                    Some((_, items)) => {
                        self.source.modules.entry(self.module.clone()).or_default();
                        items.iter().for_each(|item| self.visit_item(item));
                    }
                }
                self.module.pop();
            }
            Item::Macro(part) => {
                if let Some(name) = &part.ident {
                    self.source.macros.insert(name.to_string(), self.module.clone());
                }
                visit::visit_item(self, item);
            }
            _ => visit::visit_item(self, item),
        }
    }

    fn visit_impl_item(&mut self, item: &'ast ImplItem) {
        let attributes: &[Attribute] = match item {
            ImplItem::Const(part) => &part.attrs,
            ImplItem::Fn(part) => &part.attrs,
            ImplItem::Type(part) => &part.attrs,
            ImplItem::Macro(part) => &part.attrs,
            _ => &[],
        };
        if !is_for_tests(attributes) {
            visit::visit_impl_item(self, item);
        }
    }

    fn visit_trait_item(&mut self, item: &'ast TraitItem) {
        let attributes: &[Attribute] = match item {
            TraitItem::Const(part) => &part.attrs,
            TraitItem::Fn(part) => &part.attrs,
            TraitItem::Type(part) => &part.attrs,
            TraitItem::Macro(part) => &part.attrs,
            _ => &[],
        };
        if !is_for_tests(attributes) {
            visit::visit_trait_item(self, item);
        }
    }

    fn visit_stmt(&mut self, statement: &'ast Stmt) {
        let attributes: &[Attribute] = match statement {
            Stmt::Local(part) => &part.attrs,
            Stmt::Macro(part) => &part.attrs,
            Stmt::Expr(syn::Expr::Block(part), _) => &part.attrs,
            _ => &[],
        };
        if !is_for_tests(attributes) {
            visit::visit_stmt(self, statement);
        }
    }

    fn visit_field(&mut self, field: &'ast syn::Field) {
        if !is_for_tests(&field.attrs) {
            visit::visit_field(self, field);
        }
    }

    fn visit_field_value(&mut self, field: &'ast syn::FieldValue) {
        if !is_for_tests(&field.attrs) {
            visit::visit_field_value(self, field);
        }
    }

    fn visit_path(&mut self, path: &'ast syn::Path) {
        let mut names: Vec<String> = path.segments.iter().map(|segment| segment.ident.to_string()).collect();
        if path.leading_colon.is_some() {
            names.insert(0, "::".into());
        }
        self.mention(path.segments[0].ident.span().start().line, names, Kind::Path);
        visit::visit_path(self, path);
    }

    fn visit_macro(&mut self, called: &'ast Macro) {
        let mut path: Vec<String> = called.path.segments.iter().map(|segment| segment.ident.to_string()).collect();
        path.last_mut().expect("a path has names").push('!');
        self.mention(called.path.segments[0].ident.span().start().line, path, Kind::Path);
        self.add_tokens(called.tokens.clone());
    }

    // Neither imports anything.
    fn visit_visibility(&mut self, _: &'ast Visibility) {}
    fn visit_attribute(&mut self, _: &'ast Attribute) {}
}

/// Whether these tokens end with one dot, or with `::`.
fn follows_dot_or_colons(tokens: &[TokenTree]) -> bool {
    let punct = |from_end: usize| match tokens.len().checked_sub(from_end).map(|at| &tokens[at]) {
        Some(TokenTree::Punct(punct)) => Some((punct.as_char(), punct.spacing())),
        _ => None,
    };
    match (punct(2), punct(1)) {
        (Some((':', Spacing::Joint)), Some((':', _))) => true,
        (before, Some(('.', _))) => before != Some(('.', Spacing::Joint)),
        _ => false,
    }
}

/// Whether a group after these tokens is that of `pub(crate)` or `pub(in a::b)`.
fn is_visibility(before: &[TokenTree], group: &Group) -> bool {
    let is_any = |token: Option<&TokenTree>, names: &[&str]| match token {
        Some(TokenTree::Ident(ident)) => names.iter().any(|name| ident == name),
        _ => false,
    };
    let first = group.stream().into_iter().next();
    is_any(before.last(), &["pub"]) && is_any(first.as_ref(), &["crate", "self", "super", "in"])
}

/// The attributes of an item.
fn attributes(item: &Item) -> &[Attribute] {
    match item {
        Item::Const(part) => &part.attrs,
        Item::Enum(part) => &part.attrs,
        Item::ExternCrate(part) => &part.attrs,
        Item::Fn(part) => &part.attrs,
        Item::ForeignMod(part) => &part.attrs,
        Item::Impl(part) => &part.attrs,
        Item::Macro(part) => &part.attrs,
        Item::Mod(part) => &part.attrs,
        Item::Static(part) => &part.attrs,
        Item::Struct(part) => &part.attrs,
        Item::Trait(part) => &part.attrs,
        Item::TraitAlias(part) => &part.attrs,
        Item::Type(part) => &part.attrs,
        Item::Union(part) => &part.attrs,
        Item::Use(part) => &part.attrs,
        _ => &[],
    }
}

/// Whether code with these attributes exists only in tests.
fn is_for_tests(attributes: &[Attribute]) -> bool {
    attributes.iter().any(|attribute| {
        attribute.path().is_ident("test")
            || attribute.path().is_ident("cfg") && attribute.parse_args().is_ok_and(|condition| needs_test(&condition))
    })
}

/// Whether a condition of `cfg` holds only in tests.
fn needs_test(condition: &Meta) -> bool {
    match condition {
        Meta::Path(path) => path.is_ident("test") || path.is_ident("doctest"),
        Meta::NameValue(_) => false,
        Meta::List(list) => {
            let parts = list.parse_args_with(Punctuated::<Meta, Token![,]>::parse_terminated).unwrap_or_default();
            if list.path.is_ident("all") {
                parts.iter().any(needs_test)
            } else {
                list.path.is_ident("any") && !parts.is_empty() && parts.iter().all(needs_test)
            }
        }
    }
}
