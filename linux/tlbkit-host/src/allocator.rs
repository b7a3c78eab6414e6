//! Which allocator a program has: by the libraries that its process has mapped, or by what its file contains.
//!
//! A setting of an allocator that is not there does nothing, or does it to another part of the program. So nobody is
//! told one before it is known which allocator there is.

use std::fs::{self, File};
use std::io::Read;
use std::path::Path;

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
    /// Of gperftools.
    Tcmalloc,
    /// From its version 2.1 on, which has the option `purge_delay`.
    Mimalloc,
    /// Of Go's runtime.
    Go,
}

/// Files longer than this are read so far.
const MOST_BYTES: u64 = 256 << 20;
/// The longest prefix of a build of jemalloc that is believed.
const MOST_PREFIX: usize = 32;
const JEMALLOC: &[u8] = b"MALLOC_CONF\0";
const SHEBANG: &[u8] = b"#!";

impl Allocator {
    /// Of a running process, by what it has mapped; none if that is not told, or it has none of these.
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
        Some(read(library).and_then(|bytes| Self::of_library(&bytes)))
    }

    /// Of a program's file, or of what runs it if it is a script; none if it has none of these.
    #[must_use]
    pub fn of_file(program: &Path) -> Option<Self> {
        let bytes = read(program)?;
        match bytes.strip_prefix(SHEBANG) {
            Some(rest) => {
                let line = rest.split(|&byte| byte == b'\n').next()?;
                let mut words = std::str::from_utf8(line).ok()?.split_whitespace();
                // An interpreter is no script, or this might never end.
                Self::of_bytes(&read(Path::new(words.next()?)).filter(|bytes| !bytes.starts_with(SHEBANG))?)
            }
            None => Self::of_bytes(&bytes),
        }
    }

    fn of_bytes(bytes: &[u8]) -> Option<Self> {
        let has = |text: &[u8]| find(bytes, text).is_some();
        if has(b"\xff Go buildinf:") {
            return Some(Self::Go);
        }
        if let Some(found) = Self::of_library(bytes) {
            return Some(found);
        }
        // Names of libraries that are loaded with it.
        if has(b"libjemalloc.so") {
            return Some(Self::Jemalloc { variable: "MALLOC_CONF".into() });
        }
        if has(b"libtcmalloc") {
            return Some(Self::Tcmalloc);
        }
        // Which version it is, only the library itself tells.
        if has(b"libmimalloc.so") {
            return None;
        }
        has(b"libc.so.6\0").then_some(Self::Glibc)
    }

    /// Of a library, or of a program that has it built in.
    fn of_library(bytes: &[u8]) -> Option<Self> {
        if let Some(at) = find(bytes, JEMALLOC) {
            let is_name = |byte: &u8| byte.is_ascii_uppercase() || *byte == b'_';
            let prefix = bytes[..at].iter().rev().take(MOST_PREFIX).take_while(|byte| is_name(byte)).count();
            let variable = &bytes[at - prefix..at + JEMALLOC.len() - 1];
            return Some(Self::Jemalloc { variable: String::from_utf8_lossy(variable).into_owned() });
        }
        if find(bytes, b"TCMALLOC_RELEASE_RATE\0").is_some() {
            return Some(Self::Tcmalloc);
        }
        let is_mimalloc = find(bytes, b"mimalloc").is_some() && find(bytes, b"purge_delay\0").is_some();
        is_mimalloc.then_some(Self::Mimalloc)
    }

    /// What people call it.
    #[must_use]
    pub const fn label(&self) -> &'static str {
        match self {
            Self::Glibc => "glibc",
            Self::Jemalloc { .. } => "jemalloc",
            Self::Tcmalloc => "tcmalloc",
            Self::Mimalloc => "mimalloc",
            Self::Go => "Go",
        }
    }
}

fn read(path: &Path) -> Option<Vec<u8>> {
    let mut bytes = Vec::new();
    let file = File::open(path).ok().filter(|file| file.metadata().is_ok_and(|data| data.is_file()))?;
    file.take(MOST_BYTES).read_to_end(&mut bytes).ok()?;
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_allocator_is_known_by_what_a_file_contains() {
        let of = |text: &str| Allocator::of_bytes(text.as_bytes());
        let jemalloc = |variable: &str| Some(Allocator::Jemalloc { variable: variable.into() });
        assert_eq!(of("\0libc.so.6\0libm.so.6\0"), Some(Allocator::Glibc));
        assert_eq!(of("\0libc.so.6\0\0JE_MALLOC_CONF\0"), jemalloc("JE_MALLOC_CONF"));
        assert_eq!(of("\0_RJEM_MALLOC_CONF\0libc.so.6\0"), jemalloc("_RJEM_MALLOC_CONF"));
        assert_eq!(of("\0libjemalloc.so.2\0libc.so.6\0"), jemalloc("MALLOC_CONF"));
        assert_eq!(of("\0libc.so.6\0TCMALLOC_RELEASE_RATE\0"), Some(Allocator::Tcmalloc));
        assert_eq!(of("mimalloc: \0purge_delay\0libc.so.6\0"), Some(Allocator::Mimalloc));
        assert_eq!(of("libmimalloc.so.2\0libc.so.6\0"), None, "an old version has another option");
        assert_eq!(of("a static program"), None);
        let go = [b"\xff Go buildinf:".as_slice(), b"libc.so.6\0"].concat();
        assert_eq!(Allocator::of_bytes(&go), Some(Allocator::Go));
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
        let child = std::process::Command::new("sleep").arg("60").spawn();
        let Ok(mut child) = child else { return println!("skipped: no program sleep") };
        let started = std::time::Instant::now();
        // Until its exec it is this program once more.
        let is_other = || fs::read_link(format!("/proc/{}/exe", child.id())).is_ok_and(|path| path != program);
        while !is_other() && started.elapsed().as_secs() < 20 {
            std::thread::yield_now();
        }
        let found = Allocator::of_process(child.id().cast_signed());
        child.kill().unwrap();
        child.wait().unwrap();
        assert_eq!(found, Some(Allocator::Glibc));
    }
}
