//! The protocol's door to one replayed CPU: every instruction is counted.

use super::core::{Core, Due, Work};
use super::state::{Members, Replay};
use crate::bill::{CostItem, CostPart};
use crate::tally::Tally;
use tlbkit::sync::AtomicU64;
use tlbkit::{AddressSpace, Cpu, CpuId, Cr3, Event, Features, Hardware, Invpcid, IrqsOff, SpaceToken, Tags, VirtAddr};
use tlbkit_trace::{FlushReason, FlushSize};

/// One CPU.
pub(super) struct Port<'w, 'k> {
    pub(super) replay: &'w Replay<'k>,
    pub(super) cpu: u32,
}

impl<'k> Port<'_, 'k> {
    pub(super) fn cpu(&self) -> Cpu<'_, 'k, Self> {
        self.replay.tlb.cpu(CpuId(self.cpu), self)
    }

    /// Enters the kernel, if the CPU was in user mode, and goes back, if a program runs.
    pub(super) fn in_kernel(&self, act: impl FnOnce(&Cpu<'_, 'k, Self>)) {
        let (core, cpu, irqs) = (self.core(), self.cpu(), IrqsOff::assume());
        let cross = |cross: &dyn Fn()| {
            core.is_crossing.set(true);
            cross();
            core.is_crossing.set(false);
        };
        if core.is_user.replace(false) {
            cross(&|| cpu.enter_kernel(&irqs));
        }
        act(&cpu);
        if core.is_busy.get() {
            core.is_user.set(true);
            cross(&|| cpu.exit_to_user(&irqs));
        }
    }

    /// The CPU takes the interrupt that it was sent.
    fn answer(&self) {
        self.replay.pass(self.cpu);
        self.in_kernel(|cpu| cpu.answer(&IrqsOff::assume()));
    }
}

impl Port<'_, '_> {
    fn core(&self) -> &Core {
        &self.replay.cores[self.cpu as usize]
    }

    fn tally<R>(&self, count: impl FnOnce(&mut Tally) -> R) -> R {
        count(&mut self.replay.tally.borrow_mut())
    }

    fn charge(&self, part: CostPart, item: CostItem, count: u64) {
        self.tally(|tally| tally.charge(self.replay.who.get(), |bill| bill.charge(part, item, count)));
    }

    /// All that this CPU holds of the space at `root` is dropped.
    fn lose(&self, root: u64) {
        let (replay, who) = (self.replay, self.replay.who.get());
        let revoked = replay.revoked_of(root);
        let gone = revoked.end - revoked.start;
        let most = replay.most_entries(root).saturating_sub(gone);
        let (lost, due) = self.core().empty(root, most, &revoked, replay.capacity.walks_per_ns, who);
        self.tally(|tally| {
            tally.entries_lost.low += lost.low;
            tally.entries_lost.high += lost.high;
        });
        self.refill(&due);
    }

    fn refill(&self, due: &Due) {
        self.tally(|tally| {
            tally.charge(due.debtor, |bill| bill.charge(CostPart::Refilling, CostItem::Walk, due.walks))
        });
    }

    fn lose_all(&self) {
        self.core().named().into_iter().for_each(|root| self.lose(root));
    }

    /// An item of the flush or switch under way, or of a crossing.
    fn work(&self, item: CostItem) {
        if self.core().is_crossing.get() {
            return self.charge(CostPart::Crossing, item, 1);
        }
        self.core().note(|work| work.items[item as usize] += 1);
    }

    /// The CPU's part of a flush is over: the words that Linux would have recorded.
    fn finish(&self, part: FlushReason) {
        let work = self.core().take_work().unwrap_or_default();
        let count = |item: CostItem| work.items[item as usize];
        let is_own = part == FlushReason::LocalMmShootdown;
        let was_flushed = count(CostItem::Flush) + count(CostItem::Everything) > 0;
        self.tally(|tally| {
            let who = self.replay.who.get();
            if is_own {
                return tally.charge(who, |bill| bill.charge_all(CostPart::Flushing, &work.items));
            }
            for part in [CostPart::Answering, CostPart::Waiting] {
                tally.charge(who, |bill| {
                    bill.charge_all(part, &work.items);
                    bill.charge(part, CostItem::Interrupt, 1);
                });
            }
            // Who asked waits for the way, too.
            tally.charge(who, |bill| bill.charge(CostPart::Waiting, CostItem::Deliver, 1));
            let ran_it = was_flushed || count(CostItem::Page) > 0;
            tally.needed_interrupts.low += u64::from(ran_it && work.was_held);
            tally.needed_interrupts.high += u64::from(ran_it);
        });
        match work {
            // Linux asks its own CPU as one of the set.
            Work { was_wrong_space: true, has_asked: false, .. } if is_own => {}
            Work { was_wrong_space: true, .. } => self.record(FlushReason::RemoteWrongCpu, FlushSize::Pages(0)),
            Work { was_current: true, .. } => self.record(part, FlushSize::Pages(0)),
            _ if was_flushed => self.record(part, FlushSize::All),
            // It held the space lazily, and left it.
            _ if count(CostItem::Keep) > 0 => self.record(FlushReason::TaskSwitch, FlushSize::Pages(0)),
            _ => self.record(part, FlushSize::Pages(count(CostItem::Page))),
        }
    }

