//! The programs as streams of operations: what each asks for, that each ends, and what each notices.

mod common;
mod ends_and_catches;
mod scheduling;
mod settings;
mod streams;
