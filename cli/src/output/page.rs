//! What every page has: one file with its style inside, nothing to load, and in place only when it is whole.

use std::path::Path;

use anyhow::{Context, Result};
use maud::{DOCTYPE, Markup, PreEscaped, html};

const STYLE: &str = include_str!("report.css");

/// The page called `title` around `body`.
pub(crate) fn around(title: &str, body: &Markup) -> String {
    let page = html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width, initial-scale=1";
                title { (title) }
                style { (PreEscaped(STYLE)) }
            }
            body {
                h1 { (title) }
                (body)
            }
        }
    };
    page.into_string()
}

/// Writes `page` to `path`. A reader who reloads during a run never sees half of it.
pub(crate) fn write(page: &str, path: &Path) -> Result<()> {
    let name = || format!("cannot write {}", path.display());
    let mut part = path.as_os_str().to_owned();
    part.push(".part");
    std::fs::write(&part, page).with_context(name)?;
    std::fs::rename(&part, path).with_context(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_file_is_put_in_place_whole() {
        let folder = tempfile::tempdir().unwrap();
        write(&around("a <b>", &html! { p { "text" } }), &folder.path().join("a.html")).unwrap();
        let names: Vec<_> = std::fs::read_dir(folder.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        assert_eq!(names, ["a.html"]);
        let page = std::fs::read_to_string(folder.path().join("a.html")).unwrap();
        assert!(page.contains("<h1>a &lt;b&gt;</h1><p>text</p>") && page.ends_with("</html>"), "{page}");
    }

    #[test]
    fn a_folder_that_is_not_there_is_named() {
        let error = format!("{:#}", write("", Path::new("/nowhere/a.html")).unwrap_err());
        assert!(error.starts_with("cannot write /nowhere/a.html: "), "{error}");
    }
}
