//! Many runs: seed after seed until something is found or enough have been made.

use std::cell::RefCell;
use std::num::NonZeroU32;
use std::rc::Rc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use tlbkit::{Acknowledgement, Features, Late, Policy};
use tlbkit_arch::SplitMix64;

use crate::digest;
use crate::finding::Finding;
use crate::machine::MachineConfig;
use crate::policies;
use crate::program::Program;
use crate::program::bytes::Bytes;
use crate::program::named::{self, Named};
use crate::run::{Outcome, Scenario, run};
use crate::schedule::exhaustive::Exhaustive;
use crate::schedule::pct::Pct;
use crate::schedule::random::RandomChoice;
use crate::timeline::Log;

/// What the seeds run.
#[derive(Clone, Copy, Debug, Default)]
pub struct Plan {
    /// A program with a name; if there is none, every other seed takes one of those in turn, and the rest have random
    /// ones of their own.
    pub program: Option<&'static Named>,
    /// One policy; if there is none, each seed's own: of the presets, or any other point of the space of policies.
    pub policy: Option<Policy>,
}

/// The first seed of the later family: programs that were added when seeds already had a meaning.
pub const LATER: u64 = 1 << 32;
/// Seeds of the first family for each of the later one, and of that with INVLPGB.
const TO_ONE_LATER: u64 = 4;
/// The first seed of the guests' family: programs whose CPUs are preempted, or are not to be disturbed.
pub const GUEST: u64 = 1 << 34;
/// Seeds of the first family for each of the guests'.
const TO_ONE_GUEST: u64 = 8;
/// The first seed of the family with INVLPGB, which runs the programs of all others and a few more.
pub const BROADCAST: u64 = 1 << 35;
/// The first seed of the family whose programs retire what they unmap.
pub const RETIRE: u64 = 1 << 36;
/// Seeds of the first family for each of that one.
const TO_ONE_RETIRE: u64 = 8;
/// The first seed of the family in which each CPU has its own upper page tables.
pub const DIRECTORIES: u64 = 1 << 37;
/// Seeds of the first family for each of that one.
const TO_ONE_DIRECTORIES: u64 = 4;
/// The first seed of the family with both: what is unmapped is retired, and each CPU has its own upper page tables.
pub const DIRECTORIES_RETIRE: u64 = 1 << 38;
/// Seeds of the first family for each of that one.
const TO_ONE_DIRECTORIES_RETIRE: u64 = 8;
/// The first seed of the family whose CPUs acknowledge early. It runs what the others run, one after the other, and a
/// few programs more.
pub const EARLY: u64 = 1 << 39;
/// Seeds of the first family for each of that one.
const TO_ONE_EARLY: u64 = 4;
/// The first seed of the family whose kernel takes out without a flush what no CPU has accessed.
pub const ACCESSED: u64 = 1 << 40;
/// Seeds of the first family for each of that one.
const TO_ONE_ACCESSED: u64 = 8;
/// The first seed of the family whose kernel reclaims pages of a file, and flushes when it needs their frames.
pub const RECLAIM: u64 = 1 << 41;
/// Seeds of the first family for each of that one.
const TO_ONE_RECLAIM: u64 = 8;
/// The first seed of the family that runs on machines with INVLPGB what retires, reclaims, or has directories, and a
/// few programs more.
pub const BROADCAST_OTHERS: u64 = 1 << 42;
/// Seeds of the first family for each of that one.
const TO_ONE_BROADCAST_OTHERS: u64 = 8;
/// The first seeds of those that it runs, one after the other.
const ON_BROADCAST: [u64; 4] = [RETIRE, DIRECTORIES, DIRECTORIES_RETIRE, RECLAIM];
/// The first seeds of those that run early acknowledgement too.
const FIRST: [u64; 7] = [0, LATER, GUEST, BROADCAST, RETIRE, DIRECTORIES, DIRECTORIES_RETIRE];

