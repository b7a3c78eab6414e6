//! What a run gives: its score and time, and what machine, kernel and protocol counted.

use std::collections::BTreeMap;

use serde::de::Error;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use tlbkit::{CpuStats, Place, Reason};

use super::Run;
use super::steady::{self, Start, SteadyRate};
use crate::kernel::Kernel;
use crate::lines::LineCounters;
use crate::mmu::{self, Loss};
use crate::multiprocessor::Multiprocessor;
use crate::observer::{Bounds, Cause, FlushCounters, FlushSize, IpiCounters, KernelCounters, Ledger, Sample};

/// Translation counters of all CPUs.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct TlbCounters {
    /// Accesses.
    pub accesses: u64,
    /// Accesses that the first level could not answer.
    pub l1_misses: u64,
    /// Of those, accesses that the second level answered.
    pub stlb_hits: u64,
    /// Page walks.
    pub walks: u64,
    /// Their cycles.
    pub walk_cycles: u64,
    /// Walks for pages that a flush had taken.
    pub refills: u64,
    /// Second-level entries lost, in the order of [`mmu::LossCause::ALL`]; written out as a map by the causes' names.
    #[serde(serialize_with = "by_cause", deserialize_with = "of_causes")]
    pub lost: [u64; mmu::LossCause::ALL.len()],
    /// Second-level entries lost to flushes that did not name their page.
    pub collateral: u64,
}

fn by_cause<S: Serializer>(lost: &[u64; mmu::LossCause::ALL.len()], serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_map(mmu::LossCause::ALL.into_iter().zip(lost))
}

fn of_causes<'a, D: Deserializer<'a>>(deserializer: D) -> Result<[u64; mmu::LossCause::ALL.len()], D::Error> {
    let by_cause = BTreeMap::<mmu::LossCause, u64>::deserialize(deserializer)?;
    Ok(mmu::LossCause::ALL.map(|cause| by_cause.get(&cause).copied().unwrap_or_default()))
}

/// What the protocol counted for one reason, all CPUs together.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct ReasonCounts {
    /// The reason.
    #[serde(serialize_with = "by_name", deserialize_with = "of_name")]
    pub reason: Reason,
    /// Flushes of user addresses on the CPU that asked.
    pub local: u64,
    /// Interrupts sent.
    pub remote: u64,
    /// Flushes of kernel addresses on the CPU that asked.
    pub kernel: u64,
}

/// Writes a reason, whose crate knows nothing of serde, as its name.
fn by_name<S: Serializer>(reason: &Reason, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(&name_of(*reason))
}

fn of_name<'a, D: Deserializer<'a>>(deserializer: D) -> Result<Reason, D::Error> {
    let name = String::deserialize(deserializer)?;
    let reason = Reason::ALL.into_iter().find(|&reason| name_of(reason) == name);
    reason.ok_or_else(|| D::Error::custom(format!("no reason {name}")))
}

/// In small letters: `remove_pte`.
fn name_of(reason: Reason) -> String {
    let mut name = String::new();
    for letter in format!("{reason:?}").chars() {
        if letter.is_uppercase() && !name.is_empty() {
            name.push('_');
        }
        name.push(letter.to_ascii_lowercase());
    }
    name
}

/// The counts of each reason; none for a run that was not counted.
fn reasons(stats: &[CpuStats]) -> Vec<ReasonCounts> {
    if stats.is_empty() {
        return Vec::new();
    }
    let sum = |reason, place| stats.iter().map(|one| one.events(reason, place)).sum();
    let counts = |reason: Reason| ReasonCounts {
        reason,
        local: sum(reason, Place::Local),
        remote: sum(reason, Place::Remote),
        kernel: sum(reason, Place::Kernel),
    };
    Reason::ALL.map(counts).to_vec()
}

