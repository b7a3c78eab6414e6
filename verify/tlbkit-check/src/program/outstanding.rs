//! Flushes that were issued and are waited for later: by the CPU that issued them, or by another one to which the task
//! has gone meanwhile.

use std::ops::Range;

use tlbkit::{Deferred, Hardware, PAGE_BYTES, Reason};
use tlbkit_pmap::{Memory, Withdrawal};

use super::reclaim::Held;
use super::{Op, pages};
use crate::machine::issued::{Issued, IssuedFlush};
use crate::machine::operation::RETIRE;
use crate::machine::world::World;

impl<'k> World<'k> {
    /// Carries `op` out if it is about what is outstanding.
    pub(super) fn carry_out_issued(&self, cpu: usize, op: Op) -> bool {
        match op {
            Op::Withdraw(page, count) => self.withdraw(cpu, pages::range(page, count)),
            Op::Retire(page, count) => self.retire(cpu, pages::range(page, count)),
            Op::Reclaim(page, count) => self.reclaim_pages(cpu, &pages::range(page, count)),
            Op::Settle => self.settle(cpu),
            Op::Poll => self.poll(cpu),
            Op::Adopt => self.adopt(cpu),
            Op::Forget => self.forget(cpu),
            _ => return false,
        }
        true
    }

    /// Waits for all that `cpu` has issued: its program is over.
    pub(super) fn settle_all(&self, cpu: usize) {
        while self.issued_by(cpu) > 0 {
            self.settle(cpu);
        }
    }

    /// How many flushes of `cpu` are outstanding. The CPU that asks learns it: others take some away.
    fn issued_by(&self, cpu: usize) -> usize {
        let count = self.issued[cpu].borrow().len();
        self.machine.borrow_mut().learn(count as u64);
        count
    }

