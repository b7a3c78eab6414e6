//! The memory of the protocol: state and counters of each CPU, the request matrix, the kernel's windows.

use core::sync::atomic::AtomicU64;

use spin::Once;
use tlbkit::{CpuState, CpuStats, GracePeriods, Passed, Place, Reason, SizeRow, Tlb};
use tlbkit_pmap::KernelMap;

use crate::command_line::CommandLine;
use crate::layout::MAX_CPUS;
use crate::memory::{self, Ram};

/// Words of the bitmap of the kernel's windows.
const WINDOW_WORDS: usize = 128;

static STATES: [CpuState; MAX_CPUS] = [const { CpuState::new() }; MAX_CPUS];
static STATS: [CpuStats; MAX_CPUS] = [const { CpuStats::new() }; MAX_CPUS];
/// Aligned to a cache line, so that no two CPUs write to the same one.
#[repr(align(64))]
struct Matrix([AtomicU64; Tlb::matrix_words(MAX_CPUS)]);
static MATRIX: Matrix = Matrix([const { AtomicU64::new(0) }; Tlb::matrix_words(MAX_CPUS)]);
static PASSED: [Passed; MAX_CPUS] = [const { Passed::new() }; MAX_CPUS];
static PERIODS: GracePeriods<'static> = GracePeriods::new(&PASSED);
static WINDOWS: [AtomicU64; WINDOW_WORDS] = [const { AtomicU64::new(0) }; WINDOW_WORDS];
static KERNEL_MAP: Once<KernelMap<'static>> = Once::new();
static TLB: Once<Tlb<'static>> = Once::new();

/// Creates the kernel's page tables and the protocol, on the first CPU.
pub(crate) fn start(line: &CommandLine) {
    let map = KERNEL_MAP.call_once(|| KernelMap::new(&Ram, &WINDOWS).expect("memory for the kernel's tables"));
    memory::map_kernel(map.root(), line.policy.isolation);
    let cpus = &STATES[..line.cpus as usize];
    TLB.call_once(|| Tlb::new(cpus, &MATRIX.0, map.root(), line.policy).counting_into(&STATS));
}

/// The machine's TLBs.
pub(crate) fn tlb() -> &'static Tlb<'static> {
    TLB.wait()
}

/// The grace periods of what is retired.
pub(crate) fn periods() -> &'static GracePeriods<'static> {
    &PERIODS
}

/// The kernel's own mappings.
pub(crate) fn kernel_map() -> &'static KernelMap<'static> {
    KERNEL_MAP.wait()
}

/// The flushes of `pages` pages on all CPUs, as the protocol has counted them. 0 stands for full flushes.
pub(crate) fn flushes_of(pages: usize) -> SizeRow {
    STATS.iter().map(|one| one.size(pages)).fold(SizeRow::default(), |sum, one| SizeRow {
        samples: sum.samples + one.samples,
        cycles: sum.cycles + one.cycles,
    })
}

/// The flushes for `reason` on all CPUs, as the protocol has counted them.
pub(crate) fn flushes_for(reason: Reason, place: Place) -> u64 {
    STATS.iter().map(|one| one.events(reason, place)).sum()
}
