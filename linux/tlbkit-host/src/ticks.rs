//! CPU time as the kernel counts it, in its ticks: what `/proc/stat` says of all CPUs, and `/proc/PID/stat` of one
//! process (proc_pid_stat(5) and proc_stat(5)).

/// What all CPUs did since the boot.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct CpuTicks {
    /// Programs, the kernel, and interrupts.
    pub(crate) busy: u64,
    /// Nothing, or waiting for disks.
    pub(crate) idle: u64,
    /// Taken by a host below.
    pub(crate) stolen: u64,
}

impl CpuTicks {
    /// The first line of `/proc/stat`. Guest times are a part of user and nice.
    pub(crate) fn parse(stat: &str) -> Option<Self> {
        let [user, nice, system, idle, iowait, irq, softirq, stolen] =
            numbers(stat.lines().next()?.strip_prefix("cpu ")?.split_whitespace())?;
        Some(Self { busy: user + nice + system + irq + softirq, idle: idle + iowait, stolen })
    }

    pub(crate) fn total(&self) -> u64 {
        self.busy + self.idle + self.stolen
    }
}

/// Whose time is asked for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Of {
    /// The process.
    Process,
    /// The process and those of its children that it has waited for.
    ProcessAndChildren,
}

/// Ticks that a process has used, by its `/proc/PID/stat`; none if it is gone.
pub(crate) fn process_ticks(of: Of, stat: &str) -> Option<u64> {
    // The name stands in parentheses and may hold anything; utime is the 12th word after it.
    let words = stat.rsplit_once(')')?.1.split_whitespace().skip(11);
    let [user, kernel, user_of_children, kernel_of_children] = numbers(words)?;
    let own = user + kernel;
    Some(match of {
        Of::Process => own,
        Of::ProcessAndChildren => own + user_of_children + kernel_of_children,
    })
}

/// The first `N` words, all of which must be numbers.
fn numbers<'a, const N: usize>(words: impl Iterator<Item = &'a str>) -> Option<[u64; N]> {
    let numbers: Vec<u64> = words.take(N).map(str::parse).collect::<Result<_, _>>().ok()?;
    numbers.try_into().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_column_goes_where_the_kernel_means_it() {
        let stat = "cpu  1 20 300 4000 50000 600000 7000000 80000000 0 0\ncpu0 1";
        assert_eq!(CpuTicks::parse(stat), Some(CpuTicks { busy: 7_600_321, idle: 54_000, stolen: 80_000_000 }));
        assert_eq!(CpuTicks::parse("cpu  1 20\n"), None);
        assert_eq!(CpuTicks::parse("cpu  1 x 300 4000 50000 600000 7000000 80000000 0 0\n"), None, "no shift");
    }

    #[test]
    fn a_process_may_have_any_name() {
        let stat = "7 (odd) name) S 1 1 1 0 -1 0 0 0 0 0 10 20 1 2 20 0";
        assert_eq!([Of::Process, Of::ProcessAndChildren].map(|of| process_ticks(of, stat)), [Some(30), Some(33)]);
        assert_eq!(process_ticks(Of::Process, "7 (cut"), None);
    }
}