    /// The oldest flush of `cpu` that is outstanding.
    fn take_oldest(&self, cpu: usize) -> Option<Issued<'k>> {
        (self.issued_by(cpu) > 0).then(|| self.issued[cpu].borrow_mut().pop_front()).flatten()
    }

    /// The oldest one, if that is something reclaimed: one flush serves two.
    fn take_reclaimed(&self, cpu: usize) -> Option<(Box<Deferred<Held>>, u32)> {
        let is_reclaimed = matches!(self.issued[cpu].borrow().front()?.flush, IssuedFlush::Reclaimed(_));
        let oldest = is_reclaimed.then(|| self.take_oldest(cpu)).flatten()?;
        let IssuedFlush::Reclaimed(deferred) = oldest.flush else { return None };
        Some((deferred, oldest.operation))
    }

    fn withdraw(&self, cpu: usize, range: Range<u64>) {
        let Some(space) = self.kernel.runs(cpu) else { return };
        self.kernel.hold(space);
        let vm = self.vm(space);
        self.machine.borrow_mut().values.begin_change(space, &range);
        // What it takes out itself is all that it promises.
        self.machine.borrow_mut().begin("withdraw", Some(vm.space().root().0), 0..0);
        let count = (range.end - range.start) / PAGE_BYTES;
        let withdrawal = self.with_cpu(cpu, |handle| Withdrawal::take(&handle, &self.bus(), vm, range.start, count));
        self.leave_outstanding(cpu, IssuedFlush::OfSpace { withdrawal: Box::new(withdrawal), space, range });
    }

    /// Unmaps `range` of what runs here. What is mapped there then is the old pages, until the retirement is finished.
    fn retire(&self, cpu: usize, range: Range<u64>) {
        let Some(space) = self.kernel.runs(cpu) else { return };
        self.kernel.hold(space);
        let vm = self.vm(space);
        self.machine.borrow_mut().values.begin_change(space, &range);
        self.machine.borrow_mut().begin(RETIRE, Some(vm.space().root().0), 0..0);
        let count = (range.end - range.start) / PAGE_BYTES;
        let unmapped =
            self.with_cpu(cpu, |handle| vm.unmap_and_retire(&handle, &self.bus(), self.periods, range.start, count));
        if let Ok(Some(retirement)) = unmapped {
            let flush = IssuedFlush::Retired { retirement: Box::new(retirement), space, range };
            return self.leave_outstanding(cpu, flush);
        }
        // It waited, or did nothing.
        self.machine.borrow_mut().end();
        self.machine.borrow_mut().values.end_change(space, &range);
        self.kernel.unhold(space);
    }

    /// The operation of `cpu` goes on when its flush is waited for.
    pub(super) fn leave_outstanding(&self, cpu: usize, flush: IssuedFlush<'k>) {
        let operation = self.machine.borrow_mut().suspend();
        self.issued[cpu].borrow_mut().push_back(Issued { flush, operation });
    }

    fn settle(&self, cpu: usize) {
        let Some(issued) = self.take_oldest(cpu) else { return };
        self.machine.borrow_mut().resume(issued.operation);
        self.finish(cpu, issued);
    }

    /// Asks whether the oldest one is over. If it is, nothing is waited for, so interrupts may be off.
    fn poll(&self, cpu: usize) {
        let Some(mut issued) = self.take_oldest(cpu) else { return };
        self.machine.borrow_mut().resume(issued.operation);
        let is_done = self.with_cpu(cpu, |handle| match &mut issued.flush {
            IssuedFlush::OfSpace { withdrawal, .. } => withdrawal.is_done(&handle),
            IssuedFlush::Retired { retirement, .. } => retirement.is_over(&handle, self.periods),
            IssuedFlush::OfKernel(pending) => pending.is_done(&handle),
            IssuedFlush::Reclaimed(_) => false,
        });
        if is_done && matches!(issued.flush, IssuedFlush::Retired { .. }) {
            self.finish(cpu, issued); // it takes the lock of the regions
        } else if is_done {
            self.with_cpu(cpu, |handle| handle.hardware().with_irqs_off(|_| self.finish(cpu, issued)));
        } else {
            issued.operation = self.machine.borrow_mut().suspend();
            self.issued[cpu].borrow_mut().push_front(issued);
        }
    }

    /// The task that issued a flush on another CPU was moved here, and waits.
    fn adopt(&self, cpu: usize) {
        self.point();
        let cpus = self.issued.len();
        let others = (1..cpus).map(|distance| (cpu + distance) % cpus);
        let found = others.into_iter().find_map(|other| self.take_oldest(other).map(|issued| (other, issued)));
        let Some((other, issued)) = found else { return };
        // A scheduler that moves a task between CPUs makes what it has written visible.
        self.machine.borrow_mut().drain_cpu(other);
        self.machine.borrow_mut().resume(issued.operation);
        self.finish(cpu, issued);
    }

    /// Waits, as the operation that goes on.
    fn finish(&self, cpu: usize, issued: Issued<'k>) {
        match issued.flush {
            IssuedFlush::OfSpace { withdrawal, space, range } => {
                self.with_cpu(cpu, |handle| withdrawal.finish(&handle, &self.bus()));
                self.machine.borrow_mut().end();
                self.machine.borrow_mut().values.end_change(space, &range);
                self.kernel.unhold(space);
            }
            IssuedFlush::Retired { retirement, space, range } => {
                let vm = self.vm(space);
                self.with_cpu(cpu, |handle| retirement.finish(&handle, &self.bus(), self.periods, vm));
                self.machine.borrow_mut().end();
                self.machine.borrow_mut().values.end_change(space, &range);
                self.kernel.unhold(space);
            }
            IssuedFlush::Reclaimed(mut deferred) => {
                let why = Reason::RemovePte;
                let next = self.take_reclaimed(cpu);
                let next = next.map(|(other, operation)| {
                    self.with_cpu(cpu, |handle| deferred.fold(&handle, *other));
                    operation
                });
                let frames = self.with_cpu(cpu, |handle| deferred.flush(&handle, self.periods, why).into_frames());
                frames.put_all(&self.bus());
                self.machine.borrow_mut().end();
                if let Some(operation) = next {
                    self.machine.borrow_mut().resume(operation);
                    self.machine.borrow_mut().end();
                }
            }
            IssuedFlush::OfKernel(pending) => {
                let frames = self.with_cpu(cpu, |handle| pending.wait(&handle).into_frames());
                frames.into_iter().for_each(|frame| self.bus().put(frame));
                self.machine.borrow_mut().end();
            }
        }
    }

    /// What its pages hold is never known again: other CPUs may use the old frames for ever.
    fn forget(&self, cpu: usize) {
        let Some(issued) = self.issued[cpu].borrow_mut().pop_back() else { return };
        self.machine.borrow_mut().abandon(issued.operation);
        self.kernel.set_forgot();
        if let IssuedFlush::OfSpace { space, .. } | IssuedFlush::Retired { space, .. } = issued.flush {
            self.kernel.unhold(space);
        }
    }
}
