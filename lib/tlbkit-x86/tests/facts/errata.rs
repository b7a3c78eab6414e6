//! The table of errata, line by line against the documents that it names, on both sides of each boundary.
//!
//! The lines stand here a second time on purpose: one that is changed by mistake differs from its document and from
//! this file.
#![cfg(target_arch = "x86_64")]

use tlbkit_x86::{Defect, ERRATA, Erratum, Identity, Overrides, Trust, Vendor};

/// Intel's specification updates ADL063 and RPL042, and the microcode that Linux asks for in `arch/x86/mm/init.c`:
/// model of family 6, the first revision without the fault.
const INVLPG_MISSES_GLOBALS: [(u32, u32); 6] =
    [(0x97, 0x2e), (0x9a, 0x42c), (0xbe, 0x11), (0xb7, 0x118), (0xba, 0x4117), (0xbf, 0x2e)];

/// A CPU with everything, on bare metal.
fn cpu(vendor: Vendor, family: u32, model: u32, microcode: u32) -> Identity {
    Identity {
        vendor,
        family,
        model,
        has_pcid: true,
        has_invpcid: true,
        has_x2apic: true,
        broadcast_pages: None,
        guest_asids: 0,
        is_guest: false,
        microcode,
    }
}

fn has_tags(cpu: Identity) -> bool {
    let features = cpu.features(Overrides::default());
    assert!(features.invpcid, "no erratum takes INVPCID away");
    features.pcid
}

fn lines_of(defect: Defect) -> Vec<&'static Erratum> {
    ERRATA.iter().filter(|line| line.defect == defect).collect()
}

#[test]
fn c_37_the_table_is_what_the_documents_say() {
    let lines = lines_of(Defect::InvlpgMissesGlobals);
    let table: Vec<_> = lines.iter().map(|line| (line.models.0, line.fixed_in)).collect();
    assert_eq!(table, INVLPG_MISSES_GLOBALS.map(|(model, floor)| (model, Some(floor))));
    assert!(
        lines.iter().all(|line| (line.vendor, line.family) == (Vendor::Intel, 6) && line.models.0 == line.models.1)
    );
    // FreeBSD's notice EN-26:10 names family 19h whole, and no microcode that fixes it.
    let broadcast = lines_of(Defect::InvlpgbStrideSkipsPages);
    assert_eq!(broadcast.len(), 1);
    assert_eq!((broadcast[0].vendor, broadcast[0].family), (Vendor::Amd, 0x19));
    assert_eq!((broadcast[0].models, broadcast[0].fixed_in), ((0, 0xff), None));
    assert_eq!(ERRATA.len(), INVLPG_MISSES_GLOBALS.len() + 1, "a line without a check");
}

#[test]
fn c_37_one_revision_below_the_floor_has_no_tags_and_the_floor_has_them() {
    for (model, floor) in INVLPG_MISSES_GLOBALS {
        let tags = |microcode| has_tags(cpu(Vendor::Intel, 6, model, microcode));
        assert!(!tags(0) && !tags(floor - 1), "model {model:#x} below {floor:#x}");
        assert!(tags(floor) && tags(floor + 1) && tags(u32::MAX), "model {model:#x} from {floor:#x} on");
    }
}

#[test]
fn c_37_no_neighbour_of_a_model_or_a_family_loses_its_tags() {
    let is_listed = |model: u32| INVLPG_MISSES_GLOBALS.iter().any(|&(listed, _)| listed == model);
    for model in 0..=0xff {
        let tags = |vendor, family| has_tags(cpu(vendor, family, model, 0));
        assert_eq!(tags(Vendor::Intel, 6), !is_listed(model), "model {model:#x}");
        for family in [5, 7, 0xf, 0x18, 0x19, 0x1a] {
            assert!(tags(Vendor::Intel, family) && tags(Vendor::Amd, family), "family {family:#x}, model {model:#x}");
        }
        assert!(tags(Vendor::Amd, 6) && tags(Vendor::Other, 6), "model {model:#x} of somebody else");
    }
}

#[test]
fn c_37_broadcasts_by_2_mib_are_wrong_on_family_19h_alone() {
    let line = lines_of(Defect::InvlpgbStrideSkipsPages)[0];
    for model in [0, 1, 0x10, 0x61, 0xff] {
        let affects = |family, microcode| line.affects(&cpu(Vendor::Amd, family, model, microcode));
        assert!(affects(0x19, 0) && affects(0x19, u32::MAX), "no microcode fixes it");
        assert!(!affects(0x18, 0) && !affects(0x1a, 0), "model {model:#x}");
        assert!(!line.affects(&cpu(Vendor::Intel, 0x19, model, 0)));
    }
}

#[test]
fn c_85_a_hypervisor_is_believed_on_no_revision_of_any_line() {
    for (model, floor) in INVLPG_MISSES_GLOBALS {
        for microcode in [0, floor - 1, floor, u32::MAX] {
            let guest = Identity { is_guest: true, ..cpu(Vendor::Intel, 6, model, microcode) };
            assert!(!has_tags(guest), "model {model:#x} at {microcode:#x}");
            let with = |trust| guest.features(Overrides { invlpg_with_pcids: trust }).pcid;
            assert_eq!([Trust::ByTable, Trust::Always, Trust::Never].map(with), [false, true, false]);
        }
    }
}

#[test]
fn c_85_an_override_holds_whatever_the_model_and_gives_no_feature_that_is_not_there() {
    for model in [0x55, 0xb7] {
        let real = cpu(Vendor::Intel, 6, model, 0);
        let with = |cpu: Identity, trust| cpu.features(Overrides { invlpg_with_pcids: trust });
        assert!(with(real, Trust::Always).pcid && !with(real, Trust::Never).pcid, "model {model:#x}");
        let without = Identity { has_pcid: false, has_invpcid: false, ..real };
        assert_eq!(with(without, Trust::Always), tlbkit::Features::default());
    }
}
