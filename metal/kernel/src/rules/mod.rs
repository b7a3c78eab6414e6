//! The manual's rules for PCIDs and INVPCID, checked on the CPU: what must fault, what must not, and what must be
//! invalidated.
//!
//! The library relies on them; an emulator or a hypervisor that breaks one is found here and not in a run. A
//! translation may be dropped at any time, so "gone" is demanded and "kept" is only reported.

mod entries;
mod tally;

use tlbkit::{Cr3, Pcid};
use tlbkit_x86::{CR4_PCIDE, Identity, read_cr3, read_cr4};

use crate::arch::attempt::{Attempted, cr0, cr3, cr4, invlpg, invpcid};
use crate::machine;
use tally::{Remains, Tally};

const CR0_PG: u64 = 1 << 31;
/// The first address that is not canonical with four levels of tables.
const HOLE: u64 = 1 << 47;
const FAULTS: Attempted = Attempted::GeneralProtection;
const WORKS: Attempted = Attempted::Works;

/// Checks all rules that apply to this CPU, and ends the machine.
pub(crate) fn run() -> ! {
    let identity = machine::identity();
    let mut rules = Tally::default();
    without_tags(&mut rules, &identity);
    if identity.has_pcid {
        with_tags(&mut rules, &identity);
    }
    entries::check(&mut rules, &identity);
    rules.end()
}

fn without_tags(rules: &mut Tally, identity: &Identity) {
    // SAFETY: ring 0, interrupts off, one CPU; what is loaded stays loaded.
    let root = unsafe {
        tlbkit_x86::disable_pcids();
        read_cr3().root()
    };
    if identity.has_invpcid {
        rules.must_end(&"off: INVPCID 0 of tag 0", WORKS, invpcid(0, 0, 0));
        rules.must_end(&"off: INVPCID 0 of tag 1", FAULTS, invpcid(0, 1, 0));
        rules.must_end(&"off: INVPCID 1 of tag 0", WORKS, invpcid(1, 0, 0));
        rules.must_end(&"off: INVPCID 1 of tag 1", FAULTS, invpcid(1, 1, 0));
        rules.must_end(&"off: INVPCID 2", WORKS, invpcid(2, 0, 0));
        rules.must_end(&"off: INVPCID 3", WORKS, invpcid(3, 0, 0));
    } else {
        rules.must_end(&"INVPCID on a CPU that has none", Attempted::InvalidOpcode, invpcid(3, 0, 0));
    }
    rules.must_end(&"INVLPG of an address that is not canonical", WORKS, invlpg(HOLE));
    if identity.has_pcid {
        rules.must_end(&"off: CR3 with the no-flush bit", FAULTS, cr3(Cr3::keeping(root, Pcid::KERNEL)));
        rules.must_end(&"CR4.PCIDE under CR3[11:0] of 1", FAULTS, {
            let _ = cr3(Cr3::flushing(root, Pcid(1)));
            // SAFETY: ring 0.
            cr4(unsafe { read_cr4() } | CR4_PCIDE)
        });
        let _ = cr3(Cr3::flushing(root, Pcid::KERNEL));
    }
}

fn with_tags(rules: &mut Tally, identity: &Identity) {
    // SAFETY: ring 0.
    let (root, without) = unsafe { (read_cr3().root(), read_cr4()) };
    rules.must_end(&"CR4.PCIDE under CR3[11:0] of 0", WORKS, cr4(without | CR4_PCIDE));
    rules.must_end(&"on: CR3 with tag 1 and the no-flush bit", WORKS, cr3(Cr3::keeping(root, Pcid(1))));
    // SAFETY: ring 0.
    let is_gone = unsafe { read_cr3() } == Cr3::flushing(root, Pcid(1));
    let remains = if is_gone { Remains::Nothing } else { Remains::Something };
    rules.must_be_gone(&"on: the no-flush bit is not kept in CR3", remains);
    rules.must_end(&"on: CR3 with tag 4095", WORKS, cr3(Cr3::flushing(root, Pcid(4095))));
    rules.must_end(&"on: CR0.PG cleared", FAULTS, cr0(CR0_PG));
    if identity.has_invpcid {
        for kind in 0..4 {
            rules.must_end(&format_args!("on: INVPCID {kind} of tag 1"), WORKS, invpcid(kind, 1, 0));
            rules.must_end(&format_args!("on: INVPCID {kind} of tag 4096"), FAULTS, invpcid(kind, 1 << 12, 0));
            let name = format_args!("on: INVPCID {kind}, the descriptor's reserved top bit set");
            rules.must_end(&name, FAULTS, invpcid(kind, 1 << 63, 0));
        }
        rules.must_end(&"on: INVPCID 4", FAULTS, invpcid(4, 0, 0));
        rules.must_end(&"on: INVPCID 0 of an address that is not canonical", FAULTS, invpcid(0, 1, HOLE));
        rules.must_end(&"on: INVPCID 1 with an address that is not canonical", WORKS, invpcid(1, 1, HOLE));
    }
    rules.must_end(&"on: CR4.PCIDE cleared under tag 0", WORKS, {
        let _ = cr3(Cr3::flushing(root, Pcid::KERNEL));
        cr4(without)
    });
}
