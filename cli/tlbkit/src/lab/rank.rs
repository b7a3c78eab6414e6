//! Which of many numbers a result follows: Spearman's rank correlation, and how much of it chance alone gives.

use tlbkit_arch::SplitMix64;

/// Random orders in which chance is tried.
const ORDERS: usize = 1000;

/// One order of this many may have a larger correlation than [`chance`] says.
const ONE_IN: usize = 20;

/// The rank of each of `values`, counted from the middle, so that the sum is zero. Equal values share their ranks.
fn ranks(values: &[f64]) -> Vec<f64> {
    let mut order: Vec<_> = (0..values.len()).collect();
    order.sort_by(|&a, &b| values[a].total_cmp(&values[b]));
    let middle = (values.len() as f64 - 1.0) / 2.0;
    let mut ranks = vec![0.0; values.len()];
    let mut first = 0;
    for equal in order.chunk_by(|&a, &b| values[a] == values[b]) {
        let place = first as f64 + (equal.len() as f64 - 1.0) / 2.0;
        equal.iter().for_each(|&index| ranks[index] = place - middle);
        first += equal.len();
    }
    ranks
}

/// The correlation of two lists of [`ranks`], from -1 to 1; 0 where all of one list are equal.
fn correlation(ours: &[f64], theirs: &[f64]) -> f64 {
    let size = (product(ours, ours) * product(theirs, theirs)).sqrt();
    if size == 0.0 { 0.0 } else { product(ours, theirs) / size }
}

/// The size of a correlation that chance hardly exceeds. If the results come in a random order, the largest correlation
/// of all `numbers`, each a list of [`ranks`], is above it in one order of twenty.
fn chance(numbers: &[Vec<f64>]) -> f64 {
    let draws = numbers.first().map_or(0, Vec::len);
    let mut results = ranks(&(0..draws).map(|place| place as f64).collect::<Vec<_>>());
    let mut random = SplitMix64::new(1);
    let mut largest: Vec<_> = (0..ORDERS)
        .map(|_| {
            shuffle(&mut results, &mut random);
            numbers.iter().map(|number| correlation(number, &results).abs()).fold(0.0, f64::max)
        })
        .collect();
    largest.sort_by(f64::total_cmp);
    largest[ORDERS - ORDERS / ONE_IN]
}

/// Numbers that a result may follow. Each has a value for every draw.
pub(crate) struct Candidates {
    /// [`ranks`] of each number.
    ranked: Vec<Vec<f64>>,
    /// What [`chance`] says of them.
    pub(crate) chance: f64,
}

impl Candidates {
    /// `values` has a list for each number, with a value for every draw.
    pub(crate) fn new(values: &[Vec<f64>]) -> Self {
        let ranked: Vec<_> = values.iter().map(|values| ranks(values)).collect();
        let chance = chance(&ranked);
        Self { ranked, chance }
    }

    /// The numbers that `results` follow, at most `most` of them. There is a result for every draw: see [`followed`].
    pub(crate) fn followed(&self, results: &[f64], most: usize) -> Vec<Followed> {
        followed(&self.ranked, &ranks(results), self.chance, most)
    }
}

/// A number that a result follows.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) struct Followed {
    /// Its index.
    pub(crate) number: usize,
    /// Its correlation with the result.
    pub(crate) whole: f64,
    /// Its correlation with what the numbers found before leave of the result.
    pub(crate) left: f64,
}

/// The `numbers` that `result` follows, at most `most` of them; all are lists of [`ranks`]. Candidates are the numbers
/// whose correlation with the result is beyond `chance`. The first is the one with the largest correlation. Each
/// further one has the largest correlation with what those before it leave of the result, and must be beyond `chance`
/// there too. Otherwise a number that by accident goes with an important one would be taken for important.
fn followed(numbers: &[Vec<f64>], result: &[f64], chance: f64, most: usize) -> Vec<Followed> {
    // Few draws have few orders: rounding must not tell equal correlations apart.
    let is_beyond = |correlation: f64| correlation.abs() > chance + 1e-9;
    let by_itself = numbers.iter().enumerate().map(|(number, ranks)| (number, correlation(ranks, result)));
    let candidates: Vec<_> = by_itself.filter(|&(_, whole)| is_beyond(whole)).collect();
    let mut left = result.to_vec();
    let (mut found, mut directions) = (Vec::new(), Vec::<Vec<f64>>::new());
    // If a result is explained completely, what is left of it is rounding.
    while found.len() < most && product(&left, &left) > 1e-9 * product(result, result) {
        let of_left = |&(number, whole): &(usize, f64)| {
            let left = correlation(&numbers[number], &left);
            Followed { number, whole, left }
        };
        let best = candidates.iter().map(of_left).max_by(|one, other| one.left.abs().total_cmp(&other.left.abs()));
        let Some(best) = best.filter(|best| is_beyond(best.left)) else { break };
        found.push(best);
        // Gram-Schmidt: the direction that this number adds to those before it, so that none of them correlates with
        // what is left.
        let mut direction = numbers[best.number].clone();
        directions.iter().for_each(|before| take_out(&mut direction, before));
        take_out(&mut left, &direction);
        directions.push(direction);
    }
    found
}

/// Takes out of `values` what follows `direction`.
fn take_out(values: &mut [f64], direction: &[f64]) {
    let slope = product(direction, values) / product(direction, direction);
    values.iter_mut().zip(direction).for_each(|(value, along)| *value -= slope * along);
}

