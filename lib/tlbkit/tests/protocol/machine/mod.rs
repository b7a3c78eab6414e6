//! A little multiprocessor on one thread, with an oracle that looks at every CPU after every flush.
//!
//! Worlds are leaked: a test makes few of them, and everything in them then lives as long as a kernel does.

mod checks;
mod memory;
pub(crate) mod thread;

use std::cell::{Cell, OnceCell, RefCell};
use std::num::NonZeroU32;
use std::ops::Deref;

use tlbkit::sync::AtomicU64;
use tlbkit::{AddressSpace, Batching, Cpu, CpuId, CpuState, CpuStats, Destroyed, Features, Hardware, Isolation, Late};
use tlbkit::{Cr3, LazyReferences, Pcid, Policy, Reason, Scope, Stride, Tlb, TlbGather, Translations, VirtAddr};
use tlbkit_arch::{Path, Translation};
pub(crate) use tlbkit_testkit::{Delivery, Did, MODERN};
use tlbkit_testkit::{Stepped, TestCpu, leak, words};

use memory::owner_of;
pub(crate) use memory::{Fate, KERNEL_ROOT, Memory, OWN_ROOT, Owner, root_of};

/// First user and kernel addresses of the tests.
pub(crate) const USER: u64 = 0x4000_0000;
pub(crate) const KERNEL: u64 = 0xffff_8000_0000_0000;

/// False in what a kernel links, whose tests leave out what older kernels did.
pub(crate) const HAS_HISTORY: bool = cfg!(feature = "history");
/// What this build has of each.
pub(crate) const BATCHINGS: &[Batching] =
    if HAS_HISTORY { &[Batching::None, Batching::Packet(6), Batching::Range] } else { &[Batching::Range] };
pub(crate) const REFERENCES: &[LazyReferences] = if HAS_HISTORY {
    &[LazyReferences::Awaited, LazyReferences::ShotDown, LazyReferences::Counted]
} else {
    &[LazyReferences::Awaited, LazyReferences::ShotDown]
};

/// Whether the program or the kernel executes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) enum Mode {
    User,
    #[default]
    Kernel,
}

