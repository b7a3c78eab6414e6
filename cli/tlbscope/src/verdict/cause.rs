//! What the TLB and what feeds it cost a program, cause by cause, and what each fix would gain.
//!
//! A recording of `tlbscope record` has samples of the CPU's time. The share of a cause is that of its samples, without
//! those in which an event was recorded: so recording drops out by itself, and all that a call or a fault does is seen.
//! A share is an interval, the binomial one of 95 %, between a world in which all unsure samples are of recording, and
//! one in which none is.
//!
//! A trace without samples has times of events alone. Calls and copies are measured, by the CPU time that passed in
//! them. A page fault has no end in a recording, so its price is the shortest time between two of them. Both contain
//! what recording took; what an event takes is known within a factor of two. Interrupts are priced so in either case:
//! no sample is taken while one is handled.
//!
//! What the program walks for again after a flush no recording shows, and it is in none of these figures.

use std::collections::BTreeMap;

use tlbkit_trace::blame::{Counts, Sampled, Samples};

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
/// Of fewer samples no share is told: of a hundred it is known to ten points.
pub(super) const FEWEST_SAMPLES: u64 = 100;
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
    /// The same at most, without the error of sampling.
    most_pct: f64,
    /// Where the rest went; none without samples.
    pub(super) rest: Option<Rest<'a>>,
    /// The dearest first.
    pub(super) causes: Vec<Cause<'a>>,
    /// How often flushes of other programs interrupted it, what that took of its time in percent, and who did it most.
    pub(super) by_others: Option<(u64, Interval, &'a str)>,
    /// What recording added, in percent of its time without recording.
    pub(super) recording_pct: Interval,
    /// The other program whose flushes are dearest, and what they cost in percent of all CPUs' time.
    pub(super) other: Option<(&'a str, f64)>,
}

/// Where the time went that no cause took, in percent.
pub(super) struct Rest<'a> {
    /// To the program's own code.
    pub(super) own_pct: f64,
    /// To the kernel.
    pub(super) kernel_pct: f64,
    /// The kernel's functions that took most of it.
    pub(super) functions: Vec<&'a str>,
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
    /// The share at most, without the error of sampling.
    pub(super) most_pct: f64,
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
        let mut program = Program::default();
        of_subject.for_each(|one| {
            program.cpu_ns = program.cpu_ns.saturating_add(one.cpu_ns);
            program.events += one.events;
            program.sampled.add(&one.sampled);
        });
        let clock = Clock::of(&program.sampled);
        let prices = Prices { event_us, fault_ns: account.fault_ns, cpu_ns: program.cpu_ns, events: program.events };
        let entries: Vec<_> = account.entries.iter().filter(|entry| is_subject(&entry.program)).collect();
        let mut groups: BTreeMap<_, Vec<&Entry>> = BTreeMap::new();
        for entry in entries.iter().filter(|entry| entry.is_cause()) {
            let remedy: *const Remedy = entry.remedy;
            groups.entry((&entry.why, kind_of(entry), remedy)).or_default().push(entry);
        }
        let by_others = by_others(account, &prices, &is_subject);
        let mut in_all = Cost { handled: by_others.map_or([0.0; 2], |(_, pct, _)| pct), ..Cost::default() };
        let mut causes = Vec::new();
        for group in groups.into_values() {
            let cost = Cost::of(&group, &prices, &is_subject);
            let along = along(&group, &entries);
            in_all.add(&cost);
            causes.push(cause(&group, cost, along, clock, &is_subject));
        }
        causes.sort_by(|a, b| b.share_pct[1].total_cmp(&a.share_pct[1]));
        let used_ns = cpu_seconds.map_or(program.cpu_ns, |seconds| (seconds * 1e9) as u64);
        let counted = Prices { cpu_ns: used_ns, ..prices };
        let recording = |us: f64| 100.0 * us * 1e3 * program.events as f64 / counted.plain_ns(us);
        let rest = clock.map(|clock| rest(account, &program.sampled, clock, in_all.samples));
        Self {
            subject,
            share_pct: in_all.share_pct(clock),
            most_pct: in_all.most_pct(clock),
            rest,
            causes,
            by_others,
            recording_pct: event_us.map(recording),
            other: other(account, &is_subject),
            program,
        }
    }

    /// Whether anything of it is worth a change.
    pub(super) fn is_the_tlb(&self) -> bool {
        self.is_much(self.most_pct)
    }

    /// Whether so many percent of the program's time are worth a word.
    pub(super) fn is_much(&self, pct: f64) -> bool {
        pct >= LEAST_PCT && self.ms([pct; 2])[1] >= LEAST_MS
    }

    /// So many percent of the program's time, in milliseconds: without what may have gone into recording, and without
    /// what certainly did.
    pub(super) fn ms(&self, pct: Interval) -> Interval {
        let Sampled { all, recording, or_recording, .. } = self.program.sampled;
        let part = |samples: u64| 1.0 - samples as f64 / all.max(1) as f64;
        let plain = [part(recording + or_recording), part(recording)];
        [0, 1].map(|end| pct[end] / 100.0 * self.program.cpu_ns as f64 * plain[end] / 1e6)
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
    cpu_ns: u64,
    events: u64,
}