impl Plan {
    /// What `seed` runs.
    #[must_use]
    pub fn scenario(&self, seed: u64) -> Scenario {
        if (EARLY..ACCESSED).contains(&seed) || self.program.is_some_and(Named::acknowledges_early) {
            return self.early_scenario(seed);
        }
        if seed >= BROADCAST_OTHERS {
            return self.other_on_broadcast(seed);
        }
        let mut draws = digest::random(!seed);
        let policy = policies::draw(&mut draws);
        let features = features(draws.below(8));
        let late = late(draws.below(4));
        if (BROADCAST..RETIRE).contains(&seed) || self.program.is_some_and(Named::needs_broadcast) {
            return self.broadcast_scenario(seed, policy, late, &mut draws);
        }
        let (named, random): (&'static [Named], fn(u64) -> Program) = match seed {
            ..LATER => (named::ALL, Program::random),
            LATER..GUEST => (named::LATER, Program::random_later),
            GUEST..RETIRE => (named::GUEST, Program::random_guest),
            RETIRE..DIRECTORIES => (named::RETIRE, Program::random_retiring),
            DIRECTORIES..DIRECTORIES_RETIRE => (named::DIRECTORIES, Program::random_with_directories),
            DIRECTORIES_RETIRE..ACCESSED => (named::DIRECTORIES_RETIRE, Program::random_retiring_with_directories),
            ACCESSED..RECLAIM => (named::ACCESSED, Program::random_sparing),
            RECLAIM.. => (named::RECLAIM, Program::random_reclaiming),
        };
        let in_turn = seed.is_multiple_of(2).then(|| &named[(seed / 2) as usize % named.len()]);
        let program = self.program.or(in_turn).map_or_else(|| random(seed), Named::program);
        let config = MachineConfig { features, late, ..MachineConfig::default() };
        Scenario { config, policy: self.policy.unwrap_or(policy), program, only: None }
    }

    /// The scenario of another family, under a policy by which CPUs acknowledge early. One program in four is about
    /// that.
    fn early_scenario(&self, seed: u64) -> Scenario {
        let (group, index) = (seed % EARLY / 4, seed % 4);
        let families = FIRST.len() as u64;
        let other = Self { program: self.program.filter(|named| !named.acknowledges_early()), ..*self };
        let mut scenario = other.scenario(FIRST[(group % families) as usize] + 4 * (group / families) + index);
        let in_turn = (index == 0).then(|| &named::EARLY[(group % named::EARLY.len() as u64) as usize]);
        if let Some(named) = self.program.or(in_turn) {
            scenario.program = named.program();
        }
        scenario.policy.acknowledgement = Acknowledgement::BeforeFlush;
        scenario
    }

    /// The scenario of another family, on a machine with INVLPGB. One program in four is about both.
    fn other_on_broadcast(&self, seed: u64) -> Scenario {
        let (group, index) = (seed % BROADCAST_OTHERS / 4, seed % 4);
        let families = ON_BROADCAST.len() as u64;
        let other = Self { program: self.program.filter(|named| !named.needs_broadcast()), ..*self };
        let mut scenario = other.scenario(ON_BROADCAST[(group % families) as usize] + 4 * (group / families) + index);
        let both = named::BROADCAST_OTHERS;
        let in_turn = (index == 0).then(|| &both[(group % both.len() as u64) as usize]);
        if let Some(named) = self.program.or(in_turn) {
            scenario.program = named.program();
        }
        let mut draws = digest::random(!seed);
        scenario.policy = policies::with_broadcast(scenario.policy, &mut draws);
        scenario.config = on_broadcast(scenario.config.late, &mut draws);
        scenario
    }

    /// The same on a machine with INVLPGB.
    fn broadcast_scenario(&self, seed: u64, policy: Policy, late: Late, draws: &mut SplitMix64) -> Scenario {
        let policy = policies::with_broadcast(self.policy.unwrap_or(policy), draws);
        let config = on_broadcast(late, draws);
        let named = seed.is_multiple_of(2).then(|| named::broadcast_in_turn(seed / 2));
        let random = [Program::random, Program::random_later, Program::random_guest][(seed / 2 % 3) as usize];
        let program = self.program.or(named).map_or_else(|| random(seed), Named::program);
        Scenario { config, policy, program, only: None }
    }

