//! Page tables that not every CPU walks: a kernel that gives each CPU its own upper page tables (RadixVM, numaPTE)
//! knows which CPUs can hold a translation, and interrupts no other.
//!
//! **The rule.** The CPUs share the last-level tables. A directory of one CPU names such a table only after that CPU
//! has faulted below it; before the entry is written, the CPU is recorded among the [`Sharers`] of the table. A CPU
//! that is not among them has walked to no page below the table, so it caches none, and has nothing to flush.
//!
//! A flush of pages below such tables goes to their sharers alone, of those CPUs that run the space. If this CPU is the
//! only one, it advances no generation either: no other CPU owes anything, not even one that holds the space in lazy
//! TLB mode while a table is freed.
//!
//! ```text
//!   CPU that faults (Sharers::hook)                CPU that takes translations away (Reach::add)
//!   record itself among the sharers                change the PTE
//!   fence(SeqCst)                                  fence(SeqCst)
//!   store the entry of its own directory           read the sharers
//!   walk: read the PTE
//! ```
//! Either the flush sees that another CPU shares the table, or that CPU walks to the new PTE.
//!
//! A CPU is excluded when the flush is sent, not when the sharers are read: the thread may migrate in between, and then
//! the CPU that it came from is another one.
//!
//! Nothing is taken back while a table lives. When it is freed, its entry is cleared first in the directory of every
//! CPU that shares it, under a lock that keeps CPUs from hooking it meanwhile; after the flush the frame is an ordinary
//! one. Until then no other table is made in its place: of that one's pages a flush would not know the CPUs that still
//! hold what was there before. (`tlbkit-pmap` holds the lock of the regions until its flush is over, so no fault maps
//! anything there. A kernel that enters frames by itself keeps away from what it unmaps.) Pages that were retired below
//! it may be held for longer: nothing is mapped at their addresses meanwhile.
//!
//! **The beginning.** A space may begin with tables that all CPUs share, and be converted later: when its second thread
//! is about to start. The kernel makes a top-level table that maps nothing of the user half, the *empty root*, has
//! [`Hardware::root_here`](crate::Hardware::root_here) name that one from now on, and calls
//! [`reload_roots`](crate::Cpu::reload_roots), a flush of everything: each CPU that had loaded the shared tables loads
//! what `root_here` says. Until it returns, CPUs may hold anything, and flushes go to all.
//!
//! ```text
//!   CPU that loads the space (switch/mod.rs)       CPU that converts it (reload_roots)
//!   join the CPU set; presence := switching        root_here names the empty root      (Release)
//!   fence(SeqCst)                                  advance the generation; fence(SeqCst)
//!   read the generation               (Acquire)    ask all that hold the space, lazily too, or are switching
//!   load what root_here says                       wait for the answers
//!   presence := running                            from here on flushes go to sharers alone
//!   if asked: load what root_here says, flushing
//! ```
//! Either the CPU is asked, or it has read the new generation, and with it what `root_here` says. One that holds the
//! space lazily leaves it, as for any freed table: it would walk the shared tables, from which nobody is told of what
//! is freed. What is cached under the ASID of a CPU that runs something else is stale by its generation.
//!
//! Where the space has a PCID that all CPUs share, INVLPGB comes before the answers: until a CPU has answered it may
//! walk the shared tables, and cache what it finds under that PCID. So another INVLPGB comes after them, which flushes
//! all of the PCID, on CPUs that have left the space as well. A space that gets such a PCID later gets it empty.
//!
//! A CPU needs a root of its own only when it faults. The empty root leads nowhere, so nothing is cached through it:
//! the fault handler, which may wait for memory, or fail for want of it, makes one, has `root_here` name it on this CPU
//! alone, and calls [`reload_root_here`](crate::Cpu::reload_root_here), which flushes nothing. Another CPU's
//! `root_here` is never read, so there is no race; an interrupt in between would find the two roots differ, so they are
//! off.
//!
//! **Generations.** A CPU that runs the space falls behind the space's generation when flushes pass it by. A request
//! with [`Needs::WITHIN`] is carried out page by page all the same, and then leaves the ASID's generation where it was,
//! unless it is the next one (INV-4): a CPU that has run the space since has answered, or will answer, every flush that
//! concerned it. What it pays is a full flush at its next switch to the space, and at the next flush that goes to all.

