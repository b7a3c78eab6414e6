//! A file as the rules see it: its lines as written, and, for Rust, the same lines with comments and literals blanked.
//!
//! Blanking keeps every newline and every column of code, so a rule that finds a word in `code` can name its line, and
//! a word inside a comment or a string can never trip it.

use proc_macro2::{Delimiter, LineColumn, Span, TokenStream, TokenTree};
use syn::spanned::Spanned;
use syn::visit::{self, Visit};

/// The folders of the root that group crates by purpose.
const PURPOSES: &[&str] = &["lib", "sim", "verify", "metal", "linux"];

/// One text file of the repository.
#[derive(Debug)]
pub(crate) struct Source {
    /// Path from the root of the repository, with `/`.
    pub(crate) path: String,
    /// Every line as written.
    pub(crate) lines: Vec<String>,
    /// The same lines without comments and literals; empty unless the file is Rust.
    pub(crate) code: Vec<String>,
    /// For each line, whether it is compiled for tests only.
    pub(crate) is_test: Vec<bool>,
    /// The functions of a Rust file that parses.
    pub(crate) functions: Vec<Function>,
}

/// A function: its name, the first and last of its lines, from 1, and its parameters that are a `bool`.
#[derive(Debug)]
pub(crate) struct Function {
    pub(crate) name: String,
    pub(crate) lines: (usize, usize),
    /// Empty where C or a trait forces them: the trait's own definition is a function too.
    pub(crate) bool_parameters: Vec<String>,
}

impl Source {
    /// Reads `text` as the file at `path`.
    pub(crate) fn new(path: &str, text: &str) -> Self {
        let lines: Vec<String> = text.lines().map(str::to_owned).collect();
        let mut source = Self {
            path: path.to_owned(),
            code: Vec::new(),
            is_test: vec![is_test_path(path); lines.len()],
            functions: Vec::new(),
            lines,
        };
        if source.is_rust() {
            let tokens: TokenStream = text.parse().unwrap_or_default();
            source.code = code(&source.lines, tokens.clone());
            if let Ok(file) = syn::parse2(tokens) {
                source.visit_file(&file);
            }
        }
        source
    }

    /// True for a Rust file.
    pub(crate) fn is_rust(&self) -> bool {
        self.path.ends_with(".rs")
    }

    /// The name of the crate's folder, or of another folder of that rank: the first below one of [`PURPOSES`], or the
    /// first there is.
    pub(crate) fn crate_dir(&self) -> &str {
        self.path.split('/').find(|part| !PURPOSES.contains(part)).unwrap_or("")
    }

    /// The numbered lines of code, from 1.
    pub(crate) fn numbered_code(&self) -> impl Iterator<Item = (usize, &str)> {
        self.code.iter().enumerate().map(|(at, line)| (at + 1, line.as_str()))
    }
}

fn is_test_path(path: &str) -> bool {
    let in_folder = path.split('/').any(|part| part == "tests");
    in_folder || path.ends_with("/tests.rs") || path.ends_with("_tests.rs")
}

/// `lines` with everything blanked but keywords, names and punctuation.
fn code(lines: &[String], tokens: TokenStream) -> Vec<String> {
    let written: Vec<Vec<char>> = lines.iter().map(|line| line.chars().collect()).collect();
    let mut kept: Vec<Vec<char>> = written.iter().map(|line| vec![' '; line.len()]).collect();
    copy(tokens, &written, &mut kept);
    kept.into_iter().map(|line| line.into_iter().collect()).collect()
}

/// Copies names and punctuation from `written`. A doc comment is tokens too, which stand nowhere in the text.
fn copy(tokens: TokenStream, written: &[Vec<char>], kept: &mut [Vec<char>]) {
    for token in tokens {
        match token {
            TokenTree::Ident(name) => copy_one(name.span(), &name.to_string(), written, kept),
            TokenTree::Punct(sign) => copy_one(sign.span(), &sign.as_char().to_string(), written, kept),
            TokenTree::Literal(_) => {}
            TokenTree::Group(group) => {
                let (open, close) = match group.delimiter() {
                    Delimiter::Parenthesis => ("(", ")"),
                    Delimiter::Brace => ("{", "}"),
                    Delimiter::Bracket => ("[", "]"),
                    Delimiter::None => ("", ""),
                };
                copy_one(group.span_open(), open, written, kept);
                copy_one(group.span_close(), close, written, kept);
                copy(group.stream(), written, kept);
            }
        }
    }
}

fn copy_one(span: Span, token: &str, written: &[Vec<char>], kept: &mut [Vec<char>]) {
    let (LineColumn { line, column }, token) = (span.start(), token.chars().collect::<Vec<_>>());
    let range = column..column + token.len();
    if written.get(line - 1).and_then(|there| there.get(range.clone())) == Some(&token[..]) {
        kept[line - 1][range].copy_from_slice(&token);
    }
}

impl<'ast> Visit<'ast> for Source {
    fn visit_item(&mut self, item: &'ast syn::Item) {
        if attributes(item).iter().any(is_test) {
            let span = item.span();
            self.is_test[span.start().line - 1..span.end().line].fill(true);
        }
        visit::visit_item(self, item);
    }

    fn visit_item_fn(&mut self, function: &'ast syn::ItemFn) {
        self.record_function(&function.sig, function.block.span());
        visit::visit_item_fn(self, function);
    }

