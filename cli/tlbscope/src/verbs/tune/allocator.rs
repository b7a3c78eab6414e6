//! How allocators are told to keep memory that programs free, instead of giving it back to be faulted in again.
//!
//! A setting is printed for the allocator that is there, with what it switches off by being set, the memory that it
//! costs and whom it concerns. It must never make a program slower: tests apply it to a program of its kind. The
//! programs that pay most for giving memory back are looked at one by one.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use tlbkit::Policy;
use tlbkit_host::Allocator;
use tlbkit_host::trial::Change;
use tlbkit_replay::{Bill, Caller, Cause, CostItem, Deduced, Party, Process, Spared, Tally};
use tlbkit_trace::{Name, Names, Syscall};

use super::knob::{ALLOCATOR, FLUSHES, Knob, Setting, Sparing};
use crate::trace::Trace;

/// A way to keep memory, and its price.
pub(super) struct Keeping {
    allocator: &'static str,
    /// The environment variable by which it is told.
    variable: String,
    value: String,
    remark: &'static str,
    /// What goes with it.
    ends: Spared,
    /// Calls that are the allocator's and no other's.
    surely: &'static [Cause],
    /// Calls that may be the allocator's, or the program's own.
    perhaps: &'static [Cause],
}

/// Whether a setting ends a call.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Certainty {
    No,
    Perhaps,
    Yes,
}

impl Keeping {
    /// For the program's environment, as a trial sets it.
    pub(super) fn change(&self) -> Change {
        Change::Environment { name: self.variable.clone(), value: self.value.clone() }
    }

    /// Whether it ends calls of this kind.
    fn ends(&self, cause: Cause) -> Certainty {
        match cause {
            _ if self.surely.contains(&cause) => Certainty::Yes,
            _ if self.perhaps.contains(&cause) => Certainty::Perhaps,
            _ => Certainty::No,
        }
    }
}

const BRK: Cause = Cause::Call(Syscall::Brk);
const MUNMAP: Cause = Cause::Call(Syscall::Munmap);
const ANY_DONT_NEED: &[Cause] = &[Cause::DontNeed, Cause::ArenaDontNeed];
const DONT_NEED_OR_FREE: &[Cause] = &[Cause::DontNeed, Cause::ArenaDontNeed, Cause::Free];

/// Both, or none. glibc raises its own `mmap_threshold`, up to 32 MiB, as large blocks are freed; to set either of the
/// two ends that, and with the trim threshold alone each block above 128 KiB is mapped and unmapped anew.
const GLIBC: &str = "glibc.malloc.trim_threshold=268435456:glibc.malloc.mmap_threshold=33554432";

/// The environment variable by which an allocator is told to keep memory, and what it is told.
fn variable_and_value(allocator: &Allocator) -> (&str, &'static str) {
    match allocator {
        Allocator::Glibc => ("GLIBC_TUNABLES", GLIBC),
        Allocator::Jemalloc { variable } => (variable, "dirty_decay_ms:60000,muzzy_decay_ms:60000"),
        // Its release rate is about the thread that frees alone: who has TCMALLOC_AGGRESSIVE_DECOMMIT set, or
        // calls for a release, gives back as much with a rate of zero.
        Allocator::Tcmalloc => ("TCMALLOC_DISABLE_MEMORY_RELEASE", "1"),
        Allocator::Mimalloc => ("MIMALLOC_PURGE_DELAY", "-1"),
        Allocator::OldMimalloc => ("MIMALLOC_ALLOW_DECOMMIT", "0"),
        Allocator::Go => ("GODEBUG", "madvdontneed=0"),
    }
}

