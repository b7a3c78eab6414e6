//! What published kernels did and no kernel would choose today: it is here so that their papers can be reproduced.
//!
//! All of it stands behind the feature `history`, which a kernel leaves off. [`ENABLED`] is the one place where the
//! protocol asks for it. Where the feature is off, the flags of these choices are zero, what the choices keep in the
//! protocol's structures takes no room, and a [`List`](state::List) cannot be made; so the compiler leaves out every
//! branch that leads here. A policy that asks for such a choice all the same is refused by
//! [`Tlb::new`](crate::Tlb::new).
//!
//! | choice | where the protocol meets it | what it does |
//! |---|---|---|
//! | [`FamilyShift`](choices::FamilyShift) | `policy/mod.rs` | the range rule of Linux 3.6 to 3.16, with its walk |
//! | [`Batching`](choices::Batching) | `flush/gather.rs` | flushes sent at once, and packets of single pages |
//! | [`LazyReferences::Counted`](choices::LazyReferences) | `switch/`, `space/end.rs` | lazy references counted |
//! | [`KernelSet`](choices::KernelSet) | `switch/` | a CPU set that is written and that nobody reads |
//! | [`Accounting`](choices::Accounting) | `flush/shootdown.rs` | counters by reason and size |
//! | `table_free`, `foreign`, `nested`, `shared_dirty` | `tlbkit-pmap` | what page tables read |

pub(crate) mod choices;
mod hooks;
pub(crate) mod packet;
pub(crate) mod presets;
pub(crate) mod state;
pub(crate) mod stats;
pub(crate) mod tables;
pub(crate) mod text;

/// True if this build can do what older kernels did.
pub(crate) const ENABLED: bool = cfg!(feature = "history");
