//! The archive that a kernel links, driven by a C program through the whole header.

mod tools;

use std::path::Path;
use std::process::Command;
use tools::{Result, archive, archive_of, crate_dir, run, scratch};

/// Warnings are errors; C11, as old as kernels like it.
const FLAGS: &[&str] = &["-std=gnu11", "-O1", "-g", "-Wall", "-Wextra", "-Wpedantic", "-Werror", "-no-pie", "-fno-pie"];

#[test]
fn a_c_program_uses_and_misuses_the_whole_header() -> Result<()> {
    uses_and_misuses("", &[])
}

#[test]
fn a_c_program_uses_what_older_kernels_did() -> Result<()> {
    uses_and_misuses("history", &["-DTLBKIT_HISTORY"])
}

#[test]
fn an_archive_with_events_tells_each_once() -> Result<()> {
    uses_and_misuses("events", &["-DTLBKIT_EVENTS"])
}

/// The whole header behaves as before on a machine that has none of these, and each does what it is for.
#[test]
fn an_archive_for_guests_isolated_cpus_and_broadcasts_spares_interrupts_and_waits() -> Result<()> {
    let defines = ["EVENTS", "GUEST", "ISOLATED", "BROADCAST", "EARLY", "REUSE", "DIRECTORIES"]
        .map(|feature| format!("-DTLBKIT_{feature}"));
    uses_and_misuses("events,guest,isolated,broadcast,early,reuse,directories", &defines.each_ref().map(|word| &**word))
}

#[test]
fn a_linked_archive_calls_each_function_of_the_kernel() -> Result<()> {
    let Some(archive) = archive("linked")? else { return Ok(()) };
    succeeds("host-linked", &["linked.c"], &["-DTLBKIT_LINKED"], &archive)
}

/// No status, but no silence either: the call has flushed nobody else.
#[test]
fn an_archive_without_checks_calls_the_hook_where_others_would_be_waited_for() -> Result<()> {
    let Some(archive) = archive_of("archive-unchecked", &["--no-default-features"])? else { return Ok(()) };
    succeeds("host-unchecked", &["unchecked.c", "machine.c"], &[], &archive)
}

fn uses_and_misuses(features: &str, defines: &[&str]) -> Result<()> {
    let Some(archive) = archive(features)? else { return Ok(()) };
    let sources = ["main.c", "machine.c", "use.c", "flush.c", "misuse.c", "misplaced.c", "events.c", "spare.c"];
    succeeds(&format!("host-{features}"), &sources, defines, &archive)
}

/// The program of these sources of `tests/host` prints that all is well.
fn succeeds(name: &str, sources: &[&str], defines: &[&str], archive: &Path) -> Result<()> {
    let program = scratch(name)?.join("host");
    let sources = sources.iter().map(|name| crate_dir().join("tests/host").join(name));
    let mut gcc = Command::new("gcc");
    gcc.args(FLAGS)
        .args(defines)
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

/// One letter of the header is another, as in one that came with another archive.
#[test]
fn a_header_of_another_build_does_not_fit() -> Result<()> {
    let Some(archive) = archive("")? else { return Ok(()) };
    let dir = scratch("another-header")?;
    let header = std::fs::read_to_string(crate_dir().join("include/tlbkit.h"))?;
    let (before, after) = header.split_once("#define TLBKIT_INTERFACE 0x").ok_or("no number in the header")?;
    let digit = if after.starts_with('1') { '2' } else { '1' };
    let other = format!("{before}#define TLBKIT_INTERFACE 0x{digit}{}", &after[1..]);
    let source = "#include \"tlbkit.h\"\nint main(void) { return tlbkit_header_fits() ? 1 : 42; }\n";
    std::fs::write(dir.join("main.c"), source)?;
    for (name, text, status) in [("own", &header, 1), ("other", &other, 42)] {
        std::fs::create_dir_all(dir.join(name))?;
        std::fs::write(dir.join(name).join("tlbkit.h"), text)?;
        let program = dir.join(name).join("main");
        let mut gcc = Command::new("gcc");
        gcc.args(FLAGS).arg("-I").arg(dir.join(name)).arg(dir.join("main.c")).arg(&archive).arg("-o").arg(&program);
        run(&mut gcc)?;
        assert_eq!(Command::new(program).status()?.code(), Some(status), "the {name} header");
    }
    Ok(())
}

/// A script places the archive's tables behind what the loader loads: their pointers may be relocated, and all else in
/// them is zero.
#[test]
fn constants_that_were_not_loaded_do_not_fit() -> Result<()> {
    let Some(archive) = archive("")? else { return Ok(()) };
    let dir = scratch("not-loaded")?;
    let source = "#include \"tlbkit.h\"\n\
        void _start(void) { __asm__ volatile(\"syscall\" ::\"a\"(60), \"D\"(tlbkit_header_fits() ? 1 : 42)); }\n";
    std::fs::write(dir.join("start.c"), source)?;
    let (loaded, absent) = (dir.join("loaded"), dir.join("absent"));
    let mut gcc = Command::new("gcc");
    gcc.args(["-O2", "-ffreestanding", "-nostdlib", "-static", "-no-pie", "-Wl,-z,norelro", "-I"]);
    gcc.arg(crate_dir().join("include")).arg(dir.join("start.c")).arg(&archive).arg("-o").arg(&loaded);
    run(&mut gcc)?;
    let sizes = run(Command::new("size").arg("-A").arg(&loaded))?;
    let line = sizes.lines().find(|line| line.starts_with(".data.rel.ro ")).ok_or("no section .data.rel.ro")?;
    let bytes: usize = line.split_whitespace().nth(1).ok_or("no size")?.parse()?;
    std::fs::write(dir.join("zeros"), vec![0; bytes])?;
    let zeros = format!(".data.rel.ro={}", dir.join("zeros").display());
    run(Command::new("objcopy").arg("--update-section").arg(zeros).arg(&loaded).arg(&absent))?;
    assert_eq!(Command::new(loaded).status()?.code(), Some(1));
    assert_eq!(Command::new(absent).status()?.code(), Some(42));
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
