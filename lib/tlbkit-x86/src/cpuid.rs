//! What CPUID reports. It is read on every CPU, because the cores of one machine can differ (C-84).

use core::arch::x86_64::{__cpuid_count, CpuidResult};
use core::num::NonZeroU32;

/// The CPU's vendor, as far as the errata table needs it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Vendor {
    /// GenuineIntel.
    Intel,
    /// AuthenticAMD.
    Amd,
    /// Any other vendor string, such as that of an emulator.
    Other,
}

impl Vendor {
    /// From the first four letters of the vendor string, which are unique.
    const fn from_ebx(ebx: u32) -> Self {
        match &ebx.to_le_bytes() {
            b"Genu" => Self::Intel,
            b"Auth" => Self::Amd,
            _ => Self::Other,
        }
    }
}

/// What CPUID reports of one CPU, and its microcode revision.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[allow(missing_docs, reason = "the manual's names")]
pub struct Identity {
    pub vendor: Vendor,
    pub family: u32,
    pub model: u32,
    /// CPUID 1, ECX bit 17.
    pub has_pcid: bool,
    /// CPUID 7, EBX bit 10.
    pub has_invpcid: bool,
    /// CPUID 1, ECX bit 21.
    pub has_x2apic: bool,
    /// The most pages that one INVLPGB takes, if the CPU has it: CPUID 8000_0008, EBX bit 3, and EDX bits 15:0, which
    /// report one less. For [`Hardware::broadcast_pages`](tlbkit::Hardware::broadcast_pages), if every CPU says the
    /// same.
    pub broadcast_pages: Option<NonZeroU32>,
    /// How many ASIDs of guests there are, the host's 0 among them: CPUID 8000_000A, EBX; 0 if there are no guests.
    /// INVLPGB faults for a higher one. Those that this crate executes name the host's.
    pub guest_asids: u32,
    /// CPUID 1, ECX bit 31: the CPU is virtual, so the microcode revision that it reports may be anything (C-85).
    pub is_guest: bool,
    /// Microcode revision, which only ring 0 can read; 0 if it has not been read.
    pub microcode: u32,
}

const HAS_PCID: u32 = 1 << 17;
const HAS_X2APIC: u32 = 1 << 21;
const IS_GUEST: u32 = 1 << 31;
const HAS_INVPCID: u32 = 1 << 10;
const HAS_INVLPGB: u32 = 1 << 3;
const HAS_GUESTS: u32 = 1 << 2;

#[allow(unused_unsafe, reason = "the intrinsic became safe after the oldest Rust that this builds with")]
pub(crate) fn cpuid(leaf: u32) -> CpuidResult {
    // SAFETY: every CPU with long mode has the instruction.
    unsafe { __cpuid_count(leaf, 0) }
}

impl Identity {
    /// Reads CPUID on the CPU that executes the call. Allowed in any ring.
    #[must_use]
    pub fn of_this_cpu() -> Self {
        Self::read(cpuid)
    }

    fn read(cpuid: impl Fn(u32) -> CpuidResult) -> Self {
        // Beyond the highest leaf of its range CPUID returns the data of another one.
        let or_zeros = |leaf: u32| {
            let highest = cpuid(leaf & 0x8000_0000).eax;
            if leaf <= highest { cpuid(leaf) } else { CpuidResult { eax: 0, ebx: 0, ecx: 0, edx: 0 } }
        };
        let vendor = Vendor::from_ebx(cpuid(0).ebx);
        let [one, seven, sizes] = [1, 7, 0x8000_0008].map(or_zeros);
        let has_guests = or_zeros(0x8000_0001).ecx & HAS_GUESTS != 0;
        let guests = if has_guests { or_zeros(0x8000_000a).ebx } else { 0 };
        Self::from_leaves(vendor, one, seven, sizes, guests)
    }

