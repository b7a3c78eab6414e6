//! The answer on one screen: a sentence, the causes that matter with what helps, and what to try.

use serde_json::{Value, json};
use tlbkit_output::fitting::wrapped;

use super::account::Account;
use super::cause::{Cause, FEWEST_SAMPLES, Interval, LEAST_PCT, Rest, Verdict};
use crate::trace::NO_FLUSH;

/// Causes that are shown.
const CAUSES: usize = 5;
/// Functions of a caller that are shown.
const FUNCTIONS: usize = 3;
/// Columns of what stands before a cause's words.
const INDENT: usize = 12;
/// Characters of a function's name.
const NAME_CHARS: usize = 40;

/// An interval of percents, as short as it may be.
fn percents([low, high]: Interval) -> String {
    let digits = |value: f64| if value >= 10.0 { format!("{value:.0}") } else { format!("{value:.1}") };
    match (digits(low), digits(high)) {
        (low, high) if low == high => format!("{high} %"),
        (low, high) => format!("{low} to {high} %"),
    }
}

fn field(name: &str, text: &str) -> String {
    format!("    {name:<8}{}\n", wrapped(text, INDENT))
}

/// One screen.
pub(super) fn text(account: &Account, verdict: &Verdict<'_>) -> String {
    let mut text = format!("{}\n", wrapped(&sentence(account, verdict), 0));
    let shown: Vec<_> = verdict.causes.iter().filter(|cause| verdict.is_much(cause.most_pct)).take(CAUSES).collect();
    for (index, cause) in shown.iter().enumerate() {
        text += &format!("\n{}", one(index + 1, cause, verdict));
    }
    let notes = notes(account, verdict, shown.len());
    if !notes.is_empty() {
        text += "\n";
        notes.iter().for_each(|note| text += &format!("{}\n", wrapped(note, 0)));
    }
    text += &format!("\n{}\n", wrapped(&next_step(account, verdict, &shown), 0));
    text
}

/// What it means.
fn sentence(account: &Account, verdict: &Verdict<'_>) -> String {
    let Verdict { subject, program, share_pct, .. } = verdict;
    let (used, length) = (program.cpu_ns as f64 / 1e9, account.length_ns as f64 / 1e9);
    if !account.has_flushes {
        return format!("{NO_FLUSH}.");
    }
    if program.cpu_ns == 0 {
        return format!("Nothing to explain: {subject} used no CPU time in this trace.");
    }
    if !verdict.is_the_tlb() {
        return format!(
            "Not the TLB: {subject} spent at most {:.1} % of its {used:.2} s of CPU time on it and on what feeds it. \
             {}; of {length:.2} s that were recorded it ran {used:.2} s on some CPU, and for what it waited else no \
             event tells.",
            share_pct[1].max(0.1),
            verdict.rest.as_ref().map_or_else(|| "The rest is its own code and other system calls".to_owned(), went)
        );
    }
    format!(
        "{subject} spent {} of its {used:.2} s of CPU time on the TLB and what feeds it: calls, page faults, copies, \
         interrupts.",
        percents(*share_pct)
    )
}

/// Where the rest of the time went.
fn went(rest: &Rest<'_>) -> String {
    let Rest { own_pct, kernel_pct, functions } = rest;
    let most = if functions.is_empty() { String::new() } else { format!(", most in {}", functions.join(" and ")) };
    format!("Its own code took {own_pct:.0} %, the kernel elsewhere {kernel_pct:.0} %{most}")
}

