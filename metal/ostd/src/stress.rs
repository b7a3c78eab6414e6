//! Value checks: on every CPU a task maps, unmaps, protects, copies as fork does, and ends spaces, while it reads what
//! the others change. Each frame says of which process and page it is, and how new; who reads something else fails.

use core::sync::atomic::{
    AtomicBool, AtomicU32, AtomicU64,
    Ordering::{AcqRel, Acquire, Relaxed, Release},
};

use alloc::sync::Arc;
use alloc::vec::Vec;
use ostd::cpu::num_cpus;
use ostd::irq;
use ostd::mm::tlb::TlbFlushOp;
use ostd::mm::vm_space::{VmQueriedItem, VmSpace};
use ostd::mm::{PAGE_SIZE, PageFlags, UFrame, Vaddr, VmIo};
use ostd::power::{ExitCode, poweroff};
use ostd::prelude::println;
use ostd::sync::{LocalIrqDisabled, SpinLock};
use ostd::task::{Task, disable_preempt, halt_cpu};
use ostd::timer::Jiffies;
use x86_64::registers::control::{Cr4, Cr4Flags};

use crate::{frame, map, read_write, sched};

/// Pages that everybody changes, in one last-level table.
const PAGES: usize = 64;
const SHARED: Vaddr = 0x1000_0000;
/// A separate table, which is taken out as a whole.
const TABLE: Vaddr = 0x2000_0000;
const TABLE_BYTES: usize = 512 * PAGE_SIZE;
/// Pages that one CPU changes with interrupts off and without waiting: a table for each CPU.
const OWN: Vaddr = 0x4000_0000;
const FEW: usize = 8;
/// All of them: shared, then those of the table, then those of each CPU.
const MAX_CPUS: usize = 8;
const ALL: usize = PAGES + FEW + MAX_CPUS * FEW;
/// Operations of a task in one process, before it goes on to another.
const TURN: u32 = 400;

fn va_of(page: usize) -> Vaddr {
    match page.checked_sub(PAGES) {
        None => SHARED + page * PAGE_SIZE,
        Some(page) if page < FEW => TABLE + page * PAGE_SIZE,
        Some(page) => OWN + (page / FEW - 1) * TABLE_BYTES + page % FEW * PAGE_SIZE,
    }
}

/// The first word of a frame.
fn tag(process: u64, page: usize, version: u64) -> u64 {
    process << 40 | (page as u64) << 32 | version
}

/// What is known of one page.
#[derive(Default)]
struct Page {
    /// Nobody may read an older version from here on.
    floor: AtomicU64,
    /// Rises when the page begins to change and when it has changed.
    epoch: AtomicU64,
    /// Mapped by another process too: nobody may write, and the second word stays as it is here.
    is_frozen: AtomicBool,
    frozen: AtomicU64,
}

struct Process {
    id: u64,
    /// Whose frames it may see besides its own: it began as a copy of that one.
    parent: u64,
    space: Arc<VmSpace>,
    pages: Vec<Page>,
}

static NEXT_ID: AtomicU64 = AtomicU64::new(1);
static NEXT_VERSION: AtomicU64 = AtomicU64::new(1);
static READS: AtomicU64 = AtomicU64::new(0);
static CHANGES: AtomicU64 = AtomicU64::new(0);
static FORKS: AtomicU64 = AtomicU64::new(0);
static ENDS: AtomicU64 = AtomicU64::new(0);
static DONE: AtomicU32 = AtomicU32::new(0);

impl Process {
    fn empty(parent: u64) -> Self {
        // Relaxed: an id need only be unique.
        let id = NEXT_ID.fetch_add(1, Relaxed);
        let pages = (0..ALL).map(|_| Page::default()).collect();
        Self { id, parent, space: Arc::new(VmSpace::new()), pages }
    }

