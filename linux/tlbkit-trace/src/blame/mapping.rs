//! What the memory of a program is used for, and what each process has mapped where.

use super::why::Past;
use crate::abi::{
    Advice, FAULT_PRESENT, FAULT_WRITE, MADV_MERGEABLE, MAP_ANONYMOUS, MAP_FIXED, MAP_NORESERVE, MAP_SHARED, MAP_STACK,
    PROT_EXEC, is_error,
};
use crate::event::{Event, EventKind, Syscall};
use crate::names::{Name, Names};
use rustc_hash::{FxHashMap, FxHashSet};
use std::collections::BTreeMap;
use std::rc::Rc;

/// What a range of memory is.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Mapping {
    /// The heap that grows and shrinks by `brk`.
    Heap,
    /// An arena of glibc's malloc, a heap for further threads: 64 MiB that are reserved at once.
    Arena,
    /// The stack of a main thread.
    Stack,
    /// The stack of another thread, known by the flag `MAP_STACK`.
    ThreadStack,
    /// Private memory without a file, and not one of those above.
    Anonymous,
    /// Shared memory without a file.
    Shared,
    /// A file, or memory that has a name. The name is [`Names::UNKNOWN`] if only the system call was
    /// recorded.
    File(Name),
    /// The program's own file or its heap, known by its address alone.
    Image,
    /// The whole address space.
    Whole,
    /// It is not known.
    Unknown,
}

impl Mapping {
    /// A short name for tables. `names` are those of the trace.
    #[must_use]
    pub fn label(self, names: &Names) -> String {
        match self {
            Self::Heap => "heap".into(),
            Self::Arena => "arena of malloc".into(),
            Self::Stack => "stack".into(),
            Self::ThreadStack => "stack of a thread".into(),
            Self::Anonymous => "anonymous".into(),
            Self::Shared => "shared anonymous".into(),
            Self::File(name) if name == Names::UNKNOWN => "file".into(),
            Self::File(name) => names.text(name).into(),
            Self::Image => "program or its heap".into(),
            Self::Whole => "whole space".into(),
            Self::Unknown => "unknown".into(),
        }
    }
}

/// A mapped range, whose begin is its key in [`Space`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Area {
    end: u64,
    pub(super) mapping: Mapping,
    /// Where in the file the range begins, in bytes.
    offset: u64,
    /// Whether the kernel may merge its pages with others of the same content.
    is_mergeable: bool,
    /// How many pages were faulted in, and have not been given back.
    touched: u64,
}

/// What one process has mapped.
#[derive(Clone, Default)]
pub(super) struct Space {
    areas: BTreeMap<u64, Area>,
    /// Whether the process has forked, or is such a child, and has executed no other program since. Then its pages are
    /// shared until they are written to.
    has_forked: bool,
    /// Whether it has executed its program since the recording began: then every fork of it is known.
    is_young: bool,
    /// Files that were mapped, by the descriptors by which they were.
    files: BTreeMap<u64, Name>,
    /// The mappings of the program that an exec is about to start.
    next: BTreeMap<u64, Area>,
}

/// The most mappings of a process that are kept. With common settings Linux allows 65,530, and a hostile file cannot
/// make the memory grow further.
const MAX_AREAS: usize = 1 << 16;
/// The most processes that are followed. If there are more, all are forgotten and learned anew.
const MAX_SPACES: usize = 1 << 16;
/// The most pages of zeroes of a process that are kept. If there are more, all are forgotten.
const MAX_ZEROES: usize = 1 << 18;

/// The addresses at which Linux loads position-independent programs, with their heaps behind them.
const IMAGES: std::ops::Range<u64> = 0x5500_0000_0000..0x5700_0000_0000;
/// Programs that are linked for a fixed address lie below this one.
const FIXED_IMAGES_END: u64 = 0x1000_0000;
/// The addresses of the stacks of main threads. Linux keeps 16 GiB below the end of a space free for them.
const STACKS: std::ops::Range<u64> = 0x7ffc_0000_0000..0x8000_0000_0000;

/// The size of an arena, in bytes. glibc reserves twice as much, so that an aligned arena lies in it.
const ARENA_BYTES: u64 = 64 << 20;
const PAGE: u64 = 4096;

