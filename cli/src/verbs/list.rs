//! `tlbkit list`: what there is to choose from.

use anyhow::Result;
use clap::{Args, ValueEnum};
use serde_json::json;
use tlbkit::{AddressSpace, PRESETS};
use tlbkit_sim::machine::Machine;

use crate::experiment::{Experiment, ids};
use crate::output::table::grid;
use crate::settings::KEYS;
use crate::{Ending, Format};

/// What to list.
#[derive(Args)]
#[command(after_help = "Example: tlbkit list policies")]
pub(crate) struct Options {
    /// One kind only
    kind: Option<Kind>,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Kind {
    Machines,
    Policies,
    Workloads,
    Experiments,
    Settings,
    Sizes,
}

const ALL: [Kind; 6] =
    [Kind::Machines, Kind::Policies, Kind::Workloads, Kind::Experiments, Kind::Settings, Kind::Sizes];

/// Lists it.
pub(crate) fn execute(options: &Options, format: Format) -> Result<Ending> {
    for kind in ALL.into_iter().filter(|kind| options.kind.is_none_or(|only| only == *kind)) {
        let (title, rows) = rows(kind)?;
        match format {
            Format::Json => {
                for [name, description] in rows {
                    println!("{}", json!({ "kind": title, "name": name, "description": description }));
                }
            }
            Format::Text => {
                let rows: Vec<_> = rows.into_iter().map(Vec::from).collect();
                println!("{}\n", grid(&[title.to_owned(), "what it is".to_owned()], &rows));
            }
        }
    }
    Ok(Ending::Fine)
}

fn rows(kind: Kind) -> Result<(&'static str, Vec<[String; 2]>)> {
    Ok(match kind {
        Kind::Machines => ("machine", machines()?),
        Kind::Policies => {
            ("policy", PRESETS.iter().map(|preset| [preset.name.into(), preset.description.into()]).collect())
        }
        Kind::Workloads => {
            let describe = |name: &str| tlbkit_workloads::describe(name).unwrap_or_default().to_owned();
            ("workload", tlbkit_workloads::names().map(|name| [name.to_owned(), describe(name)]).collect())
        }
        Kind::Experiments => ("experiment", experiments()?),
        Kind::Settings => ("setting", KEYS.iter().map(|(key, values)| [(*key).into(), (*values).into()]).collect()),
        Kind::Sizes => ("size", sizes()),
    })
}

fn machines() -> Result<Vec<[String; 2]>> {
    Machine::names()
        .map(|name| Ok([name.to_owned(), Machine::builtin(name)?.description.trim().replace('\n', " ")]))
        .collect()
}

fn experiments() -> Result<Vec<[String; 2]>> {
    ids().iter().map(|id| Ok([(*id).to_owned(), Experiment::builtin(id)?.title])).collect()
}

fn sizes() -> Vec<[String; 2]> {
    let space = |cpus| [format!("address space, {cpus} CPUs"), format!("{} bytes", AddressSpace::bytes(cpus))];
    let state = ["one CPU's state".to_owned(), format!("{} bytes", size_of::<tlbkit::CpuState>())];
    [8, 48, 4096].map(space).into_iter().chain([state]).collect()
}
