//! A little multiprocessor on one thread, with an oracle that looks at every CPU after every flush.
//!
//! Worlds are leaked: a test makes few of them, and everything in them then lives as long as a kernel does.

mod core;
mod memory;
pub(crate) mod thread;

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;

use tlbkit::sync::AtomicU64;
use tlbkit::{AddressSpace, Cpu, CpuId, CpuState, CpuStats, Destroyed, Features, Hardware, Isolation, Policy, Reason};
use tlbkit::{Scope, SpaceToken, Stride, Tlb, TlbGather, Translations, VirtAddr};
use tlbkit_arch::{Path, Translation};

pub(crate) use self::core::{Core, Did, Mode};
use memory::owner_of;
pub(crate) use memory::{Fate, KERNEL_ROOT, Memory, Owner, root_of};

/// First user and kernel addresses of the tests.
pub(crate) const USER: u64 = 0x4000_0000;
pub(crate) const KERNEL: u64 = 0xffff_8000_0000_0000;
/// Rounds of waiting after which nothing will ever happen.
const PATIENCE: u32 = 2_000;

/// When an interrupt arrives.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Delivery {
    /// When it is sent, if the target has interrupts on.
    AtOnce,
    /// When the sender waits, or a test says so.
    Queued,
    /// Never.
    Lost,
}

