//! One CPU: what its program and its kernel do, and the door through which the protocol reaches its TLB.
//!
//! What each instruction invalidates is written here apart from `tlbkit-arch`, on purpose: loom's CPUs hold pages by
//! number and no addresses, and a mistake in the one table would otherwise be a mistake in every check.

use std::cell::RefCell;
use std::num::NonZeroU32;
use std::rc::Rc;

use loom::thread;
use tlbkit::sync::Ordering;
use tlbkit::{
    Acknowledgement, AddressSpace, CpuId, Cr3, Deferred, Destroyed, Entered, Event, Features, Flushed, Hardware,
    HostExtent, HostFlush, Invlpgb, Invpcid, IrqsOff, Isolation, KernelFlushes, Late, Pcid, PhysAddr, Reach, Reason,
    Retired, Scope, SpaceToken, Stride, TlbBatch, TlbGather, Translations, VirtAddr,
};

use crate::core::{Core, Entry, FLUSH, PREEMPTED, RUNNING, WAKEFUL_TURNS};
use crate::issued::{Issued, Set};
use crate::machine::{Machine, is_own, own, table_of};
use crate::memory::{KERNEL, address, page_of};

/// A CPU; a thread of loom holds it.
pub(crate) struct Cpu {
    pub(crate) machine: Rc<Machine>,
    index: usize,
    /// INVLPGBs that no TLBSYNC has followed yet.
    sent: RefCell<Vec<Invlpgb>>,
}

impl Cpu {
    pub(crate) fn new(machine: Rc<Machine>, index: usize) -> Self {
        Self { machine, index, sent: RefCell::default() }
    }

    pub(crate) fn protocol(&self) -> tlbkit::Cpu<'_, '_, Self> {
        self.machine.tlb().cpu(CpuId(self.index as u32), self)
    }

    pub(crate) fn core(&self) -> &Core {
        &self.machine.cores[self.index]
    }

    fn quietly(&self, f: impl FnOnce(tlbkit::Cpu<'_, '_, Self>, &IrqsOff)) {
        self.enter_kernel();
        self.with_irqs_off(|irqs| f(self.protocol(), irqs));
    }

    pub(crate) fn bring_up(&self) {
        self.core().is_off.set(false);
        self.quietly(|cpu, irqs| cpu.bring_up(irqs));
        self.announce();
    }

    pub(crate) fn offline(&self) {
        self.quietly(|cpu, irqs| cpu.offline(irqs));
        self.core().is_off.set(true);
        self.announce();
    }

    /// Runs a task of the space in table `table` from now on.
    pub(crate) fn switch(&self, table: usize) {
        self.quietly(|cpu, irqs| cpu.switch_to(self.machine.space(table), irqs));
        self.announce();
    }

    pub(crate) fn lazy(&self) {
        self.quietly(|cpu, irqs| cpu.enter_lazy(irqs));
    }

    pub(crate) fn load_kernel(&self) {
        self.quietly(|cpu, irqs| cpu.load_kernel(irqs));
        self.announce();
    }

    /// True if a program of some space can run here.
    pub(crate) fn runs_a_space(&self) -> bool {
        table_of(self.core().cr3.get().root()) != KERNEL
    }

    /// The kernel goes to user mode, and is not to be disturbed there.
    pub(crate) fn defer(&self) {
        self.quietly(|cpu, irqs| cpu.defer_kernel_flushes(irqs));
        self.core().is_deferring.set(true);
    }

    /// It is back; true if it was deferring.
    pub(crate) fn catch_up(&self) -> bool {
        self.core().is_deferring.set(false);
        self.with_irqs_off(|irqs| self.protocol().do_deferred_flushes(irqs)) == Entered::Deferring
    }

    /// The host takes the CPU away, and runs it again.
    pub(crate) fn preempted(&self) {
        let host = &self.core().host;
        // Release and Acquire: the host orders what the CPU did before, and what it does then.
        host.store(PREEMPTED, Ordering::Release);
        if host.swap(RUNNING, Ordering::Acquire) & FLUSH != 0 {
            self.invalidate(|_| true);
        }
    }

