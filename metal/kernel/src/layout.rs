//! Where things lie: the first GiB of memory in the direct map, the image in the top 2 GiB, the APIC above it; and how
//! many CPUs there can be.

/// Most CPUs: one word of bits.
pub(crate) const MAX_CPUS: usize = 64;
/// Most CPUs of a machine with a monitor, which needs memory for each of them.
pub(crate) const MAX_MONITORED_CPUS: usize = 8;

/// Where the direct map begins: all of memory, one byte after another.
pub(crate) const DIRECT: u64 = 0xffff_8000_0000_0000;
/// What the direct map covers; memory beyond it is left alone.
pub(crate) const DIRECT_BYTES: u64 = 1 << 30;
/// The distance from where the image is loaded to where it runs.
pub(crate) const IMAGE: u64 = 0xffff_ffff_8000_0000;
/// The physical address at which the image is loaded.
pub(crate) const IMAGE_PHYS: u64 = 1 << 20;
/// The local APIC's registers. They share the top-level slot of the image, so they are mapped in every space.
pub(crate) const APIC_WINDOW: u64 = 0xffff_ffff_fee0_0000;
/// Where the local APIC's registers lie in physical memory.
pub(crate) const APIC_PHYS: u64 = 0xfee0_0000;
/// A page for trials, and behind it another one. They have a top-level slot of their own, which the monitor watches.
pub(crate) const TRIAL_VA: u64 = 0xffff_a000_0000_0000;

/// The direct map's address of a physical one.
pub(crate) const fn direct(physical: u64) -> u64 {
    DIRECT + physical
}
