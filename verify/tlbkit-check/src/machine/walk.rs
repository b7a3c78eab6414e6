//! The walker: whatever root is loaded, it may walk to any address at any time, one level a step, from memory or from
//! a path that it has cached.
//!
//! Since a walk may stop after each level and go on much later through what it cached, all walks together are a
//! closure: from the root and from every cached path, read the next level, and remember what was found. It is taken
//! again whenever the tables or the loaded root have changed. Entries that are not present are never cached.

use super::core::Mode;
use super::memory::Use;
use super::observation::Observation;
use super::tlb::{Life, Named, Path, Revocation, Tlb, TlbEntry};
use super::{Machine, Reached};
use crate::program::Access;
use tlbkit::{Pcid, PhysAddr, Stride, VirtAddr};
use tlbkit_arch::addr::TOP_LEVEL;
use tlbkit_arch::{Pte, Rights, Translation, WalkStep, entry_at, span_start};

impl Machine {
    /// From now on walkers look at the page of `va`.
    pub(crate) fn watch(&mut self, va: u64) {
        let page = va & !0xfff;
        if !self.watched.contains(&page) {
            self.watched.push(page);
            self.walk_everywhere();
        }
    }

    /// A stopped CPU begins again with the kernel's tables: turning paging on has emptied its TLB, but from then on it
    /// may fetch what is being unmapped.
    pub(crate) fn restart(&mut self, cpu: usize, kernel_root: u64) {
        let root = self.memory.name(kernel_root);
        let core = &mut self.cpus[cpu];
        core.mode = Mode::Absent;
        (core.root, core.pcid, core.tlb) = (root, Pcid(0), Tlb::default());
        self.walk(cpu);
    }

    /// The tables have changed: every CPU may look at them.
    pub(crate) fn walk_everywhere(&mut self) {
        (0..self.cpus.len()).for_each(|cpu| self.walk(cpu));
    }

    /// Adds all that `cpu` may have fetched by now.
    pub(crate) fn walk(&mut self, cpu: usize) {
        if !self.cpus[cpu].walks() {
            return;
        }
        for index in 0..self.watched.len() {
            self.walk_to(cpu, self.watched[index]);
        }
    }

    fn walk_to(&mut self, cpu: usize, va: u64) {
        let root = self.cpus[cpu].root;
        let pcid = self.cpus[cpu].pcid;
        let mut reached = std::mem::take(&mut self.reached);
        reached.clear();
        reached.push(Reached { table: root, rights: Rights::ALL, fetched: self.step, named: Named::default() });
        for level in (1..=TOP_LEVEL).rev() {
            if level < TOP_LEVEL {
                reached.clear();
                let paths = self.cpus[cpu].tlb.paths.iter().filter(|path| {
                    path.reach.pcid == pcid && path.reach.level == level && path.reach.leads_to(VirtAddr(va))
                });
                reached.extend(paths.map(|path| Reached {
                    table: path.table,
                    rights: path.rights,
                    fetched: path.fetched,
                    named: path.named,
                }));
            }
            for &from in &reached {
                self.read_level(cpu, va, level, from);
            }
        }
        self.reached = reached;
    }

    /// Reads the entry of `va` in one table.
    fn read_level(&mut self, cpu: usize, va: u64, level: u32, from: Reached) {
        if self.memory.still(from.table) != Some(Use::Table) {
            let Reached { table, fetched, .. } = from;
            return self.report(&Observation::FreedTableWalked { cpu, va, level, table, fetched });
        }
        let va = VirtAddr(va);
        let pte_at = entry_at(PhysAddr(from.table.at), va, level).0;
        let pte = Pte(self.memory.read(pte_at));
        if pte.has(Pte::PRESENT) && !pte.has(Pte::ACCESSED) {
            if !self.unaccessed.contains(&pte_at) {
                self.unaccessed.push(pte_at);
            }
            if self.marks_first {
                return;
            }
        }
        let (pcid, root) = (self.cpus[cpu].pcid, self.cpus[cpu].root);
        let (rights, start) = (from.rights.below(pte), span_start(va, level));
        match pte.step(level) {
            WalkStep::NotPresent => {}
            WalkStep::Table(table) => {
                let (table, fetched) = (self.memory.name(table.0), self.step);
                let reach = tlbkit_arch::Path { pcid, start, level: level - 1 };
                let named = self.named_too(from.named, |what| what.removes_path(&reach));
                self.cpus[cpu].tlb.add_path(Path { reach, table, rights, root, fetched, named });
            }
            WalkStep::Page(frame, stride) => {
                let is_global = pte.has(Pte::GLOBAL);
                let frame = self.memory.name(frame.0);
                let page = Translation { pcid, start, stride, is_global };
                let named = self.named_too(from.named, |what| what.removes(&page));
                self.cpus[cpu].tlb.add(TlbEntry {
                    page,
                    frame,
                    rights,
                    is_dirty: pte.has(Pte::DIRTY),
                    root,
                    pte_at,
                    life: Life::new(self.step),
                    named,
                });
            }
        }
    }

    /// The walk of an access of `cpu` to `va`: it sets the A bit of the entry that allows it, and goes on.
    pub(crate) fn mark(&mut self, cpu: usize, va: u64, access: Access) {
        let mut table = PhysAddr(self.cpus[cpu].root.at);
        for level in (1..=TOP_LEVEL).rev() {
            let at = entry_at(table, VirtAddr(va), level).0;
            let pte = Pte(self.memory.read(at));
            let allows = access == Access::Read || pte.has(Pte::WRITE);
            if allows && pte.has(Pte::PRESENT) && !pte.has(Pte::ACCESSED) {
                self.memory.write(at, pte.with(Pte::ACCESSED).0);
                self.walk_everywhere();
            }
            let WalkStep::Table(next) = pte.step(level) else { return };
            table = next;
        }
    }

    /// The word at `pte_at` has changed: which entries it made stale, and which it made true again.
    pub(crate) fn age_entries(&mut self, pte_at: u64, op: u32) {
        let now = Pte(self.memory.read(pte_at));
        let frame = self.memory.name(now.frame().0);
        let is_over = self.ops[op as usize].ended.is_some();
        for core in &mut self.cpus {
            for entry in core.tlb.entries.iter_mut().filter(|entry| entry.pte_at == pte_at) {
                let is_true = now.has(Pte::PRESENT)
                    && entry.frame == frame
                    && (now.has(Pte::WRITE) || !entry.rights.may_write)
                    && (now.has(Pte::USER) || !entry.rights.is_user)
                    && (entry.page.stride != Stride::Page4K) == now.has(Pte::LARGE);
                if is_true {
                    entry.life = Life::new(entry.life.fetched);
                    continue;
                }
                let revoked = *entry.life.revoked.get_or_insert(Revocation { op, step: self.step });
                // A call that maps another frame in its place promises that no CPU uses the old one any more.
                let is_replaced = revoked.op == op && now.has(Pte::PRESENT) && entry.frame != frame;
                if entry.life.promised_by.is_none() && revoked.op == op && (is_over || is_replaced) {
                    entry.life.promised_by = Some(op);
                }
            }
        }
    }
}
