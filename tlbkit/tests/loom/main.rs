//! The protocol's handshakes under loom, on its real source: every outcome that the memory model allows, for two or
//! three CPUs and one or two pages, within a bound on preemptions. `RUSTFLAGS="--cfg loom" cargo test --test handshakes`
//!
//! **How it is set up.** A thread is a CPU. Its TLB never evicts and fills itself after each flush and each CR3 write, so
//! that every entry is as old as it can be; it walks the loaded tables whenever it is looked at. Page-table entries are
//! plain stores and loads. Frames and tables are cells without synchronisation: whoever reaches one must come before
//! its freeing by happens-before. A CPU that waits in vain sleeps, and loom reports the deadlock.
//!
//! **Interrupts.** loom has none, so a CPU looks for them: before each access of its program, at each event and turn of
//! waiting. The protocol runs with interrupts off otherwise, so nothing is lost but an interrupt between two steps of a
//! flush that have no event between them. The interrupt orders what was sent before it; what a waiting CPU finds without
//! an interrupt is ordered by the protocol alone.
//!
//! **What it cannot show.** Executions with more preemptions than the bound; more CPUs; bugs that take x86's own rules.
//! loom's SeqCst fences order a little more than the language promises, and its exchanges always find the newest value.
//! A CPU that is woken from sleep is ordered behind the one that woke it.
#![cfg(loom)]

mod core;
mod cpu;
mod machine;
mod memory;

mod destroy;
mod isolation;
mod join;
mod kernel;
mod lazy;
mod leave;
mod requests;
mod slots;