    /// The program reads its page `page`, if it is still there.
    pub(crate) fn access(&self, page: usize) {
        self.poll();
        if self.is_isolated() && !self.core().is_in_user_mode.replace(true) {
            self.with_irqs_off(|irqs| self.protocol().exit_to_user(irqs));
        }
        self.read(table_of(self.core().cr3.get().root()), page);
    }

    /// The program reads its page `page` before an interrupt that was sent arrives.
    pub(crate) fn access_uninterrupted(&self, page: usize) {
        self.read(table_of(self.core().cr3.get().root()), page);
    }

    /// The kernel reads its page `page`, if it is still there.
    pub(crate) fn access_kernel(&self, page: usize) {
        self.enter_kernel();
        self.poll();
        self.read(KERNEL, page);
    }

    fn read(&self, table: usize, page: usize) {
        self.accessing(|| {
            let find = || self.core().hit(table == KERNEL, page);
            let Some(entry) = find().or_else(|| self.walk(table, page)) else { return };
            assert_eq!(entry.table, table, "cpu{} used another space's translation", self.index);
            self.machine.tables[table].pages[page].frame.touch("a program");
        });
    }

    /// An access or a walk under the loaded PCID, for which TLBSYNC waits on a machine that has it.
    fn accessing<R>(&self, f: impl FnOnce() -> R) -> R {
        let core = self.core();
        if self.machine.setup.broadcast_pages.is_some() { core.access(core.cr3.get().pcid(), f) } else { f() }
    }

    /// Asks for a PCID of the space in table `table` that all CPUs share.
    pub(crate) fn share(&self, table: usize) {
        self.enter_kernel();
        self.protocol().share_pcid(self.machine.space(table));
    }

    /// Takes the pages away, flushes, frees the frames.
    pub(crate) fn unmap(&self, table: usize, pages: &[usize]) {
        self.revoke(table, pages, false).iter().for_each(|&page| self.machine.tables[table].pages[page].frame.free());
    }

    /// A fault: the CPU's own directory leads to the pages from now on.
    pub(crate) fn hook(&self, table: usize) {
        self.enter_kernel();
        self.machine.tables[table].hook(self.index);
        self.accessing(|| self.fill());
    }

    /// Gives the CPUs directories of their own. Nobody hooks a table, or takes one away, meanwhile.
    pub(crate) fn convert(&self, table: usize) {
        self.enter_kernel();
        self.machine.tables[table].convert();
        self.protocol().reload_roots(self.machine.space(table));
    }

    /// Takes the pages away, flushes where the sharers of their table say, frees the frames.
    pub(crate) fn unmap_within(&self, table: usize, pages: &[usize]) {
        self.enter_kernel();
        let gather = self.unhook(&self.machine, table, pages);
        let mut reach = Reach::NOBODY;
        reach.add(&self.machine.tables[table].sharers);
        let freed = gather.flush_within(&self.protocol(), reach).into_frames();
        freed.iter().for_each(|&page| self.machine.tables[table].pages[page].frame.free());
    }

    /// The same for page 0 and the tables.
    pub(crate) fn unmap_within_with_tables(&self, table: usize) {
        self.enter_kernel();
        let tables = &self.machine.tables[table];
        let mut gather = self.unhook(&self.machine, table, &[0]);
        gather.tables_freed();
        tables.unhook();
        let mut reach = Reach::NOBODY;
        reach.add(&tables.sharers);
        _ = gather.flush_within(&self.protocol(), reach).into_frames();
        tables.pages[0].frame.free();
        tables.lower.free();
    }

    /// Takes page 0 away and the tables with it, flushes, frees both.
    pub(crate) fn unmap_with_tables(&self, table: usize) {
        self.revoke(table, &[0], true);
        self.machine.tables[table].pages[0].frame.free();
        self.machine.tables[table].lower.free();
    }

    /// Takes the pages away with interrupts off, and asks for the flush.
    pub(crate) fn issue(&self, table: usize, pages: &[usize]) -> Issued {
        self.enter_kernel();
        Issued::new(Rc::clone(&self.machine), |machine| {
            let pending = self.with_irqs_off(|_| self.unhook(machine, table, pages).issue(&self.protocol()));
            Some((table, pending))
        })
    }

