//! Which tracepoints can be recorded here, and what a user must run where none can.

use std::path::{Path, PathBuf};
use std::{env, fs};

use crate::error::{Error, Result};

/// The tracepoint without which nothing else is worth recording.
pub(crate) const FLUSH: &str = "tlb:tlb_flush";
/// Where kernels show their tracepoints.
pub(crate) const FOLDERS: [&str; 2] = ["/sys/kernel/tracing/events", "/sys/kernel/debug/tracing/events"];

/// Tracepoints, sorted out.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Available {
    /// The tracepoints that this kernel has.
    pub events: Vec<&'static str>,
    /// The tracepoints that this kernel lacks.
    pub missing: Vec<&'static str>,
}

/// Which of `wanted` this kernel has.
///
/// # Errors
/// If nothing can be recorded; the message says what to run.
pub fn available(wanted: &[&'static str]) -> Result<Available> {
    if !has_program("perf") {
        return Err(Error::NoPerf);
    }
    let user = if rustix::process::geteuid().is_root() { User::Root } else { User::Other };
    let folder = FOLDERS.into_iter().find(|folder| has_event(folder, FLUSH));
    let Some(folder) = folder else { return Err(no_tracepoints(user)) };
    let level = level(Path::new("/proc/sys/kernel/perf_event_paranoid"));
    if let Some(level) = level.filter(|_| !may_record_others(level)) {
        return Err(Error::NoRight { level });
    }
    let (events, missing) = wanted.iter().partition(|event| has_event(folder, event));
    Ok(Available { events, missing })
}

/// What the file says of who may record what.
pub(crate) fn level(file: &Path) -> Option<i32> {
    fs::read_to_string(file).ok()?.trim().parse().ok()
}

/// Whether this user may record what concerns others.
pub(crate) fn may_record_others(level: Option<i32>) -> bool {
    rustix::process::geteuid().is_root() || level.is_none_or(|level| level <= -1)
}

/// The file of a tracepoint that all who may record it can read.
pub(crate) fn event_file(folder: &Path, event: &str) -> PathBuf {
    folder.join(event.replace(':', "/")).join("id")
}

/// The user who asks.
#[derive(Clone, Copy, PartialEq, Eq)]
enum User {
    Root,
    Other,
}

fn no_tracepoints(user: User) -> Error {
    let run = match user {
        User::Root => "mount -t tracefs none /sys/kernel/tracing",
        User::Other => "the same command with sudo",
    };
    Error::NoTracepoints { path: format!("{}/{}/id", FOLDERS[0], FLUSH.replace(':', "/")), run }
}

/// Whether the kernel has the tracepoint, and this user may see it.
fn has_event(folder: &str, event: &str) -> bool {
    fs::read_to_string(event_file(Path::new(folder), event)).is_ok()
}

pub(crate) fn has_program(name: &str) -> bool {
    env::var_os("PATH").is_some_and(|path| env::split_paths(&path).any(|folder| folder.join(name).is_file()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_are_sorted_out_by_name() {
        match available(&[FLUSH, "tlb:no_such_event"]) {
            Ok(available) => {
                assert_eq!(available, Available { events: vec![FLUSH], missing: vec!["tlb:no_such_event"] });
            }
            Err(error) => println!("skipped: {error}"),
        }
        assert!(!has_program("no-such-program"));
    }

    #[test]
    fn the_way_out_depends_on_the_user() {
        assert!(no_tracepoints(User::Root).to_string().ends_with("run: mount -t tracefs none /sys/kernel/tracing"));
        assert!(no_tracepoints(User::Other).to_string().ends_with("with sudo"));
    }
}
