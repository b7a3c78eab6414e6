//! The handshake of entries into the kernel: it holds, and every mistake in it is seen.

use tlbkit_model::entry::{Mistake, Taken, explore};

const PAGES: [Taken; 2] = [Taken::Page, Taken::Page];
const TABLE: [Taken; 2] = [Taken::Page, Taken::Table];

#[test]
fn inv_6_an_entry_meets_deferred_flushes() {
    for taken in [PAGES, TABLE] {
        let found = explore(taken, None);
        println!("{taken:?}: {} states", found.unique_states);
        assert!(found.broken.is_empty(), "{:?}", found.broken);
        assert!(found.unique_states > 5_000, "only {} states", found.unique_states);
    }
}

#[test]
fn every_mistake_of_an_entry_is_caught() {
    for mistake in Mistake::ALL {
        let found = explore(if mistake == Mistake::DefersTables { TABLE } else { PAGES }, Some(mistake));
        println!("{mistake:?}: {:?}, {} states", found.broken, found.unique_states);
        assert!(found.broken.iter().any(|property| property.starts_with("INV-6")), "{mistake:?}: {:?}", found.broken);
    }
}

/// The CPU is interrupted once more than it need be.
#[test]
fn an_nmi_that_does_not_say_user_mode_again_does_no_harm() {
    assert!(explore(PAGES, Some(Mistake::NmiKeepsSilent)).broken.is_empty());
}
