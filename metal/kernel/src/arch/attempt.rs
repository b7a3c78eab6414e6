//! Executes one instruction that may fault. The trap handler continues after the instruction, and the caller learns
//! which fault it was.

use core::arch::asm;
use core::sync::atomic::{AtomicU64, Ordering};

use tlbkit::Cr3;

use super::gates::{GENERAL_PROTECTION, INVALID_OPCODE};

/// Where to go on after a fault; 0 while none is expected.
static RESUME_AT: AtomicU64 = AtomicU64::new(0);
static VECTOR: AtomicU64 = AtomicU64::new(0);

/// What an instruction did.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Attempted {
    Works,
    InvalidOpcode,
    GeneralProtection,
}

/// Called by the trap handler: where to go on, if this fault was expected.
pub(crate) fn resume_at(vector: u64) -> Option<u64> {
    if ![INVALID_OPCODE, GENERAL_PROTECTION].contains(&vector) {
        return None;
    }
    // Relaxed, both: one CPU, interrupts off.
    let at = RESUME_AT.swap(0, Ordering::Relaxed);
    VECTOR.store(vector, Ordering::Relaxed);
    (at != 0).then_some(at)
}

fn outcome() -> Attempted {
    // Relaxed, both: as above.
    RESUME_AT.store(0, Ordering::Relaxed);
    match VECTOR.swap(0, Ordering::Relaxed) {
        0 => Attempted::Works,
        INVALID_OPCODE => Attempted::InvalidOpcode,
        _ => Attempted::GeneralProtection,
    }
}

/// Runs one instruction; its operands are `{0}` and `{1}`.
macro_rules! attempt {
    ($instruction:literal, $first:expr, $second:expr) => {{
        // SAFETY: after a fault execution continues behind the instruction; its effect without a fault is the caller's
        // concern.
        unsafe {
            asm!(
                "lea {2}, [rip + 2f]",
                "mov [{3}], {2}",
                $instruction,
                "2:",
                in(reg) $first, in(reg) $second, out(reg) _, in(reg) RESUME_AT.as_ptr(),
            );
        }
        outcome()
    }};
}

pub(crate) fn cr3(value: Cr3) -> Attempted {
    attempt!("mov cr3, {0} /* {1} */", value.0, 0u64)
}

pub(crate) fn cr4(value: u64) -> Attempted {
    attempt!("mov cr4, {0} /* {1} */", value, 0u64)
}

/// CR0 without `bits`.
pub(crate) fn cr0(without: u64) -> Attempted {
    let value: u64;
    // SAFETY: reading changes nothing.
    unsafe { asm!("mov {}, cr0", out(reg) value, options(nostack, preserves_flags)) }
    attempt!("mov cr0, {0} /* {1} */", value & !without, 0u64)
}

pub(crate) fn invlpg(va: u64) -> Attempted {
    attempt!("invlpg [{0}] /* {1} */", va, 0u64)
}

pub(crate) fn invpcid(kind: u64, pcid: u64, va: u64) -> Attempted {
    let descriptor = [pcid, va];
    attempt!("invpcid {0}, [{1}]", kind, descriptor.as_ptr())
}
