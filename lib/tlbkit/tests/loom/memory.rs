//! Page tables and frames. What is freed is a plain cell for loom: whoever touches it must come before the free by
//! happens-before, not by luck, or loom reports the race.

use std::cell::Cell;

use loom::cell::UnsafeCell;
use tlbkit::sync::{AtomicU64, Ordering};
use tlbkit::{CpuId, PAGE_BYTES, Sharers, VirtAddr};

/// The table that holds the kernel's pages; spaces come after it.
pub(crate) const KERNEL: usize = 0;

/// A frame, or the page-table pages of a space.
pub(crate) struct Frame {
    content: UnsafeCell<()>,
    is_freed: Cell<bool>,
}

impl Frame {
    fn new() -> Self {
        Self { content: UnsafeCell::new(()), is_freed: Cell::new(false) }
    }

    /// A CPU reads it, through a translation or by a walk.
    pub(crate) fn touch(&self, who: &str) {
        assert!(!self.is_freed(), "INV-6: {who} reached what was freed");
        self.content.with(|_| ());
    }

    pub(crate) fn is_freed(&self) -> bool {
        self.is_freed.get()
    }

    /// Its owner has it for itself again.
    pub(crate) fn free(&self) {
        assert!(!self.is_freed.replace(true), "freed twice");
        self.content.with_mut(|_| ());
    }
}

/// One page: its entry in the tables, and the frame that the entry named first and last.
pub(crate) struct Page {
    present: AtomicU64,
    pub(crate) frame: Frame,
}

impl Page {
    /// The walker's look at the entry.
    pub(crate) fn is_present(&self) -> bool {
        // Relaxed: a walk orders nothing; the protocol must.
        self.present.load(Ordering::Relaxed) != 0
    }

    /// A plain x86 store.
    pub(crate) fn unhook(&self) {
        // Relaxed: a page-table write orders nothing; the protocol must.
        self.present.store(0, Ordering::Relaxed);
    }
}

/// The tables of one space.
pub(crate) struct Table {
    /// The top level: any walk of a CPU that has it loaded reads it.
    pub(crate) root: Frame,
    /// All levels below it: a walk reads them if it finds an entry present, or remembers the way.
    pub(crate) lower: Frame,
    pub(crate) pages: Vec<Page>,
    /// Where each CPU has a directory of its own: the entry in each that leads to the pages.
    directories: Vec<AtomicU64>,
    /// Not 0 once those are what CPUs load.
    is_converted: AtomicU64,
    pub(crate) sharers: Sharers,
}

impl Table {
    /// Tables that map `pages` pages, below directories of so many CPUs.
    pub(crate) fn new(pages: usize, directories: usize) -> Self {
        let page = |_| Page { present: AtomicU64::new(1), frame: Frame::new() };
        Self {
            root: Frame::new(),
            lower: Frame::new(),
            pages: (0..pages).map(page).collect(),
            directories: (0..directories).map(|_| AtomicU64::new(0)).collect(),
            is_converted: AtomicU64::new(u64::from(directories != 0)),
            sharers: Sharers::new(),
        }
    }

    /// All CPUs load the same tables, until they are converted.
    pub(crate) fn join(&self) {
        self.is_converted.store(0, Ordering::Relaxed); // Relaxed: before anything else
    }

    /// From here on CPUs load tables of their own.
    pub(crate) fn convert(&self) {
        // Release: partner is the Acquire in `is_converted`; as in `tlbkit-pmap`.
        self.is_converted.store(1, Ordering::Release);
    }

    /// True if a CPU is to load its own tables.
    pub(crate) fn is_converted(&self) -> bool {
        self.is_converted.load(Ordering::Acquire) != 0 // Acquire: partner is the Release in `convert`
    }

    /// True if a walk of `cpu` gets below its directory.
    pub(crate) fn is_hooked(&self, cpu: usize) -> bool {
        // Relaxed: a walk orders nothing.
        self.directories.get(cpu).is_none_or(|entry| entry.load(Ordering::Relaxed) != 0)
    }

    /// `cpu` has faulted.
    pub(crate) fn hook(&self, cpu: usize) {
        self.sharers.hook(CpuId(cpu as u32));
        // Relaxed: a page-table write orders nothing.
        self.directories[cpu].store(1, Ordering::Relaxed);
    }

    /// No directory leads to the pages any more.
    pub(crate) fn unhook(&self) {
        for (cpu, entry) in self.directories.iter().enumerate() {
            if self.sharers.may_include(CpuId(cpu as u32)) {
                entry.store(0, Ordering::Relaxed); // Relaxed: as above
            }
        }
    }
}

/// The address of page `page` of table `table`.
pub(crate) fn address(table: usize, page: usize) -> VirtAddr {
    VirtAddr((u64::from(table == KERNEL) << 63) | (page as u64 * PAGE_BYTES))
}

/// The page that an address of its table stands for.
pub(crate) fn page_of(va: VirtAddr) -> usize {
    (va.0 >> 12 & 0xff) as usize
}
