//! The purpose of a flush, as the system call, the fault, the thread or the kernel's functions on the stack tell.

use crate::abi::{Advice, CLONE_VM, FAULT_PRESENT, FAULT_WRITE, advice_label};
use crate::event::Syscall;
use crate::names::{Code, Name, Names};

/// The purpose of a flush.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Why {
    /// A system call that is none of those below.
    Call(Syscall),
    /// A system call that is not recorded as an event, known by the name of a function on the stack.
    OtherCall(Name),
    /// An `madvise` that gives pages back at once.
    DontNeed,
    /// An `madvise` that lets the kernel take pages when memory is short.
    Free,
    /// An `madvise` that removes pages from a file or from shared memory.
    Remove,
    /// An `madvise` after which every access to the range is an error.
    Guard,
    /// An `madvise` with another advice, by Linux's name of it.
    Madvise(&'static str),
    /// A fork, which copies page tables for the child.
    Fork,
    /// A write to a page that a fork had made shared, so that the page was copied.
    CopyAfterFork,
    /// The same in a process that is older than the recording, so that nothing tells of the fork.
    CopyAfterOlderFork,
    /// A write to a page that the program had only read before, so that the kernel's page of zeroes was copied.
    CopyOfZeroes,
    /// A write to a page of a private file mapping, which was copied.
    CopyOfFile,
    /// A write to a page that the kernel had merged with others of the same content.
    CopyOfMerged,
    /// Any other write to a page that was only readable.
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
            Self::OtherCall(name) => call_label(names.text(name)),
            Self::DontNeed => "madvise DONTNEED",
            Self::Free => "madvise FREE",
            Self::Remove => "madvise REMOVE",
            Self::Guard => "madvise GUARD_INSTALL",
            Self::Madvise(advice) => return format!("madvise {advice}"),
            Self::Fork => "fork",
            Self::CopyAfterFork => "copy on write after fork",
            Self::CopyAfterOlderFork => "copy on write after an older fork",
            Self::CopyOfZeroes => "copy of the page of zeroes",
            Self::CopyOfFile => "copy of a private file's page",
            Self::CopyOfMerged => "copy of a merged page",
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

    /// Whether the kernel flushes for its own purposes, which may concern memory of any kind.
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
                Advice::Other => Self::Madvise(advice_label(args[2])),
            },
            Syscall::Clone if args[0] & CLONE_VM == 0 => Self::Fork,
            _ => Self::Call(call),
        }
    }

    /// The purpose of a flush in a page fault with this error code, at a page with this past.
    pub(super) fn of_fault(error_code: u32, past: Past) -> Self {
        const COPY: u32 = FAULT_PRESENT | FAULT_WRITE;
        match past {
            _ if error_code & COPY != COPY => Self::AbsentPage,
            Past::File => Self::CopyOfFile,
            Past::Zeroes => Self::CopyOfZeroes,
            Past::Merged => Self::CopyOfMerged,
            Past::Forked => Self::CopyAfterFork,
            Past::Older => Self::CopyAfterOlderFork,
            Past::Alone => Self::CopyOfShared,
        }
    }

    /// The purpose of a flush by the kernel thread of this name. None if the name is not that of such a thread.
    pub(super) fn of_thread(comm: &str) -> Option<Self> {
        let found = THREADS.iter().find(|(start, _)| comm.starts_with(start));
        found.map(|&(_, why)| why)
    }
}

/// What the kernel's functions on a stack show.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Shown {
    /// The kernel flushes for its own purposes.
    Own(Why),
    /// A system call of the program, as [`Why::OtherCall`] or, if it is recorded, [`Why::Call`].
    Call(Why),
    /// A system call, by the name of a function that it calls: its own is not on the stack.
    InCall(Why),
    /// A page fault, with the purpose that it has if no event tells of it.
    Fault(Why),
}

