//! The settings that a user of Linux can really change, and the commands that change them.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::Result;
use tlbkit::{Compare, Isolation, Policy, RangeRule, Tags};
use tlbkit_host::Allocator;
use tlbkit_host::trial::Change as Triable;
use tlbkit_replay::{Bill, Deduced, Paging, Party, Pattern, Tally, Who, replay, replay_without};
use tlbkit_sim::machine::Machine;
use tlbkit_trace::Name;

use super::allocator::{Keeping, gives_back, keeping, of_programs};
use crate::lab::trace::{Trace, TraceArguments};

/// Ceilings that are tried: around Linux's own 33, and at both ends.
const CEILINGS: [u32; 13] = [0, 1, 2, 4, 8, 16, 24, 33, 48, 64, 128, 256, 513];
/// Call patterns that are taken away, one at a time.
const PATTERNS: usize = 5;
const CEILING_FILE: &str = "/sys/kernel/debug/x86/tlb_single_page_flush_ceiling";

/// A setting, in the words of whoever sets it.
pub(super) struct Setting {
    pub(super) knob: &'static str,
    pub(super) value: String,
    pub(super) commands: Vec<String>,
    pub(super) remark: String,
    /// What `tlbkit try` can be told for it; empty if that cannot try it.
    pub(super) changes: Vec<Triable>,
    /// Rows of the agreement without which the replay's word on it is worth nothing.
    pub(super) rests_on: &'static [&'static str],
    /// The ceiling, if it is one.
    pub(super) ceiling: Option<u32>,
}

/// Sizes at which a ceiling decides.
const SIZES: &[&str] = &["local mm shootdown, 2-8 pages", "local mm shootdown, 9-33 pages", "local mm shootdown, all"];
const SWITCHES: &[&str] = &["task switch, kept", "task switch, flushed"];
const FLUSHES: &[&str] = &["local mm shootdown", "remote IPI send"];

