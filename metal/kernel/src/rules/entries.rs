//! What each instruction must invalidate: a page is read, its entry changed, the instruction executed, and the page
//! read again. `tlbkit-arch` says what must be gone, so this checks its table against a CPU or an emulator.

use tlbkit::{Cr3, Invlpgb, Invpcid, Pcid, PhysAddr, Stride, Tables, VirtAddr};
use tlbkit_arch::{CurrentTag, Instruction, Pte, Translation};
use tlbkit_pmap::{Memory, Purpose};
use tlbkit_x86::{CR4_PCIDE, Identity, Operands, read_cr3, read_cr4, toggle_pge, write_cr3, write_cr4};

use super::tally::{Remains, Tally};
use crate::layout::TRIAL_VA;
use crate::memory::{Ram, trial_entry};

const TAG: Pcid = Pcid(5);
const OTHER: Pcid = Pcid(6);
const BITS: u64 = Pte::PRESENT | Pte::WRITE | Pte::ACCESSED | Pte::DIRTY | Pte::NO_EXECUTE;

/// The page of the trials, and its neighbours.
const PAGE: VirtAddr = VirtAddr(TRIAL_VA);
const BEHIND: VirtAddr = VirtAddr(TRIAL_VA + 4096);
const BEFORE: VirtAddr = VirtAddr(TRIAL_VA - 4096);
const PAGE_OF_ALL: Invlpgb = Invlpgb::PagesOfAll { first: PAGE, pages: 1, stride: Stride::Page4K };

/// What a trial cannot be without.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Needs {
    Nothing,
    Invpcid,
    Tags,
    TagsAndInvpcid,
    Broadcast,
    TagsAndBroadcast,
}

use Needs::{Broadcast, Nothing, Tags, TagsAndBroadcast, TagsAndInvpcid};

/// What is loaded when a trial begins, and when it has ended.
#[derive(Clone, Copy)]
struct Loaded {
    root: PhysAddr,
    tag: CurrentTag,
}

