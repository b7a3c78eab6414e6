//! What is changed of the machine while a command is tried, written down before it is changed.
//!
//! Whatever ends the program, what it set is in the journal until it is put back: the next one reads it. The file lies
//! where a boot empties it, and a boot puts the kernel's settings back as well.

use std::fs::{self, File, OpenOptions};
use std::path::{Path, PathBuf};
use std::thread::sleep;
use std::time::{Duration, Instant};

use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;

use super::knob;
use crate::error::{Error, Result};

const FOLDER: &str = "run";
const FILE: &str = "tlbkit-try.journal";
const LOCK: &str = "tlbkit-try.lock";
/// How often to look whether the right has been given back.
const LOOK_EVERY: Duration = Duration::from_millis(20);

/// A setting of the machine, as it was and as it is being tried.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Entry {
    /// The file.
    pub path: PathBuf,
    /// What it said before.
    pub before: String,
    /// What it says during the trial.
    pub during: String,
}

/// What became of a setting that was to be put back.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Restored {
    /// The setting has been put back.
    PutBack(Entry),
    /// The setting was back already.
    AlreadyBack(Entry),
    /// Somebody has set it to something else meanwhile, which stays.
    LeftAlone {
        /// What was written down.
        entry: Entry,
        /// What it says now.
        now: String,
    },
}

/// The right to change the machine below a root: one process has it at a time, and its end gives it back.
#[derive(Debug)]
pub struct Journal {
    file: PathBuf,
    _lock: File,
}

impl Journal {
    /// Takes the right.
    ///
    /// # Errors
    /// If another process has it, or the journal's folder cannot be written.
    pub fn open(root: &Path) -> Result<Self> {
        let folder = root.join(FOLDER);
        let lock_path = folder.join(LOCK);
        let opened = OpenOptions::new().create(true).truncate(false).write(true).open(&lock_path);
        let lock = opened.map_err(Error::knob(&lock_path, "written, and nothing is changed without a journal"))?;
        match flock(&lock, FlockOperation::NonBlockingLockExclusive) {
            Err(Errno::WOULDBLOCK) => return Err(Error::AnotherTrial { lock: lock_path }),
            locked => locked.map_err(|error| Error::knob(&lock_path, "locked")(error.into()))?,
        }
        Ok(Self { file: folder.join(FILE), _lock: lock })
    }

    /// The same, if the one that has it gives it back in this time. What a kernel tells others of a process that is
    /// killed comes in no order: the end of its pipes may be seen before its locks are gone.
    ///
    /// # Errors
    /// If another process keeps it, or the journal's folder cannot be written.
    pub fn open_within(root: &Path, patience: Duration) -> Result<Self> {
        let started = Instant::now();
        loop {
            match Self::open(root) {
                Err(Error::AnotherTrial { .. }) if started.elapsed() < patience => sleep(LOOK_EVERY),
                opened => return opened,
            }
        }
    }

    /// Whether a journal was left below `root`.
    #[must_use]
    pub fn is_left(root: &Path) -> bool {
        root.join(FOLDER).join(FILE).exists()
    }

    /// Writes down what is about to be changed.
    pub(super) fn write(&self, entries: &[Entry]) -> Result<()> {
        let line = |Entry { path, before, during }: &Entry| format!("{}\t{before}\t{during}\n", path.display());
        let text: String = entries.iter().map(line).collect();
        let part = self.file.with_extension("part");
        let written = fs::write(&part, text).and_then(|()| fs::rename(&part, &self.file));
        written.map_err(Error::knob(&self.file, "written, and nothing is changed without a journal"))
    }

    /// Puts back what the journal names, and forgets it.
    ///
    /// # Errors
    /// If the journal cannot be read, or a setting cannot be written; then the journal stays, and all others are put
    /// back.
    pub fn restore(&self) -> Result<Vec<Restored>> {
        let text = match fs::read_to_string(&self.file) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
            text => text.map_err(Error::knob(&self.file, "read"))?,
        };
        // All are tried before the first error is told.
        let lines = text.lines().enumerate();
        let entries = lines.map(|(n, line)| entry(line).ok_or_else(|| self.unreadable(n + 1)));
        let tried: Vec<_> = entries.map(|entry| entry.and_then(put_back)).collect();
        let restored = tried.into_iter().collect::<Result<Vec<_>>>()?;
        fs::remove_file(&self.file).map_err(Error::knob(&self.file, "removed"))?;
        Ok(restored)
    }

    fn unreadable(&self, line: usize) -> Error {
        Error::JournalLine { journal: self.file.clone(), line }
    }
}

