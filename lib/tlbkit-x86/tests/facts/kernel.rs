//! What a kernel says reaches the protocol through [`X86Cpu`] word for word, and a kernel that says nothing says what
//! the protocol's own defaults say.
#![cfg(target_arch = "x86_64")]

use std::cell::RefCell;

use tlbkit::sync::AtomicU64;
use tlbkit::{
    AddressSpace, CpuId, Event, Features, Hardware, Invpcid, Late, Missing, Pcid, PhysAddr, Policy, Reason, Scope,
    SpaceToken, Stride, TlbGather, Translations, VirtAddr,
};
use tlbkit_testkit::{TestCpu, Threads, tlb};
use tlbkit_x86::{Apic, Invalidate, Invalidation, Kernel, Sent, X86Cpu};

type Set = [AtomicU64; 1];

/// Says no more than it must.
struct Silent;

impl Kernel for Silent {
    type Set = Set;
    type Token = SpaceToken;

    fn with_space_of<R>(&self, token: SpaceToken, _: impl FnOnce(&AddressSpace<Set>) -> R) -> R {
        unreachable!("no test asks for a space, but for {token:?}")
    }

    fn apic_id(&self, cpu: CpuId) -> u32 {
        cpu.0
    }
}

/// Answers everything in its own way, and keeps what it was told.
#[derive(Default)]
struct Talkative {
    heard: RefCell<Vec<String>>,
}

impl Talkative {
    fn hear(&self, what: impl Into<String>) {
        self.heard.borrow_mut().push(what.into());
    }
}

impl Kernel for Talkative {
    type Set = Set;
    type Token = SpaceToken;

    fn with_space_of<R>(&self, token: SpaceToken, f: impl FnOnce(&AddressSpace<Set>) -> R) -> R {
        self.hear(format!("space {}", token.0));
        let id = tlb(1, PhysAddr(0x1000), Policy::DEFAULT).fresh_id();
        f(&AddressSpace::new(id, token, PhysAddr(0x5000), [AtomicU64::new(0)]))
    }

    fn apic_id(&self, cpu: CpuId) -> u32 {
        cpu.0
    }

    fn send_ipi(&self, to: CpuId) -> Sent {
        self.hear(format!("interrupt {}", to.0));
        Sent::ByKernel
    }

    fn send_ipi_to_others(&self) -> Sent {
        self.hear("interrupt all");
        Sent::ByKernel
    }

    fn invalidate(&self, what: Invalidation) -> Invalidate {
        self.hear(format!("{what:?}"));
        Invalidate::Never
    }

    fn event(&self, event: Event) {
        self.hear(format!("{event:?}"));
    }

    fn patience_turns(&self) -> u32 {
        7
    }

    fn late(&self, cpu: CpuId) -> Late {
        self.hear(format!("late {}", cpu.0));
        Late::Wait
    }

    fn patience_rounds(&self) -> u32 {
        9
    }

    fn unanswered(&self, missing: Missing<'_>) {
        panic!("the kernel hears of {missing}");
    }

    fn this_cpu(&self) -> Option<CpuId> {
        Some(CpuId(3))
    }

    fn wrong_cpu(&self, named: CpuId, here: CpuId) {
        self.hear(format!("wrong {} {}", named.0, here.0));
    }
}

const FEATURES: Features = Features { pcid: true, invpcid: false };

fn cpu<K: Kernel>(kernel: &K) -> X86Cpu<'_, K> {
    // SAFETY: these tests call nothing of it that is for ring 0.
    unsafe { X86Cpu::new(kernel, FEATURES, Apic::Registers, 0xf1) }
}

#[test]
fn a_kernel_that_says_nothing_says_what_the_protocol_says_by_itself() {
    let silent = cpu(&Silent);
    // The figures of the documentation: about a millisecond of PAUSE, and so many that it becomes about a second.
    assert_eq!((silent.patience_turns(), silent.patience_rounds()), (1 << 14, 1 << 10));
    assert_eq!((silent.late(CpuId(1)), silent.this_cpu()), (Late::AskAgain, None));
    silent.event(Event::FlushEnd);
}

