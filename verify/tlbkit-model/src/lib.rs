//! A model of the protocol, small enough to be explored to the end.
//!
//! Each CPU is a stack of steps, and a step is one access to what CPUs share; plain stores go through a store buffer,
//! as x86 has them. An interrupt puts its own steps on top. [`step::Step`] says which functions of `tlbkit` each step
//! stands for, and `docs/verification.md` what is left out.
#![forbid(unsafe_code)]

mod absence;
mod answer;
mod batch;
pub mod deviation;
pub mod directories;
pub mod entry;
pub mod explore;
mod flush;
mod hardware;
pub mod kernel;
pub mod model;
pub mod properties;
mod protocol;
mod ready;
pub mod request;
pub mod retire;
mod ring;
pub mod rules;
mod shared;
pub mod state;
pub mod step;
mod switch;
pub mod world;

pub use deviation::Deviation;
pub use explore::{Explored, explore};
pub use protocol::Protocol;
pub use world::World;
