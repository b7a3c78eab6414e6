//! Tests that others wrote, on both kernels: what passes on stock Linux must pass on ours.

use anyhow::{Context, Result, bail};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use super::boot::{Boot, Ended};
use super::build::{self, Guest, Kernel};
use crate::setup::{self, Need};

/// CPUs of the machine that is judged, where nobody says how many.
pub(super) const CPUS: u32 = 4;
/// What a boot may take beside its tests.
const BOOT: Duration = Duration::from_secs(240);
/// What the guest says of its kernel's log, as of one more test.
const LOG: &str = "kernel's log";
/// What the guest looks for in that log.
const WARNINGS: [&str; 3] = ["WARNING:", "BUG:", "tlbkit: CPU"];
/// What selftests return that found nothing to test.
const SKIPPED: i64 = 4;
const OUT_OF_TIME: i64 = 124;
/// All of stress-ng at once, which lasts as long as it is told, and how many minutes of it stock Linux gets.
const LOAD: &str = "load/all";
const STOCK_MINUTES: u64 = 5;
/// Places at which stock Linux 6.12.117 warned when a CPU went, in longer runs than that (docs/kernel/linux-port.md).
const SEEN_ON_STOCK: [&str; 2] = ["kernel/sched/core.c:8365", "kernel/sched/deadline.c:265"];

/// What one kernel did with one test.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Verdict {
    Passed,
    Skipped,
    Failed,
    OutOfTime,
    /// The guest's kernel ended before.
    NotRun,
}

impl Verdict {
    fn of(line: Option<&Value>) -> Self {
        match line.map(|line| line["status"].as_i64()) {
            Some(Some(0)) => Self::Passed,
            Some(Some(SKIPPED)) => Self::Skipped,
            Some(Some(OUT_OF_TIME)) => Self::OutOfTime,
            Some(_) => Self::Failed,
            None => Self::NotRun,
        }
    }

    const fn name(self) -> &'static str {
        match self {
            Self::Passed => "passed",
            Self::Skipped => "skipped by the test itself",
            Self::Failed => "failed",
            Self::OutOfTime => "out of time",
            Self::NotRun => "not run",
        }
    }

    const fn is_well(self) -> bool {
        matches!(self, Self::Passed | Self::Skipped)
    }
}

/// What a kernel did with a list of tests.
#[derive(Debug, Default)]
struct Sitting {
    lines: BTreeMap<String, Value>,
    remarks: Vec<String>,
}

impl Sitting {
    /// Takes what one boot said, of the tests of one group.
    fn hear(&mut self, kernel: Kernel, group: &str, ended: &Ended) {
        for line in ended.lines("judged") {
            let name = line["test"].as_str().unwrap_or_default();
            let name = if name == LOG { log_of(group) } else { name.to_owned() };
            self.lines.insert(name, line);
        }
        self.remarks.extend(ended.remarks().map(str::to_owned));
        if ended.lines("end").is_empty() {
            self.remarks.push(format!("{}: the guest did not end:\n{}", kernel.name(), ended.tail()));
        }
        eprintln!("linux: judge: {}: {group} took {:.0} s", kernel.name(), ended.seconds);
    }

    fn verdict(&self, name: &str) -> Verdict {
        Verdict::of(self.lines.get(name))
    }

    /// Where the kernel warned: the file and line, or what it says if it names none.
    fn warnings(&self) -> BTreeSet<&str> {
        let is_warning = |line: &&String| WARNINGS.iter().any(|word| line.contains(word));
        self.remarks.iter().filter(is_warning).map(|line| place(line)).collect()
    }

    fn findings(&self, name: &str) -> u64 {
        self.lines.get(name).and_then(|line| line["findings"].as_u64()).unwrap_or(0)
    }
}

/// Runs the tests whose name begins with `wanted` on both kernels; false if one that passes on stock Linux does not on
/// ours.
pub(super) fn run(root: &Path, wanted: &str, cpus: u32) -> Result<bool> {
    on_both(root, wanted, cpus, [None; 2])
}

/// Runs all of stress-ng at once on ours for `minutes`, and on stock Linux for a while, since that warns by itself when
/// CPUs go and come.
pub(super) fn load(root: &Path, minutes: u64) -> Result<bool> {
    on_both(root, LOAD, CPUS, [Some(minutes.min(STOCK_MINUTES)), Some(minutes)])
}