/// The setting of this allocator by which it keeps memory.
pub(super) fn keeping(allocator: &Allocator) -> Keeping {
    let (ends, surely, perhaps, remark): (_, &[Cause], &[Cause], _) = match allocator {
        Allocator::Glibc => (
            Spared::Calls,
            &[BRK, Cause::ArenaDontNeed],
            &[MUNMAP, Cause::DontNeed],
            "Switches off: glibc's own adaptation of both thresholds, so set both or none. Memory: each arena keeps up \
             to 256 MiB that the program has freed, and there are up to eight arenas a CPU. Scope: the process started \
             so and what it starts; what it maps itself, as a Java heap, is not concerned.",
        ),
        Allocator::Jemalloc { .. } => (
            Spared::Calls,
            DONT_NEED_OR_FREE,
            &[],
            "Switches off: the decay times that the program or its build chose. Memory: what was freed in the last \
             minute is kept, at most the peak. Scope: the process started so and what it starts.",
        ),
        Allocator::Tcmalloc => (
            Spared::Calls,
            ANY_DONT_NEED,
            &[],
            "Switches off: giving memory back at all, explicit calls included. Memory: the process stays at its peak. \
             Scope: the process started so and what it starts.",
        ),
        Allocator::Mimalloc => (
            Spared::Calls,
            DONT_NEED_OR_FREE,
            &[MUNMAP],
            "Switches off: purging of free pages. Memory: the process stays at its peak. Scope: the process started \
             so and what it starts.",
        ),
        Allocator::OldMimalloc => (
            Spared::Calls,
            DONT_NEED_OR_FREE,
            &[MUNMAP],
            "Switches off: giving back free pages of memory that stays mapped. Memory: the process stays near its \
             peak. Scope: the process started so and what it starts.",
        ),
        Allocator::Go => (
            Spared::Faults,
            ANY_DONT_NEED,
            &[],
            "Switches off: MADV_DONTNEED, for MADV_FREE, which flushes as well: the faults go, the flushes stay. \
             Memory: freed memory counts as the process's until the kernel is short of it, which limits of containers \
             may mistake for a leak. Scope: the process started so and what it starts.",
        ),
    };
    let (variable, value) = variable_and_value(allocator);
    let (variable, value) = (variable.to_owned(), value.to_owned());
    Keeping { allocator: allocator.label(), variable, value, remark, ends, surely, perhaps }
}

/// The allocators of the programs called `comm`. Empty if none is known: their files are gone, or another machine's.
fn of_programs(comm: Name, deduced: &Deduced, names: &Names) -> BTreeSet<Allocator> {
    let named = || deduced.processes.iter().filter(|process| process.comm == comm);
    let path = |name: &Name| Path::new(names.text(*name));
    let running = named().filter(|process| is_alive(process, names)).take(MOST_RUNNING);
    let of_running: BTreeSet<_> = running.filter_map(|process| Allocator::of_process(process.pid)).collect();
    // What is mapped is certain, and a file may be run with another library before its own.
    if !of_running.is_empty() {
        return of_running;
    }
    // A program has many processes, and its file is long.
    let programs: BTreeSet<_> = named().map(|process| (process.file, &process.code)).collect();
    let of_program = |(file, code): (Option<Name>, &Vec<Name>)| match Allocator::of_libraries(code.iter().map(path)) {
        Some(preloaded) => preloaded,
        None => Allocator::of_file(path(&file?)),
    };
    programs.into_iter().filter_map(of_program).collect()
}

/// Processes of one program that are looked at while they run.
const MOST_RUNNING: usize = 8;

/// Whether it still runs: its number may be another process's by now.
fn is_alive(process: &Process, names: &Names) -> bool {
    let comm = fs::read_to_string(format!("/proc/{}/comm", process.pid));
    comm.is_ok_and(|comm| comm.trim_end() == names.text(process.comm))
}

/// Programs that are told to keep memory, one at a time.
const PROGRAMS: usize = 5;

/// Said where nobody knows which allocator calls: then no setting of one is printed.
const UNKNOWN: &str = "Which allocator calls is not known: its program is not on this machine, or has none of glibc's, \
    jemalloc, tcmalloc, mimalloc and Go's. Tell it to keep memory, if it can be told.";

