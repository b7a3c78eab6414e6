//! The machine as C makes it, and the door that every call goes through: checks first, then the protocol.

use core::ffi::c_char;
use core::sync::atomic::{AtomicU64, Ordering};

use tlbkit::{Cpu, CpuId, CpuState, Hardware, LazyReferences, Tlb};

use crate::ops::{HardwareOps, Ops, OpsHardware};
use crate::policy::policy_of;
use crate::status::{Status, report};
use crate::storage::{CpuStateStorage, MachineStorage, Marked, StatsStorage, check, root_at, zeroed};

/// Everything that a machine is made of. The struct itself is only read during the call; what `cpus`, `matrix` and
/// `stats` point to belongs to the machine for ever.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Setup {
    /// The functions of the hardware; copied.
    pub ops: *const HardwareOps,
    /// The policy as a text, see `tlbkit_policy_check`. NULL for the library's own.
    pub policy: *const c_char,
    /// One for each possible CPU.
    pub cpus: *mut CpuStateStorage,
    /// Possible CPUs.
    pub cpu_count: u32,
    /// At least `tlbkit_matrix_words(cpu_count)` words; set to zero by the call.
    pub matrix: *mut u64,
    /// Words there.
    pub matrix_words: usize,
    /// Physical address of the top-level table that idle CPUs can be left with.
    pub kernel_root: u64,
    /// One for each possible CPU, or NULL. Used if the policy counts, for which the archive needs `--features history`.
    pub stats: *mut StatsStorage,
}

/// A CPU on a table of functions.
pub(crate) type ThisCpu<'m> = Cpu<'m, 'static, OpsHardware<'m>>;

/// What a `struct tlbkit_machine` holds.
#[repr(C)]
pub(crate) struct Machine {
    mark: AtomicU64,
    pub(crate) tlb: Tlb<'static>,
    ops: Ops,
    pub(crate) cpu_count: u32,
}

// SAFETY: `repr(C)`, the mark first; `tlbkit_machine_init` writes it last.
unsafe impl Marked for Machine {
    type Storage = MachineStorage;
    const MARK: u64 = 0x746c_626b_6974_4d41;
}

/// What a call needs of the CPU that makes it.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Need {
    /// Nothing but that it is online: another CPU may look at it.
    Elsewhere,
    /// That it is online, and makes the call.
    Online,
    /// Interrupts off.
    IrqsOff,
    /// Interrupts on, unless there is nobody to wait for.
    MayWait,
}

/// A machine and one of its CPUs, both found to be as the call needs them.
pub(crate) struct Door<'m> {
    pub(crate) machine: &'m Machine,
    hardware: OpsHardware<'m>,
}

impl Door<'_> {
    pub(crate) fn cpu(&self) -> ThisCpu<'_> {
        self.machine.tlb.cpu(CpuId(self.hardware.cpu), &self.hardware)
    }

    /// After a call that may have waited: whether the task has stayed where it was.
    pub(crate) fn assert_stayed(&self) -> Result<(), Status> {
        self.hardware.assert_stayed()
    }
}

/// Finds the machine and the CPU of a call.
///
/// # Safety
/// The crate's contract for `machine`.
pub(crate) unsafe fn enter<'m>(machine: *const MachineStorage, cpu: u32, need: Need) -> Result<Door<'m>, Status> {
    // SAFETY: the contract.
    unsafe { Machine::find(machine) }?.door(cpu, need)
}

impl Machine {
    // Out of line: every call comes through here, and a kernel has many.
    #[inline(never)]
    pub(crate) fn door(&self, cpu: u32, need: Need) -> Result<Door<'_>, Status> {
        let hardware = self.hardware(cpu)?;
        if need != Need::Elsewhere {
            hardware.assert_here()?;
        }
        // Relaxed: this CPU alone joins and leaves the online set on its own behalf.
        if !self.tlb.online().contains(CpuId(cpu), Ordering::Relaxed) {
            return Err(Status::CpuOffline);
        }
        match need {
            Need::IrqsOff if hardware.irqs_enabled() => Err(Status::IrqsOn),
            Need::MayWait if !hardware.irqs_enabled() && !self.is_alone() => Err(Status::IrqsOff),
            _ => Ok(Door { machine: self, hardware }),
        }
    }

    /// A CPU that need not be online.
    pub(crate) fn hardware(&self, cpu: u32) -> Result<OpsHardware<'_>, Status> {
        if cpu < self.cpu_count { Ok(OpsHardware::new(&self.ops, cpu)) } else { Err(Status::NoSuchCpu) }
    }

    fn is_alone(&self) -> bool {
        // Relaxed: a CPU that comes up at this moment flushes by itself.
        self.tlb.online().words().iter().map(|word| word.load(Ordering::Relaxed).count_ones()).sum::<u32>() == 1
    }
}

