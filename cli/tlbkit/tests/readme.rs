//! The README is true: every command in its `sh` blocks is run as a reader would type it, in an empty folder.

#[path = "command/not_here.rs"]
mod not_here;

use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::{env, fs, io};

use not_here::is_not_here;

/// What a reader types to run the command from a clone.
const FROM_CLONE: &str = "cargo run --release -- ";
/// Lines for somebody with no clone yet, or who wants the developer's tasks, which run this test themselves.
const NOT_RUN: &[&str] = &["git clone ", "cd ", "cargo xtask ", "cargo bench", "cargo add ", "cargo install "];
/// The first command takes more than a minute. `cargo xtask report` types it, and looks
/// at what it makes.
const BY_ITS_OWN_STEP: &str = "cargo run --release -- reproduce";
/// What needs tracepoints.
const LIVE: &[&str] = &["tlbkit observe ", "tlbkit record "];
/// The recording that is made with them, and what is said of it where it could not be made.
const RECORDING: (&str, &str) = ("load.tlbtrace", "tlbkit: load.tlbtrace: no such file");
/// What needs an emulator and a target, and what is said where one of them lacks.
const BOOT: (&str, &[&str]) = ("tlbkit boot ", &["tlbkit: no program ", "tlbkit: the kernel does not build (is the"]);

/// The commands of all `sh` blocks: continued lines joined, comments and empty lines dropped.
fn commands(readme: &str) -> Vec<String> {
    let mut found = Vec::new();
    let mut is_inside = false;
    let joined = readme.replace("\\\n", " ");
    for line in joined.lines().map(str::trim) {
        if let Some(language) = line.strip_prefix("```") {
            is_inside = !is_inside && language == "sh";
        } else if is_inside {
            let command = line.split(" #").next().unwrap_or("").trim();
            if !command.is_empty() && !command.starts_with('#') {
                found.push(command.to_owned());
            }
        }
    }
    found
}

/// What a README line asks this test to do.
#[derive(Debug, PartialEq, Eq)]
enum Duty {
    /// Run this shell line.
    Run(String),
    /// Leave it to the reader.
    Skip,
    /// Nobody knows: the README must not promise what nothing tries.
    Unknown,
}

fn duty(command: &str) -> Duty {
    if command == BY_ITS_OWN_STEP {
        return Duty::Skip;
    }
    if let Some(arguments) = command.strip_prefix(FROM_CLONE) {
        return Duty::Run(format!("tlbkit {arguments}"));
    }
    if command.starts_with("tlbkit ") {
        return Duty::Run(command.to_owned());
    }
    if NOT_RUN.iter().any(|start| command.starts_with(start)) { Duty::Skip } else { Duty::Unknown }
}

/// Runs a line in `dir` with the command as built for this test first on the PATH.
fn run(line: &str, dir: &Path) -> io::Result<Output> {
    let built = Path::new(env!("CARGO_BIN_EXE_tlbkit")).parent().map(Path::to_path_buf).unwrap_or_default();
    let path = env::var_os("PATH").unwrap_or_default();
    let dirs: Vec<PathBuf> = [built].into_iter().chain(env::split_paths(&path)).collect();
    let path = env::join_paths(dirs).map_err(io::Error::other)?;
    Command::new("sh").args(["-c", line]).current_dir(dir).env("PATH", path).output()
}

/// Why this end of `line` is not what the README promises, if it is not.
fn fault(line: &str, code: Option<i32>, text: &str) -> Option<String> {
    match code {
        Some(0) => None,
        // Where this host lets nobody trace, one line says so; what reads the recording then finds none.
        Some(2) if is_excused(line, text) => {
            println!("skipped: {line}: {text}");
            None
        }
        _ => Some(format!("`{line}` ended with {code:?} and said:\n{text}")),
    }
}

/// Whether what `line` says means that this host has not what it needs.
fn is_excused(line: &str, text: &str) -> bool {
    let ((recording, no_recording), (boot, no_boot)) = (RECORDING, BOOT);
    (LIVE.iter().any(|live| line.contains(live)) && is_not_here(text))
        || (line.contains(recording) && text.starts_with(no_recording))
        || (line.contains(boot) && no_boot.iter().any(|start| text.starts_with(start)))
}

