//! What each system call takes away, once it has succeeded.

use super::Deducer;
use super::pages::Backing;
use crate::op::{Cause, Space, Step};
use std::ops::Range;
use tlbkit_trace::{Event, Syscall};

/// End of user addresses with four levels of tables.
pub(super) const USER_END: u64 = 1 << 47;
/// Where exec's stack is, near enough.
pub(super) const STACK_PAGE: u64 = (USER_END >> 12) - 64;

const MADV_DONTNEED: u64 = 4;
const MADV_FREE: u64 = 8;
const MAP_SHARED: u64 = 1;
const MAP_FIXED: u64 = 0x10;
const MAP_ANONYMOUS: u64 = 0x20;

/// Pages of `bytes` bytes from `start`.
fn pages(start: u64, bytes: u64) -> Range<u64> {
    start >> 12..start.saturating_add(bytes).div_ceil(4096).min(USER_END >> 12)
}

impl Deducer {
    pub(super) fn leave(&mut self, event: &Event, call: Syscall, result: i64) {
        let task = self.task(event.tid);
        let space = task.space;
        let Some((_, args)) = task.call.take_if(|entered| entered.0 == call) else { return };
        if result < 0 && result > -4096 {
            return;
        }
        match call {
            Syscall::Mmap => self.mmap(event, space, args, result as u64),
            Syscall::Munmap => self.unmap(event, space, call, &pages(args[0], args[1])),
            Syscall::Mprotect => self.narrow(event, space, call, &pages(args[0], args[1])),
            Syscall::Madvise if matches!(args[2], MADV_DONTNEED | MADV_FREE) => {
                let range = pages(args[0], args[1]);
                let spans = self.pages[space.0 as usize].zapped(&range);
                spans.into_iter().for_each(|span| self.revoke(event, space, call, span, false));
                if args[2] == MADV_DONTNEED {
                    self.pages[space.0 as usize].discard(&mut self.frames, &range);
                }
            }
            Syscall::Brk => self.brk(event, space, result as u64),
            Syscall::Mremap => self.mremap(event, space, args, result as u64),
            // The parent's entries become read-only; the child's return is another thread's.
            Syscall::Clone if result > 0 && args[0] & super::CLONE_VM == 0 => {
                self.revoke(event, space, call, 0..u64::MAX, false);
            }
            _ => {}
        }
    }

    fn revoke(&mut self, event: &Event, space: Space, call: Syscall, range: Range<u64>, frees_tables: bool) {
        let pages = if range.end == u64::MAX { u64::MAX } else { range.end - range.start };
        let step = Step::Revoke { space, cause: Cause::Call(call), page: range.start, pages, frees_tables };
        self.push(event, event.comm, step);
    }

    fn mmap(&mut self, event: &Event, space: Space, args: [u64; 5], at: u64) {
        let range = pages(at, args[1]);
        if args[3] & MAP_FIXED != 0 {
            self.unmap(event, space, Syscall::Mmap, &range);
        }
        let backing = match args[3] {
            flags if flags & MAP_SHARED != 0 => Backing::Shared,
            flags if flags & MAP_ANONYMOUS != 0 => Backing::Private,
            _ => Backing::File,
        };
        self.pages[space.0 as usize].map(range, backing);
    }

    /// Permissions are taken, or frames; what is mapped stays so, or not.
    fn narrow(&mut self, event: &Event, space: Space, call: Syscall, range: &Range<u64>) {
        if let Some(span) = self.pages[space.0 as usize].span(range) {
            self.revoke(event, space, call, span, false);
        }
    }

    fn unmap(&mut self, event: &Event, space: Space, call: Syscall, range: &Range<u64>) {
        if range.is_empty() {
            return;
        }
        let pages = &mut self.pages[space.0 as usize];
        let mut spans = pages.zapped(range);
        let frees_tables = pages.unmap(&mut self.frames, range);
        let last = spans.pop();
        spans.into_iter().for_each(|span| self.revoke(event, space, call, span, false));
        last.into_iter().for_each(|span| self.revoke(event, space, call, span, frees_tables));
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
        if to == args[0] {
            if new.end < old.end {
                self.unmap(event, space, Syscall::Mremap, &(new.end..old.end));
            }
            return;
        }
        self.narrow(event, space, Syscall::Mremap, &old);
        let pages = &mut self.pages[space.0 as usize];
        pages.rename(&old, new.start);
        pages.map(new, Backing::Private);
    }
}