/// One cause.
fn one(number: usize, cause: &Cause<'_>, verdict: &Verdict<'_>) -> String {
    let Cause { label, counts, callers, remedy, .. } = cause;
    let mut text = format!("{number}. {} {label}\n", percents(cause.share_pct));
    let mut what = Vec::new();
    if counts.calls > 0 {
        what.push(format!("{} calls of {:.1} us", counts.calls, counts.called_ns as f64 / 1e3 / counts.calls as f64));
    } else if counts.flushes > 0 {
        what.push(format!("{} times", counts.flushes));
    }
    match (counts.flushes + counts.asked, counts.faults) {
        (_, 0) => {}
        (0, faults) => what.push(format!("{faults} page faults")),
        (_, faults) => what.push(format!("{faults} pages came back by page faults")),
    }
    match cause.interrupted {
        [0, 0] => {}
        [own, 0] => what.push(format!("its own threads were interrupted: {own}")),
        [0, others] => what.push(format!("others were interrupted: {others}")),
        [own, others] => what.push(format!("its own threads were interrupted: {own}, others: {others}")),
    }
    text += &field("what", &what.join("; "));
    if let Some(caller) = callers.first() {
        let more = callers.len() - 1;
        let more = if more == 0 { String::new() } else { format!(", and {more} more places") };
        text += &field("by", &(functions(caller) + &more));
    }
    let untried = if remedy.program.is_none() { " (no program of ours has tried this)" } else { "" };
    text += &field("fix", &format!("{}: {}{untried}", remedy.place.label(), remedy.fix));
    let scope = remedy.scope.as_ref().map(|scope| format!("; concerns {scope}")).unwrap_or_default();
    let cost = remedy.cost.as_ref().map(|cost| format!("; {cost}")).unwrap_or_default();
    let gain = match cause.gain_pct {
        [_, high] if high < LEAST_PCT => "nothing to speak of".to_owned(),
        gain => {
            let [low, high] = verdict.ms(gain);
            format!("{} of CPU time ({low:.0} to {high:.0} ms), {}", percents(gain), cause.sureness().label())
        }
    };
    text + &field("gain", &(gain + &cost + &scope))
}

/// The program's functions: without the C library's wrapper of the call, and without what starts a program, as far as
/// that leaves any.
fn functions(caller: &str) -> String {
    let all: Vec<_> = caller.split(" < ").collect();
    let starts = |name: &str| name == "_start" || name.starts_with("__libc_start") || name.contains("libc.so");
    let end = all.iter().rposition(|name| !starts(name)).map_or(all.len(), |last| last + 1);
    let is_wrapper = |name: &str| name.contains("libc.so") || name.starts_with("__") || !name.contains(['+', ':']);
    let skipped = usize::from(end > 1 && is_wrapper(all[0]));
    let short = |name: &&str| match name.char_indices().nth(NAME_CHARS) {
        Some((end, _)) => format!("{}...", &name[..end]),
        None => (*name).to_owned(),
    };
    all[skipped..end].iter().take(FUNCTIONS).map(short).collect::<Vec<_>>().join(" < ")
}

/// What else there is: a line each.
fn notes(account: &Account, verdict: &Verdict<'_>, shown: usize) -> Vec<String> {
    let mut notes = Vec::new();
    let rest = &verdict.causes[shown.min(verdict.causes.len())..];
    let sum = rest.iter().map(|cause| cause.most_pct).sum::<f64>().min(100.0);
    if verdict.is_the_tlb() && sum >= 0.1 {
        notes.push(format!("Smaller causes take {sum:.1} % at most: {}.", rest.len()));
    }
    if let Some((times, pct, who)) = verdict.by_others {
        notes.push(format!(
            "It was interrupted by flushes of others, most of {who}: {times}, {} of its time.",
            percents(pct)
        ));
    }
    if account.about.is_none() && verdict.program.cpu_ns > 0 {
        notes.push(format!("{} has the dearest flushes and faults here; --process names another.", verdict.subject));
    }
    if let Some((who, pct)) = verdict.other.filter(|(_, pct)| *pct >= LEAST_PCT) {
        notes.push(format!("Others: {who} spent {pct:.1} % of the machine on such work (--process {who})."));
    }
    if verdict.program.events > 0 {
        let sampled = verdict.program.sampled.all;
        match &verdict.rest {
            Some(rest) if verdict.is_the_tlb() => notes.push(format!("{}.", went(rest))),
            Some(_) => {}
            None if sampled == 0 => notes.push(
                "No samples: this recording has none of the CPU's time, so shares are of what was traced alone."
                    .to_owned(),
            ),
            None => notes.push(format!(
                "Too few samples ({sampled}, of which {FEWEST_SAMPLES} must be of the program): shares are of what was \
                 traced alone."
            )),
        }
        notes.push(format!(
            "Recording made it {} longer in CPU time ({} events); that is taken out above. What it walks for again \
             after a flush is in no figure.",
            percents(verdict.recording_pct),
            verdict.program.events
        ));
    }
    if account.attribution.shootdowns > 0 && !account.has_stacks {
        notes.push("No callers, and some purposes are guesses: this recording has no stacks.".to_owned());
    }
    notes.push(account.health.clone());
    notes
}

