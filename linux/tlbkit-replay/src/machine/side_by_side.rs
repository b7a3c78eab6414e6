//! Replays the same operations several times, under different policies. The operations are unpacked once for all of
//! them.
//!
//! Runs are replayed together if only their ceilings differ. A ceiling decides whether a CPU flushes page by page or
//! drops everything. It does not change what the protocol knows: which CPUs are asked, which generation a slot has
//! reached, and which slot a space gets. So the protocol runs once, under the highest of the ceilings. Where it flushes
//! more pages than a run's own ceiling allows, that run is taken to drop everything (`port.rs`).

use super::core::Core;
use super::state::{FIRST_ROOT, ROOT_STEP, Replay, Spared};
use super::sums::Sums;
use crate::deduce::Deduced;
use crate::op::{Caller, Op};
use crate::prices::Capacity;
use crate::tally::Tally;
use std::cell::{Cell, RefCell};
use std::io;
use tlbkit::sync::AtomicU64;
use tlbkit::{AddressSpace, Batching, Compare, CpuSetUpkeep, CpuState, Isolation, PhysAddr, Policy, RangeRule};
use tlbkit::{SpaceToken, Tlb};
use tlbkit_machine::Machine;

const KERNEL_ROOT: PhysAddr = PhysAddr(0x1000);

/// One of several replays of a trace.
#[derive(Clone, Copy)]
pub struct Run<'r> {
    /// The policy under which it runs.
    pub policy: Policy,
    /// Which work of each caller is left out. None if nothing is.
    pub spared: Option<&'r dyn Fn(Caller) -> Spared>,
}

impl Run<'_> {
    /// A replay under `policy` of everything that the trace asks.
    #[must_use]
    pub const fn of(policy: Policy) -> Self {
        Self { policy, spared: None }
    }

    fn spares(&self, who: Caller) -> Spared {
        self.spared.map_or(Spared::Nothing, |spared| spared(who))
    }

    fn has(&self, op: &Op) -> bool {
        self.spared.is_none() || op.pattern().is_none() || self.spares(op.caller()) != Spared::Calls
    }
}

/// Runs that are replayed together: their indices among all runs, the one with the lowest ceiling first.
struct Group<'r> {
    run: Run<'r>,
    ceilings: Vec<u32>,
    places: Vec<usize>,
}

/// The ceiling of the run's policy, if the run can be replayed together with others. None if the policy decides by more
/// than the ceiling whether a flush goes page by page.
fn free_ceiling(run: &Run<'_>, capacity: Capacity) -> Option<u32> {
    let policy = &run.policy;
    // Under isolation the user half is flushed in a way of its own, a packet has its own limit, and if one INVLPG
    // empties the TLB, a run with a lower ceiling may hold more.
    let is_free = policy.isolation == Isolation::Off
        && !matches!(policy.history.batching, Batching::Packet(_))
        && !capacity.is_fractured
        && run.spared.is_none();
    match policy.range {
        RangeRule::Ceiling { pages, compare: Compare::Above } if is_free => Some(pages),
        _ => None,
    }
}

fn with_ceiling(policy: Policy, pages: u32) -> Policy {
    Policy { range: RangeRule::Ceiling { pages, compare: Compare::Above }, ..policy }
}

fn groups<'r>(runs: &[Run<'r>], capacity: Capacity) -> Vec<Group<'r>> {
    let mut groups: Vec<Group<'r>> = Vec::new();
    for (place, run) in runs.iter().enumerate() {
        let ceiling = free_ceiling(run, capacity);
        let alike = ceiling.and_then(|ceiling| {
            let is_alike = |group: &&mut Group<'r>| {
                free_ceiling(&group.run, capacity).is_some() && with_ceiling(group.run.policy, ceiling) == run.policy
            };
            Some((ceiling, groups.iter_mut().find(is_alike)?))
        });
        let Some((ceiling, group)) = alike else {
            groups.push(Group { run: *run, ceilings: vec![ceiling.unwrap_or(u32::MAX)], places: vec![place] });
            continue;
        };
        let at = group.ceilings.partition_point(|&other| other <= ceiling);
        group.ceilings.insert(at, ceiling);
        group.places.insert(at, place);
        group.run.policy = with_ceiling(run.policy, *group.ceilings.last().expect("just inserted"));
    }
    groups
}

