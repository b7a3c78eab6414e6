//! What differs between one CPU model's translation hardware and another's. Filled from a machine file, or by hand.

use super::entry::PageSize;

/// How an array picks a set.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Index {
    /// The low bits of the page number.
    Linear,
    /// The low bits of the page number and the seven above, combined by exclusive or.
    Xor7,
}

/// How a set picks a way to fill when all of them hold living entries.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ReplacementPolicy {
    /// Least recently used.
    Lru,
    /// A binary tree of direction bits; ways are a power of two, at most 64.
    TreePlru,
    /// Twelve ways as three groups of four: the group after the one used last, inside it a tree ("(MRU+1)%3 PLRU4").
    RotatingPlru4,
}

/// One array of entries.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ArrayConfig {
    /// Page sizes that it holds.
    pub holds: Vec<PageSize>,
    /// Sets, a power of two.
    pub sets: usize,
    /// Ways, 1 ..= 255.
    pub ways: usize,
    /// How a set is found.
    pub index: Index,
    /// How a way is chosen.
    pub policy: ReplacementPolicy,
}

impl ArrayConfig {
    /// An array that is indexed by the low bits and replaces by LRU.
    #[must_use]
    pub fn lru(holds: &[PageSize], sets: usize, ways: usize) -> Self {
        Self { holds: holds.to_vec(), sets, ways, index: Index::Linear, policy: ReplacementPolicy::Lru }
    }

    /// Entries.
    #[must_use]
    pub fn entries(&self) -> usize {
        self.sets * self.ways
    }
}

/// Entries of the paging-structure caches, each fully associative with LRU; zero for a cache that does not exist.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PathCaches {
    /// Entries that lead from the top level to a PDPT, and from a fifth level to a PML4.
    pub pml4e: usize,
    /// Entries that lead to a page directory.
    pub pdpte: usize,
    /// Entries that lead to a page table.
    pub pde: usize,
}

impl PathCaches {
    /// The arrays that these caches are, each of one kind: small leads to a page table, large to a page directory, huge
    /// to a PDPT.
    pub(super) fn arrays(&self) -> Vec<ArrayConfig> {
        let kinds = [(PageSize::Small, self.pde), (PageSize::Large, self.pdpte), (PageSize::Huge, self.pml4e)];
        kinds.into_iter().filter(|&(_, ways)| ways > 0).map(|(kind, ways)| ArrayConfig::lru(&[kind], 1, ways)).collect()
    }
}

/// Whether pages larger than 4 KiB survive into the arrays of a guest.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Fracturing {
    /// The host backs large guest pages with large pages, or there is no host.
    Off,
    /// The host backs the guest with 4 KiB pages: large pages are cached in 4 KiB pieces, and any INVLPG empties
    /// everything.
    On,
}

/// Depth of the page tables.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Levels {
    /// 48-bit addresses.
    Four = 4,
    /// 57-bit addresses.
    Five = 5,
}

/// What translation costs, in cycles; fractions count, because overlapped accesses cost only a few.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct TranslationCosts {
    /// A hit in the shared arrays that the next instruction waits for.
    pub stlb_dependent_cycles: f64,
    /// The same where other accesses overlap it.
    pub stlb_independent_cycles: f64,
    /// What every walk costs before it reads anything.
    pub walk_start_cycles: f64,
    /// A leaf entry in a cache line that was read not long ago.
    pub leaf_hot_cycles: f64,
    /// A leaf entry in another line.
    pub leaf_cold_cycles: f64,
    /// An entry above the leaf in a line that was read not long ago.
    pub upper_hot_cycles: f64,
    /// An entry above the leaf in another line.
    pub upper_cold_cycles: f64,
    /// What an independent walk costs, in percent of a dependent one.
    pub overlap_percent: f64,
    /// Page-table lines that stay near, a power of two at most 65,536; zero if all lines are cold.
    pub hot_lines: usize,
    /// Further references per reference, by nested paging.
    pub nested_references: f64,
    /// Cycles of one of those.
    pub nested_reference_cycles: f64,
}

/// The translation hardware of one CPU.
#[derive(Clone, PartialEq, Debug)]
pub struct MmuConfig {
    /// First-level arrays; each page size in at most one.
    pub l1: Vec<ArrayConfig>,
    /// Second-level arrays; each page size in at most one, a size in none is not kept there.
    pub stlb: Vec<ArrayConfig>,
    /// Paging-structure caches.
    pub path: PathCaches,
    /// CR4.PCIDE at power-on.
    pub pcid: bool,
    /// CR4.PGE: without it the G bit means nothing.
    pub pge: bool,
    /// PCIDs that the second level and the paging-structure caches remember; none for all 4,096.
    pub stlb_pcids: Option<usize>,
    /// PCIDs besides the loaded one that the first level keeps over a CR3 write; none for all.
    pub l1_keeps_pcids: Option<usize>,
    /// Whether a host breaks large pages up.
    pub fracturing: Fracturing,
    /// Depth of the tables.
    pub levels: Levels,
    /// What it costs.
    pub costs: TranslationCosts,
}

impl MmuConfig {
    /// Four levels, PCIDs on and unlimited, no cost but one cycle a reference: for tests and counting.
    #[must_use]
    pub fn counting(l1: Vec<ArrayConfig>, stlb: Vec<ArrayConfig>, path: PathCaches) -> Self {
        let costs = TranslationCosts {
            stlb_dependent_cycles: 1.0,
            stlb_independent_cycles: 1.0,
            walk_start_cycles: 0.0,
            leaf_hot_cycles: 1.0,
            leaf_cold_cycles: 1.0,
            upper_hot_cycles: 1.0,
            upper_cold_cycles: 1.0,
            overlap_percent: 100.0,
            hot_lines: 0,
            nested_references: 0.0,
            nested_reference_cycles: 0.0,
        };
        Self {
            l1,
            stlb,
            path,
            pcid: true,
            pge: true,
            stlb_pcids: None,
            l1_keeps_pcids: None,
            fracturing: Fracturing::Off,
            levels: Levels::Four,
            costs,
        }
    }
}
