//! What each setting would have saved, and the verdict on it.

use tlbkit_replay::{Estimate, Tally};

use super::knob::Setting;
use crate::lab::trace::Trace;
use crate::output::range::{Sign, percent};

/// Below this share of the trace's CPU time nobody should change a thing.
const WORTH: f64 = 0.001;

/// Whether to set it.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Worth {
    /// Even the least gain is worth it.
    Certainly,
    /// It never costs, and the likely gain is worth it: measure.
    Perhaps,
    No,
}

impl Worth {
    pub(super) fn of(gain: Estimate, cpu_cycles: f64) -> Self {
        let least = WORTH * cpu_cycles;
        match gain {
            Estimate { low, .. } if low >= least => Self::Certainly,
            Estimate { low, value, .. } if low > 0.0 && value >= least => Self::Perhaps,
            _ => Self::No,
        }
    }

    pub(super) const fn label(self) -> &'static str {
        match self {
            // Never "yes": nothing was tried yet.
            Self::Certainly => "worth trying",
            Self::Perhaps => "perhaps",
            Self::No => "no",
        }
    }
}

/// What one setting would have saved.
pub(super) struct Advice {
    pub(super) setting: Setting,
    /// Cycles; below zero if it costs.
    pub(super) gain: Estimate,
    pub(super) worth: Worth,
}

/// A trace with everything that was tried on it.
pub(super) struct Tuned {
    pub(super) trace: Trace,
    pub(super) recorder: Tally,
    pub(super) cpu_cycles: f64,
    /// By knob, then as they were tried.
    pub(super) advice: Vec<Advice>,
}

impl Tuned {
    pub(super) fn percent(&self, gain: Estimate) -> String {
        percent(gain, self.cpu_cycles, Sign::Shown)
    }

    /// The best of each knob that is worth it, best first.
    fn best(&self) -> Vec<&Advice> {
        let mut best: Vec<&Advice> = Vec::new();
        for advice in self.advice.iter().filter(|advice| advice.worth != Worth::No) {
            match best.iter_mut().find(|other| !advice.setting.adds_to(&other.setting)) {
                Some(other) if other.gain.value < advice.gain.value => *other = advice,
                Some(_) => {}
                None => best.push(advice),
            }
        }
        best.sort_by(|a, b| b.gain.value.total_cmp(&a.gain.value));
        best
    }
}

pub(super) const HEAD: [&str; 3] = ["setting", "gain, of CPU time", "worth it"];

/// A row a setting.
pub(super) fn cells(tuned: &Tuned) -> Vec<Vec<String>> {
    let row = |advice: &Advice| {
        let Setting { knob, value, .. } = &advice.setting;
        vec![format!("{knob} {value}"), tuned.percent(advice.gain), advice.worth.label().to_owned()]
    };
    tuned.advice.iter().map(row).collect()
}

/// What to do: words, and commands if there are any.
pub(super) fn verdict(tuned: &Tuned) -> Vec<(String, &[String])> {
    let best = tuned.best();
    let mut verdict = Vec::new();
    if best.iter().all(|advice| advice.worth != Worth::Certainly) {
        let all = percent(tuned.recorder.bill.total(&tuned.trace.prices), tuned.cpu_cycles, Sign::Absent);
        let least = 100.0 * WORTH;
        let words =
            format!("Nothing worth changing: no setting is sure to gain {least} % of CPU time. Flushes cost {all}.");
        verdict.push((words, [].as_slice()));
    }
    verdict.extend(best.into_iter().map(|advice| {
        let Setting { knob, value, commands, remark, .. } = &advice.setting;
        let doubt = if advice.worth == Worth::Perhaps { "Perhaps: " } else { "Worth trying: " };
        let gain = tuned.percent(advice.gain);
        let words = format!("{doubt}{knob} {value}: {gain} of CPU time, if the replay is right. {remark}");
        (words, commands.as_slice())
    }));
    verdict
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn advice_is_given_for_gains_that_are_sure_and_large() {
        let of = |low, value| Worth::of(Estimate { low, value, high: 100.0 }, 1000.0).label();
        assert_eq!([of(1.0, 2.0), of(0.1, 2.0), of(0.1, 0.9), of(0.0, 50.0)], ["worth trying", "perhaps", "no", "no"]);
    }
}