use super::gather::{Flushed, TlbGather};
use super::request::{Extent, Needs, Request};
use super::retire::{GracePeriods, Retired};
use crate::addr::CpuId;
use crate::cpu::Cpu;
use crate::cpu::state::Presence;
use crate::hardware::{Event, Hardware, IrqsOff};
use crate::policy::Reason;
use crate::space::cpu_set::{CPUS_PER_WORD, split};
use crate::space::{AddressSpace, Generation, Translations};
use crate::sync::{AtomicU64, Ordering, array_of, const_unless_loom, fence};

/// Words of sharers: a bit for each of 128 CPUs. One under `cfg(narrow_sets)`, so that four CPUs are enough to share a
/// bit.
const WORDS: usize = if cfg!(narrow_sets) { 1 } else { 2 };
/// CPUs that have a bit for themselves. Those beyond share one, so that a CPU may be taken for a sharer and none is
/// lost.
const ALONE: usize = WORDS * CPUS_PER_WORD as usize;

/// Which CPUs can walk to one last-level page table: 16 bytes beside what a kernel keeps about the frame.
#[derive(Debug)]
pub struct Sharers([AtomicU64; WORDS]);

impl Sharers {
    const_unless_loom! {
        /// Of a table that no directory names.
        #[must_use]
        pub fn new() -> Self {
            Self(array_of!(AtomicU64::new(0); WORDS))
        }
    }

    /// `cpu`, this CPU, is about to store an entry for the table in a directory of its own.
    pub fn hook(&self, cpu: CpuId) {
        let (index, bit) = split(cpu);
        // Relaxed: ordered by the fence.
        self.0[index % WORDS].fetch_or(bit, Ordering::Relaxed);
        // SeqCst: the walks come after it; partner is the fence in `Reach::add`.
        fence(Ordering::SeqCst);
    }

    /// No directory names the table any more, and what was cached of it is flushed; or its frame is a new table.
    pub fn clear(&self) {
        // Relaxed: the kernel's lock orders it, under which CPUs hook tables.
        self.0.iter().for_each(|word| word.store(0, Ordering::Relaxed));
    }

    /// False if `cpu` has not hooked the table. Under the lock under which CPUs do that.
    #[must_use]
    pub fn may_include(&self, cpu: CpuId) -> bool {
        let (index, bit) = split(cpu);
        self.0[index % WORDS].load(Ordering::Relaxed) & bit != 0 // Relaxed: as in `clear`
    }
}

impl Default for Sharers {
    fn default() -> Self {
        Self::new()
    }
}

/// Which CPUs can hold what a gather has recorded.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Reach([u64; WORDS]);

impl Reach {
    /// Nothing is recorded yet.
    pub const NOBODY: Self = Self([0; WORDS]);
    /// Any CPU that runs the space: for what is not below a table whose sharers are known.
    pub const EVERYBODY: Self = Self([u64::MAX; WORDS]);

    /// Adds the sharers of a table. Its entries, or the entries of the sharers' directories that named it, have been
    /// changed before.
    pub fn add(&mut self, sharers: &Sharers) {
        // SeqCst: partner is the fence in `Sharers::hook`.
        fence(Ordering::SeqCst);
        for (bits, word) in self.0.iter_mut().zip(&sharers.0) {
            *bits |= word.load(Ordering::Relaxed); // Relaxed: ordered by the fence
        }
    }

    /// Adds the CPUs that `other` names.
    pub fn merge(&mut self, other: Self) {
        self.0.iter_mut().zip(other.0).for_each(|(bits, more)| *bits |= more);
    }

    /// The CPUs in the word at `index` of a CPU set.
    pub(super) const fn word(&self, index: usize) -> u64 {
        self.0[index % WORDS]
    }

    /// True if no CPU but `cpu` is meant, of `cpus`.
    fn is_only(self, cpu: CpuId, cpus: usize) -> bool {
        let (index, bit) = split(cpu);
        let mut only = Self::NOBODY;
        only.0[index % WORDS] = bit;
        cpus <= ALONE && self == only
    }
}

/// What is flushed, and by which CPUs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Within<'l> {
    pub(super) extent: Extent<'l>,
    pub(super) reach: Reach,
}

