//! What C allocates: opaque structs of known size, and how a pointer to one becomes a reference.
//!
//! Each struct that can be made and ended begins with a word that says so, its mark: memory that nobody made, or that
//! has ended, is refused and never read as what it is not.

use core::sync::atomic::Ordering;

#[cfg(feature = "history")]
use tlbkit::CpuStats;
use tlbkit::sync::AtomicU64 as Word;
use tlbkit::{AddressSpace, CpuState, PhysAddr};

use crate::mark::Mark;
use crate::status::Status;

/// 8-byte words of a machine.
pub const TLBKIT_MACHINE_WORDS: usize = 88;
/// 8-byte words of one CPU's state.
pub const TLBKIT_CPU_STATE_WORDS: usize = 64;
/// 8-byte words of a space.
pub const TLBKIT_SPACE_WORDS: usize = 8;
/// 8-byte words of a gather.
pub const TLBKIT_GATHER_WORDS: usize = 36;
/// 8-byte words of a batch.
pub const TLBKIT_BATCH_WORDS: usize = 20;
/// 8-byte words of one CPU's counters.
pub const TLBKIT_STATS_WORDS: usize = 1062;

/// The TLBs of a machine. One for a kernel, for ever.
#[repr(C, align(64))]
pub struct MachineStorage {
    opaque: [u64; TLBKIT_MACHINE_WORDS],
}

/// One CPU's part. As many as there are possible CPUs, for ever.
#[repr(C, align(64))]
pub struct CpuStateStorage {
    opaque: [u64; TLBKIT_CPU_STATE_WORDS],
}

/// One set of page tables: put it where the process is, on a cache line of its own.
#[repr(C, align(64))]
pub struct SpaceStorage {
    opaque: [u64; TLBKIT_SPACE_WORDS],
}

/// Translations and frames that wait for one flush: on the stack of an unmap.
#[repr(C, align(8))]
pub struct GatherStorage {
    opaque: [u64; TLBKIT_GATHER_WORDS],
}

/// Translations of many spaces and their frames that wait for one flush: on the stack of reclaim.
#[repr(C, align(8))]
pub struct BatchStorage {
    opaque: [u64; TLBKIT_BATCH_WORDS],
}

/// One CPU's counters, if flushes are to be counted. As many as there are possible CPUs, for ever.
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

/// What the archive was built with, to be compared with the header's.
#[repr(C)]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Layout {
    /// Bytes of a `struct tlbkit_machine`.
    pub machine_bytes: u64,
    /// Bytes of a `struct tlbkit_cpu_state`.
    pub cpu_state_bytes: u64,
    /// Bytes of a `struct tlbkit_space`.
    pub space_bytes: u64,
    /// Bytes of a `struct tlbkit_gather`.
    pub gather_bytes: u64,
    /// Bytes of a `struct tlbkit_batch`.
    pub batch_bytes: u64,
    /// Bytes of a `struct tlbkit_stats`.
    pub stats_bytes: u64,
    /// Alignment of the largest of them.
    pub align_bytes: u64,
    /// `TLBKIT_INTERFACE` of the header that the archive was built with.
    pub interface_hash: u64,
}

/// The number that the header gives itself.
const INTERFACE: u64 = interface_of(include_str!("../include/tlbkit.h").as_bytes());

/// The hexadecimal number behind `#define TLBKIT_INTERFACE 0x`; 0 in a header that has none yet.
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

/// The same number beside a pointer, so that it lies where the archive's tables do, in `.data.rel.ro`: a kernel whose
/// script places that section where its loader does not load finds 0 here, and the tables are as empty.
static PLACED: (&u8, u64) = (&0, INTERFACE);

/// What this archive was built with. `tlbkit_header_fits()` compares them with the header's.
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
        // SAFETY: a static is there to be read. Volatile: as it is in memory, and not as the compiler knows it.
        interface_hash: unsafe { (&raw const PLACED.1).read_volatile() },
    }
}

/// A top-level table: refuses bits that CR3 has for other things, and addresses that are none of physical memory, such
/// as a virtual one.
pub(crate) fn root_at(address: u64) -> Result<PhysAddr, Status> {
    const PHYSICAL: u64 = 0x000f_ffff_ffff_f000;
    if address & !PHYSICAL == 0 { Ok(PhysAddr(address)) } else { Err(Status::BadValue) }
}

