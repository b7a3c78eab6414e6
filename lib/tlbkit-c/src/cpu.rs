//! What a CPU does: come online, switch spaces, enter lazy TLB mode, answer flush requests, go offline.

use core::ffi::c_void;

use tlbkit::{CpuId, IrqsOff};

use crate::machine::{Machine, Need, ThisCpu, enter};
use crate::status::{Status, status_of};
use crate::storage::Space;
use crate::storage::{MachineStorage, Marked, SpaceStorage};
use crate::values::user_flush_of;

/// Calls `f` with an online CPU, whose interrupts are off.
///
/// # Safety
/// The crate's contract for `machine`.
unsafe fn with_irqs_off(machine: *const MachineStorage, cpu: u32, f: impl FnOnce(&ThisCpu, &IrqsOff)) -> Status {
    status_of(|| {
        // SAFETY: the contract.
        let percpu = unsafe { enter(machine, cpu, Need::IrqsOff) }?;
        f(percpu.cpu(), &IrqsOff::assume());
        Ok(())
    })
}

/// Brings this CPU online: at boot, hotplug or resume. Its TLB is flushed completely, and the kernel's own tables are
/// loaded. Before any other call on this CPU; interrupts off. If the CPU was stopped by force while it waited for other
/// CPUs to answer, it waits for those answers here.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tlbkit_bring_up(machine: *const MachineStorage, cpu: u32) -> Status {
    status_of(|| {
        // SAFETY: the crate's contract.
        let machine = unsafe { Machine::find(machine) }?;
        machine.enter_for_bring_up(cpu)?.cpu().bring_up(&IrqsOff::assume());
        Ok(())
    })
}

/// Takes this CPU offline until its next `tlbkit_bring_up`. Interrupts off.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tlbkit_offline(machine: *const MachineStorage, cpu: u32) -> Status {
    // SAFETY: the crate's contract.
    unsafe { with_irqs_off(machine, cpu, |cpu, irqs| cpu.offline(irqs)) }
}

/// Declares that another CPU was stopped by force, and executes nothing until its `tlbkit_bring_up`. It may have
/// stopped before it sent an IPI that other CPUs rely on, so a kernel that calls this must return
/// `TLBKIT_LATE_ASK_AGAIN` from `late`, or have no `late`. A space that the CPU was flushing must stay alive until its
/// `tlbkit_bring_up` returns. Not for the virtual CPU of a guest, which may resume by itself.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tlbkit_declare_stopped(machine: *const MachineStorage, stopped: u32) -> Status {
    status_of(|| {
        // SAFETY: the crate's contract.
        let machine = unsafe { Machine::find(machine) }?;
        machine.percpu(stopped)?;
        machine.tlb.declare_stopped(CpuId(stopped));
        Ok(())
    })
}

/// Loads the space of the task that runs next, like `switch_mm_irqs_off`. Does nothing if the space is running already.
/// Interrupts off. The space that is left must stay alive until the call returns.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tlbkit_switch_to(
    machine: *const MachineStorage,
    cpu: u32,
    space: *const SpaceStorage,
) -> Status {
    status_of(|| {
        // SAFETY: the crate's contract.
        let (percpu, space) = unsafe { (enter(machine, cpu, Need::IrqsOff)?, Space::find(space)?) };
        percpu.cpu().switch_to(&space.inner, &IrqsOff::assume());
        Ok(())
    })
}

/// Enters lazy TLB mode, like `enter_lazy_tlb`: the idle task or a kernel thread runs next, and the user space stays
/// loaded but unused, if the policy says so. Interrupts off.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tlbkit_enter_lazy(machine: *const MachineStorage, cpu: u32) -> Status {
    // SAFETY: the crate's contract.
    unsafe { with_irqs_off(machine, cpu, |cpu, irqs| cpu.enter_lazy(irqs)) }
}

/// Loads the kernel's own tables, like `leave_mm`: before deep idle. Interrupts off.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tlbkit_load_kernel(machine: *const MachineStorage, cpu: u32) -> Status {
    // SAFETY: the crate's contract.
    unsafe { with_irqs_off(machine, cpu, |cpu, irqs| cpu.load_kernel(irqs)) }
}

/// Loads the kernel half on entry from user mode, under page-table isolation; otherwise does nothing. Interrupts off.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tlbkit_enter_kernel(machine: *const MachineStorage, cpu: u32) -> Status {
    // SAFETY: the crate's contract.
    unsafe { with_irqs_off(machine, cpu, |cpu, irqs| cpu.enter_kernel(irqs)) }
}

/// Loads the user half on exit to user mode, under page-table isolation; otherwise does nothing. Interrupts off.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tlbkit_exit_to_user(machine: *const MachineStorage, cpu: u32) -> Status {
    // SAFETY: the crate's contract.
    unsafe { with_irqs_off(machine, cpu, |cpu, irqs| cpu.exit_to_user(irqs)) }
}

