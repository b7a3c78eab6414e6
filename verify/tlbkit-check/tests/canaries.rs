//! Each judge has a canary: a fault of the hardware or of the kernel that it must find by itself, within seconds. One
//! that is silent here would be silent about a bug too.

use tlbkit::{Late, Policy};
use tlbkit_check::campaign::{
    self, ACCESSED, BROADCAST, BROADCAST_OTHERS, DIRECTORIES, DIRECTORIES_RETIRE, EARLY, GUEST, LATER, Plan, RECLAIM,
    RETIRE,
};
use tlbkit_check::program::Op;
use tlbkit_check::program::named::{self, Named};
use tlbkit_check::{Errata, Erratum, MachineConfig, Oracle, Scenario};

/// For each oracle: what it must find, in which program, under which policy.
const CANARIES: [(Oracle, Erratum, &str, &str); 13] = [
    (Oracle::FreedFrame, Erratum::InvlpgIgnored, "dontneed-race", "tlbkit"),
    (Oracle::FreedTable, Erratum::InvlpgKeepsPaths, "lazy-tables", "netbsd-10"),
    (Oracle::StaleTranslation, Erratum::InvlpgIgnored, "fault-around", "tlbkit"),
    (Oracle::StalePermission, Erratum::InvlpgIgnored, "protect", "tlbkit"),
    (Oracle::ForeignSpace, Erratum::Cr3Keeps, "switch-race", "netbsd-10"),
    (Oracle::UserHalf, Erratum::InvpcidSwapped, "protect", "linux-4.15-pti"),
    (Oracle::GlobalEntry, Erratum::InvlpgMissesGlobals, "kernel-window", "tlbkit"),
    (Oracle::Progress, Erratum::InterruptLost, "two-senders", "tlbkit"),
    (Oracle::Value, Erratum::InvpcidSwapped, "two-senders", "linux-4.15-pti"),
    (Oracle::LostDirty, Erratum::ExchangeHidesDirty, "large-page", "tlbkit"),
    (Oracle::Exception, Erratum::InvpcidFaults, "unmap-1-page", "tlbkit"),
    (Oracle::DeadSpace, Erratum::FreedTooEarly, "ends", "tlbkit"),
    (Oracle::Leak, Erratum::NoticeForgotten, "ends", "tlbkit"),
];
const SEEDS: u64 = 2000;

/// The first seed in which `oracle`, alone but for those that end a run, finds something.
fn first_found(oracle: Oracle, scenario: impl Fn(u64) -> Scenario) -> Option<u64> {
    (0..SEEDS).find(|&seed| {
        let scenario = Scenario { only: Some(oracle), ..scenario(seed) };
        tlbkit_check::random(&scenario, seed).finding.is_some_and(|finding| finding.oracle == oracle)
    })
}

fn plan(program: &str, policy: &str) -> Plan {
    let plan = Plan { program: Named::find(program), policy: Policy::preset(policy) };
    assert!(plan.program.is_some() && plan.policy.is_some(), "{program}, {policy}");
    plan
}

#[test]
fn each_oracle_finds_what_it_is_for() {
    for (oracle, erratum, program, policy) in CANARIES {
        let with = |errata| {
            move |seed| {
                let config = MachineConfig { errata, late: Late::Wait, ..MachineConfig::default() };
                Scenario { config, ..plan(program, policy).scenario(seed) }
            }
        };
        let found = first_found(oracle, with(Errata::NONE.with(erratum)));
        assert!(found.is_some(), "{oracle:?} is silent about {erratum:?} in {program}");
        println!("{oracle:?}: seed {found:?}");
    }
}

/// A window of three pages is none: the page tables refuse it.
#[test]
fn an_assertion_of_the_code_under_test_is_a_finding() {
    let scenario = |seed| {
        let mut scenario = plan("fault-around", "tlbkit").scenario(seed);
        scenario.program.setup.push((0, Op::FaultAround(3)));
        scenario
    };
    assert!(first_found(Oracle::Assertion, scenario).is_some());
}

#[test]
fn all_families_are_run_and_each_has_named_programs_and_others() {
    let plan = Plan::default();
    let steps = |first, count| campaign::seeds(&plan, first, count, 1, &|_| ()).steps;
    let all = steps(0, 16)
        + steps(LATER, 4)
        + steps(GUEST, 2)
        + steps(BROADCAST, 4)
        + steps(RETIRE, 2)
        + steps(DIRECTORIES, 4)
        + steps(DIRECTORIES_RETIRE, 2)
        + steps(EARLY, 4)
        + steps(ACCESSED, 2)
        + steps(RECLAIM, 2)
        + steps(BROADCAST_OTHERS, 2);
    assert_eq!(campaign::families(&plan, 0, 16, 2, &|_| ()).steps, all);
    let families = [
        (0, named::ALL),
        (LATER, named::LATER),
        (GUEST, named::GUEST),
        (BROADCAST, named::BROADCAST),
        (RETIRE, named::RETIRE),
        (DIRECTORIES, named::DIRECTORIES),
        (DIRECTORIES_RETIRE, named::DIRECTORIES_RETIRE),
        (EARLY, named::EARLY),
        (ACCESSED, named::ACCESSED),
        (RECLAIM, named::RECLAIM),
        (BROADCAST_OTHERS, named::BROADCAST_OTHERS),
    ];
    for (first, list) in families {
        let is_named = |seed| named::all().any(|named| named.program() == plan.scenario(first + seed).program);
        assert_eq!([0, 1, 2, 3].map(is_named), [true, false, true, false]);
        let taken = |named: &Named| (0..200).any(|seed| named.program() == plan.scenario(first + seed).program);
        assert!(list.iter().all(taken), "each named program has its turn");
    }
}
