//! Which part of the protocol an address lies in: for a simulator that carries out another kernel's policy and gives
//! it that kernel's cache lines in place of ours. There is none of this without the feature `observe`.

use core::ops::Range;

use super::{MAILBOXES, RequestMatrix};
use crate::addr::CpuId;
use crate::history::state::ROWS;
use crate::request::RING;
use crate::sync::AtomicU64;

/// What CPUs tell each other by, and whose it is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Part {
    /// What the CPU says of itself: initiators read it.
    Presence(CpuId),
    /// What the CPU asks of others: its mailboxes.
    Mailbox(CpuId),
    /// Who has asked the CPU, one bit an initiator.
    Inbox(CpuId),
    /// Which words of its inbox are not empty, on machines of more than 512 CPUs.
    TopOfInbox(CpuId),
    /// Whom the CPU still waits for: responders clear their bits.
    Outbox(CpuId),
}

impl RequestMatrix<'_> {
    /// As [`Tlb::part_at`](crate::Tlb::part_at), of what lies in the matrix.
    pub(crate) fn part_at(&self, address: usize) -> Option<Part> {
        let index_in = |words: &[AtomicU64]| Some(offset_in(words.as_ptr_range(), address)? / size_of::<AtomicU64>());
        let of = |index: usize, words: usize| CpuId((index / words) as u32);
        if let Some(index) = index_in(self.inboxes) {
            let (cpu, word) = (of(index, self.inbox_stride), index % self.inbox_stride);
            return match word {
                _ if word < self.top_words => Some(Part::TopOfInbox(cpu)),
                _ if word < self.top_words + self.row_words => Some(Part::Inbox(cpu)),
                _ if word >= self.inbox_stride - MAILBOXES => Some(Part::Mailbox(cpu)),
                _ => None,
            };
        }
        let index = index_in(self.rows)?;
        let (first, others) = (self.cpus * self.outbox_stride, self.start_of_row(1 + ROWS));
        match index {
            _ if index < first => Some(Part::Outbox(of(index, self.outbox_stride)))
                .filter(|_| index % self.outbox_stride < self.row_words),
            _ if index < others => None,
            _ => Some(of(index - others, (RING - 1) * self.row_words))
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

#[cfg(all(test, not(narrow_sets)))]
mod tests {
    use super::*;
    use crate::addr::PhysAddr;
    use crate::cpu_state::CpuState;
    use crate::kernels::TLBKIT;
    use crate::request::First;
    use crate::tlb::Tlb;

    /// Of each word of the matrix and of each byte of the states, how many lie in which part of which CPU.
    #[test]
    fn each_cpu_has_its_parts_and_nothing_else_has_one() {
        const CPUS: usize = 520;
        static STATES: [CpuState; CPUS] = [const { CpuState::new() }; CPUS];
        static MATRIX: [AtomicU64; Tlb::matrix_words(CPUS)] = [const { AtomicU64::new(0) }; Tlb::matrix_words(CPUS)];
        let tlb = Tlb::new(&STATES, &MATRIX, PhysAddr(0), TLBKIT.policy);
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
            let of_first = size_of::<First>() / 8;
            assert_eq!(count(Part::Mailbox(cpu)), of_first + 3 * 8);
            assert_eq!(count(Part::Outbox(cpu)), 4 * 9);
        }
        let online = tlb.online().words().as_ptr_range();
        assert_eq!(words(online.start.addr(), online.end.addr()).count(), 0);
        assert_eq!(tlb.part_at(matrix.end.addr()), None);
    }
}
