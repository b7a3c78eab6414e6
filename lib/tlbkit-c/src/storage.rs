//! The opaque structs that C allocates, and how a pointer to one becomes a reference.
//!
//! Every struct that is initialized and ended begins with a word that says which of these it is, its mark. Memory that
//! was not initialized, or whose struct has ended, is refused rather than misinterpreted.

use core::sync::atomic::Ordering;

#[cfg(feature = "history")]
use tlbkit::CpuStats;
use tlbkit::sync::AtomicU64 as Word;
use tlbkit::{AddressSpace, CpuState, PhysAddr};

use crate::mark::Mark;
use crate::status::Status;

/// Size of a machine in 8-byte words.
pub const TLBKIT_MACHINE_WORDS: usize = 104;
/// Size of one CPU's state in 8-byte words.
pub const TLBKIT_CPU_STATE_WORDS: usize = 64;
/// Size of a space in 8-byte words.
pub const TLBKIT_SPACE_WORDS: usize = 8;
/// Size of a gather in 8-byte words.
pub const TLBKIT_GATHER_WORDS: usize = 36;
/// Size of a batch in 8-byte words.
#[cfg(not(feature = "reuse"))]
pub const TLBKIT_BATCH_WORDS: usize = 20;
/// Size of a batch that may be deferred in 8-byte words.
#[cfg(feature = "reuse")]
pub const TLBKIT_BATCH_WORDS: usize = 21;
/// Size of a machine's grace periods in 8-byte words.
#[cfg(feature = "reuse")]
pub const TLBKIT_GRACE_PERIODS_WORDS: usize = 16;
/// Size of what one CPU has passed in 8-byte words.
#[cfg(feature = "reuse")]
pub const TLBKIT_PASSED_WORDS: usize = 8;
/// Size of the sharers of a table, and of a reach, in 8-byte words.
#[cfg(feature = "directories")]
pub const TLBKIT_SHARERS_WORDS: usize = 2;
/// Size of one CPU's counters in 8-byte words.
pub const TLBKIT_STATS_WORDS: usize = 1062;

/// The TLBs of all CPUs. A kernel has one, which it never frees.
#[repr(C, align(64))]
pub struct MachineStorage {
    opaque: [u64; TLBKIT_MACHINE_WORDS],
}

/// The state of one CPU. A kernel has one per possible CPU, and never frees it.
#[repr(C, align(64))]
pub struct CpuStateStorage {
    opaque: [u64; TLBKIT_CPU_STATE_WORDS],
}

/// The TLB state of one set of page tables, like `mm_context_t`: embed it in the process structure. It has its own
/// cache line.
#[repr(C, align(64))]
pub struct SpaceStorage {
    opaque: [u64; TLBKIT_SPACE_WORDS],
}

/// Translations and frames that wait for one flush, like `struct mmu_gather`: on the stack of an unmap.
#[repr(C, align(8))]
pub struct GatherStorage {
    opaque: [u64; TLBKIT_GATHER_WORDS],
}

/// Translations and frames of many spaces that wait for one flush, like `struct arch_tlbflush_unmap_batch`: on the
/// stack of reclaim.
#[repr(C, align(8))]
pub struct BatchStorage {
    opaque: [u64; TLBKIT_BATCH_WORDS],
}

/// The grace periods of a machine, for flush at reuse. A kernel has one, which it never frees.
#[cfg(feature = "reuse")]
#[repr(C, align(64))]
pub struct GracePeriodsStorage {
    opaque: [u64; TLBKIT_GRACE_PERIODS_WORDS],
}

/// What one CPU has passed: a cache line. A kernel has one per possible CPU, and never frees it.
#[cfg(feature = "reuse")]
#[repr(C, align(64))]
pub struct PassedStorage {
    opaque: [u64; TLBKIT_PASSED_WORDS],
}

/// Which CPUs have walked to one last-level table: beside what the kernel keeps about its frame. Zeros are nobody.
#[cfg(feature = "directories")]
#[repr(C, align(8))]
pub struct SharersStorage {
    opaque: [u64; TLBKIT_SHARERS_WORDS],
}

/// Which CPUs can hold what a gather has recorded.
#[cfg(feature = "directories")]
#[repr(C, align(8))]
pub struct ReachStorage {
    opaque: [u64; TLBKIT_SHARERS_WORDS],
}

/// The counters of one CPU, for policies that count flushes. A kernel has one per possible CPU, and never frees it.
#[repr(C, align(8))]
pub struct StatsStorage {
    opaque: [u64; TLBKIT_STATS_WORDS],
}