    /// Runs `seed`, half of them under a PCT schedule.
    #[must_use]
    pub fn run(&self, seed: u64) -> Outcome {
        let scenario = self.scenario(seed);
        if seed % 4 < 2 {
            return run(&scenario, Box::new(RandomChoice::new(seed)), Log::none());
        }
        run(&scenario, Box::new(Pct::new(seed, scenario.program.cpus.len())), Log::none())
    }
}

/// Most CPUs have both; some have none, as before 2010, or PCIDs alone, or INVPCID alone, as in some guests.
fn features(choice: u64) -> Features {
    match choice {
        0 => Features { pcid: false, invpcid: false },
        1 => Features { pcid: true, invpcid: false },
        2 => Features { pcid: false, invpcid: true },
        _ => Features { pcid: true, invpcid: true },
    }
}

/// A machine with INVLPGB. Every CPU that has it has PCIDs.
fn on_broadcast(late: Late, draws: &mut SplitMix64) -> MachineConfig {
    let broadcast_pages = NonZeroU32::new(1 << (2 * draws.below(3)));
    let features = Features { pcid: true, invpcid: draws.below(4) != 0 };
    MachineConfig { features, broadcast_pages, late, ..MachineConfig::default() }
}

/// Most kernels wait in silence for a CPU that is late.
fn late(choice: u64) -> Late {
    if choice == 0 { Late::AskAgain } else { Late::Wait }
}

/// What `bytes` spell, which may be any: a scenario, and in what is left of them the choices for
/// [`replay`](crate::schedule::shrink::replay). The interface for fuzzers; the first byte draws the policy.
#[must_use]
pub fn spelt(bytes: &[u8]) -> (Scenario, &[u8]) {
    let mut bytes = Bytes::new(bytes);
    let policy = policies::draw(&mut digest::random(u64::from(bytes.below(u8::MAX))));
    let features = features(u64::from(bytes.below(8)));
    let late = late(u64::from(bytes.below(4)));
    let program = Program::read_any(&mut bytes);
    let config = MachineConfig { features, late, ..MachineConfig::default() };
    (Scenario { config, policy, program, only: None }, bytes.rest())
}

/// What many seeds came to.
#[derive(Clone, Debug)]
pub struct Report {
    /// Seeds run.
    pub seeds: u64,
    /// Steps of all of them.
    pub steps: u64,
    /// The lowest seed that failed, and how.
    pub failure: Option<(u64, Finding)>,
}

/// Runs the seeds from `first` on, `count` of them, on `threads` threads, and calls `progress` now and then with how
/// many are done. All seeds below one that fails are run, so the result does not depend on the threads.
#[must_use]
pub fn seeds(plan: &Plan, first: u64, count: u64, threads: usize, progress: &(dyn Fn(u64) + Sync)) -> Report {
    let (next, steps, done) = (AtomicU64::new(first), AtomicU64::new(0), AtomicU64::new(0));
    let end = AtomicU64::new(first + count);
    // Relaxed, all of them: counters of independent runs; the threads are joined before they are read.
    let work = || {
        let mut failures = Vec::new();
        loop {
            let seed = next.fetch_add(1, Ordering::Relaxed);
            // Relaxed: a seed too many does no harm.
            if seed >= end.load(Ordering::Relaxed) {
                return failures;
            }
            let outcome = plan.run(seed);
            steps.fetch_add(outcome.steps, Ordering::Relaxed); // Relaxed: as above
            if let Some(finding) = outcome.finding {
                end.fetch_min(seed, Ordering::Relaxed); // Relaxed: as above
                failures.push((seed, finding));
            }
            let done = done.fetch_add(1, Ordering::Relaxed) + 1; // Relaxed: as above
            if done.is_multiple_of(1 << 10) {
                progress(done);
            }
        }
    };
    let failure = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..threads.max(1)).map(|_| scope.spawn(work)).collect();
        let failures = threads.into_iter().flat_map(|thread| thread.join().expect("a worker does not panic"));
        failures.min_by_key(|(seed, _)| *seed)
    });
    let seeds = failure.as_ref().map_or(count, |(seed, _)| seed - first + 1);
    Report { seeds, steps: steps.into_inner(), failure }
}

