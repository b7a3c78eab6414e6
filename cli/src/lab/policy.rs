//! A policy from its text, and what is wrong with a text in one line.

use anyhow::{Result, anyhow, bail, ensure};
use tlbkit::{KEYS, PRESETS, Policy, TextError};
use tlbkit_sim::machine::Code;
use tlbkit_sim::{FileReads, RegionLocks, RegionWaits, Run};

use super::nearest::unknown;

/// The policy that `text` names: `PRESET[:KEY=VALUE[+KEY=VALUE...]]`.
pub(crate) fn parse(text: &str) -> Result<Policy> {
    let policy = Policy::parse(text).map_err(|error| match error {
        TextError::NoPreset(name) => {
            anyhow!(unknown("policy", name, PRESETS.iter().map(|preset| preset.name), "policies"))
        }
        TextError::NoKey(name) if !name.is_empty() => {
            let unknown = unknown("setting", name, KEYS.iter().map(|key| key.name), "settings");
            anyhow!("policy {text}: {unknown}")
        }
        TextError::NoKey(_) => anyhow!("policy {text}: {WANTED}"),
        _ => anyhow!("policy {text}: {error}"),
    })?;
    check_settings(text)?;
    Ok(policy)
}

/// What stands between the signs of a text.
const WANTED: &str = "want KEY=VALUE, such as lazy=off, behind the colon and behind each +";

/// The library takes nothing for a setting, and the last of several values or of several settings of one thing: whoever
/// types that means something else.
fn check_settings(text: &str) -> Result<()> {
    let Some((_, settings)) = text.split_once(':') else { return Ok(()) };
    let keys: Vec<_> = settings.split('+').map(|setting| setting.split('=').next().unwrap_or_default()).collect();
    for (at, key) in keys.iter().enumerate() {
        ensure!(!key.is_empty(), "policy {text}: {WANTED}");
        ensure!(!keys[..at].contains(key), "policy {text}: {key} is set twice; want each setting once");
        if let Some(before) = keys[..at].iter().find(|before| contradict(before, key)) {
            bail!("policy {text}: {before} and {key} contradict each other; want one of them");
        }
    }
    Ok(())
}

fn contradict(one: &str, other: &str) -> bool {
    let find = |name| KEYS.iter().find(|key| key.name == name);
    find(one).zip(find(other)).is_some_and(|(one, other)| one.contradicts(other))
}

/// The run on the kernel of the preset that `text` names: all that is no field of its policy. Where a document's kernel
/// differs, the caller says so afterwards.
pub(crate) fn on_its_kernel<'m>(text: &str, run: Run<'m>) -> Run<'m> {
    Run {
        // Whose instructions and lines the policy is charged with.
        code: Code::of_preset(text.split(':').next().unwrap_or_default()),
        file_reads: file_reads(text),
        fault_around: fault_around(text),
        region_locks: region_locks(text),
        region_waits: region_waits(text),
        ..run
    }
}

/// Through what the kernel of the preset that `text` names reads files: NetBSD's map windows, the others read their map
/// of all memory. It is no field of the policy, as the protocol only sees the flushes.
fn file_reads(text: &str) -> FileReads {
    if text.starts_with("netbsd-") { FileReads::Windows } else { FileReads::DirectMap }
}

/// Base pages of a file that a load's fault maps at once on the kernel of the preset that `text` names: 16 on Linux
/// since 3.15 (its mm/memory.c, `do_fault_around`), and on ours, which is compared with it. Of others nothing is said.
fn fault_around(text: &str) -> u64 {
    let maps_around = text.starts_with("tlbkit") || text.starts_with("linux-") && !text.starts_with("linux-3.");
    if maps_around { 16 } else { 1 }
}

/// Which lock faults and what gives pages back take on the kernel of the preset that `text` names: Linux has one for
/// each region since 6.4 (its mm/memory.c, `lock_vma_under_rcu`), for `madvise(MADV_DONTNEED)` since 6.17; and so has
/// ours, which is compared with it.
fn region_locks(text: &str) -> RegionLocks {
    if text.starts_with("tlbkit") || text.starts_with("linux-6.18") { RegionLocks::OfOne } else { RegionLocks::OfAll }
}

