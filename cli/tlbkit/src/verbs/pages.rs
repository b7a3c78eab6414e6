//! `tlbkit pages`: manual pages and completions for shells, from the command's own definition.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use clap::{Args, Command};
use clap_complete::Shell;
use clap_mangen::Man;

use crate::lab::terminal::{Ending, Format, say};
use crate::output::file::{check_output, write_whole};
use crate::output::kind::Kind;

/// Where to write them.
#[derive(Args)]
#[command(after_help = "Example: tlbkit pages pages && man pages/man1/tlbkit-try.1")]
pub(crate) struct PagesArguments {
    /// A folder, made if it is not there; in it: man1, bash-completion/completions, zsh/site-functions and
    /// fish/vendor_completions.d, as /usr/local/share has them
    folder: PathBuf,
}

/// Where `man` looks.
const MANUAL: &str = "man1";
/// Where each shell looks, and what it calls the file.
const SHELLS: [(Shell, &str); 3] = [
    (Shell::Bash, "bash-completion/completions/tlbkit"),
    (Shell::Zsh, "zsh/site-functions/_tlbkit"),
    (Shell::Fish, "fish/vendor_completions.d/tlbkit.fish"),
];

/// Writes them, for `command`.
pub(crate) fn execute(arguments: &PagesArguments, command: Command, format: Format) -> Result<Ending> {
    let folder = &arguments.folder;
    let files = files(command)?;
    write(&files, folder)?;
    let written: Vec<_> = files.iter().map(|(path, _)| folder.join(path)).collect();
    match format {
        Format::Json => say!("{}", serde_json::json!({ "files": written })),
        Format::Text => say!("{} files in {}", written.len(), folder.display()),
    }
    Ok(Ending::AsExpected)
}

/// Writes all of `files` below `folder`, or none if a file of another kind is in the place of one.
fn write(files: &[(PathBuf, String)], folder: &Path) -> Result<()> {
    for (path, _) in files {
        let path = folder.join(path);
        let parent = path.parent().unwrap_or(folder);
        fs::create_dir_all(parent).with_context(|| parent.display().to_string())?;
        let kind = if parent.ends_with(MANUAL) { Kind::Manual } else { Kind::Completion };
        check_output(&path, kind)?;
    }
    files.iter().try_for_each(|(path, text)| write_whole(&folder.join(path), text))
}

/// Every file: its path below the folder, and its text.
fn files(mut command: Command) -> Result<Vec<(PathBuf, String)>> {
    command.build();
    let mut files = Vec::new();
    pages(&command, &mut files)?;
    for (shell, path) in SHELLS {
        let mut bytes = Vec::new();
        clap_complete::generate(shell, &mut command, "tlbkit", &mut bytes);
        files.push((path.into(), String::from_utf8(bytes).context("a completion is text")?));
    }
    Ok(files)
}

/// The page of a command, and those of its verbs.
fn pages(command: &Command, files: &mut Vec<(PathBuf, String)>) -> Result<()> {
    // As `git-log`: a page is found by one word.
    let name = command.get_display_name().unwrap_or_else(|| command.get_name()).to_owned();
    let mut bytes = Vec::new();
    Man::new(command.clone()).title(name.to_uppercase()).render(&mut bytes)?;
    let page = laid_out(&String::from_utf8(bytes).context("a page is text")?, command);
    files.push((Path::new(MANUAL).join(format!("{name}.1")), page));
    let verbs = command.get_subcommands().filter(|verb| verb.get_name() != "help" && !verb.is_hide_set());
    verbs.into_iter().try_for_each(|verb| pages(verb, files))
}

/// The page with the usage of the help in place of a synopsis that lacks `--` and dots, and with the lists behind the
/// options line by line: they are indented, unlike prose.
fn laid_out(page: &str, command: &Command) -> String {
    let (mut section, mut is_list) = ("", false);
    let mut lines = Vec::new();
    for line in page.lines() {
        let is_of_list = section == "EXTRA" && line.starts_with(' ');
        if is_of_list != is_list {
            is_list = is_of_list;
            lines.push(if is_list { ".nf" } else { ".fi" }.to_owned());
        }
        if let Some(name) = line.strip_prefix(".SH ") {
            section = name;
            lines.push(line.to_owned());
            lines.extend((section == "SYNOPSIS").then(|| synopsis(command)));
        } else if section != "SYNOPSIS" {
            lines.push(line.to_owned());
        }
    }
    lines.join("\n") + "\n"
}

/// How the command is typed, as its help has it.
fn synopsis(command: &Command) -> String {
    let usage = command.clone().render_usage().to_string();
    let lines = usage.trim_start_matches("Usage:").lines().map(str::trim).filter(|line| !line.is_empty());
    let lines: Vec<_> = lines.map(|line| line.replace('\\', "\\e").replace('-', "\\-")).collect();
    lines.join("\n.br\n")
}

#[cfg(test)]
mod tests {
    use clap::{Arg, ArgAction};

    use super::*;

    #[test]
    fn every_verb_has_a_page_and_every_shell_knows_its_options() {
        let option = Arg::new("pairs").long("pairs").help("Pairs of runs").action(ArgAction::SetTrue);
        let verbs = [Command::new("try").about("With and without").arg(option), Command::new("secret").hide(true)];
        let files = files(Command::new("tlbkit").about("Costs").subcommands(verbs)).unwrap();
        let names: Vec<_> = files.iter().map(|(path, _)| path.to_str().unwrap()).collect();
        assert_eq!(names[..2], ["man1/tlbkit.1", "man1/tlbkit-try.1"]);
        assert_eq!(names.len(), 2 + SHELLS.len(), "{names:?}");
        for (path, text) in &files[1..] {
            assert!(text.contains("pairs"), "{}: {text}", path.display());
        }
        assert!(files[1].1.contains(".TH TLBKIT-TRY 1") && files[1].1.contains("With and without"), "{}", files[1].1);
    }

    #[test]
    fn files_are_written_over_those_of_before_alone() {
        let folder = tempfile::tempdir().unwrap();
        let files = files(Command::new("tlbkit").about("Costs").subcommand(Command::new("try"))).unwrap();
        for _ in 0..2 {
            write(&files, folder.path()).unwrap();
        }
        for (path, text) in &files {
            let path = folder.path().join(path);
            fs::write(&path, "somebody's own").unwrap();
            let said = write(&files, folder.path()).unwrap_err().to_string();
            assert!(said.starts_with(&format!("{}: is there already, and is no ", path.display())), "{said}");
            assert_eq!(fs::read_to_string(&path).unwrap(), "somebody's own");
            fs::write(&path, text).unwrap();
        }
    }

    #[test]
    fn a_page_has_the_usage_of_the_help_and_its_lists_line_by_line() {
        let words = Arg::new("COMMAND").last(true).num_args(1..).required(true);
        let verb =
            Command::new("try").about("With and without").arg(words).after_help("Changes:\n  a  1\n  b  2\n\nWords");
        let files = files(Command::new("tlbkit").about("Costs").subcommand(verb.version("7"))).unwrap();
        let page = &files[1].1;
        assert!(page.contains(".SH SYNOPSIS\ntlbkit try \\-\\- <COMMAND>...\n.SH "), "{page}");
        assert!(page.contains(".SH EXTRA\nChanges:\n.nf\n  a  1\n  b  2\n.fi\n\nWords"), "{page}");
    }
}
