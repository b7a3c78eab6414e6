//! One exploration, and what there is to say about it.

use std::time::Instant;

use stateright::{Checker, HasDiscoveries, Model};

use crate::model::Action;
use crate::protocol::Protocol;
use crate::world::World;

/// The result of one exploration.
#[derive(Debug)]
pub struct Explored {
    /// States that were generated.
    pub states: usize,
    /// States that differ from all others.
    pub unique_states: usize,
    /// Actions of the longest of the shortest ways to a state.
    pub depth: usize,
    /// How long it took.
    pub seconds: f64,
    /// Properties that do not hold, each with the shortest way there that was found.
    pub broken: Vec<(&'static str, Vec<Action>)>,
    /// What must be seen in some state, and was.
    pub seen: Vec<&'static str>,
}

/// Explores `world` to its end, or until `only` is broken.
#[must_use]
pub fn explore(world: World, only: Option<&'static str>) -> Explored {
    let began = Instant::now();
    let finish = if only.is_some() { HasDiscoveries::Any } else { HasDiscoveries::All };
    // One thread: with more, neither the depth nor the way found would be the same each time.
    let checker = Protocol { world, only }.checker().finish_when(finish).spawn_bfs().join();
    let (mut broken, mut seen) = (Vec::new(), Vec::new());
    for (name, path) in checker.discoveries() {
        if is_expected(&checker, name) {
            seen.push(name);
        } else {
            broken.push((name, path.into_actions()));
        }
    }
    Explored {
        states: checker.state_count(),
        unique_states: checker.unique_state_count(),
        depth: checker.max_depth(),
        seconds: began.elapsed().as_secs_f64(),
        broken,
        seen,
    }
}

fn is_expected(checker: &impl Checker<Protocol>, name: &str) -> bool {
    matches!(checker.discovery_classification(name), stateright::DiscoveryClassification::Example)
}
