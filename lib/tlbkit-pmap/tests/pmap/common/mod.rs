//! A machine of a few CPUs in one host thread, each with a TLB that forgets nothing it is not told to forget.
//!
//! An access goes through that TLB, so a missing flush is a wrong value, a store into a foreign frame, or a frame freed
//! while a CPU that runs still translates to it.

pub(crate) mod memory;

use memory::{Event as Seen, TestMemory};
use std::cell::{Cell, RefCell};
use tlbkit::sync::AtomicU64;
use tlbkit::*;
use tlbkit_arch::addr::TOP_LEVEL;
use tlbkit_arch::store::Store;
use tlbkit_arch::{CurrentTag, Instruction, Path, Translation, WalkStep, entry_at, span_start};
use tlbkit_pmap::{Access, Fault, KernelMap, Memory, Pte, Vm};

/// One CPU.
pub(crate) struct TestCpu {
    id: u32,
    machine: Cell<Option<&'static Machine>>,
    /// Translations with their entries, and paths with the tables that they lead to.
    tlb: RefCell<Store<Pte, PhysAddr>>,
    cr3: Cell<Cr3>,
    irqs: Cell<bool>,
    interrupted: Cell<bool>,
    pub(crate) is_idle: Cell<bool>,
    pub(crate) interrupts: Cell<u32>,
    pub(crate) full_flushes: Cell<u32>,
    pub(crate) cr3_writes: Cell<u32>,
}

/// All of it, leaked: a test is short.
pub(crate) struct Machine {
    pub(crate) tlb: Tlb<'static>,
    pub(crate) cpus: Vec<TestCpu>,
    pub(crate) kernel: &'static KernelMap<'static>,
    pub(crate) mem: &'static TestMemory,
    spaces: RefCell<Vec<&'static Vm<'static>>>,
    pub(crate) last_lazy: RefCell<Vec<SpaceToken>>,
    /// What another CPU does, once, as soon as one waits: before anybody answers that one.
    pub(crate) meanwhile: RefCell<Option<Box<dyn FnOnce()>>>,
    waited: Cell<u32>,
    empty: usize,
}

