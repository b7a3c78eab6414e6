//! Traces of live Linux machines: what the kernel itself recorded about its TLB flushes, and what caused them.
//!
//! [`open`] finds the form of a file by its first bytes: `perf.data` (file or pipe), the text of `perf script`, or the
//! compact form of [`compact`], each plain or packed by zstd. All of them give the same [`Event`]s through [`Source`],
//! in order of time and in constant memory. [`Source::health`] says what is missing; it belongs beside every result.
//!
//! ```no_run
//! # fn main() -> Result<(), tlbkit_trace::Error> {
//! let mut source = tlbkit_trace::open("perf.data".as_ref())?;
//! let mut summary = tlbkit_trace::Summary::default();
//! while let Some(event) = source.next_event()? {
//!     summary.add(&event);
//! }
//! println!("{} ({})", summary, source.health());
//! # Ok(())
//! # }
//! ```
//!
//! By file: `abi.rs` (Linux's own numbers), `event.rs` and `names.rs` (the model), `tracepoint.rs` (the catalogue,
//! where all forms meet), `perf/`, `script.rs` and `compact/` (the forms), `open.rs` (which form a file has),
//! `summary.rs` (counts), `family.rs` (who started whom), `blame/` (who flushes, why, and whom it
//! interrupts).
#![forbid(unsafe_code)]

pub mod abi;
pub mod blame;
pub mod compact;
mod error;
mod event;
mod family;
mod names;
mod open;
mod order;
mod perf;
mod script;
mod source;
pub mod summary;
mod symbols;
mod tracepoint;

pub use blame::Blame;
pub use compact::{CompactReader, CompactWriter};
pub use error::{Damage, Error, FilePosition, Health};
pub use event::{Edge, Event, EventKind, Fan, FaultMode, FlushReason, FlushSize, Syscall};
pub use family::Family;
pub use names::{Code, Name, Names, StackId};
pub use open::{open, open_pipe};
pub use perf::PerfReader;
pub use script::ScriptReader;
pub use source::Source;
pub use summary::Summary;
pub use tracepoint::EVENTS;
