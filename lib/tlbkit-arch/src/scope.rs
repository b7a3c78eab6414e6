//! What each instruction invalidates: the one table that every emulated CPU of this repository implements.
//!
//! It says what a CPU must have invalidated once the instruction is complete. A CPU may invalidate more at any time, so
//! nothing may rely on an entry being kept.
//!
//! | | translations of its PCID | of other PCIDs | global | paging-structure caches |
//! |---|---|---|---|---|
//! | INVLPG | the page | kept | the page | all of the current PCID |
//! | MOV CR3, bit 63 clear | all of the *new* PCID | kept | kept | of the new PCID |
//! | MOV CR3, bit 63 set | kept | kept | kept | kept |
//! | MOV CR3, CR4.PCIDE clear | all of PCID 0, the only one | | kept | of PCID 0 |
//! | INVPCID 0 | the page of the named PCID | kept | kept | of that PCID, for the address |
//! | INVPCID 1 | all of the named PCID | kept | kept | of that PCID |
//! | INVPCID 2 | all | all | all | all |
//! | INVPCID 3 | all | all | kept | all |
//! | CR4.PGE changed, CR4.PCIDE cleared | all | all | all | all |
//! | page fault | the page | kept | the page | of the current PCID, for the address |
//! | INVLPGB of pages | those of the named PCID | kept | kept | of that PCID, for the addresses, or kept |
//! | INVLPGB of pages, of all PCIDs | the pages | the pages | the pages | kept |
//! | INVLPGB of a PCID | all of the named PCID | kept | kept | of that PCID |
//! | INVLPGB of all PCIDs | all | all | kept, or all | all |
//!
//! Sources: Intel's Software Developer's Manual, volume 3, the section on operations that invalidate TLBs and
//! paging-structure caches, and in volume 2 the pages of INVLPG, INVPCID and MOV to control registers; AMD's
//! Architecture Programmer's Manual, volume 3, INVLPGB.
//!
//! *The page* is the translation that contains the named address, whatever its size: any address inside a large page
//! names that page. A [`Path`] is an entry of the paging-structure caches. A translation that was fetched from a global
//! entry is used under every PCID and belongs to none; a `Path` always belongs to the PCID that it was fetched under.
//! For a page fault the manual names only the current PCID, but it guarantees that a fault which the page tables do not
//! justify does not recur: a global translation that caused it must be invalidated too.

use tlbkit::{Cr3, Invlpgb, Invpcid, Pcid, Stride, Tables, VirtAddr};

use crate::addr::{is_canonical, span_shift};

/// The PCID that a CPU uses.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum CurrentTag {
    /// CR4.PCIDE is clear: the PCID is 0 whatever CR3 says, and a CR3 write with bit 63 set faults.
    Off,
    /// CR4.PCIDE is set, and CR3 holds this PCID.
    Loaded(Pcid),
}

impl CurrentTag {
    /// The PCID that translations are tagged with.
    #[inline]
    #[must_use]
    pub const fn pcid(self) -> Pcid {
        match self {
            Self::Off => Pcid(0),
            Self::Loaded(pcid) => pcid,
        }
    }

    /// The PCID after `cr3` has been written.
    #[inline]
    #[must_use]
    pub const fn after(self, cr3: Cr3) -> Self {
        match self {
            Self::Off => Self::Off,
            Self::Loaded(_) => Self::Loaded(cr3.pcid()),
        }
    }
}

/// An instruction or event that invalidates something.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Instruction {
    /// INVLPG. If the address is not canonical (with four page-table levels), it does nothing and does not fault.
    Invlpg(VirtAddr),
    /// INVPCID, with operands for which it does not fault.
    Invpcid(Invpcid),
    /// MOV to CR3.
    WriteCr3(Cr3),
    /// MOV to CR4 that changes CR4.PGE.
    TogglePge,
    /// MOV to CR4 that clears CR4.PCIDE.
    ClearPcide,
    /// A page fault at this address.
    PageFault(VirtAddr),
    /// INVLPGB, on every CPU that it reaches, once TLBSYNC is complete on the CPU that executed it.
    Invlpgb(Invlpgb),
}

/// The addresses whose translations are invalidated.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Pages {
    /// None.
    None,
    /// All addresses.
    All,
    /// This address.
    At(VirtAddr),
    /// `count` addresses from `first` on, `stride` apart.
    Every {
        /// The first address.
        first: VirtAddr,
        /// The number of addresses.
        count: u64,
        /// The distance between them.
        stride: Stride,
    },
}

/// The PCIDs whose translations are invalidated.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Tags {
    /// This PCID.
    Only(Pcid),
    /// All PCIDs.
    All,
}

/// Whether global translations of the addresses are invalidated too.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Globals {
    /// They are kept.
    Kept,
    /// They are invalidated.
    Removed,
}

/// The paging-structure-cache entries of the PCIDs that are invalidated.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Paths {
    /// None.
    Kept,
    /// Those that are used for one of the addresses.
    ToTheAddress,
    /// All.
    Removed,
}

/// One row of the table: what is invalidated.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Invalidation {
    /// The addresses.
    pub pages: Pages,
    /// The PCIDs.
    pub tags: Tags,
    /// Whether global translations are included.
    pub globals: Globals,
    /// The paging-structure-cache entries.
    pub paths: Paths,
}

impl Invalidation {
    const NOTHING: Self = Self { pages: Pages::None, tags: Tags::All, globals: Globals::Kept, paths: Paths::Kept };
    const EVERYTHING: Self =
        Self { pages: Pages::All, tags: Tags::All, globals: Globals::Removed, paths: Paths::Removed };

    const fn all_of(tags: Tags) -> Self {
        Self { pages: Pages::All, tags, globals: Globals::Kept, paths: Paths::Removed }
    }
}