fn product(ours: &[f64], theirs: &[f64]) -> f64 {
    ours.iter().zip(theirs).map(|(ours, theirs)| ours * theirs).sum()
}

fn shuffle(values: &mut [f64], random: &mut SplitMix64) {
    for last in (1..values.len()).rev() {
        values.swap(last, random.below(last as u64 + 1) as usize);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(ours: &[f64], theirs: &[f64]) -> f64 {
        correlation(&ranks(ours), &ranks(theirs))
    }

    #[test]
    fn only_the_order_counts_and_equal_values_share_a_place() {
        assert_eq!(ranks(&[10.0, 30.0, 20.0]), [-1.0, 1.0, 0.0]);
        assert_eq!(ranks(&[5.0, 9.0, 5.0, 9.0]), [-1.0, 1.0, -1.0, 1.0]);
        assert!((of(&[1.0, 2.0, 3.0], &[1.0, 10.0, 1e6]) - 1.0).abs() < 1e-12);
        assert!((of(&[1.0, 2.0, 3.0], &[9.0, 8.0, 1.0]) + 1.0).abs() < 1e-12);
        // 1 - 6 x (1 + 1 + 0 + 0 + 0) / (5 x 24)
        assert!((of(&[1.0, 2.0, 3.0, 4.0, 5.0], &[2.0, 1.0, 3.0, 4.0, 5.0]) - 0.9).abs() < 1e-12);
        assert_eq!(of(&[1.0, 1.0], &[1.0, 2.0]), 0.0);
    }

    fn numbers(draws: usize, count: usize, seed: u64) -> Vec<Vec<f64>> {
        let mut random = SplitMix64::new(seed);
        (0..count).map(|_| ranks(&(0..draws).map(|_| random.bits() as f64).collect::<Vec<_>>())).collect()
    }

    /// The second number goes with the first, and the third weighs less than the second seems to.
    #[test]
    fn what_goes_with_an_important_number_is_not_taken_for_one() {
        let mut all = numbers(100, 20, 5);
        all[1] = ranks(&sum(&all[0], 1.0, &all[1]));
        let result = ranks(&sum(&all[0], 0.6, &all[2]));
        let (alone, limit) = (correlation(&all[1], &result), chance(&all));
        assert!(alone > limit && correlation(&all[2], &result) < alone, "{alone} {limit}");
        let found: Vec<_> = followed(&all, &result, limit, 5).iter().map(|found| found.number).collect();
        assert_eq!(found, [0, 2]);
        assert_eq!(followed(&all, &result, limit, 1).len(), 1);
        let whole = followed(&all, &all[3], limit, 5);
        assert!(whole.len() == 1 && whole[0].number == 3 && (whole[0].whole - 1.0).abs() < 1e-9, "{whole:?}");
        assert_eq!(followed(&all, &vec![0.0; 100], limit, 5), []);
    }

    /// Two of many numbers go with each other in few draws. What follows both must not bring the first back when the
    /// second is taken out.
    #[test]
    fn no_number_is_found_twice() {
        for seed in 1..10 {
            let all = numbers(20, 35, seed);
            let pairs = (0..35).flat_map(|one| (0..one).map(move |other| (one, other)));
            let size = |&(one, other): &(usize, usize)| correlation(&all[one], &all[other]).abs();
            let (one, other) = pairs.max_by(|a, b| size(a).total_cmp(&size(b))).unwrap();
            let result = ranks(&sum(&all[one], -correlation(&all[one], &all[other]).signum(), &all[other]));
            let mut found: Vec<_> = followed(&all, &result, 0.2, 5).iter().map(|found| found.number).collect();
            found.sort_unstable();
            assert!(found.is_sorted_by(|a, b| a < b), "{found:?}");
        }
    }

    fn sum(ours: &[f64], weight: f64, theirs: &[f64]) -> Vec<f64> {
        ours.iter().zip(theirs).map(|(ours, theirs)| ours + weight * theirs).collect()
    }

    /// Of results that have nothing to do with the numbers, one in twenty seems to.
    #[test]
    fn chance_is_exceeded_as_often_as_it_says() {
        let (tried, results) = (numbers(50, 35, 2), numbers(50, 1000, 3));
        let chance = chance(&tried);
        let exceeds = |result: &&Vec<f64>| tried.iter().any(|number| correlation(number, result).abs() > chance);
        let exceeded = results.iter().filter(exceeds).count();
        assert!((30..=70).contains(&exceeded), "{exceeded} of 1000 beyond {chance}");
    }

    /// For one number and 20 draws tables of Spearman's coefficient have 0.447 at 5 %, for both signs.
    #[test]
    fn chance_gives_more_where_more_is_tried_and_less_where_there_are_more_draws() {
        let one = chance(&numbers(20, 1, 2));
        assert!((one - 0.447).abs() < 0.03, "{one}");
        let [many, longer] = [chance(&numbers(20, 40, 2)), chance(&numbers(200, 40, 2))];
        assert!(many > 0.6 && many < 0.75 && longer < 0.26 && longer > 0.18, "{many} {longer}");
        assert!((chance(&numbers(3, 40, 2)) - 1.0).abs() < 1e-12, "three draws say nothing");
        assert_eq!((chance(&numbers(1, 40, 2)), chance(&[])), (0.0, 0.0));
    }
}
