//! Whole machines: deterministic, live, and honest about lost flushes.

use tlbkit::{Directories, Policy, Tags};
use tlbkit_machine::{MOST_CPUS, Machine};
use tlbkit_sim::Defect;
use tlbkit_sim::observer::Cause;
use tlbkit_sim::{FileReads, KernelSettings, Run, RunError, RunOutcome};
use tlbkit_workloads::Workload;

fn workload(name: &str) -> Workload {
    tlbkit_workloads::by_name(name).unwrap_or_else(|| panic!("{name} is a workload"))
}

fn policy(name: &str) -> Policy {
    Policy::preset(name).unwrap_or_else(|| panic!("{name} is a preset"))
}

fn run_on<'m>(machine: &'m Machine, name: &str, cpus: usize) -> Run<'m> {
    Run { cpus, limit_cycles: Some(3_000_000), ..Run::new(machine, policy("linux-4.14"), workload(name)) }
}

fn server() -> Machine {
    Machine::builtin("server-2018-48cpu").unwrap()
}

fn execute(run: &Run<'_>) -> RunOutcome {
    run.execute().unwrap_or_else(|error| panic!("{error}"))
}

#[test]
fn the_same_seed_gives_the_same_outcome_whatever_the_host_did_before() {
    let outcome = |garbage: usize| {
        std::thread::spawn(move || {
            let litter: Vec<Vec<u8>> = (1..garbage).map(|size| vec![1; size % 977 + 1]).collect();
            let machine = server();
            let outcome = execute(&run_on(&machine, "ebizzy-m", 6));
            drop(litter);
            format!("{outcome:?}")
        })
        .join()
        .unwrap()
    };
    assert_eq!(outcome(0), outcome(12_345));
}

#[test]
fn another_seed_gives_another_outcome() {
    let machine = server();
    let first = Run { seed: 1, ..run_on(&machine, "compile", 4) };
    let second = Run { seed: 2, ..first.clone() };
    assert_ne!(execute(&first).elapsed_cycles, execute(&second).elapsed_cycles);
}

#[test]
fn every_workload_ends_well_on_four_cpus() {
    let machine = server();
    for name in tlbkit_workloads::names() {
        let outcome = run_on(&machine, name, 4).execute();
        assert!(outcome.is_ok(), "{name}: {}", outcome.unwrap_err());
    }
}

/// Eight shells fork at the same time: each space must be known by a separate token.
#[test]
fn spaces_made_at_the_same_time_are_told_apart() {
    let machine = server();
    let mut build = workload("buildsh");
    build.set("rounds=60").unwrap();
    let outcome = execute(&Run { cpus: 8, ..Run::new(&machine, policy("linux-6.18"), build) });
    assert_eq!(outcome.score, 480);
}

#[test]
fn every_preset_runs_a_workload_that_shoots_down() {
    let machine = server();
    for preset in tlbkit::PRESETS {
        let run = Run { policy: policy(preset.name), ..run_on(&machine, "tlb-flush1", 4) };
        let outcome = run.execute().unwrap_or_else(|error| panic!("{}: {error}", preset.name));
        // Each thread uses its own file, so no table is shared.
        let interrupts = preset.policy.directories == Directories::Shared;
        assert_eq!(outcome.ipis.sent > 0, interrupts, "{}", preset.name);
    }
}

/// A CPU that waits may lose the line that it looks at, and fetch it again while it answers an interrupt: what it waits
/// for has come then, and nobody will write that line once more.
#[test]
fn what_a_waiting_cpu_answers_does_not_hide_what_it_waits_for() {
    let machine = Machine::builtin("recent-bare").unwrap();
    let mut workload = workload("mapbench-global");
    for setting in ["rounds=50", "check_fresh=1"] {
        workload.set(setting).unwrap();
    }
    for preset in ["linux-4.20", "linux-6.18"] {
        for seed in 1..=4 {
            let run = Run { cpus: 4, seed, ..Run::new(&machine, policy(preset), workload) };
            let outcome = run.execute().unwrap_or_else(|error| panic!("{preset}, seed {seed}: {error}"));
            assert_eq!(outcome.score, 800);
        }
    }
}

