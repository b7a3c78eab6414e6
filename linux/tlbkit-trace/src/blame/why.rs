//! The purpose of a flush, as the system call, the fault, the thread or the kernel's functions on the stack tell.

use crate::abi::{Advice, CLONE_VM, FAULT_PRESENT, FAULT_WRITE};
use crate::event::Syscall;
use crate::names::{Code, Name, Names};

/// The purpose of a flush.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Why {
    /// A system call that is none of those below.
    Call(Syscall),
    /// A system call that is not recorded as an event, known by the name of its function on the stack.
    OtherCall(Name),
    /// An `madvise` that gives pages back at once.
    DontNeed,
    /// An `madvise` that lets the kernel take pages when memory is short.
    Free,
    /// An `madvise` that removes pages from a file or from shared memory.
    Remove,
    /// An `madvise` after which every access to the range is an error.
    Guard,
    /// A fork, which copies page tables for the child.
    Fork,
    /// A write to a page that a fork had made shared, so that the page was copied.
    CopyAfterFork,
    /// Any other write to a page that was only readable, such as the page of zeros or a page of a private file mapping.
    CopyOfShared,
    /// An access to a page that was not present.
    AbsentPage,
    /// NUMA balancing: the kernel finds out which threads use which memory, or moves memory near to them.
    NumaBalancing,
    /// The kernel merges pages of the same content.
    SamePageMerging,
    /// The kernel takes pages from a control group whose memory is at its limit.
    GroupReclaim,
    /// The kernel takes pages because the machine is short of memory.
    Reclaim,
    /// The kernel moves pages to make free memory contiguous.
    Compaction,
    /// The kernel's own thread replaces small pages by a huge one.
    HugePages,
    /// The kernel makes pages of a shared file read-only, to write them to disk.
    Writeback,
    /// It is not known.
    Unknown,
}

impl Why {
    /// A short name for tables. `names` are those of the trace.
    #[must_use]
    pub fn label(self, names: &Names) -> String {
        let label = match self {
            Self::Call(call) => call.label(),
            Self::OtherCall(name) => names.text(name),
            Self::DontNeed => "madvise DONTNEED",
            Self::Free => "madvise FREE",
            Self::Remove => "madvise REMOVE",
            Self::Guard => "madvise GUARD_INSTALL",
            Self::Fork => "fork",
            Self::CopyAfterFork => "copy on write after fork",
            Self::CopyOfShared => "copy on write",
            Self::AbsentPage => "page fault",
            Self::NumaBalancing => "NUMA balancing",
            Self::SamePageMerging => "same-page merging",
            Self::GroupReclaim => "reclaim in a control group",
            Self::Reclaim => "reclaim",
            Self::Compaction => "compaction",
            Self::HugePages => "khugepaged",
            Self::Writeback => "writeback",
            Self::Unknown => "unknown",
        };
        label.to_owned()
    }

    /// Whether the kernel flushes for a purpose of its own, which may concern memory of any kind.
    #[must_use]
    pub const fn is_the_kernels(self) -> bool {
        use Why::{Compaction, GroupReclaim, HugePages, NumaBalancing, Reclaim, SamePageMerging, Writeback};
        matches!(self, Compaction | GroupReclaim | HugePages | NumaBalancing | Reclaim | SamePageMerging | Writeback)
    }

    /// The purpose of a flush in a system call with these arguments.
    pub(super) fn of_call(call: Syscall, args: &[u64; 5]) -> Self {
        match call {
            Syscall::Madvise => match Advice::of(args[2]) {
                Advice::DontNeed => Self::DontNeed,
                Advice::Free => Self::Free,
                Advice::Remove => Self::Remove,
                Advice::Guard => Self::Guard,
                Advice::Other => Self::Call(call),
            },
            Syscall::Clone if args[0] & CLONE_VM == 0 => Self::Fork,
            _ => Self::Call(call),
        }
    }

    /// The purpose of a flush in a page fault with this error code, in a process with this past.
    pub(super) fn of_fault(error_code: u32, past: Past) -> Self {
        const COPY: u32 = FAULT_PRESENT | FAULT_WRITE;
        match (error_code & COPY == COPY, past) {
            (true, Past::Forked) => Self::CopyAfterFork,
            (true, Past::Alone) => Self::CopyOfShared,
            (false, _) => Self::AbsentPage,
        }
    }

