//! One simulated CPU: clock, interrupts, translation hardware, account.

use std::cell::{Cell, RefCell, RefMut};
use std::fmt;
use std::sync::Arc;

use super::agenda::NEVER;
use super::spin::Spin;
use crate::host::prefetch;
use crate::mmu::{self, Mmu};
use crate::observer::{Cause, Class, Ledger, LineUse};

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

/// How far a flush has come with the choice of those that it asks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Choice {
    /// It has looked at nobody.
    None,
    /// The same, and it has used INVLPGB.
    Broadcast,
    /// It has looked at some, and asks nobody yet.
    Looking,
    /// It asks at least one.
    Asking,
}

/// One CPU: two lines of the host. What is large lies elsewhere, so that thousands of CPUs taking turns find the next
/// one in the host's caches.
#[repr(C, align(64))]
pub(crate) struct Processor {
    pub(super) clock: Cell<u64>,
    /// When the earliest flush interrupt that was not taken yet is due; requests merge.
    pub(super) flush_due: Cell<u64>,
    /// When the earliest wake-up or preemption interrupt is due.
    pub(super) kick_due: Cell<u64>,
    /// When stores that left the CPU's buffer will have reached their lines.
    pub(super) drained_at: Cell<u64>,
    pub(super) ledger: Box<RefCell<Ledger>>,
    pub(super) mmu: Box<RefCell<Mmu>>,
    pub(super) irqs: Cell<Irqs>,
    pub(super) ring: Cell<Ring>,
    pub(super) cause: Cell<Cause>,
    /// The account that was charged before the current flush began.
    pub(super) cause_before_flush: Cell<Cause>,
    pub(super) class: Cell<Class>,
    /// Whether the flush that is under way has looked for CPUs to ask.
    pub(super) choice: Cell<Choice>,
    /// First-level hits since the last whole cycle: two loads fit in one.
    pub(super) half: Cell<u8>,
    pub(super) arrival: Cell<Arrival>,
    pub(super) is_halted: Cell<bool>,
    /// Until then it only pauses, whatever its clock says.
    pub(super) pauses_until: Cell<u64>,
    pub(super) spin: RefCell<Spin>,
}

const _: () = assert!(size_of::<Processor>() == 128);

impl Processor {
    pub(super) fn new(config: &Arc<mmu::MmuConfig>) -> Self {
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
            cause_before_flush: Cell::new(Cause::Kernel),
            class: Cell::new(Class::Idle),
            choice: Cell::new(Choice::None),
            half: Cell::new(0),
            arrival: Cell::new(Arrival::InPlace),
            is_halted: Cell::new(false),
            pauses_until: Cell::new(0),
            spin: RefCell::default(),
        }
    }

    /// Fetches what lies elsewhere into the host's caches.
    #[inline]
    pub(super) fn prefetch(&self) {
        prefetch(&*self.mmu);
        prefetch(&*self.ledger);
    }

    /// The CPU's own time, in cycles since the run began.
    #[inline]
    pub(crate) fn now(&self) -> u64 {
        self.clock.get()
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
    pub(super) fn advance_line(&self, cycles: u64, line: LineUse) {
        self.clock.set(self.clock.get() + cycles);
        self.ledger.borrow_mut().charge_line(self.class.get(), self.cause.get(), cycles, line);
    }

    /// Lets time pass until `at`, if that is later, on account of `cause`.
    pub(crate) fn advance_to(&self, at: u64, cause: Cause) {
        let cycles = at.saturating_sub(self.clock.get());
        self.advance_for(cause, cycles);
    }

    /// Lets `cycles` pass for work other than looking: a spin loop in which it happens is not slept through.
    #[inline]
    pub(crate) fn work(&self, cycles: u64) {
        self.spin.borrow_mut().disturb();
        self.advance(cycles);
    }

    /// Runs `body` on account of `cause`.
    pub(crate) fn within<R>(&self, cause: Cause, body: impl FnOnce() -> R) -> R {
        let before = self.cause.replace(cause);
        let result = body();
        self.cause.set(before);
        result
    }

    /// From now on time passes on account of `cause`.
    pub(crate) fn charge_to(&self, cause: Cause) {
        self.cause.set(cause);
    }

    /// What time passes on account of.
    pub(crate) fn cause(&self) -> Cause {
        self.cause.get()
    }

    /// From now on the CPU runs a task, or its idle thread, in the kernel.
    pub(crate) fn become_busy_with(&self, class: Class) {
        self.class.set(class);
        self.cause.set(Cause::Kernel);
    }

    /// From now on the CPU runs with this privilege.
    pub(crate) fn set_ring(&self, ring: Ring) {
        self.ring.set(ring);
    }

    /// Whether interrupts are taken.
    pub(crate) fn irqs(&self) -> Irqs {
        self.irqs.get()
    }

    /// Interrupts wait from now on.
    pub(crate) fn disable_interrupts(&self) {
        self.irqs.set(Irqs::Off);
    }

    /// An interrupt that says that there is a task becomes due at `at`.
    #[cfg(test)]
    pub(crate) fn kick_at(&self, at: u64) {
        self.kick_due.set(at);
    }

    /// True while the CPU waits for an interrupt.
    pub(crate) fn is_halted(&self) -> bool {
        self.is_halted.get()
    }

    /// True if the CPU executes instructions of a task at `now`, a time by another CPU's clock: it neither idles nor
    /// pauses.
    pub(super) fn executes_at(&self, now: u64) -> bool {
        self.class.get() == Class::Task && now >= self.pauses_until.get()
    }

    /// True while a task runs in the kernel.
    pub(super) fn is_in_kernel(&self) -> bool {
        self.ring.get() == Ring::Kernel && self.class.get() == Class::Task
    }

    /// When a flush interrupt is due, if ever.
    pub(crate) fn flush_due_at(&self) -> u64 {
        self.flush_due.get()
    }

    /// When a wake-up is due, if ever.
    pub(crate) fn kick_due_at(&self) -> u64 {
        self.kick_due.get()
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

    /// How `switch`, a call of the protocol, came to its space.
    pub(crate) fn arrival_of(&self, switch: impl FnOnce()) -> Arrival {
        self.arrival.set(Arrival::InPlace);
        switch();
        self.arrival.get()
    }

    /// Cycles by cause and class so far.
    pub(crate) fn ledger(&self) -> Ledger {
        *self.ledger.borrow()
    }

    /// The translation hardware.
    pub(crate) fn mmu(&self) -> RefMut<'_, Mmu> {
        self.mmu.borrow_mut()
    }
}

/// What the CPU does, for the message of a run in which nothing happens any more.
impl fmt::Display for Processor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (cause, now, irqs) = (self.cause(), self.now(), self.irqs());
        write!(f, "{cause:?} at {now}, interrupts {irqs:?}, next due ")?;
        match self.flush_due.get() {
            NEVER => f.write_str("none"),
            due => due.fmt(f),
        }
    }
}
