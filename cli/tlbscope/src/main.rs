//! The command `tlbscope`: who flushes TLBs on this Linux machine, why, what it costs, and which setting helps.
//!
//! `verbs` is what a person types. They share the modules beside it: `recording` and `watching` (a live machine),
//! `verdict` (causes and what helps), `chosen` (which processes are meant), `trace` and `machine` (files). Exit status:
//! 0 everything as expected, 1 if a change is not worth it, 2 wrong usage, bad input or an output that could not be
//! written; of `record` and `top` with a command, the command's own; 128 and the number of a signal that stopped it.

#![warn(clippy::print_stderr)]

mod chosen;
mod kind;
mod machine;
mod recording;
mod trace;
mod verbs;
mod verdict;
mod watching;

use std::process::ExitCode;

fn main() -> ExitCode {
    tlbkit_output::command::run(verbs::execute, |_| None)
}
