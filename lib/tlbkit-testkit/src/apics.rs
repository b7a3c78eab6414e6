//! The local APICs: which CPU has an interrupt pending, and which interrupts are lost on their way.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use tlbkit::CpuId;

/// What the CPUs of a machine share besides its memory.
pub struct Apics {
    /// For each CPU, whether an interrupt is pending.
    pub pending: Vec<AtomicBool>,
    /// How many interrupts are still to be lost.
    pub to_lose: AtomicUsize,
    /// The thread of a CPU has panicked, so no other CPU may wait for it.
    pub(crate) has_failed: AtomicBool,
}

impl Apics {
    /// Of as many CPUs; no interrupt is pending, and none will be lost.
    #[must_use]
    pub fn new(cpus: usize) -> Self {
        let pending = (0..cpus).map(|_| AtomicBool::new(false)).collect();
        Self { pending, to_lose: AtomicUsize::new(0), has_failed: AtomicBool::new(false) }
    }

    /// All CPUs, in order.
    pub fn cpus(&self) -> impl Iterator<Item = CpuId> + use<> {
        (0..self.pending.len() as u32).map(CpuId)
    }

    /// Interrupts `to`, unless this interrupt is one of those that are lost.
    ///
    /// # Panics
    /// If there is no such CPU; so does [`take`](Self::take).
    pub fn send(&self, to: CpuId) {
        // Relaxed: it only counts.
        let lost = self.to_lose.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(1));
        if lost.is_err() {
            // Release: the request comes before its interrupt; partner is the Acquire in `take`.
            self.pending[to.0 as usize].store(true, Ordering::Release);
        }
    }

    /// Accepts the pending interrupt of `cpu`: false if none is pending.
    pub fn take(&self, cpu: CpuId) -> bool {
        // Acquire: partner is the Release in `send`.
        self.pending[cpu.0 as usize].swap(false, Ordering::Acquire)
    }

    /// PAUSE on real threads: lets the others run.
    ///
    /// # Panics
    /// If the thread of another CPU has panicked: it will never answer.
    pub fn yield_now(&self) {
        // Relaxed: it only ends the test.
        assert!(!self.has_failed.load(Ordering::Relaxed), "another CPU has failed");
        std::thread::yield_now();
    }
}
