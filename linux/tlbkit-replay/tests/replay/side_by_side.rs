//! Replays that go through the operations side by side count what each counts alone, and those that differ in their
//! ceilings alone are one.

use crate::common::Script;
use proptest::prelude::*;
use std::path::Path;
use tlbkit::{Compare, Isolation, PRESETS, Policy, RangeRule, Tags};
use tlbkit_machine::Machine;
use tlbkit_replay::{Caller, Deduced, Paging, Run, Spared, Tally, alike, read, replay, replay_each, replay_sparing};

const CEILINGS: [u32; 7] = [513, 0, 33, 1, 8, 33, 2];

fn machine(name: &str) -> Machine {
    Machine::builtin(name).expect("a machine")
}

fn with_ceiling(policy: Policy, pages: u32) -> Policy {
    Policy { range: RangeRule::Ceiling { pages, compare: Compare::Above }, ..policy }
}

/// `policy` under each ceiling, and with other tags and isolation.
fn policies(policy: Policy) -> Vec<Policy> {
    let others = [policy, Policy { tags: Tags::Off, ..policy }, Policy { isolation: Isolation::On, ..policy }];
    CEILINGS.map(|pages| with_ceiling(policy, pages)).into_iter().chain(others).collect()
}

fn assert_same(deduced: &Deduced, machine: &Machine, policies: &[Policy]) {
    let runs: Vec<_> = policies.iter().map(|policy| Run::of(*policy)).collect();
    let mut together: Vec<Option<Tally>> = vec![None; runs.len()];
    replay_each(deduced, machine, &runs, |place, tally| together[place] = Some(tally)).expect("readable");
    for (policy, together) in policies.iter().zip(together) {
        let alone = replay(deduced, *policy, machine).expect("readable");
        assert!(together.as_ref() == Some(&alone), "{policy:?}: together {together:#?}, alone {alone:#?}");
    }
}

#[test]
fn the_shared_traces_are_counted_alike() {
    for name in ["build-zlib.script.txt.zst", "stress-ng-tlb-shootdown.script.txt.zst"] {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tlbkit-trace/tests/data").join(name);
        let recording = read(|| tlbkit_trace::open(&path), Paging::AsRecorded).expect("the shared trace");
        assert_same(&recording.deduced, &machine("recent-vm"), &policies(Policy::preset("linux-6.18").unwrap()));
    }
}

#[test]
fn ceilings_are_one_replay_where_they_can_be() {
    let linux = Policy::preset("linux-6.18").unwrap();
    let places = |machine: &Machine, policies: &[Policy]| {
        alike(machine, &policies.iter().map(|policy| Run::of(*policy)).collect::<Vec<_>>())
    };
    // In the order of the ceilings, with the preset's own 33 among them.
    let together = [vec![1, 3, 6, 4, 2, 5, 7, 0], vec![8], vec![9]];
    assert_eq!(places(&machine("recent-vm"), &policies(linux)), together);
    assert_eq!(places(&machine("recent-vm-fractured"), &policies(linux)).len(), 10);
    let isolated = CEILINGS.map(|pages| with_ceiling(Policy { isolation: Isolation::On, ..linux }, pages));
    assert_eq!(places(&machine("recent-vm"), &isolated).len(), CEILINGS.len());
}

#[test]
fn what_is_spared_is_spared_in_its_own_run_alone() {
    let mut script = Script::default();
    script.exec().mmap(1000, 20, 0x22).write(1000..1010);
    script.call("madvise", &[("start", 1000 << 12), ("len_in", 20 << 12), ("behavior", 4)]).write(1005..1015);
    let (deduced, machine) = (script.read(Paging::AsRecorded).deduced, machine("recent-vm"));
    let policy = Policy::preset("linux-6.18").unwrap();
    let spares = |who: Caller| if who.pattern.is_some() { Spared::Calls } else { Spared::Nothing };
    let runs = [Run::of(policy), Run { policy, spared: Some(&spares) }];
    let mut together = Vec::new();
    replay_each(&deduced, &machine, &runs, |place, tally| together.push((place, tally))).expect("readable");
    let alone = [replay(&deduced, policy, &machine), replay_sparing(&deduced, policy, &machine, spares)];
    assert_ne!(together[0].1, together[1].1);
    assert_eq!(together, alone.map(|tally| tally.expect("readable")).into_iter().enumerate().collect::<Vec<_>>());
}

/// What a thread of one of two processes does on one of two CPUs.
fn step(script: &mut Script, (what, cpu, tid, page, pages): (u8, u32, i32, u64, u64)) {
    const TIDS: [(i32, i32); 3] = [(1, 1), (1, 2), (3, 3)];
    let who = TIDS[tid as usize];
    let (start, bytes) = ((1000 + page) << 12, pages << 12);
    let call = |script: &mut Script, call: &str, arguments: &str| {
        script.at(cpu, who, &format!("syscalls:sys_enter_{call}: {arguments}"));
        script.at(cpu, who, &format!("syscalls:sys_exit_{call}: 0x0"));
    };
    match what {
        0..=3 => {
            for page in page..page + pages.min(12) {
                let address = (1000 + page) << 12;
                let fault = format!("exceptions:page_fault_user: address={address:#x} ip=0x1 error_code=0x6");
                script.at(cpu, who, &fault);
            }
        }
        4 => call(script, "madvise", &format!("start: {start:#x}, len_in: {bytes:#x}, behavior: 0x4")),
        5 => call(script, "mprotect", &format!("start: {start:#x}, len: {bytes:#x}, prot: 0x1")),
        6 => call(script, "munmap", &format!("addr: {start:#x}, len: {bytes:#x}")),
        7 => {
            script.at(cpu, who, &format!("exceptions:page_fault_user: address={start:#x} ip=0x1 error_code=0x7"));
        }
        _ => {
            let next = if what == 8 { 0 } else { TIDS[(tid as usize + 1) % 3].1 };
            let prev = format!("prev_comm=a prev_pid={} prev_prio=120 prev_state=S", who.1);
            script.at(cpu, who, &format!("sched:sched_switch: {prev} ==> next_comm=b next_pid={next} next_prio=120"));
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]
    #[test]
    fn random_traces_are_counted_alike(
        steps in proptest::collection::vec((0u8..10, 0u32..2, 0i32..3, 0u64..90, 1u64..60), 1..60),
        preset in 0..PRESETS.len(),
        machine_name in proptest::sample::select(vec!["recent-vm", "recent-vm-fractured"]),
    ) {
        let mut script = Script::default();
        script.exec().mmap(1000, 160, 0x22);
        script.one("syscalls:sys_enter_clone: clone_flags: 0x3d0f00, newsp: 0x0");
        script.one("sched:sched_process_fork: comm=prog pid=1 child_comm=prog child_pid=2");
        script.one("syscalls:sys_exit_clone: 0x2");
        steps.into_iter().for_each(|it| step(&mut script, it));
        let policy = Policy::preset(PRESETS[preset].name).expect("a preset");
        assert_same(&script.read(Paging::AsRecorded).deduced, &machine(machine_name), &policies(policy));
    }
}
