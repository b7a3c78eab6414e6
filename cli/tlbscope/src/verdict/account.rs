//! What a trace comes to: its rows put together by program, purpose, memory and caller, and whose time it was.

use std::collections::{BTreeMap, BTreeSet};

use tlbkit_trace::blame::{Attribution, BlameRow, Counts, Interrupted, Mapping, Owner, Sampled, Why};
use tlbkit_trace::{Blame, Name, Names, Source};

use super::remedies::Remedy;
use crate::chosen::Chosen;
use crate::trace::read_in_part;

/// Flushes of one program for one purpose, of one kind of memory, from one caller.
pub(super) struct Entry {
    pub(super) program: String,
    pub(super) why: String,
    pub(super) mapping: String,
    pub(super) caller: Option<String>,
    pub(super) counts: Counts,
    /// By process name and thread name, the most frequent first.
    pub(super) interrupted: Vec<(String, Interrupted)>,
    /// CPU time of the program, in nanoseconds.
    pub(super) program_ns: u64,
    pub(super) remedy: &'static Remedy,
}

impl Entry {
    /// Whether it has flushes or page faults; else it is of samples of another call.
    pub(super) fn is_cause(&self) -> bool {
        self.is_flush() || self.counts.faults > 0
    }

    /// Whether anything was flushed; else it is of page faults alone.
    pub(super) fn is_flush(&self) -> bool {
        self.counts.flushes + self.counts.asked > 0
    }
}

/// What one program had.
#[derive(Clone, Default)]
pub(super) struct Program {
    /// CPU time, in nanoseconds, while it was recorded.
    pub(super) cpu_ns: u64,
    /// Events, each of which took some of that.
    pub(super) events: u64,
    /// Samples of that time; all 0 if there are none.
    pub(super) sampled: Sampled,
}

/// Who was interrupted by whom: programs.
pub(super) struct Interruption {
    pub(super) whom: String,
    pub(super) by: String,
    pub(super) count: Interrupted,
    /// CPU time of the one that was interrupted, in nanoseconds; 0 for the idle thread.
    pub(super) program_ns: u64,
}

/// A trace's account.
pub(super) struct Account {
    /// The dearest first.
    pub(super) entries: Vec<Entry>,
    /// The most frequent first.
    pub(super) interruptions: Vec<Interruption>,
    pub(super) attribution: Attribution,
    /// Whether the trace has any flush, of whomever.
    pub(super) has_flushes: bool,
    /// How complete the trace is.
    pub(super) health: String,
    /// Time of all CPUs together, in nanoseconds.
    pub(super) machine_ns: u64,
    pub(super) has_stacks: bool,
    /// By name; of a program that was asked about the processes that were asked about.
    pub(super) programs: BTreeMap<String, Program>,
    /// The names of the programs that were asked about.
    pub(super) chosen: BTreeSet<String>,
    /// Names of the kernel's functions, by their numbers in samples.
    pub(super) functions: BTreeMap<Name, String>,
    /// From the first event to the last, in nanoseconds.
    pub(super) length_ns: u64,
    /// What a page fault takes while it is recorded, in nanoseconds, if the trace tells.
    pub(super) fault_ns: Option<u64>,
    /// Whom it is about; none if it is about everybody.
    pub(super) about: Option<String>,
}

impl Account {
    pub(super) fn new(blame: &Blame, source: &dyn Source, cut: Option<String>, chosen: &Chosen) -> Self {
        let names = source.names();
        let rows = blame.rows();
        let times = ProgramTimes::new(blame, names, chosen);
        let seconds = blame.length_ns() as f64 / 1e9;
        let cut = cut.map_or_else(String::new, |error| format!("\n{}", read_in_part(&error)));
        Self {
            has_stacks: rows.iter().any(|row| row.caller.is_some() && row.counts.flushes + row.counts.asked > 0),
            about: chosen.words(),
            entries: entries(blame, &rows, names, chosen, &times),
            interruptions: interruptions(&rows, names, chosen, &times),
            attribution: blame.attribution(),
            has_flushes: blame.has_flushes(),
            programs: programs(blame, names, chosen, &times),
            chosen: times.chosen.iter().map(|&name| name.to_owned()).collect(),
            functions: functions(blame, names),
            length_ns: blame.length_ns(),
            fault_ns: blame.fault_ns(),
            health: format!("{seconds:.3} s, {}{}", source.health(), cut),
            machine_ns: blame.length_ns().saturating_mul(blame.cpus().into()),
        }
    }
}

/// The CPU time of each program that shares are of.
struct ProgramTimes<'n> {
    /// The names of the programs that were asked about.
    chosen: BTreeSet<&'n str>,
    /// By name. Of a program that was asked about only the processes that were asked about count.
    ns: BTreeMap<&'n str, u64>,
}

