//! Instructions that change what a CPU may have cached: their scope, and when they fault.

use tlbkit::{Cr3, Invlpgb, Invpcid, Pcid, Stride, VirtAddr};
use tlbkit_arch::scope::{Globals, Paths};
use tlbkit_arch::{CurrentTag, Instruction, Invalidation, is_canonical};

use super::errata::Erratum;
use super::observation::{Exception, Observation};
use super::tlb::Named;
use super::{Machine, OnItsWay};

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

    /// INVLPGB, which waits for nothing. It arrives on each CPU at any moment until the TLBSYNC of this one is over:
    /// what it names goes then, and may have been fetched again. It does not wait for stores either.
    pub(crate) fn invlpgb(&mut self, cpu: usize, what: Invlpgb) -> Result<(), Exception> {
        let Some(most) = self.broadcast_pages else { return Err(Exception("#UD: INVLPGB on a CPU without it")) };
        let (pcid, range) = match what {
            Invlpgb::Pages { pcid, first, pages, stride, .. } => (pcid, Some((first, pages, stride))),
            Invlpgb::PagesOfAll { first, pages, stride } => (Pcid::KERNEL, Some((first, pages, stride))),
            Invlpgb::Single(pcid) => (pcid, None),
            Invlpgb::All | Invlpgb::AllAndGlobals => (Pcid::KERNEL, None),
        };
        if pcid != Pcid::KERNEL && !self.features.pcid {
            return Err(Exception("#GP: INVLPGB of a PCID while CR4.PCIDE is clear"));
        }
        if let Some((first, pages, stride)) = range {
            let most = if stride == Stride::Page1G { 1 } else { most.get() };
            if pages == 0 || pages > most {
                return Err(Exception("#GP: INVLPGB of more pages than CPUID allows, or of none (C-36)"));
            }
            let last = VirtAddr(first.0.wrapping_add(u64::from(pages - 1) << stride.shift()));
            if !is_canonical(first) || !is_canonical(last) {
                return Err(Exception("#GP: INVLPGB of an address that is not canonical"));
            }
        }
        let is_wide = range.is_some_and(|(_, _, stride)| stride != Stride::Page4K);
        let what = Instruction::Invlpgb(what).invalidates(self.current_tag(cpu));
        let free = self.broadcasts.iter().position(Option::is_none);
        let number = free.unwrap_or(self.broadcasts.len());
        if number == u64::BITS as usize {
            // No number is left, so this one arrives at once.
            self.cpus.iter_mut().for_each(|core| core.tlb.remove(&what));
        } else {
            self.broadcasts.resize(self.broadcasts.len().max(number + 1), None);
            self.broadcasts[number] = Some(OnItsWay { cpu, what });
            let spared = (is_wide && self.errata.has(Erratum::BroadcastStrideSkips)).then_some(Stride::Page4K);
            self.cpus.iter_mut().for_each(|core| core.tlb.name(number, &what, spared));
        }
        self.walk_everywhere();
        Ok(())
    }

    /// TLBSYNC: serialises, and waits for the INVLPGBs of this CPU. Whatever programs have done through what is gone is
    /// over then, their stores too: without that no kernel could free a page by it.
    pub(crate) fn tlbsync(&mut self, cpu: usize) -> Result<(), Exception> {
        if self.broadcast_pages.is_none() {
            return Err(Exception("#UD: TLBSYNC on a CPU without it"));
        }
        self.drain();
        let mut arrived = Named::default();
        for (number, slot) in self.broadcasts.iter_mut().enumerate() {
            if slot.take_if(|on_its_way| on_its_way.cpu == cpu).is_some() {
                arrived.add(number);
            }
        }
        if arrived != Named::default() {
            (0..self.cpus.len()).for_each(|cpu| self.drain_programs(cpu));
        }
        self.cpus.iter_mut().for_each(|core| core.tlb.remove_named(arrived));
        self.walk_everywhere();
        Ok(())
    }

    /// What is fetched through something that INVLPGBs have `named` was fetched before they arrived, so it goes with
    /// them if they name it, too.
    pub(super) fn named_too(&self, named: Named, removes: impl Fn(&Invalidation) -> bool) -> Named {
        let is_named = |number: &usize| named.0 >> number & 1 == 1;
        let mut too = Named::default();
        for (number, slot) in self.broadcasts.iter().enumerate().filter(|(number, _)| is_named(number)) {
            if slot.is_some_and(|on_its_way| removes(&on_its_way.what)) {
                too.add(number);
            }
        }
        too
    }
}
