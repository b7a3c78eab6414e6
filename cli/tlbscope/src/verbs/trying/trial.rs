//! A command with and without a change: how it is tried, and the verdict on it.

use std::env;
use std::ffi::OsString;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use anyhow::{Context, Result, bail, ensure};
use clap::{Args, ValueEnum};
use serde_json::{Value, json};
use tlbkit_host::examination::{Finding, State, examine_knob};
use tlbkit_host::trial::{
    Change, Entry, Journal, Measured, Outcome, PAIRS_MIN, Plan, Quantity, Restored, Trial, Verdict, attempt,
};
use tlbkit_host::{PairedRatio, Sample, said_of};

use tlbkit_output::note;
use tlbkit_output::number;
use tlbkit_output::stopping::Stopping;
use tlbkit_output::table::grid;
use tlbkit_output::terminal::progress_bar;

use crate::machine::check_root;

/// How a change is tried.
#[derive(Args)]
pub(super) struct TrialArguments {
    /// Pairs of runs: each one run without the change and one with it
    #[arg(long, default_value_t = PAIRS)]
    pairs: usize,
    /// What the verdict is about
    #[arg(long, value_enum, default_value = "cpu")]
    by: By,
    /// Gains below this are worth nothing
    #[arg(long, value_name = "PERCENT", default_value_t = LEAST)]
    least: f64,
    /// The folder with this machine's sys, proc and run, for containers that have them elsewhere
    #[arg(long, value_name = "FOLDER", default_value = ROOT)]
    pub(super) root: PathBuf,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum By {
    /// User and system time
    Cpu,
    /// Time from start to end
    Wall,
}

/// Changes that were tried together, and what came of them.
pub(super) struct Tried {
    pub(super) changes: Vec<Change>,
    pub(super) outcome: Outcome,
}

/// The defaults of the arguments.
const PAIRS: usize = 6;
const LEAST: f64 = 1.0;
const ROOT: &str = "/";

impl TrialArguments {
    /// Whether they make sense.
    pub(super) fn check(&self) -> Result<()> {
        ensure!((PAIRS_MIN..=100).contains(&self.pairs), "--pairs {}: must be {PAIRS_MIN} to 100", self.pairs);
        ensure!((0.0..=90.0).contains(&self.least), "--least {}: must be 0 to 90 percent", self.least);
        check_root(&self.root)
    }

    /// Tries it; puts back first what an earlier trial left behind.
    pub(super) fn attempt(&self, changes: &[Change], command: &[OsString], stopping: &Stopping) -> Result<Tried> {
        let journal = self.journal(changes);
        // Before a refused journal is reported, as this says what would help.
        self.check_settings(changes)?;
        let journal = journal?;
        // The guardian outlives the journal, and puts the machine back if this program is killed.
        let _guardian = journal.as_ref().map(|_| Guardian::start(&self.root)).transpose()?;
        let bar = progress_bar(1 + 2 * self.pairs);
        let plan = Plan {
            command,
            changes,
            pairs: self.pairs,
            root: &self.root,
            is_stop_wanted: &|| stopping.is_wanted(),
            after_run: &|| bar.inc(1),
        };
        let outcome = attempt(&plan, journal.as_ref());
        // Before the guardian looks whether there is something left to put back, for which it needs the right.
        drop(journal);
        bar.finish_and_clear();
        Ok(Tried { changes: changes.to_vec(), outcome: outcome? })
    }

    /// Refuses a setting of the machine that cannot be tried, and says what would help.
    fn check_settings(&self, changes: &[Change]) -> Result<()> {
        for change in changes {
            let Change::Knob { knob, .. } = change else { continue };
            let Finding { what, state, found, run, .. } = examine_knob(&self.root, knob);
            match run {
                _ if state == State::Fine => {}
                Some(run) => bail!("{what}: {found}; run: {run}"),
                None => bail!("{what}: {found}; this kernel has no such setting, so try another one"),
            }
        }
        Ok(())
    }

    /// The right to change the machine, if the changes need it; what was left behind is put back in any case.
    fn journal(&self, changes: &[Change]) -> Result<Option<Journal>> {
        let is_needed = changes.iter().any(Change::is_of_machine);
        if !is_needed && !Journal::is_left(&self.root) {
            return Ok(None);
        }
        match Journal::open(&self.root) {
            Ok(journal) => {
                journal.restore()?.iter().for_each(|one| note!("tlbscope: {}", restored_text(one)));
                Ok(is_needed.then_some(journal))
            }
            // Another trial is under way, so nothing is left behind.
            Err(_) if !is_needed => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    fn quantity(&self) -> Quantity {
        match self.by {
            By::Cpu => Quantity::Cpu,
            By::Wall => Quantity::Wall,
        }
    }

    fn least(&self) -> f64 {
        self.least / 100.0
    }

    /// The verdict on what was tried; none if it was stopped.
    pub(super) fn verdict(&self, tried: &Tried) -> Option<Verdict> {
        match &tried.outcome {
            Outcome::Tried(trial) => Some(trial.verdict(self.quantity(), self.least())),
            Outcome::Broke { .. } => Some(Verdict::No),
            Outcome::Meddled(_) => Some(Verdict::CannotTell),
            Outcome::Stopped => None,
        }
    }

    /// The changes that are worth keeping: none, unless the verdict is a yes.
    pub(super) fn kept<'t>(&self, tried: &'t Tried) -> &'t [Change] {
        if self.verdict(tried) == Some(Verdict::Yes) { &tried.changes } else { &[] }
    }

