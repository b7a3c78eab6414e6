//! What a kernel's files name: functions, tables, and where they lie.

use anyhow::{Context, Result, bail};
use std::path::Path;
use std::process::Command;

/// A name and the bytes that it stands for.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Symbol {
    pub(super) name: String,
    pub(super) begin: u64,
    pub(super) end: u64,
    pub(super) is_code: bool,
}

/// All of an object or a kernel.
pub(super) fn read(file: &Path) -> Result<Vec<Symbol>> {
    let output = Command::new("nm").arg("-S").arg(file).output().context("running nm")?;
    if !output.status.success() {
        bail!("nm {}: {}", file.display(), output.status);
    }
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    Ok(text.lines().filter_map(symbol).collect())
}

/// `ffffffff81000000 0000000000000010 T name`; a mark in the text has no size, and ends where it begins.
pub(super) fn symbol(line: &str) -> Option<Symbol> {
    let words: Vec<&str> = line.split_whitespace().collect();
    let (begin, bytes, kind, name) = match words[..] {
        [begin, bytes, kind, name] => (begin, bytes, kind, name),
        [begin, kind, name] if begin != "U" => (begin, "0", kind, name),
        _ => return None,
    };
    let (begin, bytes) = (u64::from_str_radix(begin, 16).ok()?, u64::from_str_radix(bytes, 16).ok()?);
    Some(Symbol { name: name.to_owned(), begin, end: begin + bytes, is_code: matches!(kind, "t" | "T" | "w" | "W") })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_symbol_has_a_place_and_often_a_size() {
        let flush = symbol("ffffffff81000010 0000000000000020 t flush").expect("a function");
        assert_eq!((flush.begin, flush.end, flush.is_code), (0xffff_ffff_8100_0010, 0xffff_ffff_8100_0030, true));
        let mark = symbol("ffffffff82000000 D __per_cpu_start").expect("a mark");
        assert_eq!((mark.begin, mark.end, mark.is_code), (0xffff_ffff_8200_0000, 0xffff_ffff_8200_0000, false));
        assert_eq!(symbol("                 U memcpy"), None);
    }
}