impl<S, F> TlbGather<'_, S, F> {
    /// Flushes as [`flush`](Self::flush) does, and interrupts only CPUs that `reach` names. The sharers of each table
    /// below which something was recorded have been added to it, after its last entry was changed; of a table that was
    /// recorded itself, too. If nothing was recorded, no sharers are known, and the flush goes to all.
    ///
    /// # Panics
    /// As [`flush`](Self::flush).
    pub fn flush_within<H: Hardware<Set = S>>(self, cpu: &Cpu<'_, '_, H>, reach: Reach) -> Flushed<F> {
        if self.has_work(cpu) {
            cpu.shootdown_within(self.translations, &self.request(cpu), self.known(reach), self.reason());
        }
        self.into_flushed()
    }

    /// Gives away what was recorded as [`retire`](Self::retire) does, unless no other CPU can hold it, as `reach` says
    /// ([`flush_within`](Self::flush_within)): then it is flushed here, the frames come back at once, and no CPU has to
    /// pass for them.
    ///
    /// # Panics
    /// As [`flush`](Self::flush).
    pub fn retire_within<H: Hardware<Set = S>>(
        self,
        cpu: &Cpu<'_, '_, H>,
        periods: &GracePeriods<'_>,
        reach: Reach,
    ) -> Retired<F> {
        let (request, reach) = (self.request(cpu), self.known(reach));
        let space = cpu.space_within(self.translations, &request, reach).filter(|_| self.has_work(cpu));
        if space.is_some_and(|space| cpu.flush_alone(space, &request, reach)) {
            return Retired::of_nobody(self.into_flushed());
        }
        self.retire(cpu, periods)
    }

    /// `reach`, unless only frames are held, or all is to be flushed: nobody has added the sharers of what that was.
    const fn known(&self, reach: Reach) -> Reach {
        if self.is_empty() { Reach::EVERYBODY } else { reach }
    }
}

impl<H: Hardware> Cpu<'_, '_, H> {
    /// [`Hardware::root_here`] names other top-level tables for `space` than before: each CPU that has the space loaded
    /// loads what it names there, with all that is cached of the space flushed, or loads it when it runs the space
    /// next. When this returns, no CPU can use, or walks, what was there before.
    ///
    /// # Panics
    /// As [`TlbGather::flush`].
    pub fn reload_roots(&self, space: &AddressSpace<H::Set>) {
        let request = Request::everything(Needs::TABLES.with(Needs::ANSWER)).in_space(space);
        self.shootdown(Translations::OfSpace(space), request, Reason::RemoveAll);
        if self.has_broadcast()
            && let Some(pcid) = space.stamp().pcid()
        {
            self.broadcast_pcid(pcid);
            self.assert_here();
        }
    }

    /// Has what is loaded next be the top-level table that [`Hardware::root_here`] names for the space that runs here
    /// now. True if that is another one than is loaded.
    #[cold]
    pub(super) fn look_for_root(&self) -> bool {
        let root = self.with_space_of(self.loaded_token(), |space| self.hardware.root_here(space)).0;
        let before = self.state.root.get();
        self.state.root.set(root);
        root != before
    }

    /// [`Hardware::root_here`] names another top-level table for `space` on this CPU, which runs the space, than a
    /// moment ago, and the one before mapped nothing of the user half: loads it. Nothing is flushed. Interrupts have
    /// been off since before `root_here` changed.
    ///
    /// # Panics
    /// With debug assertions, if the space does not run here.
    pub fn reload_root_here(&self, space: &AddressSpace<H::Set>, _irqs: &IrqsOff) {
        self.assert_here();
        self.check_irqs_off();
        debug_assert!(self.presence() == Presence::running(space.id), "the root of a space that does not run here");
        let root = self.hardware.root_here(space);
        self.state.root.set(root.0);
        self.load_keeping(root, self.asid());
    }

    fn shootdown_within(&self, whose: Translations<'_, H::Set>, request: &Request<'_>, reach: Reach, reason: Reason) {
        let Some(space) = self.space_within(whose, request, reach) else {
            return self.shootdown(whose, *request, reason);
        };
        if self.flush_alone(space, request, reach) {
            return;
        }
        let within = Within { extent: request.extent, reach };
        let needs = request.needs.with(Needs::WITHIN);
        self.shootdown(whose, Request { extent: Extent::Within(&within), needs, ..*request }, reason);
    }

