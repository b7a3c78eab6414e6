//! The protocol's statics, and each CPU's handle to it.

pub(crate) mod counters;
mod door;
pub(crate) mod fault;

use core::sync::atomic::AtomicU64;

use spin::Once;
use tlbkit::{Cpu, CpuId, CpuState, CpuStats, Hardware, IrqsOff, Place, Reason, SizeRow, Tlb};
use tlbkit_pmap::KernelMap;
use tlbkit_x86::{Identity, Overrides, X86Cpu};

use crate::MAX_CPUS;
use crate::arch::{apic, cpu};
use crate::boot::{self, options::Options};
use crate::memory::{self, Ram};
use door::{Door, Spaces};

/// Words of the map of the kernel's windows: one bit a window.
const WINDOW_WORDS: usize = 128;

static STATES: [CpuState; MAX_CPUS] = [const { CpuState::new() }; MAX_CPUS];
static STATS: [CpuStats; MAX_CPUS] = [const { CpuStats::new() }; MAX_CPUS];
static MATRIX: [AtomicU64; Tlb::matrix_words(MAX_CPUS)] = [const { AtomicU64::new(0) }; Tlb::matrix_words(MAX_CPUS)];
static WINDOWS: [AtomicU64; WINDOW_WORDS] = [const { AtomicU64::new(0) }; WINDOW_WORDS];
static KERNEL_MAP: Once<KernelMap<'static>> = Once::new();
static TLB: Once<Tlb<'static>> = Once::new();
static DOORS: [Once<Door>; MAX_CPUS] = [const { Once::new() }; MAX_CPUS];

/// Makes the kernel's tables and the protocol, on the first CPU.
pub(crate) fn start(options: &Options) {
    fault::choose(options.fault);
    let map = KERNEL_MAP.call_once(|| KernelMap::new(&Ram, &WINDOWS).expect("memory for the kernel's tables"));
    memory::map_kernel(map.root(), options.policy.isolation);
    let cpus = &STATES[..options.cpus as usize];
    TLB.call_once(|| Tlb::new(cpus, &MATRIX, map.root(), options.policy).counting_into(&STATS));
}

/// What the CPU says of itself, or the monitor for it.
pub(crate) fn identity() -> Identity {
    let real = Identity::of_this_cpu();
    match boot::options().monitor {
        // SAFETY: ring 0, as always without the monitor.
        None => unsafe { real.with_microcode_read() },
        Some(settings) => Identity { has_pcid: settings.features.pcid, has_invpcid: settings.features.invpcid, ..real },
    }
}

/// Brings this CPU into the protocol, with the features that it has.
pub(crate) fn enter(index: u32) {
    let wanted = identity().features(Overrides::default());
    // SAFETY: ring 0, interrupts off, the kernel's tables loaded; no more is wanted than this CPU has.
    let features = unsafe { tlbkit_x86::enable_tags(wanted) };
    // SAFETY: ring 0 for ever; this door is used on this CPU alone; the APIC is enabled as `sender` says.
    let real = unsafe { X86Cpu::new(&Spaces, features, apic::sender(), apic::FLUSH_VECTOR) };
    DOORS[index as usize].call_once(|| Door::new(real));
    cpu().bring_up(&IrqsOff::assume());
}

/// Goes offline for a while, as a CPU does that sleeps deeply: no flush asks it meanwhile, while it fetches what it
/// likes. Interrupts are off.
pub(crate) fn nap() {
    const TURNS: u32 = 200;
    const PAUSES: u32 = 10;
    cpu().offline(&IrqsOff::assume());
    for _ in 0..TURNS {
        (0..PAUSES).for_each(|_| tlbkit_x86::pause());
        // SAFETY: ring 0. Read for the monitor alone, under which this traps: it is then that it fetches.
        let _ = unsafe { tlbkit_x86::read_cr3() };
    }
    cpu().bring_up(&IrqsOff::assume());
}

/// The machine's TLBs.
pub(crate) fn tlb() -> &'static Tlb<'static> {
    TLB.wait()
}

/// The kernel's own mappings.
pub(crate) fn kernel_map() -> &'static KernelMap<'static> {
    KERNEL_MAP.wait()
}

/// This CPU's handle. Not to be kept across anything that blocks: the task may go on elsewhere.
pub(crate) fn cpu() -> Cpu<'static, 'static, Door> {
    let index = cpu::index();
    tlb().cpu(CpuId(index), DOORS[index as usize].wait())
}

/// Runs `body` as the kernel does between entry from ring 3 and return to it: under the kernel half, interrupts on.
pub(crate) fn in_kernel<R>(body: impl FnOnce() -> R) -> R {
    cpu().enter_kernel(&IrqsOff::assume());
    // SAFETY: handlers are in place, and this task's kernel stack is in use.
    unsafe { tlbkit_x86::on() };
    let result = body();
    // SAFETY: ring 0.
    unsafe { tlbkit_x86::off() };
    // Maybe another CPU than before.
    cpu().exit_to_user(&IrqsOff::assume());
    result
}

/// What the first CPU has switched on.
pub(crate) fn features() -> tlbkit::Features {
    DOORS[0].wait().features()
}

/// What the protocol counted of flushes of `pages` pages, 0 for everything, all CPUs together.
pub(crate) fn size(pages: usize) -> SizeRow {
    STATS.iter().map(|one| one.size(pages)).fold(SizeRow::default(), |sum, one| SizeRow {
        samples: sum.samples + one.samples,
        cycles: sum.cycles + one.cycles,
    })
}

/// What the protocol counted for `reason`, all CPUs together.
pub(crate) fn reason(reason: Reason, place: Place) -> u64 {
    STATS.iter().map(|one| one.events(reason, place)).sum()
}
