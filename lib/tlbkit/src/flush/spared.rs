//! Responders that need no IPI: CPUs that flush before they can use anything again.
//!
//! There are two kinds, and a kernel asks for each by its [`Hardware`]: the CPUs of a guest that its host does not run,
//! or flushes by itself; and CPUs that run a program and are not to be disturbed, which flush when they enter the
//! kernel. Either is chosen like any responder, and is then left out: it gets neither a request nor an IPI, and nobody
//! waits for it. Its ASIDs keep their generations, which are older than the space's by then, so that its next switch or
//! request flushes once more than it need; no generation ever promises what the host did.
//!
//! **The host's CPUs** ([`Hardware::flush_by_host`]). The mark and the host's look are locked operations on one word:
//!
//! ```text
//!   initiator (spare)                              host that runs the CPU again
//!   change the PTE; advance the generation
//!   fence(SeqCst)
//!   choose the CPU by its presence
//!   preempted -> preempted and flush   (locked)    take the word: running          (locked)
//!   if that failed: send the request               if it said flush: flush all that the CPU has cached
//!                                                  the CPU executes its next instruction
//! ```
//! Where the CPU was preempted does not matter, because all that it cached before is gone when it goes on, and all that
//! it caches then it reads from the changed tables:
//!
//! | preempted | what it does when it goes on |
//! |---|---|
//! | in a program, or in the kernel, of the space | runs with an empty TLB; its ASID is stale, as it is |
//! | in a switch, having read the old generation | loads CR3, and keeps an empty PCID; records the old generation |
//! | in the answer to an older request | flushes again; records the generation that it had read, which is older |
//! | in its own flush | the same; the frames of its gather wait until it goes on |
//! | in lazy TLB mode, tables being freed | walks from the root, which stays; every cached path is gone |
//! | in `bring_up`, online and not yet flushed | flushes again |
//!
//! Two kinds of request are never left to the host ([`Needs::ANSWER`]), because what the CPU does when it goes on
//! matters: the end of a space whose top-level table is freed, which a lazy CPU has to leave; and tables that are freed
//! while code may be walking them with interrupts off. A CPU that is preempted later, with the request in its
//! initiator's outbox, is waited for: to withdraw the request would race with its answer, of which the host knows
//! nothing.
//!
//! **CPUs in user mode** ([`KernelFlushes::AtEntry`]). Each has a word, [`Deferral`](crate::cpu::state::Deferral):
//!
//! ```text
//!   initiator (defer)                              CPU (defer_kernel_flushes, do_deferred_flushes)
//!                                                  the kernel's last access
//!   change the PTE                                 word := USER                    (Release)
//!   fence(SeqCst)                                  the program runs
//!   USER -> USER and WORK   (locked, Acquire)      exchange: word := WORK          (locked, Acquire)
//!   if that failed: send the request               if it said WORK: flush everything
//!   free the frame                                 word := 0
//!                                                  the kernel's first access
//! ```
//! All three changes of the word are in one order. If the initiator comes before the exchange, the CPU flushes before
//! it can use anything; if it comes after, it finds no USER and interrupts the CPU. All that waits is one flush of
//! everything, however many initiators there were.
//!
//! The CPU's walker goes on in user mode, and may cache kernel addresses that it is not asked for. So a page table that
//! is freed is never deferred; an entry that it has cached is flushed before anybody can use it.
//!
//! *An NMI* may come between any two of these steps, and touches kernel memory. It calls `do_deferred_flushes` as well:
//!
//! ```text
//!   CPU enters (do_deferred_flushes)               NMI on the same CPU
//!   exchange: USER and WORK -> WORK
//!                                                  exchange: WORK -> WORK: flush everything
//!                                                  word := 0; its accesses
//!   flush everything; word := 0
//! ```
//! If the exchange wrote 0 the NMI would find nothing to do, with the flush still to come. If the NMI came before the
//! exchange, or in user mode, it has found USER, and says USER again when its accesses are over
//! ([`Entered::Deferring`]).

use super::request::{Extent, Needs, Request};
use crate::cpu::Cpu;
use crate::hardware::{Event, Hardware, HostExtent, HostFlush, IrqsOff, KernelFlushes};
use crate::space::SpaceId;
use crate::space::cpu_set::{first_cpu, for_each_cpu, split};

/// Where an entry into the kernel found its CPU.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Entered {
    /// In a program, or on the way there or back: its flushes of kernel addresses were deferred until now.
    Deferring,
    /// In the kernel, or on a CPU that does not defer.
    Kernel,
}

impl<H: Hardware> Cpu<'_, '_, H> {
    /// Those of `chosen`, CPUs of the word at `index`, to which `request` is sent.
    #[inline(always)]
    pub(super) fn spare(&self, index: usize, chosen: u64, request: &Request<'_>) -> u64 {
        let is_host_idle = self.hardware.host_flush() == HostFlush::None;
        if is_host_idle && self.hardware.kernel_flushes() == KernelFlushes::AtOnce || chosen == 0 {
            return chosen;
        }
        self.spare_some(index, chosen, request)
    }

