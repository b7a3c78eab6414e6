//! `cargo xtask api`: what the library crates promise to those who link them, as text that a reviewer can read.
//!
//! `docs/api/CRATE.txt` has every public item without its body. A change of the interface is then a change of that
//! file, in the same commit. The lines are our own, on `syn`, because the tools that are made for this need a nightly
//! compiler. Those would also see what a macro defines; this does not.

use anyhow::{Context, Result, bail};
use quote::ToTokens;
use std::collections::BTreeSet;
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use syn::{Attribute, Fields, ImplItem, Item, TraitItem, UseTree, Visibility};

use crate::libraries::LIBRARIES;
use crate::outcome::StepOutcome;

/// The crates whose interface others write against. The C interface's is its header.
fn crates() -> impl Iterator<Item = &'static str> {
    LIBRARIES.iter().copied().filter(|&name| name != "tlbkit-c")
}

/// Writes the files anew.
pub(crate) fn run(root: &Path) -> Result<bool> {
    for name in crates() {
        let file = file(root, name);
        fs::create_dir_all(file.parent().unwrap_or(root)).with_context(|| format!("making {}", file.display()))?;
        fs::write(&file, of_crate(root, name)?).with_context(|| format!("writing {}", file.display()))?;
        println!("{}", file.display());
    }
    Ok(true)
}

/// The step: the files say what the source says.
pub(crate) fn check(root: &Path) -> Result<StepOutcome> {
    for name in crates() {
        let file = file(root, name);
        let bare = |text: &str| text.split_whitespace().collect::<String>();
        if bare(&fs::read_to_string(&file).unwrap_or_default()) != bare(&of_crate(root, name)?) {
            let why = format!("docs/api/{name}.txt is not what the source says; write it anew: cargo xtask api");
            return Ok(StepOutcome::Failed(why));
        }
    }
    Ok(StepOutcome::Ok(format!("{} crates", crates().count())))
}

fn file(root: &Path, name: &str) -> PathBuf {
    root.join("docs/api").join(name).with_extension("txt")
}

/// The interface of one crate, formatted.
fn of_crate(root: &Path, name: &str) -> Result<String> {
    let src = root.join("lib").join(name).join("src");
    let mut files = Vec::new();
    read(&src, &src, &mut files)?;
    let items = |path: &str| files.iter().find(|(file, _)| file == path).map(|(_, items)| items.as_slice());
    let lib = items("lib.rs").with_context(|| format!("{name} has no lib.rs"))?;
    let mut exported = BTreeSet::new();
    let mut text = String::new();
    for item in lib {
        match item {
            Item::Use(item) if is_public(&item.vis) => names(&item.tree, &mut exported),
            Item::Mod(item) if is_public(&item.vis) => {
                let path = format!("{}.rs", item.ident);
                let body: String = items(&path).unwrap_or_default().iter().map(|item| of_item(item, None)).collect();
                text += &format!("pub mod {} {{ {body} }}\n\n", item.ident);
            }
            _ => {}
        }
    }
    let all = files.iter().flat_map(|(_, items)| items);
    let mut found: Vec<(String, String)> = all.map(|item| (subject(item), of_item(item, Some(&exported)))).collect();
    // Stable: what stands together in a file stays in its order.
    found.sort_by(|(left, _), (right, _)| left.cmp(right));
    formatted(&(found.into_iter().map(|(_, text)| text).collect::<String>() + &text))
}

/// The items of each file below `dir`, by path from `src`, in the order of the paths.
fn read(src: &Path, dir: &Path, files: &mut Vec<(String, Vec<Item>)>) -> Result<()> {
    let mut entries: Vec<PathBuf> = fs::read_dir(dir)?
        .map(|entry| Ok(entry?.path()))
        .collect::<Result<_>>()
        .context("reading a folder of source")?;
    entries.sort();
    for path in entries {
        if path.is_dir() {
            read(src, &path, files)?;
        } else if path.extension().is_some_and(|ending| ending == "rs") {
            let text = fs::read_to_string(&path).with_context(|| format!("reading {}", path.display()))?;
            let parsed = syn::parse_file(&text).with_context(|| format!("parsing {}", path.display()))?;
            let relative = path.strip_prefix(src).unwrap_or(&path).display().to_string();
            files.push((relative, parsed.items));
        }
    }
    Ok(())
}

