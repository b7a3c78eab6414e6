//! The protocol's handshakes under loom, on its real source: what the memory model allows of two or three CPUs and one
//! or two pages, within a bound on preemptions. Run by `RUSTFLAGS="--cfg loom"
//! cargo test -p tlbkit --features history --test handshakes`.
//!
//! **How it is set up.** A thread is a CPU. Its TLB never evicts, and fills itself after each flush and CR3 write: each
//! entry is as old as it can be. It walks the loaded tables whenever it is looked at. Page-table entries are plain
//! stores and loads. Frames and tables are cells without synchronisation: whoever reaches one must come before its
//! freeing by happens-before. A CPU that waits in vain sleeps in the end, and loom reports the deadlock.
//!
//! **Interrupts.** loom has none, so a CPU looks for them: before each access of its program, at each event and at each
//! turn of waiting. Elsewhere the protocol runs with interrupts off, but for steps of a flush between two events. An
//! interrupt orders what was written before it was sent; what a waiting CPU finds without one, the protocol must order.
//!
//! **INVLPGB** drops what it names from the TLBs of all CPUs when TLBSYNC comes, which waits for the accesses and walks
//! under way through that; so they come before it by happens-before, and nothing else does.
//!
//! **Sleeping.** A CPU sleeps only if nothing was announced since it looked, and every change that ends a wait is
//! announced after it: an answer, a switch, a CPU that leaves or comes back. The one thing that is not announced, an
//! interrupt on its way to a CPU that waits with interrupts off (`bring_up`), comes from a CPU that will wait itself or
//! rest, and answers there. So a deadlock that loom reports is the protocol's.
//!
//! **What it cannot show.** More preemptions, CPUs or pages. loom's SeqCst fences order a little more than the language
//! promises, its exchanges always find the newest value, and a CPU that was asleep is ordered behind who woke it.
#![cfg(loom)]

mod core;
mod cpu;
mod explore;
mod issued;
mod machine;
mod memory;

mod after;
mod batch;
mod defer;
mod destroy;
mod early;
mod isolation;
mod issue;
mod join;
mod kernel;
mod lazy;
mod leave;
mod requests;
mod retire;
mod shared;
mod sharers;
mod slots;
mod spared;
