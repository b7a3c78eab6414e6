//! The protocol's [`Hardware`](tlbkit::Hardware) of one replayed CPU. It counts every instruction.

use super::core::{Core, Work};
use super::held::{Drop, Due};
use super::state::{Members, Replay};
use crate::bill::{CostItem, CostPart};
use crate::tally::Tally;
use tlbkit::sync::AtomicU64;
use tlbkit::{AddressSpace, Cpu, CpuId, Cr3, Event, Features, Hardware, Invpcid, IrqsOff, SpaceToken, Tags, VirtAddr};
use tlbkit_trace::{FlushReason, FlushSize};

/// The hardware of one replayed CPU.
pub(super) struct Port<'w, 'k> {
    pub(super) replay: &'w Replay<'k>,
    pub(super) cpu: u32,
}

impl<'k> Port<'_, 'k> {
    pub(super) fn cpu(&self) -> Cpu<'_, 'k, Self> {
        self.replay.tlb.cpu(CpuId(self.cpu), self)
    }

    /// Does `act` in the kernel. If the CPU is in user mode it enters the kernel first, and if a program runs then, it
    /// goes back afterwards.
    pub(super) fn in_kernel(&self, act: impl FnOnce(&Cpu<'_, 'k, Self>)) {
        let (core, cpu) = (self.core(), self.cpu());
        let cross = |cross: &dyn Fn()| {
            core.is_crossing.set(true);
            cross();
            core.is_crossing.set(false);
        };
        if core.is_user.replace(false) {
            cross(&|| core.with_irqs_off(|irqs| cpu.enter_kernel(irqs)));
        }
        act(&cpu);
        if core.is_busy.get() {
            core.is_user.set(true);
            cross(&|| core.with_irqs_off(|irqs| cpu.exit_to_user(irqs)));
        }
    }

    /// The CPU takes an interrupt that was sent to it.
    fn answer(&self) {
        self.replay.pass(self.cpu);
        self.in_kernel(|cpu| self.core().with_irqs_off(|irqs| cpu.answer(irqs)));
    }
}

impl Port<'_, '_> {
    fn core(&self) -> &Core {
        &self.replay.cores[self.cpu as usize]
    }

    fn count(&self, count: impl FnOnce(&mut Tally)) {
        count(&mut self.replay.tally.borrow_mut());
    }

    fn charge(&self, part: CostPart, item: CostItem, count: u64) {
        self.count(|tally| tally.charge(self.replay.who.get(), |bill| bill.charge(part, item, count)));
    }

    /// Everything is dropped that this CPU holds of the space `root`.
    fn lose(&self, root: u64) {
        let (replay, who) = (self.replay, self.replay.who.get());
        let revoked = &replay.revoked_of(root);
        let most = replay.most_entries(root).saturating_sub(revoked.end - revoked.start);
        let drop = Drop { most, revoked, walks_per_ns: replay.capacity.walks_per_ns, who };
        let Some((lost, due)) = self.core().empty(root, &drop) else { return };
        self.count(|tally| {
            tally.entries_lost.low += lost.low;
            tally.entries_lost.high += lost.high;
            refill(tally, &due);
        });
    }

    fn lose_all(&self) {
        self.core().named().into_iter().for_each(|root| self.lose(root));
    }

    /// Counts an item of the current flush or switch, or of the way into the kernel and back.
    fn work(&self, item: CostItem) {
        if self.core().is_crossing.get() {
            return self.charge(CostPart::Crossing, item, 1);
        }
        self.core().change_work(|work| work.items[item as usize] += 1);
    }

    /// The CPU has done its part of a flush.
    fn finish(&self, reason: FlushReason) {
        let work = self.core().take_work().unwrap_or_default();
        let who = self.replay.who.get();
        let is_own = reason == FlushReason::LocalMmShootdown;
        let parts: &[CostPart] = if is_own { &[CostPart::Flushing] } else { &[CostPart::Answering, CostPart::Waiting] };
        self.count(|tally| {
            tally.charge(who, |bill| {
                parts.iter().for_each(|part| bill.charge_all(*part, &work.items));
                if !is_own {
                    parts.iter().for_each(|part| bill.charge(*part, CostItem::Interrupt, 1));
                    // The initiator waits while the interrupt is on its way, too.
                    bill.charge(CostPart::Waiting, CostItem::Deliver, 1);
                }
            });
            if !is_own && (work.was_flushed() || work.pages() > 0) {
                tally.needed_interrupts.high += 1;
                tally.needed_interrupts.low += u64::from(work.has_held);
            }
            record(tally, reason, &work);
        });
    }

