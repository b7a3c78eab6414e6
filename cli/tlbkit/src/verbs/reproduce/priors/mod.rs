//! `reproduce --priors`: each experiment on machines drawn from its machine's file. It shows how far a prediction hangs
//! on numbers that nobody has measured, and which misses could be such a number's.

mod drawn;
mod tables;

use std::sync::Arc;

use anyhow::Result;
use serde_json::json;
use tlbkit_output::fitting::fitting;
use tlbkit_output::jobs;
use tlbkit_output::stopping::Stopping;
use tlbkit_output::terminal::ProgressBar;
use tlbkit_output::terminal::{Ending, Format, progress_bar};
use tlbkit_output::{note, say};

use crate::experiments::{Produced, Registered, Reproduction};
use crate::lab::draws::Draws;
use crate::published::figure::Figure;
use drawn::{DrawnExperiment, Summary};

/// Produces the `chosen` ones, each on its file's own machine and on so many drawn ones. What is done when somebody
/// wants it to end is said as well.
pub(super) fn execute(chosen: &[Registered], draws: u16, format: Format) -> Result<Ending> {
    let of = |experiment: &Registered| Draws::new(&experiment.read()?.setup.machine, FIRST_MACHINE, draws);
    let all_draws = chosen.iter().map(of).collect::<Result<Vec<_>>>()?;
    let stopping = Stopping::listen()?;
    let bar = progress_bar(chosen.len() * (1 + usize::from(draws)));
    let mut done: Vec<DrawnExperiment> = Vec::new();
    for (&experiment, draws) in chosen.iter().zip(all_draws) {
        bar.set_message(experiment.id);
        let Some(drawn) = produce(experiment, draws, &stopping, &bar)? else { break };
        match format {
            Format::Json => drawn.json_lines().iter().for_each(|line| say!("{line}")),
            Format::Text => say!("{}", fitting(&tables::experiment_text(&drawn))),
        }
        done.push(drawn);
    }
    bar.finish_and_clear();
    let missing = Missing::of(chosen, &done, usize::from(draws));
    conclude(&done, missing.as_ref(), format);
    Ok(if missing.is_some() { stopping.ending() } else { Ending::AsExpected })
}

/// The seed of the machine of the first draw, as `run --priors` has it: so an experiment's machines are those that it
/// draws from the same file.
const FIRST_MACHINE: u64 = 1;

/// One experiment on all machines of `draws`; if somebody wants it to end, on those up to the first that is not done,
/// and none if there is no such machine.
fn produce(
    experiment: Registered,
    draws: Draws,
    stopping: &Stopping,
    bar: &ProgressBar,
) -> Result<Option<DrawnExperiment>> {
    let draws = Arc::new(draws);
    let shared = Arc::clone(&draws);
    // The first job is the file's own machine.
    let job = move |job: usize| match job.checked_sub(1) {
        None => experiment.run().map(judged),
        Some(draw) => shared.on(draw, |machine| experiment.run_drawn(draw, machine.clone())).map(judged),
    };
    let mut figures: Vec<Option<Vec<Figure>>> = vec![None; 1 + draws.count()];
    jobs::each(figures.len(), stopping, job, |job, of_job| {
        figures[job] = Some(of_job);
        bar.inc(1);
        Ok(())
    })?;
    let mut whole = figures.into_iter().map_while(|of_job| of_job);
    let own = whole.next();
    let drawn: Vec<_> = whole.collect();
    let (Some(own), false) = (own, drawn.is_empty()) else { return Ok(None) };
    Ok(Some(DrawnExperiment::new(experiment.read()?, draws.first(drawn.len()), own, &drawn)))
}

/// All figures that the experiment's file names, in its order.
fn judged((reproduction, produced): (Reproduction, Produced)) -> Vec<Figure> {
    reproduction.experiment.judge(produced.figures)
}

/// Says what follows from all that is done, and what is missing.
fn conclude(done: &[DrawnExperiment], missing: Option<&Missing>, format: Format) {
    if let Some(Missing { what, rest }) = missing {
        note!("tlbkit: interrupted: {what}; for the rest: {rest}");
    }
    let what = missing.map(|missing| &missing.what);
    match format {
        Format::Json => {
            say!("{}", Summary::of(done).json_line());
            what.iter().for_each(|what| say!("{}", json!({ "interrupted": true, "missing": what })));
        }
        Format::Text if done.is_empty() => {}
        Format::Text => {
            say!("{}", fitting(&tables::summary_text(done)));
            what.iter().for_each(|what| say!("INTERRUPTED: {what}"));
        }
    }
}

/// What was not done when somebody wanted it to end.
struct Missing {
    /// Draws of the last experiment, and experiments.
    what: String,
    /// The command that does it.
    rest: String,
}

impl Missing {
    /// Of the `chosen` ones with so many `draws` each; none if all is there.
    fn of(chosen: &[Registered], done: &[DrawnExperiment], draws: usize) -> Option<Self> {
        let short = done.last().filter(|last| last.draws.count() < draws);
        let left = &chosen[done.len()..];
        let ids: Vec<_> = left.iter().map(|experiment| experiment.id).collect();
        let words = [
            short.map(|last| format!("{} has the first {} of {draws} draws", last.experiment.id, last.draws.count())),
            (!left.is_empty()).then(|| format!("without {}", ids.join(", "))),
        ];
        let what: Vec<_> = words.into_iter().flatten().collect();
        let short = short.map(|last| last.experiment.id.as_str());
        let rest: String = short.into_iter().chain(ids).map(|id| format!(" {id}")).collect();
        let rest = format!("tlbkit reproduce{rest} --priors {draws}");
        (!what.is_empty()).then(|| Self { what: what.join(", "), rest })
    }
}
