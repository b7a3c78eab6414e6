//! The same run on both machines: what the kernel counted beside what the simulator counted.
//!
//! On one CPU every number is the same, without exception. On several, the order of events is the machine's, and with
//! it whom a flush finds running: there only what programs decide alone is the same, each case says what else is, and
//! where every other CPU spins in the space all along, each flush must interrupt them all.

use anyhow::{Context, Result, anyhow};
use std::path::Path;
use tlbkit::{Accounting, History, Isolation, Policy, Reason};
use tlbkit_machine::Machine;
use tlbkit_sim::{FileReads, Run, RunOutcome};

use super::{Boot, Ended, Threads};

/// The simulated machine; only its counts are looked at, so any without tags would do.
const MACHINE: &str = "recent-bare";

/// One run.
#[derive(Clone, Copy)]
pub(super) struct Case {
    workload: &'static str,
    settings: &'static str,
    policy: &'static str,
    isolation: Isolation,
    cpus: u32,
    /// What this workload decides alone on any number of CPUs, beside [`OnMany::Same`].
    same: &'static [&'static str],
    /// `RemovePte remote` if each flush interrupts every other CPU. Those that have not begun to spin get none: up to
    /// half may be missing, since an emulator's CPUs start when the host lets them. A boot in which more are missing is
    /// made again, with the CPUs in turns: then no other program of the host decides when they begin.
    shootdowns: Option<u64>,
    threads: Threads,
}

const fn alone(workload: &'static str, settings: &'static str, policy: &'static str) -> Case {
    let (isolation, threads) = (Isolation::Off, Threads::InTurns);
    Case { workload, settings, policy, isolation, cpus: 1, same: &[], shootdowns: None, threads }
}

const fn isolated(case: Case) -> Case {
    Case { isolation: Isolation::On, ..case }
}

const fn on(cpus: u32, same: &'static [&'static str], case: Case) -> Case {
    Case { cpus, same, ..case }
}

/// `rounds` pages given back while all other CPUs spin.
const fn spinning(cpus: u32, rounds: u64, case: Case) -> Case {
    Case { cpus, shootdowns: Some(rounds * (cpus as u64 - 1)), threads: Threads::Parallel, ..case }
}

/// Counts that are equal for a workload whose threads never touch a page at the same time.
const FLUSHES: &[&str] = &["faults", "flushes", "flush_pages", "full_flushes", "RemovePte local", "CopyOnWrite local"];
/// Counts that are equal for processes that share only what a fork leaves. If two of them write such a page, the second
/// one copies it too if it comes before the first one has released it, so flushes of one page may be more.
const NO_SHOOTDOWN: &[&str] = &["faults", "full_flushes", "RemovePte remote"];

/// Runs for an emulator that has tags.
pub(super) const WITH_TAGS: &[Case] = &[
    alone("pingpong", "rounds=30", "linux-6.18"),
    alone("lat-ctx", "processes=9,kib=16,rounds=8", "linux-4.14"),
    alone("lat-ctx", "processes=9,kib=16,rounds=8", "tlbkit"),
    isolated(alone("pingpong", "rounds=30", "linux-4.15-pti")),
    alone("buildsh", "jobs=2,rounds=1,check_fresh=1", "tlbkit"),
    isolated(alone("buildsh", "jobs=2,rounds=1,check_fresh=1", "tlbkit")),
    alone("flushsizes", "rounds=30,check_fresh=1", "freebsd-14"),
];

