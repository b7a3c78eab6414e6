//! What this machine allows of what can be asked of it, and the command for each lack.

use std::fs::{self, OpenOptions};
use std::path::Path;

use serde::Serialize;

use crate::host::Host;
use crate::recorder::rights::{FLUSH, FOLDERS, event_file, has_program, level, may_record_others};
use crate::trial::{Journal, KNOBS, Knob, can_count};

/// One thing that was looked at.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Finding {
    /// What it is.
    pub what: &'static str,
    /// Whether all is well.
    pub state: State,
    /// What was found.
    pub found: String,
    /// What to run, or to do; none if nothing helps, or nothing is wrong.
    pub run: Option<String>,
    /// What needs it.
    pub needed_for: &'static str,
}

/// Whether all is well.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum State {
    /// What is needed is there.
    Fine,
    /// What is needed is missing, so something cannot be done, or not in full.
    Lacking,
    /// Good to know.
    Note,
}

impl Finding {
    fn fine(what: &'static str, needed_for: &'static str, found: impl Into<String>) -> Self {
        Self { what, state: State::Fine, found: found.into(), run: None, needed_for }
    }

    fn lacking(what: &'static str, needed_for: &'static str, found: impl Into<String>, run: Option<&str>) -> Self {
        let run = run.map(str::to_owned);
        Self { what, state: State::Lacking, found: found.into(), run, needed_for }
    }
}

/// Looks at the machine whose `/sys`, `/proc` and `/run` lie below `root`, for somebody who wants to record `events`.
#[must_use]
pub fn examine(root: &Path, events: &[&str]) -> Vec<Finding> {
    let mut findings =
        vec![perf(), tracefs(root), rights(root), tracepoints(root, events), counting(root), interrupts(root)];
    findings.extend(KNOBS.iter().map(|knob| examine_knob(root, knob)));
    findings.extend(journal(root));
    findings.push(machine());
    findings
}

const RECORD: &str = "record, top, explain";

const MOUNT_PROC: &str = "sudo mount -t proc none /proc   # or --root with the folder that has it";

/// What gives the right to what this user is refused.
fn run_for_rights() -> &'static str {
    if rustix::process::geteuid().is_root() {
        // Nothing but a container, or what its host allows it, keeps something from root.
        "the same command outside of the container, or in one that was started with --privileged"
    } else {
        "the same command with sudo"
    }
}

fn perf() -> Finding {
    if has_program("perf") {
        return Finding::fine("program perf", RECORD, "there");
    }
    Finding::lacking(
        "program perf",
        RECORD,
        "not on the PATH",
        Some("sudo apt-get install linux-perf   # or dnf install perf"),
    )
}

fn tracefs(root: &Path) -> Finding {
    let what = "tracefs";
    let below = |folder: &str| root.join(folder.trim_start_matches('/'));
    let is_readable = |folder: &&&str| fs::read_to_string(event_file(&below(folder), FLUSH)).is_ok();
    if let Some(folder) = FOLDERS.iter().find(is_readable) {
        return Finding::fine(what, RECORD, format!("{folder} has {FLUSH}"));
    }
    // A folder that only root may enter looks empty to others, and so does one where nothing is mounted.
    let is_mounted = FOLDERS.iter().any(|folder| below(folder).is_dir());
    let is_closed = FOLDERS.iter().any(|folder| {
        let folder = below(folder);
        let refused = |path: &Path| fs::read_dir(path).is_err_and(|e| e.kind() == std::io::ErrorKind::PermissionDenied);
        folder.ancestors().take(2).any(refused)
    });
    match (is_closed, is_mounted) {
        (true, _) => Finding::lacking(what, RECORD, "this user may not read it", Some(run_for_rights())),
        (_, true) => {
            let found = format!("mounted, and has no {FLUSH}: the kernel was built without it");
            let run = "boot a newer kernel, or one that was built with CONFIG_EVENT_TRACING=y";
            Finding::lacking(what, RECORD, found, Some(run))
        }
        _ => {
            let run = "sudo mount -t tracefs none /sys/kernel/tracing";
            Finding::lacking(what, RECORD, "not mounted", Some(run))
        }
    }
}

