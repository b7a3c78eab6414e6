//! The hardware interface of this machine: an [`X86Cpu`] whose instructions are counted, and which breaks the rule that
//! the command line names.

use core::num::NonZeroU32;
use core::sync::atomic::AtomicU64;

use tlbkit::{
    Acknowledgement, AddressSpace, CpuId, Cr3, Directories, Event, Features, Hardware, HostExtent, HostFlush, Invlpgb,
    Invpcid, IrqsOff, KernelFlushes, Missing, PhysAddr, SpaceToken, VirtAddr,
};
use tlbkit_x86::{Kernel, X86Cpu};

use super::{protocol, steal_time};
use crate::arch::{apic, cpu};
use crate::counters::{self, Counter};
use crate::fault::Fault;
use crate::memory::Ram;
use crate::{command_line, process_table, report};

/// The kernel's part of an [`X86Cpu`].
pub(super) struct Spaces;

impl Kernel for Spaces {
    type Set = &'static [AtomicU64];
    type Token = SpaceToken;

    fn with_space_of<R>(&self, token: SpaceToken, f: impl FnOnce(&AddressSpace<Self::Set>) -> R) -> R {
        f(process_table::by_token(token).space())
    }

    fn apic_id(&self, cpu: CpuId) -> u32 {
        apic::id_of(cpu.0)
    }

    fn broadcast_pages(&self) -> Option<NonZeroU32> {
        command_line::get().monitor.and_then(|monitor| monitor.broadcast_pages)
    }

    fn directories(&self) -> Directories {
        command_line::get().policy.directories
    }

    fn acknowledgement(&self) -> Acknowledgement {
        command_line::get().policy.acknowledgement
    }

    fn root_here(&self, space: &AddressSpace<Self::Set>) -> PhysAddr {
        process_table::by_token(space.token()).vm().root_on(&Ram, CpuId(cpu::index()))
    }

    fn host_flush(&self) -> HostFlush {
        command_line::get().monitor.map_or(HostFlush::None, |monitor| monitor.host_flush)
    }

    fn flush_by_host(&self, first: CpuId, cpus: u64, _what: HostExtent) -> u64 {
        let is_left = |bit: &u32| cpus >> bit & 1 == 1 && !steal_time::ask(first.0 + bit);
        (0..64).filter(is_left).fold(0, |left, bit| left | 1 << bit)
    }

    fn kernel_flushes(&self) -> KernelFlushes {
        if command_line::get().isolated { KernelFlushes::AtEntry } else { KernelFlushes::AtOnce }
    }
}

/// One CPU: the real instructions, counted.
pub(crate) struct CountingCpu {
    real: X86Cpu<'static, Spaces>,
}

impl CountingCpu {
    pub(super) const fn new(real: X86Cpu<'static, Spaces>) -> Self {
        Self { real }
    }
}

impl Hardware for CountingCpu {
    type Set = &'static [AtomicU64];
    type Token = SpaceToken;

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

    fn broadcast_pages(&self) -> Option<NonZeroU32> {
        self.real.broadcast_pages()
    }

    fn invlpgb(&self, what: Invlpgb) {
        counters::add(Counter::Broadcasts, 1);
        if !Fault::NoInvalidation.is_chosen() {
            self.real.invlpgb(what);
        }
    }

    fn tlbsync(&self) {
        self.real.tlbsync();
    }

    fn directories(&self) -> Directories {
        self.real.directories()
    }

    fn acknowledgement(&self) -> Acknowledgement {
        self.real.acknowledgement()
    }

    fn root_here(&self, space: &AddressSpace<Self::Set>) -> PhysAddr {
        self.real.root_here(space)
    }

    fn host_flush(&self) -> HostFlush {
        self.real.host_flush()
    }

    fn flush_by_host(&self, first: CpuId, cpus: u64, what: HostExtent) -> u64 {
        self.real.flush_by_host(first, cpus, what)
    }

    fn kernel_flushes(&self) -> KernelFlushes {
        self.real.kernel_flushes()
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

    fn glances(&self) -> u32 {
        self.real.glances()
    }

    /// Emulated CPUs share the CPUs of the host, so an IPI counts as lost only after a long wait, and a CPU as dead
    /// only after minutes.
    fn patience_turns(&self) -> u32 {
        1 << 24
    }

    fn patience_rounds(&self) -> u32 {
        1 << 8
    }

    fn unanswered(&self, missing: Missing<'_>) {
        report::failure(&format_args!("a flush is not answered by {missing}"));
    }

    fn this_cpu(&self) -> Option<CpuId> {
        Some(CpuId(cpu::index()))
    }

    fn irqs_enabled(&self) -> bool {
        self.real.irqs_enabled()
    }

    fn with_irqs_off<R>(&self, f: impl FnOnce(&IrqsOff) -> R) -> R {
        self.real.with_irqs_off(f)
    }

    fn with_space_of<R>(&self, token: SpaceToken, f: impl FnOnce(&AddressSpace<Self::Set>) -> R) -> R {
        self.real.with_space_of(token, f)
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
            Event::Spared { until_entry, by_host } => {
                counters::add(Counter::SparedUntilEntry, u64::from(until_entry));
                counters::add(Counter::SparedByHost, u64::from(by_host));
            }
            Event::CaughtUp => counters::add(Counter::CaughtUp, 1),
            Event::SwitchKept => counters::add(Counter::SwitchesKept, 1),
            Event::SwitchFlushed => counters::add(Counter::SwitchesFlushed, 1),
            Event::AlreadyCurrent => counters::add(Counter::AlreadyCurrent, 1),
            Event::WrongSpace => counters::add(Counter::WrongSpace, 1),
            Event::LastLazyReference(token) => process_table::record_unreferenced(token),
            _ => {}
        }
    }

    fn now_cycles(&self) -> u64 {
        self.real.now_cycles()
    }
}

/// Answers in the name of `to` without executing anything there, like a kernel that takes a sent IPI for a completed
/// flush.
pub(super) fn pretend_answer(to: CpuId) {
    protocol::tlb().cpu(to, &InertCpu).answer(&IrqsOff::assume());
}

/// A CPU whose instructions have no effect.
struct InertCpu;

impl Hardware for InertCpu {
    type Set = &'static [AtomicU64];
    type Token = SpaceToken;

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

    fn with_space_of<R>(&self, token: SpaceToken, f: impl FnOnce(&AddressSpace<Self::Set>) -> R) -> R {
        f(process_table::by_token(token).space())
    }

    fn now_cycles(&self) -> u64 {
        0
    }
}
