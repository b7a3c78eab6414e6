//! Flushes of a range at once, for changes that free nothing.

use tlbkit::{Scope, TlbGather, Translations};

use crate::gather::{Held, name};
use crate::machine::{Need, enter};
use crate::space::Space;
use crate::status::{Status, report};
use crate::storage::{MachineStorage, Marked, SpaceStorage};
use crate::words::{Pages, reason_of};

/// Flushes `pages` translations of a space from `va` on, everywhere, at once: for a change that frees nothing, such as
/// a permission taken away. The page tables have been changed. Interrupts on, preemption off.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tlbkit_flush_range(
    machine: *const MachineStorage,
    cpu: u32,
    space: *const SpaceStorage,
    va: u64,
    pages: u32,
    stride: u32,
    reason: u32,
) -> Status {
    report(|| {
        let (range, why) = (Pages::new(va, u64::from(pages), stride)?, reason_of(reason)?);
        // SAFETY: the crate's contract.
        let (door, space) = unsafe { (enter(machine, cpu, Need::MayWait)?, Space::find(space)?) };
        door.cpu().flush_range(&space.inner, range.va, pages, range.stride, why);
        door.assert_stayed()
    })
}

/// Drops what this CPU holds of `pages` translations from `va` on, in the tables that it has loaded: after a fault that
/// was spurious, or when permission was just widened. It tells no other CPU, so nothing may be freed on the strength of
/// it, and no permission counts as taken away. Interrupts on or off, preemption off.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tlbkit_flush_this_cpu(
    machine: *const MachineStorage,
    cpu: u32,
    va: u64,
    pages: u32,
    stride: u32,
) -> Status {
    report(|| {
        let range = Pages::new(va, u64::from(pages), stride)?;
        // SAFETY: the crate's contract.
        let door = unsafe { enter(machine, cpu, Need::Online) }?;
        door.cpu().flush_this_cpu(range.va, pages, range.stride);
        Ok(())
    })
}

/// Flushes kernel addresses on every CPU, in every space, for a change that frees nothing. Interrupts on.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tlbkit_flush_kernel_range(
    machine: *const MachineStorage,
    cpu: u32,
    va: u64,
    pages: u64,
    stride: u32,
    reason: u32,
) -> Status {
    report(|| {
        let (range, why) = (Pages::new(va, pages, stride)?, reason_of(reason)?);
        // SAFETY: the crate's contract.
        let door = unsafe { enter(machine, cpu, Need::MayWait) }?;
        let mut gather = TlbGather::new(Translations::OfKernel, Held::NOTHING);
        name(&mut gather, &door, range, Scope::Global, why);
        let _nothing = gather.flush(&door.cpu());
        door.assert_stayed()
    })
}
