//! Where CPUs do not do what their manual says, as data.
//!
//! A table can be wrong in both directions, and a hypervisor may report any microcode (C-85): so a kernel's command
//! line can overrule it, by [`Overrides`].

use tlbkit::Features;

use crate::cpuid::{self, Identity, Vendor};
use crate::registers::{read_msr, write_msr};

const MICROCODE_REVISION: u32 = 0x8b;

/// What goes wrong.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Wrong {
    /// INVLPG leaves global entries of the page while tags are on: tags stay off.
    InvlpgMissesGlobals,
    /// INVLPGB with a step of 2 MiB leaves base pages inside the step. No switch: [`Broadcast`](crate::Broadcast) steps
    /// by the size of the translations on every CPU, so what is covered never depends on it.
    BroadcastStepSkips,
}

/// One CPU model that does it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Erratum {
    /// What goes wrong.
    pub wrong: Wrong,
    /// Who made it.
    pub vendor: Vendor,
    /// Its family.
    pub family: u32,
    /// Its models, first and last.
    pub models: (u32, u32),
    /// The first microcode without it; `None` if there is none.
    pub fixed_in: Option<u32>,
    /// Its public name.
    pub name: &'static str,
}

const fn invlpg(model: u32, fixed_in: u32, name: &'static str) -> Erratum {
    let wrong = Wrong::InvlpgMissesGlobals;
    Erratum { wrong, vendor: Vendor::Intel, family: 6, models: (model, model), fixed_in: Some(fixed_in), name }
}

/// All that is known. Sources: Intel's specification updates ADL063 and RPL042, with the microcode floors that Linux's
/// `arch/x86/mm/init.c` lists; FreeBSD's erratum notice EN-26:10.amd64.
pub const ERRATA: &[Erratum] = &[
    invlpg(0x97, 0x2e, "ADL063, Alder Lake"),
    invlpg(0x9a, 0x42c, "ADL063, Alder Lake L"),
    invlpg(0xbe, 0x11, "ADL063, Gracemont (Alder Lake N)"),
    invlpg(0xb7, 0x118, "RPL042, Raptor Lake"),
    invlpg(0xba, 0x4117, "RPL042, Raptor Lake P"),
    invlpg(0xbf, 0x2e, "RPL042, Raptor Lake S"),
    Erratum {
        wrong: Wrong::BroadcastStepSkips,
        vendor: Vendor::Amd,
        family: 0x19,
        models: (0, 0xff),
        fixed_in: None,
        name: "EN-26:10, INVLPGB by 2 MiB",
    },
];

/// Whether one thing is believed.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Trust {
    /// As the table and the microcode say; under a hypervisor, whose microcode nobody can check, as if it were old.
    #[default]
    ByTable,
    /// The CPU is taken to be right: for a host that is known to be mended.
    Always,
    /// It is taken to be wrong, whatever its model.
    Never,
}

/// What a kernel's command line says against the table.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Overrides {
    /// For [`Wrong::InvlpgMissesGlobals`].
    pub invlpg_with_tags: Trust,
}

/// True if what goes wrong on this CPU depends on its microcode, and its word on that is worth something.
pub(crate) fn depend_on_microcode(cpu: &Identity) -> bool {
    !cpu.is_guest && ERRATA.iter().any(|erratum| erratum.fixed_in.is_some() && erratum.is_of_model(cpu))
}

impl Identity {
    /// The same with the revision of the microcode, read from the CPU where an erratum depends on it.
    ///
    /// # Safety
    /// Ring 0 of the CPU that was asked.
    #[must_use]
    pub unsafe fn with_microcode_read(self) -> Self {
        if !depend_on_microcode(&self) {
            return self;
        }
        // SAFETY: ring 0, says the caller, and all models of the table have the register. CPUID fills it, if it is 0.
        let revision = unsafe {
            write_msr(MICROCODE_REVISION, 0);
            let _fills = cpuid::ask(1);
            read_msr(MICROCODE_REVISION)
        };
        self.with_microcode((revision >> 32) as u32)
    }

    /// What the protocol may use here: what CPUID says, less what errata forbid.
    #[must_use]
    pub fn features(&self, overrides: Overrides) -> Features {
        let is_wrong = match overrides.invlpg_with_tags {
            Trust::Always => false,
            Trust::Never => true,
            Trust::ByTable => ERRATA.iter().any(|it| it.wrong == Wrong::InvlpgMissesGlobals && it.is_of(self)),
        };
        Features { pcid: self.has_pcid && !is_wrong, invpcid: self.has_invpcid }
    }
}

impl Erratum {
    /// True if this CPU has it, as far as can be told.
    #[must_use]
    pub fn is_of(&self, cpu: &Identity) -> bool {
        let is_fixed = !cpu.is_guest && self.fixed_in.is_some_and(|floor| cpu.microcode >= floor);
        self.is_of_model(cpu) && !is_fixed
    }

    fn is_of_model(&self, cpu: &Identity) -> bool {
        let is_model = (self.models.0..=self.models.1).contains(&cpu.model);
        self.vendor == cpu.vendor && self.family == cpu.family && is_model
    }
}
