//! A machine file as text: what was measured, and the nearest machine's numbers where nothing was.

use std::fmt::Write as _;

use tlbkit_host::Survey;
use tlbkit_host::collateral::Fracturing;
use tlbkit_sim::machine::{Index, Kind, Machine, Policy, Quantity, Size, TlbArray};
use toml::Value;

use super::measured::{Entry, Origin, entries};

/// The whole file.
pub(super) fn text(origin: &Origin<'_>, base: &Machine, survey: &Survey) -> String {
    let entries = entries(survey, base);
    let mut text = head(origin, survey);
    let mut section = String::new();
    for (field, quantity) in base.quantities() {
        if lacks(survey, &field) {
            continue;
        }
        let (path, name) = field.rsplit_once('.').unwrap_or(("", &field));
        if path != section {
            // The features stand between the size of the machine and its arrays; they are no quantities.
            if section == "system" {
                text += &features(survey);
            }
            text += &section_head(path, base, survey);
            section = path.to_owned();
        }
        let line = entries.get(field.as_str()).map_or_else(|| taken(origin, quantity), |entry| own(origin, entry));
        let _ = writeln!(text, "{name} = {line}");
    }
    text
}

fn head(origin: &Origin<'_>, survey: &Survey) -> String {
    let Origin { machine, host, date, base } = origin;
    let mut text = format!("# Written by tlbkit calibrate on {date}: {}, kernel {}.\n", host.cpu_model, host.kernel);
    let _ = writeln!(text, "# What a user program cannot measure is as {base}, and its source says so.");
    if survey.disturbance.is_too_much() {
        text += "# Others used the CPUs meanwhile: measure again on a quiet host before relying on it.\n";
    }
    let place = if host.is_virtual { "as a guest" } else { "on bare metal" };
    let description = format!("{} with {} CPUs, measured {place} on {date}", host.cpu_model, host.cpus);
    let _ = writeln!(text, "\nname = {}\ndescription = {}", quoted(machine), quoted(&description));
    text
}

fn features(survey: &Survey) -> String {
    let host = &survey.host;
    let (pcid, invpcid, pge) = (host.has_pcid, host.has_invpcid, host.has_pge);
    format!("\n[features]\npcid = {pcid}\ninvpcid = {invpcid}\npge = {pge}\n")
}

/// Fields of features that this CPU does not have, and of the guest that it is not.
fn lacks(survey: &Survey, field: &str) -> bool {
    let host = &survey.host;
    match field {
        "cycles.cr3_keep" => !host.has_pcid,
        _ if field.starts_with("cycles.invpcid_") => !host.has_invpcid,
        _ => field.starts_with("guest.") && !host.is_virtual,
    }
}

/// The line that begins a section, and what of it is no number.
fn section_head(path: &str, base: &Machine, survey: &Survey) -> String {
    let array = |level: &str, arrays: &[TlbArray]| {
        let at: usize = path.split(['[', ']']).nth(1)?.parse().ok()?;
        Some(format!("\n[[tlb.{level}]]\n{}", words(&arrays[at])))
    };
    let of_array = match path {
        _ if path.starts_with("tlb.l1") => array("l1", &base.tlb.l1),
        _ if path.starts_with("tlb.stlb") => array("stlb", &base.tlb.stlb),
        _ => None,
    };
    let head = of_array.unwrap_or_else(|| format!("\n[{path}]\n"));
    if path == "guest" { head + &fracturing(survey) } else { head }
}

fn words(array: &TlbArray) -> String {
    let size = |size: &Size| match size {
        Size::Small => "\"4K\"",
        Size::Large => "\"2M\"",
        Size::Huge => "\"1G\"",
    };
    let holds: Vec<_> = array.holds.iter().map(size).collect();
    let index = match array.index {
        Index::Linear => "linear",
        Index::Xor7 => "xor7",
    };
    let policy = match array.policy {
        Policy::Lru => "lru",
        Policy::TreePlru => "tree-plru",
        Policy::RotatingPlru4 => "rotating-plru4",
    };
    format!("holds = [{}]\nindex = \"{index}\"\npolicy = \"{policy}\"\n", holds.join(", "))
}

fn fracturing(survey: &Survey) -> String {
    match survey.collateral.fracturing() {
        Fracturing::On => "fracturing = \"on\"\n".into(),
        Fracturing::Off => "fracturing = \"off\"\n".into(),
        Fracturing::Unclear => "# The measurements do not tell.\nfracturing = \"off\"\n".into(),
    }
}

/// A number that was measured here.
fn own(origin: &Origin<'_>, entry: &Entry) -> String {
    let source = format!("measured on {}, {}: {}", origin.host.name, origin.date, entry.how);
    line(entry.value, entry.kind, &source, entry.band)
}

/// A number of the nearest machine: here it is a prior, however well it is known there.
fn taken(origin: &Origin<'_>, quantity: &Quantity) -> String {
    let source = format!("not measured here; as {}: {}", origin.base, quantity.source);
    let band = quantity.band.unwrap_or([quantity.value / 2.0, quantity.value * 2.0]);
    line(quantity.value, Kind::Prior, &source, Some(band))
}

fn line(value: f64, kind: Kind, source: &str, band: Option<[f64; 2]>) -> String {
    let kind = match kind {
        Kind::Input => "input",
        Kind::Calibrated => "calibrated",
        Kind::Prior => "prior",
    };
    let band = band.map_or(String::new(), |[low, high]| format!(", band = [{low}, {high}]"));
    format!("{{ value = {value}, kind = \"{kind}\", source = {}{band} }}", quoted(source))
}

fn quoted(text: &str) -> String {
    Value::from(text).to_string()
}
