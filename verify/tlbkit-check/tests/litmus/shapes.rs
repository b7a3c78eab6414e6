//! The shapes of page-table litmus tests for Armv8, read for x86-64.

use super::{NEW, OLD, Rig, X, Y, Z};
use tlbkit::{Invpcid, Pcid, PhysAddr, VirtAddr};
use tlbkit_arch::{Pte, entry_at};
use tlbkit_check::Oracle;
use tlbkit_check::bare::{Bare, Seen};

#[test]
fn co_w_inv_t_without_invalidation_a_stale_hit_is_permitted() {
    let mut rig = Rig::new(0);
    rig.set(0);
    assert_eq!(rig.machine.loads(0, X), [Seen::Value(OLD), Seen::Fault]);
}

#[test]
fn co_w_inv_t_after_invlpg_it_is_forbidden_even_before_a_fence() {
    let mut rig = Rig::new(0);
    rig.machine.store(0, rig.pte, 0);
    rig.machine.invlpg(0, X); // serialises: the store has reached memory
    assert_eq!(rig.machine.loads(0, X), [Seen::Fault]);
}

#[test]
fn co_w_tf_inv_a_new_mapping_may_fault_until_it_is_visible_and_not_after() {
    let mut rig = Rig::new(0);
    rig.set(0);
    rig.machine.invlpg(0, X);
    rig.machine.store(0, rig.pte, Bare::leaf(rig.new, 0));
    assert_eq!(rig.machine.loads(0, X), [Seen::Fault]);
    rig.machine.fence(0);
    assert_eq!(rig.machine.loads(0, X), [Seen::Value(NEW)]);
}

#[test]
fn mp_rt_a_shootdown_with_an_answer_forbids_the_stale_load_and_without_permits_it() {
    let mut rig = Rig::new(0);
    rig.set(0);
    rig.machine.invlpg(0, X);
    assert!(rig.may_see(1, Seen::Value(OLD)), "nobody has asked CPU 1");
    rig.machine.invlpg(1, X);
    assert!(!rig.may_see(1, Seen::Value(OLD)));
}

#[test]
fn a_flush_before_the_change_is_seen_does_not_help() {
    let mut rig = Rig::new(0);
    rig.machine.store(0, rig.pte, 0);
    rig.machine.invlpg(1, X); // CPU 1 answers too early: the store is still in CPU 0's buffer
    rig.machine.fence(0);
    assert!(rig.may_see(1, Seen::Value(OLD)));
}

#[test]
fn rbs_a_reused_frame_is_seen_through_a_stale_entry_unless_it_was_flushed() {
    for is_flushed in [false, true] {
        let mut rig = Rig::new(0);
        rig.set(0);
        if is_flushed {
            [0, 1].into_iter().for_each(|cpu| rig.machine.invlpg(cpu, X));
        }
        rig.machine.store(0, rig.old, 77);
        rig.machine.fence(0);
        assert_eq!(rig.may_see(1, Seen::Value(77)), !is_flushed);
    }
}

#[test]
fn bbm_old_data_after_the_new_mapping_is_forbidden_only_with_a_break_and_a_flush() {
    for is_broken_first in [false, true] {
        let mut rig = Rig::new(0);
        if is_broken_first {
            rig.set(0);
            [0, 1].into_iter().for_each(|cpu| rig.machine.invlpg(cpu, X));
        }
        rig.set(Bare::leaf(rig.new, 0));
        assert!(rig.may_see(1, Seen::Value(NEW)));
        assert_eq!(rig.may_see(1, Seen::Value(OLD)), !is_broken_first);
    }
}

/// X's table is taken out and another put in its place.
fn replace_table(rig: &mut Rig) -> u64 {
    let above = rig.machine.entry(rig.root, X, 2);
    let old_table = rig.pte & !0xfff;
    let other_root = rig.machine.root();
    let in_other = rig.machine.entry(other_root, X, 1);
    rig.machine.store(0, in_other, Bare::leaf(rig.new, 0));
    rig.machine.store(0, rig.pte, 0);
    rig.machine.store(0, above, (in_other & !0xfff) | Pte::PRESENT | Pte::WRITE | Pte::USER | Pte::ACCESSED);
    rig.machine.fence(0);
    old_table
}

