//! Memory from the kernel, a CPU to run on, and child processes. This file and its folder are all of the crate that has
//! `unsafe`.

mod child;

use std::ffi::c_void;
use std::io;
use std::ops::Range;
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::ptr;

use rustix::mm::{self, Advice, MapFlags, MprotectFlags, ProtFlags};
use rustix::process::{Signal, getpid, getppid, set_parent_process_death_signal};
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

pub(crate) use child::{
    Counter, Reaped, cpu_time_ns, faults_of_this_thread, forbid_huge_pages, reap, reap_if_ended, unmap_nothing,
};

use crate::error::{Error, Result};

/// Bytes of a base page.
pub(crate) const PAGE_BYTES: usize = 4096;
/// Bytes of a large page.
pub(crate) const LARGE_BYTES: usize = 2 << 20;
/// Words of a base page.
pub(crate) const PAGE_WORDS: usize = PAGE_BYTES / size_of::<usize>();

/// What a mapping asks the kernel to back it with.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Backing {
    /// Base pages.
    Small,
    /// Large pages, where the kernel has some.
    Large,
}

/// Anonymous private memory, all zero, unmapped when dropped.
#[derive(Debug)]
pub(crate) struct Mapping {
    /// What was mapped, with room to align.
    whole: *mut c_void,
    whole_bytes: usize,
    /// Where the aligned part begins.
    start: *mut u8,
    pages: usize,
}

impl Mapping {
    /// `pages` base pages, none of them touched yet.
    pub(crate) fn new(pages: usize, backing: Backing) -> Result<Self> {
        let slack = if backing == Backing::Large { LARGE_BYTES } else { 0 };
        let whole_bytes = pages * PAGE_BYTES + slack;
        let (protection, flags) = (ProtFlags::READ | ProtFlags::WRITE, MapFlags::PRIVATE);
        // SAFETY: a new anonymous mapping at an address that the kernel chooses overlaps nothing.
        let whole = unsafe { mm::mmap_anonymous(ptr::null_mut(), whole_bytes, protection, flags) };
        let whole = whole.map_err(Error::kernel("mmap"))?;
        let bytes_to_boundary = if slack == 0 { 0 } else { whole.addr().next_multiple_of(LARGE_BYTES) - whole.addr() };
        let start = whole.cast::<u8>().wrapping_add(bytes_to_boundary);
        let mapping = Self { whole, whole_bytes, start, pages };
        let (advice, what) = match backing {
            Backing::Small => (Advice::LinuxNoHugepage, "madvise(MADV_NOHUGEPAGE)"),
            Backing::Large => (Advice::LinuxHugepage, "madvise(MADV_HUGEPAGE)"),
        };
        // SAFETY: the range was just mapped, and these pieces of advice change no content.
        unsafe { mm::madvise(whole, whole_bytes, advice) }.map_err(Error::kernel(what))?;
        Ok(mapping)
    }

    /// Base pages.
    pub(crate) fn pages(&self) -> usize {
        self.pages
    }

    /// The memory as words.
    pub(crate) fn words(&mut self) -> &mut [usize] {
        // SAFETY: mapped and readable, page aligned, owned by `self` alone and initialised (zero, or what was written);
        // it is writable because `Protected` holds the only borrow while it is not.
        unsafe { std::slice::from_raw_parts_mut(self.start.cast(), self.pages * PAGE_WORDS) }
    }

    /// Writes the first word of each of `pages`.
    pub(crate) fn touch(&mut self, pages: Range<usize>) {
        let words = self.words();
        for page in pages {
            words[page * PAGE_WORDS] = page;
        }
    }

    /// Gives the frames of `pages` back; they read as zero afterwards.
    pub(crate) fn discard(&mut self, pages: Range<usize>) -> Result<()> {
        let (start, bytes) = self.range(&pages);
        // SAFETY: the range lies inside this mapping, and no reference into it exists while `self` is borrowed mutably.
        unsafe { mm::madvise(start, bytes, Advice::LinuxDontNeed) }.map_err(Error::kernel("madvise(MADV_DONTNEED)"))
    }

    /// Lets the kernel take the frames of `pages` when memory is short; until they are written again.
    pub(crate) fn free_lazily(&mut self, pages: Range<usize>) -> Result<()> {
        let (start, bytes) = self.range(&pages);
        // SAFETY: the range lies inside this mapping, and no reference into it exists while `self` is borrowed mutably.
        unsafe { mm::madvise(start, bytes, Advice::LinuxFree) }.map_err(Error::kernel("madvise(MADV_FREE)"))
    }

