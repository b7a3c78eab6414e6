//! `tlbscope tune`: what to set on the machine that was recorded, and whether it is worth it.

mod advice;
mod allocator;
#[cfg(test)]
mod applied;
mod knob;
mod replayed;
mod report;
mod trying;
mod verdict;

use std::ffi::OsString;
use std::path::PathBuf;

use anyhow::{Context, Result, ensure};
use clap::Args;
use serde_json::{Value, json};
use tlbkit::Policy;
use tlbkit_output::fitting::fitting;
use tlbkit_output::kind::Kind;
use tlbkit_output::policy;
use tlbkit_output::say;
use tlbkit_output::stopping::Stopping;
use tlbkit_output::table::grid;
use tlbkit_output::terminal::{Ending, Format, progress_bar};
use tlbkit_replay::{Deduced, Estimate, Tally};

use crate::chosen::ChosenArguments;
use crate::trace::{PricingArguments, Trace, TraceArguments, UNREAD, check_outputs};
use crate::trial::TrialArguments;
use advice::{Advice, Ground, Tuned, cells, disorder, head};
use knob::Setting;
use replayed::{Outcome, Plan, Replayed, Surely, replay_all, spare};
use verdict::verdict;

/// What to tune for.
#[derive(Args)]
#[command(after_help = "Examples:\n  tlbscope tune recorded.tlbtrace --machine recent-vm\n  \
    tlbscope tune --try -- ./service --once\n\n\
    Exit status with --try: 0 something held, 1 nothing did, 2 it could not be tried.")]
pub(crate) struct TuneArguments {
    /// A trace: of `tlbscope record`, perf.data, or the text of perf script; with --try and none, the command is
    /// recorded
    #[arg(required_unless_present = "try_best")]
    trace: Option<PathBuf>,
    #[command(flatten)]
    pricing: PricingArguments,
    #[command(flatten)]
    chosen: ChosenArguments,
    /// A report, as one file
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
    /// Try the three settings that look best on the command, as `tlbscope try` does, and tell which held
    #[arg(long = "try", requires = "command")]
    try_best: bool,
    #[command(flatten)]
    trial: TrialArguments,
    /// The command to try them on; what it writes goes to standard error once, and is thrown away in the trials
    #[arg(last = true, requires = "try_best")]
    command: Vec<OsString>,
}

/// Tunes, and tries what came of it if that is wanted.
pub(crate) fn execute(arguments: &TuneArguments, format: Format) -> Result<Ending> {
    let outputs = [("--html", Kind::PAGE, arguments.html.as_deref())];
    check_outputs(&outputs, arguments.trace.as_deref(), &arguments.pricing.machine)?;
    policy::parse(&arguments.pricing.recorded_by)?;
    ensure!(
        arguments.try_best || !arguments.trial.is_asked(),
        "--pairs, --by, --least and --root are of --try, which is not there"
    );
    if arguments.try_best {
        return try_best(arguments, format);
    }
    let trace = arguments.trace.clone().context("no trace")?;
    print_tuned(&tune(arguments, trace, None)?, arguments, format)?;
    Ok(Ending::AsExpected)
}

/// Records the command if there is no trace of it, ranks the settings, and tries the best.
fn try_best(arguments: &TuneArguments, format: Format) -> Result<Ending> {
    let TuneArguments { trial, command, .. } = arguments;
    trial.check()?;
    let stopping = Stopping::listen()?;
    let folder = tempfile::tempdir()?;
    let recorded = folder.path().join("command.tlbtrace");
    let pid = if arguments.trace.is_none() { trying::record(command, &recorded, format)? } else { None };
    if stopping.is_wanted() {
        return Ok(stopping.ending());
    }
    let tuned = tune(arguments, arguments.trace.clone().unwrap_or(recorded), pid)?;
    print_tuned(&tuned, arguments, format)?;
    trying::try_best(&tuned, command, trial, &stopping, format)
}

/// Replays the trace with each setting, and says what each is worth; `command` is the process that was recorded for
/// that.
fn tune(arguments: &TuneArguments, trace: PathBuf, command: Option<i32>) -> Result<Tuned> {
    let (pricing, chosen) = (arguments.pricing.clone(), arguments.chosen.clone());
    let subject = TraceArguments { trace, pricing, chosen, command };
    let recorded_by = policy::parse(&subject.pricing.recorded_by)?;
    let (trace, huge) = subject.read_both()?;
    let Replays { before, recorder, with } = replay_settings(&trace, &huge, recorded_by)?;
    let (cpu_cycles, agreement) = (trace.cpu_cycles(&recorder), trace.agreement(&recorder));
    let caution = trace.machine.caution.as_deref();
    let ground = Ground { disorder: disorder(&trace), cpu_cycles, agreement: &agreement, caution };
    let advice = with.into_iter().map(|(setting, with)| advice(&trace, setting, &before, with, &ground)).collect();
    Ok(Tuned { advice, trace, recorder, cpu_cycles })
}

/// Replays of a trace under the policy of the kernel that recorded it, and with each setting.
struct Replays {
    before: Outcome,
    /// What was counted in the first of them.
    recorder: Tally,
    with: Vec<(Setting, Replayed)>,
}