    fn from_leaves(vendor: Vendor, one: CpuidResult, seven: CpuidResult, sizes: CpuidResult, guest_asids: u32) -> Self {
        let base = one.eax >> 8 & 0xf;
        let family = if base == 0xf { base + (one.eax >> 20 & 0xff) } else { base };
        let broadcast_pages = NonZeroU32::new((sizes.edx & 0xffff) + 1).filter(|_| sizes.ebx & HAS_INVLPGB != 0);
        Self {
            vendor,
            family,
            model: one.eax >> 4 & 0xf | (one.eax >> 16 & 0xf) << 4,
            has_pcid: one.ecx & HAS_PCID != 0,
            has_invpcid: seven.ebx & HAS_INVPCID != 0,
            has_x2apic: one.ecx & HAS_X2APIC != 0,
            broadcast_pages,
            guest_asids,
            is_guest: one.ecx & IS_GUEST != 0,
            microcode: 0,
        }
    }

    /// The same with a microcode revision that the kernel already knows.
    #[must_use]
    pub const fn with_microcode(self, microcode: u32) -> Self {
        Self { microcode, ..self }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn vendors_are_known_by_their_names() {
        let vendor = |name: &[u8; 4]| Vendor::from_ebx(u32::from_le_bytes(*name));
        assert_eq!([b"Genu", b"Auth", b"TCGT"].map(vendor), [Vendor::Intel, Vendor::Amd, Vendor::Other]);
    }

    /// The highest leaf is one of them; all beyond it return the same data.
    #[test]
    fn a_leaf_is_read_up_to_the_highest_of_its_range() {
        let of = |[basic, extended]: [u32; 2], ecx| {
            Identity::read(|leaf| match leaf {
                0 => CpuidResult { eax: basic, ebx: u32::from_le_bytes(*b"Auth"), ecx: 0, edx: 0 },
                0x8000_0000 => CpuidResult { eax: extended, ebx: 0, ecx: 0, edx: 0 },
                _ => CpuidResult { eax: 0, ebx: 0x408, ecx, edx: 0 },
            })
        };
        let found = |cpu: Identity| (cpu.has_invpcid, cpu.broadcast_pages.is_some(), cpu.guest_asids);
        assert_eq!(found(of([7, 0x8000_000a], 4)), (true, true, 0x408));
        assert_eq!(found(of([7, 0x8000_000a], !4)), (true, true, 0), "no guests");
        assert_eq!(found(of([6, 0x8000_0008], 4)), (false, true, 0));
        assert_eq!(found(of([7, 0x8000_0007], 4)), (true, false, 0));
    }

    /// The bits are written down from the manuals, as numbers: these constants themselves might be wrong.
    #[test]
    fn leaves_are_read_as_the_manual_says() {
        let none = CpuidResult { eax: 0, ebx: 0, ecx: 0, edx: 0 };
        let one = CpuidResult { eax: 0x000b_0671, ecx: 0x0002_0000, ..none };
        let intel = Identity::from_leaves(Vendor::Intel, one, CpuidResult { ebx: 0x0400, ..none }, none, 0);
        assert_eq!((intel.family, intel.model, intel.has_pcid, intel.has_invpcid), (6, 0xb7, true, true));
        assert_eq!((intel.broadcast_pages, intel.has_x2apic, intel.is_guest), (None, false, false));

        let one = CpuidResult { eax: 0x00a0_0f11, ecx: 0x8020_0000, ..none };
        // Bit 3 of EBX, among others; 7 in the lower half of EDX, and another field in the upper one.
        let sizes = CpuidResult { ebx: 0x111e_f64d, edx: 0x0002_0007, ..none };
        let amd = Identity::from_leaves(Vendor::Amd, one, none, sizes, 0x8000);
        assert_eq!((amd.family, amd.model), (0x19, 0x01));
        assert_eq!((amd.broadcast_pages, amd.guest_asids), (NonZeroU32::new(8), 0x8000));
        let without = Identity::from_leaves(Vendor::Amd, one, none, CpuidResult { ebx: !8, ..sizes }, 0);
        assert_eq!(without.broadcast_pages, None);
        assert!(amd.is_guest && amd.has_x2apic && !amd.has_pcid && !amd.has_invpcid);
    }
}
