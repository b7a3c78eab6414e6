//! Several policies over several seeds: means with their intervals, and what differs from the first policy.
//!
//! Policies are compared seed by seed, each pair being one sample: what a seed does to both of them is no difference
//! between them. Where the interval of the difference holds zero, no difference was found, and nothing is ranked.

use serde_json::{Value, json};
use tlbkit_sim::RunOutcome;
use tlbkit_sim::run::Start;

use super::compare::{QUANTITIES, Quantity, Unit};
use crate::output::table::grid;
use crate::published::interval::half_width;

/// What a difference is.
pub(crate) const RELATIVE: &str = "differences are relative, of parts too: in percent of the first policy's value";

/// What no interval of seeds says.
pub(crate) const OWN_ERROR: &str =
    "no interval here says how far off the simulator itself is: see \"What comes out\" in README.md";
/// Of what intervals are, for a program.
pub(crate) const INTERVAL_OF: &str = "seeds alone";

/// A policy and its outcomes, a seed each, in the order of the seeds.
pub(crate) struct Column<'a> {
    pub(crate) policy: &'a str,
    /// Of each outcome. Policies may lack some where the runs were interrupted.
    pub(crate) seeds: Vec<u64>,
    pub(crate) outcomes: Vec<RunOutcome>,
}

/// A mean, and half of the interval in which it lies with a confidence of 95 %; none of one sample.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) struct Mean {
    pub(crate) mean: f64,
    pub(crate) half_width: Option<f64>,
}

impl Mean {
    /// That of `samples`; none of no sample.
    pub(crate) fn of(samples: &[f64]) -> Option<Self> {
        let mean = samples.iter().sum::<f64>() / samples.len() as f64;
        (!samples.is_empty()).then(|| Self { mean, half_width: half_width(samples) })
    }

    /// As a whole number.
    pub(crate) fn count(self) -> String {
        self.text(Unit::Count)
    }

    /// In the unit's digits, `+-` before half of the interval.
    fn text(self, unit: Unit) -> String {
        let (digits, sign) = match unit {
            Unit::Count => (0, ""),
            Unit::Percent => (1, " %"),
        };
        let half = match self.half_width {
            // All that a part can be.
            Some(half) if unit == Unit::Percent && half >= 100.0 => " +-100".to_owned(),
            half => half.map_or_else(String::new, |half| format!(" +-{half:.digits$}")),
        };
        format!("{:.digits$}{half}{sign}", self.mean)
    }
}

/// How far a policy is from the first one in one quantity.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) enum Difference {
    /// In percent of the first's; zero lies outside of the interval.
    Found(Mean),
    /// Zero lies in the interval, or there is one sample.
    NotFound,
    /// They are equal, seed by seed.
    Equal,
    /// The first has nothing of which there could be percents.
    NoBase,
}

impl Difference {
    /// Of `ours` from `theirs`, pair by pair.
    pub(crate) fn of(ours: &[f64], theirs: &[f64]) -> Self {
        if ours == theirs {
            return Self::Equal;
        }
        if ours.len() != theirs.len() || theirs.contains(&0.0) {
            return Self::NoBase;
        }
        let changes: Vec<_> = ours.iter().zip(theirs).map(|(ours, theirs)| 100.0 * (ours / theirs - 1.0)).collect();
        match Mean::of(&changes) {
            Some(mean) if mean.half_width.is_some_and(|half| mean.mean.abs() > half) => Self::Found(mean),
            _ => Self::NotFound,
        }
    }

    /// For a cell.
    pub(crate) fn text(self) -> String {
        match self {
            Self::Found(Mean { mean, half_width }) => {
                format!("{mean:+.1} +-{:.1} %", half_width.unwrap_or_default())
            }
            Self::NotFound => "no difference found".to_owned(),
            Self::Equal => "equal".to_owned(),
            Self::NoBase => "-".to_owned(),
        }
    }

    /// For a machine: `null` where nothing was found.
    pub(crate) fn json(self) -> Value {
        match self {
            Self::Found(mean) => json!({ "percent": mean.mean, "half_width": mean.half_width }),
            Self::Equal => json!({ "percent": 0.0, "half_width": 0.0 }),
            Self::NotFound | Self::NoBase => Value::Null,
        }
    }
}

/// Two tables: the means, and where there is more than one policy how far each is from the first.
pub(crate) fn tables(columns: &[Column<'_>]) -> String {
    let means = |quantity: &Quantity| {
        let cells = columns.iter().map(|column| mean_cell(quantity, &column.outcomes));
        [quantity.title.to_owned()].into_iter().chain(cells).collect()
    };
    let head = |columns: &[Column<'_>], first: &str| -> Vec<String> {
        [first].into_iter().chain(columns.iter().map(|column| column.policy)).map(String::from).collect()
    };
    let mut text = grid(&head(columns, "quantity"), &QUANTITIES.iter().map(means).collect::<Vec<_>>());
    if let [first, others @ ..] = columns
        && !others.is_empty()
    {
        let differences = |quantity: &Quantity| {
            let cells = others.iter().map(|other| difference(quantity, other, first).text());
            [quantity.title.to_owned()].into_iter().chain(cells).collect()
        };
        let rows: Vec<_> = QUANTITIES.iter().map(differences).collect();
        let title = format!("against {}", first.policy);
        text = format!("{text}\n{}{RELATIVE}\n", grid(&head(others, &title), &rows));
    }
    let is_nothing = |Column { outcomes, .. }: &&Column<'_>| {
        !outcomes.is_empty() && outcomes.iter().all(|outcome| outcome.score == 0)
    };
    for Column { policy: name, .. } in columns.iter().filter(is_nothing) {
        text += &format!(
            "NOTHING WAS COUNTED under {name}: its time was over before the first unit; more --milliseconds\n"
        );
    }
    text
}

