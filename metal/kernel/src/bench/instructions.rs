//! What the instructions of the protocol cost: each is timed many times in a row. The pages that the loop itself needs
//! are used in between, so that refilling them is part of the cost, as it is in a kernel.

use tlbkit::{Cr3, Invpcid, Pcid, PhysAddr, VirtAddr};
use tlbkit_x86::{CR4_PCIDE, read_cr3, read_cr4};

use super::sample::{Sample, cycles_of};
use crate::layout::TRIAL_VA;
use crate::machine;

/// In one timing: enough that reading the clock does not show.
const IN_A_ROW: u64 = 32;
const TAG: Pcid = Pcid(0);

/// What a CPU must have so that an instruction can be timed.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Needs {
    Nothing,
    Tags,
    Invpcid,
}

type Instruction = (&'static str, Needs, fn(root: PhysAddr));

// SAFETY, of all: ring 0, interrupts off; the loaded root is loaded again, under its own tag; each runs only where the
// CPU has it.
#[expect(clippy::undocumented_unsafe_blocks, reason = "the comment above stands for each")]
const INSTRUCTIONS: &[Instruction] = &[
    ("invlpg", Needs::Nothing, |_| unsafe { tlbkit_x86::invlpg(VirtAddr(TRIAL_VA)) }),
    ("cr3_flush", Needs::Nothing, |root| unsafe { tlbkit_x86::write_cr3(Cr3::flushing(root, TAG)) }),
    ("cr3_keep", Needs::Tags, |root| unsafe { tlbkit_x86::write_cr3(Cr3::keeping(root, TAG)) }),
    ("cr4_pge_toggle", Needs::Nothing, |_| unsafe { tlbkit_x86::toggle_pge() }),
    ("invpcid_address", Needs::Invpcid, |_| invpcid(Invpcid::Address(TAG, VirtAddr(TRIAL_VA)))),
    ("invpcid_single", Needs::Invpcid, |_| invpcid(Invpcid::Single(TAG))),
    ("invpcid_all", Needs::Invpcid, |_| invpcid(Invpcid::All)),
    ("invpcid_all_and_globals", Needs::Invpcid, |_| invpcid(Invpcid::AllAndGlobals)),
];

fn invpcid(what: Invpcid) {
    // SAFETY: called only where the CPU has it.
    unsafe { tlbkit_x86::invpcid(what) }
}

/// Times each instruction that this CPU has.
pub(super) fn time() {
    // SAFETY: ring 0.
    let (root, are_tags_on) = unsafe { (read_cr3().root(), read_cr4() & CR4_PCIDE != 0) };
    for &(name, needs, instruction) in INSTRUCTIONS {
        let is_there = match needs {
            Needs::Nothing => true,
            Needs::Tags => are_tags_on,
            Needs::Invpcid => machine::features().invpcid,
        };
        if is_there {
            Sample::measure(|| cycles_of(|| (0..IN_A_ROW).for_each(|_| instruction(root))) / IN_A_ROW).report(name);
        }
    }
}
