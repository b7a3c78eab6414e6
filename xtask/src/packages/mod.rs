//! `cargo xtask deb` and `cargo xtask book`: the command as a package of Debian's kind, and the documents as a site.

mod links;

use anyhow::{Context, Result, bail, ensure};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::setup;

/// Documents that stand at the root, the first of them the site's first page.
const AT_ROOT: [&str; 4] = ["README.md", "ARCHITECTURE.md", "CONTRIBUTING.md", "CHANGELOG.md"];
/// Folders whose documents and pictures are part of the site.
const FOLDERS: [&str; 5] = ["docs", "docs/kernel", "docs/linux", "docs/lab", "metal/kernel"];
const BOOK: &str = "\
[book]
title = \"tlbkit\"
language = \"en\"

[output.html]
default-theme = \"light\"
preferred-dark-theme = \"navy\"
";

/// Builds the command, its manual pages and completions, and packs them.
pub(crate) fn deb(root: &Path) -> Result<bool> {
    wants("cargo-deb")?;
    let target = setup::target_dir(root);
    run(Command::new("cargo").args(["build", "--release", "-p", "tlbkit-cli"]).current_dir(root))?;
    let pages = target.join("pages");
    run(Command::new(target.join("release/tlbkit")).arg("pages").arg(&pages))?;
    run(Command::new("cargo").args(["deb", "-p", "tlbkit-cli", "--no-build"]).current_dir(root))?;
    println!("install it with: sudo dpkg -i {}/debian/tlbkit_*.deb", target.display());
    Ok(true)
}

/// Puts the documents together with a list of contents, and has mdBook make pages of them.
pub(crate) fn book(root: &Path) -> Result<bool> {
    wants("mdbook")?;
    let folder = setup::target_dir(root).join("book");
    let source = folder.join("src");
    let _ = fs::remove_dir_all(&source);
    let mut chapters: Vec<PathBuf> = AT_ROOT.iter().map(PathBuf::from).collect();
    for folder in FOLDERS {
        chapters.extend(documents(&root.join(folder))?.into_iter().map(|name| Path::new(folder).join(name)));
    }
    let mut contents = String::from("# Contents\n\n");
    let mut named = Vec::new();
    for chapter in &chapters {
        if chapter.extension().is_some_and(|extension| extension == "md") {
            let text = fs::read_to_string(root.join(chapter)).with_context(|| chapter.display().to_string())?;
            let (text, found) = links::within(&text, chapter, &chapters, root);
            named.extend(found);
            contents += &format!("- [{}]({})\n", title(&text), chapter.display());
            write(&source.join(chapter), &text)?;
        } else {
            write(&source.join(chapter), &fs::read_to_string(root.join(chapter))?)?;
        }
    }
    named.sort();
    named.dedup();
    contents += "\n# Files that they name\n\n";
    for path in named {
        let page = links::page(&path);
        contents += &format!("- [{}]({})\n", path.display(), page.display());
        write(&source.join(page), &links::shown(root, &path)?)?;
    }
    write(&source.join("SUMMARY.md"), &contents)?;
    write(&folder.join("book.toml"), BOOK)?;
    run(Command::new("mdbook").arg("build").arg(&folder))?;
    let dead = links::dead(&folder.join("book"))?;
    ensure!(dead.is_empty(), "links that lead nowhere: {}", dead.join(", "));
    println!("{}", folder.join("book/index.html").display());
    Ok(true)
}

fn write(path: &Path, text: &str) -> Result<()> {
    fs::create_dir_all(path.parent().unwrap_or(path))?;
    fs::write(path, text).with_context(|| path.display().to_string())
}

/// Documents and pictures of one folder, by name.
fn documents(folder: &Path) -> Result<Vec<PathBuf>> {
    let mut names = Vec::new();
    for entry in fs::read_dir(folder).with_context(|| folder.display().to_string())? {
        let name = PathBuf::from(entry?.file_name());
        names.extend(name.extension().is_some_and(|kind| kind == "md" || kind == "svg").then(|| name.clone()));
    }
    names.sort();
    Ok(names)
}

/// What a document calls itself.
fn title(text: &str) -> &str {
    text.lines().find_map(|line| line.strip_prefix("# ")).unwrap_or("?").trim()
}

fn wants(program: &str) -> Result<()> {
    if Command::new(program).arg("--version").output().is_ok_and(|output| output.status.success()) {
        return Ok(());
    }
    bail!("no {program}: cargo install {program} --locked")
}

fn run(command: &mut Command) -> Result<()> {
    let program = command.get_program().to_string_lossy().into_owned();
    let status = command.status().with_context(|| format!("running {program}"))?;
    if status.success() { Ok(()) } else { bail!("{program}: {status}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_document_of_the_project_has_a_title_and_is_in_the_book() {
        let root = setup::root().unwrap();
        let docs = documents(&root.join("docs")).unwrap();
        assert!(docs.contains(&"glossary.md".into()) && docs.contains(&"pcid.svg".into()), "{docs:?}");
        for name in docs.iter().filter(|name| name.extension().is_some_and(|kind| kind == "md")) {
            let text = fs::read_to_string(root.join("docs").join(name)).unwrap();
            assert_ne!(title(&text), "?", "{}", name.display());
        }
    }

    #[test]
    fn a_program_that_is_missing_is_named_with_its_command() {
        let error = wants("no-such-program").unwrap_err().to_string();
        assert_eq!(error, "no no-such-program: cargo install no-such-program --locked");
    }
}
