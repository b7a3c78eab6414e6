//! [`TlbGather::retire`] (as LATR has it): frames that come back after a grace period, for which nobody is interrupted.
//!
//! **The rule.** It is only for what a program gives away with its addresses, as munmap does: nothing may be mapped at
//! those addresses before the grace period is over. Until then another CPU may still use what it has cached, and finds
//! there what was there before. A permission that is taken away, a copy, and pages whose addresses stay are no such
//! thing: after MADV_DONTNEED an allocator hands the memory to another thread, and what that one stores by an old
//! translation would be lost. Page-table pages are not retired: [`retire`](TlbGather::retire) waits if there are any.
//!
//! The flush is announced and done here, and sent to nobody. The other CPUs *pass*: wherever they enter the kernel, at
//! a tick or at a switch at least, they call [`GracePeriods::pass`]. The grace period is over when each CPU that runs
//! any space has passed since, or has been seen idle or offline. What CPUs pass is an *epoch*, so that one word says
//! whether there is anything to do, and all that is retired during one costs each CPU one flush:
//!
//! ```text
//!   CPU that gives away (retire)               CPU that passes (pass)            CPU that asks (is_over)
//!   change the PTE; advance the generation     is the epoch another one than
//!   fence(SeqCst)                              it has passed?
//!   after := epoch                             if so: fence(SeqCst)              epoch: after -> after + 1
//!                                              read the generation; if it is     does a CPU run anything? (Acquire)
//!                                              newer: flush all of the space     has it passed `after`?   (Acquire)
//!                                              passed := that epoch  (Release)   free
//! ```
//! A CPU that passes a later epoch than `after` read that epoch after `after` was read, so by the two fences it reads
//! the new generation. If it does not run the space it finds the new generation when it comes (INV-2); if it is idle,
//! too (INV-5). An epoch ends as soon as somebody asks for what was retired in it, and nobody waits for its end: so
//! a CPU that never passes holds frames back, and nothing else.
//!
//! Where page tables say that no other CPU can hold what is given away, nothing is retired: `flush/sharers.rs`.
//!
//! Memory is bounded by the kernel: it asks [`Retired::is_over`], and when it holds too much, or memory is low,
//! [`Retired::flush`] interrupts all CPUs and waits as any other flush.
//!
//! ```compile_fail
//! # use tlbkit::{Cpu, GracePeriods, Hardware, TlbGather};
//! # fn free(_: Vec<u32>) {}
//! fn too_early<H: Hardware>(cpu: &Cpu<'_, '_, H>, periods: &GracePeriods, gather: TlbGather<'_, H::Set, Vec<u32>>) {
//!     free(gather.retire(cpu, periods).into_frames()); // there is no such thing: frames come out of `flush` alone
//! }
//! ```

use core::mem::ManuallyDrop;

use super::gather::{Flushed, TlbGather};
use super::request::{Needs, Request};
use super::shootdown::Outcome;
use crate::addr::CpuId;
use crate::cpu::Cpu;
use crate::cpu::state::Presence;
use crate::hardware::{Event, Hardware, IrqsOff};
use crate::policy::Reason;
use crate::space::Translations;
use crate::sync::{AtomicU64, Ordering, const_unless_loom, fence};

/// The newest epoch that a CPU has passed: a cache line for each possible CPU.
#[repr(align(64))]
pub struct Passed(AtomicU64);

impl Passed {
    const_unless_loom! {
        /// Of a CPU that has passed none.
        #[must_use]
        pub fn new() -> Self {
            Self(AtomicU64::new(0))
        }
    }
}

impl Default for Passed {
    fn default() -> Self {
        Self::new()
    }
}

/// The grace periods of a machine, for a kernel that retires frames. One that does not needs none, and pays nothing.
#[repr(align(64))]
pub struct GracePeriods<'k> {
    epoch: AtomicU64,
    passed: &'k [Passed],
}

impl<'k> GracePeriods<'k> {
    const_unless_loom! {
        /// With one [`Passed`] for each possible CPU.
        #[must_use]
        pub fn new(passed: &'k [Passed]) -> Self {
            Self { epoch: AtomicU64::new(1), passed }
        }
    }

    /// Says that `cpu`, this CPU, flushes here what others have retired. A kernel calls it at each tick and in each
    /// switch of tasks at least; the more often, the fewer frames are held. It takes two loads if nobody has asked
    /// since, and otherwise one flush of what is loaded, unless that is current.
    ///
    /// Interrupts are off, and it may be called at any moment at which [`Cpu::answer`] may.
    ///
    /// # Panics
    /// If there are fewer [`Passed`] than CPUs.
    #[inline]
    pub fn pass<H: Hardware>(&self, cpu: &Cpu<'_, '_, H>, irqs: &IrqsOff) {
        let own = &self.passed[cpu.id().0 as usize].0;
        // Relaxed, both: ordered by the fence in `pass_epoch`; and this CPU alone writes what it has passed.
        let epoch = self.epoch.load(Ordering::Relaxed);
        if own.load(Ordering::Relaxed) != epoch {
            Self::pass_epoch(own, epoch, cpu, irqs);
        }
    }

    #[cold]
    fn pass_epoch<H: Hardware>(own: &AtomicU64, epoch: u64, cpu: &Cpu<'_, '_, H>, irqs: &IrqsOff) {
        cpu.check_irqs_off();
        let presence = cpu.presence();
        debug_assert!(presence != Presence::SWITCHING, "a switch flushes nothing, and passes nothing");
        // SeqCst: partner is the fence in `advance`, before `retire` reads the epoch.
        fence(Ordering::SeqCst);
        if !presence.is_lazy() {
            cpu.catch_up(Needs::NOTHING, irqs);
        }
        // Release: the flush is over, and so is what the program did before it; partner is the Acquire in `is_over`.
        own.store(epoch, Ordering::Release);
    }

