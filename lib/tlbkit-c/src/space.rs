//! What a space is behind C's pointer, and what can be asked of it.

use tlbkit::AddressSpace;
use tlbkit::sync::AtomicU64 as Word;

use crate::mark::Mark;
use crate::storage::{Marked, SpaceStorage};

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

/// Words that a space needs for the set of its CPUs.
#[unsafe(no_mangle)]
pub const extern "C" fn tlbkit_set_words(cpus: u32) -> usize {
    AddressSpace::set_words(cpus as usize)
}

/// The space's name, never used again; 0 if it was never made.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tlbkit_space_id(space: *const SpaceStorage) -> u64 {
    // SAFETY: the crate's contract.
    unsafe { Space::find(space) }.map_or(0, |space| space.inner.id().number())
}

/// How many revocations the space has seen, plus one; 0 if it was never made.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tlbkit_space_generation(space: *const SpaceStorage) -> u64 {
    // SAFETY: the crate's contract.
    unsafe { Space::find(space) }.map_or(0, |space| space.inner.generation().number())
}