/// Runs for QEMU.
const CASES: &[Case] = &[
    alone("flushsizes", "rounds=300,check_fresh=1", "tlbkit"),
    alone("flushsizes", "rounds=300", "linux-3.13"),
    alone("flushsizes", "rounds=300,check_fresh=2", "netbsd-5.0"),
    alone("pingpong", "rounds=100", "linux-6.18"),
    isolated(alone("pingpong", "rounds=100", "linux-4.15-pti")),
    alone("lat-ctx", "processes=8,kib=64,rounds=20", "linux-4.14"),
    alone("buildsh", "jobs=2,rounds=3,check_fresh=1", "tlbkit"),
    alone("buildsh", "jobs=2,rounds=3", "netbsd-5.0-batched"),
    alone("buildsh", "jobs=2,rounds=3", "linux-3.4"),
    isolated(alone("buildsh", "jobs=1,rounds=3", "tlbkit")),
    alone("compile", "jobs=2,rounds=1,flushes=40,heap_pages=128", "freebsd-14"),
    alone("ebizzy-m", "threads=2,rounds=10,check_fresh=1", "linux-4.20"),
    alone("ebizzy-arena-old", "threads=2,rounds=10", "asterinas"),
    alone("tlb-flush1", "rounds=1,pages=256", "xnu"),
    alone("tlb-flush2", "rounds=2,pages=64", "netbsd-10"),
    alone("tlb-flush3", "rounds=1,pages=64", "linux-6.18"),
    alone("mapbench-local", "rounds=50,pages=4", "linux-6.18"),
    alone("mapbench-global", "threads=3,rounds=20,check_fresh=1", "tlbkit"),
    alone("netperf", "pairs=2,rounds=30", "linux-4.20"),
    alone("memcache", "rounds=30", "linux-6.18"),
    alone("reclaim", "rounds=300,pages=64,fit=48,batch=8", "tlbkit"),
    alone("reclaim", "rounds=300,pages=64,fit=48,batch=8,held=16", "luf"),
    on(2, FLUSHES, alone("mapbench-pipeline", "rounds=200,check_fresh=1", "tlbkit")),
    on(4, FLUSHES, alone("mapbench-pipeline", "rounds=200,check_fresh=1", "tlbkit")),
    on(4, FLUSHES, alone("mapbench-local", "rounds=50,pages=4,check_fresh=1", "linux-4.20")),
    // Whether two sweeps overlap, and so flush everything under linux-6.18, is a matter of time.
    on(4, &["full_flushes"], alone("mapbench-global", "rounds=50,check_fresh=1", "linux-6.18:nested=range")),
    on(4, NO_SHOOTDOWN, alone("netperf", "rounds=100", "tlbkit")),
    spinning(2, 400, alone("madvise1", "threads=2,rounds=400", "linux-6.18")),
    spinning(3, 100, alone("madvise1", "threads=3,rounds=100", "tlbkit")),
];

/// What may differ where several CPUs run.
#[derive(Clone, Copy, PartialEq, Eq)]
enum OnMany {
    /// Nothing: programs alone decide it.
    Same,
    /// All: the order of events decides it, for example which CPU idles when a task wakes.
    Order,
    /// Both are at most this, and at least half of it.
    NearlyAll(u64),
}

/// One number that both machines count.
struct Number {
    name: &'static str,
    simulated: fn(&RunOutcome) -> u64,
    on_many: OnMany,
}

const fn number(name: &'static str, simulated: fn(&RunOutcome) -> u64, on_many: OnMany) -> Number {
    Number { name, simulated, on_many }
}

const NUMBERS: &[Number] = &[
    number("score", |o| o.score, OnMany::Same),
    number("tasks", |o| o.kernel.tasks, OnMany::Same),
    number("exits", |o| o.flushes.exits, OnMany::Same),
    number("syscalls", |o| o.kernel.syscalls, OnMany::Same),
    // A CPU that still holds the last space lazily when the run ends keeps its tables.
    number("tables_left", |o| o.tables_left, OnMany::Order),
    number("data_left", |o| o.data_left, OnMany::Same),
    number("faults", |o| o.kernel.faults, OnMany::Order),
    number("flushes", |o| o.flushes.flushes, OnMany::Order),
    number("flush_pages", |o| o.flushes.flush_pages, OnMany::Order),
    number("full_flushes", |o| o.flushes.full_flushes, OnMany::Order),
    // The simulator's run is over before the switch that follows its last task; the kernel makes it.
    number("switches", |o| o.kernel.switches + 1, OnMany::Order),
    number("switches_kept", |o| o.flushes.switches_kept, OnMany::Order),
    number("switches_flushed", |o| o.flushes.switches_flushed, OnMany::Order),
    number("already_current", |o| o.flushes.already_current, OnMany::Order),
    number("wrong_space", |o| o.flushes.wrong_space, OnMany::Order),
    number("pages", |o| o.flushes.pages.done, OnMany::Order),
    number("everything", |o| o.flushes.everything.done, OnMany::Order),
    number("cr3", |o| o.flushes.cr3.done, OnMany::Order),
    number("ipis_sent", |o| o.ipis.sent, OnMany::Order),
    number("ipis_received", |o| o.ipis.received, OnMany::Order),
];

