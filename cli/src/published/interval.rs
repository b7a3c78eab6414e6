//! How far a mean over seeds may be off: Student's t, since there are few seeds and their spread is not known before.

/// The t of a two-sided confidence of 95 %, from one degree of freedom on.
const T: [f64; 30] = [
    12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160, 2.145, 2.131, 2.120,
    2.110, 2.101, 2.093, 2.086, 2.080, 2.074, 2.069, 2.064, 2.060, 2.056, 2.052, 2.048, 2.045, 2.042,
];

/// Half the width of the interval in which the mean of `samples` lies with a confidence of 95 %, in their unit; none of
/// fewer than two samples. With more than 31 it is a little wider than it must be.
pub(crate) fn half_width(samples: &[f64]) -> Option<f64> {
    let n = samples.len();
    let t = T[n.checked_sub(2)?.min(T.len() - 1)];
    let mean = samples.iter().sum::<f64>() / n as f64;
    let squares: f64 = samples.iter().map(|sample| (sample - mean).powi(2)).sum();
    Some(t * (squares / (n - 1) as f64 / n as f64).sqrt())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_interval_of_a_mean_is_student_s() {
        // Deviation 1, two degrees of freedom.
        let width = half_width(&[1.0, 2.0, 3.0]).unwrap();
        assert!((width - 4.303 / 3f64.sqrt()).abs() < 1e-9, "{width}");
        assert_eq!(half_width(&[5.0, 5.0]), Some(0.0));
        let many: Vec<_> = (0..100).map(f64::from).collect();
        assert!((half_width(&many).unwrap() - 2.042 * 29.011_491_975_882_016 / 10.0).abs() < 1e-9);
    }

    #[test]
    fn one_sample_says_nothing_of_its_spread() {
        assert_eq!((half_width(&[5.0]), half_width(&[])), (None, None));
    }
}
