//! Tags and CR3 values: what is put in comes out, and the halves differ in one bit.

use proptest::prelude::*;
use tlbkit::{Cr3, Invpcid, Pcid, PhysAddr, VirtAddr};

proptest! {
    #![proptest_config(crate::config())]

    #[test]
    fn inv_8_the_halves_differ_in_bit_11_alone(slot in 0u16..15) {
        let kernel = Pcid(slot + 1);
        prop_assert_ne!(kernel, Pcid::KERNEL);
        prop_assert_eq!(kernel.user_half().0 ^ kernel.0, 1 << 11);
        prop_assert_eq!(kernel.user_half().user_half(), kernel.user_half());
    }

    #[test]
    fn cr3_holds_root_tag_and_the_bit_that_keeps(frame in 0u64..1 << 40, tag in 0u16..4096) {
        let (root, pcid) = (PhysAddr(frame << 12), Pcid(tag));
        for (cr3, keeps) in [(Cr3::flushing(root, pcid), false), (Cr3::keeping(root, pcid), true)] {
            prop_assert_eq!((cr3.root(), cr3.pcid(), cr3.keeps()), (root, pcid, keeps));
            prop_assert_eq!(cr3.0, u64::from(keeps) << 63 | frame << 12 | u64::from(tag));
        }
    }
}

#[test]
fn the_types_of_invpcid_are_numbered_as_the_manual_has_them_and_there_is_no_fifth() {
    let (pcid, va) = (Pcid(5), VirtAddr(0x1000));
    let types = [Invpcid::Address(pcid, va), Invpcid::Single(pcid), Invpcid::AllAndGlobals, Invpcid::All];
    for (number, what) in (0..).zip(types) {
        assert_eq!(what.operands().0, number);
        assert_eq!(Invpcid::from_operands(number, pcid, va), Some(what));
    }
    assert_eq!(Invpcid::from_operands(4, pcid, va), None);
}
