//! The door from the protocol to this machine: [`X86Cpu`], counted, and watched, and broken where a fault was chosen.

use core::cell::Cell;

use tlbkit::{AddressSpace, CpuId, Cr3, Event, Features, Hardware, Invpcid, IrqsOff, SpaceToken, VirtAddr};
use tlbkit_x86::{Kernel, X86Cpu};

use super::protocol;
use crate::arch::{apic, cpu};
use crate::counters::{self, Counter};
use crate::fault::Fault;
use crate::{command_line, process_table, report};

/// Looks at one CPU that does not answer before it is given up: minutes on an emulator that shares two host CPUs.
const MOST_WAITS: u64 = 4_000_000_000;

/// What `tlbkit-x86` asks of this kernel.
pub(super) struct Spaces;

impl Kernel for Spaces {
    fn space(&self, token: SpaceToken) -> &AddressSpace<'_> {
        process_table::by_token(token).space()
    }

    fn apic_id(&self, cpu: CpuId) -> u32 {
        apic::id_of(cpu.0)
    }
}

/// One CPU's door: its instructions, and how often it has looked at a CPU that does not answer.
pub(crate) struct Door {
    real: X86Cpu<'static, Spaces>,
    waits: Cell<u64>,
}

// SAFETY: each CPU uses its own; the statics that hold them are only shared so that they can be statics.
unsafe impl Sync for Door {}
// SAFETY: as above; it is made where it is used.
unsafe impl Send for Door {}

impl Door {
    pub(super) const fn new(real: X86Cpu<'static, Spaces>) -> Self {
        Self { real, waits: Cell::new(0) }
    }

    fn note_wait(&self, late: CpuId) {
        self.waits.set(self.waits.get() + 1);
        if self.waits.get() > MOST_WAITS {
            report::failure(&format_args!("CPU {} does not answer a flush", late.0));
        }
    }
}

impl Hardware for Door {
    fn features(&self) -> Features {
        self.real.features()
    }

    fn write_cr3(&self, cr3: Cr3) {
        counters::add(Counter::Cr3, 1);
        self.real.write_cr3(cr3);
    }

    fn invlpg(&self, va: VirtAddr) {
        counters::add(Counter::Pages, 1);
        if !Fault::NoInvalidation.is_chosen() {
            self.real.invlpg(va);
        }
    }

    fn invpcid(&self, what: Invpcid) {
        let counter = if matches!(what, Invpcid::Address(..)) { Counter::Pages } else { Counter::Everything };
        counters::add(counter, 1);
        if !Fault::NoInvalidation.is_chosen() {
            self.real.invpcid(what);
        }
    }

    fn toggle_pge(&self) {
        counters::add(Counter::Everything, 1);
        self.real.toggle_pge();
    }

    fn send_ipi(&self, to: CpuId) {
        counters::add(Counter::IpisSent, 1);
        if Fault::NoInterrupt.is_chosen() {
            pretend_answer(to);
        } else {
            self.real.send_ipi(to);
        }
    }

    fn send_ipi_to_others(&self) {
        let me = CpuId(cpu::index());
        let others = (0..command_line::get().cpus).map(CpuId).filter(|&to| to != me);
        counters::add(Counter::IpisSent, others.clone().count() as u64);
        if Fault::NoInterrupt.is_chosen() {
            others.for_each(pretend_answer);
        } else {
            self.real.send_ipi_to_others();
        }
    }

    fn relax(&self) {
        self.real.relax();
    }

    fn irqs_enabled(&self) -> bool {
        self.real.irqs_enabled()
    }

    fn with_irqs_off<R>(&self, f: impl FnOnce(&IrqsOff) -> R) -> R {
        self.real.with_irqs_off(f)
    }

    fn space(&self, token: SpaceToken) -> &AddressSpace<'_> {
        self.real.space(token)
    }

    fn event(&self, event: Event) {
        match event {
            Event::FlushBegin(u32::MAX) => {
                counters::add(Counter::Flushes, 1);
                counters::add(Counter::FullFlushes, 1);
            }
            Event::FlushBegin(pages) => {
                counters::add(Counter::Flushes, 1);
                counters::add(Counter::FlushPages, u64::from(pages));
            }
            Event::FlushEnd => self.waits.set(0),
            Event::Waiting(late) => self.note_wait(late),
            Event::SwitchKept => counters::add(Counter::SwitchesKept, 1),
            Event::SwitchFlushed => counters::add(Counter::SwitchesFlushed, 1),
            Event::AlreadyCurrent => counters::add(Counter::AlreadyCurrent, 1),
            Event::WrongSpace => counters::add(Counter::WrongSpace, 1),
            Event::LastLazyReference(token) => process_table::note_unreferenced(token),
            _ => {}
        }
    }

    fn now_cycles(&self) -> u64 {
        self.real.now_cycles()
    }
}

/// Answers for `to` without executing anything there: what a kernel does that believes an interrupt was enough.
pub(super) fn pretend_answer(to: CpuId) {
    protocol::tlb().cpu(to, &Nothing).answer(&IrqsOff::assume());
}

/// A CPU whose instructions do nothing.
struct Nothing;

impl Hardware for Nothing {
    fn features(&self) -> Features {
        Features::default()
    }

    fn write_cr3(&self, _cr3: Cr3) {}

    fn invlpg(&self, _va: VirtAddr) {}

    fn invpcid(&self, _what: Invpcid) {}

    fn toggle_pge(&self) {}

    fn send_ipi(&self, _to: CpuId) {}

    fn send_ipi_to_others(&self) {}

    fn relax(&self) {}

    fn irqs_enabled(&self) -> bool {
        true
    }

    fn with_irqs_off<R>(&self, f: impl FnOnce(&IrqsOff) -> R) -> R {
        f(&IrqsOff::assume())
    }

    fn space(&self, token: SpaceToken) -> &AddressSpace<'_> {
        process_table::by_token(token).space()
    }

    fn now_cycles(&self) -> u64 {
        0
    }
}