/// Runs every case under QEMU; false if a number differs that may not.
pub(super) fn run(root: &Path) -> Result<bool> {
    let kernel = super::build(root)?;
    run_all(CASES, &|case| Boot::new(case.cpus, case.threads, case.words()).run(&kernel))
}

/// Runs `cases` on the emulator that `boot` starts, and on the simulator.
pub(super) fn run_all(cases: &[Case], boot: &dyn Fn(&Case) -> Result<Ended>) -> Result<bool> {
    let mut wrong = 0;
    for case in cases {
        wrong += case.run(boot)?;
    }
    println!("\n{} runs on both machines, {wrong} numbers wrong", cases.len());
    Ok(wrong == 0)
}

impl Case {
    fn policy(&self) -> Result<Policy> {
        let preset = Policy::parse(self.policy).with_context(|| format!("policy {}", self.policy))?;
        let history = History { accounting: Accounting::On, ..preset.history };
        Ok(Policy { isolation: self.isolation, history, ..preset })
    }

    fn simulate(&self, features: tlbkit::Features) -> Result<RunOutcome> {
        let mut machine = Machine::builtin(MACHINE)?;
        (machine.features.pcid, machine.features.invpcid) = (features.pcid, features.invpcid);
        // The kernel preempts nobody.
        machine.software.time_slice_cycles.value = 1e15;
        let mut workload =
            tlbkit_workloads::by_name(self.workload).with_context(|| format!("no workload {}", self.workload))?;
        for setting in self.settings.split(',') {
            workload.set(setting).map_err(|error| anyhow!("{}: {error}", self.workload))?;
        }
        let mut run = Run::new(&machine, self.policy()?, workload);
        run.cpus = self.cpus as usize;
        // The kernel does, whatever the policy.
        run.kernel.file_reads = FileReads::Windows;
        Ok(run.execute()?)
    }

    /// CPUs that it runs on.
    pub(super) const fn cpus(&self) -> u32 {
        self.cpus
    }

    /// The kernel's command line, but for the number of CPUs.
    pub(super) fn words(&self) -> String {
        let Self { workload, settings, policy, .. } = self;
        let pti = if self.isolation == Isolation::On { "on" } else { "off" };
        format!("workload={workload} set={settings} policy={policy} with=pti={pti}+stats=on")
    }

    fn rule(&self, name: &str, on_many: OnMany) -> OnMany {
        match self.shootdowns {
            Some(most) if name == "RemovePte remote" => OnMany::NearlyAll(most),
            _ if self.same.contains(&name) => OnMany::Same,
            _ => on_many,
        }
    }

    /// False if more shootdowns are missing than a host explains that has CPUs free.
    fn has_met_the_others(&self, ended: &Ended) -> bool {
        let remote = ended.last["reasons"][Reason::RemovePte as usize]["remote"].as_u64();
        self.shootdowns.is_none_or(|most| remote.is_some_and(|count| count >= most / 2))
    }

