//! What the TLB and what feeds it cost a program, cause by cause, and what each fix would gain.
//!
//! Calls and copies are measured, by the CPU time that passed in them. A page fault has no end in a recording, so its
//! price is the shortest time between two of them. Both contain what recording took; what an event takes is known
//! within a factor of two, so every figure is an interval. What the program walks for again after a flush no recording
//! shows, and it is in none of these figures.

use std::collections::BTreeMap;

use tlbkit_trace::blame::Counts;

use super::account::{Account, Entry, Program};
use super::remedies::Remedy;

/// Below this share of a program's time nobody should change a thing, in percent.
pub(super) const LEAST_PCT: f64 = 1.0;
/// Nor for less than this, in milliseconds of CPU time: a share of nearly nothing is nothing.
const LEAST_MS: f64 = 1.0;
/// What a page fault takes where the trace does not tell, in nanoseconds.
const FAULT_NS: [f64; 2] = [400.0, 1500.0];
/// What a page fault takes at least.
const FAULT_LEAST_NS: f64 = 150.0;
/// What an interrupt takes beside its handler, in nanoseconds, at most.
const INTERRUPT_NS: f64 = 2000.0;
/// Programs that are there because of the recording, and threads of the kernel.
const NOT_SUBJECTS: [&str; 9] =
    ["perf", "tlbscope", "kworker", "ksmd", "kswapd", "khugepaged", "kcompactd", "migration", "swapper"];

/// From the least to the most.
pub(super) type Interval = [f64; 2];

/// What one program, or those that were asked about, spent on the TLB.
pub(super) struct Verdict<'a> {
    /// Whom it is about.
    pub(super) subject: String,
    pub(super) program: Program,
    /// Of its CPU time, in percent, with everything that feeds the TLB.
    pub(super) share_pct: Interval,
    /// The dearest first.
    pub(super) causes: Vec<Cause<'a>>,
    /// How often flushes of other programs interrupted it, what that took of its time in percent, and who did it most.
    pub(super) by_others: Option<(u64, Interval, &'a str)>,
    /// What recording added, in percent of its time without recording.
    pub(super) recording_pct: Interval,
    /// The other program whose flushes are dearest, and what they cost in percent of all CPUs' time.
    pub(super) other: Option<(&'a str, f64)>,
}

/// One cause, and all who led to it.
pub(super) struct Cause<'a> {
    pub(super) label: String,
    pub(super) counts: Counts,
    /// By what each cost, the dearest first; empty without stacks.
    pub(super) callers: Vec<&'a str>,
    /// How often it interrupted the subject itself, and others.
    pub(super) interrupted: [u64; 2],
    pub(super) share_pct: Interval,
    pub(super) gain_pct: Interval,
    pub(super) remedy: &'static Remedy,
}

/// How sure a gain is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Sureness {
    Sure,
    Likely,
    Open,
}

impl Sureness {
    pub(super) const fn label(self) -> &'static str {
        match self {
            Self::Sure => "sure",
            Self::Likely => "likely",
            Self::Open => "it may be nothing",
        }
    }
}

impl Cause<'_> {
    pub(super) fn sureness(&self) -> Sureness {
        let [low, high] = self.gain_pct;
        match low {
            _ if low < LEAST_PCT => Sureness::Open,
            _ if high <= 2.0 * low => Sureness::Sure,
            _ => Sureness::Likely,
        }
    }
}

impl<'a> Verdict<'a> {
    /// The verdict of an account. In its recording an event took `event_us` of CPU time, and the command used
    /// `cpu_seconds` by the kernel's own count.
    pub(super) fn new(account: &'a Account, event_us: Interval, cpu_seconds: Option<f64>) -> Self {
        let (subject, is_subject) = subject(account);
        let of_subject = account.programs.iter().filter(|(name, _)| is_subject(name)).map(|(_, program)| program);
        let program = of_subject.fold(Program::default(), |sum, one| Program {
            cpu_ns: sum.cpu_ns.saturating_add(one.cpu_ns),
            events: sum.events + one.events,
        });
        let prices = Prices { event_us, fault_ns: account.fault_ns, program };
        let mut groups: BTreeMap<_, Vec<&Entry>> = BTreeMap::new();
        for entry in account.entries.iter().filter(|entry| is_subject(&entry.program)) {
            let remedy: *const Remedy = entry.remedy;
            groups.entry((&entry.why, kind_of(entry), remedy)).or_default().push(entry);
        }
        let mut causes: Vec<_> = groups.into_values().map(|entries| cause(&entries, &prices, &is_subject)).collect();
        causes.sort_by(|a, b| b.share_pct[1].total_cmp(&a.share_pct[1]));
        let by_others = by_others(account, &prices, &is_subject);
        let mut share_pct = by_others.map_or([0.0; 2], |(_, pct, _)| pct);
        causes.iter().for_each(|cause| (0..2).for_each(|end| share_pct[end] += cause.share_pct[end]));
        let used_ns = cpu_seconds.map_or(program.cpu_ns, |seconds| (seconds * 1e9) as u64);
        let counted = Prices { program: Program { cpu_ns: used_ns, ..program }, ..prices };
        let recording = |us: f64| 100.0 * us * 1e3 * program.events as f64 / counted.plain_ns(us);
        Self {
            subject,
            program,
            share_pct: share_pct.map(|pct| pct.min(100.0)),
            causes,
            by_others,
            recording_pct: event_us.map(recording),
            other: other(account, &is_subject),
        }
    }