    /// An operation that was no flush has been done.
    pub(super) fn settle(&self) {
        let Some(work) = self.core().take_work() else { return };
        if !work.was_flushed() && work.count(CostItem::Keep) == 0 {
            return;
        }
        let size = if work.was_flushed() { FlushSize::All } else { FlushSize::Pages(0) };
        self.count(|tally| {
            tally.flush(FlushReason::TaskSwitch, size);
            tally.charge(self.replay.who.get(), |bill| bill.charge_all(CostPart::Switching, &work.items));
        });
    }

    /// The replay ends.
    pub(super) fn end(&self) {
        self.count(|tally| self.core().settle(self.replay.capacity.walks_per_ns, |due| refill(tally, &due)));
    }

    /// A flush begins. Linux records once that it asks others, if the CPU set names any other CPU.
    fn begin(&self, pages: u32) {
        self.core().take_work();
        if let Some(who) = self.replay.who.get() {
            self.count(|tally| tally.by_caller.entry(who).or_default().flushes += 1);
        }
        let Some(target) = self.replay.target.get() else { return };
        let Members { has_own, has_others } = self.replay.members(target, self.cpu);
        if has_others {
            let size = if pages == u32::MAX { FlushSize::All } else { FlushSize::Pages(u64::from(pages)) };
            self.count(|tally| tally.flush(FlushReason::RemoteSendIpi, size));
        }
        self.core().change_work(|work| work.has_asked = has_own && has_others);
    }
}

/// Charges the page walks for entries that had been dropped.
fn refill(tally: &mut Tally, due: &Due) {
    if due.walks > 0 {
        tally.charge(due.debtor, |bill| bill.charge(CostPart::Refilling, CostItem::Walk, due.walks));
    }
}

/// Counts a CPU's part of a flush as Linux would have recorded it.
fn record(tally: &mut Tally, reason: FlushReason, work: &Work) {
    let is_own = reason == FlushReason::LocalMmShootdown;
    let (reason, size) = match *work {
        // Linux treats the initiator's own CPU as one of the set.
        Work { was_wrong_space: true, has_asked: false, .. } if is_own => return,
        Work { was_wrong_space: true, .. } => (FlushReason::RemoteWrongCpu, FlushSize::Pages(0)),
        Work { was_current: true, .. } => (reason, FlushSize::Pages(0)),
        _ if work.was_flushed() => (reason, FlushSize::All),
        // The CPU held the space lazily, and has left it.
        _ if work.count(CostItem::Keep) > 0 => (FlushReason::TaskSwitch, FlushSize::Pages(0)),
        _ => (reason, FlushSize::Pages(work.pages())),
    };
    tally.flush(reason, size);
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
        // Without tags the hardware drops the entries of the space before, which has the same tag.
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
        self.count(|tally| tally.interrupts += 1);
        self.charge(CostPart::Asking, CostItem::Send, 1);
        // The target takes the interrupt at once, before the sender's work goes on.
        Port { replay: self.replay, cpu: to.0 }.answer();
    }

    fn send_ipi_to_others(&self) {
        (0..self.replay.cores.len() as u32).filter(|&cpu| cpu != self.cpu).for_each(|cpu| self.send_ipi(CpuId(cpu)));
    }

    fn relax(&self) {}

    fn irqs_enabled(&self) -> bool {
        self.core().are_irqs_on()
    }

    fn with_irqs_off<R>(&self, f: impl FnOnce(&IrqsOff) -> R) -> R {
        self.core().with_irqs_off(f)
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
                let has_held = core.has_any(&self.replay.revoked_of(core.root()));
                core.change_work(|work| *work = Work { has_held, ..Work::default() });
            }
            Event::AnswerEnd(_) => self.finish(FlushReason::RemoteShootdown),
            Event::AlreadyCurrent => core.change_work(|work| work.was_current = true),
            Event::WrongSpace => core.change_work(|work| work.was_wrong_space = true),
            _ => {}
        }
    }

    fn now_cycles(&self) -> u64 {
        self.replay.now_ns.get()
    }
}