/// `minutes` are those of the load on stock Linux and on ours, if they are not the list's.
fn on_both(root: &Path, wanted: &str, cpus: u32, minutes: [Option<u64>; 2]) -> Result<bool> {
    let judges = chosen(root, wanted)?;
    let built = Judges::build(root)?;
    let stock = sit(root, &built, Kernel::Stock, &judges, wanted, cpus, minutes[0])?;
    let ours = sit(root, &built, Kernel::Tlbkit, &judges, wanted, cpus, minutes[1])?;
    let can_run = |judge: &&Judge| built.missing.iter().all(|(name, _)| *name != judge.name);
    let mut names: Vec<String> = judges.iter().filter(can_run).map(|judge| judge.name.clone()).collect();
    names.extend(groups(&judges).into_iter().map(log_of));
    let remarks = stock.remarks.iter().map(|line| ("stock", line));
    remarks.chain(ours.remarks.iter().map(|line| ("tlbkit", line))).for_each(|(of, line)| println!("  {of}: {line}"));
    for (name, why) in built.missing.iter().filter(|(name, _)| name.starts_with(wanted)) {
        println!("linux: judge: {name}: cannot be built here: {why}");
    }
    for name in &names {
        let (before, after) = (stock.verdict(name), ours.verdict(name));
        if (before, after) != (Verdict::Passed, Verdict::Passed) {
            let worse = if is_worse(name, &stock, &ours) { "   WORSE" } else { "" };
            println!("linux: judge: {name}: stock: {}, tlbkit: {}{worse}", before.name(), after.name());
        }
    }
    let count = |sitting: &Sitting, verdict| names.iter().filter(|name| sitting.verdict(name) == verdict).count();
    for (kernel, sitting) in [("stock", &stock), ("tlbkit", &ours)] {
        let (passed, skipped) = (count(sitting, Verdict::Passed), count(sitting, Verdict::Skipped));
        println!("linux: judge: {kernel}: of {} tests {passed} passed, {skipped} found nothing to test", names.len());
    }
    Ok(names.iter().all(|name| !is_worse(name, &stock, &ours)))
}

/// Runs the tests on our kernel alone, with `cpus` CPUs, and prints what did not pass. False if a test did not pass,
/// which may have a reason that stock Linux has as well.
pub(super) fn run_alone(root: &Path, wanted: &str, cpus: u32) -> Result<bool> {
    let (judges, built) = (chosen(root, wanted)?, Judges::build(root)?);
    let ours = sit(root, &built, Kernel::Tlbkit, &judges, wanted, cpus, None)?;
    ours.remarks.iter().for_each(|remark| println!("  {remark}"));
    let (mut passed, mut count) = (0, 0);
    let logs = groups(&judges).into_iter().map(log_of);
    for name in judges.iter().map(|judge| judge.name.clone()).chain(logs) {
        let verdict = ours.verdict(&name);
        count += 1;
        passed += u32::from(verdict.is_well());
        if verdict != Verdict::Passed {
            println!("linux: judge: {name}: {}, {} findings", verdict.name(), ours.findings(&name));
        }
    }
    println!("linux: judge: tlbkit alone, {cpus} CPUs: of {count} tests {passed} passed or found nothing to test");
    Ok(passed == count)
}

fn chosen(root: &Path, wanted: &str) -> Result<Vec<Judge>> {
    let judges: Vec<Judge> = list(root)?.into_iter().filter(|judge| judge.name.starts_with(wanted)).collect();
    if judges.is_empty() {
        bail!("`linux judge {wanted}`: no test in metal/linux/judges has a name that begins so");
    }
    Ok(judges)
}

/// Boots once for each group, so that a kernel that ends does not take all with it.
fn sit(
    root: &Path,
    built: &Judges,
    kernel: Kernel,
    judges: &[Judge],
    wanted: &str,
    cpus: u32,
    load_minutes: Option<u64>,
) -> Result<Sitting> {
    let image = build::kernel(root, kernel)?;
    let mut sitting = Sitting::default();
    for group in groups(judges) {
        let prefix = if wanted.len() > group.len() { wanted.to_owned() } else { format!("{group}/") };
        let listed = judges.iter().filter(|judge| judge.name.starts_with(&prefix)).map(|judge| judge.seconds).sum();
        let seconds: u64 = load_minutes.map_or(listed, |minutes| 90 * minutes);
        let words = load_minutes.map_or_else(String::new, |minutes| format!("STRESS_SECONDS={}", 60 * minutes));
        let boot = Boot::at_once(cpus, &words, &format!("judge {prefix}"));
        let boot = boot.at_length(BOOT + Duration::from_secs(seconds));
        sitting.hear(kernel, group, &boot.run(&image, &built.guest)?);
    }
    Ok(sitting)
}

