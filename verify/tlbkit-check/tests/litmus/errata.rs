//! Each erratum makes the difference that it stands for.

use super::{NEITHER, OLD, Rig, X, Z};
use std::num::NonZeroU32;
use tlbkit::{Cr3, Invlpgb, Invpcid, Pcid, PhysAddr, Stride, Tables, VirtAddr};
use tlbkit_arch::Pte;
use tlbkit_check::bare::{Bare, Seen};
use tlbkit_check::{Errata, Erratum, MachineConfig};

/// True if the entry of X survives `flush` on a machine with `erratum`, and does not on one without.
fn makes_the_difference(erratum: Erratum, bits: u64, config: &MachineConfig, flush: impl Fn(&mut Bare, u64)) -> bool {
    let [with, without] = [Errata::NONE.with(erratum), Errata::NONE].map(|errata| {
        let mut rig = Rig::with(bits, &MachineConfig { errata, ..*config });
        rig.set(0);
        flush(&mut rig.machine, rig.root);
        rig.may_see(1, Seen::Value(OLD))
    });
    with && !without
}

#[test]
fn invlpg_misses_globals() {
    let invlpg = |machine: &mut Bare, _| machine.invlpg(1, X);
    assert!(makes_the_difference(Erratum::InvlpgMissesGlobals, Pte::GLOBAL, &MachineConfig::default(), invlpg));
}

#[test]
fn invpcid_swapped() {
    let flush = |machine: &mut Bare, _| machine.invpcid(1, Invpcid::Address(Pcid(1), VirtAddr(X))).unwrap();
    assert!(makes_the_difference(Erratum::InvpcidSwapped, 0, &MachineConfig::default(), flush));
}

#[test]
fn a_broadcast_stride_skips_base_pages() {
    let (stride, tables) = (Stride::Page2M, Tables::Kept);
    let what = Invlpgb::Pages { pcid: Pcid(1), first: VirtAddr(X), pages: 1, stride, tables };
    let config = MachineConfig { broadcast_pages: NonZeroU32::new(1), ..MachineConfig::default() };
    let flush = |machine: &mut Bare, _| machine.broadcast(what);
    assert!(makes_the_difference(Erratum::BroadcastStrideSkips, 0, &config, flush));
}

#[test]
fn bit_63_is_honoured_without_pcids() {
    let config = MachineConfig { features: NEITHER, ..MachineConfig::default() };
    let flush = |machine: &mut Bare, root| {
        // Without the erratum the machine refuses it; the kernel then writes CR3 as before PCIDs.
        if machine.load_cr3(1, Cr3::keeping(PhysAddr(root), Pcid(0))).is_err() {
            machine.load(1, root, 0);
        }
    };
    assert!(makes_the_difference(Erratum::KeepsWithoutPcid, 0, &config, flush));
}

#[test]
fn invlpg_keeps_paths() {
    for (errata, is_reached) in [(Errata::NONE.with(Erratum::InvlpgKeepsPaths), true), (Errata::NONE, false)] {
        let mut rig = Rig::with(0, &MachineConfig { errata, ..MachineConfig::default() });
        let above = rig.machine.entry(rig.root, X, 2);
        rig.machine.store(0, rig.pte, 0);
        rig.machine.store(0, above, 0);
        rig.machine.fence(0);
        for cpu in [0, 1] {
            [X, Z].into_iter().for_each(|va| rig.machine.invlpg(cpu, va));
        }
        assert_eq!(rig.machine.free(rig.pte & !0xfff).is_some(), is_reached);
    }
}