/// Runs the seeds of all families: those of the first, then a quarter as many of the later one and of that with
/// INVLPGB, with directories and with early acknowledgement, and an eighth as many of the guests', of those which
/// retire, of those that go by accessed bits, of those which reclaim and of these with INVLPGB, unless the plan names
/// one program.
#[must_use]
pub fn families(plan: &Plan, first: u64, count: u64, threads: usize, progress: &(dyn Fn(u64) + Sync)) -> Report {
    let report = seeds(plan, first, count, threads, progress);
    if report.failure.is_some() || plan.program.is_some() || first >= LATER {
        return report;
    }
    let others = [
        (LATER, TO_ONE_LATER),
        (GUEST, TO_ONE_GUEST),
        (BROADCAST, TO_ONE_LATER),
        (RETIRE, TO_ONE_RETIRE),
        (DIRECTORIES, TO_ONE_DIRECTORIES),
        (DIRECTORIES_RETIRE, TO_ONE_DIRECTORIES_RETIRE),
        (EARLY, TO_ONE_EARLY),
        (ACCESSED, TO_ONE_ACCESSED),
        (RECLAIM, TO_ONE_RECLAIM),
        (BROADCAST_OTHERS, TO_ONE_BROADCAST_OTHERS),
    ];
    others.into_iter().fold(report, |report, (family, to_one)| {
        if report.failure.is_some() {
            return report;
        }
        let more = seeds(plan, family + first / to_one, count.div_ceil(to_one), threads, progress);
        Report { seeds: report.seeds + more.seeds, steps: report.steps + more.steps, failure: more.failure }
    })
}

/// What an exhaustive exploration came to.
#[derive(Clone, Debug)]
pub struct Explored {
    /// What was run: as it was given, but for its kernel's patience. A schedule that fails means that scenario.
    pub scenario: Scenario,
    /// Distinct states.
    pub states: usize,
    /// Runs from the beginning.
    pub runs: u64,
    /// Deviations allowed.
    pub bound: u8,
    /// True if all was explored within the bound.
    pub is_complete: bool,
    /// The first failure: its schedule, and how.
    pub failure: Option<(Vec<u8>, Finding)>,
}

/// Explores every schedule of `scenario` with at most `bound` deviations, in at most `most_runs` runs or until `stop`.
/// Its kernel loses patience after each round of waiting, so that no round differs from another. A schedule that was
/// found is one of that kernel: with more patience the choices fall upon other steps, and the run may not fail.
#[must_use]
pub fn exhaust(scenario: &Scenario, bound: u8, most_runs: u64, stop: &AtomicBool) -> Explored {
    let config = MachineConfig { patience_turns: 1, ..scenario.config };
    let scenario = Scenario { config, ..scenario.clone() };
    let exploration = Rc::new(RefCell::new(Exhaustive::new(bound)));
    let (mut failure, mut is_complete) = (None, false);
    // Relaxed: a wish to stop; it orders nothing.
    while failure.is_none() && !is_complete && exploration.borrow().runs < most_runs && !stop.load(Ordering::Relaxed) {
        let outcome = run(&scenario, Box::new(Rc::clone(&exploration)), Log::none());
        failure = outcome.finding.map(|finding| (outcome.choices, finding));
        is_complete = !exploration.borrow_mut().advance();
    }
    let exploration = exploration.borrow();
    Explored { scenario, states: exploration.states(), runs: exploration.runs, bound, is_complete, failure }
}
