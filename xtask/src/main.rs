//! Developer tasks, in the project's own language: `cargo xtask help` lists them.

mod advice;
mod boot;
mod c_kernel;
mod c_library;
mod fences;
mod linux;
mod mutants;
mod object;
mod ostd;
mod qemu;
mod report;
mod setup;
mod steps;
mod test;
mod tidy;
mod workshop;

use anyhow::{Result, bail, ensure};
use setup::{Need, tool};
use std::env;
use std::fs;
use std::path::Path;
use std::process::{Command, ExitCode};

const HELP: &str = "\
cargo xtask test [STEP...]           what decides whether a change can go in, in about ten minutes; or the steps whose
                                     name holds one of these words
cargo xtask test --all [--part K/N]  everything: all schedules, all bugs, emulators, Linux; or the K-th of N parts of it
cargo xtask tidy                     the house rules alone, in seconds
cargo xtask bench [ARGS]             time and instruction counts of the protocol (ARGS go to cargo bench)
cargo xtask loom [--quick]           the handshakes of the protocol, the page tables and the C interface under loom
cargo xtask fences [CRATE] [FILE]    each of their fences and orderings, or those of a file, weakened in turn: loom must
                                     notice
cargo xtask mutants [NAME...]        each historical bug in a copy of the protocol, or of what stands around it: must be
                                     caught; then the protocol as it is for 100 times the budget (--quick, and with a
                                     name: once; --clean: that alone)
cargo xtask mutants --generate FILE  bugs of the kind that authors make, in the files with FILE in their path; after
                                     `--sample N` N of them
cargo xtask boot [WORD...]           the test kernel once, and what it tells; metal/kernel/README.md has the words
cargo xtask qemu [PART]              the test kernel in emulators: boot, compare, faults, soak [MINUTES], bochs, monitor
cargo xtask c-kernel                 the C example in QEMU, as it is and with each fault
cargo xtask c-library [--check]      the header, the archive for kernels and a pkg-config file, in one folder
cargo xtask linux [PART]             Linux with tlbkit in place of its TLB code, beside the same Linux as it is: build,
                                     port, check [SECONDS], churn [SECONDS], judge [NAME], load [MINUTES], faults,
                                     bochs, compare [BOOTS], functions [WORK]; without a part check and compare
cargo xtask ostd [PART] [--json]     a kernel on Asterinas' OSTD with tlbkit in place of its TLB code, beside the same
                                     with its own: stress [SECONDS], tests, bochs, count, faults; without a part all but
                                     faults
cargo xtask report                   every published result, what the pages show of it, and the report in a browser
cargo xtask advice [PROGRAM...]      what `tlbscope record` advises beside what `try` measures, on 26 programs
cargo xtask deb                      the commands, their manual pages and completions as a package, by cargo-deb
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
    match verb {
        "advice" => return advice::run(&root, more),
        "bench" => return bench(&root, more),
        "boot" => return boot::run(&root, more),
        "c-library" => return c_library::run(&root, more),
        "fences" => return fences::run(&root, more),
        "linux" => return linux::run(&root, more),
        "loom" => return fences::loom(&root, more),
        "mutants" => return mutants::run(&root, more),
        "ostd" => return ostd::run(&root, more),
        "qemu" => return qemu::run(&root, more),
        "test" => return test::run(&root, more),
        _ => {}
    }
    let run: fn(&Path) -> Result<bool> = match verb {
        "c-kernel" => c_kernel::run,
        "deb" => deb,
        "report" => report::run,
        "tidy" => |root| Ok(tidy::run(root)? == 0),
        "help" | "--help" | "-h" => |_| {
            println!("{HELP}");
            Ok(true)
        },
        _ => bail!("no verb `{verb}`; there are:\n{HELP}"),
    };
    ensure!(more.is_empty(), "`{verb}` takes no argument, got `{}`", more.join(" "));
    run(&root)
}

/// `cargo bench` of the protocol; instruction counts want valgrind.
fn bench(root: &Path, more: &[String]) -> Result<bool> {
    if let Some(how) = Need::Program("valgrind", "valgrind").lack() {
        println!("without valgrind there are no instruction counts; {how}");
    }
    let status = Command::new("cargo").args(["bench", "--package", "tlbkit"]).args(more).current_dir(root).status()?;
    Ok(status.success())
}

/// Builds the command, its manual pages and completions, and packs them.
fn deb(root: &Path) -> Result<bool> {
    ensure!(setup::find("cargo-deb").is_some(), "no cargo-deb: cargo install cargo-deb --locked");
    // Where the package's list of files looks. A page of a verb that is gone must not be packed.
    let pages_folder = root.join("target/pages");
    _ = fs::remove_dir_all(&pages_folder);
    for package in ["tlbkit-cli", "tlbscope"] {
        // The pages come from a separate build, so that nobody's command holds what writes them.
        let mut pages = Command::new("cargo");
        pages.args(["run", "--quiet", "--package", package, "--features", "pages"]);
        tool(pages.env("TLBKIT_PAGES", &pages_folder), root)?;
        tool(Command::new("cargo").args(["build", "--release", "--package", package]), root)?;
    }
    tool(Command::new("cargo").args(["deb", "--package", "tlbkit-cli", "--no-build"]), root)?;
    println!("install it with: sudo dpkg -i {}/debian/tlbkit_*.deb", setup::target_dir(root).display());
    Ok(true)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unknown_verbs_and_arguments_are_refused_by_name() {
        let outcome = |args: &[&str]| dispatch(&args.iter().map(|arg| (*arg).to_owned()).collect::<Vec<_>>());
        let refused = |args: &[&str]| outcome(args).map(drop).map_err(|error| error.to_string());
        assert!(refused(&["frobnicate"]).is_err_and(|text| text.contains("`frobnicate`")));
        assert!(refused(&["tidy", "now"]).is_err_and(|text| text.contains("`now`")));
        assert!(outcome(&[]).is_ok_and(|fine| fine));
    }
}
