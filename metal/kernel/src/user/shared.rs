//! The page that programs and the kernel share: when the run is over, the score, and the number of CPUs.

use core::sync::atomic::{AtomicU64, Ordering};

use tlbkit_x86::now_cycles;

#[repr(C, align(4096))]
struct Shared {
    /// Time stamp at which the run is over; 0 once a task has seen that.
    over_at: AtomicU64,
    begun_at: AtomicU64,
    score: AtomicU64,
    cpus: AtomicU64,
    compute_percent: AtomicU64,
}

#[unsafe(link_section = ".bss.user.shared")]
static SHARED: Shared = Shared {
    over_at: AtomicU64::new(0),
    begun_at: AtomicU64::new(0),
    score: AtomicU64::new(0),
    cpus: AtomicU64::new(0),
    compute_percent: AtomicU64::new(0),
};

/// Starts the clock.
pub(crate) fn start(limit_cycles: u64, cpus: u32, compute_percent: u64) {
    // Relaxed, all of them: before the first task.
    let now = now_cycles();
    SHARED.begun_at.store(now, Ordering::Relaxed);
    SHARED.over_at.store(now.saturating_add(limit_cycles), Ordering::Relaxed);
    SHARED.cpus.store(u64::from(cpus), Ordering::Relaxed);
    SHARED.compute_percent.store(compute_percent, Ordering::Relaxed); // Relaxed: as above
}

/// True for all tasks as soon as it was for one.
pub(super) fn is_over() -> bool {
    // Acquire: partner is the Release below: a task that is woken by one that saw the end sees it too.
    let at = SHARED.over_at.load(Ordering::Acquire);
    if at != 0 && now_cycles() >= at {
        // Release: as above.
        SHARED.over_at.store(0, Ordering::Release);
    }
    at == 0 || now_cycles() >= at
}

pub(super) fn count(units: u64) {
    // Relaxed: a count.
    SHARED.score.fetch_add(units, Ordering::Relaxed);
}

/// How long the run has gone on.
pub(crate) fn elapsed_cycles() -> u64 {
    // Relaxed: as in `score`.
    now_cycles() - SHARED.begun_at.load(Ordering::Relaxed)
}

/// What programs have counted.
pub(crate) fn score() -> u64 {
    // Relaxed: read when no task is left.
    SHARED.score.load(Ordering::Relaxed)
}

pub(super) fn cpus() -> u32 {
    // Relaxed: written before the first task.
    SHARED.cpus.load(Ordering::Relaxed) as u32
}

pub(super) fn compute_percent() -> u64 {
    // Relaxed: as above.
    SHARED.compute_percent.load(Ordering::Relaxed)
}
