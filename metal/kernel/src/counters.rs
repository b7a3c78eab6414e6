//! The counters of this machine, under the names that the simulator uses.

use core::sync::atomic::{AtomicU64, Ordering};

use crate::arch::cpu;
use crate::layout::MAX_CPUS;

macro_rules! counters {
    ($($(#[$doc:meta])* $variant:ident = $name:literal,)+) => {
        /// One thing that is counted.
        #[derive(Clone, Copy, PartialEq, Eq, Debug)]
        #[repr(usize)]
        pub(crate) enum Counter { $($(#[$doc])* $variant,)+ }

        impl Counter {
            /// All of them, with their names.
            pub(crate) const ALL: &[(Self, &str)] = &[$((Self::$variant, $name),)+];
        }
    };
}

counters! {
    /// INVLPG, and INVPCID of one page.
    Pages = "pages",
    /// INVPCID of a whole PCID or of everything, and toggles of CR4.PGE.
    Everything = "everything",
    /// INVLPGB.
    Broadcasts = "broadcasts",
    /// CR3 writes.
    Cr3 = "cr3",
    /// Flush IPIs sent, one per receiver.
    IpisSent = "ipis_sent",
    /// Flush IPIs received.
    IpisReceived = "ipis_received",
    /// IPIs that were not sent, since the CPU flushes when it enters the kernel.
    SparedUntilEntry = "spared_until_entry",
    /// IPIs that were not sent, since the host flushes the CPU.
    SparedByHost = "spared_by_host",
    /// Entries into the kernel that had flushes to do.
    CaughtUp = "caught_up",
    /// Flushes begun by the protocol.
    Flushes = "flushes",
    /// Pages of all flushes that were not full.
    FlushPages = "flush_pages",
    /// Full flushes.
    FullFlushes = "full_flushes",
    /// Requests that found the CPU already up to date.
    AlreadyCurrent = "already_current",
    /// Requests for a space that was not loaded.
    WrongSpace = "wrong_space",
    /// Switches that kept the translations of their PCID.
    SwitchesKept = "switches_kept",
    /// Switches that flushed their PCID.
    SwitchesFlushed = "switches_flushed",
    /// Pages that were unmapped and given back after a grace period.
    RetiredPages = "retired_pages",
    /// System calls.
    Syscalls = "syscalls",
    /// Page faults.
    Faults = "faults",
    /// Switches between tasks, or from a task to the idle thread and back.
    Switches = "switches",
    /// Tasks woken on another CPU than the one that woke them.
    RemoteWakes = "remote_wakes",
    /// Processes and threads started.
    Tasks = "tasks",
    /// Processes that ended.
    Exits = "exits",
    /// Translations that the monitor's TLB had no room for.
    Evicted = "evicted",
}

const COUNTERS: usize = Counter::ALL.len();

#[repr(align(64))]
struct CpuCounters([AtomicU64; COUNTERS]);

static COUNTED: [CpuCounters; MAX_CPUS] = [const { CpuCounters([const { AtomicU64::new(0) }; COUNTERS]) }; MAX_CPUS];

/// Counts on this CPU.
#[inline]
pub(crate) fn add(counter: Counter, n: u64) {
    // Relaxed: a count.
    COUNTED[cpu::index() as usize].0[counter as usize].fetch_add(n, Ordering::Relaxed);
}

/// What one CPU has counted.
pub(crate) fn get(cpu: u32, counter: Counter) -> u64 {
    // Relaxed: a count; nothing is concluded from it about other memory.
    COUNTED[cpu as usize].0[counter as usize].load(Ordering::Relaxed)
}

/// What all CPUs together have counted.
pub(crate) fn sum(counter: Counter) -> u64 {
    // Relaxed: read when nothing runs any more.
    COUNTED.iter().map(|row| row.0[counter as usize].load(Ordering::Relaxed)).sum()
}
