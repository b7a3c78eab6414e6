//! The protocol that is modelled: its policy, its mistake if it has one, and what every part of it asks.

use tlbkit::{CpuSetUpkeep, Isolation, LazyReferences};

use crate::deviation::Deviation;
use crate::state::{Space, SpaceNumber, State};
use crate::world::World;

/// The protocol in one world.
#[derive(Clone, Debug)]
pub struct Protocol {
    /// What is explored.
    pub world: World,
    /// The one property to look for; all of them if none.
    pub only: Option<&'static str>,
}

impl Protocol {
    /// The model of `world`, with all properties.
    #[must_use]
    pub const fn new(world: World) -> Self {
        Self { world, only: None }
    }

    pub(crate) fn deviates(&self, deviation: Deviation) -> bool {
        self.world.deviation == Some(deviation)
    }

    pub(crate) fn is_exact(&self) -> bool {
        self.world.policy.cpu_set == CpuSetUpkeep::Exact
    }

    pub(crate) fn is_counted(&self) -> bool {
        self.world.policy.lazy_references == LazyReferences::Counted
    }

    pub(crate) fn is_isolated(&self) -> bool {
        self.world.policy.isolation == Isolation::On
    }

    /// The space has ended; the next one takes its place.
    pub(crate) fn end(&self, state: &mut State, space: SpaceNumber) {
        let id = if self.deviates(Deviation::IdReused) { state.spaces[space].id } else { state.next_id };
        state.next_id += 1;
        state.is_taken &= !state.spaces[space].is_shared;
        state.spaces[space] = Space::fresh(id);
    }
}