/// Replays `trace`, and `huge`, which is what it asks of a kernel with huge pages.
fn replay_settings(trace: &Trace, huge: &Deduced, recorded_by: Policy) -> Result<Replays> {
    let (deduced, machine, billing) = (&trace.recording.deduced, &trace.machine, trace.billing());
    let outcome = |tally: &Tally| Outcome::of(tally, billing);
    let knobs = knob::of_policies(recorded_by);
    let plans: Vec<_> = [recorded_by].into_iter().chain(knobs.iter().map(|knob| knob.policy)).map(Plan::of).collect();
    let bar = progress_bar(plans.len() + 1);
    let (replayed, with_huge) = rayon::join(
        || {
            replay_all(deduced, machine, &plans, |place, tally| {
                bar.inc(1);
                (outcome(tally), (place == 0).then(|| tally.clone()))
            })
        },
        || replay_all(huge, machine, &[Plan::of(recorded_by)], |_, tally| outcome(tally)),
    );
    let mut replayed = replayed.context(UNREAD)?.into_iter();
    let (before, recorder) = replayed.next().context("a replay of the recorder's policy")?;
    let recorder = recorder.context("the recorder's counts")?;
    let certain = |likely| Replayed { likely, surely: Surely::All };
    let mut with: Vec<(Setting, Replayed)> =
        knobs.into_iter().map(|knob| knob.setting).zip(replayed.map(|(outcome, _)| certain(outcome))).collect();
    with.extend(with_huge.context(UNREAD)?.into_iter().map(|likely| (knob::huge_pages(), certain(likely))));
    let allocators = allocator::knobs(trace, recorded_by, &recorder);
    let spared = spare(deduced, machine, &allocators, outcome).context(UNREAD)?;
    with.extend(allocators.into_iter().map(|knob| knob.setting).zip(spared));
    bar.finish_and_clear();
    Ok(Replays { before, recorder, with })
}

/// What a setting is worth that leads from `before` to what was replayed `with` it.
fn advice(trace: &Trace, setting: Setting, before: &Outcome, with: Replayed, ground: &Ground<'_>) -> Advice {
    let Replayed { likely, surely } = with;
    let saving = |outcome: &Outcome| before.bill.saving(&outcome.bill, &trace.prices);
    let gain = saving(&likely);
    let low = match surely {
        Surely::All => gain.low,
        Surely::Part(least) => gain.low.min(saving(&least).low),
        Surely::Nothing => gain.low.min(0.0),
    };
    Advice::new(setting, Estimate { low, ..gain }, before.counted.less(likely.counted), ground)
}

/// Prints it, and writes the report.
fn print_tuned(tuned: &Tuned, arguments: &TuneArguments, format: Format) -> Result<()> {
    if let Some(path) = &arguments.html {
        report::write(tuned, path)?;
    }
    match format {
        Format::Json => json(tuned).iter().for_each(|row| say!("{row}")),
        Format::Text => say!("{}", fitting(&text(tuned))),
    }
    Ok(())
}

fn json(tuned: &Tuned) -> Vec<Value> {
    let health = tuned.trace.health_counts().into_iter();
    let health = health.map(|(quantity, count)| json!({"kind": "health", "quantity": quantity, "value": count}));
    let agreement = tuned.trace.agreement(&tuned.recorder).into_iter().map(|row| {
        json!({
            "kind": "agreement", "quantity": row.quantity.label(), "recorded": row.recorded, "replayed": row.replayed,
            "told": row.told, "agreement_pct": row.percent(),
        })
    });
    // Figures of a trace in disorder mean nothing.
    let told = |figure: f64| tuned.disorder().is_none().then_some(figure);
    let share = |cycles: f64| told(100.0 * cycles / tuned.cpu_cycles);
    let ms = |cycles: f64| told(tuned.ms(cycles));
    let advice = tuned.advice.iter().map(|Advice { setting, gain, saved, worth, doubt }| {
        let changes: Vec<_> = setting.change.iter().map(ToString::to_string).collect();
        json!({
            "kind": "setting", "knob": setting.knob, "setting": setting.value, "value": share(gain.value),
            "low": share(gain.low), "high": share(gain.high), "unit": "percent of CPU time",
            "value_ms": ms(gain.value), "low_ms": ms(gain.low), "high_ms": ms(gain.high),
            "faults_saved": saved.faults, "flushes_saved": saved.flushes, "calls_saved": saved.calls,
            "about": tuned.trace.about, "of_machine": told(100.0 * gain.value / tuned.machine_cycles()),
            "worth": worth.label(), "doubt": doubt, "commands": setting.commands, "remark": setting.remark,
            "changes": changes, "needs": setting.needs, "moot": setting.moot,
        })
    });
    health.chain(agreement).chain(advice).collect()
}

fn text(tuned: &Tuned) -> String {
    let table = grid(&head(tuned), &cells(tuned));
    let lacking = tuned.trace.lacking().map_or_else(String::new, |lacking| format!("\n{lacking}"));
    let head =
        format!("{}{lacking}\n\n{}\n{table}\n", tuned.trace.health(), tuned.trace.agreement_table(&tuned.recorder));
    let lines = |(words, commands): (String, &[String])| {
        [words].into_iter().chain(commands.iter().map(|command| format!("    {command}"))).collect::<Vec<_>>()
    };
    head + &verdict(tuned).into_iter().flat_map(lines).collect::<Vec<_>>().join("\n")
}
