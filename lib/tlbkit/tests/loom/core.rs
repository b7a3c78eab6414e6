//! One CPU's TLB: it never evicts, and it fills itself as early as the architecture allows, so that what it holds is as
//! old as can be.

use std::cell::{Cell, RefCell};

use loom::thread::{self, Thread};
use tlbkit::sync::{AtomicU32, AtomicU64, Ordering};
use tlbkit::{Cr3, Event, Features, Pcid, PhysAddr};

use crate::memory::KERNEL;

/// Turns in which a waiting CPU looks again at once, as a real one does; then it sleeps until something has happened,
/// so that waiting for ever is a deadlock that loom reports.
pub(crate) const WAKEFUL_TURNS: u32 = 2;

/// The host runs the CPU.
pub(crate) const RUNNING: u64 = 0;
/// The host does not run it.
pub(crate) const PREEMPTED: u64 = 1;
/// The host flushes it before it does.
pub(crate) const FLUSH: u64 = 2;

/// One translation.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Entry {
    pub(crate) pcid: Pcid,
    pub(crate) table: usize,
    pub(crate) page: usize,
    pub(crate) is_global: bool,
}

impl Entry {
    /// True if an access to `page` of the user's half or the kernel's, under `pcid`, hits it.
    pub(crate) fn serves(&self, pcid: Pcid, is_kernel: bool, page: usize) -> bool {
        (self.is_global || self.pcid == pcid) && (self.table == KERNEL) == is_kernel && self.page == page
    }
}

/// What is one CPU's own. Only its thread touches it, but for `interrupt`, and `thread` while it rests.
pub(crate) struct Core {
    pub(crate) features: Features,
    pub(crate) cr3: Cell<Cr3>,
    pub(crate) entries: RefCell<Vec<Entry>>,
    pub(crate) irqs_on: Cell<bool>,
    pub(crate) is_in_user_mode: Cell<bool>,
    /// Takes no interrupts and walks no tables: not up yet, offline, or stopped.
    pub(crate) is_off: Cell<bool>,
    /// In user mode, or as good as there: it touches no kernel page.
    pub(crate) is_deferring: Cell<bool>,
    /// The host preempts it at the next CR3 write, before that has an effect.
    pub(crate) is_preempted_at_cr3: Cell<bool>,
    /// The host's word about it: whether it runs, and whether it is flushed before it does.
    pub(crate) host: AtomicU64,
    /// Turns of the present wait.
    pub(crate) turns_waited: Cell<u32>,
    /// Announcements that it knew of at the last turn.
    pub(crate) heard: Cell<usize>,
    /// True if it has answered another CPU and not announced it yet.
    pub(crate) has_answered: Cell<bool>,
    /// Done once, at the first event of a kind.
    once: RefCell<Option<(fn(&Event) -> bool, Box<dyn FnOnce()>)>>,
    /// Changed by each access and each walk: TLBSYNC comes after those that an INVLPGB has named. Apart for each PCID
    /// that all CPUs share, and for all others together.
    accesses: [AtomicU32; 3],
    /// Of which kind the access or walk is that is under way.
    under_way: Cell<Option<usize>>,
    /// The interrupt line. Its delivery orders what was written before it was sent, as the protocol demands of it.
    pub(crate) interrupt: AtomicU32,
    /// The thread, while it sleeps until an interrupt.
    pub(crate) sleeper: RefCell<Option<Thread>>,
}

impl Core {
    pub(crate) fn new(features: Features) -> Self {
        Self {
            features,
            cr3: Cell::new(Cr3::flushing(PhysAddr(0), Pcid::KERNEL)),
            entries: RefCell::default(),
            irqs_on: Cell::new(true),
            is_in_user_mode: Cell::new(false),
            is_off: Cell::new(true),
            is_deferring: Cell::new(false),
            is_preempted_at_cr3: Cell::new(false),
            host: AtomicU64::new(RUNNING),
            turns_waited: Cell::new(0),
            heard: Cell::new(0),
            has_answered: Cell::new(false),
            once: RefCell::new(None),
            accesses: std::array::from_fn(|_| AtomicU32::new(0)),
            under_way: Cell::new(None),
            interrupt: AtomicU32::new(0),
            sleeper: RefCell::new(None),
        }
    }

    /// Does `then` at the next event that is the one.
    pub(crate) fn once(&self, is_it: fn(&Event) -> bool, then: impl FnOnce() + 'static) {
        *self.once.borrow_mut() = Some((is_it, Box::new(then)));
    }

    /// An event that ends no wait.
    pub(crate) fn note(&self, event: &Event) {
        if matches!(event, Event::AnswerEnd(_)) {
            self.has_answered.set(true);
        }
        let due = self.once.borrow_mut().take_if(|(is_it, _)| is_it(event));
        due.into_iter().for_each(|(_, then)| then());
    }

    /// An access or a walk, `f`, under `pcid`: it comes after each TLBSYNC that found it missing, and before any other.
    pub(crate) fn access<R>(&self, pcid: Pcid, f: impl FnOnce() -> R) -> R {
        let kind = Self::kind_of(pcid);
        let before = self.under_way.replace(Some(kind));
        // Acquire: partner is the Release in `await_accesses`.
        self.accesses[kind].fetch_add(1, Ordering::Acquire);
        let result = f();
        // Release: partner is the Acquire in `await_accesses`.
        self.accesses[kind].fetch_add(1, Ordering::Release);
        self.under_way.set(before);
        result
    }

    /// Walks under `pcid`, or all, that begin from here on find what the tables hold now.
    pub(crate) fn begin_sync(&self, pcid: Option<Pcid>) {
        for kind in self.kinds(pcid) {
            // AcqRel: partner is the Acquire in `access`.
            self.accesses[kind].fetch_add(1, Ordering::AcqRel);
        }
    }

    /// TLBSYNC waits for accesses and walks under `pcid`, or for all.
    pub(crate) fn end_sync(&self, pcid: Option<Pcid>) {
        for kind in self.kinds(pcid) {
            // AcqRel: partners are both in `access`.
            self.accesses[kind].fetch_add(1, Ordering::AcqRel);
            while self.under_way.get() == Some(kind) {
                thread::yield_now();
                self.accesses[kind].fetch_add(1, Ordering::AcqRel); // AcqRel: as above
            }
        }
    }

    fn kinds(&self, pcid: Option<Pcid>) -> impl Iterator<Item = usize> {
        (0..self.accesses.len()).filter(move |&kind| pcid.is_none_or(|pcid| Self::kind_of(pcid) == kind))
    }

    fn kind_of(pcid: Pcid) -> usize {
        match pcid.0 & !Pcid::USER_BIT {
            16 => 1,
            17 => 2,
            _ => 0,
        }
    }

    /// Drops the entries that `goes` names.
    pub(crate) fn drop_entries(&self, goes: impl Fn(&Entry) -> bool) {
        self.entries.borrow_mut().retain(|entry| !goes(entry));
    }

    /// The translation of `page`, if the TLB holds one.
    pub(crate) fn hit(&self, is_kernel: bool, page: usize) -> Option<Entry> {
        let pcid = self.cr3.get().pcid();
        self.entries.borrow().iter().find(|entry| entry.serves(pcid, is_kernel, page)).copied()
    }
}
