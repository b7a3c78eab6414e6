//! Reclaim of the pages of files, where a program has been given less memory than its files take.
//!
//! A fault that finds no free page reclaims the pages that were read first, in batches, as the shrink list of Linux'
//! reclaim does with `try_to_unmap_flush`: one flush for each batch, whatever spaces its pages are of, before the pages
//! are free. Under [`Reclaim::AtReuse`] faults reclaim ahead, as `kswapd` does, and leave so many pages unflushed as
//! may be held. When one is needed and none is free, the older half of the batches is flushed at once. Who answers that
//! has flushed for all that were closed by then.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, VecDeque};

use tlbkit::{Cpu, Deferred, PAGE_BYTES, PhysAddr, Reason, Reclaim};
use tlbkit_pmap::{CleanEviction, Eviction, Frame, Memory};
use tlbkit_workloads::os::{FileLimit, ReadAhead};

use super::memory::KernelMemory;
use super::state::Kernel;
use super::task::Process;
use crate::multiprocessor::Port;

/// A page of a file, by the file and its number there.
pub(super) type FilePage = (u32, u64);

/// What a page's frame is.
const BASE_SHIFT: u8 = 12;

/// The most pages that one flush covers.
const MOST_PAGES: usize = 512;

/// A private mapping of a file, from its first page on: where it begins, and its pages.
#[derive(Clone, Copy)]
struct FileMap {
    process: &'static Process,
    va: u64,
    pages: u64,
}

/// What of the files is in memory, where that is limited.
#[derive(Default)]
pub(super) struct Reclaimer {
    /// None where memory is enough.
    limit: Cell<Option<FileLimit>>,
    /// Pages that are in memory, or held, or being reclaimed.
    used: Cell<u64>,
    /// Those in memory, the one that was read first at the front.
    order: RefCell<VecDeque<FilePage>>,
    /// Where private mappings of each file lie.
    maps: RefCell<BTreeMap<u32, Vec<FileMap>>>,
    /// Batches that were not flushed, the oldest first, with the pages that come free with each.
    held: RefCell<VecDeque<(Deferred<Vec<Frame>>, u64)>>,
}

impl Reclaimer {
    /// Memory is short from now on.
    pub(super) fn limit(&self, limit: FileLimit) {
        self.limit.set(Some(FileLimit { held: limit.held.min(limit.pages / 2), ..limit }));
    }

    pub(super) fn is_limited(&self) -> bool {
        self.limit.get().is_some()
    }

    /// How many pages a fault reads, which `around` are at most.
    pub(super) fn pages_of_fault(&self, around: u64) -> u64 {
        let reads_one = self.limit.get().is_some_and(|limit| limit.read_ahead == ReadAhead::Nothing);
        if reads_one { 1 } else { around }
    }

    /// The process maps the file privately in `pages` pages from `va` on, from the first page of the file.
    pub(super) fn mapped(&self, process: &'static Process, file: u32, va: u64, pages: u64) {
        self.maps.borrow_mut().entry(file).or_default().push(FileMap { process, va, pages });
    }

    /// The process ends, or maps other pages at `va`.
    pub(super) fn unmapped(&self, process: &'static Process, va: Option<u64>) {
        let is_other = |map: &FileMap| !std::ptr::eq(map.process, process) || va.is_some_and(|va| va != map.va);
        self.maps.borrow_mut().values_mut().for_each(|maps| maps.retain(is_other));
    }

    /// The page was read into memory.
    pub(super) fn read(&self, page: FilePage) {
        self.used.set(self.used.get() + 1);
        self.order.borrow_mut().push_back(page);
    }

