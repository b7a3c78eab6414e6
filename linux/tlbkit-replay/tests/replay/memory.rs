//! What faults, and the calls that bring them about, are taken to be: of whom they come, and what ends with whom.

use crate::common::{Script, ops};
use tlbkit::Policy;
use tlbkit_machine::Machine;
use tlbkit_replay::{
    Caller, Cause, CostItem, CostPart, Estimate, OpKind, Paging, Prices, Spared, Tally, replay_sparing,
};
use tlbkit_trace::Syscall;

const PRIVATE: u64 = 0x22;
const SHARED: u64 = 0x21;
const FILE: u64 = 0x2;
/// Where an arena of glibc may lie: at a multiple of 64 MiB.
const ARENA: u64 = 7 << 14;
const ARENA_PAGES: u64 = 1 << 14;

fn machine() -> Machine {
    Machine::builtin("recent-vm").expect("a machine")
}

fn run(script: &Script, spared: impl Fn(Caller) -> Spared) -> Tally {
    let policy = Policy::preset("linux-6.18").expect("a preset");
    replay_sparing(&script.read(Paging::AsRecorded).deduced, policy, &machine(), spared).expect("ops in memory")
}

fn of(cause: Cause, what: Spared) -> impl Fn(Caller) -> Spared {
    move |who| if who.pattern.is_some_and(|pattern| pattern.cause == cause) { what } else { Spared::Nothing }
}

/// New pages, calls, and pages given back.
fn counts(tally: &Tally) -> [u64; 3] {
    [CostItem::Fault, CostItem::Call, CostItem::GiveBack].map(|item| tally.bill.count(item))
}