impl Prices {
    /// What the program would have used without being recorded, if an event took so much, in nanoseconds. Never less
    /// than a twentieth of what it used: no event is that dear.
    fn plain_ns(&self, event_us: f64) -> f64 {
        let used_ns = self.cpu_ns as f64;
        (used_ns - event_us * 1e3 * self.events as f64).max(used_ns / 20.0).max(1.0)
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

/// Samples of a program's time, as the wholes that shares are of.
#[derive(Clone, Copy)]
struct Clock {
    /// Without all that may be of recording, and without what certainly is.
    wholes: [u64; 2],
}

impl Clock {
    /// None of too few samples.
    fn of(sampled: &Sampled) -> Option<Self> {
        let most = sampled.all - sampled.recording;
        let wholes = [most - sampled.or_recording, most];
        (wholes[0] >= FEWEST_SAMPLES).then_some(Self { wholes })
    }

    /// The samples of a cause with their wholes, in both worlds.
    fn parts(self, samples: Samples) -> [(u64, u64); 2] {
        [(samples.sure, self.wholes[0]), (samples.most(), self.wholes[1])]
    }

    fn share_pct(self, samples: Samples) -> Interval {
        let [least, most] = self.parts(samples).map(|(part, whole)| binomial_pct(part, whole));
        [least[0].min(most[0]), least[1].max(most[1])]
    }

    /// The share at most, without the error of sampling.
    fn most_pct(self, samples: Samples) -> f64 {
        self.parts(samples).map(|(part, whole)| 100.0 * part as f64 / whole as f64).into_iter().fold(0.0, f64::max)
    }
}

/// The interval of 95 % for a share of which `part` of `whole` samples were seen (Wilson's score), in percent.
fn binomial_pct(part: u64, whole: u64) -> Interval {
    const Z: f64 = 1.96;
    let (n, share) = (whole as f64, part as f64 / whole as f64);
    let middle = share + Z * Z / (2.0 * n);
    let width = Z * (share * (1.0 - share) / n + Z * Z / (4.0 * n * n)).sqrt();
    [middle - width, middle + width].map(|end| 100.0 * (end / (1.0 + Z * Z / n)).clamp(0.0, 1.0))
}

/// What one cause, or several, took of a program's time.
#[derive(Clone, Copy, Default)]
struct Cost {
    samples: Samples,
    /// Of calls and faults by their prices, in percent, for want of samples.
    priced: Interval,
    /// Of interrupts that its own threads had, in percent.
    handled: Interval,
}

impl Cost {
    fn of(entries: &[&Entry], prices: &Prices, is_subject: &impl Fn(&str) -> bool) -> Self {
        let mut counts = Counts::default();
        let (mut own, mut handled_ns) = (0, 0);
        for entry in entries {
            counts.add(&entry.counts);
            for (_, interrupted) in entry.interrupted.iter().filter(|(who, _)| is_subject(program_of(who))) {
                own += interrupted.times;
                handled_ns += interrupted.took_ns;
            }
        }
        let events = counts.flushes + counts.calls + 3 * counts.asked;
        let priced = prices.share_pct(|event_us, fault_ns| {
            let called = counts.called_ns as f64 - event_us * 1e3 * events as f64;
            called.max(0.0) + fault_ns * counts.faults as f64
        });
        let handled = prices.share_pct(|_, _| handled_ns as f64 + INTERRUPT_NS / 2.0 * own as f64);
        Self { samples: counts.samples, priced, handled }
    }

    fn add(&mut self, other: &Self) {
        self.samples.add(&other.samples);
        for end in 0..2 {
            self.priced[end] += other.priced[end];
            self.handled[end] += other.handled[end];
        }
    }

    fn share_pct(&self, clock: Option<Clock>) -> Interval {
        let share = clock.map_or(self.priced, |clock| clock.share_pct(self.samples));
        [0, 1].map(|end| (share[end] + self.handled[end]).min(100.0))
    }

    fn most_pct(&self, clock: Option<Clock>) -> f64 {
        clock.map_or(self.priced[1], |clock| clock.most_pct(self.samples)) + self.handled[1]
    }
}

/// The program in `program/thread`.
fn program_of(who: &str) -> &str {
    who.split('/').next().unwrap_or(who)
}

/// The samples of what the fix of a cause takes away as well: of `all` those that its remedy names, at the same memory
/// or where none is known.
fn along(cause: &[&Entry], all: &[&Entry]) -> Samples {
    const ANY: [&str; 2] = ["whole space", "unknown"];
    let first = cause[0];
    let is_same = |entry: &Entry| {
        entry.mapping == first.mapping || [entry, first].iter().any(|entry| ANY.contains(&entry.mapping.as_str()))
    };
    let is_in = |entry: &Entry| cause.iter().any(|one| std::ptr::eq(*one, entry));
    let taken = all.iter().filter(|entry| first.remedy.takes_along(&entry.why) && is_same(entry) && !is_in(entry));
    let mut samples = Samples::default();
    taken.for_each(|entry| samples.add(&entry.counts.samples));
    samples
}

/// Where the time went that is in no cause.
fn rest<'a>(account: &'a Account, sampled: &Sampled, clock: Clock, of_causes: Samples) -> Rest<'a> {
    let whole = clock.wholes[1];
    let pct = |samples: u64| 100.0 * samples as f64 / whole as f64;
    let mut functions: Vec<_> = sampled
        .elsewhere
        .iter()
        .filter_map(|(name, count)| {
            let function = account.functions.get(name)?;
            (function != "?").then_some((*count, function.as_str()))
        })
        .collect();
    functions.sort_by_key(|&(count, function)| (std::cmp::Reverse(count), function));
    Rest {
        own_pct: pct(sampled.own),
        kernel_pct: pct(whole.saturating_sub(sampled.own + of_causes.most())),
        functions: functions.into_iter().map(|(_, function)| function).take(2).collect(),
    }
}

