//! A machine of a few CPUs in one host thread, each with a TLB that forgets nothing it is not told to forget.
//!
//! An access goes through that TLB, so a missing flush is a wrong value, a store into a foreign frame, or a frame freed
//! while a CPU that runs still translates to it.

pub(crate) mod memory;

use memory::{Event as Seen, TestMemory};
use std::cell::{Cell, OnceCell, RefCell};
use std::ops::{Deref, Range};
use tlbkit::sync::AtomicU64;
use tlbkit::*;
use tlbkit_arch::addr::TOP_LEVEL;
use tlbkit_arch::{Instruction, Path, Translation, WalkStep, entry_at, span_start};
use tlbkit_pmap::{Access, Fault, KernelMap, Memory, Pmap, Pte, Vm};
use tlbkit_testkit::{Apics, Delivery, Did, Stepped, TestCpu, leak, words};

/// All of it, leaked: a test is short.
pub(crate) struct Machine {
    steps: OnceCell<Stepped<&'static Machine>>,
    pub(crate) tlb: Tlb<'static>,
    pub(crate) kernel: &'static KernelMap<'static>,
    pub(crate) mem: &'static TestMemory,
    spaces: RefCell<Vec<&'static AddressSpace>>,
    /// Those of them that have regions.
    vms: RefCell<Vec<&'static Vm<'static>>>,
    empty: usize,
}

/// How a space is made.
pub(crate) type NewSpace = fn(
    &Tlb<'static>,
    &'static TestMemory,
    &'static KernelMap<'static>,
    SpaceToken,
    &'static [AtomicU64],
) -> Result<Vm<'static>, tlbkit_pmap::Error>;

/// What a frame held that is freed.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Freed {
    Table,
    Data,
}

impl Deref for Machine {
    type Target = Stepped<&'static Self>;

    fn deref(&self) -> &Self::Target {
        self.steps.get().expect("its CPUs")
    }
}

