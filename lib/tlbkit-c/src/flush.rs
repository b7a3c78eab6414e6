//! Immediate flushes of a range, for changes that free nothing: Linux' `flush_tlb_mm_range` and its relatives.

use tlbkit::{Scope, Stride, Tables, TlbGather, Translations, VirtAddr};

use crate::gather::{HeldFrames, record};
use crate::machine::{Need, PerCpu, ThisCpu, enter};
use crate::status::{Status, status_of};
use crate::storage::Space;
use crate::storage::{MachineStorage, Marked, SpaceStorage};
use crate::values::{Pages, StrideKind, reason_of};

/// A flag for the stride of `tlbkit_flush_range` and `tlbkit_flush_kernel_range`: page-table pages of the range have
/// been unhooked and are freed after the call, so CPUs in lazy TLB mode are interrupted too, as with `freed_tables` in
/// Linux. The stride is the size of the smallest translation below those pages that has not been flushed: only the
/// range at that stride, and the paging-structure-cache entries that lead to it, are invalidated.
pub const TLBKIT_FLUSH_TABLES_FREED: u32 = 1 << 8;
/// A flag for the stride of the same calls: flushes everything, whatever the range.
pub const TLBKIT_FLUSH_EVERYTHING: u32 = 1 << 9;

/// A range in the protocol's terms, in which `u32::MAX` pages mean everything.
#[derive(Clone, Copy)]
struct Flush {
    range: Pages,
    tables: Tables,
}

impl Flush {
    #[inline(always)]
    fn new(va: u64, pages: u64, stride: u32) -> Result<Self, Status> {
        // All flags, and the stride of 512 GiB, are numbers above the largest page size.
        if stride > StrideKind::Page1g as u32 {
            return Self::with_flags(va, pages, stride);
        }
        Ok(Self { range: Pages::new(va, pages, stride)?, tables: Tables::Kept })
    }

    #[cold]
    fn with_flags(va: u64, pages: u64, stride: u32) -> Result<Self, Status> {
        let flags = stride & (TLBKIT_FLUSH_TABLES_FREED | TLBKIT_FLUSH_EVERYTHING);
        let range = if flags & TLBKIT_FLUSH_EVERYTHING == 0 {
            Pages::new(va, pages, stride ^ flags)?
        } else {
            Pages { va: VirtAddr(0), count: u64::from(u32::MAX), stride: Stride::Page4K }
        };
        Ok(Self { range, tables: if flags & TLBKIT_FLUSH_TABLES_FREED == 0 { Tables::Kept } else { Tables::Freed } })
    }

    /// Flushes this CPU and sends no request to any other.
    #[inline(always)]
    fn on_this_cpu_only(self, percpu: &PerCpu, space: &Space) -> Result<(), Status> {
        let (va, pages, stride) = (self.range.va, self.range.clamped(), self.range.stride);
        let alone = percpu.cpu().flush_range_alone(&space.inner, va, pages, stride, self.tables);
        percpu.assert_stayed()?;
        alone.map_err(|_others| Status::IrqsOff)
    }
}

/// Flushes `pages` translations of a space from `va` on, on every CPU, before it returns: for a change that frees
/// nothing, such as a revoked permission, or after which the kernel frees by itself. The page tables have been changed.
/// `stride` is an `enum tlbkit_stride`, combined with `TLBKIT_FLUSH_` flags. Preemption off, interrupts on. With
/// interrupts off, and only then, the call may return `TLBKIT_STATUS_IRQS_OFF`: this CPU has flushed, but another one
/// would have to be interrupted, so the call must be repeated with interrupts on. An archive without checks calls the
/// panic hook instead.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tlbkit_flush_range(
    machine: *const MachineStorage,
    cpu: u32,
    space: *const SpaceStorage,
    va: u64,
    pages: u64,
    stride: u32,
    reason: u32,
) -> Status {
    status_of(|| {
        let (flush, why) = (Flush::new(va, pages, stride)?, reason_of(reason)?);
        // SAFETY: the crate's contract.
        let (percpu, space) = unsafe { (enter(machine, cpu, Need::Online)?, Space::find(space)?) };
        if cfg!(feature = "checked") && !percpu.irqs_enabled() {
            return flush.on_this_cpu_only(percpu, space);
        }
        let (va, pages, stride) = (flush.range.va, flush.range.clamped(), flush.range.stride);
        percpu.cpu().flush_range_with(&space.inner, va, pages, stride, flush.tables, why);
        percpu.assert_stayed()
    })
}

/// As `tlbkit_flush_range` with interrupts off, in any archive: interrupts no other CPU and waits for none. Interrupts
/// on or off, any lock held. It may also return `TLBKIT_STATUS_IRQS_OFF` because a CPU that used the space before is in
/// the middle of a switch between two other spaces: that CPU might be switching to this one. A caller that knows that
/// no other CPU can switch to the space meanwhile may treat that status as success.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tlbkit_flush_range_alone(
    machine: *const MachineStorage,
    cpu: u32,
    space: *const SpaceStorage,
    va: u64,
    pages: u64,
    stride: u32,
) -> Status {
    status_of(|| {
        let flush = Flush::new(va, pages, stride)?;
        // SAFETY: the crate's contract.
        let (percpu, space) = unsafe { (enter(machine, cpu, Need::Online)?, Space::find(space)?) };
        flush.on_this_cpu_only(percpu, space)
    })
}

