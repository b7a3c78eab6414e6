//! A program's access: it uses any translation that its CPU may hold, or faults.

use tlbkit::VirtAddr;
use tlbkit_arch::{Instruction, Pte};

use super::Machine;
use super::buffer::{Place, Store, UserStore};
use super::observation::Observation;
use super::tlb::TlbEntry;
use crate::program::Access;

/// What came of an access.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Touched {
    /// The access was carried out.
    Done,
    /// A page fault.
    Faulted,
}

impl Machine {
    /// The task of `space` on the CPU that executes touches the page at `va`.
    pub(crate) fn touch(&mut self, space: usize, va: u64, access: Access) -> Touched {
        let cpu = self.current;
        if self.marks_first {
            self.mark(cpu, va, access);
        }
        let core = &self.cpus[cpu];
        let usable: Vec<TlbEntry> = core.tlb.usable(core.pcid, VirtAddr(va)).copied().collect();
        // Entries may be gone at any time: without a true one a fresh walk faults.
        let is_mapped = usable.iter().any(|entry| entry.life.revoked.is_none());
        let choice = self.outcome(usable.len() + usize::from(!is_mapped));
        let touched = match usable.get(choice) {
            Some(entry) if self.may(entry, access) => self.use_entry(space, va, access, *entry),
            _ => Touched::Faulted,
        };
        if touched == Touched::Faulted {
            self.invalidate(cpu, Instruction::PageFault(VirtAddr(va)));
        }
        let pcid = self.cpus[cpu].pcid.0;
        self.log(cpu, || format!("user {access:?} at {va:#x}, PCID {pcid:#x}: {touched:?}"));
        touched
    }

    /// True if `entry` allows the access. A store through an entry without D sets D in the table first, and that
    /// looks at the table again.
    fn may(&mut self, entry: &TlbEntry, access: Access) -> bool {
        if !entry.rights.is_user || access == Access::Write && !entry.rights.may_write {
            return false;
        }
        if access == Access::Read || entry.is_dirty {
            return true;
        }
        let pte = Pte(self.memory.read(entry.pte_at));
        let is_true = self.memory.is_table(entry.pte_at)
            && pte.has(Pte::PRESENT | Pte::WRITE)
            && self.memory.name(pte.frame().0) == entry.frame;
        if is_true {
            self.memory.write(entry.pte_at, pte.with(Pte::ACCESSED | Pte::DIRTY).0);
            self.walk_everywhere();
        }
        is_true
    }

    fn use_entry(&mut self, space: usize, va: u64, access: Access, entry: TlbEntry) -> Touched {
        let at = entry.frame.at + (va & !0xfff) - entry.page.start.0;
        let place = Place::Physical(at);
        if access == Access::Write {
            let value = self.values.fresh(self.current, space, va & !0xfff);
            let user = Some(UserStore { space, va, frame: self.memory.name(at) });
            let store = Store { to: place, value, op: 0, user };
            self.cpus[self.current].buffer.push(store);
            if !self.is_live {
                self.drain();
            }
            return Touched::Done;
        }
        // What the CPU has not written yet is its own affair.
        if self.cpus[self.current].buffer.forward(place).is_none() {
            let value = self.memory.read(at);
            self.report(&Observation::UserLoad { space, va, value });
        }
        Touched::Done
    }
}
