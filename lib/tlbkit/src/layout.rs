//! Which part of the protocol lies at an address: what a profiler's hot cache line is about (`perf c2c` prints
//! addresses).

use core::mem::offset_of;
use core::ops::Range;

use crate::addr::CpuId;
use crate::cpu::Tlb;
use crate::cpu::state::CpuState;
use crate::flush::matrix::{MAILBOX_LINES, RequestMatrix};
use crate::flush::request::{FirstMailbox, MAILBOXES};
use crate::policy::history::state::ROWS;
use crate::space::AddressSpace;
use crate::sync::AtomicU64;

/// A part of the protocol's memory that several CPUs access, and the CPU that it belongs to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Part {
    /// What the CPU publishes about itself: initiators read it.
    Presence(CpuId),
    /// The requests of the CPU: its mailboxes.
    Mailbox(CpuId),
    /// Which CPUs may have sent a request to this one, one bit for each initiator.
    Inbox(CpuId),
    /// Which words of its inbox are not empty, on machines of more than 512 CPUs.
    TopOfInbox(CpuId),
    /// The responders that the CPU still waits for: they clear their bits.
    Outbox(CpuId),
}

impl Tlb<'_> {
    /// The part in which the byte at `address` lies; none if only one CPU accesses it, or if it is not the protocol's.
    #[must_use]
    pub fn part_at(&self, address: usize) -> Option<Part> {
        let Some(offset) = offset_in(self.cpus.as_ptr_range(), address) else { return self.matrix.part_at(address) };
        let (cpu, offset) = (CpuId((offset / size_of::<CpuState>()) as u32), offset % size_of::<CpuState>());
        let [presence, mailbox] = [offset_of!(CpuState, presence), offset_of!(CpuState, first)];
        match offset {
            _ if (presence..presence + size_of::<AtomicU64>()).contains(&offset) => Some(Part::Presence(cpu)),
            _ if (mailbox..mailbox + size_of::<FirstMailbox>()).contains(&offset) => Some(Part::Mailbox(cpu)),
            _ => None,
        }
    }
}

impl<S> AddressSpace<S> {
    /// The address of the word in which CPUs that hold the space in lazy TLB mode are counted.
    #[must_use]
    pub fn count_address(&self) -> usize {
        core::ptr::from_ref(&self.references).addr()
    }
}

impl RequestMatrix<'_> {
    /// As [`Tlb::part_at`], of what lies in the request matrix.
    fn part_at(&self, address: usize) -> Option<Part> {
        let index_in = |words: &[AtomicU64]| Some(offset_in(words.as_ptr_range(), address)? / size_of::<AtomicU64>());
        let cpu_at = |index: usize, words: usize| CpuId((index / words) as u32);
        if let Some(index) = index_in(self.inboxes) {
            let (cpu, word) = (cpu_at(index, self.inbox_stride), index % self.inbox_stride);
            return match word {
                _ if word < self.top_words => Some(Part::TopOfInbox(cpu)),
                _ if word < self.top_words + self.row_words => Some(Part::Inbox(cpu)),
                _ if word >= self.inbox_stride - MAILBOX_LINES => Some(Part::Mailbox(cpu)),
                _ => None,
            };
        }
        let index = index_in(self.rows)?;
        let (first, others) = (self.cpus * self.outbox_stride, self.start_of_row(1 + ROWS));
        match index {
            _ if index < first => Some(Part::Outbox(cpu_at(index, self.outbox_stride)))
                .filter(|_| index % self.outbox_stride < self.row_words),
            _ if index < others => None,
            _ => Some(cpu_at(index - others, (MAILBOXES - 1) * self.row_words))
                .filter(|cpu| (cpu.0 as usize) < self.cpus)
                .map(Part::Outbox),
        }
    }
}

/// How far `address` lies behind the first byte of `range`, if it lies in it.
pub(crate) fn offset_in<T>(range: Range<*const T>, address: usize) -> Option<usize> {
    let (start, end) = (range.start.addr(), range.end.addr());
    (start..end).contains(&address).then(|| address - start)
}

#[cfg(all(test, not(any(loom, narrow_sets))))]
mod tests {
    use super::*;
    use crate::addr::PhysAddr;
    use crate::policy::Policy;

    /// Of each word of the matrix and of each byte of the states, how many lie in which part of which CPU.
    #[test]
    fn each_cpu_has_its_parts_and_nothing_else_has_one() {
        const CPUS: usize = 520;
        static STATES: [CpuState; CPUS] = [const { CpuState::new() }; CPUS];
        static MATRIX: [AtomicU64; Tlb::matrix_words(CPUS)] = [const { AtomicU64::new(0) }; Tlb::matrix_words(CPUS)];
        let tlb = Tlb::new(&STATES, &MATRIX, PhysAddr(0), Policy::DEFAULT);
        let words = |start: usize, end: usize| (start..end).step_by(8).filter_map(|at| tlb.part_at(at));
        let (states, matrix) = (STATES.as_ptr_range(), MATRIX.as_ptr_range());
        let all: Vec<_> = words(states.start.addr(), states.end.addr())
            .chain(words(matrix.start.addr(), matrix.end.addr()))
            .collect();
        for cpu in [0, 1, CPUS as u32 - 1].map(CpuId) {
            let count = |part| all.iter().filter(|&&it| it == part).count();
            assert_eq!(count(Part::Presence(cpu)), 1);
            // 520 CPUs are nine words, with a tenth on top.
            assert_eq!((count(Part::Inbox(cpu)), count(Part::TopOfInbox(cpu))), (9, 1));
            let of_first = size_of::<FirstMailbox>() / 8;
            assert_eq!(count(Part::Mailbox(cpu)), of_first + 3 * 8);
            assert_eq!(count(Part::Outbox(cpu)), 4 * 9);
        }
        let online = tlb.online().words().as_ptr_range();
        assert_eq!(words(online.start.addr(), online.end.addr()).count(), 0);
        assert_eq!(tlb.part_at(matrix.end.addr()), None);
    }
}
