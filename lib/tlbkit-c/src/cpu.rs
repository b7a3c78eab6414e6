//! What a CPU does with spaces: come up, switch, idle, answer, leave.

use core::ffi::c_void;

use tlbkit::{CpuId, IrqsOff};

use crate::machine::{Machine, Need, ThisCpu, enter};
use crate::status::{Status, report};
use crate::storage::Space;
use crate::storage::{MachineStorage, Marked, SpaceStorage};
use crate::values::user_flush_of;

/// Calls `f` on an online CPU whose interrupts are off.
///
/// # Safety
/// The crate's contract for `machine`.
unsafe fn quiet(machine: *const MachineStorage, cpu: u32, f: impl FnOnce(&ThisCpu, &IrqsOff)) -> Status {
    report(|| {
        // SAFETY: the contract.
        let door = unsafe { enter(machine, cpu, Need::IrqsOff) }?;
        f(door.cpu(), &IrqsOff::assume());
        Ok(())
    })
}

/// Starts or restarts a CPU: first use, hot-plug, resume. Everything in its TLB goes, and the kernel's own tables are
/// loaded. Before anything else on this CPU; interrupts off. A CPU that was stopped by force while it asked others
/// waits here for their answers.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tlbkit_bring_up(machine: *const MachineStorage, cpu: u32) -> Status {
    report(|| {
        // SAFETY: the crate's contract.
        let machine = unsafe { Machine::find(machine) }?;
        machine.door_of_newcomer(cpu)?.cpu().bring_up(&IrqsOff::assume());
        Ok(())
    })
}

/// Takes this CPU out until its next `tlbkit_bring_up`. Interrupts off.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tlbkit_offline(machine: *const MachineStorage, cpu: u32) -> Status {
    // SAFETY: the crate's contract.
    unsafe { quiet(machine, cpu, |cpu, irqs| cpu.offline(irqs)) }
}

/// States that another CPU has stopped by force and executes nothing until its `tlbkit_bring_up`. It may have stopped
/// before it sent an interrupt that others count on: a kernel that calls this returns `TLBKIT_LATE_ASK_AGAIN` from its
/// `late`, or has none. A space that it was flushing must live until its `tlbkit_bring_up` returns.
/// Not for a guest's CPU that may go on by itself.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tlbkit_declare_stopped(machine: *const MachineStorage, stopped: u32) -> Status {
    report(|| {
        // SAFETY: the crate's contract.
        let machine = unsafe { Machine::find(machine) }?;
        machine.any_door(stopped)?;
        machine.tlb.declare_stopped(CpuId(stopped));
        Ok(())
    })
}

/// Loads a space for the task that runs next; nothing if it runs already. In the context switch, interrupts off. The
/// space that is left stays alive until the call returns.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tlbkit_switch_to(
    machine: *const MachineStorage,
    cpu: u32,
    space: *const SpaceStorage,
) -> Status {
    report(|| {
        // SAFETY: the crate's contract.
        let (door, space) = unsafe { (enter(machine, cpu, Need::IrqsOff)?, Space::find(space)?) };
        door.cpu().switch_to(&space.inner, &IrqsOff::assume());
        Ok(())
    })
}

/// Idle or a kernel thread runs next: the user space stays loaded, unused, as the policy says. Interrupts off.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tlbkit_enter_lazy(machine: *const MachineStorage, cpu: u32) -> Status {
    // SAFETY: the crate's contract.
    unsafe { quiet(machine, cpu, |cpu, irqs| cpu.enter_lazy(irqs)) }
}

/// Loads the kernel's own tables: before deep idle. Interrupts off.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tlbkit_load_kernel(machine: *const MachineStorage, cpu: u32) -> Status {
    // SAFETY: the crate's contract.
    unsafe { quiet(machine, cpu, |cpu, irqs| cpu.load_kernel(irqs)) }
}

/// On the way from user mode into the kernel, under isolation; else nothing. Interrupts off.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tlbkit_enter_kernel(machine: *const MachineStorage, cpu: u32) -> Status {
    // SAFETY: the crate's contract.
    unsafe { quiet(machine, cpu, |cpu, irqs| cpu.enter_kernel(irqs)) }
}

/// On the way back to user mode, under isolation; else nothing. Interrupts off.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tlbkit_exit_to_user(machine: *const MachineStorage, cpu: u32) -> Status {
    // SAFETY: the crate's contract.
    unsafe { quiet(machine, cpu, |cpu, irqs| cpu.exit_to_user(irqs)) }
}

/// Carries out what other CPUs have asked: the handler of the shootdown interrupt, and each loop that waits for another
/// CPU with interrupts off. Interrupts off. A stray interrupt is harmless, on a CPU that has left too.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tlbkit_answer(machine: *const MachineStorage, cpu: u32) -> Status {
    // SAFETY: the crate's contract.
    match unsafe { quiet(machine, cpu, |cpu, irqs| cpu.answer(irqs)) } {
        Status::CpuOffline => Status::Ok,
        other => other,
    }
}

/// True if the space is loaded here and may be used: what an NMI asks before it touches user memory. False on misuse.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tlbkit_is_running(
    machine: *const MachineStorage,
    cpu: u32,
    space: *const SpaceStorage,
) -> bool {
    // SAFETY: the crate's contract.
    let (door, space) = unsafe { (enter(machine, cpu, Need::Online), Space::find(space)) };
    door.is_ok_and(|door| space.is_ok_and(|space| door.cpu().is_running(&space.inner)))
}

/// What CR3 holds on this CPU while the kernel half is loaded, without the no-flush bit: the root of the tables, and
/// the tag in the low 12 bits. 0 on misuse. Interrupts off.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tlbkit_loaded(machine: *const MachineStorage, cpu: u32) -> u64 {
    // SAFETY: the crate's contract.
    unsafe { enter(machine, cpu, Need::IrqsOff) }.map_or(0, |door| door.cpu().loaded(&IrqsOff::assume()).0)
}

/// Calls `each` with every CPU that has not answered a request of `cpu`, but those that have left or were declared
/// stopped: for a watchdog, on any CPU.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tlbkit_missing(
    machine: *const MachineStorage,
    cpu: u32,
    each: Option<unsafe extern "C" fn(context: *mut c_void, missing: u32)>,
    context: *mut c_void,
) -> Status {
    report(|| {
        let each = each.ok_or(Status::NullPointer)?;
        // SAFETY: the crate's contract.
        let door = unsafe { enter(machine, cpu, Need::Elsewhere) }?;
        // SAFETY: the kernel's function, with the kernel's context.
        door.cpu().missing().each(|missing| unsafe { each(context, missing.0) });
        Ok(())
    })
}

/// Flushes more than `pages` pages as everything from now on, whatever the policy's rule was; 0 for always.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tlbkit_set_ceiling(machine: *const MachineStorage, pages: u32) -> Status {
    report(|| {
        // SAFETY: the crate's contract.
        unsafe { Machine::find(machine) }?.tlb.knobs().set_ceiling(pages);
        Ok(())
    })
}

/// Flushes the user half this way (an `enum tlbkit_user_flush`) from now on.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tlbkit_set_user_flush(machine: *const MachineStorage, how: u32) -> Status {
    report(|| {
        let how = user_flush_of(how)?;
        // SAFETY: the crate's contract.
        unsafe { Machine::find(machine) }?.tlb.knobs().set_user_flush(how);
        Ok(())
    })
}
