//! Which file of a crate uses what another file defines.
//!
//! Paths are followed wherever they stand: in `use`, in types, in expressions, in the arguments of macros. A method is
//! followed if its receiver's type is written down: `self`, a parameter or variable with a type, or a field of one.

use super::modules::{Import, Key, Modules, Resolved, imports, segments};
use proc_macro2::{TokenStream, TokenTree};
use std::collections::BTreeMap;
use syn::visit::{self, Visit};
use syn::{Expr, ImplItemFn, ItemFn, ItemImpl, ItemMod, ItemUse, Member, Token, Visibility, punctuated::Punctuated};

/// One use: the file that uses `name`, the line, and the file that defines it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Use {
    pub(super) from: String,
    pub(super) to: String,
    pub(super) line: usize,
    pub(super) name: String,
}

/// Every use between files of one crate, in order.
pub(super) fn uses(modules: &Modules) -> Vec<Use> {
    let mut found = Vec::new();
    for (id, module) in modules.all.iter().enumerate() {
        let mut walk = Walk { modules, module: id, owner: None, typed: BTreeMap::new(), found: &mut found };
        module.items.iter().for_each(|item| walk.visit_item(item));
    }
    found.sort();
    found
}

/// A walk through the items of one module.
struct Walk<'a> {
    modules: &'a Modules,
    module: usize,
    /// The type that `Self` means.
    owner: Option<Key>,
    /// The types of parameters and variables, where they are written down and the crate's own.
    typed: BTreeMap<String, Key>,
    found: &'a mut Vec<Use>,
}

impl Walk<'_> {
    fn record_use(&mut self, to: &str, line: usize, name: &str) {
        let from = &self.modules.all[self.module].file;
        if from != to {
            self.found.push(Use { from: from.clone(), to: to.to_owned(), line, name: name.to_owned() });
        }
    }

    /// Notes what `path` leads to, if it is an item: a module alone is no use of what it holds.
    fn follow(&mut self, path: &[String], line: usize) {
        let place = match (path, &self.owner) {
            ([first, rest @ ..], Some(owner)) if first == "Self" => {
                Some(Resolved::Item(owner.clone(), rest.first().cloned()))
            }
            _ => self.modules.resolve(self.module, path),
        };
        if let Some(Resolved::Item(key, function)) = place {
            self.record_use(&self.modules.all[key.0].file, line, &key.1);
            if let Some(name) = function {
                self.record_function_use(&key, &name, line);
            }
        }
    }

    fn record_function_use(&mut self, owner: &Key, name: &str, line: usize) {
        let modules = self.modules;
        if let Some(file) = modules.function_file(owner, name) {
            self.record_use(file, line, &format!("{}::{name}", owner.1));
        }
    }

    /// True for a parent's `pub use` of what is its child's: the child's interface to the outside, not a use.
    fn is_reexport(&self, item: &ItemUse, import: &Import) -> bool {
        let target = match self.modules.resolve(self.module, &import.path) {
            Some(Resolved::Item((module, _), _) | Resolved::Module(module)) => module,
            None => return false,
        };
        !matches!(item.vis, Visibility::Inherited) && self.modules.is_below(target, self.module)
    }

    /// The crate's own type of which `expression` is, if that is written down.
    fn type_of(&self, expression: &Expr) -> Option<Key> {
        match expression {
            Expr::Path(path) if path.path.is_ident("self") => self.owner.clone(),
            Expr::Path(path) => self.typed.get(&path.path.get_ident()?.to_string()).cloned(),
            Expr::Field(field) => match &field.member {
                Member::Named(name) => self.modules.field(self.type_of(&field.base)?, &name.to_string()),
                Member::Unnamed(_) => None,
            },
            Expr::Reference(inner) => self.type_of(&inner.expr),
            Expr::Paren(inner) => self.type_of(&inner.expr),
            Expr::Unary(inner) => self.type_of(&inner.expr),
            _ => None,
        }
    }

    /// Follows every path in `tokens`, which need not parse as anything.
    fn scan(&mut self, tokens: TokenStream) {
        let mut path: Vec<(String, usize)> = Vec::new();
        let mut colons = 0;
        for token in tokens {
            match token {
                TokenTree::Ident(name) => {
                    if colons != 2 {
                        self.follow_scanned(&mut path);
                    }
                    path.push((name.to_string(), name.span().start().line));
                    colons = 0;
                }
                TokenTree::Punct(colon) if colon.as_char() == ':' && !path.is_empty() => colons += 1,
                other => {
                    self.follow_scanned(&mut path);
                    colons = 0;
                    if let TokenTree::Group(group) = other {
                        self.scan(group.stream());
                    }
                }
            }
        }
        self.follow_scanned(&mut path);
    }

    fn follow_scanned(&mut self, path: &mut Vec<(String, usize)>) {
        if let Some(line) = path.first().map(|(_, line)| *line) {
            self.follow(&path.drain(..).map(|(name, _)| name).collect::<Vec<_>>(), line);
        }
    }
}

impl<'ast> Visit<'ast> for Walk<'_> {
    fn visit_item_mod(&mut self, _: &'ast ItemMod) {
        // Has a walk of its own.
    }

    fn visit_attribute(&mut self, _: &'ast syn::Attribute) {
        // What a derive names, another crate defines.
    }

    fn visit_visibility(&mut self, _: &'ast Visibility) {
        // `pub(in crate::a)` says who may use, not what is used.
    }

    fn visit_item_use(&mut self, item: &'ast ItemUse) {
        for import in imports(&item.tree) {
            if !self.is_reexport(item, &import) {
                self.follow(&import.path, import.line);
            }
        }
    }

    fn visit_item_impl(&mut self, block: &'ast ItemImpl) {
        self.owner = self.modules.type_key(self.module, &block.self_ty);
        visit::visit_item_impl(self, block);
        self.owner = None;
    }

    fn visit_item_fn(&mut self, function: &'ast ItemFn) {
        let outer = std::mem::take(&mut self.typed);
        visit::visit_item_fn(self, function);
        self.typed = outer;
    }

    fn visit_impl_item_fn(&mut self, function: &'ast ImplItemFn) {
        self.typed.clear();
        visit::visit_impl_item_fn(self, function);
    }

    fn visit_pat_type(&mut self, pattern: &'ast syn::PatType) {
        if let (syn::Pat::Ident(name), Some(key)) = (&*pattern.pat, self.modules.type_key(self.module, &pattern.ty)) {
            self.typed.insert(name.ident.to_string(), key);
        }
        visit::visit_pat_type(self, pattern);
    }

    fn visit_path(&mut self, path: &'ast syn::Path) {
        if let Some(first) = path.segments.first() {
            self.follow(&segments(path), first.ident.span().start().line);
        }
        visit::visit_path(self, path);
    }

    fn visit_expr_method_call(&mut self, call: &'ast syn::ExprMethodCall) {
        if let Some(owner) = self.type_of(&call.receiver) {
            self.record_function_use(&owner, &call.method.to_string(), call.method.span().start().line);
        }
        visit::visit_expr_method_call(self, call);
    }

    fn visit_macro(&mut self, call: &'ast syn::Macro) {
        self.visit_path(&call.path);
        match call.parse_body_with(Punctuated::<Expr, Token![,]>::parse_terminated) {
            Ok(arguments) => arguments.iter().for_each(|argument| self.visit_expr(argument)),
            Err(_) => self.scan(call.tokens.clone()),
        }
    }
}
