//! Flushes of a range at once, for changes that free nothing.

use tlbkit::{Scope, Stride, Tables, TlbGather, Translations, VirtAddr};

use crate::gather::{Held, name};
use crate::machine::{Door, Need, ThisCpu, enter};
use crate::status::{Status, report};
use crate::storage::Space;
use crate::storage::{MachineStorage, Marked, SpaceStorage};
use crate::values::{Pages, StrideKind, reason_of};

/// Or-ed to the stride of `tlbkit_flush_range` and `tlbkit_flush_kernel_range`: page-table pages below the range were
/// taken out, and are freed after the call; CPUs that hold the space lazily are told as well. The stride is that of the
/// smallest translation below them that has not been flushed: only what is named goes, and the paths to it.
pub const TLBKIT_FLUSH_TABLES_FREED: u32 = 1 << 8;
/// Or-ed to the stride of the same calls: everything goes, whatever the range.
pub const TLBKIT_FLUSH_EVERYTHING: u32 = 1 << 9;

/// A range as the protocol has it: so many pages are everything.
#[derive(Clone, Copy)]
struct Flush {
    range: Pages,
    tables: Tables,
}

impl Flush {
    #[inline(always)]
    fn new(va: u64, pages: u64, stride: u32) -> Result<Self, Status> {
        // All that is unusual is above the largest page.
        if stride > StrideKind::Page1g as u32 {
            return Self::flagged(va, pages, stride);
        }
        Ok(Self { range: Pages::new(va, pages, stride)?, tables: Tables::Kept })
    }

    #[cold]
    fn flagged(va: u64, pages: u64, stride: u32) -> Result<Self, Status> {
        let flags = stride & (TLBKIT_FLUSH_TABLES_FREED | TLBKIT_FLUSH_EVERYTHING);
        let range = if flags & TLBKIT_FLUSH_EVERYTHING == 0 {
            Pages::new(va, pages, stride ^ flags)?
        } else {
            Pages { va: VirtAddr(0), count: u64::from(u32::MAX), stride: Stride::Page4K }
        };
        Ok(Self { range, tables: if flags & TLBKIT_FLUSH_TABLES_FREED == 0 { Tables::Kept } else { Tables::Freed } })
    }

    /// Tells no other CPU.
    #[inline(always)]
    fn alone(self, door: &Door, space: &Space) -> Result<(), Status> {
        let (va, pages, stride) = (self.range.va, self.range.clamped(), self.range.stride);
        let alone = door.cpu().flush_range_alone(&space.inner, va, pages, stride, self.tables);
        door.assert_stayed()?;
        alone.map_err(|_others| Status::IrqsOff)
    }
}

/// Flushes `pages` translations of a space from `va` on, everywhere, at once: for a change that frees nothing, such as
/// a permission taken away, or after which the kernel frees by itself. The page tables have been changed. `stride` is
/// an `enum tlbkit_stride`, with `TLBKIT_FLUSH_`s or-ed to it. Preemption off. Interrupts on; if they are off, and only
/// then, `TLBKIT_STATUS_IRQS_OFF` says that another CPU would have to be told: this one has flushed, and the call is to
/// be made again with interrupts on. An archive without checks ends in the panic hook instead.
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
    report(|| {
        let (flush, why) = (Flush::new(va, pages, stride)?, reason_of(reason)?);
        // SAFETY: the crate's contract.
        let (door, space) = unsafe { (enter(machine, cpu, Need::Online)?, Space::find(space)?) };
        if cfg!(feature = "checked") && !door.irqs_enabled() {
            return flush.alone(door, space);
        }
        let (va, pages, stride) = (flush.range.va, flush.range.clamped(), flush.range.stride);
        door.cpu().flush_range_with(&space.inner, va, pages, stride, flush.tables, why);
        door.assert_stayed()
    })
}