    /// Waits for what was issued, here or elsewhere, and frees the frames.
    pub(crate) fn wait(&self, mut issued: Issued) {
        self.enter_kernel();
        issued.with_dependent_mut(|machine, flush| {
            let Some((table, pending)) = flush.take() else { return };
            let pages = pending.wait(&self.protocol()).into_frames();
            pages.iter().for_each(|&page| machine.tables[table].pages[page].frame.free());
        });
    }

    /// Takes the pages away and retires them: nobody is interrupted.
    pub(crate) fn retire(&self, table: usize, pages: &[usize]) -> Retired<Vec<usize>> {
        self.enter_kernel();
        self.unhook(&self.machine, table, pages).retire(&self.protocol(), self.machine.periods())
    }

    /// Takes the pages away, and gives them back at once where no other CPU can hold them.
    pub(crate) fn retire_within(&self, table: usize, pages: &[usize]) -> Option<Retired<Vec<usize>>> {
        self.enter_kernel();
        let gather = self.unhook(&self.machine, table, pages);
        let mut reach = Reach::NOBODY;
        reach.add(&self.machine.tables[table].sharers);
        let retired = gather.retire_within(&self.protocol(), self.machine.periods(), reach);
        let freed = retired.try_now().map(Flushed::into_frames);
        freed.map(|pages| pages.iter().for_each(|&page| self.machine.tables[table].pages[page].frame.free())).err()
    }

    /// The kernel is entered, or there is a tick.
    pub(crate) fn pass(&self) {
        self.quietly(|cpu, irqs| self.machine.periods().pass(&cpu, irqs));
    }

    /// Frees the frames if their grace period is over, so many turns long; then all CPUs are asked.
    pub(crate) fn reclaim(&self, table: usize, mut retired: Retired<Vec<usize>>, turns: usize) {
        self.enter_kernel();
        let is_over = (0..turns).any(|_| {
            let is_over = retired.is_over(&self.protocol(), self.machine.periods());
            if !is_over {
                thread::yield_now();
            }
            is_over
        });
        if is_over || turns == 0 {
            let pages = retired.flush(&self.protocol(), self.machine.periods()).into_frames();
            pages.iter().for_each(|&page| self.machine.tables[table].pages[page].frame.free());
        }
    }

    /// Leaves what was issued to a task that goes on elsewhere: whoever moves a task orders what it did before.
    pub(crate) fn hand_over(&self, issued: Issued) {
        self.machine.handed_over.borrow_mut().push(issued);
    }

    /// What was handed over; it was before all programs.
    pub(crate) fn take_over(&self) -> Vec<Issued> {
        self.machine.handed_over.take()
    }

    fn revoke(&self, table: usize, pages: &[usize], are_tables_freed: bool) -> Vec<usize> {
        self.enter_kernel();
        let mut gather = self.unhook(&self.machine, table, pages);
        if are_tables_freed {
            gather.tables_freed();
        }
        gather.flush(&self.protocol()).into_frames()
    }