fn mean_cell(quantity: &Quantity, outcomes: &[RunOutcome]) -> String {
    mean(quantity, outcomes).map_or_else(|| "-".to_owned(), |mean| mean.text(quantity.unit))
}

/// A line for each policy under which a run has no score a second, and why it has none.
pub(crate) fn notes(columns: &[Column<'_>]) -> Vec<String> {
    let note = |Column { policy: name, outcomes, .. }: &Column<'_>| {
        let all = outcomes.len();
        let (early, few) = (ended_as(Start::NotOver, outcomes), ended_as(Start::TooFewUnits, outcomes));
        let early = (early > 0).then(|| format!("the start was not over at the end of {early} of {all} runs"));
        let few = (few > 0).then(|| format!("{few} of {all} runs counted too few units"));
        let why = early.into_iter().chain(few).collect::<Vec<_>>().join(", and ");
        (!why.is_empty()).then(|| format!("{name}: no score a second, as {why}; try more --milliseconds"))
    };
    columns.iter().filter_map(note).collect()
}

/// Runs of whose start this is known.
fn ended_as(start: Start, outcomes: &[RunOutcome]) -> usize {
    outcomes.iter().filter(|outcome| outcome.start == start).count()
}

/// A line for each policy: its means, and its differences from the first.
pub(crate) fn json_lines(columns: &[Column<'_>]) -> Vec<Value> {
    let Some(first) = columns.first() else { return Vec::new() };
    let line = |column: &Column<'_>| {
        let quantity = |quantity: &Quantity| {
            let mean = mean(quantity, &column.outcomes);
            json!({
                "quantity": quantity.full_title(), "unit": quantity.unit.word(),
                "mean": mean.map(|mean| mean.mean),
                "half_width": mean.and_then(|mean| mean.half_width),
                "difference": difference(quantity, column, first).json(),
            })
        };
        let quantities: Vec<_> = QUANTITIES.iter().map(quantity).collect();
        json!({
            "means_of": column.policy, "seeds": column.outcomes.len(), "against": first.policy,
            "interval_of": INTERVAL_OF, "quantities": quantities,
            "start_not_over": ended_as(Start::NotOver, &column.outcomes),
        })
    };
    columns.iter().map(line).collect()
}

/// Of the seeds that both have.
fn difference(quantity: &Quantity, column: &Column<'_>, first: &Column<'_>) -> Difference {
    let of = quantity.of;
    let both: Vec<_> = column.by_seed().filter_map(|(seed, ours)| Some((ours, first.of_seed(seed)?))).collect();
    let pairs = both.iter().filter_map(|(ours, theirs)| Some((of(ours)?, of(theirs)?)));
    let (ours, theirs): (Vec<_>, Vec<_>) = pairs.unzip();
    let is_known = quantity.unit == Unit::Percent || ours.len() == both.len();
    if is_known && !ours.is_empty() { Difference::of(&ours, &theirs) } else { Difference::NoBase }
}

impl Column<'_> {
    fn by_seed(&self) -> impl Iterator<Item = (u64, &RunOutcome)> {
        self.seeds.iter().copied().zip(&self.outcomes)
    }

    fn of_seed(&self, seed: u64) -> Option<&RunOutcome> {
        self.by_seed().find(|&(other, _)| other == seed).map(|(_, outcome)| outcome)
    }
}

fn mean(quantity: &Quantity, outcomes: &[RunOutcome]) -> Option<Mean> {
    Mean::of(&quantity.values(outcomes)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_lies_inside_the_interval_is_no_difference() {
        let base = [100.0, 110.0, 90.0];
        assert_eq!(Difference::of(&base, &base), Difference::Equal);
        assert_eq!(Difference::of(&[101.0, 108.0, 90.0], &base), Difference::NotFound);
        assert_eq!(Difference::of(&[200.0], &[100.0]), Difference::NotFound, "one sample says nothing");
        assert_eq!(Difference::of(&[1.0, 2.0], &[0.0, 1.0]), Difference::NoBase);
    }

    /// The spread between seeds is far larger than the difference, which all of them show.
    #[test]
    fn policies_are_compared_seed_by_seed() {
        let (base, faster) = ([100.0, 200.0, 400.0], [102.0, 204.2, 407.6]);
        let Difference::Found(Mean { mean, half_width: Some(half) }) = Difference::of(&faster, &base) else {
            panic!("not found")
        };
        assert!((mean - 2.0).abs() < 0.01 && half < 0.3, "{mean} {half}");
    }

    #[test]
    fn a_mean_stands_beside_half_of_its_interval() {
        assert_eq!(Mean::of(&[9.0, 10.0, 11.0]).unwrap().text(Unit::Count), "10 +-2");
        assert_eq!(Mean::of(&[10.0]).unwrap().text(Unit::Percent), "10.0 %");
        assert_eq!(Mean::of(&[0.0, 100.0]).unwrap().text(Unit::Percent), "50.0 +-100 %");
        assert_eq!(Mean::of(&[]), None);
    }
}
