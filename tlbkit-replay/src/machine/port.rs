//! The protocol's door to one replayed CPU: every instruction is counted and priced.

use super::World;
use super::core::Work;
use crate::cost::{Cycles, Range};
use crate::tally::Tally;
use tlbkit::sync::{AtomicU64, Ordering};
use tlbkit::{AddressSpace, CpuId, Cr3, Event, Features, Hardware, Invpcid, IrqsOff, SpaceToken, Tags, VirtAddr};
use tlbkit_trace::{FlushReason, FlushSize};

/// One CPU.
pub(super) struct Port<'w, 'k> {
    pub(super) world: &'w World<'k>,
    pub(super) cpu: u32,
}

impl Port<'_, '_> {
    fn core(&self) -> &super::Core {
        &self.world.cores[self.cpu as usize]
    }

    /// Charges whoever is at work.
    fn charge(&self, charge: impl Fn(&mut Cycles)) {
        let mut tally = self.world.tally.borrow_mut();
        charge(&mut tally.cycles);
        if let Some(who) = self.world.who.get() {
            charge(&mut tally.by_caller.entry(who).or_default().cycles);
        }
    }

    fn tally(&self, count: impl FnOnce(&mut Tally)) {
        count(&mut self.world.tally.borrow_mut());
    }

    /// A tag or all of them were dropped: what must be walked for again, if the program comes back to it.
    fn lose(&self, (entries, filled_ns): (u64, u64), most: u64) {
        let prices = &self.world.prices;
        // No more than could be walked for since it was empty.
        let could = (filled_ns as f64 * prices.cycles_per_ns / prices.walk.low.max(1.0)) as u64;
        let refilling = Range {
            low: entries.min(prices.entries) as f64 * prices.walk.low,
            high: most.min(could).max(entries.min(prices.entries)) as f64 * prices.walk.high,
        };
        self.charge(|cycles| cycles.refilling += refilling);
    }

    fn most_of_root(&self, cr3: Cr3) -> u64 {
        let space = (cr3.root().0.saturating_sub(0x10_0000) / 0x2000) as usize;
        if cr3.root().0 < 0x10_0000 { 0 } else { self.world.most_entries(space) }
    }

    fn work(&self, cycles: f64, change: impl Fn(&mut Work)) {
        self.core().note(|work| {
            work.cycles += cycles;
            change(work);
        });
    }

    /// The CPU's part of a flush is over: the words that Linux would have recorded.
    fn finish(&self, part: FlushReason) {
        let work = self.core().work.take();
        let is_own = part == FlushReason::LocalMmShootdown;
        let prices = &self.world.prices;
        if is_own {
            self.charge(|cycles| cycles.flushing += work.cycles);
        } else {
            self.charge(|cycles| cycles.answering += work.cycles + prices.interrupt);
            // Who asked waits as long.
            self.charge(|cycles| cycles.asking += prices.ipi_deliver + work.cycles + prices.interrupt);
            self.tally(|tally| tally.needed_interrupts += u64::from(work.was_flushed || work.invlpg > 0));
        }
        match work {
            Work { was_wrong_space: true, .. } if is_own => {}
            Work { was_wrong_space: true, .. } => self.record(FlushReason::RemoteWrongCpu, FlushSize::Pages(0)),
            Work { was_current: true, .. } => self.record(part, FlushSize::Pages(0)),
            Work { was_flushed: true, .. } => self.record(part, FlushSize::All),
            // It held the space lazily, and left it.
            Work { was_kept: true, .. } => self.record(FlushReason::TaskSwitch, FlushSize::Pages(0)),
            Work { invlpg, .. } => self.record(part, FlushSize::Pages(invlpg)),
        }
    }

    /// A step that was no flush is over.
    pub(super) fn settle(&self) {
        let work = self.core().work.take();
        if work.was_flushed || work.was_kept {
            let size = if work.was_flushed { FlushSize::All } else { FlushSize::Pages(0) };
            self.record(FlushReason::TaskSwitch, size);
            self.charge(|cycles| cycles.switching += work.cycles);
        }
    }

    fn record(&self, reason: FlushReason, size: FlushSize) {
        self.tally(|tally| tally.flush(reason, size));
    }

