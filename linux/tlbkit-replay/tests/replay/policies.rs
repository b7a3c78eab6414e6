//! What policies make of small traces whose answers can be told by hand.

use crate::common::Script;
use tlbkit::{Compare, Isolation, Lazy, Policy, RangeRule, Tags};
use tlbkit_machine::Machine;
use tlbkit_replay::{CostItem, CostPart, Prices, Tally, replay};
use tlbkit_trace::{FlushReason, FlushSize};

fn linux() -> Policy {
    Policy::preset("linux-6.18").expect("a preset")
}

fn machine(name: &str) -> Machine {
    Machine::builtin(name).expect("a machine")
}

fn on(script: &Script, policy: Policy, name: &str) -> Tally {
    replay(&script.read(), &[policy], &machine(name)).expect("a trace in memory").remove(0)
}

fn run(script: &Script, policy: Policy) -> Tally {
    on(script, policy, "recent-bare")
}

/// One thread gives ten pages back.
fn ten_pages() -> Script {
    let mut script = Script::default();
    script.exec().mmap(1000, 10, 0x22).write(1000..1010);
    script.call("madvise", &[("start", 1000 << 12), ("len_in", 10 << 12), ("behavior", 4)]);
    script
}

/// A second thread on CPU 1, then one gives ten pages back.
fn two_threads() -> Script {
    let mut script = Script::default();
    script.exec().mmap(1000, 10, 0x22).write(1000..1010);
    script.one("syscalls:sys_enter_clone: clone_flags: 0x3d0f00, newsp: 0x0");
    script.one("sched:sched_process_fork: comm=prog pid=1 child_comm=prog child_pid=2");
    script.one("syscalls:sys_exit_clone: 0x2");
    script.at(1, (1, 2), "exceptions:page_fault_user: address=0x3e8000 ip=0x1 error_code=0x4");
    script
}

fn dontneed(script: &mut Script) {
    script.call("madvise", &[("start", 1000 << 12), ("len_in", 10 << 12), ("behavior", 4)]);
}

fn switch(prev: i32, next: i32) -> String {
    let prev = format!("prev_comm=a prev_pid={prev} prev_prio=120 prev_state=S");
    format!("sched:sched_switch: {prev} ==> next_comm=b next_pid={next} next_prio=120")
}

fn ceiling(pages: u32) -> Policy {
    Policy { range: RangeRule::Ceiling { pages, compare: Compare::Above }, ..linux() }
}

#[test]
fn the_ceiling_decides_between_pages_and_everything() {
    let script = ten_pages();
    let (by_page, whole) = (run(&script, ceiling(10)), run(&script, ceiling(9)));
    assert_eq!(by_page.bill.count(CostItem::Page) - whole.bill.count(CostItem::Page), 10);
    assert_eq!(whole.bill.count(CostItem::Flush) - by_page.bill.count(CostItem::Flush), 1);
    let prices = Prices::new(&machine("recent-bare"));
    assert!(by_page.bill.cost(CostPart::Flushing, &prices).low > whole.bill.cost(CostPart::Flushing, &prices).low);
}

#[test]
fn another_cpu_that_runs_the_space_is_asked_and_certainly_needed() {
    let mut script = two_threads();
    dontneed(&mut script);
    let tally = run(&script, linux());
    assert_eq!((tally.interrupts, tally.of(FlushReason::RemoteShootdown)), (1, 1));
    assert_eq!((tally.needed_interrupts.low, tally.needed_interrupts.high), (1, 1));
    assert_eq!(tally.bill.count(CostItem::Send), 1);
}

#[test]
fn one_that_is_idle_is_spared_by_lazy_mode() {
    let mut script = two_threads();
    script.at(1, (1, 2), &switch(2, 0));
    dontneed(&mut script);
    assert_eq!(run(&script, linux()).interrupts, 0);
    let eager = Policy { lazy: Lazy::InterruptOnce, ..Policy::preset("linux-3.4").expect("a preset") };
    assert_eq!(run(&script, eager).interrupts, 1);
}

