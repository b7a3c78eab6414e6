//! The model explored, and beside its document.

mod document;
mod explore;
