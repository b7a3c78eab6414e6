//! Instructions that change what a CPU may have cached: their scope, and when they fault.

use std::fmt;

use tlbkit::{Cr3, Invpcid};

use super::Machine;
use super::errata::Erratum;
use super::tlb::Broadcast;

/// A fault of the kernel's own making.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Exception {
    /// General protection, #GP, with the rule that was broken.
    Protection(&'static str),
    /// Invalid opcode, #UD.
    Opcode(&'static str),
}

impl fmt::Display for Exception {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Protection(rule) => write!(f, "#GP: {rule}"),
            Self::Opcode(rule) => write!(f, "#UD: {rule}"),
        }
    }
}

const fn is_canonical(va: u64) -> bool {
    (va as i64) << 16 >> 16 == va as i64
}

impl Machine {
    /// MOV to CR3.
    pub(crate) fn write_cr3(&mut self, cpu: usize, cr3: Cr3) -> Result<(), Exception> {
        let honours_keep = self.features.pcid || self.errata.has(Erratum::KeepsWithoutPcid);
        if cr3.keeps() && !honours_keep {
            return Err(Exception::Protection("bit 63 of CR3 while CR4.PCIDE is clear (C-32)"));
        }
        self.drain();
        let root = self.memory.name(cr3.root().0);
        let core = &mut self.cpus[cpu];
        core.root = root;
        core.tag = if self.features.pcid { cr3.pcid().0 } else { 0 };
        match (cr3.keeps(), self.features.pcid) {
            (true, _) => {}
            (false, true) => core.tlb.tag(core.tag),
            (false, false) => core.tlb.all_but_globals(),
        }
        self.walk(cpu);
        Ok(())
    }

    /// INVLPG: serialises; nothing at all for an address that is not canonical.
    pub(crate) fn invlpg(&mut self, cpu: usize, va: u64) {
        self.drain();
        if !is_canonical(va) {
            return;
        }
        let core = &mut self.cpus[cpu];
        let (mut globals, mut paths) = (Vec::new(), Vec::new());
        if self.errata.has(Erratum::InvlpgMissesGlobals) && self.features.pcid {
            globals = core.tlb.entries.iter().filter(|entry| entry.is_global).copied().collect();
        }
        if self.errata.has(Erratum::InvlpgKeepsPaths) {
            paths.clone_from(&core.tlb.paths);
        }
        core.tlb.invlpg(core.tag, va);
        globals.into_iter().for_each(|entry| core.tlb.add(entry));
        paths.into_iter().for_each(|path| core.tlb.add_path(path));
        self.walk(cpu);
    }

    /// INVPCID.
    pub(crate) fn invpcid(&mut self, cpu: usize, what: Invpcid) -> Result<(), Exception> {
        if !self.features.invpcid {
            return Err(Exception::Opcode("INVPCID on a CPU without it (C-31)"));
        }
        if let Invpcid::Address(pcid, _) | Invpcid::Single(pcid) = what
            && pcid.0 != 0
            && !self.features.pcid
        {
            return Err(Exception::Protection("INVPCID of a PCID while CR4.PCIDE is clear (C-31)"));
        }
        self.drain();
        let tlb = &mut self.cpus[cpu].tlb;
        match what {
            Invpcid::Address(_, va) if !is_canonical(va.0) => {
                return Err(Exception::Protection("INVPCID of an address that is not canonical (C-31)"));
            }
            Invpcid::Address(pcid, va) if self.errata.has(Erratum::InvpcidSwapped) => {
                tlb.invpcid_address((va.0 & 0xfff) as u16, u64::from(pcid.0));
            }
            Invpcid::Address(pcid, va) => tlb.invpcid_address(pcid.0, va.0),
            Invpcid::Single(pcid) => tlb.tag(pcid.0),
            Invpcid::AllAndGlobals => tlb.all(),
            Invpcid::All => tlb.all_but_globals(),
        }
        self.walk(cpu);
        Ok(())
    }

    /// CR4.PGE cleared and set.
    pub(crate) fn toggle_pge(&mut self, cpu: usize) {
        self.drain();
        self.cpus[cpu].tlb.all();
        self.walk(cpu);
    }

    /// CR4.PCIDE, on every CPU at once as a kernel does at boot: setting it needs a CR3 without a tag, clearing it
    /// drops everything.
    pub(crate) fn set_pcide(&mut self, cpu: usize, features: tlbkit::Features) -> Result<(), Exception> {
        let core = &mut self.cpus[cpu];
        if features.pcid && core.tag != 0 {
            return Err(Exception::Protection("CR4.PCIDE set while CR3 has a PCID (C-33)"));
        }
        if self.features.pcid && !features.pcid {
            core.tlb.all();
            core.tag = 0;
        }
        self.features = features;
        self.walk(cpu);
        Ok(())
    }

    /// INVLPGB and TLBSYNC: on every CPU when the pair has ended.
    pub(crate) fn invlpgb(&mut self, what: &Broadcast) {
        self.drain();
        let skips = self.errata.has(Erratum::BroadcastStrideSkips) && what.stride_shift > 12;
        for core in &mut self.cpus {
            let small: Vec<_> = core.tlb.entries.iter().filter(|entry| skips && entry.shift == 12).copied().collect();
            core.tlb.broadcast(what);
            small.into_iter().for_each(|entry| core.tlb.add(entry));
        }
        self.walk_everywhere();
    }
}
