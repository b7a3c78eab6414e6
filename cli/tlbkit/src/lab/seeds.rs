//! Several policies over several seeds: means with their intervals, and what differs from the first policy.

use serde_json::{Value, json};
use tlbkit_output::table::grid;
use tlbkit_sim::RunOutcome;
use tlbkit_sim::run::Start;

use super::compare::{QUANTITIES, Quantity, Unit};
use super::difference::{Difference, RELATIVE, TOO_FEW, too_few_means};
use super::mean::Mean;

/// What the tables say of intervals.
pub(crate) const OWN_ERROR: &str =
    "no interval here says how far off the simulator itself is: see docs/lab/reproduce.md";
/// What intervals come from, for a program.
pub(crate) const INTERVAL_OF: &str = "seeds alone";

/// A policy and its outcomes, one for each seed, in the order of the seeds.
pub(crate) struct PolicyOutcomes<'a> {
    pub(crate) policy: &'a str,
    /// The seed of each outcome. A policy may lack some seeds if the runs were interrupted.
    pub(crate) seeds: Vec<u64>,
    pub(crate) outcomes: Vec<RunOutcome>,
}

/// Two tables: the means, and where there is more than one policy how far each is from the first.
pub(crate) fn tables(columns: &[PolicyOutcomes<'_>]) -> String {
    let means = |quantity: &Quantity| {
        let cells = columns.iter().map(|column| mean_cell(quantity, &column.outcomes));
        [quantity.title.to_owned()].into_iter().chain(cells).collect()
    };
    let head = |columns: &[PolicyOutcomes<'_>], first: &str| -> Vec<String> {
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
        let has_too_few = rows.iter().flatten().any(|cell| cell == TOO_FEW);
        let few = if has_too_few { too_few_means() } else { String::new() };
        text = format!("{text}\n{}{RELATIVE}\n{few}", grid(&head(others, &title), &rows));
    }
    let is_nothing = |PolicyOutcomes { outcomes, .. }: &&PolicyOutcomes<'_>| {
        !outcomes.is_empty() && outcomes.iter().all(|outcome| outcome.score == 0)
    };
    for PolicyOutcomes { policy: name, .. } in columns.iter().filter(is_nothing) {
        text += &format!(
            "NOTHING WAS COUNTED under {name}: its time was over before the first unit; more --milliseconds\n"
        );
    }
    text
}

fn mean_cell(quantity: &Quantity, outcomes: &[RunOutcome]) -> String {
    mean(quantity, outcomes).map_or_else(|| "-".to_owned(), |mean| mean.text(quantity.unit()))
}

/// A line for each policy under which a run has no score a second, and why it has none.
pub(crate) fn notes(columns: &[PolicyOutcomes<'_>]) -> Vec<String> {
    let note = |PolicyOutcomes { policy: name, outcomes, .. }: &PolicyOutcomes<'_>| {
        let all = outcomes.len();
        let (early, few) = (ended_as(Start::NotOver, outcomes), ended_as(Start::TooFewUnits, outcomes));
        let early = (early > 0).then(|| format!("the start was not over at the end of {early} of {all} runs"));
        let few = (few > 0).then(|| format!("{few} of {all} runs counted too few units"));
        let why = early.into_iter().chain(few).collect::<Vec<_>>().join(", and ");
        (!why.is_empty()).then(|| format!("{name}: no score a second, as {why}; try more --milliseconds"))
    };
    columns.iter().filter_map(note).collect()
}

/// How many runs have this to say of their start.
fn ended_as(start: Start, outcomes: &[RunOutcome]) -> usize {
    outcomes.iter().filter(|outcome| outcome.start == start).count()
}

/// A line for each policy: its means, and its differences from the first.
pub(crate) fn json_lines(columns: &[PolicyOutcomes<'_>]) -> Vec<Value> {
    let Some(first) = columns.first() else { return Vec::new() };
    let line = |column: &PolicyOutcomes<'_>| {
        let quantity = |quantity: &Quantity| {
            let mean = mean(quantity, &column.outcomes);
            json!({
                "quantity": quantity.full_title(), "unit": quantity.unit().word(),
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

/// The difference of a quantity, over the seeds that both have.
fn difference(quantity: &Quantity, column: &PolicyOutcomes<'_>, first: &PolicyOutcomes<'_>) -> Difference {
    let both: Vec<_> = column.by_seed().filter_map(|(seed, ours)| Some((ours, first.of_seed(seed)?))).collect();
    let pairs = both.iter().filter_map(|(ours, theirs)| Some((quantity.value(ours)?, quantity.value(theirs)?)));
    let (ours, theirs): (Vec<_>, Vec<_>) = pairs.unzip();
    let is_known = quantity.unit() == Unit::Percent || ours.len() == both.len();
    match Difference::of(&ours, &theirs) {
        _ if !is_known || ours.is_empty() => Difference::NoBase,
        Difference::Found(_) if !quantity.is_enough(both.iter().map(|&(_, theirs)| theirs)) => Difference::TooFew,
        difference => difference,
    }
}

impl PolicyOutcomes<'_> {
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