/// Calls `f` with the CPU that makes the call. No other CPU is interrupted. Interrupts on or off.
///
/// # Safety
/// The crate's contract for `machine`.
#[inline(always)]
unsafe fn on_this_cpu(machine: *const MachineStorage, cpu: u32, f: impl FnOnce(&ThisCpu)) -> Status {
    status_of(|| {
        // SAFETY: the contract.
        let percpu = unsafe { enter(machine, cpu, Need::Online) }?;
        f(percpu.cpu());
        percpu.assert_stayed()
    })
}

/// The same with a range: first address, number of pages, stride.
///
/// # Safety
/// As for [`on_this_cpu`].
#[inline(always)]
unsafe fn range_on_this_cpu(
    machine: *const MachineStorage,
    cpu: u32,
    (va, pages, stride): (u64, u64, u32),
    f: impl FnOnce(&ThisCpu, Pages),
) -> Status {
    match Pages::new(va, pages, stride) {
        // SAFETY: the contract.
        Ok(range) => unsafe { on_this_cpu(machine, cpu, |cpu| f(cpu, range)) },
        Err(refused) => refused,
    }
}

/// Invalidates `pages` translations from `va` on of the loaded space on this CPU only: after a spurious fault, or when
/// permissions were only widened. Other CPUs may keep stale translations, so the caller must not free anything or rely
/// on a revoked permission because of this call. Interrupts on or off, preemption off.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tlbkit_flush_this_cpu(
    machine: *const MachineStorage,
    cpu: u32,
    va: u64,
    pages: u64,
    stride: u32,
) -> Status {
    let f = |here: &ThisCpu, range: Pages| here.flush_this_cpu(range.va, range.clamped(), range.stride);
    // SAFETY: the crate's contract.
    unsafe { range_on_this_cpu(machine, cpu, (va, pages, stride), f) }
}

/// Invalidates `pages` translations of kernel addresses from `va` on, on this CPU only. Under page-table isolation they
/// are invalidated under every PCID. Without it they are assumed to be global: a translation whose entry lacks the
/// global bit stays cached under the other PCIDs. Otherwise as `tlbkit_flush_this_cpu`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tlbkit_flush_kernel_this_cpu(
    machine: *const MachineStorage,
    cpu: u32,
    va: u64,
    pages: u64,
    stride: u32,
) -> Status {
    let f = |here: &ThisCpu, range: Pages| here.flush_kernel_on_this_cpu(range.va, range.clamped(), range.stride);
    // SAFETY: the crate's contract.
    unsafe { range_on_this_cpu(machine, cpu, (va, pages, stride), f) }
}

/// Invalidates all translations of the loaded space on this CPU only, of both halves under page-table isolation. Global
/// translations and those of other spaces stay. Otherwise as `tlbkit_flush_this_cpu`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tlbkit_flush_loaded_this_cpu(machine: *const MachineStorage, cpu: u32) -> Status {
    // SAFETY: the crate's contract.
    unsafe { on_this_cpu(machine, cpu, ThisCpu::flush_loaded_on_this_cpu) }
}

/// Invalidates all translations on this CPU only: of every space, of both halves, and global ones. Otherwise as
/// `tlbkit_flush_this_cpu`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tlbkit_flush_all_this_cpu(machine: *const MachineStorage, cpu: u32) -> Status {
    // SAFETY: the crate's contract.
    unsafe { on_this_cpu(machine, cpu, ThisCpu::flush_all_on_this_cpu) }
}

/// Flushes kernel addresses on every CPU and in every space before it returns, like `flush_tlb_kernel_range`: for a
/// change that frees nothing, or after which the kernel frees by itself. `stride` as in `tlbkit_flush_range`.
/// Interrupts on. Without page-table isolation the translations are assumed to be global; for entries that lack the
/// global bit use a gather with `TLBKIT_SCOPE_NON_GLOBAL`, which flushes them under every PCID.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tlbkit_flush_kernel_range(
    machine: *const MachineStorage,
    cpu: u32,
    va: u64,
    pages: u64,
    stride: u32,
    reason: u32,
) -> Status {
    status_of(|| {
        let (flush, why) = (Flush::new(va, pages, stride)?, reason_of(reason)?);
        // SAFETY: the crate's contract.
        let percpu = unsafe { enter(machine, cpu, Need::MayWait) }?;
        let mut gather = TlbGather::new(Translations::OfKernel, HeldFrames::NONE);
        record(&mut gather, percpu, flush.range, Scope::Global, why);
        if flush.tables == Tables::Freed {
            gather.tables_freed();
        }
        let _nothing = gather.flush(percpu.cpu());
        percpu.assert_stayed()
    })
}