/// Runs `test` on two CPUs under each preset; it must leave no frame behind.
pub(crate) fn on_every_preset(test: impl Fn(&'static Machine)) {
    for preset in PRESETS {
        let machine = Machine::new(2, preset.policy);
        test(machine);
        assert_eq!(machine.used(), 0, "{}: frames leaked", preset.name);
    }
}

impl Machine {
    pub(crate) fn new(cpus: usize, policy: Policy) -> &'static Self {
        let mem: &'static TestMemory = Box::leak(Box::new(TestMemory::new()));
        let kernel: &'static KernelMap<'static> = Box::leak(Box::new(KernelMap::new(mem, words(1)).unwrap()));
        let features = Features { pcid: policy.tags != Tags::Off, invpcid: true };
        let machine: &'static Self = Box::leak(Box::new(Self {
            steps: OnceCell::new(),
            tlb: tlbkit_testkit::tlb(cpus, kernel.root(), policy)
                .counting_into(leak((0..cpus).map(|_| CpuStats::new()))),
            kernel,
            mem,
            spaces: RefCell::default(),
            vms: RefCell::default(),
            empty: mem.used(),
        }));
        *mem.judge.borrow_mut() = Some(Box::new(|at, shift, is_table| {
            machine.judge(at..at + (1 << shift), if is_table { Freed::Table } else { Freed::Data });
        }));
        let _set_once = machine.steps.set(Stepped::new(machine, &vec![features; cpus], Delivery::Queued));
        for cpu in &machine.cpus {
            cpu.with_irqs_off(|irqs| machine.cpu(cpu.id.0).bring_up(irqs));
        }
        machine
    }

    pub(crate) fn cpu(&'static self, n: u32) -> Cpu<'static, 'static, TestCpu<&'static Self>> {
        self.tlb.cpu(CpuId(n), &self.cpus[n as usize])
    }

    /// A space in which each CPU has directories of its own.
    pub(crate) fn converted_space(&'static self) -> &'static Vm<'static> {
        let vm = self.space();
        vm.give_directories(&self.cpu(0), self.mem).unwrap();
        vm
    }

    pub(crate) fn space(&'static self) -> &'static Vm<'static> {
        self.space_by(Vm::new)
    }

    pub(crate) fn space_by(&'static self, new: NewSpace) -> &'static Vm<'static> {
        let vm = new(&self.tlb, self.mem, self.kernel, self.next_token(), self.set()).unwrap();
        let vm: &'static Vm<'static> = Box::leak(Box::new(vm));
        self.spaces.borrow_mut().push(vm.space());
        self.vms.borrow_mut().push(vm);
        vm
    }

    /// The page tables of a space that has no regions.
    pub(crate) fn bare_tables(&'static self) -> &'static Pmap {
        let tables = Pmap::new(&self.tlb, self.mem, self.kernel.root(), self.next_token(), self.set()).unwrap();
        let tables: &'static Pmap = Box::leak(Box::new(tables));
        self.spaces.borrow_mut().push(tables.space());
        tables
    }

    fn next_token(&self) -> SpaceToken {
        SpaceToken(self.spaces.borrow().len() as u64)
    }

    fn set(&self) -> &'static [AtomicU64] {
        words(AddressSpace::set_words(self.cpus.len()))
    }

    /// CPU `n` runs `vm`.
    pub(crate) fn run(&'static self, n: u32, vm: &Vm<'static>) {
        self.run_space(n, vm.space());
    }

    pub(crate) fn run_space(&'static self, n: u32, space: &AddressSpace) {
        self.cpus[n as usize].kept.set(false);
        self.cpus[n as usize].with_irqs_off(|irqs| self.cpu(n).switch_to(space, irqs));
    }

    pub(crate) fn idle(&'static self, n: u32) {
        self.cpus[n as usize].kept.set(true);
        self.cpus[n as usize].with_irqs_off(|irqs| self.cpu(n).enter_lazy(irqs));
    }

    /// The space's last threads end, the very last one on CPU `n`.
    pub(crate) fn end(&'static self, n: u32, vm: &'static Vm<'static>) {
        self.run(n, vm);
        vm.exit(&self.cpu(n), self.mem);
        let runs_it = |cpu: u32| self.cpu(cpu).is_running(vm.space());
        (0..self.cpus.len() as u32).filter(|&cpu| runs_it(cpu)).for_each(|cpu| self.idle(cpu));
        if vm.destroy(&self.cpu(n), self.mem) == Destroyed::WhenUnreferenced {
            self.cpus.iter().for_each(|cpu| cpu.with_irqs_off(|irqs| self.cpu(cpu.id.0).load_kernel(irqs)));
            let reported = Did::Event(Event::LastLazyReference(vm.space().token()));
            assert_eq!((0..self.cpus.len()).map(|n| self.count(n, |did| *did == reported)).sum::<u32>(), 1);
            vm.reclaim(self.mem);
        }
    }

    /// The frames that tests are answerable for: all but those of the kernel's tables.
    pub(crate) fn used(&self) -> usize {
        self.mem.used() - self.empty
    }

    pub(crate) fn read(&'static self, n: u32, vm: &'static Vm<'static>, va: u64) -> Result<u64, Fault> {
        self.access(n, vm, va, Access::Read).map(|at| self.mem.load(at))
    }

    pub(crate) fn write(&'static self, n: u32, vm: &'static Vm<'static>, va: u64, value: u64) -> Result<(), Fault> {
        self.access(n, vm, va, Access::Write).map(|at| self.mem.store(at, value))
    }

    fn access(&'static self, n: u32, vm: &'static Vm<'static>, va: u64, access: Access) -> Result<PhysAddr, Fault> {
        self.run(n, vm);
        for _ in 0..3 {
            if let Some(at) = self.translate(n, va, access) {
                return Ok(at);
            }
            let fault = vm.fault(&self.cpu(n), self.mem, va, access);
            if matches!(fault, Fault::Bad | Fault::OutOfMemory) {
                return Err(fault);
            }
        }
        panic!("{access:?} at {va:#x} faults for ever");
    }

    /// Whether the tables map `va` now, whoever holds their lock.
    pub(crate) fn is_mapped(&self, vm: &Vm<'static>, va: u64) -> bool {
        self.is_mapped_below(vm.space().root(), va)
    }

    /// Whether the tables below `root` do.
    pub(crate) fn is_mapped_below(&self, root: PhysAddr, va: u64) -> bool {
        walk(self.mem, (root, TOP_LEVEL), va, |_, _| ()).is_some()
    }

    /// What a CPU does to a clean entry through which it stores.
    pub(crate) fn set_dirty(&self, vm: &Vm<'static>, va: u64) {
        let mut at = (vm.space().root(), TOP_LEVEL);
        let (pte, ..) = walk(self.mem, at, va, |level, table| at = (table, level)).expect("mapped");
        self.mem.store(entry_at(at.0, VirtAddr(va), at.1), pte.with(Pte::DIRTY).0);
    }

    /// A read of what the CPU has loaded, by the kernel: nothing if it faults.
    pub(crate) fn kernel_read(&'static self, n: u32, va: u64) -> Option<u64> {
        self.translate(n, va, Access::Read).map(|at| self.mem.load(at))
    }

    pub(crate) fn cr3_writes(&self, n: usize) -> u32 {
        self.count(n, |did| matches!(did, Did::Cr3(_)))
    }

    /// How often CPU `n` has flushed everything, or all of a tag.
    pub(crate) fn full_flushes(&self, n: usize) -> u32 {
        let has_pcid = self.cpus[n].features.pcid;
        self.count(n, |did| match did {
            Did::Cr3(cr3) => !(has_pcid && cr3.keeps()),
            did => matches!(did, Did::TogglePge | Did::Invpcid(Invpcid::AllAndGlobals)),
        })
    }

    /// Flushes of all CPUs since the memory's log was cleared.
    pub(crate) fn flushes(&self) -> usize {
        self.mem.log.borrow().iter().filter(|event| **event == Seen::Flushed).count()
    }

    /// IPIs that CPU `n` has sent, or had sent to all others.
    pub(crate) fn interrupts(&self, n: usize) -> u32 {
        self.count(n, |did| matches!(did, Did::Ipi(_) | Did::IpiToOthers))
    }

    fn count(&self, n: usize, is_counted: impl Fn(&Did) -> bool) -> u32 {
        self.cpus[n].log.borrow().iter().filter(|did| is_counted(did)).count() as u32
    }

    /// True if CPU `n` may still use a translation of 2 MiB for `va`.
    pub(crate) fn holds_large(&self, n: usize, va: u64) -> bool {
        let cpu = &self.cpus[n];
        let hit = cpu.tlb.borrow().hit(cpu.current_tag().pcid(), VirtAddr(va)).copied();
        hit.is_some_and(|(held, _)| held.stride == Stride::Page2M)
    }

    fn translate(&self, n: u32, va: u64, access: Access) -> Option<PhysAddr> {
        let (cpu, va) = (&self.cpus[n as usize], VirtAddr(va));
        let (pcid, mut tlb) = (cpu.current_tag().pcid(), cpu.tlb.borrow_mut());
        let hit = tlb.hit(pcid, va).copied();
        let mut last = (cpu.cr3.get().root(), TOP_LEVEL);
        let (held, pte) = hit.or_else(|| {
            let cached = (1..TOP_LEVEL).find_map(|level| tlb.path(pcid, level, va).map(|(_, table)| (*table, level)));
            let first = cached.unwrap_or(last);
            last = first;
            let keep = |level, table| {
                last = (table, level);
                tlb.paths.push((Path { pcid, start: va, level }, table));
            };
            let (pte, start, stride) = walk(self.mem, first, va.0, keep)?;
            Some((Translation { pcid, start, stride, is_global: pte.has(Pte::GLOBAL) }, pte))
        })?;
        if access == Access::Write && !pte.has(Pte::WRITE) {
            tlb.execute(Instruction::PageFault(va), cpu.current_tag());
            return None;
        }
        if hit.is_none() {
            self.mem.store(entry_at(last.0, va, last.1), pte.with(Pte::ACCESSED).0);
            tlb.translations.push((held, pte));
        }
        Some(PhysAddr(pte.frame().0 + (va.page().0 - held.start.0)))
    }

    fn judge(&self, freed: Range<u64>, what: Freed) {
        let at = freed.start;
        for cpu in &self.cpus {
            let tag = cpu.cr3.get().pcid();
            let tlb = cpu.tlb.borrow();
            let is_stale = |(held, pte): &(Translation, Pte)| {
                let frame = pte.frame().0;
                held.serves(tag) && frame < freed.end && frame + held.stride.bytes() > freed.start
            };
            let is_used = !cpu.kept.get() && tlb.translations.iter().any(is_stale);
            assert!(
                what == Freed::Table || !is_used,
                "INV-1: frame {at:#x} freed while CPU {} translates to it",
                cpu.id.0
            );
            // A CPU walks where it likes, idle or not.
            let is_reached = tlb.paths.iter().any(|(path, table)| path.pcid == tag && freed.contains(&table.0));
            assert!(!is_reached, "INV-1: table {at:#x} freed while CPU {} can walk through it", cpu.id.0);
        }
    }
}