    fn new() -> Arc<Self> {
        let process = Self::empty(0);
        let fill = |first: usize, pages: usize| {
            map(&process.space, va_of(first), pages, |page| tag(process.id, first + page, version()));
        };
        fill(0, PAGES);
        for first in (PAGES..ALL).step_by(FEW) {
            fill(first, FEW);
        }
        Arc::new(process)
    }

    /// Gives `pages` from `first` on new frames. When it returns nobody may see an old one.
    fn remap(&self, first: usize, pages: usize) {
        let (va, bytes) = (va_of(first), pages * PAGE_SIZE);
        let guard = disable_preempt();
        let mut cursor = self.space.cursor_mut(&guard, &(va..va + bytes)).expect("the range is a program's");
        self.change(first, pages, || {
            cursor.unmap(bytes);
            cursor.flusher().sync_tlb_flush();
            cursor.jump(va).expect("the range is the cursor's");
            let newest = version();
            for page in first..first + pages {
                cursor.map(frame(tag(self.id, page, newest)), read_write());
                self.pages[page].is_frozen.store(false, Release);
            }
            newest
        });
    }

    /// Gives the pages of a whole last-level table new frames, and frees the table.
    fn remap_table(&self) {
        let guard = disable_preempt();
        let range = TABLE..TABLE + TABLE_BYTES;
        let mut cursor = self.space.cursor_mut(&guard, &range).expect("the range is a program's");
        self.change(PAGES, FEW, || {
            cursor.unmap(TABLE_BYTES);
            cursor.flusher().sync_tlb_flush();
            cursor.jump(TABLE).expect("the range is the cursor's");
            let newest = version();
            for page in PAGES..PAGES + FEW {
                cursor.map(frame(tag(self.id, page, newest)), read_write());
                self.pages[page].is_frozen.store(false, Release);
            }
            newest
        });
    }

    /// Gives pages new frames with interrupts off and without waiting: old versions may be seen for a while, and
    /// nothing else.
    fn remap_alone(&self, cpu: usize) {
        let first = PAGES + FEW + cpu * FEW;
        let va = va_of(first);
        let guard = irq::disable_local();
        let mut cursor = self.space.cursor_mut(&guard, &(va..va + FEW * PAGE_SIZE)).expect("the range is a program's");
        cursor.unmap(FEW * PAGE_SIZE);
        cursor.jump(va).expect("the range is the cursor's");
        for page in first..first + FEW {
            cursor.map(frame(tag(self.id, page, version())), read_write());
        }
    }

    fn change(&self, first: usize, pages: usize, f: impl FnOnce() -> u64) {
        let step = || self.pages[first..first + pages].iter().for_each(|page| _ = page.epoch.fetch_add(1, AcqRel));
        step();
        let newest = f();
        self.pages[first..first + pages].iter().for_each(|page| _ = page.floor.fetch_max(newest, AcqRel));
        step();
        CHANGES.fetch_add(1, Relaxed); // Relaxed: a count
    }

    /// Reads one page as a program does, and checks what it sees.
    fn read(&self, page: usize) {
        let about = &self.pages[page];
        let (epoch, floor) = (about.epoch.load(Acquire), about.floor.load(Acquire));
        let (is_frozen, frozen) = (about.is_frozen.load(Acquire), about.frozen.load(Acquire));
        let mut reader = self.space.reader(va_of(page), 16).expect("the space is loaded");
        let (Ok(seen), Ok(second)) = (reader.read_val::<u64>(), reader.read_val::<u64>()) else { return };
        let (process, seen_page, version) = (seen >> 40, seen >> 32 & 0xff, seen & 0xffff_ffff);
        assert!(
            (process == self.id || process == self.parent) && seen_page == page as u64,
            "another frame: {seen:#x} at page {page} of process {} (copy of {})",
            self.id,
            self.parent
        );
        assert!(version >= floor, "an old frame: version {version} where {floor} is, page {page} of {}", self.id);
        let is_calm = epoch % 2 == 0 && about.epoch.load(Acquire) == epoch && is_frozen;
        assert!(!is_calm || second == frozen, "a write to a frame that is shared: {second:#x} for {frozen:#x}");
        READS.fetch_add(1, Relaxed); // Relaxed: a count
    }