impl Shown {
    /// What the innermost function shows that shows anything. None if no function does.
    ///
    /// Writeback and huge pages are the kernel's own purposes only if no system call of the program asks for them, as
    /// `fsync` and `MADV_COLLAPSE` do.
    pub(super) fn by(frames: &[Code], names: &Names) -> Option<Self> {
        let mut asked = None;
        let mut fault = Why::AbsentPage;
        let mut inner = None;
        let mut truncates = false;
        for name in frames.iter().filter_map(|frame| frame.name()) {
            let function = names.text(name);
            let is_any = |starts: &[&str]| starts.iter().any(|start| function.starts_with(start));
            match FUNCTIONS.iter().find(|(start, _)| function.starts_with(start)) {
                Some(&(_, why @ (Why::Writeback | Why::HugePages))) => asked = asked.or(Some(Self::Own(why))),
                Some(&(_, why)) => return Some(Self::Own(why)),
                None if function.starts_with(OPEN) && !truncates => inner = Some(name),
                None if OTHER_CALLS.iter().any(|(start, _)| function.starts_with(start)) => {
                    return Some(Self::call(name, names));
                }
                None if function.starts_with(TRUNCATE) => truncates = true,
                None if is_any(&COPIES) => fault = Why::CopyOfShared,
                None if is_any(&FAULTS) => return asked.or(Some(Self::Fault(fault))),
                None if is_any(&CALL_STARTS) => return Some(Self::call(name, names)),
                None if is_any(&DISPATCHERS) => return inner.map(|name| Self::InCall(Why::OtherCall(name))).or(asked),
                None => inner = Some(name),
            }
        }
        asked
    }

    fn call(function: Name, names: &Names) -> Self {
        let label = call_label(names.text(function));
        let recorded = Syscall::ALL.into_iter().find(|call| call.label() == label);
        Self::Call(recorded.map_or(Why::OtherCall(function), Why::Call))
    }
}

/// What is known of a page that is written to and was only readable.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Past {
    /// It is of a private mapping of a file.
    File,
    /// The program had read it before anything was in it.
    Zeroes,
    /// The program lets the kernel merge such pages.
    Merged,
    /// The process has taken part in a fork, as parent or as child.
    Forked,
    /// It was there before the recording, and so may have been any fork.
    Older,
    /// None of these: the process has not forked since it was executed.
    Alone,
}

/// A short name of the system call in which the kernel's function `function` runs.
fn call_label(function: &str) -> &str {
    let is_of = |(start, _): &&(&str, _)| function.starts_with(start);
    let known = OTHER_CALLS.iter().find(is_of).map(|&(_, label)| label);
    let named = || CALL_STARTS.iter().find_map(|start| function.strip_prefix(start));
    known.or_else(named).unwrap_or(function)
}

/// How the names of the kernel's functions for system calls begin.
const CALL_STARTS: [&str; 5] = ["__x64_sys_", "__do_sys_", "__se_sys_", "ksys_", "__ia32_sys_"];

/// What calls the functions of system calls.
const DISPATCHERS: [&str; 3] = ["do_syscall_64", "x64_sys_call", "entry_SYSCALL_64"];

/// What handles page faults, and what copies pages in them.
const FAULTS: [&str; 2] = ["asm_exc_page_fault", "exc_page_fault"];
const COPIES: [&str; 3] = ["do_wp_page", "wp_page_copy", "do_huge_pmd_wp_page"];

/// Functions that say more than the name of the system call around them, or than their own: which flush is meant.
const OTHER_CALLS: [(&str, &str); 5] = [
    ("clear_refs_write", "clear_refs of /proc"),
    ("mwriteprotect_range", "userfaultfd write protection"),
    ("userfaultfd_", "userfaultfd"),
    ("ksys_mmap_pgoff", "mmap"),
    (OPEN, "open O_TRUNC"),
];

