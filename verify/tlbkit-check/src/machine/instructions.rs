//! Instructions that change what a CPU may have cached: their scope, and when they fault.

use tlbkit::{Cr3, Invpcid, Pcid, Stride, VirtAddr};
use tlbkit_arch::scope::{Broadcast, Globals, Paths};
use tlbkit_arch::{CurrentTag, Instruction, is_canonical};

use super::Machine;
use super::errata::Erratum;
use super::observation::{Exception, Observation};

impl Machine {
    /// MOV to CR3.
    pub(crate) fn write_cr3(&mut self, cpu: usize, cr3: Cr3) -> Result<(), Exception> {
        let honours_keep = self.features.pcid || self.errata.has(Erratum::KeepsWithoutPcid);
        if cr3.keeps() && !honours_keep {
            return Err(Exception("#GP: bit 63 of CR3 while CR4.PCIDE is clear (C-32)"));
        }
        self.drain();
        let root = self.memory.name(cr3.root().0);
        let current = self.current_tag(cpu);
        let core = &mut self.cpus[cpu];
        core.root = root;
        core.pcid = current.after(cr3).pcid();
        let is_kept_by_mistake = cr3.keeps() && !self.features.pcid || self.errata.has(Erratum::Cr3Keeps);
        if !is_kept_by_mistake {
            core.tlb.remove(&Instruction::WriteCr3(cr3).invalidates(current));
        }
        self.walk(cpu);
        self.report(&Observation::RootLoaded { cpu });
        Ok(())
    }

    fn current_tag(&self, cpu: usize) -> CurrentTag {
        if self.features.pcid { CurrentTag::Loaded(self.cpus[cpu].pcid) } else { CurrentTag::Off }
    }

    /// Removes what `instruction` invalidates, and fetches again what may be fetched.
    pub(crate) fn invalidate(&mut self, cpu: usize, instruction: Instruction) {
        let what = instruction.invalidates(self.current_tag(cpu));
        self.cpus[cpu].tlb.remove(&what);
        self.walk(cpu);
    }

    /// INVLPG: serialises.
    pub(crate) fn invlpg(&mut self, cpu: usize, va: u64) {
        self.drain();
        if self.errata.has(Erratum::InvlpgIgnored) {
            return;
        }
        let mut what = Instruction::Invlpg(VirtAddr(va)).invalidates(self.current_tag(cpu));
        if self.errata.has(Erratum::InvlpgMissesGlobals) && self.features.pcid {
            what.globals = Globals::Kept;
        }
        if self.errata.has(Erratum::InvlpgKeepsPaths) {
            what.paths = Paths::Kept;
        }
        self.cpus[cpu].tlb.remove(&what);
        self.walk(cpu);
    }

    /// INVPCID.
    pub(crate) fn invpcid(&mut self, cpu: usize, what: Invpcid) -> Result<(), Exception> {
        if !self.features.invpcid || self.errata.has(Erratum::InvpcidFaults) {
            return Err(Exception("#UD: INVPCID on a CPU without it (C-31)"));
        }
        if let Invpcid::Address(pcid, _) | Invpcid::Single(pcid) = what
            && pcid.0 != 0
            && !self.features.pcid
        {
            return Err(Exception("#GP: INVPCID of a PCID while CR4.PCIDE is clear (C-31)"));
        }
        if let Invpcid::Address(_, va) = what
            && !is_canonical(va)
        {
            return Err(Exception("#GP: INVPCID of an address that is not canonical (C-31)"));
        }
        self.drain();
        let executed = match what {
            Invpcid::Address(Pcid(pcid), VirtAddr(va)) if self.errata.has(Erratum::InvpcidSwapped) => {
                Invpcid::Address(Pcid((va & 0xfff) as u16), VirtAddr(u64::from(pcid)))
            }
            what => what,
        };
        self.invalidate(cpu, Instruction::Invpcid(executed));
        Ok(())
    }

    /// CR4.PGE cleared and set.
    pub(crate) fn toggle_pge(&mut self, cpu: usize) {
        self.drain();
        self.invalidate(cpu, Instruction::TogglePge);
    }

    /// CR4.PCIDE, on every CPU at once as a kernel does at boot: setting it needs a CR3 without a PCID, clearing it
    /// drops everything.
    pub(crate) fn set_pcide(&mut self, cpu: usize, features: tlbkit::Features) -> Result<(), Exception> {
        if features.pcid && self.cpus[cpu].pcid != Pcid(0) {
            return Err(Exception("#GP: CR4.PCIDE set while CR3 has a PCID (C-33)"));
        }
        if self.features.pcid && !features.pcid {
            self.invalidate(cpu, Instruction::ClearPcide);
            self.cpus[cpu].pcid = Pcid(0);
        }
        self.features = features;
        self.walk(cpu);
        Ok(())
    }

    /// INVLPGB and TLBSYNC: on every CPU when the pair has ended.
    pub(crate) fn invlpgb(&mut self, what: Broadcast) {
        self.drain();
        let skips = self.errata.has(Erratum::BroadcastStrideSkips) && what.stride != Stride::Page4K;
        for cpu in 0..self.cpus.len() {
            let gone = Instruction::Invlpgb(what).invalidates(self.current_tag(cpu));
            let tlb = &mut self.cpus[cpu].tlb;
            let small: Vec<_> =
                tlb.entries.iter().filter(|e| skips && e.page.stride == Stride::Page4K).copied().collect();
            tlb.remove(&gone);
            small.into_iter().for_each(|entry| tlb.add(entry));
        }
        self.walk_everywhere();
    }
}
