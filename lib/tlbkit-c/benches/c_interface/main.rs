//! The cost of each path for a caller in C: instructions through the header and the archive, by function.
//!
//! `cargo bench -p tlbkit-c` prints a table and compares it with the committed one, `counts.txt`: a higher count is a
//! failure, and after a lower one `TLBKIT_BLESS=1` rewrites the file. Other compilers than those that the file names
//! give other counts, so with them nothing is compared. `-- by-function` shows the instructions of the fast archive by
//! function, `-- compilers` what the fast archive costs with other compilers of the C side (`compilers.rs`). `paths.c`
//! walks the paths; `walks.rs` builds and counts one, with `step.rs`.
#![cfg(all(target_os = "linux", target_arch = "x86_64"))]

mod compilers;
mod step;
#[path = "../../tests/tools/mod.rs"]
mod tools;
mod walks;

use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use tools::{Result, archive_of, crate_dir, scratch};
use walks::{BUILDS, Build, PATHS, compile, counted, total};

fn main() -> ExitCode {
    match measure() {
        Ok(code) => code,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::from(2)
        }
    }
}

fn measure() -> Result<ExitCode> {
    if std::env::args().any(|arg| arg == "compilers") {
        return compilers::compare();
    }
    let mut programs = Vec::new();
    for build in &BUILDS {
        let Some(program) = built(build)? else { return Ok(ExitCode::SUCCESS) };
        programs.push(program);
    }
    if std::env::args().any(|arg| arg == "by-function") {
        return by_function(programs.last().ok_or("no archive")?);
    }
    let committed = std::fs::read_to_string(file()).unwrap_or_default();
    let compilers = compilers()?;
    let is_comparable = committed.lines().any(|line| line == compilers);
    let (mut fresh, mut is_worse) = (format!("{compilers}\n{HEAD}"), false);
    println!("{:20} {:>7} {:>8} {:>8} {:>8} {:>8}", "path", "Linux", "inlined", "checked", "named", "fast");
    let columns = columns(&programs)?;
    for (index, path) in PATHS.iter().enumerate() {
        let (linux, inlined, before) = row(&committed, path.name)?;
        let counts: Vec<i64> = columns.iter().map(|column| column[index]).collect();
        let shown: String = counts.iter().map(|count| format!(" {count:>8}")).collect();
        println!("{:20} {linux:>7} {inlined:>8}{shown}", path.name);
        for ((build, count), before) in BUILDS.iter().zip(&counts).zip(&before) {
            if is_comparable && count > before {
                println!("  {}: {count} instructions, and counts.txt says {before}", build.name);
                is_worse = true;
            }
        }
        fresh += &format!("{:20} {linux:>7} {inlined:>8}{shown}\n", path.name);
    }
    if std::env::var_os("TLBKIT_BLESS").is_some() {
        std::fs::write(file(), fresh)?;
    } else if !is_comparable {
        println!(
            "skipped: counts.txt is of other compilers, not of `{}`: nothing was compared",
            compilers.trim_start_matches("# ")
        );
    } else if !is_worse && fresh != committed {
        println!("shorter than counts.txt: TLBKIT_BLESS=1 cargo bench -p tlbkit-c");
    }
    Ok(ExitCode::from(u8::from(is_worse)))
}

/// The counts of every path for each program. The programs run in parallel, since nearly all of the time is spent on
/// switching between a program and the thread that steps it.
fn columns(programs: &[PathBuf]) -> Result<Vec<Vec<i64>>> {
    let column = |program: &Path| -> std::result::Result<Vec<i64>, String> {
        PATHS.iter().map(|path| total(program, path).map_err(|error| error.to_string())).collect()
    };
    std::thread::scope(|scope| {
        let running: Vec<_> = programs.iter().map(|program| scope.spawn(move || column(program))).collect();
        running.into_iter().map(|one| Ok(one.join().map_err(|_| "a program's count panicked")??)).collect()
    })
}

/// The first line of `counts.txt`.
fn compilers() -> Result<String> {
    let version = |program: &str, arg: &str| -> Result<String> {
        let output = Command::new(program).arg(arg).output().map_err(|error| format!("{program}: {error}"))?;
        let text = String::from_utf8_lossy(&output.stdout);
        Ok(text
            .split_whitespace()
            .find(|word| word.starts_with(|c: char| c.is_ascii_digit()))
            .unwrap_or("?")
            .to_owned())
    };
    Ok(format!("# rustc {}, gcc {}", version("rustc", "--version")?, version("gcc", "-dumpfullversion")?))
}

const HEAD: &str = "\
# Instructions of each path: `cargo bench -p tlbkit-c`, the C columns by these compilers, gcc with -O2.
# linux: Linux 7.3.4, objects of the leanest build, each instruction of a kernel counted as one; `without-pcids` is of
# Linux 6.12 in place, counted by a probe. inlined: `cargo bench -p tlbkit`. A dash: nobody has counted it.
# path                 linux  inlined  checked    named     fast
";

fn file() -> PathBuf {
    crate_dir().join("benches/c_interface/counts.txt")
}

/// The columns of `name`: Linux, inlined Rust, and the committed count of each build.
fn row(committed: &str, name: &str) -> Result<(String, String, Vec<i64>)> {
    let words = committed.lines().map(|line| line.split_whitespace().collect::<Vec<_>>());
    let Some(words) = words.into_iter().find(|words| words.first() == Some(&name)) else {
        return Err(format!("{}: no row {name}", file().display()).into());
    };
    let [_, linux, inlined, ours @ ..] = words.as_slice() else { return Err(format!("row {name} is cut").into()) };
    let ours = ours.iter().map(|word| word.parse()).collect::<std::result::Result<Vec<_>, _>>()?;
    Ok((linux.to_string(), inlined.to_string(), ours))
}

/// The C program, linked with an archive. `None`, with a message, if the compiler lacks the target.
fn built(build: &Build) -> Result<Option<PathBuf>> {
    let Some(archive) = archive_of(build.name, build.features)? else { return Ok(None) };
    let program = scratch("c_interface")?.join(build.name);
    compile(Command::new("gcc").arg("-O2"), build, &archive, &program)?;
    Ok(Some(program))
}

fn by_function(program: &Path) -> Result<ExitCode> {
    for path in PATHS.iter().filter(|path| path.less.is_none()) {
        println!("{}", path.name);
        let mut rows = counted(program, path.number, path.function)?;
        rows.sort_by_key(|(_, count)| -count);
        for (name, count) in rows {
            println!("  {count:>6}  {name}");
        }
    }
    Ok(ExitCode::SUCCESS)
}