impl tlbkit_testkit::Machine for &'static Machine {
    type Set = &'static [AtomicU64];
    type Token = SpaceToken;
    type Entry = Pte;
    /// Where the table lies that a path leads to.
    type Table = PhysAddr;
    /// Whether the CPU is idle.
    type Kept = Cell<bool>;

    fn tlb(&self) -> &Tlb<'_> {
        &self.tlb
    }

    fn apics(&self) -> &Apics {
        &self.apics
    }

    fn with_space_of<R>(self, token: SpaceToken, f: impl FnOnce(&AddressSpace) -> R) -> R {
        f(self.spaces.borrow()[token.0 as usize])
    }

    fn root_here(self, cpu: &TestCpu<Self>, space: &AddressSpace) -> PhysAddr {
        let vms = self.vms.borrow();
        let vm = vms.iter().find(|vm| vm.space().id() == space.id());
        vm.map_or(space.root(), |vm| vm.root_on(self.mem, cpu.id))
    }

    fn after(self, cpu: &TestCpu<Self>, instruction: Instruction) {
        if !matches!(instruction, Instruction::WriteCr3(cr3) if cpu.features.pcid && cr3.keeps()) {
            self.mem.log.borrow_mut().push(Seen::Flushed);
        }
    }

    fn interrupt(self, to: CpuId) {
        self.send_interrupt(to);
    }

    fn relax(self, cpu: &TestCpu<Self>) {
        self.wait_turn(cpu);
    }
}

/// Walks to `va` from a table and its level, and tells `met` each table on the way: the entry of a page that is mapped,
/// with the page's first address and size.
fn walk(
    mem: &TestMemory,
    (mut table, mut level): (PhysAddr, u32),
    va: u64,
    mut met: impl FnMut(u32, PhysAddr),
) -> Option<(Pte, VirtAddr, Stride)> {
    loop {
        let pte = Pte(mem.load(entry_at(table, VirtAddr(va), level)));
        match pte.step(level) {
            WalkStep::NotPresent => return None,
            WalkStep::Page(_, stride) => return Some((pte, span_start(VirtAddr(va), level), stride)),
            WalkStep::Table(next) => (table, level) = (next, level - 1),
        }
        met(level, table);
    }
}