/// The end of the range of `bytes` bytes from `start`, rounded up to whole pages. None if the range is empty or reaches
/// beyond the addresses of programs.
fn end_of(start: u64, bytes: u64) -> Option<u64> {
    let end = start.checked_add(bytes.checked_next_multiple_of(PAGE)?)?;
    (start < end && end <= STACKS.end).then_some(end)
}

impl Space {
    /// The mapped range that holds `address`, with its begin.
    pub(super) fn find(&self, address: u64) -> Option<(u64, Area)> {
        let (&start, &area) = self.areas.range(..=address).next_back()?;
        (address < area.end).then_some((start, area))
    }

    /// What the memory at `address` is, also judged by the address alone if nothing is known to be mapped there.
    pub(super) fn mapping(&self, address: u64) -> Mapping {
        match self.find(address) {
            Some((_, area)) => area.mapping,
            None if STACKS.contains(&address) => Mapping::Stack,
            None if IMAGES.contains(&address) || (PAGE..FIXED_IMAGES_END).contains(&address) => Mapping::Image,
            None => Mapping::Unknown,
        }
    }

    /// The file that is mapped at `address`, and the offset in it, in bytes. None if it is no known file.
    pub(super) fn place_in_file(&self, address: u64) -> Option<(Name, u64)> {
        let (start, area) = self.find(address)?;
        match area.mapping {
            Mapping::File(file) if file != Names::UNKNOWN => Some((file, area.offset.wrapping_add(address - start))),
            _ => None,
        }
    }

    /// Unmaps the range, and keeps what mappings have outside of it.
    fn remove(&mut self, start: u64, end: u64) {
        if let Some((first, area)) = self.find(start)
            && first < start
        {
            self.areas.insert(first, Area { end: start, ..area });
            if area.end > end {
                self.areas.insert(end, Area { offset: area.offset.wrapping_add(end - first), ..area });
            }
        }
        let inside: Vec<_> = self.areas.range(start..end).map(|(&first, &area)| (first, area)).collect();
        for (first, area) in inside {
            self.areas.remove(&first);
            if area.end > end {
                self.areas.insert(end, Area { offset: area.offset.wrapping_add(end - first), ..area });
            }
        }
    }

    fn insert(&mut self, start: u64, bytes: u64, mapping: Mapping, offset: u64) {
        let Some(end) = end_of(start, bytes).filter(|_| self.areas.len() < MAX_AREAS) else { return };
        self.remove(start, end);
        self.areas.insert(start, Area { end, mapping, offset, is_mergeable: false, touched: 0 });
    }

    /// Maps what the recorder told by `event`.
    fn add_mapping(&mut self, event: &Event, names: &Names) {
        let EventKind::Map { address, bytes, offset, protection, file } = event.kind else { return };
        match names.text(file) {
            "[heap]" => self.insert(address, bytes, Mapping::Heap, 0),
            "[stack]" => self.insert(address, bytes, Mapping::Stack, 0),
            "//anon" | "" | "?" => self.fill(address, bytes, Mapping::Anonymous),
            text if text.starts_with("/dev/zero") || text.starts_with("/SYSV") => {
                self.insert(address, bytes, Mapping::Shared, 0);
            }
            // A part of a file without code does not replace what is known of the file already.
            _ if u64::from(protection) & PROT_EXEC == 0
                && self.find(address).is_some_and(|(_, area)| area.offset != 0) =>
            {
                self.fill(address, bytes, Mapping::File(file));
            }
            _ => self.insert(address, bytes, Mapping::File(file), offset),
        }
    }

    /// Maps only the gaps of the range. What is mapped in it already is known better, because Linux merges neighbours,
    /// and the recorder tells of them as one mapping.
    fn fill(&mut self, start: u64, bytes: u64, mapping: Mapping) {
        let end = start.saturating_add(bytes);
        let mut at = start;
        while at < end {
            if let Some((_, area)) = self.find(at) {
                at = area.end;
                continue;
            }
            let next = self.areas.range(at..end).next().map_or(end, |(&next, _)| next);
            self.insert(at, next - at, mapping, 0);
            at = next.max(at + 1);
        }
    }
}

