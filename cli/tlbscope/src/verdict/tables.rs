//! An account as tables, and as rows for programs.

use serde_json::{Value, json};
use tlbkit_output::table::grid;

use super::account::{Account, Entry, Interruption};
use crate::trace::NO_FLUSH;

/// Threads that a row names among those it interrupted.
const VICTIMS: usize = 3;
/// Characters of a function's name.
const NAME_CHARS: usize = 60;
/// Below this the attribution is worth a warning, in percent.
const ENOUGH: f64 = 95.0;

const HEAD: [&str; 10] = [
    "who and why",
    "flushes",
    "pages each",
    "all",
    "asked others",
    "interrupted",
    "ms in calls",
    "ms waiting",
    "% of program",
    "% of machine",
];

fn percent(part: u64, whole: u64) -> Option<f64> {
    (whole > 0).then(|| 100.0 * part as f64 / whole as f64)
}

fn percent_cell(part: u64, whole: u64) -> String {
    percent(part, whole).map_or_else(|| "-".to_owned(), |value| format!("{value:.2}"))
}

fn ms(ns: u64) -> String {
    format!("{:.2}", ns as f64 / 1e6)
}

/// Each row as a stack, the program outermost and the cause innermost, with its cost in microseconds: the form that
/// makers of flame graphs read.
pub(super) fn folded(account: &Account) -> Vec<String> {
    let of = |entry: &Entry| {
        let callers = entry.caller.iter().flat_map(|caller| caller.rsplit(" < "));
        let cause = format!("{}, {}", entry.why, entry.mapping);
        let frames = [entry.program.as_str()].into_iter().chain(callers).chain([cause.as_str()]);
        let stack: Vec<_> = frames.map(|frame| frame.replace(';', ",")).collect();
        let cost_us = entry.counts.cost_ns() / 1000;
        (cost_us > 0).then(|| format!("{} {cost_us}", stack.join(";")))
    };
    account.entries.iter().filter_map(of).collect()
}

/// Everything, for a person: at most `most` rows.
pub(super) fn text(account: &Account, most: usize) -> String {
    let about =
        account.about.as_ref().map(|about| format!("About {about}; the attribution is that of the whole trace."));
    let mut parts: Vec<_> =
        [Some(account.health.clone()), about, Some(attribution(account))].into_iter().flatten().collect();
    let flushing: Vec<_> = account.entries.iter().filter(|entry| entry.is_flush()).collect();
    let shown = flushing.iter().copied().take(most);
    let is_alone = |entry: &Entry| {
        flushing.iter().filter(|other| (&other.program, &other.why) == (&entry.program, &entry.why)).count() == 1
    };
    let name = |entry: &Entry| {
        let memory = if is_alone(entry) { String::new() } else { format!(", {}", entry.mapping) };
        format!("{}: {}{memory}", entry.program, entry.why)
    };
    let row = |(index, entry): (usize, &Entry)| cells(format!("{}. {}", index + 1, name(entry)), entry, account);
    let rows: Vec<_> = shown.clone().enumerate().map(row).collect();
    if rows.is_empty() {
        let said = if account.has_flushes { "No flush of what was asked about" } else { NO_FLUSH };
        parts.push(format!("{said}."));
    } else {
        parts.push(grid(&HEAD, &rows).trim_end().to_owned());
        let shown: Vec<_> = shown.collect();
        let lines = shown.iter().enumerate().map(|(index, entry)| {
            let said = shown[..index].iter().position(|before| std::ptr::eq(before.remedy, entry.remedy));
            details(index + 1, entry, said.map(|at| at + 1))
        });
        parts.push(lines.collect::<Vec<_>>().join("\n"));
    }
    let left = flushing.len().saturating_sub(most);
    if left > 0 {
        parts.push(format!("{left} more rows; --top shows them"));
    }
    if !account.interruptions.is_empty() {
        parts.push(interruptions(account, most));
    }
    parts.join("\n\n")
}

/// How much is known, and what would tell more.
fn attribution(account: &Account) -> String {
    let a = account.attribution;
    let share = |part, whole| percent(part, whole).map_or_else(|| "none".to_owned(), |value| format!("{value:.1} %"));
    let mut text = format!(
        "Attributed: {} of {} flushes and requests to purpose and memory ({} to a purpose), \
         {} of {} answers to a sender.",
        share(a.attributed, a.shootdowns),
        a.shootdowns,
        share(a.with_purpose, a.shootdowns),
        share(a.with_sender, a.answers),
        a.answers
    );
    let is_low = |part, whole| percent(part, whole).is_some_and(|value| value < ENOUGH);
    if is_low(a.attributed, a.shootdowns) {
        text += "\nThat is little: record by `tlbscope record`, which tells what is mapped where.";
    }
    if is_low(a.with_sender, a.answers) {
        text += "\nWho interrupts whom is known in part: it needs csd:csd_queue_cpu and csd:csd_function_entry.";
    }
    if !account.has_stacks && !account.entries.is_empty() {
        text += "\nNo callers: they need a recording with stacks, of programs with frame pointers.";
    }
    text
}

