//! How allocators are told to keep memory that programs free, instead of giving it back to be faulted in again.
//!
//! A setting is printed for the allocator that is there, with what it switches off by being set, the memory that it
//! costs and whom it concerns. It must never make a program slower: tests apply it to a program of its kind.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use tlbkit_host::Allocator;
use tlbkit_replay::{Cause, Deduced, Process};
use tlbkit_trace::{Name, Names, Syscall};

/// A way to keep memory, and its price.
pub(super) struct Keeping {
    pub(super) allocator: &'static str,
    /// As `tlbkit try` takes it.
    pub(super) change: String,
    pub(super) remark: &'static str,
}

/// Both, or none. glibc raises its own `mmap_threshold`, up to 32 MiB, as large blocks are freed; to set either of the
/// two ends that, and with the trim threshold alone each block above 128 KiB is mapped and unmapped anew.
const GLIBC: &str = "GLIBC_TUNABLES=glibc.malloc.trim_threshold=268435456:glibc.malloc.mmap_threshold=33554432";

/// The setting of this allocator that ends calls of this kind; none if it has none.
pub(super) fn keeping(allocator: &Allocator, cause: Cause) -> Option<Keeping> {
    let is_dont_need = cause == Cause::DontNeed;
    let (is_its_own, change, remark) = match allocator {
        Allocator::Glibc => (
            cause != Cause::Free,
            GLIBC.to_owned(),
            "Switches off: glibc's own adaptation of both thresholds, so set both or none. Memory: each arena keeps up \
             to 256 MiB that the program has freed, and there are up to eight arenas a CPU. Scope: the process started \
             so and what it starts; what it maps itself, as a Java heap, is not concerned.",
        ),
        Allocator::Jemalloc { variable } => (
            is_dont_need || cause == Cause::Free,
            format!("{variable}=dirty_decay_ms:60000,muzzy_decay_ms:60000"),
            "Switches off: the decay times that the program or its build chose. Memory: what was freed in the last \
             minute is kept, at most the peak. Scope: the process started so and what it starts.",
        ),
        Allocator::Tcmalloc => (
            is_dont_need,
            "TCMALLOC_RELEASE_RATE=0".to_owned(),
            "Switches off: giving memory back at all, but for explicit calls. Memory: the process stays at its peak. \
             Scope: the process started so and what it starts.",
        ),
        Allocator::Mimalloc => (
            true,
            "MIMALLOC_PURGE_DELAY=-1".to_owned(),
            "Switches off: purging of free pages. Memory: the process stays at its peak. Scope: the process started \
             so and what it starts.",
        ),
        Allocator::Go => (
            is_dont_need,
            "GODEBUG=madvdontneed=0".to_owned(),
            "Switches off: MADV_DONTNEED, for MADV_FREE, which flushes as well: the faults go, the flushes stay. \
             Memory: freed memory counts as the process's until the kernel is short of it, which limits of containers \
             may mistake for a leak. Scope: the process started so and what it starts.",
        ),
    };
    is_its_own.then(|| Keeping { allocator: allocator.label(), change, remark })
}

/// The allocators of the programs called `comm`. Empty if none is known: their files are gone, or another machine's.
pub(super) fn of_programs(comm: Name, deduced: &Deduced, names: &Names) -> BTreeSet<Allocator> {
    let named = || deduced.processes.iter().filter(|process| process.comm == comm);
    // A program has many processes, and its file is long.
    let files: BTreeSet<Name> = named().filter_map(|process| process.file).collect();
    let of_files = files.into_iter().filter_map(|file| Allocator::of_file(Path::new(names.text(file))));
    let running = named().filter(|process| is_alive(process, names)).take(MOST_RUNNING);
    let of_running: BTreeSet<_> = running.filter_map(|process| Allocator::of_process(process.pid)).collect();
    // What is mapped is certain, and a file may be run with another library before its own.
    if of_running.is_empty() { of_files.collect() } else { of_running }
}

/// Processes of one program that are looked at while they run.
const MOST_RUNNING: usize = 8;

/// Whether it still runs: its number may be another process's by now.
fn is_alive(process: &Process, names: &Names) -> bool {
    let comm = fs::read_to_string(format!("/proc/{}/comm", process.pid));
    comm.is_ok_and(|comm| comm.trim_end() == names.text(process.comm))
}

/// True for the calls by which allocators give memory back.
pub(super) const fn gives_back(cause: Cause) -> bool {
    matches!(cause, Cause::DontNeed | Cause::Free | Cause::Call(Syscall::Brk | Syscall::Munmap))
}

#[cfg(test)]
mod tests;
