//! The translation hardware of one simulated CPU: TLB arrays, paging-structure caches, and a walker that reads the very
//! page-table frames that the kernel writes.
//!
//! It is more than a cache, because entries outlive the tables that they came from. A stale entry keeps translating
//! until one of three things removes it: an instruction whose scope covers it, a fill that needs its room, or a fault
//! on its page. The scope of each instruction is what the table of `tlbkit-arch` says and nothing more, unless the
//! machine file says that this CPU does more (few remembered tags, fracturing).
//!
//! | file | what |
//! |---|---|
//! | `entry` | an entry in two words: key and data |
//! | `epochs` | lifetimes of tags: why a full flush costs the same for one entry and for two thousand |
//! | `replace` | LRU, tree-PLRU, the rotating trees of Skylake |
//! | `array`, `narrow`, `wide`, `slots` | one set-associative array, in the shape that suits its ways |
//! | `level` | arrays that share lifetimes |
//! | `state` | the hardware of one CPU: what the files below act on |
//! | `translate` | an access: first level, second level, walk |
//! | `fill` | what an access leaves in both levels |
//! | `walk` | page tables and paging-structure caches |
//! | `flush` | INVLPG, INVPCID, CR3, CR4 |
//! | `query` | what the clairvoyant may ask |
//! | `cost` | cycles |
//! | `of_machine` | what a machine file says of this hardware |

mod access;
mod array;
mod config;
mod cost;
mod counters;
mod entry;
mod epochs;
mod fill;
mod flush;
mod level;
mod narrow;
mod of_machine;
mod query;
mod replace;
mod slots;
mod state;
mod translate;
mod walk;
mod wide;

#[cfg(test)]
mod tests;

pub use access::{Access, Cost, Fault, FaultKind, Hit, Overlap, Privilege, Source, Tables};
pub use config::{ArrayConfig, Fracturing, Index, Levels, MmuConfig, PathCaches, ReplacementPolicy, TranslationCosts};
pub use counters::{Loss, LossCause, Losses, MmuCounters};
pub use entry::PageSize;
pub use flush::{GeneralProtection, Pcide};
pub use state::Mmu;
