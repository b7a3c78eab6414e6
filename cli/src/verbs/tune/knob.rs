//! The settings that a user of Linux can really change, and the commands that change them.

use std::collections::BTreeMap;

use anyhow::Result;
use tlbkit::{Compare, Isolation, Policy, RangeRule, Tags};
use tlbkit_replay::{Bill, Deduced, Paging, Pattern, Tally, Who, replay, replay_without};
use tlbkit_sim::machine::Machine;

use super::allocator::{KEEPS_MEMORY, gives_back, keep_memory};
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
    pub(super) remark: &'static str,
    /// The ceiling, if it is one.
    pub(super) ceiling: Option<u32>,
}

impl Setting {
    fn new(knob: &'static str, value: &str, commands: &[String], remark: &'static str) -> Self {
        Self { knob, value: value.to_owned(), commands: commands.to_vec(), remark, ceiling: None }
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
        let setting =
            Setting { ceiling: Some(pages), ..Setting::new("ceiling", &pages.to_string(), &[command], remark) };
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
    let setting = Setting::new("pcid", value, &commands, "Switches keep what the TLB holds only with tags.");
    Knob { setting, policy: Policy { tags, ..recorded_by }, change: Change::Policy }
}

fn isolation(recorded_by: Policy) -> Knob {
    let (isolation, value) = match recorded_by.isolation {
        Isolation::On => (Isolation::Off, "off"),
        Isolation::Off => (Isolation::On, "on"),
    };
    let remark = "Security first: off only where /sys/devices/system/cpu/vulnerabilities/meltdown says \"Not \
        affected\". Only the crossings that the trace shows are counted.";
    let setting = Setting::new("pti", value, &boot_with(&format!("pti={value}")), remark);
    Knob { setting, policy: Policy { isolation, ..recorded_by }, change: Change::Policy }
}

fn huge_pages(recorded_by: Policy, subject: &TraceArguments) -> Result<Knob> {
    let deduced = subject.recording(Paging::Huge)?.deduced;
    let command = "echo always | sudo tee /sys/kernel/mm/transparent_hugepage/enabled".to_owned();
    let remark = "At its best: every private mapping with room for 2 MiB gets it. Faults saved and memory wasted are \
        not counted.";
    let setting = Setting::new("thp", "always", &[command], remark);
    Ok(Knob { setting, policy: recorded_by, change: Change::Reread(Box::new(deduced)) })
}

const ALLOCATOR: &str = "allocator";

/// The call patterns that cost most, each as if nobody had called so.
fn allocator(trace: &Trace, recorded_by: Policy, recorder: &Tally) -> Vec<Knob> {
    let is_giving_back = |pattern: &Pattern| gives_back(pattern.cause);
    let mut bills: BTreeMap<Who, Bill> = BTreeMap::new();
    for (who, caller) in &recorder.by_caller {
        if who.pattern.as_ref().is_some_and(is_giving_back) {
            *bills.entry(*who).or_default() += &caller.bill;
        }
    }
    let mut most: Vec<(Who, f64)> = bills.iter().map(|(who, bill)| (*who, bill.total(&trace.prices).value)).collect();
    most.sort_by(|a, b| b.1.total_cmp(&a.1));
    let knob = |(who, _): (Who, f64)| {
        let pattern = who.pattern?;
        let commands = keep_memory(pattern.cause);
        let comm = trace.recording.names().text(who.comm);
        let value = format!("{comm} without {}, {}", pattern.cause.label(), pattern.extent.label());
        let setting = Setting::new(ALLOCATOR, &value, &commands, KEEPS_MEMORY);
        Some(Knob { setting, policy: recorded_by, change: Change::Without(who) })
    };
    most.into_iter().take(PATTERNS).filter_map(knob).collect()
}
