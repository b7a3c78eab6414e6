//! Address spaces and the threads that run in them, in slots that are used again.

use core::cell::UnsafeCell;
use core::mem::MaybeUninit;
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use tlbkit::{AddressSpace, Destroyed, Hardware, Isolation, SpaceToken};
use tlbkit_pmap::Vm;

use crate::machine::{self, counters::Counter};
use crate::memory::{self, Ram};

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

/// The protocol says that the tables of this space can go. In a switch, so it is only noted.
pub(crate) fn note_unreferenced(token: SpaceToken) {
    // Release: partner is the Acquire in `reclaim`.
    UNREFERENCED[token.0 as usize / 64].fetch_or(1 << (token.0 % 64), Ordering::Release);
}

fn reclaim() {
    for (index, word) in UNREFERENCED.iter().enumerate() {
        // Acquire: partner is the Release in `note_unreferenced`.
        let mut bits = word.swap(0, Ordering::Acquire);
        while bits != 0 {
            let process = &PROCESSES[index * 64 + bits.trailing_zeros() as usize];
            process.vm().reclaim(&machine::cpu(), &Ram);
            process.give_back();
            bits &= bits - 1;
        }
    }
}

/// A process with an empty space.
pub(crate) fn new() -> &'static Process {
    reclaim();
    let (n, process) = PROCESSES
        .iter()
        .enumerate()
        // Acquire: partner is the Release in `give_back`. Relaxed on failure: the next one is tried.
        .find(|(_, one)| one.state.compare_exchange(FREE, TAKEN, Ordering::Acquire, Ordering::Relaxed).is_ok())
        .expect("a slot for another process");
    // Relaxed, both: nobody else knows the slot.
    process.set.iter().for_each(|word| word.store(0, Ordering::Relaxed));
    process.threads.store(0, Ordering::Relaxed);
    let (tlb, map) = (machine::tlb(), machine::kernel_map());
    let set = &process.set[..AddressSpace::set_words(crate::boot::options().cpus as usize)];
    let vm = Vm::new(tlb, &Ram, map, SpaceToken(n as u64), set).expect("memory for another space");
    if tlb.policy().isolation == Isolation::On {
        memory::share_image_with_user_half(vm.space().root());
    }
    // SAFETY: the slot is ours alone until its token is handed on.
    unsafe { (*process.vm.get()).write(vm) };
    process
}

impl Process {
    /// Its memory.
    pub(crate) fn vm(&'static self) -> &'static Vm<'static> {
        // SAFETY: written by `new` before anybody could hold this process.
        unsafe { (*self.vm.get()).assume_init_ref() }
    }

    /// What the protocol knows it by.
    pub(crate) fn space(&'static self) -> &'static AddressSpace<'static> {
        self.vm().space()
    }

    /// A thread is about to be started in it.
    pub(crate) fn join(&self) {
        // Relaxed: the caller runs in it, or has just made it.
        self.threads.fetch_add(1, Ordering::Relaxed);
    }

    /// The running thread ends; with the last one the space does.
    pub(crate) fn leave(&'static self) {
        // AcqRel: the last comes after what all others did; partner is itself.
        if self.threads.fetch_sub(1, Ordering::AcqRel) > 1 {
            return;
        }
        machine::counters::add(Counter::Exits, 1);
        let cpu = machine::cpu();
        self.vm().exit(&cpu, &Ram);
        if cpu.is_running(self.space()) {
            cpu.hardware().with_irqs_off(|irqs| cpu.enter_lazy(irqs));
        }
        if self.vm().destroy(&cpu, &Ram) == Destroyed::Now {
            self.give_back();
        }
    }

    fn give_back(&self) {
        // Release: all is done with it; partner is the Acquire in `new`.
        self.state.store(FREE, Ordering::Release);
    }
}
