//! Files that are never seen half written: a reader finds the old file or the whole new one.

use std::fs::{self, File, OpenOptions, Permissions};
use std::io::{self, BufWriter, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use tempfile::{Builder, NamedTempFile};

use super::kind::Kind;

/// What a new file may be used for, less what the umask of the user forbids.
const NEW_FILE: u32 = 0o666;

/// Refuses a file that could not be put in its place: asked before the long work whose result goes there.
pub fn check_place(file: &Path) -> Result<()> {
    ensure!(!file.is_dir(), "{}: is a folder, and must be a file", file.display());
    // Dropped at once, and with it what was made beside the place.
    WholeFile::begin(file).map(drop)
}

/// Refuses a file that could not be put in its place, or that would replace a file of another kind.
pub fn check_output(file: &Path, kind: Kind) -> Result<()> {
    check_place(file)?;
    kind.check(file)
}

/// Refuses a file that is there and may not be replaced.
pub fn check_absent(file: &Path) -> Result<()> {
    ensure!(!file.is_file(), "{}: is there already; --force replaces it", file.display());
    Ok(())
}

/// A file that appears under its name when it is [`finish`](Self::finish)ed. A reader meanwhile, and one who
/// finds what was left by a signal or a full disk, has the old file or none.
///
/// Where something stands that is no plain file, such as a pipe or `/dev/null`, it is written as it is.
pub struct WholeFile {
    path: PathBuf,
    writer: BufWriter<Target>,
}

enum Target {
    /// A file without a lasting name, in the folder of the real one.
    Beside {
        file: NamedTempFile,
        place: PathBuf,
    },
    Itself(File),
}

impl WholeFile {
    /// Begins it.
    pub fn begin(path: &Path) -> Result<Self> {
        let name = || format!("cannot write {}", path.display());
        let is_special = fs::metadata(path).is_ok_and(|data| !data.is_file());
        let target = if is_special {
            Target::Itself(OpenOptions::new().write(true).open(path).with_context(name)?)
        } else {
            let place = place_of(path);
            let folder = place.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
            let mut builder = Builder::new();
            builder.prefix(".tlbkit-").suffix(".part").permissions(Permissions::from_mode(NEW_FILE));
            Target::Beside {
                file: builder.tempfile_in(folder).map_err(|error| unnamed(&error)).with_context(name)?,
                place,
            }
        };
        Ok(Self { path: path.to_owned(), writer: BufWriter::new(target) })
    }

    /// Puts it in its place.
    pub fn finish(self) -> Result<()> {
        self.finish_over(Old::Replaced)
    }

    /// Puts it in its place; `old` says what becomes of the file that is there.
    pub fn finish_over(self, old: Old) -> Result<()> {
        let name = || format!("cannot write {}", self.path.display());
        match self.writer.into_inner().map_err(io::IntoInnerError::into_error).with_context(name)? {
            Target::Beside { file, place } => {
                old.make_room(&place)?;
                file.persist(place).map(drop).with_context(name)
            }
            Target::Itself(_) => Ok(()),
        }
    }
}

/// What becomes of the file in whose place a new one is put.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Old {
    /// The old file is gone.
    Replaced,
    /// The old file has the name that [`aside`] gives.
    SetAside,
}

impl Old {
    /// Does that with a file that is there.
    pub fn make_room(self, place: &Path) -> Result<()> {
        if self == Self::Replaced || !has_something(place) {
            return Ok(());
        }
        let aside = aside(place);
        fs::rename(place, &aside).with_context(|| format!("cannot move {} to {}", place.display(), aside.display()))
    }
}

/// Whether there is a plain file that is not empty.
pub fn has_something(file: &Path) -> bool {
    fs::metadata(file).is_ok_and(|data| data.is_file() && data.len() > 0)
}

/// Where a file is put: a link keeps its name, and what it leads to is replaced.
pub fn place_of(path: &Path) -> PathBuf {
    let end = if path.is_symlink() { fs::canonicalize(path).ok() } else { None };
    end.unwrap_or_else(|| path.to_owned())
}

/// What a file is called that is set aside for a new one.
pub fn aside(file: &Path) -> PathBuf {
    let mut name = place_of(file).into_os_string();
    name.push(".old");
    name.into()
}

/// The system's answer without the name of the file beside the real one, which nobody asked for.
fn unnamed(error: &io::Error) -> io::Error {
    let words = error.to_string();
    let answer = words.split_once(" at path ").map_or(words.as_str(), |(answer, _)| answer);
    io::Error::new(error.kind(), answer)
}

