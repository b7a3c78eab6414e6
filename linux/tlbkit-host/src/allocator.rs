//! Which allocator a program has: by the libraries that its process has mapped, or by what its file contains.
//!
//! A setting of an allocator that is not there does nothing, or does it to another part of the program. So nobody is
//! told one before it is known which allocator there is.

use std::fs::{self, File};
use std::io::Read;
use std::path::{Path, PathBuf};

use memchr::memmem::find;

/// An allocator that can be told to keep memory.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Allocator {
    /// The GNU C library's own.
    Glibc,
    /// With the name of the environment variable that it reads: builds differ.
    Jemalloc {
        /// `MALLOC_CONF`, with the prefix of the build.
        variable: String,
    },
    /// The allocator of gperftools.
    Tcmalloc,
    /// From its version 2.1 on, which has the option `purge_delay`.
    Mimalloc,
    /// Version 2.0 of mimalloc, which has the option `allow_decommit` in place of the newer one.
    OldMimalloc,
    /// The allocator of Go's runtime.
    Go,
}

/// Files longer than this are read so far.
const MOST_BYTES: u64 = 256 << 20;
/// Bytes that are looked at together: a program may be longer than all else that its reader keeps.
const PIECE_BYTES: usize = 1 << 20;
/// Bytes that two pieces have in common: a text and the prefix before it lie in one of them.
const COMMON_BYTES: usize = 64;
/// The longest prefix of a build of jemalloc that is believed.
const MOST_PREFIX: usize = 32;
const JEMALLOC: &[u8] = b"MALLOC_CONF\0";
const SHEBANG: &[u8] = b"#!";
/// Linux reads no longer first line of a script.
const MOST_LINE: u64 = 256;

impl Allocator {
    /// The allocator of a running process, by what it has mapped; none if that cannot be read or shows none of these.
    #[must_use]
    pub fn of_process(pid: i32) -> Option<Self> {
        let maps = fs::read_to_string(format!("/proc/{pid}/maps")).ok()?;
        let program = fs::read_link(format!("/proc/{pid}/exe")).ok()?;
        let files = maps.lines().filter_map(|line| line.split_whitespace().nth(5)).map(Path::new);
        Self::of_libraries(files).unwrap_or_else(|| Self::of_file(&program))
    }

    /// By the libraries among the files that a process has mapped; none if none of them is an allocator. What was put
    /// before a program's own libraries rules over them. An allocator that cannot be told anything is none inside.
    pub fn of_libraries<'a>(files: impl Iterator<Item = &'a Path>) -> Option<Option<Self>> {
        let is_one = |file: &Path| {
            let name = file.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
            ["libjemalloc", "libtcmalloc", "libmimalloc"].iter().any(|library| name.starts_with(library))
        };
        let library = files.into_iter().find(|file| is_one(file))?;
        Some(open(library).and_then(|file| Signs::of(file)?.of_library()))
    }

    /// The allocator of a program's file, or of its interpreter if it is a script; none if it shows none of these.
    #[must_use]
    pub fn of_file(program: &Path) -> Option<Self> {
        match interpreter(program)? {
            // An interpreter is no script, or this might never end.
            Some(interpreter) if self::interpreter(&interpreter)?.is_some() => None,
            Some(interpreter) => Signs::of(open(&interpreter)?)?.of_program(),
            None => Signs::of(open(program)?)?.of_program(),
        }
    }

    /// What people call it.
    #[must_use]
    pub const fn label(&self) -> &'static str {
        match self {
            Self::Glibc => "glibc",
            Self::Jemalloc { .. } => "jemalloc",
            Self::Tcmalloc => "tcmalloc",
            Self::Mimalloc | Self::OldMimalloc => "mimalloc",
            Self::Go => "Go",
        }
    }
}

/// What in a file tells of allocators.
#[derive(Default)]
struct Signs {
    /// Which of the [`TEXTS`] it contains.
    has: [bool; TEXTS.len()],
    /// The variable that a jemalloc in it reads.
    jemalloc: Option<String>,
}

