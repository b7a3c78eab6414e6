//! Uses the kernel's own record of its flushes for what system calls and faults do not tell: what a process that is
//! older than the trace had mapped, whether a write copied a page while the last process that shared it ended, and
//! which CPUs were asked although they did not run the space.

use super::state::{Deducer, Recorded, taken};
use crate::op::{Space, Taken};
use std::ops::Range;
use tlbkit::Stride;
use tlbkit_trace::{Event, FlushReason, FlushSize};

impl Deducer {
    /// A thread of a program flushes.
    pub(super) fn flush(&mut self, event: &Event, reason: FlushReason, size: FlushSize) {
        let task = self.task(event.tid);
        let space = task.space;
        task.is_asking = false;
        match reason {
            FlushReason::RemoteSendIpi => {
                task.is_asking = true;
                self.older.asks(event.cpu, space);
            }
            FlushReason::LocalMmShootdown if task.call.is_some() => task.recorded.flushes.push(size),
            FlushReason::LocalMmShootdown => {
                if let Some(page) = task.store.take() {
                    self.ended = std::mem::replace(&mut task.recorded, Recorded::NOTHING);
                    self.count_recorded(size);
                    self.pages[space.0 as usize].copied(&mut self.frames, page);
                    self.copy(event, space, page);
                    self.ended = Recorded::NOTHING;
                }
            }
            _ => {}
        }
    }

    /// The event's thread queues the call `csd` for `cpu`. It asks for a flush if the thread has just begun to ask
    /// other CPUs.
    pub(super) fn send(&mut self, event: &Event, cpu: u32, csd: u64) {
        if self.tasks.get(&event.tid).is_some_and(|task| task.is_asking) {
            // Until the answer begins the CPU may be switched, so the answer decides if it was recorded.
            if self.people.tells_answers {
                self.asked.insert(csd, event.tid);
            } else {
                self.find_gone(cpu, event.tid);
            }
        }
    }

    /// The call `csd` begins on the event's CPU, which may have been switched since it was queued.
    pub(super) fn answer(&mut self, event: &Event, csd: u64) {
        if let Some(asking) = self.asked.remove(&csd) {
            self.find_gone(event.cpu, asking);
        }
    }

    /// Notes that the flush for which the thread `asking` waits trims the CPU set, if `cpu` runs another program now.
    fn find_gone(&mut self, cpu: u32, asking: i32) {
        let target = self.running.get(cpu as usize).copied().flatten().filter(|&tid| self.is_program(tid));
        let Some(asking_task) = self.tasks.get(&asking) else { return };
        let Some(target) = target.and_then(|tid| self.tasks.get(&tid)) else { return };
        if target.space == asking_task.space {
            return;
        }
        match asking_task.copied {
            Some(number) => self.done.trimmed.push(number),
            None => self.task(asking).recorded.trims = true,
        }
    }

    /// The revocations that the kernel recorded in the call that is ending. None if the trace has shown what is mapped
    /// in `range`, so that the record is not needed, or if there is no record.
    pub(super) fn recorded_revocations(&mut self, space: Space, range: &Range<u64>) -> Option<Vec<Taken>> {
        if !self.people.tells_flushes || self.pages[space.0 as usize].is_known(range) {
            return None;
        }
        let span = |size: &FlushSize| match size {
            FlushSize::Pages(pages @ 1..) => range.start..range.end.min(range.start.saturating_add(*pages)),
            // The flush was above the ceiling, or had nothing left to do. So only the call tells which pages were
            // meant.
            _ => range.clone(),
        };
        let flushes = std::mem::take(&mut self.ended.flushes);
        flushes.iter().for_each(|&size| self.count_recorded(size));
        self.ended.flushes = flushes;
        Some(self.ended.flushes.iter().map(|size| taken(&span(size), Stride::Page4K)).collect())
    }

    /// Counts a flush that is taken from the kernel's record, and not deduced.
    fn count_recorded(&mut self, size: FlushSize) {
        self.done.told += 1;
        *self.done.told_sizes.entry(size).or_default() += 1;
    }
}
