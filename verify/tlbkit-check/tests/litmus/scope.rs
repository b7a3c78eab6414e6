//! The scope of each instruction: its own PCID, other PCIDs, global entries (C-30 to C-33, C-36).

use std::num::NonZeroU32;

use super::{BOTH, NEITHER, OLD, Rig, X};
use tlbkit::{Cr3, Features, Invlpgb, Invpcid, Pcid, PhysAddr, Stride, Tables, VirtAddr};
use tlbkit_arch::Pte;
use tlbkit_check::MachineConfig;
use tlbkit_check::bare::{Bare, Seen};

/// True if CPU 1 may still use its entry of X, fetched under PCID 1, after `flush`, when it is under PCID 1 again.
fn survives(bits: u64, flush: impl FnOnce(&mut Bare, u64)) -> bool {
    let mut rig = Rig::new(bits);
    rig.set(0);
    flush(&mut rig.machine, rig.root);
    rig.machine.load_cr3(1, Cr3::keeping(PhysAddr(rig.root), Pcid(1))).unwrap();
    rig.may_see(1, Seen::Value(OLD))
}

fn invpcid(what: Invpcid) -> impl FnOnce(&mut Bare, u64) {
    move |machine, _| machine.invpcid(1, what).unwrap()
}

#[test]
fn c_32_a_cr3_write_drops_the_new_tag_alone_and_bit_63_nothing() {
    assert!(survives(0, |machine, root| machine.load(1, root, 2)), "another PCID");
    assert!(!survives(0, |machine, root| machine.load(1, root, 1)), "the same PCID");
    assert!(survives(Pte::GLOBAL, |machine, root| machine.load(1, root, 1)), "a global entry");
}

#[test]
fn c_31_invpcid_by_type() {
    let address = |pcid, va| Invpcid::Address(Pcid(pcid), VirtAddr(va));
    for (what, plain, global) in [
        (address(1, X), false, true),
        (address(2, X), true, true),
        (address(1, X + 4096), true, true),
        (Invpcid::Single(Pcid(1)), false, true),
        (Invpcid::Single(Pcid(2)), true, true),
        (Invpcid::All, false, true),
        (Invpcid::AllAndGlobals, false, false),
    ] {
        assert_eq!((survives(0, invpcid(what)), survives(Pte::GLOBAL, invpcid(what))), (plain, global), "{what:?}");
    }
}

#[test]
fn c_30_invlpg_takes_the_page_of_its_tag_and_global_ones() {
    assert!(!survives(0, |machine, _| machine.invlpg(1, X)));
    assert!(!survives(Pte::GLOBAL, |machine, _| machine.invlpg(1, X)));
    let elsewhere = |machine: &mut Bare, root| {
        machine.load(1, root, 2);
        machine.invlpg(1, X);
    };
    assert!(survives(0, elsewhere), "an entry of another PCID");
    assert!(!survives(Pte::GLOBAL, elsewhere), "a global entry belongs to no PCID");
}

#[test]
fn c_33_toggling_pge_and_clearing_pcide_drop_everything() {
    assert!(!survives(0, |machine, root| {
        machine.load(1, root, 2);
        machine.toggle_pge(1);
    }));
    assert!(!survives(Pte::GLOBAL, |machine, _| machine.toggle_pge(1)));
    assert!(!survives(Pte::GLOBAL, |machine, root| {
        machine.set_features(1, NEITHER).unwrap();
        machine.load(1, root, 0);
        machine.set_features(1, BOTH).unwrap();
    }));
}

#[test]
fn without_pcids_a_cr3_write_drops_all_but_globals() {
    for (bits, is_kept) in [(0, false), (Pte::GLOBAL, true)] {
        let mut rig = Rig::with(bits, &MachineConfig { features: Features::default(), ..MachineConfig::default() });
        rig.set(0);
        rig.machine.load(1, rig.root, 0);
        assert_eq!(rig.may_see(1, Seen::Value(OLD)), is_kept);
    }
}

fn pages(pcid: u16, first: u64, pages: u32) -> Invlpgb {
    Invlpgb::Pages { pcid: Pcid(pcid), first: VirtAddr(first), pages, stride: Stride::Page4K, tables: Tables::Kept }
}

