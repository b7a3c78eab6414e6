//! The translation hardware of one CPU: its arrays, the tag and the root that are loaded, and what it has counted.

use std::sync::Arc;

use tlbkit::{Cr3, Pcid, PhysAddr};
use tlbkit_arch::addr::half_bytes;

use super::config::{Fracturing, MmuConfig};
use super::cost::{Meter, NearLines};
use super::counters::MmuCounters;
use super::entry::{DIRTY, GLOBAL, PRESENT, PageSize};
use super::level::Level;
use super::wide::Wide;

/// The translation hardware of one CPU.
#[derive(Clone, Debug)]
pub struct Mmu {
    pub(super) config: Arc<MmuConfig>,
    pub(super) l1: Level,
    pub(super) stlb: Level,
    pub(super) path: Level<Wide>,
    pub(super) near: NearLines,
    pub(super) meter: Meter,
    pub(super) counters: MmuCounters,
    pub(super) cr3: Cr3,
    /// CR4.PCIDE.
    pub(super) pcide: bool,
    /// PCIDs in the order in which this CPU met them; the place is the tag index.
    pub(super) met: Vec<Pcid>,
    pub(super) tag: u16,
    pub(super) l1_residents: Residency,
    pub(super) stlb_residents: Residency,
    pub(super) pieces: Pieces,
    /// How many addresses are canonical on either side of zero.
    pub(super) half: u64,
    /// What an entry keeps of its leaf beside the rights: P, D, and G where it means something.
    pub(super) kept: u64,
    /// The size in which a page of each size is cached.
    pub(super) cached_as: [PageSize; 3],
}

/// Whether the arrays may hold pieces of larger pages.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Pieces {
    /// Not since everything was emptied last.
    None,
    /// There may be some.
    Some,
}

impl Mmu {
    /// Hardware as after power-on: nothing cached, CR3 zero.
    ///
    /// # Panics
    /// If the configuration is impossible: sets not a power of two, a page size in two arrays of a level or in no first
    /// level array although smaller ones are.
    #[must_use]
    pub fn new(config: impl Into<Arc<MmuConfig>>) -> Self {
        let config = config.into();
        let l1 = Level::new(&config.l1);
        Self {
            cached_as: cached_sizes(&config, &l1),
            stlb: Level::new(&config.stlb),
            path: Level::new(&config.path.arrays()),
            near: NearLines::new(config.costs.hot_lines),
            meter: Meter::new(&config.costs),
            counters: MmuCounters::default(),
            cr3: Cr3::flushing(PhysAddr(0), Pcid(0)),
            pcide: config.pcid,
            met: vec![Pcid(0)],
            tag: 0,
            l1_residents: Residency::new(config.l1_keeps_pcids.map(|others| others + 1), 0),
            stlb_residents: Residency::new(config.stlb_pcids, 0),
            pieces: Pieces::None,
            half: half_bytes(config.levels as u32),
            kept: PRESENT | DIRTY | if config.pge { GLOBAL } else { 0 },
            l1,
            config,
        }
    }

    /// What was loaded last, as it was written.
    #[must_use]
    pub fn cr3(&self) -> Cr3 {
        self.cr3
    }

    /// The loaded tag; PCID 0 while PCIDs are off.
    #[must_use]
    pub fn pcid(&self) -> Pcid {
        self.met[usize::from(self.tag)]
    }

    /// What this hardware has counted.
    #[must_use]
    pub fn counters(&self) -> &MmuCounters {
        &self.counters
    }

    /// The index of a tag that this CPU has met.
    pub(super) fn known_tag(&self, pcid: Pcid) -> Option<u16> {
        self.met.iter().position(|&met| met == pcid).map(|at| at as u16)
    }
}

/// With fracturing everything is cached in base pages; else a size without a separate first-level array is cached in
/// pieces of the next smaller size that has one.
fn cached_sizes(config: &MmuConfig, l1: &Level) -> [PageSize; 3] {
    PageSize::ALL.map(|size| match config.fracturing {
        Fracturing::On => PageSize::Small,
        Fracturing::Off => {
            let held = PageSize::ALL.into_iter().rfind(|&smaller| smaller <= size && l1.holds(smaller));
            held.expect("the first level holds base pages")
        }
    })
}

/// Which tags a level remembers. Hardware keeps few: each has a short internal name, and loading one more forgets the
/// one that was loaded longest ago, with all its entries.
///
/// Tags in the order of their loading, the latest first.
#[derive(Clone, Debug)]
pub(super) struct Residency {
    limit: Option<usize>,
    order: Vec<u16>,
}

impl Residency {
    /// Room for `limit` tags, the `loaded` one among them; none for no limit.
    fn new(limit: Option<usize>, loaded: u16) -> Self {
        Self { limit: limit.map(|tags| tags.max(1)), order: vec![loaded] }
    }

    /// `tag` is loaded; returns the tag that is forgotten for it.
    pub(super) fn load(&mut self, tag: u16) -> Option<u16> {
        let limit = self.limit?;
        match self.order.iter().position(|&known| known == tag) {
            Some(at) => self.order[..=at].rotate_right(1),
            None => self.order.insert(0, tag),
        }
        if self.order.len() > limit { self.order.pop() } else { None }
    }
}