/// What another CPU does while somebody waits.
pub(crate) type Meanwhile = Box<dyn FnOnce(&'static World)>;

/// CPUs, page tables, spaces.
pub(crate) struct World {
    pub(crate) tlb: &'static Tlb<'static>,
    /// Its words that CPUs share: who has asked whom.
    pub(crate) matrix: &'static [AtomicU64],
    pub(crate) cores: Vec<Core>,
    pub(crate) memory: RefCell<Memory>,
    pub(crate) spaces: RefCell<Vec<&'static AddressSpace>>,
    pub(crate) delivery: Cell<Delivery>,
    /// Taken one at each round of waiting, before any interrupt is delivered.
    pub(crate) meanwhile: RefCell<VecDeque<Meanwhile>>,
    waits: Cell<u32>,
}

pub(crate) const MODERN: Features = Features { pcid: true, invpcid: true };

fn leak_words(words: usize) -> &'static [AtomicU64] {
    Vec::leak((0..words).map(|_| AtomicU64::new(0)).collect())
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

    /// The same, none of them brought up.
    pub(crate) fn before_bring_up(policy: Policy, features: &[Features]) -> &'static Self {
        let cpus = features.len();
        let states: &'static [CpuState] = Vec::leak((0..cpus).map(|_| CpuState::new()).collect());
        let stats: &'static [CpuStats] = Vec::leak((0..cpus).map(|_| CpuStats::new()).collect());
        let matrix = leak_words(Tlb::matrix_words(cpus));
        let tlb = Tlb::new(states, matrix, KERNEL_ROOT, policy).counting_into(stats);
        let world: &'static Self = Box::leak(Box::new(Self {
            tlb: Box::leak(Box::new(tlb)),
            matrix,
            cores: features.iter().enumerate().map(|(n, f)| Core::new(n as u32, *f)).collect(),
            memory: RefCell::default(),
            spaces: RefCell::default(),
            delivery: Cell::new(Delivery::AtOnce),
            meanwhile: RefCell::default(),
            waits: Cell::new(0),
        }));
        world.cores.iter().for_each(|core| assert!(core.world.set(world).is_ok()));
        world
    }

    pub(crate) fn cpu(&'static self, cpu: usize) -> Cpu<'static, 'static, Core> {
        self.tlb.cpu(CpuId(cpu as u32), &self.cores[cpu])
    }

    /// What `cpu` has executed since the last call.
    pub(crate) fn log(&self, cpu: usize) -> Vec<Did> {
        self.cores[cpu].log.take()
    }

    pub(crate) fn forget_logs(&self) {
        self.cores.iter().for_each(|core| core.log.borrow_mut().clear());
    }

    /// Runs `f` in the kernel on `cpu` with interrupts off.
    pub(crate) fn quiet<R>(
        &'static self,
        cpu: usize,
        f: impl FnOnce(Cpu<'static, 'static, Core>, &tlbkit::IrqsOff) -> R,
    ) -> R {
        self.enter_kernel(cpu);
        self.cores[cpu].with_irqs_off(|irqs| f(self.cpu(cpu), irqs))
    }

    pub(crate) fn bring_up(&'static self, cpu: usize) {
        self.cores[cpu].is_online.set(true);
        self.cores[cpu].mode.set(Mode::Kernel);
        self.cores[cpu].task.set(None);
        self.quiet(cpu, |c, irqs| c.bring_up(irqs));
    }

    pub(crate) fn offline(&'static self, cpu: usize) {
        self.cores[cpu].task.set(None);
        self.quiet(cpu, |c, irqs| c.offline(irqs));
        self.cores[cpu].is_online.set(false);
    }

    /// A new, empty space.
    pub(crate) fn space(&self) -> usize {
        let mut spaces = self.spaces.borrow_mut();
        let index = spaces.len();
        let set = leak_words(AddressSpace::set_words(self.cores.len()));
        let token = SpaceToken(index as u64);
        spaces.push(Box::leak(Box::new(AddressSpace::new(self.tlb.fresh_id(), token, root_of(index), set))));
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
        self.cores[cpu].task.set(Some(space));
    }

    pub(crate) fn lazy(&'static self, cpu: usize) {
        self.cores[cpu].task.set(None);
        self.quiet(cpu, |c, irqs| c.enter_lazy(irqs));
    }

    pub(crate) fn load_kernel(&'static self, cpu: usize) {
        self.cores[cpu].task.set(None);
        self.quiet(cpu, |c, irqs| c.load_kernel(irqs));
    }

    pub(crate) fn enter_kernel(&'static self, cpu: usize) {
        if self.cores[cpu].mode.replace(Mode::Kernel) == Mode::User {
            self.cores[cpu].with_irqs_off(|irqs| self.cpu(cpu).enter_kernel(irqs));
        }
    }

    pub(crate) fn exit_to_user(&'static self, cpu: usize) {
        if self.cores[cpu].mode.replace(Mode::User) == Mode::Kernel {
            self.cores[cpu].with_irqs_off(|irqs| self.cpu(cpu).exit_to_user(irqs));
        }
    }

    /// The program on `cpu` accesses `va`, and goes on in user mode. The stamp of the mapping that it used.
    pub(crate) fn touch(&'static self, cpu: usize, va: u64) -> Option<usize> {
        assert!(self.cores[cpu].task.get().is_some(), "no program runs on cpu{cpu}");
        self.exit_to_user(cpu);
        self.access(cpu, va)
    }

    /// The kernel on `cpu` accesses `va`.
    pub(crate) fn touch_in_kernel(&'static self, cpu: usize, va: u64) -> Option<usize> {
        self.enter_kernel(cpu);
        self.access(cpu, va)
    }

    fn access(&self, cpu: usize, va: u64) -> Option<usize> {
        let core = &self.cores[cpu];
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
        let core = &self.cores[cpu];
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
        let scope = if owner == Owner::Kernel { Scope::Global } else { Scope::Local };
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
        self.waits.set(0);
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
        self.waits.set(0);
        self.memory.borrow_mut().roots[space] = Fate::Unhooked;
        let ended = self.cpu(cpu).destroy(self.at(space));
        if ended == Destroyed::Now {
            self.unreferenced(space);
        }
        ended
    }

    /// The tables of a dead space are freed.
    pub(crate) fn unreferenced(&self, space: usize) {
        for core in self.cores.iter().filter(|core| core.is_online.get()) {
            let loaded = owner_of(core.cr3.get().root());
            assert_ne!(loaded, Owner::Space(space), "cpu{} has a space loaded that is freed", core.id);
        }
        self.memory.borrow_mut().free_space(space);
    }

    /// INV-6, looked at directly: what each CPU could use or walk at this moment.
    pub(crate) fn audit(&self) {
        let memory = self.memory.borrow();
        for core in self.cores.iter().filter(|core| core.is_online.get()) {
            let (tlb, pcid) = (core.tlb.borrow(), core.cr3.get().pcid());
            for (path, table) in tlb.paths.iter().filter(|(path, _)| path.pcid == pcid) {
                assert!(!memory.is_freed(*table), "INV-6: cpu{} can walk a freed table: {path:x?}", core.id);
            }
            for (entry, stamp) in tlb.translations.iter().filter(|(entry, _)| entry.serves(pcid)) {
                let is_used = core.task.get().is_some() || entry.start.is_kernel();
                let is_stale = is_used && memory.is_freed(*stamp);
                assert!(!is_stale, "INV-6: cpu{} can use a freed translation: {entry:x?}", core.id);
            }
        }
    }

    fn interrupt(&'static self, cpu: usize) {
        self.cores[cpu].has_ipi.set(self.delivery.get() != Delivery::Lost);
        if self.delivery.get() == Delivery::AtOnce {
            self.deliver(cpu);
        }
    }

    /// The pending interrupt of `cpu` arrives, if there is one and the CPU takes it.
    pub(crate) fn deliver(&'static self, cpu: usize) {
        let core = &self.cores[cpu];
        if !core.is_online.get() || !core.irqs.get() || !core.has_ipi.replace(false) {
            return;
        }
        let mode = core.mode.get();
        self.enter_kernel(cpu);
        core.with_irqs_off(|irqs| self.cpu(cpu).answer(irqs));
        if mode == Mode::User {
            self.exit_to_user(cpu);
        }
    }

    /// One round of somebody's wait: what a test planned for it, or all interrupts arrive.
    fn while_waiting(&'static self, waiter: usize) {
        self.waits.set(self.waits.get() + 1);
        assert!(self.waits.get() < PATIENCE, "INV-7: cpu{waiter} waits for ever");
        let planned = self.meanwhile.borrow_mut().pop_front();
        match planned {
            Some(act) => act(self),
            None => (0..self.cores.len()).for_each(|cpu| self.deliver(cpu)),
        }
    }

    /// Every program comes back to every space and uses every page: what was kept too long shows.
    pub(crate) fn revisit_all(&'static self) {
        for space in 0..self.spaces.borrow().len() {
            let alive = self.memory.borrow().roots[space] == Fate::Live;
            for cpu in (0..self.cores.len()).filter(|&cpu| alive && self.cores[cpu].is_online.get()) {
                self.switch(cpu, space);
                self.use_all_pages(cpu);
            }
        }
    }

    /// Uses each address that was ever cached here.
    pub(crate) fn use_all_pages(&'static self, cpu: usize) {
        let vas: Vec<u64> = self.cores[cpu].tlb.borrow().translations.iter().map(|(held, _)| held.start.0).collect();
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
