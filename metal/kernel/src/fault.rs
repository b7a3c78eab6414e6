//! One rule that the machine breaks on purpose, chosen on the command line, to show that the value checks see it.

use core::sync::atomic::{AtomicU64, Ordering};

/// What is broken.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Fault {
    /// No rule is broken.
    None,
    /// INVLPG and INVPCID do nothing.
    NoInvalidation,
    /// Nobody is interrupted; requests count as answered.
    NoInterrupt,
    /// A frame gets a new owner as soon as it is unhooked, before the flush.
    FreeBeforeFlush,
    /// The flushes that waited until a CPU enters the kernel are not done there.
    NoCatchUp,
}

const FAULTS: &[(&str, Fault)] = &[
    ("none", Fault::None),
    ("no-invalidation", Fault::NoInvalidation),
    ("no-interrupt", Fault::NoInterrupt),
    ("free-before-flush", Fault::FreeBeforeFlush),
    ("no-catch-up", Fault::NoCatchUp),
];

impl Fault {
    /// The names, for a line that says what there is.
    pub(crate) const NAMES: &str = "none, no-invalidation, no-interrupt, free-before-flush or no-catch-up";

    /// The fault of that name.
    pub(crate) fn by_name(name: &str) -> Option<Self> {
        FAULTS.iter().find(|(known, _)| *known == name).map(|&(_, fault)| fault)
    }

    /// Breaks this rule from now on.
    pub(crate) fn choose(self) {
        // Relaxed: before the other CPUs start.
        CHOSEN.store(self as u64, Ordering::Relaxed);
    }

    /// True if this is the rule that is broken.
    pub(crate) fn is_chosen(self) -> bool {
        // Relaxed: written before the other CPUs started.
        CHOSEN.load(Ordering::Relaxed) == self as u64
    }
}

static CHOSEN: AtomicU64 = AtomicU64::new(0);
