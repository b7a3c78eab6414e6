//! The C of docs/porting.md compiles, as a kernel's objects do; its Rust is a doctest of the crate.

#[path = "tools/mod.rs"]
mod tools;

use std::process::Command;
use tools::{Result, crate_dir, run, scratch};

/// All fenced blocks of one language, in their order.
fn blocks(text: &str, language: &str) -> Vec<String> {
    let fence = format!("```{language}\n");
    text.split(&fence)
        .skip(1)
        .filter_map(|rest| rest.split_once("\n```"))
        .map(|(code, _)| format!("{code}\n"))
        .collect()
}

#[test]
fn the_c_of_the_porting_guide_compiles_as_one_kernel_file() -> Result<()> {
    let guide = std::fs::read_to_string(crate_dir().join("../../docs/porting.md"))?;
    let found = blocks(&guide, "c");
    assert!(found.len() >= 5, "only {} blocks of C in docs/porting.md", found.len());
    let source = scratch("porting")?.join("porting.c");
    std::fs::write(&source, found.join("\n"))?;
    let mut gcc = Command::new("gcc");
    gcc.args(tools::KERNEL_FLAGS).args(["-std=gnu11", "-Wextra", "-Wmissing-prototypes", "-fsyntax-only", "-I"]);
    run(gcc.arg(crate_dir().join("include")).arg(&source))?;
    Ok(())
}

#[test]
fn blocks_are_found_by_language() {
    let text = "a\n```c\nint x;\n```\nb\n```rust\nlet y;\n```\n```c\nint z;\n```\n";
    assert_eq!(blocks(text, "c"), ["int x;\n", "int z;\n"]);
}
