//! The kernel's own tables, and windows in them as a buffer cache uses: mapped, read through, unmapped.
//!
//! Mapping needs no flush, since nothing was present. Unmapping flushes on every CPU before the frames are released and
//! before the window's addresses can be given out again.

use crate::error::Error;
use crate::foreign::Window;
use crate::gather::Unhook;
use crate::lock::SpinLock;
use crate::memory::{Frame, Memory};
use crate::table::{self, Found, Root};
use tlbkit::sync::{AtomicU64, Ordering};
use tlbkit::{Cpu, Hardware, Isolation, PAGE_BYTES, PhysAddr, Reason, Scope};
use tlbkit_arch::Pte;

/// Pages of one window.
pub const WINDOW_PAGES: u64 = 16;

const BASE: u64 = 0xffff_9000_0000_0000;

/// The kernel half, shared by every space.
#[repr(align(64))]
pub struct KernelMap<'k> {
    root: Root,
    /// One bit a window; set while it is mapped.
    used: &'k [AtomicU64],
    lock: SpinLock,
    pub(crate) foreign: Window,
}

/// Some pages of the kernel's addresses, mapped until they are given back.
#[derive(Debug, PartialEq, Eq)]
#[must_use = "a window that is not unmapped is lost"]
pub struct KernelWindow {
    /// First address.
    pub va: u64,
    /// Base pages mapped.
    pub pages: u64,
}

impl<'k> KernelMap<'k> {
    /// Tables for `64 * used.len()` windows; `used` holds zeros. Before any space, which copies its top level.
    ///
    /// # Errors
    /// [`Error::OutOfMemory`].
    pub fn new(mem: &impl Memory, used: &'k [AtomicU64]) -> Result<Self, Error> {
        let at = mem.alloc(12, crate::memory::Purpose::Table).ok_or(Error::OutOfMemory)?.at;
        let root = Root { at, isolation: Isolation::Off };
        // The top-level entry must exist before the first space copies it; the levels below are shared by reference.
        table::create(mem, root, BASE, 1).ok_or(Error::OutOfMemory)?;
        Ok(Self { root, used, lock: SpinLock::new(), foreign: Window::new() })
    }

    /// What to hand to `Tlb::new`.
    #[must_use]
    pub const fn root(&self) -> PhysAddr {
        self.root.at
    }

    /// Maps `frames`, at most [`WINDOW_PAGES`], sharing each; nothing if all windows are in use.
    ///
    /// # Errors
    /// [`Error::OutOfMemory`].
    pub fn map<H: Hardware>(
        &self,
        cpu: &Cpu<'_, '_, H>,
        mem: &impl Memory,
        frames: impl IntoIterator<Item = PhysAddr>,
    ) -> Result<Option<KernelWindow>, Error> {
        let Some(n) = self.claim() else { return Ok(None) };
        let mut window = KernelWindow { va: BASE + n * WINDOW_PAGES * PAGE_BYTES, pages: 0 };
        let global = if cpu.tlb().policy().isolation == Isolation::On { 0 } else { Pte::GLOBAL };
        let bits = Pte::PRESENT | Pte::WRITE | Pte::ACCESSED | Pte::DIRTY | Pte::NO_EXECUTE | global;
        for frame in frames.into_iter().take(WINDOW_PAGES as usize) {
            let guard = self.lock.lock(cpu.hardware());
            let va = window.va + window.pages * PAGE_BYTES;
            let Some((slot, _)) = table::create(mem, self.root, va, 1) else {
                drop(guard);
                self.unmap(cpu, mem, window);
                return Err(Error::OutOfMemory);
            };
            mem.share(frame);
            mem.store(slot.at, Pte::new(frame, bits).0);
            window.pages += 1;
        }
        Ok(Some(window))
    }

    /// Unmaps a window on every CPU and releases its frames.
    pub fn unmap<H: Hardware>(&self, cpu: &Cpu<'_, '_, H>, mem: &impl Memory, window: KernelWindow) {
        // Room for one more: the window is named as a whole before the flush.
        let mut unhook = Unhook::<H, _, { WINDOW_PAGES as usize + 1 }>::of_kernel(cpu, mem);
        let mut scope = Scope::Global;
        for va in (0..window.pages).map(|page| window.va + page * PAGE_BYTES) {
            let guard = self.lock.lock(cpu.hardware());
            if let Found::Leaf(slot) = table::find(mem, self.root, va) {
                let old = Pte(mem.swap(slot.at, 0));
                drop(guard);
                // One that is not global is in other tags as well: it decides for all of them.
                scope = if old.has(Pte::GLOBAL) { scope } else { Scope::Local };
                unhook.hold(Frame { at: old.frame(), shift: 12 });
            }
        }
        // One request for the window, even by kernels that send each at once, as NetBSD did about 5.0.
        unhook.range(window.va, window.pages, scope, Reason::KernelRemove);
        unhook.finish();
        self.give_back((window.va - BASE) / PAGE_BYTES / WINDOW_PAGES);
    }

    fn claim(&self) -> Option<u64> {
        self.used.iter().zip(0..).find_map(|(word, n)| Some(n * 64 + u64::from(claim_bit(word)?)))
    }

    fn give_back(&self, n: u64) {
        // Release: the flush comes before; partner is the Acquire in `claim_bit`.
        self.used[(n / 64) as usize].fetch_and(!(1 << (n % 64)), Ordering::Release);
    }
}

fn claim_bit(word: &AtomicU64) -> Option<u32> {
    loop {
        // Relaxed: a guess; the next line decides.
        let bit = word.load(Ordering::Relaxed).trailing_ones();
        if bit == 64 {
            return None;
        }
        // Acquire: partner is the Release in `give_back`.
        if word.fetch_or(1 << bit, Ordering::Acquire) & 1 << bit == 0 {
            return Some(bit);
        }
    }
}
