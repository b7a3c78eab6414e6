//! The modules of one crate, and which file defines what a path names.

use super::super::repo::Repo;
use super::super::source::{attributes, is_test};
use std::collections::BTreeMap;
use syn::{Fields, ImplItem, Item, Type, UseTree};

/// What a path is followed through at most: imports of imports; more is a glob that imports itself.
const HOPS_MAX: usize = 16;

/// An item of a crate: the module that defines it, and its name there.
pub(super) type Key = (usize, String);

/// One import of a `use` item: where the path leads, by which name it is known here, and where it stands.
pub(super) struct Import {
    pub(super) path: Vec<String>,
    /// `*` for a glob.
    name: String,
    pub(super) line: usize,
}

/// What a name means in a module.
enum Meaning {
    Module(usize),
    Item,
    Import(Vec<String>),
}

/// One module: a file, or a part of one.
pub(super) struct Module {
    /// The path of the file that holds it.
    pub(super) file: String,
    pub(super) items: Vec<Item>,
    pub(super) parent: Option<usize>,
    names: BTreeMap<String, Vec<Meaning>>,
    globs: Vec<Vec<String>>,
}

/// What a path leads to.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Resolved {
    Module(usize),
    /// An item, and what of it the path names next: a variant, or an associated function.
    Item(Key, Option<String>),
}

/// All modules of a crate, the root first.
#[derive(Default)]
pub(super) struct Modules {
    pub(super) all: Vec<Module>,
    /// The file that holds a type's own function, which need not be the one that holds the type.
    functions: BTreeMap<(Key, String), String>,
    /// The type of a type's field, where this crate defines both.
    fields: BTreeMap<(Key, String), Key>,
}

impl Modules {
    /// Reads the crate whose root is the file at `root`. What is compiled for tests only is left out.
    pub(super) fn read(repo: &Repo, root: &str) -> syn::Result<Self> {
        let mut modules = Self::default();
        let folder = root.rsplit_once('/').map_or("", |(folder, _)| folder);
        modules.read_file(repo, root, folder, None)?;
        modules.read_types();
        Ok(modules)
    }

    fn read_file(&mut self, repo: &Repo, path: &str, folder: &str, parent: Option<usize>) -> syn::Result<usize> {
        let text = repo.at(path).map_or_else(String::new, |source| source.lines.join("\n"));
        self.read_module(repo, path, folder, parent, syn::parse_file(&text)?.items)
    }

    /// Adds a module of `items` whose children's files are in `folder`, and its children.
    fn read_module(
        &mut self,
        repo: &Repo,
        file: &str,
        folder: &str,
        parent: Option<usize>,
        mut items: Vec<Item>,
    ) -> syn::Result<usize> {
        items.retain(|item| !attributes(item).iter().any(is_test));
        let id = self.all.len();
        let module =
            Module { file: file.to_owned(), items: Vec::new(), parent, names: BTreeMap::new(), globs: Vec::new() };
        self.all.push(module);
        for item in &mut items {
            match item {
                Item::Mod(inner) => {
                    let (name, below) = (inner.ident.to_string(), format!("{folder}/{}", inner.ident));
                    let inline = inner.content.take().map(|(_, items)| items);
                    let file_of_its_own = [format!("{below}.rs"), format!("{below}/mod.rs")];
                    let child = match (inline, file_of_its_own.iter().find(|path| repo.at(path).is_some())) {
                        (Some(items), _) => self.read_module(repo, file, &below, Some(id), items)?,
                        (None, Some(path)) => self.read_file(repo, path, &below, Some(id))?,
                        (None, None) => continue,
                    };
                    self.define(id, name, Meaning::Module(child));
                }
                Item::Use(item) => {
                    for import in imports(&item.tree) {
                        match import.name.as_str() {
                            "*" => self.all[id].globs.push(import.path),
                            _ => self.define(id, import.name, Meaning::Import(import.path)),
                        }
                    }
                }
                _ => name_of(item).into_iter().for_each(|name| self.define(id, name, Meaning::Item)),
            }
        }
        self.all[id].items = items;
        Ok(id)
    }

    fn define(&mut self, module: usize, name: String, meaning: Meaning) {
        self.all[module].names.entry(name).or_default().push(meaning);
    }

    /// Notes where types have their functions, and of which types their fields are.
    fn read_types(&mut self) {
        let (mut functions, mut fields) = (BTreeMap::new(), BTreeMap::new());
        for (id, module) in self.all.iter().enumerate() {
            for item in &module.items {
                match item {
                    Item::Impl(block) if block.trait_.is_none() => {
                        let Some(owner) = self.type_key(id, &block.self_ty) else { continue };
                        for function in block.items.iter().filter_map(function_name) {
                            functions.insert((owner.clone(), function), module.file.clone());
                        }
                    }
                    Item::Struct(item) => {
                        let Fields::Named(named) = &item.fields else { continue };
                        for field in &named.named {
                            if let (Some(name), Some(key)) = (&field.ident, self.type_key(id, &field.ty)) {
                                fields.insert(((id, item.ident.to_string()), name.to_string()), key);
                            }
                        }
                    }
                    _ => {}
                }
            }
        }
        (self.functions, self.fields) = (functions, fields);
    }

    /// The crate's own type that `written` names in `module`, behind any references.
    pub(super) fn type_key(&self, module: usize, written: &Type) -> Option<Key> {
        match written {
            Type::Reference(reference) => self.type_key(module, &reference.elem),
            Type::Paren(inner) => self.type_key(module, &inner.elem),
            Type::Path(path) => match self.resolve(module, &segments(&path.path))? {
                Resolved::Item(key, None) => Some(key),
                _ => None,
            },
            _ => None,
        }
    }

