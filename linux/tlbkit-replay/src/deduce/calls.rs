//! What each system call takes away when it succeeds.

use super::pages::Backing;
use super::state::{Deducer, Recorded, USER_END, taken};
use crate::op::{Cause, Space, Taken};
use std::ops::Range;
use tlbkit::Stride;
use tlbkit_trace::abi::{Advice, CLONE_VM, MAP_ANONYMOUS, MAP_FIXED, MAP_SHARED, PROT_EXEC, PROT_WRITE, is_error};
use tlbkit_trace::{Event, Syscall};

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
        let spans = self.pages[space.0 as usize].zapped(range);
        spans.iter().map(|span| taken(span, Stride::Page4K)).collect()
    }

    fn madvise(&mut self, event: &Event, space: Space, range: &Range<u64>, advice: Advice) {
        if range.is_empty() {
            return;
        }
        let cause = match advice {
            Advice::DontNeed => Cause::DontNeed,
            Advice::Free => Cause::Free,
            Advice::Remove | Advice::Guard => Cause::Call(Syscall::Madvise),
            Advice::Other => return,
        };
        let taken = self.zapped(space, range);
        if advice != Advice::Free {
            self.pages[space.0 as usize].discard(&mut self.frames, range);
        }
        self.revoke(event, space, cause, taken);
    }

    fn mmap(&mut self, event: &Event, space: Space, args: [u64; 5], at: u64) {
        let range = pages(at, args[1]);
        if args[3] & MAP_FIXED != 0 {
            self.unmap(event, space, Syscall::Mmap, &range);
        }
        let is_reserved = args[2] == 0 && args[3] & MAP_ANONYMOUS != 0 && args[3] & MAP_SHARED == 0;
        if is_reserved {
            return self.pages[space.0 as usize].map(range, Backing::Reserved);
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
        let frees_tables = pages.unmap(&mut self.frames, range);
        if let Some(last) = zapped.last_mut() {
            last.frees_tables = frees_tables;
        }
        self.revoke(event, space, Cause::Call(call), zapped);
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
