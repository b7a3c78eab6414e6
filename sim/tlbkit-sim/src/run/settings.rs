//! What to run: a machine, a policy, a workload, and where the run ends.

use std::sync::atomic::AtomicU64;

use tlbkit::Policy;
use tlbkit_workloads::Workload;

use crate::kernel::{FileReads, Pressure, RegionLocks, RegionWaits};
use crate::machine::{Code, Machine, Noise, Sweep};
use crate::multiprocessor::Defect;

/// What to run.
#[derive(Clone, Debug)]
pub struct Run<'m> {
    /// The machine.
    pub machine: &'m Machine,
    /// The protocol's policy.
    pub policy: Policy,
    /// Whose instructions it is charged with, and whose lines tell other CPUs.
    pub code: Code,
    /// What runs on it.
    pub workload: Workload,
    /// CPUs; the machine file's number is only its default.
    pub cpus: usize,
    /// Where random numbers come from.
    pub seed: u64,
    /// After so many cycles [`is_over`](tlbkit_workloads::Os::is_over) is true, and long after that the run is given
    /// up; none for workloads that [end by themselves](Workload::ends_by_itself).
    pub limit_cycles: Option<u64>,
    /// How often the score is noted; never if it is none.
    pub sample_cycles: Option<u64>,
    /// Where the run notes now and then how far it has come, in cycles since it began: for whoever waits for it.
    pub clock: Option<&'m AtomicU64>,
    /// Whether memory is short.
    pub pressure: Pressure,
    /// Through what the kernel reads files: the protocol's policy says nothing of it.
    pub file_reads: FileReads,
    /// Base pages of a file that a load's fault maps at once: a power of two, at most 512. The policy says nothing of
    /// this either.
    pub fault_around: u64,
    /// Which lock those take who leave a space's regions as they are. Nor of this.
    pub region_locks: RegionLocks,
    /// How tasks wait for the lock of all regions.
    pub region_waits: RegionWaits,
    /// What becomes of a CPU's new pages before it sweeps a range, if the kernel that is meant differs there from the
    /// one whose code this is.
    pub sweep: Option<Sweep>,
    /// Whether more than the workload varies with the seed.
    pub noise: Noise,
    /// What the machine loses: nothing, but in tests.
    pub defect: Defect,
}

impl<'m> Run<'m> {
    /// A run on all CPUs of the machine, seed 1, without a limit and without noise, charged as our own code is.
    #[must_use]
    pub fn new(machine: &'m Machine, policy: Policy, workload: Workload) -> Self {
        Self {
            machine,
            policy,
            code: Code::TLBKIT,
            workload,
            cpus: machine.system.cpus.count(),
            seed: 1,
            limit_cycles: None,
            sample_cycles: None,
            clock: None,
            pressure: Pressure::None,
            file_reads: FileReads::DirectMap,
            fault_around: 1,
            region_locks: RegionLocks::OfAll,
            region_waits: RegionWaits::Spin,
            sweep: None,
            noise: Noise::Off,
            defect: Defect::None,
        }
    }
}
