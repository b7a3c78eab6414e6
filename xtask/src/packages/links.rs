//! Links of the site: a document that names a file of the source leads to a page that shows it.

use anyhow::{Context, Result};
use std::fs;
use std::path::{Path, PathBuf};

use crate::tidy::{is_elsewhere, resolve, targets};

/// `text`, the document `from`, with links that stay within the site, and the files and folders that get a page for it.
pub(super) fn within(text: &str, from: &Path, chapters: &[PathBuf], root: &Path) -> (String, Vec<PathBuf>) {
    let mut named = Vec::new();
    let lines = text.lines().map(|line| {
        let mut line = line.to_owned();
        for target in targets(&line).into_iter().filter(|target| !is_elsewhere(target)) {
            let file = target.split('#').next().unwrap_or_default();
            let path = PathBuf::from(resolve(&from.to_string_lossy(), file));
            // mdBook makes an index of what is called README.md, and does not follow links to its old name.
            let folder = file.strip_suffix("README.md").unwrap_or(file).trim_end_matches('/');
            let to = if !folder.is_empty()
                && chapters.contains(&PathBuf::from(resolve(&from.to_string_lossy(), folder)).join("README.md"))
            {
                format!("{folder}/index.md")
            } else if file.is_empty() || chapters.contains(&path) {
                continue;
            } else if root.join(&path).exists() {
                named.push(path);
                page(Path::new(file)).to_string_lossy().into_owned()
            } else {
                continue;
            };
            line = line.replace(&format!("]({target})"), &format!("]({to})"));
        }
        line + "\n"
    });
    let text = lines.collect();
    (text, named)
}

/// The document that shows the file or folder `path`.
pub(super) fn page(path: &Path) -> PathBuf {
    let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
    path.with_file_name(name + ".md")
}

/// What it says: the file's text, or the names in the folder.
pub(super) fn shown(root: &Path, path: &Path) -> Result<String> {
    let whole = root.join(path);
    let context = || path.display().to_string();
    let body = if whole.is_dir() {
        let mut names = Vec::new();
        for entry in fs::read_dir(&whole).with_context(context)? {
            names.push(entry?.file_name().to_string_lossy().into_owned());
        }
        names.sort();
        names.join("\n")
    } else {
        fs::read_to_string(&whole).with_context(context)?
    };
    // More ticks than a file of ours has in a row.
    Ok(format!("# {}\n\n``````text\n{}\n``````\n", path.display(), body.trim_end()))
}

/// Links of the pages in `site` and its folders that lead to no file.
pub(super) fn dead(site: &Path) -> Result<Vec<String>> {
    let mut dead = Vec::new();
    let mut folders = vec![site.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).with_context(|| folder.display().to_string())? {
            let path = entry?.path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|kind| kind == "html") {
                let text = fs::read_to_string(&path)?;
                let missing = references(&text).filter(|to| !folder.join(to).exists());
                dead.extend(missing.map(|to| format!("{}: {to}", path.display())));
            }
        }
    }
    dead.sort();
    Ok(dead)
}

/// Files that a page refers to, without those of other sites and its own headings.
fn references(html: &str) -> impl Iterator<Item = &str> {
    let all = ["href=\"", "src=\""].into_iter().flat_map(|name| html.split(name).skip(1));
    let files = all.filter_map(|rest| rest.split('"').next()?.split('#').next());
    files.filter(|to| !to.is_empty() && !to.contains(':') && !to.starts_with('/'))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn folder(name: &str) -> PathBuf {
        let folder = std::env::temp_dir().join(format!("tlbkit-{name}-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        folder
    }

    #[test]
    fn a_link_to_a_source_leads_to_a_page_that_shows_it() {
        let root = folder("named");
        for (path, text) in [("docs/a.md", "x"), ("sim/n.toml", "k = 1\n"), ("metal/kernel/README.md", "y")] {
            let path = root.join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        let chapters = ["docs/a.md", "docs/b.md", "metal/kernel/README.md"].map(PathBuf::from);
        let text = "[n](../sim/n.toml#x) [b](b.md#h) [k](../metal/kernel) [s](../sim) [w](https://a.b/c) [h](#h)\n";
        let (text, named) = within(text, Path::new("docs/a.md"), &chapters, &root);
        let expected = "[n](../sim/n.toml.md) [b](b.md#h) [k](../metal/kernel/index.md) [s](../sim.md) \
                        [w](https://a.b/c) [h](#h)\n";
        assert_eq!(text, expected);
        assert_eq!(named, ["sim/n.toml", "sim"].map(PathBuf::from));
        assert_eq!(page(&named[0]), Path::new("sim/n.toml.md"));
        assert_eq!(shown(&root, &named[0]).unwrap(), "# sim/n.toml\n\n``````text\nk = 1\n``````\n");
        assert!(shown(&root, &named[1]).unwrap().contains("text\nn.toml\n"));
        fs::remove_dir_all(root).unwrap();
    }

    #[test]
    fn a_reference_to_a_page_that_is_not_there_is_dead() {
        let site = folder("dead");
        let page =
            "<a href=\"b.html#x\"><a href=\"no.html\"><a href=\"#h\"><a href=\"https://a.b\"><img src=\"p.svg\">";
        fs::write(site.join("a.html"), page).unwrap();
        fs::write(site.join("b.html"), "").unwrap();
        let dead = dead(&site).unwrap();
        let names: Vec<_> = dead.iter().map(|line| line.rsplit(' ').next().unwrap()).collect();
        assert_eq!(names, ["no.html", "p.svg"]);
        fs::remove_dir_all(site).unwrap();
    }
}
