//! A machine of a few CPUs in one host thread, each with a TLB that forgets nothing it is not told to forget.
//!
//! An access goes through that TLB, so a missing flush is a wrong value, a store into a foreign frame, or a frame freed
//! while a CPU that runs still translates to it.
#![allow(dead_code, reason = "each test file uses a part")]

pub(crate) mod memory;

use memory::{Event as Seen, TestMemory};
use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use tlbkit::sync::AtomicU64;
use tlbkit::*;
use tlbkit_pmap::{Access, Fault, KernelMap, Memory, Pte, Vm};

#[derive(Clone, Copy)]
struct Entry {
    pte: Pte,
    frame: u64,
}

/// One CPU.
pub(crate) struct TestCpu {
    id: u32,
    machine: Cell<Option<&'static Machine>>,
    tlb: RefCell<HashMap<(u16, u64), Entry>>,
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

fn words(count: usize) -> &'static [AtomicU64] {
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

    /// The space's last thread ends on CPU `n`.
    pub(crate) fn end(&'static self, n: u32, vm: &'static Vm<'static>) {
        self.run(n, vm);
        vm.exit(&self.cpu(n), self.mem);
        self.idle(n);
        if vm.destroy(&self.cpu(n), self.mem) == Destroyed::WhenUnreferenced {
            self.cpus.iter().for_each(|cpu| cpu.with_irqs_off(|irqs| self.cpu(cpu.id).load_kernel(irqs)));
            assert_eq!(self.last_lazy.borrow_mut().pop(), Some(vm.space().token()));
            vm.reclaim(&self.cpu(n), self.mem);
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
        walk(self.mem, vm.space().root().0, va).is_some()
    }

    /// A read through the kernel's half: nothing if it faults.
    pub(crate) fn kernel_read(&'static self, n: u32, va: u64) -> Option<u64> {
        self.cpus[n as usize].translate(self.mem, va, Access::Read).map(|at| self.mem.load(at))
    }

    fn judge(&self, at: u64, shift: u8, is_table: bool) {
        for cpu in self.cpus.iter().filter(|cpu| !is_table && !cpu.is_idle.get()) {
            let tag = cpu.cr3.get().pcid().0;
            let stale = |(key, entry): (&(u16, u64), &Entry)| {
                (key.0 == tag || entry.pte.has(Pte::GLOBAL)) && (at..at + (1 << shift)).contains(&entry.frame)
            };
            let has_stale = cpu.tlb.borrow().iter().any(stale);
            assert!(!has_stale, "INV-1: frame {at:#x} freed while CPU {} translates to it", cpu.id);
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

    fn drop_if(&self, gone: impl Fn(u16, u64, &Entry) -> bool) {
        self.tlb.borrow_mut().retain(|(tag, page), entry| !gone(*tag, *page, entry));
        self.machine().mem.log.borrow_mut().push(Seen::Flushed);
    }

    /// Serves what interrupts are due, as a CPU that runs with interrupts on would.
    pub(crate) fn serve(&self) {
        if self.interrupted.take() {
            self.interrupts.set(self.interrupts.get() + 1);
            self.with_irqs_off(|irqs| self.machine().cpu(self.id).answer(irqs));
        }
    }

    fn translate(&self, mem: &TestMemory, va: u64, access: Access) -> Option<PhysAddr> {
        let tag = self.cr3.get().pcid().0;
        let allowed = |pte: Pte| pte.has(Pte::PRESENT) && (access == Access::Read || pte.has(Pte::WRITE));
        let key = (tag, va >> 12);
        let hit = self
            .tlb
            .borrow()
            .iter()
            .find_map(|((t, page), e)| (*page == key.1 && (*t == tag || e.pte.has(Pte::GLOBAL))).then_some(*e));
        if let Some(entry) = hit {
            if allowed(entry.pte) {
                return Some(PhysAddr(entry.frame));
            }
            // The fault that follows drops the entry, as the manual says.
            self.tlb.borrow_mut().remove(&key);
            return None;
        }
        let entry = walk(mem, self.cr3.get().root().0, va)?;
        allowed(entry.pte).then(|| {
            self.tlb.borrow_mut().insert(key, entry);
            PhysAddr(entry.frame)
        })
    }
}

fn walk(mem: &TestMemory, root: u64, va: u64) -> Option<Entry> {
    let mut table = root;
    for level in (1..=4).rev() {
        let shift = 12 + 9 * (level - 1);
        let pte = Pte(mem.load(PhysAddr(table + 8 * (va >> shift & 511))));
        if !pte.has(Pte::PRESENT) {
            return None;
        }
        table = pte.frame().0;
        if level == 1 || pte.has(Pte::LARGE) {
            return Some(Entry { pte, frame: table + (va & ((1 << shift) - 1) & !0xfff) });
        }
    }
    None
}

impl Hardware for TestCpu {
    fn features(&self) -> Features {
        Features { pcid: self.machine().tlb.policy().tags != Tags::Off, invpcid: true }
    }

    fn write_cr3(&self, cr3: Cr3) {
        self.cr3_writes.set(self.cr3_writes.get() + 1);
        self.cr3.set(cr3);
        // Bit 63 means nothing while PCIDs are off.
        if !cr3.keeps() || !self.features().pcid {
            self.full_flushes.set(self.full_flushes.get() + 1);
            self.drop_if(|tag, _, entry| tag == cr3.pcid().0 && !entry.pte.has(Pte::GLOBAL));
        }
    }

    fn invlpg(&self, va: VirtAddr) {
        let tag = self.cr3.get().pcid().0;
        // A large page goes with any of its addresses.
        self.drop_if(|t, page, entry| {
            let shift = if entry.pte.has(Pte::LARGE) { 9 } else { 0 };
            page >> shift == va.0 >> 12 >> shift && (t == tag || entry.pte.has(Pte::GLOBAL))
        });
    }

    fn invpcid(&self, what: Invpcid) {
        if what == Invpcid::AllAndGlobals {
            self.full_flushes.set(self.full_flushes.get() + 1);
        }
        self.drop_if(|tag, page, entry| match what {
            Invpcid::Address(pcid, va) => tag == pcid.0 && page == va.0 >> 12,
            Invpcid::Single(pcid) => tag == pcid.0 && !entry.pte.has(Pte::GLOBAL),
            Invpcid::AllAndGlobals => true,
            Invpcid::All => !entry.pte.has(Pte::GLOBAL),
        });
    }

    fn toggle_pge(&self) {
        self.full_flushes.set(self.full_flushes.get() + 1);
        self.drop_if(|_, _, _| true);
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

    fn space(&self, token: SpaceToken) -> &AddressSpace<'_> {
        self.machine().spaces.borrow()[token.0 as usize].space()
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