/// The same, and the second thread's CPU has gone on to another process.
fn left_behind() -> Script {
    let mut script = two_threads();
    script.at(1, (1, 2), &switch(2, 9));
    script.at(1, (9, 9), "exceptions:page_fault_user: address=0x1000 ip=0x1 error_code=0x6");
    script
}

/// Others asked, and CPUs that found themselves elsewhere, by Linux's own preset.
fn asked(script: &Script) -> (u64, u64) {
    let tally = run(script, linux());
    (tally.of(FlushReason::RemoteSendIpi), tally.of(FlushReason::RemoteWrongCpu))
}

#[test]
fn a_cpu_that_is_asked_though_it_runs_something_else_leaves_the_set() {
    const ASK: &str = "tlb:tlb_flush: pages:10 reason:remote IPI send (4)";
    const SEND: &str = "csd:csd_queue_cpu: cpu=1 callsite=on_each_cpu_cond_mask+0x20 func=flush_tlb_func csd=0x1";
    let mut script = left_behind();
    (0..2).for_each(|_| dontneed(script.write(1000..1010)));
    assert_eq!(asked(&script), (2, 0), "it is not interrupted, and stays in the set");
    let mut script = left_behind();
    script.one("syscalls:sys_enter_madvise: start: 0x3e8000, len_in: 0xa000, behavior: 0x4").one(ASK).one(SEND);
    dontneed(script.one("syscalls:sys_exit_madvise: 0x0").write(1000..1010));
    assert_eq!(asked(&script), (1, 1));
    let mut script = left_behind();
    script.mmap(2000, 9, 0x2).fault([2000], 4).fault([2000], 7).one(ASK).one(SEND);
    dontneed(&mut script);
    assert_eq!(asked(&script), (1, 1), "for the copy of a page as for a call");
}

/// The kernel asks the CPU while it still has the space, and the answer comes when that CPU has been switched.
#[test]
fn a_request_that_finds_its_cpu_switched_meanwhile_finds_it_gone() {
    let wrong = |switches: bool| {
        let mut script = two_threads();
        script.at(0, (9, 9), "exceptions:page_fault_user: address=0x1000 ip=0x1 error_code=0x6");
        script.one("syscalls:sys_enter_madvise: start: 0x3e8000, len_in: 0xa000, behavior: 0x4");
        script.one("tlb:tlb_flush: pages:10 reason:remote IPI send (4)");
        script.one("csd:csd_queue_cpu: cpu=1 callsite=on_each_cpu_cond_mask+0x20 func=flush_tlb_func csd=0x1");
        let answers = if switches { (9, 9) } else { (1, 2) };
        if switches {
            script.at(1, (1, 2), &switch(2, 9));
        }
        script.at(1, answers, "csd:csd_function_entry: func=flush_tlb_func csd=0x1");
        script.at(1, answers, "csd:csd_function_exit: func=flush_tlb_func csd=0x1");
        let tally = run(script.one("syscalls:sys_exit_madvise: 0x0"), linux());
        (tally.interrupts, tally.of(FlushReason::RemoteWrongCpu), tally.of(FlushReason::RemoteShootdown))
    };
    assert_eq!(wrong(true), (1, 1, 0));
    assert_eq!(wrong(false), (1, 0, 1));
}

#[test]
fn an_older_space_that_asked_others_had_been_elsewhere() {
    let older = |record: &str| {
        let mut script = Script::default();
        script.at(1, (9, 9), "exceptions:page_fault_user: address=0x1000 ip=0x1 error_code=0x6");
        script.one("syscalls:sys_enter_madvise: start: 0x3e8000, len_in: 0xa000, behavior: 0x4").one(record);
        script.one("tlb:tlb_flush: pages:10 reason:local MM shootdown (3)").one("syscalls:sys_exit_madvise: 0x0");
        script
    };
    assert_eq!(asked(&older("tlb:tlb_flush: pages:10 reason:remote IPI send (4)")).0, 1);
    assert_eq!(asked(&older("irq_vectors:call_function_single_entry: vector=251")).0, 0);
}