    /// The verdict in a sentence or two, and how to keep the change.
    pub(super) fn sentence(&self, tried: &Tried) -> String {
        let changes = names(&tried.changes);
        let trial = match &tried.outcome {
            Outcome::Tried(trial) => trial,
            Outcome::Broke { how, said } => {
                return format!("No: with {changes} the command failed ({how}){}", said_of(said));
            }
            Outcome::Meddled(left) => {
                let left: Vec<_> = left.iter().map(restored_text).collect();
                return format!("Cannot tell: somebody else changed the machine meanwhile: {}", left.join("; "));
            }
            Outcome::Stopped => return format!("{changes}: stopped before there was a verdict"),
        };
        let (word, what) = match (trial.verdict(self.quantity(), self.least()), self.by) {
            (Verdict::Yes, By::Cpu) => ("Yes", " saves CPU time"),
            (Verdict::Yes, By::Wall) => ("Yes", " saves time"),
            (Verdict::No, _) => ("No", " saves too little, or nothing"),
            (Verdict::CannotTell, _) => {
                ("Cannot tell", ": the runs differ too much; a longer command or --pairs 20 may help")
            }
        };
        let changed = trial.of(self.quantity()).and_then(Measured::ratio).map(|ratio| match (word, self.by) {
            ("Yes", _) => format!(", {}", change(ratio)),
            (_, By::Cpu) => format!("; CPU time changed by {}", change(ratio)),
            (_, By::Wall) => format!("; wall time changed by {}", change(ratio)),
        });
        let changed = changed.unwrap_or_default();
        let costs = trial.costs(self.least()).into_iter().filter(|cost| cost.quantity != self.quantity());
        let cost = |cost: &Measured| format!("; it costs {}: {}", cost.quantity.label(), ratio_cell(cost));
        format!("{word}: {changes}{what}{changed}{}.", costs.map(cost).collect::<String>())
    }