/// A line of the journal: path, value before and value during the trial.
fn entry(line: &str) -> Option<Entry> {
    let mut parts = line.split('\t');
    let (path, before, during) = (parts.next()?, parts.next()?, parts.next()?);
    Some(Entry { path: path.into(), before: before.to_owned(), during: during.to_owned() })
}

fn put_back(entry: Entry) -> Result<Restored> {
    let now = knob::value(&entry.path)?;
    if now == entry.before {
        return Ok(Restored::AlreadyBack(entry));
    }
    if now != entry.during {
        return Ok(Restored::LeftAlone { entry, now });
    }
    knob::set(&entry.path, &entry.before)?;
    Ok(Restored::PutBack(entry))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A root with one setting that says `now`.
    fn root(now: &str) -> (tempfile::TempDir, Entry) {
        let root = tempfile::tempdir().unwrap();
        fs::create_dir(root.path().join(FOLDER)).unwrap();
        let path = root.path().join("ceiling");
        fs::write(&path, now).unwrap();
        (root, Entry { path, before: "33".to_owned(), during: "9".to_owned() })
    }

    #[test]
    fn what_a_journal_names_is_put_back_once() {
        let (root, entry) = root("9\n");
        let journal = Journal::open(root.path()).unwrap();
        journal.write(std::slice::from_ref(&entry)).unwrap();
        assert!(Journal::is_left(root.path()));
        assert_eq!(journal.restore().unwrap(), [Restored::PutBack(entry.clone())]);
        assert_eq!(fs::read_to_string(&entry.path).unwrap(), "33");
        assert!(!Journal::is_left(root.path()) && journal.restore().unwrap().is_empty());
    }

    #[test]
    fn what_somebody_else_has_set_meanwhile_stays() {
        let (root, entry) = root("50\n");
        let journal = Journal::open(root.path()).unwrap();
        journal.write(std::slice::from_ref(&entry)).unwrap();
        let now = "50".to_owned();
        assert_eq!(journal.restore().unwrap(), [Restored::LeftAlone { entry: entry.clone(), now }]);
        assert_eq!(fs::read_to_string(&entry.path).unwrap(), "50\n");
    }

    #[test]
    fn one_process_at_a_time_may_change_the_machine() {
        let (root, _) = root("33");
        let first = Journal::open(root.path()).unwrap();
        let error = Journal::open(root.path()).unwrap_err().to_string();
        assert!(error.starts_with("another trial is changing this machine"), "{error}");
        drop(first);
        Journal::open(root.path()).unwrap();
    }

    #[test]
    fn who_waits_for_the_right_gets_it_when_it_is_given_back() {
        let (root, _) = root("33");
        let first = Journal::open(root.path()).unwrap();
        let soon = Journal::open_within(root.path(), Duration::from_millis(50)).unwrap_err().to_string();
        assert!(soon.starts_with("another trial is changing this machine"), "{soon}");
        std::thread::scope(|scope| {
            let second = scope.spawn(|| Journal::open_within(root.path(), Duration::from_secs(60)).map(drop));
            sleep(Duration::from_millis(200));
            drop(first);
            second.join().unwrap().unwrap();
        });
    }

    #[test]
    fn a_setting_that_cannot_be_put_back_stays_in_the_journal() {
        let (root, entry) = root("9");
        let journal = Journal::open(root.path()).unwrap();
        journal.write(std::slice::from_ref(&entry)).unwrap();
        fs::remove_file(&entry.path).unwrap();
        assert!(journal.restore().is_err() && Journal::is_left(root.path()));
    }

    #[test]
    fn a_journal_that_somebody_damaged_stays_and_what_can_be_read_of_it_is_put_back() {
        let (root, entry) = root("9");
        let journal = Journal::open(root.path()).unwrap();
        journal.write(std::slice::from_ref(&entry)).unwrap();
        let file = root.path().join(FOLDER).join(FILE);
        fs::write(&file, format!("/sys/kernel/no-value\n{}", fs::read_to_string(&file).unwrap())).unwrap();
        let error = journal.restore().unwrap_err().to_string();
        assert!(error.contains("tlbkit-try.journal, line 1: ") && Journal::is_left(root.path()), "{error}");
        assert_eq!(fs::read_to_string(&entry.path).unwrap(), "33");
    }

    #[test]
    fn one_that_cannot_be_put_back_keeps_no_other_from_it() {
        let (root, entry) = root("9");
        let gone = Entry { path: root.path().join("gone"), ..entry.clone() };
        let journal = Journal::open(root.path()).unwrap();
        journal.write(&[gone, entry.clone()]).unwrap();
        let error = journal.restore().unwrap_err().to_string();
        assert!(error.ends_with("gone: cannot be read") && Journal::is_left(root.path()), "{error}");
        assert_eq!(fs::read_to_string(&entry.path).unwrap(), "33");
    }
}