    /// Prints both columns and returns how many numbers are wrong.
    fn run(&self, boot: &dyn Fn(&Self) -> Result<Ended>) -> Result<usize> {
        let Self { workload, settings, policy, cpus, .. } = self;
        let pti = if self.isolation == Isolation::On { ", isolated" } else { "" };
        let mut ended = boot(self)?;
        if ended.is_fine() && !self.has_met_the_others(&ended) {
            println!("\n{workload} {settings}: the host let CPUs wait that were to spin; once more, in turns");
            ended = boot(&Self { threads: Threads::InTurns, ..*self })?;
        }
        println!("\n{workload} {settings}, {policy}{pti}, {cpus} CPUs, {:.1} s", ended.seconds);
        if !ended.is_fine() {
            println!("  {}: {}", ended.kind(), ended.what());
            return Ok(1);
        }
        let has = |feature: &str| ended.last[feature].as_bool().unwrap_or(false);
        let simulated = match self.simulate(tlbkit::Features { pcid: has("pcid"), invpcid: has("invpcid") }) {
            Ok(simulated) => simulated,
            Err(error) => {
                println!("  the simulator: {error:#}   WRONG");
                return Ok(1);
            }
        };
        let mut wrong = 0;
        println!("  {:<18} {:>10} {:>10}", "", "kernel", "simulator");
        for Count { name, ours, theirs, on_many } in counts(&ended, &simulated) {
            let on_many = self.rule(&name, on_many);
            let verdict = verdict(ours, theirs, on_many, *cpus);
            wrong += usize::from(verdict == Verdict::Wrong);
            if (ours, theirs) != (Some(0), 0) {
                let ours = ours.map_or("-".to_owned(), |ours| ours.to_string());
                println!("  {name:<18} {ours:>10} {theirs:>10}{}", verdict.text());
            }
        }
        Ok(wrong)
    }
}

/// One number as both machines counted it.
struct Count {
    name: String,
    /// None if the kernel did not tell.
    ours: Option<u64>,
    theirs: u64,
    on_many: OnMany,
}

/// Every number, and what was counted by reason.
fn counts(ended: &Ended, simulated: &RunOutcome) -> Vec<Count> {
    let plain = NUMBERS.iter().map(|number| Count {
        name: number.name.to_owned(),
        ours: ended.last[number.name].as_u64(),
        theirs: (number.simulated)(simulated),
        on_many: number.on_many,
    });
    let by_reason = simulated.reasons.iter().flat_map(|row| {
        let name = format!("{:?}", row.reason);
        let ours = &ended.last["reasons"][row.reason as usize];
        [("local", row.local), ("remote", row.remote), ("kernel", row.kernel)].map(|(place, theirs)| Count {
            name: format!("{name} {place}"),
            ours: ours[place].as_u64(),
            theirs,
            on_many: OnMany::Order,
        })
    });
    plain.chain(by_reason).collect()
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Verdict {
    Same,
    Allowed,
    Wrong,
}

impl Verdict {
    const fn text(self) -> &'static str {
        match self {
            Self::Same => "",
            Self::Allowed => "   as the rule allows",
            Self::Wrong => "   WRONG",
        }
    }
}

fn verdict(ours: Option<u64>, theirs: u64, on_many: OnMany, cpus: u32) -> Verdict {
    let Some(ours) = ours else { return Verdict::Wrong };
    let is_allowed = match on_many {
        OnMany::Same => false,
        OnMany::Order => cpus > 1,
        OnMany::NearlyAll(most) => [ours, theirs].iter().all(|&count| (most / 2..=most).contains(&count)),
    };
    match (ours == theirs, on_many) {
        (true, OnMany::Same | OnMany::Order) => Verdict::Same,
        _ if is_allowed => Verdict::Allowed,
        _ => Verdict::Wrong,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn on_one_cpu_nothing_may_differ_and_on_many_only_what_order_decides() {
        for on_many in [OnMany::Same, OnMany::Order] {
            assert_eq!(verdict(Some(3), 3, on_many, 4), Verdict::Same);
            assert_eq!(verdict(Some(3), 4, on_many, 1), Verdict::Wrong);
            assert_eq!(verdict(None, 4, on_many, 4), Verdict::Wrong);
        }
        assert_eq!(verdict(Some(3), 4, OnMany::Order, 2), Verdict::Allowed);
        assert_eq!(verdict(Some(3), 4, OnMany::Same, 2), Verdict::Wrong);
        assert_eq!(verdict(Some(95), 99, OnMany::NearlyAll(100), 2), Verdict::Allowed);
        assert_eq!(verdict(Some(40), 40, OnMany::NearlyAll(100), 2), Verdict::Wrong);
    }

    #[test]
    fn every_case_names_a_workload_and_a_policy_that_exist() -> Result<()> {
        for case in CASES {
            case.policy()?;
            assert!(tlbkit_workloads::by_name(case.workload).is_some(), "{}", case.workload);
        }
        Ok(())
    }
}
