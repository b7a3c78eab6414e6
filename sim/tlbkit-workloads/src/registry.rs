//! The workloads by name, with one line on each.

use crate::{Allocator, Sharing, TlbFlushMemory, Workload};

struct NamedWorkload {
    name: &'static str,
    /// A second name, as experiments call it; empty where there is none.
    alias: &'static str,
    summary: &'static str,
    workload: fn() -> Workload,
}

const fn named(name: &'static str, summary: &'static str, workload: fn() -> Workload) -> NamedWorkload {
    NamedWorkload { name, alias: "", summary, workload }
}

const fn known_as(alias: &'static str, named: NamedWorkload) -> NamedWorkload {
    NamedWorkload { alias, ..named }
}

static WORKLOADS: &[NamedWorkload] = &[
    named(
        "pingpong",
        "two spaces on one CPU wake each other and read zero pages; unit: round trip of two turns",
        || Workload::PingPong(Default::default()),
    ),
    known_as(
        "lat_ctx",
        named("lat-ctx", "a ring of processes on one CPU, each summing its own array; unit: hop", || {
            Workload::LatCtx(Default::default())
        }),
    ),
    named("netperf", "request and response between processes whose CPUs idle in between; unit: transaction", || {
        Workload::Netperf(Default::default())
    }),
    named("memcache", "requests to the threads of one server, whose CPUs idle in between; unit: request", || {
        Workload::Memcache(Default::default())
    }),
    known_as(
        "context_switch1",
        named(
            "context-switch1",
            "pairs of threads of one process wake each other, and their CPUs idle in between; unit: switch",
            || Workload::ContextSwitch(Default::default()),
        ),
    ),
    known_as(
        "build",
        named("buildsh", "make -j of short processes: fork, copy, exec, file windows, exit; unit: command", || {
            Workload::BuildSh(Default::default())
        }),
    ),
    named("compile", "make -j8 of compilers giving memory back in a kernel build's sizes; unit: flush", || {
        Workload::Compile(Default::default())
    }),
    named("flushsizes", "one thread giving memory back in a kernel build's sizes, alone; unit: flush", || {
        Workload::FlushSizes(Default::default())
    }),
    named("ebizzy-m", "ebizzy that maps and unmaps each 128-page buffer; unit: record", || {
        Workload::Ebizzy(Allocator::AlwaysMap, Default::default())
    }),
    known_as(
        "ebizzy-2013",
        named("ebizzy-mapped", "ebizzy whose allocator maps and unmaps each buffer, 129 pages; unit: record", || {
            Workload::Ebizzy(Allocator::MallocMaps, Default::default())
        }),
    ),
    named("ebizzy-arena-old", "ebizzy on an arena trimmed by 96 pages at each free; unit: record", || {
        Workload::Ebizzy(Allocator::ArenaTrimmed, Default::default())
    }),
    named("ebizzy-modern", "ebizzy on an arena that is never trimmed: no flush at all; unit: record", || {
        Workload::Ebizzy(Allocator::ArenaKept, Default::default())
    }),
    known_as(
        "tlb_flush1",
        named(
            "tlb-flush1",
            "threads write, give back and read each page of 128 MiB of a private file; unit: page",
            || Workload::TlbFlush(TlbFlushMemory::FilePrivate, crate::TlbFlush::of_file()),
        ),
    ),
    known_as(
        "tlb_flush2",
        named("tlb-flush2", "the same on 1 MiB of anonymous memory; unit: page", || {
            Workload::TlbFlush(TlbFlushMemory::Anon, Default::default())
        }),
    ),
    known_as(
        "tlb_flush3",
        named("tlb-flush3", "as tlb-flush1, but the file is mapped shared; unit: page", || {
            Workload::TlbFlush(TlbFlushMemory::FileShared, crate::TlbFlush::of_file())
        }),
    ),
    named("mapbench-local", "threads map, touch and unmap their own pages; unit: page", || {
        Workload::MapBench(Sharing::Local, Default::default())
    }),
    named("mapbench-pipeline", "each thread touches and unmaps what its neighbour mapped; unit: page", || {
        Workload::MapBench(Sharing::Pipeline, Default::default())
    }),
    named("mapbench-global", "all threads touch all pages, then each renews its slice; unit: page", || {
        Workload::MapBench(Sharing::Global, Default::default())
    }),
    named("madvise1", "one thread writes and gives back one page, the others spin; unit: page", || {
        Workload::Madvise1(Default::default())
    }),
    named("munmap1", "one thread maps, all threads write, it unmaps and times that alone; unit: mapping", || {
        Workload::Munmap1(Default::default())
    }),
    named("reclaim", "threads, or processes, read pages of files that do not fit into memory; unit: lookup", || {
        Workload::Reclaim(Default::default())
    }),
    named(
        "isolated",
        "programs on isolated CPUs, while others flush kernel addresses; unit: turn of a program",
        || Workload::Isolated(Default::default()),
    ),
];

/// The names of all workloads.
pub fn names() -> impl Iterator<Item = &'static str> {
    WORKLOADS.iter().map(|named| named.name)
}

/// The workload called `name`, with its default parameters.
pub fn by_name(name: &str) -> Option<Workload> {
    find(name).map(|named| (named.workload)())
}

/// One line on the workload called `name`: what it does, and what one unit of its score is.
pub fn describe(name: &str) -> Option<&'static str> {
    find(name).map(|named| named.summary)
}

fn find(name: &str) -> Option<&'static NamedWorkload> {
    WORKLOADS.iter().find(|named| !name.is_empty() && (named.name == name || named.alias == name))
}
