//! The page tables on a machine whose CPUs act when a test says so: one program, as each compiles the protocol anew.

mod clean;
mod common;
mod directories;
mod enter;
mod exit;
mod races;
mod random;
mod regions;
mod requests;
mod space;