/// The names that a `use` brings in.
fn names(tree: &UseTree, found: &mut BTreeSet<String>) {
    match tree {
        UseTree::Path(path) => names(&path.tree, found),
        UseTree::Group(group) => group.items.iter().for_each(|tree| names(tree, found)),
        UseTree::Name(name) => _ = found.insert(name.ident.to_string()),
        UseTree::Rename(name) => _ = found.insert(name.rename.to_string()),
        UseTree::Glob(_) => {}
    }
}

/// The name that an item is listed under: an `impl` stands with its type.
fn subject(item: &Item) -> String {
    match item {
        Item::Struct(item) => item.ident.to_string(),
        Item::Enum(item) => item.ident.to_string(),
        Item::Trait(item) => item.ident.to_string(),
        // Behind it.
        Item::Impl(item) => of_type(&item.self_ty).map_or_else(String::new, |name| format!("{name} impl")),
        _ => String::new(),
    }
}

fn of_type(of: &syn::Type) -> Option<&syn::Ident> {
    let syn::Type::Path(of) = of else { return None };
    Some(&of.path.segments.last()?.ident)
}

/// A public item without its body; nothing if it is not public, or not among `exported` where that is asked.
fn of_item(item: &Item, exported: Option<&BTreeSet<String>>) -> String {
    let is_out = |ident: &dyn ToString| exported.is_none_or(|names| names.contains(&ident.to_string()));
    match item.clone() {
        Item::Struct(mut item) if is_public(&item.vis) && is_out(&item.ident) => {
            keep_promises(&mut item.attrs);
            hide_private(&mut item.fields);
            text(&item)
        }
        Item::Enum(mut item) if is_public(&item.vis) && is_out(&item.ident) => {
            keep_promises(&mut item.attrs);
            item.variants.iter_mut().for_each(|variant| keep_promises(&mut variant.attrs));
            let fields = item.variants.iter_mut().flat_map(|variant| &mut variant.fields);
            fields.for_each(|field| keep_promises(&mut field.attrs));
            text(&item)
        }
        Item::Trait(mut item) if is_public(&item.vis) && is_out(&item.ident) => {
            keep_promises(&mut item.attrs);
            for part in &mut item.items {
                match part {
                    TraitItem::Fn(function) => {
                        keep_promises(&mut function.attrs);
                        // A default is a promise as well: whoever implements the trait may leave it out.
                        function.default = function.default.is_some().then(|| syn::parse_quote!({ default }));
                    }
                    TraitItem::Const(part) => keep_promises(&mut part.attrs),
                    TraitItem::Type(part) => keep_promises(&mut part.attrs),
                    _ => {}
                }
            }
            text(&item)
        }
        Item::Const(mut item) if is_public(&item.vis) && is_out(&item.ident) => {
            keep_promises(&mut item.attrs);
            text(&item)
        }
        Item::Type(mut item) if is_public(&item.vis) && is_out(&item.ident) => {
            keep_promises(&mut item.attrs);
            text(&item)
        }
        Item::Fn(mut item) if is_public(&item.vis) && is_out(&item.sig.ident) => {
            keep_promises(&mut item.attrs);
            item.block = syn::parse_quote!({});
            text(&item)
        }
        Item::Impl(item) => of_impl(item, &is_out),
        _ => String::new(),
    }
}

/// The public parts of an `impl`, or only its head if it is a trait's: what is in it stands in the trait.
fn of_impl(mut item: syn::ItemImpl, is_out: &dyn Fn(&dyn ToString) -> bool) -> String {
    if !of_type(&item.self_ty).is_some_and(|name| is_out(name)) || is_for_tests(&item.attrs) {
        return String::new();
    }
    keep_promises(&mut item.attrs);
    let parts = std::mem::take(&mut item.items);
    if item.trait_.is_some() {
        return text(&item);
    }
    item.items = parts.into_iter().filter_map(of_part).collect();
    if item.items.is_empty() { String::new() } else { text(&item) }
}

