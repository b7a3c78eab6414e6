//! The model explored, and beside its document.

mod document;
mod entry;
mod explore;
mod retire;
