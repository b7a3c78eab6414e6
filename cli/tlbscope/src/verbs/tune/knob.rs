//! The settings that a user of Linux can really change, and the commands that change them.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use tlbkit::{Compare, Isolation, Policy, RangeRule, Tags};
use tlbkit_host::Host;
use tlbkit_host::examination::{State, examine_knob};
use tlbkit_host::trial::{self, Change as Triable};
use tlbkit_replay::{Caller, ComparedCount, Spared};

/// Ceilings that are tried: around Linux's own 33, and at both ends.
const CEILINGS: [u32; 13] = [0, 1, 2, 4, 8, 16, 24, 33, 48, 64, 128, 256, 513];

/// A setting, in the words of whoever sets it.
pub(super) struct Setting {
    pub(super) knob: &'static str,
    pub(super) value: String,
    pub(super) commands: Vec<String>,
    pub(super) remark: String,
    /// What `tlbscope try` can be told for it; none if that cannot try it.
    pub(super) change: Option<Triable>,
    /// What must be done on this machine before that, if anything must.
    pub(super) needs: Option<String>,
    /// Why there is nothing to set on the machine that runs this command, if so; the recorded one may be another.
    pub(super) moot: Option<&'static str>,
    /// Rows of the agreement without which the replay's word on it is worth nothing.
    pub(super) rests_on: &'static [ComparedCount],
    /// The ceiling, if it is one.
    pub(super) ceiling: Option<u32>,
}

/// Sizes at which a ceiling decides.
const SIZES: &[ComparedCount] = &[ComparedCount::OwnFew, ComparedCount::OwnMore, ComparedCount::OwnAll];
const SWITCHES: &[ComparedCount] = &[ComparedCount::SwitchKept, ComparedCount::SwitchFlushed];
pub(super) const FLUSHES: &[ComparedCount] = &[ComparedCount::Own, ComparedCount::Asking];

impl Setting {
    pub(super) fn new(
        knob: &'static str,
        value: &str,
        commands: &[String],
        rests_on: &'static [ComparedCount],
    ) -> Self {
        let value = value.to_owned();
        Self {
            knob,
            value,
            commands: commands.to_vec(),
            remark: String::new(),
            change: None,
            needs: None,
            moot: None,
            rests_on,
            ceiling: None,
        }
    }

    pub(super) fn with_remark(self, remark: &str) -> Self {
        Self { remark: remark.to_owned(), ..self }
    }

    /// One that `tlbscope try` can try.
    pub(super) fn tried_as(self, change: Triable) -> Self {
        let needs = match &change {
            Triable::Knob { knob, .. } => examine_knob(Path::new("/"), knob).run,
            _ => None,
        };
        Self { change: Some(change), needs, ..self }
    }

    /// How a trial is made, in words; empty if none can be.
    pub(super) fn trial(&self) -> String {
        let needs =
            self.needs.as_ref().map_or_else(String::new, |needs| format!("; on this machine it needs: {needs}"));
        let words = |change| format!(": tlbscope try {change} -- COMMAND{needs}");
        self.change.as_ref().map_or_else(String::new, words)
    }

    /// One for which there is a reason not to set it on this machine, if there is: it cannot be tried here.
    fn unless(self, moot: Option<&'static str>) -> Self {
        match moot {
            Some(_) => Self { moot, change: None, ..self },
            None => self,
        }
    }

    /// Whether both can be done: two values of one knob cannot.
    pub(super) fn adds_to(&self, other: &Self) -> bool {
        self.knob != other.knob || self.knob == ALLOCATOR && self.value != other.value
    }
}

/// What differs in the replay.
pub(super) struct Knob {
    pub(super) setting: Setting,
    pub(super) policy: Policy,
    /// What is left out, if anything is.
    pub(super) sparing: Option<Sparing>,
}

/// What these callers bring about goes: of the first certainly, of the others perhaps.
pub(super) struct Sparing {
    pub(super) surely: BTreeSet<Caller>,
    pub(super) perhaps: BTreeSet<Caller>,
    pub(super) what: Spared,
}

/// The settings that change the policy alone.
pub(super) fn of_policies(recorded_by: Policy) -> Vec<Knob> {
    let mut knobs = ceilings(recorded_by);
    knobs.push(tags(recorded_by));
    knobs.push(isolation(recorded_by));
    knobs
}

