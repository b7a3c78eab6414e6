//! The kernel that a preset stands for: all that is no field of its policy, as the protocol does not see it.
//!
//! Our own presets run in a kernel like the newest Linux, with which they are compared. Where the kernel of a document
//! differs from that of the preset, the experiment's file says so.

use anyhow::{Context, Result, bail, ensure};
use tlbkit::{KernelFlushes, Policy};
use tlbkit_output::policy;
use tlbkit_sim::Code;
use tlbkit_sim::{FileReads, KernelSettings, MmapLockWaits, ParavirtualFlush, PerVmaLocks};

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
        let ours = ["tlbkit", "early-ack", "latr", "private-levels", "private-levels-latr", "luf", "abis"];
        if ours.contains(&preset) {
            return Self::Tlbkit;
        }
        match preset.split_once('-') {
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

    /// Linux's arch/x86/kernel/kvm.c, `kvm_flush_tlb_multi`.
    fn paravirtual_flush(self) -> ParavirtualFlush {
        if self.is_linux_since(4, 16) { ParavirtualFlush::On } else { ParavirtualFlush::Off }
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

/// What a policy's text may set besides the fields of the policy: what the kernel asks of its machine.
pub(crate) const KERNEL_KEYS: &[(&str, &str)] = &[
    ("kernel_flushes", "at-once, or at-entry: flushes of kernel addresses wait until a CPU enters the kernel"),
    ("host_flush", "on or off: whether a guest leaves CPUs that its host has taken away to the host's flush"),
];

/// The policy that a text names, `PRESET[:KEY=VALUE[+KEY=VALUE...]]`, and the kernel of that preset.
pub(crate) fn policy_and_kernel(text: &str) -> Result<(Policy, KernelSettings)> {
    let mut kernel = kernel_of(text);
    let (preset, settings) = text.split_once(':').unwrap_or((text, ""));
    let is_of_kernel = |setting: &&str| KERNEL_KEYS.iter().any(|(key, _)| setting.split('=').next() == Some(key));
    let (of_kernel, of_policy): (Vec<_>, Vec<_>) = settings.split('+').partition(is_of_kernel);
    if of_kernel.is_empty() {
        return Ok((policy::parse(text)?, kernel));
    }
    for (at, setting) in of_kernel.iter().enumerate() {
        let key = setting.split('=').next().unwrap_or_default();
        ensure!(
            !of_kernel[..at].iter().any(|before| before.split('=').next() == Some(key)),
            "policy {text}: {key} is set twice; want each setting once"
        );
        set(&mut kernel, setting).with_context(|| format!("policy {text}"))?;
    }
    let rest = if of_policy.is_empty() { preset.to_owned() } else { format!("{preset}:{}", of_policy.join("+")) };
    Ok((policy::parse(&rest)?, kernel))
}

/// Sets one of [`KERNEL_KEYS`].
pub(crate) fn set(kernel: &mut KernelSettings, setting: &str) -> Result<()> {
    match setting.split_once('=') {
        Some(("kernel_flushes", "at-once")) => kernel.kernel_flushes = KernelFlushes::AtOnce,
        Some(("kernel_flushes", "at-entry")) => kernel.kernel_flushes = KernelFlushes::AtEntry,
        Some(("host_flush", "on")) => kernel.paravirtual_flush = ParavirtualFlush::On,
        Some(("host_flush", "off")) => kernel.paravirtual_flush = ParavirtualFlush::Off,
        _ => {
            let key = setting.split('=').next().unwrap_or_default();
            let values = KERNEL_KEYS.iter().find(|(name, _)| *name == key).map_or("", |(_, values)| values);
            let values = values.split(':').next().unwrap_or_default();
            bail!("{setting}: must be {values}");
        }
    }
    Ok(())
}

/// The kernel of the preset that `policy` names, a text as [`policy_and_kernel`] takes it.
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
        kernel_flushes: KernelFlushes::AtOnce,
        paravirtual_flush: family.paravirtual_flush(),
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

    /// What they differ in is their policy alone.
    #[test]
    fn each_design_of_ours_has_the_kernel_of_ours() {
        let is_ours = |preset: &&tlbkit::Preset| {
            let Policy { unmapping, directories, acknowledgement, unaccessed, reclaim, .. } = preset.policy;
            preset.policy == Policy { unmapping, directories, acknowledgement, unaccessed, reclaim, ..Policy::DEFAULT }
        };
        let ours: Vec<_> = tlbkit::PRESETS.iter().filter(is_ours).map(|preset| preset.name).collect();
        assert_eq!(ours, ["tlbkit", "early-ack", "latr", "private-levels", "private-levels-latr", "luf", "abis"]);
        assert!(ours.iter().all(|name| Family::of(name) == Family::Tlbkit && Code::of_preset(name) == Code::TLBKIT));
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
    fn what_a_kernel_asks_of_its_machine_is_set_beside_its_policy() {
        let (policy, kernel) = policy_and_kernel("linux-6.18:lazy=off+host_flush=off+kernel_flushes=at-entry").unwrap();
        assert_eq!(policy, tlbkit::Policy { lazy: tlbkit::Lazy::Off, ..Policy::preset("linux-6.18").unwrap() });
        assert_eq!((kernel.kernel_flushes, kernel.paravirtual_flush), (KernelFlushes::AtEntry, ParavirtualFlush::Off));
        let presets = ["tlbkit", "linux-4.15-pti", "linux-4.20", "netbsd-10"];
        let (on, off) = (ParavirtualFlush::On, ParavirtualFlush::Off);
        assert_eq!(presets.map(|preset| kernel_of(preset).paravirtual_flush), [on, off, on, off]);
        for (text, wrong) in [
            ("xnu:host_flush=1", "policy xnu:host_flush=1: host_flush=1: must be on or off"),
            ("xnu:kernel_flushes", "policy xnu:kernel_flushes: kernel_flushes: must be at-once, or at-entry"),
            (
                "xnu:host_flush=on+host_flush=on",
                "policy xnu:host_flush=on+host_flush=on: host_flush is set twice; want each setting once",
            ),
        ] {
            assert_eq!(format!("{:#}", policy_and_kernel(text).unwrap_err()), wrong);
        }
    }

    #[test]
    fn linux_maps_the_pages_around_since_3_15() {
        let presets = ["linux-3.4", "linux-3.14", "linux-4.13", "linux-6.18:ceiling=0", "tlbkit", "netbsd-10"];
        assert_eq!(presets.map(|preset| kernel_of(preset).fault_around), [1, 1, 16, 16, 16, 1]);
    }
}
