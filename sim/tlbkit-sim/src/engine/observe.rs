//! The protocol's atomics: each is a point at which other CPUs may act, and costs what its cache line costs.

use std::cell::Cell;

use tlbkit::sync::Access;

use super::core::{Core, Irqs, NEVER};
use super::ledger::{Cause, Class, LineUse};
use super::spin::Found;
use super::world::World;
use crate::lines::{LINE_SHIFT, LineId, Reach, word_bit};

/// The observer of the thread: called before each access takes effect.
pub(crate) fn observe(access: Access, address: usize) {
    if let Some(world) = World::of_thread()
        && !(access == Access::Load && world.streak.repeats(address, world.costs.lines.local_cycles))
        && world.running_cpu().is_some()
    {
        world.look_up(access, address);
    }
}

/// Loads of one line in a row by the running CPU: a set is scanned word by word. While nobody else has acted and
/// nothing is due they need not be looked up; they are counted, and charged when the streak ends.
pub(crate) struct Streak {
    /// Whose; nobody's when there is none.
    core: Cell<Option<&'static Core>>,
    /// The line's number among all of the host's lines.
    line: Cell<usize>,
    /// From then on the line may be somebody else's business, or an interrupt is due.
    until: Cell<u64>,
    class: Cell<Class>,
    cause: Cell<Cause>,
    /// Bit per word that belongs to a CPU set.
    set_words: Cell<u8>,
    hits: Cell<u64>,
    /// Of those, in words of sets.
    set_hits: Cell<u64>,
}

impl Streak {
    pub(crate) const fn new() -> Self {
        Self {
            core: Cell::new(None),
            line: Cell::new(0),
            until: Cell::new(0),
            class: Cell::new(Class::Idle),
            cause: Cell::new(Cause::Idle),
            set_words: Cell::new(0),
            hits: Cell::new(0),
            set_hits: Cell::new(0),
        }
    }

    fn begin(&self, core: &'static Core, address: usize, set_words: u8, until: u64) {
        self.core.set(Some(core));
        self.line.set(address >> LINE_SHIFT);
        self.until.set(until);
        self.class.set(core.class.get());
        self.cause.set(core.cause.get());
        self.set_words.set(set_words);
    }

    /// True if the load at `address` is one more.
    #[inline]
    fn repeats(&self, address: usize, cycles: u64) -> bool {
        let Some(core) = self.core.get() else { return false };
        let now = core.clock.get();
        let goes_on = self.line.get() == address >> LINE_SHIFT && now < self.until.get();
        if !goes_on || core.cause.get() != self.cause.get() {
            return false;
        }
        core.clock.set(now + cycles);
        self.hits.set(self.hits.get() + 1);
        self.set_hits.set(self.set_hits.get() + u64::from(self.set_words.get() & word_bit(address) != 0));
        true
    }
}

impl World {
    /// Whatever comes next must be looked up.
    #[inline]
    pub(crate) fn end_streak(&self) {
        let Some(core) = self.streak.core.take() else { return };
        let hits = self.streak.hits.take();
        if hits == 0 {
            return;
        }
        self.lines.borrow_mut().count_hits(hits);
        let (class, cause) = (self.streak.class.get(), self.streak.cause.get());
        let set_hits = self.streak.set_hits.take();
        let mut ledger = core.ledger.borrow_mut();
        for (hits, line) in [(set_hits, LineUse::CpuSet), (hits - set_hits, LineUse::Other)] {
            ledger.charge_line(class, cause, hits * self.costs.lines.local_cycles, line);
        }
    }

    #[inline(never)]
    fn look_up(&'static self, access: Access, address: usize) {
        self.end_streak();
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
        let until = self.horizon.get().saturating_add(ahead + 1).min(core.takes_at());
        self.streak.begin(core, address, charge.set_words, until);
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
        self.end_streak();
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
