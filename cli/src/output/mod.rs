//! What a person sees: tables on a terminal, and one HTML file with its plots.
//!
//! [`report`] holds the plain data that a verb fills in; [`table`] and [`html`] turn figures into text, [`sheet`] makes
//! any other page, [`svg`] turns plots into drawings, [`number`] decides how many digits anybody sees, [`listing`]
//! prints the flush-size table.

pub(crate) mod html;
pub(crate) mod listing;
pub(crate) mod number;
mod page;
pub(crate) mod range;
pub(crate) mod report;
pub(crate) mod sheet;
pub(crate) mod svg;
pub(crate) mod table;

#[cfg(test)]
mod sample;

use std::path::Path;

use anyhow::{Result, ensure};

/// Refuses a file whose folder is missing: asked before the long work whose result goes there.
pub(crate) fn check_folder(file: &Path) -> Result<()> {
    let folder = file.parent().filter(|folder| !folder.as_os_str().is_empty());
    ensure!(folder.is_none_or(Path::is_dir), "{}: its folder does not exist", file.display());
    Ok(())
}
