//! Operations of the kernel: which call changes the page tables, and what the return of a call promises.
//!
//! The promise is the contract of the page tables, stated apart from how the protocol keeps it: when a call that
//! revokes returns, no CPU can use what it revoked, nor what others had revoked in its range before it began. What a
//! program has given away is another matter until its grace period is over.

use std::ops::Range;

use super::Machine;
use tlbkit::Isolation;

use super::memory::FrameName;
use super::observation::Observation;
use super::operation::Operation;
use crate::timeline::LineKind;

impl Machine {
    /// Begins an operation on the CPU that executes.
    pub(crate) fn begin(&mut self, name: &'static str, root: Option<u64>, promise: Range<u64>) {
        let (cpu, began) = (self.current, self.step);
        self.cpus[cpu].act();
        self.cpus[cpu].op = self.ops.len() as u32;
        let root = root.map(|at| self.memory.name(at));
        self.ops.push(Operation::new(name, cpu, began, root, promise));
        self.log.add(self.step, cpu, LineKind::Begin, || name.to_owned());
    }

    /// The running operation turns out to promise that nothing older is left of `promise`.
    pub(crate) fn promise_all_older(&mut self, promise: Range<u64>) {
        let step = self.step;
        let op = &mut self.ops[self.cpus[self.current].op as usize];
        (op.began, op.promise) = (step, promise);
    }

    /// Ends the operation of the CPU that executes: what it has promised must hold now.
    pub(crate) fn end(&mut self) {
        self.end_on(0..self.cpus.len());
    }

    /// The top-level table at `own` is one CPU's, for the space that has one at `of_space`; so for the user halves.
    pub(crate) fn add_root(&mut self, own: u64, of_space: u64) {
        let halves = if self.isolation == Isolation::On { 2 } else { 1 };
        for offset in (0..halves).map(|half| half << 12) {
            self.roots.push((self.memory.name(own + offset), self.memory.name(of_space + offset)));
        }
    }

    /// Ends an operation that promises something for the CPU alone that executes.
    pub(crate) fn end_here(&mut self) {
        self.end_on(self.current..self.current + 1);
    }

    fn end_on(&mut self, cpus: Range<usize>) {
        let id = self.cpus[self.current].op;
        let step = self.step;
        self.cpus[self.current].act();
        let op = &mut self.ops[id as usize];
        op.ended = Some(step);
        let op = op.clone();
        let (isolation, roots) = (self.isolation, &self.roots);
        for entry in self.cpus[cpus].iter_mut().flat_map(|core| &mut core.tlb.entries) {
            let Some(revoked) = entry.life.revoked else { continue };
            let is_kept_back = self.ops[revoked.op as usize].holds_back();
            let is_promised =
                revoked.step < op.began && op.covers(entry, isolation, |root| home(roots, root)) && !is_kept_back;
            if entry.life.promised_by.is_none() && (revoked.op == id || is_promised) {
                entry.life.promised_by = Some(id);
            }
        }
        self.log.add(step, self.current, LineKind::End, || op.name.to_owned());
        self.report_reach();
        self.cpus[self.current].op = 0;
    }

    /// The running operation of the CPU that executes goes on later: nothing is promised yet.
    pub(crate) fn suspend(&mut self) -> u32 {
        let core = &mut self.cpus[self.current];
        core.act();
        let id = std::mem::replace(&mut core.op, 0);
        core.suspended.push(id);
        id
    }

    /// The CPU that executes goes on with an operation that it suspended, or another CPU.
    pub(crate) fn resume(&mut self, id: u32) {
        self.abandon(id);
        self.cpus[self.current].op = id;
        self.log.add(self.step, self.current, LineKind::Begin, || "wait".to_owned());
    }

    /// Nobody goes on with an operation that was suspended, or the CPU that executes does at once.
    pub(crate) fn abandon(&mut self, id: u32) {
        self.cpus[self.current].act();
        self.cpus.iter_mut().for_each(|core| core.suspended.retain(|&suspended| suspended != id));
    }

    /// What each CPU may be able to reach has changed.
    pub(crate) fn report_reach(&mut self) {
        (0..self.cpus.len()).for_each(|cpu| self.report(&Observation::ReachChanged { cpu }));
    }
}

/// The top-level table that the space of `root` was made with, where `roots` are those of CPUs.
pub(crate) fn home(roots: &[(FrameName, FrameName)], root: FrameName) -> FrameName {
    roots.iter().find(|(own, _)| *own == root).map_or(root, |&(_, of_space)| of_space)
}