/// Where a warning comes from, without the function and its offset, which are those of one build.
fn place(warning: &str) -> &str {
    let behind = warning.split_once(" at ").map(|(_, behind)| behind);
    behind.and_then(|text| text.split_whitespace().next()).unwrap_or(warning)
}

/// The name under which the kernel's log of one group is judged.
fn log_of(group: &str) -> String {
    format!("{group}: {LOG}")
}

fn groups(judges: &[Judge]) -> Vec<&str> {
    let mut groups: Vec<&str> = judges.iter().filter_map(|judge| judge.name.split_once('/')).map(|at| at.0).collect();
    groups.dedup();
    groups
}

/// Whether a test passes on stock Linux and not on ours, or fails on both and says more on ours. A load that failed on
/// both has shown nothing. Warnings come and go with the time at which CPUs do, so of the kernel's log their places are
/// compared.
fn is_worse(name: &str, stock: &Sitting, ours: &Sitting) -> bool {
    if name.ends_with(LOG) {
        let known = stock.warnings();
        let is_new = |place: &&str| !known.contains(place) && !SEEN_ON_STOCK.contains(place);
        return ours.verdict(name) == Verdict::NotRun || ours.warnings().iter().any(is_new);
    }
    let (before, after) = (stock.verdict(name), ours.verdict(name));
    ((before.is_well() || name == LOAD) && !after.is_well())
        || (after != before && !after.is_well())
        || ours.findings(name) > stock.findings(name)
}

/// What selftests are compiled with.
const FLAGS: &str = "-O2 -w -std=gnu11 -static -pthread -mxsave -no-pie -U_FORTIFY_SOURCE";
/// Libraries that a few of them want.
const HEADERS: [Need; 2] =
    [Need::File("/usr/include/sys/capability.h", "libcap-dev"), Need::File("/usr/include/numa.h", "libnuma-dev")];
/// Tests that are made of a second file, or must be linked otherwise, as Linux's own Makefiles say.
const MORE: &[(&str, &str)] = &[
    ("x86/sysret_ss_attrs", "thunks.S"),
    ("x86/sysret_rip", "clang_helpers_64.S"),
    ("x86/fsgsbase_restore", "clang_helpers_64.S"),
    ("x86/check_initial_reg_state", "-Wl,-ereal_start"),
    ("x86/nx_stack", "-Wl,-z,noexecstack"),
    ("mm/uffd-stress", "uffd-common.c"),
    ("mm/uffd-unit-tests", "uffd-common.c"),
];

/// One line of metal/linux/judges.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Judge {
    name: String,
    seconds: u64,
    /// The program that it runs, as `mm/cow`; nothing if that is stress-ng.
    program: Option<String>,
}

/// All of them, in their order.
fn list(root: &Path) -> Result<Vec<Judge>> {
    let text = fs::read_to_string(root.join("metal/linux/judges"))?;
    text.lines().enumerate().filter(|(_, line)| !line.starts_with('#')).map(|(at, line)| read(at + 1, line)).collect()
}

fn read(number: usize, line: &str) -> Result<Judge> {
    let wrong = || format!("metal/linux/judges:{number}: must be a name, seconds and a command: {line}");
    let (name, rest) = line.split_once(' ').with_context(wrong)?;
    let (seconds, command) = rest.split_once(' ').with_context(wrong)?;
    let folder = name.split_once('/').with_context(wrong)?.0;
    let program = command.split_whitespace().find_map(|word| word.strip_prefix("./"));
    let program = program.map(|program| format!("{folder}/{program}"));
    Ok(Judge { name: name.to_owned(), seconds: seconds.parse().with_context(wrong)?, program })
}

/// What was built.
#[derive(Debug)]
struct Judges {
    guest: Guest,
    /// Tests that cannot be run, each with the reason.
    missing: Vec<(String, String)>,
}