impl Write for WholeFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.writer.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.writer.flush()
    }
}

impl Write for Target {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Self::Beside { file, .. } => file.write(bytes).map_err(|error| unnamed(&error)),
            Self::Itself(file) => file.write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match self {
            Self::Beside { file, .. } => file.flush().map_err(|error| unnamed(&error)),
            Self::Itself(file) => file.flush(),
        }
    }
}

/// Writes `text` as the file at `path`, whole or not at all.
pub fn write_whole(path: &Path, text: &str) -> Result<()> {
    let mut file = WholeFile::begin(path)?;
    file.write_all(text.as_bytes()).with_context(|| format!("cannot write {}", path.display()))?;
    file.finish()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(folder: &Path) -> Vec<String> {
        fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
    }

    #[test]
    fn the_file_is_put_in_place_and_nothing_is_left_beside_it() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("a.html");
        write_whole(&file, "old").unwrap();
        write_whole(&file, "whole").unwrap();
        assert_eq!(names(folder.path()), ["a.html"]);
        assert_eq!(fs::read_to_string(&file).unwrap(), "whole");
        let plain = File::create(folder.path().join("plain")).unwrap().metadata().unwrap().permissions();
        assert_eq!(fs::metadata(&file).unwrap().permissions(), plain);
    }

    #[test]
    fn what_is_not_finished_leaves_the_old_file() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("a.json");
        write_whole(&file, "old").unwrap();
        WholeFile::begin(&file).unwrap().write_all(b"half").unwrap();
        check_place(&file).unwrap();
        assert_eq!(names(folder.path()), ["a.json"]);
        assert_eq!(fs::read_to_string(&file).unwrap(), "old");
    }

    /// A file that can only be read stands for a disk that became full.
    #[test]
    fn what_cannot_be_written_is_called_by_the_name_that_was_given() {
        let folder = tempfile::tempdir().unwrap();
        let beside = NamedTempFile::new_in(folder.path()).unwrap().into_temp_path();
        let file = NamedTempFile::from_parts(File::open(&beside).unwrap(), beside);
        let target = Target::Beside { file, place: folder.path().join("a.json") };
        let mut whole = WholeFile { path: "a.json".into(), writer: BufWriter::new(target) };
        whole.write_all(b"new").unwrap();
        let error = format!("{:#}", whole.finish().unwrap_err());
        assert_eq!(error, "cannot write a.json: Bad file descriptor (os error 9)");
    }

    #[test]
    fn what_is_set_aside_is_found_under_its_name() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("a.tlbtrace");
        for text in ["first", "second", "third"] {
            let mut whole = WholeFile::begin(&file).unwrap();
            whole.write_all(text.as_bytes()).unwrap();
            whole.finish_over(Old::SetAside).unwrap();
        }
        assert_eq!([file.clone(), aside(&file)].map(|file| fs::read_to_string(file).unwrap()), ["third", "second"]);
        assert_eq!(names(folder.path()).len(), 2);
    }

    #[test]
    fn a_device_stays_a_device_and_a_link_a_link() {
        write_whole(Path::new("/dev/null"), "gone").unwrap();
        assert!(!fs::metadata("/dev/null").unwrap().is_file());
        let error = format!("{:#}", write_whole(Path::new("/dev/full"), "too much").unwrap_err());
        assert!(error.starts_with("cannot write /dev/full: "), "{error}");

        let folder = tempfile::tempdir().unwrap();
        let (file, link) = (folder.path().join("file"), folder.path().join("link"));
        fs::write(&file, "old").unwrap();
        std::os::unix::fs::symlink(&file, &link).unwrap();
        write_whole(&link, "new").unwrap();
        assert!(fs::symlink_metadata(&link).unwrap().is_symlink());
        assert_eq!(fs::read_to_string(&file).unwrap(), "new");
    }

    #[test]
    fn a_place_that_cannot_be_written_is_named_before_the_work() {
        let missing = format!("{:#}", check_place(Path::new("/nowhere/a.html")).unwrap_err());
        assert_eq!(missing, "cannot write /nowhere/a.html: No such file or directory (os error 2)");
        // Nobody may make files there, not even root.
        let forbidden = format!("{:#}", check_place(Path::new("/proc/a.html")).unwrap_err());
        assert!(forbidden.starts_with("cannot write /proc/a.html: "), "{forbidden}");
        assert!(check_place(&std::env::temp_dir()).unwrap_err().to_string().ends_with("must be a file"));
    }
}
