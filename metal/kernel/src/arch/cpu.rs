//! The data that each CPU has for itself, found through the GS register.

use core::arch::asm;
use core::cell::UnsafeCell;
use core::sync::atomic::{AtomicU64, Ordering};

use crate::layout::MAX_CPUS;

/// Bytes of an idle thread's stack, which is also the one that a CPU starts on: `boot.s` knows it too.
const IDLE_STACK_BYTES: usize = 64 << 10;

/// `traps.s` knows the first two fields.
#[repr(C, align(64))]
pub(crate) struct Local {
    user_rsp: AtomicU64,
    /// Where a system call of the task that runs here finds its stack.
    kernel_rsp: AtomicU64,
    index: u32,
}

static LOCALS: [Local; MAX_CPUS] = {
    let mut locals =
        [const { Local { user_rsp: AtomicU64::new(0), kernel_rsp: AtomicU64::new(0), index: 0 } }; MAX_CPUS];
    let mut n = 0;
    while n < MAX_CPUS {
        locals[n].index = n as u32;
        n += 1;
    }
    locals
};

#[repr(C, align(4096))]
struct IdleStacks(UnsafeCell<[[u8; IDLE_STACK_BYTES]; MAX_CPUS]>);

// SAFETY: each CPU uses its own.
unsafe impl Sync for IdleStacks {}

#[unsafe(no_mangle)]
static IDLE_STACKS: IdleStacks = IdleStacks(UnsafeCell::new([[0; IDLE_STACK_BYTES]; MAX_CPUS]));

/// The top of a CPU's idle stack.
pub(crate) fn idle_stack_top(index: u32) -> u64 {
    IDLE_STACKS.0.get() as u64 + (u64::from(index) + 1) * IDLE_STACK_BYTES as u64
}

pub(super) const fn local(index: u32) -> &'static Local {
    &LOCALS[index as usize]
}

/// The CPU that this runs on. A task that blocks may go on elsewhere: ask again after.
pub(crate) fn index() -> u32 {
    let index;
    // SAFETY: GS is this CPU's `Local` from `tables::load` on. Not `pure`: the answer changes when a task moves.
    unsafe { asm!("mov {:e}, gs:[16]", out(reg) index, options(nostack, preserves_flags, readonly)) }
    index
}

/// Makes system calls of this CPU's programs arrive on this stack.
pub(super) fn set_syscall_stack(top: u64) {
    // Relaxed: no partner, only this CPU's own entry code reads it.
    local(index()).kernel_rsp.store(top, Ordering::Relaxed);
}
