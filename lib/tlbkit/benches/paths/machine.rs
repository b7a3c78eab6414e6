//! The machine on which paths are counted: sixteen CPUs of do-nothing hardware, and the calls that are counted.

use std::hint::black_box;
use std::num::NonZeroU32;

use tlbkit::sync::AtomicU64;
use tlbkit::{
    AddressSpace, Cpu, CpuId, CpuSetUpkeep, Cr3, Features, Hardware, Invlpgb, Invpcid, IrqsOff, PhysAddr, Policy,
    Reason, Scope, SpaceToken, Stride, Tags, Tlb, TlbGather, Translations, VirtAddr,
};
use tlbkit_testkit::{leak, words};

/// The hardware of this benchmark.
pub(crate) type Nothing = tlbkit_testkit::Nothing<&'static [AtomicU64]>;

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
    use super::{
        AddressSpace, Broadcasting, Cpu, IrqsOff, Nothing, Reason, Scope, Stride, TlbGather, Translations, VirtAddr,
    };

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
    pub(crate) fn flush_by_broadcast(cpu: &Cpu<'_, 'static, Broadcasting>, space: &AddressSpace, va: VirtAddr) {
        cpu.flush_range(space, va, 1, Stride::Page4K, Reason::WriteProtect);
    }

    #[inline(never)]
    pub(crate) fn gather(cpu: &ThisCpu<'_>, space: &AddressSpace, va: VirtAddr, pages: u64) {
        let mut gather = TlbGather::new(Translations::OfSpace(space), ());
        for page in 0..pages {
            gather.page(cpu, VirtAddr(va.0 + page * 4096), Stride::Page4K, Scope::NonGlobal, Reason::RemovePte);
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
    gather.page(cpu, VirtAddr(0x7000_0000), Stride::Page4K, Scope::NonGlobal, Reason::RemovePte);
    gather.flush(cpu).into_frames();
}

const CPUS: usize = 16;

/// our default but for its ASIDs, which are taken in turn as Linux does.
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
        let tlb: &Tlb<'_> = Box::leak(Box::new(tlbkit_testkit::tlb(CPUS, PhysAddr(0x1000), policy)));
        let spaces = leak((0..12).map(|n| {
            let root = PhysAddr(0x10_0000 + n * 0x2000);
            AddressSpace::new(tlb.fresh_id(), SpaceToken(n), root, &words(8)[..1])
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

    /// Takes something of space `n` away, which this CPU does not run, so that its ASID is stale. It interrupts nobody.
    pub(crate) fn make_stale(&self, n: usize) {
        let other = self.tlb.cpu(CpuId(15), &self.hardware);
        revoke(&other, &self.spaces[n]);
    }
}

/// The same hardware with INVLPGB, of eight pages at most.
pub(crate) struct Broadcasting {
    plain: Nothing,
    cpus: u32,
}

impl Hardware for Broadcasting {
    type Set = &'static [AtomicU64];
    type Token = SpaceToken;

    #[inline(always)]
    fn features(&self) -> Features {
        self.plain.features()
    }
    #[inline(always)]
    fn write_cr3(&self, cr3: Cr3) {
        self.plain.write_cr3(cr3);
    }
    #[inline(always)]
    fn invlpg(&self, va: VirtAddr) {
        self.plain.invlpg(va);
    }
    #[inline(always)]
    fn invpcid(&self, what: Invpcid) {
        self.plain.invpcid(what);
    }
    fn toggle_pge(&self) {}
    #[inline(always)]
    fn broadcast_pages(&self) -> Option<NonZeroU32> {
        NonZeroU32::new(8)
    }
    #[inline(always)]
    fn invlpgb(&self, what: Invlpgb) {
        black_box(what);
    }
    #[inline(always)]
    fn tlbsync(&self) {}
    /// Only while the space moves.
    fn send_ipi(&self, to: CpuId) {
        self.plain.tlb.cpu(to, self).answer(&IrqsOff::assume());
    }
    fn send_ipi_to_others(&self) {
        (1..self.cpus).for_each(|cpu| self.send_ipi(CpuId(cpu)));
    }
    fn relax(&self) {}
    fn irqs_enabled(&self) -> bool {
        true
    }
    fn with_irqs_off<R>(&self, f: impl FnOnce(&IrqsOff) -> R) -> R {
        f(&IrqsOff::assume())
    }
    fn with_space_of<R>(&self, token: SpaceToken, f: impl FnOnce(&AddressSpace<Self::Set>) -> R) -> R {
        f(&self.plain.spaces[token.0 as usize])
    }
    fn now_cycles(&self) -> u64 {
        0
    }
}

/// Flushes one page `n` times of a space that so many CPUs run under a PCID which they share.
pub(crate) fn flush_by_broadcast(n: u64, cpus: u32) {
    let tlb: &Tlb<'_> =
        Box::leak(Box::new(tlbkit_testkit::tlb(cpus as usize, PhysAddr(0x1000), kept(Policy::default()))));
    let spaces =
        leak((0..1).map(|n| AddressSpace::new(tlb.fresh_id(), SpaceToken(n), PhysAddr(0x10_0000), &words(8)[..1])));
    let (hardware, irqs) = (Broadcasting { plain: Nothing { tlb, spaces }, cpus }, IrqsOff::assume());
    for cpu in 0..cpus {
        let cpu = tlb.cpu(CpuId(cpu), &hardware);
        cpu.bring_up(&irqs);
        cpu.switch_to(&spaces[0], &irqs);
    }
    let cpu = tlb.cpu(CpuId(0), &hardware);
    assert!(cpu.share_pcid(&spaces[0]).is_some());
    (0..n).for_each(|_| counted::flush_by_broadcast(&cpu, &spaces[0], black_box(VirtAddr(0x7000_0000))));
}
