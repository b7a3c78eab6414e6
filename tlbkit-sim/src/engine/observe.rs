//! The protocol's atomics: each is a point at which other CPUs may act, and costs what its cache line costs.

use tlbkit::sync::Access;

use super::ledger::{Cause, LineUse};
use super::spin::Found;
use super::world::World;
use crate::lines::LineId;

/// The observer of the thread: called before each access takes effect.
pub(crate) fn observe(access: Access, address: usize) {
    if let Some(world) = World::of_thread()
        && world.running_cpu().is_some()
    {
        world.observe(access, address);
    }
}

impl World {
    fn observe(&'static self, access: Access, address: usize) {
        if access == Access::Fence {
            self.fence();
            return;
        }
        let cpu = self.cpu();
        let core = &self.cores[cpu];
        let line = self.lines.borrow_mut().line_of(address);
        // Until another CPU could have taken the line away, a hit is nobody else's business.
        let near = self.lines.borrow().is_near(cpu as u32, access, line);
        self.sync(if near { self.costs.lines.same_socket_cycles } else { 0 });
        if access == Access::Rmw {
            core.advance_to(core.drained_at.get(), core.cause.get());
        }
        let now = core.clock.get();
        let charge = self.lines.borrow_mut().access(cpu as u32, access, line, now);
        let found = if charge.was_held { Found::Held } else { Found::Fetched };
        {
            let mut spin = core.spin.borrow_mut();
            if access == Access::Load { spin.load(line, found) } else { spin.disturb() }
        }
        core.drained_at.set(core.drained_at.get().max(charge.visible_at));
        core.advance_line(charge.cycles, self.line_use(line, address));
        for watcher in charge.woken {
            self.wake(watcher as usize, now);
        }
    }

    fn fence(&'static self) {
        let core = self.core();
        core.advance_to(core.drained_at.get(), core.cause.get());
        core.advance(self.costs.full_fence);
        self.sync(0);
    }

    fn line_use(&self, line: LineId, address: usize) -> LineUse {
        if self.lines.borrow().is_in_set(line, address) { LineUse::CpuSet } else { LineUse::Other }
    }

    /// PAUSE: sleeps through turns of a loop that cannot see anything new.
    pub(crate) fn relax(&'static self) {
        let cpu = self.cpu();
        let core = &self.cores[cpu];
        let cause = match core.cause.get() {
            Cause::FlushWait => Cause::FlushWait,
            _ => Cause::LockSpin,
        };
        core.advance_for(cause, self.costs.pause);
        // First whatever is due: an interrupt taken here may fetch a line again that was lost, and hide the loss.
        self.sync(0);
        let lines = core.spin.borrow_mut().end_turn();
        let unchanged = |line: &LineId| self.lines.borrow().is_near(cpu as u32, Access::Load, *line);
        if lines.is_empty() || !lines.iter().all(unchanged) {
            return;
        }
        lines.iter().for_each(|&line| self.lines.borrow_mut().watch(cpu as u32, line));
        self.sleep_until(core.takes_at(), cause);
        lines.iter().for_each(|&line| self.lines.borrow_mut().unwatch(cpu as u32, line));
        self.sync(0);
    }
}