/// What all processes have mapped.
#[derive(Default)]
pub(super) struct Spaces {
    spaces: FxHashMap<i32, Rc<Space>>,
    /// By process: numbers of pages that were read when nothing was in them, and so are the page of zeroes.
    zeroes: FxHashMap<i32, FxHashSet<u64>>,
}

impl Spaces {
    pub(super) fn get(&self, pid: i32) -> Option<&Space> {
        self.spaces.get(&pid).map(|space| &**space)
    }

    pub(super) fn mapping(&self, pid: i32, address: u64) -> Mapping {
        self.get(pid).map_or_else(|| Space::default().mapping(address), |space| space.mapping(address))
    }

    /// The file that the process has mapped by this descriptor.
    pub(super) fn file(&self, pid: i32, descriptor: u64) -> Mapping {
        let named = self.get(pid).and_then(|space| space.files.get(&descriptor));
        Mapping::File(named.copied().unwrap_or(Names::UNKNOWN))
    }

    /// A page fault of the process. Returns what is known of the page, which counts if it is to be copied.
    pub(super) fn faulted(&mut self, pid: i32, address: u64, error_code: u32) -> Past {
        let page = address / PAGE;
        let area = self.get(pid).and_then(|space| space.find(address));
        if error_code & FAULT_PRESENT == 0
            && let Some((start, _)) = area
            && let Some(area) = self.change(pid).areas.get_mut(&start)
        {
            area.touched += 1;
        }
        let area = area.map(|(_, area)| area);
        let is_private =
            area.is_some_and(|area| matches!(area.mapping, Mapping::Anonymous | Mapping::Arena | Mapping::Heap));
        if error_code & (FAULT_PRESENT | FAULT_WRITE) == 0 && is_private {
            let zeroes = self.zeroes.entry(pid).or_default();
            if zeroes.len() >= MAX_ZEROES {
                zeroes.clear();
            }
            zeroes.insert(page);
            return Past::Zeroes;
        }
        if self.zeroes.get_mut(&pid).is_some_and(|zeroes| zeroes.remove(&page)) {
            return Past::Zeroes;
        }
        match (self.get(pid), area) {
            (_, Some(Area { mapping: Mapping::File(_), .. })) => Past::File,
            (_, Some(Area { is_mergeable: true, .. })) => Past::Merged,
            (Some(Space { has_forked: true, .. }), _) => Past::Forked,
            (Some(Space { is_young: true, .. }), _) => Past::Alone,
            _ => Past::Older,
        }
    }

    /// How many pages a system call that begins gives back which were faulted in before, as far as events tell.
    /// `mapping` is the memory that it means.
    pub(super) fn gives_back(&mut self, pid: i32, call: Syscall, args: &[u64; 5], mapping: Mapping) -> u64 {
        let range = match call {
            Syscall::Munmap => args[0]..args[0].saturating_add(args[1]),
            Syscall::Madvise if matches!(Advice::of(args[2]), Advice::DontNeed | Advice::Remove) => {
                args[0]..args[0].saturating_add(args[1])
            }
            Syscall::Mmap if args[3] & MAP_FIXED != 0 => args[0]..args[0].saturating_add(args[1]),
            Syscall::Brk if args[0] != 0 => args[0]..u64::MAX,
            Syscall::Shmdt => args[0]..args[0].saturating_add(1),
            Syscall::Ftruncate | Syscall::Fallocate => 0..u64::MAX,
            _ => return 0,
        };
        let mut left = if call == Syscall::Fallocate { args[3].div_ceil(PAGE) } else { u64::MAX };
        let is_one_mapping = matches!(call, Syscall::Brk | Syscall::Ftruncate | Syscall::Fallocate);
        let first = self.get(pid).and_then(|space| space.find(range.start)).map_or(range.start, |(start, _)| start);
        let mut given = 0;
        for (&start, area) in self.change(pid).areas.range_mut(first..range.end.max(first)) {
            if is_one_mapping && area.mapping != mapping {
                continue;
            }
            let overlap = area.end.min(range.end).saturating_sub(start.max(range.start));
            let most = if call == Syscall::Shmdt { u64::MAX } else { overlap.div_ceil(PAGE) };
            let pages = area.touched.min(most).min(left);
            area.touched -= pages;
            given += pages;
            left -= pages;
        }
        given
    }

