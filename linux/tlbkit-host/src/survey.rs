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

/// One part, for those who keep what is measured before all is.
#[derive(Clone, PartialEq, Debug)]
pub enum Part {
    /// Instructions and faults.
    Primitives(Primitives),
    /// Loads.
    Translation(Translation),
    /// Taking pages away.
    Revocation(Revocation),
    /// What a flush takes along.
    Collateral(Collateral),
    /// Processes in a ring.
    Rings(Rings),
}

impl Part {
    /// What it is called.
    #[must_use]
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Primitives(_) => PRIMITIVES,
            Self::Translation(_) => TRANSLATION,
            Self::Revocation(_) => REVOCATION,
            Self::Collateral(_) => COLLATERAL,
            Self::Rings(_) => RINGS,
        }
    }
}

const PRIMITIVES: &str = "instructions and faults";
const TRANSLATION: &str = "loads";
const REVOCATION: &str = "taking pages away";
const COLLATERAL: &str = "what a flush takes along";
const RINGS: &str = "processes in a ring";

/// What a survey says while it goes on.
#[derive(Clone, PartialEq, Debug)]
pub enum Progress {
    /// The part of this name begins.
    Begins(&'static str),
    /// It is over.
    Done(Box<Part>),
}

impl Survey {
    /// Measures this host. `member` makes the command of a process that calls [`crate::ring::serve`]; `tell` hears
    /// which part begins, and has it when it is over.
    ///
    /// # Errors
    /// If the kernel refuses what a part needs.
    pub fn take(effort: Effort, member: &mut dyn FnMut() -> Command, tell: &mut dyn FnMut(Progress)) -> Result<Self> {
        let (host, place) = (Host::ask()?, MeasuringPlace::choose()?);
        let before = Ticks::now()?;
        sys::pin(place.cpu)?;
        tell(Progress::Begins(PRIMITIVES));
        let primitives = Primitives::measure(effort, &place)?;
        tell(Progress::Done(Box::new(Part::Primitives(primitives))));
        tell(Progress::Begins(TRANSLATION));
        let translation = Translation::measure(effort)?;
        tell(Progress::Done(Box::new(Part::Translation(translation.clone()))));
        tell(Progress::Begins(REVOCATION));
        let revocation = Revocation::measure(effort, &place)?;
        tell(Progress::Done(Box::new(Part::Revocation(revocation.clone()))));
        tell(Progress::Begins(COLLATERAL));
        let collateral = Collateral::measure(effort)?;
        tell(Progress::Done(Box::new(Part::Collateral(collateral))));
        tell(Progress::Begins(RINGS));
        let rings = Rings::measure(effort, &place, member)?;
        tell(Progress::Done(Box::new(Part::Rings(rings.clone()))));
        let disturbance = before.until(&Ticks::now()?);
        Ok(Self { host, disturbance, primitives, translation, revocation, collateral, rings })
    }

    /// Address spaces whose translations the CPU keeps over switches; none if no limit was seen.
    #[must_use]
    pub fn tags(&self) -> Option<usize> {
        self.rings.tags(&self.translation.walk_overlapped)
    }
}
