//! The mean of a sample, how far its values lie apart, and how far its mean may be off.
//!
//! All who need one of these take it from here. The formulas are those of the NIST/SEMATECH e-Handbook of Statistical
//! Methods: the standard deviation of its section 1.3.5.6 (measures of scale), and the confidence limits of a mean of
//! its section 1.3.5.2, with the critical values of Student's t distribution of its section 1.3.6.7.2. They hold for
//! values that do not depend on each other. The limits also take for granted that the values are normally distributed.
//!
//! A crate for statistics would compute t itself, and bring far more code than the thirty numbers that are needed.

/// The critical values of Student's t for a two-sided confidence of 95 %, from one degree of freedom on.
const T_95: [f64; 30] = [
    12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160, 2.145, 2.131, 2.120,
    2.110, 2.101, 2.093, 2.086, 2.080, 2.074, 2.069, 2.064, 2.060, 2.056, 2.052, 2.048, 2.045, 2.042,
];

/// The arithmetic mean of `values`, in their unit. It is not a number if there are no values.
#[must_use]
pub fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len() as f64
}

/// The sum of the squared deviations of `values` from their mean, in the square of their unit.
pub(crate) fn sum_of_squares(values: &[f64]) -> f64 {
    let mean = mean(values);
    values.iter().map(|value| (value - mean).powi(2)).sum()
}

/// The standard deviation of the distribution from which `values` were drawn, in their unit.
///
/// It is the root of the sum of the squared deviations divided by one less than the number of values, and 0 for fewer
/// than two values.
#[must_use]
pub fn standard_deviation(values: &[f64]) -> f64 {
    if values.len() < 2 { 0.0 } else { (sum_of_squares(values) / (values.len() as f64 - 1.0)).sqrt() }
}

/// The variance of the mean of `values`, in the square of their unit: the square of its standard error.
///
/// It is the variance of the values divided by their number, and not a number for fewer than two values.
pub(crate) fn variance_of_mean(values: &[f64]) -> f64 {
    let count = values.len() as f64;
    sum_of_squares(values) / (count - 1.0) / count
}

/// Half the width of the interval around the mean of `values` that holds the true mean with a confidence of 95 %, in
/// the unit of the values. There is none for fewer than two values.
///
/// It is Student's t times the standard error of the mean. With more than 31 values t is taken to be that of 31, so the
/// interval is up to 4.2 % wider than it must be.
#[must_use]
pub fn half_width_95(values: &[f64]) -> Option<f64> {
    let t = T_95[values.len().checked_sub(2)?.min(T_95.len() - 1)];
    Some(t * variance_of_mean(values).sqrt())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use tlbkit_arch::SplitMix64;

    /// Two numbers that are equal but for what rounding leaves, at numbers of the size of `scale`.
    fn are_near(one: f64, other: f64, scale: f64) -> bool {
        (one - other).abs() <= 1e-9 * scale
    }

    fn sample() -> impl Strategy<Value = Vec<f64>> {
        proptest::collection::vec(-1e3..1e3, 2..50)
    }

    proptest! {
        /// A definition without a mean: the sum of all squared differences of pairs, divided by the number of values.
        #[test]
        fn squares_are_those_of_the_differences_of_pairs(values in sample()) {
            let earlier = |(at, one)| values[..at].iter().map(move |other| (one, other));
            let pairs = values.iter().enumerate().flat_map(earlier);
            let squares = pairs.map(|(one, other)| (one - other).powi(2)).sum::<f64>() / values.len() as f64;
            prop_assert!(are_near(sum_of_squares(&values), squares, 1e8));
            let deviation = (squares / (values.len() - 1) as f64).sqrt();
            prop_assert!(are_near(standard_deviation(&values), deviation, 1e4));
        }

        #[test]
        fn another_zero_moves_the_mean_alone_and_another_unit_changes_all_alike(
            values in sample(), zero in -1e3..1e3, unit in 0.01..100.0
        ) {
            let other: Vec<f64> = values.iter().map(|value| zero + unit * value).collect();
            prop_assert!(are_near(mean(&other), zero + unit * mean(&values), 1e5));
            prop_assert!(are_near(standard_deviation(&other), unit * standard_deviation(&values), 1e5));
            let [half, scaled] = [&values, &other].map(|values| half_width_95(values).unwrap());
            prop_assert!(are_near(scaled, unit * half, 1e6));
        }

        /// Equal values are what they are. The mean of others lies among them.
        #[test]
        fn the_mean_lies_among_the_values(values in sample(), one in -1e3..1e3, count in 2_usize..50) {
            let (low, high) = values.iter().fold((f64::MAX, f64::MIN), |(low, high), &of| (low.min(of), high.max(of)));
            prop_assert!((low - 1e-9..=high + 1e-9).contains(&mean(&values)));
            let equal = vec![one; count];
            prop_assert!(are_near(mean(&equal), one, 1e3) && half_width_95(&equal).unwrap() < 1e-9);
        }

        /// The same values four times over say more of their mean than once.
        #[test]
        fn more_values_make_the_interval_narrower(values in sample()) {
            prop_assume!(standard_deviation(&values) > 1e-3);
            prop_assert!(half_width_95(&values.repeat(4)) < half_width_95(&values));
        }
    }

    /// A number of the standard normal distribution, by the method of Box and Muller.
    fn normal(random: &mut SplitMix64) -> f64 {
        let mut uniform = || (random.bits() >> 11) as f64 / (1_u64 << 53) as f64;
        (-2.0 * (1.0 - uniform()).ln()).sqrt() * (std::f64::consts::TAU * uniform()).cos()
    }

    /// What the interval promises, and so each number of the table: of 20,000 samples 95 % have the true mean inside of
    /// theirs, give or take four standard errors of that part.
    #[test]
    fn of_a_hundred_intervals_95_hold_the_true_mean() {
        const SAMPLES: usize = 20_000;
        let mut random = SplitMix64::new(7);
        for count in 2..=31 {
            let holds = |values: &[f64]| (mean(values) - 5.0).abs() <= half_width_95(values).unwrap();
            let mut sample = || (0..count).map(|_| 5.0 + 3.0 * normal(&mut random)).collect::<Vec<_>>();
            let part = (0..SAMPLES).filter(|_| holds(&sample())).count() as f64 / SAMPLES as f64;
            let error = (0.95 * 0.05 / SAMPLES as f64).sqrt();
            assert!((part - 0.95).abs() < 4.0 * error, "{part} with {count} values");
        }
    }

    #[test]
    fn a_table_s_numbers_come_out() {
        // Deviation 1, two degrees of freedom.
        let half = half_width_95(&[1.0, 2.0, 3.0]).unwrap();
        assert!((half - 4.303 / 3f64.sqrt()).abs() < 1e-9, "{half}");
        let many: Vec<_> = (0..100).map(f64::from).collect();
        assert!((half_width_95(&many).unwrap() - 2.042 * 29.011_491_975_882_016 / 10.0).abs() < 1e-9);
    }

    #[test]
    fn one_value_says_nothing_of_its_spread() {
        assert_eq!((half_width_95(&[5.0]), half_width_95(&[])), (None, None));
        assert_eq!([standard_deviation(&[5.0]), standard_deviation(&[])], [0.0; 2]);
        assert!(mean(&[]).is_nan());
    }
}
