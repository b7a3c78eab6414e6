//! Calls of the protocol that the page tables of `tlbkit-pmap` do not make: the little kernel has page tables of its
//! own beside theirs, one tree in the kernel half and one in a space, and takes each out whole, in several ways. And
//! each CPU has a page in either that only it uses, and flushes for itself.

use std::ops::Range;

use tlbkit::{
    Flushed, Hardware, Isolation, PAGE_BYTES, PhysAddr, Reason, Scope, Stride, Tables, TlbBatch, TlbGather,
    Translations, VirtAddr,
};
use tlbkit_arch::{Pte, entry_at};
use tlbkit_pmap::{Frame, Memory, Purpose};

use super::pages::{KERNEL_TREE, TREE};
use crate::machine::guest::Host;
use crate::machine::memory::file_page;
use crate::machine::port::Protocol;
use crate::machine::world::{Space, World};

/// What a tree maps.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Leaves {
    /// Base pages.
    Small,
    /// These and a large page, if there is a frame for it.
    Both,
}

/// How a tree is taken out.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum TakenBy {
    /// A gather to which each page and each table is named.
    Gather,
    /// A gather to which the pages are named, for a kernel that frees the tables by itself. In the kernel half these
    /// are global pages.
    GatherOfPages,
    /// One call for the whole range.
    Range,
    /// The same by a CPU that may tell nobody; if somebody must be told, it tells them then.
    RangeAlone,
    /// A batch.
    Batch,
    /// A batch that was used before.
    BatchReused,
}

impl TakenBy {
    pub(super) const ALL: [Self; 6] =
        [Self::Gather, Self::GatherOfPages, Self::Range, Self::RangeAlone, Self::Batch, Self::BatchReused];
}

/// How a CPU flushes the page that is its own.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FlushedBy {
    /// Its page in the kernel half, by name.
    KernelPage,
    /// The same, by a flush of everything.
    Everything,
    /// Its page in the space, by name.
    Page,
    /// The same, by a flush of all of the space.
    Loaded,
}

impl FlushedBy {
    pub(super) const ALL: [Self; 4] = [Self::KernelPage, Self::Everything, Self::Page, Self::Loaded];
}

/// Page tables of the little kernel's own: a table whose first entry leads to another one, and whose second may map a
/// large page.
#[derive(Clone, Copy)]
pub(crate) struct Tree {
    /// The space that has it; none for that of the kernel.
    pub(super) space: Option<usize>,
    upper: PhysAddr,
    lower: PhysAddr,
    page: PhysAddr,
    large: Option<PhysAddr>,
}

const TABLE_BITS: u64 = Pte::PRESENT | Pte::WRITE | Pte::USER | Pte::ACCESSED;
/// The level whose entry leads to a tree.
const TOP: u32 = 3;
/// In the lower table: the page that everybody uses, then one for each CPU.
const FIRST_OWN: u64 = 1;

impl<'k> World<'k> {
    /// Enters a tree in the kernel half, or in `space`, unless there is one.
    pub(super) fn enter_tree(&self, space: Option<usize>, leaves: Leaves) {
        let slot = self.kernel.tree(space);
        let Some(top) = self.top_entry(space) else { return };
        if slot.get().is_some() {
            return;
        }
        let frames = [Purpose::Table, Purpose::Table, Purpose::Data].map(|purpose| self.bus().alloc(12, purpose));
        let [Some(upper), Some(lower), Some(page)] = frames else {
            return frames.into_iter().flatten().for_each(|frame| self.bus().put(frame));
        };
        let large = if leaves == Leaves::Both { self.bus().alloc(21, Purpose::Data) } else { None };
        let large = large.map(|frame| frame.at);
        let tree = Tree { space, upper: upper.at, lower: lower.at, page: page.at, large };
        let bits = self.leaf_bits(space);
        let store = |table: PhysAddr, index: u64, pte: Pte| self.bus().store(PhysAddr(table.0 + 8 * index), pte.0);
        store(tree.lower, 0, Pte::new(tree.page, bits));
        for own in 0..self.issued.len() as u64 {
            store(tree.lower, FIRST_OWN + own, Pte::new(file_page(0), bits & !Pte::WRITE));
        }
        store(tree.upper, 0, Pte::new(tree.lower, TABLE_BITS));
        large.into_iter().for_each(|large| store(tree.upper, 1, Pte::new(large, bits | Pte::LARGE)));
        // Who finds the tree finds what it holds.
        self.machine.borrow_mut().drain();
        if slot.get().is_some() {
            // Another CPU was faster.
            return self.free(&tree);
        }
        // It does not go before it is there.
        self.kernel.use_tree();
        slot.set(Some(tree));
        self.bus().store(top, Pte::new(tree.upper, TABLE_BITS).0);
        self.machine.borrow_mut().drain();
        self.kernel.unuse_tree();
        let own = (0..self.issued.len() as u64 + FIRST_OWN).map(|n| n * PAGE_BYTES);
        let addresses = own.chain(tree.large.map(|_| Stride::Page2M.bytes()));
        addresses.for_each(|offset| self.machine.borrow_mut().watch(range_of(space).start + offset));
    }

