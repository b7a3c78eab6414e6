//! The machine, and how every call finds its CPU: the arguments are checked first, then the protocol is called.

use core::ffi::c_char;
use core::ptr::NonNull;
use core::sync::atomic::Ordering;

use tlbkit::{Cpu, CpuId, CpuState, Hardware, LazyReferences, Tlb};

use crate::hardware::KernelHardware;
use crate::hardware::Ops;
use crate::mark::Mark;
use crate::ops::HardwareOps;
use crate::status::{Status, status_of};
use crate::storage::{
    CpuStateStorage, MachineStorage, Marked, StatsStorage, check_pointer, checked_root, zeroed_words,
};
use crate::values::policy_of;

/// Everything that a machine needs. The struct itself is only read during the call; the memory behind `cpus`, `matrix`
/// and `stats` belongs to the machine from then on and is never returned.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Setup {
    /// The hardware interface; copied.
    pub ops: *const HardwareOps,
    /// The policy as a text, see `tlbkit_policy_check`. NULL for the default policy.
    pub policy: *const c_char,
    /// An array with one element per possible CPU.
    pub cpus: *mut CpuStateStorage,
    /// The number of possible CPUs.
    pub cpu_count: u32,
    /// At least `tlbkit_matrix_words(cpu_count)` words, which the call zeroes. They should begin at a cache line, so
    /// that no two CPUs write to the same line.
    pub matrix: *mut u64,
    /// The number of words in `matrix`.
    pub matrix_words: usize,
    /// Physical address of a top-level table that maps the kernel alone, like `init_mm`'s: idle CPUs may keep it
    /// loaded.
    pub kernel_root: u64,
    /// An array with one element per possible CPU, or NULL. Used if the policy counts flushes, for which the archive
    /// needs `--features history`.
    pub stats: *mut StatsStorage,
}

/// The protocol's handle for one CPU, on the kernel's functions.
pub(crate) type ThisCpu = Cpu<'static, 'static, KernelHardware>;

/// What a call needs of its CPU. One per CPU, in an array behind the request matrix, initialized together with the
/// machine, so that a call finds its own by an addition.
#[repr(C)]
pub(crate) struct PerCpu {
    cpu: ThisCpu,
    hardware: KernelHardware,
}

/// The size of a [`PerCpu`] in words: a power of two, so that indexing takes a shift.
const PERCPU_WORDS: usize = 8;
const _: () = assert!(size_of::<PerCpu>() <= 8 * PERCPU_WORDS && align_of::<PerCpu>() <= 8);

impl PerCpu {
    #[inline(always)]
    pub(crate) const fn cpu(&self) -> &ThisCpu {
        &self.cpu
    }

    pub(crate) fn irqs_enabled(&self) -> bool {
        self.hardware.irqs_enabled()
    }

    /// Called after an operation that may have waited: fails if the task was found on another CPU meanwhile.
    #[inline(always)]
    pub(crate) fn assert_stayed(&self) -> Result<(), Status> {
        self.hardware.assert_stayed()
    }
}

/// The [`PerCpu`] of every CPU, in C's memory.
#[derive(Clone, Copy)]
struct PerCpuArray(NonNull<[u64; PERCPU_WORDS]>);

impl PerCpuArray {
    /// # Safety
    /// The CPU exists.
    #[inline(always)]
    unsafe fn get(self, cpu: u32) -> &'static PerCpu {
        // SAFETY: the contract; `init` has initialized all of them, and C's memory belongs to the machine for ever.
        unsafe { self.0.add(cpu as usize).cast::<PerCpu>().as_ref() }
    }

    /// # Safety
    /// The array has room for all CPUs, is valid for ever, and is not in use yet.
    unsafe fn init(self, machine: &'static Machine) {
        for number in 0..machine.cpu_count {
            // SAFETY: the contract.
            let place = unsafe { self.0.add(number as usize) }.cast::<PerCpu>().as_ptr();
            // SAFETY: as above.
            let hardware = unsafe { &raw mut (*place).hardware };
            // SAFETY: as above; written here, and only read from then on.
            let hardware: &'static KernelHardware = unsafe {
                hardware.write(KernelHardware::new(&machine.ops, number));
                &*hardware
            };
            // SAFETY: as above.
            unsafe { (&raw mut (*place).cpu).write(machine.tlb.cpu(CpuId(number), hardware)) };
        }
    }
}

