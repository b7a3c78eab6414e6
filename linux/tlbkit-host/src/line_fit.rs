//! Finding the place where a growing cost drops: two straight lines that explain it better than one.

use serde::Serialize;

/// A cost that drops after `last` and grows more slowly from there on.
#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
pub struct CostStep {
    /// The last number before the drop.
    pub last: usize,
    /// By how much it drops.
    pub drop: f64,
    /// Growth before it.
    pub slope_before: f64,
    /// Growth after it.
    pub slope_after: f64,
    /// How far the points lie from their lines, on average: what the slopes and the drop must be compared with.
    pub scatter: f64,
}

/// Points that each of two lines must have at least.
const FEWEST: usize = 4;
/// A drop this many times the scatter is no accident.
const CLEAR: f64 = 3.0;

/// The clearest drop among `points`, in order of their first number; none if no drop is clear.
#[must_use]
pub fn step(points: &[(f64, f64)]) -> Option<CostStep> {
    let cuts = FEWEST..=points.len().checked_sub(FEWEST)?;
    let (cut, before, after) = cuts
        .map(|cut| (cut, Line::through(&points[..cut]), Line::through(&points[cut..])))
        .min_by(|(_, a, b), (_, c, d)| (a.error + b.error).total_cmp(&(c.error + d.error)))?;
    let scatter = (before.error + after.error) / points.len() as f64;
    let at = points[cut].0;
    let drop = before.at(at) - after.at(at);
    (drop > CLEAR * scatter && drop > 0.0).then(|| CostStep {
        last: points[cut - 1].0 as usize,
        drop,
        slope_before: before.slope,
        slope_after: after.slope,
        scatter,
    })
}

/// By how much more a cost grows up to `last` than beyond, a point each; none if a line has too few points.
#[must_use]
pub fn more_growth(points: &[(f64, f64)], last: usize) -> Option<f64> {
    let cut = points.iter().position(|point| point.0 > last as f64)?;
    let (before, after) = points.split_at(cut);
    let is_enough = before.len() >= FEWEST && after.len() >= FEWEST;
    is_enough.then(|| Line::through(before).slope - Line::through(after).slope)
}

struct Line {
    slope: f64,
    start: f64,
    /// The sum of all distances: absolute ones, so that one outlier does not decide where the step is.
    error: f64,
}

impl Line {
    /// By least squares.
    fn through(points: &[(f64, f64)]) -> Self {
        let count = points.len() as f64;
        let mean = |get: fn(&(f64, f64)) -> f64| points.iter().map(get).sum::<f64>() / count;
        let (x, y) = (mean(|point| point.0), mean(|point| point.1));
        let product: f64 = points.iter().map(|point| (point.0 - x) * (point.1 - y)).sum();
        let square: f64 = points.iter().map(|point| (point.0 - x).powi(2)).sum();
        let slope = if square == 0.0 { 0.0 } else { product / square };
        let mut line = Self { slope, start: y - slope * x, error: 0.0 };
        line.error = points.iter().map(|point| (point.1 - line.at(point.0)).abs()).sum();
        line
    }

    fn at(&self, x: f64) -> f64 {
        self.start + self.slope * x
    }
}

#[cfg(test)]
mod tests {
    use super::{more_growth, step};

    /// 1,000 + 100 a page up to 33, then 700 + 20 a page, with a ripple.
    fn kernel(pages: usize) -> (f64, f64) {
        let x = pages as f64;
        let ripple = 15.0 * (pages % 3) as f64;
        (x, ripple + if pages <= 33 { 1000.0 + 100.0 * x } else { 700.0 + 20.0 * x })
    }

    #[test]
    fn the_step_is_found_under_noise() {
        let mut points: Vec<_> = (1..=80).map(kernel).collect();
        points[60].1 += 2000.0;
        let found = step(&points).unwrap();
        assert_eq!(found.last, 33);
        assert!((found.slope_before - 100.0).abs() < 2.0, "{found:?}");
        assert!((found.slope_after - 20.0).abs() < 15.0, "{found:?}");
    }

    #[test]
    fn growth_is_compared_on_both_sides_of_a_place() {
        let points: Vec<_> = (1..=80).map(kernel).collect();
        assert!((more_growth(&points, 33).unwrap() - 80.0).abs() < 3.0);
        assert!((more_growth(&points, 20).unwrap() - 80.0).abs() > 10.0, "the wrong place");
        assert_eq!((more_growth(&points, 2), more_growth(&points, 80)), (None, None));
    }

    #[test]
    fn a_steady_cost_has_no_step() {
        let points: Vec<_> = (1..=80).map(|pages| (f64::from(pages), 1000.0 + 7.0 * f64::from(pages % 5))).collect();
        assert_eq!(step(&points), None);
        assert_eq!(step(&points[..5]), None, "too few points for two lines");
    }
}