    /// The space of which `request` flushes something, if no CPU can hold that but those that `reach` names.
    fn space_within<'s>(
        &self,
        whose: Translations<'s, H::Set>,
        request: &Request<'_>,
        reach: Reach,
    ) -> Option<&'s AddressSpace<H::Set>> {
        let Translations::OfSpace(space) = whose else { return None };
        let is_known = self.has_directories() && reach != Reach::EVERYBODY;
        // Software walkers read tables that their CPU has not hooked. A batch, or an issued flush, may owe a flush of
        // what the caller has found cleared.
        if !is_known || request.needs(Needs::GLOBAL.with(Needs::ANSWER)) || self.tlb.owed.is_owed(space.id) {
            return None;
        }
        Some(space)
    }

    /// Flushes what only this CPU can hold, or nobody; false, and nothing was done, if another CPU can, or if the space
    /// does not run here. Then its generation has to say that the ASID is stale. A PCID that all CPUs share is no ASID.
    fn flush_alone(&self, space: &AddressSpace<H::Set>, request: &Request<'_>, reach: Reach) -> bool {
        if reach == Reach::NOBODY {
            return true;
        }
        if !reach.is_only(self.id, self.tlb.cpus.len()) {
            return false;
        }
        self.with_irqs_off_here(|_| {
            let is_running = self.presence() == Presence::running(space.id);
            if !is_running || self.has_broadcast() && self.asid().is_shared() {
                return false;
            }
            self.hardware.event(Event::FlushBegin(request.pages().unwrap_or(u32::MAX)));
            match request.extent {
                Extent::Range { .. } | Extent::List(_) => self.flush_pages(*request),
                _ => self.flush_loaded_on_this_cpu(),
            }
            self.hardware.event(Event::FlushLocalDone);
            self.hardware.event(Event::FlushEnd);
            true
        })
    }

    /// What `request` names, whichever CPUs it is for.
    #[inline(always)]
    pub(super) fn without_reach<'r>(&self, request: &Request<'r>) -> Request<'r> {
        match request.extent {
            Extent::Within(within) if self.has_directories() => Request { extent: within.extent, ..*request },
            _ => *request,
        }
    }

    /// Pages that `request` names one by one, for a report.
    #[inline(always)]
    pub(super) fn pages_of(&self, request: &Request<'_>) -> u32 {
        self.without_reach(request).pages().unwrap_or(u32::MAX)
    }

    /// Writes a request with [`Needs::WITHIN`] into a free mailbox of this CPU.
    #[cold]
    pub(super) fn post_within(&self, mailbox: usize, request: &Request<'_>) {
        let Extent::Within(within) = request.extent else { return };
        self.own_mailbox(mailbox).post(&Request { extent: within.extent, ..*request }, self.mailboxes_in_use());
    }

    /// Carries out here a request with [`Needs::WITHIN`] that is not the next one, or that this CPU sends itself.
    #[cold]
    pub(super) fn flush_within(&self, request: &Request<'_>, held: Generation, newest: Generation, irqs: &IrqsOff) {
        match request.extent {
            Extent::Within(within) => {
                self.flush_within(&Request { extent: within.extent, ..*request }, held, newest, irqs);
            }
            Extent::Range { .. } | Extent::List(_) => {
                self.flush_pages(*request);
                if request.generation == held.next() && newest == request.generation {
                    self.state.asids.set_generation(self.asid(), newest);
                }
            }
            Extent::Everything | Extent::Loaded(_) => self.flush_whole_space(newest, request.needs, irqs),
        }
    }

    /// [`choose`](Self::choose) for a request that goes to some CPUs alone.
    #[cold]
    pub(super) fn choose_within(
        &self,
        whose: Translations<'_, H::Set>,
        index: usize,
        others: u64,
        request: &Request<'_>,
    ) -> u64 {
        let Extent::Within(within) = request.extent else { return others };
        let needs = request.needs.without(Needs::WITHIN);
        self.choose(whose, index, others & within.reach.word(index), &Request { needs, ..*request })
    }
}