/// On the way to user mode, on a CPU that is not to be disturbed: from here on flushes of kernel addresses do not
/// interrupt it, and are done by `tlbkit_do_deferred_flushes`. Until that returns, the kernel touches only addresses
/// that are never unmapped. Every way back calls it. Interrupts off.
#[cfg(feature = "isolated")]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tlbkit_defer_kernel_flushes(machine: *const MachineStorage, cpu: u32) -> Status {
    // SAFETY: the crate's contract.
    unsafe { with_irqs_off(machine, cpu, |cpu, irqs| cpu.defer_kernel_flushes(irqs)) }
}

/// On the way into the kernel: does the flushes that were deferred, by one flush of everything, before anything is
/// touched that may be unmapped. From user mode always; from the kernel in NMIs, machine checks, debug exceptions and
/// faults of IRET. True if the CPU was deferring: such a handler then calls `tlbkit_defer_kernel_flushes` on its way
/// out. False on misuse. Interrupts off.
#[cfg(feature = "isolated")]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tlbkit_do_deferred_flushes(machine: *const MachineStorage, cpu: u32) -> bool {
    // SAFETY: the crate's contract.
    let percpu = unsafe { enter(machine, cpu, Need::IrqsOff) };
    percpu.is_ok_and(|percpu| percpu.cpu().do_deferred_flushes(&IrqsOff::assume()) == tlbkit::Entered::Deferring)
}

/// Carries out the flush requests of other CPUs. Called by the handler of the shootdown IPI, and by every loop that
/// waits for another CPU with interrupts off. Interrupts off. A spurious call is harmless, also on a CPU that is
/// offline.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tlbkit_answer(machine: *const MachineStorage, cpu: u32) -> Status {
    // SAFETY: the crate's contract.
    match unsafe { with_irqs_off(machine, cpu, |cpu, irqs| cpu.answer(irqs)) } {
        Status::CpuOffline => Status::Ok,
        other => other,
    }
}

/// True if the space is loaded on this CPU and safe to access, like `nmi_uaccess_okay`: an NMI handler checks it before
/// it accesses user memory. False on misuse.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tlbkit_is_running(
    machine: *const MachineStorage,
    cpu: u32,
    space: *const SpaceStorage,
) -> bool {
    // SAFETY: the crate's contract.
    let (percpu, space) = unsafe { (enter(machine, cpu, Need::Online), Space::find(space)) };
    percpu.is_ok_and(|percpu| space.is_ok_and(|space| percpu.cpu().is_running(&space.inner)))
}

/// The value of CR3 on this CPU while the kernel half is loaded, without the no-flush bit: the root of the page tables,
/// and the PCID in the low 12 bits. 0 on misuse. Interrupts off.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tlbkit_loaded(machine: *const MachineStorage, cpu: u32) -> u64 {
    // SAFETY: the crate's contract.
    unsafe { enter(machine, cpu, Need::IrqsOff) }.map_or(0, |percpu| percpu.cpu().loaded(&IrqsOff::assume()).0)
}

/// Calls `each` with every CPU that has not answered a request of `cpu`, except for CPUs that are offline or were
/// declared stopped. For a watchdog, on any CPU.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tlbkit_missing(
    machine: *const MachineStorage,
    cpu: u32,
    each: Option<unsafe extern "C" fn(context: *mut c_void, missing: u32)>,
    context: *mut c_void,
) -> Status {
    status_of(|| {
        let each = each.ok_or(Status::NullPointer)?;
        // SAFETY: the crate's contract.
        let percpu = unsafe { enter(machine, cpu, Need::Elsewhere) }?;
        // SAFETY: the kernel's function, called with the kernel's context.
        percpu.cpu().missing().for_each(|missing| unsafe { each(context, missing.0) });
        Ok(())
    })
}

/// Sets the ceiling, like Linux' `tlb_single_page_flush_ceiling`: from now on a flush of more than `pages` pages
/// becomes a full one, whatever the policy said. 0 makes every flush a full one.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tlbkit_set_ceiling(machine: *const MachineStorage, pages: u32) -> Status {
    status_of(|| {
        // SAFETY: the crate's contract.
        unsafe { Machine::find(machine) }?.tlb.knobs().set_ceiling(pages);
        Ok(())
    })
}

/// Sets how the user half is flushed from now on, by an `enum tlbkit_user_flush`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tlbkit_set_user_flush(machine: *const MachineStorage, how: u32) -> Status {
    status_of(|| {
        let how = user_flush_of(how)?;
        // SAFETY: the crate's contract.
        unsafe { Machine::find(machine) }?.tlb.knobs().set_user_flush(how);
        Ok(())
    })
}
