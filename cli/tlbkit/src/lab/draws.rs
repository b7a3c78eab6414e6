//! Several policies on machines drawn from one machine file: how far each result may be off because priors are.
//!
//! All policies run on the same machines, each machine with a seed of its own, and are compared draw by draw: what a
//! machine or a seed does to all of them is no difference between them.

use std::ops::RangeInclusive;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use anyhow::{Context, Result, ensure};
use serde_json::{Map, Value, json};
use tlbkit_machine::{DrawnMachine, Machine, Prior, Priors};
use tlbkit_output::table::grid;
use tlbkit_sim::RunOutcome;

use super::compare::{QUANTITIES, Quantity};
use super::named_run::{NamedRun, priors};
use super::seeds::PolicyOutcomes;
use super::spread::Spread;

/// How many machines somebody may have drawn.
pub(crate) const COUNTS: RangeInclusive<i64> = 1..=1000;

/// Machines drawn from one file.
pub(crate) struct Draws {
    priors: Arc<Priors>,
    machines: Vec<Arc<DrawnMachine>>,
    first_seed: u64,
}

impl Draws {
    /// Draws `draws` machines from the file that `machine` names. Each has a seed: `first_seed` and those after it,
    /// which must exist.
    pub(crate) fn new(machine: &str, first_seed: u64, draws: u16) -> Result<Self> {
        let priors = priors(machine)?;
        ensure!(!priors.drawn().is_empty(), "{machine}: no prior that could be drawn; leave --priors out");
        let seeds = (0..u64::from(draws)).map(|more| first_seed + more);
        let machines = seeds.map(|seed| Ok(Arc::new(priors.draw(seed)?))).collect::<Result<_>>()?;
        Ok(Self { priors: Arc::new(priors), machines, first_seed })
    }

    /// The first `draws` of them.
    pub(crate) fn first(&self, draws: usize) -> Self {
        Self { priors: Arc::clone(&self.priors), machines: self.machines[..draws].to_vec(), ..*self }
    }

    /// How many there are.
    pub(crate) fn count(&self) -> usize {
        self.machines.len()
    }

    /// Executes `run` on the machine of a draw, the first of which is 0.
    pub(crate) fn execute(&self, draw: usize, run: &NamedRun, clock: &AtomicU64) -> Result<RunOutcome> {
        self.on(draw, |machine| run.execute_on(machine, Some(clock)))
    }

    /// What `of` makes of the machine of a draw, the first of which is 0; an error names the draw.
    pub(crate) fn on<T>(&self, draw: usize, of: impl FnOnce(&Machine) -> Result<T>) -> Result<T> {
        of(&self.machines[draw].machine).with_context(|| format!("on the machine of draw {}", draw + 1))
    }

    /// The priors that were drawn.
    pub(crate) fn priors(&self) -> &[Prior] {
        self.priors.drawn()
    }

    /// What was drawn and what was not, in two lines.
    pub(crate) fn about(&self) -> String {
        let (drawn, kept) = (self.priors.drawn().len(), self.priors.kept().len());
        format!(
            "{drawn} priors of the file are drawn anew for each machine. {kept} that count something (CPUs, sets, \
             ways, entries, lines)\nstay, and so do noise.toml, cold.toml and counted instructions.\n"
        )
    }

    /// What was drawn of each prior, a value for each draw.
    pub(crate) fn values(&self) -> Vec<Vec<f64>> {
        let of_prior = |prior: usize| self.machines.iter().map(|machine| machine.values[prior]).collect();
        (0..self.priors.drawn().len()).map(of_prior).collect()
    }

    /// A line for each draw: its seed, and the value of each prior.
    pub(crate) fn json_lines(&self) -> Vec<Value> {
        let line = |(draw, machine): (usize, &Arc<DrawnMachine>)| {
            let names = self.priors.drawn().iter().map(|prior| prior.name.clone());
            let values: Map<_, _> = names.zip(machine.values.iter().map(|&value| value.into())).collect();
            json!({ "draw": draw + 1, "seed": self.first_seed + draw as u64, "priors": values })
        };
        self.machines.iter().enumerate().map(line).collect()
    }
}

/// A row for each quantity, a column for each policy: the median of the draws, and between which values 90 % of them
/// lie, or all if they are few.
pub(crate) fn table(columns: &[PolicyOutcomes<'_>]) -> String {
    let row = |quantity: &Quantity| {
        let cell = |column: &PolicyOutcomes<'_>| {
            spread(quantity, &column.outcomes).map_or_else(|| "-".to_owned(), |spread| spread.text(quantity.unit()))
        };
        [quantity.title.to_owned()].into_iter().chain(columns.iter().map(cell)).collect()
    };
    let head: Vec<_> = ["quantity"].into_iter().chain(columns.iter().map(|column| column.policy)).collect();
    grid(&head, &QUANTITIES.iter().map(row).collect::<Vec<_>>())
}

/// A line for each policy: what the table has of it.
pub(crate) fn json_lines(columns: &[PolicyOutcomes<'_>]) -> Vec<Value> {
    let line = |PolicyOutcomes { policy, outcomes, .. }: &PolicyOutcomes<'_>| {
        let quantity = |quantity: &Quantity| {
            let (title, unit) = (quantity.full_title(), quantity.unit().word());
            json!({ "quantity": title, "unit": unit, "spread": spread(quantity, outcomes) })
        };
        let quantities: Vec<_> = QUANTITIES.iter().map(quantity).collect();
        json!({ "medians_of": policy, "draws": outcomes.len(), "quantities": quantities })
    };
    columns.iter().map(line).collect()
}

fn spread(quantity: &Quantity, outcomes: &[RunOutcome]) -> Option<Spread> {
    Spread::of(&quantity.values(outcomes)?)
}
