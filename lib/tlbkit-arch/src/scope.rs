//! What each instruction invalidates: the one table that every machine here keeps to.
//!
//! It says what a CPU must have invalidated when the instruction has ended. A CPU may invalidate more at any time, so
//! nothing may rely on an entry that stays.
//!
//! | | translations of its tag | of other tags | global ones | cached paths |
//! |---|---|---|---|---|
//! | INVLPG | the page | kept | the page | all of the loaded tag |
//! | MOV CR3, bit 63 clear | all of the *new* tag | kept | kept | of the new tag |
//! | MOV CR3, bit 63 set | kept | kept | kept | kept |
//! | MOV CR3, CR4.PCIDE clear | all of tag 0, the only one | | kept | of tag 0 |
//! | INVPCID 0 | the page of the named tag | kept | kept | of that tag, for the address |
//! | INVPCID 1 | all of the named tag | kept | kept | of that tag |
//! | INVPCID 2 | all | all | all | all |
//! | INVPCID 3 | all | all | kept | all |
//! | CR4.PGE changed, CR4.PCIDE cleared | all | all | all | all |
//! | page fault | the page | kept | the page | of the loaded tag, for the address |
//! | INVLPGB | the named pages of the named tag | kept | if asked | of that tag, unless told to spare them |
//!
//! Sources: Intel's Software Developer's Manual, volume 3, the section on operations that invalidate TLBs and
//! paging-structure caches, and in volume 2 the pages of INVLPG, INVPCID and MOV to control registers; AMD's
//! Architecture Programmer's Manual, volume 3, INVLPGB.
//!
//! *The page* is the translation that covers the named address, whatever its size: any address inside a large page
//! names it. A *path* is an entry of the paging-structure caches. A translation that was fetched from a global entry
//! is used under every tag and belongs to none; a path always belongs to the tag it was fetched under. Of a page
//! fault the manual names the loaded tag alone, but it promises that a fault which the page tables do not justify will
//! not come again: a global translation that caused it must go, too.

use tlbkit::{Cr3, Invpcid, Pcid, Stride, VirtAddr};

use crate::addr::{is_canonical, span_shift};

/// The tag under which a CPU translates.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum CurrentTag {
    /// CR4.PCIDE is clear: the tag is 0 whatever CR3 says, and a CR3 write with bit 63 set faults.
    Off,
    /// CR4.PCIDE is set, and CR3 carries this tag.
    Loaded(Pcid),
}

impl CurrentTag {
    /// The tag that translations are fetched under.
    #[inline]
    #[must_use]
    pub const fn pcid(self) -> Pcid {
        match self {
            Self::Off => Pcid(0),
            Self::Loaded(pcid) => pcid,
        }
    }

    /// The tag once `cr3` has been written.
    #[inline]
    #[must_use]
    pub const fn after(self, cr3: Cr3) -> Self {
        match self {
            Self::Off => Self::Off,
            Self::Loaded(_) => Self::Loaded(cr3.pcid()),
        }
    }
}

/// What a CPU executes, or meets, that invalidates something.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Instruction {
    /// INVLPG. Of an address that is not canonical (with four levels of tables) it is no error and does nothing.
    Invlpg(VirtAddr),
    /// INVPCID, with operands that the CPU does not refuse.
    Invpcid(Invpcid),
    /// MOV to CR3.
    WriteCr3(Cr3),
    /// MOV to CR4 that changes CR4.PGE.
    TogglePge,
    /// MOV to CR4 that clears CR4.PCIDE.
    ClearPcide,
    /// A page fault at this address.
    PageFault(VirtAddr),
    /// INVLPGB, on every CPU that it reaches, once TLBSYNC has ended on the one that executed it.
    Invlpgb(Broadcast),
}

/// What INVLPGB names.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Broadcast {
    /// The first address.
    pub first: VirtAddr,
    /// How many addresses are named.
    pub count: u64,
    /// How far they are apart: not how much each of them covers.
    pub stride: Stride,
    /// The tag.
    pub pcid: Pcid,
    /// Whether the global translations of the named addresses go too.
    pub globals: Globals,
    /// [`Paths::Kept`] if the instruction is told to invalidate final translations only.
    pub paths: Paths,
}

/// Which addresses are meant.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Pages {
    /// No address.
    None,
    /// Every address.
    All,
    /// This one.
    At(VirtAddr),
    /// `count` addresses from the first one on, each `stride` behind the one before.
    Every {
        /// The first of them.
        first: VirtAddr,
        /// How many they are.
        count: u64,
        /// How far they are apart.
        stride: Stride,
    },
}

/// Which tags are meant.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Tags {
    /// This one.
    Only(Pcid),
    /// All of them.
    All,
}

/// Whether the global translations of the meant addresses go too.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Globals {
    /// They stay.
    Kept,
    /// They go.
    Removed,
}

/// Which cached paths of the meant tags go.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Paths {
    /// None of them.
    Kept,
    /// Those that lead to a meant address.
    ToTheAddress,
    /// All of them.
    Removed,
}

/// One row of the table: what goes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Invalidation {
    /// The addresses whose translations go.
    pub pages: Pages,
    /// The tags whose translations and paths go.
    pub tags: Tags,
    /// Whether global translations go too.
    pub globals: Globals,
    /// Which paths go.
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
    /// What goes when a CPU executes this while it translates under `current`.
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
            Self::Invpcid(Invpcid::AllAndGlobals) | Self::TogglePge | Self::ClearPcide => Invalidation::EVERYTHING,
            Self::PageFault(va) => Invalidation {
                pages: Pages::At(va),
                tags: loaded,
                globals: Globals::Removed,
                paths: Paths::ToTheAddress,
            },
            Self::Invlpgb(Broadcast { first, count, stride, pcid, globals, paths }) => {
                Invalidation { pages: Pages::Every { first, count, stride }, tags: Tags::Only(pcid), globals, paths }
            }
        }
    }
}

/// A translation that a CPU may hold, as far as the table asks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Translation {
    /// The tag that it was fetched under.
    pub pcid: Pcid,
    /// The first address that it translates.
    pub start: VirtAddr,
    /// How much it translates.
    pub stride: Stride,
    /// It was fetched from a global entry.
    pub is_global: bool,
}

impl Translation {
    /// True if it translates `va`.
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

/// An entry of the paging-structure caches: the upper part of a walk, which leads to a table.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Path {
    /// The tag that it was fetched under.
    pub pcid: Pcid,
    /// An address that it leads to.
    pub start: VirtAddr,
    /// Level of the table that it leads to: 1 to 3.
    pub level: u32,
}

impl Path {
    /// True if a walk to `va` can begin at the table that it leads to.
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
    /// True if one of the addresses lies in the `1 << shift` bytes around `start`.
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
    /// True if `translation` goes.
    #[inline]
    #[must_use]
    pub const fn removes(&self, translation: &Translation) -> bool {
        let is_meant = match (translation.is_global, self.globals) {
            (true, Globals::Kept) => false,
            (true, Globals::Removed) => true,
            (false, _) => self.tags.has(translation.pcid),
        };
        is_meant && self.pages.meet(translation.start, translation.stride.shift())
    }

    /// True if `path` goes.
    #[inline]
    #[must_use]
    pub const fn removes_path(&self, path: &Path) -> bool {
        let is_meant = match self.paths {
            Paths::Kept => false,
            Paths::ToTheAddress => self.pages.meet(path.start, span_shift(path.level + 1)),
            Paths::Removed => true,
        };
        is_meant && self.tags.has(path.pcid)
    }
}