    /// Whether anything of it is worth a change.
    pub(super) fn is_the_tlb(&self) -> bool {
        self.is_much(self.share_pct[1])
    }

    /// Whether so many percent of the program's time are worth a word.
    pub(super) fn is_much(&self, pct: f64) -> bool {
        pct >= LEAST_PCT && self.ms(pct) >= LEAST_MS
    }

    /// So many percent of the program's time, in milliseconds.
    pub(super) fn ms(&self, pct: f64) -> f64 {
        pct / 100.0 * self.program.cpu_ns as f64 / 1e6
    }
}

/// The memory, where it matters which: files that a program maps as it starts are all alike.
fn kind_of(entry: &Entry) -> &str {
    match entry.why.as_str() {
        "page fault" | "copy of a private file's page" if entry.mapping.starts_with('/') => "files",
        _ => &entry.mapping,
    }
}

/// Who is asked about; or the program whose flushes and faults are the dearest.
fn subject(account: &Account) -> (String, impl Fn(&str) -> bool) {
    let chosen: Vec<String> = match &account.about {
        Some(_) => account.chosen.iter().cloned().collect(),
        None => dearest(account, |program| NOT_SUBJECTS.iter().all(|other| !program.starts_with(other)))
            .map(|(name, _)| name.to_owned())
            .into_iter()
            .collect(),
    };
    let words = match (chosen.as_slice(), &account.about) {
        ([one], _) => one.clone(),
        (_, Some(about)) => about.clone(),
        _ => "no program".to_owned(),
    };
    (words, move |program: &str| chosen.iter().any(|name| name == program))
}

/// The program that pays most, and what, in nanoseconds.
fn dearest(account: &Account, is_meant: impl Fn(&str) -> bool) -> Option<(&str, f64)> {
    let mut costs: BTreeMap<&str, f64> = BTreeMap::new();
    for entry in account.entries.iter().filter(|entry| is_meant(&entry.program)) {
        let faults = entry.counts.faults as f64 * FAULT_NS[0];
        *costs.entry(&entry.program).or_default() += entry.counts.cost_ns() as f64 + faults;
    }
    costs.into_iter().max_by(|a, b| a.1.total_cmp(&b.1))
}

/// The dearest of the others.
fn other<'a>(account: &'a Account, is_subject: &impl Fn(&str) -> bool) -> Option<(&'a str, f64)> {
    let (name, ns) = dearest(account, |program| !is_subject(program))?;
    (account.machine_ns > 0).then(|| (name, 100.0 * ns / account.machine_ns as f64))
}

/// What turns counts into shares.
#[derive(Clone, Copy)]
struct Prices {
    event_us: Interval,
    fault_ns: Option<u64>,
    program: Program,
}

impl Prices {
    /// What the program would have used without being recorded, if an event took so much, in nanoseconds. Never less
    /// than a twentieth of what it used: no event is that dear.
    fn plain_ns(&self, event_us: f64) -> f64 {
        let used_ns = self.program.cpu_ns as f64;
        (used_ns - event_us * 1e3 * self.program.events as f64).max(used_ns / 20.0).max(1.0)
    }

    /// The share of the program's time that `ns` is, of what an event of so much has been taken out.
    fn share_pct(&self, cost_ns: impl Fn(f64, f64) -> f64) -> Interval {
        let [dear, cheap] = [self.event_us[1], self.event_us[0]];
        let fault_ns = |event_us: f64, prior: f64, factor: f64| {
            let told = self.fault_ns.map(|ns| factor * (ns as f64 - event_us * 1e3).max(FAULT_LEAST_NS));
            told.unwrap_or(prior)
        };
        let share = |event_us: f64, fault_ns: f64| {
            (100.0 * cost_ns(event_us, fault_ns).max(0.0) / self.plain_ns(event_us)).min(100.0)
        };
        let ends = [share(dear, fault_ns(dear, FAULT_NS[0], 1.0)), share(cheap, fault_ns(cheap, FAULT_NS[1], 1.2))];
        [ends[0].min(ends[1]), ends[0].max(ends[1])]
    }
}