fn cells(name: String, entry: &Entry, account: &Account) -> Vec<String> {
    let counts = &entry.counts;
    let by_pages = counts.flushes.saturating_sub(counts.everything);
    let each = if by_pages == 0 { "-".to_owned() } else { format!("{:.1}", counts.pages as f64 / by_pages as f64) };
    vec![
        name,
        counts.flushes.to_string(),
        each,
        counts.everything.to_string(),
        counts.asked.to_string(),
        counts.interruptions().times.to_string(),
        ms(counts.called_ns),
        ms(counts.waited_ns),
        percent_cell(counts.called_ns, entry.program_ns),
        percent_cell(counts.cost_ns(), account.machine_ns),
    ]
}

/// What the table has no room for; a remedy that row `said` has is named there alone.
fn details(number: usize, entry: &Entry, said: Option<usize>) -> String {
    let mut text = format!("{number}. {}: {}, memory: {}", entry.program, entry.why, entry.mapping);
    if let Some(caller) = &entry.caller {
        text += &format!("\n   called by: {}", short(caller));
    }
    let victims = entry.interrupted.iter().take(VICTIMS);
    let victims: Vec<_> = victims.map(|(who, count)| format!("{who} {}", times(count.times))).collect();
    if !victims.is_empty() {
        text += &format!("\n   interrupted: {}", victims.join(", "));
    }
    let remedy = said.map_or_else(|| entry.remedy.fix.clone(), |row| format!("as of {row}"));
    text + &format!("\n   remedy: {remedy}")
}

fn times(count: u64) -> String {
    if count == 1 { "once".to_owned() } else { format!("{count} times") }
}

/// Functions by the names that the linker has, which can be long, each cut to what tells them apart.
fn short(caller: &str) -> String {
    let cut = |name: &str| match name.char_indices().nth(NAME_CHARS) {
        Some((end, _)) => format!("{}...", &name[..end]),
        None => name.to_owned(),
    };
    caller.split(" < ").map(cut).collect::<Vec<_>>().join(" < ")
}

fn interruptions(account: &Account, most: usize) -> String {
    let row = |one: &Interruption| {
        vec![
            one.whom.clone(),
            one.by.clone(),
            one.count.times.to_string(),
            ms(one.count.took_ns),
            percent_cell(one.count.took_ns, one.program_ns),
        ]
    };
    let rows: Vec<_> = account.interruptions.iter().take(most).map(row).collect();
    let head = ["interrupted", "by", "times", "ms in handlers", "% of its CPU time"];
    grid(&head, &rows).trim_end().to_owned()
}

/// Everything, for programs: a row each.
pub(super) fn json(account: &Account) -> Vec<Value> {
    let a = account.attribution;
    let about = json!({
        "kind": "attribution", "health": account.health, "shootdowns": a.shootdowns,
        "with_purpose": a.with_purpose, "attributed": a.attributed,
        "attributed_pct": percent(a.attributed, a.shootdowns), "answers": a.answers, "with_sender": a.with_sender,
        "with_sender_pct": percent(a.with_sender, a.answers), "has_callers": account.has_stacks, "about": account.about,
    });
    let entry = |entry: &Entry| {
        let counts = &entry.counts;
        let whom = entry.interrupted.iter();
        let whom = whom.map(|(who, count)| json!({"who": who, "times": count.times, "took_ns": count.took_ns}));
        let interrupted: Vec<_> = whom.collect();
        json!({
            "kind": "caller", "program": entry.program, "why": entry.why, "memory": entry.mapping,
            "caller": entry.caller, "flushes": counts.flushes, "pages": counts.pages,
            "everything": counts.everything, "asked": counts.asked, "waited_ns": counts.waited_ns,
            "called_ns": counts.called_ns, "cost_ns": counts.cost_ns(), "program_cpu_ns": entry.program_ns,
            "percent_of_program": percent(counts.called_ns, entry.program_ns),
            "percent_of_machine": percent(counts.cost_ns(), account.machine_ns),
            "interrupted": interrupted, "remedy": entry.remedy.fix, "calls": counts.calls, "faults": counts.faults,
        })
    };
    let interruption = |one: &Interruption| {
        json!({
            "kind": "interrupted", "who": one.whom, "by": one.by, "times": one.count.times,
            "took_ns": one.count.took_ns, "percent_of_program": percent(one.count.took_ns, one.program_ns),
        })
    };
    let entries = account.entries.iter().filter(|entry| entry.is_flush()).map(entry);
    [about].into_iter().chain(entries).chain(account.interruptions.iter().map(interruption)).collect()
}
