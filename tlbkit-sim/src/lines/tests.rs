//! A line's price by who holds it.

use super::*;

const COSTS: LineCosts =
    LineCosts { local_cycles: 4, same_socket_cycles: 100, cross_socket_cycles: 300, locked_cycles: 20 };

const LINE: LineId = LineId(7);

fn lines() -> Lines {
    Lines::new(COSTS, 2)
}

#[test]
fn a_held_line_is_near_and_a_foreign_one_is_dear() {
    let mut lines = lines();
    assert_eq!(lines.access(0, Access::Load, LINE, 0).cycles, 100, "from memory");
    assert_eq!(lines.access(0, Access::Load, LINE, 200).cycles, 4);
    assert_eq!(lines.access(1, Access::Load, LINE, 300).cycles, 100, "from the neighbour");
    assert_eq!(lines.access(2, Access::Load, LINE, 500).cycles, 300, "from the other socket");
}

#[test]
fn a_locked_operation_takes_the_line_from_everybody() {
    let mut lines = lines();
    lines.access(0, Access::Load, LINE, 0);
    assert_eq!(lines.access(1, Access::Rmw, LINE, 200).cycles, 120);
    assert_eq!(lines.access(1, Access::Rmw, LINE, 400).cycles, 24);
    assert!(!lines.is_near(0, Access::Load, LINE), "its copy is gone");
}

#[test]
fn a_contended_line_queues() {
    let mut lines = lines();
    lines.access(0, Access::Rmw, LINE, 0);
    assert_eq!(lines.access(1, Access::Rmw, LINE, 200).cycles, 120);
    assert_eq!(lines.access(0, Access::Rmw, LINE, 210).cycles, 90 + 120, "behind the first");
    assert_eq!(lines.counters().queued_cycles, 90);
}

#[test]
fn a_plain_store_is_not_waited_for_but_a_fence_knows_when_it_arrives() {
    let mut lines = lines();
    lines.access(0, Access::Load, LINE, 0);
    let charge = lines.access(1, Access::Store, LINE, 200);
    assert_eq!((charge.cycles, charge.visible_at), (4, 300));
}

#[test]
fn a_store_wakes_those_who_watch() {
    let mut lines = lines();
    lines.access(1, Access::Load, LINE, 0);
    lines.watch(1, LINE);
    assert_eq!(lines.access(0, Access::Load, LINE, 10).woken, []);
    assert_eq!(lines.access(0, Access::Store, LINE, 20).woken, [1]);
    assert_eq!(lines.access(0, Access::Store, LINE, 30).woken, [], "once");
}

#[test]
fn holders_beyond_the_first_word_are_told_apart_by_socket() {
    let mut lines = Lines::new(COSTS, 100);
    lines.access(150, Access::Load, LINE, 0);
    assert_eq!(lines.access(199, Access::Load, LINE, 1000).cycles, 100);
    assert_eq!(lines.access(99, Access::Load, LINE, 2000).cycles, 300);
}
