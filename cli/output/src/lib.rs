//! What the commands of this project have in common: how they are typed, how they speak, and how they end. Nothing here
//! knows a simulator or a Linux machine.
//!
//! | module | what |
//! |---|---|
//! | [`command`] | the frame of a command: its arguments, its exit status |
//! | [`terminal`] | text or JSON, lines, progress |
//! | [`stopping`], [`jobs`] | signals; many jobs side by side, of which a signal loses none that is done |
//! | [`number`], [`table`], [`fitting`] | how many digits anybody sees; tables, cut for a terminal |
//! | [`file`](mod@file), [`kind`] | files that are whole or absent, and replace none of another kind |
//! | `pages` | manual pages and completions, with the feature of that name |
//! | [`nearest`], [`policy`] | an unknown name answered with the one that was meant; a policy from its text |
#![forbid(unsafe_code)]
#![warn(clippy::print_stderr)]

pub mod command;
pub mod file;
pub mod fitting;
pub mod jobs;
pub mod kind;
pub mod nearest;
pub mod number;
#[cfg(any(test, feature = "pages"))]
pub mod pages;
pub mod policy;
pub mod stopping;
pub mod table;
pub mod terminal;