fn cause<'a>(entries: &[&'a Entry], prices: &Prices, is_subject: &impl Fn(&str) -> bool) -> Cause<'a> {
    let mut counts = Counts::default();
    let (mut own, mut others, mut handled_ns) = (0, 0, 0);
    let mut callers: BTreeMap<&str, u64> = BTreeMap::new();
    for entry in entries {
        counts.add(&entry.counts);
        for (who, interrupted) in &entry.interrupted {
            if is_subject(who.split('/').next().unwrap_or(who)) {
                own += interrupted.times;
                handled_ns += interrupted.took_ns;
            } else {
                others += interrupted.times;
            }
        }
        if let Some(caller) = &entry.caller {
            *callers.entry(caller).or_default() += entry.counts.cost_ns().max(entry.counts.faults);
        }
    }
    let events = counts.flushes + counts.calls + 3 * counts.asked;
    let share_pct = prices.share_pct(|event_us, fault_ns| {
        let called = counts.called_ns as f64 - event_us * 1e3 * events as f64;
        called.max(0.0) + fault_ns * counts.faults as f64 + handled_ns as f64 + INTERRUPT_NS / 2.0 * own as f64
    });
    let mut callers: Vec<_> = callers.into_iter().collect();
    callers.sort_by_key(|&(_, cost)| std::cmp::Reverse(cost));
    let Entry { why, remedy, .. } = entries[0];
    let label = match (why.as_str(), kind_of(entries[0])) {
        ("page fault", memory) => format!("new pages of {}", of_memory(memory)),
        (why, "unknown" | "whole space" | "files") => why.to_owned(),
        (why, memory) => format!("{why}, {memory}"),
    };
    Cause {
        label,
        counts,
        callers: callers.into_iter().map(|(caller, _)| caller).collect(),
        interrupted: [own, others],
        share_pct,
        gain_pct: [0, 1].map(|end| share_pct[end] * remedy.saves[end]),
        remedy,
    }
}

fn of_memory(memory: &str) -> String {
    match memory {
        "anonymous" | "shared anonymous" => format!("{memory} memory"),
        "heap" | "stack" | "program or its heap" | "whole space" => format!("the {memory}"),
        "unknown" => "unknown memory".to_owned(),
        memory => memory.to_owned(),
    }
}

fn by_others<'a>(
    account: &'a Account,
    prices: &Prices,
    is_subject: &impl Fn(&str) -> bool,
) -> Option<(u64, Interval, &'a str)> {
    let theirs = || account.interruptions.iter().filter(|one| is_subject(&one.whom) && !is_subject(&one.by));
    let times: u64 = theirs().map(|one| one.count.times).sum();
    let took_ns: u64 = theirs().map(|one| one.count.took_ns).sum();
    let most = theirs().max_by_key(|one| one.count.times)?;
    let pct = prices.share_pct(|_, _| took_ns as f64 + INTERRUPT_NS / 2.0 * times as f64);
    Some((times, pct, most.by.as_str()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn prices(events: u64) -> Prices {
        let program = Program { cpu_ns: 1_000_000, events };
        Prices { event_us: [0.5, 1.0], fault_ns: Some(1500), program }
    }

    #[test]
    fn what_recording_took_is_out_of_the_whole_and_of_the_part() {
        let half = |events| prices(events).share_pct(|event_us, _| 500_000.0 - event_us * 1e3 * events as f64);
        assert_eq!(half(0), [50.0, 50.0]);
        let [low, high] = half(400);
        assert!((low - 100.0 / 6.0).abs() < 0.1 && (high - 37.5).abs() < 0.1, "{low} .. {high}");
        assert!(half(1_000_000)[1] <= 100.0, "nothing takes more time than there is");
    }

    #[test]
    fn a_fault_takes_the_shortest_gap_without_its_event() {
        let [low, high] = prices(0).share_pct(|_, fault_ns| 100.0 * fault_ns);
        assert!((low - 5.0).abs() < 1e-9 && (high - 12.0).abs() < 1e-9, "{low} .. {high}");
        let untold = Prices { fault_ns: None, ..prices(0) };
        assert_eq!(untold.share_pct(|_, fault_ns| 100.0 * fault_ns), [4.0, 15.0]);
    }
}
