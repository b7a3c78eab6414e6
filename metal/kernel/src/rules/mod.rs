//! The manual's rules for PCIDs and INVPCID, asked of the CPU: what must fault, what must not, what must be gone after.
//!
//! The library relies on them; an emulator or a hypervisor that breaks one is found here and not in a run. A
//! translation may go at any time, so "gone" is demanded and "kept" is only told.

pub(crate) mod attempt;
mod entries;

use core::fmt::Display;

use tlbkit_x86::{CR4_PCIDE, Identity, read_cr3, read_cr4};

use crate::{machine, report};
use attempt::{Outcome, cr0, cr3, cr4, invlpg, invpcid};

const NO_FLUSH: u64 = 1 << 63;
const CR0_PG: u64 = 1 << 31;
/// The first address that is not canonical with four levels of tables.
const HOLE: u64 = 1 << 47;
const FAULTS: Outcome = Outcome::GeneralProtection;
const WORKS: Outcome = Outcome::Works;

/// Tells each rule on a line, and the number of broken ones on the last.
struct Rules {
    asked: u32,
    broken: u32,
}

impl Rules {
    fn check(&mut self, name: &dyn Display, expected: Outcome, found: Outcome) {
        self.asked += 1;
        self.broken += u32::from(expected != found);
        report::rule(name, expected == found, &format_args!("expected {expected:?}, found {found:?}"));
    }

    fn gone(&mut self, name: &dyn Display, is_gone: bool) {
        self.asked += 1;
        self.broken += u32::from(!is_gone);
        report::rule(name, is_gone, &if is_gone { "gone" } else { "still there" });
    }
}

/// Asks all that this CPU can be asked; the end of the machine.
pub(crate) fn run() -> ! {
    let identity = machine::identity();
    let mut rules = Rules { asked: 0, broken: 0 };
    without_tags(&mut rules, &identity);
    if identity.has_pcid {
        with_tags(&mut rules, &identity);
    }
    entries::check(&mut rules, &identity);
    report::rules(rules.asked, rules.broken)
}

fn without_tags(rules: &mut Rules, identity: &Identity) {
    // SAFETY: ring 0, interrupts off, one CPU; what is loaded stays loaded.
    let root = unsafe {
        tlbkit_x86::without_tags();
        read_cr3() & !0xfff
    };
    if identity.has_invpcid {
        rules.check(&"off: INVPCID 0 of tag 0", WORKS, invpcid(0, 0, 0));
        rules.check(&"off: INVPCID 0 of tag 1", FAULTS, invpcid(0, 1, 0));
        rules.check(&"off: INVPCID 1 of tag 0", WORKS, invpcid(1, 0, 0));
        rules.check(&"off: INVPCID 1 of tag 1", FAULTS, invpcid(1, 1, 0));
        rules.check(&"off: INVPCID 2", WORKS, invpcid(2, 0, 0));
        rules.check(&"off: INVPCID 3", WORKS, invpcid(3, 0, 0));
    } else {
        rules.check(&"INVPCID on a CPU that has none", Outcome::InvalidOpcode, invpcid(3, 0, 0));
    }
    rules.check(&"INVLPG of an address that is not canonical", WORKS, invlpg(HOLE));
    if identity.has_pcid {
        rules.check(&"off: CR3 with the no-flush bit", FAULTS, cr3(root | NO_FLUSH));
        rules.check(&"CR4.PCIDE under CR3[11:0] of 1", FAULTS, {
            let _ = cr3(root | 1);
            // SAFETY: ring 0.
            cr4(unsafe { read_cr4() } | CR4_PCIDE)
        });
        let _ = cr3(root);
    }
}

fn with_tags(rules: &mut Rules, identity: &Identity) {
    // SAFETY: ring 0.
    let (root, without) = unsafe { (read_cr3() & !0xfff, read_cr4()) };
    rules.check(&"CR4.PCIDE under CR3[11:0] of 0", WORKS, cr4(without | CR4_PCIDE));
    rules.check(&"on: CR3 with tag 1 and the no-flush bit", WORKS, cr3(root | 1 | NO_FLUSH));
    // SAFETY: ring 0.
    rules.gone(&"on: the no-flush bit is not kept in CR3", unsafe { read_cr3() } == root | 1);
    rules.check(&"on: CR3 with tag 4095", WORKS, cr3(root | 0xfff));
    rules.check(&"on: CR0.PG cleared", FAULTS, cr0(CR0_PG));
    if identity.has_invpcid {
        for kind in 0..4 {
            rules.check(&format_args!("on: INVPCID {kind} of tag 1"), WORKS, invpcid(kind, 1, 0));
            rules.check(&format_args!("on: INVPCID {kind} of tag 4096"), FAULTS, invpcid(kind, 1 << 12, 0));
            let name = format_args!("on: INVPCID {kind}, the descriptor's reserved top bit set");
            rules.check(&name, FAULTS, invpcid(kind, 1 << 63, 0));
        }
        rules.check(&"on: INVPCID 4", FAULTS, invpcid(4, 0, 0));
        rules.check(&"on: INVPCID 0 of an address that is not canonical", FAULTS, invpcid(0, 1, HOLE));
        rules.check(&"on: INVPCID 1 with an address that is not canonical", WORKS, invpcid(1, 1, HOLE));
    }
    rules.check(&"on: CR4.PCIDE cleared under tag 0", WORKS, {
        let _ = cr3(root);
        cr4(without)
    });
}