/// What a `struct tlbkit_machine` holds.
#[repr(C)]
pub(crate) struct Machine {
    mark: Mark,
    percpu: PerCpuArray,
    pub(crate) tlb: Tlb<'static>,
    ops: Ops,
    pub(crate) cpu_count: u32,
}

// SAFETY: `repr(C)`, with the mark first; `tlbkit_machine_init` sets it last.
unsafe impl Marked for Machine {
    type Storage = MachineStorage;
    const MARK: u64 = 0x746c_626b_6974_4d41;
}

/// What a call requires of its CPU.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Need {
    /// It is online. The call may be made on another CPU.
    Elsewhere,
    /// It is online, and makes the call.
    Online,
    /// Likewise, with interrupts off.
    IrqsOff,
    /// Likewise, with interrupts on, unless no other CPU is online that it could wait for.
    MayWait,
}

/// Checks the machine and the CPU of a call, and returns the CPU.
///
/// # Safety
/// The crate's contract for `machine`.
#[inline(always)]
pub(crate) unsafe fn enter(machine: *const MachineStorage, cpu: u32, need: Need) -> Result<&'static PerCpu, Status> {
    // SAFETY: the contract.
    unsafe { Machine::find(machine) }?.enter(cpu, need)
}

impl Machine {
    /// The CPU of a call. In a checked build, fails unless the CPU is as the call requires.
    #[inline(always)]
    pub(crate) fn enter(&self, cpu: u32, need: Need) -> Result<&'static PerCpu, Status> {
        if cfg!(feature = "checked") {
            self.check_entry(cpu, need)?;
        }
        // SAFETY: the CPU exists, as checked above, or else by the caller's contract.
        Ok(unsafe { self.percpu.get(cpu) })
    }

    // Out of line, because every call in C comes through here.
    #[inline(never)]
    fn check_entry(&self, cpu: u32, need: Need) -> Result<(), Status> {
        let hardware = &self.percpu(cpu)?.hardware;
        if need != Need::Elsewhere {
            hardware.assert_here()?;
        }
        // Relaxed: only this CPU itself joins and leaves the online set, unless it was declared stopped, and then it
        // makes no calls.
        if !self.tlb.online().contains(CpuId(cpu), Ordering::Relaxed) {
            return Err(Status::CpuOffline);
        }
        match need {
            Need::IrqsOff if hardware.irqs_enabled() => return Err(Status::IrqsOn),
            Need::MayWait if !hardware.irqs_enabled() && !self.is_only_cpu_online() => return Err(Status::IrqsOff),
            Need::MayWait | Need::Online => hardware.begin_call(),
            _ => {}
        }
        Ok(())
    }

    /// Any CPU of the machine. It need not be online, nor make the call.
    pub(crate) fn percpu(&self, cpu: u32) -> Result<&'static PerCpu, Status> {
        // SAFETY: the CPU exists.
        if cpu < self.cpu_count { Ok(unsafe { self.percpu.get(cpu) }) } else { Err(Status::NoSuchCpu) }
    }

    /// The CPU of `tlbkit_bring_up`: not online yet, with interrupts off.
    pub(crate) fn enter_for_bring_up(&self, cpu: u32) -> Result<&'static PerCpu, Status> {
        let percpu = self.percpu(cpu)?;
        percpu.hardware.assert_here()?;
        if cfg!(feature = "checked") && percpu.hardware.irqs_enabled() { Err(Status::IrqsOn) } else { Ok(percpu) }
    }

    fn is_only_cpu_online(&self) -> bool {
        // Relaxed: a CPU that comes online at this moment flushes its TLB by itself.
        self.tlb.online().words().iter().map(|word| word.load(Ordering::Relaxed).count_ones()).sum::<u32>() == 1
    }
}

/// The number of words that a machine of `cpus` CPUs needs in `matrix`: the request matrix, and what a call needs of
/// each CPU.
#[unsafe(no_mangle)]
pub const extern "C" fn tlbkit_matrix_words(cpus: u32) -> usize {
    Tlb::matrix_words(cpus as usize) + cpus as usize * PERCPU_WORDS
}

