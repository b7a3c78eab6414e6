//! What each setting would have saved, and the verdict on it.

use tlbkit_output::number;
use tlbkit_replay::{Agreement, ComparedCount, Estimate, Tally};

use super::knob::{HUGE_PAGES, Setting};
use super::replayed::Counted;
use crate::estimate::{Sign, percent};
use crate::trace::{AGREES, ROW_LEAST, Trace};

/// Below this share of the trace's CPU time nobody should change a thing.
pub(super) const WORTH: f64 = 0.001;

/// Above this share of events out of order nobody knows what came before what, and no figure means anything.
const LATE: f64 = 0.01;

/// Whether to set it.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Worth {
    /// Even the least gain is worth it.
    Certainly,
    /// It never costs, and the likely gain is worth it: measure.
    Perhaps,
    No,
    /// The likely gain is worth it, and it may cost as well.
    Open,
    /// It looks so, at prices whose own file warns of them.
    CannotTell,
    /// The replay is wrong about what it rests on.
    Withheld,
}

impl Worth {
    pub(super) fn of(gain: Estimate, cpu_cycles: f64) -> Self {
        let least = WORTH * cpu_cycles;
        match gain {
            Estimate { low, .. } if low >= least => Self::Certainly,
            Estimate { low, value, .. } if low >= 0.0 && value >= least => Self::Perhaps,
            Estimate { value, .. } if value >= least => Self::Open,
            _ => Self::No,
        }
    }

    pub(super) const fn label(self) -> &'static str {
        match self {
            // Never "yes": nothing was tried yet.
            Self::Certainly => "worth trying",
            Self::Perhaps => "perhaps",
            Self::No => "no",
            Self::Open | Self::CannotTell => "cannot tell",
            Self::Withheld => "withheld",
        }
    }
}

/// What one setting would have saved.
pub(super) struct Advice {
    pub(super) setting: Setting,
    /// Cycles; below zero if it costs.
    pub(super) gain: Estimate,
    pub(super) saved: Counted,
    pub(super) worth: Worth,
    /// Why the verdict is withheld, if it is: which row, and how it agrees.
    pub(super) doubt: Option<String>,
}

/// What verdicts rest on.
pub(super) struct Ground<'a> {
    /// Why there is a verdict on nothing, if so.
    pub(super) disorder: Option<String>,
    pub(super) cpu_cycles: f64,
    pub(super) agreement: &'a [Agreement],
    /// What the machine file says against itself.
    pub(super) caution: Option<&'a str>,
}

impl Advice {
    /// The verdict on `setting`, of which the replay says `gain`.
    pub(super) fn new(setting: Setting, gain: Estimate, saved: Counted, ground: &Ground<'_>) -> Self {
        // Whether a mapping is aligned for huge pages, and the kernel gives them, no trace says.
        let low = if setting.knob == HUGE_PAGES { gain.low.min(0.0) } else { gain.low };
        let gain = Estimate { low, ..gain };
        let doubt = ground.disorder.clone().or_else(|| doubt(setting.rests_on, ground.agreement));
        let worth = match (Worth::of(gain, ground.cpu_cycles), setting.moot, ground.caution) {
            (_, Some(_), _) => Worth::No,
            _ if doubt.is_some() => Worth::Withheld,
            (Worth::Certainly | Worth::Perhaps | Worth::Open, _, Some(_)) => Worth::CannotTell,
            // What no trial can apply, no test of ours applies either: boot settings, and what nobody can name.
            (Worth::Certainly, ..) if setting.change.is_none() => Worth::Perhaps,
            (worth, ..) => worth,
        };
        Self { setting, gain, saved, worth, doubt }
    }
}

/// Why nothing can be said of a trace, if so many of its events are out of order.
pub(super) fn disorder(trace: &Trace) -> Option<String> {
    let health = trace.recording.health();
    too_late(health.events, health.late)
}

fn too_late(events: u64, late: u64) -> Option<String> {
    (late as f64 > LATE * events as f64).then(|| format!("{late} of {events} events are out of order"))
}

