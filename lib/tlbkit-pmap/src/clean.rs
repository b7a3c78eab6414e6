//! Clean pages of files that are reclaimed from any number of spaces, and flushed when their frames are used again
//! ([`tlbkit::Deferred`]; LUF in Linux).
//!
//! **The rule** is at the head of `flush/defer.rs` of the protocol: what is taken could only be read, is clean, and
//! nobody changes it before the flush. A private mapping maps the page cache's own frame read-only, as long as the page
//! cache has it, and a store goes to a copy.
//!
//! ```text
//!   CPU 0: CleanEviction::take                 CPU 1: a store to the page             CPU 2: loads from it
//!   lock; the entry is clean and read-only
//!   clear it; a flush is owed; unlock                                                 by the old entry: right
//!                                              fault: lock; no entry; is a flush
//!                                              owed? flush all of the space
//!                                              map a copy; unlock; store              by the copy
//!   CleanEviction::defer
//!   Deferred::flush: CPUs that have not
//!   passed; then the frames are used again
//! ```
//! The policy says that such pages may be there ([`Reclaim::AtReuse`]): where it does not, no fault looks.

use crate::memory::{Frame, Memory};
use crate::pmap::user_range;
use crate::pte;
use crate::region::Backing;
use crate::table;
use crate::vm::Vm;
use tlbkit::{Cpu, Deferred, GracePeriods, Hardware, Reclaim, TlbBatch};
use tlbkit_arch::Pte;

/// Base pages of files, of any number of spaces, that are being reclaimed. `F` is where the kernel keeps their frames:
/// a list apart from them, since nothing may be written into a frame before the flush.
#[must_use = "unless it is deferred, frames leak and stale translations stay"]
pub struct CleanEviction<F> {
    batch: TlbBatch<F>,
}

impl<F: Extend<Frame>> CleanEviction<F> {
    /// An empty one.
    pub const fn new(frames: F) -> Self {
        Self { batch: TlbBatch::new(frames) }
    }

    /// Unhooks the pages of the page cache in private mappings among the `pages` pages of `vm` from `va` on, and holds
    /// the reference of each mapping; other pages stay, copies among them. It flushes nothing, and returns how many.
    /// A range that is not in the user half counts as empty.
    ///
    /// The caller sees to it that nobody writes these pages of the file before [`Deferred::flush`] returns, by a call
    /// or through a shared mapping. A copy that a fork has left read-only is told from a page of the file by
    /// [`Memory::file_page`], so the page cache does not drop what is still mapped.
    ///
    /// # Panics
    /// If the policy is not [`Reclaim::AtReuse`]: then faults would not look for what is owed.
    pub fn take<H: Hardware, M: Memory>(
        &mut self,
        cpu: &Cpu<'_, '_, H>,
        mem: &M,
        vm: &Vm<'_, H::Set>,
        va: u64,
        pages: u64,
    ) -> u64 {
        assert!(cpu.tlb().policy().reclaim == Reclaim::AtReuse, "the policy awaits the flush of what is reclaimed");
        let Ok(range) = user_range(va, pages) else { return 0 };
        let _guard = vm.lock.read(cpu.hardware());
        let mut taken = 0;
        // The visit cannot fail.
        let _done = vm.pmap.for_each_table_span(cpu.hardware(), mem, range, |mut span| {
            while let Some((va, entry)) = table::first_leaf(mem, vm.pmap.root(), span.clone()) {
                span.start = va + entry.bytes();
                if entry.level == 1 && is_of_file(mem, vm, va, entry.pte) {
                    let frame = pte::into_frame(Pte(mem.swap(entry.at, 0)));
                    frame.into_iter().for_each(|frame| self.batch.unmap(cpu, vm.space(), frame));
                    taken += 1;
                }
            }
            Ok(())
        });
        taken
    }

    /// Holds a frame that was taken from every space that mapped it: the reference of the page cache itself.
    pub fn hold(&mut self, frame: Frame) {
        self.batch.hold(frame);
    }

    /// Nothing more is taken: from here on CPUs that flush for any reason need not flush for this.
    pub fn defer<H: Hardware>(self, cpu: &Cpu<'_, '_, H>, periods: &GracePeriods<'_>) -> Deferred<F> {
        self.batch.defer(cpu, periods)
    }
}

/// True for a page of the page cache that a store would copy first, so that nobody has written to it.
fn is_of_file<S>(mem: &impl Memory, vm: &Vm<'_, S>, va: u64, pte: Pte) -> bool {
    let region = vm.regions.find(va).filter(|region| region.backing == Backing::FilePrivate);
    let is_copied_first = pte.has(Pte::PRESENT | pte::COW);
    is_copied_first && region.is_some_and(|region| mem.file_page(region.file, region.file_page(va)) == pte.frame())
}