fn cause<'a>(
    entries: &[&'a Entry],
    cost: Cost,
    along: Samples,
    clock: Option<Clock>,
    is_subject: &impl Fn(&str) -> bool,
) -> Cause<'a> {
    let mut counts = Counts::default();
    let (mut own, mut others) = (0, 0);
    let mut callers: BTreeMap<&str, u64> = BTreeMap::new();
    for entry in entries {
        counts.add(&entry.counts);
        for (who, interrupted) in &entry.interrupted {
            *(if is_subject(program_of(who)) { &mut own } else { &mut others }) += interrupted.times;
        }
        if let Some(caller) = &entry.caller {
            *callers.entry(caller).or_default() += entry.counts.cost_ns().max(entry.counts.faults);
        }
    }
    let mut with_along = cost;
    with_along.samples.add(&along);
    let goes_pct = with_along.share_pct(clock);
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
        share_pct: cost.share_pct(clock),
        most_pct: cost.most_pct(clock),
        gain_pct: [0, 1].map(|end| goes_pct[end] * remedy.saves[end]),
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
        Prices { event_us: [0.5, 1.0], fault_ns: Some(1500), cpu_ns: 1_000_000, events }
    }

    /// A thousand samples, of which 200 are of recording and up to 300 more may be.
    fn clock() -> Clock {
        let sampled = Sampled { all: 1000, recording: 200, or_recording: 300, ..Sampled::default() };
        Clock::of(&sampled).expect("enough samples")
    }

    #[test]
    fn a_share_lies_between_the_worlds_in_which_unsure_samples_are_recording_s_and_the_cause_s() {
        let samples = Samples { sure: 250, or_recording: 300, or_program: 10 };
        let [low, high] = clock().share_pct(samples);
        assert!((low - 45.6).abs() < 0.1 && (high - 73.1).abs() < 0.1, "50 % of 500, 70 % of 800: {low} .. {high}");
        assert!((clock().most_pct(samples) - 70.0).abs() < 1e-9);
        let sure = Samples { sure: 250, ..Samples::default() };
        let [low, high] = clock().share_pct(sure);
        assert!(low < 31.25 && 50.0 < high, "others' samples are unsure too: {low} .. {high}");
    }

    #[test]
    fn a_binomial_interval_ends_at_nothing_and_at_all() {
        assert!(binomial_pct(0, 100)[0] == 0.0 && binomial_pct(100, 100)[1] > 99.999_999);
        let [low, high] = binomial_pct(50, 100);
        assert!((low - 40.4).abs() < 0.1 && (high - 59.6).abs() < 0.1, "{low} .. {high}");
        assert!(binomial_pct(0, 100)[1] > 3.0, "what was not seen may be there");
    }

    /// A pool of threads needs no further `clone3`, and no stacks: but what is mapped elsewhere stays.
    #[test]
    fn a_fix_takes_along_what_its_remedy_names_at_the_same_memory() {
        let entry = |why: &str, mapping: &str, sure| {
            let counts = Counts { samples: Samples { sure, ..Samples::default() }, ..Counts::default() };
            let remedy = Remedy::of(why, mapping, [None, None], &counts);
            let (program, interrupted) = ("prog".to_owned(), Vec::new());
            let (why, mapping) = (why.to_owned(), mapping.to_owned());
            Entry { program, why, mapping, caller: None, counts, interrupted, program_ns: 1, remedy }
        };
        let stack = "stack of a thread";
        let all = [
            entry("munmap", stack, 1),
            entry("clone3", "whole space", 10),
            entry("mmap", stack, 100),
            entry("mmap", "anonymous", 1000),
            entry("fsync", "unknown", 10_000),
        ];
        let all: Vec<_> = all.iter().collect();
        assert_eq!(along(&all[..1], &all).sure, 110);
    }

    #[test]
    fn few_samples_tell_nothing() {
        let sampled = |all, recording| Sampled { all, recording, ..Sampled::default() };
        assert!(Clock::of(&sampled(0, 0)).is_none() && Clock::of(&sampled(150, 51)).is_none());
        assert!(Clock::of(&sampled(150, 50)).is_some());
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
