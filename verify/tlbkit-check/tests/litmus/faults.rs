//! When an instruction faults (C-31, C-33), and when it does nothing.

use super::{BOTH, NEITHER, OLD, Rig, X};
use tlbkit::{Cr3, Features, Invpcid, Pcid, PhysAddr, VirtAddr};
use tlbkit_check::MachineConfig;
use tlbkit_check::bare::{Exception, Seen};

const NOT_CANONICAL: u64 = 1 << 47;

fn rig(features: Features) -> Rig {
    Rig::with(0, &MachineConfig { features, ..MachineConfig::default() })
}

fn invpcid(features: Features, what: Invpcid) -> Result<(), Exception> {
    rig(features).machine.invpcid(0, what)
}

#[test]
fn c_31_invpcid_needs_cpuid_and_for_a_pcid_pcide() {
    assert!(invpcid(NEITHER, Invpcid::All).unwrap_err().0.starts_with("#UD"));
    let alone = Features { pcid: false, invpcid: true };
    for what in [Invpcid::Single(Pcid(1)), Invpcid::Address(Pcid(1), VirtAddr(X))] {
        assert!(invpcid(alone, what).unwrap_err().0.starts_with("#GP"), "{what:?}");
        assert_eq!(invpcid(BOTH, what), Ok(()));
    }
    for what in [Invpcid::Single(Pcid(0)), Invpcid::All, Invpcid::AllAndGlobals] {
        assert_eq!(invpcid(alone, what), Ok(()));
    }
}

#[test]
fn c_31_an_address_that_is_not_canonical_faults_in_invpcid_and_is_nothing_to_invlpg() {
    let refused = invpcid(BOTH, Invpcid::Address(Pcid(1), VirtAddr(NOT_CANONICAL)));
    assert!(refused.unwrap_err().0.starts_with("#GP"));
    let mut rig = rig(BOTH);
    rig.set(0);
    rig.machine.invlpg(0, X | NOT_CANONICAL);
    assert!(rig.may_see(0, Seen::Value(OLD)));
}

#[test]
fn c_33_pcide_wants_a_cr3_without_a_tag() {
    let mut rig = rig(NEITHER);
    assert_eq!(rig.machine.set_features(0, BOTH), Ok(()));
    rig.machine.load(0, rig.root, 5);
    assert!(rig.machine.set_features(0, BOTH).unwrap_err().0.starts_with("#GP"));
}

#[test]
fn bit_63_of_cr3_faults_without_pcids() {
    let mut rig = rig(NEITHER);
    let refused = rig.machine.load_cr3(0, Cr3::keeping(PhysAddr(rig.root), Pcid(0)));
    assert!(refused.unwrap_err().0.starts_with("#GP"));
}