impl Judges {
    fn build(root: &Path) -> Result<Self> {
        // Without one the few tests that want it are named as missing.
        HEADERS.iter().for_each(|header| _ = header.lack());
        let (judges, folder) = (list(root)?, setup::target_dir(root).join("linux/judges"));
        let programs: BTreeSet<&String> = judges.iter().filter_map(|judge| judge.program.as_ref()).collect();
        let compiler = Compiler { tree: build::stock(root)?, headers: build::headers(root)?, folder };
        let mut files =
            format!("dir /judges 0755 0 0\nfile /judges/list {} 0644 0 0\n", on(root, "metal/linux/judges"));
        for group in ["mm", "x86", "stress", "load"] {
            fs::create_dir_all(compiler.folder.join(group))?;
            files += &format!("dir /judges/{group} 0755 0 0\n");
        }
        let mut missing = Vec::new();
        for program in programs {
            match compiler.build(program)? {
                Ok(file) => files += &format!("file /judges/{program} {} 0755 0 0\n", file.display()),
                Err(why) => missing.push((program.clone(), why)),
            }
        }
        match stress() {
            Ok(stress) => files += &stress,
            Err(why) => missing.push(("stress-ng".to_owned(), why)),
        }
        let why = |judge: &Judge| {
            let program = judge.program.as_deref().unwrap_or("stress-ng");
            missing.iter().find(|(name, _)| name == program).map(|(_, why)| (judge.name.clone(), why.clone()))
        };
        let missing = judges.iter().filter_map(why).collect();
        Ok(Self { guest: Guest::pack(root, "judges", &files)?, missing })
    }
}

fn on(root: &Path, file: &str) -> String {
    root.join(file).display().to_string()
}

/// Where selftests come from and go to.
#[derive(Debug)]
struct Compiler {
    tree: PathBuf,
    headers: PathBuf,
    folder: PathBuf,
}

impl Compiler {
    /// The program, or why there is none. What is there already is not built again: the source does not change.
    fn build(&self, program: &str) -> Result<Result<PathBuf, String>> {
        let (file, log) = (self.folder.join(program), self.folder.join(format!("{program}.log")));
        let (group, name) = program.split_once('/').context("a program without a folder")?;
        if file.is_file() {
            return Ok(Ok(file));
        }
        let selftests = self.tree.join("tools/testing/selftests");
        let mut gcc = Command::new("gcc");
        gcc.current_dir(selftests.join(group)).args(FLAGS.split_whitespace());
        gcc.arg("-I").arg(&self.folder).arg("-I").arg(&self.tree).arg("-isystem").arg(&self.headers);
        gcc.arg("-isystem").arg(self.tree.join("tools/include/uapi")).arg(format!("{name}.c"));
        gcc.args(MORE.iter().filter(|(of, _)| *of == program).map(|(_, more)| more));
        if group == "mm" {
            gcc.args(["vm_util.c", "thp_settings.c"]);
        }
        // Linux's own Makefile writes this header; empty, it says that there is no liburing.
        fs::write(self.folder.join("local_config.h"), "")?;
        gcc.args(["-lrt", "-lpthread", "-lm", "-ldl"]).args(libraries(&selftests.join(group).join(name)));
        let output = gcc.arg("-o").arg(&file).output().context("running gcc")?;
        let text = String::from_utf8_lossy(&output.stderr).into_owned();
        fs::write(&log, &text)?;
        let why = text.lines().find(|line| line.contains("error") || line.contains("undefined"));
        Ok(if output.status.success() { Ok(file) } else { Err(why.unwrap_or("gcc does not say why").to_owned()) })
    }
}

/// Libraries that the source names by their headers.
fn libraries(source: &Path) -> Vec<&'static str> {
    let text = fs::read_to_string(source.with_extension("c")).unwrap_or_default();
    let named = [("<sys/capability.h>", "-lcap"), ("<numa.h>", "-lnuma")];
    named.into_iter().filter(|(header, _)| text.contains(header)).map(|(_, library)| library).collect()
}

