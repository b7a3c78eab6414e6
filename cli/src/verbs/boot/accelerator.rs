//! What runs the virtual machine, and with it whether its cycles mean anything.

use std::fmt;
use std::fs::{self, OpenOptions};
use std::io;
use std::path::Path;

use super::qemu::Qemu;

/// Hardware virtualization, or an emulator.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Accelerator {
    /// KVM on VMX or SVM, with PCIDs in the guest: the guest's cycles are the silicon's.
    Hardware,
    /// QEMU's own emulation, and why.
    Emulation {
        /// What is missing.
        because: String,
    },
}

impl Accelerator {
    /// The best that this host can do; KVM is believed only after a trial boot of `kernel`.
    pub(super) fn choose(kernel: &Path) -> Self {
        let info = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
        let device = OpenOptions::new().read(true).write(true).open("/dev/kvm").map(|_| ());
        let refusal = refusal(&info, device).or_else(|| trial(kernel).err());
        refusal.map_or(Self::Hardware, |because| Self::Emulation { because })
    }

    /// How QEMU is told.
    pub(super) const fn arguments(&self) -> &'static [&'static str] {
        match self {
            // Some hosts refuse to set that register, which this kernel never reads.
            Self::Hardware => &["-accel", "kvm", "-cpu", "host,-arch-capabilities"],
            Self::Emulation { .. } => tlbkit_boot::REPEATABLE,
        }
    }

    /// One word for rows.
    pub(super) const fn word(&self) -> &'static str {
        match self {
            Self::Hardware => "kvm",
            Self::Emulation { .. } => "emulation",
        }
    }
}

impl fmt::Display for Accelerator {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Hardware => write!(f, "run by KVM on hardware virtualization"),
            Self::Emulation { because } => {
                write!(f, "emulated ({because}): cycles are not meaningful, so only counts are shown")
            }
        }
    }
}

/// Why the host cannot, by what it says of itself.
fn refusal(cpuinfo: &str, device: io::Result<()>) -> Option<String> {
    let flags = cpuinfo.lines().find(|line| line.starts_with("flags")).unwrap_or_default();
    let has = |wanted: &str| flags.split_whitespace().any(|flag| flag == wanted);
    match device {
        Err(error) => Some(format!("/dev/kvm: {error}")),
        Ok(()) if !has("vmx") && !has("svm") => Some("the CPU shows neither vmx nor svm".into()),
        Ok(()) if !has("pcid") => Some("the CPU has no PCIDs".into()),
        Ok(()) => None,
    }
}

/// Whether KVM really starts, runs programs in ring 3, and gives its guest PCIDs.
fn trial(kernel: &Path) -> Result<(), String> {
    let qemu = Qemu { kernel, accelerator: &Accelerator::Hardware, cpus: 1 };
    let ended = qemu.boot("workload=pingpong set=rounds=10").map_err(|error| format!("KVM: {error:#}"))?;
    if ended.result["pcid"] == true { Ok(()) } else { Err("a guest of KVM gets no PCIDs here".into()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ABLE: &str = "model name : x\nflags\t\t: fpu pcid vmx\n";

    #[test]
    fn a_host_must_have_all_of_it() {
        assert_eq!(refusal(ABLE, Ok(())), None);
        let denied = || Err(io::Error::from(io::ErrorKind::PermissionDenied));
        assert!(refusal(ABLE, denied()).is_some_and(|why| why.starts_with("/dev/kvm: ")));
        assert!(refusal(&ABLE.replace("vmx", "vme"), Ok(())).is_some_and(|why| why.contains("svm")));
        assert!(refusal(&ABLE.replace("pcid", "pclmul"), Ok(())).is_some_and(|why| why.contains("PCIDs")));
        assert!(refusal("", Ok(())).is_some());
    }
}
