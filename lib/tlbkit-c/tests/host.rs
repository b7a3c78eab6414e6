//! The archive that a kernel links, driven by a C program through the whole header.

mod tools;

use std::process::Command;
use tools::{Result, archive, crate_dir, run, scratch};

/// Warnings are errors; C11, as old as kernels like it.
const FLAGS: &[&str] = &["-std=gnu11", "-O1", "-g", "-Wall", "-Wextra", "-Wpedantic", "-Werror", "-no-pie", "-fno-pie"];

#[test]
fn a_c_program_uses_and_misuses_the_whole_header() -> Result<()> {
    uses_and_misuses("", "-UTLBKIT_HISTORY")
}

#[test]
fn a_c_program_uses_what_older_kernels_did() -> Result<()> {
    uses_and_misuses("history", "-DTLBKIT_HISTORY")
}

fn uses_and_misuses(features: &str, define: &str) -> Result<()> {
    let Some(archive) = archive(features)? else { return Ok(()) };
    let program = scratch(&format!("host-{features}"))?.join("host");
    let sources = ["main.c", "machine.c", "use.c", "flush.c", "misuse.c", "misplaced.c"]
        .map(|name| crate_dir().join("tests/host").join(name));
    let mut gcc = Command::new("gcc");
    gcc.args(FLAGS)
        .arg(define)
        .arg("-I")
        .arg(crate_dir().join("include"))
        .args(sources)
        .arg(archive)
        .arg("-o")
        .arg(&program);
    run(&mut gcc)?;
    assert_eq!(run(&mut Command::new(program))?, "ok\n");
    Ok(())
}

#[test]
fn the_header_is_c_and_cpp() -> Result<()> {
    let dir = scratch("header")?;
    for (compiler, standard, name) in
        [("gcc", "-std=c11", "a.c"), ("gcc", "-std=c2x", "b.c"), ("g++", "-std=c++17", "a.cc")]
    {
        let source = dir.join(name);
        std::fs::write(
            &source,
            "#include \"tlbkit.h\"\nbool f(void);\nbool f(void) { return tlbkit_header_fits(); }\n",
        )?;
        let mut check = Command::new(compiler);
        check.args([standard, "-Wall", "-Wextra", "-Wpedantic", "-Werror", "-fsyntax-only", "-I"]);
        run(check.arg(crate_dir().join("include")).arg(source))?;
    }
    Ok(())
}
