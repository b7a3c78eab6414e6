//! The host of a guest: it takes CPUs away between any two steps and runs them again, and flushes them if it was told
//! to. What a CPU can reach while it does not run is looked at when it runs again.

use tlbkit::{HostExtent, HostFlush, KernelFlushes, Pcid, VirtAddr};

use super::Machine;
use super::core::{Mode, Progress};
use super::observation::Observation;

/// Whether the machine is a guest, and of which host.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Host {
    /// It is none.
    None,
    /// Marks CPUs that it does not run, and flushes those before it runs them, as KVM does.
    AtEntry(HostFlush),
    /// Flushes any CPU when called, and nothing that it was not named, as Hyper-V does.
    ByCall(HostFlush),
}

impl Host {
    /// Those of guests; the first only preempts.
    pub(crate) const GUESTS: [Self; 5] = [
        Self::AtEntry(HostFlush::None),
        Self::AtEntry(HostFlush::Translations),
        Self::AtEntry(HostFlush::TranslationsAndPaths),
        Self::ByCall(HostFlush::Translations),
        Self::ByCall(HostFlush::TranslationsAndPaths),
    ];

    /// What it flushes.
    pub(crate) const fn promise(self) -> HostFlush {
        match self {
            Self::None => HostFlush::None,
            Self::AtEntry(promise) | Self::ByCall(promise) => promise,
        }
    }
}

/// What the host says of one CPU, in one word.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Hosted {
    Running,
    Preempted,
    /// The CPU is flushed before it runs.
    PreemptedAndMarked,
}

/// Preemptions and non-maskable interrupts of one run, which would otherwise not end.
const UNPLANNED: u32 = 64;

impl Machine {
    /// From now on flushes of kernel addresses wait while a program of `cpu` runs.
    pub(crate) fn isolate(&mut self, cpu: usize) {
        self.kernel_flushes = KernelFlushes::AtEntry;
        self.cpus[cpu].is_isolated = true;
    }

    pub(super) fn can_be_preempted(&self, cpu: usize) -> bool {
        let core = &self.cpus[cpu];
        let is_there = core.host == Hosted::Running && core.progress != Progress::Ended;
        self.host != Host::None && is_there && self.unplanned < UNPLANNED
    }

    /// Under isolation of page tables its handler would load the kernel half first; here it comes where that is loaded.
    pub(super) fn takes_nmi(&self, cpu: usize) -> bool {
        let core = &self.cpus[cpu];
        let is_up = !matches!(core.mode, Mode::Absent | Mode::Stopped) && core.progress != Progress::Ended;
        core.is_isolated
            && self.unplanned < UNPLANNED
            && is_up
            && !core.handles_nmi
            && !core.in_nmi
            && core.pcid.0 & Pcid::USER_BIT == 0
            && core.host == Hosted::Running
    }

    /// The host takes `cpu` away; what that CPU has stored reaches memory.
    pub(super) fn preempt(&mut self, cpu: usize) {
        self.unplanned += 1;
        self.drain_cpu(cpu);
        self.cpus[cpu].host = Hosted::Preempted;
        self.log(cpu, || "is preempted by its host".to_owned());
    }

    /// The host takes the word, flushes the CPU if it was told to, and runs it.
    pub(super) fn run_again(&mut self, cpu: usize) {
        let before = std::mem::replace(&mut self.cpus[cpu].host, Hosted::Running);
        if before == Hosted::PreemptedAndMarked {
            self.flush_all_by_host(cpu);
        }
        self.log(cpu, || "is run again by its host".to_owned());
        self.walk(cpu);
        self.report(&Observation::ReachChanged { cpu });
    }

    /// The host is asked to flush `what` of `cpu`; true if it does, or has.
    pub(super) fn flush_by_host(&mut self, cpu: usize, what: HostExtent) -> bool {
        if matches!(self.host, Host::ByCall(_)) {
            self.drain_cpu(cpu); // it leaves the guest for a moment, if it is there
        }
        match (self.host, what) {
            (Host::None, _) => return false,
            (Host::AtEntry(_), _) if self.cpus[cpu].host == Hosted::Running => return false,
            (Host::AtEntry(_), _) => self.cpus[cpu].host = Hosted::PreemptedAndMarked,
            (Host::ByCall(_), HostExtent::Everything) => self.flush_all_by_host(cpu),
            (Host::ByCall(_), HostExtent::Range { start, pages, bytes }) => {
                let is_named = |page: &tlbkit_arch::Translation| {
                    (0..u64::from(pages)).any(|n| page.covers(VirtAddr(start.0.wrapping_add(n * bytes))))
                };
                self.cpus[cpu].tlb.entries.retain(|entry| !is_named(&entry.page));
            }
        }
        self.walk(cpu);
        true
    }

    fn flush_all_by_host(&mut self, cpu: usize) {
        let has_paths = self.host.promise() == HostFlush::TranslationsAndPaths;
        let tlb = &mut self.cpus[cpu].tlb;
        tlb.entries.clear();
        if has_paths {
            tlb.paths.clear();
        }
    }
}
