//! The kernel's own page tables, and temporary mappings in them, as a buffer cache or `vmap` makes them.
//!
//! Mapping a window needs no flush, since none of its entries was present. Unmapping flushes on every CPU before the
//! frames are put and before the addresses can be reused.

use crate::error::Error;
use crate::foreign::Window;
use crate::gather::MmuGather;
use crate::lock::SpinLock;
use crate::memory::{Frame, Memory};
use crate::table::{self, Found, Root};
use tlbkit::sync::{AtomicU64, Ordering};
use tlbkit::{Cpu, Hardware, Isolation, PAGE_BYTES, PhysAddr, Reason, Scope};
use tlbkit_arch::Pte;

/// Pages of one window.
pub const WINDOW_PAGES: u64 = 16;

const BASE: u64 = 0xffff_9000_0000_0000;

/// The kernel half of the page tables, which every space shares.
#[repr(align(64))]
pub struct KernelMap<'k> {
    root: Root,
    /// One bit per window, set while the window is mapped.
    used: &'k [AtomicU64],
    lock: SpinLock,
    pub(crate) foreign: Window,
}

/// A mapping in the kernel half, until it is passed to [`KernelMap::unmap`].
#[derive(Debug, PartialEq, Eq)]
#[must_use = "a window that is not unmapped leaks its addresses and its frames"]
pub struct KernelWindow {
    /// The first address.
    pub va: u64,
    /// The number of base pages.
    pub pages: u64,
}

impl<'k> KernelMap<'k> {
    /// Tables for `64 * used.len()` windows; `used` is zeroed. The kernel half must be created before the first space,
    /// because every space copies its top level.
    ///
    /// # Errors
    /// [`Error::OutOfMemory`].
    pub fn new(mem: &impl Memory, used: &'k [AtomicU64]) -> Result<Self, Error> {
        let at = mem.alloc(12, crate::memory::Purpose::Table).ok_or(Error::OutOfMemory)?.at;
        let root = Root { at, isolation: Isolation::Off };
        // The top-level entry must exist before the first space copies it. The levels below are shared by reference.
        table::create(mem, root, BASE, 1).ok_or(Error::OutOfMemory)?;
        Ok(Self { root, used, lock: SpinLock::new(), foreign: Window::new() })
    }

    /// The root to pass to `Tlb::new`.
    #[must_use]
    pub const fn root(&self) -> PhysAddr {
        self.root.at
    }

    /// Maps up to [`WINDOW_PAGES`] of `frames` and takes a reference to each. `None` if all windows are in use.
    ///
    /// # Errors
    /// [`Error::OutOfMemory`].
    pub fn map<H: Hardware>(
        &self,
        cpu: &Cpu<'_, '_, H>,
        mem: &impl Memory,
        frames: impl IntoIterator<Item = PhysAddr>,
    ) -> Result<Option<KernelWindow>, Error> {
        let Some(n) = self.claim_window() else { return Ok(None) };
        let mut window = KernelWindow { va: BASE + n * WINDOW_PAGES * PAGE_BYTES, pages: 0 };
        let global = if cpu.tlb().policy().isolation == Isolation::On { 0 } else { Pte::GLOBAL };
        let bits = Pte::PRESENT | Pte::WRITE | Pte::ACCESSED | Pte::DIRTY | Pte::NO_EXECUTE | global;
        for frame in frames.into_iter().take(WINDOW_PAGES as usize) {
            let _guard = self.lock.lock(cpu.hardware());
            let va = window.va + window.pages * PAGE_BYTES;
            let Some((entry, _)) = table::create(mem, self.root, va, 1) else {
                // A window lies in one table, so this is its first page.
                self.release_window(n);
                return Err(Error::OutOfMemory);
            };
            mem.share(frame);
            mem.store(entry.at, Pte::new(frame, bits).0);
            window.pages += 1;
        }
        Ok(Some(window))
    }

    /// Unmaps a window, flushes it on every CPU and puts its frames.
    pub fn unmap<H: Hardware>(&self, cpu: &Cpu<'_, '_, H>, mem: &impl Memory, window: KernelWindow) {
        let mut gather = MmuGather::<H, _, { WINDOW_PAGES as usize }>::of_kernel(cpu, mem);
        let mut scope = Scope::Global;
        for va in (0..window.pages).map(|page| window.va + page * PAGE_BYTES) {
            let _guard = self.lock.lock(cpu.hardware());
            if let Found::Leaf(entry) = table::find(mem, self.root, va) {
                let old = Pte(mem.swap(entry.at, 0));
                // A translation that is not global may be cached under several PCIDs, so one such entry decides the
                // scope of the whole flush.
                scope = if old.has(Pte::GLOBAL) { scope } else { Scope::NonGlobal };
                gather.hold(Frame { at: old.frame(), shift: 12 });
            }
        }
        // One request for the whole window, even under policies that send each request at once, as NetBSD did about
        // 5.0.
        gather.range(window.va, window.pages, scope, Reason::KernelRemove);
        gather.finish();
        self.release_window((window.va - BASE) / PAGE_BYTES / WINDOW_PAGES);
    }

    fn claim_window(&self) -> Option<u64> {
        self.used.iter().zip(0..).find_map(|(word, n)| Some(n * 64 + u64::from(claim_bit(word)?)))
    }

    fn release_window(&self, n: u64) {
        // Release: the flush is complete before the window can be claimed; partner is the Acquire in `claim_bit`.
        self.used[(n / 64) as usize].fetch_and(!(1 << (n % 64)), Ordering::Release);
    }
}

fn claim_bit(word: &AtomicU64) -> Option<u32> {
    loop {
        // Relaxed: a guess, which the `fetch_or` below confirms.
        let bit = word.load(Ordering::Relaxed).trailing_ones();
        if bit == 64 {
            return None;
        }
        // Acquire: partner is the Release in `release_window`.
        if word.fetch_or(1 << bit, Ordering::Acquire) & 1 << bit == 0 {
            return Some(bit);
        }
    }
}
