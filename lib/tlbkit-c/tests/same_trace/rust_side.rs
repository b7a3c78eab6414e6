//! The calls in Rust. The hardware is not that of `tlbkit-testkit`, which has a TLB and a log for each CPU: compared is
//! the order of all that both sides do on all CPUs, so both write into the one log of `log.rs`.

use tlbkit::sync::AtomicU64;
use tlbkit::{
    AddressSpace, Cpu, CpuId, Cr3, Destroyed, Event, Features, Hardware, Invpcid, IrqsOff, PhysAddr, Policy, Reason,
    Scope, SpaceToken, Stride, Tables, Tlb, TlbBatch, TlbGather, Translations, UserFlush, VirtAddr,
};

use super::calls::{Call, End, Flag, Item, Part, Range, Side, Step};
use super::log::{self, CPUS, Did, Irqs};

type Set = &'static [AtomicU64];

pub(crate) struct World {
    tlb: Tlb<'static>,
    spaces: [AddressSpace<Set>; 2],
    #[cfg(feature = "reuse")]
    periods: tlbkit::GracePeriods<'static>,
}

/// Where the top-level tables lie, the kernel's first.
pub(crate) const ROOTS: [u64; 3] = [0x10_0000, 0x20_0000, 0x30_0000];
/// The frame that a part of a gather or of a batch keeps.
pub(crate) const fn frame(part: usize) -> u64 {
    0x7000 + part as u64
}

impl World {
    /// It is never given back, as a kernel's is not.
    pub(crate) fn new(policy: Policy) -> &'static Self {
        let tlb = tlbkit_testkit::tlb(CPUS as usize, PhysAddr(ROOTS[0]), policy);
        let spaces = [0, 1].map(|n| tlbkit_testkit::space(&tlb, CPUS as usize, n, PhysAddr(ROOTS[n + 1])));
        Box::leak(Box::new(Self {
            tlb,
            spaces,
            #[cfg(feature = "reuse")]
            periods: tlbkit::GracePeriods::new(tlbkit_testkit::leak((0..CPUS).map(|_| tlbkit::Passed::new()))),
        }))
    }

    fn answer(&'static self, cpu: u32) {
        let port = Port { world: self, cpu };
        self.tlb.cpu(CpuId(cpu), &port).answer(&IrqsOff::assume());
    }
}

/// One CPU.
struct Port {
    world: &'static World,
    cpu: u32,
}

impl Hardware for Port {
    type Set = Set;
    type Token = SpaceToken;

    fn features(&self) -> Features {
        log::features()
    }

    fn write_cr3(&self, cr3: Cr3) {
        log::did(Did::Cr3(self.cpu, cr3.0));
    }

    fn invlpg(&self, va: VirtAddr) {
        log::did(Did::Invlpg(self.cpu, va.0));
    }

    fn invpcid(&self, what: Invpcid) {
        let (kind, pcid, va) = what.operands();
        log::did(Did::Invpcid(self.cpu, kind, pcid.0, va.0));
    }

    fn toggle_pge(&self) {
        log::did(Did::TogglePge(self.cpu));
    }

    fn send_ipi(&self, to: CpuId) {
        log::interrupt(self.cpu, to.0);
    }

    fn send_ipi_to_others(&self) {
        log::interrupt_others(self.cpu);
    }

    fn relax(&self) {
        log::deliver(self.cpu, |to| self.world.answer(to));
    }

    #[cfg(feature = "directories")]
    fn directories(&self) -> tlbkit::Directories {
        tlbkit::Directories::OfEachCpu
    }

    fn root_here(&self, space: &AddressSpace<Set>) -> PhysAddr {
        PhysAddr(log::root(self.cpu, space.root().0))
    }

    /// As many as through the door.
    fn glances(&self) -> u32 {
        32
    }

    fn irqs_enabled(&self) -> bool {
        log::irqs(self.cpu) == Irqs::On
    }

    fn with_irqs_off<R>(&self, f: impl FnOnce(&IrqsOff) -> R) -> R {
        let before = log::save(self.cpu);
        let result = f(&IrqsOff::assume());
        log::restore(self.cpu, before);
        result
    }

    fn with_space_of<R>(&self, token: SpaceToken, f: impl FnOnce(&AddressSpace<Set>) -> R) -> R {
        f(&self.world.spaces[token.0 as usize])
    }

    fn event(&self, event: Event) {
        if let Event::LastLazyReference(token) = event {
            log::did(Did::LastReference(self.cpu, token.0));
        }
    }

    fn now_cycles(&self) -> u64 {
        0
    }
}

/// A range with the strides that Rust has.
struct Pages {
    va: VirtAddr,
    count: u32,
    stride: Stride,
}

fn pages(range: Range) -> Pages {
    let (va, one) = (VirtAddr(range.va), range.pages);
    match range.stride {
        12 => Pages { va, count: one, stride: Stride::Page4K },
        21 => Pages { va, count: one, stride: Stride::Page2M },
        30 => Pages { va, count: one, stride: Stride::Page1G },
        // 512 GiB are so many pages of 1 GiB.
        _ => Pages { va, count: one * 512, stride: Stride::Page1G },
    }
}

