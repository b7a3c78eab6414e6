//! Two ways of running something, in turn.

/// Which half of a pair.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Half {
    /// Without the change.
    Without,
    /// With what is tried.
    With,
}

/// Runs both halves `pairs` times, and returns what came of those without and of those with.
///
/// # Errors
/// The first that a run returns; it ends the whole.
pub fn in_turn<R, E>(pairs: usize, mut run: impl FnMut(Half) -> Result<R, E>) -> Result<[Vec<R>; 2], E> {
    let mut halves = [Vec::with_capacity(pairs), Vec::with_capacity(pairs)];
    for pair in 0..pairs {
        // Each of the two is first in every other pair, so that neither gains by what the one before leaves behind.
        let order = [Half::Without, Half::With];
        for half in if pair % 2 == 0 { order } else { [order[1], order[0]] } {
            halves[half as usize].push(run(half)?);
        }
    }
    Ok(halves)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_half_is_first_in_every_other_pair() {
        let mut order = Vec::new();
        let halves = in_turn(3, |half| {
            order.push(half);
            Ok::<_, ()>(order.len())
        });
        use Half::{With, Without};
        assert_eq!(order, [Without, With, With, Without, Without, With]);
        assert_eq!(halves, Ok([vec![1, 4, 5], vec![2, 3, 6]]));
    }

    #[test]
    fn an_error_ends_it() {
        let mut runs = 0;
        let halves: Result<[Vec<()>; 2], _> = in_turn(3, |_| {
            runs += 1;
            if runs == 2 { Err("no") } else { Ok(()) }
        });
        assert_eq!((halves, runs), (Err("no"), 2));
    }
}
