//! `tlbkit list`: what there is to choose from.

use anyhow::{Context, Result, ensure};
use clap::{Args, ValueEnum};
use serde_json::json;
use tlbkit::{AddressSpace, KEYS, PRESETS, Tlb};
use tlbkit_check::program::named;
use tlbkit_machine::Machine;
use tlbkit_output::nearest::unknown;
use tlbkit_output::say;
use tlbkit_output::table::words;
use tlbkit_output::terminal::{Ending, Format};
use tlbkit_workloads::Parameter;

use crate::experiments;
use crate::spec::KERNEL_KEYS;

/// What to list.
#[derive(Args)]
#[command(after_help = "Examples:\n  tlbkit list policies\n  tlbkit list workloads --json\n  \
    tlbkit list machines --toml recent-vm >mine.toml")]
pub(crate) struct ListArguments {
    /// One kind; without it machines, policies, workloads and experiments
    kind: Option<Listed>,
    /// The file of one machine as it is, to be copied, changed and given to --machine
    #[arg(long, value_name = "MACHINE")]
    toml: Option<String>,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Listed {
    Machines,
    Policies,
    Workloads,
    Parameters,
    Experiments,
    Settings,
    Programs,
    Sizes,
}

impl Listed {
    /// What a run is put together of.
    const CHOSEN_FROM: [Self; 4] = [Self::Machines, Self::Policies, Self::Workloads, Self::Experiments];
}

/// Lists it.
pub(crate) fn execute(arguments: &ListArguments, format: Format) -> Result<Ending> {
    if let Some(machine) = &arguments.toml {
        let kind = arguments.kind.unwrap_or(Listed::Machines);
        ensure!(kind == Listed::Machines, "--toml {machine}: only `tlbkit list machines` has files");
        ensure!(
            format == Format::Text,
            "--toml {machine} with --json: a machine's file is TOML; leave one of them out"
        );
        let text = Machine::text(machine);
        say!("{}", text.with_context(|| unknown("machine", machine, Machine::names(), "machines"))?.trim_end());
        return Ok(Ending::AsExpected);
    }
    let kinds = arguments.kind.as_ref().map_or(&Listed::CHOSEN_FROM[..], std::slice::from_ref);
    for &kind in kinds {
        let ([title, what], rows) = rows(kind)?;
        match format {
            Format::Json => {
                for [name, description] in rows {
                    say!("{}", json!({ "kind": title, "name": name, "description": description }));
                }
            }
            Format::Text => say!("{}", words([title, what], &rows)),
        }
    }
    if arguments.kind.is_none() && format == Format::Text {
        let others = Listed::value_variants().iter().filter(|kind| !kinds.contains(kind));
        let others: Vec<_> = others.filter_map(|kind| Some(kind.to_possible_value()?.get_name().to_owned())).collect();
        say!("More by `tlbkit list KIND`: {}", others.join(", "));
    }
    Ok(Ending::AsExpected)
}

/// The names of the two columns, and the rows.
fn rows(kind: Listed) -> Result<([&'static str; 2], Vec<[String; 2]>)> {
    Ok(match kind {
        Listed::Machines => (["machine", "what it is"], machines()?),
        Listed::Policies => (["policy", "what it does"], pairs(PRESETS.iter().map(|p| (p.name, p.description)))),
        Listed::Workloads => {
            let describe = |name| (name, tlbkit_workloads::describe(name).unwrap_or_default());
            (["workload", "what it does"], pairs(tlbkit_workloads::names().map(describe)))
        }
        Listed::Parameters => (["workload parameter", "what it sets [if not given; range]"], parameters()),
        Listed::Experiments => (["experiment", "what it reproduces"], experiments()?),
        Listed::Settings => (
            ["setting", "its values"],
            pairs(KEYS.iter().map(|key| (key.name, key.values)).chain(KERNEL_KEYS.iter().copied())),
        ),
        Listed::Programs => {
            (["program", "what `check` runs in it"], pairs(named::all().map(|program| (program.name, program.purpose))))
        }
        Listed::Sizes => (["size", "in memory"], sizes()),
    })
}

fn pairs<'a>(rows: impl Iterator<Item = (&'a str, &'a str)>) -> Vec<[String; 2]> {
    rows.map(|(name, description)| [name.to_owned(), description.to_owned()]).collect()
}

fn machines() -> Result<Vec<[String; 2]>> {
    Machine::names()
        .map(|name| Ok([name.to_owned(), Machine::builtin(name)?.description.trim().replace('\n', " ")]))
        .collect()
}

/// What `--set` takes.
fn parameters() -> Vec<[String; 2]> {
    let of = |name: &'static str| {
        let workload = tlbkit_workloads::by_name(name)?;
        let parameters = workload.parameters();
        let row = |parameter: &Parameter| {
            let Parameter { name: key, meaning, default, least, most } = parameter;
            // Workloads that share parameters begin with separate values.
            let default = parameters.get(key).unwrap_or(*default);
            [format!("{name} {key}"), format!("{meaning} [{default}; {least} to {most}]")]
        };
        Some(parameters.list().iter().map(row).collect::<Vec<_>>())
    };
    tlbkit_workloads::names().filter_map(of).flatten().collect()
}

fn experiments() -> Result<Vec<[String; 2]>> {
    experiments::ALL.iter().map(|experiment| Ok([experiment.id.to_owned(), experiment.read()?.title])).collect()
}

fn sizes() -> Vec<[String; 2]> {
    let space = |cpus| [format!("address space, {cpus} CPUs"), format!("{} bytes", AddressSpace::bytes(cpus))];
    let state = ["one CPU's state".to_owned(), format!("{} bytes", size_of::<tlbkit::CpuState>())];
    let matrix = |cpus| [format!("matrix of requests, {cpus} CPUs"), format!("{} bytes", 8 * Tlb::matrix_words(cpus))];
    let cpus = [8, 64, 4096];
    cpus.map(space).into_iter().chain([state]).chain(cpus.map(matrix)).collect()
}