/// What a range with a flag stands for.
fn flagged(range: Range, flag: Flag) -> (Pages, Tables) {
    match flag {
        Flag::None => (pages(range), Tables::Kept),
        Flag::TablesFreed => (pages(range), Tables::Freed),
        Flag::Everything => (Pages { va: VirtAddr(0), count: u32::MAX, stride: Stride::Page4K }, Tables::Kept),
    }
}

fn scope_of(scope: u32) -> Scope {
    [Scope::NonGlobal, Scope::Global][scope as usize]
}

fn free_all(frames: Vec<u64>) {
    frames.into_iter().for_each(|frame| log::did(Did::Frees(frame)));
}

impl Side for &'static World {
    fn make(&self, step: &Step) -> u64 {
        let port = Port { world: self, cpu: step.cpu };
        let cpu = self.tlb.cpu(CpuId(step.cpu), &port);
        self.flush(&cpu, &step.call).or_else(|| self.run(&cpu, &step.call)).unwrap_or(0)
    }
}

impl World {
    /// What flushes; nothing if `call` is no such call.
    fn flush(&'static self, cpu: &Cpu<'_, 'static, Port>, call: &Call) -> Option<u64> {
        match call {
            Call::FlushRange(space, range, flag, why) => {
                let (range, tables) = flagged(*range, *flag);
                let space = &self.spaces[*space];
                cpu.flush_range_with(space, range.va, range.count, range.stride, tables, *why);
            }
            Call::FlushRangeAlone(space, range, flag) => {
                let (range, tables) = flagged(*range, *flag);
                let alone = cpu.flush_range_alone(&self.spaces[*space], range.va, range.count, range.stride, tables);
                return Some(u64::from(alone.is_err()));
            }
            Call::FlushKernelRange(range, flag, why) => {
                let (range, tables) = flagged(*range, *flag);
                let mut gather = TlbGather::new(Translations::OfKernel, Vec::<u64>::new());
                gather.range(cpu, range.va, u64::from(range.count), range.stride, Scope::Global, *why);
                if tables == Tables::Freed {
                    gather.tables_freed();
                }
                free_all(gather.flush(cpu).into_frames());
            }
            Call::FlushThisCpu(range) => {
                cpu.flush_this_cpu(pages(*range).va, pages(*range).count, pages(*range).stride)
            }
            Call::FlushKernelThisCpu(range) => {
                cpu.flush_kernel_on_this_cpu(pages(*range).va, pages(*range).count, pages(*range).stride);
            }
            Call::FlushLoadedThisCpu => cpu.flush_loaded_on_this_cpu(),
            Call::FlushAllThisCpu => cpu.flush_all_on_this_cpu(),
            Call::Gather(space, scope, why, parts, end) => {
                return Some(self.gather(cpu, *space, (scope_of(*scope), *why), parts, *end));
            }
            Call::Batch(items, why) => self.batch(cpu, items, *why),
            Call::Drain(space) => cpu.drain(&self.spaces[*space]),
            #[cfg(feature = "reuse")]
            Call::Reuse(batches, why) => self.reuse(cpu, batches, *why),
            #[cfg(feature = "directories")]
            Call::ReloadRoots(space) => {
                log::change_roots(0..CPUS);
                cpu.reload_roots(&self.spaces[*space]);
            }
            _ => return None,
        }
        Some(0)
    }

    fn gather(
        &'static self,
        cpu: &Cpu<'_, 'static, Port>,
        space: Option<usize>,
        (scope, why): (Scope, Reason),
        parts: &[Part],
        end: End,
    ) -> u64 {
        let translations = space.map_or(Translations::OfKernel, |space| Translations::OfSpace(&self.spaces[space]));
        let mut gather = TlbGather::new(translations, Vec::<u64>::new());
        for (n, part) in parts.iter().enumerate() {
            match *part {
                Part::Range(range) => {
                    let range = pages(range);
                    gather.range(cpu, range.va, u64::from(range.count), range.stride, scope, why);
                }
                Part::Unmap(range) => {
                    let range = pages(range);
                    // One translation of 512 GiB is named as pages of 1 GiB, and keeps one frame.
                    gather.range(cpu, range.va, u64::from(range.count), range.stride, scope, why);
                    gather.hold(frame(n));
                }
                Part::Table(va, unnamed) => gather.unmap_table(cpu, VirtAddr(va), unnamed, frame(n)),
                Part::Hold => gather.hold(frame(n)),
                Part::TablesFreed => gather.tables_freed(),
                Part::Everything => gather.flush_everything(),
            }
        }
        match end {
            End::Finish => {
                free_all(gather.flush(cpu).into_frames());
                0
            }
            End::Issue => {
                let mut pending = gather.issue(cpu);
                let was_done = pending.is_done(cpu);
                free_all(pending.wait(cpu).into_frames());
                u64::from(was_done)
            }
            End::Poll => {
                let mut pending = gather.issue(cpu);
                pending.poll(cpu);
                free_all(pending.wait(cpu).into_frames());
                0
            }
            #[cfg(feature = "directories")]
            End::Within(cpus) => {
                let (sharers, mut reach) = (tlbkit::Sharers::new(), tlbkit::Reach::NOBODY);
                let bits = cpus.unwrap_or_default();
                (0..CPUS).filter(|by| bits >> by & 1 != 0).for_each(|by| sharers.hook(CpuId(by)));
                reach.add(&sharers);
                let reach = if cpus.is_some() { reach } else { tlbkit::Reach::EVERYBODY };
                free_all(gather.flush_within(cpu, reach).into_frames());
                let before = sharers.may_include(CpuId(1));
                sharers.clear();
                u64::from(before) | u64::from(sharers.may_include(CpuId(1))) << 1
            }
        }
    }