#[test]
fn a_tag_that_was_kept_at_the_first_switch_had_been_filled_before() {
    let kept = |record: &str| {
        let mut script = Script::default();
        script.one(&switch(1, 9)).at(0, (1, 1), record);
        script.at(0, (9, 9), "exceptions:page_fault_user: address=0x1000 ip=0x1 error_code=0x6");
        run(&script, linux()).sized(FlushReason::TaskSwitch, FlushSize::Pages(0))
    };
    assert_eq!(kept("tlb:tlb_flush: pages:0 reason:flush on task switch (0)"), 1);
    assert_eq!(kept("tlb:tlb_flush: pages:-1 reason:flush on task switch (0)"), 0);
}

#[test]
fn isolation_writes_cr3_twice_for_each_way_into_the_kernel() {
    let keeps = |faults: u64, isolation| {
        let mut script = Script::default();
        script.exec().write(1000..1000 + faults);
        run(&script, Policy { isolation, ..linux() }).bill.count(CostItem::Keep)
    };
    assert_eq!(keeps(200, Isolation::On) - keeps(100, Isolation::On), 200);
    assert_eq!(keeps(200, Isolation::Off), 0);
}

#[test]
fn without_tags_each_switch_loses_what_faults_filled() {
    let mut script = Script::default();
    script.exec().write(1000..1100);
    script.one(&switch(1, 9)).at(0, (9, 9), "exceptions:page_fault_user: address=0x1000 ip=0x1 error_code=0x6");
    script.at(0, (9, 9), &switch(9, 1)).fault([1000], 4);
    let lost = |tags| run(&script, Policy { tags, ..linux() }).entries_lost;
    let (tagged, untagged) = (lost(Tags::RoundRobin(6)), lost(Tags::Off));
    assert_eq!((tagged.low, untagged.low), (0, 101));
    assert!(untagged.high >= untagged.low);
}

#[test]
fn every_cycle_has_its_caller_and_policies_replayed_together_count_as_alone() {
    let mut script = two_threads();
    dontneed(&mut script);
    let all: Vec<Policy> = tlbkit::PRESETS.iter().map(|preset| preset.policy).collect();
    let together = replay(&script.read(), &all, &machine("recent-bare")).expect("a trace in memory");
    for (policy, together) in all.into_iter().zip(together) {
        assert_eq!(together, run(&script, policy));
        let parts: u64 = together.by_caller.values().map(|caller| caller.bill.count(CostItem::Page)).sum();
        assert_eq!(parts, together.bill.count(CostItem::Page));
    }
}

#[test]
fn one_page_empties_a_fractured_tlb() {
    let mut script = Script::default();
    script.exec().mmap(1000, 100, 0x22).write(1000..1100);
    dontneed(&mut script);
    let lost = |name| on(&script, linux(), name).entries_lost.low;
    assert_eq!((lost("recent-vm-fractured"), lost("recent-vm")), (90, 0), "all but the ten that were revoked");
}

/// The thread on CPU 1 ends, and no event tells that this CPU goes on to something else.
#[test]
fn a_space_ends_though_a_switch_is_missing() {
    let mut script = two_threads();
    script.at(1, (1, 2), "sched:sched_process_exit: comm=prog pid=2 prio=120 group_dead=false");
    script.one("sched:sched_process_exit: comm=prog pid=1 prio=120 group_dead=true");
    for preset in tlbkit::PRESETS {
        let tally = run(&script, preset.policy);
        assert!(tally.interrupts <= 1, "{}: nothing runs there any more", preset.name);
    }
}
