//! A recording as a file: what `record` and `explain --live` have in common.

mod gaps;

use std::ffi::OsStr;
use std::fs;
use std::path::Path;
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use tlbkit_host::recorder::{Available, Order, Recorder, Stacks, free_bytes};
use tlbkit_output::note;
use tlbkit_trace::{CompactWriter, Health, Summary, open};

use crate::verdict::Made;
use crate::watching::{LOOK_EVERY, WatchArguments, WatchedRun, Watching};
pub(crate) use gaps::Gaps;
use tlbkit_output::file::{Old, WholeFile, place_of};
use tlbkit_output::stopping::Stopping;
use tlbkit_output::terminal::Format;

/// What perf may write, unless somebody says otherwise.
pub(crate) const MEGABYTES_MAX: u64 = 1000;
/// How often the size of the recording is looked at.
const SIZE_EVERY: Duration = Duration::from_millis(200);

/// What to record, and where.
pub(crate) struct Recording<'a> {
    pub(crate) subject: &'a WatchArguments,
    /// The file: perf's own form if it ends in .data.
    pub(crate) output: &'a Path,
    /// How much perf may write at most.
    pub(crate) megabytes_max: u64,
    pub(crate) available: &'a Available,
    pub(crate) format: Format,
}

/// One recording, read again.
pub(crate) struct Recorded {
    pub(crate) run: WatchedRun,
    pub(crate) perf_bytes: u64,
    pub(crate) file_bytes: u64,
    /// CPU time of the recorder itself, while it recorded.
    pub(crate) cpu_seconds: f64,
    /// What it added for an event, from the cheapest kind to the dearest, in microseconds of CPU time.
    pub(crate) event_us: [f64; 2],
    pub(crate) converted: Converted,
    pub(crate) end: End,
}

impl Recorded {
    /// How it was made.
    pub(crate) fn made(&self) -> Made {
        Made { event_us: self.event_us, cpu_seconds: self.run.cpu_seconds }
    }
}

impl Recording<'_> {
    fn folder(&self) -> &Path {
        self.output.parent().filter(|path| !path.as_os_str().is_empty()).unwrap_or(Path::new("."))
    }

    /// Records it once, in the place of what is there.
    pub(crate) fn make(&self) -> Result<Recorded> {
        self.make_over(Old::Replaced)
    }

    /// Records it once, and says what becomes of a recording that is there.
    pub(crate) fn make_over(&self, old: Old) -> Result<Recorded> {
        let keep = self.output.extension() == Some(OsStr::new("data"));
        // Beside the result: a folder for temporary files may be too small. What SIGKILL leaves is a whole perf.data.
        let parent = self.folder();
        let folder = tempfile::Builder::new().prefix("tlbkit-recording-").tempdir_in(parent);
        let folder = folder.with_context(|| parent.display().to_string())?;
        let perf_file = folder.path().join("perf.data");
        let (run, cpu_seconds, event_us, end) = self.run(&perf_file)?;
        let compact = (!keep).then_some(self.output);
        let converted = convert(&perf_file, compact, old)?;
        let bytes = |path: &Path| fs::metadata(path).map(|data| data.len()).with_context(|| path.display().to_string());
        let perf_bytes = bytes(&perf_file)?;
        if keep {
            let place = place_of(self.output);
            old.make_room(&place)?;
            fs::rename(&perf_file, place).with_context(|| self.output.display().to_string())?;
        }
        Ok(Recorded { run, perf_bytes, file_bytes: bytes(self.output)?, cpu_seconds, event_us, converted, end })
    }

    fn run(&self, file: &Path) -> Result<(WatchedRun, f64, [f64; 2], End)> {
        let order = Order {
            events: self.available.events.clone(),
            watched: self.subject.watched(),
            stacks: Stacks::Recorded,
            file: Some(file),
        };
        let place = Place::new(file, self.folder(), self.megabytes_max)?;
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
                // It must write what it has buffered, or the size would say little.
                recorder.nudge()?;
                looked = Instant::now();
            }
            if let Some(full) = place.is_full()? {
                end = full;
                recorder.stop();
                note!("tlbscope: {}; the command runs on", full.words(place.bytes()));
            }
        }
        // A recorder that has ended leaves the command to its own end.
        while !self.subject.command.is_empty() && !watching.is_over()? {
            sleep(LOOK_EVERY);
        }
        let run = watching.finish()?;
        let cpu_seconds = recorder.cpu_seconds().map_or(0.0, |in_all| in_all - to_begin);
        let event_us = recorder.event_us();
        recorder.stop();
        recorder.wait().with_context(|| format!("{}: nothing of the recording can be kept", self.output.display()))?;
        Ok((run, cpu_seconds, event_us, end))
    }
}