impl Instruction {
    /// What is invalidated when a CPU with the PCID `current` executes this.
    #[inline]
    #[must_use]
    pub const fn invalidates(self, current: CurrentTag) -> Invalidation {
        let loaded = Tags::Only(current.pcid());
        match self {
            Self::Invlpg(va) if !is_canonical(va) => Invalidation::NOTHING,
            Self::Invlpg(va) => {
                Invalidation { pages: Pages::At(va), tags: loaded, globals: Globals::Removed, paths: Paths::Removed }
            }
            Self::WriteCr3(cr3) => match current {
                CurrentTag::Off => Invalidation::all_of(loaded),
                CurrentTag::Loaded(_) if cr3.keeps() => Invalidation::NOTHING,
                CurrentTag::Loaded(_) => Invalidation::all_of(Tags::Only(cr3.pcid())),
            },
            Self::Invpcid(Invpcid::Address(pcid, va)) => Invalidation {
                pages: Pages::At(va),
                tags: Tags::Only(pcid),
                globals: Globals::Kept,
                paths: Paths::ToTheAddress,
            },
            Self::Invpcid(Invpcid::Single(pcid)) => Invalidation::all_of(Tags::Only(pcid)),
            Self::Invpcid(Invpcid::All) => Invalidation::all_of(Tags::All),
            Self::Invpcid(Invpcid::AllAndGlobals)
            | Self::Invlpgb(Invlpgb::AllAndGlobals)
            | Self::TogglePge
            | Self::ClearPcide => Invalidation::EVERYTHING,
            Self::PageFault(va) => Invalidation {
                pages: Pages::At(va),
                tags: loaded,
                globals: Globals::Removed,
                paths: Paths::ToTheAddress,
            },
            Self::Invlpgb(Invlpgb::Pages { pcid, first, pages, stride, tables }) => Invalidation {
                pages: Pages::Every { first, count: pages as u64, stride },
                tags: Tags::Only(pcid),
                globals: Globals::Kept,
                paths: match tables {
                    Tables::Kept => Paths::Kept,
                    Tables::Freed => Paths::ToTheAddress,
                },
            },
            Self::Invlpgb(Invlpgb::PagesOfAll { first, pages, stride }) => Invalidation {
                pages: Pages::Every { first, count: pages as u64, stride },
                tags: Tags::All,
                globals: Globals::Removed,
                paths: Paths::Kept,
            },
            Self::Invlpgb(Invlpgb::Single(pcid)) => Invalidation::all_of(Tags::Only(pcid)),
            Self::Invlpgb(Invlpgb::All) => Invalidation::all_of(Tags::All),
        }
    }
}

/// A cached translation, as far as the table needs it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Translation {
    /// The PCID that it is tagged with.
    pub pcid: Pcid,
    /// The first address that it translates.
    pub start: VirtAddr,
    /// Its page size.
    pub stride: Stride,
    /// It was fetched from a global entry.
    pub is_global: bool,
}

impl Translation {
    /// True if the translation contains `va`.
    #[inline]
    #[must_use]
    pub const fn covers(&self, va: VirtAddr) -> bool {
        (va.0 ^ self.start.0) >> self.stride.shift() == 0
    }

    /// True if a CPU uses it under `pcid`.
    #[inline]
    #[must_use]
    pub const fn serves(&self, pcid: Pcid) -> bool {
        self.is_global || self.pcid.0 == pcid.0
    }
}

/// A paging-structure-cache entry: the result of the upper part of a walk, which is the address of a table.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Path {
    /// The PCID that it is tagged with.
    pub pcid: Pcid,
    /// An address that it is used for.
    pub start: VirtAddr,
    /// The level of the table that it points to, from 1 to 3.
    pub level: u32,
}

impl Path {
    /// True if a walk to `va` can begin at the table that it points to.
    #[inline]
    #[must_use]
    pub const fn leads_to(&self, va: VirtAddr) -> bool {
        (va.0 ^ self.start.0) >> span_shift(self.level + 1) == 0
    }
}

impl Tags {
    const fn has(self, pcid: Pcid) -> bool {
        match self {
            Self::Only(only) => only.0 == pcid.0,
            Self::All => true,
        }
    }
}

impl Pages {
    /// True if one of the addresses lies in the aligned block of `1 << shift` bytes that contains `start`.
    #[inline]
    const fn meet(self, start: VirtAddr, shift: u32) -> bool {
        match self {
            Self::None => false,
            Self::All => true,
            Self::At(va) => (va.0 ^ start.0) >> shift == 0,
            Self::Every { first, count, stride } => {
                let begin = start.0 >> shift << shift;
                let before = begin.saturating_sub(first.0).div_ceil(stride.bytes());
                let candidate = first.0.wrapping_add(before << stride.shift());
                before < count && (candidate ^ begin) >> shift == 0
            }
        }
    }
}

impl Invalidation {
    /// True if `translation` is invalidated.
    #[inline]
    #[must_use]
    pub const fn removes(&self, translation: &Translation) -> bool {
        let is_affected = match (translation.is_global, self.globals) {
            (true, Globals::Kept) => false,
            (true, Globals::Removed) => true,
            (false, _) => self.tags.has(translation.pcid),
        };
        is_affected && self.pages.meet(translation.start, translation.stride.shift())
    }

    /// True if `path` is invalidated.
    #[inline]
    #[must_use]
    pub const fn removes_path(&self, path: &Path) -> bool {
        let is_affected = match self.paths {
            Paths::Kept => false,
            Paths::ToTheAddress => self.pages.meet(path.start, span_shift(path.level + 1)),
            Paths::Removed => true,
        };
        is_affected && self.tags.has(path.pcid)
    }
}
