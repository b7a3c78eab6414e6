//! What TLB management costs on this host, measured from user space.
//!
//! No counter, no kernel module and no privilege: the costs show in the time of loads and of system calls. A chase
//! through one line a page has steps where the TLB arrays end ([`translation`]); `mprotect` has one where the kernel
//! stops invalidating page by page ([`revocation`]); warm pages tell by being slow which flush took them along
//! ([`collateral`]); a ring of processes tells how many address-space tags stay valid ([`ring`]).
//!
//! [`Survey::take`] runs all of it. Times are nanoseconds, each a [`Sample`] of repetitions with its spread, because
//! hosts are shared and virtual: [`Sample::is_noisy`] and [`Disturbance`] say when a figure means little.
//!
//! Apart from that, [`recorder`] has `perf` record what the kernel says about its flushes, and [`trial`] runs a command
//! with and without a change, in turn; [`examination`] says what of all this the machine allows.
//!
//! `unsafe` stands in `sys` alone, which maps memory and starts processes; all that measures is checked by the
//! compiler.

pub mod collateral;
mod disturbance;
mod error;
pub mod examination;
mod host;
pub mod line_fit;
mod paired;
pub mod partner;
pub mod primitives;
pub mod recorder;
pub mod revocation;
pub mod ring;
mod sample;
mod survey;
mod sys;
mod ticks;
pub mod translation;
pub mod trial;

pub use disturbance::Disturbance;
pub use error::{Error, Result, said_of};
pub use host::{Host, MeasuringPlace};
pub use paired::PairedRatio;
pub use sample::{Effort, Sample};
pub use survey::{PARTS, Part, Progress, Survey};
