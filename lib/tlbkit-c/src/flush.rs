//! Flushes of a range at once, for changes that free nothing; and the words for what is flushed.

use tlbkit::{Reason, Scope, Stride, TlbGather, Translations, VirtAddr};

use crate::gather::Held;
use crate::machine::{Door, Need, enter};
use crate::space::Space;
use crate::status::{Status, report};
use crate::storage::{MachineStorage, Marked, SpaceStorage};

/// The size of one translation, and so the step of a range.
#[repr(C)]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum StrideKind {
    /// 4 KiB.
    Page4k = 12,
    /// 2 MiB.
    Page2m = 21,
    /// 1 GiB.
    Page1g = 30,
}

/// Whether the entry that was changed had the global bit.
#[repr(C)]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ScopeKind {
    /// It had not.
    Local = 0,
    /// It had.
    Global = 1,
}

/// A range of translations, its numbers checked.
#[derive(Clone, Copy)]
pub(crate) struct Pages {
    pub(crate) va: VirtAddr,
    pub(crate) count: u64,
    pub(crate) stride: Stride,
}

impl Pages {
    /// Refuses what is empty, wraps, or has no such stride.
    pub(crate) fn new(va: u64, count: u64, stride: u32) -> Result<Self, Status> {
        let stride = stride_of(stride)?;
        let bytes = count.checked_mul(stride.bytes()).filter(|bytes| *bytes != 0).ok_or(Status::BadValue)?;
        let first = va & !(stride.bytes() - 1);
        first.checked_add(bytes - 1).ok_or(Status::BadValue)?;
        Ok(Self { va: VirtAddr(first), count, stride })
    }

    /// Names them in `gather`. Out of line, since both kinds of range come here.
    #[inline(never)]
    pub(crate) fn name_in(&self, gather: &mut TlbGather<'_, '_, Held>, door: &Door<'_>, scope: Scope, why: Reason) {
        gather.range(&door.cpu(), self.va, self.count, self.stride, scope, why);
    }
}

fn stride_of(stride: u32) -> Result<Stride, Status> {
    match stride {
        shift if shift == StrideKind::Page4k as u32 => Ok(Stride::Page4K),
        shift if shift == StrideKind::Page2m as u32 => Ok(Stride::Page2M),
        shift if shift == StrideKind::Page1g as u32 => Ok(Stride::Page1G),
        _ => Err(Status::BadValue),
    }
}

pub(crate) fn scope_of(scope: u32) -> Result<Scope, Status> {
    match scope {
        kind if kind == ScopeKind::Local as u32 => Ok(Scope::Local),
        kind if kind == ScopeKind::Global as u32 => Ok(Scope::Global),
        _ => Err(Status::BadValue),
    }
}

pub(crate) fn reason_of(reason: u32) -> Result<Reason, Status> {
    Reason::ALL.get(reason as usize).copied().ok_or(Status::BadValue)
}

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
        range.name_in(&mut gather, &door, Scope::Global, why);
        let _nothing = gather.flush(&door.cpu());
        Ok(())
    })
}
