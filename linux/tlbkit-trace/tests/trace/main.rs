//! Each format that is read or written.

mod blame;
mod common;
mod compact;
mod perf_data;
mod recorded;
mod script;
mod shared;
