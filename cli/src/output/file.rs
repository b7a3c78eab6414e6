//! Files that are whole whenever they are there.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result, ensure};

/// Refuses a file whose folder is missing: asked before the long work whose result goes there.
pub(crate) fn check_folder(file: &Path) -> Result<()> {
    let folder = file.parent().filter(|folder| !folder.as_os_str().is_empty());
    ensure!(folder.is_none_or(Path::is_dir), "{}: its folder does not exist", file.display());
    Ok(())
}

/// Writes `text` beside `path` and renames it: whoever reads, and whoever stops this, never finds half of it there.
pub(crate) fn write_whole(path: &Path, text: &str) -> Result<()> {
    let name = || format!("cannot write {}", path.display());
    let mut part = path.as_os_str().to_owned();
    part.push(".part");
    fs::write(&part, text).with_context(name)?;
    fs::rename(&part, path).with_context(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_file_is_put_in_place_and_nothing_is_left_beside_it() {
        let folder = tempfile::tempdir().unwrap();
        write_whole(&folder.path().join("a.html"), "whole").unwrap();
        let names: Vec<_> = fs::read_dir(folder.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        assert_eq!(names, ["a.html"]);
        assert_eq!(fs::read_to_string(folder.path().join("a.html")).unwrap(), "whole");
    }

    #[test]
    fn a_folder_that_is_not_there_is_named() {
        let error = format!("{:#}", write_whole(Path::new("/nowhere/a.html"), "").unwrap_err());
        assert!(error.starts_with("cannot write /nowhere/a.html: "), "{error}");
    }
}
