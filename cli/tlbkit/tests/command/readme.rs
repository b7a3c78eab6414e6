//! The README's commands, as a reader would type them in an empty folder.

use std::env;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// The lines of all `sh` blocks of the README.
pub(crate) fn commands_of_readme() -> Vec<String> {
    commands(include_str!("../../../../README.md"))
}

/// The commands of all `sh` blocks: continued lines joined, comments and empty lines dropped.
pub(crate) fn commands(text: &str) -> Vec<String> {
    let mut found = Vec::new();
    let mut is_inside = false;
    let joined = text.replace("\\\n", " ");
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

/// `line` with the command by its name, if a reader types it so or, from a clone, behind `from_clone`.
pub(crate) fn own(line: &str, name: &str, from_clone: &str) -> Option<String> {
    let of_clone = line.strip_prefix(from_clone).map(|arguments| format!("{name} {arguments}"));
    of_clone.or_else(|| line.starts_with(&format!("{name} ")).then(|| line.to_owned()))
}

/// Runs a line in `folder` with the command as built for this test first on the PATH.
pub(crate) fn run(line: &str, program: &str, folder: &Path) -> Output {
    let built = Path::new(program).parent().map(Path::to_path_buf).unwrap_or_default();
    let path = env::var_os("PATH").unwrap_or_default();
    let folders: Vec<PathBuf> = [built].into_iter().chain(env::split_paths(&path)).collect();
    let path = env::join_paths(folders).expect("a PATH");
    Command::new("sh").args(["-c", line]).current_dir(folder).env("PATH", path).output().expect("a shell")
}

/// Runs each of `lines` in an empty folder, and says which ended otherwise than they must. `is_excused` tells of a line
/// that ended with status 2 whether what it said means that this host has not what it needs.
pub(crate) fn faults(lines: &[String], program: &str, is_excused: impl Fn(&str, &str) -> bool) -> Vec<String> {
    let folder = tempfile::tempdir().expect("a folder for temporary files");
    let mut faults = Vec::new();
    for line in lines {
        let output = run(line, program, folder.path());
        let text = [output.stdout, output.stderr].map(|bytes| String::from_utf8_lossy(&bytes).into_owned()).concat();
        match output.status.code() {
            Some(0) => {}
            Some(2) if is_excused(line, &text) => println!("skipped: {line}: {text}"),
            code => faults.push(format!("`{line}` ended with {code:?} and said:\n{text}")),
        }
    }
    faults
}