/// Initializes a machine. No CPU is online until its `tlbkit_bring_up`. The struct must never be moved or freed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tlbkit_machine_init(machine: *mut MachineStorage, setup: *const Setup) -> Status {
    // SAFETY: the crate's contract.
    status_of(|| unsafe { init(machine, setup) })
}

/// # Safety
/// The crate's contract for both.
unsafe fn init(machine: *mut MachineStorage, setup: *const Setup) -> Result<(), Status> {
    check_pointer(machine)?;
    check_pointer(setup)?;
    // SAFETY: not null, aligned, and by the contract a whole struct.
    let setup = unsafe { &*setup };
    check_pointer(setup.ops)?;
    check_pointer(setup.cpus)?;
    if !setup.stats.is_null() {
        check_pointer(setup.stats)?;
    }
    // SAFETY: as above.
    let ops = Ops::new(unsafe { &*setup.ops })?;
    // SAFETY: as above, or null.
    let policy = unsafe { policy_of(setup.policy) }?;
    // Without this function, the tables of a space that a CPU holds lazily when it is destroyed would never be freed.
    if policy.lazy_references != LazyReferences::ShotDown && !ops.has_last_lazy_reference() {
        return Err(Status::NoFunction);
    }
    if setup.cpu_count == 0 {
        return Err(Status::BadValue);
    }
    let root = checked_root(setup.kernel_root)?;
    if setup.matrix_words < tlbkit_matrix_words(setup.cpu_count) {
        return Err(Status::TooSmall);
    }
    // SAFETY: by the contract the words belong to the machine for ever.
    let matrix = unsafe { zeroed_words(setup.matrix, setup.matrix_words) }?;
    let (requests, percpu) = matrix.split_at(Tlb::matrix_words(setup.cpu_count as usize));
    let percpu = PerCpuArray(NonNull::from(percpu).cast());
    // SAFETY: by the contract the CPU states belong to the machine for ever.
    let cpus = unsafe { init_cpus(setup.cpus.cast::<CpuState>(), setup.cpu_count as usize) };
    let tlb = Tlb::new(cpus, requests, root, policy);
    #[cfg(feature = "history")]
    // SAFETY: by the contract the counters belong to the machine for ever.
    let tlb = unsafe { with_counters(tlb, setup.stats, setup.cpu_count as usize) };
    let made = Machine { mark: Mark::none(), percpu, tlb, ops, cpu_count: setup.cpu_count };
    // SAFETY: the contract for `machine`.
    let placed = unsafe { Machine::write_unmarked(machine, made) }?;
    // SAFETY: words of the matrix, which nothing else uses.
    unsafe { percpu.init(placed) };
    // Last: a CPU that polls for the machine may use it as soon as the mark is set.
    placed.mark.set(Machine::MARK);
    Ok(())
}

/// # Safety
/// `cpus` is aligned, has room for `count`, and is valid for ever.
unsafe fn init_cpus(cpus: *mut CpuState, count: usize) -> &'static [CpuState] {
    for index in 0..count {
        // SAFETY: below `count`.
        unsafe { cpus.add(index).write(const { CpuState::new() }) };
    }
    // SAFETY: all were written above.
    unsafe { core::slice::from_raw_parts(cpus, count) }
}

/// `tlb`, counting into `stats` unless that is null.
///
/// # Safety
/// `stats` is null, or aligned with room for `count` and valid for ever.
#[cfg(feature = "history")]
unsafe fn with_counters(tlb: Tlb<'static>, stats: *mut StatsStorage, count: usize) -> Tlb<'static> {
    if stats.is_null() {
        return tlb;
    }
    // SAFETY: the contract.
    tlb.counting_into(unsafe { zeroed_stats(stats.cast(), count) })
}

/// Zeroes the counters in place, because one of them is larger than what is left of many a kernel stack.
///
/// # Safety
/// `stats` is aligned, has room for `count`, and is valid for ever.
#[cfg(feature = "history")]
unsafe fn zeroed_stats(stats: *mut tlbkit::CpuStats, count: usize) -> &'static [tlbkit::CpuStats] {
    // SAFETY: there is room.
    unsafe { stats.write_bytes(0, count) };
    // SAFETY: counters consist of atomic integers only, and all zeros is what `CpuStats::new` returns.
    unsafe { core::slice::from_raw_parts(stats, count) }
}
