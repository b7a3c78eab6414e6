//! `tlbkit pages`: manual pages and completions for shells, from the command's own definition.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use clap::{Args, Command};
use clap_complete::Shell;
use clap_mangen::Man;

use crate::lab::terminal::{Ending, Format, say};
use crate::output::file::write_whole;

/// Where to write them.
#[derive(Args)]
#[command(after_help = "Example: tlbkit pages pages && man pages/man1/tlbkit-try.1")]
pub(crate) struct PagesArguments {
    /// A folder, made if it is not there; in it: man1, bash-completion/completions, zsh/site-functions and
    /// fish/vendor_completions.d, as /usr/local/share has them
    folder: PathBuf,
}

/// Where each shell looks, and what it calls the file.
const SHELLS: [(Shell, &str); 3] = [
    (Shell::Bash, "bash-completion/completions/tlbkit"),
    (Shell::Zsh, "zsh/site-functions/_tlbkit"),
    (Shell::Fish, "fish/vendor_completions.d/tlbkit.fish"),
];

/// Writes them, for `command`.
pub(crate) fn execute(arguments: &PagesArguments, command: Command, format: Format) -> Result<Ending> {
    let folder = &arguments.folder;
    let mut written = Vec::new();
    for (path, text) in files(command)? {
        let path = folder.join(path);
        let parent = path.parent().unwrap_or(folder);
        fs::create_dir_all(parent).with_context(|| parent.display().to_string())?;
        write_whole(&path, &text)?;
        written.push(path);
    }
    match format {
        Format::Json => say!("{}", serde_json::json!({ "files": written })),
        Format::Text => say!("{} files in {}", written.len(), folder.display()),
    }
    Ok(Ending::AsExpected)
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
    files.push((Path::new("man1").join(format!("{name}.1")), String::from_utf8(bytes).context("a page is text")?));
    let verbs = command.get_subcommands().filter(|verb| verb.get_name() != "help" && !verb.is_hide_set());
    verbs.into_iter().try_for_each(|verb| pages(verb, files))
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
}