fn rights(root: &Path) -> Finding {
    let what = "kernel.perf_event_paranoid";
    let level = level(&root.join("proc/sys/kernel/perf_event_paranoid"));
    let text = level.map_or_else(|| "unknown".to_owned(), |level| level.to_string());
    if level.is_none() {
        return Finding::lacking(what, RECORD, "cannot be read", Some(MOUNT_PROC));
    }
    if may_record_others(level) {
        return Finding::fine(what, RECORD, format!("{text}, which is enough for this user"));
    }
    let run = "sudo sysctl kernel.perf_event_paranoid=-1   # or the same command with sudo";
    Finding::lacking(what, RECORD, format!("{text}, limit -1 for users but root"), Some(run))
}

fn tracepoints(root: &Path, events: &[&str]) -> Finding {
    let what = "tracepoints";
    let folders = FOLDERS.map(|folder| root.join(folder.trim_start_matches('/')));
    let is_missing = |event: &&str| !folders.iter().any(|folder| fs::read(event_file(folder, event)).is_ok());
    let missing: Vec<_> = events.iter().copied().filter(is_missing).collect();
    let all = events.len();
    match missing.len() {
        0 => Finding::fine(what, RECORD, format!("all {all}")),
        lacking if lacking == all => {
            let run = tracefs(root).run.unwrap_or_else(|| run_for_rights().to_owned());
            Finding::lacking(what, RECORD, "none can be read", Some(&run))
        }
        lacking => {
            let found = format!("{lacking} of {all} are not in this kernel: {}", missing.join(", "));
            Finding { state: State::Note, ..Finding::lacking(what, RECORD, found, None) }
        }
    }
}

fn counting(root: &Path) -> Finding {
    let (what, needed_for) = ("counting flushes of a command", "try, in part");
    if can_count() {
        return Finding::fine(what, needed_for, "allowed");
    }
    match tracefs(root).run {
        Some(run) => Finding::lacking(what, needed_for, "needs tracefs", Some(&run)),
        None => Finding::lacking(what, needed_for, "refused", Some(run_for_rights())),
    }
}

fn interrupts(root: &Path) -> Finding {
    let (what, needed_for) = ("TLB line of /proc/interrupts", "try, in part");
    match fs::read_to_string(root.join("proc/interrupts")) {
        Ok(text) if text.contains("TLB:") => Finding::fine(what, needed_for, "there"),
        // With one CPU there are no such interrupts.
        Ok(_) => {
            let found = "not there: the kernel runs one CPU, or was built for one";
            Finding { state: State::Note, ..Finding::lacking(what, needed_for, found, None) }
        }
        Err(error) => Finding::lacking(what, needed_for, error.to_string(), Some(MOUNT_PROC)),
    }
}

/// Whether a setting of the kernel below `root` can be tried. One that this kernel has not is worth a note.
#[must_use]
pub fn examine_knob(root: &Path, knob: &Knob) -> Finding {
    let (what, needed_for, file) = (knob.name, "try", knob.file(root));
    let name = file.display();
    let error = match fs::read_to_string(&file).and_then(|_| OpenOptions::new().write(true).open(&file)) {
        Ok(_) => return Finding::fine(what, needed_for, format!("{name} can be written")),
        Err(error) => error,
    };
    let found = format!("{name}: {error}");
    let debugfs = root.join("sys/kernel/debug");
    let is_debugfs = file.starts_with(&debugfs);
    let is_unmounted = fs::read_dir(&debugfs)
        .map_or_else(|error| error.kind() == std::io::ErrorKind::NotFound, |mut entries| entries.next().is_none());
    let is_root = rustix::process::geteuid().is_root();
    let run = if is_debugfs && is_unmounted {
        "sudo mount -t debugfs none /sys/kernel/debug"
    } else if error.kind() == std::io::ErrorKind::NotFound {
        // One that this kernel has not is no lack.
        return Finding { state: State::Note, ..Finding::lacking(what, needed_for, found, None) };
    } else if is_root && is_debugfs && is_locked_down(root) {
        "boot without lockdown: Secure Boot off, or lockdown= taken off the kernel's command line"
    } else {
        run_for_rights()
    };
    Finding::lacking(what, needed_for, found, Some(run))
}

fn is_locked_down(root: &Path) -> bool {
    let file = root.join("sys/kernel/security/lockdown");
    // Where it cannot be read, root was refused all the same, and this is what refuses root.
    fs::read_to_string(file).map_or(true, |text| !text.contains("[none]"))
}