    fn visit_item_impl(&mut self, block: &'ast syn::ItemImpl) {
        let functions_before = self.functions.len();
        visit::visit_item_impl(self, block);
        if block.trait_.is_some() {
            self.functions[functions_before..].iter_mut().for_each(|function| function.bool_parameters.clear());
        }
    }

    fn visit_impl_item_fn(&mut self, function: &'ast syn::ImplItemFn) {
        self.record_function(&function.sig, function.block.span());
        visit::visit_impl_item_fn(self, function);
    }

    fn visit_trait_item_fn(&mut self, function: &'ast syn::TraitItemFn) {
        self.record_function(&function.sig, function.default.as_ref().map_or(function.sig.span(), Spanned::span));
        visit::visit_trait_item_fn(self, function);
    }
}

impl Source {
    fn record_function(&mut self, signature: &syn::Signature, body: Span) {
        let lines = (signature.fn_token.span.start().line, body.end().line);
        let bool_parameters = if signature.abi.is_some() { Vec::new() } else { bool_parameters(signature) };
        self.functions.push(Function { name: signature.ident.to_string(), lines, bool_parameters });
    }
}

/// The names of the parameters that are a `bool` or a reference to one.
fn bool_parameters(signature: &syn::Signature) -> Vec<String> {
    let name = |argument: &syn::FnArg| {
        let syn::FnArg::Typed(typed) = argument else { return None };
        let kind = match &*typed.ty {
            syn::Type::Reference(reference) => &*reference.elem,
            kind => kind,
        };
        let is_bool = matches!(kind, syn::Type::Path(path) if path.path.is_ident("bool"));
        is_bool.then(|| match &*typed.pat {
            syn::Pat::Ident(name) => name.ident.to_string(),
            _ => "_".to_owned(),
        })
    };
    signature.inputs.iter().filter_map(name).collect()
}

/// The attributes of an item, if it is of a kind that has them.
pub(super) fn attributes(item: &syn::Item) -> &[syn::Attribute] {
    use syn::Item;
    match item {
        Item::Const(item) => &item.attrs,
        Item::Enum(item) => &item.attrs,
        Item::Fn(item) => &item.attrs,
        Item::Impl(item) => &item.attrs,
        Item::Macro(item) => &item.attrs,
        Item::Mod(item) => &item.attrs,
        Item::Static(item) => &item.attrs,
        Item::Struct(item) => &item.attrs,
        Item::Trait(item) => &item.attrs,
        Item::Type(item) => &item.attrs,
        Item::Use(item) => &item.attrs,
        _ => &[],
    }
}

/// True for `#[cfg(test)]` and for `#[cfg(all(test, …))]`.
pub(super) fn is_test(attribute: &syn::Attribute) -> bool {
    let syn::Meta::List(list) = &attribute.meta else { return false };
    let text = list.tokens.to_string().replace(' ', "");
    list.path.is_ident("cfg") && (text == "test" || text.starts_with("all(test,"))
}

/// True for a character that can be part of an identifier.
pub(crate) fn is_word(c: Option<char>) -> bool {
    c.is_some_and(|c| c.is_alphanumeric() || c == '_')
}

/// The byte columns at which `word` stands in `line`, not as a part of a longer identifier.
pub(crate) fn word_columns<'a>(line: &'a str, word: &'a str) -> impl Iterator<Item = usize> + 'a {
    line.match_indices(word).map(|(at, _)| at).filter(move |&at| {
        let before = line[..at].chars().next_back();
        let after = line[at + word.len()..].chars().next();
        let starts_whole = !(is_word(before) && is_word(word.chars().next()));
        starts_whole && !(is_word(after) && is_word(word.chars().next_back()))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn blanked(text: &str) -> String {
        Source::new("a.rs", text).code.join("\n")
    }

    #[test]
    fn comments_and_literals_are_blanked_and_lines_kept() {
        let text =
            "let a = \"unsafe // \\\" é\"; // unsafe\n/* unsafe /* nested */\n unsafe */ let b = 'u';\nlet c: &'a T;";
        let code = blanked(text);
        assert!(!code.contains("unsafe"), "{code}");
        assert_eq!(code.lines().count(), text.lines().count());
        assert!(code.contains("let b = ") && code.contains("let c: &'a T;"), "{code}");
        assert!(code.starts_with(&format!("let a = {};", " ".repeat(16))), "{code}");
    }

    #[test]
    fn raw_strings_end_at_their_own_hashes_and_doc_comments_are_no_code() {
        let code = blanked("/// unsafe doc\nlet a = r#\"one \" unsafe \"#; let r#type = br\"unsafe\"; done");
        assert!(!code.contains("unsafe") && !code.contains("doc") && code.matches('#').count() == 1, "{code}");
        assert!(code.contains("let ") && code.ends_with("; done"), "{code}");
    }

    #[test]
    fn test_lines_cover_the_item_and_no_more() {
        let text =
            "fn a() {}\n#[cfg(test)]\nuse x::{y};\nfn b() {}\n#[cfg(test)]\nmod tests {\n    fn c() {}\n}\nfn d() {}\n";
        let source = Source::new("k/src/a.rs", text);
        assert_eq!(source.is_test, [false, true, true, false, true, true, true, true, false]);
    }

    #[test]
    fn words_are_whole_identifiers() {
        assert_eq!(word_columns("unsafe_code unsafe {", "unsafe").collect::<Vec<_>>(), [12]);
    }
}
