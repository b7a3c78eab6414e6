//! A machine file as text: what was measured, and the nearest machine's numbers where nothing was.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::time::SystemTime;

use anyhow::{Context, Result};
use serde::Serialize;
use tlbkit_host::Host;
use tlbkit_host::collateral::Fracturing;
use tlbkit_machine::{Machine, NumberKind, Quantity, TlbArray};
use tlbkit_output::number;
use toml::Value;

use crate::kind::MACHINE_START;

/// The machine that was measured, on which host, and when.
pub(crate) struct Origin<'a> {
    /// The machine's name.
    pub(crate) machine: String,
    pub(crate) host: &'a Host,
    pub(crate) date: String,
    /// The built-in machine that has the rest.
    pub(crate) base: &'a str,
}

/// The date in UTC, year first, as [`Origin`] has it.
pub(crate) fn today() -> String {
    let second = humantime::format_rfc3339_seconds(SystemTime::now()).to_string();
    second.split('T').next().unwrap_or_default().to_owned()
}

/// Refuses a measured file that `run` would refuse, so that none is left behind; `file` is its name in the error.
pub(crate) fn check(file: &str, text: &str) -> Result<()> {
    let read = Machine::parse(file, text);
    read.context("this host measures as no machine can be; measure again while nothing else runs on it")?;
    Ok(())
}

/// A number for one field.
pub(crate) struct FieldNumber {
    pub(crate) value: f64,
    pub(crate) band: Option<[f64; 2]>,
    pub(crate) kind: NumberKind,
    /// What was measured, and what was taken off.
    pub(crate) how: String,
}

/// Numbers by dotted field name.
pub(crate) type FieldNumbers = BTreeMap<&'static str, FieldNumber>;

/// What a file is written from.
pub(crate) struct MachineFile<'a> {
    /// The verb that measured.
    pub(crate) verb: &'a str,
    pub(crate) origin: &'a Origin<'a>,
    /// The machine that has what was not measured.
    pub(crate) base: &'a Machine,
    pub(crate) numbers: FieldNumbers,
    pub(crate) fracturing: Fracturing,
    /// Why the numbers mean little, if they do.
    pub(crate) caution: Option<&'a str>,
}

impl MachineFile<'_> {
    /// The whole file.
    pub(crate) fn text(&self) -> String {
        let mut text = self.head();
        let mut section = String::new();
        for (field, quantity) in self.base.quantities() {
            if self.lacks(&field) {
                continue;
            }
            let (path, name) = field.rsplit_once('.').unwrap_or(("", &field));
            if path != section {
                // The features stand between the size of the machine and its arrays; they are no quantities.
                if section == "system" {
                    text += &self.features();
                }
                text += &self.section_head(path);
                section = path.to_owned();
            }
            let number = self.numbers.get(field.as_str());
            let line = number.map_or_else(|| taken(self.origin, quantity), |number| own(self.origin, number));
            let _ = writeln!(text, "{name} = {line}");
        }
        text
    }

    fn head(&self) -> String {
        let Origin { machine, host, date, base } = self.origin;
        let verb = self.verb;
        let mut text = format!("{MACHINE_START}{verb} on {date}: {}, kernel {}.\n", host.cpu_model, host.kernel);
        let _ = writeln!(text, "# What it cannot measure is as {base}, and its source says so.");
        let place = if host.is_virtual { "as a guest" } else { "on bare metal" };
        let description =
            format!("{} with {}, measured {place} on {date}", host.cpu_model, number::cpus(host.cpus as u64));
        let _ = writeln!(text, "\nname = {}\ndescription = {}", quoted(machine), quoted(&description));
        if let Some(caution) = self.caution {
            let _ = writeln!(text, "caution = {}", quoted(caution));
        }
        text
    }

    fn features(&self) -> String {
        let host = self.origin.host;
        let (pcid, invpcid, pge) = (host.has_pcid, host.has_invpcid, host.has_pge);
        format!("\n[features]\npcid = {pcid}\ninvpcid = {invpcid}\npge = {pge}\n")
    }

    /// Fields of features that this CPU does not have, and of the guest that it is not.
    fn lacks(&self, field: &str) -> bool {
        let host = self.origin.host;
        match field {
            "cycles.cr3_keep" => !host.has_pcid,
            _ if field.starts_with("cycles.invpcid_") => !host.has_invpcid,
            _ => field.starts_with("guest.") && !host.is_virtual,
        }
    }

    /// The line that begins a section, and what of it is no number.
    fn section_head(&self, path: &str) -> String {
        let array = |level: &str, arrays: &[TlbArray]| {
            let at: usize = path.split(['[', ']']).nth(1)?.parse().ok()?;
            Some(format!("\n[[tlb.{level}]]\n{}", words(&arrays[at])))
        };
        let of_array = match path {
            _ if path.starts_with("tlb.l1") => array("l1", &self.base.tlb.l1),
            _ if path.starts_with("tlb.stlb") => array("stlb", &self.base.tlb.stlb),
            _ => None,
        };
        let head = of_array.unwrap_or_else(|| format!("\n[{path}]\n"));
        if path == "guest" { head + fracturing(self.fracturing) } else { head }
    }
}

fn words(array: &TlbArray) -> String {
    let holds: Vec<_> = array.holds.iter().map(quoted).collect();
    let (index, policy) = (quoted(&array.index), quoted(&array.policy));
    format!("holds = [{}]\nindex = {index}\npolicy = {policy}\n", holds.join(", "))
}

const fn fracturing(found: Fracturing) -> &'static str {
    match found {
        Fracturing::On => "fracturing = \"on\"\n",
        Fracturing::Off => "fracturing = \"off\"\n",
        Fracturing::Unclear => "# The measurements do not tell.\nfracturing = \"off\"\n",
    }
}

/// A number that was measured here.
fn own(origin: &Origin<'_>, number: &FieldNumber) -> String {
    let source = format!("measured on {}, {}: {}", origin.host.name, origin.date, number.how);
    line(number.value, number.kind, &source, number.band)
}

/// A number of the nearest machine: here it is a prior, however well it is known there.
fn taken(origin: &Origin<'_>, quantity: &Quantity) -> String {
    let source = format!("not measured here; as {}: {}", origin.base, quantity.source);
    let band = quantity.band.unwrap_or([quantity.value / 2.0, quantity.value * 2.0]);
    line(quantity.value, NumberKind::Prior, &source, Some(band))
}

fn line(value: f64, kind: NumberKind, source: &str, band: Option<[f64; 2]>) -> String {
    let band = band.map_or(String::new(), |[low, high]| format!(", band = [{low}, {high}]"));
    format!("{{ value = {value}, kind = {}, source = {}{band} }}", quoted(&kind), quoted(&source))
}

/// A text, or a word as the machine's types write it, as a file has it.
fn quoted(word: &(impl Serialize + ?Sized)) -> String {
    Value::try_from(word).map_or_else(|_| String::new(), |word| word.to_string())
}