/// What an NMI does.
pub(crate) type Nmi = Box<dyn Fn(&'static World)>;

/// The program on a CPU, and what comes in between.
#[derive(Default)]
pub(crate) struct Program {
    pub(crate) mode: Cell<Mode>,
    /// The space that the program here runs in; none when lazy or in the kernel's tables.
    pub(crate) task: Cell<Option<usize>>,
    /// What an NMI does that arrives just before each write of CR3 and each INVLPG, and before a TLBSYNC has done each
    /// INVLPGB.
    pub(crate) nmi: RefCell<Option<Nmi>>,
    /// How far above the root that CPUs share the one lies that this CPU is to load.
    pub(crate) root_offset: Cell<u64>,
}

/// A CPU of the world.
pub(crate) type Core = TestCpu<&'static World>;

/// CPUs, page tables, spaces.
pub(crate) struct World {
    steps: OnceCell<Stepped<&'static World>>,
    pub(crate) tlb: &'static Tlb<'static>,
    /// Its words that CPUs share: who has asked whom.
    pub(crate) matrix: &'static [AtomicU64],
    pub(crate) memory: RefCell<Memory>,
    pub(crate) spaces: RefCell<Vec<&'static AddressSpace>>,
}

impl Deref for World {
    type Target = Stepped<&'static Self>;

    fn deref(&self) -> &Self::Target {
        self.steps.get().expect("its CPUs")
    }
}

impl World {
    /// A machine of `cpus` modern CPUs, all brought up, interrupts delivered at once.
    pub(crate) fn new(policy: Policy, cpus: usize) -> &'static Self {
        Self::of(policy, &vec![MODERN; cpus])
    }

    /// A machine with one CPU for each of `features`, all brought up.
    pub(crate) fn of(policy: Policy, features: &[Features]) -> &'static Self {
        let world = Self::before_bring_up(policy, features);
        (0..features.len()).for_each(|n| world.bring_up(n));
        world
    }

    /// The same, where one INVLPGB takes so many pages.
    pub(crate) fn with_broadcast(policy: Policy, features: &[Features], pages: u32) -> &'static Self {
        let world = Self::before_bring_up(policy, features);
        world.cpus.iter().for_each(|core| core.broadcast_pages.set(NonZeroU32::new(pages)));
        (0..features.len()).for_each(|n| world.bring_up(n));
        world
    }

    /// The same, none of them brought up.
    pub(crate) fn before_bring_up(policy: Policy, features: &[Features]) -> &'static Self {
        let cpus = features.len();
        let matrix = words(Tlb::matrix_words(cpus));
        let tlb = Tlb::new(leak((0..cpus).map(|_| CpuState::new())), matrix, KERNEL_ROOT, policy);
        let world: &'static Self = Box::leak(Box::new(Self {
            steps: OnceCell::new(),
            tlb: Box::leak(Box::new(tlb.counting_into(leak((0..cpus).map(|_| CpuStats::new()))))),
            matrix,
            memory: RefCell::default(),
            spaces: RefCell::default(),
        }));
        let _set_once = world.steps.set(Stepped::new(world, features, Delivery::AtOnce));
        for core in &world.cpus {
            core.is_online.set(false);
            core.cr3.set(Cr3::flushing(KERNEL_ROOT, Pcid::KERNEL));
            core.patience_turns.set(8);
            core.patience_rounds.set(u32::MAX);
            core.about_late.set(Late::Wait);
        }
        world
    }

    pub(crate) fn cpu(&'static self, cpu: usize) -> Cpu<'static, 'static, Core> {
        self.tlb.cpu(CpuId(cpu as u32), &self.cpus[cpu])
    }

    /// Runs `f` in the kernel on `cpu` with interrupts off.
    pub(crate) fn quiet<R>(
        &'static self,
        cpu: usize,
        f: impl FnOnce(Cpu<'static, 'static, Core>, &tlbkit::IrqsOff) -> R,
    ) -> R {
        self.enter_kernel(cpu);
        self.cpus[cpu].with_irqs_off(|irqs| f(self.cpu(cpu), irqs))
    }

    pub(crate) fn bring_up(&'static self, cpu: usize) {
        self.cpus[cpu].is_online.set(true);
        self.cpus[cpu].kept.mode.set(Mode::Kernel);
        self.cpus[cpu].kept.task.set(None);
        self.quiet(cpu, |c, irqs| c.bring_up(irqs));
    }

    pub(crate) fn offline(&'static self, cpu: usize) {
        self.cpus[cpu].kept.task.set(None);
        self.quiet(cpu, |c, irqs| c.offline(irqs));
        self.cpus[cpu].is_online.set(false);
    }

    /// A new, empty space.
    pub(crate) fn space(&self) -> usize {
        let mut spaces = self.spaces.borrow_mut();
        let index = spaces.len();
        let space = tlbkit_testkit::space(self.tlb, self.cpus.len(), index, root_of(index));
        spaces.push(Box::leak(Box::new(space)));
        self.memory.borrow_mut().roots.push(Fate::Live);
        index
    }

    pub(crate) fn at(&self, space: usize) -> &'static AddressSpace {
        self.spaces.borrow()[space]
    }

    pub(crate) fn map(&self, space: usize, va: u64) -> usize {
        self.memory.borrow_mut().map(Owner::Space(space), va, Stride::Page4K)
    }

    pub(crate) fn map_kernel(&self, va: u64) -> usize {
        self.memory.borrow_mut().map(Owner::Kernel, va, Stride::Page4K)
    }

    pub(crate) fn switch(&'static self, cpu: usize, space: usize) {
        self.quiet(cpu, |c, irqs| c.switch_to(self.at(space), irqs));
        self.cpus[cpu].kept.task.set(Some(space));
    }

    pub(crate) fn lazy(&'static self, cpu: usize) {
        self.cpus[cpu].kept.task.set(None);
        self.quiet(cpu, |c, irqs| c.enter_lazy(irqs));
    }

    pub(crate) fn load_kernel(&'static self, cpu: usize) {
        self.cpus[cpu].kept.task.set(None);
        self.quiet(cpu, |c, irqs| c.load_kernel(irqs));
    }

    pub(crate) fn enter_kernel(&'static self, cpu: usize) {
        if self.cpus[cpu].kept.mode.replace(Mode::Kernel) == Mode::User {
            self.cpus[cpu].with_irqs_off(|irqs| self.cpu(cpu).enter_kernel(irqs));
        }
    }

    pub(crate) fn exit_to_user(&'static self, cpu: usize) {
        if self.cpus[cpu].kept.mode.replace(Mode::User) == Mode::Kernel {
            self.cpus[cpu].with_irqs_off(|irqs| self.cpu(cpu).exit_to_user(irqs));
        }
    }

    /// The program on `cpu` accesses `va`, and goes on in user mode. The stamp of the mapping that it used.
    pub(crate) fn touch(&'static self, cpu: usize, va: u64) -> Option<usize> {
        assert!(self.cpus[cpu].kept.task.get().is_some(), "no program runs on cpu{cpu}");
        self.exit_to_user(cpu);
        self.access(cpu, va)
    }

    /// The kernel on `cpu` accesses `va`.
    pub(crate) fn touch_in_kernel(&'static self, cpu: usize, va: u64) -> Option<usize> {
        self.enter_kernel(cpu);
        self.access(cpu, va)
    }

    fn access(&self, cpu: usize, va: u64) -> Option<usize> {
        let core = &self.cpus[cpu];
        let hit = core.tlb.borrow().hit(core.cr3.get().pcid(), VirtAddr(va)).copied();
        let Some((entry, stamp)) = hit else { return self.walk(cpu, va) };
        let memory = self.memory.borrow();
        assert!(!memory.is_freed(stamp), "INV-6: cpu{cpu} used a freed translation: {entry:x?}");
        let owner = if VirtAddr(va).is_kernel() { Owner::Kernel } else { owner_of(core.cr3.get().root()) };
        assert_eq!(memory.owner(stamp), owner, "cpu{cpu} used another space's translation: {entry:x?}");
        Some(stamp)
    }

    /// A page walk from whatever root is loaded: at a miss, or speculative, at any time.
    pub(crate) fn walk(&self, cpu: usize, va: u64) -> Option<usize> {
        let core = &self.cpus[cpu];
        let (root, pcid) = (core.cr3.get().root(), core.cr3.get().pcid());
        let memory = self.memory.borrow();
        if let Owner::Space(space) = owner_of(root) {
            assert_ne!(memory.roots[space], Fate::Freed, "cpu{cpu} walks a dead space");
        }
        let owner = if VirtAddr(va).is_kernel() { Owner::Kernel } else { owner_of(root) };
        let mut tlb = core.tlb.borrow_mut();
        let hooked = memory.tables.get(&(owner, va >> 21)).copied();
        if let Some(&(_, table)) = tlb.path(pcid, 1, VirtAddr(va)) {
            assert!(!memory.is_freed(table), "INV-6: cpu{cpu} walks a freed table at {va:#x}");
            if hooked != Some(table) {
                return None;
            }
        } else if let Some(table) = hooked {
            tlb.paths.push((Path { pcid, start: VirtAddr(va), level: 1 }, table));
        }
        let (start, page) = memory.find(owner, va)?;
        let is_global = owner == Owner::Kernel && self.tlb.policy().isolation == Isolation::Off;
        let held = Translation { pcid, start: VirtAddr(start), stride: page.stride, is_global };
        tlb.translations.push((held, page.stamp));
        Some(page.stamp)
    }

    /// Unhooks what covers each address, and names it to `gather`.
    pub(crate) fn unhook(
        &'static self,
        cpu: usize,
        gather: &mut TlbGather<'static, &'static [AtomicU64], Vec<usize>>,
        owner: Owner,
        vas: &[u64],
    ) {
        let scope = if owner == Owner::Kernel { Scope::Global } else { Scope::NonGlobal };
        for &va in vas {
            let Some(page) = self.memory.borrow_mut().unhook(owner, va) else { continue };
            gather.unmap(&self.cpu(cpu), VirtAddr(va), page.stride, scope, Reason::RemovePte, page.stamp);
        }
    }

    pub(crate) fn gather(&self, owner: Owner) -> TlbGather<'static, &'static [AtomicU64], Vec<usize>> {
        let translations = match owner {
            Owner::Space(space) => Translations::OfSpace(self.at(space)),
            Owner::Kernel => Translations::OfKernel,
        };
        TlbGather::new(translations, Vec::new())
    }

    /// Flushes, frees what comes out, and looks at every CPU.
    pub(crate) fn finish(&'static self, cpu: usize, gather: TlbGather<'static, &'static [AtomicU64], Vec<usize>>) {
        self.enter_kernel(cpu);
        let freed = gather.flush(&self.cpu(cpu)).into_frames();
        self.memory.borrow_mut().free(&freed);
        self.audit();
    }

    /// Unhook, flush, free, audit.
    pub(crate) fn unmap(&'static self, cpu: usize, space: usize, vas: &[u64]) {
        self.revoke(cpu, Owner::Space(space), vas);
    }

    pub(crate) fn revoke(&'static self, cpu: usize, owner: Owner, vas: &[u64]) {
        self.enter_kernel(cpu);
        let mut gather = self.gather(owner);
        self.unhook(cpu, &mut gather, owner, vas);
        self.finish(cpu, gather);
    }

    /// As `revoke`, and frees the table of the region of `va` with every page in it.
    pub(crate) fn free_table(&'static self, cpu: usize, owner: Owner, va: u64) {
        self.enter_kernel(cpu);
        let region = va >> 21;
        let pages = self.memory.borrow().pages.clone();
        let inside = |&&(whose, start): &&(Owner, u64)| whose == owner && start >> 21 == region;
        let small = pages.iter().filter(|(_, page)| page.stride == Stride::Page4K).map(|(key, _)| key);
        let vas: Vec<u64> = small.filter(inside).map(|key| key.1).collect();
        let mut gather = self.gather(owner);
        let table = self.memory.borrow_mut().unhook_table(owner, va);
        self.unhook(cpu, &mut gather, owner, &vas);
        if let Some(table) = table {
            gather.unmap_table(&self.cpu(cpu), VirtAddr(region << 21), 0, table);
        }
        self.finish(cpu, gather);
    }

    /// Ends a space that runs nowhere; its tables are freed now or by the last lazy CPU.
    pub(crate) fn destroy(&'static self, cpu: usize, space: usize) -> Destroyed {
        self.enter_kernel(cpu);
        self.memory.borrow_mut().roots[space] = Fate::Unhooked;
        let ended = self.cpu(cpu).destroy(self.at(space));
        if ended == Destroyed::Now {
            self.unreferenced(space);
        }
        ended
    }

    /// The tables of a dead space are freed.
    pub(crate) fn unreferenced(&self, space: usize) {
        for core in self.cpus.iter().filter(|core| core.is_online.get()) {
            let loaded = owner_of(core.cr3.get().root());
            assert_ne!(loaded, Owner::Space(space), "cpu{} has a space loaded that is freed", core.id.0);
        }
        self.memory.borrow_mut().free_space(space);
    }

    /// INV-6, looked at directly: what each CPU could use or walk at this moment.
    pub(crate) fn audit(&self) {
        let memory = self.memory.borrow();
        for core in self.cpus.iter().filter(|core| core.is_online.get()) {
            let (tlb, pcid) = (core.tlb.borrow(), core.cr3.get().pcid());
            for (path, table) in tlb.paths.iter().filter(|(path, _)| path.pcid == pcid) {
                assert!(!memory.is_freed(*table), "INV-6: cpu{} can walk a freed table: {path:x?}", core.id.0);
            }
            for (entry, stamp) in tlb.translations.iter().filter(|(entry, _)| entry.serves(pcid)) {
                let is_used = core.kept.task.get().is_some() || entry.start.is_kernel();
                let is_stale = is_used && memory.is_freed(*stamp);
                assert!(!is_stale, "INV-6: cpu{} can use a freed translation: {entry:x?}", core.id.0);
            }
        }
    }

    /// Every program comes back to every space and uses every page: what was kept too long shows.
    pub(crate) fn revisit_all(&'static self) {
        for space in 0..self.spaces.borrow().len() {
            let alive = self.memory.borrow().roots[space] == Fate::Live;
            for cpu in (0..self.cpus.len()).filter(|&cpu| alive && self.cpus[cpu].is_online.get()) {
                self.switch(cpu, space);
                self.use_all_pages(cpu);
            }
        }
    }

    /// Uses each address that was ever cached here.
    pub(crate) fn use_all_pages(&'static self, cpu: usize) {
        let vas: Vec<u64> = self.cpus[cpu].tlb.borrow().translations.iter().map(|(held, _)| held.start.0).collect();
        for va in vas {
            self.touch(cpu, va);
            self.touch_in_kernel(cpu, va);
        }
    }
}

/// The CPUs whom `cpu` interrupted one by one since the last look at its log.
pub(crate) fn interrupted(log: &[Did]) -> Vec<u32> {
    log.iter().filter_map(|did| if let Did::Ipi(to) = did { Some(*to) } else { None }).collect()
}

/// The values that were written to CR3.
pub(crate) fn cr3s(log: &[Did]) -> Vec<tlbkit::Cr3> {
    log.iter().filter_map(|did| if let Did::Cr3(cr3) = did { Some(*cr3) } else { None }).collect()
}

/// The addresses that were invalidated one by one.
pub(crate) fn invlpgs(log: &[Did]) -> Vec<u64> {
    log.iter().filter_map(|did| if let Did::Invlpg(va) = did { Some(*va) } else { None }).collect()
}