/// stress-ng of the distribution, and what it is linked with.
fn stress() -> Result<String, String> {
    if let Some(how) = Need::Program("stress-ng", "stress-ng").lack() {
        return Err(how);
    }
    let program = setup::find("stress-ng").ok_or("stress-ng is gone")?;
    let output = Command::new("ldd").arg(&program).output().map_err(|error| format!("ldd: {error}"))?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let paths = text.split_whitespace().filter(|word| word.starts_with('/'));
    let mut files = String::from("dir /lib 0755 0 0\ndir /lib64 0755 0 0\ndir /dev/shm 0777 0 0\n");
    files += &format!("file /bin/stress-ng {} 0755 0 0\n", program.display());
    for path in paths {
        let name = Path::new(path).file_name().unwrap_or_default().to_string_lossy().into_owned();
        // The loader has a fixed place, and looks for the others in this one.
        let to = if name.starts_with("ld-linux") { "/lib64" } else { "/lib" };
        files += &format!("file {to}/{name} {path} 0755 0 0\n");
    }
    Ok(files)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn sitting(status: i64, findings: u64) -> Sitting {
        let line = json!({"test": "mm/cow", "status": status, "findings": findings});
        Sitting { lines: BTreeMap::from([("mm/cow".to_owned(), line)]), remarks: Vec::new() }
    }

    #[test]
    fn worse_is_what_stock_can_and_ours_cannot() {
        let (well, failed) = (sitting(0, 0), sitting(1, 3));
        assert!(is_worse("mm/cow", &well, &failed) && is_worse("mm/cow", &well, &Sitting::default()));
        assert!(!is_worse("mm/cow", &failed, &well) && !is_worse("mm/cow", &failed, &failed));
        assert!(is_worse("mm/cow", &failed, &sitting(1, 4)), "one more of its parts failed");
        assert!(is_worse("mm/cow", &failed, &sitting(OUT_OF_TIME, 0)), "it failed and now hangs");
        let warned = |line: &str| Sitting {
            lines: BTreeMap::from([(LOG.to_owned(), json!({"status": 1}))]),
            remarks: vec![line.to_owned()],
        };
        let (before, same) =
            (warned("<4>WARNING: CPU: 3 at kernel/a.c:8"), warned("<4>WARNING: CPU: 0 at kernel/a.c:8"));
        assert!(!is_worse(LOG, &before, &same) && is_worse(LOG, &before, &warned("<4>WARNING: CPU: 3 at mm/b.c:1")));
        assert!(!is_worse("mm/cow", &sitting(SKIPPED, 0), &sitting(SKIPPED, 0)));
    }

    #[test]
    fn a_line_is_a_name_seconds_and_a_command() -> Result<()> {
        let judge = read(1, "mm/gup_test-fast 60 echo 1 > /proc/x; ./gup_test -u")?;
        assert_eq!((judge.name.as_str(), judge.seconds), ("mm/gup_test-fast", 60));
        assert_eq!(judge.program.as_deref(), Some("mm/gup_test"));
        assert_eq!(read(2, "stress/vm 90 stress-ng --vm 2")?.program, None);
        let error = read(3, "mm/cow soon ./cow").map(|_| ()).expect_err("these are no seconds");
        assert!(error.to_string().contains("metal/linux/judges:3"), "{error}");
        Ok(())
    }

    #[test]
    fn no_two_tests_have_the_same_name() -> Result<()> {
        let judges = list(&setup::root()?)?;
        let names: BTreeSet<&String> = judges.iter().map(|judge| &judge.name).collect();
        assert_eq!(names.len(), judges.len());
        assert!(judges.iter().all(|judge| (judge.seconds <= 400 || judge.name == LOAD) && judge.name.len() < 64));
        Ok(())
    }

    /// What a guest writes whose kernel warned at these places, and whose programs ended so.
    fn loaded(status: i32, places: &[&str]) -> Sitting {
        let mut text = format!("{{\"kind\":\"judged\",\"test\":\"{LOAD}\",\"status\":{status},\"findings\":0}}\n");
        for place in places {
            text += &format!("# <4>WARNING: CPU: 3 PID: 27 at {place}\n");
        }
        let failed = u32::from(!places.is_empty());
        text += &format!("{{\"kind\":\"judged\",\"test\":\"kernel's log\",\"status\":{failed},\"findings\":0}}\n");
        let mut sitting = Sitting::default();
        sitting.hear(Kernel::Tlbkit, "load", &Ended { code: None, text, seconds: 1.0 });
        sitting
    }

    fn is_fine(stock: &Sitting, ours: &Sitting) -> bool {
        !is_worse(LOAD, stock, ours) && !is_worse(&log_of("load"), stock, ours)
    }

    #[test]
    fn what_stock_linux_warns_of_too_is_no_finding() {
        let (a, same, b) = ("kernel/a.c:8365 f+0x1/0x2", "kernel/a.c:8365 f+0x3/0x4", "mm/b.c:1 g+0x2");
        assert!(is_fine(&loaded(0, &[a]), &loaded(0, &[same])) && is_fine(&loaded(0, &[a, b]), &loaded(0, &[])));
        assert!(!is_fine(&loaded(0, &[a]), &loaded(0, &[a, b])), "a warning that stock Linux does not have");
        assert!(is_fine(&loaded(0, &[]), &loaded(0, &["kernel/sched/deadline.c:265 f+0x3/0x4"])), "seen there before");
        assert!(!is_fine(&loaded(1, &[a]), &loaded(1, &[a])), "an hour in which the programs failed shows nothing");
        assert!(!is_fine(&loaded(0, &[]), &Sitting::default()), "the guest ended before");
    }
}