/// Threads start when the chunks are filled, millions of cycles into the run, on CPUs that have done nothing so far:
/// what the first thread did before must not be waited for.
#[test]
fn a_cpu_that_wakes_for_the_first_time_has_idled_until_then() {
    let machine = Machine::builtin("ivybridge-8thread").unwrap();
    let mut ebizzy = workload("ebizzy-arena-old");
    ebizzy.set("threads=3").unwrap();
    let outcome = execute(&Run { workload: ebizzy, limit_cycles: Some(10_000_000), ..run_on(&machine, "ebizzy-m", 4) });
    for ledger in &outcome.ledger_by_cpu {
        assert!(ledger.idle.of(Cause::Switch) < 100_000, "{:?}", ledger.idle);
    }
}

/// Each record of ebizzy unmaps 129 pages, and the chunk stays to the end, when its 128 go.
#[test]
fn each_page_that_is_given_back_costs_what_the_file_says() {
    const MORE_CYCLES: u64 = 4000;
    let elapsed_cycles = |rounds: u64, more_cycles: u64| {
        let mut machine = Machine::builtin("ivybridge-8thread").unwrap();
        machine.cycles.give_back_page.as_mut().unwrap().value += more_cycles as f64;
        let mut ebizzy = workload("ebizzy-mapped");
        for setting in ["threads=1".into(), "chunks=1".into(), format!("rounds={rounds}")] {
            ebizzy.set(&setting).unwrap();
        }
        execute(&Run { cpus: 1, ..Run::new(&machine, policy("linux-3.14"), ebizzy) }).elapsed_cycles
    };
    let given_back = |rounds| (elapsed_cycles(rounds, MORE_CYCLES) - elapsed_cycles(rounds, 0)) / MORE_CYCLES;
    assert_eq!([given_back(2), given_back(3)], [2 * 129 + 128, 3 * 129 + 128]);
}

/// Every write of tlb-flush1 copies a page of the file; what is zeroed are a few page tables.
#[test]
fn a_page_that_is_copied_is_not_zeroed_as_well() {
    const PAGES: u64 = 256;
    const MORE_CYCLES: u64 = 4000;
    let mut copies = workload("tlb-flush1");
    for setting in ["rounds=1".into(), format!("pages={PAGES}")] {
        copies.set(&setting).unwrap();
    }
    let elapsed_cycles = |more_cycles| {
        let mut machine = server();
        machine.cycles.zero_page.value += more_cycles as f64;
        execute(&Run { workload: copies, limit_cycles: None, ..run_on(&machine, "tlb-flush1", 1) }).elapsed_cycles
    };
    let zeroed = (elapsed_cycles(MORE_CYCLES) - elapsed_cycles(0)) / MORE_CYCLES;
    assert!((1..PAGES / 4).contains(&zeroed), "{zeroed} pages zeroed for {PAGES} copies");
}

#[test]
fn interrupts_are_sent_and_all_are_answered() {
    let machine = server();
    let outcome = execute(&run_on(&machine, "madvise1", 3));
    assert!(outcome.ipis.sent > 10, "{:?}", outcome.ipis);
    assert!(outcome.ipis.received <= outcome.ipis.sent && outcome.ipis.received + 3 >= outcome.ipis.sent);
}

/// The other thread looks at the stop page only: of all interrupts it needs the one for the store that stops it.
#[test]
fn of_the_interrupts_only_the_one_for_a_page_that_the_other_thread_holds_was_needed() {
    let machine = server();
    let interrupts = execute(&run_on(&machine, "madvise1", 2)).flushes.interrupts;
    assert!(interrupts.done > 10, "{interrupts:?}");
    assert_eq!(interrupts.needed, 1, "of {}", interrupts.done);
    let shared = execute(&run_on(&machine, "mapbench-global", 4)).flushes.interrupts;
    assert!(shared.needed > 1, "{shared:?}");
}

#[test]
fn tags_save_walks_and_time() {
    let machine = Machine::builtin("skylake-laptop-kvm").unwrap();
    let mut pingpong = workload("pingpong");
    for setting in ["pages=512", "rounds=200"] {
        pingpong.set(setting).unwrap();
    }
    let tagged = Run { cpus: 1, ..Run::new(&machine, policy("linux-4.14"), pingpong) };
    let untagged = Run { policy: Policy { tags: Tags::Off, ..tagged.policy }, ..tagged.clone() };
    let (with, without) = (execute(&tagged), execute(&untagged));
    assert!(with.tlb.walks * 10 < without.tlb.walks, "{} against {}", with.tlb.walks, without.tlb.walks);
    assert!(with.elapsed_cycles < without.elapsed_cycles);
    assert_eq!(with.score, 200);
}

