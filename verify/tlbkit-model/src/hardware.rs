//! The machine under the protocol: store buffers, CR3 and the translations that it caches.
//!
//! Hardware reads a page table into a PCID whenever the root is loaded, and never drops an entry by itself. The model
//! lets it read everything at once, as early as it can, because that is the worst case: whatever it may hold later
//! was then read later, and is at most newer.

use crate::state::{
    Cpu, CpuNumber, FIRST, Half, Hosted, ITEMS, Mailbox, Root, SpaceNumber, State, Store, TABLE, TlbEntry,
};
use crate::step::Step;

impl Cpu {
    /// What it does next, in the order of the list.
    pub(crate) fn then(&mut self, steps: &[Step]) {
        self.steps.extend(steps.iter().rev());
    }

    /// A plain store: seen by others later.
    pub(crate) fn store(&mut self, store: Store) {
        if let Store::Presence(presence) = store {
            self.own_presence = presence;
        }
        self.buffer.push(store);
    }

    /// The entries of a PCID.
    #[must_use]
    pub fn cached(&self, half: Half, pcid: usize) -> &[TlbEntry; ITEMS] {
        &self.entries[half as usize][pcid]
    }

    /// The entries that it can use or walk at this moment.
    #[must_use]
    pub fn reachable(&self) -> &[TlbEntry; ITEMS] {
        self.cached(self.root.half, self.root.pcid)
    }

    /// The turn of one of its mailboxes, as it sees it: its own stores on their way included.
    pub(crate) fn own_turn(&self, mailbox: Mailbox) -> u8 {
        let own = self.buffer.iter().rev().find_map(|store| match *store {
            Store::Turn(of, turn) if of == mailbox => Some(turn),
            _ => None,
        });
        own.unwrap_or(self.turns[mailbox])
    }

    /// INVLPG: an item of the loaded PCID, and all paths of it.
    pub(crate) fn drop_item(&mut self, half: Half, item: usize) {
        let pcid = &mut self.entries[half as usize][self.root.pcid];
        pcid[item] = TlbEntry::default();
        pcid[TABLE] = TlbEntry::default();
    }
}

impl State {
    /// The oldest store of `cpu` reaches memory.
    pub(crate) fn drain(&mut self, cpu: CpuNumber) {
        match self.cpus[cpu].buffer.remove(0) {
            Store::Presence(presence) => self.cpus[cpu].presence = presence,
            Store::Mailbox(mailbox, request, is_several) => {
                self.cpus[cpu].mailboxes[mailbox] = Some(request);
                if mailbox == FIRST {
                    self.cpus[cpu].is_several = is_several;
                }
            }
            Store::Several => self.cpus[cpu].is_several = true,
            Store::Turn(mailbox, turn) => self.cpus[cpu].turns[mailbox] = turn,
            Store::Outbox(mailbox, cpus) => self.cpus[cpu].outboxes[mailbox] = cpus,
            Store::Table(space, item, version) => self.spaces[space].versions[item] = version,
            Store::Generation(space, generation) => self.spaces[space].generation = generation,
        }
    }

    /// MOV to CR3 that drops what the PCID holds.
    pub(crate) fn load_flushing(&mut self, cpu: CpuNumber, root: Root) {
        self.cpus[cpu].entries[root.half as usize][root.pcid] = Default::default();
        self.load_keeping(cpu, root);
    }

    /// MOV to CR3 that keeps it.
    pub(crate) fn load_keeping(&mut self, cpu: CpuNumber, root: Root) {
        self.cpus[cpu].root = root;
        self.fill(cpu);
    }

    /// The host takes the CPU away; its stores reach memory.
    pub(crate) fn preempt(&mut self, cpu: CpuNumber) {
        while !self.cpus[cpu].buffer.is_empty() {
            self.drain(cpu);
        }
        self.cpus[cpu].host = Hosted::Preempted;
        self.budget.preemptions -= 1;
    }

    /// Hardware reads what the loaded PCID does not hold.
    pub(crate) fn fill(&mut self, cpu: CpuNumber) {
        let root = self.cpus[cpu].root;
        if root.id == 0 {
            return;
        }
        let versions = self.spaces[root.space].versions;
        let pcid = &mut self.cpus[cpu].entries[root.half as usize][root.pcid];
        for (entry, version) in pcid.iter_mut().zip(versions).filter(|(entry, _)| entry.id == 0) {
            *entry = TlbEntry { id: root.id, version };
        }
    }

    /// The space that has this name, if it is alive.
    #[must_use]
    pub fn space_named(&self, id: u8) -> Option<SpaceNumber> {
        self.spaces.iter().position(|space| space.id == id)
    }
}