pub(crate) fn words(count: usize) -> &'static [AtomicU64] {
    Box::leak((0..count).map(|_| AtomicU64::new(0)).collect())
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
        let states: &'static [CpuState] = Box::leak((0..cpus).map(|_| CpuState::new()).collect());
        let tlb = Tlb::new(states, words(Tlb::matrix_words(cpus)), kernel.root(), policy);
        let machine: &'static Self = Box::leak(Box::new(Self {
            tlb,
            cpus: (0..cpus as u32).map(TestCpu::new).collect(),
            kernel,
            mem,
            spaces: RefCell::default(),
            last_lazy: RefCell::default(),
            meanwhile: RefCell::default(),
            waited: Cell::default(),
            empty: mem.used(),
        }));
        *mem.judge.borrow_mut() = Some(Box::new(|at, shift, is_table| machine.judge(at, shift, is_table)));
        for cpu in &machine.cpus {
            cpu.machine.set(Some(machine));
            cpu.with_irqs_off(|irqs| machine.cpu(cpu.id).bring_up(irqs));
        }
        machine
    }

    pub(crate) fn cpu(&'static self, n: u32) -> Cpu<'static, 'static, TestCpu> {
        self.tlb.cpu(CpuId(n), &self.cpus[n as usize])
    }

    pub(crate) fn space(&'static self) -> &'static Vm<'static> {
        let token = SpaceToken(self.spaces.borrow().len() as u64);
        let set = words(AddressSpace::set_words(self.cpus.len()));
        let vm: &'static Vm<'static> =
            Box::leak(Box::new(Vm::new(&self.tlb, self.mem, self.kernel, token, set).unwrap()));
        self.spaces.borrow_mut().push(vm);
        vm
    }

    /// CPU `n` runs `vm`.
    pub(crate) fn run(&'static self, n: u32, vm: &Vm<'static>) {
        self.cpus[n as usize].is_idle.set(false);
        self.cpus[n as usize].with_irqs_off(|irqs| self.cpu(n).switch_to(vm.space(), irqs));
    }

    pub(crate) fn idle(&'static self, n: u32) {
        self.cpus[n as usize].is_idle.set(true);
        self.cpus[n as usize].with_irqs_off(|irqs| self.cpu(n).enter_lazy(irqs));
    }

    /// The space's last threads end, the very last one on CPU `n`.
    pub(crate) fn end(&'static self, n: u32, vm: &'static Vm<'static>) {
        self.run(n, vm);
        vm.exit(&self.cpu(n), self.mem);
        let runs_it = |cpu: u32| self.cpu(cpu).is_running(vm.space());
        (0..self.cpus.len() as u32).filter(|&cpu| runs_it(cpu)).for_each(|cpu| self.idle(cpu));
        if vm.destroy(&self.cpu(n), self.mem) == Destroyed::WhenUnreferenced {
            self.cpus.iter().for_each(|cpu| cpu.with_irqs_off(|irqs| self.cpu(cpu.id).load_kernel(irqs)));
            assert_eq!(self.last_lazy.borrow_mut().pop(), Some(vm.space().token()));
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
            if let Some(at) = self.cpus[n as usize].translate(self.mem, va, access) {
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
        walk(self.mem, (vm.space().root(), TOP_LEVEL), va, |_, _| ()).is_some()
    }

    /// What a CPU does to a clean entry through which it stores.
    pub(crate) fn set_dirty(&self, vm: &Vm<'static>, va: u64) {
        let mut at = (vm.space().root(), TOP_LEVEL);
        let (pte, ..) = walk(self.mem, at, va, |level, table| at = (table, level)).expect("mapped");
        self.mem.store(entry_at(at.0, VirtAddr(va), at.1), pte.with(Pte::DIRTY).0);
    }

    /// A read through the kernel's half: nothing if it faults.
    pub(crate) fn kernel_read(&'static self, n: u32, va: u64) -> Option<u64> {
        self.cpus[n as usize].translate(self.mem, va, Access::Read).map(|at| self.mem.load(at))
    }

    fn judge(&self, at: u64, shift: u8, is_table: bool) {
        let freed = at..at + (1 << shift);
        for cpu in &self.cpus {
            let tag = cpu.cr3.get().pcid();
            let tlb = cpu.tlb.borrow();
            let is_stale = |(held, pte): &(Translation, Pte)| {
                let frame = pte.frame().0;
                held.serves(tag) && frame < freed.end && frame + held.stride.bytes() > freed.start
            };
            let is_used = !cpu.is_idle.get() && tlb.translations.iter().any(is_stale);
            assert!(is_table || !is_used, "INV-1: frame {at:#x} freed while CPU {} translates to it", cpu.id);
            // A CPU walks where it likes, idle or not.
            let is_reached = tlb.paths.iter().any(|(path, table)| path.pcid == tag && freed.contains(&table.0));
            assert!(!is_reached, "INV-1: table {at:#x} freed while CPU {} can walk through it", cpu.id);
        }
    }
}

impl TestCpu {
    fn new(id: u32) -> Self {
        Self {
            id,
            machine: Cell::new(None),
            tlb: RefCell::default(),
            cr3: Cell::new(Cr3::flushing(PhysAddr(0), Pcid::KERNEL)),
            irqs: Cell::new(true),
            interrupted: Cell::new(false),
            is_idle: Cell::new(false),
            interrupts: Cell::new(0),
            full_flushes: Cell::new(0),
            cr3_writes: Cell::new(0),
        }
    }

    fn machine(&self) -> &'static Machine {
        self.machine.get().expect("wired up")
    }

    fn current_tag(&self) -> CurrentTag {
        if self.features().pcid { CurrentTag::Loaded(self.cr3.get().pcid()) } else { CurrentTag::Off }
    }

    fn execute(&self, instruction: Instruction) {
        self.tlb.borrow_mut().execute(instruction, self.current_tag());
        self.machine().mem.log.borrow_mut().push(Seen::Flushed);
    }

    /// Serves what interrupts are due, as a CPU that runs with interrupts on would.
    pub(crate) fn serve(&self) {
        if self.interrupted.take() {
            self.interrupts.set(self.interrupts.get() + 1);
            self.with_irqs_off(|irqs| self.machine().cpu(self.id).answer(irqs));
        }
    }

    /// True if it may still use a translation of 2 MiB for `va`.
    pub(crate) fn holds_large(&self, va: u64) -> bool {
        let hit = self.tlb.borrow().hit(self.current_tag().pcid(), VirtAddr(va)).copied();
        hit.is_some_and(|(held, _)| held.stride == Stride::Page2M)
    }

    fn translate(&self, mem: &TestMemory, va: u64, access: Access) -> Option<PhysAddr> {
        let (va, pcid) = (VirtAddr(va), self.current_tag().pcid());
        let mut tlb = self.tlb.borrow_mut();
        let hit = tlb.hit(pcid, va).copied();
        let (held, pte) = hit.or_else(|| {
            let root = (self.cr3.get().root(), TOP_LEVEL);
            let cached = (1..TOP_LEVEL).find_map(|level| tlb.path(pcid, level, va).map(|(_, table)| (*table, level)));
            let keep = |level, table| tlb.paths.push((Path { pcid, start: va, level }, table));
            let (pte, start, stride) = walk(mem, cached.unwrap_or(root), va.0, keep)?;
            Some((Translation { pcid, start, stride, is_global: pte.has(Pte::GLOBAL) }, pte))
        })?;
        if access == Access::Write && !pte.has(Pte::WRITE) {
            tlb.execute(Instruction::PageFault(va), self.current_tag());
            return None;
        }
        if hit.is_none() {
            tlb.translations.push((held, pte));
        }
        Some(PhysAddr(pte.frame().0 + (va.page().0 - held.start.0)))
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

impl Hardware for TestCpu {
    type Set = &'static [AtomicU64];
    type Token = SpaceToken;

    fn features(&self) -> Features {
        Features { pcid: self.machine().tlb.policy().tags != Tags::Off, invpcid: true }
    }

    fn write_cr3(&self, cr3: Cr3) {
        self.cr3_writes.set(self.cr3_writes.get() + 1);
        if cr3.keeps() && self.features().pcid {
            return self.cr3.set(cr3);
        }
        self.full_flushes.set(self.full_flushes.get() + 1);
        self.execute(Instruction::WriteCr3(cr3));
        self.cr3.set(cr3);
    }

    fn invlpg(&self, va: VirtAddr) {
        self.execute(Instruction::Invlpg(va));
    }

    fn invpcid(&self, what: Invpcid) {
        if what == Invpcid::AllAndGlobals {
            self.full_flushes.set(self.full_flushes.get() + 1);
        }
        self.execute(Instruction::Invpcid(what));
    }

    fn toggle_pge(&self) {
        self.full_flushes.set(self.full_flushes.get() + 1);
        self.execute(Instruction::TogglePge);
    }

    fn send_ipi(&self, to: CpuId) {
        self.machine().cpus[to.0 as usize].interrupted.set(true);
    }

    fn send_ipi_to_others(&self) {
        self.machine().cpus.iter().filter(|cpu| cpu.id != self.id).for_each(|cpu| cpu.interrupted.set(true));
    }

    fn relax(&self) {
        let waited = &self.machine().waited;
        waited.set(waited.get() + 1);
        assert!(waited.get() < 1_000_000, "waits for ever");
        if let Some(meanwhile) = self.machine().meanwhile.take() {
            meanwhile();
        }
        self.machine().cpus.iter().filter(|cpu| cpu.id != self.id).for_each(TestCpu::serve);
    }

    fn irqs_enabled(&self) -> bool {
        self.irqs.get()
    }

    fn with_irqs_off<R>(&self, f: impl FnOnce(&IrqsOff) -> R) -> R {
        let before = self.irqs.replace(false);
        let result = f(&IrqsOff::assume());
        self.irqs.set(before);
        result
    }

    fn with_space_of<R>(&self, token: SpaceToken, f: impl FnOnce(&AddressSpace<Self::Set>) -> R) -> R {
        f(self.machine().spaces.borrow()[token.0 as usize].space())
    }

    fn event(&self, event: Event) {
        if let Event::LastLazyReference(token) = event {
            self.machine().last_lazy.borrow_mut().push(token);
        }
    }

    fn now_cycles(&self) -> u64 {
        0
    }
}