    /// The purpose of a flush by the kernel thread of this name. None if the name is not that of such a thread.
    pub(super) fn of_thread(comm: &str) -> Option<Self> {
        let found = THREADS.iter().find(|(start, _)| comm.starts_with(start));
        found.map(|&(_, why)| why)
    }

    /// The purpose that the kernel's functions on a stack show: the innermost one that shows any. None if no function
    /// does.
    pub(super) fn of_stack(frames: &[Code], names: &Names) -> Option<Self> {
        let mut call = None;
        for &frame in frames {
            let Some(name) = frame.name() else { continue };
            let function = names.text(name);
            if let Some(&(_, why)) = FUNCTIONS.iter().find(|(start, _)| function.starts_with(start)) {
                return Some(why);
            }
            if function.starts_with(CALL_START) {
                call = Some(Self::OtherCall(name));
            }
        }
        call
    }
}

/// Whether the program of a process has ever taken part in a fork, as parent or as child.
#[derive(Clone, Copy)]
pub(super) enum Past {
    /// It has.
    Forked,
    /// It has not since it was executed.
    Alone,
}

/// How the names of the kernel's functions for system calls begin.
pub(super) const CALL_START: &str = "__x64_sys_";

/// The kernel threads that flush, by the beginning of their names.
const THREADS: [(&str, Why); 5] = [
    ("ksmd", Why::SamePageMerging),
    ("kswapd", Why::Reclaim),
    ("khugepaged", Why::HugePages),
    ("kcompactd", Why::Compaction),
    ("kworker", Why::Writeback),
];

/// Functions that run for one purpose only, by the beginning of their names. The first row that fits counts.
const FUNCTIONS: [(&str, Why); 15] = [
    ("ksm_", Why::SamePageMerging),
    ("try_to_merge_", Why::SamePageMerging),
    ("change_prot_numa", Why::NumaBalancing),
    ("task_numa_work", Why::NumaBalancing),
    ("migrate_misplaced", Why::NumaBalancing),
    ("do_numa_page", Why::NumaBalancing),
    ("try_to_free_mem_cgroup", Why::GroupReclaim),
    ("balance_pgdat", Why::Reclaim),
    ("try_to_free_pages", Why::Reclaim),
    ("compact_zone", Why::Compaction),
    ("collapse_huge_page", Why::HugePages),
    ("khugepaged", Why::HugePages),
    ("folio_mkclean", Why::Writeback),
    ("page_mkclean", Why::Writeback),
    ("dup_mmap", Why::Fork),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_stack_tells_what_no_event_does() {
        let mut names = Names::default();
        let codes =
            ["flush_tlb_mm_range", "change_prot_numa", "task_numa_work"].map(|text| Code::symbol(names.add(text)));
        assert_eq!(Why::of_stack(&codes, &names), Some(Why::NumaBalancing));
        let call = names.add("__x64_sys_process_madvise");
        let codes = [codes[0], Code::address(0xffff_ffff_8100_0000), Code::symbol(call)];
        assert_eq!(Why::of_stack(&codes, &names), Some(Why::OtherCall(call)));
        assert_eq!(Why::of_stack(&codes[..1], &names), None);
    }

    #[test]
    fn madvise_is_told_by_its_advice() {
        let of = |advice| Why::of_call(Syscall::Madvise, &[0, 0, advice, 0, 0]);
        assert_eq!([4, 24, 4 | 1 << 32].map(of), [Why::DontNeed; 3]);
        assert_eq!([8, 9, 102].map(of), [Why::Free, Why::Remove, Why::Guard]);
        assert_eq!([3, 21].map(of), [Why::Call(Syscall::Madvise); 2]);
    }

    #[test]
    fn only_stores_to_what_is_there_are_copies() {
        assert_eq!(Why::of_fault(7, Past::Forked), Why::CopyAfterFork);
        assert_eq!(Why::of_fault(7, Past::Alone), Why::CopyOfShared);
        assert_eq!(Why::of_fault(6, Past::Forked), Why::AbsentPage);
        assert_eq!(Why::of_fault(5, Past::Forked), Why::AbsentPage);
    }
}