const GO: usize = 0;
const TCMALLOC: usize = 1;
const MIMALLOC: usize = 2;
const PURGE_DELAY: usize = 3;
const ALLOW_DECOMMIT: usize = 4;
const USES_JEMALLOC: usize = 5;
const USES_TCMALLOC: usize = 6;
const USES_MIMALLOC: usize = 7;
const USES_GLIBC: usize = 8;

/// By the numbers above. The last four are names of libraries that are loaded with it.
const TEXTS: [&[u8]; 9] = [
    b"\xff Go buildinf:",
    b"TCMALLOC_DISABLE_MEMORY_RELEASE\0",
    b"mimalloc",
    b"purge_delay\0",
    b"allow_decommit\0",
    b"libjemalloc.so",
    b"libtcmalloc",
    b"libmimalloc.so",
    b"libc.so.6\0",
];

impl Signs {
    /// Reads to the end, piece by piece; none if that fails.
    fn of(mut reader: impl Read) -> Option<Self> {
        let (mut signs, mut piece) = (Self::default(), Vec::new());
        loop {
            let common = piece.len().min(COMMON_BYTES);
            piece.drain(..piece.len() - common);
            if reader.by_ref().take(PIECE_BYTES as u64).read_to_end(&mut piece).ok()? == 0 {
                return Some(signs);
            }
            signs.look(&piece);
        }
    }

    fn look(&mut self, bytes: &[u8]) {
        for (has, text) in self.has.iter_mut().zip(TEXTS) {
            *has = *has || find(bytes, text).is_some();
        }
        if let (None, Some(at)) = (&self.jemalloc, find(bytes, JEMALLOC)) {
            let is_name = |byte: &u8| byte.is_ascii_uppercase() || *byte == b'_';
            let prefix = bytes[..at].iter().rev().take(MOST_PREFIX).take_while(|byte| is_name(byte)).count();
            let variable = &bytes[at - prefix..at + JEMALLOC.len() - 1];
            self.jemalloc = Some(String::from_utf8_lossy(variable).into_owned());
        }
    }

    fn of_program(&self) -> Option<Allocator> {
        if self.has[GO] {
            return Some(Allocator::Go);
        }
        if let Some(found) = self.of_library() {
            return Some(found);
        }
        if self.has[USES_JEMALLOC] {
            return Some(Allocator::Jemalloc { variable: "MALLOC_CONF".into() });
        }
        if self.has[USES_TCMALLOC] {
            return Some(Allocator::Tcmalloc);
        }
        // Which version it is, only the library itself tells.
        if self.has[USES_MIMALLOC] {
            return None;
        }
        self.has[USES_GLIBC].then_some(Allocator::Glibc)
    }

    /// The allocator that is a library, or is linked into the program.
    fn of_library(&self) -> Option<Allocator> {
        if let Some(variable) = self.jemalloc.clone() {
            return Some(Allocator::Jemalloc { variable });
        }
        if self.has[TCMALLOC] {
            return Some(Allocator::Tcmalloc);
        }
        if !self.has[MIMALLOC] {
            return None;
        }
        // The newer versions may know the older option's name as well.
        if self.has[PURGE_DELAY] {
            return Some(Allocator::Mimalloc);
        }
        self.has[ALLOW_DECOMMIT].then_some(Allocator::OldMimalloc)
    }
}

fn open(path: &Path) -> Option<impl Read> {
    let file = File::open(path).ok().filter(|file| file.metadata().is_ok_and(|data| data.is_file()))?;
    Some(file.take(MOST_BYTES))
}