    fn unhook<'m>(&self, machine: &'m Machine, table: usize, pages: &[usize]) -> TlbGather<'m, Set, Vec<usize>> {
        let translations =
            if table == KERNEL { Translations::OfKernel } else { Translations::OfSpace(machine.space(table)) };
        let mut gather = TlbGather::new(translations, Vec::new());
        for &page in pages {
            machine.tables[table].pages[page].unhook();
            let scope = if table == KERNEL && !self.is_isolated() { Scope::Global } else { Scope::NonGlobal };
            gather.unmap(&self.protocol(), address(table, page), Stride::Page4K, scope, Reason::RemovePte, page);
        }
        gather
    }

    /// Takes page 0 of each of `tables` away, flushes once, frees the frames.
    pub(crate) fn evict(&self, tables: &[usize]) {
        self.enter_kernel();
        let mut batch = TlbBatch::new(Vec::new());
        for &table in tables {
            self.machine.tables[table].pages[0].unhook();
            batch.unmap(&self.protocol(), self.machine.space(table), table);
        }
        for table in batch.flush(&self.protocol(), Reason::Migrate).into_frames() {
            self.machine.tables[table].pages[0].frame.free();
        }
    }

    /// Takes page 0 of each of `tables` away, and flushes nothing.
    pub(crate) fn take_and_defer(&self, tables: &[usize]) -> Deferred<Vec<usize>> {
        self.enter_kernel();
        let mut batch = TlbBatch::new(Vec::new());
        for &table in tables {
            self.machine.tables[table].pages[0].unhook();
            batch.unmap(&self.protocol(), self.machine.space(table), table);
        }
        batch.defer(&self.protocol(), self.machine.periods())
    }

    /// Takes the first page of each of more tables, and has one flush serve both.
    pub(crate) fn fold(&self, deferred: &mut Deferred<Vec<usize>>, tables: &[usize]) {
        deferred.fold(&self.protocol(), self.take_and_defer(tables));
    }

    /// Flushes what was deferred, and frees the frames.
    pub(crate) fn reuse(&self, deferred: Deferred<Vec<usize>>) {
        for table in self.give_up(deferred) {
            self.machine.tables[table].pages[0].frame.free();
        }
    }

    /// Flushes what was deferred, whose frames are somebody else's.
    pub(crate) fn give_up(&self, deferred: Deferred<Vec<usize>>) -> Vec<usize> {
        self.enter_kernel();
        deferred.flush(&self.protocol(), self.machine.periods(), Reason::Migrate).into_frames()
    }

    /// Ends the space and frees its top-level table, now or when the last CPU leaves it.
    pub(crate) fn destroy(&self, table: usize) {
        let root = &self.machine.tables[table].root;
        root.touch("its destroyer");
        if self.protocol().destroy(self.machine.space(table)) == Destroyed::Now {
            root.free();
        }
    }

    /// Stops for ever, without a word; whoever finds it says so.
    pub(crate) fn stop(&self) {
        self.core().is_off.set(true);
        self.machine.tlb().declare_stopped(CpuId(self.index as u32));
        self.announce();
    }

    /// The program has ended: answers interrupts until all programs have.
    pub(crate) fn rest(&self) {
        let machine = &self.machine;
        machine.busy.set(machine.busy.get() - 1);
        self.announce();
        while machine.busy.get() != 0 {
            if !self.poll() && machine.busy.get() != 0 {
                self.sleep();
            }
        }
    }

    /// Until an interrupt, or until another CPU has something to announce.
    fn sleep(&self) {
        *self.core().sleeper.borrow_mut() = Some(thread::current());
        thread::park();
    }

    /// Tells CPUs that sleep while they wait that what they wait for may have happened.
    fn announce(&self) {
        self.machine.announcements.set(self.machine.announcements.get() + 1);
        self.machine.cores.iter().for_each(wake);
    }

    /// Where an interrupt may be taken. True if one was.
    fn poll(&self) -> bool {
        let core = self.core();
        if core.is_off.get() {
            return false;
        }
        self.speculate();
        // Acquire: partner is the Release in `send_ipi`.
        if !core.irqs_on.get() || core.interrupt.swap(0, Ordering::Acquire) == 0 {
            return false;
        }
        let was_deferring = core.is_deferring.get() && self.catch_up();
        self.quietly(|cpu, irqs| cpu.answer(irqs));
        if was_deferring {
            self.defer();
        }
        self.announce();
        true
    }

    fn is_isolated(&self) -> bool {
        self.machine.setup.policy.isolation == Isolation::On
    }

    fn enter_kernel(&self) {
        if self.core().is_in_user_mode.replace(false) {
            self.with_irqs_off(|irqs| self.protocol().enter_kernel(irqs));
        }
    }

    /// A walk that nobody asked for, now: from the loaded root, and below it along every path that is remembered.
    fn speculate(&self) {
        let (core, walker) = (self.core(), "a speculative walk");
        self.accessing(|| {
            let cr3 = core.cr3.get();
            self.machine.tables[table_of(cr3.root())].root.touch(walker);
            let entries = core.entries.borrow();
            let remembered = entries.iter().filter(|entry| entry.pcid == cr3.pcid());
            remembered.for_each(|entry| self.machine.tables[entry.table].lower.touch(walker));
        });
    }

    fn walk(&self, table: usize, page: usize) -> Option<Entry> {
        self.machine.tables[table].root.touch("a walk");
        let gets_below = !is_own(self.core().cr3.get().root()) || self.machine.tables[table].is_hooked(self.index);
        if !gets_below || !self.machine.tables[table].pages[page].is_present() {
            return None;
        }
        self.machine.tables[table].lower.touch("a walk");
        let is_global = table == KERNEL && !self.is_isolated();
        let entry = Entry { pcid: self.core().cr3.get().pcid(), table, page, is_global };
        self.core().entries.borrow_mut().push(entry);
        Some(entry)
    }

    /// Fills the TLB with all that the loaded root maps.
    fn fill(&self) {
        let cr3 = self.core().cr3.get();
        let is_user_half = cr3.pcid().0 & Pcid::USER_BIT != 0;
        for table in [KERNEL, table_of(cr3.root())] {
            let is_mapped = table != KERNEL || !is_user_half;
            for page in 0..self.machine.tables[table].pages.len() {
                if is_mapped && self.core().hit(table == KERNEL, page).is_none() {
                    self.accessing(|| self.walk(table, page));
                }
            }
        }
    }

    /// A walk and an NMI, just before the flush of a page that was acknowledged already. The handler reads the whole
    /// space where `is_running` says that it may (C-54).
    fn take_nmi(&self) {
        let table = table_of(self.core().cr3.get().root());
        let is_early = self.machine.setup.policy.acknowledgement == Acknowledgement::BeforeFlush;
        if is_early {
            self.speculate();
        }
        if is_early && table != KERNEL && self.protocol().is_running(self.machine.space(table)) {
            (0..self.machine.tables[table].pages.len()).for_each(|page| self.read(table, page));
        }
    }

    /// Drops the entries that `goes` names; what is still mapped comes back at once.
    fn invalidate(&self, goes: impl Fn(&Entry) -> bool) {
        self.core().drop_entries(goes);
        self.fill();
    }
}

