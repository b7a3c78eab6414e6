//! What an access to a cache line costs, by who holds the line.

use super::*;

const COSTS: LineCosts = LineCosts {
    local_cycles: 4,
    same_group_cycles: None,
    same_socket_cycles: 100,
    cross_socket_cycles: 300,
    locked_cycles: 20,
};

/// The line that the tests use, and the last of a block.
const LINE: LineId = LineId(63);
const ADDRESS: usize = 63 * 64;

const CPUS: usize = 400;

/// Three sockets of two CPUs, and one line.
fn lines() -> Lines {
    with_one_line(2)
}

fn with_one_line(cpus_per_socket: usize) -> Lines {
    let mut lines = Lines::new(COSTS, Topology::plain(CPUS, cpus_per_socket), CPUS);
    assert_eq!(lines.line_of(ADDRESS), LINE);
    lines
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
fn a_line_is_nearest_where_all_who_hold_it_are_in_one_group() {
    let costs = LineCosts { same_group_cycles: Some(40), ..COSTS };
    let mut lines = Lines::new(costs, Topology::plain(CPUS, 100).in_groups_of(8), CPUS);
    assert_eq!(lines.line_of(ADDRESS), LINE);
    assert_eq!(lines.access(0, Access::Load, LINE, 0).cycles, 100, "from memory");
    assert_eq!(lines.access(7, Access::Rmw, LINE, 200).cycles, 60, "from the group");
    assert_eq!(lines.access(8, Access::Rmw, LINE, 400).cycles, 120, "from another group");
    assert_eq!(lines.access(100, Access::Rmw, LINE, 600).cycles, 320, "from another socket");
    // Readers that are kept as bits: all of one group, and then one of another.
    (8..16).for_each(|cpu| _ = lines.access(cpu, Access::Load, LINE, 1000 * u64::from(cpu)));
    assert_eq!(lines.access(9, Access::Rmw, LINE, 90_000).cycles, 320, "the other socket reads it still");
    (8..16).for_each(|cpu| _ = lines.access(cpu, Access::Load, LINE, 100_000 + 1000 * u64::from(cpu)));
    assert_eq!(lines.access(9, Access::Rmw, LINE, 190_000).cycles, 60);
    (8..17).for_each(|cpu| _ = lines.access(cpu, Access::Load, LINE, 200_000 + 1000 * u64::from(cpu)));
    assert_eq!(lines.access(9, Access::Rmw, LINE, 290_000).cycles, 120);
}

#[test]
fn a_locked_operation_takes_the_line_from_everybody() {
    let mut lines = lines();
    lines.access(0, Access::Load, LINE, 0);
    assert_eq!(lines.access(1, Access::Rmw, LINE, 200).cycles, 120);
    assert_eq!(lines.access(1, Access::Rmw, LINE, 400).cycles, 24);
    assert!(!lines.is_held(0, LINE), "its copy is gone");
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
fn who_loads_what_nobody_may_write_delays_nobody() {
    let mut lines = lines();
    lines.access(0, Access::Rmw, LINE, 0);
    assert_eq!(lines.access(1, Access::Load, LINE, 200).cycles, 100, "from the one that wrote it");
    assert_eq!(lines.access(2, Access::Load, LINE, 210).cycles, 90 + 300, "behind that");
    assert_eq!(lines.access(3, Access::Load, LINE, 210).cycles, 90 + 300, "and beside the other");
    assert_eq!(lines.access(4, Access::Rmw, LINE, 400).cycles, 320, "a writer waits for no reader");
}

#[test]
fn a_plain_store_is_not_waited_for_but_a_fence_knows_when_it_arrives() {
    let mut lines = lines();
    lines.access(0, Access::Load, LINE, 0);
    let charge = lines.access(1, Access::Store, LINE, 200);
    assert_eq!((charge.cycles, charge.visible_at), (4, 300));
}

#[test]
fn a_watched_line_says_so_until_its_watchers_are_taken() {
    let mut lines = lines();
    lines.access(1, Access::Load, LINE, 0);
    assert!(!lines.access(0, Access::Store, LINE, 10).is_watched);
    lines.watch(1, LINE);
    assert!(lines.access(0, Access::Store, LINE, 20).is_watched);
    assert_eq!(lines.take_watchers(LINE), [1]);
    assert!(!lines.access(0, Access::Store, LINE, 30).is_watched, "once");
}

#[test]
fn a_line_settles_where_it_has_stood_for_long() {
    let mut lines = lines();
    let reach = |lines: &mut Lines, cpu, access, now| lines.find(cpu, access, ADDRESS, now).reach;
    assert_eq!(reach(&mut lines, 0, Access::Load, 0), Reach::Far);
    lines.access(0, Access::Load, LINE, 0);
    assert_eq!(reach(&mut lines, 0, Access::Load, 200), Reach::Near);
    assert_eq!(reach(&mut lines, 0, Access::Load, 101 + SETTLED_CYCLES), Reach::Settled);
    assert_eq!(reach(&mut lines, 0, Access::Store, 101 + SETTLED_CYCLES), Reach::Far, "a reader does not write");
    assert_eq!(reach(&mut lines, 1, Access::Load, 101 + SETTLED_CYCLES), Reach::Far, "it stands elsewhere");
}

#[test]
fn holders_are_told_apart_by_socket() {
    let mut lines = with_one_line(100);
    lines.access(150, Access::Load, LINE, 0);
    assert_eq!(lines.access(199, Access::Load, LINE, 1000).cycles, 100);
    assert_eq!(lines.access(99, Access::Load, LINE, 2000).cycles, 300);
}

#[test]
fn a_crowd_of_holders_is_remembered_and_forgotten_like_a_few() {
    let mut lines = with_one_line(100);
    for cpu in (0..100).chain([399]) {
        lines.access(cpu, Access::Load, LINE, 0);
    }
    assert!((0..100).chain([399]).all(|cpu| lines.is_held(cpu, LINE)));
    assert!(!lines.is_held(100, LINE) && !lines.is_held(4000, LINE));
    assert_eq!(lines.access(7, Access::Rmw, LINE, 50_000).cycles, 320, "the last of them sits on another socket");
    assert_eq!(lines.access(8, Access::Load, LINE, 60_000).cycles, 100, "the one that is left is on this one");
    assert_eq!((0..400).filter(|&cpu| lines.is_held(cpu, LINE)).count(), 2);
}

#[test]
fn a_word_that_stands_apart_moves_and_its_neighbours_stay() {
    let mut lines = with_one_line(2);
    lines.set_apart(ADDRESS + 8);
    let met = |lines: &mut Lines, access, address| lines.find(0, access, address, 0);
    let [beside, apart] =
        [(Access::Load, 0), (Access::Rmw, 8)].map(|(access, at)| met(&mut lines, access, ADDRESS + at));
    assert_eq!((beside.line, beside.address), (LINE, ADDRESS));
    assert!(apart.line != LINE && apart.address != ADDRESS + 8, "{apart:?}");
    lines.access(0, Access::Load, LINE, 0);
    lines.access(1, Access::Rmw, apart.line, 0);
    assert_eq!(met(&mut lines, Access::Load, ADDRESS).reach, Reach::Near);
    assert_eq!(met(&mut lines, Access::Rmw, ADDRESS + 8).reach, Reach::Far);
}

#[test]
fn a_set_is_known_word_by_word() {
    let mut lines = with_one_line(2);
    lines.mark_set(ADDRESS + 56, ADDRESS + 72);
    let next = lines.line_of(ADDRESS + 64);
    assert_ne!(next, LINE);
    let set_words = [LINE, next].map(|id| lines.access(0, Access::Load, id, 0).set_words);
    assert_eq!(set_words, [word_bit(ADDRESS + 56), word_bit(ADDRESS + 64)]);
    assert_eq!(set_words, [1 << 7, 1]);
}
