//! The page tables' interface to memory: every store and exchange is a point, and goes through the store buffer.

use std::cell::RefCell;

use tlbkit::{PhysAddr, Sharers};
use tlbkit_pmap::{Frame, Memory as PhysicalMemory, Purpose};

use super::Machine;
use super::buffer::Place;
use super::memory::{self, Use};
use super::observer;
use super::world::World;

/// Memory as the CPU that executes sees it.
#[derive(Clone, Copy)]
pub(crate) struct Bus<'m> {
    pub(crate) machine: &'m RefCell<Machine>,
    /// Of each frame.
    pub(crate) sharers: &'m [Sharers],
}

impl Bus<'_> {
    fn point() {
        observer::with_world(|world| world.point());
    }

    fn log_write(&self, how: &'static str, at: PhysAddr, value: u64) {
        let mut machine = self.machine.borrow_mut();
        let cpu = machine.current;
        machine.log(cpu, || format!("{how} table word {:#x} := {value:#x}", at.0));
    }
}

impl<'k> World<'k> {
    /// Memory for the page tables.
    pub(crate) fn bus(&self) -> Bus<'k> {
        Bus { machine: self.machine, sharers: self.sharers }
    }
}

impl PhysicalMemory for Bus<'_> {
    fn load(&self, at: PhysAddr) -> u64 {
        self.machine.borrow_mut().read_physical(at.0)
    }

    fn store(&self, at: PhysAddr, value: u64) {
        Self::point();
        self.log_write("store", at, value);
        self.machine.borrow_mut().store_later(Place::Physical(at.0), value);
    }

    fn swap(&self, at: PhysAddr, value: u64) -> u64 {
        Self::point();
        self.log_write("xchg", at, value);
        self.machine.borrow_mut().exchange_physical(at.0, value)
    }

    fn compare_exchange(&self, at: PhysAddr, current: u64, new: u64) -> Result<u64, u64> {
        Self::point();
        let mut machine = self.machine.borrow_mut();
        machine.drain();
        let found = machine.memory.read(at.0);
        let cpu = machine.current;
        machine.cpus[cpu].remember(found);
        if found != current {
            return Err(found);
        }
        drop(machine);
        self.log_write("cmpxchg", at, new);
        Ok(self.machine.borrow_mut().exchange_physical(at.0, new))
    }

    fn copy(&self, from: PhysAddr, to: PhysAddr, shift: u8) {
        self.machine.borrow_mut().memory.copy(from.0, to.0, shift);
    }

    fn alloc(&self, shift: u8, purpose: Purpose) -> Option<Frame> {
        let is = if purpose == Purpose::Table { Use::Table } else { Use::Data };
        let at = PhysAddr(self.machine.borrow_mut().alloc(shift, is)?);
        if let (Use::Table, Some(sharers)) = (is, self.sharers(at)) {
            sharers.clear();
        }
        Some(Frame { at, shift })
    }

    fn free(&self, frame: Frame) {
        let mut machine = self.machine.borrow_mut();
        machine.memory.free(frame.at.0, frame.shift);
        let cpu = machine.current;
        machine.log(cpu, || format!("frees frame {:#x}", frame.at.0 >> 12));
        machine.report_reach();
    }

    fn is_low(&self) -> bool {
        // Where CPUs have directories, tables are taken out while their sharers run: the harder case.
        !self.sharers.is_empty() || self.machine.borrow().memory.is_low()
    }

    fn adopt_root(&self, root: PhysAddr, space: PhysAddr) {
        self.machine.borrow_mut().add_root(root.0, space.0);
    }

    fn has_lockless_walkers(&self) -> bool {
        observer::with_world(|world| world.kernel.has_walkers).unwrap_or_default()
    }

    fn share(&self, at: PhysAddr) {
        self.machine.borrow_mut().memory.share(at.0);
    }

    fn release(&self, at: PhysAddr) -> bool {
        self.machine.borrow_mut().memory.release(at.0)
    }

    fn references(&self, at: PhysAddr) -> u32 {
        self.machine.borrow().memory.references(at.0)
    }

    fn split(&self, at: PhysAddr) {
        self.machine.borrow_mut().memory.split(at.0);
    }

    fn file_page(&self, file: u32, index: u64) -> PhysAddr {
        if file == memory::CACHED_FILE {
            self.machine.borrow_mut().memory.cached(index)
        } else {
            memory::file_page(index)
        }
    }

    fn sharers(&self, table: PhysAddr) -> Option<&Sharers> {
        self.sharers.get((table.0 >> 12) as usize)
    }

    fn fault_around(&self) -> u64 {
        self.machine.borrow().fault_around
    }

    fn zero_page(&self) -> PhysAddr {
        memory::zero_page()
    }
}