/// Fails to compile unless `Storage` has room for `Inner`.
const fn assert_fits<Inner, Storage>() {
    assert!(size_of::<Inner>() <= size_of::<Storage>(), "a struct of the header has too few words");
    assert!(align_of::<Inner>() <= align_of::<Storage>(), "a struct of the header is not aligned enough");
}

const _: () = assert_fits::<CpuState, CpuStateStorage>();
#[cfg(feature = "history")]
const _: () = assert_fits::<CpuStats, StatsStorage>();
#[cfg(feature = "reuse")]
const _: () = assert!(size_of::<tlbkit::Passed>() == size_of::<PassedStorage>(), "elements of an array");
#[cfg(feature = "directories")]
const _: () = {
    assert_fits::<tlbkit::Sharers, SharersStorage>();
    assert_fits::<tlbkit::Reach, ReachStorage>();
};

/// What the archive was built with, for comparison with the header.
#[repr(C)]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Layout {
    /// Size of a `struct tlbkit_machine` in bytes.
    pub machine_bytes: u64,
    /// Size of a `struct tlbkit_cpu_state` in bytes.
    pub cpu_state_bytes: u64,
    /// Size of a `struct tlbkit_space` in bytes.
    pub space_bytes: u64,
    /// Size of a `struct tlbkit_gather` in bytes.
    pub gather_bytes: u64,
    /// Size of a `struct tlbkit_batch` in bytes.
    pub batch_bytes: u64,
    /// Size of a `struct tlbkit_stats` in bytes.
    pub stats_bytes: u64,
    /// The largest alignment of these structs.
    pub align_bytes: u64,
    /// `TLBKIT_INTERFACE` of the header that the archive was built with.
    pub interface_hash: u64,
}

/// `TLBKIT_INTERFACE` of the header.
const INTERFACE: u64 = interface_of(include_str!("../include/tlbkit.h").as_bytes());

/// The hexadecimal number after `#define TLBKIT_INTERFACE 0x`; 0 if the header has none yet.
const fn interface_of(header: &[u8]) -> u64 {
    const BEFORE: &[u8] = b"#define TLBKIT_INTERFACE 0x";
    let (mut at, mut matched) = (0, 0);
    while matched < BEFORE.len() && at < header.len() {
        matched = if header[at] == BEFORE[matched] { matched + 1 } else { 0 };
        at += 1;
    }
    let mut number = 0;
    while at < header.len() && header[at].is_ascii_hexdigit() {
        let digit = header[at];
        number = number << 4 | (if digit <= b'9' { digit - b'0' } else { digit - b'a' + 10 }) as u64;
        at += 1;
    }
    number
}

/// The same number beside a pointer, so that it lies in `.data.rel.ro`, as the tables of the archive do. If a kernel's
/// linker script places that section where its loader does not load it, this reads as 0, and so do those tables.
static PLACED: (&u8, u64) = (&0, INTERFACE);

/// What this archive was built with. `tlbkit_header_fits()` compares it with the header.
#[unsafe(no_mangle)]
pub extern "C" fn tlbkit_layout() -> Layout {
    Layout {
        machine_bytes: size_of::<MachineStorage>() as u64,
        cpu_state_bytes: size_of::<CpuStateStorage>() as u64,
        space_bytes: size_of::<SpaceStorage>() as u64,
        gather_bytes: size_of::<GatherStorage>() as u64,
        batch_bytes: size_of::<BatchStorage>() as u64,
        stats_bytes: size_of::<StatsStorage>() as u64,
        align_bytes: align_of::<CpuStateStorage>() as u64,
        // SAFETY: a valid static. Volatile, so that the value in memory is read, not the one that the compiler knows.
        interface_hash: unsafe { (&raw const PLACED.1).read_volatile() },
    }
}

/// The address of a top-level table. Refuses bits that have another meaning in CR3, and addresses that cannot be
/// physical, such as virtual ones.
pub(crate) fn checked_root(address: u64) -> Result<PhysAddr, Status> {
    const PHYSICAL: u64 = 0x000f_ffff_ffff_f000;
    if address & !PHYSICAL == 0 { Ok(PhysAddr(address)) } else { Err(Status::BadValue) }
}

/// Refuses a pointer that is null or misaligned.
pub(crate) fn check_pointer<T>(pointer: *const T) -> Result<(), Status> {
    if pointer.is_null() {
        Err(Status::NullPointer)
    } else if pointer.is_aligned() {
        Ok(())
    } else {
        Err(Status::Misaligned)
    }
}

