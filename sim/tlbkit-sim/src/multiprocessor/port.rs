//! The door of the protocol to one simulated CPU.

use std::num::NonZeroU32;

use tlbkit::sync::AtomicU64;
use tlbkit::{
    AddressSpace, Cpu, CpuId, Cr3, Event, Features, Hardware, HostExtent, HostFlush, Invlpgb, Invpcid, IrqsOff,
    KernelFlushes, Late, LocalFlush, PhysAddr, SpaceToken, VirtAddr,
};

use super::cold::CallKind;
use super::processor::{Arrival, Choice, Irqs, Processor, Ring};
use super::system::Multiprocessor;
use super::tally::Vector;
use crate::code::ReadsGeneration;
use crate::mmu::Mmu;
use crate::observer::Cause;

impl Multiprocessor {
    /// Calls the protocol on behalf of a CPU.
    pub(crate) fn with_cpu<R>(&'static self, cpu: usize, body: impl FnOnce(Cpu<'_, 'static, Port>) -> R) -> R {
        let port = Port { machine: self, cpu };
        body(self.tlb.cpu(CpuId(cpu as u32), &port))
    }

    /// Whether flushes of kernel addresses wait for a CPU that runs a program.
    pub(crate) fn defers_kernel_flushes(&self) -> bool {
        self.kernel_flushes == KernelFlushes::AtEntry
    }

    /// The running CPU, whose interrupts are off, enters the kernel, and flushes what waited for that.
    pub(crate) fn do_deferred_flushes(&'static self) {
        if self.defers_kernel_flushes() {
            self.with_cpu(self.cpu(), |handle| handle.do_deferred_flushes(&IrqsOff::assume()));
        }
    }

    /// The running CPU, whose interrupts are off, is about to run a program.
    pub(crate) fn defer_kernel_flushes(&'static self) {
        if self.defers_kernel_flushes() {
            self.with_cpu(self.cpu(), |handle| handle.defer_kernel_flushes(&IrqsOff::assume()));
        }
    }

    /// The running CPU finds that it has already flushed what it is asked for.
    fn find_current(&'static self) {
        let Some(queues) = &self.queues else { return };
        queues.was_current[self.cpu()].set(true);
        if queues.reads.reads_generation == ReadsGeneration::Always {
            let loaded = self.with_cpu(self.cpu(), |handle| handle.loaded_token());
            _ = self.space(loaded).generation();
        }
    }
}

/// One CPU as the protocol sees it.
#[derive(Clone, Copy)]
pub(crate) struct Port {
    machine: &'static Multiprocessor,
    cpu: usize,
}

impl Port {
    fn processor(&self) -> &'static Processor {
        &self.machine.processors[self.cpu]
    }

    /// Before the first cycle of the run nothing costs anything.
    fn is_live(&self) -> bool {
        self.machine.running_cpu().is_some()
    }

    /// An instruction that drains the pipeline.
    fn charge(&self, cycles: u64) {
        if self.is_live() {
            self.processor().work(cycles);
        }
    }

    /// Instructions that the sibling slows.
    fn charge_counted(&self, cycles: u64) {
        self.charge(self.machine.shared_cycles(self.cpu, cycles));
    }

    /// Charges the instructions of looking at CPUs, of which some are asked. What a flush does once is charged with the
    /// first of them.
    fn charge_choice(&self, asked: u64, skipped: u64) {
        let (calls, choice) = (&self.machine.costs.calls, &self.processor().choice);
        let mut cycles = asked * calls.flush_told + skipped * calls.flush_skipped;
        if asked + skipped > 0 && matches!(choice.get(), Choice::None | Choice::Broadcast) {
            choice.set(Choice::Looking);
            cycles += calls.flush_choose;
            self.charge(self.machine.cold_cycles(self.cpu, CallKind::Flush, |lines| lines.ask));
        }
        if asked > 0 && choice.get() == Choice::Looking {
            choice.set(Choice::Asking);
            cycles += calls.flush_ask;
        }
        self.charge_counted(cycles);
    }

    /// Sends the interrupts that were held back, if any were.
    fn send_held_back(&self) {
        if let Some(queues) = &self.machine.queues {
            let held_back = queues.held_back[self.cpu].take();
            if !held_back.is_empty() {
                self.send_each(&held_back);
            }
        }
    }

    fn send_each(&self, targets: &[u32]) {
        for &to in targets {
            self.processor().within(Cause::FlushSend, || self.machine.write_command_for(to as usize));
            self.ipi(to as usize);
        }
        self.machine.sync(0);
    }

    fn ipi(&self, to: usize) {
        let target = &self.machine.processors[to];
        let (observer, now) = (&self.machine.observer, self.processor().now());
        observer.flush_interrupt_sent(self.cpu, to, &target.mmu.borrow(), target.class.get(), now);
        if self.machine.away_until(to) > now {
            observer.interrupted_preempted();
        }
        if self.machine.defect.loses_interrupt() {
            self.machine.tally.note_lost();
        } else {
            self.machine.deliver(to, Vector::Flush);
        }
    }
}