fn readme() -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../README.md");
    fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

#[test]
fn every_command_of_the_readme_works() {
    let dir = env::temp_dir().join(format!("tlbkit-readme-{}", std::process::id()));
    fs::create_dir_all(&dir).expect("a folder for temporary files");
    let mut faults = Vec::new();
    for command in commands(&readme()) {
        match duty(&command) {
            Duty::Skip => {}
            Duty::Unknown => faults.push(format!("`{command}` is none that this test knows how to run")),
            Duty::Run(line) => {
                let output = run(&line, &dir).expect("a shell");
                let text = [output.stdout, output.stderr].map(|bytes| String::from_utf8_lossy(&bytes).into_owned());
                faults.extend(fault(&line, output.status.code(), &text.concat()));
            }
        }
    }
    fs::remove_dir_all(&dir).expect("the folder made above");
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}

/// What the guide for kernels shows in a line of its text.
#[test]
fn every_run_of_the_guide_works() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/kernel/recipes.md");
    let guide = fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    let spans = guide.split('`').filter(|span| span.starts_with("tlbkit run "));
    let lines: Vec<String> = spans.map(|span| span.replace('\n', " ")).collect();
    assert!(!lines.is_empty());
    for line in lines {
        let output = run(&line, &env::temp_dir()).expect("a shell");
        let text = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(fault(&line, output.status.code(), &text), None);
    }
}

#[test]
fn the_two_commands_that_matter_stand_first() {
    let typed: Vec<String> = commands(&readme());
    let mut first: Vec<&str> = typed.iter().map(String::as_str).collect();
    first.retain(|command| !command.starts_with("git ") && !command.starts_with("cd "));
    assert_eq!(first.get(..2), Some(&[BY_ITS_OWN_STEP, "cargo xtask test"][..]));
}

#[test]
fn only_sh_blocks_are_read_and_comments_dropped() {
    let text = "cargo no\n```rust\ncargo no\n```\n```sh\n# why\ncargo a  # what\n\ntlbkit b \\\n  c\n```\ntlbkit no\n";
    assert_eq!(commands(text), ["cargo a", "tlbkit b    c"]);
}

#[test]
fn each_command_has_one_duty() {
    assert_eq!(duty("cargo run --release -- list"), Duty::Run("tlbkit list".to_owned()));
    assert_eq!(duty("tlbkit list | head"), Duty::Run("tlbkit list | head".to_owned()));
    assert_eq!([BY_ITS_OWN_STEP, "cargo xtask test"].map(duty), [Duty::Skip, Duty::Skip]);
    assert_eq!(duty("cargo run --release -- reproduce pcid"), Duty::Run("tlbkit reproduce pcid".to_owned()));
    assert_eq!(duty("make install"), Duty::Unknown);
}

#[test]
fn only_what_this_host_does_not_allow_may_fail() {
    assert_eq!(fault("tlbkit reproduce", Some(0), ""), None);
    assert!(fault("tlbkit reproduce", Some(1), "Changed verdicts: 1.").is_some());
    let record = "tlbkit record -o load.tlbtrace -- ls";
    assert_eq!(fault(record, Some(2), "tlbkit: no program perf; run: this"), None);
    assert!(fault(record, Some(1), "tlbkit: no program perf; run: this").is_some());
    assert!(fault("tlbkit record --stack", Some(2), "tlbkit: unexpected argument '--stack' found").is_some());
    assert_eq!(fault("tlbkit tune load.tlbtrace", Some(2), "tlbkit: load.tlbtrace: no such file or directory"), None);
    assert!(fault("tlbkit tune load.tlbtrace", Some(2), "tlbkit: load.tlbtrace: no trace").is_some());
    assert_eq!(fault("tlbkit boot --cpus 1", Some(2), "tlbkit: no program qemu-system-x86_64: on Debian"), None);
    assert!(fault("tlbkit boot --cpu 1", Some(2), "tlbkit: unexpected argument '--cpu' found").is_some());
    assert!(fault("tlbkit reproduce", None, "").is_some());
}
