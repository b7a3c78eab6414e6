//! `record --compare`: the command without and with recording, in turn, by its CPU time; or with the counters of
//! `--light` in place of a recording.
//!
//! Wall time is told beside it: on a machine with idle CPUs recording may cost CPU time that nobody waits for.

use std::cell::Cell;
use std::thread::sleep;

use anyhow::{Context, Error, Result};
use serde_json::{Value, json};
use tlbkit_host::trial::{Count, Counting, Half, Measured, Quantity, Trial, in_turn};
use tlbkit_host::{PairedRatio, Sample};
use tlbkit_output::stopping::Stopping;
use tlbkit_output::terminal::{Ending, Format, progress_bar};

use super::predicted::{self, Basis, Predicted};
use crate::recording::Recorded;
use crate::watching::{LOOK_EVERY, WatchArguments, WatchedRun, Watching};

/// What both halves came to.
pub(super) struct Compared(Trial);

/// What is said of a comparison that somebody ended.
pub(super) const STOPPED: &str = "stopped: nothing to compare";

/// What `--compare` came to.
pub(super) enum Comparison {
    NotAsked,
    /// Somebody ended it before all runs were made.
    Stopped,
    Done(Compared),
}

impl Comparison {
    pub(super) fn text(&self) -> String {
        match self {
            Self::NotAsked => "overhead: not measured; --compare 6 runs the command with and without recording".into(),
            Self::Stopped => format!("overhead: {}", STOPPED),
            Self::Done(compared) => format!("overhead measured: {}", compared.text()),
        }
    }

    pub(super) fn json(&self) -> Option<Value> {
        if let Self::Done(compared) = self { Some(compared.json()) } else { None }
    }
}

/// What came of the pairs, and the last run of what is compared.
pub(super) enum Pairs<R> {
    /// All were run.
    Done(R, Compared),
    /// Somebody wanted them to end, which is an ending of its own where no such run was made.
    Stopped(Option<R>, Ending),
}

/// Why no more pairs are run.
enum Halt {
    Wanted,
    Failed(Error),
}

impl From<Error> for Halt {
    fn from(error: Error) -> Self {
        Self::Failed(error)
    }
}

impl Halt {
    /// Refuses the next run if somebody wants no more.
    fn check(stopping: &Stopping) -> Result<(), Self> {
        if stopping.is_wanted() { Err(Self::Wanted) } else { Ok(()) }
    }
}

/// Both halves as they are compared, or what is left of them.
fn compare<R>(halves: Result<[Vec<Count>; 2], Halt>, last: Option<R>, stopping: &Stopping) -> Result<Pairs<R>> {
    match halves {
        Ok([without, with]) => {
            let last = last.context("no run of what is compared")?;
            Ok(Pairs::Done(last, Compared(Trial::of_counts(&without, &with))))
        }
        Err(Halt::Wanted) => Ok(Pairs::Stopped(last, stopping.ending())),
        Err(Halt::Failed(error)) => Err(error),
    }
}

/// Runs the pairs; the last recording is the one that is kept. The first run without recording predicts.
pub(super) fn run(
    pairs: usize,
    subject: &WatchArguments,
    format: Format,
    predicted: &Cell<Option<Predicted>>,
    record: impl Fn(&Cell<Option<Predicted>>) -> Result<Recorded>,
) -> Result<Pairs<Recorded>> {
    let bar = progress_bar(2 * pairs);
    let mut last = None;
    // Of all runs: each listens for itself too, but not while its recording is read.
    let stopping = Stopping::listen()?;
    let halves = in_turn(pairs, |half| {
        Halt::check(&stopping)?;
        let count = match half {
            // What it counts for the prediction takes time, so the other runs do not count.
            Half::Without if predicted.get().is_none() => run_plain(subject, format, Counting::Flushes)?.count,
            Half::Without => run_plain(subject, format, Counting::NothingElse)?.count,
            Half::With => last.insert(record(predicted)?).run.count.clone(),
        };
        // A command that runs on does so because somebody wanted an end.
        Halt::check(&stopping)?;
        let count = count.context("--compare: the command did not end, so its CPU time is not known")?;
        if predicted.get().is_none() {
            predicted.set(predicted::tell(&predicted::rate(&count), Basis::RunBefore));
        }
        bar.inc(1);
        Ok::<_, Halt>(count)
    });
    bar.finish_and_clear();
    compare(halves, last, &stopping)
}

