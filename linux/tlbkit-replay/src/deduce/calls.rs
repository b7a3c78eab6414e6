//! What each system call takes away when it succeeds.

use super::pages::{Backing, Pages};
use super::state::{Deducer, Paging, Recorded, USER_END, taken};
use crate::op::{Cause, Extent, Pattern, Space, Taken};
use std::ops::Range;
use tlbkit::Stride;
use tlbkit_trace::abi::{
    Advice, CLONE_VM, MAP_ANONYMOUS, MAP_FIXED, MAP_SHARED, MAP_STACK, PROT_EXEC, PROT_WRITE, is_error,
};
use tlbkit_trace::{Event, Syscall};

/// The largest flush, in pages, for which Linux records how many pages it had.
const CEILING_PAGES: u64 = 33;

/// Notes that the pages `gone` were given back by the revocations `taken`, and may be used again at the same addresses.
fn mark(pages: &mut Pages, taken: &mut [Taken], gone: Vec<u64>, cause: Cause) {
    let Some(last) = taken.last_mut() else { return };
    last.freed = gone.len() as u64;
    pages.gave_back(gone, Pattern { cause, extent: Extent::of(last.pages) });
}

/// The numbers of the pages of `bytes` bytes from `start`, without those beyond the addresses of programs.
fn pages(start: u64, bytes: u64) -> Range<u64> {
    let is_users = |page: u64| page.min(USER_END >> 12);
    is_users(start >> 12)..is_users(start.saturating_add(bytes).div_ceil(4096))
}

impl Deducer {
    /// The event's thread leaves a system call, which returned `result`.
    pub(super) fn leave(&mut self, event: &Event, call: Syscall, result: i64) {
        let task = self.task(event.tid);
        let space = task.space;
        let Some((_, args)) = task.call.take_if(|entered| entered.0 == call) else { return };
        self.ended = std::mem::replace(&mut task.recorded, Recorded::NOTHING);
        if !is_error(result) {
            self.take_away(event, space, call, args, result);
        }
        self.ended = Recorded::NOTHING;
    }

    /// Carries out what a system call did that succeeded.
    fn take_away(&mut self, event: &Event, space: Space, call: Syscall, args: [u64; 5], result: i64) {
        match call {
            Syscall::Mmap => self.mmap(event, space, args, result as u64),
            Syscall::Munmap => self.unmap(event, space, call, &pages(args[0], args[1])),
            Syscall::Mprotect => self.mprotect(event, space, &pages(args[0], args[1]), args[2]),
            Syscall::Madvise => self.madvise(event, space, &pages(args[0], args[1]), Advice::of(args[2])),
            Syscall::Brk => self.brk(event, space, result as u64),
            Syscall::Mremap => self.mremap(event, space, args, result as u64),
            // A fork makes the parent's entries read-only. In the child the same call returns 0, and changes nothing.
            Syscall::Clone if result > 0 && args[0] & CLONE_VM == 0 => {
                self.revoke(event, space, Cause::Call(call), [Taken::ALL]);
            }
            _ => {}
        }
    }

    /// The revocations, one after the other, by which the kernel takes the pages of `range` away.
    fn zapped(&mut self, space: Space, range: &Range<u64>) -> Vec<Taken> {
        if let Some(told) = self.recorded_revocations(space, range) {
            return told;
        }
        let pages = &self.pages[space.0 as usize];
        let taken = |span: Range<u64>| {
            let region = (self.paging == Paging::Huge).then(|| pages.huge(&span)).flatten();
            let Some(region) = region else { return taken(&span, Stride::Page4K) };
            // A huge page that reaches beyond the range was split before.
            let inside = region.start.max(range.start)..region.end.min(range.end);
            taken(&inside, if inside == region { Stride::Page2M } else { Stride::Page4K })
        };
        pages.zapped(range).into_iter().map(taken).collect()
    }

    fn madvise(&mut self, event: &Event, space: Space, range: &Range<u64>, advice: Advice) {
        if range.is_empty() {
            return;
        }
        let pages = &self.pages[space.0 as usize];
        let cause = match advice {
            Advice::Remove => Cause::FileDontNeed,
            Advice::DontNeed if pages.is_of_file(range.start) => Cause::FileDontNeed,
            Advice::DontNeed if pages.is_in_arena(range.start) => Cause::ArenaDontNeed,
            Advice::DontNeed => Cause::DontNeed,
            Advice::Free => Cause::Free,
            Advice::Guard => Cause::Call(Syscall::Madvise),
            Advice::Other => return,
        };
        let mut taken = self.zapped(space, range);
        if advice != Advice::Free {
            let told = self.unknown(space, range, &taken);
            let pages = &mut self.pages[space.0 as usize];
            let mut gone = pages.discard(&mut self.frames, range);
            gone.extend(told);
            mark(pages, &mut taken, gone, cause);
        } else if let Some(last) = taken.last_mut() {
            last.freed = self.pages[space.0 as usize].count_own(range);
        }
        self.revoke(event, space, cause, taken);
    }

