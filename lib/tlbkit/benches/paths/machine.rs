//! Do-nothing hardware: takes each value from the compiler, so that it must be computed, and does nothing with it.

use std::hint::black_box;

use tlbkit::sync::AtomicU64;
use tlbkit::{
    AddressSpace, Cpu, CpuId, CpuSetUpkeep, CpuState, Cr3, Features, Hardware, Invpcid, IrqsOff, PhysAddr, Policy,
    Reason, Scope, SpaceToken, Stride, Tags, Tlb, TlbGather, Translations, VirtAddr,
};

pub(crate) struct Nothing {
    tlb: &'static Tlb<'static>,
    spaces: &'static [AddressSpace],
}

impl Hardware for Nothing {
    type Set = &'static [AtomicU64];
    type Token = SpaceToken;

    #[inline(always)]
    fn features(&self) -> Features {
        Features { pcid: true, invpcid: true }
    }
    #[inline(always)]
    fn write_cr3(&self, cr3: Cr3) {
        black_box(cr3.0);
    }
    #[inline(always)]
    fn invlpg(&self, va: VirtAddr) {
        black_box(va.0);
    }
    #[inline(always)]
    fn invpcid(&self, what: Invpcid) {
        black_box(what);
    }
    fn toggle_pge(&self) {}
    /// Remote CPUs finish instantly: the target's answer is not part of what is counted, only its cleared bit is.
    #[inline(always)]
    fn send_ipi(&self, to: CpuId) {
        black_box(to.0);
        self.finish_elsewhere(to);
    }
    #[inline(always)]
    fn send_ipi_to_others(&self) {
        (1..8).for_each(|cpu| self.finish_elsewhere(CpuId(cpu)));
    }
    fn relax(&self) {}
    #[inline(always)]
    fn irqs_enabled(&self) -> bool {
        true
    }
    #[inline(always)]
    fn with_irqs_off<R>(&self, f: impl FnOnce(&IrqsOff) -> R) -> R {
        f(&IrqsOff::assume())
    }
    #[inline(always)]
    fn with_space_of<R>(&self, token: SpaceToken, f: impl FnOnce(&AddressSpace<Self::Set>) -> R) -> R {
        f(&self.spaces[token.0 as usize])
    }
    fn now_cycles(&self) -> u64 {
        0
    }
}

impl Nothing {
    /// Its name toggles the count: it is left out of a path that is counted, and counted in one that is not.
    #[inline(never)]
    fn finish_elsewhere(&self, cpu: CpuId) {
        self.tlb.cpu(cpu, self).answer(&IrqsOff::assume());
    }
}

/// How another CPU holds a space.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Mode {
    Running,
    Lazy,
}

/// A call that is counted, or [`nothing`] in its place.
pub(crate) type Call = fn(&Cpu<'_, 'static, Nothing>, &AddressSpace, &IrqsOff);

/// The calls that are counted, each as one function that a kernel would call; `measure.rs` knows them by this
/// module's name.
pub(crate) mod counted {
    use super::{AddressSpace, Cpu, IrqsOff, Nothing, Reason, Scope, Stride, TlbGather, Translations, VirtAddr};

    type ThisCpu<'t> = Cpu<'t, 'static, Nothing>;

    #[inline(never)]
    pub(crate) fn switch(cpu: &ThisCpu<'_>, to: &AddressSpace, irqs: &IrqsOff) {
        cpu.switch_to(to, irqs);
    }

    #[inline(never)]
    pub(crate) fn enter_lazy(cpu: &ThisCpu<'_>, irqs: &IrqsOff) {
        cpu.enter_lazy(irqs);
    }

    #[inline(never)]
    pub(crate) fn flush_range(cpu: &ThisCpu<'_>, space: &AddressSpace, va: VirtAddr, pages: u64) {
        cpu.flush_range(space, va, pages as u32, Stride::Page4K, Reason::WriteProtect);
    }

    #[inline(never)]
    pub(crate) fn gather(cpu: &ThisCpu<'_>, space: &AddressSpace, va: VirtAddr, pages: u64) {
        let mut gather = TlbGather::new(Translations::OfSpace(space), ());
        for page in 0..pages {
            gather.page(cpu, VirtAddr(va.0 + page * 4096), Stride::Page4K, Scope::Local, Reason::RemovePte);
        }
        gather.flush(cpu).into_frames();
    }
}

/// A function that does nothing: what a call and its loop cost, taken off each path's time.
#[inline(never)]
pub(crate) fn nothing(_: &Cpu<'_, 'static, Nothing>, _: &AddressSpace, _: &IrqsOff) {
    std::sync::atomic::compiler_fence(std::sync::atomic::Ordering::SeqCst);
}

