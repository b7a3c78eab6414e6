//! TransForm's list of tests for page tables on x86: twenty of its names, each with its verdict. We know the names and
//! the verdicts; the programs are our own reading of them.
//!
//! What the machine caches is everything that a CPU could, so the outcomes of a load are all that any order of walks
//! allows: a shape only has to put the stores and the invalidations into order.

use super::{NEW, OLD, Rig, X, Y};
use tlbkit_arch::Pte;
use tlbkit_check::bare::{Bare, Seen};

const OLD_SEEN: Seen = Seen::Value(OLD);
const NEW_SEEN: Seen = Seen::Value(NEW);

impl Rig {
    /// CPU 0 maps X to the other frame; the store is still in its buffer.
    fn remap(&mut self) {
        self.machine.store(0, self.pte, Bare::leaf(self.new, 0));
    }

    /// Y is another name of the frame of X.
    fn with_synonym() -> Self {
        let mut rig = Self::new(Pte::WRITE);
        let at = rig.machine.entry(rig.root, Y, 1);
        rig.machine.store(0, at, Bare::leaf(rig.old, Pte::WRITE));
        rig.machine.fence(0);
        rig
    }

    /// X is writable and clean.
    fn clean() -> Self {
        let mut rig = Self::new(Pte::WRITE);
        rig.set(Bare::leaf(rig.old, Pte::WRITE) & !Pte::DIRTY);
        [0, 1].into_iter().for_each(|cpu| rig.machine.invlpg(cpu, X));
        rig
    }

    fn is_dirty(&self, cpu: usize) -> bool {
        self.machine.load_word(cpu, self.pte) & Pte::DIRTY != 0
    }
}

#[test]
fn mp_forbidden_who_sees_the_flag_walks_the_new_entry() {
    let mut rig = Rig::new(0);
    let flag = rig.machine.frame(0);
    rig.remap();
    rig.machine.store(0, flag, 1);
    for drained in 0..=2 {
        rig.machine.invlpg(1, X); // CPU 1 walks afresh
        let walked = rig.machine.loads(1, X);
        assert_eq!(walked, [if drained == 0 { OLD_SEEN } else { NEW_SEEN }]);
        assert_eq!(rig.machine.load_word(1, flag) == 1, drained == 2);
        rig.machine.drain_one(0);
    }
}

#[test]
fn sb_synonym_forbidden_a_cpu_misses_its_own_store_under_the_other_name() {
    let mut rig = Rig::with_synonym();
    [(0, 5), (1, 6)].into_iter().for_each(|(cpu, value)| rig.machine.store(cpu, rig.old, value));
    assert_eq!(rig.machine.loads(0, Y), [Seen::Value(5)]);
    assert_eq!(rig.machine.loads(1, X), [Seen::Value(6)]);
}

#[test]
fn n5_synonym_forbidden_each_store_comes_after_the_other() {
    for first in [0, 1] {
        let mut rig = Rig::with_synonym();
        [(0, 5), (1, 6)].into_iter().for_each(|(cpu, value)| rig.machine.store(cpu, rig.old, value));
        let mut seen = [Vec::new(), Vec::new()];
        for drained in [first, 1 - first] {
            rig.machine.drain_one(drained);
            seen[0].extend(rig.machine.loads(0, X));
            seen[1].extend(rig.machine.loads(1, Y));
        }
        let [by_0, by_1] = [seen[0].contains(&Seen::Value(6)), seen[1].contains(&Seen::Value(5))];
        assert_eq!((by_0, by_1), (first == 0, first == 1), "one of them, never both");
    }
}

#[test]
fn mrf1_forbidden_a_load_after_remap_and_invlpg_misses_what_was_stored_there_before() {
    let mut rig = Rig::new(0);
    rig.machine.store(0, rig.new, 7);
    rig.remap();
    rig.machine.invlpg(0, X);
    assert_eq!(rig.machine.loads(0, X), [Seen::Value(7)]);
}

#[test]
fn ptwalk2_forbidden_the_walk_after_invlpg_reads_the_old_entry() {
    let mut rig = Rig::new(0);
    rig.remap();
    rig.machine.invlpg(0, X);
    assert_eq!(rig.machine.loads(0, X), [NEW_SEEN]);
}

#[test]
fn ptwalk3_permitted_without_invlpg_it_does() {
    let mut rig = Rig::new(0);
    rig.remap();
    assert_eq!(rig.machine.loads(0, X), [OLD_SEEN], "the store has not reached memory");
    rig.machine.fence(0);
    assert_eq!(rig.machine.loads(0, X), [OLD_SEEN, NEW_SEEN]);
}

