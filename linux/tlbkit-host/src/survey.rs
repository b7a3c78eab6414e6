//! All measurements, one after the other, on one CPU.

use std::process::Command;

use serde::Serialize;

use crate::collateral::Collateral;
use crate::disturbance::{Disturbance, Ticks};
use crate::error::Result;
use crate::host::{Host, MeasuringPlace};
use crate::primitives::Primitives;
use crate::revocation::Revocation;
use crate::ring::Rings;
use crate::sample::Effort;
use crate::sys;
use crate::translation::Translation;

/// All that was measured.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Survey {
    /// The machine.
    pub host: Host,
    /// Who else used it meanwhile.
    pub disturbance: Disturbance,
    /// Single events.
    pub primitives: Primitives,
    /// TLB sizes and the costs of misses.
    pub translation: Translation,
    /// Taking pages away.
    pub revocation: Revocation,
    /// What a flush takes along.
    pub collateral: Collateral,
    /// How many address spaces keep their translations over a switch.
    pub rings: Rings,
}

/// Parts of a survey, for those who show how far it is.
pub const PARTS: usize = 5;

impl Survey {
    /// Measures this host. `member` makes the command of a process that calls [`crate::ring::serve`]; `begin` is told
    /// which part begins.
    ///
    /// # Errors
    /// If the kernel refuses what a part needs.
    pub fn take(
        effort: Effort,
        member: &mut dyn FnMut() -> Command,
        begin: &mut dyn FnMut(&'static str),
    ) -> Result<Self> {
        let (host, place) = (Host::ask()?, MeasuringPlace::choose()?);
        let before = Ticks::now()?;
        sys::pin(place.cpu)?;
        begin("instructions and faults");
        let primitives = Primitives::measure(effort, &place)?;
        begin("loads");
        let translation = Translation::measure(effort)?;
        begin("taking pages away");
        let revocation = Revocation::measure(effort, &place)?;
        begin("what a flush takes along");
        let collateral = Collateral::measure(effort)?;
        begin("processes in a ring");
        let rings = Rings::measure(effort, &place, member)?;
        let disturbance = before.until(&Ticks::now()?);
        Ok(Self { host, disturbance, primitives, translation, revocation, collateral, rings })
    }

    /// Address spaces whose translations the CPU keeps over switches; none if no limit was seen.
    #[must_use]
    pub fn tags(&self) -> Option<usize> {
        self.rings.tags(&self.translation.walk_overlapped)
    }
}
