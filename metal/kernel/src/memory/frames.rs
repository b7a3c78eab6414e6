//! Physical memory as `tlbkit-pmap` wants it. A freed frame is filled with a pattern that no program writes and no
//! walker gets through, and is the next to be given out: a translation that should be gone shows at once.

use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use spin::{Mutex, Once};
use tlbkit::{Directories, Isolation, PhysAddr, Sharers};
use tlbkit_arch::random::GOLDEN;
use tlbkit_pmap::{Frame, Memory, Pte, Purpose, pte};
use tlbkit_workloads::pattern::file_pattern;

use crate::command_line;
use crate::fault::Fault;
use crate::layout::direct;
use crate::report;

pub(crate) const FRAME_BYTES: u64 = 4096;
const WORDS: usize = 512;
const PAIR: u8 = 13;
/// What a free frame holds. As an entry: present, with reserved bits set.
const POISON: u64 = 0xdead_0f0f_dead_0f0f;
/// The word of a free frame that leads to the next one: not the one that programs check.
const LINK: u64 = 8;
/// In a frame's count: it is a page table.
const TABLE: u32 = 1 << 31;
/// Pages of files that can be kept.
const FILE_SLOTS: usize = 1 << 16;

/// All of the machine's memory: a value without fields, since there is only one.
#[derive(Clone, Copy)]
pub(crate) struct Ram;

struct Pool {
    /// Never used yet: from here to the end.
    next: u64,
    end: u64,
    /// Physical address of the first free frame, 0 for none.
    free: u64,
    free_pairs: u64,
    /// Open addressing: file and page above the frame's number.
    files: &'static mut [(u64, u64)],
}

static POOL: Once<Mutex<Pool>> = Once::new();
static ZERO_PAGE: Once<PhysAddr> = Once::new();
/// One count a frame of all memory, at the beginning of what is handed out.
static COUNTS: Once<&'static [AtomicU32]> = Once::new();
/// The CPUs whose directories name a table, if they have directories of their own; likewise.
static SHARERS: Once<&'static [Sharers]> = Once::new();
static TABLES_USED: AtomicU64 = AtomicU64::new(0);
static DATA_USED: AtomicU64 = AtomicU64::new(0);

/// Takes possession of all memory from `first` to `end`.
pub(super) fn start(first: u64, end: u64) {
    let counts_bytes = (end / FRAME_BYTES * 4).next_multiple_of(FRAME_BYTES);
    let files_bytes = (FILE_SLOTS * size_of::<(u64, u64)>()) as u64;
    let sharers_bytes = end / FRAME_BYTES * size_of::<Sharers>() as u64;
    let next = (first + counts_bytes + files_bytes + sharers_bytes).next_multiple_of(FRAME_BYTES);
    assert!(next < end, "{end:#x} bytes of memory do not hold the kernel");
    // SAFETY: memory behind the image that nothing else uses, mapped, zeroed here first.
    let files = unsafe {
        let at = direct(first) as *mut u8;
        at.write_bytes(0, (next - first) as usize);
        let counts = core::slice::from_raw_parts(at as *const AtomicU32, (end / FRAME_BYTES) as usize);
        COUNTS.call_once(|| counts);
        let sharers = at.add((counts_bytes + files_bytes) as usize).cast::<Sharers>();
        SHARERS.call_once(|| core::slice::from_raw_parts(sharers, (end / FRAME_BYTES) as usize));
        core::slice::from_raw_parts_mut(at.add(counts_bytes as usize).cast(), FILE_SLOTS)
    };
    POOL.call_once(|| Mutex::new(Pool { next, end, free: 0, free_pairs: 0, files }));
    ZERO_PAGE.call_once(|| Ram.alloc(12, Purpose::Data).expect("there is memory").at);
}

/// Frames in use: tables, data.
pub(super) fn used() -> (u64, u64) {
    // Relaxed: a report, after the run.
    (TABLES_USED.load(Ordering::Relaxed), DATA_USED.load(Ordering::Relaxed))
}

fn word(at: PhysAddr) -> &'static AtomicU64 {
    // SAFETY: mapped for ever in the direct map, and only ever used as atomic words while others can see it.
    unsafe { &*(direct(at.0) as *const AtomicU64) }
}

fn fill(at: PhysAddr, bytes: u64, value: u64) {
    // SAFETY: a frame that belongs to the caller alone.
    unsafe { core::slice::from_raw_parts_mut(direct(at.0) as *mut u64, (bytes / 8) as usize) }.fill(value);
}

