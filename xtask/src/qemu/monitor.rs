//! The kernel on its own monitor, whose TLB keeps what each tag held, as no emulator's does: the scope of each
//! instruction, the protocol as it is, and then with historical bugs that only such a machine shows.

use anyhow::{Context, Result};
use std::ops::RangeInclusive;
use std::path::Path;
use std::time::Instant;

use super::Threads::{Parallel, Repeatable};
use super::bochs::{BOCHS, Bochs};
use super::{Boot, Ended, Threads};
use crate::setup;
use crate::workshop::{OBSERVED, TESTKIT, Workshop};

/// What the kernel links. The kernel itself is a separate workspace.
const CRATES: &[&str] =
    &["lib/tlbkit", "lib/tlbkit-arch", "lib/tlbkit-pmap", TESTKIT, OBSERVED, "sim/tlbkit-workloads", "lib/tlbkit-x86"];
const KERNEL: &str = "metal/kernel";
const NO_MUTANT: &str = "(none)";
/// Seeds of a hunt. Most bugs are found with each of them.
const SEEDS: RangeInclusive<u32> = 1..=10;
/// What the rules say of a translation that an instruction dropped without need. This TLB never does.
const TOO_MUCH: &str = "gone, though it might stay";
/// Page tables of the kernel itself.
const KERNEL_TABLES: u64 = 4;
/// Page tables of a process that has ended, with two halves and its windows.
const SPACE_TABLES_MAX: u64 = 5;

