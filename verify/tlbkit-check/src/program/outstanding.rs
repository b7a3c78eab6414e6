//! Flushes that a CPU has issued and not waited for yet.

use std::collections::VecDeque;
use std::ops::Range;

use tlbkit::PAGE_BYTES;
use tlbkit::sync::AtomicU64;
use tlbkit_pmap::Withdrawal;

use super::{Op, pages};
use crate::machine::world::World;

/// One of them.
struct Issued<'w, 'k> {
    withdrawal: Withdrawal<'w, &'k [AtomicU64]>,
    /// The operation that took the pages, which goes on when it is waited for.
    operation: u32,
    space: usize,
    range: Range<u64>,
}

/// Those of one CPU, the oldest first.
pub(super) struct Outstanding<'w, 'k> {
    world: &'w World<'k>,
    cpu: usize,
    issued: VecDeque<Issued<'w, 'k>>,
}

impl<'w, 'k: 'w> Outstanding<'w, 'k> {
    pub(super) fn new(world: &'w World<'k>, cpu: usize) -> Self {
        Self { world, cpu, issued: VecDeque::new() }
    }

    /// Carries `op` out if it is about what is outstanding.
    pub(super) fn carry_out(&mut self, op: Op) -> bool {
        match op {
            Op::Withdraw(page, count) => self.withdraw(pages::range(page, count)),
            Op::Settle => self.settle(),
            Op::Forget => self.forget(),
            _ => return false,
        }
        true
    }

    /// Waits for all of them: the program is over.
    pub(super) fn settle_all(&mut self) {
        while !self.issued.is_empty() {
            self.settle();
        }
    }

    fn withdraw(&mut self, range: Range<u64>) {
        let (world, cpu) = (self.world, self.cpu);
        let Some(space) = world.kernel.runs(cpu) else { return };
        world.kernel.hold(space);
        let vm = world.vm(space);
        world.machine.borrow_mut().values.begin_change(space, &range);
        // What it takes out itself is all that it promises.
        world.machine.borrow_mut().begin("withdraw", Some(vm.space().root().0), 0..0);
        let count = (range.end - range.start) / PAGE_BYTES;
        let withdrawal = world.with_cpu(cpu, |handle| Withdrawal::take(&handle, &world.bus(), vm, range.start, count));
        let operation = world.machine.borrow_mut().suspend();
        self.issued.push_back(Issued { withdrawal, operation, space, range });
    }

    fn settle(&mut self) {
        let Some(Issued { withdrawal, operation, space, range }) = self.issued.pop_front() else { return };
        let world = self.world;
        world.machine.borrow_mut().resume(operation);
        world.with_cpu(self.cpu, |handle| withdrawal.finish(&handle, &world.bus()));
        world.machine.borrow_mut().end();
        world.machine.borrow_mut().values.end_change(space, &range);
        world.kernel.unhold(space);
    }

    /// What its pages hold is never known again: other CPUs may use the old frames for ever.
    fn forget(&mut self) {
        let Some(issued) = self.issued.pop_back() else { return };
        self.world.machine.borrow_mut().abandon(issued.operation);
        self.world.kernel.unhold(issued.space);
    }
}
