//! Every small world is explored to its end, and every mistake is seen by the property that stands against it.

use std::collections::BTreeSet;

use stateright::Expectation;
use tlbkit_model::{Deviation, explore, properties, world};

/// INV-2, INV-3, INV-4, INV-5, INV-6, INV-7, INV-8 and INV-12 in every state that can be reached.
#[test]
fn every_property_holds_in_every_small_world() {
    let mut seen = BTreeSet::new();
    for world in world::small() {
        let found = explore(world, None);
        println!("{}: {} states, depth {}", world.name, found.unique_states, found.depth);
        assert!(found.broken.is_empty(), "{}: {:?}", world.name, found.broken);
        assert!(found.unique_states > 5_000, "{}: only {} states", world.name, found.unique_states);
        seen.extend(found.seen);
    }
    let expected = names(Expectation::Sometimes);
    assert_eq!(seen, expected, "what must happen in some world");
}

#[test]
fn every_mistake_is_caught_by_its_property() {
    for &deviation in Deviation::ALL {
        let (world, property) = deviation.breaks();
        let found = explore(world::named(world).deviating(deviation), Some(property));
        let [(broken, way)] = &found.broken[..] else { panic!("{deviation:?} is not caught by {property}") };
        println!("{deviation:?}: {property}, after {} actions of {} states", way.len(), found.unique_states);
        assert_eq!(*broken, property);
        assert!(!way.is_empty(), "{deviation:?} is wrong from the beginning");
    }
}

#[test]
fn every_property_is_seen_to_fail() {
    let broken: BTreeSet<_> = Deviation::ALL.iter().map(|deviation| deviation.breaks().1).collect();
    assert_eq!(broken, names(Expectation::Always));
}

fn names(expectation: Expectation) -> BTreeSet<&'static str> {
    properties::all().into_iter().filter(|p| p.expectation == expectation).map(|p| p.name).collect()
}