/// What is executed one after the other, and what it needs.
type Trial = (&'static str, fn(Loaded) -> Steps, Needs);
type Steps = [Option<Instruction>; 3];

const TRIALS: &[Trial] = &[
    ("INVLPG", |_| alone(Instruction::Invlpg(PAGE)), Nothing),
    ("INVLPG of another page", |_| alone(Instruction::Invlpg(BEHIND)), Nothing),
    ("INVLPG under another tag", |at| at.under_other_tag(Some(Instruction::Invlpg(PAGE))), Tags),
    ("CR3 of the same tag", |at| alone(at.flushing(at.pcid())), Nothing),
    ("CR3 of another tag and back, keeping", |at| at.under_other_tag(None), Tags),
    ("CR3 of another tag, flushed, and back", |at| at.under_other_tag(Some(at.flushing(OTHER))), Tags),
    ("CR4.PGE", |_| alone(Instruction::TogglePge), Nothing),
    ("INVPCID 0", |at| invpcid(Invpcid::Address(at.pcid(), PAGE)), Needs::Invpcid),
    ("INVPCID 0 of another page", |at| invpcid(Invpcid::Address(at.pcid(), BEHIND)), Needs::Invpcid),
    ("INVPCID 0 of another tag", |_| invpcid(Invpcid::Address(OTHER, PAGE)), TagsAndInvpcid),
    ("INVPCID 1", |at| invpcid(Invpcid::Single(at.pcid())), Needs::Invpcid),
    ("INVPCID 1 of another tag", |_| invpcid(Invpcid::Single(OTHER)), TagsAndInvpcid),
    ("INVPCID 1 from another tag", |at| at.under_other_tag(invpcid(Invpcid::Single(TAG))[0]), TagsAndInvpcid),
    ("INVPCID 2", |_| invpcid(Invpcid::AllAndGlobals), Needs::Invpcid),
    ("INVPCID 3", |_| invpcid(Invpcid::All), Needs::Invpcid),
    ("INVLPGB of the page", |at| invlpgb(pages(at.pcid(), PAGE, 1)), Broadcast),
    ("INVLPGB of another page", |at| invlpgb(pages(at.pcid(), BEHIND, 1)), Broadcast),
    ("INVLPGB of two pages", |at| invlpgb(pages(at.pcid(), BEFORE, 2)), Broadcast),
    ("INVLPGB of another tag's page", |_| invlpgb(pages(OTHER, PAGE, 1)), TagsAndBroadcast),
    ("INVLPGB of all tags' page", |_| invlpgb(PAGE_OF_ALL), Broadcast),
    ("INVLPGB of a tag", |at| invlpgb(Invlpgb::Single(at.pcid())), Broadcast),
    ("INVLPGB of another tag", |_| invlpgb(Invlpgb::Single(OTHER)), TagsAndBroadcast),
    ("INVLPGB of all tags", |_| invlpgb(Invlpgb::All), Broadcast),
    ("INVLPGB of everything", |_| invlpgb(Invlpgb::AllAndGlobals), Broadcast),
];

const fn invlpgb(what: Invlpgb) -> Steps {
    alone(Instruction::Invlpgb(what))
}

const fn pages(pcid: Pcid, first: VirtAddr, pages: u32) -> Invlpgb {
    Invlpgb::Pages { pcid, first, pages, stride: Stride::Page4K, tables: Tables::Kept }
}

const fn alone(instruction: Instruction) -> Steps {
    [Some(instruction), None, None]
}

const fn invpcid(what: Invpcid) -> Steps {
    alone(Instruction::Invpcid(what))
}

impl Needs {
    fn are_met(self, identity: &Identity) -> bool {
        match self {
            Self::Nothing => true,
            Self::Invpcid => identity.has_invpcid,
            Self::Tags => are_tags_on(),
            Self::TagsAndInvpcid => are_tags_on() && identity.has_invpcid,
            Self::Broadcast => identity.broadcast_pages.is_some(),
            Self::TagsAndBroadcast => are_tags_on() && identity.broadcast_pages.is_some(),
        }
    }
}

impl Loaded {
    fn now() -> Self {
        // SAFETY: ring 0.
        let cr3 = unsafe { read_cr3() };
        Self { root: cr3.root(), tag: if are_tags_on() { CurrentTag::Loaded(cr3.pcid()) } else { CurrentTag::Off } }
    }

    const fn pcid(self) -> Pcid {
        self.tag.pcid()
    }

    const fn flushing(self, pcid: Pcid) -> Instruction {
        Instruction::WriteCr3(Cr3::flushing(self.root, pcid))
    }

    /// Loads [`OTHER`], executes `body`, and comes back, without a flush on either way.
    fn under_other_tag(self, body: Option<Instruction>) -> Steps {
        let keeping = |pcid| Some(Instruction::WriteCr3(Cr3::keeping(self.root, pcid)));
        [keeping(OTHER), body, keeping(self.pcid())]
    }
}

fn execute(instruction: Instruction) {
    // SAFETY: ring 0, interrupts off; a trial loads the root that is loaded, under tags only while they are on, and
    // INVPCID is tried only where the CPU has it.
    unsafe {
        match instruction {
            Instruction::Invlpg(va) => tlbkit_x86::invlpg(va),
            Instruction::Invpcid(what) => tlbkit_x86::invpcid(what),
            Instruction::WriteCr3(cr3) => write_cr3(cr3),
            Instruction::TogglePge => toggle_pge(),
            Instruction::Invlpgb(what) => {
                Operands::of(what).execute();
                tlbkit_x86::tlbsync();
            }
            other => unreachable!("no trial has {other:?}"),
        }
    }
}

fn are_tags_on() -> bool {
    // SAFETY: ring 0.
    unsafe { read_cr4() & CR4_PCIDE != 0 }
}

/// True if `held` must be gone after `steps`, by the table.
fn must_be_gone(held: &Translation, steps: Steps, loaded: Loaded) -> bool {
    let mut current = loaded.tag;
    steps.into_iter().flatten().any(|instruction| {
        let is_gone = instruction.invalidates(current).removes(held);
        if let Instruction::WriteCr3(cr3) = instruction {
            current = current.after(cr3);
        }
        is_gone
    })
}

/// Tries all of them without PCIDs, and with PCIDs if the CPU has them.
pub(super) fn check(rules: &mut Tally, identity: &Identity) {
    let frames = [1u64, 2].map(|word| {
        let frame = Ram.alloc(12, Purpose::Data).expect("memory for two pages");
        Ram.store(frame.at, word);
        frame.at
    });
    trials(rules, identity, frames);
    if identity.has_pcid {
        // SAFETY: PCID 0 is loaded, then PCIDs are enabled, then another PCID is loaded with the same root.
        unsafe {
            write_cr4(read_cr4() | CR4_PCIDE);
            write_cr3(Cr3::flushing(read_cr3().root(), TAG));
        }
        trials(rules, identity, frames);
    }
}

fn trials(rules: &mut Tally, identity: &Identity, frames: [PhysAddr; 2]) {
    let loaded = Loaded::now();
    for &(name, steps, needs) in TRIALS {
        if !needs.are_met(identity) {
            continue;
        }
        for (scope, global) in [("local", 0), ("global", Pte::GLOBAL)] {
            let name = format_args!("{name}: a {scope} entry, tags {}", if are_tags_on() { "on" } else { "off" });
            let remains = remains_after(steps(loaded), frames, BITS | global);
            let is_global = global != 0;
            let held = Translation { pcid: loaded.pcid(), start: PAGE, stride: Stride::Page4K, is_global };
            if must_be_gone(&held, steps(loaded), loaded) {
                rules.must_be_gone(&name, remains);
            } else {
                Tally::may_stay(&name, remains);
            }
        }
    }
}

/// Reads the page through the first frame, changes the entry to the second, executes `steps`, reads again.
fn remains_after(steps: Steps, [first, second]: [PhysAddr; 2], bits: u64) -> Remains {
    let entry = trial_entry();
    Ram.store(entry, Pte::new(first, bits).0);
    execute(Instruction::TogglePge);
    let before = read();
    Ram.store(entry, Pte::new(second, bits).0);
    steps.into_iter().flatten().for_each(execute);
    let after = read();
    assert_eq!(before, 1, "the page was mapped");
    if after == 2 { Remains::Nothing } else { Remains::Something }
}

fn read() -> u64 {
    // SAFETY: mapped by `remains_after` to one of two frames.
    unsafe { (TRIAL_VA as *const u64).read_volatile() }
}