    fn batch(&self, cpu: &Cpu<'_, 'static, Port>, items: &[Item], why: Reason) {
        free_all(self.filled(cpu, items).flush(cpu, why).into_frames());
    }

    #[cfg(feature = "reuse")]
    fn reuse(&'static self, cpu: &Cpu<'_, 'static, Port>, batches: &[(Vec<Item>, u32)], why: Reason) {
        let deferred = batches.iter().map(|(items, passing)| {
            let deferred = self.filled(cpu, items).defer(cpu, &self.periods);
            let port = Port { world: self, cpu: *passing };
            let before = log::set_irqs(*passing, Irqs::Off);
            self.periods.pass(&self.tlb.cpu(CpuId(*passing), &port), &IrqsOff::assume());
            log::set_irqs(*passing, before);
            deferred
        });
        let fold = |mut first: tlbkit::Deferred<_>, other| {
            first.fold(cpu, other);
            first
        };
        let all = deferred.collect::<Vec<_>>().into_iter().reduce(fold).expect("a batch");
        free_all(all.flush(cpu, &self.periods, why).into_frames());
    }

    fn filled(&self, cpu: &Cpu<'_, 'static, Port>, items: &[Item]) -> TlbBatch<Vec<u64>> {
        let mut batch = TlbBatch::new(Vec::<u64>::new());
        for (n, item) in items.iter().enumerate() {
            match *item {
                Item::Revoke(space) => batch.revoke(cpu, &self.spaces[space]),
                Item::Unmap(space) => batch.unmap(cpu, &self.spaces[space], frame(n)),
                Item::Table(space) => batch.unmap_table(cpu, &self.spaces[space], frame(n)),
                Item::Hold => batch.hold(frame(n)),
            }
        }
        batch
    }

    /// What is left: switches, coming and going, questions, ends.
    fn run(&self, cpu: &Cpu<'_, 'static, Port>, call: &Call) -> Option<u64> {
        let irqs = &IrqsOff::assume();
        match *call {
            Call::BringUp => cpu.bring_up(irqs),
            Call::Offline => cpu.offline(irqs),
            Call::Stopped(stopped) => self.tlb.declare_stopped(CpuId(stopped)),
            Call::Switch(space) => cpu.switch_to(&self.spaces[space], irqs),
            Call::EnterLazy => cpu.enter_lazy(irqs),
            Call::LoadKernel => cpu.load_kernel(irqs),
            Call::EnterKernel => cpu.enter_kernel(irqs),
            Call::ExitToUser => cpu.exit_to_user(irqs),
            Call::Answer => cpu.answer(irqs),
            #[cfg(feature = "directories")]
            Call::ReloadRootHere(space) => {
                log::change_roots(cpu.id().0..cpu.id().0 + 1);
                cpu.reload_root_here(&self.spaces[space], irqs);
            }
            Call::SetCeiling(pages) => self.tlb.knobs().set_ceiling(pages),
            Call::SetUserFlush(0) => self.tlb.knobs().set_user_flush(UserFlush::Invpcid),
            Call::SetUserFlush(_) => self.tlb.knobs().set_user_flush(UserFlush::DeferredCr3),
            Call::IsRunning(space) => return Some(u64::from(cpu.is_running(&self.spaces[space]))),
            Call::Loaded => return Some(cpu.loaded(irqs).0),
            Call::Missing => {
                let mut missing = 0;
                cpu.missing().for_each(|cpu| missing |= 1 << cpu.0);
                return Some(missing);
            }
            Call::Id(space) => return Some(self.spaces[space].id().number()),
            Call::Generation(space) => return Some(self.spaces[space].generation().number()),
            Call::Destroy(space) => return Some(u64::from(cpu.destroy(&self.spaces[space]) == Destroyed::Now)),
            Call::DestroyLater(space) => {
                return Some(u64::from(cpu.destroy_later(&self.spaces[space]) == Destroyed::Now));
            }
            _ => return None,
        }
        Some(0)
    }
}