    /// Linux records the asking once, if the set names any other CPU.
    fn begin(&self, pages: u32) {
        self.core().work.take();
        if let Some(who) = self.world.who.get() {
            self.tally(|tally| tally.by_caller.entry(who).or_default().flushes += 1);
        }
        let Some(target) = self.world.target.get() else { return };
        let own = |index: usize| if index == (self.cpu / 64) as usize { 1 << (self.cpu % 64) } else { 0 };
        // Relaxed: one thread.
        let load = |word: &AtomicU64| word.load(Ordering::Relaxed);
        let mut words = self.world.space(target).cpus().words().iter().enumerate();
        if words.any(|(index, word)| load(word) & !own(index) != 0) {
            let size = if pages == u32::MAX { FlushSize::All } else { FlushSize::Pages(u64::from(pages)) };
            self.record(FlushReason::RemoteSendIpi, size);
        }
    }
}

impl Hardware for Port<'_, '_> {
    fn features(&self) -> Features {
        let pcid = self.world.tlb.policy().tags != Tags::Off;
        Features { pcid, invpcid: pcid }
    }

    fn write_cr3(&self, cr3: Cr3) {
        let (core, prices) = (self.core(), &self.world.prices);
        core.cr3.set(cr3);
        if cr3.keeps() {
            self.tally(|tally| tally.cr3_keeps += 1);
            return self.work(prices.cr3_keep, |work| work.was_kept = true);
        }
        self.tally(|tally| tally.cr3_flushes += 1);
        self.work(prices.cr3_flush, |work| work.was_flushed = true);
        let now_ns = self.world.now_ns.get();
        let lost = if self.features().pcid { core.drop_tag(cr3.pcid(), now_ns) } else { core.drop_all(now_ns) };
        self.lose(lost, self.most_of_root(cr3));
    }

    fn invlpg(&self, va: VirtAddr) {
        let (core, prices) = (self.core(), &self.world.prices);
        self.tally(|tally| tally.invlpg += 1);
        self.work(prices.invlpg, |work| work.invlpg += 1);
        if prices.is_fractured {
            let lost = core.drop_all(self.world.now_ns.get());
            self.lose(lost, self.most_of_root(core.cr3.get()));
        } else if core.drop_page(va.0 >> 12) {
            self.charge(|cycles| cycles.refilling.high += prices.walk.high);
        }
    }

    fn invpcid(&self, what: Invpcid) {
        match what {
            Invpcid::Address(..) => {
                self.tally(|tally| tally.invlpg += 1);
                self.work(self.world.prices.invlpg, |_| ());
            }
            Invpcid::Single(_) | Invpcid::All | Invpcid::AllAndGlobals => self.toggle_pge(),
        }
    }

    fn toggle_pge(&self) {
        self.tally(|tally| tally.whole_flushes += 1);
        self.work(self.world.prices.everything, |work| work.was_flushed = true);
        let lost = self.core().drop_all(self.world.now_ns.get());
        self.lose(lost, self.most_of_root(self.core().cr3.get()));
    }

    fn send_ipi(&self, to: CpuId) {
        self.tally(|tally| tally.interrupts += 1);
        let mut tally = self.world.tally.borrow_mut();
        if let Some(who) = self.world.who.get() {
            tally.by_caller.entry(who).or_default().interrupts += 1;
        }
        drop(tally);
        self.charge(|cycles| cycles.asking += self.world.prices.ipi_send);
        // Taken at once, in the midst of the sender's own work.
        let target = self.world.port(to.0);
        self.world.cpu(to.0, &target).answer(&IrqsOff::assume());
    }

    fn send_ipi_to_others(&self) {
        (0..self.world.cores.len() as u32).filter(|&cpu| cpu != self.cpu).for_each(|cpu| self.send_ipi(CpuId(cpu)));
    }

    fn relax(&self) {}

    fn irqs_enabled(&self) -> bool {
        true
    }

    fn with_irqs_off<R>(&self, f: impl FnOnce(&IrqsOff) -> R) -> R {
        f(&IrqsOff::assume())
    }

    fn space(&self, token: SpaceToken) -> &AddressSpace<'_> {
        &self.world.spaces[token.0 as usize]
    }

    fn event(&self, event: Event) {
        match event {
            Event::FlushBegin(pages) => self.begin(pages),
            Event::FlushLocalDone => self.finish(FlushReason::LocalMmShootdown),
            Event::AnswerBegin(_) => drop(self.core().work.take()),
            Event::AnswerEnd(_) => self.finish(FlushReason::RemoteShootdown),
            Event::AlreadyCurrent => self.core().note(|work| work.was_current = true),
            Event::WrongSpace => self.core().note(|work| work.was_wrong_space = true),
            _ => {}
        }
    }

    fn now_cycles(&self) -> u64 {
        self.world.now_ns.get()
    }
}
