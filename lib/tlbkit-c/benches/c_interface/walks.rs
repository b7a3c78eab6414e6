//! The paths that are counted, the archives, and how a C program on one is built and counted.

use std::path::Path;
use std::process::Command;

use crate::step::{self, Counts};
use crate::tools::{Result, crate_dir, run};

/// An archive, and how a C caller of it is compiled.
pub(crate) struct Build {
    pub(crate) name: &'static str,
    pub(crate) features: &'static [&'static str],
    pub(crate) defines: &'static [&'static str],
}

pub(crate) const BUILDS: [Build; 3] = [
    Build { name: "checked", features: &["--features", "x86"], defines: &[] },
    Build {
        name: "named",
        features: &["--no-default-features", "--features", "linked"],
        defines: &["-DTLBKIT_LINKED"],
    },
    Build {
        name: "fast",
        features: &["--no-default-features", "--features", "linked,x86"],
        defines: &["-DTLBKIT_LINKED", "-DTLBKIT_X86"],
    },
];

/// One walk of `paths.c`: its number there and the function that is counted.
#[derive(Clone, Copy)]
pub(crate) struct Walk {
    pub(crate) name: &'static str,
    pub(crate) number: u64,
    pub(crate) function: &'static str,
    /// The path whose count is subtracted from that of this one, which leaves the cost of one more CPU.
    pub(crate) less: Option<u64>,
}

const fn path(name: &'static str, number: u64, function: &'static str) -> Walk {
    Walk { name, number, function, less: None }
}

const SWITCH: &str = "tlbkit_switch_to";
const FLUSH: &str = "tlbkit_flush_range";

pub(crate) const PATHS: [Walk; 17] = [
    path("same-space", 0, SWITCH),
    path("current-asid", 1, SWITCH),
    path("current-asid-5", 2, SWITCH),
    path("stale-asid", 3, SWITCH),
    path("new-asid", 4, SWITCH),
    path("enter-lazy", 5, "tlbkit_enter_lazy"),
    path("leave-lazy", 5, SWITCH),
    path("leave-lazy-stale", 6, SWITCH),
    path("without-pcids", 7, SWITCH),
    path("one-page-here", 9, FLUSH),
    path("33-pages-here", 10, FLUSH),
    path("one-page-1-remote", 11, FLUSH),
    path("tables-2-remote", 18, FLUSH),
    Walk { name: "one-more-remote", number: 13, function: FLUSH, less: Some(12) },
    Walk { name: "one-more-lazy", number: 15, function: FLUSH, less: Some(14) },
    path("gather-one-page", 16, "counted_gather"),
    path("gather-tables-freed", 17, "counted_gather"),
];

/// Compiles the C program with the compiler and the options that are given, and links it with an archive.
pub(crate) fn compile(compiler: &mut Command, build: &Build, archive: &Path, program: &Path) -> Result<()> {
    let sources = ["machine.c", "paths.c"].map(|name| crate_dir().join("benches/c_interface").join(name));
    let flags = ["-std=gnu11", "-Wall", "-Wextra", "-Wpedantic", "-Werror", "-static", "-fno-pie", "-I"];
    compiler.args(flags).arg(crate_dir().join("include"));
    run(compiler.args(build.defines).args(sources).arg(archive).arg("-o").arg(program))?;
    Ok(())
}

/// Instructions of one walk of a path, by function: what the second half of the walks takes, divided by their number.
/// The first half only warms up. Each walk calls `function` once, and the path's set-up may call it before them.
pub(crate) fn counted(program: &Path, number: u64, function: &str) -> Result<Vec<(String, i64)>> {
    const TURNS: usize = 8;
    let calls = step::count(program, [number, 2 * TURNS as u64], function, "finish_elsewhere")?;
    if calls.len() < 2 * TURNS {
        return Err(format!("path {number}: {} calls of {function} in {} walks", calls.len(), 2 * TURNS).into());
    }
    let begin = calls.len() - TURNS;
    let mut sums = Counts::new();
    for (name, count) in calls[begin..].iter().flatten() {
        *sums.entry(name.clone()).or_default() += count;
    }
    let per_turn = |(name, sum)| (name, (sum as f64 / TURNS as f64).round() as i64);
    Ok(sums.into_iter().map(per_turn).filter(|(_, count)| *count != 0).collect())
}

pub(crate) fn total(program: &Path, path: &Walk) -> Result<i64> {
    let of =
        |number| -> Result<i64> { Ok(counted(program, number, path.function)?.iter().map(|(_, count)| count).sum()) };
    Ok(of(path.number)? - path.less.map_or(Ok(0), of)?)
}