    /// Takes the right to write `pages` away, until what is returned is dropped.
    pub(crate) fn protect(&mut self, pages: Range<usize>) -> Result<Protected<'_>> {
        let (start, bytes) = self.range(&pages);
        // SAFETY: the range lies inside this mapping; the guard's borrow keeps everybody from writing.
        unsafe { mm::mprotect(start, bytes, MprotectFlags::READ) }.map_err(Error::kernel("mprotect"))?;
        Ok(Protected { mapping: self, pages })
    }

    /// Unmaps now, and says whether it worked.
    pub(crate) fn unmap(self) -> Result<()> {
        let (whole, bytes) = (self.whole, self.whole_bytes);
        std::mem::forget(self);
        // SAFETY: `self` owned this range and was consumed, so nothing refers to it and nothing unmaps it again.
        unsafe { mm::munmap(whole, bytes) }.map_err(Error::kernel("munmap"))
    }

    fn range(&self, pages: &Range<usize>) -> (*mut c_void, usize) {
        assert!(pages.start <= pages.end && pages.end <= self.pages, "{pages:?} of {} pages", self.pages);
        (self.start.wrapping_add(pages.start * PAGE_BYTES).cast(), pages.len() * PAGE_BYTES)
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: `self` owns this range, and nothing refers to it any more. A failure leaks it, which is harmless.
        let _ = unsafe { mm::munmap(self.whole, self.whole_bytes) };
    }
}

/// Pages that nobody may write; they may be again when this is dropped.
pub(crate) struct Protected<'a> {
    mapping: &'a mut Mapping,
    pages: Range<usize>,
}

impl Drop for Protected<'_> {
    fn drop(&mut self) {
        let (start, bytes) = self.mapping.range(&self.pages);
        // SAFETY: the range lies inside the mapping; more rights break no reference.
        let given_back = unsafe { mm::mprotect(start, bytes, MprotectFlags::READ | MprotectFlags::WRITE) };
        given_back.expect("the kernel gives back what it took");
    }
}

/// The CPUs that this thread may run on.
pub(crate) fn allowed_cpus() -> Result<Vec<usize>> {
    let set = sched_getaffinity(None).map_err(Error::kernel("sched_getaffinity"))?;
    Ok((0..CpuSet::MAX_CPU).filter(|&cpu| set.is_set(cpu)).collect())
}

/// Keeps this thread, and what it starts, on one CPU.
pub(crate) fn pin(cpu: usize) -> Result<()> {
    pin_to(&[cpu])
}

/// Keeps this thread, and what it starts, on these CPUs.
pub(crate) fn pin_to(cpus: &[usize]) -> Result<()> {
    let mut set = CpuSet::new();
    cpus.iter().for_each(|&cpu| set.set(cpu));
    sched_setaffinity(None, &set).map_err(Error::kernel("sched_setaffinity"))
}

/// Has what `command` starts told to end when this thread does, whatever ends it, SIGKILL as well.
pub(crate) fn end_with_us(command: &mut Command) {
    let parent = getpid();
    let in_child = move || {
        set_parent_process_death_signal(Some(Signal::TERM))?;
        // It may have happened before the line above.
        if getppid() == Some(parent) { Ok(()) } else { Err(io::ErrorKind::BrokenPipe.into()) }
    };
    // SAFETY: between fork and exec the closure makes two system calls and allocates nothing.
    unsafe { command.pre_exec(in_child) };
}

#[cfg(test)]
mod tests {
    use super::{Backing, Mapping, PAGE_WORDS, allowed_cpus, pin};

    #[test]
    fn discarded_pages_read_as_zero_and_others_keep_their_words() {
        let mut mapping = Mapping::new(4, Backing::Small).unwrap();
        mapping.touch(0..4);
        mapping.discard(2..3).unwrap();
        let firsts: Vec<_> = mapping.words().iter().copied().step_by(PAGE_WORDS).collect();
        assert_eq!(firsts, [0, 1, 0, 3]);
        mapping.unmap().unwrap();
    }

    #[test]
    fn pages_can_be_written_again_after_protection() {
        let mut mapping = Mapping::new(2, Backing::Small).unwrap();
        drop(mapping.protect(0..2).unwrap());
        mapping.touch(0..2);
        assert_eq!(mapping.words()[PAGE_WORDS], 1);
    }

    #[test]
    #[should_panic(expected = "of 2 pages")]
    fn nothing_beyond_the_mapping_can_be_discarded() {
        let _ = Mapping::new(2, Backing::Small).unwrap().discard(1..3);
    }

    #[test]
    fn a_pinned_thread_may_run_nowhere_else() {
        let last = *allowed_cpus().unwrap().last().unwrap();
        pin(last).unwrap();
        assert_eq!(allowed_cpus().unwrap(), [last]);
    }
}
