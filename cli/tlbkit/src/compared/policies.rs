//! Several policies over several seeds: means with their intervals, and what differs from the first policy.

use serde_json::{Value, json};
use tlbkit_output::table::grid;
use tlbkit_sim::RunOutcome;
use tlbkit_sim::observer::Cause;
use tlbkit_sim::run::Start;

use super::difference::{Difference, Mean, RELATIVE, TOO_FEW, changes_pct, too_few_means};
use super::quantity::{Extent, QUANTITIES, Quantity, Unit, of_busy, part, shown_of};

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
pub(crate) fn tables(columns: &[PolicyOutcomes<'_>], extent: Extent) -> String {
    let means = |quantity: &Quantity| {
        let cells = columns.iter().map(|column| mean_cell(quantity, &column.outcomes));
        [quantity.title_in(extent)].into_iter().chain(cells).collect()
    };
    let head = |columns: &[PolicyOutcomes<'_>], first: &str| -> Vec<String> {
        [first].into_iter().chain(columns.iter().map(|column| column.policy)).map(String::from).collect()
    };
    let shown = || shown_of(extent, columns.iter().flat_map(|column| &column.outcomes));
    let mut text = grid(&head(columns, "quantity"), &shown().map(means).collect::<Vec<_>>());
    if let [first, others @ ..] = columns
        && !others.is_empty()
    {
        let differences = |quantity: &Quantity| {
            let cells = others.iter().map(|other| difference(quantity, other, first).text());
            [quantity.title_in(extent)].into_iter().chain(cells).collect()
        };
        let rows: Vec<_> = shown().map(differences).collect();
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

/// What costs cycles beside the program itself, and how a sentence calls it.
const COSTS: [(Cause, &str); 8] = [
    (Cause::FlushWait, "waiting for answers"),
    (Cause::Interrupt, "answering"),
    (Cause::FlushSend, "telling others"),
    (Cause::FlushLocal, "invalidating its own TLB"),
    (Cause::WalkUser, "walking page tables"),
    (Cause::Switch, "switching"),
    (Cause::Fault, "handling faults"),
    (Cause::LockSpin, "spinning for locks"),
];

/// What it means, a sentence for each policy but the first, which it is compared with; none for a single policy.
pub(crate) fn sentences(columns: &[PolicyOutcomes<'_>]) -> Vec<String> {
    let Some((first, others)) = columns.split_first() else { return Vec::new() };
    others.iter().map(|other| sentence(other, first)).collect()
}

/// How much more work than `first` a policy does, over the seeds that both have: whether there is a difference, and the
/// change in percent; none if a run has no score a second, or there is no such seed.
pub(crate) fn work(column: &PolicyOutcomes<'_>, first: &PolicyOutcomes<'_>) -> Option<(Difference, Mean)> {
    let both = column.by_seed().filter_map(|(seed, outcome)| Some((outcome, first.of_seed(seed)?)));
    let rates: Option<Vec<_>> = both.map(|(ours, theirs)| Some((ours.rate()?, theirs.rate()?))).collect();
    let (rates, base): (Vec<_>, Vec<_>) = rates?.into_iter().unzip();
    Some((Difference::of(&rates, &base), Mean::of(&changes_pct(&base, &rates))?))
}

fn sentence(column: &PolicyOutcomes<'_>, first: &PolicyOutcomes<'_>) -> String {
    let (ours, theirs) = (column.policy, first.policy);
    let both: Vec<_> = column.by_seed().filter_map(|(seed, outcome)| Some((outcome, first.of_seed(seed)?))).collect();
    if both.is_empty() {
        return format!("No seed has come to its end under both {ours} and {theirs}.");
    }
    let Some((difference, change)) = work(column, first) else {
        return format!("Whether {ours} does more work than {theirs} is not known: a run has no score a second.");
    };
    match (difference, change) {
        (Difference::Equal, _) => format!("{ours} does as much work as {theirs}."),
        (Difference::Found(_), Mean { mean, half_width }) => {
            let (size, half) = (mean.abs(), half_width.unwrap_or_default());
            let word = if mean > 0.0 { "more" } else { "less" };
            let why = reason(&both, mean).map_or_else(String::new, |why| format!(", and {why}"));
            format!("{ours} does {size:.1} +- {half:.1} % {word} work than {theirs}{why}.")
        }
        (_, Mean { mean, half_width: Some(half) }) => {
            format!("No difference between {ours} and {theirs} in work: {mean:+.1} +- {half:.1} %.")
        }
        _ => format!("One seed says nothing of {ours} against {theirs}: chance alone may make such a difference."),
    }
}

/// The cost whose share of the busy cycles differs most, in the direction in which it explains a `change` of the work;
/// none if each might differ by chance.
fn reason(both: &[(&RunOutcome, &RunOutcome)], change: f64) -> Option<String> {
    let share = |outcome, cause| part(of_busy(outcome, cause));
    let differs = |(cause, name): (Cause, &'static str)| {
        let pairs: Option<Vec<_>> =
            both.iter().map(|&(ours, theirs)| Some(share(ours, cause)? - share(theirs, cause)?)).collect();
        let Mean { mean, half_width } = Mean::of(&pairs?)?;
        let explains = mean * change < 0.0 && half_width.is_some_and(|half| mean.abs() > half);
        explains.then_some((mean, half_width?, name))
    };
    let largest =
        COSTS.into_iter().filter_map(differs).max_by(|(one, ..), (other, ..)| one.abs().total_cmp(&other.abs()));
    largest.map(|(points, half, name)| {
        let word = if points < 0.0 { "fewer" } else { "more" };
        format!("{name} takes {:.1} +- {half:.1} {word} of 100 busy cycles", points.abs())
    })
}

pub(crate) fn mean_cell(quantity: &Quantity, outcomes: &[RunOutcome]) -> String {
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
            "says": (!std::ptr::eq(column, first)).then(|| sentence(column, first)),
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
