//! What a `check` says of the runs that it made.

use serde_json::json;
use tlbkit_check::campaign::{Explored, Report};
use tlbkit_check::schedule::shrink::Failure;
use tlbkit_check::two_columns;
use tlbkit_output::terminal::Format;
use tlbkit_output::{note, say};

use super::work::{Came, Replayed, Seeds};

/// Many seeds.
pub(super) fn seeds(seeds: &Seeds, format: Format) {
    let Seeds { came, report, done: [done, of], seconds } = seeds;
    let is_interrupted = matches!(came, Came::Interrupted);
    if is_interrupted {
        note!("tlbkit: interrupted: {done} of --seeds {of} are done, and nothing was found in them");
    }
    let a_minute = report.seeds as f64 / seconds * 60.0;
    match format {
        Format::Json => say!(
            "{}",
            json!({ "seeds": report.seeds, "steps": report.steps, "seconds": seconds, "seeds_a_minute": a_minute,
                "seed": report.failure.as_ref().map(|(seed, _)| seed), "interrupted": is_interrupted })
        ),
        Format::Text => {
            say!("{} {} seeds, {} steps, {a_minute:.0} seeds a minute", found(report), report.seeds, report.steps);
        }
    }
}

/// What was found, and the seed that --replay takes.
fn found(report: &Report) -> String {
    let of = |seed| format!("stopped at a finding of seed {seed}, after");
    report.failure.as_ref().map_or_else(|| "nothing found in".to_owned(), |(seed, _)| of(seed))
}

/// Every schedule of one program.
pub(super) fn explored(came: &Came, explored: &Explored, seconds: f64, format: Format) {
    let Explored { states, runs, bound, is_complete, .. } = explored;
    let is_interrupted = matches!(came, Came::Interrupted);
    if is_interrupted {
        note!("tlbkit: interrupted: {runs} runs are done, and nothing was found in them");
    }
    let how = match came {
        Came::Clean => "all explored, nothing found",
        Came::Found(_) => "stopped at the first finding",
        Came::Interrupted => "not all explored, nothing found",
    };
    match format {
        Format::Json => say!(
            "{}",
            json!({ "states": states, "runs": runs, "bound": bound, "complete": is_complete, "seconds": seconds,
                "interrupted": is_interrupted })
        ),
        Format::Text => {
            say!("{states} states, {runs} runs, at most {bound} deviations, {seconds:.1} s: {how}");
        }
    }
}

/// One seed again; what a failing one comes to is told as a [`failure`].
pub(super) fn replayed(replayed: &Replayed, format: Format) {
    let (seed, steps, found) = (replayed.seed, replayed.steps(), replayed.finding().is_some());
    match format {
        Format::Json => say!("{}", json!({ "seed": seed, "steps": steps, "found": found })),
        Format::Text if found => {}
        Format::Text => say!("seed {seed}: nothing found in {steps} steps"),
    }
}

/// A failing run, step by step.
pub(super) fn failure(failure: &Failure, format: Format) {
    let Some(finding) = &failure.outcome.finding else { return };
    match format {
        Format::Json => say!(
            "{}",
            json!({ "finding": finding.oracle.name(), "cpu": finding.cpu, "step": finding.step, "story": finding.story,
                "deviations": failure.deviations(), "program": format!("{:?}", failure.scenario.program) })
        ),
        Format::Text => {
            say!("{:?}\n{:?}\n", failure.scenario.program, failure.scenario.policy);
            say!("{}", two_columns(&failure.outcome.lines, finding.cpu, 150));
            say!("{finding}\n{} deviations from running one CPU after the other", failure.deviations());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tlbkit_check::{Finding, Oracle};

    #[test]
    fn a_finding_names_the_seed_that_makes_it_again() {
        let finding = Finding { oracle: Oracle::FreedFrame, cpu: 0, step: 9, story: String::new() };
        let failed = Report { seeds: 23, steps: 90, failure: Some((4_294_967_301, finding)) };
        assert_eq!(found(&failed), "stopped at a finding of seed 4294967301, after");
        assert_eq!(found(&Report { failure: None, ..failed }), "nothing found in");
    }
}