    /// Writes as a program does; it may fault.
    fn write(&self, page: usize, word: u64) {
        let mut writer = self.space.writer(va_of(page) + 8, 8).expect("the space is loaded");
        _ = writer.write_val(&word);
    }

    /// Takes the right to write, looks whether somebody writes all the same, and gives it back.
    fn protect(&self, first: usize, pages: usize) {
        let guard = disable_preempt();
        let range = va_of(first)..va_of(first) + pages * PAGE_SIZE;
        let mut cursor = self.space.cursor_mut(&guard, &range).expect("the range is a program's");
        let allow = |cursor: &mut ostd::mm::vm_space::CursorMut<'_>, flags: PageFlags| {
            cursor.jump(range.start).expect("the range is the cursor's");
            while cursor.virt_addr() < range.end {
                let page = (cursor.virt_addr() - SHARED) / PAGE_SIZE;
                let flags = if self.pages[page].is_frozen.load(Acquire) { PageFlags::R } else { flags };
                let left = range.end - cursor.virt_addr();
                if cursor.protect_next(PAGE_SIZE.min(left), |page, _| *page = flags | *page & !PageFlags::RW).is_none()
                {
                    break;
                }
            }
        };
        allow(&mut cursor, PageFlags::R);
        cursor.flusher().issue_tlb_flush(TlbFlushOp::for_range(range.clone()));
        cursor.flusher().dispatch_tlb_flush();
        cursor.flusher().sync_tlb_flush();
        let words = || -> Vec<Option<u64>> {
            let word = |page| self.space.reader(va_of(page) + 8, 8).ok()?.read_val::<u64>().ok();
            (first..first + pages).map(word).collect()
        };
        let before = words();
        (0..200).for_each(|_| core::hint::spin_loop());
        assert!(before == words(), "a write to a page that is read-only in process {}", self.id);
        allow(&mut cursor, PageFlags::RW);
        CHANGES.fetch_add(1, Relaxed); // Relaxed: a count
    }

    /// A copy that shares all of the shared pages, which nobody may write any more.
    fn fork(&self) -> Arc<Self> {
        let child = Self::empty(self.id);
        let guard = disable_preempt();
        let range = SHARED..SHARED + PAGES * PAGE_SIZE;
        let mut cursor = self.space.cursor_mut(&guard, &range).expect("the range is a program's");
        let mut frames: Vec<UFrame> = Vec::new();
        for page in 0..PAGES {
            cursor.jump(va_of(page)).expect("the range is the cursor's");
            let Ok((_, Some(VmQueriedItem::MappedRam { frame, .. }))) = cursor.query() else {
                panic!("page {page} of {} is not mapped", self.id)
            };
            frames.push((*frame).clone());
            cursor.protect_next(PAGE_SIZE, |flags, _| *flags -= PageFlags::W);
        }
        cursor.flusher().issue_tlb_flush(TlbFlushOp::for_range(range.clone()));
        cursor.flusher().dispatch_tlb_flush();
        cursor.flusher().sync_tlb_flush();
        let mut of_child = child.space.cursor_mut(&guard, &range).expect("the range is a program's");
        for (page, shared) in frames.into_iter().enumerate() {
            let word: u64 = shared.read_val(8).expect("a frame has a second word");
            let seen: u64 = shared.read_val(0).expect("a frame has a first word");
            // A frame of a grandparent would belong to another process: the child gets its own.
            let is_ours = seen >> 40 == self.id;
            for process in [self, &child] {
                let about = &process.pages[page];
                if process.id == self.id || is_ours {
                    about.frozen.store(word, Release);
                    about.is_frozen.store(true, Release);
                }
            }
            child.pages[page].floor.store(seen & 0xffff_ffff, Release);
            let mut prop = read_write();
            if is_ours {
                prop.flags -= PageFlags::W;
                of_child.map(shared, prop);
            } else {
                of_child.map(frame(tag(child.id, page, version())), prop);
            }
        }
        drop(of_child);
        drop(cursor);
        for first in (PAGES..ALL).step_by(FEW) {
            map(&child.space, va_of(first), FEW, |page| tag(child.id, first + page, version()));
        }
        FORKS.fetch_add(1, Relaxed); // Relaxed: a count
        Arc::new(child)
    }
}

