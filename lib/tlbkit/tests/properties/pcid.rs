//! Tags and CR3 values: what is put in comes out, and the halves differ in one bit.

use proptest::prelude::*;
use tlbkit::{Cr3, Pcid, PhysAddr};

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
