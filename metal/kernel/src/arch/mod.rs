//! The parts of the machine that are not about translation. No file here imports one of another folder, apart from the
//! numbers of `layout`.

pub(crate) mod apic;
pub(crate) mod attempt;
pub(crate) mod cpu;
pub(crate) mod exit;
pub(crate) mod gates;
pub(crate) mod serial;
pub(crate) mod tables;
