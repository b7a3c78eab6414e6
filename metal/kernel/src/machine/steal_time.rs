//! What a host tells its guest of each CPU, and the guest asks in return: one byte, as in KVM's steal-time area. The
//! host takes it by a locked operation before it runs the CPU again.

use core::sync::atomic::{AtomicU8, Ordering};

use crate::layout::MAX_CPUS;

/// The host has taken this CPU away.
const PREEMPTED: u8 = 1;
/// It is to flush the CPU before it runs it again.
const FLUSH: u8 = 2;

static BYTES: [AtomicU8; MAX_CPUS] = [const { AtomicU8::new(0) }; MAX_CPUS];

/// The guest: has the host flush this CPU before it goes on. False if the CPU runs.
pub(super) fn ask(cpu: u32) -> bool {
    let byte = &BYTES[cpu as usize];
    // Relaxed: only what the locked operation finds counts, which must come after this change even if FLUSH is there.
    let seen = byte.load(Ordering::Relaxed);
    seen & PREEMPTED != 0
        // SeqCst: the change of the tables comes before; partner is the swap in `take`.
        && byte.compare_exchange(seen, seen | FLUSH, Ordering::SeqCst, Ordering::Relaxed).is_ok()
}

/// The host: this CPU is taken away.
pub(crate) fn preempt(cpu: u32) {
    // SeqCst: what the CPU did comes before.
    BYTES[cpu as usize].store(PREEMPTED, Ordering::SeqCst);
}

/// The host: runs the CPU again. True if it has to be flushed before.
pub(crate) fn take(cpu: u32) -> bool {
    // SeqCst: the walks that follow see what was changed before somebody asked; partner is the exchange in `ask`.
    BYTES[cpu as usize].swap(0, Ordering::SeqCst) & FLUSH != 0
}
