//! The process table: each slot has an address space and a count of its threads. A slot is reused once its space is no
//! longer referenced on any CPU.

use core::cell::UnsafeCell;
use core::mem::MaybeUninit;
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use heapless::Deque;
use spin::Mutex;
use tlbkit::{AddressSpace, SpaceToken};
use tlbkit_pmap::{Retirement, Vm};

/// Most processes at a time.
const MOST: usize = 512;

/// Most retirements of a process at a time.
const MOST_RETIRED: usize = 4;

const FREE: u32 = 0;
const TAKEN: u32 = 1;

/// One process. The CPU set of its space has its own cache line.
#[repr(align(64))]
pub(crate) struct Process {
    set: [AtomicU64; 8],
    state: AtomicU32,
    /// Threads that have not ended.
    threads: AtomicU32,
    /// What it has unmapped, the oldest first, and will get back after a grace period.
    pub(crate) retired: Mutex<Deque<Retirement, MOST_RETIRED>>,
    vm: UnsafeCell<MaybeUninit<Vm<'static>>>,
}

// SAFETY: `vm` is written by the CPU that took the slot, before any other CPU knows its token, and only read
// afterwards.
unsafe impl Sync for Process {}

static PROCESSES: [Process; MOST] = [const {
    Process {
        set: [const { AtomicU64::new(0) }; 8],
        state: AtomicU32::new(FREE),
        threads: AtomicU32::new(0),
        retired: Mutex::new(Deque::new()),
        vm: UnsafeCell::new(MaybeUninit::uninit()),
    }
}; MOST];

/// Spaces whose last lazy reference is gone, one bit each.
static UNREFERENCED: [AtomicU64; MOST / 64] = [const { AtomicU64::new(0) }; MOST / 64];

/// The process whose space has this token.
pub(crate) fn by_token(token: SpaceToken) -> &'static Process {
    &PROCESSES[token.0 as usize]
}

/// The protocol reports that the page tables of this space can be freed. This may come in the middle of a context
/// switch, so it is only recorded.
pub(crate) fn record_unreferenced(token: SpaceToken) {
    // Release: partner is the Acquire in `take_unreferenced`.
    UNREFERENCED[token.0 as usize / 64].fetch_or(1 << (token.0 % 64), Ordering::Release);
}

/// Calls `each` with every process that has been recorded since the last call.
pub(crate) fn take_unreferenced(mut each: impl FnMut(&'static Process)) {
    for (index, word) in UNREFERENCED.iter().enumerate() {
        // Acquire: partner is the Release in `record_unreferenced`.
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
        // Acquire: partner is the Release in `free_slot`. Relaxed on failure: the next one is tried.
        .find(|(_, one)| one.state.compare_exchange(FREE, TAKEN, Ordering::Acquire, Ordering::Relaxed).is_ok())
        .expect("a slot for another process");
    // Relaxed, both: nobody else knows the slot.
    process.set.iter().for_each(|word| word.store(0, Ordering::Relaxed));
    process.threads.store(0, Ordering::Relaxed);
    let vm = make(SpaceToken(n as u64), &process.set);
    // SAFETY: the slot is ours until its token is passed on.
    unsafe { (*process.vm.get()).write(vm) };
    process
}

impl Process {
    /// Its memory.
    pub(crate) fn vm(&'static self) -> &'static Vm<'static> {
        // SAFETY: written by `take` before anybody could hold this process.
        unsafe { (*self.vm.get()).assume_init_ref() }
    }

    /// The token by which the protocol knows its space.
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
        // Relaxed: a count that is too high only makes a CPU enter lazy TLB mode for nothing.
        self.threads.load(Ordering::Relaxed) > 1
    }

    /// One thread fewer runs in it; true if that was the last.
    pub(crate) fn remove_thread(&self) -> bool {
        // AcqRel: the last thread is ordered after everything that the others did; its partner is this operation on
        // other CPUs.
        self.threads.fetch_sub(1, Ordering::AcqRel) == 1
    }

    /// The slot is free: all is done with its space.
    pub(crate) fn free_slot(&self) {
        // Release: partner is the Acquire in `take`.
        self.state.store(FREE, Ordering::Release);
    }
}
