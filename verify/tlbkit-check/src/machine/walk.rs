//! The walker: whatever root is loaded, it may walk to any address at any time, one level a step, from memory or from
//! a path that it has cached.
//!
//! Since a walk may stop after each level and go on much later through what it cached, all walks together are a
//! closure: from the root and from every cached path, read the next level, and remember what was found. It is taken
//! again whenever the tables or the loaded root have changed. Entries that are not present are never cached.

use super::Machine;
use super::memory::{FrameName, Use};
use super::tlb::{Entry, Life, Path, Revocation, span_shift};
use tlbkit_pmap::Pte;

/// A table that a walk has reached, with the permissions so far.
#[derive(Clone, Copy)]
pub(super) struct Reached {
    table: FrameName,
    may_write: bool,
    is_user: bool,
    fetched: u64,
}

const TOP: u32 = 4;

impl Machine {
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
        let tag = self.cpus[cpu].tag;
        let mut reached = std::mem::take(&mut self.reached);
        reached.clear();
        reached.push(Reached { table: root, may_write: true, is_user: true, fetched: self.step });
        for level in (1..=TOP).rev() {
            if level < TOP {
                reached.clear();
                let paths = self.cpus[cpu].tlb.paths.iter().filter(|path| path.is_for(tag, level, va));
                reached.extend(paths.map(|path| Reached {
                    table: path.table,
                    may_write: path.may_write,
                    is_user: path.is_user,
                    fetched: path.fetched,
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
            let finding = crate::oracle::table::walked(self, cpu, va, level, from.table, from.fetched);
            return self.report(finding);
        }
        let pte_at = from.table.at + 8 * (va >> span_shift(level) & 511);
        let pte = Pte(self.memory.read(pte_at));
        if !pte.has(Pte::PRESENT) {
            return;
        }
        if !pte.has(Pte::ACCESSED) && !self.unaccessed.contains(&pte_at) {
            self.unaccessed.push(pte_at);
        }
        let (tag, root) = (self.cpus[cpu].tag, self.cpus[cpu].root);
        let may_write = from.may_write && pte.has(Pte::WRITE);
        let is_user = from.is_user && pte.has(Pte::USER);
        if level > 1 && !pte.has(Pte::LARGE) {
            let (prefix, table) = (va >> span_shift(level), self.memory.name(pte.frame().0));
            let fetched = self.step;
            let path = Path { tag, level: level - 1, prefix, table, may_write, is_user, root, fetched };
            self.cpus[cpu].tlb.add_path(path);
            return;
        }
        let shift = span_shift(level);
        self.cpus[cpu].tlb.add(Entry {
            tag,
            va: va >> shift << shift,
            shift,
            frame: self.memory.name(pte.frame().0),
            may_write,
            is_user,
            is_dirty: pte.has(Pte::DIRTY),
            is_global: pte.has(Pte::GLOBAL),
            root,
            pte_at,
            life: Life::new(self.step),
        });
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
                    && (now.has(Pte::WRITE) || !entry.may_write)
                    && (now.has(Pte::USER) || !entry.is_user)
                    && (entry.shift > 12) == now.has(Pte::LARGE);
                if is_true {
                    entry.life = Life::new(entry.life.fetched);
                    continue;
                }
                let revoked = *entry.life.revoked.get_or_insert(Revocation { op, step: self.step });
                // Whoever maps another frame in its place promises that nobody uses the old one any more.
                let is_replaced = revoked.op == op && now.has(Pte::PRESENT) && entry.frame != frame;
                if entry.life.promised_by.is_none() && revoked.op == op && (is_over || is_replaced) {
                    entry.life.promised_by = Some(op);
                }
            }
        }
    }
}
