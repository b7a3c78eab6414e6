//! What each instruction must drop: a page is read, its entry changed, the instruction executed, and the page read
//! again.

use tlbkit::{Cr3, Invpcid, Pcid, PhysAddr, VirtAddr};
use tlbkit_pmap::{Memory, Pte, Purpose};
use tlbkit_x86::{CR4_PCIDE, Identity, read_cr3, read_cr4, toggle_pge, write_cr3, write_cr4};

use super::tally::{Remains, Tally};
use crate::layout::TRIAL_VA;
use crate::memory::{Ram, trial_entry};

const TAG: Pcid = Pcid(5);
const OTHER: Pcid = Pcid(6);
const BITS: u64 = Pte::PRESENT | Pte::WRITE | Pte::ACCESSED | Pte::DIRTY | Pte::NO_EXECUTE;

/// Whether a translation must be gone.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Fate {
    Gone,
    MayStay,
}

use Fate::{Gone, MayStay};

/// What a trial cannot be without.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Needs {
    Nothing,
    Invpcid,
    Tags,
    TagsAndInvpcid,
}

use Needs::{Nothing, Tags, TagsAndInvpcid};

/// What is executed, what it must do to a local and to a global entry of the loaded tag, and what it needs.
type Trial = (&'static str, fn(), Fate, Fate, Needs);

const TRIALS: &[Trial] = &[
    ("INVLPG", || invlpg(TRIAL_VA), Gone, Gone, Nothing),
    ("INVLPG of another page", || invlpg(TRIAL_VA + 4096), MayStay, MayStay, Nothing),
    ("INVLPG under another tag", || under_other_tag(|| invlpg(TRIAL_VA)), MayStay, Gone, Tags),
    ("CR3 of the same tag", reload, Gone, MayStay, Nothing),
    ("CR3 of another tag and back, keeping", || under_other_tag(|| {}), MayStay, MayStay, Tags),
    ("CR3 of another tag, flushed, and back", || under_other_tag(reload), MayStay, MayStay, Tags),
    ("CR4.PGE", drop_all, Gone, Gone, Nothing),
    ("INVPCID 0", || invpcid(Invpcid::Address(tag(), BEFORE)), Gone, MayStay, Needs::Invpcid),
    ("INVPCID 0 of another page", || invpcid(Invpcid::Address(tag(), BEHIND)), MayStay, MayStay, Needs::Invpcid),
    ("INVPCID 0 of another tag", || invpcid(Invpcid::Address(OTHER, BEFORE)), MayStay, MayStay, TagsAndInvpcid),
    ("INVPCID 1", || invpcid(Invpcid::Single(tag())), Gone, MayStay, Needs::Invpcid),
    ("INVPCID 1 of another tag", || invpcid(Invpcid::Single(OTHER)), MayStay, MayStay, TagsAndInvpcid),
    ("INVPCID 1 from another tag", || under_other_tag(drop_tag), Gone, MayStay, TagsAndInvpcid),
    ("INVPCID 2", || invpcid(Invpcid::AllAndGlobals), Gone, Gone, Needs::Invpcid),
    ("INVPCID 3", || invpcid(Invpcid::All), Gone, MayStay, Needs::Invpcid),
];

/// The page of the trials, and the one behind it.
const BEFORE: VirtAddr = VirtAddr(TRIAL_VA);
const BEHIND: VirtAddr = VirtAddr(TRIAL_VA + 4096);

impl Needs {
    fn are_met(self, identity: &Identity) -> bool {
        match self {
            Self::Nothing => true,
            Self::Invpcid => identity.has_invpcid,
            Self::Tags => are_tags_on(),
            Self::TagsAndInvpcid => are_tags_on() && identity.has_invpcid,
        }
    }
}

fn invlpg(va: u64) {
    // SAFETY: ring 0.
    unsafe { tlbkit_x86::invlpg(VirtAddr(va)) }
}

fn drop_all() {
    // SAFETY: ring 0, interrupts off.
    unsafe { toggle_pge() }
}

fn invpcid(what: Invpcid) {
    // SAFETY: tried only where the CPU has it.
    unsafe { tlbkit_x86::invpcid(what) }
}

fn are_tags_on() -> bool {
    // SAFETY: ring 0.
    unsafe { read_cr4() & CR4_PCIDE != 0 }
}

fn tag() -> Pcid {
    if are_tags_on() { TAG } else { Pcid(0) }
}

/// Runs `body` under [`OTHER`], and comes back, without a flush on either way.
fn under_other_tag(body: fn()) {
    // SAFETY: the loaded root under two tags; this is only called while tags are on.
    unsafe {
        let back = read_cr3();
        write_cr3(Cr3::keeping(back.root(), OTHER));
        body();
        write_cr3(Cr3::keeping(back.root(), back.pcid()));
    }
}

fn drop_tag() {
    invpcid(Invpcid::Single(TAG));
}

fn reload() {
    // SAFETY: the loaded root and tag, loaded again.
    unsafe { write_cr3(read_cr3()) }
}

/// Tries all of them without tags, and with them if there are any.
pub(super) fn check(rules: &mut Tally, identity: &Identity) {
    let frames = [1u64, 2].map(|word| {
        let frame = Ram.alloc(12, Purpose::Data).expect("memory for two pages");
        Ram.store(frame.at, word);
        frame.at
    });
    trials(rules, identity, frames);
    if identity.has_pcid {
        // SAFETY: tag 0 is loaded, then tags are on, then another tag with the same root.
        unsafe {
            write_cr4(read_cr4() | CR4_PCIDE);
            write_cr3(Cr3::flushing(read_cr3().root(), TAG));
        }
        trials(rules, identity, frames);
    }
}

fn trials(rules: &mut Tally, identity: &Identity, frames: [PhysAddr; 2]) {
    for &(name, instruction, local, global, needs) in TRIALS {
        if !needs.are_met(identity) {
            continue;
        }
        for (scope, fate, bits) in [("local", local, BITS), ("global", global, BITS | Pte::GLOBAL)] {
            let name = format_args!("{name}: a {scope} entry, tags {}", if are_tags_on() { "on" } else { "off" });
            let remains = remains_after(instruction, frames, bits);
            match fate {
                Gone => rules.must_be_gone(&name, remains),
                MayStay => Tally::may_stay(&name, remains),
            }
        }
    }
}

/// Reads the page through the first frame, changes the entry to the second, runs `instruction`, reads again.
fn remains_after(instruction: fn(), [first, second]: [PhysAddr; 2], bits: u64) -> Remains {
    let entry = trial_entry();
    Ram.store(entry, Pte::new(first, bits).0);
    drop_all();
    let before = read();
    Ram.store(entry, Pte::new(second, bits).0);
    instruction();
    let after = read();
    assert_eq!(before, 1, "the page was mapped");
    if after == 2 { Remains::Nothing } else { Remains::Something }
}

fn read() -> u64 {
    // SAFETY: mapped by `remains_after` to one of two frames.
    unsafe { (TRIAL_VA as *const u64).read_volatile() }
}
