//! What the properties are called.

/// INV-2.
pub const NOBODY_MISSED: &str = "INV-2 nobody is missed";
/// INV-3.
pub const GENERATIONS: &str = "INV-3 generations";
/// INV-4.
pub const PROMISE: &str = "INV-4 what an ASID's generation promises";
/// INV-5.
pub const LAZY_LEFT_ALONE: &str = "INV-5 lazy CPUs are left alone";
/// INV-6 for the program.
pub const USE: &str = "INV-6 no use after the flush";
/// INV-6 for a handler that no interrupt flag holds back.
pub const HANDLER: &str = "INV-6 no use by a handler";
/// INV-6 for the walker.
pub const WALK: &str = "INV-6 no walk of a freed table";
/// INV-7.
pub const SERVED: &str = "INV-7 everybody is served";
/// INV-7 for a wait that was left for later.
pub const NOT_THE_NEXT: &str = "INV-7 nobody waits for the next request";
/// INV-8.
pub const PCIDS: &str = "INV-8 PCIDs";
/// INV-12.
pub const KEPT: &str = "INV-12 kept by right";
/// The end of a space.
pub const DEAD: &str = "INV-1 the dead are not touched";