/// Runs the pairs of what only counts; the last count of a whole run, with what counting cost.
pub(super) fn counted(
    pairs: usize,
    stopping: &Stopping,
    mut count: impl FnMut(Counting) -> Result<Count>,
) -> Result<Pairs<Count>> {
    let bar = progress_bar(2 * pairs);
    let mut last = None;
    let halves = in_turn(pairs, |half| {
        let ended = count(match half {
            Half::Without => Counting::NothingElse,
            Half::With => Counting::Flushes,
        })?;
        Halt::check(stopping)?;
        if half == Half::With {
            last = Some(ended.clone());
        }
        bar.inc(1);
        Ok::<_, Halt>(ended)
    });
    bar.finish_and_clear();
    compare(halves, last, stopping)
}

fn run_plain(subject: &WatchArguments, format: Format, counting: Counting) -> Result<WatchedRun> {
    let mut watching = Watching::start(subject, format, Stopping::listen()?, counting)?;
    while !watching.is_over()? {
        sleep(LOOK_EVERY);
    }
    watching.finish()
}

impl Compared {
    fn ratio(&self, quantity: Quantity) -> Option<PairedRatio> {
        self.0.of(quantity).and_then(Measured::ratio)
    }

    pub(super) fn text(&self) -> String {
        let of = |quantity: Quantity, name: &str| {
            let Some(ratio) = self.ratio(quantity) else { return format!("{name}: too short to compare") };
            let plain = self.0.of(quantity).map(|measured| Sample::of(measured.without.clone()));
            let plain = plain.map_or(String::new(), |plain| {
                format!("{:.3} s without, whose noise is {:.1} %", plain.median, 100.0 * plain.spread())
            });
            let PairedRatio { ratio: middle, low, high, confidence, pairs } = ratio;
            let verdict = if ratio.is_difference() { "" } else { ": no difference found" };
            let interval = format!("{low:.3} to {high:.3}, {:.0} % confidence, {pairs} pairs", 100.0 * confidence);
            format!("{name} {middle:.3} times ({interval}) the {plain}{verdict}")
        };
        format!("{}; {}", of(Quantity::Cpu, "CPU time"), of(Quantity::Wall, "wall time"))
    }

    /// By CPU time; wall time beside it.
    pub(super) fn json(&self) -> Value {
        let of = |quantity: Quantity| {
            let ratio = self.ratio(quantity);
            let measured = self.0.of(quantity);
            json!({
                "ratio": ratio.map(|ratio| ratio.ratio), "interval": ratio,
                "is_within_noise": ratio.is_none_or(|ratio| !ratio.is_difference()),
                "plain_seconds": measured.map(|measured| Sample::of(measured.without.clone())),
                "recorded_seconds": measured.map(|measured| Sample::of(measured.with.clone())),
            })
        };
        let mut all = of(Quantity::Cpu);
        all["by"] = Quantity::Cpu.label().into();
        all["wall"] = of(Quantity::Wall);
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn compared(plain: [f64; 2], recorded: &[[f64; 2]]) -> Compared {
        let measured = |quantity, at: usize| Measured {
            quantity,
            without: vec![plain[at]; recorded.len()],
            with: recorded.iter().map(|both| both[at]).collect(),
        };
        Compared(Trial { measured: vec![measured(Quantity::Cpu, 0), measured(Quantity::Wall, 1)] })
    }

    #[test]
    fn an_overhead_is_of_cpu_time_and_has_an_interval_and_a_verdict() {
        let clear = compared([1.0, 2.0], &[[1.2, 2.0]; 6]);
        let same = "97 % confidence, 6 pairs) the";
        let expected = [
            format!("CPU time 1.200 times (1.200 to 1.200, {same} 1.000 s without, whose noise is 0.0 %; "),
            format!("wall time 1.000 times (1.000 to 1.000, {same} 2.000 s without, whose noise is 0.0 %: "),
            "no difference found".to_owned(),
        ];
        assert_eq!(clear.text(), expected.concat());
        let row = clear.json();
        assert_eq!((&row["ratio"], &row["is_within_noise"]), (&1.2.into(), &false.into()), "{row}");
        assert_eq!(row["wall"]["is_within_noise"], true, "{row}");
        let noisy = compared([1.0, 1.0], &[[1.46, 1.0], [0.9, 1.0], [1.5, 1.0]]).text();
        assert!(
            noisy.contains("75 % confidence, 3 pairs) the 1.000 s without, whose noise is 0.0 %: no diff"),
            "{noisy}"
        );
    }

    #[test]
    fn what_took_no_time_is_not_compared() {
        let none = compared([0.0, 1.0], &[[0.0, 1.0]; 6]);
        assert!(none.text().starts_with("CPU time: too short to compare; wall"), "{}", none.text());
        assert_eq!(none.json()["is_within_noise"], true);
    }
}
