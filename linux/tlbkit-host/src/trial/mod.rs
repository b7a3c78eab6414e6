//! A command with and without a change, run in turn, and whether the change is worth it.
//!
//! Each pair is one run without and one with it, in changing order, after a run that is not counted. What is set of the
//! machine stands in the [`Journal`] before it is set, and is put back after each run and in any case.

mod change;
mod journal;
mod knob;
mod run;
mod running;

use std::ffi::OsString;
use std::path::Path;

pub use crate::paired::{Half, in_turn};
pub use change::{Change, ENVIRONMENT};
pub use journal::{Entry, Journal, Restored};
pub use knob::{KNOBS, Knob};
pub use running::{Count, Counting, Quantity, Running};

use crate::error::{Error, Result};
use crate::paired::{LEAST_CONFIDENCE, PairedRatio};
use run::{Run, run};
pub(crate) use running::can_count;

/// Pairs below which nothing is said.
pub const PAIRS_MIN: usize = 5;

/// What is to be tried.
pub struct Plan<'a> {
    /// The command and its arguments; one word at least.
    pub command: &'a [OsString],
    /// All at once; one at least.
    pub changes: &'a [Change],
    /// Pairs of runs, [`PAIRS_MIN`] at least.
    pub pairs: usize,
    /// Where the machine's `/sys`, `/proc` and `/run` are: `/`, but in a container or a test.
    pub root: &'a Path,
    /// Asked again and again: true ends the trial.
    pub is_stop_wanted: &'a dyn Fn() -> bool,
    /// Told after each run.
    pub after_run: &'a dyn Fn(),
}

/// How it came out.
#[derive(Clone, PartialEq, Debug)]
pub enum Outcome {
    /// All runs were made.
    Tried(Trial),
    /// With the change the command failed, which without it did not.
    Broke {
        /// How it ended, in words.
        how: String,
        /// The last line that it wrote to standard error.
        said: String,
    },
    /// Somebody else has set what was tried, while it was tried, so the runs say nothing. It was left as they set it.
    Meddled(Vec<Restored>),
    /// Somebody wanted it to end.
    Stopped,
}

/// What all runs came to.
#[derive(Clone, PartialEq, Debug)]
pub struct Trial {
    /// In order of [`Quantity::ALL`], without those that this machine does not tell.
    pub measured: Vec<Measured>,
}

/// One quantity, run by run.
#[derive(Clone, PartialEq, Debug)]
pub struct Measured {
    /// What it is.
    pub quantity: Quantity,
    /// Without the change.
    pub without: Vec<f64>,
    /// With it.
    pub with: Vec<f64>,
}

impl Measured {
    /// With the change, as a part of without; none where a run without it had none at all.
    #[must_use]
    pub fn ratio(&self) -> Option<PairedRatio> {
        self.without.iter().all(|value| *value > 0.0).then(|| PairedRatio::of(&self.without, &self.with))
    }
}

/// Whether to make the change.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Verdict {
    /// The change gains: its interval contains no loss, and the likely gain is large enough.
    Yes,
    /// The change does not gain: even the best gain of its interval is too small.
    No,
    /// The runs differ too much among themselves.
    CannotTell,
}

impl Verdict {
    /// The verdict on a ratio, if a gain below `least`, as a part of the whole, is worth nothing.
    #[must_use]
    pub fn of(ratio: &PairedRatio, least: f64) -> Self {
        if ratio.confidence < LEAST_CONFIDENCE {
            Self::CannotTell
        } else if ratio.high < 1.0 && ratio.ratio <= 1.0 - least {
            Self::Yes
        } else if ratio.low > 1.0 - least {
            Self::No
        } else {
            Self::CannotTell
        }
    }

    /// In a word or two.
    #[must_use]
    pub const fn label(self) -> &'static str {
        match self {
            Self::Yes => "yes",
            Self::No => "no",
            Self::CannotTell => "cannot tell",
        }
    }
}