/// How much is done.
#[derive(Clone, Debug)]
pub(super) struct Effort {
    /// Seeds of each run without a bug.
    clean_seeds: RangeInclusive<u32>,
    /// Every so many-th bug is hunted.
    every: usize,
    /// Another emulator too.
    emulators: Emulators,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Emulators {
    Qemu,
    QemuAndBochs,
}

impl Effort {
    /// All of it.
    pub(super) const WHOLE: Self = Self { clean_seeds: SEEDS, every: 1, emulators: Emulators::QemuAndBochs };
    /// That of `--short`.
    pub(super) const SHORT: Self = Self { clean_seeds: 1..=1, every: 8, emulators: Emulators::Qemu };
}

/// CPUs, how the emulator runs them, and the rest of the command line.
type Words = (u32, Threads, &'static str);

/// Many processes on one CPU, in few slots.
const RECYCLED: Words = (1, Repeatable, "workload=lat-ctx set=processes=9,kib=16,rounds=8");
/// Threads that hand pages on and idle in between.
const LAZY: Words = (4, Repeatable, "workload=mapbench-pipeline set=rounds=200,check_fresh=1,pages=3");
/// Several processes whose threads share the CPUs, and that end while CPUs idle in them.
const RACES: Words = (4, Repeatable, "workload=races set=rounds=40");
/// Races with CPUs that guess more, idle ones too: they walk tables that nobody uses any more.
const GUESSES: Words = (4, Repeatable, "guesses=20 workload=races set=rounds=40");
/// Races in which the end of a space interrupts the CPUs that idle in it.
const SHOT_DOWN: Words = (4, Repeatable, "with=lazy_refs=shot-down workload=races set=rounds=40");
/// Races without tags.
const UNTAGGED: Words = (4, Repeatable, "pcid=off workload=races set=rounds=40");
/// Races in which CPUs leave the sets of their spaces.
const TRIMMED: Words = (4, Repeatable, "with=set=8 workload=races set=rounds=40");
/// Threads with two halves, each page of the user half flushed by INVPCID.
const HALVES: Words =
    (2, Repeatable, "with=pti=on+user_flush=invpcid workload=mapbench-pipeline set=rounds=100,check_fresh=1,pages=3");
/// Commands that come and go where references of idle CPUs are counted: what nobody has counted is never freed.
const COUNTED: Words = (3, Repeatable, "policy=linux-4.20 workload=buildsh set=jobs=2,rounds=10,files=8,file_pages=4");
/// Races with two halves, page tables freed among them.
const TABLES: Words = (3, Repeatable, "with=pti=on+user_flush=invpcid guesses=6 workload=races set=rounds=40");
/// Races under isolation whose user half is flushed on the way out.
const DEFERRED: Words = (3, Repeatable, "with=pti=on+user_flush=cr3 workload=races set=rounds=40");
/// Processes that come and go, with two halves and two slots.
const TWO_SLOTS: Words =
    (2, Repeatable, "with=pti=on+user_flush=cr3+lru=2 workload=buildsh set=jobs=4,rounds=2,check_fresh=1");
/// Processes that read files by turns, through windows of the kernel, which are in no tag twice and in every one.
const READERS: Words = (2, Repeatable, "with=pti=on guesses=6 workload=readers set=rounds=150");
/// Files read through windows that are flushed as a whole.
const COLLAPSED: Words = (2, Repeatable, "with=ceiling=0 workload=readers set=rounds=20");
/// Files read through windows while CPUs go offline and come back.
const NAPS: Words = (3, Repeatable, "naps=on guesses=8 workload=buildsh set=jobs=2,rounds=10,files=8,file_pages=4");
/// Races of spaces that have one PCID on all CPUs, which are flushed by INVLPGB.
const SHARED: Words = (4, Repeatable, "broadcast=8 with=broadcast=1 workload=races set=rounds=40");
/// The same with two halves.
const SHARED_HALVES: Words =
    (3, Repeatable, "broadcast=8 with=broadcast=1+pti=on+user_flush=invpcid guesses=6 workload=races set=rounds=40");
/// Windows of the kernel that are flushed by INVLPGB.
const SHARED_READERS: Words =
    (2, Repeatable, "broadcast=4 with=broadcast=1+pti=on guesses=6 workload=readers set=rounds=150");
/// A host that takes CPUs away, and drops their translations before they go on.
const PREEMPTED: Words = (4, Repeatable, "host=translations guesses=20 workload=races set=rounds=40");
/// One that drops cached paths as well, where the end of a space interrupts the CPUs that idle in it.
const PREEMPTED_ENDS: Words = (4, Repeatable, "host=paths with=lazy_refs=shot-down workload=races set=rounds=40");
/// Both at once.
const PREEMPTED_SHARED: Words =
    (4, Repeatable, "host=translations broadcast=8 with=broadcast=1 workload=races set=rounds=40");
/// Races where each CPU has upper page tables of its own, and others free tables meanwhile.
const DIRECTORIES: Words = (4, Repeatable, "guesses=20 policy=private-levels workload=races set=rounds=40");
/// The same with two halves.
const DIRECTORIES_HALVES: Words =
    (3, Repeatable, "policy=private-levels with=pti=on+user_flush=invpcid guesses=6 workload=races set=rounds=40");
/// Races where CPUs acknowledge before they flush.
const EARLY: Words = (4, Repeatable, "policy=early-ack guesses=20 workload=races set=rounds=40");
/// Races in which pages that nobody has accessed since they aged are given back without a flush.
const UNACCESSED: Words = (4, Repeatable, "policy=abis guesses=6 workload=races set=rounds=40");
/// Pages that threads unmap and get back after a grace period.
const RETIRED: Words =
    (4, Repeatable, "policy=latr with=lazy_refs=shot-down workload=mapbench-local set=rounds=200,check_fresh=1");
/// The same among processes that come and go.
const RETIRED_RACES: Words =
    (4, Repeatable, "policy=latr with=lazy_refs=shot-down guesses=20 workload=races set=rounds=40");
/// Both at once: what several CPUs may hold is retired, the rest comes back at once.
const RETIRED_WITHIN: Words = (
    4,
    Repeatable,
    "policy=private-levels-latr with=lazy_refs=shot-down workload=mapbench-pipeline \
     set=rounds=200,check_fresh=1,pages=3",
);
/// Pages of a file that are flushed when their frames are needed.
const RECLAIMED: Words =
    (4, Repeatable, "policy=luf guesses=6 workload=reclaim set=rounds=300,pages=64,fit=48,batch=8,held=16");
/// The same, flushed by CPUs that enter the kernel.
const RECLAIMED_PASSING: Words = (
    4,
    Repeatable,
    "policy=luf with=unmap=retired+lazy_refs=shot-down workload=reclaim set=rounds=300,pages=64,fit=48,batch=8,held=16",
);
/// CPUs that are not disturbed while they run programs, and windows of the kernel that change meanwhile.
const ISOLATED: Words = (2, Repeatable, "isolated=on with=pti=on guesses=6 workload=readers set=rounds=150");
/// The halves with the CPUs really at the same time. No spinning: the host may have fewer.
const AT_ONCE: Words =
    (2, Parallel, "with=pti=on+user_flush=invpcid workload=mapbench-pipeline set=rounds=60,check_fresh=1,pages=3");

const ALL: &[Words] = &[
    RECYCLED,
    LAZY,
    RACES,
    GUESSES,
    SHOT_DOWN,
    COUNTED,
    UNTAGGED,
    TRIMMED,
    HALVES,
    TABLES,
    DEFERRED,
    TWO_SLOTS,
    READERS,
    COLLAPSED,
    NAPS,
    SHARED,
    SHARED_HALVES,
    SHARED_READERS,
    PREEMPTED,
    PREEMPTED_ENDS,
    PREEMPTED_SHARED,
    DIRECTORIES,
    DIRECTORIES_HALVES,
    EARLY,
    UNACCESSED,
    RETIRED,
    RETIRED_RACES,
    RETIRED_WITHIN,
    RECLAIMED,
    RECLAIMED_PASSING,
    ISOLATED,
    AT_ONCE,
];

/// Each bug, with the run that must find it.
const HUNTS: &[(&str, Words)] = &[
    ("slot-reused-without-flush", RECYCLED),
    ("tag-of-the-space-before", RECYCLED),
    ("id-given-out-again", RECYCLED),
    ("no-flush-load-of-a-stale-slot", LAZY),
    ("lazy-exit-trusts-its-tlb", LAZY),
    ("dying-space-not-shot-down", SHOT_DOWN),
    ("lazy-reference-not-counted", COUNTED),
    ("trimmed-by-the-sender", RACES),
    ("lazy-ignores-freed-tables", GUESSES),
    ("own-half-forgotten", RACES),
    ("no-flush-without-tags", UNTAGGED),
    ("trimmed-but-slot-kept", TRIMMED),
    ("invpcid-of-the-wrong-half", HALVES),
    ("recycled-slot-without-its-user-half", TWO_SLOTS),
    ("upper-table-freed-by-page", TABLES),
    ("kernel-range-in-one-tag", READERS),
    ("deferred-user-flush-lost-in-a-switch", DEFERRED),
    ("collapsed-flush-drops-global", COLLAPSED),
    ("resume-with-stale-slots", NAPS),
    ("broadcast-without-tlbsync", SHARED),
    ("broadcast-forgets-the-user-half", SHARED_HALVES),
    ("tables-left-to-a-host-that-keeps-paths", PREEMPTED),
    ("end-of-a-space-left-to-the-host", PREEMPTED_ENDS),
    ("freed-table-stays-in-a-directory", DIRECTORIES),
    ("sharer-hides-the-others", DIRECTORIES_HALVES),
    ("early-answer-raises-the-generation", EARLY),
    ("aged-without-a-flush", UNACCESSED),
    ("retired-addresses-mapped-again", RETIRED),
    ("retired-table-is-not-added", RETIRED_WITHIN),
    ("retired-under-other-sharers", RETIRED_WITHIN),
    ("deferred-frames-reused-at-once", RECLAIMED),
    ("deferred-leaves-out-who-passed-before", RECLAIMED),
    ("passed-without-a-flush", RECLAIMED_PASSING),
];

/// What came of one hunt.
struct Hunt<'a> {
    mutant: &'a str,
    /// What was found wrong.
    caught: Option<String>,
    /// Seeds until then, or all that there were.
    tried: u32,
    seconds: f64,
}

/// Asks for the scopes, runs the protocol as it is, hunts bugs; false if something was wrong.
pub(super) fn run(root: &Path, effort: &Effort) -> Result<bool> {
    let kernel = super::build(root)?;
    let mut fine = has_right_scopes(&kernel)?;
    for &words in ALL {
        let hunted = hunt(NO_MUTANT, &kernel, words, effort.clean_seeds.clone())?;
        fine &= hunted.caught.is_none();
        tell(&hunted, words);
    }
    if effort.emulators == Emulators::QemuAndBochs {
        fine &= holds_on_bochs(&kernel)?;
    }
    fine &= finds_bugs(root, effort.every)?;
    println!("qemu monitor: {}", if fine { "each was caught, and nothing else" } else { "WRONG" });
    Ok(fine)
}

fn finds_bugs(root: &Path, every: usize) -> Result<bool> {
    let place = setup::target_dir(root).join("monitor");
    let workshop = Workshop::new(root, &place, CRATES)?;
    workshop.add(root, KERNEL)?;
    let mut fine = true;
    for &(mutant, words) in HUNTS.iter().step_by(every) {
        let hunted = trial(root, &workshop, mutant, words).with_context(|| format!("mutant {mutant}"))?;
        fine &= hunted.caught.is_some();
        tell(&hunted, words);
    }
    Ok(fine)
}

fn trial<'a>(root: &Path, workshop: &Workshop, mutant: &'a str, words: Words) -> Result<Hunt<'a>> {
    let patch = root.join("verify/mutants").join(format!("{mutant}.patch"));
    workshop.with(&patch, || {
        let kernel = tlbkit_boot::build(&workshop.root.join(KERNEL), &workshop.target)?;
        hunt(mutant, &kernel, words, SEEDS)
    })
}

