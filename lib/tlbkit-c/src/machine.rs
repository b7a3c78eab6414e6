//! The machine as C makes it, and the door that every call goes through: checks first, then the protocol.

use core::ffi::c_char;
use core::ptr::NonNull;
use core::sync::atomic::Ordering;

use tlbkit::{Cpu, CpuId, CpuState, Hardware, LazyReferences, Tlb};

use crate::hardware::KernelHardware;
use crate::hardware::Ops;
use crate::mark::Mark;
use crate::ops::HardwareOps;
use crate::status::{Status, report};
use crate::storage::{CpuStateStorage, MachineStorage, Marked, StatsStorage, check, root_at, zeroed};
use crate::values::policy_of;

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
    /// At least `tlbkit_matrix_words(cpu_count)` words; set to zero by the call. Let them begin a cache line: then no
    /// two CPUs share a line of what others write.
    pub matrix: *mut u64,
    /// Words there.
    pub matrix_words: usize,
    /// Physical address of the top-level table that idle CPUs can be left with.
    pub kernel_root: u64,
    /// One for each possible CPU, or NULL. Used if the policy counts, for which the archive needs `--features history`.
    pub stats: *mut StatsStorage,
}

/// A CPU on the kernel's functions.
pub(crate) type ThisCpu = Cpu<'static, 'static, KernelHardware>;

/// One CPU of a machine, made when the machine is: a call finds it by a sum. It lies behind the matrix.
#[repr(C)]
pub(crate) struct Door {
    cpu: ThisCpu,
    hardware: KernelHardware,
}

/// Words of a door, a power of two, so that finding it takes no multiplication.
const DOOR_WORDS: usize = 8;
const _: () = assert!(size_of::<Door>() <= 8 * DOOR_WORDS && align_of::<Door>() <= 8);

impl Door {
    #[inline(always)]
    pub(crate) const fn cpu(&self) -> &ThisCpu {
        &self.cpu
    }

    pub(crate) fn irqs_enabled(&self) -> bool {
        self.hardware.irqs_enabled()
    }

    /// After a call that may have waited: whether the task has stayed where it was.
    #[inline(always)]
    pub(crate) fn assert_stayed(&self) -> Result<(), Status> {
        self.hardware.assert_stayed()
    }
}

/// The doors of all CPUs, in C's memory.
#[derive(Clone, Copy)]
struct Doors(NonNull<[u64; DOOR_WORDS]>);

impl Doors {
    /// # Safety
    /// There is such a CPU.
    #[inline(always)]
    unsafe fn of(self, cpu: u32) -> &'static Door {
        // SAFETY: the contract; `make` has made them all, and C's memory is the machine's for ever.
        unsafe { self.0.add(cpu as usize).cast::<Door>().as_ref() }
    }

    /// # Safety
    /// There is room for all CPUs for ever, and nobody uses it yet.
    unsafe fn make(self, machine: &'static Machine) {
        for number in 0..machine.cpu_count {
            // SAFETY: the contract.
            let place = unsafe { self.0.add(number as usize) }.cast::<Door>().as_ptr();
            // SAFETY: as above.
            let hardware = unsafe { &raw mut (*place).hardware };
            // SAFETY: as above; written here, read from then on.
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
    doors: Doors,
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

/// Finds the machine and the CPU of a call.
///
/// # Safety
/// The crate's contract for `machine`.
#[inline(always)]
pub(crate) unsafe fn enter(machine: *const MachineStorage, cpu: u32, need: Need) -> Result<&'static Door, Status> {
    // SAFETY: the contract.
    unsafe { Machine::find(machine) }?.door(cpu, need)
}

impl Machine {
    /// The CPU of a call; in a checked build it is found to be as the call needs it.
    #[inline(always)]
    pub(crate) fn door(&self, cpu: u32, need: Need) -> Result<&'static Door, Status> {
        if cfg!(feature = "checked") {
            self.look(cpu, need)?;
        }
        // SAFETY: it exists, as was looked at, or by the caller's word.
        Ok(unsafe { self.doors.of(cpu) })
    }

    // Out of line: every call comes through here, and a kernel has many.
    #[inline(never)]
    fn look(&self, cpu: u32, need: Need) -> Result<(), Status> {
        let hardware = &self.any_door(cpu)?.hardware;
        if need != Need::Elsewhere {
            hardware.assert_here()?;
        }
        // Relaxed: this CPU alone joins and leaves the online set on its own behalf.
        if !self.tlb.online().contains(CpuId(cpu), Ordering::Relaxed) {
            return Err(Status::CpuOffline);
        }
        match need {
            Need::IrqsOff if hardware.irqs_enabled() => return Err(Status::IrqsOn),
            Need::MayWait if !hardware.irqs_enabled() && !self.is_alone() => return Err(Status::IrqsOff),
            Need::MayWait | Need::Online => hardware.begin(),
            _ => {}
        }
        Ok(())
    }

    /// A CPU that need not be online, and need not make the call.
    pub(crate) fn any_door(&self, cpu: u32) -> Result<&'static Door, Status> {
        // SAFETY: it exists.
        if cpu < self.cpu_count { Ok(unsafe { self.doors.of(cpu) }) } else { Err(Status::NoSuchCpu) }
    }

    /// A CPU that is away still, and makes the call with interrupts off.
    pub(crate) fn door_of_newcomer(&self, cpu: u32) -> Result<&'static Door, Status> {
        let door = self.any_door(cpu)?;
        door.hardware.assert_here()?;
        if cfg!(feature = "checked") && door.hardware.irqs_enabled() { Err(Status::IrqsOn) } else { Ok(door) }
    }

    fn is_alone(&self) -> bool {
        // Relaxed: a CPU that comes up at this moment flushes by itself.
        self.tlb.online().words().iter().map(|word| word.load(Ordering::Relaxed).count_ones()).sum::<u32>() == 1
    }
}

/// Words that a machine of `cpus` CPUs needs beside its CPUs: who has asked whom, and how each CPU is found.
#[unsafe(no_mangle)]
pub const extern "C" fn tlbkit_matrix_words(cpus: u32) -> usize {
    Tlb::matrix_words(cpus as usize) + cpus as usize * DOOR_WORDS
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
    let (requests, doors) = matrix.split_at(Tlb::matrix_words(setup.cpu_count as usize));
    let doors = Doors(NonNull::from(doors).cast());
    // SAFETY: the contract gives the CPUs for ever.
    let cpus = unsafe { made_cpus(setup.cpus.cast::<CpuState>(), setup.cpu_count as usize) };
    let tlb = Tlb::new(cpus, requests, root, policy);
    #[cfg(feature = "history")]
    // SAFETY: the contract gives the counters for ever.
    let tlb = unsafe { counting(tlb, setup.stats, setup.cpu_count as usize) };
    let made = Machine { mark: Mark::none(), doors, tlb, ops, cpu_count: setup.cpu_count };
    // SAFETY: the contract for `machine`.
    let placed = unsafe { Machine::place(machine, made) }?;
    // SAFETY: words of the matrix, which nobody else has.
    unsafe { doors.make(placed) };
    // Last: a CPU that waits for the machine to be made goes through its door at once.
    placed.mark.set(Machine::MARK);
    Ok(())
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