    /// Ends the epoch, and returns it: who passes a later one has seen every generation that was advanced, and every
    /// fence executed, before this call.
    pub(super) fn end_epoch(&self) -> u64 {
        // Relaxed: the fences of `advance` and `pass_epoch` order what was recorded.
        self.epoch.fetch_add(1, Ordering::Relaxed)
    }

    /// True if `cpu` has passed a later epoch than `after`.
    ///
    /// # Panics
    /// If there are fewer [`Passed`] than CPUs.
    pub(super) fn has_passed(&self, cpu: CpuId, after: u64) -> bool {
        // Acquire: partner is the Release in `pass_epoch`.
        self.passed[cpu.0 as usize].0.load(Ordering::Acquire) > after
    }

    /// True if no CPU can use what was retired when the epoch was `after`. Ends that epoch, if it has not ended.
    fn is_over<H: Hardware>(&self, after: u64, cpu: &Cpu<'_, '_, H>) -> bool {
        // Relaxed: the fences of `advance` and `pass_epoch` order what was retired. If it fails, the epoch ended
        // before.
        let _ = self.epoch.compare_exchange(after, after + 1, Ordering::Relaxed, Ordering::Relaxed);
        let cpus = cpu.tlb().cpus;
        // With fewer `Passed` than CPUs, those beyond would never be waited for.
        cpus.iter().zip(&self.passed[..cpus.len()]).all(|(state, passed)| {
            // Acquire: partner is the Release that enters lazy TLB mode or goes offline: what that CPU did is over.
            let seen = Presence(state.presence.load(Ordering::Acquire));
            // Acquire: partner is the Release in `pass_epoch`.
            seen.is_lazy() || passed.0.load(Ordering::Acquire) > after
        })
    }
}

impl<S, F> TlbGather<'_, S, F> {
    /// Gives away what was recorded, and interrupts nobody: the frames come back out of [`Retired`] when every CPU has
    /// passed. The head of `flush/retire.rs` says what it is for; nothing may be mapped at these addresses until then.
    ///
    /// When it returns, this CPU has flushed. Where page-table pages, global entries, kernel addresses or the trimming
    /// of a CPU set are concerned it flushes as [`flush`](Self::flush) does, and the frames come back at once.
    ///
    /// # Panics
    /// As [`flush`](Self::flush).
    pub fn retire<H: Hardware<Set = S>>(self, cpu: &Cpu<'_, '_, H>, periods: &GracePeriods<'_>) -> Retired<F> {
        let mut after = None;
        let mut request = self.request(cpu);
        if self.has_work(cpu) && cpu.announce(self.translations, &mut request) == Outcome::NeedsShootdown {
            let is_of_kernel = matches!(self.translations, Translations::OfKernel);
            if is_of_kernel || request.needs(Needs::TABLES.with(Needs::ANSWER).with(Needs::WIDENS_RESPONDERS)) {
                cpu.flush_with_others(self.translations, &request, self.reason());
            } else {
                cpu.flush_here(&request);
                cpu.hardware().event(Event::FlushEnd);
                // Relaxed: it comes after the fence in `advance`; partner is the fence in `pass_epoch`.
                after = Some(periods.epoch.load(Ordering::Relaxed));
            }
        }
        Retired { after, ..Retired::of_nobody(self.into_flushed()) }
    }
}

/// Frames that were given away, and that some CPU may still reach. One that is dropped keeps its frames for ever: a
/// leak, not a use-after-free (INV-9).
#[must_use = "what is retired and not asked for leaks its frames"]
pub struct Retired<F> {
    frames: ManuallyDrop<F>,
    /// The epoch that each CPU has to pass; none if the grace period is over.
    after: Option<u64>,
}

impl<F> Retired<F> {
    /// Frames that no other CPU could reach.
    pub(super) fn of_nobody(flushed: Flushed<F>) -> Self {
        Self { frames: ManuallyDrop::new(flushed.into_frames()), after: None }
    }

    /// The frames, if no other CPU could reach them, so that there is no grace period; otherwise what it was.
    ///
    /// # Errors
    /// What has to be asked for later.
    pub fn try_now(self) -> Result<Flushed<F>, Self> {
        if self.after.is_some() { Err(self) } else { Ok(Flushed::new(ManuallyDrop::into_inner(self.frames))) }
    }

    /// True if no CPU can reach the frames any more: [`flush`](Self::flush) then returns at once. It waits for nobody,
    /// and looks at each CPU; so ask for what was retired first, and not for everything.
    #[must_use]
    pub fn is_over<H: Hardware>(&mut self, cpu: &Cpu<'_, '_, H>, periods: &GracePeriods<'_>) -> bool {
        cpu.assert_here();
        cpu.with_irqs_off_here(|irqs| periods.pass(cpu, irqs));
        self.after = self.after.filter(|&after| !periods.is_over(after, cpu));
        self.after.is_none()
    }

    /// Gives the frames back, at once if the grace period is over. Otherwise all CPUs are interrupted, and waited for.
    ///
    /// # Panics
    /// As [`is_over`](Self::is_over); and as [`TlbGather::flush`], if the grace period is not over.
    pub fn flush<H: Hardware>(mut self, cpu: &Cpu<'_, '_, H>, periods: &GracePeriods<'_>) -> Flushed<F> {
        if !self.is_over(cpu, periods) {
            // Of everything, as the space may have ended meanwhile.
            cpu.shootdown(Translations::OfKernel, Request::everything(Needs::NOTHING), Reason::RemovePte);
        }
        Flushed::new(ManuallyDrop::into_inner(self.frames))
    }
}