/// What opens a file, and what then truncates it if the program asks for that.
const OPEN: &str = "path_openat";
const TRUNCATE: &str = "do_truncate";

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

    /// Functions as the kernel's stacks name them, outside of the functions that all flushes share.
    const STACKS: [(&str, &str); 24] = [
        ("unmap_vmas mmap_region do_mmap vm_mmap_pgoff do_syscall_64", "vm_mmap_pgoff"),
        ("populate_vma_page_range __mm_populate vm_mmap_pgoff ksys_mmap_pgoff do_syscall_64", "mmap"),
        ("unmap_page_range notify_change do_truncate do_sys_ftruncate __x64_sys_ftruncate do_syscall_64", "ftruncate"),
        ("unmap_mapping_range shmem_fallocate vfs_fallocate __x64_sys_fallocate do_syscall_64", "fallocate"),
        ("truncate_pagecache do_truncate path_openat do_filp_open __x64_sys_openat do_syscall_64", "open O_TRUNC"),
        ("unmap_vmas do_vmi_align_munmap ksys_shmdt do_syscall_64", "shmdt"),
        ("tlb_finish_mmu vector_madvise __do_sys_process_madvise do_syscall_64", "process_madvise"),
        ("tlb_finish_mmu do_mprotect_pkey __x64_sys_pkey_mprotect do_syscall_64", "pkey_mprotect"),
        ("clear_refs_write vfs_write ksys_write do_syscall_64", "clear_refs of /proc"),
        (
            "uffd_wp_range mwriteprotect_range userfaultfd_ioctl __x64_sys_ioctl do_syscall_64",
            "userfaultfd write protection",
        ),
        ("move_pages_huge_pmd userfaultfd_ioctl __x64_sys_ioctl do_syscall_64", "userfaultfd"),
        ("page_vma_mkclean_one folio_mkclean do_writepages __do_sys_msync do_syscall_64", "msync"),
        ("folio_mkclean do_writepages ext4_sync_file __x64_sys_fdatasync do_syscall_64", "fdatasync"),
        ("folio_mkclean do_writepages wb_workfn process_one_work kthread ret_from_fork", "writeback"),
        ("pmdp_collapse_flush collapse_huge_page madvise_collapse do_madvise __x64_sys_madvise", "madvise"),
        ("pmdp_collapse_flush collapse_huge_page khugepaged kthread ret_from_fork", "khugepaged"),
        ("ptep_clear_flush do_wp_page handle_mm_fault exc_page_fault asm_exc_page_fault", "copy on write"),
        ("ptep_clear_flush do_wp_page handle_mm_fault asm_exc_page_fault _copy_to_iter ksys_read", "copy on write"),
        ("ptep_clear_flush do_wp_page faultin_page access_remote_vm mem_rw __x64_sys_pwrite64", "pwrite64"),
        ("try_to_unmap_one shrink_folio_list try_to_free_pages do_anonymous_page asm_exc_page_fault", "reclaim"),
        ("shrink_folio_list reclaim_pages madvise_pageout do_madvise __x64_sys_madvise", "madvise"),
        ("change_prot_numa task_numa_work task_work_run do_syscall_64", "NUMA balancing"),
        ("migrate_pages compact_zone compact_zone_order do_huge_pmd_anonymous_page exc_page_fault", "compaction"),
        ("write_protect_page try_to_merge_one_page ksm_scan_thread kthread", "same-page merging"),
    ];

    #[test]
    fn the_stack_names_the_call_the_fault_or_the_kernels_own_purpose() {
        for (functions, label) in STACKS {
            let mut names = Names::default();
            let inner = "flush_tlb_func flush_tlb_mm_range tlb_flush_mmu_tlbonly";
            let frames: Vec<_> =
                inner.split(' ').chain(functions.split(' ')).map(|text| Code::symbol(names.add(text))).collect();
            let (Shown::Own(why) | Shown::Call(why) | Shown::InCall(why) | Shown::Fault(why)) =
                Shown::by(&frames, &names).expect(label);
            assert_eq!(why.label(&names), label);
            assert_eq!(Shown::by(&frames[..3], &names), None);
        }
    }

    #[test]
    fn madvise_is_told_by_its_advice() {
        let of = |advice| Why::of_call(Syscall::Madvise, &[0, 0, advice, 0, 0]);
        assert_eq!([4, 24, 4 | 1 << 32].map(of), [Why::DontNeed; 3]);
        assert_eq!([8, 9, 102].map(of), [Why::Free, Why::Remove, Why::Guard]);
        assert_eq!([20, 25].map(of), [Why::Madvise("COLD"), Why::Madvise("COLLAPSE")]);
    }

    #[test]
    fn only_stores_to_what_is_there_are_copies() {
        assert_eq!(Why::of_fault(7, Past::Forked), Why::CopyAfterFork);
        assert_eq!(Why::of_fault(7, Past::Alone), Why::CopyOfShared);
        assert_eq!([6, 5].map(|code| Why::of_fault(code, Past::Forked)), [Why::AbsentPage; 2]);
    }
}
