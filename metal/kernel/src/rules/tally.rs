//! Each rule that was asked gives a line of output; this counts how many of them the CPU breaks.

use core::fmt::{Display, Write};

use crate::arch::attempt::Attempted;
use crate::arch::exit::Ending;
use crate::report;

/// How many rules were asked, and how many of them are broken.
#[derive(Clone, Copy, Default)]
pub(super) struct Tally {
    asked: u32,
    broken: u32,
}

/// What is left of a translation that should be gone, or of anything else that should.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Remains {
    Nothing,
    Something,
}

impl Tally {
    /// An instruction must end like this.
    pub(super) fn must_end(&mut self, rule: &dyn Display, expected: Attempted, found: Attempted) {
        let verdict = if expected == found { Verdict::Holds } else { Verdict::Broken };
        self.record(rule, verdict, &format_args!("expected {expected:?}, found {found:?}"));
    }

    /// Nothing may be left.
    pub(super) fn must_be_gone(&mut self, rule: &dyn Display, remains: Remains) {
        match remains {
            Remains::Nothing => self.record(rule, Verdict::Holds, &"gone"),
            Remains::Something => self.record(rule, Verdict::Broken, &"still there"),
        }
    }

    /// The manual allows both: the result is printed, and not counted.
    pub(super) fn may_stay(rule: &dyn Display, remains: Remains) {
        let found = if remains == Remains::Nothing { "gone, though it might stay" } else { "kept" };
        print(rule, Verdict::Holds, &found);
    }

    fn record(&mut self, rule: &dyn Display, verdict: Verdict, found: &dyn Display) {
        self.asked += 1;
        self.broken += u32::from(verdict == Verdict::Broken);
        print(rule, verdict, found);
    }

    /// Prints the sum, and ends the machine.
    pub(super) fn end(self) -> ! {
        let Self { asked, broken } = self;
        let (kind, ending) = if broken == 0 { ("result", Ending::Fine) } else { ("failure", Ending::Failed) };
        report::last_line(ending, |port| {
            write!(port, r#"{{"kind":"{kind}","what":"{broken} of {asked} rules broken"}}"#)
        })
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Verdict {
    Holds,
    Broken,
}

fn print(rule: &dyn Display, verdict: Verdict, found: &dyn Display) {
    let holds = verdict == Verdict::Holds;
    // Only one CPU is really online, so nothing else writes.
    report::line(|port| write!(port, r#"{{"kind":"rule","name":"{rule}","holds":{holds},"found":"{found}"}}"#));
}