/// How tasks of the kernel of the preset that `text` names wait for the lock of all regions: writers pass others since
/// Linux 3.10 (its lib/rwsem.c, "Implement writer lock-stealing for better scalability"), and spin since 3.16
/// ("locking/rwsem: Support optimistic spinning"). Other kernels have the newest, as nothing is known of them here.
fn region_waits(text: &str) -> RegionWaits {
    match text.split(':').next().unwrap_or_default() {
        "linux-3.4" => RegionWaits::InOrder,
        preset if preset.starts_with("linux-3.") => RegionWaits::WritersPass,
        _ => RegionWaits::Spin,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_netbsd_s_presets_read_files_through_windows() {
        for preset in tlbkit::PRESETS {
            let expected = if preset.name.contains("netbsd") { FileReads::Windows } else { FileReads::DirectMap };
            assert_eq!(file_reads(&format!("{}:lazy=off", preset.name)), expected, "{}", preset.name);
        }
    }

    #[test]
    fn the_newest_linux_locks_one_region_and_older_ones_all() {
        let presets = ["linux-6.18:ceiling=0", "tlbkit", "linux-4.20", "netbsd-10"];
        let locks = [RegionLocks::OfOne, RegionLocks::OfOne, RegionLocks::OfAll, RegionLocks::OfAll];
        assert_eq!(presets.map(region_locks), locks);
    }

    #[test]
    fn linux_let_nobody_pass_first_then_writers_and_spins_today() {
        let presets = ["linux-3.4:ceiling=33", "linux-3.13-altershift", "linux-3.14", "linux-4.13", "tlbkit"];
        let (pass, spin) = (RegionWaits::WritersPass, RegionWaits::Spin);
        assert_eq!(presets.map(region_waits), [RegionWaits::InOrder, pass, pass, spin, spin]);
    }

    #[test]
    fn linux_maps_the_pages_around_since_3_15() {
        let presets = ["linux-3.4", "linux-3.14", "linux-4.13", "linux-6.18:ceiling=0", "tlbkit", "netbsd-10"];
        assert_eq!(presets.map(fault_around), [1, 1, 16, 16, 16, 1]);
    }

    #[test]
    fn what_is_wrong_is_said_in_one_line() {
        for (text, part) in [
            ("linux-9", "no policy linux-9; see tlbkit list policies"),
            ("xnu:colour=red", "policy xnu:colour=red: no setting colour; see tlbkit list settings"),
            ("xnu:ceilin=1", "policy xnu:ceilin=1: no setting ceilin; did you mean ceiling? see tlbkit list settings"),
            ("xnu:ceiling=1+lazy=off+ceiling=1", ": ceiling is set twice; want each setting once"),
            (
                "linux-6.18:pcid=4+lazy=off+lru=4",
                "policy linux-6.18:pcid=4+lazy=off+lru=4: pcid and lru contradict each other; want one of them",
            ),
            ("xnu:shift=1+ceiling=4", ": shift and ceiling contradict each other; want one of them"),
            ("xnu:", "policy xnu:: want KEY=VALUE, such as lazy=off, behind the colon and behind each +"),
            ("xnu:lazy=off+", "policy xnu:lazy=off+: want KEY=VALUE"),
            ("xnu:=1", "policy xnu:=1: want KEY=VALUE"),
            ("", "the policy name is empty (a comma too many?); see tlbkit list policies"),
            ("xnu:pcid=16", "policy xnu:pcid=16: pcid=16: must be off, or 1 to 15 slots"),
            ("xnu:pcid", "pcid is no KEY=VALUE"),
        ] {
            let error = format!("{:#}", parse(text).unwrap_err());
            assert!(error.contains(part) && !error.contains('\n'), "{error}");
        }
    }
}