#[test]
#[should_panic(expected = "a flush is not answered by CPU 1")]
fn a_kernel_that_says_nothing_stops_at_a_cpu_that_never_answers() {
    unanswered_flush(&|missing| cpu(&Silent).unanswered(missing));
}

#[test]
#[should_panic(expected = "called as CPU 4, on CPU 6")]
fn a_kernel_that_says_nothing_stops_at_a_wrong_number() {
    cpu(&Silent).wrong_cpu(CpuId(4), CpuId(6));
}

#[test]
fn a_kernel_that_has_its_own_answers_gives_them() {
    let kernel = Talkative::default();
    let cpu = cpu(&kernel);
    assert_eq!(cpu.features(), FEATURES);
    assert!(cpu.irqs_enabled(), "a program in user mode cannot turn them off");
    assert_eq!((cpu.patience_turns(), cpu.patience_rounds(), cpu.this_cpu()), (7, 9, Some(CpuId(3))));
    assert_eq!(cpu.late(CpuId(2)), Late::Wait);
    cpu.wrong_cpu(CpuId(4), CpuId(6));
    cpu.event(Event::FlushEnd);
    assert_eq!(cpu.with_space_of(SpaceToken(8), AddressSpace::root), PhysAddr(0x5000));
    assert_eq!(*cpu.kernel().heard.borrow(), ["late 2", "wrong 4 6", "FlushEnd", "space 8"]);
}

/// In user mode the APIC's own register would fault.
#[test]
fn a_kernel_that_sends_interrupts_itself_is_asked_to() {
    let kernel = Talkative::default();
    cpu(&kernel).send_ipi(CpuId(5));
    cpu(&kernel).send_ipi_to_others();
    assert_eq!(*kernel.heard.borrow(), ["interrupt 5", "interrupt all"]);
}

/// The instructions would fault in user mode.
#[test]
fn a_kernel_that_counts_what_is_invalidated_hears_of_it_and_can_lose_it() {
    let kernel = Talkative::default();
    cpu(&kernel).invlpg(VirtAddr(0x1000));
    cpu(&kernel).invpcid(Invpcid::Single(Pcid(3)));
    cpu(&kernel).toggle_pge();
    assert_eq!(*kernel.heard.borrow(), ["Page(va:0x1000)", "Tag(Pcid(3))", "Everything"]);
}

#[test]
#[should_panic(expected = "the kernel hears of CPU 1")]
fn a_kernel_that_has_its_own_answer_hears_of_a_cpu_that_never_answers() {
    unanswered_flush(&|missing| cpu(&Talkative::default()).unanswered(missing));
}

#[test]
fn the_clock_runs() {
    let (kernel, mut before) = (Silent, 0);
    for _ in 0..100 {
        let now = cpu(&kernel).now_cycles();
        assert!(now > before, "{now} after {before}");
        before = now;
    }
}

/// Of a machine whose other CPU never takes its interrupt: only the protocol can name the CPUs that are missing.
fn unanswered_flush(report: &dyn Fn(Missing<'_>)) {
    let deaf = Threads::new(Policy::DEFAULT, 2, PhysAddr(0x1000), &[]);
    let soft = [1, 0].map(|id| TestCpu::new(&deaf, CpuId(id), Features::default()));
    let [_, cpu] = soft.each_ref().map(|soft| {
        let cpu = deaf.tlb.cpu(soft.id, soft);
        soft.with_irqs_off(|irqs| cpu.bring_up(irqs));
        cpu
    });
    let mut gather = TlbGather::new(Translations::OfKernel, ());
    gather.page(&cpu, VirtAddr(0xffff_9000_0000_0000), Stride::Page4K, Scope::Global, Reason::KernelRemove);
    let _outstanding = gather.issue(&cpu);
    report(cpu.missing());
}