impl Setting {
    fn new(knob: &'static str, value: &str, commands: &[String], rests_on: &'static [&'static str]) -> Self {
        let value = value.to_owned();
        Self {
            knob,
            value,
            commands: commands.to_vec(),
            remark: String::new(),
            changes: Vec::new(),
            rests_on,
            ceiling: None,
        }
    }

    fn with_remark(self, remark: &str) -> Self {
        Self { remark: remark.to_owned(), ..self }
    }

    /// One that `tlbkit try` takes in these words.
    fn tried_as(self, words: &str) -> Self {
        Self { changes: words.parse().into_iter().collect(), ..self }
    }

    /// Whether both can be done: two values of one knob cannot.
    pub(super) fn adds_to(&self, other: &Self) -> bool {
        self.knob != other.knob || self.knob == ALLOCATOR && self.value != other.value
    }
}

/// What differs in the replay.
pub(super) struct Knob {
    pub(super) setting: Setting,
    policy: Policy,
    change: Change,
}

enum Change {
    /// The policy alone.
    Policy,
    /// The same programs on larger pages.
    Reread(Box<Deduced>),
    /// This caller asks no more.
    Without(Who),
}

impl Knob {
    pub(super) fn replay(&self, deduced: &Deduced, machine: &Machine) -> Tally {
        match &self.change {
            Change::Policy => replay(deduced, self.policy, machine),
            Change::Reread(deduced) => replay(deduced, self.policy, machine),
            Change::Without(who) => replay_without(deduced, self.policy, machine, |other| other == *who),
        }
    }
}

/// Everything that is tried.
pub(super) fn all(trace: &Trace, recorded_by: Policy, recorder: &Tally, subject: &TraceArguments) -> Result<Vec<Knob>> {
    let mut knobs = ceilings(recorded_by);
    knobs.push(tags(recorded_by));
    knobs.push(isolation(recorded_by));
    knobs.push(huge_pages(recorded_by, subject)?);
    knobs.extend(allocator(trace, recorded_by, recorder));
    Ok(knobs)
}

fn ceilings(recorded_by: Policy) -> Vec<Knob> {
    let knob = |pages: u32| {
        let range = RangeRule::Ceiling { pages, compare: Compare::Above };
        let command = format!("echo {pages} | sudo tee {CEILING_FILE}");
        let remark = "At once, until the next boot; needs debugfs and no kernel lockdown.";
        let setting = Setting::new("ceiling", &pages.to_string(), &[command], SIZES).with_remark(remark);
        let setting = Setting { ceiling: Some(pages), ..setting.tried_as(&format!("ceiling={pages}")) };
        Knob { setting, policy: Policy { range, ..recorded_by }, change: Change::Policy }
    };
    let differs = |&pages: &u32| recorded_by.range != RangeRule::Ceiling { pages, compare: Compare::Above };
    CEILINGS.into_iter().filter(differs).map(knob).collect()
}

/// Commands that add a word to the kernel's command line, on most distributions.
fn boot_with(word: &str) -> [String; 2] {
    [
        format!("sudo grubby --update-kernel=ALL --args={word}   # or add {word} to GRUB_CMDLINE_LINUX"),
        "sudo reboot".into(),
    ]
}

fn tags(recorded_by: Policy) -> Knob {
    let (tags, value, commands) = match recorded_by.tags {
        Tags::Off => (
            Tags::RoundRobin(6),
            "on",
            [String::from("# a kernel of 4.14 or later, without nopcid"), "sudo reboot".into()],
        ),
        _ => (Tags::Off, "off", boot_with("nopcid")),
    };
    let remark = "Switches keep what the TLB holds only with tags.";
    let setting = Setting::new("pcid", value, &commands, SWITCHES).with_remark(remark);
    Knob { setting, policy: Policy { tags, ..recorded_by }, change: Change::Policy }
}

fn isolation(recorded_by: Policy) -> Knob {
    let (isolation, value) = match recorded_by.isolation {
        Isolation::On => (Isolation::Off, "off"),
        Isolation::Off => (Isolation::On, "on"),
    };
    let remark = "Security first: off only where /sys/devices/system/cpu/vulnerabilities/meltdown says \"Not \
        affected\". Only the crossings that the trace shows are counted.";
    let setting = Setting::new("pti", value, &boot_with(&format!("pti={value}")), SWITCHES).with_remark(remark);
    Knob { setting, policy: Policy { isolation, ..recorded_by }, change: Change::Policy }
}

fn huge_pages(recorded_by: Policy, subject: &TraceArguments) -> Result<Knob> {
    let deduced = subject.recording(Paging::Huge)?.deduced;
    let command = "echo always | sudo tee /sys/kernel/mm/transparent_hugepage/enabled".to_owned();
    let remark = "At its best: every private mapping with room for 2 MiB gets it; at its worst, where nothing is \
        aligned, none does. Faults saved and memory wasted are not counted. Scope: every program on the machine.";
    let setting = Setting::new(HUGE_PAGES, "always", &[command], FLUSHES).with_remark(remark).tried_as("thp=always");
    Ok(Knob { setting, policy: recorded_by, change: Change::Reread(Box::new(deduced)) })
}

pub(super) const HUGE_PAGES: &str = "thp";
const ALLOCATOR: &str = "allocator";
/// Said where nobody knows which allocator calls: then no setting of one is printed.
const UNKNOWN: &str = "Which allocator calls is not known: its program is not on this machine, or has none of glibc's, \
    jemalloc, tcmalloc, mimalloc and Go's. Tell it to keep memory, if it can be told.";

/// The call patterns that cost most, each as if nobody had called so.
fn allocator(trace: &Trace, recorded_by: Policy, recorder: &Tally) -> Vec<Knob> {
    let is_giving_back = |pattern: &Pattern| gives_back(pattern.cause);
    let mut bills: BTreeMap<Who, Bill> = BTreeMap::new();
    for (who, caller) in &recorder.by_caller {
        if who.party == Party::Asked && who.pattern.as_ref().is_some_and(is_giving_back) {
            *bills.entry(*who).or_default() += &caller.bill;
        }
    }
    let mut most: Vec<(Who, f64)> = bills.iter().map(|(who, bill)| (*who, bill.total(&trace.prices).value)).collect();
    most.sort_by(|a, b| b.1.total_cmp(&a.1));
    let knob = |(who, _): (Who, f64)| {
        let allocators = of_programs(who.comm, &trace.recording.deduced, trace.recording.names());
        let settings = who.pattern.map(|pattern| silence(trace, who.comm, pattern, &allocators)).unwrap_or_default();
        settings.into_iter().map(move |setting| Knob { setting, policy: recorded_by, change: Change::Without(who) })
    };
    most.into_iter().take(PATTERNS).flat_map(knob).collect()
}

/// What ends these calls: a setting for each allocator that is there and makes such calls.
fn silence(trace: &Trace, comm: Name, pattern: Pattern, allocators: &BTreeSet<Allocator>) -> Vec<Setting> {
    let comm = trace.recording.names().text(comm);
    let value = format!("{comm} without {}, {}", pattern.cause.label(), pattern.extent.label());
    if allocators.is_empty() {
        return vec![Setting::new(ALLOCATOR, &value, &[], FLUSHES).with_remark(UNKNOWN)];
    }
    let setting = |Keeping { allocator, change, remark }: Keeping| {
        let command = format!("{change}   # {allocator}");
        Setting::new(ALLOCATOR, &value, &[command], FLUSHES).with_remark(remark).tried_as(&change)
    };
    allocators.iter().filter_map(|allocator| keeping(allocator, pattern.cause)).map(setting).collect()
}
