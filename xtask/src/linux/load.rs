//! All of stress-ng at once while CPUs go and come, for as long as one likes.

use anyhow::Result;
use std::collections::BTreeSet;
use std::path::Path;
use std::time::Duration;

use super::boot::Boot;
use super::build::{self, Kernel};
use super::judge::{self, BOOT, CPUS, Sitting, Verdict};
use super::judges::Judges;

const GROUP: &str = "load";
const TEST: &str = "load/all";
/// Minutes of the same on stock Linux, which warns by itself when CPUs go and come: what it warns of is not ours.
const STOCK_MINUTES: u64 = 5;
/// Places at which stock Linux 6.12.117 warned when a CPU went, in longer runs than that (docs/kernel/linux-port.md).
const SEEN_ON_STOCK: [&str; 2] = ["kernel/sched/core.c:8365", "kernel/sched/deadline.c:265"];

/// Runs it on stock Linux for a while and on ours for `minutes`. False if ours did not do its work, or warned of
/// what stock Linux does not warn of.
pub(super) fn run(root: &Path, minutes: u64) -> Result<bool> {
    let built = Judges::build(root)?;
    let stock = sit(root, &built, Kernel::Stock, minutes.min(STOCK_MINUTES))?;
    let ours = sit(root, &built, Kernel::Tlbkit, minutes)?;
    let known = known(&stock);
    for place in ours.warnings() {
        let whose = if known.contains(place) { "as stock Linux does" } else { "as stock Linux did not" };
        println!("linux: load: the kernel warned at {place}, {whose}");
    }
    let is_fine = is_fine(&stock, &ours);
    let (before, after) = (stock.verdict(TEST).name(), ours.verdict(TEST).name());
    let verdict = if is_fine { "passed" } else { "FAILED" };
    println!("linux: load: stress-ng on stock: {before}; on tlbkit, {minutes} min and {CPUS} CPUs: {after}: {verdict}");
    if !is_fine {
        ours.remarks.iter().for_each(|remark| println!("  {remark}"));
    }
    Ok(is_fine)
}

fn sit(root: &Path, built: &Judges, kernel: Kernel, minutes: u64) -> Result<Sitting> {
    let words = format!("STRESS_SECONDS={}", 60 * minutes);
    let boot = Boot::at_once(CPUS, &words, &format!("judge {TEST}"));
    let boot = boot.at_length(BOOT + Duration::from_secs(90 * minutes));
    let mut sitting = Sitting::default();
    sitting.hear(kernel, GROUP, &boot.run(&build::kernel(root, kernel)?, &built.guest)?);
    Ok(sitting)
}

/// Where stock Linux warns.
fn known(stock: &Sitting) -> BTreeSet<&str> {
    stock.warnings().into_iter().chain(SEEN_ON_STOCK).collect()
}

/// Our kernel's programs must pass, whatever stock Linux's did, and its log must have been read.
fn is_fine(stock: &Sitting, ours: &Sitting) -> bool {
    let is_log_read = ours.verdict(&judge::log_of(GROUP)) != Verdict::NotRun;
    ours.verdict(TEST) == Verdict::Passed && is_log_read && ours.warnings().is_subset(&known(stock))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::linux::boot::Ended;

    /// What a guest writes whose kernel warned at these places, and whose programs ended so.
    fn sitting(status: i32, places: &[&str]) -> Sitting {
        let mut text = format!("{{\"kind\":\"judged\",\"test\":\"{TEST}\",\"status\":{status},\"findings\":0}}\n");
        for place in places {
            text += &format!("# <4>WARNING: CPU: 3 PID: 27 at {place}\n");
        }
        let failed = u32::from(!places.is_empty());
        text += &format!("{{\"kind\":\"judged\",\"test\":\"kernel's log\",\"status\":{failed},\"findings\":0}}\n");
        let mut sitting = Sitting::default();
        sitting.hear(Kernel::Tlbkit, GROUP, &Ended { code: None, text, seconds: 1.0 });
        sitting
    }

    #[test]
    fn what_stock_linux_warns_of_too_is_no_finding() {
        let (a, same, b) = ("kernel/a.c:8365 f+0x1/0x2", "kernel/a.c:8365 f+0x3/0x4", "mm/b.c:1 g+0x2");
        assert!(is_fine(&sitting(0, &[a]), &sitting(0, &[same])) && is_fine(&sitting(0, &[a, b]), &sitting(0, &[])));
        assert!(!is_fine(&sitting(0, &[a]), &sitting(0, &[a, b])), "a warning that stock Linux does not have");
        assert!(
            is_fine(&sitting(0, &[]), &sitting(0, &["kernel/sched/deadline.c:265 f+0x3/0x4"])),
            "seen there before"
        );
        assert!(!is_fine(&sitting(1, &[a]), &sitting(1, &[a])), "an hour in which the programs failed shows nothing");
        assert!(!is_fine(&sitting(0, &[]), &Sitting::default()), "the guest ended before");
    }
}