/// What is in a recording.
pub(crate) struct Converted {
    pub(crate) summary: Summary,
    pub(crate) health: Health,
}

/// What perf wrote, read once: counted, and written again in the compact form.
///
/// Reads `perf_file` and writes `compact`, if that is wanted, in the place of an `old` one.
fn convert(perf_file: &Path, compact: Option<&Path>, old: Old) -> Result<Converted> {
    let in_input = || perf_file.display().to_string();
    let in_output = || compact.map_or_else(String::new, |path| format!("cannot write {}", path.display()));
    let mut source = open(perf_file).with_context(in_input)?;
    let mut writer = compact.map(create).transpose()?;
    let mut summary = Summary::default();
    while let Some(event) = source.next_event().with_context(in_input)? {
        summary.add(&event);
        if let Some(writer) = &mut writer {
            writer.add(&event, source.names()).with_context(in_output)?;
        }
    }
    if let Some(writer) = writer {
        writer.finish(source.health()).with_context(in_output)?.finish_over(old)?;
    }
    Ok(Converted { summary, health: source.health().clone() })
}

fn create(path: &Path) -> Result<CompactWriter<WholeFile>> {
    CompactWriter::new(WholeFile::begin(path)?).with_context(|| format!("cannot write {}", path.display()))
}

/// What stays free on a disk: more than perf has still to write when it is asked to end, some 200 ms of events.
const RESERVE_BYTES: u64 = 32_000_000;

/// Why a recording ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    /// The command ended, or the time was up, or somebody wanted it.
    WithSubject,
    /// There is as much of it as was allowed.
    AtLimit,
    /// The disk is nearly full.
    AtFullDisk,
}

impl End {
    /// Why it ended, for one who waits for the command, when perf had written so many bytes.
    fn words(self, bytes: u64) -> String {
        match self {
            Self::WithSubject => "the recording has ended".to_owned(),
            Self::AtLimit => format!("the recording has ended at its limit, {bytes} bytes of perf.data"),
            Self::AtFullDisk => "the recording has ended, as the disk is nearly full".to_owned(),
        }
    }
}

/// The space on a disk that a recording may take: how much of it is taken, and when the recording must end.
///
/// A file that grows, and its disk.
struct Place<'a> {
    file: &'a Path,
    folder: &'a Path,
    bytes_max: u64,
    reserve_bytes: u64,
}

impl<'a> Place<'a> {
    /// A recording of at most `megabytes_max`, which never takes the last tenth of what is free now. What stays free is
    /// watched too, as other programs may fill the disk as well.
    fn new(file: &'a Path, folder: &'a Path, megabytes_max: u64) -> Result<Self> {
        let free = free_bytes(folder)?;
        let bytes_max = (megabytes_max * 1_000_000).min(free / 10 * 9);
        Ok(Self { file, folder, bytes_max, reserve_bytes: RESERVE_BYTES.min(free / 10) })
    }

    /// What has been written.
    fn bytes(&self) -> u64 {
        fs::metadata(self.file).map_or(0, |data| data.len())
    }

    /// Why no more may be written; none if it may.
    fn is_full(&self) -> Result<Option<End>> {
        if self.bytes() > self.bytes_max {
            return Ok(Some(End::AtLimit));
        }
        Ok((free_bytes(self.folder)? < self.reserve_bytes).then_some(End::AtFullDisk))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_at_its_limit_and_a_disk_without_reserve_are_told_apart() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("grows");
        let mut place = Place::new(&file, folder.path(), 1).unwrap();
        assert_eq!((place.bytes(), place.is_full().unwrap()), (0, None));
        fs::write(&file, vec![0; 1_000_001]).unwrap();
        assert_eq!((place.bytes(), place.is_full().unwrap()), (1_000_001, Some(End::AtLimit)));
        fs::write(&file, "").unwrap();
        place.reserve_bytes = u64::MAX;
        assert_eq!(place.is_full().unwrap(), Some(End::AtFullDisk));
    }
}