fn count(at: PhysAddr) -> &'static AtomicU32 {
    let count = COUNTS.wait().get((at.0 / FRAME_BYTES) as usize);
    count.unwrap_or_else(|| report::failure(&format_args!("a page table leads to {:#x}, where no memory is", at.0)))
}

/// What a frame is used for at this moment; nothing if it is free, or no memory at all.
pub(crate) fn purpose(at: PhysAddr) -> Option<Purpose> {
    let count = COUNTS.wait().get((at.0 / FRAME_BYTES) as usize)?;
    // Acquire: as in `references`.
    match count.load(Ordering::Acquire) {
        0 => None,
        table if table & TABLE != 0 => Some(Purpose::Table),
        _ => Some(Purpose::Data),
    }
}

/// True if the page of a file is in memory.
pub(crate) fn has_file_page(file: u32, index: u64) -> bool {
    pool().file_slot(file_key(file, index)).1 != 0
}

/// Forgets a page of a file to which there are so many references, the files' own among them, which is the caller's
/// then.
pub(crate) fn drop_file_page(file: u32, index: u64, references: u32) -> Option<PhysAddr> {
    let mut pool = pool();
    let slot = pool.file_slot(file_key(file, index));
    if slot.1 == 0 || Ram.references(PhysAddr(slot.1)) != references {
        return None;
    }
    Some(PhysAddr(core::mem::replace(&mut slot.1, 0)))
}

const fn file_key(file: u32, index: u64) -> u64 {
    ((file as u64) << 40) + index + 1
}

/// Each base frame of a larger one.
fn base_frames(at: PhysAddr, shift: u8) -> impl Iterator<Item = PhysAddr> {
    (at.0..at.0 + (1 << shift)).step_by(FRAME_BYTES as usize).map(PhysAddr)
}

fn used_of(count: u32) -> &'static AtomicU64 {
    if count & TABLE != 0 { &TABLES_USED } else { &DATA_USED }
}

impl Pool {
    fn take(&mut self, shift: u8) -> Option<PhysAddr> {
        let bytes = 1 << shift;
        let free = if shift == PAIR { &mut self.free_pairs } else { &mut self.free };
        if *free != 0 {
            let at = PhysAddr(*free);
            // Relaxed: the pool's lock orders it.
            *free = word(PhysAddr(at.0 + LINK)).load(Ordering::Relaxed);
            return Some(at);
        }
        let at = self.next.next_multiple_of(bytes);
        if at + bytes > self.end {
            return None;
        }
        // What aligning skipped is a base frame.
        if at != self.next {
            self.put(PhysAddr(self.next), 12);
        }
        self.next = at + bytes;
        Some(PhysAddr(at))
    }

    fn put(&mut self, at: PhysAddr, shift: u8) {
        let free = if shift == PAIR { &mut self.free_pairs } else { &mut self.free };
        // Relaxed: the pool's lock orders it.
        word(PhysAddr(at.0 + LINK)).store(*free, Ordering::Relaxed);
        *free = at.0;
    }

    fn file_slot(&mut self, key: u64) -> &mut (u64, u64) {
        let mut n = (key.wrapping_mul(GOLDEN) >> 48) as usize % FILE_SLOTS;
        for _ in 0..FILE_SLOTS {
            if self.files[n].0 == 0 || self.files[n].0 == key {
                return &mut self.files[n];
            }
            n = (n + 1) % FILE_SLOTS;
        }
        panic!("more than {FILE_SLOTS} pages of files")
    }
}

fn pool() -> spin::MutexGuard<'static, Pool> {
    POOL.wait().lock()
}

impl Memory for Ram {
    // SeqCst, in all of them: entries are also read and written by the walkers of all CPUs, which know no weaker order.
    fn load(&self, at: PhysAddr) -> u64 {
        word(at).load(Ordering::SeqCst)
    }

    fn store(&self, at: PhysAddr, value: u64) {
        word(at).store(value, Ordering::SeqCst); // SeqCst: as above
    }

    fn swap(&self, at: PhysAddr, value: u64) -> u64 {
        let before = word(at).swap(value, Ordering::SeqCst); // SeqCst: as above
        if Fault::FreeBeforeFlush.is_chosen() && value == 0 {
            reuse_early(Pte(before));
        }
        before
    }

    fn compare_exchange(&self, at: PhysAddr, current: u64, new: u64) -> Result<u64, u64> {
        // SeqCst: as above.
        word(at).compare_exchange(current, new, Ordering::SeqCst, Ordering::SeqCst)
    }

    fn copy(&self, from: PhysAddr, to: PhysAddr, shift: u8) {
        // SAFETY: `to` is new and the caller's alone; what changes in `from` meanwhile is the program's own race.
        unsafe {
            core::ptr::copy_nonoverlapping(
                direct(from.0) as *const u64,
                direct(to.0) as *mut u64,
                WORDS << (shift - 12),
            );
        }
    }

