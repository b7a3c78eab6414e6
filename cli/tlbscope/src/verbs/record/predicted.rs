//! What a recording will cost, said before it is made, or as early as it can be known.
//!
//! Of processes that run already, the kernel counts the events of a second first. What a new command does nobody knows:
//! under `--compare` its first run without recording tells, and else the first second of the recording.

use std::fmt;
use std::ops::RangeInclusive;
use std::time::Duration;

use anyhow::Result;
use serde::Serialize;
use tlbkit_host::recorder::{Available, EventRate, Watched};
use tlbkit_host::trial::{Count, Quantity};
use tlbkit_output::note;

use crate::watching::WatchArguments;

/// From so much on, in percent at most, another way is named.
const MUCH_PCT: f64 = 10.0;
/// How long events are counted before they are recorded.
const COUNTED: Duration = Duration::from_secs(1);

/// Where a prediction is from.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Basis {
    /// Events of the whole machine, counted before.
    CountedBefore,
    /// Those of one process.
    #[serde(rename = "counted_before")]
    OneCountedBefore,
    /// A run without recording: faults and flushes alone.
    RunBefore,
    /// The first second of the recording itself.
    FirstSecond,
}

/// What recording adds to the CPU time.
#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
pub(super) struct Predicted {
    events_per_second: f64,
    low_pct: f64,
    high_pct: f64,
    basis: Basis,
}

/// Counts what runs already, and tells; none for a command, which does not run yet.
pub(super) fn before(subject: &WatchArguments, available: &Available) -> Result<Option<Predicted>> {
    if !subject.command.is_empty() {
        return Ok(None);
    }
    let rate = EventRate::count(&available.events, subject.watched(), COUNTED)?;
    let basis = match subject.watched() {
        Watched::AllCpus => Basis::CountedBefore,
        Watched::Process(_) => Basis::OneCountedBefore,
    };
    Ok(tell(&rate, basis))
}

/// Events that a recording would have at least: calls and switches come on top.
pub(super) fn rate(count: &Count) -> EventRate {
    let quantities = [Quantity::Faults, Quantity::Flushes, Quantity::Requests];
    EventRate {
        events: quantities.into_iter().filter_map(|quantity| count.get(quantity)).sum(),
        seconds: count.get(Quantity::Wall).unwrap_or_default(),
        cpu_seconds: count.get(Quantity::Cpu).unwrap_or_default().max(1e-3),
    }
}

/// Says it in one line on standard error.
pub(super) fn tell(rate: &EventRate, basis: Basis) -> Option<Predicted> {
    let predicted = Predicted::of(rate, basis);
    if let Some(predicted) = predicted {
        note!("tlbscope: {predicted}{}", predicted.other_way());
    }
    predicted
}

impl Predicted {
    /// None if nothing ran.
    fn of(rate: &EventRate, basis: Basis) -> Option<Self> {
        let (low_pct, high_pct) = rate.added_pct().map(RangeInclusive::into_inner)?;
        (rate.seconds > 0.0).then(|| Self { events_per_second: rate.events / rate.seconds, low_pct, high_pct, basis })
    }

    /// What to do instead, where it costs much.
    fn other_way(&self) -> &'static str {
        match self.basis {
            _ if self.high_pct <= MUCH_PCT => "",
            Basis::CountedBefore => "; `tlbscope record --pid` of one process, or a shorter --duration, costs less",
            Basis::OneCountedBefore => "; a shorter --duration adds it for a shorter time",
            Basis::RunBefore | Basis::FirstSecond => "; `tlbscope record --light -- COMMAND` counts for less than 3 %",
        }
    }
}

impl fmt::Display for Predicted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { events_per_second, low_pct, high_pct, basis } = self;
        let from = match basis {
            Basis::CountedBefore | Basis::OneCountedBefore => "counted for a second before",
            Basis::RunBefore => "faults and flushes of a run before, calls and switches not counted",
            Basis::FirstSecond => "in its first second",
        };
        write!(f, "{events_per_second:.0} events a second ({from}): ")?;
        write!(f, "recording adds about {low_pct:.1} to {high_pct:.1} % to the CPU time")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rate(events: f64) -> EventRate {
        EventRate { events, seconds: 2.0, cpu_seconds: 1.0 }
    }

    #[test]
    fn a_prediction_says_its_share_where_it_is_from_and_another_way_if_it_is_much() {
        let much = Predicted::of(&rate(200_000.0), Basis::FirstSecond).unwrap();
        assert_eq!(
            much.to_string(),
            "100000 events a second (in its first second): recording adds about 16.0 to 36.0 % to the CPU time"
        );
        assert!(much.other_way().contains("--light"));
        let all = Predicted::of(&rate(200_000.0), Basis::CountedBefore).unwrap();
        assert!(all.other_way().contains("--pid") && all.other_way().contains("--duration"), "{}", all.other_way());
        let one = Predicted::of(&rate(200_000.0), Basis::OneCountedBefore).unwrap();
        assert!(!one.other_way().contains("--pid"), "it is one process already: {}", one.other_way());
        let little = Predicted::of(&rate(5_000.0), Basis::FirstSecond).unwrap();
        assert_eq!((little.other_way(), little.high_pct), ("", 0.9));
    }

    #[test]
    fn of_nothing_that_ran_nothing_is_predicted() {
        assert_eq!(Predicted::of(&EventRate { cpu_seconds: 0.0, ..rate(5.0) }, Basis::CountedBefore), None);
    }
}
