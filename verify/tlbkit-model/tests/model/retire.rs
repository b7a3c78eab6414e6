//! The handshake of grace periods, explored to its end.

use tlbkit_model::retire::{Ending, Mistake, explore};

#[test]
fn inv_6_what_is_retired_is_freed_when_nobody_reaches_it() {
    for ending in Ending::ALL {
        let found = explore(ending, None);
        println!("{ending:?}: {} states", found.unique_states);
        assert!(found.broken.is_empty(), "{:?}", found.broken);
    }
}

#[test]
fn each_mistake_in_a_grace_period_is_caught() {
    for mistake in Mistake::ALL {
        for &ending in mistake.endings() {
            assert!(!explore(ending, Some(mistake)).broken.is_empty(), "{ending:?}, {mistake:?}");
        }
    }
}