#[test]
fn intermediate_tlb_a_cached_path_leads_to_the_old_table_until_invlpg_of_any_address() {
    let mut rig = Rig::new(0);
    let old_table = replace_table(&mut rig);
    // The old table is filled again: a CPU that still has the path to it may find that.
    let third = rig.machine.frame(3);
    rig.machine.store(0, entry_at(PhysAddr(old_table), VirtAddr(X), 1).0, Bare::leaf(third, 0));
    rig.machine.fence(0);
    assert!(rig.may_see(1, Seen::Value(3)) && rig.may_see(1, Seen::Value(NEW)));
    rig.machine.invlpg(1, Z); // drops all paths of the PCID, whatever the address
    rig.machine.invlpg(1, X);
    assert_eq!(rig.machine.loads(1, X), [Seen::Value(NEW)]);
}

#[test]
fn c_27_invpcid_0_drops_only_the_paths_of_its_address_and_a_freed_table_stays_in_reach() {
    for (va, is_reached) in [(Z, true), (Y, false)] {
        let mut rig = Rig::new(0);
        let old_table = replace_table(&mut rig);
        for cpu in [0, 1] {
            rig.machine.invpcid(cpu, Invpcid::Address(Pcid(1), tlbkit::VirtAddr(va))).unwrap();
        }
        let found = rig.machine.free(old_table).map(|finding| finding.oracle);
        assert_eq!(found, is_reached.then_some(Oracle::FreedTable), "INVPCID 0 of {va:#x}");
    }
}

#[test]
fn invalidate_wide_invlpg_of_any_address_in_a_large_page_drops_it() {
    let mut rig = Rig::new(0);
    let at = rig.machine.entry(rig.root, X, 2);
    rig.machine.store(0, rig.pte, 0);
    rig.machine.store(0, at, Bare::leaf(0x20_0000, Pte::LARGE));
    rig.machine.fence(0);
    [0, 1].into_iter().for_each(|cpu| rig.machine.invlpg(cpu, X));
    rig.machine.store(0, at, 0);
    rig.machine.fence(0);
    assert_eq!(rig.machine.loads(1, Y).len(), 2, "the large page, or a fault");
    rig.machine.invlpg(1, X + 0x12_3000);
    assert_eq!(rig.machine.loads(1, Y), [Seen::Fault]);
}

#[test]
fn co_tt_ro_an_upgrade_may_fault_once_more_and_a_downgrade_lets_stores_through() {
    let mut rig = Rig::new(0);
    rig.set(Bare::leaf(rig.old, Pte::WRITE));
    assert_eq!(rig.machine.stores(1, X), [Seen::Value(OLD), Seen::Fault]);
    rig.machine.invlpg(1, X);
    assert_eq!(rig.machine.stores(1, X), [Seen::Value(OLD)]);
    rig.set(Bare::leaf(rig.old, 0));
    assert!(rig.machine.stores(1, X).contains(&Seen::Value(OLD)));
    rig.machine.invlpg(1, X);
    assert_eq!(rig.machine.stores(1, X), [Seen::Fault]);
}

#[test]
fn c_45_an_entry_is_cached_only_after_its_a_bit_is_set_and_kept_when_that_is_cleared() {
    let unaccessed = |rig: &Rig| Bare::leaf(rig.new, 0) & !Pte::ACCESSED;
    let mut rig = Rig::new(0);
    rig.set(0);
    [0, 1].into_iter().for_each(|cpu| rig.machine.invlpg(cpu, X));
    rig.machine.mark_first();
    rig.set(unaccessed(&rig));
    rig.set(0);
    rig.machine.mark_all();
    assert_eq!(rig.machine.loads(1, X), [Seen::Fault], "it was taken out before a walk had set the bit");
    rig.set(unaccessed(&rig));
    rig.machine.mark_all();
    assert!(Pte(rig.machine.load_word(0, rig.pte)).has(Pte::ACCESSED));
    // The bit is cleared as for ageing, and nothing is flushed; then the entry goes.
    rig.set(unaccessed(&rig));
    rig.set(0);
    assert!(rig.may_see(1, Seen::Value(NEW)));
}
