//! The protocol's atomics: each is a point at which other CPUs may act, and costs what its cache line costs.

use tlbkit::sync::Access;

use super::core::{Irqs, NEVER};
use super::ledger::{Cause, LineUse};
use super::spin::Found;
use super::world::World;
use crate::lines::{LINE_SHIFT, LineCounters, LineId, Reach, word_bit};

/// The observer of the thread: called before each access takes effect.
pub(crate) fn observe(access: Access, address: usize) {
    if let Some(world) = World::of_thread()
        && world.running_cpu().is_some()
    {
        world.observe(access, address);
    }
}

/// The line that the running CPU touched last, if nobody else has acted since. A set is scanned word by word, so the
/// next load is often of the same line, and need not be looked up.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Touched {
    /// The line's number among all of the host's lines.
    line: usize,
    /// Bit per word that belongs to a CPU set.
    set_words: u8,
    /// Until when the line is nobody else's business.
    until: u64,
}

impl Touched {
    pub(crate) const NOTHING: Self = Self { line: usize::MAX, set_words: 0, until: 0 };
}

impl World {
    #[inline]
    fn observe(&'static self, access: Access, address: usize) {
        let touched = self.touched.get();
        if access == Access::Load && touched.line == address >> LINE_SHIFT {
            let core = self.core();
            let now = core.clock.get();
            if now <= touched.until && now < core.takes_at() {
                core.advance_line(self.costs.lines.local_cycles, usage(touched.set_words, address));
                self.repeated_hits.set(self.repeated_hits.get() + 1);
                return;
            }
        }
        self.look_up(access, address);
    }

    #[inline(never)]
    fn look_up(&'static self, access: Access, address: usize) {
        if access == Access::Fence {
            self.fence();
            return;
        }
        let cpu = self.cpu();
        let core = &self.cores[cpu];
        let (line, reach) = self.lines.borrow_mut().find(cpu as u32, access, address, core.clock.get());
        self.sync(match reach {
            Reach::Settled if core.irqs.get() == Irqs::Off => NEVER,
            Reach::Settled => self.touch_lookahead(),
            Reach::Near => self.costs.lines.same_socket_cycles,
            Reach::Far => 0,
        });
        if access == Access::Rmw {
            core.advance_to(core.drained_at.get(), core.cause.get());
        }
        let now = core.clock.get();
        let charge = self.lines.borrow_mut().access(cpu as u32, access, line, now);
        core.advance_line(charge.cycles, usage(charge.set_words, address));
        let is_settled = reach == Reach::Settled && charge.was_held;
        let ahead = if is_settled { self.touch_lookahead() } else { self.costs.lines.same_socket_cycles };
        let until = self.horizon.get().saturating_add(ahead);
        self.touched.set(Touched { line: address >> LINE_SHIFT, set_words: charge.set_words, until });
        if access == Access::Load {
            core.spin.borrow_mut().load(line, if charge.was_held { Found::Held } else { Found::Fetched });
            return;
        }
        core.spin.borrow_mut().disturb();
        core.drained_at.set(core.drained_at.get().max(charge.visible_at));
        if charge.is_watched {
            let watchers = self.lines.borrow_mut().take_watchers(line);
            watchers.into_iter().for_each(|watcher| self.wake(watcher as usize, now));
        }
    }

    fn fence(&'static self) {
        let core = self.core();
        core.advance_to(core.drained_at.get(), core.cause.get());
        core.advance(self.costs.full_fence);
    }

    /// What all accesses did.
    pub(crate) fn line_counters(&self) -> LineCounters {
        let mut counters = self.lines.borrow().counters();
        counters.hits += self.repeated_hits.get();
        counters
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
        self.touched.set(Touched::NOTHING);
        let lines = core.spin.borrow_mut().end_turn();
        let unchanged = |line: &LineId| self.lines.borrow().is_held(cpu as u32, *line);
        if lines.is_empty() || !lines.iter().all(unchanged) {
            return;
        }
        lines.iter().for_each(|&line| self.lines.borrow_mut().watch(cpu as u32, line));
        self.sleep_until(core.takes_at(), cause);
        lines.iter().for_each(|&line| self.lines.borrow_mut().unwatch(cpu as u32, line));
        self.sync(0);
    }
}

/// What the word at `address` is for, if those of `set_words` in its line belong to a CPU set.
fn usage(set_words: u8, address: usize) -> LineUse {
    if set_words & word_bit(address) != 0 { LineUse::CpuSet } else { LineUse::Other }
}