fn range(first: u64, pages: u64) -> [(&'static str, u64); 2] {
    [("start", first << 12), ("len_in", pages << 12)]
}

fn dontneed(script: &mut Script, first: u64, pages: u64) {
    let [start, length] = range(first, pages);
    script.call("madvise", &[start, length, ("behavior", 4)]);
}

/// Causes of those faults that would not have been without a call.
fn because(script: &Script) -> Vec<Option<Cause>> {
    let fault = |op: &tlbkit_replay::Op| match op.kind {
        OpKind::Touch { because, .. } => Some(because.map(|pattern| pattern.cause)),
        _ => None,
    };
    ops(&script.read(Paging::AsRecorded).deduced).iter().filter_map(fault).collect()
}

#[test]
fn pages_that_were_given_back_are_faulted_in_because_of_that_call() {
    let mut script = Script::default();
    script.exec().mmap(1000, 20, PRIVATE).write(1000..1010);
    dontneed(&mut script, 1000, 20);
    script.write(1005..1015);
    let all = run(&script, |_| Spared::Nothing);
    assert_eq!(counts(&all), [20, 1, 10]);
    assert_eq!(counts(&run(&script, of(Cause::DontNeed, Spared::Calls))), [15, 0, 0], "five were there before");
    let faults = run(&script, of(Cause::DontNeed, Spared::Faults));
    assert_eq!(counts(&faults), [15, 1, 0], "the call goes on, and frees nothing");
    let lazy = |tally: &Tally| [CostItem::LazyFree, CostItem::LazyStore].map(|item| tally.bill.count(item));
    assert_eq!((lazy(&faults), lazy(&all)), ([10, 5], [0, 0]), "it marks them, and five are written again");
    let flushes = |tally: &Tally| tally.bill.count(CostItem::Page);
    assert_eq!(flushes(&faults), flushes(&all));
}

#[test]
fn a_heap_that_shrank_is_faulted_in_again_where_it_was() {
    let mut script = Script::default();
    let brk = |script: &mut Script, end: u64| {
        script.one(&format!("syscalls:sys_enter_brk: brk: {:#x}", end << 12));
        script.one(&format!("syscalls:sys_exit_brk: {:#x}", end << 12));
    };
    script.exec();
    brk(&mut script, 1000);
    brk(&mut script, 1100);
    script.write(1000..1100);
    brk(&mut script, 1040);
    brk(&mut script, 1100);
    script.write(1040..1070);
    let brk = Cause::Call(Syscall::Brk);
    assert_eq!(counts(&run(&script, |_| Spared::Nothing)), [130, 1, 60]);
    assert_eq!(counts(&run(&script, of(brk, Spared::Calls))), [100, 0, 0]);
}

#[test]
fn as_many_pages_as_were_unmapped_would_have_been_there_for_the_next_mapping() {
    let mut script = Script::default();
    script.exec().mmap(1000, 10, PRIVATE).write(1000..1003).call("munmap", &[("addr", 1000 << 12), ("len", 10 << 12)]);
    script.mmap(5000, 10, PRIVATE).write(5000..5005);
    let munmap = Some(Cause::Call(Syscall::Munmap));
    assert_eq!(because(&script), [[None; 3].as_slice(), &[munmap; 3], &[None; 2]].concat());
}

#[test]
fn what_is_a_file_s_or_shared_is_given_back_by_no_allocator() {
    let unmap = |flags: u64| {
        let mut script = Script::default();
        script.exec().mmap(1000, 10, flags).write(1000..1003);
        dontneed(&mut script, 1000, 2);
        script.call("munmap", &[("addr", 1000 << 12), ("len", 10 << 12)]).mmap(5000, 10, PRIVATE).write(5000..5003);
        let causes: Vec<_> = script.taken(Paging::AsRecorded).into_iter().map(|(cause, _)| cause).collect();
        (causes, because(&script), counts(&run(&script, |_| Spared::Nothing))[1])
    };
    for flags in [FILE, SHARED] {
        let (causes, because, calls) = unmap(flags);
        assert_eq!(causes, [Cause::FileDontNeed, Cause::FileMunmap], "{flags:#x}");
        assert!(causes.iter().all(|cause| cause.gives_back() && !cause.may_be_an_allocators()));
        assert_eq!((because, calls), (vec![None; 6], 2), "{flags:#x}: malloc would not have had them");
    }
    let (causes, because, _) = unmap(PRIVATE);
    assert!(causes.iter().all(|cause| cause.may_be_an_allocators()), "{causes:?}");
    assert_eq!(because[3..], [Some(Cause::Call(Syscall::Munmap)), None, None], "one page was still there");
}

#[test]
fn a_page_that_is_unmapped_after_it_was_given_back_is_nobody_s_at_its_next_use() {
    let mut script = Script::default();
    script.exec().mmap(1000, 10, PRIVATE).write(1000..1003);
    dontneed(&mut script, 1000, 10);
    script.call("munmap", &[("addr", 1000 << 12), ("len", 10 << 12)]).mmap(1000, 10, PRIVATE).write(1000..1003);
    assert_eq!(because(&script), [None; 6]);
}

/// Reserves an arena as glibc does, and lets it grow to so many pages.
fn arena(script: &mut Script, pages: u64) {
    let bytes = (2 * ARENA_PAGES) << 12;
    script.one(&format!("syscalls:sys_enter_mmap: addr: 0x0, len: {bytes:#x}, prot: 0x0, flags: 0x4022, fd: 0x0"));
    script.one(&format!("syscalls:sys_exit_mmap: {:#x}", ARENA << 12));
    let protect = |script: &mut Script, first: u64, pages: u64| {
        script.call("mprotect", &[("start", first << 12), ("len", pages << 12), ("prot", 3)]);
    };
    protect(script, ARENA, 33);
    script.write([ARENA]);
    protect(script, ARENA + 33, pages - 33);
}

#[test]
fn what_an_arena_gives_back_is_told_from_what_a_program_does() {
    let mut script = Script::default();
    script.exec();
    arena(&mut script, 100);
    script.write(ARENA + 40..ARENA + 60);
    dontneed(&mut script, ARENA + 40, 60);
    script.mmap(1000, 10, PRIVATE).write(1000..1003);
    dontneed(&mut script, 1000, 10);
    let causes: Vec<_> = script.taken(Paging::AsRecorded).into_iter().map(|(cause, _)| cause).collect();
    assert_eq!(causes, [Cause::ArenaDontNeed, Cause::DontNeed]);
}

#[test]
fn an_arena_gets_no_huge_page_where_it_has_begun_with_small_ones_or_ends() {
    let huge = |pages: u64, touched: u64| {
        let mut script = Script::default();
        script.exec();
        arena(&mut script, pages);
        script.write([ARENA + touched]);
        let deduced = script.read(Paging::Huge).deduced;
        let is_huge =
            |op: &&tlbkit_replay::Op| matches!(op.kind, OpKind::Touch { fault: tlbkit_replay::Fault::Huge, .. });
        ops(&deduced).iter().filter(is_huge).count()
    };
    assert_eq!(huge(600, 100), 0, "its first page was there as a small one");
    assert_eq!(huge(600, 550), 0, "it ends before the second two megabytes do");
    assert_eq!(huge(1024, 550), 1);
}

#[test]
fn a_stack_of_a_thread_gets_no_huge_page() {
    let huge = |flags: u64, unmapped: bool| {
        let mut script = Script::default();
        script.exec().mmap(1024, 1024, flags);
        if unmapped {
            script.call("munmap", &[("addr", 1024 << 12), ("len", 1024 << 12)]).mmap(1024, 1024, PRIVATE);
        }
        script.write([1030]);
        let deduced = script.read(Paging::Huge).deduced;
        let is_huge =
            |op: &&tlbkit_replay::Op| matches!(op.kind, OpKind::Touch { fault: tlbkit_replay::Fault::Huge, .. });
        ops(&deduced).iter().filter(is_huge).count()
    };
    let stack = PRIVATE | 0x2_0000;
    assert_eq!([huge(PRIVATE, false), huge(stack, false), huge(stack, true)], [1, 0, 1]);
}

#[test]
fn what_is_only_marked_is_not_paid_for_as_if_it_were_freed() {
    let mut script = Script::default();
    script.exec().mmap(1000, 10, PRIVATE).write(1000..1010);
    let [start, length] = range(1000, 10);
    script.call("madvise", &[start, length, ("behavior", 8)]);
    let tally = run(&script, |_| Spared::Nothing);
    assert_eq!((counts(&tally), tally.bill.count(CostItem::LazyFree)), ([10, 1, 0], 10));
    let mut machine = machine();
    let cost = |machine: &Machine| tally.bill.cost(CostPart::Calling, &Prices::new(machine));
    assert_eq!(cost(&machine).low, 276.0 + 10.0 * 114.0);
    let before = cost(&machine);
    machine.cycles.lazy_free_page = None;
    let after = cost(&machine);
    assert!(after.low <= before.value && after.high >= before.value, "{after:?} holds {before:?}");
}

#[test]
fn prices_of_faults_and_calls_are_the_file_s_or_put_together_of_its_parts() {
    let mut script = Script::default();
    script.exec().mmap(1000, 10, PRIVATE).write(1000..1010);
    dontneed(&mut script, 1000, 10);
    let bill = run(&script, |_| Spared::Nothing).bill;
    let mut machine = machine();
    assert_eq!(Prices::lacking(&machine), [""; 0]);
    let cost = |machine: &Machine, part| bill.cost(part, &Prices::new(machine));
    assert_eq!(cost(&machine, CostPart::Faulting), Estimate { low: 19_500.0, value: 23_440.0, high: 33_000.0 });
    assert_eq!(cost(&machine, CostPart::Calling).low, 276.0 + 10.0 * 140.0);
    let before = cost(&machine, CostPart::Faulting);
    machine.cycles.anonymous_fault = None;
    assert_eq!(Prices::lacking(&machine), ["a fault"]);
    let after = cost(&machine, CostPart::Faulting);
    assert!(after.low < before.low && after.high > before.high, "{after:?} holds {before:?}");
    let flushes = bill.of_flushes(&Prices::new(&machine));
    assert_eq!(
        bill.total(&Prices::new(&machine)).value - flushes.value,
        after.value + cost(&machine, CostPart::Calling).value
    );
}

#[test]
fn machine_files_that_measure_the_same_kind_of_machine_give_ranges_that_overlap() {
    let mut script = Script::default();
    script.exec().mmap(1000, 10, PRIVATE);
    for _ in 0..20 {
        script.write(1000..1010);
        dontneed(&mut script, 1000, 10);
    }
    let bill = run(&script, |_| Spared::Nothing).bill;
    let ranges = ["recent-bare", "recent-vm", "recent-vm-fractured", "zen4", "sapphire-rapids", "skylake-laptop-kvm"]
        .map(|name| bill.total(&Prices::new(&Machine::builtin(name).unwrap())));
    let (low, high) =
        ranges.iter().fold((0.0_f64, f64::MAX), |(low, high), range| (low.max(range.low), high.min(range.high)));
    assert!(low <= high, "{ranges:?}");
}