/// As `tlbkit_flush_range` with interrupts off, in any archive: tells no other CPU and waits for none. Interrupts on or
/// off, any lock held. It also answers that others must flush where a CPU that used the space before is just between
/// two other spaces, since it may be on its way to this one. A caller that knows that nobody else can switch to the
/// space meanwhile may take that answer for "done".
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tlbkit_flush_range_alone(
    machine: *const MachineStorage,
    cpu: u32,
    space: *const SpaceStorage,
    va: u64,
    pages: u64,
    stride: u32,
) -> Status {
    report(|| {
        let flush = Flush::new(va, pages, stride)?;
        // SAFETY: the crate's contract.
        let (door, space) = unsafe { (enter(machine, cpu, Need::Online)?, Space::find(space)?) };
        flush.alone(door, space)
    })
}

/// Calls `f` on the CPU that makes the call, and tells no other: interrupts on or off.
///
/// # Safety
/// The crate's contract for `machine`.
#[inline(always)]
unsafe fn here(machine: *const MachineStorage, cpu: u32, f: impl FnOnce(&ThisCpu)) -> Status {
    report(|| {
        // SAFETY: the contract.
        let door = unsafe { enter(machine, cpu, Need::Online) }?;
        f(door.cpu());
        door.assert_stayed()
    })
}

/// The same for a range: its first address, its pages, their stride.
///
/// # Safety
/// As for [`here`].
#[inline(always)]
unsafe fn range_here(
    machine: *const MachineStorage,
    cpu: u32,
    (va, pages, stride): (u64, u64, u32),
    f: impl FnOnce(&ThisCpu, Pages),
) -> Status {
    match Pages::new(va, pages, stride) {
        // SAFETY: the contract.
        Ok(range) => unsafe { here(machine, cpu, |cpu| f(cpu, range)) },
        Err(refused) => refused,
    }
}

/// Drops what this CPU holds of `pages` translations from `va` on, in the tables that it has loaded: after a fault that
/// was spurious, or when permission was just widened. It tells no other CPU, so nothing may be freed on the strength of
/// it, and no permission counts as taken away. Interrupts on or off, preemption off.
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
    unsafe { range_here(machine, cpu, (va, pages, stride), f) }
}

/// Drops what this CPU holds of `pages` kernel addresses from `va` on, under isolation in every tag. Without it they
/// count as global: one whose entry lacks that bit stays under the other tags. It tells no other CPU; otherwise as
/// `tlbkit_flush_this_cpu`.
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
    unsafe { range_here(machine, cpu, (va, pages, stride), f) }
}

/// Drops all that this CPU holds of the space that is loaded, in both halves under isolation; global entries and other
/// spaces stay. Otherwise as `tlbkit_flush_this_cpu`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tlbkit_flush_loaded_this_cpu(machine: *const MachineStorage, cpu: u32) -> Status {
    // SAFETY: the crate's contract.
    unsafe { here(machine, cpu, ThisCpu::flush_loaded_on_this_cpu) }
}

/// Drops everything that this CPU holds: every space, both halves, global entries. Otherwise as
/// `tlbkit_flush_this_cpu`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tlbkit_flush_all_this_cpu(machine: *const MachineStorage, cpu: u32) -> Status {
    // SAFETY: the crate's contract.
    unsafe { here(machine, cpu, ThisCpu::flush_all_on_this_cpu) }
}

/// Flushes kernel addresses on every CPU, in every space, for a change that frees nothing, or after which the kernel
/// frees by itself. `stride` as in `tlbkit_flush_range`. Interrupts on. Without isolation they count as global: entries
/// that lack that bit go from all tags by a gather with `TLBKIT_SCOPE_LOCAL`.
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
        let (flush, why) = (Flush::new(va, pages, stride)?, reason_of(reason)?);
        // SAFETY: the crate's contract.
        let door = unsafe { enter(machine, cpu, Need::MayWait) }?;
        let mut gather = TlbGather::new(Translations::OfKernel, Held::NOTHING);
        name(&mut gather, door, flush.range, Scope::Global, why);
        if flush.tables == Tables::Freed {
            gather.tables_freed();
        }
        let _nothing = gather.flush(door.cpu());
        door.assert_stayed()
    })
}
