//! A machine with the protocol and page tables on it.

use std::cell::{Cell, OnceCell, RefCell};

use tlbkit::Tlb;
use tlbkit::sync::AtomicU64;
use tlbkit_pmap::{KernelMap, Vm};

use super::Machine;
use crate::program::kernel::{Kernel, SPACES};

/// A space whose set lies beside the others'.
pub(crate) type Space<'k> = Vm<'k, &'k [AtomicU64]>;

/// Everything of one run.
pub(crate) struct World<'k> {
    pub(crate) machine: &'k RefCell<Machine>,
    pub(crate) tlb: &'k Tlb<'k>,
    pub(crate) kernel_map: &'k KernelMap<'k>,
    pub(crate) spaces: [OnceCell<Space<'k>>; SPACES],
    pub(crate) sets: &'k [AtomicU64],
    /// What the kernel remembers.
    pub(crate) kernel: Kernel,
    /// Set when a run is given up: what still unwinds must not stop again.
    pub(crate) is_abandoned: Cell<bool>,
}

impl<'k> World<'k> {
    pub(crate) fn new(
        machine: &'k RefCell<Machine>,
        tlb: &'k Tlb<'k>,
        kernel_map: &'k KernelMap<'k>,
        sets: &'k [AtomicU64],
        kernel: Kernel,
    ) -> Self {
        let spaces = [const { OnceCell::new() }; SPACES];
        Self { machine, tlb, kernel_map, spaces, sets, kernel, is_abandoned: Cell::new(false) }
    }
}
