//! One simulated CPU: clock, interrupts, translation hardware, account.

use std::cell::{Cell, RefCell};
use std::sync::Arc;

use super::ledger::{Cause, Class, Ledger, LineUse};
use super::spin::Spin;
use crate::mmu::{self, Mmu};

/// Never: no time is later.
pub(crate) const NEVER: u64 = u64::MAX;

/// Which privilege is running: what an interrupt finds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Ring {
    /// The kernel.
    Kernel,
    /// A program.
    User,
}

/// Whether interrupts are taken.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Irqs {
    /// They wait.
    Off,
    /// They are taken when they are due.
    On,
}

/// How the last switch came to its space.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Arrival {
    /// The space was loaded already.
    InPlace,
    /// By a load that kept the slot's entries.
    Kept,
    /// By one that flushed them.
    Flushed,
}

/// Interrupts of one CPU.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, serde::Serialize)]
pub struct IpiCounters {
    /// Requests to other CPUs to answer, each target counted.
    pub sent: u64,
    /// Requests answered.
    pub received: u64,
    /// Idle CPUs woken by an interrupt.
    pub wakes_sent: u64,
}

/// One CPU: two lines of the host. What is large lies elsewhere, so that thousands of CPUs taking turns find the next
/// one in the host's caches.
#[repr(C, align(64))]
pub(crate) struct Core {
    pub(crate) clock: Cell<u64>,
    /// When the earliest flush interrupt that was not taken yet is due; requests merge.
    pub(crate) flush_due: Cell<u64>,
    /// When the earliest wake-up or preemption interrupt is due.
    pub(crate) kick_due: Cell<u64>,
    /// When stores that left the CPU's buffer will have reached their lines.
    pub(crate) drained_at: Cell<u64>,
    pub(crate) ledger: Box<RefCell<Ledger>>,
    pub(crate) mmu: Box<RefCell<Mmu>>,
    pub(crate) irqs: Cell<Irqs>,
    pub(crate) ring: Cell<Ring>,
    pub(crate) cause: Cell<Cause>,
    /// The account on which a flush that is under way began.
    pub(crate) outer: Cell<Cause>,
    pub(crate) class: Cell<Class>,
    /// First-level hits since the last whole cycle: two loads fit in one.
    pub(crate) half: Cell<u8>,
    pub(crate) spin: RefCell<Spin>,
    pub(crate) ipis: Cell<IpiCounters>,
    pub(crate) arrival: Cell<Arrival>,
}

const _: () = assert!(size_of::<Core>() == 128);

impl Core {
    pub(crate) fn new(config: &Arc<mmu::Config>) -> Self {
        Self {
            clock: Cell::new(0),
            flush_due: Cell::new(NEVER),
            kick_due: Cell::new(NEVER),
            drained_at: Cell::new(0),
            ledger: Box::default(),
            mmu: Box::new(RefCell::new(Mmu::new(Arc::clone(config)))),
            irqs: Cell::new(Irqs::On),
            ring: Cell::new(Ring::Kernel),
            cause: Cell::new(Cause::Idle),
            outer: Cell::new(Cause::Kernel),
            class: Cell::new(Class::Idle),
            half: Cell::new(0),
            spin: RefCell::default(),
            ipis: Cell::default(),
            arrival: Cell::new(Arrival::InPlace),
        }
    }

    /// Lets `cycles` pass.
    #[inline]
    pub(crate) fn advance(&self, cycles: u64) {
        self.advance_for(self.cause.get(), cycles);
    }

    /// Lets `cycles` pass on account of `cause`.
    #[inline]
    pub(crate) fn advance_for(&self, cause: Cause, cycles: u64) {
        self.clock.set(self.clock.get() + cycles);
        self.ledger.borrow_mut().charge(self.class.get(), cause, cycles);
    }

    /// Lets `cycles` pass waiting for a cache line.
    pub(crate) fn advance_line(&self, cycles: u64, line: LineUse) {
        self.clock.set(self.clock.get() + cycles);
        self.ledger.borrow_mut().charge_line(self.class.get(), self.cause.get(), cycles, line);
    }

    /// Lets time pass until `at`, if that is later, on account of `cause`.
    pub(crate) fn advance_to(&self, at: u64, cause: Cause) {
        let cycles = at.saturating_sub(self.clock.get());
        self.advance_for(cause, cycles);
    }

    /// Runs `body` on account of `cause`.
    pub(crate) fn within<R>(&self, cause: Cause, body: impl FnOnce() -> R) -> R {
        let before = self.cause.replace(cause);
        let result = body();
        self.cause.set(before);
        result
    }

    /// When the next interrupt is due, whether or not it would be taken.
    pub(crate) fn due(&self) -> u64 {
        self.flush_due.get().min(self.kick_due.get())
    }

    /// When the next interrupt would be taken.
    pub(crate) fn takes_at(&self) -> u64 {
        match self.irqs.get() {
            Irqs::On => self.due(),
            Irqs::Off => NEVER,
        }
    }

    pub(crate) fn count_ipis(&self, count: impl FnOnce(&mut IpiCounters)) {
        let mut ipis = self.ipis.get();
        count(&mut ipis);
        self.ipis.set(ipis);
    }
}