/// Words that a machine of `cpus` CPUs needs beside its CPUs: who has asked whom.
#[unsafe(no_mangle)]
pub const extern "C" fn tlbkit_matrix_words(cpus: u32) -> usize {
    Tlb::matrix_words(cpus as usize)
}

/// Makes a machine. No CPU takes part until its `tlbkit_bring_up`. The machine stays where it is for ever.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tlbkit_machine_init(machine: *mut MachineStorage, setup: *const Setup) -> Status {
    // SAFETY: the crate's contract.
    report(|| unsafe { init(machine, setup) })
}

/// # Safety
/// The crate's contract for both.
unsafe fn init(machine: *mut MachineStorage, setup: *const Setup) -> Result<(), Status> {
    check(machine)?;
    check(setup)?;
    // SAFETY: not null, aligned, and by the contract a whole struct.
    let setup = unsafe { &*setup };
    check(setup.ops)?;
    check(setup.cpus)?;
    if !setup.stats.is_null() {
        check(setup.stats)?;
    }
    // SAFETY: as above.
    let ops = Ops::new(unsafe { &*setup.ops })?;
    // SAFETY: as above, or null.
    let policy = unsafe { policy_of(setup.policy) }?;
    // Without it nobody would ever free the tables of a space that a CPU held at its end.
    if policy.lazy_references != LazyReferences::ShotDown && !ops.tells_of_last_reference() {
        return Err(Status::NoFunction);
    }
    if setup.cpu_count == 0 {
        return Err(Status::BadValue);
    }
    let root = root_at(setup.kernel_root)?;
    if setup.matrix_words < tlbkit_matrix_words(setup.cpu_count) {
        return Err(Status::TooSmall);
    }
    // SAFETY: the contract gives the words for ever.
    let matrix = unsafe { zeroed(setup.matrix, setup.matrix_words) }?;
    // SAFETY: the contract gives the CPUs for ever.
    let cpus = unsafe { made_cpus(setup.cpus.cast::<CpuState>(), setup.cpu_count as usize) };
    let tlb = Tlb::new(cpus, matrix, root, policy);
    #[cfg(feature = "history")]
    // SAFETY: the contract gives the counters for ever.
    let tlb = unsafe { counting(tlb, setup.stats, setup.cpu_count as usize) };
    let made = Machine { mark: AtomicU64::new(0), tlb, ops, cpu_count: setup.cpu_count };
    // SAFETY: the contract for `machine`.
    unsafe { Machine::make(machine, made) }
}

/// # Safety
/// `cpus` is aligned and has room for `count` for ever.
unsafe fn made_cpus(cpus: *mut CpuState, count: usize) -> &'static [CpuState] {
    for index in 0..count {
        // SAFETY: below `count`.
        unsafe { cpus.add(index).write(CpuState::new()) };
    }
    // SAFETY: all written above.
    unsafe { core::slice::from_raw_parts(cpus, count) }
}

/// `tlb` as it counts into `stats`, if there are any.
///
/// # Safety
/// `stats` is null, or aligned and has room for `count` for ever.
#[cfg(feature = "history")]
unsafe fn counting(tlb: Tlb<'static>, stats: *mut StatsStorage, count: usize) -> Tlb<'static> {
    if stats.is_null() {
        return tlb;
    }
    // SAFETY: the contract.
    tlb.counting_into(unsafe { zeroed_stats(stats.cast(), count) })
}

/// Zeroed in place: one of them is larger than many a kernel's stack has left.
///
/// # Safety
/// `stats` is aligned and has room for `count` for ever.
#[cfg(feature = "history")]
unsafe fn zeroed_stats(stats: *mut tlbkit::CpuStats, count: usize) -> &'static [tlbkit::CpuStats] {
    // SAFETY: there is room.
    unsafe { stats.write_bytes(0, count) };
    // SAFETY: counters are atomic integers and nothing else: zero is what `CpuStats::new` makes.
    unsafe { core::slice::from_raw_parts(stats, count) }
}