impl Hardware for Port {
    type Set = &'static [AtomicU64];
    type Token = SpaceToken;

    fn features(&self) -> Features {
        self.machine.features
    }

    fn write_cr3(&self, cr3: Cr3) {
        let costs = &self.machine.costs;
        self.charge(if cr3.keeps() && self.machine.features.pcid { costs.cr3_keep } else { costs.cr3_flush });
        let mut mmu = self.processor().mmu.borrow_mut();
        self.machine.observer.cr3_write(&mut mmu, |mmu| mmu.write_cr3(cr3));
    }

    fn invlpg(&self, va: VirtAddr) {
        self.charge(self.machine.costs.invlpg);
        if !self.machine.defect.loses_invalidation() {
            let mut mmu = self.processor().mmu.borrow_mut();
            self.machine.observer.page_invalidation(&mut mmu, |mmu| mmu.invlpg(va));
        }
    }

    fn invpcid(&self, what: Invpcid) {
        let costs = &self.machine.costs;
        self.charge(match what {
            Invpcid::Address(..) => costs.invpcid_address,
            Invpcid::Single(_) => costs.invpcid_single,
            Invpcid::AllAndGlobals | Invpcid::All => costs.invpcid_all,
        });
        if self.machine.defect.loses_invalidation() {
            return;
        }
        let mut mmu = self.processor().mmu.borrow_mut();
        let flush = |mmu: &mut Mmu| mmu.invpcid(what).expect("a tag that the protocol gave out");
        match what {
            Invpcid::Address(..) => self.machine.observer.page_invalidation(&mut mmu, flush),
            _ => self.machine.observer.full_invalidation(&mut mmu, flush),
        }
    }

    fn toggle_pge(&self) {
        self.charge(self.machine.costs.cr4_pge_toggle);
        let mut mmu = self.processor().mmu.borrow_mut();
        self.machine.observer.full_invalidation(&mut mmu, Mmu::toggle_pge);
    }

    fn broadcast_pages(&self) -> Option<NonZeroU32> {
        self.machine.broadcast_pages
    }

    /// It arrives everywhere at once. CPUs that are behind act first, so that none loses before its time what it still
    /// uses. One that is ahead in its own memory has used what it lost a little longer, as it may before the TLBSYNC.
    fn invlpgb(&self, what: Invlpgb) {
        if self.is_live() {
            let processor = self.processor();
            processor.choice.set(Choice::Broadcast);
            processor.within(Cause::FlushSend, || processor.work(self.machine.costs.invlpgb));
            self.machine.sync(0);
        }
        self.machine.observer.broadcast();
        if self.machine.defect.loses_invalidation() {
            return;
        }
        for processor in &self.machine.processors {
            processor.mmu.borrow_mut().invlpgb(what);
        }
    }

    fn tlbsync(&self) {
        if self.is_live() {
            let processor = self.processor();
            processor.within(Cause::FlushWait, || processor.work(self.machine.costs.tlbsync));
            self.machine.sync(0);
        }
    }

    /// A kernel that queues calls sends its interrupts when all calls are queued. Until then they are held back.
    fn send_ipi(&self, to: CpuId) {
        match &self.machine.queues {
            Some(queues) => queues.held_back[self.cpu].borrow_mut().push(to.0),
            None => self.send_each(&[to.0]),
        }
    }

    fn send_ipi_to_others(&self) {
        let cycles = self.machine.costs.ipi_send_shorthand;
        self.processor().within(Cause::FlushSend, || self.machine.write_command(cycles));
        for to in (0..self.machine.cpus()).filter(|&to| to != self.cpu) {
            self.ipi(to);
        }
        self.machine.sync(0);
    }

    fn directories(&self) -> tlbkit::Directories {
        self.machine.tlb.policy().directories
    }

    fn acknowledgement(&self) -> tlbkit::Acknowledgement {
        self.machine.tlb.policy().acknowledgement
    }

    fn host_flush(&self) -> HostFlush {
        self.machine.host_flush()
    }

    /// KVM's way: a look at the word of each CPU, and a locked operation on those that say "preempted". The look hits,
    /// as such a word hardly ever changes.
    fn flush_by_host(&self, first: CpuId, cpus: u64, _what: HostExtent) -> u64 {
        let (machine, lines) = (self.machine, &self.machine.costs.lines);
        machine.sync(0);
        let mut left = cpus;
        for bit in (0..u64::BITS).filter(|bit| cpus >> bit & 1 != 0) {
            self.charge(lines.local_cycles);
            if machine.mark_if_away((first.0 + bit) as usize) {
                self.charge(lines.same_socket_cycles + lines.locked_cycles);
                left &= !(1 << bit);
            }
        }
        left
    }

    fn kernel_flushes(&self) -> KernelFlushes {
        self.machine.kernel_flushes
    }

    fn relax(&self) {
        self.machine.relax();
    }

    fn glances(&self) -> u32 {
        self.send_held_back();
        if self.is_live() && self.machine.wait_for_calls() { u32::MAX } else { 0 }
    }