    fn change(&mut self, pid: i32) -> &mut Space {
        if self.spaces.len() >= MAX_SPACES {
            self.spaces.clear();
        }
        Rc::make_mut(self.spaces.entry(pid).or_default())
    }

    /// The recorder tells of a mapping of the program that an exec is about to start.
    pub(super) fn told_of_next(&mut self, event: &Event, names: &Names) {
        let space = self.change(event.pid);
        let mut next = Space { areas: std::mem::take(&mut space.next), ..Space::default() };
        next.add_mapping(event, names);
        space.next = next.areas;
    }

    /// The recorder tells of a mapping of a process.
    pub(super) fn add_mapping(&mut self, event: &Event, names: &Names) {
        self.change(event.pid).add_mapping(event, names);
    }

    /// A system call begins. `munmap` unmaps its range here and not at its end, since by then another thread may have
    /// mapped something there. A call that every kernel refuses changes nothing.
    pub(super) fn entered(&mut self, pid: i32, call: Syscall, args: &[u64; 5]) {
        if call == Syscall::Munmap
            && args[0].is_multiple_of(PAGE)
            && let Some(end) = end_of(args[0], args[1])
        {
            self.change(pid).remove(args[0], end);
        }
    }

    /// A system call with these arguments has ended, and returned `result`.
    pub(super) fn left(&mut self, pid: i32, call: Syscall, args: &[u64; 5], result: i64) {
        if is_error(result) {
            return;
        }
        let address = result as u64;
        match call {
            Syscall::Mmap => self.mapped(pid, address, args),
            Syscall::Mremap => {
                let space = self.change(pid);
                let moved = space.find(args[0]).map_or(Mapping::Anonymous, |(_, area)| area.mapping);
                space.remove(args[0], args[0].saturating_add(args[1]));
                space.insert(address, args[2], moved, 0);
            }
            // The first such call of a program asks where its heap begins.
            Syscall::Brk => {
                let space = self.change(pid);
                let heap = space.areas.iter().find(|(_, area)| area.mapping == Mapping::Heap).map(|(&start, _)| start);
                let start = heap.unwrap_or(address & !(PAGE - 1));
                space.insert(start, address.saturating_sub(start).max(1), Mapping::Heap, 0);
            }
            Syscall::Madvise if args[2] as u32 == MADV_MERGEABLE => {
                for (_, area) in self.change(pid).areas.range_mut(args[0]..args[0].saturating_add(args[1])) {
                    area.is_mergeable = true;
                }
            }
            _ => {}
        }
    }

    fn mapped(&mut self, pid: i32, address: u64, args: &[u64; 5]) {
        let [_, bytes, protection, flags, descriptor] = *args;
        let space = self.change(pid);
        let mapping = match flags {
            _ if flags & MAP_ANONYMOUS == 0 => {
                // If the recorder tells of files, it has already told which file this is.
                if let Mapping::File(name) = space.mapping(address) {
                    space.files.insert(descriptor, name);
                    return;
                }
                Mapping::File(Names::UNKNOWN)
            }
            _ if flags & MAP_SHARED != 0 => Mapping::Shared,
            _ if flags & MAP_STACK != 0 => Mapping::ThreadStack,
            _ if flags & MAP_NORESERVE != 0
                && protection == 0
                && (bytes == ARENA_BYTES || bytes == 2 * ARENA_BYTES) =>
            {
                Mapping::Arena
            }
            _ => Mapping::Anonymous,
        };
        space.insert(address, bytes, mapping, 0);
    }

    /// A process was created by a fork, with a copy of its parent's memory.
    pub(super) fn copied(&mut self, parent: i32, child: i32) {
        self.change(parent).has_forked = true;
        self.shared(parent, child);
    }

    /// A thread was created, or a process that uses its parent's memory until it executes another program.
    pub(super) fn shared(&mut self, parent: i32, child: i32) {
        if let Some(space) = self.spaces.get(&parent).cloned() {
            self.spaces.insert(child, space);
        }
    }

    /// A process has executed another program, and has nothing of the old one any more.
    pub(super) fn replaced(&mut self, pid: i32) {
        self.zeroes.remove(&pid);
        let space = self.change(pid);
        *space = Space { areas: std::mem::take(&mut space.next), is_young: true, ..Space::default() };
    }