fn journal(root: &Path) -> Option<Finding> {
    Journal::is_left(root).then(|| {
        let found = "a trial was killed, or is at work, and has changed the machine";
        Finding::lacking("settings left behind", "everything", found, Some("sudo tlbscope try --restore"))
    })
}

fn machine() -> Finding {
    let (what, needed_for) = ("machine", "replay");
    let host = match Host::ask() {
        Ok(host) => host,
        Err(error) => return Finding::lacking(what, needed_for, error.to_string(), Some(MOUNT_PROC)),
    };
    let Host { cpu_model, cpus, is_virtual, has_pcid, is_isolated, kernel, .. } = host;
    let place = if is_virtual { "a guest" } else { "no guest" };
    let tags = if has_pcid { "with tags" } else { "without tags" };
    let isolation = if is_isolated { "isolated page tables" } else { "no isolation" };
    let found = format!("{place}, Linux {kernel}, {cpus} CPUs, {cpu_model}, {tags}, {isolation}");
    let run = "tlbscope calibrate   # a file for --machine".to_owned();
    Finding { what, state: State::Note, found, run: Some(run), needed_for }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of<'a>(findings: &'a [Finding], what: &str) -> &'a Finding {
        findings.iter().find(|finding| finding.what == what).expect(what)
    }

    #[test]
    fn an_empty_machine_lacks_everything_and_is_told_what_to_run() {
        let root = tempfile::tempdir().unwrap();
        let findings = examine(root.path(), &[FLUSH]);
        let tracefs = of(&findings, "tracefs");
        assert_eq!(tracefs.run.as_deref(), Some("sudo mount -t tracefs none /sys/kernel/tracing"));
        assert!(
            ["tracefs", "tracepoints", "TLB line of /proc/interrupts"]
                .iter()
                .all(|what| of(&findings, what).state == State::Lacking)
        );
        assert_eq!(of(&findings, "tracepoints").run, tracefs.run, "none can be read as it is not mounted");
        let mut lacking = findings.iter().filter(|finding| finding.state == State::Lacking);
        assert!(lacking.all(|finding| finding.run.is_some()), "{findings:?}");
        let paranoid = of(&findings, "kernel.perf_event_paranoid");
        assert_eq!((paranoid.state, paranoid.run.is_some()), (State::Lacking, true));
        let mount = Some("sudo mount -t debugfs none /sys/kernel/debug");
        assert_eq!(of(&findings, "ceiling").run.as_deref(), mount);
        fs::create_dir_all(root.path().join("sys/kernel/debug")).unwrap();
        let ceiling = of(&examine(root.path(), &[]), "ceiling").clone();
        assert_eq!(ceiling.run.as_deref(), mount);
    }

    #[test]
    fn what_is_there_is_fine_and_what_a_killed_trial_left_is_named() {
        let root = tempfile::tempdir().unwrap();
        let write = |path: &str, text: &str| {
            let path = root.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        };
        write("sys/kernel/tracing/events/tlb/tlb_flush/id", "7\n");
        write("proc/interrupts", " TLB:  1 2 TLB shootdowns\n");
        write("proc/sys/kernel/perf_event_paranoid", "-1\n");
        write("sys/kernel/mm/transparent_hugepage/enabled", "always [madvise] never\n");
        let findings = examine(root.path(), &[FLUSH, "csd:csd_queue_cpu"]);
        let fine = ["tracefs", "kernel.perf_event_paranoid", "TLB line of /proc/interrupts", "thp"];
        assert!(fine.iter().all(|what| of(&findings, what).state == State::Fine), "{findings:?}");
        let tracepoints = of(&findings, "tracepoints");
        assert_eq!(tracepoints.state, State::Note);
        assert!(tracepoints.found.starts_with("1 of 2 are not in this kernel: csd:csd_queue_cpu"), "{tracepoints:?}");
        assert!(!findings.iter().any(|finding| finding.what == "settings left behind"));
        write("run/tlbkit-try.journal", "");
        let left = of(&examine(root.path(), &[]), "settings left behind").clone();
        assert_eq!(left.run.as_deref(), Some("sudo tlbscope try --restore"));
    }
}
