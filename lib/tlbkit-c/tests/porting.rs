//! The C of the guide for kernels, docs/kernel/, compiles as a kernel's objects do; its Rust is a doctest of the crate.

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
fn the_c_of_the_guide_compiles_as_one_kernel_file() -> Result<()> {
    let page = |name: &str| std::fs::read_to_string(crate_dir().join("../../docs/kernel").join(name));
    let guide = page("tutorial-c.md")? + &page("recipes.md")?;
    let found = blocks(&guide, "c");
    assert!(found.len() >= 9, "only {} blocks of C in docs/kernel/", found.len());
    let source = scratch("porting")?.join("porting.c");
    std::fs::write(&source, found.join("\n"))?;
    let mut gcc = Command::new("gcc");
    gcc.args(tools::KERNEL_FLAGS).args(["-std=gnu11", "-Wextra", "-fsyntax-only"]);
    gcc.args(["-DTLBKIT_ISOLATED", "-DTLBKIT_REUSE", "-DTLBKIT_DIRECTORIES", "-I"]);
    run(gcc.arg(crate_dir().join("include")).arg(&source))?;
    Ok(())
}

/// The cells of the guide's row `name`, as numbers.
fn cells(guide: &str, name: &str) -> Option<Vec<u64>> {
    let row = guide.lines().find_map(|line| line.strip_prefix(&format!("| {name} |")))?;
    row.trim_end_matches('|').split('|').map(|cell| cell.trim().replace(',', "").parse().ok()).collect()
}

#[test]
fn the_sizes_of_the_guide_are_the_library_s() -> Result<()> {
    let guide = std::fs::read_to_string(crate_dir().join("../../docs/kernel/reference.md"))?;
    let (machines, layout) = ([8, 64, 512, 4096], tlbkit_c::storage::tlbkit_layout());
    let set = machines.map(|cpus| 8 * tlbkit_c::space::tlbkit_set_words(cpus) as u64);
    assert_eq!(cells(&guide, "each CPU"), Some(vec![layout.cpu_state_bytes; 4]));
    assert_eq!(cells(&guide, "each space"), Some(set.map(|bytes| layout.space_bytes + bytes).to_vec()));
    // Where other crates of the workspace want the history, the matrix has one more row, as long as a set.
    let built = machines.map(|cpus| 8 * tlbkit_c::machine::tlbkit_matrix_words(cpus) as u64);
    let stated = cells(&guide, "the matrix").ok_or("no row of the matrix")?;
    let more: Vec<u64> = built.iter().zip(&stated).map(|(built, stated)| built - stated).collect();
    assert!(more == [0; 4] || more == set, "{built:?}, and the guide says {stated:?}");
    Ok(())
}

#[test]
fn blocks_are_found_by_language() {
    let text = "a\n```c\nint x;\n```\nb\n```rust\nlet y;\n```\n```c\nint z;\n```\n";
    assert_eq!(blocks(text, "c"), ["int x;\n", "int z;\n"]);
}

/// What a reader of the guide searches for is what the library says.
#[test]
fn the_words_of_the_misuse_table_are_the_librarys() -> Result<()> {
    let guide = std::fs::read_to_string(crate_dir().join("../../docs/kernel/reference.md"))?;
    let table = guide.split_once("| misuse | seen in Rust |").and_then(|(_, rest)| rest.split_once("\n\n"));
    let (table, _) = table.ok_or("no table of misuse in docs/kernel/reference.md")?;
    let sources = [
        "cpu/mod.rs",
        "addr.rs",
        "hardware.rs",
        "flush/wait.rs",
        "flush/shootdown.rs",
        "flush/matrix.rs",
        "space/cpu_set.rs",
        "space/end.rs",
        "switch/mod.rs",
    ];
    let read = |name: &str| std::fs::read_to_string(crate_dir().join("../tlbkit/src").join(name));
    let protocol = sources.into_iter().map(read).collect::<std::result::Result<String, _>>()?;
    let header = std::fs::read_to_string(crate_dir().join("include/tlbkit.h"))?;
    let said: Vec<&str> = table.split('"').skip(1).step_by(2).collect();
    assert!(said.len() >= 10, "only {} texts in quotes", said.len());
    for words in said {
        let is_cores = words == "index out of bounds"; // core's own
        assert!(is_cores || protocol.contains(words), "the library does not say: {words}");
    }
    let is_status = |word: &&str| word.len() > 6 && word.bytes().all(|byte| byte.is_ascii_uppercase() || byte == b'_');
    let statuses: Vec<&str> = table.split('`').filter(is_status).collect();
    assert!(statuses.len() >= 12, "only {} statuses", statuses.len());
    for status in statuses {
        assert!(header.contains(&format!("TLBKIT_STATUS_{status},")), "no status {status} in the header");
    }
    Ok(())
}
