//! Which accelerator this host can run the virtual machine with.

use std::fs::{self, OpenOptions};
use std::io;
use std::path::Path;

use super::qemu::{Accelerator, Qemu};

/// The best that this host can do; KVM is believed only after a trial boot of `kernel`.
pub(super) fn choose(kernel: &Path) -> Accelerator {
    let info = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let device = OpenOptions::new().read(true).write(true).open("/dev/kvm").map(|_| ());
    let refusal = refusal(&info, device).or_else(|| trial(kernel).err());
    refusal.map_or(Accelerator::Hardware, |because| Accelerator::Emulation { because })
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