/// Writes `value` through a pointer from C.
///
/// # Safety
/// The crate's contract for `place`.
pub(crate) unsafe fn write_to<T>(place: *mut T, value: T) -> Result<(), Status> {
    check_pointer(place)?;
    // SAFETY: not null, aligned, and by the contract a valid `T` in C.
    unsafe { place.write(value) };
    Ok(())
}

/// A type with a mark in its first word, which lives in an opaque struct of C.
///
/// # Safety
/// The type is `repr(C)` and its first field is a [`Mark`], which holds `MARK` exactly as long as the rest is valid.
pub(crate) unsafe trait Marked: Sized {
    /// The opaque struct.
    type Storage;
    /// Differs from zeros, poison patterns and the marks of the other types.
    const MARK: u64;

    /// The value behind a pointer from C.
    ///
    /// # Safety
    /// The crate's contract for `storage`, for as long as the reference is used.
    #[inline(always)]
    unsafe fn find<'a>(storage: *const Self::Storage) -> Result<&'a Self, Status> {
        if cfg!(feature = "checked") {
            // SAFETY: the contract.
            unsafe { Self::check_made(storage) }?;
        }
        // SAFETY: the contract; that it was initialized has been checked, or else is the caller's contract.
        Ok(unsafe { &*storage.cast::<Self>() })
    }

    /// Refuses a pointer that is null or misaligned, or whose struct was not initialized or has ended.
    ///
    /// # Safety
    /// As [`find`](Self::find).
    unsafe fn check_made(storage: *const Self::Storage) -> Result<(), Status> {
        check_pointer(storage)?;
        // SAFETY: not null, aligned to at least 8, and C's memory holds a whole struct.
        let mark = unsafe { &*storage.cast::<Mark>() };
        if mark.is(Self::MARK) { Ok(()) } else { Err(Status::NotMade) }
    }

    /// Writes `value`, whose mark is still 0, to C's memory and then sets the mark. The reference is valid until C ends
    /// the struct.
    ///
    /// # Safety
    /// The crate's contract for `storage`; nothing else uses it meanwhile.
    unsafe fn init(storage: *mut Self::Storage, value: Self) -> Result<&'static Self, Status> {
        // SAFETY: the contract.
        let placed = unsafe { Self::write_unmarked(storage, value) }?;
        // SAFETY: written by `write_unmarked`, with the mark first.
        unsafe { &*storage.cast::<Mark>() }.set(Self::MARK);
        Ok(placed)
    }

    /// As [`init`](Self::init), without setting the mark, for a struct that is not complete yet: calls still refuse it.
    ///
    /// # Safety
    /// As [`init`](Self::init).
    unsafe fn write_unmarked(storage: *mut Self::Storage, value: Self) -> Result<&'static Self, Status> {
        const { assert_fits::<Self, Self::Storage>() };
        check_pointer(storage)?;
        // SAFETY: not null, aligned, and large enough, as asserted above.
        unsafe { storage.cast::<Self>().write(value) };
        // SAFETY: just written.
        Ok(unsafe { &*storage.cast::<Self>() })
    }
}

/// `count` zeroed words in C's memory.
///
/// # Safety
/// The crate's contract for `words`, for as long as the result is used.
pub(crate) unsafe fn zeroed_words<'a>(words: *mut u64, count: usize) -> Result<&'a [Word], Status> {
    const { assert!(size_of::<Word>() == 8 && align_of::<Word>() == 8) };
    check_pointer(words)?;
    // SAFETY: by the contract `count` words in C that nothing else uses yet; from now on every access is atomic.
    let zeroed = unsafe { core::slice::from_raw_parts(words.cast::<Word>(), count) };
    // Relaxed: nothing else uses them yet. A loop, because a CPU set is one word on most machines, for which a call of
    // `memset` takes longer.
    zeroed.iter().for_each(|word| word.store(0, Ordering::Relaxed));
    Ok(zeroed)
}

/// The words of a space's CPU set, in C's memory. 'static stands for the life of the space, the end of which its mark
/// records.
pub(crate) type Set = &'static [Word];

/// What a `struct tlbkit_space` holds: one cache line.
#[repr(C)]
pub(crate) struct Space {
    pub(crate) mark: Mark,
    pub(crate) inner: AddressSpace<Set>,
}

// SAFETY: `repr(C)`, with the mark first; initialized and ended in `space.rs`.
unsafe impl Marked for Space {
    type Storage = SpaceStorage;
    const MARK: u64 = 0x746c_626b_6974_5350;
}
