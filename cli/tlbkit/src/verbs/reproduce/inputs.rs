//! The tables of a report with the numbers that were put in: set-ups of experiments, and what was fitted or guessed.

use anyhow::Result;
use serde_json::json;
use tlbkit_machine::{ColdModel, Machine, NoiseModel, NumberKind, Quantity};

use crate::output::report::Table;
use crate::published::experiment::{Experiment, Parameter, Value};

/// The column heads of all these tables.
fn head() -> Vec<String> {
    ["number", "value", "band", "kind", "source"].map(String::from).to_vec()
}

fn band_text(band: Option<[f64; 2]>) -> String {
    band.map_or(String::new(), |[low, high]| format!("{low} to {high}"))
}

/// Every number of an experiment's set-up, from the document or not.
pub(super) fn setup_of(experiment: &Experiment) -> Table {
    let row = |(name, parameter): (&String, &Parameter)| {
        let value = match &parameter.value {
            Value::Number(number) => format!("{number} {}", parameter.unit),
            Value::Text(text) => text.clone(),
        };
        let (kind, source) = (parameter.kind.word().to_owned(), parameter.source.clone());
        vec![name.clone(), value.trim_end().to_owned(), band_text(parameter.band), kind, source]
    };
    let rows = experiment.setup.parameters.iter().map(row).collect();
    Table { title: format!("Set-up of {}", experiment.id), head: head(), rows }
}

/// The numbers without a source of each of `machines`, once, and of what all machines share.
pub(super) fn fitted(machines: &[String]) -> Result<Vec<Table>> {
    let mut names = machines.to_vec();
    names.sort();
    names.dedup();
    let mut tables = Vec::new();
    for name in &names {
        tables.push(fitted_of(format!("Machine {name}"), Machine::builtin(name)?.quantities()));
    }
    let shared = ColdModel::builtin().quantities().into_iter().chain(NoiseModel::builtin().quantities());
    tables.push(fitted_of("Every machine".into(), shared.collect()));
    Ok(tables)
}

/// Every number that no source gives: fitted, or a prior with its band.
fn fitted_of(title: String, quantities: Vec<(String, &Quantity)>) -> Table {
    let rows = quantities
        .into_iter()
        .filter(|(_, quantity)| quantity.kind != NumberKind::Input)
        .map(|(field, quantity)| {
            let kind = json!(quantity.kind).as_str().unwrap_or_default().to_owned();
            vec![field, quantity.value.to_string(), band_text(quantity.band), kind, quantity.source.clone()]
        })
        .collect();
    Table { title, head: head(), rows }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiments;
    use crate::published::read::builtin;

    #[test]
    fn every_number_of_a_set_up_is_in_its_table() {
        for experiment in experiments::ALL.map(|experiment| experiment.read().unwrap()) {
            let Table { rows, .. } = setup_of(&experiment);
            let names: Vec<&String> = rows.iter().map(|row| &row[0]).collect();
            assert_eq!(names, experiment.setup.parameters.keys().collect::<Vec<_>>(), "{}", experiment.id);
        }
        let Table { rows, .. } = setup_of(&builtin("batch"));
        let files = rows.iter().find(|row| row[0] == "files").unwrap();
        assert_eq!(files[1..4], ["8 files", "4 to 16", "prior"]);
    }
}
