//! The slots of processes: an address space each, with a count of the threads that run in it. A slot is used again when
//! its space has ended everywhere.

use core::cell::UnsafeCell;
use core::mem::MaybeUninit;
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use tlbkit::{AddressSpace, SpaceToken};
use tlbkit_pmap::Vm;

/// Most processes at a time.
const MOST: usize = 512;

const FREE: u32 = 0;
const TAKEN: u32 = 1;

/// One process. Its set of CPUs has a cache line of its own.
#[repr(align(64))]
pub(crate) struct Process {
    set: [AtomicU64; 8],
    state: AtomicU32,
    /// Threads that have not ended.
    threads: AtomicU32,
    vm: UnsafeCell<MaybeUninit<Vm<'static>>>,
}

// SAFETY: `vm` is written by whoever took the slot, before anybody else knows its token; then only shared.
unsafe impl Sync for Process {}

static PROCESSES: [Process; MOST] = [const {
    Process {
        set: [const { AtomicU64::new(0) }; 8],
        state: AtomicU32::new(FREE),
        threads: AtomicU32::new(0),
        vm: UnsafeCell::new(MaybeUninit::uninit()),
    }
}; MOST];

/// Spaces whose last lazy reference is gone, one bit each.
static UNREFERENCED: [AtomicU64; MOST / 64] = [const { AtomicU64::new(0) }; MOST / 64];

/// The process whose space has this token.
pub(crate) fn by_token(token: SpaceToken) -> &'static Process {
    &PROCESSES[token.0 as usize]
}

/// The protocol says that the tables of this space can go. This comes in the middle of a switch, so it is only noted.
pub(crate) fn note_unreferenced(token: SpaceToken) {
    // Release: partner is the Acquire in `take_unreferenced`.
    UNREFERENCED[token.0 as usize / 64].fetch_or(1 << (token.0 % 64), Ordering::Release);
}

/// Hands to `each` the processes that have been noted since it was called last.
pub(crate) fn take_unreferenced(mut each: impl FnMut(&'static Process)) {
    for (index, word) in UNREFERENCED.iter().enumerate() {
        // Acquire: partner is the Release in `note_unreferenced`.
        let mut bits = word.swap(0, Ordering::Acquire);
        while bits != 0 {
            each(&PROCESSES[index * 64 + bits.trailing_zeros() as usize]);
            bits &= bits - 1;
        }
    }
}

/// Takes a free slot. `make` gets its token, and room for the set of the CPUs that use its space.
pub(crate) fn take(make: impl FnOnce(SpaceToken, &'static [AtomicU64]) -> Vm<'static>) -> &'static Process {
    let (n, process) = PROCESSES
        .iter()
        .enumerate()
        // Acquire: partner is the Release in `give_back`. Relaxed on failure: the next one is tried.
        .find(|(_, one)| one.state.compare_exchange(FREE, TAKEN, Ordering::Acquire, Ordering::Relaxed).is_ok())
        .expect("a slot for another process");
    // Relaxed, both: nobody else knows the slot.
    process.set.iter().for_each(|word| word.store(0, Ordering::Relaxed));
    process.threads.store(0, Ordering::Relaxed);
    let vm = make(SpaceToken(n as u64), &process.set);
    // SAFETY: the slot is ours alone until its token is handed on.
    unsafe { (*process.vm.get()).write(vm) };
    process
}

impl Process {
    /// Its memory.
    pub(crate) fn vm(&'static self) -> &'static Vm<'static> {
        // SAFETY: written by `take` before anybody could hold this process.
        unsafe { (*self.vm.get()).assume_init_ref() }
    }

    /// What the protocol knows it by.
    pub(crate) fn space(&'static self) -> &'static AddressSpace {
        self.vm().space()
    }

    /// One thread more runs in it.
    pub(crate) fn add_thread(&self) {
        // Relaxed: the caller runs in it, or has just made it.
        self.threads.fetch_add(1, Ordering::Relaxed);
    }

    /// True if more than the caller's thread runs in it: the others may all have ended by the time that one counts
    /// itself out.
    pub(crate) fn has_other_threads(&self) -> bool {
        // Relaxed: whoever sees too many has gone lazy in vain, and that is all.
        self.threads.load(Ordering::Relaxed) > 1
    }

    /// One thread fewer runs in it; true if that was the last.
    pub(crate) fn remove_thread(&self) -> bool {
        // AcqRel: the last comes after what all others did; partner is itself.
        self.threads.fetch_sub(1, Ordering::AcqRel) == 1
    }

    /// The slot is free: all is done with its space.
    pub(crate) fn give_back(&self) {
        // Release: partner is the Acquire in `take`.
        self.state.store(FREE, Ordering::Release);
    }
}
