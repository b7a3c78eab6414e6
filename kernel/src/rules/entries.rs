//! What each instruction must drop: a page is read, its entry changed, the instruction executed, and the page read
//! again.

use tlbkit::{Invpcid, Pcid, PhysAddr, VirtAddr};
use tlbkit_pmap::{Memory, Pte, Purpose};
use tlbkit_x86::{CR4_PCIDE, Identity, read_cr3, read_cr4, toggle_pge, write_cr3, write_cr4};

use super::Rules;
use crate::memory::{Ram, TRIAL_VA, trial_entry};
use crate::report;

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

/// One instruction, what it must do to a local and to a global entry of the loaded tag, and whether it needs INVPCID.
type Trial = (&'static str, fn(), Fate, Fate, bool);

const TRIALS: &[Trial] = &[
    ("INVLPG", || invlpg(TRIAL_VA), Gone, Gone, false),
    ("INVLPG of another page", || invlpg(TRIAL_VA + 4096), MayStay, MayStay, false),
    ("CR3 of the same tag", reload, Gone, MayStay, false),
    ("CR4.PGE", drop_all, Gone, Gone, false),
    ("INVPCID 0", || invpcid(Invpcid::Address(tag(), VirtAddr(TRIAL_VA))), Gone, MayStay, true),
    ("INVPCID 0 of another tag", || invpcid(Invpcid::Address(other(), VirtAddr(TRIAL_VA))), MayStay, MayStay, true),
    ("INVPCID 1", || invpcid(Invpcid::Single(tag())), Gone, MayStay, true),
    ("INVPCID 2", || invpcid(Invpcid::AllAndGlobals), Gone, Gone, true),
    ("INVPCID 3", || invpcid(Invpcid::All), Gone, MayStay, true),
];

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

fn other() -> Pcid {
    if are_tags_on() { OTHER } else { Pcid(0) }
}

fn reload() {
    // SAFETY: the loaded root and tag, loaded again.
    unsafe { write_cr3(read_cr3()) }
}

/// Tries all of them without tags, and with them if there are any.
pub(super) fn check(rules: &mut Rules, identity: &Identity) {
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
            write_cr3(read_cr3() | u64::from(TAG.0));
        }
        trials(rules, identity, frames);
    }
}

fn trials(rules: &mut Rules, identity: &Identity, frames: [PhysAddr; 2]) {
    for &(name, instruction, local, global, needs_invpcid) in TRIALS {
        if needs_invpcid && !identity.has_invpcid {
            continue;
        }
        for (scope, fate, bits) in [("local", local, BITS), ("global", global, BITS | Pte::GLOBAL)] {
            let name = format_args!("{name}: a {scope} entry, tags {}", if are_tags_on() { "on" } else { "off" });
            let is_gone = is_gone_after(instruction, frames, bits);
            match fate {
                Gone => rules.gone(&name, is_gone),
                MayStay => report::rule(&name, true, &if is_gone { "gone, though it might stay" } else { "kept" }),
            }
        }
    }
}

/// Reads the page through the first frame, changes the entry to the second, runs `instruction`, reads again.
fn is_gone_after(instruction: fn(), [first, second]: [PhysAddr; 2], bits: u64) -> bool {
    let entry = trial_entry();
    Ram.store(entry, Pte::new(first, bits).0);
    drop_all();
    let before = read();
    Ram.store(entry, Pte::new(second, bits).0);
    instruction();
    let after = read();
    assert_eq!(before, 1, "the page was mapped");
    after == 2
}

fn read() -> u64 {
    // SAFETY: mapped by `is_gone_after` to one of two frames.
    unsafe { (TRIAL_VA as *const u64).read_volatile() }
}
