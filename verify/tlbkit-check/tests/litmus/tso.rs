//! Stores: each CPU sees its own at once and the others later, in order. Two loads of one CPU are in order too.

use super::Rig;
use tlbkit_check::bare::Bare;

/// Two words of memory, and every order in which CPU 0's and CPU 1's stores can reach it.
fn two_words() -> (Bare, u64, u64) {
    let mut rig = Rig::new(0);
    let (x, y) = (rig.machine.frame(0), rig.machine.frame(0));
    (rig.machine, x, y)
}

#[test]
fn sb_both_cpus_may_miss_the_others_store_unless_they_fence() {
    let (mut machine, x, y) = two_words();
    machine.store(0, x, 1);
    machine.store(1, y, 1);
    assert_eq!((machine.load_word(0, y), machine.load_word(1, x)), (0, 0), "permitted");
    [0, 1].into_iter().for_each(|cpu| machine.fence(cpu));
    assert_eq!((machine.load_word(0, y), machine.load_word(1, x)), (1, 1), "the fence forbids it");
}

#[test]
fn mp_who_sees_the_second_store_sees_the_first() {
    for drained in 0..=2 {
        let (mut machine, x, y) = two_words();
        machine.store(0, x, 1);
        machine.store(0, y, 1);
        (0..drained).for_each(|_| machine.drain_one(0));
        let seen = (machine.load_word(1, y), machine.load_word(1, x));
        assert_ne!(seen, (1, 0), "forbidden");
        assert_eq!(seen == (1, 1), drained == 2);
        assert_eq!(seen == (0, 1), drained == 1, "permitted");
    }
}

#[test]
fn a_store_to_a_frame_does_not_arrive_when_the_frame_is_anothers() {
    let (mut machine, ..) = two_words();
    let table = machine.root();
    machine.store(1, table + 8, 7);
    assert_eq!(machine.free(table), None);
    assert_eq!(machine.root(), table, "what was given back last is given out first");
    machine.fence(1);
    assert_eq!(machine.load_word(0, table + 8), 0);
}

#[test]
fn a_cpu_sees_its_own_store_before_the_others_do() {
    let (mut machine, x, _) = two_words();
    machine.store(0, x, 1);
    assert_eq!((machine.load_word(0, x), machine.load_word(1, x)), (1, 0));
}
