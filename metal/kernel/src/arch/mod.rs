//! The parts of the machine that are not about translation.

pub(crate) mod apic;
pub(crate) mod cpu;
pub(crate) mod exit;
pub(crate) mod gates;
pub(crate) mod serial;
pub(crate) mod tables;
pub(crate) mod traps;