/// Groups those of `runs` that can be replayed together on `machine`. Each group is a list of indices into `runs`. If
/// [`replay_each`] gets the runs of one group at once, they take little longer than one of them.
#[must_use]
pub fn alike(machine: &Machine, runs: &[Run<'_>]) -> Vec<Vec<usize>> {
    groups(runs, Capacity::new(machine)).into_iter().map(|group| group.places).collect()
}

/// The memory of the protocol in one replay.
struct Memory {
    states: Vec<CpuState>,
    matrix: Vec<AtomicU64>,
    sets: Vec<AtomicU64>,
}

impl Memory {
    fn new(deduced: &Deduced) -> Self {
        let cpus = deduced.cpus as usize;
        let zeros = |words: usize| (0..words).map(|_| AtomicU64::new(0)).collect::<Vec<_>>();
        Self {
            states: (0..cpus).map(|_| CpuState::new()).collect(),
            matrix: zeros(Tlb::matrix_words(cpus)),
            sets: zeros(AddressSpace::set_words(cpus) * deduced.spaces as usize),
        }
    }
}

/// Does what `deduced` asks on `machine`, once for each of `runs`, and returns what each of them counted, in the order
/// of `runs`.
///
/// # Errors
/// If the operations cannot be read from their temporary file.
pub fn replay_each(
    deduced: &Deduced,
    machine: &Machine,
    runs: &[Run<'_>],
    mut take: impl FnMut(usize, Tally),
) -> io::Result<()> {
    let groups = groups(runs, Capacity::new(machine));
    let memories: Vec<Memory> = groups.iter().map(|_| Memory::new(deduced)).collect();
    let new = |(group, memory)| Replay::new(deduced, machine, group, memory);
    let replays: Vec<Replay<'_>> = groups.iter().zip(&memories).map(new).collect();
    deduced.ops.each_block(|ops| {
        for (group, replay) in groups.iter().zip(&replays) {
            ops.iter().filter(|op| group.run.has(op)).for_each(|op| replay.step(op));
        }
    })?;
    for (group, replay) in groups.iter().zip(replays) {
        let sums = replay.finish(deduced, |who| group.run.spares(who));
        group.places.iter().enumerate().for_each(|(run, &place)| take(place, sums.of(run)));
    }
    Ok(())
}

/// The policy, without trimming by generations: the trace itself shows when Linux 6 trims CPU sets.
fn as_the_trace_shows(policy: Policy) -> Policy {
    match policy.cpu_set {
        CpuSetUpkeep::TrimmedWithTables { .. } => {
            Policy { cpu_set: CpuSetUpkeep::TrimmedWithTables { every: 0 }, ..policy }
        }
        _ => policy,
    }
}

impl<'k> Replay<'k> {
    fn new(deduced: &'k Deduced, machine: &Machine, group: &Group<'_>, memory: &'k Memory) -> Self {
        let Memory { states, matrix, sets } = memory;
        let tlb = Tlb::new(states, matrix, KERNEL_ROOT, as_the_trace_shows(group.run.policy));
        let make = |(n, set)| {
            let root = PhysAddr(FIRST_ROOT + n as u64 * ROOT_STEP);
            AddressSpace::new(tlb.fresh_id(), SpaceToken(n as u64), root, set)
        };
        let words = AddressSpace::set_words(states.len());
        let runs = group.ceilings.len();
        let replay = Self {
            spaces: sets.chunks(words).enumerate().map(make).collect(),
            cores: (0..states.len()).map(|_| Core::new(runs)).collect(),
            sums: RefCell::new(Sums::new(runs)),
            ceilings: group.ceilings.clone(),
            whole: Cell::new(0),
            capacity: Capacity::new(machine),
            most_pages: &deduced.most_pages,
            now_ns: Cell::new(0),
            who: Cell::new(None),
            target: Cell::new(None),
            revoked: Cell::new((0, 0)),
            tlb,
        };
        replay.begin(deduced);
        replay.sums.replace(Sums::new(runs));
        replay
    }

    /// What was counted, when all operations have been done.
    fn finish(self, deduced: &Deduced, spares: impl Fn(Caller) -> Spared) -> Sums {
        for charge in &deduced.memory {
            self.charge_memory(charge, charge.sparer.map_or(Spared::Nothing, &spares));
        }
        for cpu in 0..deduced.cpus {
            self.pass(cpu);
            self.port(cpu).end();
        }
        let mut sums = self.sums.into_inner();
        for core in &self.cores {
            sums.all.busy_ns = sums.all.busy_ns.saturating_add(core.busy_ns.get());
            sums.all.asked_busy_ns = sums.all.asked_busy_ns.saturating_add(core.asked_busy_ns.get());
        }
        sums
    }
}
