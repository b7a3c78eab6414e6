//! Manual pages and completions for shells, from a command's own definition: what `cargo xtask deb` packs.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use clap::Command;
use clap_complete::Shell;
use clap_mangen::Man;

/// Where `man` looks.
const MANUAL: &str = "man1";

/// Writes all pages and completions of `command` below `folder`, as /usr/local/share has them.
///
/// # Errors
/// If one cannot be written.
pub fn write(command: Command, folder: &Path) -> Result<()> {
    for (path, text) in files(command)? {
        let path = folder.join(path);
        fs::create_dir_all(path.parent().unwrap_or(folder)).with_context(|| path.display().to_string())?;
        fs::write(&path, text).with_context(|| path.display().to_string())?;
    }
    Ok(())
}

/// Every file: its path below the folder, and its text.
fn files(mut command: Command) -> Result<Vec<(PathBuf, String)>> {
    command.build();
    let name = command.get_name().to_owned();
    // Where each shell looks, and what it calls the file.
    let shells = [
        (Shell::Bash, format!("bash-completion/completions/{name}")),
        (Shell::Zsh, format!("zsh/site-functions/_{name}")),
        (Shell::Fish, format!("fish/vendor_completions.d/{name}.fish")),
    ];
    let mut files = Vec::new();
    pages(&command, &mut files)?;
    for (shell, path) in shells {
        let mut bytes = Vec::new();
        clap_complete::generate(shell, &mut command, &name, &mut bytes);
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
        assert_eq!(names.len(), 5, "{names:?}");
        for (path, text) in &files[1..] {
            assert!(text.contains("pairs"), "{}: {text}", path.display());
        }
        assert!(files[1].1.contains(".TH TLBKIT-TRY 1") && files[1].1.contains("With and without"), "{}", files[1].1);
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