pub(crate) struct Bench {
    tlb: &'static Tlb<'static>,
    hardware: Nothing,
    pub(crate) spaces: &'static [AddressSpace],
    pub(crate) irqs: IrqsOff,
}

/// Takes one page away.
#[inline(never)]
fn revoke(cpu: &Cpu<'_, 'static, Nothing>, space: &AddressSpace) {
    let mut gather = TlbGather::new(Translations::OfSpace(space), ());
    gather.page(cpu, VirtAddr(0x7000_0000), Stride::Page4K, Scope::Local, Reason::RemovePte);
    gather.flush(cpu).into_frames();
}

fn leak<T>(items: impl Iterator<Item = T>) -> &'static [T] {
    items.collect::<Vec<_>>().leak()
}

const CPUS: usize = 16;

/// Our default but for its slots, which are taken in turn as Linux does.
pub(crate) fn in_turn() -> Policy {
    kept(Policy { tags: Tags::RoundRobin(6), ..Policy::default() })
}

/// A set that is kept and never trimmed: trimming would be counted in some rounds and not in others.
pub(crate) fn kept(policy: Policy) -> Policy {
    Policy { cpu_set: CpuSetUpkeep::Trimmed { every: 0 }, ..policy }
}

impl Bench {
    /// Sixteen CPUs, twelve spaces; CPU 0 runs space 0.
    pub(crate) fn new(policy: Policy) -> Self {
        let cpus = leak((0..CPUS).map(|_| CpuState::new()));
        let matrix = leak((0..Tlb::matrix_words(CPUS)).map(|_| AtomicU64::new(0)));
        let tlb: &Tlb<'_> = Box::leak(Box::new(Tlb::new(cpus, matrix, PhysAddr(0x1000), policy)));
        let spaces = leak((0..12).map(|n| {
            let set = leak((0..8).map(|_| AtomicU64::new(0)));
            AddressSpace::new(tlb.fresh_id(), SpaceToken(n), PhysAddr(0x10_0000 + n * 0x2000), &set[..1])
        }));
        let bench = Self { tlb, hardware: Nothing { tlb, spaces }, spaces, irqs: IrqsOff::assume() };
        (0..CPUS as u32).for_each(|cpu| tlb.cpu(CpuId(cpu), &bench.hardware).bring_up(&bench.irqs));
        bench.cpu().switch_to(&spaces[0], &bench.irqs);
        bench
    }

    #[inline(always)]
    pub(crate) fn cpu(&self) -> Cpu<'_, 'static, Nothing> {
        self.tlb.cpu(CpuId(0), &self.hardware)
    }

    /// Lets another CPU run space 0, or hold it lazily.
    pub(crate) fn join(&self, cpu: u32, mode: Mode) {
        let cpu = self.tlb.cpu(CpuId(cpu), &self.hardware);
        cpu.switch_to(&self.spaces[0], &self.irqs);
        if mode == Mode::Lazy {
            cpu.enter_lazy(&self.irqs);
        }
    }

    /// Switches `n` times, through `order` again and again.
    pub(crate) fn switch_around(&self, n: u64, order: &[usize], call: Call) {
        let cpu = self.cpu();
        for space in order.iter().cycle().take(n as usize) {
            call(&cpu, &self.spaces[*space], &self.irqs);
        }
    }

    /// Goes idle `n` times, and does `then` after each.
    pub(crate) fn idle(&self, n: u64, then: Call) {
        let cpu = self.cpu();
        for _ in 0..n {
            cpu.enter_lazy(&self.irqs);
            then(&cpu, &self.spaces[0], &self.irqs);
        }
    }

    pub(crate) fn flush(&self, n: u64, pages: u64) {
        let cpu = self.cpu();
        (0..n).for_each(|_| counted::flush_range(&cpu, &self.spaces[0], black_box(VirtAddr(0x7000_0000)), pages));
    }

    /// Flushes that are not counted themselves, so that what [`Nothing::finish_elsewhere`] does is.
    pub(crate) fn be_answered(&self, n: u64) {
        (0..n).for_each(|_| revoke(&self.cpu(), &self.spaces[0]));
    }

    /// Interrupts that come after what they were sent for was done.
    pub(crate) fn find_nothing(&self, n: u64) {
        (0..n).for_each(|_| self.hardware.finish_elsewhere(CpuId(1)));
    }

    pub(crate) fn gather(&self, n: u64, pages: u64) {
        let cpu = self.cpu();
        (0..n).for_each(|_| counted::gather(&cpu, &self.spaces[0], black_box(VirtAddr(0x7000_0000)), pages));
    }

    /// Revokes something of space `n` that this CPU does not run, so that its slot is stale: a flush that tells nobody.
    pub(crate) fn make_stale(&self, n: usize) {
        let other = self.tlb.cpu(CpuId(15), &self.hardware);
        revoke(&other, &self.spaces[n]);
    }
}