fn version() -> u64 {
    // Relaxed: only that it rises matters, and it is published with the frame.
    NEXT_VERSION.fetch_add(1, Relaxed)
}

type Table = Arc<Vec<SpinLock<Arc<Process>, LocalIrqDisabled>>>;

/// Spawns the tasks: on each CPU one that works, and one of the kernel that sleeps.
pub fn begin(seconds: u64, seed: u64) {
    sched::begin();
    let cpus = num_cpus();
    assert!(cpus <= MAX_CPUS, "the stress is for up to {MAX_CPUS} CPUs");
    let table: Table = Arc::new((0..cpus.max(2)).map(|_| SpinLock::new(Process::new())).collect());
    for cpu in 0..cpus {
        let table = Arc::clone(&table);
        sched::spawn(cpu as u32, move || work(cpu, &table, seconds, seed));
        sched::spawn(cpu as u32, move || idle());
    }
}

/// A task of the kernel: every now and then it has the CPU sleep, with whatever space is loaded.
fn idle() {
    for turn in 0u32.. {
        if turn % 4 == 0 {
            halt_cpu();
        }
        Task::yield_now();
    }
}

fn work(cpu: usize, table: &Table, seconds: u64, seed: u64) {
    let mut random = seed << 8 | (cpu as u64 + 1);
    let mut draw = move |below: u64| {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        random % below
    };
    let begun = Jiffies::elapsed().as_duration().as_secs();
    while Jiffies::elapsed().as_duration().as_secs() - begun < seconds {
        let slot = draw(table.len() as u64) as usize;
        let process = Arc::clone(&table[slot].lock());
        sched::enter(&process.space);
        for _ in 0..TURN {
            let page = draw(PAGES as u64) as usize;
            match draw(100) {
                // A page that was read is soon read again, while the CPU may still hold what it saw.
                0..40 => (0..8).for_each(|_| process.read(draw(PAGES as u64) as usize)),
                40..60 => process.read(draw(ALL as u64) as usize),
                60..80 => process.write(page, draw(u64::MAX)),
                80..90 => process.remap(page, 1),
                90..93 => process.remap(page, (PAGES - page).min(2 + draw(44) as usize)),
                93..96 => process.protect(page, (PAGES - page).min(1 + draw(8) as usize)),
                96 => process.remap_table(),
                97 => process.remap_alone(cpu),
                98 => Task::yield_now(),
                _ if draw(8) == 0 => {
                    let child = if draw(2) == 0 { process.fork() } else { Process::new() };
                    let at = draw(table.len() as u64) as usize;
                    let ended = core::mem::replace(&mut *table[at].lock(), child);
                    drop(ended);
                    ENDS.fetch_add(1, Relaxed); // Relaxed: a count
                }
                _ => {}
            }
        }
        drop(process);
        Task::yield_now();
    }
    // AcqRel: the last one tells what all have done.
    if DONE.fetch_add(1, AcqRel) + 1 == num_cpus() as u32 {
        let count = |counter: &AtomicU64| counter.load(Relaxed);
        println!(
            "{{\"test\":\"stress\",\"cpus\":{},\"pcids\":{},\"reads\":{},\"changes\":{},\"forks\":{},\"ends\":{}}}",
            num_cpus(),
            Cr4::read().contains(Cr4Flags::PCID),
            count(&READS),
            count(&CHANGES),
            count(&FORKS),
            count(&ENDS)
        );
        poweroff(ExitCode::Success);
    }
    sched::leave();
    loop {
        Task::yield_now();
    }
}