    /// The process has ended.
    pub(super) fn ended(&mut self, pid: i32) {
        self.spaces.remove(&pid);
        self.zeroes.remove(&pid);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_unmapped_in_the_middle_leaves_both_ends() {
        let mut space = Space::default();
        space.insert(0x1000_0000, 0x10_000, Mapping::Anonymous, 0x100);
        space.remove(0x1000_4000, 0x1000_5000);
        assert_eq!(space.mapping(0x1000_3fff), Mapping::Anonymous);
        assert_eq!(space.mapping(0x1000_4000), Mapping::Unknown);
        assert_eq!(space.find(0x1000_5000).map(|(start, area)| (start, area.offset)), Some((0x1000_5000, 0x5100)));
        space.remove(0, u64::MAX);
        assert_eq!(space.areas.len(), 0);
    }

    #[test]
    fn what_the_recorder_tells_of_grown_memory_hides_nothing() {
        let mut space = Space::default();
        space.insert(0x2000_1000, 0x1000, Mapping::ThreadStack, 0);
        space.fill(0x2000_0000, 0x4000, Mapping::Anonymous);
        let at = |page: u64| space.mapping(0x2000_0000 + page * 0x1000);
        let all = [Mapping::Anonymous, Mapping::ThreadStack, Mapping::Anonymous, Mapping::Anonymous];
        assert_eq!([at(0), at(1), at(2), at(3)], all);
        assert_eq!(at(4), Mapping::Unknown);
    }

    #[test]
    fn a_call_that_no_kernel_grants_takes_nothing() {
        let mut spaces = Spaces::default();
        spaces.change(7).insert(0x1000_0000, 0x2000, Mapping::Anonymous, 0);
        for [start, bytes] in [[0x1000_0000, u64::MAX], [0x1000_0000, 1 << 47], [0x1000_0001, 0x1000], [0x1000_0000, 0]]
        {
            spaces.entered(7, Syscall::Munmap, &[start, bytes, 0, 0, 0]);
            assert_eq!(spaces.mapping(7, 0x1000_0000), Mapping::Anonymous, "{start:#x}, {bytes:#x}");
        }
        spaces.entered(7, Syscall::Munmap, &[0x1000_0000, 1, 0, 0, 0]);
        assert_eq!(spaces.mapping(7, 0x1000_0fff), Mapping::Unknown);
        assert_eq!(spaces.mapping(7, 0x1000_1000), Mapping::Anonymous);
        spaces.change(7).insert(0x2000_0000, u64::MAX, Mapping::Anonymous, 0);
        assert_eq!(spaces.mapping(7, 0x2000_0000), Mapping::Unknown, "a mapping that cannot be");
    }

    #[test]
    fn what_an_exec_has_mapped_is_there_when_it_is_over() {
        let mut names = Names::default();
        let [old, new] = ["/bin/sh", "/bin/cc"].map(|text| names.add(text));
        let map = |file| {
            let kind = EventKind::Map { address: 0x5500_0000_0000, bytes: 0x1000, offset: 0x2000, protection: 5, file };
            Event { time_ns: 1, cpu: 0, pid: 7, tid: 7, comm: Names::UNKNOWN, stack: None, kind }
        };
        let mut spaces = Spaces::default();
        spaces.add_mapping(&map(old), &names);
        spaces.told_of_next(&map(new), &names);
        assert_eq!(spaces.mapping(7, 0x5500_0000_0fff), Mapping::File(old));
        spaces.replaced(7);
        let place = spaces.get(7).and_then(|space| space.place_in_file(0x5500_0000_0123));
        assert_eq!(place, Some((new, 0x2123)));
        spaces.replaced(7);
        assert_eq!(spaces.mapping(7, 0x5500_0000_0123), Mapping::Image, "another exec, of which nothing was told");
    }

    #[test]
    fn places_tell_what_no_event_did() {
        let space = Space::default();
        assert_eq!(space.mapping(0x5612_3456_7000), Mapping::Image);
        assert_eq!(space.mapping(0x7fff_1234_5000), Mapping::Stack);
        assert_eq!(space.mapping(0x7f12_3456_7000), Mapping::Unknown);
        assert_eq!(space.mapping(0), Mapping::Unknown);
    }
}