/// The worst row of those that a setting rests on, if it agrees badly.
fn doubt(rests_on: &[ComparedCount], agreement: &[Agreement]) -> Option<String> {
    let is_counted =
        |row: &&Agreement| rests_on.contains(&row.quantity) && row.deduced().into_iter().max() >= Some(ROW_LEAST);
    let rows = agreement.iter().filter(is_counted).filter_map(|row| Some((row, row.percent()?)));
    let (row, percent) = rows.min_by(|a, b| a.1.total_cmp(&b.1)).filter(|(_, percent)| *percent < AGREES)?;
    Some(format!("the row \"{}\" agrees to {percent:.0} % alone", row.quantity.label()))
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
    /// Why there is a verdict on nothing, if so.
    pub(super) fn disorder(&self) -> Option<String> {
        disorder(&self.trace)
    }

    pub(super) fn percent(&self, gain: Estimate) -> String {
        percent(gain, self.cpu_cycles, Sign::Shown)
    }

    /// Milliseconds of CPU time.
    pub(super) fn ms(&self, cycles: f64) -> f64 {
        cycles / self.trace.machine.system.frequency_mhz.value / 1e3
    }

    /// Cycles of all programs.
    pub(super) fn machine_cycles(&self) -> f64 {
        self.trace.machine_cycles(&self.recorder)
    }

    /// What to try, best first: settings that may gain, of each knob the likeliest, and each change once. Of what the
    /// replay is wrong about it has no word, and a trial has.
    pub(super) fn candidates(&self) -> Vec<&Advice> {
        let is_triable = |advice: &&Advice| advice.setting.change.is_some() && advice.gain.value > 0.0;
        let mut all: Vec<&Advice> = self.advice.iter().filter(is_triable).collect();
        all.sort_by(|a, b| b.gain.value.total_cmp(&a.gain.value));
        let mut candidates: Vec<&Advice> = Vec::new();
        for advice in all {
            let is_new = |other: &&Advice| {
                other.setting.adds_to(&advice.setting) && other.setting.change != advice.setting.change
            };
            if candidates.iter().all(is_new) {
                candidates.push(advice);
            }
        }
        candidates
    }

    /// Settings on which there is no verdict, by the reason, one of each knob.
    pub(super) fn withheld(&self) -> Vec<(&str, &str)> {
        let doubts = self.advice.iter().filter_map(|advice| Some((advice.setting.knob, advice.doubt.as_deref()?)));
        let mut withheld = Vec::new();
        for doubt in doubts {
            if !withheld.contains(&doubt) {
                withheld.push(doubt);
            }
        }
        withheld
    }

    /// The best of each knob that is worth it, best first.
    pub(super) fn best(&self) -> Vec<&Advice> {
        self.best_of(|worth| matches!(worth, Worth::Certainly | Worth::Perhaps))
    }

    pub(super) fn best_of(&self, is_meant: impl Fn(Worth) -> bool) -> Vec<&Advice> {
        let mut best: Vec<&Advice> = Vec::new();
        for advice in self.advice.iter().filter(|advice| is_meant(advice.worth)) {
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

pub(super) fn head(tuned: &Tuned) -> Vec<String> {
    let own: &[&str] = match tuned.trace.about {
        Some(_) => &["setting", "gain, of its CPU time", "of all programs'"],
        None => &["setting", "gain, of CPU time"],
    };
    let saved = ["in ms", "faults saved", "flushes saved", "calls saved", "worth it"];
    own.iter().copied().chain(saved).map(String::from).collect()
}

/// A row a setting.
pub(super) fn cells(tuned: &Tuned) -> Vec<Vec<String>> {
    let columns = head(tuned).len();
    let is_told = tuned.disorder().is_none();
    let row = |advice: &Advice| {
        let Setting { knob, value, .. } = &advice.setting;
        if !is_told {
            let nothing = vec![number::NONE.to_owned(); columns - 2];
            let (name, worth) = (format!("{knob} {value}"), advice.worth.label().to_owned());
            return [name].into_iter().chain(nothing).chain([worth]).collect();
        }
        let of_all = percent(advice.gain, tuned.machine_cycles(), Sign::Shown);
        let of_all = tuned.trace.about.as_ref().map(|_| of_all);
        let first = [format!("{knob} {value}"), tuned.percent(advice.gain)];
        let Counted { faults, flushes, calls } = advice.saved;
        let ms = |cycles: f64| number::plain(tuned.ms(cycles));
        let saved =
            [faults, flushes, calls].map(|count| if count == 0 { number::NONE.into() } else { count.to_string() });
        let in_ms = format!("{} .. {}", ms(advice.gain.low), ms(advice.gain.high));
        first.into_iter().chain(of_all).chain([in_ms]).chain(saved).chain([advice.worth.label().to_owned()]).collect()
    };
    tuned.advice.iter().map(row).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn advice_is_given_for_gains_that_are_sure_and_large() {
        let of = |low, value| Worth::of(Estimate { low, value, high: 100.0 }, 1000.0).label();
        let worth = [of(1.0, 2.0), of(0.1, 2.0), of(0.0, 50.0), of(0.1, 0.9), of(-0.1, 50.0)];
        assert_eq!(worth, ["worth trying", "perhaps", "perhaps", "no", "cannot tell"]);
        assert_eq!(of(-50.0, 0.9), "no", "what likely gains nothing is not worth its risk");
    }

    #[test]
    fn a_file_that_warns_of_itself_supports_no_advice() {
        let worth = |caution, gain: f64| {
            let setting = Setting::new("ceiling", "8", &[], &[]).tried_as("ceiling=8".parse().unwrap());
            let gain = Estimate { low: gain, value: gain, high: gain };
            let saved = Counted { faults: 0, flushes: 0, calls: 0 };
            let ground = Ground { disorder: None, cpu_cycles: 1000.0, agreement: &[], caution };
            Advice::new(setting, gain, saved, &ground).worth.label()
        };
        assert_eq!((worth(None, 5.0), worth(Some("noise"), 5.0)), ("worth trying", "cannot tell"));
        assert_eq!(worth(Some("noise"), -5.0), "no");
    }

    #[test]
    fn a_trace_out_of_order_supports_no_verdict() {
        assert_eq!([too_late(1000, 0), too_late(1000, 10), too_late(0, 0)], [None, None, None]);
        assert_eq!(too_late(1000, 11).unwrap(), "11 of 1000 events are out of order");
    }

    #[test]
    fn what_cannot_be_tried_is_perhaps_at_most() {
        let worth = |setting: Setting| {
            let gain = Estimate { low: 500.0, value: 500.0, high: 500.0 };
            let ground = Ground { disorder: None, cpu_cycles: 1000.0, agreement: &[], caution: None };
            Advice::new(setting, gain, Counted { faults: 0, flushes: 0, calls: 0 }, &ground).worth.label()
        };
        let boot = || Setting::new("pti", "off", &["sudo reboot".into()], &[]);
        assert_eq!((worth(boot()), worth(boot().tried_as("A=1".parse().unwrap()))), ("perhaps", "worth trying"));
    }

    #[test]
    fn a_verdict_on_a_row_that_agrees_badly_is_withheld_and_names_it() {
        let row = |quantity, recorded, told| Agreement { quantity, recorded, replayed: 1000, told };
        let rows = [
            row(ComparedCount::OwnFew, 950, 0),
            row(ComparedCount::OwnMore, 700, 0),
            row(ComparedCount::OwnAll, 1000, 0),
            row(ComparedCount::Own, 980, 930),
        ];
        assert_eq!(doubt(&[ComparedCount::OwnFew, ComparedCount::OwnAll], &rows), None);
        let words = doubt(&[ComparedCount::OwnFew, ComparedCount::OwnMore], &rows).unwrap();
        assert_eq!(words, "the row \"local mm shootdown, 9-33 pages\" agrees to 70 % alone");
        assert_eq!(doubt(&[ComparedCount::Own], &rows), None, "too few were deduced to say");
        assert_eq!(doubt(&[ComparedCount::Asking], &rows), None, "the trace does not tell");
    }
}
