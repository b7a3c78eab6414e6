//! Who else used the CPUs while something was measured.

use std::fs;

use serde::Serialize;

use crate::error::{Error, Result};
use crate::ticks::{CpuTicks, Of, process_ticks};

/// Shares of the CPU time of all CPUs over a while, in percent.
#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
pub struct Disturbance {
    /// Taken by the host below a virtual machine.
    pub stolen_percent: f64,
    /// Used by other processes.
    pub others_percent: f64,
}

/// Others' share beyond which figures mean little.
const OTHERS_PERCENT: f64 = 10.0;
/// Stolen share beyond which figures mean little.
const STOLEN_PERCENT: f64 = 2.0;

impl Disturbance {
    /// Whether figures taken meanwhile mean little.
    #[must_use]
    pub fn is_too_much(&self) -> bool {
        self.stolen_percent > STOLEN_PERCENT || self.others_percent > OTHERS_PERCENT
    }
}

/// CPU time so far, in the kernel's ticks.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ticks {
    cpus: CpuTicks,
    own: u64,
}

impl Ticks {
    /// Until now.
    pub(crate) fn now() -> Result<Self> {
        let stat = fs::read_to_string("/proc/stat").map_err(Error::kernel("reading /proc/stat"))?;
        let own = fs::read_to_string("/proc/self/stat").map_err(Error::kernel("reading /proc/self/stat"))?;
        Self::parse(&stat, &own).ok_or(Error::Missing { path: "/proc/stat", wanted: "the times of all CPUs" })
    }

    fn parse(stat: &str, own: &str) -> Option<Self> {
        Some(Self { cpus: CpuTicks::parse(stat)?, own: process_ticks(Of::ProcessAndChildren, own)? })
    }

    /// What happened from `self` to `later`.
    pub(crate) fn until(&self, later: &Self) -> Disturbance {
        let total = (later.cpus.total() - self.cpus.total()).max(1) as f64;
        let stolen = (later.cpus.stolen - self.cpus.stolen) as f64;
        let busy = (later.cpus.busy - self.cpus.busy) as f64;
        let others = (busy - (later.own - self.own) as f64).max(0.0);
        Disturbance { stolen_percent: 100.0 * stolen / total, others_percent: 100.0 * others / total }
    }
}

#[cfg(test)]
mod tests {
    use super::Ticks;

    const OWN: &str = "7 (odd) name) S 1 1 1 0 -1 0 0 0 0 0 10 20 1 2 20 0";

    #[test]
    fn shares_are_of_the_time_between() {
        let before = Ticks::parse("cpu  100 0 50 800 50 0 0 0 0 0\n", OWN).unwrap();
        assert_eq!(before.own, 33);
        let later = OWN.replace("10 20 1 2", "40 30 1 2");
        let after = Ticks::parse("cpu  160 0 60 900 50 0 0 30 0 0\n", &later).unwrap();
        let disturbance = before.until(&after);
        assert_eq!((disturbance.stolen_percent, disturbance.others_percent), (15.0, 15.0));
        assert!(disturbance.is_too_much());
    }

    #[test]
    fn the_running_kernel_is_understood() {
        let before = Ticks::now().unwrap();
        assert!(before.cpus.total() > 0);
        assert!(!before.until(&before).is_too_much());
    }
}
