//! What a trace comes to: its rows put together by program, purpose, memory and caller, and whose time it was.

use std::collections::{BTreeMap, BTreeSet};

use tlbkit_trace::blame::{Attribution, Counts, Interrupted, Mapping, Owner, Why};
use tlbkit_trace::{Blame, Source};

use super::remedy::remedy;
use crate::lab::chosen::Chosen;

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
    pub(super) remedy: &'static str,
}

/// Who was interrupted by whom: programs.
pub(super) struct Interruption {
    pub(super) whom: String,
    pub(super) by: String,
    pub(super) count: Interrupted,
    /// CPU time of the one that was interrupted, in nanoseconds; 0 for the idle thread.
    pub(super) program_ns: u64,
}

impl Interruption {
    fn new(((whom, by), count): ((String, &str), Interrupted), program_ns: &BTreeMap<&str, u64>) -> Self {
        let program_ns = program_ns.get(whom.as_str()).copied().unwrap_or(0);
        Self { whom, by: by.to_owned(), count, program_ns }
    }
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
    /// Whom it is about; none if it is about everybody.
    pub(super) about: Option<String>,
}

impl Account {
    pub(super) fn new(blame: &Blame, source: &dyn Source, cut: Option<String>, chosen: &Chosen) -> Self {
        let names = source.names();
        let cpu_ns = blame.cpu_ns();
        let is_own = |owner: &Owner| chosen.is_process(owner.pid, names.text(owner.program));
        let own: BTreeSet<_> =
            cpu_ns.keys().filter(|owner| is_own(owner)).map(|owner| names.text(owner.program)).collect();
        let mut program_ns: BTreeMap<&str, u64> = BTreeMap::new();
        for (owner, ns) in cpu_ns {
            let name = names.text(owner.program);
            // Of one name, all processes: who else is interrupted has a share, too.
            if chosen.is_process(owner.pid, name) || !own.contains(name) {
                let sum = program_ns.entry(name).or_default();
                *sum = sum.saturating_add(ns);
            }
        }
        let rows = blame.rows();
        let mut merged: BTreeMap<(&str, Why, Mapping, Option<&str>), Counts> = BTreeMap::new();
        let mut between: BTreeMap<(String, &str), Interrupted> = BTreeMap::new();
        for row in &rows {
            let program = names.text(row.owner.program);
            let is_chosen = chosen.is_process(row.owner.pid, program);
            for ((victim, _), count) in &row.counts.interrupted {
                let victim = names.text(*victim);
                if is_chosen || own.contains(victim) {
                    add(between.entry((shown(victim).to_owned(), program)).or_default(), count);
                }
            }
            if is_chosen {
                let key = (program, row.why, row.mapping, row.caller.as_deref());
                merged.entry(key).or_default().add(&row.counts);
            }
        }
        let time_of = |program: &str| program_ns.get(program).copied().unwrap_or(0);
        let entry = |((program, why, mapping, caller), counts): ((&str, Why, Mapping, Option<&str>), Counts)| Entry {
            program: program.to_owned(),
            why: why.label(names),
            mapping: mapping.label(names),
            caller: caller.map(str::to_owned),
            interrupted: interrupted(&counts, names),
            program_ns: time_of(program),
            remedy: remedy(why, mapping, &counts),
            counts,
        };
        let mut entries: Vec<_> = merged.into_iter().map(entry).collect();
        entries.sort_by_key(|entry| std::cmp::Reverse((entry.counts.cost_ns(), entry.counts.flushes)));
        let mut interruptions: Vec<_> = between.into_iter().map(|row| Interruption::new(row, &program_ns)).collect();
        interruptions.sort_by_key(|one| std::cmp::Reverse(one.count.times));
        let seconds = blame.length_ns() as f64 / 1e9;
        let cut = cut.map(|error| format!("\nREAD IN PART ({error}): what follows is about the events before"));
        Self {
            has_stacks: rows.iter().any(|row| row.caller.is_some()),
            about: chosen.words(),
            entries,
            interruptions,
            attribution: blame.attribution(),
            has_flushes: blame.has_flushes(),
            health: format!("{seconds:.3} s, {}{}", source.health(), cut.unwrap_or_default()),
            machine_ns: blame.length_ns().saturating_mul(blame.cpus().into()),
        }
    }
}

fn add(sum: &mut Interrupted, other: &Interrupted) {
    sum.times += other.times;
    sum.took_ns = sum.took_ns.saturating_add(other.took_ns);
}

/// Linux calls its idle threads so.
fn shown(program: &str) -> &str {
    if program.starts_with("swapper") { "idle" } else { program }
}

/// Whom a row interrupted, the most frequent first.
fn interrupted(counts: &Counts, names: &tlbkit_trace::Names) -> Vec<(String, Interrupted)> {
    let mut all: BTreeMap<String, Interrupted> = BTreeMap::new();
    for ((program, thread), count) in &counts.interrupted {
        let (program, thread) = (shown(names.text(*program)), shown(names.text(*thread)));
        let who = if program == thread { program.to_owned() } else { format!("{program}/{thread}") };
        add(all.entry(who).or_default(), count);
    }
    let mut all: Vec<_> = all.into_iter().collect();
    all.sort_by_key(|(_, count)| std::cmp::Reverse(count.times));
    all
}