/// A public function or constant of an `impl`; one that stands in a macro call is seen if it stands there as it is.
fn of_part(part: ImplItem) -> Option<ImplItem> {
    match part {
        ImplItem::Fn(mut function) if is_public(&function.vis) => {
            keep_promises(&mut function.attrs);
            function.block = syn::parse_quote!({});
            Some(ImplItem::Fn(function))
        }
        ImplItem::Const(mut part) if is_public(&part.vis) => {
            keep_promises(&mut part.attrs);
            Some(ImplItem::Const(part))
        }
        ImplItem::Macro(call) => of_part(ImplItem::Fn(syn::parse2(call.mac.tokens).ok()?)),
        _ => None,
    }
}

fn is_public(visibility: &Visibility) -> bool {
    matches!(visibility, Visibility::Public(_))
}

fn is_for_tests(attributes: &[Attribute]) -> bool {
    attributes.iter().any(|attribute| attribute.path().is_ident("cfg") && text(attribute).contains("test"))
}

/// Leaves the attributes that a user depends on.
fn keep_promises(attributes: &mut Vec<Attribute>) {
    const PROMISES: &[&str] = &["cfg", "derive", "must_use", "non_exhaustive", "repr"];
    attributes.retain_mut(|attribute| {
        if attribute.path().is_ident("must_use") {
            // Not the words behind it.
            *attribute = syn::parse_quote!(#[must_use]);
        }
        PROMISES.iter().any(|name| attribute.path().is_ident(name))
    });
}

/// Fields that nobody else can name are one mark, however many they are.
fn hide_private(fields: &mut Fields) {
    let is_private = |field: &syn::Field| !is_public(&field.vis);
    fields.iter_mut().for_each(|field| keep_promises(&mut field.attrs));
    match fields {
        Fields::Named(named) if named.named.iter().any(is_private) => {
            let all = std::mem::take(&mut named.named);
            named.named = all.into_iter().filter(|field| is_public(&field.vis)).collect();
            named.named.push(syn::parse_quote!(private: ()));
        }
        Fields::Unnamed(unnamed) if unnamed.unnamed.iter().any(is_private) => {
            *fields = Fields::Unnamed(syn::parse_quote!((private)));
        }
        _ => {}
    }
}

fn text(part: &impl ToTokens) -> String {
    part.to_token_stream().to_string() + "\n\n"
}

/// The text as `rustfmt` lays it out.
fn formatted(text: &str) -> Result<String> {
    let mut command = Command::new("rustfmt");
    command.args(["--edition", "2024", "--config", "max_width=120"]);
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().context("running rustfmt")?;
    child.stdin.take().context("no way into rustfmt")?.write_all(text.as_bytes()).context("writing to rustfmt")?;
    let output = child.wait_with_output().context("running rustfmt")?;
    if !output.status.success() {
        bail!("rustfmt: {}", output.status);
    }
    String::from_utf8(output.stdout).context("reading what rustfmt wrote")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn listed(source: &str, exported: &[&str]) -> Result<String> {
        let exported = exported.iter().map(|&name| name.to_owned()).collect();
        let items = syn::parse_file(source)?.items;
        formatted(&items.iter().map(|item| of_item(item, Some(&exported))).collect::<String>())
    }

    #[test]
    fn what_others_can_name_is_listed_and_nothing_else() -> Result<()> {
        let source = "
            /// Doc.
            #[derive(Clone)]
            pub struct A { pub x: u8, y: u8 }
            pub(crate) struct B;
            pub struct C;
            impl A { pub fn f(&self) -> u8 { self.y } fn g() {} }
            impl Copy for A {}
            impl C { pub fn h() {} }
        ";
        let text = listed(source, &["A", "B"])?;
        assert!(text.contains("#[derive(Clone)]") && text.contains("pub x: u8,\n    private: (),"), "{text}");
        assert!(text.contains("pub fn f(&self) -> u8") && text.contains("impl Copy for A"), "{text}");
        for hidden in ["Doc", "self.y", "fn g", "struct B", "C"] {
            assert!(!text.replace("Copy", "").replace("Clone", "").contains(hidden), "{hidden} in {text}");
        }
        Ok(())
    }

    #[test]
    fn names_come_out_of_every_form_of_use() -> Result<()> {
        let mut found = BTreeSet::new();
        let item: syn::ItemUse = syn::parse_str("pub use a::{b::C, D as E, f};")?;
        names(&item.tree, &mut found);
        assert_eq!(found.into_iter().collect::<Vec<_>>(), ["C", "E", "f"]);
        Ok(())
    }
}
