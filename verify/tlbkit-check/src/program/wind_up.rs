//! When all programs are over: everything is given back, in one order, and nothing may be left. A CPU that
//! is interrupted answers at once.

use super::kernel::End;
use crate::machine::world::World;
use tlbkit_pmap::{Frame, Memory};

impl World<'_> {
    /// Every CPU leaves every space, every space ends, every window goes.
    pub(crate) fn wind_up(&self) {
        self.machine.borrow_mut().drain_all();
        self.leave_all();
        if let Some(space) = self.kernel.giants.get() {
            self.unmap_giants(0, space);
        }
        self.take_trees();
        while self.kernel.has_windows() {
            self.unmap_window(0);
        }
        for space in 0..self.kernel.made.get() {
            if self.kernel.end_of(space) == End::NotYet {
                self.kernel.hold(space);
                self.exit(0, space);
            }
        }
        let cached = self.machine.borrow_mut().memory.drop_cached(|_| 0);
        cached.into_iter().for_each(|at| self.bus().put(Frame { at, shift: 12 }));
        // A CPU that gave a space back may have used it for a moment, and holds it lazily since.
        self.leave_all();
    }

    /// Every CPU loads the kernel's tables, and frees the spaces that it was notified of.
    fn leave_all(&self) {
        for cpu in (0..self.kernel.program.cpus.len()).rev() {
            self.machine.borrow_mut().current = cpu;
            self.leave(cpu, |handle, irqs| handle.load_kernel(irqs));
            self.reclaim(cpu);
        }
    }
}
