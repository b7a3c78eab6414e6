//! Developer tasks, in the project's own language: `cargo xtask help` lists them.

mod advice;
mod api;
mod browser;
mod c_kernel;
mod c_library;
mod coverage;
mod fences;
mod libraries;
mod linux;
mod mutants;
mod object;
mod outcome;
mod packages;
mod qemu;
mod setup;
mod shown;
mod steps;
mod survivors;
mod tidy;
mod workshop;

use anyhow::{Result, bail};
use std::env;
use std::process::ExitCode;

const HELP: &str = "\
cargo xtask test [STEP...]           everything: tidy, format, clippy, docs, no_std, tests, the report in a browser; or
                                     the steps whose name holds one of these words
cargo xtask tidy [--lengths]         the house rules only, in seconds; and which files and functions are long
cargo xtask circles                  every circle of files, those of crates that tidy still excuses too
cargo xtask api                      docs/api/: what the library crates promise, written anew from the source
cargo xtask advice [PROGRAM...]      what `tlbkit tune` predicts beside what `tlbkit try` measures, on nine programs
cargo xtask bench [ARGS]             time and instruction counts of the protocol (ARGS go to cargo bench)
cargo xtask qemu [PART]              the test kernel in emulators: compare, faults, soak [MINUTES], bochs, monitor
cargo xtask c-kernel                 the C example in QEMU, as it is and with each fault
cargo xtask c-library                the header, the archive for kernels and a pkg-config file, in one folder
cargo xtask linux [PART] [--json]    Linux with tlbkit in place of its TLB code, beside the same Linux as it is: build,
                                     check [SECONDS], churn [SECONDS], judge [NAME], load [MINUTES], faults, bochs,
                                     compare [BOOTS], functions [WORK]; without a part check and compare
cargo xtask fences [--json] [CRATE] [FILE]
                                     each fence and ordering of the protocol, the page tables and the C interface, or of
                                     a file, weakened in turn: loom must notice
cargo xtask mutants [--json] [NAME]  each historical bug in a copy of the protocol, or of what stands around it: must be
                                     caught; then the protocol as it is for 100 times the budget (--quick, and with a
                                     name: once; --clean: that alone)
cargo xtask survivors [CRATE...] [--file NAME] [--sample N | --shard K/N]
                                     every small change that cargo-mutants makes to a crate (hours), to files of it, or
                                     about N of them: its tests must notice, or verify/mutants/survivors.toml says why
                                     it is no bug
cargo xtask coverage                 lines of the protocol and the page tables that the checker's programs reach; each
                                     other stands in verify/coverage.toml with a test or a reason
cargo xtask book                     README and docs/ as a site, by mdBook, into target/book/book
cargo xtask deb                      the command, its manual pages and completions as a package, by cargo-deb
cargo xtask report-png               report/index.html as a phone and as a desktop show it, into target/
cargo xtask help                     this text";

fn main() -> ExitCode {
    let args: Vec<String> = env::args().skip(1).collect();
    match dispatch(&args) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::from(1),
        Err(error) => {
            eprintln!("xtask: {error:#}");
            ExitCode::from(2)
        }
    }
}

/// Runs one verb; false means that it ran and found something wrong.
fn dispatch(args: &[String]) -> Result<bool> {
    let root = setup::root()?;
    let (verb, more) = args.split_first().map_or(("help", args), |(verb, more)| (verb.as_str(), more));
    if !["advice", "bench", "fences", "linux", "mutants", "qemu", "survivors", "test", "tidy"].contains(&verb)
        && !more.is_empty()
    {
        bail!("`{verb}` takes no argument, got `{}`", more.join(" "));
    }
    match verb {
        "test" => steps::test(&root, more),
        "tidy" => Ok(tidy::run(&root, lengths(more)?)? == 0),
        "circles" => Ok(tidy::circles(&root)? == 0),
        "advice" => advice::run(&root, more),
        "api" => api::run(&root),
        "bench" => steps::bench(&root, more),
        "qemu" => qemu::run(&root, more),
        "c-kernel" => c_kernel::run(&root),
        "c-library" => c_library::run(&root),
        "linux" => linux::run(&root, more),
        "fences" => fences::run(&root, more),
        "mutants" => mutants::run(&root, more),
        "survivors" => survivors::run(&root, more),
        "coverage" => coverage::run(&root),
        "book" => packages::book(&root),
        "deb" => packages::deb(&root),
        "report-png" => browser::report_png(&root),
        "help" | "--help" | "-h" => {
            println!("{HELP}");
            Ok(true)
        }
        _ => bail!("no verb `{verb}`; there are:\n{HELP}"),
    }
}

/// What is to be printed of lengths, by the arguments of `tidy`.
fn lengths(args: &[String]) -> Result<tidy::Lengths> {
    match args {
        [] => Ok(tidy::Lengths::Counted),
        [arg] if arg == "--lengths" => Ok(tidy::Lengths::Listed),
        _ => bail!("`tidy` takes `--lengths` alone, got `{}`", args.join(" ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn outcome(args: &[&str]) -> Result<bool> {
        dispatch(&args.iter().map(|arg| (*arg).to_owned()).collect::<Vec<_>>())
    }

    #[test]
    fn unknown_verbs_and_arguments_are_refused_by_name() {
        let error = outcome(&["frobnicate"]).map_err(|error| error.to_string());
        assert!(error.is_err_and(|text| text.contains("`frobnicate`")));
        let error = outcome(&["tidy", "now"]).map_err(|error| error.to_string());
        assert!(error.is_err_and(|text| text.contains("`now`")));
        assert!(outcome(&[]).is_ok_and(|fine| fine));
    }
}
