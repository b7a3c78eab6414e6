//! The functions of a program's file by their place in it, by which the addresses of callers become names.

use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};

/// The most bytes of a table of segments, sections or symbols that are read at once.
const MAX_TABLE_BYTES: u64 = 1 << 24;
/// The most functions of one file that are kept. The largest browsers have fewer.
const MAX_FUNCTIONS: usize = 1 << 22;
/// The longest name that is read, in bytes.
const MAX_NAME_BYTES: u64 = 1 << 12;
/// How many symbols are read at once.
const SYMBOLS_AT_ONCE: u64 = 1 << 12;
const HEAD_BYTES: usize = 64;
const SECTION_BYTES: usize = 64;
const SEGMENT_BYTES: usize = 56;
const SYMBOL_BYTES: usize = 24;
/// The type of a segment that is loaded into memory.
const LOADED: u32 = 1;
/// The types of sections that are tables of symbols: the full table, and the one that a stripped file keeps.
const SYMBOL_TABLES: [u32; 2] = [2, 11];
/// The types of symbols that are functions, and of those that choose a function when the program starts.
const FUNCTIONS: [u8; 2] = [2, 10];

/// The functions of one file. Their names would take most of the memory, so they stay in the file.
#[derive(Default)]
pub(super) struct Functions {
    path: PathBuf,
    /// The functions in the order of the addresses at which they begin.
    functions: Vec<Function>,
    /// For each segment that is loaded: its offset in the file, its length there, and the address at which it begins.
    segments: Vec<(u64, u64, u64)>,
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Function {
    start: u64,
    bytes: u32,
    /// Where its name begins, in bytes from `names` on.
    name: u32,
    /// Where in the file the names of its table of symbols begin.
    names: u64,
}

impl Functions {
    /// The functions of the file at `path` on this machine. There are none if it cannot be read or is no 64-bit ELF
    /// file of a little-endian machine.
    pub(super) fn of_file(path: &Path) -> Self {
        // To open a pipe or a device could wait for ever.
        let is_file = std::fs::metadata(path).is_ok_and(|data| data.is_file());
        let read = || File::open(path).ok().and_then(|mut file| Self::read(&mut file));
        let all = if is_file { read().unwrap_or_default() } else { Self::default() };
        Self { path: path.to_owned(), ..all }
    }

    fn read(file: &mut (impl Read + Seek)) -> Option<Self> {
        let end = file.seek(SeekFrom::End(0)).ok()?;
        let head = part(file, 0, HEAD_BYTES as u64)?;
        if !head.starts_with(b"\x7fELF\x02\x01") {
            return None;
        }
        let mut new = Self::default();
        let segments = part(file, u64_at(&head, 32)?, u64::from(u16_at(&head, 56)?) * SEGMENT_BYTES as u64)?;
        for segment in segments.chunks_exact(SEGMENT_BYTES) {
            if u32_at(segment, 0)? == LOADED {
                new.segments.push((u64_at(segment, 8)?, u64_at(segment, 32)?, u64_at(segment, 16)?));
            }
        }
        let sections = part(file, u64_at(&head, 40)?, u64::from(u16_at(&head, 60)?) * SECTION_BYTES as u64)?;
        let sections: Vec<_> = sections.chunks_exact(SECTION_BYTES).collect();
        for section in sections.iter().filter(|section| is_symbols(section)) {
            let texts = sections.get(u32_at(section, 40)? as usize)?;
            let names = u64_at(texts, 24)?;
            if names.checked_add(u64_at(texts, 32)?)? > end {
                return None;
            }
            new.add_table(file, section, names)?;
        }
        new.functions.sort_unstable();
        new.functions.shrink_to_fit();
        Some(new)
    }

