//! What a recording lacks, and what that means for figures made of it.

use serde_json::{Value, json};

use super::{End, Recorded};

/// Why a recording is not the whole of what happened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Gaps {
    end: Ended,
    perf_bytes: u64,
    /// From the first event to the last, in nanoseconds.
    length_ns: u64,
    events: u64,
    lost: u64,
}

/// What ended it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Ended {
    As(End),
    /// By a signal or the time that was given, and the command ran on.
    BeforeCommand,
}

impl Gaps {
    pub(crate) fn of(recorded: &Recorded) -> Self {
        let Recorded { run, converted, end, .. } = recorded;
        let is_left = *end == End::WithSubject && run.pid.is_some() && run.status.is_none();
        Self {
            end: if is_left { Ended::BeforeCommand } else { Ended::As(*end) },
            perf_bytes: recorded.perf_bytes,
            length_ns: converted.summary.length_ns(),
            events: converted.health.events,
            lost: converted.health.lost,
        }
    }

    /// Whether the recording ended before the command or the time that was given.
    pub(crate) fn is_cut_short(&self) -> bool {
        self.end != Ended::As(End::WithSubject)
    }

    /// Whether the disk is why.
    pub(crate) fn is_disk_full(&self) -> bool {
        self.end == Ended::As(End::AtFullDisk)
    }

    /// A line for each; `more` says how a longer recording is made.
    pub(crate) fn lines(&self, more: &str) -> Vec<String> {
        let seconds = self.length_ns as f64 / 1e9;
        let rest = format!("all figures are of its first {seconds:.3} s");
        let cut = match self.end {
            Ended::As(End::WithSubject) => None,
            Ended::As(End::AtLimit) => {
                Some(format!("CUT SHORT at {} bytes of perf.data: {rest}; {more}", self.perf_bytes))
            }
            Ended::As(End::AtFullDisk) => {
                Some(format!("CUT SHORT: the disk is nearly full; what was recorded until then is kept: {rest}"))
            }
            Ended::BeforeCommand => {
                Some(format!("CUT SHORT by a signal or --duration, while the command ran on: {rest}"))
            }
        };
        let lost = (self.lost > 0).then(|| {
            let percent = 100.0 * self.lost as f64 / (self.events + self.lost) as f64;
            format!(
                "LOST {} events, {percent:.1} % of all: counts and costs are too low by about as much; record fewer \
                 processes, or on more idle CPUs",
                self.lost
            )
        });
        cut.into_iter().chain(lost).collect()
    }

    /// The gaps for programs.
    pub(crate) fn json(&self) -> Value {
        json!({
            "kind": "recording", "is_cut_short": self.is_cut_short(), "is_disk_full": self.is_disk_full(),
            "lost": self.lost,
            "recorded_s": self.length_ns as f64 / 1e9,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn gaps(end: Ended, lost: u64) -> Gaps {
        Gaps { end, perf_bytes: 1_000_001, length_ns: 2_500_000_000, events: 900, lost }
    }

    #[test]
    fn a_whole_recording_has_nothing_to_say() {
        assert_eq!(gaps(Ended::As(End::WithSubject), 0).lines("more"), [""; 0]);
    }

    #[test]
    fn each_reason_says_what_the_figures_are_of() {
        for (end, begin) in [
            (Ended::As(End::AtLimit), "CUT SHORT at 1000001 bytes of perf.data: "),
            (Ended::As(End::AtFullDisk), "CUT SHORT: the disk is nearly full; "),
            (Ended::BeforeCommand, "CUT SHORT by a signal or --duration, "),
        ] {
            let lines = gaps(end, 0).lines("ask for more");
            assert_eq!(lines.len(), 1, "{lines:?}");
            assert!(lines[0].starts_with(begin) && lines[0].contains("of its first 2.500 s"), "{lines:?}");
            assert_eq!(lines[0].contains("ask for more"), end == Ended::As(End::AtLimit), "{lines:?}");
        }
    }

    #[test]
    fn lost_events_are_a_line_of_their_own() {
        let lines = gaps(Ended::As(End::AtLimit), 100).lines("");
        assert!(lines[1].starts_with("LOST 100 events, 10.0 % of all: "), "{lines:?}");
        assert_eq!(gaps(Ended::As(End::WithSubject), 100).json()["lost"], 100);
    }
}
