//! One run: a machine, a policy, a workload and a seed give an outcome.
//!
//! The same four give the same outcome, bit by bit, on any host.

mod audit;
mod outcome;
pub(crate) mod stage;
mod steady;

use std::sync::atomic::AtomicU64;

use tlbkit::Policy;
use tlbkit_machine::{Machine, Noise};
use tlbkit_workloads::Workload;

use crate::kernel::{KernelSettings, Pressure};
use crate::multiprocessor::Defect;

pub use outcome::{ReasonCounts, RunOutcome, TlbCounters};
pub use steady::{Start, SteadyRate};

/// What to run: a machine, a policy, a workload, and where the run ends.
#[derive(Clone, Debug)]
pub struct Run<'m> {
    /// The machine.
    pub machine: &'m Machine,
    /// The protocol's policy.
    pub policy: Policy,
    /// The kernel around the protocol.
    pub kernel: KernelSettings,
    /// What runs on it.
    pub workload: Workload,
    /// CPUs; the machine file's number is only its default.
    pub cpus: usize,
    /// Guests of the host, this one included; of use only on a machine whose file has a host.
    pub guests: u64,
    /// The seed of all random numbers.
    pub seed: u64,
    /// After so many cycles [`is_over`](tlbkit_workloads::Os::is_over) is true, and long after that the run is given
    /// up; none for workloads that [end by themselves](Workload::ends_by_itself).
    pub limit_cycles: Option<u64>,
    /// How often the score is noted; never if it is none.
    pub sample_cycles: Option<u64>,
    /// Where the run notes now and then how far it has come, in cycles since it began, for a display of its progress.
    pub clock: Option<&'m AtomicU64>,
    /// Whether memory is short.
    pub pressure: Pressure,
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
            kernel: KernelSettings::default(),
            workload,
            cpus: machine.system.cpus.count(),
            guests: machine.host.as_ref().map_or(1, |host| host.guests.count() as u64),
            seed: 1,
            limit_cycles: None,
            sample_cycles: None,
            clock: None,
            pressure: Pressure::None,
            noise: Noise::Off,
            defect: Defect::None,
        }
    }
}