    /// Adds the functions of one table of symbols. The table may be long, so it is read in parts.
    fn add_table(&mut self, file: &mut (impl Read + Seek), section: &[u8], names: u64) -> Option<()> {
        let (mut at, mut left) = (u64_at(section, 24)?, u64_at(section, 32)?);
        while left > 0 {
            let bytes = left.min(SYMBOLS_AT_ONCE * SYMBOL_BYTES as u64);
            let symbols = part(file, at, bytes)?;
            for symbol in symbols.chunks_exact(SYMBOL_BYTES).filter(|symbol| is_function(symbol)) {
                let (start, bytes) = (u64_at(symbol, 8)?, u32::try_from(u64_at(symbol, 16)?).unwrap_or(u32::MAX));
                let is_kept = bytes > 0 && self.functions.len() < MAX_FUNCTIONS;
                let function = Function { start, bytes, name: u32_at(symbol, 0)?, names };
                self.functions.extend(is_kept.then_some(function));
            }
            (at, left) = (at + bytes, left - bytes);
        }
        Some(())
    }

    /// The name of the function at this offset in the file. None if no function is there, or the file cannot be read.
    pub(super) fn name(&self, offset: u64) -> Option<String> {
        let at = self.name_at(offset)?;
        text(&mut File::open(&self.path).ok()?, at)
    }

    /// Where in the file the name of the function stands that lies at `offset`.
    fn name_at(&self, offset: u64) -> Option<u64> {
        let is_in = |&&(start, bytes, _): &&(u64, u64, u64)| offset.checked_sub(start).is_some_and(|at| at < bytes);
        let &(start, _, memory) = self.segments.iter().find(is_in)?;
        let address = memory.wrapping_add(offset - start);
        let after = self.functions.partition_point(|function| function.start <= address);
        let function = self.functions.get(after.checked_sub(1)?)?;
        let is_inside = address - function.start < u64::from(function.bytes);
        is_inside.then(|| function.names.saturating_add(u64::from(function.name)))
    }
}

/// The name that stands at this offset in the file, as people write it.
fn text(file: &mut (impl Read + Seek), at: u64) -> Option<String> {
    let mut bytes = Vec::new();
    file.seek(SeekFrom::Start(at)).ok()?;
    file.take(MAX_NAME_BYTES).read_to_end(&mut bytes).ok()?;
    let name = bytes.split(|&byte| byte == 0).next()?;
    Some(readable(&String::from_utf8_lossy(name)))
}

/// A name as its author wrote it: one of Rust or C++ without the coding of compilers, hashes and arguments, and every
/// other one as it is.
fn readable(name: &str) -> String {
    if let Ok(name) = rustc_demangle::try_demangle(name) {
        return format!("{name:#}");
    }
    let options = cpp_demangle::DemangleOptions::new().no_params().no_return_type();
    let of_cpp = cpp_demangle::Symbol::new(name).ok().filter(|_| name.starts_with("_Z"));
    of_cpp.and_then(|symbol| symbol.demangle_with_options(&options).ok()).unwrap_or_else(|| name.to_owned())
}

fn is_symbols(section: &[u8]) -> bool {
    u32_at(section, 4).is_some_and(|kind| SYMBOL_TABLES.contains(&kind))
}

/// Whether a symbol is a function that this file defines, and not one that it takes from another.
fn is_function(symbol: &[u8]) -> bool {
    FUNCTIONS.contains(&(symbol[4] & 0xf)) && u16_at(symbol, 6) != Some(0)
}

/// So many bytes of the file from `offset` on. None if there are fewer, or if they are too many to be read at once.
fn part(file: &mut (impl Read + Seek), offset: u64, bytes: u64) -> Option<Vec<u8>> {
    if bytes > MAX_TABLE_BYTES {
        return None;
    }
    let mut part = Vec::new();
    file.seek(SeekFrom::Start(offset)).ok()?;
    file.take(bytes).read_to_end(&mut part).ok()?;
    (part.len() as u64 == bytes).then_some(part)
}

fn u16_at(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_le_bytes(bytes.get(at..at + 2)?.try_into().ok()?))
}

fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_le_bytes(bytes.get(at..at + 4)?.try_into().ok()?))
}

fn u64_at(bytes: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_le_bytes(bytes.get(at..at + 8)?.try_into().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Cursor;

    /// A file with one loaded part, 0x1000 in the file and 0x40_1000 in memory, and the function `work` at its begin.
    fn file() -> Vec<u8> {
        let mut bytes = vec![0; 0x200];
        bytes[..6].copy_from_slice(b"\x7fELF\x02\x01");
        let mut put = |at: usize, value: &[u8]| bytes[at..at + value.len()].copy_from_slice(value);
        put(32, &64u64.to_le_bytes());
        put(40, &128u64.to_le_bytes());
        put(56, &1u16.to_le_bytes());
        put(60, &2u16.to_le_bytes());
        put(64, &LOADED.to_le_bytes());
        put(72, &0x1000u64.to_le_bytes());
        put(80, &0x40_1000u64.to_le_bytes());
        put(96, &0x1000u64.to_le_bytes());
        for (section, [kind, offset, size, link]) in [(0, [2, 0x180, 24, 1]), (1, [3, 0x1c0, 6, 0])] {
            let at = 128 + section * SECTION_BYTES;
            put(at + 4, &(kind as u32).to_le_bytes());
            put(at + 24, &(offset as u64).to_le_bytes());
            put(at + 32, &(size as u64).to_le_bytes());
            put(at + 40, &(link as u32).to_le_bytes());
        }
        put(0x180, &1u32.to_le_bytes());
        put(0x184, &[2, 0, 1, 0]);
        put(0x188, &0x40_1000u64.to_le_bytes());
        put(0x190, &0x20u64.to_le_bytes());
        put(0x1c0, b"\0work\0");
        bytes
    }

    #[test]
    fn a_place_in_the_file_belongs_to_the_function_around_it() {
        let functions = Functions::read(&mut Cursor::new(file())).unwrap();
        let name = |offset| text(&mut Cursor::new(file()), functions.name_at(offset)?);
        assert_eq!(name(0x101f).as_deref(), Some("work"));
        assert_eq!(name(0x1020), None, "behind its end");
        assert_eq!(name(0x2000), None, "not loaded");
    }

    #[test]
    fn what_is_cut_or_no_program_has_no_functions() {
        let whole = file();
        for end in 0..0x1c6 {
            let cut = Functions::read(&mut Cursor::new(&whole[..end]));
            assert!(cut.is_none(), "{end} bytes");
        }
        assert!(Functions::of_file(Path::new("/dev/zero")).functions.is_empty());
    }

    #[test]
    fn names_are_as_their_authors_wrote_them() {
        let written =
            ["_ZN4core3fmt5Write9write_str17h0123456789abcdefE", "_RNvCskwGfYPst2Cb_3foo3bar", "_ZN3abc3defEiPKc"];
        assert_eq!(written.map(readable), ["core::fmt::Write::write_str", "foo::bar", "abc::def"]);
        assert_eq!(["main", "_Zz", "_start", ""].map(readable), ["main", "_Zz", "_start", ""]);
    }

    #[test]
    fn this_program_finds_its_own_functions() {
        let path = std::env::current_exe().unwrap();
        let functions = Functions::of_file(&path);
        let begins: Vec<_> = functions.functions.iter().map(|function| function.start).collect();
        assert!(begins.len() > 100 && begins.is_sorted(), "{} functions", begins.len());
        let &(file, _, memory) = functions.segments.iter().find(|part| part.0 > 0).unwrap();
        let offsets = begins.iter().filter(|&&start| start >= memory).map(|start| start - memory + file);
        let is_ours = |offset| functions.name(offset).is_some_and(|name| name.starts_with("tlbkit_trace::blame::"));
        assert!(offsets.into_iter().any(is_ours));
    }
}
