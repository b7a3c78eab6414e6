//! `cargo xtask boot`: the test kernel once, on KVM where that is usable, and what it told.

use anyhow::{Context, Result, bail};
use serde_json::Value;
use std::fs::{self, OpenOptions};
use std::io;
use std::path::Path;
use tlbkit_boot::{LIMIT, Machine};

use crate::qemu;

/// KVM. Some hosts refuse to set that register, which this kernel never reads.
const KVM: &[&str] = &["-accel", "kvm", "-cpu", "host,-arch-capabilities"];
/// CPUs and the workload, if no word says otherwise.
const DEFAULTS: &str = "cpus=2 workload=ebizzy-m";

/// Boots it with `words` as its command line; false if it found something wrong.
pub(crate) fn run(root: &Path, words: &[String]) -> Result<bool> {
    let kernel = qemu::build(root)?;
    let refusal = refusal_of_host().or_else(|| refusal_of_kvm(&kernel).err());
    let line = format!("{DEFAULTS} {}", words.join(" "));
    let accelerator = if refusal.is_some() { tlbkit_boot::REPEATABLE } else { KVM };
    let ended = Machine { kernel: &kernel, command_line: &line, cpus: cpus_of(&line)?, accelerator }.boot()?;
    let mut lines = ended.lines();
    if refusal.is_some() {
        lines.retain(|line| line["kind"] != "cost");
        lines.iter_mut().for_each(forget_cycles);
    }
    let Some(last) = lines.last() else { bail!("the kernel told nothing in {} s", LIMIT.as_secs()) };
    if last["kind"] == "usage" {
        bail!("{}", last["what"].as_str().unwrap_or_default());
    }
    lines.iter().for_each(|line| println!("{line}"));
    let way = refusal.map_or_else(|| "by KVM".to_owned(), |why| format!("emulated, so without cycles ({why})"));
    println!("{:.2} s from boot to the last line, {way}", ended.seconds);
    Ok(last["kind"] == "result")
}

/// The last number of CPUs on a command line.
fn cpus_of(line: &str) -> Result<u32> {
    let typed = line.split_whitespace().filter_map(|word| word.strip_prefix("cpus=")).next_back().unwrap_or("1");
    typed.parse().with_context(|| format!("cpus={typed}: must be a number of CPUs"))
}

/// Takes every field `cycles` out: an emulator's mean nothing.
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

/// Why this host has no KVM that could be used, by what it says of itself.
fn refusal_of_host() -> Option<String> {
    let info = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    refusal(&info, OpenOptions::new().read(true).write(true).open("/dev/kvm").map(drop))
}

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
fn refusal_of_kvm(kernel: &Path) -> Result<(), String> {
    let command_line = "workload=pingpong set=rounds=10";
    let ended = Machine { kernel, command_line, cpus: 1, accelerator: KVM }.boot();
    let lines = ended.map_err(|error| format!("KVM: {error}"))?.lines();
    match lines.last() {
        Some(last) if last["kind"] == "result" && last["pcid"] == true => Ok(()),
        Some(last) if last["kind"] == "result" => Err("a guest of KVM gets no PCIDs here".into()),
        _ => Err("KVM runs no program here".into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_field_of_cycles_is_forgotten_and_the_rest_is_kept() {
        let mut line: Value = serde_json::json!({ "pages": 3, "cycles": 9, "sizes": [{ "samples": 3, "cycles": 8 }] });
        forget_cycles(&mut line);
        assert_eq!(line, serde_json::json!({ "pages": 3, "sizes": [{ "samples": 3 }] }));
    }

    #[test]
    fn the_last_number_of_cpus_holds() {
        assert_eq!(cpus_of(&format!("{DEFAULTS} cpus=4 seed=1")).ok(), Some(4));
        assert_eq!(cpus_of(DEFAULTS).ok(), Some(2));
        assert!(cpus_of("cpus=many").is_err());
    }

    #[test]
    fn a_host_must_have_all_of_it() {
        const ABLE: &str = "model name : x\nflags\t\t: fpu pcid vmx\n";
        assert_eq!(refusal(ABLE, Ok(())), None);
        let denied = || Err(io::Error::from(io::ErrorKind::PermissionDenied));
        assert!(refusal(ABLE, denied()).is_some_and(|why| why.starts_with("/dev/kvm: ")));
        assert!(refusal(&ABLE.replace("vmx", "vme"), Ok(())).is_some_and(|why| why.contains("svm")));
        assert!(refusal(&ABLE.replace("pcid", "pclmul"), Ok(())).is_some_and(|why| why.contains("PCIDs")));
        assert!(refusal("", Ok(())).is_some());
    }
}