    #[inline(never)]
    fn spare_some(&self, index: usize, chosen: u64, request: &Request<'_>) -> u64 {
        let mut left = chosen;
        if self.hardware.kernel_flushes() == KernelFlushes::AtEntry && can_wait_for_entry(request) {
            for_each_cpu(index, chosen, |cpu| {
                if self.tlb.cpus[cpu.0 as usize].deferral.defer() {
                    left &= !split(cpu).1;
                }
            });
        }
        let until_entry = (chosen & !left).count_ones();
        if left != 0 && can_be_left_to(self.hardware.host_flush(), request) {
            left &= self.hardware.flush_by_host(first_cpu(index, 1), left, extent_for_host(request));
        }
        if left != chosen {
            let by_host = (chosen & !left).count_ones() - until_entry;
            self.hardware.event(Event::Spared { until_entry, by_host });
        }
        left
    }
}

/// True if a request is about kernel addresses alone. One that names none may be about anything, and a table that is
/// freed is walked in user mode, too.
fn can_wait_for_entry(request: &Request<'_>) -> bool {
    request.space == SpaceId::KERNEL
        && request.needs(Needs::GLOBAL.with(Needs::NON_GLOBAL))
        && !request.needs(Needs::TABLES)
}

fn can_be_left_to(host: HostFlush, request: &Request<'_>) -> bool {
    match host {
        HostFlush::None => false,
        HostFlush::Translations => !request.needs(Needs::ANSWER.with(Needs::TABLES)),
        HostFlush::TranslationsAndPaths => !request.needs(Needs::ANSWER),
    }
}

fn extent_for_host(request: &Request<'_>) -> HostExtent {
    match request.extent {
        // A range of addresses reaches no path to a table that is freed. In a user space it reaches no page either that
        // another CPU has taken out and not flushed yet, as a responder does that finds itself generations behind.
        Extent::Range { start, pages } if request.space == SpaceId::KERNEL && !request.needs(Needs::TABLES) => {
            HostExtent::Range { start, pages, bytes: request.step.bytes() }
        }
        _ => HostExtent::Everything,
    }
}

/// CPUs that are not to be disturbed.
impl<H: Hardware> Cpu<'_, '_, H> {
    /// On the way to user mode: from here on flushes of kernel addresses do not interrupt this CPU, and are done by
    /// [`do_deferred_flushes`](Self::do_deferred_flushes). For a kernel that says [`KernelFlushes::AtEntry`], on those
    /// CPUs that are not to be disturbed; to others it makes no difference.
    ///
    /// It is the last thing but the way out. Until the CPU is in user mode it touches only kernel addresses that are
    /// never unmapped while it is online: code and stack of the way out, per-CPU data, descriptor tables.
    /// [`exit_to_user`](Self::exit_to_user) may come after it. Every way back into the kernel, interrupts included,
    /// calls `do_deferred_flushes`.
    ///
    /// Flushes of user addresses interrupt the CPU as before, if it runs the space. So do flushes that free page tables
    /// of kernel addresses, and those of a batch that names no space.
    #[inline]
    pub fn defer_kernel_flushes(&self, _irqs: &IrqsOff) {
        self.assert_here();
        debug_assert!(!self.presence().is_absent(), "CPU {} defers, and was not brought up", self.id.0);
        self.state.deferral.begin();
    }

    /// On the way into the kernel: does the flushes of kernel addresses that were deferred, by one flush of everything.
    /// It takes an exchange and a store if there were none.
    ///
    /// It comes before the first access to a kernel address that may ever be unmapped: until it returns, entry code
    /// touches only what [`defer_kernel_flushes`](Self::defer_kernel_flushes) leaves to it. Every entry from user mode
    /// calls it on a CPU that defers, and so does what may come while the CPU is between the two, although it is
    /// in the kernel: NMIs, machine checks, debug exceptions, faults of IRET. An entry that did not come from user mode
    /// and was told [`Entered::Deferring`] calls `defer_kernel_flushes` when its own accesses are over, since the code
    /// that it returns to does not; and one that did come from there calls it as ever. It may be called at any moment
    /// on a CPU that is online, also where an NMI has come into the middle of another call.
    #[inline]
    pub fn do_deferred_flushes(&self, irqs: &IrqsOff) -> Entered {
        self.assert_here();
        let (was_deferring, has_work) = self.state.deferral.enter();
        if has_work {
            self.flush_all_and_globals(irqs);
            self.hardware.event(Event::CaughtUp);
        }
        self.state.deferral.finish();
        if was_deferring { Entered::Deferring } else { Entered::Kernel }
    }
}
