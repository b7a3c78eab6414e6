//! The handshake of directories, explored to its end in each of its worlds.

use tlbkit_model::directories::{Mistake, WORLDS, explore};

#[test]
fn inv_6_flushes_to_sharers_reach_all_that_can_hold_what_goes() {
    let mut unseen: Option<Vec<_>> = None;
    for world in WORLDS {
        let found = explore(world, None);
        println!("{}: {} states", world.name, found.unique_states);
        assert!(found.broken.is_empty(), "{}: {:?}", world.name, found.broken);
        let before = unseen.unwrap_or_else(|| found.unseen.clone());
        unseen = Some(before.into_iter().filter(|name| found.unseen.contains(name)).collect());
    }
    assert_eq!(unseen, Some(vec![]));
}

#[test]
fn each_mistake_with_directories_is_caught() {
    for mistake in Mistake::ALL {
        let found = explore(*mistake.world(), Some(mistake));
        println!("{mistake:?}: {:?}, {} states", found.broken, found.unique_states);
        assert!(!found.broken.is_empty(), "{mistake:?}");
    }
}