    /// No large frames: whoever asks takes small ones.
    fn alloc(&self, shift: u8, purpose: Purpose) -> Option<Frame> {
        if shift > PAIR {
            return None;
        }
        let at = pool().take(shift)?;
        if purpose != Purpose::Copy {
            fill(at, 1 << shift, 0);
        }
        let kind = if purpose == Purpose::Table { TABLE } else { 0 };
        self.sharers(at).into_iter().for_each(Sharers::clear);
        // Relaxed: the frame is published by whoever maps it.
        base_frames(at, shift).for_each(|at| count(at).store(1 | kind, Ordering::Relaxed));
        used_of(kind).fetch_add(1 << (shift - 12), Ordering::Relaxed); // Relaxed: a count
        Some(Frame { at, shift })
    }

    fn free(&self, frame: Frame) {
        fill(frame.at, 1 << frame.shift, POISON);
        // Relaxed: the last reference is gone; the pool's lock publishes.
        let kind = base_frames(frame.at, frame.shift).fold(0, |_, at| count(at).swap(0, Ordering::Relaxed));
        used_of(kind).fetch_sub(1 << (frame.shift - 12), Ordering::Relaxed); // Relaxed: a count
        pool().put(frame.at, frame.shift);
    }

    /// Where CPUs have directories of their own, tables are taken out while others use them: the harder case.
    fn is_low(&self) -> bool {
        command_line::get().policy.directories == Directories::OfEachCpu
    }

    fn adopt_root(&self, root: PhysAddr, _space: PhysAddr) {
        if command_line::get().policy.isolation == Isolation::On {
            super::share_image_with_user_half(root);
        }
    }

    fn sharers(&self, table: PhysAddr) -> Option<&Sharers> {
        SHARERS.wait().get((table.0 / FRAME_BYTES) as usize)
    }

    fn share(&self, at: PhysAddr) {
        // Relaxed: the caller holds a reference already.
        count(at).fetch_add(1, Ordering::Relaxed);
    }

    fn release(&self, at: PhysAddr) -> bool {
        // AcqRel: whoever frees comes after all that used it; partner is itself on other CPUs.
        let before = count(at).fetch_sub(1, Ordering::AcqRel) & !TABLE;
        assert!(before > 0, "frame {at:?} released once too often");
        before == 1
    }

    fn references(&self, at: PhysAddr) -> u32 {
        // Acquire: partner is the release by the holder before.
        count(at).load(Ordering::Acquire) & !TABLE
    }

    fn split(&self, at: PhysAddr) {
        unreachable!("no large frame was ever given out, and {at:?} is none");
    }

    fn file_page(&self, file: u32, index: u64) -> PhysAddr {
        let key = file_key(file, index);
        let found = pool().file_slot(key).1;
        if found != 0 {
            return PhysAddr(found);
        }
        let at = Ram.alloc(12, Purpose::Data).expect("memory for the files of a workload").at;
        Ram.store(at, file_pattern(file, index));
        let mut pool = pool();
        let slot = pool.file_slot(key);
        // Another CPU may have been faster: its frame counts.
        if slot.1 == 0 {
            *slot = (key, at.0);
            return at;
        }
        let first = PhysAddr(slot.1);
        drop(pool);
        self.put(Frame { at, shift: 12 });
        first
    }

    fn zero_page(&self) -> PhysAddr {
        *ZERO_PAGE.wait()
    }
}

/// What the new owner of a frame does to it.
const NEW_OWNERS_WORD: u64 = 0x0bad_f4ee_0bad_f4ee;
/// As long as an owner may take before the flush that comes too late.
const OWNED_SPINS: u32 = 20_000;

/// A kernel that frees before it flushes: whoever gets the frame writes to it while others still translate to it. Who
/// stores to it through a translation that should be gone breaks the new owner's word.
fn reuse_early(taken: Pte) {
    let (is_leaf, frame) = (taken.has(Pte::PRESENT | Pte::USER | Pte::NO_EXECUTE), taken.frame());
    if !is_leaf || taken.has(pte::ZERO) || Ram.references(frame) != 1 {
        return;
    }
    Ram.store(frame, NEW_OWNERS_WORD);
    for _ in 0..OWNED_SPINS {
        core::hint::spin_loop();
    }
    let found = Ram.load(frame);
    if found != NEW_OWNERS_WORD {
        report::wrong_value(frame.0, found, NEW_OWNERS_WORD);
    }
}