/// One run's result. What is read again lacks the fields that are not written out.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct RunOutcome {
    /// What the workload counted.
    pub score: u64,
    /// Cycles from the first task's start to the last task's end.
    pub elapsed_cycles: u64,
    /// Cycles up to which every CPU is accounted for: the elapsed cycles, or more if a CPU was in an interrupt when the
    /// last task ended. The accounts of each CPU add up to this.
    #[serde(skip)]
    pub accounted_cycles: u64,
    /// The elapsed cycles in seconds of the machine's clock.
    pub elapsed_seconds: f64,
    /// Score a second of the whole run, from its start to the end of its last task. For a run of a given time it is not
    /// the rate: see [`rate`](Self::rate).
    pub score_per_second: f64,
    /// Whether the run went on for longer than its start.
    pub start: Start,
    /// The rate after the start, if that is over.
    pub steady: Option<SteadyRate>,
    /// The rate after the start, or of the second half of a run whose start was not over.
    #[serde(skip)]
    pub latest: Option<SteadyRate>,
    /// Cycles by cause and class, all CPUs together.
    pub ledger: Ledger,
    /// Cycles by cause and class, CPU by CPU.
    pub ledger_by_cpu: Vec<Ledger>,
    /// What the translation hardware of all CPUs counted.
    pub tlb: TlbCounters,
    /// Interrupts between CPUs.
    pub ipis: IpiCounters,
    /// Flushes, and what perfect knowledge would have left out.
    pub flushes: FlushCounters,
    /// What each idea could save at most.
    pub bounds: Bounds,
    /// Flushes by size.
    pub sizes: Vec<FlushSize>,
    /// The kernel.
    pub kernel: KernelCounters,
    /// Shared cache lines.
    pub lines: LineCounters,
    /// Flushes by reason, where the policy counts them.
    pub reasons: Vec<ReasonCounts>,
    /// The score as time went by, where the run asked for it.
    #[serde(skip)]
    pub samples: Vec<Sample>,
    /// Frames of page tables still in use at the end: those of the kernel.
    pub tables_left: u64,
    /// Frames of data still in use at the end: files and the page of zeros.
    pub data_left: u64,
}

impl RunOutcome {
    pub(super) fn of(kernel: &Kernel, stats: &[CpuStats], run: &Run<'_>) -> Self {
        let frequency_mhz = run.machine.system.frequency_mhz.value;
        let machine = kernel.machine();
        let observer = machine.observer();
        let elapsed_cycles = kernel.ended_at();
        let elapsed_seconds = elapsed_cycles as f64 / (frequency_mhz * 1e6);
        let (score, samples) = (observer.score(), observer.take_samples());
        let ledger_by_cpu: Vec<_> = (0..machine.cpus()).map(|cpu| machine.processor(cpu).ledger()).collect();
        let mut ledger = Ledger::default();
        ledger_by_cpu.iter().for_each(|one| ledger.add(one));
        let (tables_left, data_left) = kernel.frames_used();
        let in_time = samples.partition_point(|sample| run.limit_cycles.is_none_or(|limit| sample.cycles <= limit));
        let (start, latest) = match run.sample_cycles {
            Some(_) => steady::judge(&samples[..in_time], frequency_mhz),
            None => (Start::NotAsked, None),
        };
        Self {
            score,
            elapsed_cycles,
            accounted_cycles: machine.processor(0).now(),
            elapsed_seconds,
            score_per_second: if elapsed_cycles == 0 { 0.0 } else { score as f64 / elapsed_seconds },
            start,
            steady: latest.filter(|_| start == Start::Over),
            latest,
            ledger,
            ledger_by_cpu,
            tlb: translations(machine),
            ipis: observer.ipis(),
            flushes: observer.flushes(),
            bounds: observer.bounds(),
            sizes: observer.sizes(),
            kernel: observer.kernel(),
            lines: machine.line_counters(),
            reasons: reasons(stats),
            samples,
            tables_left: tables_left as u64,
            data_left: data_left as u64,
        }
    }

    /// Score a second: after the start of the run, or of the whole run if it took no samples, as such a run does a
    /// given amount of work. None if the start was not over.
    #[must_use]
    pub fn rate(&self) -> Option<f64> {
        match self.start {
            Start::NotAsked => Some(self.score_per_second),
            _ => self.steady.map(|steady| steady.score_per_second),
        }
    }

    /// Cycles of one cause, all CPUs together.
    #[must_use]
    pub fn cycles(&self, cause: Cause) -> u64 {
        self.ledger.of(cause)
    }
}

fn translations(machine: &Multiprocessor) -> TlbCounters {
    let mut sum = TlbCounters::default();
    for cpu in 0..machine.cpus() {
        let mmu = machine.processor(cpu).mmu();
        let one = mmu.counters();
        sum.accesses += one.accesses;
        sum.l1_misses += one.l1_misses;
        sum.stlb_hits += one.stlb_hits;
        sum.walks += one.walks;
        sum.walk_cycles += one.walk_cycles;
        sum.refills += one.refills;
        sum.collateral += one.collateral.stlb;
        for cause in mmu::LossCause::ALL {
            let Loss { stlb, .. } = one.lost[cause];
            sum.lost[cause as usize] += stlb;
        }
    }
    sum
}