impl Trial {
    /// The trial that has these runs of both halves, pair by pair.
    #[must_use]
    pub fn of_counts(without: &[Count], with: &[Count]) -> Self {
        let all = |counts: &[Count], quantity| counts.iter().map(|count| count.get(quantity)).collect();
        let measured = |quantity| {
            let (without, with): (Option<_>, Option<_>) = (all(without, quantity), all(with, quantity));
            Some(Measured { quantity, without: without?, with: with? })
        };
        Self { measured: Quantity::ALL.into_iter().filter_map(measured).collect() }
    }

    /// What was measured of `quantity`.
    #[must_use]
    pub fn of(&self, quantity: Quantity) -> Option<&Measured> {
        self.measured.iter().find(|measured| measured.quantity == quantity)
    }

    /// Whether the change is worth it by `quantity`.
    #[must_use]
    pub fn verdict(&self, quantity: Quantity, least: f64) -> Verdict {
        let ratio = self.of(quantity).and_then(Measured::ratio);
        ratio.map_or(Verdict::CannotTell, |ratio| Verdict::of(&ratio, least))
    }

    /// What certainly grows by more than `least` of itself: time or memory that the gain is paid with.
    #[must_use]
    pub fn costs(&self, least: f64) -> Vec<&Measured> {
        let is_paid = |quantity| matches!(quantity, Quantity::Cpu | Quantity::Wall | Quantity::PeakMemory);
        let grows = |ratio: PairedRatio| ratio.is_difference() && ratio.low > 1.0 + least;
        let is_cost = |one: &&Measured| is_paid(one.quantity) && one.ratio().is_some_and(grows);
        self.measured.iter().filter(is_cost).collect()
    }
}

/// Tries it. `journal` is needed for changes of the machine alone.
///
/// # Errors
/// If the command cannot be run or fails without any change, or the machine refuses a setting. The machine is put back
/// in any case; what cannot be put back stays in the journal, and the error says so.
pub fn attempt(plan: &Plan<'_>, journal: Option<&Journal>) -> Result<Outcome> {
    for change in plan.changes {
        if change.entry(plan.root)?.is_some_and(|entry| entry.before == entry.during) {
            return Err(Error::NoChange { text: change.to_string(), wanted: "is so already".to_owned() });
        }
    }
    let first = match one(plan, journal, Half::Without) {
        Ok(first) => first,
        Err(early) => return early,
    };
    if first.is_stopped {
        return Ok(Outcome::Stopped);
    }
    if !first.count.status.success() {
        return Err(failed(first));
    }
    (plan.after_run)();
    let halves = in_turn(plan.pairs, |half| {
        let run = one(plan, journal, half)?;
        if run.is_stopped || (plan.is_stop_wanted)() {
            return Err(Ok(Outcome::Stopped));
        }
        (plan.after_run)();
        match (half, run.count.status.success()) {
            (_, true) => Ok(run.count),
            (Half::Without, false) => Err(Err(failed(run))),
            (Half::With, false) => Err(Ok(Outcome::Broke { how: run.count.status.to_string(), said: run.said })),
        }
    });
    // What ends a trial early is its outcome, or an error.
    halves.map_or_else(|early| early, |[without, with]| Ok(Outcome::Tried(Trial::of_counts(&without, &with))))
}

fn failed(run: Run) -> Error {
    Error::CommandFailed { status: run.count.status.to_string(), said: run.said }
}