    /// A step that was no flush is over.
    pub(super) fn settle(&self) {
        let Some(work) = self.core().take_work() else { return };
        let count = |item: CostItem| work.items[item as usize];
        let was_flushed = count(CostItem::Flush) + count(CostItem::Everything) > 0;
        if was_flushed || count(CostItem::Keep) > 0 {
            self.record(FlushReason::TaskSwitch, if was_flushed { FlushSize::All } else { FlushSize::Pages(0) });
            let who = self.replay.who.get();
            self.tally(|tally| tally.charge(who, |bill| bill.charge_all(CostPart::Switching, &work.items)));
        }
    }

    /// The replay is over.
    pub(super) fn end(&self) {
        let dues = self.core().settle(self.replay.capacity.walks_per_ns);
        dues.iter().for_each(|due| self.refill(due));
    }

    fn record(&self, reason: FlushReason, size: FlushSize) {
        self.tally(|tally| tally.flush(reason, size));
    }

    /// Linux records the asking once, if the set names any other CPU.
    fn begin(&self, pages: u32) {
        self.core().take_work();
        if let Some(who) = self.replay.who.get() {
            self.tally(|tally| tally.by_caller.entry(who).or_default().flushes += 1);
        }
        let Some(target) = self.replay.target.get() else { return };
        let Members { has_own, has_others } = self.replay.members(target, self.cpu);
        if has_others {
            let size = if pages == u32::MAX { FlushSize::All } else { FlushSize::Pages(u64::from(pages)) };
            self.record(FlushReason::RemoteSendIpi, size);
        }
        self.core().note(|work| work.has_asked = has_own && has_others);
    }
}

impl<'k> Hardware for Port<'_, 'k> {
    type Set = &'k [AtomicU64];
    type Token = SpaceToken;

    fn features(&self) -> Features {
        let pcid = self.replay.tlb.policy().tags != Tags::Off;
        Features { pcid, invpcid: pcid }
    }

    fn write_cr3(&self, cr3: Cr3) {
        let core = self.core();
        core.load(cr3);
        if cr3.keeps() {
            return self.work(CostItem::Keep);
        }
        self.work(CostItem::Flush);
        // Without tags the hardware drops every space's entries: those are all under the one tag.
        if let Some(root) = core.name(cr3) {
            self.lose(root);
        }
    }

    fn invlpg(&self, va: VirtAddr) {
        self.work(CostItem::Page);
        if self.replay.capacity.is_fractured { self.lose_all() } else { self.core().drop_page(va.0 >> 12) }
    }

    fn invpcid(&self, what: Invpcid) {
        match what {
            Invpcid::Address(_, va) => {
                self.work(CostItem::UserPage);
                self.core().drop_page(va.0 >> 12);
            }
            Invpcid::Single(_) | Invpcid::All | Invpcid::AllAndGlobals => self.toggle_pge(),
        }
    }

    fn toggle_pge(&self) {
        self.work(CostItem::Everything);
        self.lose_all();
    }

    fn send_ipi(&self, to: CpuId) {
        self.tally(|tally| {
            tally.interrupts += 1;
            if let Some(who) = self.replay.who.get() {
                tally.by_caller.entry(who).or_default().interrupts += 1;
            }
        });
        self.charge(CostPart::Asking, CostItem::Send, 1);
        // Taken at once, in the midst of the sender's own work.
        Port { replay: self.replay, cpu: to.0 }.answer();
    }

    fn send_ipi_to_others(&self) {
        (0..self.replay.cores.len() as u32).filter(|&cpu| cpu != self.cpu).for_each(|cpu| self.send_ipi(CpuId(cpu)));
    }

    fn relax(&self) {}

    fn irqs_enabled(&self) -> bool {
        true
    }

    fn with_irqs_off<R>(&self, f: impl FnOnce(&IrqsOff) -> R) -> R {
        f(&IrqsOff::assume())
    }

    fn with_space_of<R>(&self, token: SpaceToken, f: impl FnOnce(&AddressSpace<Self::Set>) -> R) -> R {
        f(&self.replay.spaces[token.0 as usize])
    }

    fn event(&self, event: Event) {
        let core = self.core();
        match event {
            Event::FlushBegin(pages) => self.begin(pages),
            Event::FlushLocalDone => self.finish(FlushReason::LocalMmShootdown),
            Event::AnswerBegin(_) => {
                let was_held = core.holds(&self.replay.revoked_of(core.root()));
                core.note(|work| *work = Work { was_held, ..Work::default() });
            }
            Event::AnswerEnd(_) => self.finish(FlushReason::RemoteShootdown),
            Event::AlreadyCurrent => core.note(|work| work.was_current = true),
            Event::WrongSpace => core.note(|work| work.was_wrong_space = true),
            _ => {}
        }
    }

    fn now_cycles(&self) -> u64 {
        self.replay.now_ns.get()
    }
}
