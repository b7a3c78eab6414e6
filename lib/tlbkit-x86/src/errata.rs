//! CPUs that do not do what their manual says, as a table.
//!
//! Such a table can be wrong in both directions, and a hypervisor may report any microcode revision (C-85), so a
//! kernel's command line can overrule it through [`Overrides`].

use tlbkit::Features;

use crate::cpuid::{self, Identity, Vendor};
use crate::registers::{read_msr, write_msr};

const MICROCODE_REVISION: u32 = 0x8b;

/// What a CPU does wrong.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Defect {
    /// With CR4.PCIDE set, INVLPG does not invalidate global translations. PCIDs stay disabled on such a CPU.
    InvlpgMissesGlobals,
    /// INVLPGB with a stride of 2 MiB skips base pages inside the stride. Nothing has to be disabled:
    /// [`Broadcast`](crate::Broadcast) uses the size of the translations as the stride on every CPU, so it never relies
    /// on this.
    InvlpgbStrideSkipsPages,
}

/// CPU models with a defect.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Erratum {
    /// What they do wrong.
    pub defect: Defect,
    /// Their vendor.
    pub vendor: Vendor,
    /// Their family.
    pub family: u32,
    /// The first and the last model.
    pub models: (u32, u32),
    /// The first microcode revision without the defect; `None` if there is none.
    pub fixed_in: Option<u32>,
    /// The name under which the vendor or a kernel published it.
    pub name: &'static str,
}

const fn invlpg(model: u32, fixed_in: u32, name: &'static str) -> Erratum {
    let defect = Defect::InvlpgMissesGlobals;
    Erratum { defect, vendor: Vendor::Intel, family: 6, models: (model, model), fixed_in: Some(fixed_in), name }
}

/// All known errata. Sources: Intel's specification updates ADL063 and RPL042, with the microcode floors that Linux's
/// `arch/x86/mm/init.c` lists; FreeBSD's erratum notice EN-26:10.amd64.
pub const ERRATA: &[Erratum] = &[
    invlpg(0x97, 0x2e, "ADL063, Alder Lake"),
    invlpg(0x9a, 0x42c, "ADL063, Alder Lake L"),
    invlpg(0xbe, 0x11, "ADL063, Gracemont (Alder Lake N)"),
    invlpg(0xb7, 0x118, "RPL042, Raptor Lake"),
    invlpg(0xba, 0x4117, "RPL042, Raptor Lake P"),
    invlpg(0xbf, 0x2e, "RPL042, Raptor Lake S"),
    Erratum {
        defect: Defect::InvlpgbStrideSkipsPages,
        vendor: Vendor::Amd,
        family: 0x19,
        models: (0, 0xff),
        fixed_in: None,
        name: "EN-26:10, INVLPGB by 2 MiB",
    },
];

/// Whether a behaviour is relied on.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Trust {
    /// As the table and the microcode revision say. Under a hypervisor the revision cannot be verified, so the
    /// microcode counts as unfixed.
    #[default]
    ByTable,
    /// The CPU is assumed to be correct: for a host that is known to have fixed microcode.
    Always,
    /// The CPU is assumed to have the defect, whatever its model.
    Never,
}

/// What a kernel's command line overrules in the table.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Overrides {
    /// For [`Defect::InvlpgMissesGlobals`].
    pub invlpg_with_pcids: Trust,
}

/// True if an erratum of this CPU depends on its microcode, and the revision that it reports can be believed.
pub(crate) fn depends_on_microcode(cpu: &Identity) -> bool {
    !cpu.is_guest && ERRATA.iter().any(|erratum| erratum.fixed_in.is_some() && erratum.affects_model(cpu))
}

impl Identity {
    /// The same with the microcode revision, which is read from the CPU only where an erratum depends on it.
    ///
    /// # Safety
    /// Ring 0 of the CPU that this value was read from.
    #[must_use]
    pub unsafe fn with_microcode_read(self) -> Self {
        if !depends_on_microcode(&self) {
            return self;
        }
        // SAFETY: the caller guarantees ring 0, and every model in the table has the MSR. CPUID loads the revision into
        // it, provided that it holds 0.
        let revision = unsafe {
            write_msr(MICROCODE_REVISION, 0);
            let _loads_revision = cpuid::cpuid(1);
            read_msr(MICROCODE_REVISION)
        };
        self.with_microcode((revision >> 32) as u32)
    }

    /// The features that the protocol may use on this CPU: those that CPUID reports, minus those that errata rule out.
    #[must_use]
    pub fn features(&self, overrides: Overrides) -> Features {
        let is_broken = match overrides.invlpg_with_pcids {
            Trust::Always => false,
            Trust::Never => true,
            Trust::ByTable => {
                ERRATA.iter().any(|erratum| erratum.defect == Defect::InvlpgMissesGlobals && erratum.affects(self))
            }
        };
        Features { pcid: self.has_pcid && !is_broken, invpcid: self.has_invpcid }
    }
}

impl Erratum {
    /// True if this CPU has the defect, as far as can be determined.
    #[must_use]
    pub fn affects(&self, cpu: &Identity) -> bool {
        let is_fixed = !cpu.is_guest && self.fixed_in.is_some_and(|floor| cpu.microcode >= floor);
        self.affects_model(cpu) && !is_fixed
    }

    fn affects_model(&self, cpu: &Identity) -> bool {
        let is_model = (self.models.0..=self.models.1).contains(&cpu.model);
        self.vendor == cpu.vendor && self.family == cpu.family && is_model
    }
}