    /// The pages in `range` that were mapped before the trace and that the recording kernel flushed one by one. Of
    /// larger flushes it is not known how many pages were present.
    fn unknown(&self, space: Space, range: &Range<u64>, taken: &[Taken]) -> Vec<u64> {
        if self.pages[space.0 as usize].is_known(range) {
            return Vec::new();
        }
        let is_counted = |taken: &&Taken| taken.pages <= CEILING_PAGES;
        taken.iter().filter(is_counted).flat_map(|taken| taken.page..taken.page + taken.pages).collect()
    }

    fn mmap(&mut self, event: &Event, space: Space, args: [u64; 5], at: u64) {
        let range = pages(at, args[1]);
        if args[3] & MAP_FIXED != 0 {
            self.unmap(event, space, Syscall::Mmap, &range);
        }
        if args[3] & MAP_STACK != 0 {
            self.pages[space.0 as usize].never_huge(&range);
        }
        let is_reserved = args[2] == 0 && args[3] & MAP_ANONYMOUS != 0 && args[3] & MAP_SHARED == 0;
        if is_reserved {
            return self.pages[space.0 as usize].reserve(range);
        }
        let backing = match args[3] {
            flags if flags & MAP_SHARED != 0 => Backing::Shared,
            flags if flags & MAP_ANONYMOUS != 0 => Backing::Private,
            _ => Backing::File,
        };
        self.pages[space.0 as usize].map(range, backing);
    }

    fn mprotect(&mut self, event: &Event, space: Space, range: &Range<u64>, protection: u64) {
        if range.is_empty() {
            return;
        }
        let pages = &mut self.pages[space.0 as usize];
        if protection & PROT_WRITE != 0 && pages.is_reserved(range.start) {
            return pages.map(range.clone(), Backing::Private);
        }
        if protection & PROT_WRITE != 0 && self.ended.flushes.is_empty() && !pages.is_known(range) {
            // So allocators let their arenas grow: no page that becomes writable was present before.
            return pages.map(range.clone(), Backing::Private);
        }
        let pages = &self.pages[space.0 as usize];
        // If other rights change than the one to write, every entry changes.
        let is_of_stores = protection != 0 && protection & PROT_EXEC == 0;
        let span = if is_of_stores { pages.span_of_stores(&self.frames, range) } else { pages.span(range) };
        self.narrow(event, space, Syscall::Mprotect, range, span);
    }

    /// The permissions of `range` are changed, or it is moved. The kernel flushes `span` once, the part that is mapped.
    fn narrow(&mut self, event: &Event, space: Space, call: Syscall, range: &Range<u64>, span: Option<Range<u64>>) {
        let deduced = || span.map(|span| taken(&span, Stride::Page4K)).into_iter().collect();
        let taken = self.recorded_revocations(space, range).unwrap_or_else(deduced);
        self.revoke(event, space, Cause::Call(call), taken);
    }

    fn unmap(&mut self, event: &Event, space: Space, call: Syscall, range: &Range<u64>) {
        if range.is_empty() {
            return;
        }
        let mut zapped = self.zapped(space, range);
        let pages = &mut self.pages[space.0 as usize];
        let is_of_file = call == Syscall::Munmap && pages.is_of_file(range.start);
        let cause = if is_of_file { Cause::FileMunmap } else { Cause::Call(call) };
        let own = pages.count_own(range);
        // A heap that has shrunk grows again at the same addresses.
        let gone = if call == Syscall::Brk { pages.present(range) } else { Vec::new() };
        let frees_tables = pages.unmap(&mut self.frames, range);
        if call == Syscall::Brk {
            mark(pages, &mut zapped, gone, cause);
        } else if let Some(last) = zapped.last_mut() {
            last.freed = own;
            if cause == Cause::Call(Syscall::Munmap) {
                pages.unmapped(own, Pattern { cause, extent: Extent::of(last.pages) });
            }
        }
        if let Some(last) = zapped.last_mut() {
            last.frees_tables = frees_tables;
        }
        self.revoke(event, space, cause, zapped);
    }

    fn brk(&mut self, event: &Event, space: Space, end: u64) {
        let before = std::mem::replace(&mut self.pages[space.0 as usize].brk, end);
        if before > end {
            self.unmap(event, space, Syscall::Brk, &pages(end, before - end));
        } else if before != 0 && before < end {
            self.pages[space.0 as usize].map(pages(before, end - before), Backing::Private);
        }
    }

    fn mremap(&mut self, event: &Event, space: Space, args: [u64; 5], to: u64) {
        let (old, new) = (pages(args[0], args[1]), pages(to, args[2]));
        if old.is_empty() || new.is_empty() {
            return;
        }
        if to == args[0] {
            if new.end < old.end {
                self.unmap(event, space, Syscall::Mremap, &(new.end..old.end));
            } else {
                self.pages[space.0 as usize].grow(&old, new.end);
            }
            return;
        }
        let span = self.pages[space.0 as usize].span(&old);
        self.narrow(event, space, Syscall::Mremap, &old, span);
        let pages = &mut self.pages[space.0 as usize];
        // A mapping may be moved and become shorter at once. What is cut off was flushed with the rest.
        let stays = old.start..old.end.min(old.start + (new.end - new.start));
        pages.rename(&mut self.frames, &stays, new.start);
        pages.discard(&mut self.frames, &(stays.end..old.end));
        let backing = pages.backing(old.start).unwrap_or(Backing::Private);
        pages.map(new, backing);
    }
}