/// What to type next.
fn next_step(account: &Account, verdict: &Verdict<'_>, shown: &[&Cause<'_>]) -> String {
    if !account.has_flushes || verdict.program.cpu_ns == 0 {
        return "Try it: tlbscope record -- COMMAND".to_owned();
    }
    if !verdict.is_the_tlb() {
        return "Look elsewhere: perf top, or perf trace -s -- COMMAND for its system calls.".to_owned();
    }
    let trials = shown.iter().filter(|cause| cause.gain_pct[1] >= LEAST_PCT);
    let trial = trials.clone().find_map(|cause| cause.remedy.trial());
    match (shown.first().map(|cause| cause.remedy), trial) {
        (Some(first), Some(trial)) if first.trial().as_ref() == Some(&trial) => {
            format!("Try it: tlbscope try {trial} -- COMMAND")
        }
        (_, Some(trial)) => {
            format!("No trial makes the first fix. What can be tried without it: tlbscope try {trial} -- COMMAND")
        }
        _ => "The fix is in the source, and no setting stands for it. Every row of the recording: --full".to_owned(),
    }
}

/// The same for programs.
pub(super) fn json(verdict: &Verdict<'_>) -> Vec<Value> {
    let Verdict { subject, program, share_pct, recording_pct, .. } = verdict;
    let head = json!({
        "kind": "verdict", "subject": subject, "cpu_ns": program.cpu_ns, "low_pct": share_pct[0],
        "high_pct": share_pct[1], "samples": program.sampled.all,
        "own_pct": verdict.rest.as_ref().map(|rest| rest.own_pct),
        "kernel_pct": verdict.rest.as_ref().map(|rest| rest.kernel_pct), "is_the_tlb": verdict.is_the_tlb(),
        "recording_low_pct": recording_pct[0], "recording_high_pct": recording_pct[1],
    });
    let cause = |cause: &Cause<'_>| {
        json!({
            "kind": "cause", "cause": cause.label, "low_pct": cause.share_pct[0], "high_pct": cause.share_pct[1],
            "calls": cause.counts.calls, "flushes": cause.counts.flushes, "faults": cause.counts.faults,
            "callers": cause.callers, "where": cause.remedy.place.label(), "fix": cause.remedy.fix,
            "try": cause.remedy.trial,
            "tried_on": cause.remedy.program, "gain_low_pct": cause.gain_pct[0], "gain_high_pct": cause.gain_pct[1],
            "sureness": cause.sureness().label(),
        })
    };
    [head].into_iter().chain(verdict.causes.iter().map(cause)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn callers_keep_to_the_program() {
        assert_eq!(functions("mprotect < flip < run < main < _start"), "flip < run < main");
        assert_eq!((functions("main"), functions("mprotect < libc.so.6+0x27")), ("main".into(), "mprotect".into()));
        assert_eq!(functions("service+0x10 < service+0x20"), "service+0x10 < service+0x20");
        assert_eq!((percents([0.04, 0.05]), percents([9.96, 61.2])), ("0.0 to 0.1 %".into(), "10.0 to 61 %".into()));
    }
}