    /// A simulated machine loses an interrupt only by a defect that a test gives it, and the run itself notices that.
    /// So a CPU waits on.
    fn late(&self, _cpu: CpuId) -> Late {
        Late::Wait
    }

    fn patience_rounds(&self) -> u32 {
        u32::MAX
    }

    fn irqs_enabled(&self) -> bool {
        self.processor().irqs() == Irqs::On
    }

    fn with_irqs_off<R>(&self, f: impl FnOnce(&IrqsOff) -> R) -> R {
        let processor = self.processor();
        self.send_held_back();
        let before = processor.irqs.replace(Irqs::Off);
        // Other CPUs are told with interrupts on. If interrupts go off meanwhile, the local half of the flush begins.
        let cause = if processor.cause() == Cause::FlushSend { Cause::FlushLocal } else { processor.cause() };
        let result = processor.within(cause, || f(&IrqsOff::assume()));
        processor.irqs.set(before);
        if self.is_live() {
            self.machine.look_for_interrupts();
        }
        result
    }

    fn with_space_of<R>(&self, token: SpaceToken, f: impl FnOnce(&AddressSpace<Self::Set>) -> R) -> R {
        f(self.machine.space(token))
    }

    /// A CPU with top-level tables of its own reads which one is this space's.
    fn root_here(&self, space: &AddressSpace) -> PhysAddr {
        let own = self.machine.root_on(space.token(), self.cpu);
        own.inspect(|_| self.charge(self.machine.costs.pte_access)).unwrap_or(space.root())
    }

    /// A flush has phases, each with its own account and its own instructions. It ends on the account on which it
    /// began. Raising the generation and looking for other CPUs belongs to the half that the policy does first: the
    /// local or the remote one. The phase of telling others ends when the first of them is found not to have answered.
    fn event(&self, event: Event) {
        if !self.is_live() {
            return;
        }
        let (machine, processor) = (self.machine, self.processor());
        let calls = &machine.costs.calls;
        let mut local_cycles = processor.ledger.borrow().of(Cause::FlushLocal);
        match event {
            Event::FlushBegin(_) => {
                let first = match machine.tlb.policy().local_flush {
                    LocalFlush::BeforeRemote => Cause::FlushLocal,
                    LocalFlush::WhileRemote => Cause::FlushSend,
                };
                processor.cause_before_flush.set(processor.cause.replace(first));
                processor.choice.set(Choice::None);
                machine.begin_call(self.cpu, CallKind::Flush);
                let cold = machine.cold_cycles(self.cpu, CallKind::Flush, |lines| lines.flush);
                processor.advance_for(Cause::FlushLocal, machine.shared_cycles(self.cpu, calls.flush_begin) + cold);
            }
            Event::FlushLocalDone => {
                let calls =
                    if processor.choice.get() == Choice::Broadcast { calls.flush_broadcast } else { calls.flush_local };
                let cycles = machine.shared_cycles(self.cpu, calls);
                processor.advance_for(Cause::FlushLocal, cycles);
                local_cycles += cycles;
                processor.cause.set(Cause::FlushSend);
                machine.note_flushed();
            }
            Event::Chosen { asked, skipped } => {
                machine.apics.begin(self.cpu);
                self.charge_choice(u64::from(asked), u64::from(skipped));
            }
            Event::Waiting(_) => {
                self.send_held_back();
                processor.cause.set(Cause::FlushWait);
                machine.begin_to_wait();
            }
            Event::FlushIssued | Event::FlushEnd => {
                self.send_held_back();
                machine.end_of_calls();
                processor.cause.set(processor.cause_before_flush.get());
            }
            Event::AnswerBegin(_) => self.charge_counted(calls.request),
            Event::AlreadyCurrent => machine.find_current(),
            Event::AnswerEnd(_) => machine.note_flushed(),
            Event::SwitchKept => processor.arrival.set(Arrival::Kept),
            Event::SwitchFlushed => processor.arrival.set(Arrival::Flushed),
            Event::LastLazyReference(token) => machine.unreferenced.borrow_mut().push(token),
            _ => {}
        }
        machine.observer.protocol_event(self.cpu, event, local_cycles, processor.now());
    }

    fn now_cycles(&self) -> u64 {
        self.processor().now()
    }
}

/// The handler of a flush interrupt that `cpu` took while it ran in `ring`.
pub(crate) fn answer_flush(machine: &'static Multiprocessor, cpu: usize, ring: Ring) {
    machine.begin_call(cpu, CallKind::Answer);
    let cold = machine.cold_cycles(cpu, CallKind::Answer, |lines| lines.answer);
    machine.processors[cpu].advance(machine.shared_cycles(cpu, machine.costs.calls.handler) + cold);
    machine.take_calls();
    let irqs = IrqsOff::assume();
    machine.with_cpu(cpu, |handle| {
        if ring == Ring::User {
            handle.enter_kernel(&irqs);
        }
        handle.answer(&irqs);
        if ring == Ring::User {
            handle.exit_to_user(&irqs);
        }
    });
    machine.pass_after_answer();
}
