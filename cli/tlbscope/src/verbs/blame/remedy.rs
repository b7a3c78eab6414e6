//! What helps against each kind of flush, in one line.

use tlbkit_trace::Syscall;
use tlbkit_trace::blame::{Counts, Mapping, Why};

/// Calls that name fewer pages than this each are many small ones.
const SMALL_PAGES: u64 = 16;
/// How many there must be to be worth a remark.
const MANY: u64 = 100;

/// What to do, or to look at.
pub(super) fn remedy(why: Why, mapping: Mapping, counts: &Counts) -> &'static str {
    let by_pages = counts.flushes.saturating_sub(counts.everything).max(1);
    let are_small = counts.flushes >= MANY && counts.pages / by_pages < SMALL_PAGES;
    match why {
        Why::DontNeed if are_small => {
            "give memory back later and in larger pieces: a longer decay in the allocator (`tlbscope tune` names the \
             setting), or one process_madvise with many ranges"
        }
        Why::DontNeed => {
            "let the allocator keep its memory: `tlbscope tune` names the setting for the one that is there"
        }
        Why::Free => "MADV_FREE flushes as well: give back less often, or not at all",
        Why::Fork => {
            "start programs by posix_spawn or vfork, which copy no page table; for snapshots, fork a small process"
        }
        Why::CopyAfterFork | Why::CopyAfterOlderFork => {
            "write less while the child lives; MADV_DONTFORK for large buffers that the child does not need; \
             posix_spawn where an exec follows; no huge pages where a snapshot forks (try no-huge-pages)"
        }
        Why::CopyOfShared | Why::CopyOfZeroes | Why::CopyOfFile => {
            "write to new memory before reading it, and it never is the shared page of zeroes; MADV_POPULATE_WRITE for \
             what will be written anyway"
        }
        Why::AbsentPage => "fault the memory in at once: MAP_POPULATE or MADV_POPULATE_WRITE, or huge pages",
        Why::NumaBalancing => "place memory by numactl or mbind, and try: tlbscope try numa-balancing=0 -- COMMAND",
        Why::SamePageMerging | Why::CopyOfMerged => {
            "echo 0 > /sys/kernel/mm/ksm/run, or MADV_UNMERGEABLE for what changes often"
        }
        Why::GroupReclaim => "raise memory.high and memory.max of the control group, or give it less to cache",
        Why::Reclaim => "more memory, less page cache (O_DIRECT, POSIX_FADV_DONTNEED), or vm.watermark_scale_factor",
        Why::Compaction => "huge pages on demand alone: tlbscope try thp-defrag=madvise -- COMMAND",
        Why::HugePages => {
            "echo 0 > /sys/kernel/mm/transparent_hugepage/khugepaged/defrag, or no-huge-pages for the program"
        }
        Why::Writeback => "sync large ranges at once rather than often; write to shared files by pwrite",
        Why::Call(call) => of_call(call, mapping),
        Why::Remove | Why::Guard | Why::Madvise(_) | Why::OtherCall(_) => "fewer and larger calls",
        Why::Unknown => "record with --stacks on all CPUs: the kernel's functions say what it is for",
    }
}

fn of_call(call: Syscall, mapping: Mapping) -> &'static str {
    match (call, mapping) {
        (Syscall::Munmap | Syscall::Mremap, Mapping::Anonymous | Mapping::Unknown) => {
            "keep the memory and use it again; if malloc does it, `tlbscope tune` names the setting that keeps it"
        }
        (Syscall::Munmap | Syscall::Mremap, Mapping::File(_)) => "map the file once and keep it, or read it by pread",
        (Syscall::Munmap, Mapping::ThreadStack) => "keep threads in a pool: each end of a thread unmaps its stack",
        (Syscall::Brk, _) => {
            "keep the heap: GLIBC_TUNABLES with trim_threshold and mmap_threshold, as `tlbscope tune` says"
        }
        (Syscall::Mprotect, Mapping::Arena) => {
            "fewer arenas that grow and shrink: GLIBC_TUNABLES=glibc.malloc.arena_max=1, as a trial"
        }
        (Syscall::Mprotect, _) => {
            "protect larger ranges less often; map the memory twice, once writable (memfd_create); or switch rights by \
             pkey_set, which flushes nothing"
        }
        (Syscall::Execve | Syscall::ExitGroup | Syscall::Clone | Syscall::Clone3 | Syscall::Vfork, _) => {
            "start fewer processes: nothing else helps"
        }
        _ => "keep the mapping and use it again",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn many_small_calls_are_told_from_few_large_ones() {
        let counts = |flushes, pages| Counts { flushes, pages, ..Counts::default() };
        let said = |counts: Counts| remedy(Why::DontNeed, Mapping::Arena, &counts);
        assert!(said(counts(1000, 4000)).contains("larger pieces"));
        assert!(said(counts(1000, 400_000)).contains("keep its memory"));
        assert!(said(counts(10, 40)).contains("keep its memory"));
    }

    #[test]
    fn a_file_is_not_told_to_the_allocator() {
        let said = |mapping| remedy(Why::Call(Syscall::Munmap), mapping, &Counts::default());
        assert!(said(Mapping::Anonymous).contains("tune") && said(Mapping::ThreadStack).contains("pool"));
        assert!(said(Mapping::File(tlbkit_trace::Names::UNKNOWN)).contains("pread"));
    }
}
