//! A machine with the protocol and page tables on it.

use std::cell::{Cell, OnceCell, RefCell};
use std::collections::VecDeque;

use tlbkit::sync::AtomicU64;
use tlbkit::{GracePeriods, Sharers, Tlb};
use tlbkit_pmap::{KernelMap, Vm};

use super::Machine;
use super::bus::Bus;
use super::issued::Issued;
use crate::program::kernel::Kernel;

/// A space whose set lies beside the others'.
pub(crate) type Space<'k> = Vm<'k, &'k [AtomicU64]>;

/// Everything of one run.
pub(crate) struct World<'k> {
    pub(crate) machine: &'k RefCell<Machine>,
    pub(crate) tlb: &'k Tlb<'k>,
    pub(crate) periods: &'k GracePeriods<'k>,
    pub(crate) kernel_map: &'k KernelMap<'k>,
    /// Of each frame; none if no space has directories for its CPUs.
    pub(crate) sharers: &'k [Sharers],
    pub(crate) spaces: &'k [OnceCell<Space<'k>>],
    pub(crate) sets: &'k [AtomicU64],
    /// Flushes that each CPU has issued and nobody has waited for, the oldest first.
    pub(crate) issued: Vec<RefCell<VecDeque<Issued<'k>>>>,
    /// What the kernel remembers.
    pub(crate) kernel: Kernel,
    /// Set when a run is given up: what still unwinds must not stop again.
    pub(crate) is_abandoned: Cell<bool>,
}

impl<'k> World<'k> {
    pub(crate) fn new(
        bus: Bus<'k>,
        tlb: &'k Tlb<'k>,
        periods: &'k GracePeriods<'k>,
        kernel_map: &'k KernelMap<'k>,
        spaces: &'k [OnceCell<Space<'k>>],
        sets: &'k [AtomicU64],
        kernel: Kernel,
    ) -> Self {
        let issued = kernel.program.cpus.iter().map(|_| RefCell::default()).collect();
        let Bus { machine, sharers } = bus;
        Self {
            machine,
            tlb,
            periods,
            kernel_map,
            sharers,
            spaces,
            sets,
            issued,
            kernel,
            is_abandoned: Cell::new(false),
        }
    }
}