/// The PCID that an INVLPGB names; nothing if it names all.
fn named_pcid(what: Invlpgb) -> Option<Pcid> {
    match what {
        Invlpgb::Pages { pcid, .. } | Invlpgb::Single(pcid) => Some(pcid),
        Invlpgb::PagesOfAll { .. } | Invlpgb::All | Invlpgb::AllAndGlobals => None,
    }
}

/// True if an INVLPGB drops `entry`.
fn goes(what: Invlpgb, entry: &Entry) -> bool {
    let is_named = named_pcid(what).is_none_or(|pcid| entry.pcid == pcid);
    let has = |first: VirtAddr, pages: u32| {
        let count = entry.page.wrapping_sub(page_of(first));
        (entry.table == KERNEL) == first.is_kernel() && count < pages as usize
    };
    match what {
        Invlpgb::Pages { first, pages, .. } => is_named && !entry.is_global && has(first, pages),
        Invlpgb::PagesOfAll { first, pages, .. } => has(first, pages),
        Invlpgb::Single(_) | Invlpgb::All => is_named && !entry.is_global,
        Invlpgb::AllAndGlobals => true,
    }
}

/// Wakes a CPU that sleeps.
fn wake(core: &Core) {
    if let Some(thread) = core.sleeper.borrow_mut().take() {
        thread.unpark();
    }
}

impl Hardware for Cpu {
    type Set = Set;
    type Token = SpaceToken;

    fn features(&self) -> Features {
        self.core().features
    }

    fn write_cr3(&self, cr3: Cr3) {
        if self.core().is_preempted_at_cr3.replace(false) {
            self.preempted();
        }
        self.speculate();
        self.core().cr3.set(cr3);
        self.invalidate(|entry| !cr3.keeps() && entry.pcid == cr3.pcid() && !entry.is_global);
    }

    fn invlpg(&self, va: VirtAddr) {
        self.take_nmi();
        let (pcid, page) = (self.core().cr3.get().pcid(), page_of(va));
        self.invalidate(|entry| entry.serves(pcid, va.is_kernel(), page));
    }

    fn invpcid(&self, what: Invpcid) {
        self.invalidate(|entry| match what {
            Invpcid::Address(pcid, va) => !entry.is_global && entry.serves(pcid, va.is_kernel(), page_of(va)),
            Invpcid::Single(pcid) => !entry.is_global && entry.pcid == pcid,
            Invpcid::AllAndGlobals => true,
            Invpcid::All => !entry.is_global,
        });
    }

    fn toggle_pge(&self) {
        self.invalidate(|_| true);
    }

    fn broadcast_pages(&self) -> Option<NonZeroU32> {
        self.machine.setup.broadcast_pages
    }

