//! The fast form under other compilers of the C side, and with optimization across the two languages.
//!
//! What is counted here is the C function that makes the call, so with its arguments and its look at the status: some
//! instructions more than in the main table, and the only place where a call that became part of its caller shows.

use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use crate::tools::{Result, archive_of, run, scratch};
use crate::walks::{BUILDS, Build, PATHS, Walk, compile, total};

/// What is built: a name, the compiler, its options.
const COMPILERS: [(&str, &str, &[&str]); 4] = [
    ("gcc-O2", "gcc", &["-O2"]),
    ("gcc-Os", "gcc", &["-Os"]),
    ("clang-O2", "clang", &["-O2"]),
    ("clang-Os", "clang", &["-Os"]),
];

/// For optimization across the languages clang says as a kernel does that there are no vectors and no floating point:
/// LLVM makes no function part of one that is compiled for another machine. Rust's files are for thin optimization.
const ACROSS: &[&str] = &[
    "-O2",
    "-flto=thin",
    "-mno-red-zone",
    "-mno-mmx",
    "-mno-sse",
    "-Xclang",
    "-target-feature",
    "-Xclang",
    "+soft-float",
    // This clang knows features that a newer linker has forgotten; and the two say by other names what machine it is.
    "-Wl,--no-warnings",
];

/// The C function that makes the call.
fn caller(path: &Walk) -> &'static str {
    match path.function {
        "tlbkit_switch_to" => "counted_switch",
        "tlbkit_enter_lazy" => "counted_lazy",
        "tlbkit_flush_range" => "counted_flush",
        other => other,
    }
}

/// Prints the table.
pub(crate) fn compare() -> Result<ExitCode> {
    let fast = BUILDS.last().ok_or("no archive")?;
    let Some(archive) = archive_of(fast.name, fast.features)? else { return Ok(ExitCode::SUCCESS) };
    let mut programs = Vec::new();
    for (name, compiler, options) in COMPILERS {
        let program = scratch("c_interface")?.join(name);
        match compile(Command::new(compiler).args(options), fast, &archive, &program) {
            Ok(()) => programs.push((name, program)),
            Err(why) => println!("without {name}: {}", first_line(&why.to_string())),
        }
    }
    match across(fast) {
        Ok(program) => programs.push(("clang-LTO", program)),
        Err(why) => println!("without optimization across the languages: {}", first_line(&why.to_string())),
    }
    let head: String = programs.iter().map(|(name, _)| format!(" {name:>9}")).collect();
    println!("{:20}{head}", "path");
    for path in &PATHS {
        let mut row = format!("{:20}", path.name);
        for (_, program) in &programs {
            row += &format!(" {:>9}", total(program, &Walk { function: caller(path), ..*path })?);
        }
        println!("{row}");
    }
    Ok(ExitCode::SUCCESS)
}

/// The program with both languages optimized as one, by the linker that comes with rustc: it must know the bitcode of
/// both compilers, and a newer LLVM reads what an older one has written.
fn across(fast: &Build) -> Result<PathBuf> {
    let (target, profile) = ("build.rustflags=['-Clinker-plugin-lto']", "profile.kernel.lto='off'");
    let arguments = [&["--config", target, "--config", profile], fast.features].concat();
    let archive = archive_of("across", &arguments)?.ok_or("no archive")?;
    let root = run(Command::new("rustc").args(["--print", "sysroot"]))?;
    let host = Path::new(root.trim()).join("lib/rustlib/x86_64-unknown-linux-gnu/bin/gcc-ld/ld.lld");
    let program = scratch("c_interface")?.join("clang-LTO");
    let linker = format!("--ld-path={}", host.display());
    compile(Command::new("clang").arg(linker).args(ACROSS), fast, &archive, &program)?;
    Ok(program)
}

fn first_line(text: &str) -> &str {
    text.lines().find(|line| line.contains("error: ") || line.contains("No such")).unwrap_or(text)
}