impl<'n> ProgramTimes<'n> {
    fn new(blame: &Blame, names: &'n Names, chosen: &Chosen) -> Self {
        let cpu_ns = blame.cpu_ns();
        let is_chosen = |owner: &Owner| chosen.is_process(owner.pid, names.text(owner.program));
        let of_chosen: BTreeSet<_> =
            cpu_ns.keys().filter(|owner| is_chosen(owner)).map(|owner| names.text(owner.program)).collect();
        let mut times = Self { chosen: of_chosen, ns: BTreeMap::new() };
        for (owner, ns) in cpu_ns {
            let name = names.text(owner.program);
            if is_chosen(&owner) || !times.chosen.contains(name) {
                let sum = times.ns.entry(name).or_default();
                *sum = sum.saturating_add(ns);
            }
        }
        times
    }

    /// In nanoseconds; 0 for a program that did not run, and for the idle threads.
    fn of(&self, program: &str) -> u64 {
        self.ns.get(program).copied().unwrap_or(0)
    }
}

/// What each program had.
fn programs(blame: &Blame, names: &Names, chosen: &Chosen, times: &ProgramTimes<'_>) -> BTreeMap<String, Program> {
    let mut programs: BTreeMap<String, Program> = BTreeMap::new();
    for (owner, events) in blame.events() {
        let name = names.text(owner.program);
        if chosen.is_process(owner.pid, name) || !times.chosen.contains(name) {
            let program = programs.entry(name.to_owned()).or_default();
            program.events += events;
            program.sampled.add(blame.sampled().get(owner).unwrap_or(&Sampled::default()));
        }
    }
    for (name, program) in &mut programs {
        program.cpu_ns = times.of(name);
    }
    programs
}

/// The names of the functions in samples that belong to nothing that was recorded.
fn functions(blame: &Blame, names: &Names) -> BTreeMap<Name, String> {
    let all = blame.sampled().values().flat_map(|sampled| sampled.elsewhere.keys());
    all.map(|&name| (name, names.text(name).to_owned())).collect()
}

/// The flushes of the processes that were asked about, those of one program, purpose, memory and caller together.
fn entries(blame: &Blame, rows: &[BlameRow], names: &Names, chosen: &Chosen, times: &ProgramTimes<'_>) -> Vec<Entry> {
    type Key<'r> = (&'r str, Why, Mapping, Option<&'r str>, Option<&'static str>);
    let mut merged: BTreeMap<Key<'_>, Counts> = BTreeMap::new();
    for row in rows {
        let program = names.text(row.owner.program);
        if chosen.is_process(row.owner.pid, program) {
            let key = (program, row.why, row.mapping, row.caller.as_deref(), blame.allocator(row.owner.pid));
            merged.entry(key).or_default().add(&row.counts);
        }
    }
    let entry = |((program, why, mapping, caller, allocator), counts): (Key<'_>, Counts)| Entry {
        program: program.to_owned(),
        why: why.label(names),
        mapping: mapping.label(names),
        caller: caller.map(str::to_owned),
        interrupted: interrupted(&counts, names),
        program_ns: times.of(program),
        remedy: Remedy::of(&why.label(names), &mapping.label(names), [caller, allocator], &counts),
        counts,
    };
    let mut entries: Vec<_> = merged.into_iter().map(entry).collect();
    entries.sort_by_key(|entry| std::cmp::Reverse((entry.counts.cost_ns(), entry.counts.flushes)));
    entries
}

/// Which programs interrupted which, as far as one of both was asked about.
fn interruptions(rows: &[BlameRow], names: &Names, chosen: &Chosen, times: &ProgramTimes<'_>) -> Vec<Interruption> {
    let mut between: BTreeMap<(&str, &str), Interrupted> = BTreeMap::new();
    for row in rows {
        let by = names.text(row.owner.program);
        let is_chosen = chosen.is_process(row.owner.pid, by);
        for ((whom, _), count) in &row.counts.interrupted {
            let whom = names.text(*whom);
            if is_chosen || times.chosen.contains(whom) {
                between.entry((shown(whom), by)).or_default().add(count);
            }
        }
    }
    let interruption = |((whom, by), count): ((&str, &str), Interrupted)| Interruption {
        whom: whom.to_owned(),
        by: by.to_owned(),
        count,
        program_ns: times.of(whom),
    };
    let mut interruptions: Vec<_> = between.into_iter().map(interruption).collect();
    interruptions.sort_by_key(|one| std::cmp::Reverse(one.count.times));
    interruptions
}

/// The name of a program as it is shown: Linux calls its idle threads "swapper" with a number.
fn shown(program: &str) -> &str {
    if program.starts_with("swapper") { "idle" } else { program }
}

/// Whom a row interrupted, the most frequent first.
fn interrupted(counts: &Counts, names: &Names) -> Vec<(String, Interrupted)> {
    let mut all: BTreeMap<String, Interrupted> = BTreeMap::new();
    for ((program, thread), count) in &counts.interrupted {
        let (program, thread) = (shown(names.text(*program)), shown(names.text(*thread)));
        let who = if program == thread { program.to_owned() } else { format!("{program}/{thread}") };
        all.entry(who).or_default().add(count);
    }
    let mut all: Vec<_> = all.into_iter().collect();
    all.sort_by_key(|(_, count)| std::cmp::Reverse(count.times));
    all
}