/// Runs until something is found.
fn hunt<'a>(
    mutant: &'a str,
    kernel: &Path,
    (cpus, threads, words): Words,
    seeds: RangeInclusive<u32>,
) -> Result<Hunt<'a>> {
    let begun = Instant::now();
    let mut caught = None;
    let mut tried = 0;
    for seed in seeds {
        tried += 1;
        let ended = Boot::new(cpus, threads, format!("monitor=on {words} seed={seed}")).run(kernel)?;
        caught = found(mutant, &ended, cpus);
        if caught.is_some() {
            break;
        }
    }
    Ok(Hunt { mutant, caught, tried, seconds: begun.elapsed().as_secs_f64() })
}

/// What is wrong with a run. With a bug, one that does not end has found nothing; without, it must end, and the TLB
/// must have had room for everything. With or without, a space that nobody frees is wrong; a CPU that idles when the
/// run ends still holds at most one, as `Cpu::destroy_later` promises.
fn found(mutant: &str, ended: &Ended, cpus: u32) -> Option<String> {
    let has_bug = mutant != NO_MUTANT;
    if ended.kind() == "failure" || !has_bug && !ended.is_fine() {
        return Some(ended.what().to_owned());
    }
    let [evicted, tables] = ["evicted", "tables_left"].map(|key| ended.last[key].as_u64().unwrap_or(0));
    if tables > KERNEL_TABLES + SPACE_TABLES_MAX * u64::from(cpus) {
        return Some(format!("{tables} page tables were never freed"));
    }
    (!has_bug && evicted > 0).then(|| format!("{evicted} translations were evicted"))
}