    /// The type of the field `name` of the type `owner`.
    pub(super) fn field(&self, owner: Key, name: &str) -> Option<Key> {
        self.fields.get(&(owner, name.to_owned())).cloned()
    }

    /// The file that defines the function `name` of the type `owner`.
    pub(super) fn function_file(&self, owner: &Key, name: &str) -> Option<&str> {
        self.functions.get(&(owner.clone(), name.to_owned())).map(String::as_str)
    }

    /// What `path` leads to when it stands in `module`; none for what another crate defines.
    pub(super) fn resolve(&self, module: usize, path: &[String]) -> Option<Resolved> {
        self.follow(module, path, 0)
    }

    fn follow(&self, mut module: usize, mut path: &[String], hops: usize) -> Option<Resolved> {
        while let Some((name, rest)) = path.split_first() {
            match name.as_str() {
                "crate" => module = 0,
                "self" => {}
                "super" => module = self.all[module].parent?,
                _ => match self.lookup(module, name, rest, hops)? {
                    Resolved::Module(inner) => module = inner,
                    Resolved::Item(key, None) => return Some(Resolved::Item(key, rest.first().cloned())),
                    place => return Some(place),
                },
            }
            path = rest;
        }
        Some(Resolved::Module(module))
    }

    /// What `name` means in `module`. Of a module and an item with one name, a path with more to come means the module.
    fn lookup(&self, module: usize, name: &str, rest: &[String], hops: usize) -> Option<Resolved> {
        if hops == HOPS_MAX {
            return None;
        }
        let here = &self.all[module];
        let meanings = here.names.get(name).map_or(&[][..], Vec::as_slice).iter().map(|meaning| match meaning {
            Meaning::Module(inner) => Resolved::Module(*inner),
            Meaning::Item => Resolved::Item((module, name.to_owned()), None),
            // What another crate defines is reached through the file that imports it.
            Meaning::Import(path) => {
                self.follow(module, path, hops + 1).unwrap_or_else(|| Resolved::Item((module, name.to_owned()), None))
            }
        });
        let through_globs = here.globs.iter().filter_map(|path| match self.follow(module, path, hops + 1)? {
            Resolved::Module(other) if other != module => self.lookup(other, name, rest, hops + 1),
            _ => None,
        });
        let (modules, items): (Vec<_>, Vec<_>) =
            meanings.chain(through_globs).partition(|place| matches!(place, Resolved::Module(_)));
        let (first, second) = if rest.is_empty() { (items, modules) } else { (modules, items) };
        first.into_iter().chain(second).next()
    }

    /// True if `module` stands below `ancestor` in the tree of modules.
    pub(super) fn is_below(&self, module: usize, ancestor: usize) -> bool {
        let parent = self.all[module].parent;
        parent.is_some_and(|parent| parent == ancestor || self.is_below(parent, ancestor))
    }
}

/// The names of a path's segments.
pub(super) fn segments(path: &syn::Path) -> Vec<String> {
    // A path that begins with `::` names another crate, by a name that no module has.
    let other = path.leading_colon.as_ref().map(|_| "::".to_owned());
    other.into_iter().chain(path.segments.iter().map(|segment| segment.ident.to_string())).collect()
}

/// The imports that a `use` item spells.
pub(super) fn imports(tree: &UseTree) -> Vec<Import> {
    let mut found = Vec::new();
    spell(tree, &[], &mut found);
    found
}

fn spell(tree: &UseTree, before: &[String], found: &mut Vec<Import>) {
    let with = |name: &syn::Ident| before.iter().cloned().chain([name.to_string()]).collect::<Vec<_>>();
    let mut push = |path: Vec<String>, name: String, span: proc_macro2::Span| {
        found.push(Import { path, name, line: span.start().line });
    };
    match tree {
        UseTree::Path(path) => spell(&path.tree, &with(&path.ident), found),
        UseTree::Group(group) => group.items.iter().for_each(|tree| spell(tree, before, found)),
        UseTree::Glob(glob) => push(before.to_vec(), "*".to_owned(), glob.star_token.spans[0]),
        UseTree::Rename(leaf) => push(with(&leaf.ident), leaf.rename.to_string(), leaf.ident.span()),
        UseTree::Name(leaf) if leaf.ident == "self" => {
            push(before.to_vec(), before.last().cloned().unwrap_or_default(), leaf.ident.span());
        }
        UseTree::Name(leaf) => push(with(&leaf.ident), leaf.ident.to_string(), leaf.ident.span()),
    }
}

fn function_name(item: &ImplItem) -> Option<String> {
    match item {
        ImplItem::Fn(function) => Some(function.sig.ident.to_string()),
        ImplItem::Const(constant) => Some(constant.ident.to_string()),
        _ => None,
    }
}

fn name_of(item: &Item) -> Option<String> {
    let name = match item {
        Item::Const(item) => &item.ident,
        Item::Enum(item) => &item.ident,
        Item::Fn(item) => &item.sig.ident,
        Item::Static(item) => &item.ident,
        Item::Struct(item) => &item.ident,
        Item::Trait(item) => &item.ident,
        Item::Type(item) => &item.ident,
        Item::Union(item) => &item.ident,
        Item::Macro(item) => item.ident.as_ref()?,
        _ => return None,
    };
    Some(name.to_string())
}
