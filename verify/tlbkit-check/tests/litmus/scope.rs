//! The scope of each instruction: its own PCID, other PCIDs, global entries (C-30 to C-33, C-36).

use super::{BOTH, NEITHER, OLD, Rig, X};
use tlbkit::{Cr3, Features, Invpcid, Pcid, PhysAddr, Stride, VirtAddr};
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

#[test]
fn c_36_a_broadcast_takes_the_pages_it_names_of_one_tag_on_all_cpus() {
    let broadcast =
        |pages, pcid| move |machine: &mut Bare, _| machine.broadcast(VirtAddr(X), pages, Stride::Page4K, Pcid(pcid));
    assert!(!survives(0, broadcast(1, 1)));
    assert!(survives(0, broadcast(1, 2)));
    assert!(survives(0, |machine, _| machine.broadcast(VirtAddr(X + 4096), 1, Stride::Page4K, Pcid(1))));
    assert!(survives(Pte::GLOBAL, broadcast(1, 1)));
    assert!(!survives(Pte::GLOBAL, |machine, _| machine.broadcast_final_only(VirtAddr(X), 1, Pcid(1))));
}
