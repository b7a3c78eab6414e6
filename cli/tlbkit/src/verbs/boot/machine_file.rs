//! A machine file of what the kernel measured; the rest is as in the built-in machine of a recent guest.

use std::path::Path;

use anyhow::Result;
use tlbkit_host::collateral::Fracturing;
use tlbkit_host::{Host, Sample};
use tlbkit_machine::{Machine, NumberKind};

use super::bench::Bench;
use crate::lab::machine_file::{FieldNumber, FieldNumbers, MachineFile, Origin, check, today};
use crate::output::file::write_whole;

/// What was measured, was measured in a guest.
const BASE: &str = "recent-vm";

/// Costs that are fields as they stand.
const FIELDS: &[(&str, &str, &str)] = &[
    ("invlpg", "cycles.invlpg", "INVLPG in a row"),
    ("cr3_flush", "cycles.cr3_flush", "CR3 writes in a row, with what each makes the loop refill"),
    ("cr3_keep", "cycles.cr3_keep", "CR3 writes with the no-flush bit in a row"),
    ("cr4_pge_toggle", "cycles.cr4_pge_toggle", "CR4.PGE off and on in a row"),
    ("invpcid_address", "cycles.invpcid_address", "INVPCID 0 in a row"),
    ("invpcid_single", "cycles.invpcid_single", "INVPCID 1 in a row"),
    ("invpcid_all", "cycles.invpcid_all", "INVPCID 3 in a row"),
    ("ipi_send", "cycles.ipi_send", "the write to the APIC"),
    ("ipi_send_shorthand", "cycles.ipi_send_shorthand", "the write to the APIC, to all others"),
];

/// Fields that are the difference of two costs.
const DIFFERENCES: &[(&str, &str, &str, &str)] = &[
    (
        "ipi_round_trip",
        "ipi_send",
        "cycles.ipi_deliver_same_socket",
        "until the sender sees what the handler counted first, less the send; which CPUs the host gave is not known",
    ),
    ("ipi_round_trip_halted", "ipi_round_trip", "cycles.idle_wake", "what a halted receiver adds to the same"),
];

/// Writes it.
pub(super) fn write(file: &Path, bench: &Bench, cpus: u32) -> Result<()> {
    let shown = file.display().to_string();
    let host = Host::ask()?;
    let name = file.file_stem().unwrap_or_default().to_string_lossy().into_owned();
    let text = text(name, &host, today(), bench, cpus)?;
    check(&shown, &text)?;
    write_whole(file, &text)
}

fn text(machine: String, host: &Host, date: String, bench: &Bench, cpus: u32) -> Result<String> {
    let has = |feature: &str| bench.timing.result[feature] == true;
    // The machine is the guest.
    let guest = Host {
        cpus: cpus as usize,
        is_virtual: true,
        has_pcid: has("pcid"),
        has_invpcid: has("invpcid"),
        has_pge: true,
        ..host.clone()
    };
    let base = Machine::builtin(BASE)?;
    let written = MachineFile {
        verb: "boot --bench",
        origin: &Origin { machine, host: &guest, date, base: BASE },
        base: &base,
        numbers: numbers(bench, &guest),
        fracturing: Fracturing::Unclear,
        caution: None,
    };
    Ok(written.text())
}

fn numbers(bench: &Bench, guest: &Host) -> FieldNumbers {
    let cost = |name: &str| bench.costs.iter().find(|cost| cost.name == name).map(|cost| cost.sample);
    let direct =
        FIELDS.iter().filter_map(|&(name, field, how)| Some((field, number(NumberKind::Input, cost(name)?, how))));
    let difference = |&(whole, part, field, how): &(&str, &str, &'static str, &str)| {
        Some((field, number(NumberKind::Calibrated, cost(whole)?.minus(&cost(part)?), how)))
    };
    let count = |value: f64, how: &str| FieldNumber { value, band: None, kind: NumberKind::Input, how: how.into() };
    let mut numbers: FieldNumbers = direct.chain(DIFFERENCES.iter().filter_map(difference)).collect();
    numbers.insert("system.frequency_mhz", count(guest.tsc_mhz.round(), "the time-stamp counter's rate"));
    numbers.insert("system.cpus", count(guest.cpus as f64, "the virtual machine's"));
    numbers
}

/// What scatters too much is a prior.
fn number(kind: NumberKind, sample: Sample, how: &str) -> FieldNumber {
    let kind = if sample.is_noisy() { NumberKind::Prior } else { kind };
    let how = format!("{how}; in the test kernel under KVM");
    FieldNumber { value: sample.median, band: Some([sample.low, sample.high]), kind, how }
}

#[cfg(test)]
mod tests {
    use super::super::bench::Cost;
    use super::super::counts::KernelRun;
    use super::*;
    use serde_json::json;

    fn bench(features: &serde_json::Value) -> Bench {
        let cost = |name: &str, median: f64| {
            let sample = Sample { low: median - 1.0, median, high: median + 2.0, repetitions: 301 };
            Cost { name: name.into(), sample }
        };
        let run = || KernelRun { name: "x".into(), result: features.clone(), seconds: 1.0 };
        let costs = [("invlpg", 150.0), ("ipi_send", 1000.0), ("ipi_round_trip", 2500.0)];
        let costs = costs.map(|(name, median)| cost(name, median)).to_vec();
        Bench { costs, timing: run(), pingpong: Vec::new(), flushes: Vec::new(), ebizzy: run() }
    }

    fn machine(features: &serde_json::Value) -> Machine {
        let host = Host { name: "somewhere".into(), ..Host::ask().unwrap() };
        let text = text("mine".into(), &host, "2026-01-02".into(), &bench(features), 4).unwrap();
        Machine::parse("mine.toml", &text).unwrap_or_else(|error| panic!("{error}: {text}"))
    }

    #[test]
    fn what_was_measured_is_in_the_file_with_its_source() {
        let machine = machine(&json!({ "pcid": true, "invpcid": false }));
        assert_eq!((machine.cycles.invlpg.value, machine.cycles.ipi_deliver_same_socket.value), (150.0, 1500.0));
        assert!(machine.cycles.invlpg.source.starts_with("measured on somewhere, 2026-01-02: INVLPG"));
        assert_eq!(machine.cycles.ipi_deliver_same_socket.kind, NumberKind::Calibrated);
        assert_eq!(machine.system.cpus.value, 4.0);
    }

    #[test]
    fn what_was_not_says_so_and_what_is_not_there_is_left_out() {
        let machine = machine(&json!({ "pcid": false, "invpcid": false }));
        assert!(machine.cycles.zero_page.source.starts_with("not measured here; as recent-vm: "));
        assert!(!machine.features.pcid && machine.cycles.cr3_keep.is_none() && machine.cycles.invpcid_all.is_none());
    }
}
