//! Where an entry comes from, and which flush should have removed it.

use tlbkit::Stride;

use crate::finding::{Finding, Oracle};
use crate::machine::Machine;
use crate::machine::operation::Operation;
use crate::machine::tlb::TlbEntry;

/// What was found on `cpu` in this step.
pub(super) fn finding(machine: &Machine, oracle: Oracle, cpu: usize, story: String) -> Finding {
    Finding { oracle, cpu, step: machine.step, story }
}

/// The entry in words.
pub(super) fn describe_entry(machine: &Machine, entry: &TlbEntry) -> String {
    let rights = if entry.rights.may_write { "read-write" } else { "read-only" };
    let size = match entry.page.stride {
        Stride::Page4K => "",
        Stride::Page2M => ", 2 MiB",
        Stride::Page1G => ", 1 GiB",
    };
    let global = if entry.page.is_global { ", global" } else { "" };
    let mut text = format!(
        "{:#x} -> frame {:#x} ({rights}{size}{global}, PCID {:#x}), fetched by its walker in step {}",
        entry.page.start.0,
        entry.frame.at >> 12,
        entry.page.pcid.0,
        entry.life.fetched
    );
    if let Some(revoked) = entry.life.revoked {
        let op = &machine.ops[revoked.op as usize];
        text += &format!(", revoked by {} of CPU {} in step {}", op.name, op.cpu, revoked.step);
        text += &describe_flush(op);
    }
    if let Some(promise) = entry.life.promised_by {
        let op = &machine.ops[promise as usize];
        text += &format!("; {} of CPU {} has returned in step {}", op.name, op.cpu, op.ended.unwrap_or(machine.step));
    }
    text
}

/// The flush of an operation in words.
fn describe_flush(op: &Operation) -> String {
    match op.flush {
        (None, _) => "; it has not flushed".to_owned(),
        (Some(began), None) => format!("; its flush began in step {began} and should remove it"),
        (Some(began), Some(ended)) => {
            format!("; its flush, step {began} to {ended}, should have removed it")
        }
    }
}
