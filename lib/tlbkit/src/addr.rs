//! Addresses, CPU numbers and the kernel's names of its spaces: integers that must not be mixed up.

use core::fmt;

/// Bytes of a base page.
pub const PAGE_BYTES: u64 = 4096;

/// A virtual address, canonical or not; the protocol never dereferences it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct VirtAddr(pub u64);

/// A physical address, in bytes.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct PhysAddr(pub u64);

/// A CPU's index in the arrays that are sized at boot: 0, 1, 2 ... and not an APIC id.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct CpuId(pub u32);

/// What the kernel needs to find an [`AddressSpace`](crate::AddressSpace) again: a pointer or an index, opaque to the
/// protocol, which only copies it. The protocol hands it back until the end of the space is over, and not later:
/// [`Hardware::with_space_of`](crate::Hardware::with_space_of) says when.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct SpaceToken(pub u64);

/// The size of one translation: what one INVLPG flushes, and the unit of a range. There is no stride for what no entry
/// maps: 512 GiB, the span of a page table two levels below a five-level root, are 512 pages of 1 GiB.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
#[repr(u8)]
pub enum Stride {
    /// 4 KiB.
    #[default]
    Page4K = 12,
    /// 2 MiB.
    Page2M = 21,
    /// 1 GiB.
    Page1G = 30,
}

impl Stride {
    /// log2 of the size in bytes.
    #[must_use]
    pub const fn shift(self) -> u32 {
        self as u32
    }

    /// Size in bytes.
    #[must_use]
    pub const fn bytes(self) -> u64 {
        1 << self.shift()
    }
}

impl PhysAddr {
    /// A top-level table is a page: the low bits of CR3 are a PCID and flags.
    pub(crate) const fn assert_is_page(self) {
        assert!(self.0.is_multiple_of(PAGE_BYTES), "a top-level table does not begin a page");
        assert!(self.0 >> 52 == 0, "the address of a top-level table is not physical");
    }
}

impl VirtAddr {
    /// The address rounded down to its base page.
    #[must_use]
    pub const fn page(self) -> Self {
        Self(self.0 & !(PAGE_BYTES - 1))
    }

    /// True for the upper canonical half, which every address space shares.
    #[must_use]
    pub const fn is_kernel(self) -> bool {
        self.0 >> 63 == 1
    }
}

impl fmt::Debug for VirtAddr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "va:{:#x}", self.0)
    }
}

impl fmt::Debug for PhysAddr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "pa:{:#x}", self.0)
    }
}

impl fmt::Debug for CpuId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "cpu{}", self.0)
    }
}