/// What runs a file, if that is a script; none at all if it cannot be read, or its first line makes no sense.
fn interpreter(path: &Path) -> Option<Option<PathBuf>> {
    let mut begin = Vec::new();
    open(path)?.take(MOST_LINE).read_to_end(&mut begin).ok()?;
    let Some(rest) = begin.strip_prefix(SHEBANG) else { return Some(None) };
    let line = str::from_utf8(rest.split(|&byte| byte == b'\n').next()?).ok()?;
    line.split_whitespace().next().map(|word| Some(PathBuf::from(word)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_allocator_is_known_by_what_a_file_contains() {
        let of = |text: &str| Signs::of(text.as_bytes())?.of_program();
        let jemalloc = |variable: &str| Some(Allocator::Jemalloc { variable: variable.into() });
        assert_eq!(of("\0libc.so.6\0libm.so.6\0"), Some(Allocator::Glibc));
        assert_eq!(of("\0libc.so.6\0\0JE_MALLOC_CONF\0"), jemalloc("JE_MALLOC_CONF"));
        assert_eq!(of("\0_RJEM_MALLOC_CONF\0libc.so.6\0"), jemalloc("_RJEM_MALLOC_CONF"));
        assert_eq!(of("\0libjemalloc.so.2\0libc.so.6\0"), jemalloc("MALLOC_CONF"));
        assert_eq!(of("\0libc.so.6\0TCMALLOC_DISABLE_MEMORY_RELEASE\0"), Some(Allocator::Tcmalloc));
        assert_eq!(of("mimalloc: \0purge_delay\0libc.so.6\0"), Some(Allocator::Mimalloc));
        assert_eq!(of("mimalloc: \0allow_decommit\0purge_delay\0"), Some(Allocator::Mimalloc));
        assert_eq!(of("mimalloc: \0allow_decommit\0libc.so.6\0"), Some(Allocator::OldMimalloc));
        assert_eq!(of("libmimalloc.so.2\0libc.so.6\0"), None, "an old version has another option");
        assert_eq!(of("a static program"), None);
        let go = [b"\xff Go buildinf:".as_slice(), b"libc.so.6\0"].concat();
        assert_eq!(Signs::of(go.as_slice()).unwrap().of_program(), Some(Allocator::Go));
    }

    #[test]
    fn what_lies_across_two_pieces_is_seen() {
        for before in PIECE_BYTES - 40..PIECE_BYTES + 40 {
            let text = [vec![0; before], b"\0_RJEM_MALLOC_CONF\0".to_vec()].concat();
            let found = Signs::of(text.as_slice()).unwrap().of_program();
            assert_eq!(found, Some(Allocator::Jemalloc { variable: "_RJEM_MALLOC_CONF".into() }), "{before}");
        }
    }

    #[test]
    fn this_test_and_a_shell_s_script_have_glibc_s() {
        let program = std::env::current_exe().unwrap();
        if !fs::read(&program).unwrap().windows(10).any(|part| part == b"libc.so.6\0") {
            return println!("skipped: built without glibc");
        }
        let folder = tempfile::tempdir().unwrap();
        let script = folder.path().join("a.sh");
        fs::write(&script, "#!/bin/sh -e\nls\n").unwrap();
        assert_eq!(Allocator::of_file(&script), Some(Allocator::Glibc));
        assert_eq!(Allocator::of_file(folder.path()), None, "a folder is no program");
        assert_eq!(Allocator::of_process(i32::MAX), None);
        // The names of the others stand in this test's own file.
        let child = std::process::Command::new("sleep").arg("3600").spawn();
        let Ok(mut child) = child else { return println!("skipped: no program sleep") };
        let started = std::time::Instant::now();
        // Until its exec it is this program once more.
        let is_other = || fs::read_link(format!("/proc/{}/exe", child.id())).is_ok_and(|path| path != program);
        while !is_other() && started.elapsed().as_secs() < 300 {
            std::thread::yield_now();
        }
        let found = Allocator::of_process(child.id().cast_signed());
        child.kill().unwrap();
        child.wait().unwrap();
        assert_eq!(found, Some(Allocator::Glibc));
    }
}
