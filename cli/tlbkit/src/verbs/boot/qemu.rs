//! One boot under QEMU, and what the kernel wrote. An emulator's cycles mean nothing, so they are dropped here and no
//! other file sees them.

use std::fmt;
use std::fs::{self, OpenOptions};
use std::io;
use std::path::Path;

use anyhow::{Result, bail};
use serde_json::Value;
use tlbkit_boot::{LIMIT, Machine};

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

/// A machine to boot.
#[derive(Clone, Copy, Debug)]
pub(super) struct Qemu<'a> {
    pub(super) kernel: &'a Path,
    pub(super) accelerator: &'a Accelerator,
    pub(super) cpus: u32,
}

/// What came of a boot in which all of the kernel's checks held.
#[derive(Clone, Debug)]
pub(super) struct Ended {
    /// Timed costs; none of an emulator.
    pub(super) costs: Vec<Value>,
    /// The last line.
    pub(super) result: Value,
    pub(super) seconds: f64,
}

/// What the kernel says went wrong.
#[derive(Debug)]
pub(super) struct Failed(String);

impl fmt::Display for Failed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the kernel: {}", self.0)
    }
}

impl std::error::Error for Failed {}

impl Qemu<'_> {
    /// Boots the kernel with `words` as its command line, beside the number of CPUs.
    pub(super) fn boot(&self, words: &str) -> Result<Ended> {
        let Self { kernel, cpus, .. } = *self;
        let command_line = format!("cpus={cpus} {words}");
        let accelerator = self.accelerator.arguments();
        let boot = Machine { kernel, command_line: &command_line, cpus, accelerator }.boot()?;
        let mut lines = boot.lines();
        match lines.pop() {
            Some(result) => self.judge(lines, result, boot.seconds),
            None if boot.code.is_none() => Err(Failed(format!("no result in {} s", LIMIT.as_secs())).into()),
            None => Err(Failed("it ended without a result".to_owned()).into()),
        }
    }

    fn judge(&self, mut costs: Vec<Value>, mut result: Value, seconds: f64) -> Result<Ended> {
        let what = result["what"].as_str().unwrap_or("it stopped in the middle of a line");
        match result["kind"].as_str() {
            Some("result") => {}
            Some("usage") => bail!("{what}"),
            _ => return Err(Failed(what.to_owned()).into()),
        }
        costs.retain(|line| line["kind"] == "cost");
        if *self.accelerator != Accelerator::Hardware {
            costs.clear();
            forget_cycles(&mut result);
        }
        Ok(Ended { costs, result, seconds })
    }
}

/// Takes every field `cycles` out.
fn forget_cycles(value: &mut Value) {
    match value {
        Value::Object(fields) => {
            fields.remove("cycles");
            fields.values_mut().for_each(forget_cycles);
        }
        Value::Array(elements) => elements.iter_mut().for_each(forget_cycles),
        _ => {}
    }
}

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

    const SERIAL: &str = "SeaBIOS\n{\"kind\":\"cost\",\"name\":\"invlpg\",\"median\":7}\n\
        {\"kind\":\"result\",\"pages\":3,\"cycles\":9,\"sizes\":[{\"pages\":1,\"samples\":3,\"cycles\":8}]}\n";

    fn judged(accelerator: &Accelerator, serial: &str) -> Result<Ended> {
        let mut lines = tlbkit_boot::lines(serial);
        let last = lines.pop().unwrap();
        Qemu { kernel: Path::new(""), accelerator, cpus: 1 }.judge(lines, last, 0.5)
    }

    #[test]
    fn an_emulators_cycles_are_forgotten_and_hardwares_kept() {
        let emulated = judged(&Accelerator::Emulation { because: String::new() }, SERIAL).unwrap();
        assert!(emulated.costs.is_empty() && !emulated.result.to_string().contains("cycles"));
        assert_eq!(emulated.result["sizes"][0]["samples"], 3);
        let real = judged(&Accelerator::Hardware, SERIAL).unwrap();
        assert_eq!((real.costs.len(), &real.result["cycles"]), (1, &Value::from(9)));
        assert_eq!(real.result["sizes"][0]["cycles"], 8);
    }

    #[test]
    fn what_the_kernel_found_wrong_is_no_misuse() {
        let error = |line| judged(&Accelerator::Hardware, line).unwrap_err();
        assert!(error(r#"{"kind":"failure","what":"a flush was lost"}"#).is::<Failed>());
        assert!(error(r#"{"kind":"panic","what":"x"}"#).is::<Failed>());
        assert!(error(r#"{"kind":"resu"#).is::<Failed>());
        let usage = error(r#"{"kind":"usage","what":"policy=x: must be y"}"#);
        assert!(!usage.is::<Failed>() && usage.to_string() == "policy=x: must be y");
    }

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
