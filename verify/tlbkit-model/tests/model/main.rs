//! The model explored, and beside its document.

mod directories;
mod document;
mod entry;
mod explore;
mod retire;
