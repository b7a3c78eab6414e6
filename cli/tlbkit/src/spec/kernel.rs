//! The kernel that a preset stands for: all that is no field of its policy, as the protocol does not see it.
//!
//! Our own preset runs in a kernel like the newest Linux, with which it is compared. Where the kernel of a document
//! differs from that of the preset, the experiment's file says so.

use tlbkit_sim::Code;
use tlbkit_sim::{FileReads, KernelSettings, MmapLockWaits, PerVmaLocks};

/// Base pages of a file that Linux maps at a load's fault since 3.15.
const LINUX_FAULT_AROUND: u64 = 16;

/// What a preset is named after.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Family {
    Tlbkit,
    /// Linux with its version: the number before the point, and the one behind it.
    Linux(u32, u32),
    NetBsd,
    /// A kernel of which nothing more is known here.
    Other,
}

impl Family {
    fn of(preset: &str) -> Self {
        let version = |rest: &str| {
            let (major, minor) = rest.split_once('.')?;
            let minor = minor.split('-').next()?;
            Some(Self::Linux(major.parse().ok()?, minor.parse().ok()?))
        };
        match preset.split_once('-') {
            None if preset == "tlbkit" => Self::Tlbkit,
            Some(("linux", rest)) => version(rest).unwrap_or(Self::Other),
            Some(("netbsd", _)) => Self::NetBsd,
            _ => Self::Other,
        }
    }

    /// Whether it does what Linux does since the version `major.minor`.
    fn is_linux_since(self, major: u32, minor: u32) -> bool {
        match self {
            Self::Tlbkit => true,
            Self::Linux(own_major, own_minor) => (own_major, own_minor) >= (major, minor),
            Self::NetBsd | Self::Other => false,
        }
    }

    /// NetBSD maps windows; the others read their map of all memory.
    fn file_reads(self) -> FileReads {
        if self == Self::NetBsd { FileReads::Windows } else { FileReads::DirectMap }
    }

    /// Linux's mm/memory.c, `do_fault_around`.
    fn fault_around(self) -> u64 {
        if self.is_linux_since(3, 15) { LINUX_FAULT_AROUND } else { 1 }
    }

    /// Linux's mm/memory.c, `lock_vma_under_rcu`; `madvise(MADV_DONTNEED)` takes the lock since 6.17.
    fn per_vma_locks(self) -> PerVmaLocks {
        match () {
            () if self.is_linux_since(6, 17) => PerVmaLocks::ForFaultsAndSweeps,
            () if self.is_linux_since(6, 4) => PerVmaLocks::ForFaults,
            () => PerVmaLocks::Absent,
        }
    }

    /// Linux's lib/rwsem.c, "Implement writer lock-stealing for better scalability", and "locking/rwsem: Support
    /// optimistic spinning". The other kernels wait as the newest Linux does, as nothing is known of them here.
    fn mmap_lock_waits(self) -> MmapLockWaits {
        match self {
            Self::Linux(..) if !self.is_linux_since(3, 10) => MmapLockWaits::Fifo,
            Self::Linux(..) if !self.is_linux_since(3, 16) => MmapLockWaits::WriterStealing,
            _ => MmapLockWaits::OptimisticSpinning,
        }
    }
}

/// The kernel of the preset that `policy` names, a text as [`parse`](tlbkit_output::policy::parse) takes it.
pub(crate) fn kernel_of(policy: &str) -> KernelSettings {
    let preset = policy.split(':').next().unwrap_or_default();
    let family = Family::of(preset);
    KernelSettings {
        code: Code::of_preset(preset),
        file_reads: family.file_reads(),
        fault_around: family.fault_around(),
        per_vma_locks: family.per_vma_locks(),
        mmap_lock_waits: family.mmap_lock_waits(),
        sweep: None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_netbsd_s_presets_read_files_through_windows() {
        for preset in tlbkit::PRESETS {
            let expected = if preset.name.contains("netbsd") { FileReads::Windows } else { FileReads::DirectMap };
            assert_eq!(kernel_of(&format!("{}:lazy=off", preset.name)).file_reads, expected, "{}", preset.name);
        }
    }

    #[test]
    fn each_preset_of_linux_names_its_version() {
        for preset in tlbkit::PRESETS.iter().filter(|preset| preset.name.starts_with("linux-")) {
            assert!(matches!(Family::of(preset.name), Family::Linux(3..=9, _)), "{}", preset.name);
        }
        assert_eq!(Family::of("linux-3.13-altershift"), Family::Linux(3, 13));
    }

    #[test]
    fn faults_take_per_vma_locks_since_linux_6_4_and_sweeps_since_6_17() {
        let locks = |presets: [&str; 6]| presets.map(|preset| kernel_of(preset).per_vma_locks);
        let (absent, all) = (PerVmaLocks::Absent, PerVmaLocks::ForFaultsAndSweeps);
        assert_eq!(
            locks(["linux-4.20", "linux-6.3", "linux-6.16", "linux-6.18:ceiling=0", "tlbkit", "netbsd-10"]),
            [absent, absent, PerVmaLocks::ForFaults, all, all, absent]
        );
    }

    #[test]
    fn writers_steal_the_mmap_lock_since_linux_3_10_and_spin_since_3_16() {
        let presets = ["linux-3.4:ceiling=33", "linux-3.13-altershift", "linux-3.14", "linux-4.13", "tlbkit"];
        let (steal, spin) = (MmapLockWaits::WriterStealing, MmapLockWaits::OptimisticSpinning);
        let waits = presets.map(|preset| kernel_of(preset).mmap_lock_waits);
        assert_eq!(waits, [MmapLockWaits::Fifo, steal, steal, spin, spin]);
    }

    #[test]
    fn linux_maps_the_pages_around_since_3_15() {
        let presets = ["linux-3.4", "linux-3.14", "linux-4.13", "linux-6.18:ceiling=0", "tlbkit", "netbsd-10"];
        assert_eq!(presets.map(|preset| kernel_of(preset).fault_around), [1, 1, 16, 16, 16, 1]);
    }
}
