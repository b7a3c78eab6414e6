//! Emptying a space at exec, and its end: what is unhooked, flushed and freed in which order, and with how few flushes.
//!
//! Frames need one flush of everything. Page tables need one that reaches lazy CPUs too, unless they wait until
//! destroy, when the protocol makes sure that no CPU holds them (document 002).

use crate::held::Unhook;
use crate::memory::{Frame, Memory};
use crate::pmap::Pmap;
use crate::sweep::Change;
use crate::table::{self, USER_END};
use tlbkit::{Cpu, Hardware, Isolation, Reason, TableFree};

impl<S> Pmap<S> {
    /// Removes everything from the user half, and its tables if the policy or the lack of memory wants them at once. No
    /// other CPU may use the tables meanwhile.
    pub fn remove_all<'a, H: Hardware<Set = S>, M: Memory>(&'a self, cpu: &Cpu<'a, '_, H>, mem: &'a M) {
        let mut unhook = self.begin(cpu, mem);
        unhook.everything(Reason::RemoveAll);
        let swept = self.sweep_leaves(cpu, mem, 0..USER_END, Change::Remove(Reason::RemoveAll), &mut unhook);
        debug_assert!(swept.is_ok(), "a range of everything cuts no large page");
        let policy = cpu.tlb().policy();
        if policy.history.table_free() == TableFree::AtOnce || mem.is_low() {
            if policy.history.sends_at_once() {
                // Each request of its own: the tables are a second one.
                unhook.update();
                unhook.everything(Reason::FreeTable);
            }
            table::take_tables(mem, self.root(), 0..USER_END, &|_| true, &mut |va, frame| unhook.table(va, frame));
        }
        self.end(unhook, &(0..USER_END));
    }

    /// Takes out and frees the tables in `range` under which `is_unused` says nothing is mapped any more. No other CPU
    /// may use the tables meanwhile.
    pub(crate) fn free_tables<H: Hardware<Set = S>, M: Memory, const N: usize>(
        &self,
        mem: &M,
        range: core::ops::Range<u64>,
        is_unused: &impl Fn(core::ops::Range<u64>) -> bool,
        unhook: &mut Unhook<'_, H, M, N>,
    ) {
        table::take_tables(mem, self.root(), range, is_unused, &mut |va, frame| unhook.table(va, frame));
    }

    /// Frees the tables of an empty space that no CPU has loaded, lazily or not: there is nothing left to flush.
    pub(crate) fn free_root(&self, mem: &impl Memory) {
        let root = self.root();
        table::take_tables(mem, root, 0..USER_END, &|_| true, &mut |_, frame| mem.put(frame));
        let shift = if root.isolation == Isolation::On { 13 } else { 12 };
        mem.put(Frame { at: root.at, shift });
    }
}
