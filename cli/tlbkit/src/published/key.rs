//! What a figure measures, and of which runs: a quantity of a file, such as `time, pages 512, pcid`, taken apart.

/// What a run varies from figure to figure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Axis {
    Threads,
    Processes,
    Pages,
    /// Pages of a flush.
    Size,
    Cpus,
    /// Guests that share a host's CPUs.
    Guests,
}

impl Axis {
    const ALL: [Self; 6] = [Self::Threads, Self::Processes, Self::Pages, Self::Size, Self::Cpus, Self::Guests];

    /// Its name in a quantity.
    pub(crate) const fn word(self) -> &'static str {
        match self {
            Self::Threads => "threads",
            Self::Processes => "processes",
            Self::Pages => "pages",
            Self::Size => "size",
            Self::Cpus => "CPUs",
            Self::Guests => "guests",
        }
    }

    /// The parameter of the workload that has it.
    pub(crate) const fn parameter(self) -> &'static str {
        match self {
            Self::Threads | Self::Processes => "threads",
            other => other.word(),
        }
    }
}

/// The names of all measures, and how the files write them.
macro_rules! measures {
    ($($name:ident = $words:literal,)*) => {
        /// What is measured.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub(crate) enum Measure { $($name,)* }

        impl Measure {
            const ALL: &[Self] = &[$(Self::$name,)*];

            /// Its name in a quantity.
            pub(crate) const fn words(self) -> &'static str {
                match self { $(Self::$name => $words,)* }
            }
        }
    };
}

measures! {
    Rate = "rate",
    MeanRate = "mean",
    Deviation = "stddev",
    Gain = "gain",
    Change = "change",
    MeanOfAll = "mean of all thread counts",
    Time = "time",
    TimedCall = "time of the timed call",
    OneMoreThread = "one more thread",
    TwoMoreThreads = "two more threads",
    Walks = "walks",
    WalksLeft = "walks left by pcid",
    Interrupts = "interrupts, a page",
    InterruptRate = "interrupts a second",
    WindowRate = "rate in the window",
    InterruptsOfFlush = "interrupts, a flush",
    Flushes = "flushes, a page",
    Switches = "switches, a page",
    Idle = "share of time, idle",
    Shootdowns = "share of cycles, shootdowns",
    Telling = "share of cycles, telling others",
    Answering = "share of cycles, answering",
    LockWaits = "share of cycles, waiting for locks",
    SwitchPath = "share of CPU, all",
    SwitchPathOfIdle = "share of CPU, swapper",
    SwitchPathOfServer = "share of CPU, server",
    EnterLazy = "share of CPU, enter_lazy",
    Atomics = "atomics in the switch path",
    Netperf = "netperf throughput",
    MemcacheChange = "memcache throughput, change",
    SpaceBytes = "address space",
    ShootdownChange = "shootdown interrupts, change",
    InvlpgChange = "invlpg executed, change",
    TimeChange = "time, change",
    TimeChangeDeviation = "time, change, deviation of one run",
    ExitFlushChange = "whole flushes per exit, change",
    ExitShootdowns = "shootdowns during exit",
    OnlyGathering = "shootdown interrupts, change, only gathering",
    OnlyLateTables = "shootdown interrupts, change, only late table frees",
    OnlyNoWindow = "shootdown interrupts, change, only no alternate window",
    FlushCycles = "cycles",
    FixedCycles = "fixed part of a flush",
    CompileMean = "compile, user time, mean",
    CompileSpread = "compile, user time, spread",
    UserTime = "compile, user time",
    SystemTime = "compile, system time",
    ElapsedTime = "compile, elapsed time",
    DtlbWalks = "dTLB walks",
    WalkerCycles = "page walker's cycles",
}

/// Which of the file's policies a figure is of, by their places in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Side {
    /// It names none.
    Unnamed,
    /// One of them.
    Of(usize),
    /// One compared with another.
    Change { of: usize, over: usize },
}

/// Which figure it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Key {
    pub(crate) measure: Measure,
    /// How much there is of what varies; none if the quantity does not say.
    pub(crate) at: Option<u64>,
    pub(crate) side: Side,
}

impl Key {
    /// A figure that names neither how much of anything nor a policy.
    pub(crate) const fn of(measure: Measure) -> Self {
        Self { measure, at: None, side: Side::Unnamed }
    }

    /// The figure of this measure for one of the policies.
    pub(crate) const fn under(measure: Measure, policy: usize) -> Self {
        Self { measure, at: None, side: Side::Of(policy) }
    }

    /// This figure for so much of what varies.
    pub(crate) const fn at(self, at: u64) -> Self {
        Self { at: Some(at), ..self }
    }

    /// Takes a quantity apart, and says what varies. None if it measures nothing that is known.
    pub(crate) fn parse(quantity: &str, policies: &[&str]) -> Option<(Self, Option<Axis>)> {
        let place = |id: &str| policies.iter().position(|policy| *policy == id);
        let (mut axis, mut at, mut side) = (None, None, Side::Unnamed);
        let mut words = Vec::new();
        for part in quantity.split(", ") {
            let amount = Axis::ALL.iter().find_map(|axis| {
                let amount = part.strip_prefix(axis.word())?.strip_prefix(' ')?;
                Some((*axis, amount.parse().ok()?))
            });
            let change = part.split_once(" over ").and_then(|(of, over)| place(of).zip(place(over)));
            if let Some((varies, amount)) = amount {
                (axis, at) = (Some(varies), Some(amount));
            } else if let Some((of, over)) = change {
                side = Side::Change { of, over };
            } else if let Some(policy) = place(part) {
                side = Side::Of(policy);
            } else {
                words.push(part);
            }
        }
        let words = words.join(", ");
        let measure = *Measure::ALL.iter().find(|measure| measure.words() == words)?;
        Some((Self { measure, at, side }, axis))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_quantity_is_taken_apart_and_one_that_measures_nothing_is_none() {
        let key = |quantity| Key::parse(quantity, &["serial", "concurrent"]);
        let time = Key::of(Measure::Time).at(2);
        assert_eq!(key("time, threads 2, serial"), Some((Key { side: Side::Of(0), ..time }, Some(Axis::Threads))));
        let change = Side::Change { of: 1, over: 0 };
        assert_eq!(
            key("time, threads 2, concurrent over serial"),
            Some((Key { side: change, ..time }, Some(Axis::Threads)))
        );
        assert_eq!(key("interrupts, a page"), Some((Key::of(Measure::Interrupts), None)));
        for unknown in ["time, thraeds 2, serial", "time, threads 2, parallel", "tme, threads 2", ""] {
            assert_eq!(key(unknown), None, "{unknown}");
        }
    }
}