fn tell(hunted: &Hunt<'_>, (cpus, threads, words): Words) {
    let Hunt { mutant, caught, tried, seconds } = hunted;
    let what = caught.as_deref().unwrap_or("nothing found");
    println!("{mutant:<38} {what} | {tried} seeds | {seconds:.1} s | {cpus} CPUs {threads:?}, {words}");
}

/// The manual's rules asked of the monitor, which must drop what it has to and nothing more.
fn has_right_scopes(kernel: &Path) -> Result<bool> {
    let mut fine = true;
    let kinds = ["pcid=on invpcid=on", "pcid=on invpcid=off", "pcid=off invpcid=on", "pcid=off invpcid=off"];
    for features in kinds.into_iter().chain(["broadcast=8", "pcid=off broadcast=8"]) {
        let boot = Boot::new(1, Repeatable, format!("mode=rules monitor=on guesses=0 {features}"));
        let (ended, lines) = boot.run_telling(kernel)?;
        let too_much: Vec<_> = lines.iter().filter(|line| line["found"] == TOO_MUCH).collect();
        too_much.iter().for_each(|line| println!("WRONG: {}: {TOO_MUCH}", line["name"]));
        println!("scopes, {features}: {}", ended.what());
        fine &= ended.is_fine() && too_much.is_empty();
    }
    Ok(fine)
}

/// Another emulator, which has INVPCID and sends interrupts through registers: the same scopes, the same runs.
fn holds_on_bochs(kernel: &Path) -> Result<bool> {
    if let Some(how) = BOCHS.lack() {
        println!("bochs: skipped: {how}");
        return Ok(true);
    }
    let machine = Bochs::new(kernel)?;
    let mut fine = true;
    for &(cpus, _, words) in &[(1, Repeatable, "mode=rules guesses=0"), RECYCLED, LAZY, HALVES, DEFERRED] {
        let ended = machine.boot(cpus, &format!("monitor=on {words}"))?;
        let verdict = if ended.is_fine() { "fine" } else { ended.what() };
        println!("bochs: {verdict} | {:.1} s | {cpus} CPUs, {words}", ended.seconds);
        fine &= ended.is_fine();
    }
    Ok(fine)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ended(line: &str) -> Result<Ended> {
        Ok(Ended { last: serde_json::from_str(line)?, seconds: 1.0 })
    }

    #[test]
    fn a_run_that_does_not_end_is_wrong_but_catches_nothing() -> Result<()> {
        for (line, without_a_bug, with_one) in [
            (r#"{"kind":"result","evicted":0}"#, false, false),
            (r#"{"kind":"result","evicted":3}"#, true, false),
            (r#"{"kind":"result","evicted":0,"tables_left":14}"#, false, false),
            (r#"{"kind":"result","evicted":0,"tables_left":15}"#, true, true),
            (r#"{"kind":"failure","what":"a flush was lost"}"#, true, true),
            ("null", true, false),
        ] {
            assert_eq!(found(NO_MUTANT, &ended(line)?, 2).is_some(), without_a_bug, "{line}");
            assert_eq!(found("a-bug", &ended(line)?, 2).is_some(), with_one, "{line}");
        }
        Ok(())
    }

    #[test]
    fn every_run_is_made_without_a_bug_too_and_every_bug_has_its_patch() -> Result<()> {
        let mutants = setup::root()?.join("verify/mutants");
        for (mutant, words) in HUNTS {
            assert!(ALL.contains(words), "{mutant}");
            assert!(mutants.join(format!("{mutant}.patch")).is_file(), "{mutant}");
        }
        Ok(())
    }
}