/// The programs that pay most for giving memory back, each as if it kept it.
pub(super) fn knobs(trace: &Trace, recorded_by: Policy, recorder: &Tally) -> Vec<Knob> {
    let mut callers: BTreeMap<Name, (BTreeSet<Caller>, Bill)> = BTreeMap::new();
    for (who, caller) in &recorder.by_caller {
        if who.party == Party::Asked && who.pattern.is_some_and(|pattern| pattern.cause.may_be_an_allocators()) {
            let (all, bill) = callers.entry(who.comm).or_default();
            all.insert(*who);
            *bill += &caller.bill;
        }
    }
    // Each page that was given back may have been faulted in again.
    let cost = |bill: &Bill| {
        let faults = trace.prices.of(CostItem::Fault).times(bill.count(CostItem::GiveBack) as f64);
        bill.total(&trace.prices).value + faults.value
    };
    let mut most: Vec<_> = callers.into_iter().map(|(comm, (who, bill))| (comm, who, cost(&bill))).collect();
    most.sort_by(|a, b| b.2.total_cmp(&a.2));
    let knobs = |(comm, who, _)| keep_memory(trace, recorded_by, comm, &who);
    most.into_iter().take(PROGRAMS).flat_map(knobs).collect()
}

/// What lets a program keep its memory: a setting for each allocator that is there and makes such calls.
fn keep_memory(trace: &Trace, policy: Policy, comm: Name, callers: &BTreeSet<Caller>) -> Vec<Knob> {
    let allocators = of_programs(comm, &trace.recording.deduced, trace.recording.names());
    let comm = trace.recording.names().text(comm);
    if allocators.is_empty() {
        let setting = Setting::new(ALLOCATOR, &format!("{comm} keeps memory"), &[], FLUSHES).with_remark(UNKNOWN);
        let sparing = Sparing { surely: BTreeSet::new(), perhaps: callers.clone(), what: Spared::Calls };
        return vec![Knob { setting, policy, sparing: Some(sparing) }];
    }
    let knob = |allocator: &Allocator| {
        let keeping = keeping(allocator);
        let of = |certainty| {
            let is_so = |who: &&Caller| who.pattern.is_some_and(|pattern| keeping.ends(pattern.cause) == certainty);
            callers.iter().filter(is_so).copied().collect::<BTreeSet<Caller>>()
        };
        let (surely, perhaps, what) = (of(Certainty::Yes), of(Certainty::Perhaps), keeping.ends);
        let change = keeping.change();
        let Keeping { allocator, variable, value, remark, .. } = keeping;
        let command = format!("{variable}={value}   # {allocator}");
        let setting = Setting::new(ALLOCATOR, &format!("{comm} keeps memory, {allocator}"), &[command], FLUSHES);
        let setting = setting.with_remark(remark).tried_as(change);
        let has_any = !surely.is_empty() || !perhaps.is_empty();
        has_any.then_some(Knob { setting, policy, sparing: Some(Sparing { surely, perhaps, what }) })
    };
    allocators.iter().filter_map(knob).collect()
}

#[cfg(test)]
mod tests {
    use super::Certainty::{No, Perhaps, Yes};
    use super::*;

    #[test]
    fn a_setting_ends_calls_that_its_allocator_makes() {
        let ends = |allocator: &Allocator, cause| keeping(allocator).ends(cause);
        assert_eq!([BRK, MUNMAP, Cause::Free].map(|cause| ends(&Allocator::Glibc, cause)), [Yes, Perhaps, No]);
        assert_eq!(
            [Cause::ArenaDontNeed, Cause::DontNeed].map(|cause| ends(&Allocator::Glibc, cause)),
            [Yes, Perhaps],
            "a program on glibc may call madvise itself"
        );
        assert_eq!((ends(&Allocator::Go, BRK), ends(&Allocator::Tcmalloc, BRK)), (No, No));
        let jemalloc = Allocator::Jemalloc { variable: "JE_MALLOC_CONF".into() };
        assert_eq!([Cause::Free, MUNMAP].map(|cause| ends(&jemalloc, cause)), [Yes, No]);
        assert!(keeping(&jemalloc).change().to_string().starts_with("JE_MALLOC_CONF=dirty_decay_ms:"));
        let others = [Allocator::Tcmalloc, Allocator::Mimalloc, Allocator::OldMimalloc, Allocator::Go];
        for allocator in [Allocator::Glibc, jemalloc].into_iter().chain(others) {
            let (change, Keeping { remark, .. }) = (keeping(&allocator).change(), keeping(&allocator));
            assert_eq!(change.to_string().parse::<Change>().unwrap(), change, "as it is typed for a trial");
            assert!(["Switches off: ", "Memory: ", "Scope: "].iter().all(|part| remark.contains(part)), "{remark}");
        }
    }
}
