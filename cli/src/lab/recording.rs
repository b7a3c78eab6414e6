//! A recording as a file: what `record` and `tune --try` have in common.

mod convert;

use std::ffi::OsStr;
use std::fs;
use std::path::Path;
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use tlbkit_host::recorder::{Available, Order, Recorder, Stacks, free_bytes};

use super::terminal::Format;
use super::watching::{LOOK_EVERY, Stopping, WatchArguments, WatchedRun, Watching};
pub(crate) use convert::Converted;

/// How often the size of the recording is looked at.
const SIZE_EVERY: Duration = Duration::from_millis(200);

/// What to record, and where.
pub(crate) struct Recording<'a> {
    pub(crate) subject: &'a WatchArguments,
    /// The file: perf's own form if it ends in .data.
    pub(crate) output: &'a Path,
    /// At most so much of what perf writes.
    pub(crate) megabytes_max: u64,
    pub(crate) available: &'a Available,
    pub(crate) format: Format,
}

/// Why a recording ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    /// The command ended, or the time was up, or somebody wanted it.
    WithSubject,
    /// There is as much of it as was allowed.
    AtLimit,
}

/// One recording, read again.
pub(crate) struct Recorded {
    pub(crate) run: WatchedRun,
    pub(crate) perf_bytes: u64,
    pub(crate) file_bytes: u64,
    /// CPU time of the recorder itself, while it recorded.
    pub(crate) cpu_seconds: f64,
    pub(crate) converted: Converted,
    pub(crate) end: End,
}

impl Recording<'_> {
    fn folder(&self) -> &Path {
        self.output.parent().filter(|path| !path.as_os_str().is_empty()).unwrap_or(Path::new("."))
    }

    /// Records it once.
    pub(crate) fn make(&self) -> Result<Recorded> {
        let keep = self.output.extension() == Some(OsStr::new("data"));
        // Beside the result: a folder for temporary files may be too small. What SIGKILL leaves is a whole perf.data.
        let parent = self.folder();
        let folder = tempfile::Builder::new().prefix("tlbkit-recording-").tempdir_in(parent);
        let folder = folder.with_context(|| parent.display().to_string())?;
        let perf_file = folder.path().join("perf.data");
        let (run, cpu_seconds, end) = self.run(&perf_file)?;
        let compact = (!keep).then_some(self.output);
        let converted = convert::convert(&perf_file, compact)?;
        let bytes = |path: &Path| fs::metadata(path).map(|data| data.len()).with_context(|| path.display().to_string());
        let perf_bytes = bytes(&perf_file)?;
        if keep {
            fs::rename(&perf_file, self.output).with_context(|| self.output.display().to_string())?;
        }
        Ok(Recorded { run, perf_bytes, file_bytes: bytes(self.output)?, cpu_seconds, converted, end })
    }

    fn run(&self, file: &Path) -> Result<(WatchedRun, f64, End)> {
        let order = Order {
            events: self.available.events.clone(),
            watched: self.subject.watched(),
            stacks: if self.subject.stacks { Stacks::Recorded } else { Stacks::Absent },
            file: Some(file),
        };
        let bytes_max = self.bytes_max()?;
        let stopping = Stopping::listen()?;
        let mut recorder = Recorder::start(&order)?;
        recorder.wait_until_ready()?;
        let to_begin = recorder.cpu_seconds().unwrap_or(0.0);
        let mut watching = Watching::start(self.subject, self.format, stopping)?;
        let mut end = End::WithSubject;
        let mut looked = Instant::now();
        while end == End::WithSubject && !watching.is_over()? && !recorder.is_over() {
            sleep(LOOK_EVERY);
            if looked.elapsed() >= SIZE_EVERY {
                // It writes what it has, or there would be little to see.
                recorder.nudge()?;
                looked = Instant::now();
            }
            if fs::metadata(file).is_ok_and(|data| data.len() > bytes_max) {
                end = End::AtLimit;
                recorder.stop();
            }
        }
        // A recorder that has ended leaves the command to its own end.
        while !self.subject.command.is_empty() && !watching.is_over()? {
            sleep(LOOK_EVERY);
        }
        let run = watching.finish()?;
        let cpu_seconds = recorder.cpu_seconds().map_or(0.0, |in_all| in_all - to_begin);
        recorder.stop();
        recorder.wait()?;
        Ok((run, cpu_seconds, end))
    }

    /// What may be used for the recording: as much as was asked for, and never the last tenth of the disk.
    fn bytes_max(&self) -> Result<u64> {
        let free = free_bytes(self.folder())?;
        Ok((self.megabytes_max * 1_000_000).min(free / 10 * 9))
    }
}