    fn invlpgb(&self, what: Invlpgb) {
        self.sent.borrow_mut().push(what);
    }

    fn tlbsync(&self) {
        for what in self.sent.take() {
            for core in &self.machine.cores {
                core.begin_sync(named_pcid(what));
                core.drop_entries(|entry| goes(what, entry));
                core.end_sync(named_pcid(what));
            }
        }
    }

    fn send_ipi(&self, to: CpuId) {
        self.machine.interrupts.set(self.machine.interrupts.get() + 1);
        let core = &self.machine.cores[to.0 as usize];
        // Release: what was written before an interrupt is seen by its handler; partner is the Acquire in `poll`.
        core.interrupt.fetch_or(1, Ordering::Release);
        wake(core);
    }

    fn send_ipi_to_others(&self) {
        (0..self.machine.cores.len()).filter(|&n| n != self.index).for_each(|n| self.send_ipi(CpuId(n as u32)));
    }

    fn relax(&self) {
        let core = self.core();
        if core.has_answered.replace(false) {
            self.announce();
        }
        let (has_taken_one, announced) = (self.poll(), self.machine.announcements.get());
        let has_news = core.heard.replace(announced) != announced || has_taken_one;
        let turn = if has_news { 0 } else { core.turns_waited.get() }; // news orders no loads
        core.turns_waited.set(turn + 1);
        if turn < WAKEFUL_TURNS {
            thread::yield_now();
        } else {
            self.sleep();
        }
    }

    fn directories(&self) -> tlbkit::Directories {
        self.machine.setup.directories
    }

    fn root_here(&self, space: &AddressSpace<Set>) -> PhysAddr {
        let is_converted = self.machine.tables[table_of(space.root())].is_converted();
        if is_converted { own(space.root()) } else { space.root() }
    }

    fn acknowledgement(&self) -> Acknowledgement {
        self.machine.setup.policy.acknowledgement
    }

    fn host_flush(&self) -> HostFlush {
        self.machine.setup.host
    }

    fn flush_by_host(&self, first: CpuId, cpus: u64, _what: HostExtent) -> u64 {
        let is_running = |&bit: &u32| {
            let host = &self.machine.cores[(first.0 + bit) as usize].host;
            // Acquire: what the CPU did before is over. The change is ordered by the protocol's fence.
            host.compare_exchange(PREEMPTED, PREEMPTED | FLUSH, Ordering::Acquire, Ordering::Relaxed).is_err()
        };
        let named = (0..u64::BITS).filter(|bit| cpus >> bit & 1 != 0);
        named.filter(is_running).fold(0, |bits, bit| bits | 1 << bit)
    }

    fn kernel_flushes(&self) -> KernelFlushes {
        self.machine.setup.kernel_flushes
    }

    fn glances(&self) -> u32 {
        self.machine.setup.glances
    }

    fn patience_turns(&self) -> u32 {
        1
    }

    fn late(&self, _cpu: CpuId) -> Late {
        self.machine.setup.late
    }

    /// A CPU that never answers is found otherwise: the exploration does not end.
    fn patience_rounds(&self) -> u32 {
        u32::MAX
    }

    fn irqs_enabled(&self) -> bool {
        self.core().irqs_on.get()
    }

    fn with_irqs_off<R>(&self, f: impl FnOnce(&IrqsOff) -> R) -> R {
        let were_on = self.core().irqs_on.replace(false);
        let result = f(&IrqsOff::assume());
        self.core().irqs_on.set(were_on);
        result
    }

    fn with_space_of<R>(&self, token: SpaceToken, f: impl FnOnce(&AddressSpace<Self::Set>) -> R) -> R {
        self.machine.tables[token.0 as usize].root.touch("the protocol, asking for a space that");
        f(self.machine.space(token.0 as usize))
    }

    fn event(&self, event: Event) {
        match event {
            Event::FlushBegin(_) | Event::FlushLocalDone | Event::FlushEnd => self.core().turns_waited.set(0),
            Event::LastLazyReference(token) => self.machine.tables[token.0 as usize].root.free(),
            _ => self.core().note(&event),
        }
        self.poll();
    }

    fn now_cycles(&self) -> u64 {
        0
    }
}