    /// Calls `f` with each process that may map the page, and the address there. Nothing is borrowed meanwhile.
    fn for_each_map(&self, page: FilePage, mut f: impl FnMut(&'static Process, u64)) {
        let mut next = 0;
        loop {
            let map = self.maps.borrow().get(&page.0).and_then(|maps| maps.get(next).copied());
            let Some(FileMap { process, va, pages }) = map else { return };
            next += 1;
            if page.1 < pages {
                f(process, va + page.1 * PAGE_BYTES);
            }
        }
    }
}

impl Kernel {
    /// Makes room for the pages of a file that a fault reads, before it. Other CPUs may take the room: memory is
    /// exceeded then by what each reads.
    pub(super) fn make_room(&'static self) {
        let reclaimer = &self.reclaimer;
        let Some(limit) = reclaimer.limit.get() else { return };
        let read = reclaimer.pages_of_fault(self.settings.fault_around);
        let full = limit.pages.saturating_sub(read - 1);
        self.machine.with_cpu(self.machine.cpu(), |cpu| {
            for _ in 0..read.div_ceil(limit.batch) {
                match cpu.tlb().policy().reclaim {
                    Reclaim::Awaited if reclaimer.used.get() >= full => self.evict_batch(&cpu, limit),
                    Reclaim::Awaited => {}
                    Reclaim::AtReuse => {
                        if reclaimer.order.borrow().len() as u64 + limit.held >= full {
                            self.hold_batch(&cpu, limit);
                        }
                        if reclaimer.used.get() >= full {
                            self.flush_older_half(&cpu, limit);
                        }
                    }
                }
            }
        });
    }

    /// Takes a batch of pages, flushes once, and frees them.
    fn evict_batch(&'static self, cpu: &Cpu<'_, 'static, Port>, limit: FileLimit) {
        let (reclaimer, memory) = (&self.reclaimer, KernelMemory(self));
        let mut eviction = Eviction::<MOST_PAGES>::default();
        let mut taken = Vec::new();
        for _ in 0..limit.batch {
            let Some(page) = reclaimer.order.borrow_mut().pop_front() else { break };
            reclaimer.for_each_map(page, |process, va| eviction.take(cpu, &memory, &process.vm, va, 1));
            taken.push(page);
        }
        eviction.finish(cpu, &memory);
        for page in taken {
            match self.phys.drop_page(page, 1) {
                Some(at) => self.put_cached(at),
                // Somebody has faulted it in meanwhile.
                None => reclaimer.order.borrow_mut().push_back(page),
            }
        }
    }

    /// Takes a batch of pages, which are flushed later.
    fn hold_batch(&'static self, cpu: &Cpu<'_, 'static, Port>, limit: FileLimit) {
        let (reclaimer, memory) = (&self.reclaimer, KernelMemory(self));
        let mut eviction = CleanEviction::new(Vec::new());
        let mut pages = 0;
        for _ in 0..limit.batch {
            let Some(page) = reclaimer.order.borrow_mut().pop_front() else { break };
            let mut taken = 0;
            reclaimer.for_each_map(page, |process, va| taken += eviction.take(cpu, &memory, &process.vm, va, 1));
            match self.phys.drop_page(page, 1 + taken as u32) {
                Some(at) => {
                    eviction.hold(Frame { at, shift: BASE_SHIFT });
                    pages += 1;
                }
                // Somebody is just faulting it in.
                None => reclaimer.order.borrow_mut().push_back(page),
            }
        }
        self.observer().retired(pages);
        let deferred = eviction.defer(cpu, self.machine.periods());
        reclaimer.held.borrow_mut().push_back((deferred, pages));
    }

    /// Flushes the older half of what is held, at once, and frees its pages.
    fn flush_older_half(&'static self, cpu: &Cpu<'_, 'static, Port>, limit: FileLimit) {
        let Some((mut all, mut pages)) = self.reclaimer.held.borrow_mut().pop_front() else { return };
        while pages < limit.held / 2 {
            let Some((next, more)) = self.reclaimer.held.borrow_mut().pop_front() else { break };
            all.fold(cpu, next);
            pages += more;
        }
        for frame in all.flush(cpu, self.machine.periods(), Reason::RemovePte).into_frames() {
            self.put_cached(frame.at);
        }
        self.observer().given_back(pages);
    }

    /// Drops a reference of a page that was in memory, and frees it with the last.
    fn put_cached(&'static self, at: PhysAddr) {
        if self.phys.release(at) {
            self.phys.free(Frame { at, shift: BASE_SHIFT });
            self.reclaimer.used.set(self.reclaimer.used.get() - 1);
        }
    }
}
