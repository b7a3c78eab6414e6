//! What published kernels did and no kernel would choose today: it is here so that their papers can be reproduced.
//!
//! Everything in this folder stands behind the feature `history`, which the simulator, the checkers and the test kernel
//! turn on. Without it `absent.rs` and its like stand in its place: the same names, which hold no bytes and do
//! nothing, so that a kernel has none of this in its binary. Wherever the protocol meets its history it calls one of
//! these names:
//!
//! | hook | who calls it | what it is with the feature |
//! |---|---|---|
//! | `History`, `flag` | `policy.rs`, `tlb.rs` | the older choices, as fields and as bits |
//! | `FamilyShift` | `policy.rs` | the range rule of Linux 3.6 to 3.16, with its walk of the page tables |
//! | `Packet` | `gather.rs` | flushes sent at once, and lists of single pages instead of one range |
//! | `List`, `SharedList` | `request.rs` | such a list in a request, and in a mailbox |
//! | `LazyReferences` | `policy.rs` | with `Counted` beside what is there without the feature |
//! | `keep_lazily`, `let_go` | `switch.rs` | counted lazy references |
//! | `end_counted` | `destroy.rs` | the end of a space whose references are counted |
//! | `join_kernel_set`, `leave_kernel_set` | `switch.rs` | a set that is written and that nobody reads |
//! | `text` | `text.rs` | their keys in the text form |
//! | `table_free`, `foreign` | `tlbkit-pmap` | what page tables read |
//! | `Counters`, `clock`, `count` | `tlb.rs`, `shootdown.rs` | counters by reason and size |

#[cfg(not(feature = "history"))]
mod absent;
#[cfg(not(feature = "history"))]
mod absent_hooks;
#[cfg(not(feature = "history"))]
mod absent_text;
#[cfg(feature = "history")]
pub(crate) mod choices;
#[cfg(feature = "history")]
mod hooks;
#[cfg(not(feature = "history"))]
#[path = "absent_packet.rs"]
pub(crate) mod packet;
#[cfg(feature = "history")]
pub(crate) mod packet;
#[cfg(feature = "history")]
pub(crate) mod presets;
#[cfg(feature = "history")]
pub(crate) mod state;
#[cfg(feature = "history")]
pub(crate) mod stats;
pub(crate) mod tables;
#[cfg(feature = "history")]
pub(crate) mod text;

#[cfg(not(feature = "history"))]
pub(crate) use absent::{choices, state};
#[cfg(not(feature = "history"))]
pub(crate) use absent_text::{presets, text};