fn ceilings(recorded_by: Policy) -> Vec<Knob> {
    let (ceiling, root) = (trial::Knob::CEILING, Path::new("/"));
    let is_missing = examine_knob(root, &ceiling).state == State::Note;
    let moot = match (ceiling.is_refused(root), is_missing) {
        (true, _) => Some("the kernel of this machine lets nobody change it; tlbscope doctor says more"),
        (_, true) => Some("the kernel of this machine has no such setting"),
        _ => None,
    };
    let knob = |pages: u32| {
        let range = RangeRule::Ceiling { pages, compare: Compare::Above };
        let change = Triable::Knob { knob: ceiling, value: pages.to_string() };
        let remark = "Needs debugfs and no kernel lockdown.";
        let setting = Setting::new("ceiling", &pages.to_string(), &[change.to_keep()], SIZES).with_remark(remark);
        let setting = Setting { ceiling: Some(pages), ..setting.tried_as(change) }.unless(moot);
        Knob { setting, policy: Policy { range, ..recorded_by }, sparing: None }
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
    let lacks_tags = tags != Tags::Off && Host::ask().is_ok_and(|host| !host.has_pcid);
    let moot = lacks_tags.then_some("the processors of this machine have no tags");
    let setting = Setting::new("pcid", value, &commands, SWITCHES).with_remark(remark).unless(moot);
    Knob { setting, policy: Policy { tags, ..recorded_by }, sparing: None }
}

fn isolation(recorded_by: Policy) -> Knob {
    let (isolation, value) = match recorded_by.isolation {
        Isolation::On => (Isolation::Off, "off"),
        Isolation::Off => (Isolation::On, "on"),
    };
    let remark = "Security first: off only where /sys/devices/system/cpu/vulnerabilities/meltdown says \"Not \
        affected\". Only the crossings that the trace shows are counted.";
    let moot = match isolation {
        Isolation::Off => needs_isolation(fs::read_to_string(MELTDOWN_FILE).ok().as_deref()),
        Isolation::On => None,
    };
    let setting = Setting::new("pti", value, &boot_with(&format!("pti={value}")), SWITCHES).with_remark(remark);
    let setting = setting.unless(moot);
    Knob { setting, policy: Policy { isolation, ..recorded_by }, sparing: None }
}

const MELTDOWN_FILE: &str = "/sys/devices/system/cpu/vulnerabilities/meltdown";

/// Why isolation stays on on this machine, of which the kernel says `meltdown`.
fn needs_isolation(meltdown: Option<&str>) -> Option<&'static str> {
    let is_affected = |text: &str| !text.trim_start().starts_with("Not affected");
    meltdown.is_some_and(is_affected).then_some("the processors of this machine leak without it (Meltdown)")
}

/// Larger pages for the same programs.
pub(super) fn huge_pages() -> Setting {
    let always = Triable::Knob { knob: trial::Knob::THP, value: "always".into() };
    let remark = "At its best each fault in a private mapping with room for 2 MiB, aligned and unused, brings them; at \
        its worst, where memory is in pieces, none does. Zeroing is counted, memory wasted is not. Scope: every \
        program on the machine.";
    let setting = Setting::new(HUGE_PAGES, "always", &[always.to_keep()], FLUSHES).with_remark(remark).tried_as(always);
    setting.unless(moot(fs::read_to_string(trial::Knob::THP.file(Path::new("/"))).ok().as_deref()))
}

/// Why huge pages cannot be set on this machine, of which the kernel says `mode`.
fn moot(mode: Option<&str>) -> Option<&'static str> {
    match mode {
        None => Some("this kernel has no transparent huge pages"),
        Some(mode) if mode.contains("[always]") => Some("this machine has them set already"),
        Some(_) => None,
    }
}

pub(super) const HUGE_PAGES: &str = "thp";
pub(super) const ALLOCATOR: &str = "allocator";

#[cfg(test)]
mod tests {
    use super::{Setting, moot, needs_isolation};

    #[test]
    fn isolation_stays_where_a_processor_leaks_without_it() {
        assert_eq!([needs_isolation(None), needs_isolation(Some("Not affected\n"))], [None, None]);
        for leaks in ["Vulnerable\n", "Mitigation: PTI\n", "Unknown (XEN PV detected, hypervisor mitigation required)"]
        {
            assert!(needs_isolation(Some(leaks)).is_some(), "{leaks}");
        }
    }

    #[test]
    fn what_is_moot_here_is_not_tried_and_keeps_its_command_for_other_machines() {
        let setting = || Setting::new("ceiling", "8", &["echo 8".into()], &[]).tried_as("ceiling=8".parse().unwrap());
        let (open, moot) = (setting().unless(None), setting().unless(Some("no right")));
        assert_eq!((open.commands.len(), open.change.is_some(), open.moot), (1, true, None));
        assert_eq!((moot.commands.len(), moot.change, moot.moot), (1, None, Some("no right")));
    }

    #[test]
    fn a_trial_is_named_with_what_it_needs_on_this_machine() {
        let setting = Setting::new("ceiling", "8", &[], &[]).tried_as("ceiling=8".parse().unwrap());
        let open = Setting { needs: None, ..setting };
        assert_eq!(open.trial(), ": tlbscope try ceiling=8 -- COMMAND");
        let closed = Setting { needs: Some("sudo mount it".into()), ..open };
        assert_eq!(closed.trial(), ": tlbscope try ceiling=8 -- COMMAND; on this machine it needs: sudo mount it");
        assert_eq!(Setting::new("pti", "off", &[], &[]).trial(), "");
    }

    #[test]
    fn huge_pages_are_no_advice_where_they_are_on_or_not_there() {
        assert_eq!(moot(Some("always [madvise] never\n")), None);
        assert_eq!(moot(Some("always madvise [never]\n")), None);
        assert!(moot(Some("[always] madvise never\n")).unwrap().ends_with("already"));
        assert!(moot(None).unwrap().starts_with("this kernel has no"));
    }
}
