//! Counters by reason, and the size histogram: asked for by the policy, else nothing in any path.

use crate::cpu_state::Cpu;
use crate::hardware::Hardware;
use crate::request::Request;
use crate::sync::Owned;

/// Why translations were revoked.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum Reason {
    /// A mapping was removed page by page.
    RemovePte,
    /// A whole space was emptied.
    RemoveAll,
    /// Write permission was taken away.
    WriteProtect,
    /// Fork shared the pages of the parent.
    Fork,
    /// A copy replaced a shared page.
    CopyOnWrite,
    /// A mapping was replaced by another.
    Enter,
    /// A page-table page was freed.
    FreeTable,
    /// A kernel mapping was made over an old one.
    KernelEnter,
    /// A kernel mapping was removed.
    KernelRemove,
    /// The window to foreign page tables was moved.
    ForeignTables,
    /// A page was moved to another frame.
    Migrate,
    /// A space ended.
    Destroy,
}

impl Reason {
    /// All of them, in order of their numbers.
    pub const ALL: [Self; 12] = [
        Self::RemovePte,
        Self::RemoveAll,
        Self::WriteProtect,
        Self::Fork,
        Self::CopyOnWrite,
        Self::Enter,
        Self::FreeTable,
        Self::KernelEnter,
        Self::KernelRemove,
        Self::ForeignTables,
        Self::Migrate,
        Self::Destroy,
    ];
}

/// Where a flush of one reason had its effect.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum Place {
    /// On the CPU that asked, user addresses.
    Local,
    /// Interrupts sent to others, any address.
    Remote,
    /// On the CPU that asked, kernel addresses.
    Kernel,
}

impl Place {
    /// All of them, in order of their numbers.
    pub const ALL: [Self; 3] = [Self::Local, Self::Remote, Self::Kernel];
}

/// Sizes that have a row of their own: 1 to this many pages.
pub const SIZES: usize = 512;

/// One row of the histogram of flush sizes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct SizeRow {
    /// Flushes of this size.
    pub samples: u64,
    /// Cycles of their local halves, interrupts sent included.
    pub cycles: u64,
}

/// One CPU's counters; only it writes them.
pub struct CpuStats {
    events: [[Owned; 3]; Reason::ALL.len()],
    samples: [Owned; SIZES + 1],
    cycles: [Owned; SIZES + 1],
}

impl CpuStats {
    /// All zero.
    #[must_use]
    pub const fn new() -> Self {
        Self {
            events: [const { [const { Owned::new(0) }; 3] }; Reason::ALL.len()],
            samples: [const { Owned::new(0) }; SIZES + 1],
            cycles: [const { Owned::new(0) }; SIZES + 1],
        }
    }

    /// Flushes for `reason` at `place`.
    #[must_use]
    pub fn events(&self, reason: Reason, place: Place) -> u64 {
        self.events[reason as usize][place as usize].get()
    }

    /// The histogram's row for `pages` pages, 1 to [`SIZES`]; 0 for flushes of everything.
    #[must_use]
    pub fn size(&self, pages: usize) -> SizeRow {
        SizeRow { samples: self.samples[pages].get(), cycles: self.cycles[pages].get() }
    }

    fn add(&self, reason: Reason, place: Place, n: u64) {
        let cell = &self.events[reason as usize][place as usize];
        cell.set(cell.get() + n);
    }
}

impl Default for CpuStats {
    fn default() -> Self {
        Self::new()
    }
}

impl<H: Hardware> Cpu<'_, '_, H> {
    #[cold]
    pub(crate) fn count(&self, request: &Request, reason: Reason, told: u32, cycles: u64) {
        let Some(stats) = self.stats() else { return };
        let here = if request.space.0 == 0 { Place::Kernel } else { Place::Local };
        stats.add(reason, here, 1);
        stats.add(reason, Place::Remote, u64::from(told));
        // Sizes without a row count as everything: nobody flushes more than 512 pages one by one.
        let row = request.pages().map_or(0, |pages| if pages as usize <= SIZES { pages as usize } else { 0 });
        stats.samples[row].set(stats.samples[row].get() + 1);
        stats.cycles[row].set(stats.cycles[row].get() + cycles);
    }
}