/// One run, with the machine set for it and put back; or what ends the trial early.
fn one(plan: &Plan<'_>, journal: Option<&Journal>, half: Half) -> std::result::Result<Run, Result<Outcome>> {
    let changes = if half == Half::With { plan.changes } else { &[] };
    let entries = changes.iter().filter_map(|change| change.entry(plan.root).transpose());
    let entries = entries.collect::<Result<Vec<_>>>().map_err(Err)?;
    let command = change::command(plan.command, changes);
    if entries.is_empty() {
        return run(command, plan.is_stop_wanted).map_err(Err);
    }
    let journal = journal.ok_or(Err(Error::NoJournal))?;
    journal.write(&entries).map_err(Err)?;
    let set = entries.iter().try_for_each(|entry| knob::set(&entry.path, &entry.during));
    let ran = set.and_then(|()| run(command, plan.is_stop_wanted));
    // Whatever came of the run: what stands in the way of putting back is worse.
    let mut restored = journal.restore().map_err(Err)?;
    restored.retain(|one| matches!(one, Restored::LeftAlone { .. }));
    if restored.is_empty() { ran.map_err(Err) } else { Err(Ok(Outcome::Meddled(restored))) }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::fs;

    use super::*;

    fn ratio(low: f64, ratio: f64, high: f64) -> PairedRatio {
        PairedRatio { ratio, low, high, confidence: 0.97, pairs: 6 }
    }

    #[test]
    fn a_verdict_needs_an_interval_on_one_side() {
        let of = |low, middle, high| Verdict::of(&ratio(low, middle, high), 0.01);
        assert_eq!(of(0.8, 0.9, 0.97), Verdict::Yes);
        assert_eq!(of(0.8, 0.9, 1.01), Verdict::CannotTell);
        assert_eq!(of(0.992, 0.995, 0.999), Verdict::No, "certain, and too small to be worth anything");
        assert_eq!(of(1.1, 1.2, 1.3), Verdict::No);
        assert_eq!(of(0.985, 0.995, 0.999), Verdict::CannotTell);
        let few = PairedRatio { confidence: 0.75, pairs: 3, ..ratio(0.5, 0.5, 0.5) };
        assert_eq!(Verdict::of(&few, 0.01), Verdict::CannotTell);
    }

    fn plan<'a>(command: &'a [OsString], changes: &'a [Change], root: &'a Path) -> Plan<'a> {
        Plan { command, changes, pairs: PAIRS_MIN, root, is_stop_wanted: &|| false, after_run: &|| {} }
    }

    fn words(line: &str) -> [OsString; 3] {
        ["sh".into(), "-c".into(), line.into()]
    }

    /// More work with the variable than without it, by the number of programs that it starts.
    const LOAD: &str = "i=0; while [ $i -lt ${TLBKIT_WORK:-40} ]; do /bin/true; i=$((i+1)); done";

    #[test]
    fn a_change_that_saves_work_is_told_from_one_that_costs_and_from_none() {
        let command = words(LOAD);
        let faults = |text: &str| {
            let changes = [text.parse().unwrap()];
            let Outcome::Tried(trial) = attempt(&plan(&command, &changes, Path::new("/")), None).unwrap() else {
                panic!("nothing stops it");
            };
            assert_eq!(trial.of(Quantity::Wall).unwrap().with.len(), PAIRS_MIN);
            trial.verdict(Quantity::Faults, 0.05)
        };
        assert_eq!(faults("TLBKIT_WORK=4"), Verdict::Yes);
        assert_eq!(faults("TLBKIT_WORK=80"), Verdict::No);
        assert_eq!(faults("TLBKIT_NOTHING=1"), Verdict::No, "certainly no gain of 5 %");
    }

    #[test]
    fn a_command_that_fails_by_itself_is_no_trial_and_one_that_the_change_breaks_is() {
        let changes = ["TLBKIT_BREAK=9".parse().unwrap()];
        let fails = words("echo no >&2; exit 3");
        let error = attempt(&plan(&fails, &changes, Path::new("/")), None).unwrap_err().to_string();
        assert_eq!(error, "the command fails without any change (exit status: 3): no");
        let breaks = words("echo broken >&2; exit ${TLBKIT_BREAK:-0}");
        let outcome = attempt(&plan(&breaks, &changes, Path::new("/")), None).unwrap();
        assert_eq!(outcome, Outcome::Broke { how: "exit status: 9".into(), said: "broken".into() });
    }

    /// A root with the setting of huge pages, and a command that prints it into a file at each run.
    fn machine() -> (tempfile::TempDir, std::path::PathBuf, [OsString; 3]) {
        let root = tempfile::tempdir().unwrap();
        let file = KNOBS[0].file(root.path());
        fs::create_dir_all(file.parent().unwrap()).unwrap();
        fs::create_dir(root.path().join("run")).unwrap();
        fs::write(&file, "madvise").unwrap();
        let line = format!("cat {} >> {}; echo >> {1}", file.display(), root.path().join("seen").display());
        (root, file, words(&line))
    }

    #[test]
    fn the_machine_is_set_for_one_half_of_each_pair_alone() {
        let (root, file, command) = machine();
        let changes = ["thp=never".parse().unwrap()];
        let journal = Journal::open(root.path()).unwrap();
        attempt(&plan(&command, &changes, root.path()), Some(&journal)).unwrap();
        let seen = fs::read_to_string(root.path().join("seen")).unwrap();
        let pairs = ["madvise never", "never madvise", "madvise never", "never madvise", "madvise never"];
        assert_eq!(seen.split_whitespace().collect::<Vec<_>>().join(" "), format!("madvise {}", pairs.join(" ")));
        assert_eq!(fs::read_to_string(file).unwrap(), "madvise");
        assert!(!Journal::is_left(root.path()));
    }

    #[test]
    fn the_machine_is_put_back_when_the_trial_is_stopped_or_the_command_cannot_be_run() {
        let (root, file, command) = machine();
        let changes = ["thp=never".parse().unwrap()];
        let journal = Journal::open(root.path()).unwrap();
        let runs = Cell::new(0);
        let stopped = Plan {
            is_stop_wanted: &|| runs.get() == 2,
            after_run: &|| runs.set(runs.get() + 1),
            ..plan(&command, &changes, root.path())
        };
        assert_eq!(attempt(&stopped, Some(&journal)).unwrap(), Outcome::Stopped);
        assert_eq!(fs::read_to_string(&file).unwrap(), "madvise");
        let missing = ["thp=never".parse().unwrap(), "wrapper=no-such-program".parse().unwrap()];
        let error = attempt(&plan(&command, &missing, root.path()), Some(&journal)).unwrap_err();
        assert_eq!(error.to_string(), "no-such-program: cannot be run");
        assert_eq!(fs::read_to_string(&file).unwrap(), "madvise");
        assert!(!Journal::is_left(root.path()));
    }

    #[test]
    fn what_somebody_sets_meanwhile_is_left_alone_and_ends_the_trial() {
        let (root, file, _) = machine();
        let command = words(&format!("grep -q never {0} && printf always > {0}; true", file.display()));
        let changes = ["thp=never".parse().unwrap()];
        let journal = Journal::open(root.path()).unwrap();
        let outcome = attempt(&plan(&command, &changes, root.path()), Some(&journal)).unwrap();
        let Outcome::Meddled(left) = outcome else { panic!("it is seen: {outcome:?}") };
        assert!(matches!(&left[..], [Restored::LeftAlone { now, .. }] if now == "always"), "{left:?}");
        assert_eq!(fs::read_to_string(file).unwrap(), "always");
        assert!(!Journal::is_left(root.path()));
    }

    #[test]
    fn what_the_machine_has_already_is_no_change() {
        let (root, _, command) = machine();
        let changes = ["thp=madvise".parse().unwrap()];
        let error = attempt(&plan(&command, &changes, root.path()), None).unwrap_err().to_string();
        assert_eq!(error, "thp=madvise: is so already");
    }

    #[test]
    fn nothing_is_set_without_a_journal() {
        let (root, file, command) = machine();
        let changes = ["thp=never".parse().unwrap()];
        assert!(attempt(&plan(&command, &changes, root.path()), None).is_err());
        assert_eq!(fs::read_to_string(file).unwrap(), "madvise");
    }
}