/// Refuses what cannot be pointed at.
pub(crate) fn check<T>(pointer: *const T) -> Result<(), Status> {
    if pointer.is_null() {
        Err(Status::NullPointer)
    } else if pointer.is_aligned() {
        Ok(())
    } else {
        Err(Status::Misaligned)
    }
}

/// Writes `value` where C wants it.
///
/// # Safety
/// The crate's contract for `place`.
pub(crate) unsafe fn put<T>(place: *mut T, value: T) -> Result<(), Status> {
    check(place)?;
    // SAFETY: not null, aligned, and by the contract a `T` of C's.
    unsafe { place.write(value) };
    Ok(())
}

/// An inner type with a mark in its first word.
///
/// # Safety
/// The type is `repr(C)` and its first field is a [`Mark`], which holds `MARK` while, and only while, the rest is
/// valid.
pub(crate) unsafe trait Marked: Sized {
    /// As C knows it.
    type Storage;
    /// Unlike zeros, poison patterns and the marks of the other types.
    const MARK: u64;

    /// The inner type behind C's pointer.
    ///
    /// # Safety
    /// The crate's contract for `storage`, for as long as the reference is used.
    #[inline(always)]
    unsafe fn find<'a>(storage: *const Self::Storage) -> Result<&'a Self, Status> {
        if cfg!(feature = "checked") {
            // SAFETY: the contract.
            unsafe { Self::assert_made(storage) }?;
        }
        // SAFETY: the contract; that it was made has been looked at, or is the caller's word.
        Ok(unsafe { &*storage.cast::<Self>() })
    }

    /// Refuses what is null, misaligned, was never made, or has ended.
    ///
    /// # Safety
    /// As [`find`](Self::find).
    unsafe fn assert_made(storage: *const Self::Storage) -> Result<(), Status> {
        check(storage)?;
        // SAFETY: not null, aligned to more than 8, and C's memory holds a whole struct.
        let mark = unsafe { &*storage.cast::<Mark>() };
        if mark.is(Self::MARK) { Ok(()) } else { Err(Status::NotMade) }
    }

    /// Puts `value`, whose mark is still 0, into C's memory and marks it. What is returned lives until C ends it.
    ///
    /// # Safety
    /// The crate's contract for `storage`; nobody else uses it meanwhile.
    unsafe fn make(storage: *mut Self::Storage, value: Self) -> Result<&'static Self, Status> {
        // SAFETY: the contract.
        let placed = unsafe { Self::place(storage, value) }?;
        // SAFETY: written by `place`, the mark first.
        unsafe { &*storage.cast::<Mark>() }.set(Self::MARK);
        Ok(placed)
    }

    /// The same without the mark, for what is not whole yet: calls still find nothing there.
    ///
    /// # Safety
    /// As [`make`](Self::make).
    unsafe fn place(storage: *mut Self::Storage, value: Self) -> Result<&'static Self, Status> {
        const { assert_fits::<Self, Self::Storage>() };
        check(storage)?;
        // SAFETY: not null, aligned, and large enough: asserted above.
        unsafe { storage.cast::<Self>().write(value) };
        // SAFETY: just written.
        Ok(unsafe { &*storage.cast::<Self>() })
    }
}

/// `count` zeroed words in C's memory.
///
/// # Safety
/// The crate's contract for `words`, for as long as the result is used.
pub(crate) unsafe fn zeroed<'a>(words: *mut u64, count: usize) -> Result<&'a [Word], Status> {
    const { assert!(size_of::<Word>() == 8 && align_of::<Word>() == 8) };
    check(words)?;
    // SAFETY: by the contract `count` words of C's that nobody else uses yet; from now on each use of them is atomic.
    let zeroed = unsafe { core::slice::from_raw_parts(words.cast::<Word>(), count) };
    // Relaxed: as above. A set has one word on most machines, and a call of `memset` takes longer.
    zeroed.iter().for_each(|word| word.store(0, Ordering::Relaxed));
    Ok(zeroed)
}

/// Where the kernel keeps the set of a space: until the space ends, which its mark says.
pub(crate) type Set = &'static [Word];

/// What a `struct tlbkit_space` holds: one cache line.
#[repr(C)]
pub(crate) struct Space {
    pub(crate) mark: Mark,
    pub(crate) inner: AddressSpace<Set>,
}

// SAFETY: `repr(C)`, the mark first; made and ended below.
unsafe impl Marked for Space {
    type Storage = SpaceStorage;
    const MARK: u64 = 0x746c_626b_6974_5350;
}