#[test]
fn ipi3_permitted_the_target_has_not_been_interrupted_yet() {
    let mut rig = Rig::new(0);
    rig.remap();
    rig.machine.invlpg(0, X);
    assert!(rig.may_see(1, OLD_SEEN));
}

#[test]
fn ipi4_forbidden_a_stale_load_after_the_interrupt() {
    let mut rig = Rig::new(0);
    rig.remap();
    [0, 1].into_iter().for_each(|cpu| rig.machine.invlpg(cpu, X));
    assert_eq!(rig.machine.loads(1, X), [NEW_SEEN]);
}

#[test]
fn ipi5_permitted_the_target_walks_the_new_entry_before_the_interrupt() {
    let mut rig = Rig::new(0);
    rig.remap();
    rig.machine.fence(0);
    assert!(rig.may_see(1, NEW_SEEN));
}

#[test]
fn ipi6_permitted_the_interrupt_comes_before_the_change_is_seen() {
    let mut rig = Rig::new(0);
    rig.remap();
    rig.machine.invlpg(1, X);
    rig.machine.fence(0);
    assert!(rig.may_see(1, OLD_SEEN), "CPU 1 walked again before the store reached memory");
}

#[test]
fn ipi7_permitted_the_sender_is_stale_after_the_target_has_answered() {
    let mut rig = Rig::new(0);
    rig.remap();
    rig.machine.fence(0);
    rig.machine.invlpg(1, X);
    assert!(rig.may_see(0, OLD_SEEN) && !rig.may_see(1, OLD_SEEN));
}

#[test]
fn ipi8_forbidden_the_old_frame_is_reached_when_the_page_comes_back_after_all_have_answered() {
    let mut rig = Rig::new(0);
    rig.set(0);
    [0, 1].into_iter().for_each(|cpu| rig.machine.invlpg(cpu, X));
    rig.remap();
    rig.machine.fence(0);
    [0, 1].into_iter().for_each(|cpu| assert_eq!(rig.machine.loads(cpu, X), [NEW_SEEN]));
}

#[test]
fn ghost_permitted_a_walk_that_no_load_asked_for_fills_the_entry_that_the_first_load_uses() {
    let mut rig = Rig::new(0);
    let at = rig.machine.entry(rig.root, Y, 1);
    for frame in [rig.old, rig.new] {
        rig.machine.store(0, at, Bare::leaf(frame, 0));
        rig.machine.fence(0);
    }
    assert!(rig.machine.loads(1, Y).contains(&OLD_SEEN), "Y was never touched while it was mapped there");
}

#[test]
fn intelbug_permitted_the_old_and_the_new_entry_live_side_by_side() {
    let mut rig = Rig::new(0);
    rig.remap();
    rig.machine.fence(0);
    for _ in 0..2 {
        assert_eq!(rig.machine.loads(1, X), [OLD_SEEN, NEW_SEEN], "either, at each load");
    }
}

#[test]
fn dirtybit1_permitted_a_store_sets_d_in_the_table() {
    let mut rig = Rig::clean();
    assert!(rig.machine.touch(1, X, 0) && rig.is_dirty(0));
}

#[test]
fn dirtybit2_permitted_d_is_seen_before_the_store_that_set_it() {
    let mut rig = Rig::clean();
    assert!(rig.machine.touch(1, X, 0));
    assert!(rig.is_dirty(0) && rig.may_see(0, OLD_SEEN));
}

#[test]
fn dirtybit3_permitted_a_load_leaves_d_clear() {
    let rig = Rig::clean();
    assert!(rig.may_see(1, OLD_SEEN) && !rig.is_dirty(1));
}

#[test]
fn dirtybit4_permitted_a_store_through_an_entry_that_knows_d_leaves_it_clear() {
    let mut rig = Rig::clean();
    assert!(rig.machine.touch(1, X, 0));
    rig.set(Bare::leaf(rig.old, Pte::WRITE) & !Pte::DIRTY);
    assert!(rig.machine.touch(1, X, 1) && !rig.is_dirty(0), "C-42: D without a flush proves nothing");
}

#[test]
fn dirtybit5_permitted_after_invlpg_the_next_store_sets_d_again() {
    let mut rig = Rig::clean();
    assert!(rig.machine.touch(1, X, 0));
    rig.set(Bare::leaf(rig.old, Pte::WRITE) & !Pte::DIRTY);
    rig.machine.invlpg(1, X);
    assert!(rig.machine.touch(1, X, 0) && rig.is_dirty(0));
}

#[test]
fn dirtybit6_permitted_a_store_through_a_clean_entry_faults_when_the_table_has_changed() {
    let mut rig = Rig::clean();
    rig.set(0);
    assert!(rig.may_see(1, OLD_SEEN), "a load still hits");
    assert!(!rig.machine.touch(1, X, 0), "the store looks at the table to set D");
}