    /// Takes the tree of the kernel half out, or that of `space`, flushes, and frees it.
    pub(super) fn take_tree(&self, cpu: usize, space: Option<usize>, by: TakenBy) {
        let slot = self.kernel.tree(space);
        let Some(tree) = slot.get().filter(|tree| tree.space == space && !self.kernel.is_tree_used()) else { return };
        slot.set(None);
        let range = range_of(space);
        match space {
            Some(space) => {
                self.revoke(cpu, space, "take tables", &range, |handle, vm| {
                    self.unhook(&tree);
                    self.flush_tree(&handle, vm, &tree, by);
                    self.free(&tree);
                });
            }
            None => {
                self.machine.borrow_mut().begin("take kernel tables", None, range);
                self.with_cpu(cpu, |handle| {
                    self.unhook(&tree);
                    self.flush_kernel_tree(&handle, &tree, by);
                    self.free(&tree);
                });
                self.machine.borrow_mut().end();
            }
        }
    }

    /// Takes out the page that only this CPU uses and flushes it here, or enters it again.
    pub(super) fn change_own_page(&self, cpu: usize, by: FlushedBy) {
        let space = match by {
            FlushedBy::KernelPage | FlushedBy::Everything => None,
            FlushedBy::Page | FlushedBy::Loaded => match self.kernel.runs(cpu) {
                // What is held in lazy TLB mode may be flushed, too.
                None => return self.with_cpu(cpu, |handle| handle.flush_loaded_on_this_cpu()),
                space => space,
            },
        };
        let Some(tree) = self.kernel.tree(space).get().filter(|tree| tree.space == space) else { return };
        self.kernel.use_tree();
        let index = FIRST_OWN + cpu as u64;
        let (entry, va) = (PhysAddr(tree.lower.0 + 8 * index), VirtAddr(range_of(space).start + index * PAGE_BYTES));
        self.machine.borrow_mut().begin("own page", None, 0..0);
        if Pte(self.bus().load(entry)).has(Pte::PRESENT) {
            self.bus().swap(entry, 0);
            self.with_cpu(cpu, |handle| match by {
                FlushedBy::KernelPage => handle.flush_kernel_on_this_cpu(va, 1, Stride::Page4K),
                FlushedBy::Everything => handle.flush_all_on_this_cpu(),
                FlushedBy::Page => handle.flush_this_cpu(va, 1, Stride::Page4K),
                FlushedBy::Loaded => handle.flush_loaded_on_this_cpu(),
            });
            self.machine.borrow_mut().end_here();
        } else {
            self.bus().store(entry, Pte::new(file_page(0), self.leaf_bits(space) & !Pte::WRITE).0);
            self.machine.borrow_mut().end_here();
        }
        self.kernel.unuse_tree();
    }

    /// Takes the right to write from the page that everybody uses, and flushes that; or gives it back.
    pub(super) fn protect_tree(&self, cpu: usize, space: usize) {
        let Some(tree) = self.kernel.tree(Some(space)).get().filter(|tree| tree.space == Some(space)) else { return };
        self.kernel.use_tree();
        let old = Pte(self.bus().load(tree.lower));
        if old.has(Pte::WRITE) {
            self.revoke(cpu, space, "narrow", &(0..0), |handle, vm| {
                self.bus().swap(tree.lower, old.without(Pte::WRITE).0);
                handle.flush_range(vm.space(), VirtAddr(TREE.start), 1, Stride::Page4K, Reason::WriteProtect);
            });
        } else {
            self.bus().store(tree.lower, old.with(Pte::WRITE).0);
        }
        self.kernel.unuse_tree();
    }

    /// Gives back what there is when all programs are over.
    pub(super) fn take_trees(&self) {
        for tree in self.kernel.trees() {
            if let Some(tree) = tree.get() {
                self.take_tree(0, tree.space, TakenBy::Gather);
            }
        }
    }

    fn leaf_bits(&self, space: Option<usize>) -> u64 {
        let bits = Pte::PRESENT | Pte::WRITE | Pte::ACCESSED | Pte::DIRTY | Pte::NO_EXECUTE;
        match space {
            Some(_) => bits | Pte::USER,
            None if self.tlb.policy().isolation == Isolation::On => bits,
            None => bits | Pte::GLOBAL,
        }
    }

    /// The entry that leads to the tree; a space has a table for it if a page is mapped in its first GiBs.
    fn top_entry(&self, space: Option<usize>) -> Option<PhysAddr> {
        let (root, va) = match space {
            Some(_) if self.kernel.has_directories => return None,
            Some(space) => (self.vm(space).space().root(), TREE.start),
            None => (self.kernel_map.root(), KERNEL_TREE.start),
        };
        let above = Pte(self.bus().load(entry_at(root, VirtAddr(va), TOP + 1)));
        above.has(Pte::PRESENT).then(|| entry_at(above.frame(), VirtAddr(va), TOP))
    }