/// Two threads of which one gives back a page again and again, and first looks whether the fresh one holds zero.
fn giving_back<'m>(machine: &'m Machine, check_fresh: &str) -> Run<'m> {
    let mut workload = workload("madvise1");
    workload.set(check_fresh).unwrap();
    Run { workload, ..run_on(machine, "madvise1", 2) }
}

#[test]
fn a_machine_that_loses_invalidations_is_caught() {
    let machine = server();
    let run = giving_back(&machine, "check_fresh=1");
    execute(&run);
    let error = Run { defect: Defect::InvalidationsAfter(0), ..run }.execute().unwrap_err();
    assert!(matches!(error, RunError::WrongValue { expected: 0, .. }), "{error}");
}

/// Nobody checks the fresh page here, but the other thread waits for a word on a page that it never sees change.
#[test]
fn a_run_that_a_lost_invalidation_keeps_from_ending_is_given_up() {
    let machine = server();
    let run = giving_back(&machine, "check_fresh=0");
    let error = Run { defect: Defect::InvalidationsAfter(0), ..run }.execute().unwrap_err();
    assert!(matches!(error, RunError::Overrun { tasks: 2, limit_cycles: 3_000_000, .. }), "{error}");
}

/// 2.4 thousand million cycles of counted work with few calls are no reason to give up; waiting in vain is.
#[test]
fn a_run_without_a_limit_is_given_up_only_when_nothing_comes_of_it() {
    let machine = server();
    let mut compile = workload("compile");
    for setting in ["jobs=1", "rounds=1", "flushes=4", "user_cycles=600000000"] {
        compile.set(setting).unwrap();
    }
    let run = Run { workload: compile, limit_cycles: None, ..run_on(&machine, "compile", 1) };
    assert_eq!(execute(&run).score, 4);
    let mut spinning = giving_back(&machine, "check_fresh=0");
    for setting in ["rounds=10", "spin_cycles=1000000"] {
        spinning.workload.set(setting).unwrap();
    }
    let lossy = Run { limit_cycles: None, defect: Defect::InvalidationsAfter(0), ..spinning };
    let error = lossy.execute().unwrap_err();
    assert!(matches!(error, RunError::Quiet { tasks: 2, .. }), "{error}");
}

#[test]
fn a_fault_that_no_handler_repairs_ends_the_run() {
    let machine = server();
    let run = Run { defect: Defect::RepairsAfter(3), ..run_on(&machine, "ebizzy-m", 2) };
    let error = run.execute().unwrap_err();
    assert!(matches!(error, RunError::FaultLoop { .. }), "{error}");
}

#[test]
fn a_machine_that_loses_interrupts_gets_stuck_and_says_where() {
    let machine = server();
    let run = Run { defect: Defect::InterruptsAfter(0), ..run_on(&machine, "tlb-flush1", 2) };
    let error = run.execute().unwrap_err();
    assert!(matches!(error, RunError::Stuck { .. }), "{error}");
    assert!(error.to_string().contains("FlushWait"), "{error}");
}

#[test]
fn an_impossible_number_of_cpus_is_refused() {
    let machine = server();
    assert_eq!(run_on(&machine, "madvise1", 0).execute(), Err(RunError::Cpus(0)));
    assert_eq!(run_on(&machine, "madvise1", MOST_CPUS + 1).execute(), Err(RunError::Cpus(MOST_CPUS + 1)));
}

#[test]
fn files_cost_flushes_only_where_they_are_read_through_windows() {
    let machine = server();
    let mut build = workload("buildsh");
    build.set("rounds=2").unwrap();
    let interrupts = |file_reads| {
        let kernel = KernelSettings { file_reads, ..KernelSettings::default() };
        let run = Run { workload: build, kernel, cpus: 4, ..Run::new(&machine, policy("linux-6.18"), build) };
        execute(&run).flushes.interrupts.done
    };
    let (directly, through_windows) = (interrupts(FileReads::DirectMap), interrupts(FileReads::Windows));
    assert!(directly * 10 < through_windows, "{directly} of {through_windows}");
}