    pub(super) fn json(&self, tried: &Tried) -> Vec<Value> {
        let names: Vec<_> = tried.changes.iter().map(ToString::to_string).collect();
        let keep: Vec<_> = self.kept(tried).iter().map(Change::to_keep).collect();
        let row = |one: &Measured| {
            json!({
                "kind": "measured", "changes": names, "quantity": one.quantity.label(),
                "without": Sample::of(one.without.clone()), "with": Sample::of(one.with.clone()),
                "ratio": one.ratio(), "is_difference": one.ratio().map(|ratio| ratio.is_difference()),
            })
        };
        let measured = match &tried.outcome {
            Outcome::Tried(trial) => trial.measured.iter().map(row).collect(),
            _ => Vec::new(),
        };
        let verdict = self.verdict(tried).map_or("stopped", Verdict::label);
        let last = json!({
            "kind": "verdict", "changes": names, "verdict": verdict, "by": self.quantity().label(),
            "least_pct": self.least, "words": self.sentence(tried), "to_keep": keep,
        });
        measured.into_iter().chain([last]).collect()
    }
}

/// What was measured, a row a quantity.
pub(super) fn table(trial: &Trial) -> String {
    let row = |one: &Measured| {
        let [without, with] = [&one.without, &one.with].map(|values| Sample::of(values.clone()));
        let noise =
            if without.median > 0.0 { format!("{:.1} %", 100.0 * without.spread()) } else { number::NONE.into() };
        let cells = [number::plain(without.median), number::plain(with.median), ratio_cell(one), noise];
        [one.quantity.label().to_owned()].into_iter().chain(cells).collect()
    };
    let head = ["median of a run", "without", "with", "change, with its interval", "noise without"];
    let rows: Vec<_> = trial.measured.iter().map(row).collect();
    let pairs = trial.measured.iter().find_map(Measured::ratio);
    let confidence = pairs.map_or(String::new(), |PairedRatio { pairs, confidence, .. }| {
        format!(
            "{pairs} pairs; each interval holds the true median change with {:.0} % confidence\n",
            100.0 * confidence
        )
    });
    grid(&head, &rows) + "\n" + &confidence
}

fn ratio_cell(one: &Measured) -> String {
    one.ratio().map_or_else(|| number::NONE.to_owned(), change)
}

/// A ratio in percent of what it is without the change.
fn change(ratio: PairedRatio) -> String {
    let percent = |ratio: f64| {
        let text = number::fixed(100.0 * (ratio - 1.0), 1);
        if text.starts_with('-') || text == "0.0" { text } else { format!("+{text}") }
    };
    format!("{} % ({} to {} %)", percent(ratio.ratio), percent(ratio.low), percent(ratio.high))
}

/// The changes as they were typed.
pub(super) fn names(changes: &[Change]) -> String {
    changes.iter().map(ToString::to_string).collect::<Vec<_>>().join(" with ")
}

/// What became of a setting that an earlier trial left behind.
pub(super) fn restored_text(restored: &Restored) -> String {
    match restored {
        Restored::PutBack(entry) => {
            format!(
                "{}: put back to {}, an earlier trial had left {}",
                entry.path.display(),
                entry.before,
                entry.during
            )
        }
        Restored::AlreadyBack(entry) => format!("{}: is {} again already", entry.path.display(), entry.before),
        Restored::LeftAlone { entry, now } => {
            let Entry { path, before, during } = entry;
            format!("{}: was {before} before a trial set {during}, and is {now} now, which stays", path.display())
        }
    }
}

/// The option that makes the verb `try` wait for the end of its input first.
pub(super) const AFTER_INPUT: &str = "--after-input";

/// A process that puts the machine back if this program is killed by a signal that it cannot catch.
///
/// The guardian is this program once more, in its own process group. It waits for the end of a pipe whose other
/// end only this process holds. When this process ends, for whatever reason, the guardian looks for a journal: there is
/// none if all is well.
///
/// The guardian, which ends when this value is dropped.
struct Guardian(Child);

impl Guardian {
    fn start(root: &Path) -> Result<Self> {
        let program = env::current_exe().context("finding this program")?;
        let mut command = Command::new(program);
        command.args(["try", "--restore", AFTER_INPUT, "--root"]).arg(root).process_group(0);
        // A terminal that is gone cannot be written to, and what it would say nobody reads.
        command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
        command.spawn().map(Self).context("starting who puts the machine back")
    }
}

impl Drop for Guardian {
    fn drop(&mut self) {
        drop(self.0.stdin.take());
        // One that was killed has nothing to say.
        let _ = self.0.wait();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn arguments(by: By) -> TrialArguments {
        TrialArguments { pairs: 6, by, least: 1.0, root: "/".into() }
    }

    fn tried(cpu: [f64; 2], memory: [f64; 2]) -> Tried {
        let measured =
            |quantity, [without, with]: [f64; 2]| Measured { quantity, without: vec![without; 6], with: vec![with; 6] };
        let trial = Trial { measured: vec![measured(Quantity::Cpu, cpu), measured(Quantity::PeakMemory, memory)] };
        Tried { changes: vec!["A=1".parse().unwrap()], outcome: Outcome::Tried(trial) }
    }

    #[test]
    fn a_verdict_says_what_it_is_about_and_what_it_costs() {
        let said = |tried: Tried| arguments(By::Cpu).sentence(&tried);
        assert_eq!(said(tried([2.0, 1.0], [5.0, 5.0])), "Yes: A=1 saves CPU time, -50.0 % (-50.0 to -50.0 %).");
        let paid = said(tried([2.0, 1.0], [5.0, 10.0]));
        assert!(paid.ends_with("; it costs peak memory, MiB: +100.0 % (+100.0 to +100.0 %)."), "{paid}");
        assert!(
            said(tried([1.0, 1.0], [1.0, 1.0]))
                .starts_with("No: A=1 saves too little, or nothing; CPU time changed by 0.0 %")
        );
        let by_wall = arguments(By::Wall).sentence(&tried([2.0, 1.0], [1.0, 1.0]));
        assert!(by_wall.starts_with("Cannot tell"), "what was not measured is not judged: {by_wall}");
    }

    #[test]
    fn rows_and_the_verdict_are_told_to_programs() {
        let rows = arguments(By::Cpu).json(&tried([2.0, 1.0], [5.0, 5.0]));
        assert_eq!(rows.len(), 3);
        assert_eq!((&rows[0]["ratio"]["ratio"], &rows[0]["without"]["median"]), (&0.5.into(), &2.0.into()));
        assert_eq!((&rows[2]["verdict"], &rows[2]["to_keep"][0]), (&"yes".into(), &"export A=1".into()));
    }

    #[test]
    fn nothing_but_a_yes_says_how_to_keep_the_change() {
        let broke = Outcome::Broke { how: "exit status: 1".into(), said: String::new() };
        let changes = vec!["A=1".parse().unwrap()];
        for tried in [tried([1.0, 1.0], [5.0, 5.0]), Tried { changes, outcome: broke }] {
            let rows = arguments(By::Cpu).json(&tried);
            let verdict = rows.last().unwrap();
            assert_eq!((&verdict["verdict"], &verdict["to_keep"]), (&"no".into(), &json!([])), "{verdict}");
        }
    }
}
