//! The translation hardware of one simulated CPU: TLB arrays, paging-structure caches, and a walker that reads the very
//! page-table frames that the kernel writes.
//!
//! What makes it more than a cache: entries outlive the tables that they came from. A stale entry keeps translating
//! until an instruction whose scope covers it, a fill that needs its room, or a fault on its page removes it. The scope
//! of each instruction is the table at the head of `flush` and not a bit more, unless the machine file says that this
//! CPU does more (few remembered tags, fracturing).
//!
//! | file | what |
//! |---|---|
//! | `entry` | an entry in two words: key and data |
//! | `epochs` | lifetimes of tags: why a full flush costs the same for one entry and for two thousand |
//! | `replace` | LRU, tree-PLRU, the rotating trees of Skylake |
//! | `array`, `narrow`, `wide`, `slots` | one set-associative array, in the shape that suits its ways |
//! | `level` | arrays that share lifetimes |
//! | `translate` | an access: first level, second level, walk |
//! | `walk` | page tables and paging-structure caches |
//! | `flush` | INVLPG, INVPCID, CR3, CR4 |
//! | `residency` | which tags a level remembers |
//! | `query` | what the clairvoyant may ask |
//! | `cost`, `lines` | cycles |
//! | `truth` | a reference trace whose miss rates are known |

mod access;
mod array;
mod config;
mod cost;
mod counters;
mod entry;
mod epochs;
mod flush;
mod level;
mod lines;
mod narrow;
mod query;
mod replace;
mod residency;
mod slots;
mod translate;
pub mod truth;
mod walk;
mod wide;

#[cfg(test)]
mod tests;

use std::sync::Arc;

use tlbkit::{Cr3, Pcid, PhysAddr};

pub use access::{Access, Cost, Fault, FaultKind, Hit, Mode, Overlap, Source, Tables};
pub use config::{ArrayConfig, Config, Fracturing, Index, Levels, PathCaches, Policy, TranslationCosts};
pub use counters::{Cause, Counters, Loss, Losses};
pub use entry::PageSize;
pub use flush::{GeneralProtection, Pcide};

use cost::Meter;
use entry::{DIRTY, GLOBAL, PRESENT};
use level::Level;
use lines::NearLines;
use residency::Residency;
use wide::Wide;

/// The translation hardware of one CPU.
#[derive(Clone, Debug)]
pub struct Mmu {
    config: Arc<Config>,
    l1: Level,
    stlb: Level,
    path: Level<Wide>,
    near: NearLines,
    meter: Meter,
    counters: Counters,
    cr3: Cr3,
    /// CR4.PCIDE.
    pcide: bool,
    /// PCIDs in the order in which this CPU met them; the place is the tag index.
    met: Vec<Pcid>,
    tag: u16,
    l1_residents: Residency,
    stlb_residents: Residency,
    pieces: Pieces,
    /// How many addresses are canonical on either side of zero.
    half: u64,
    /// What an entry keeps of its leaf beside the rights: P, D, and G where it means something.
    kept: u64,
    /// The size in which a page of each size is cached.
    cached_as: [PageSize; 3],
}

/// Whether the arrays may hold pieces of larger pages.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Pieces {
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
    pub fn new(config: impl Into<Arc<Config>>) -> Self {
        let config = config.into();
        let l1 = Level::new(&config.l1);
        Self {
            cached_as: cached_sizes(&config, &l1),
            stlb: Level::new(&config.stlb),
            path: Level::new(&walk::path_arrays(&config.path)),
            near: NearLines::new(config.costs.hot_lines),
            meter: Meter::new(&config.costs),
            counters: Counters::default(),
            cr3: Cr3::flushing(PhysAddr(0), Pcid(0)),
            pcide: config.pcid,
            met: vec![Pcid(0)],
            tag: 0,
            l1_residents: Residency::new(config.l1_keeps_pcids.map(|others| others + 1), 0),
            stlb_residents: Residency::new(config.stlb_pcids, 0),
            pieces: Pieces::None,
            half: translate::half_of(config.levels),
            kept: PRESENT | DIRTY | if config.pge { GLOBAL } else { 0 },
            l1,
            config,
        }
    }

    /// Power-on again: everything is empty, CR3 is zero, counters go on.
    pub fn reset(&mut self) {
        let counters = self.counters;
        *self = Self::new(Arc::clone(&self.config));
        self.counters = counters;
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

    /// Totals.
    #[must_use]
    pub fn counters(&self) -> &Counters {
        &self.counters
    }

    /// Totals, which begin again at zero.
    pub fn take_counters(&mut self) -> Counters {
        std::mem::take(&mut self.counters)
    }

    /// The configuration.
    #[must_use]
    pub fn config(&self) -> &Config {
        &self.config
    }

    /// The index of a tag that this CPU has met.
    fn known_tag(&self, pcid: Pcid) -> Option<u16> {
        self.met.iter().position(|&met| met == pcid).map(|at| at as u16)
    }
}

/// With fracturing everything is cached in base pages; else a size without a first-level array of its own is cached in
/// pieces of the next smaller size that has one.
fn cached_sizes(config: &Config, l1: &Level) -> [PageSize; 3] {
    PageSize::ALL.map(|size| match config.fracturing {
        Fracturing::On => PageSize::Small,
        Fracturing::Off => {
            let held = PageSize::ALL.into_iter().rfind(|&smaller| smaller <= size && l1.holds(smaller));
            held.expect("the first level holds base pages")
        }
    })
}