/// [`survives`], on a machine with INVLPGB.
fn survives_broadcast(bits: u64, flush: impl FnOnce(&mut Bare)) -> bool {
    let mut rig = Rig::with(bits, &MachineConfig { broadcast_pages: NonZeroU32::new(2), ..MachineConfig::default() });
    rig.set(0);
    flush(&mut rig.machine);
    rig.machine.load_cr3(1, Cr3::keeping(PhysAddr(rig.root), Pcid(1))).unwrap();
    rig.may_see(1, Seen::Value(OLD))
}

#[test]
fn c_36_a_broadcast_takes_the_pages_it_names_of_one_tag_on_all_cpus() {
    let kernel = Invlpgb::PagesOfAll { first: VirtAddr(X), pages: 1, stride: Stride::Page4K };
    for (what, plain, global) in [
        (pages(1, X, 1), false, true),
        (pages(2, X, 1), true, true),
        (pages(1, X - 4096, 2), false, true),
        (pages(1, X + 4096, 1), true, true),
        (kernel, false, false),
        (Invlpgb::Single(Pcid(1)), false, true),
        (Invlpgb::Single(Pcid(2)), true, true),
        (Invlpgb::All, false, true),
        (Invlpgb::AllAndGlobals, false, false),
    ] {
        let is_kept = |bits| survives_broadcast(bits, |machine| machine.broadcast(what));
        assert_eq!((is_kept(0), is_kept(Pte::GLOBAL)), (plain, global), "{what:?}");
    }
}

#[test]
fn c_36_a_broadcast_is_complete_only_after_tlbsync_on_its_own_cpu() {
    let one = pages(1, X, 1);
    assert!(survives_broadcast(0, |machine| machine.invlpgb(0, one).unwrap()));
    assert!(survives_broadcast(0, |machine| {
        machine.invlpgb(0, one).unwrap();
        machine.tlbsync(1).unwrap();
    }));
    assert!(!survives_broadcast(0, |machine| {
        machine.invlpgb(0, one).unwrap();
        machine.invlpgb(0, pages(2, X, 1)).unwrap();
        machine.tlbsync(0).unwrap();
    }));
}

/// It may arrive at once, and then what is still in the table is fetched again.
#[test]
fn c_36_what_is_fetched_after_a_broadcast_has_arrived_stays() {
    let mut rig = Rig::with(0, &MachineConfig { broadcast_pages: NonZeroU32::new(2), ..MachineConfig::default() });
    rig.machine.invlpgb(0, pages(1, X, 1)).unwrap();
    rig.set(0);
    rig.machine.tlbsync(0).unwrap();
    assert!(rig.may_see(1, Seen::Value(OLD)));
}

/// It does not wait for the stores of its CPU: one that comes late may find the old entry in the table.
#[test]
fn c_36_a_broadcast_waits_for_no_store() {
    let mut rig = Rig::with(0, &MachineConfig { broadcast_pages: NonZeroU32::new(2), ..MachineConfig::default() });
    rig.machine.store(0, rig.pte, 0);
    rig.machine.broadcast(pages(1, X, 1));
    assert!(rig.may_see(1, Seen::Value(OLD)));
}

#[test]
fn c_36_a_cpu_refuses_what_its_manual_forbids() {
    let refused = |most, features, what| {
        let broadcast_pages = NonZeroU32::new(most);
        let mut rig = Rig::with(0, &MachineConfig { broadcast_pages, features, ..MachineConfig::default() });
        rig.machine.invlpgb(0, what).err().map(|exception| &exception.0[..3])
    };
    assert_eq!(refused(0, BOTH, pages(1, X, 1)), Some("#UD"));
    assert_eq!(refused(2, BOTH, pages(1, X, 2)), None);
    assert_eq!(refused(2, BOTH, pages(1, X, 3)), Some("#GP"), "more than CPUID says");
    assert_eq!(refused(2, BOTH, pages(1, X, 0)), Some("#GP"));
    assert_eq!(refused(2, BOTH, pages(1, (1 << 47) - 4096, 2)), Some("#GP"), "it runs out of its half");
    assert_eq!(refused(2, NEITHER, Invlpgb::Single(Pcid(1))), Some("#GP"), "a PCID while there are none");
    assert_eq!(refused(2, NEITHER, Invlpgb::AllAndGlobals), None);
}