    /// Takes out the tables, then every entry in them.
    fn unhook(&self, tree: &Tree) {
        let top = self.top_entry(tree.space).expect("a table, since the tree was entered");
        self.bus().swap(top, 0);
        let own = (0..FIRST_OWN + self.issued.len() as u64).map(|index| tree.lower.0 + 8 * index);
        let large = tree.large.map(|_| tree.upper.0 + 8);
        own.chain(large).for_each(|entry| _ = self.bus().swap(PhysAddr(entry), 0));
    }

    fn flush_tree(&self, handle: &Protocol<'_, 'k, '_>, vm: &Space<'k>, tree: &Tree, by: TakenBy) {
        let (start, pages) = (VirtAddr(TREE.start), 2 * 512);
        let space = vm.space();
        let whole = || handle.flush_range_with(space, start, pages, Stride::Page4K, Tables::Freed, Reason::RemovePte);
        match by {
            TakenBy::Gather => self.gather(handle, Translations::OfSpace(space), tree, Scope::NonGlobal),
            TakenBy::GatherOfPages => self.gather_pages(handle, Translations::OfSpace(space), tree, Scope::NonGlobal),
            TakenBy::Range => whole(),
            TakenBy::RangeAlone => {
                let alone = |_: &_| handle.flush_range_alone(space, start, pages, Stride::Page4K, Tables::Freed);
                if handle.hardware().with_irqs_off(alone).is_err() {
                    whole();
                }
            }
            TakenBy::Batch | TakenBy::BatchReused => {
                let mut batch = TlbBatch::new(Vec::new());
                batch.revoke(handle, space);
                if by == TakenBy::BatchReused {
                    batch.flush_and_reuse(handle, Reason::RemovePte, Vec::clear);
                }
                batch.unmap_table(handle, space, small(tree.lower));
                batch.unmap_table(handle, space, small(tree.upper));
                if by == TakenBy::BatchReused {
                    return batch.flush_and_reuse(handle, Reason::RemovePte, Vec::clear);
                }
                forget(batch.flush(handle, Reason::RemovePte));
            }
        }
    }

    fn flush_kernel_tree(&self, handle: &Protocol<'_, 'k, '_>, tree: &Tree, by: TakenBy) {
        let scope = if self.tlb.policy().isolation == Isolation::On { Scope::NonGlobal } else { Scope::Global };
        match by {
            TakenBy::GatherOfPages => self.gather_pages(handle, Translations::OfKernel, tree, scope),
            _ => self.gather(handle, Translations::OfKernel, tree, scope),
        }
    }

    fn gather(&self, handle: &Protocol<'_, 'k, '_>, whose: Translations<'_, Set<'k>>, tree: &Tree, scope: Scope) {
        let start = range_of(tree.space).start;
        let mut gather = TlbGather::new(whose, Vec::new());
        if self.kernel.has_walkers {
            gather.interrupt_walkers();
        }
        gather.unmap(handle, VirtAddr(start), Stride::Page4K, scope, Reason::RemovePte, small(tree.page));
        for own in (FIRST_OWN..).take(self.issued.len()) {
            gather.page(handle, VirtAddr(start + own * PAGE_BYTES), Stride::Page4K, scope, Reason::RemovePte);
        }
        let large = VirtAddr(start + Stride::Page2M.bytes());
        if let Some(at) = tree.large {
            let frame = Frame { at, shift: 21 };
            gather.unmap(handle, large, Stride::Page2M, scope, Reason::RemovePte, frame);
        }
        gather.unmap_table(handle, VirtAddr(start), 0, small(tree.lower));
        gather.unmap_table(handle, VirtAddr(start), 0, small(tree.upper));
        forget(gather.flush(handle));
    }

    fn gather_pages(&self, handle: &Protocol<'_, 'k, '_>, whose: Translations<'_, Set<'k>>, tree: &Tree, scope: Scope) {
        let start = range_of(tree.space).start;
        let mut gather = TlbGather::new(whose, Vec::<Frame>::new());
        let pages = FIRST_OWN + self.issued.len() as u64;
        gather.range(handle, VirtAddr(start), pages, Stride::Page4K, scope, Reason::RemovePte);
        if tree.large.is_some() {
            let large = VirtAddr(start + Stride::Page2M.bytes());
            gather.page(handle, large, Stride::Page2M, scope, Reason::RemovePte);
        }
        gather.tables_freed();
        if self.kernel.has_walkers || self.machine.borrow().host != Host::None {
            gather.interrupt_walkers();
        }
        forget(gather.flush(handle));
    }

    fn free(&self, tree: &Tree) {
        [tree.lower, tree.upper, tree.page].into_iter().for_each(|at| self.bus().put(small(at)));
        tree.large.into_iter().for_each(|at| self.bus().put(Frame { at, shift: 21 }));
    }
}

type Set<'k> = &'k [tlbkit::sync::AtomicU64];

/// The tree knows its frames by itself.
fn forget(flushed: Flushed<Vec<Frame>>) {
    drop(flushed.into_frames());
}

fn small(at: PhysAddr) -> Frame {
    Frame { at, shift: 12 }
}

fn range_of(space: Option<usize>) -> Range<u64> {
    if space.is_some() { TREE } else { KERNEL_TREE }
}