/// Two threads of one core: what each executes takes longer. One thread alone is as fast as on a separate core, but
/// for what the idle CPU beside it executes before it halts.
#[test]
fn a_busy_sibling_slows_what_is_executed_and_an_idle_one_nothing() {
    let outcome = |threads: u32, percent: f64| {
        let mut machine = Machine::builtin("haswell-4770").unwrap();
        machine.software.smt_busy_percent.value = percent;
        let mut ebizzy = workload("ebizzy-arena-old");
        for setting in [format!("threads={threads}"), "rounds=20".into(), "chunks=1".into()] {
            ebizzy.set(&setting).unwrap();
        }
        execute(&Run { workload: ebizzy, cpus: 2, ..Run::new(&machine, policy("linux-4.13"), ebizzy) })
    };
    let [beside_idle, on_its_own] = [175.0, 100.0].map(|percent| outcome(1, percent));
    for cause in [Cause::User, Cause::Fault, Cause::FlushLocal] {
        assert_eq!(beside_idle.cycles(cause), on_its_own.cycles(cause), "{cause:?}");
    }
    let (slowed, alone) = (outcome(2, 175.0), outcome(2, 100.0));
    for cause in [Cause::User, Cause::Fault] {
        let ratio = slowed.cycles(cause) as f64 / alone.cycles(cause) as f64;
        assert!((1.5..1.8).contains(&ratio), "{cause:?}: {ratio}");
    }
}

/// Each page is stored to, given back and loaded. A page that another one's load has mapped as well is the file's own:
/// the store to it copies, which takes a flush more. That is all but the first of sixteen.
#[test]
fn a_load_maps_the_pages_of_a_file_around_and_the_stores_to_them_flush() {
    let machine = server();
    let flushes = |fault_around| {
        let mut workload = workload("tlb-flush1");
        ["threads=1", "pages=256", "rounds=1"].iter().for_each(|setting| workload.set(setting).unwrap());
        let kernel = KernelSettings { fault_around, ..KernelSettings::default() };
        execute(&Run { kernel, ..Run::new(&machine, policy("linux-6.18"), workload) }).flushes.flushes
    };
    assert_eq!(flushes(16) - flushes(1), 256 - 256 / 16);
}

/// In a shared file that store finds its page writable, so it takes neither fault nor flush. The thread gives its part
/// back before it is unmapped, which is one flush.
#[test]
fn a_page_of_a_shared_file_takes_one_flush_and_its_window_one_fault_more() {
    let mut machine = server();
    // So much that what a fault does besides does not count.
    machine.cycles.page_fault_entry_exit.value = 1e6;
    let outcome = |name, fault_around| {
        let mut workload = workload(name);
        ["threads=1", "pages=256", "rounds=1"].iter().for_each(|setting| workload.set(setting).unwrap());
        let kernel = KernelSettings { fault_around, ..KernelSettings::default() };
        execute(&Run { kernel, ..Run::new(&machine, policy("linux-6.18"), workload) })
    };
    let (private, shared) = (outcome("tlb-flush1", 16), outcome("tlb-flush3", 16));
    assert_eq!(private.flushes.flushes + 1 - shared.flushes.flushes, 256 - 256 / 16);
    let without = outcome("tlb-flush3", 1);
    assert_eq!(without.flushes.flushes, shared.flushes.flushes);
    let faults = shared.cycles(Cause::Fault) as f64 / without.cycles(Cause::Fault) as f64;
    assert!((0.99..1.01).contains(&(faults / (17.0 / 32.0))), "{faults}");
}

/// Two processes on one CPU read 128 pages each, 16 with a fault, into a memory of 32: the first two faults find it
/// free, and each of the 14 others needs room for 16 pages. What the first one leaves behind, 32 pages, nobody maps.
#[test]
fn one_flush_covers_a_batch_of_reclaimed_pages() {
    let machine = server();
    let outcome = |batch| {
        let mut workload = workload("reclaim");
        let settings = ["processes=1", "threads=2", "pages=64", "fit=32", "reads=1", "rounds=128", batch];
        settings.iter().for_each(|setting| workload.set(setting).unwrap());
        let kernel = KernelSettings { fault_around: 16, ..KernelSettings::default() };
        execute(&Run { kernel, cpus: 1, ..Run::new(&machine, policy("linux-4.13"), workload) })
    };
    let (each, both) = (outcome("batch=1"), outcome("batch=32"));
    assert_eq!([each.score, both.score, each.kernel.faults, both.kernel.faults], [256, 256, 16, 16]);
    assert_eq!(each.flushes.flushes - both.flushes.flushes, (14 * 16 - 32) - (7 - 1));
}

#[test]
fn a_timed_run_of_many_cpus_ends_however_long_its_tasks_take_to_end() {
    let machine = server();
    for name in ["netperf", "memcache"] {
        let run = Run { limit_cycles: Some(5_000_000), policy: policy("linux-6.18"), ..run_on(&machine, name, 1024) };
        let outcome = run.execute();
        assert!(outcome.is_ok(), "{name}: {}", outcome.unwrap_err());
    }
}
