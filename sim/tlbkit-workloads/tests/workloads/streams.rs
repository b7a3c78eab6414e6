//! The calls of one iteration are those of the program that each workload stands for.

use crate::common::{Loses, Op, run, run_from};
use tlbkit_workloads::pattern::PAGE_BYTES;
use tlbkit_workloads::{FLUSH_SIZES, Part, Workload, by_name, draw_flush_size, flush_size_weight};

fn log(name: &str, settings: &[&str], role: u32) -> Vec<Op> {
    let mut workload: Workload = by_name(name).expect("a known workload");
    settings.iter().for_each(|setting| workload.set(setting).expect("a good setting"));
    let mut outcome = run(workload, 4, 0, Loses::Nothing);
    assert!(outcome.score > 0 && outcome.wrong.is_empty(), "{name}: {:?}", outcome.wrong);
    outcome.logs.remove(&role).expect("the role ran")
}

/// The calls from the `nth` call (from 0) that `starts` on, up to the next count.
fn iteration(log: &[Op], nth: usize, starts: impl Fn(&Op) -> bool) -> Vec<Op> {
    let first = log.iter().enumerate().filter(|(_, op)| starts(op)).nth(nth).expect("it starts").0;
    let rest = &log[first..];
    let end = rest.iter().position(|op| matches!(op, Op::Count(_))).expect("it counts");
    rest[..=end].to_vec()
}

fn page(base: u64, page: u64) -> u64 {
    base + page * PAGE_BYTES
}

/// Reads of chunk 0 and writes of the buffer in turn, `tail` pages more written, then the search for key 0.
fn record(source: u64, buffer: u64, tail: u64) -> Vec<Op> {
    let mut ops: Vec<Op> = (0..128).flat_map(|i| [Op::Read(page(source, i)), Op::Write(page(buffer, i))]).collect();
    ops.extend((0..tail).map(|i| Op::Write(page(buffer, 128 + i))));
    ops.extend([64, 32, 16, 8, 4, 2, 1, 0].map(|i| Op::Read(page(buffer, i))));
    ops
}

#[test]
fn a_turn_of_the_ping_pong_reads_each_page_once() {
    let log = log("pingpong", &["pages=1", "own_pages=2", "rounds=2"], 1);
    let Op::Read(base) = log[2] else { panic!("{log:?}") };
    let turn =
        [Op::Wait(1), Op::Read(base), Op::Read(page(base, 1)), Op::Read(page(base, 2)), Op::Count(1), Op::Post(0)];
    assert_eq!(log[1..7], turn);
    assert_eq!(log[7..13], turn);
}

#[test]
fn a_hop_of_the_ring_reads_the_whole_array() {
    let log = log("lat-ctx", &["processes=3", "kib=8", "rounds=2"], 2);
    let hop = &log[log.iter().rposition(|op| *op == Op::Count(1)).unwrap() - 3..];
    assert!(matches!(hop, [Op::Wait(2), Op::Read(a), Op::Read(b), Op::Count(1), Op::Post(0), ..] if *b == page(*a, 1)));
}

#[test]
fn ebizzy_m_copies_searches_and_unmaps() {
    let log = log("ebizzy-m", &["threads=1", "rounds=3", "record_cycles=5"], 1);
    let ops = iteration(&log, 1, |op| *op == Op::Map(128));
    let (Op::Read(source), Op::Write(buffer)) = (ops[1], ops[2]) else { panic!("{ops:?}") };
    let mut expected = vec![Op::Map(128)];
    expected.extend(record(source, buffer, 0));
    expected.extend([Op::Unmap(buffer, 128), Op::Compute(5), Op::Count(1)]);
    assert_eq!(ops, expected);
}

#[test]
fn a_buffer_that_malloc_maps_has_a_page_more_for_its_header() {
    let log = log("ebizzy-mapped", &["threads=1", "rounds=3", "record_cycles=5"], 1);
    let ops = iteration(&log, 1, |op| *op == Op::Map(129));
    let (Op::Write(mapping), Op::Read(source)) = (ops[1], ops[2]) else { panic!("{ops:?}") };
    let mut expected = vec![Op::Map(129), Op::Write(mapping)];
    expected.extend(record(source, page(mapping, 1), 0));
    expected.extend([Op::Unmap(mapping, 129), Op::Compute(5), Op::Count(1)]);
    assert_eq!(ops, expected);
}

#[test]
fn an_arena_of_2013_gives_96_pages_back_and_todays_none() {
    for (name, end) in [("ebizzy-arena-old", 1), ("ebizzy-modern", 0)] {
        let log = log(name, &["threads=1", "rounds=4", "record_cycles=5"], 1);
        assert_eq!(log.iter().filter(|op| matches!(op, Op::Map(_))).count(), 2, "the first buffer, and the arena");
        assert_eq!(log[0], Op::Map(129));
        let records = log.iter().position(|op| *op == Op::Map(16_384)).unwrap() + 1;
        let (Op::Write(arena), Op::Read(source)) = (log[records], log[records + 1]) else { panic!("{log:?}") };
        let mut expected = vec![Op::Write(arena)];
        expected.extend(record(source, page(arena, 1), 0));
        expected.extend([Op::Dontneed(page(arena, 33), 96)].into_iter().take(end));
        expected.extend([Op::Compute(5), Op::Count(1)]);
        assert_eq!(log[records..], expected.repeat(3), "{name}");
    }
}

#[test]
fn a_page_of_tlb_flush_is_written_given_back_and_read() {
    for name in ["tlb-flush1", "tlb-flush2"] {
        let log = log(name, &["threads=1", "pages=2", "rounds=1"], 1);
        let Op::Write(a) = log[2] else { panic!("{log:?}") };
        let each = |va| [Op::Write(va), Op::Dontneed(va, 1), Op::Read(va), Op::Count(1)];
        let expected = [&[Op::Pin(0), Op::Map(2)], &each(a)[..], &each(page(a, 1)), &[Op::Unmap(a, 2)]].concat();
        assert_eq!(log, expected, "{name}");
    }
}

#[test]
fn threads_of_tlb_flush3_divide_one_mapping() {
    let log = log("tlb-flush3", &["threads=2", "pages=2", "rounds=1"], 2);
    let Op::Write(a) = log[1] else { panic!("{log:?}") };
    let each = |va| [Op::Write(va), Op::Dontneed(va, 1), Op::Read(va), Op::Count(1)];
    let expected = [&[Op::Pin(1)], &each(a)[..], &each(page(a, 1)), &[Op::Dontneed(a, 2)]].concat();
    assert_eq!(log, expected);
    let first = self::log("tlb-flush3", &["threads=2", "pages=2", "rounds=1"], 0);
    assert_eq!([&first[0], first.last().unwrap()], [&Op::Map(4), &Op::Unmap(a - 2 * PAGE_BYTES, 4)]);
}

#[test]
fn many_threads_of_tlb_flush1_divide_one_mapping_and_find_their_own_part_of_its_file() {
    let settings = ["threads=57", "pages=2", "rounds=1"];
    let first = log("tlb-flush1", &settings, 0);
    assert_eq!(first[0], Op::Map(114));
    let last = log("tlb-flush1", &settings, 57);
    let Op::Write(a) = last[1] else { panic!("{last:?}") };
    assert_eq!([last.last(), first.last()], [Some(&Op::Dontneed(a, 2)), Some(&Op::Unmap(a - 112 * PAGE_BYTES, 114))]);
    assert!(log("tlb-flush1", &["threads=56", "pages=2", "rounds=1"], 56).contains(&Op::Map(2)));
}

#[test]
fn processes_of_tlb_flush_are_forked_and_map_files_of_their_own() {
    for (name, maps) in [("tlb-flush1", true), ("tlb-flush2", true), ("tlb-flush3", false)] {
        let settings = ["threads=57", "pages=2", "rounds=1", "processes=1"];
        let parent = log(name, &settings, 0);
        assert_eq!(parent.iter().filter(|op| **op == Op::Fork).count(), 57, "{name}");
        assert!(!parent.contains(&Op::Thread), "{name}");
        assert_eq!(log(name, &settings, 57).contains(&Op::Map(2)), maps, "{name}");
    }
}

#[test]
fn madvise1_writes_and_gives_back_one_page() {
    let log = log("madvise1", &["threads=2", "rounds=2"], 0);
    let Some(Op::Write(va)) = log.iter().find(|op| matches!(op, Op::Write(_))).copied() else { panic!("{log:?}") };
    let first = log.iter().position(|op| *op == Op::Write(va)).unwrap();
    assert_eq!(log[first..first + 6], [Op::Write(va), Op::Dontneed(va, 1), Op::Count(1)].repeat(2));
}

#[test]
fn munmap1_unmaps_what_the_other_threads_have_written() {
    let first = log("munmap1", &["threads=2", "rounds=1"], 0);
    let Some(Op::Unmap(va, 1)) = first.iter().find(|op| matches!(op, Op::Unmap(..))).copied() else {
        panic!("{first:?}")
    };
    assert!(!first.contains(&Op::Write(va)));
    for thread in 1..=2 {
        assert!(log("munmap1", &["threads=2", "rounds=1"], thread).contains(&Op::Write(va)), "{thread}");
    }
}

#[test]
fn mapbench_local_maps_touches_and_unmaps() {
    let log = log("mapbench-local", &["threads=1", "rounds=2", "pages=2"], 1);
    let Op::Write(a) = log[2] else { panic!("{log:?}") };
    let round = [Op::Map(2), Op::Write(a), Op::Write(page(a, 1)), Op::Unmap(a, 2), Op::Count(2)];
    assert_eq!(log[1..], round.repeat(2));
}

#[test]
fn a_neighbour_of_the_pipeline_touches_and_unmaps_what_it_did_not_map() {
    let log = log("mapbench-pipeline", &["threads=2", "rounds=1"], 2);
    let Some(Op::Unmap(theirs, 1)) = log.iter().find(|op| matches!(op, Op::Unmap(..))).copied() else {
        panic!("{log:?}")
    };
    assert!(!log.contains(&Op::Write(theirs)) && log.contains(&Op::Read(theirs)));
    assert_eq!(log.iter().filter(|op| matches!(op, Op::Wait(_) | Op::Post(_))).count(), 4);
}

#[test]
fn a_command_of_the_build_forks_copies_execs_reads_files_and_ends() {
    let log = log("buildsh", &["jobs=1", "rounds=1", "child_pages=2", "files=2", "heap_steps=4"], 2);
    assert!(matches!(log[..5], [Op::Read(_), Op::Read(_), Op::Write(_), Op::Write(_), Op::Exec]));
    assert_eq!(log.iter().filter(|op| matches!(op, Op::ReadFile(_, 4))).count(), 2);
    assert_eq!(log.iter().filter(|op| **op == Op::Map(8)).count(), 4);
    assert_eq!(log.iter().filter(|op| matches!(op, Op::Unmap(_, 8))).count(), 1);
}

#[test]
fn a_shell_writes_while_its_command_runs_and_looks_at_its_words_afterwards() {
    let log = log("buildsh", &["jobs=1", "rounds=1", "shell_pages=3", "child_pages=2"], 1);
    let Op::Write(a) = log[1] else { panic!("{log:?}") };
    let (b, c) = (page(a, 1), page(a, 2));
    let before = [Op::Map(3), Op::Write(a), Op::Write(b), Op::Write(c), Op::Fork];
    let after = [Op::Write(a), Op::Write(b), Op::Join, Op::Read(a), Op::Read(b), Op::Count(1)];
    assert_eq!(log[..11], [&before[..], &after].concat());
}

#[test]
fn a_flush_of_the_compiler_is_a_draw_of_the_table() {
    let settings = ["jobs=1", "rounds=1", "flushes=300", "reads=0", "unmap_percent=0", "protect_percent=0"];
    let log = log("compile", &settings, 2);
    let sizes: Vec<u64> =
        log.iter().filter_map(|op| if let Op::Dontneed(_, n) = op { Some(*n) } else { None }).collect();
    assert_eq!(sizes.len(), 300);
    assert!(sizes.iter().all(|n| FLUSH_SIZES.iter().any(|row| row.pages == *n)));
    let ones = sizes.iter().filter(|n| **n == 1).count();
    assert!((255..=290).contains(&ones), "{ones} of 300, about 275 expected");
}

#[test]
fn a_server_blocks_for_each_request_and_computes() {
    let log = log("netperf", &["pairs=1", "rounds=2", "server_cycles=77"], 2);
    let message = |op: &Op| matches!(op, Op::Wait(1) | Op::Compute(77) | Op::Count(1) | Op::Post(0));
    let seen: Vec<Op> = log.into_iter().filter(message).collect();
    let turn = [Op::Wait(1), Op::Compute(77), Op::Count(1), Op::Post(0)];
    assert_eq!(seen[..8], turn.repeat(2));
}

#[test]
fn the_sampler_flushes_exactly_what_it_wrote_size_by_size() {
    let log = log("flushsizes", &["each=2", "rounds=54"], 0);
    let sizes: Vec<u64> =
        log.iter().filter_map(|op| if let Op::Dontneed(_, n) = op { Some(*n) } else { None }).collect();
    let twice: Vec<u64> = FLUSH_SIZES.iter().flat_map(|row| [row.pages; 2]).collect();
    assert_eq!(sizes, twice);
    let written = log.iter().filter(|op| matches!(op, Op::Write(_))).count() as u64;
    assert_eq!(written, sizes.iter().sum());
}

#[test]
fn sizes_are_drawn_as_often_as_they_were_measured() {
    assert_eq!(draw_flush_size(0), 1);
    assert_eq!(draw_flush_size(flush_size_weight() - 1), 133);
    let of = |pages| (0..flush_size_weight()).filter(|random| draw_flush_size(*random) == pages).count() as u64;
    for row in FLUSH_SIZES.iter().filter(|row| [1, 4, 129].contains(&row.pages)) {
        assert_eq!(of(row.pages), row.samples_invpcid + row.samples_deferred);
    }
    // The document's own shares, in percent of all flushes, lie within those of its two tables.
    let percent = of(129) as f64 * 100.0 / flush_size_weight() as f64;
    assert!((1.93..2.36).contains(&percent), "{percent}");
}

/// The page of its first mapping with which each of some tasks of `tlb-flush2` begins.
fn first_pages(settings: [&str; 2]) -> Vec<u64> {
    let mut workload: Workload = by_name("tlb-flush2").expect("a known workload");
    settings.iter().for_each(|setting| workload.set(setting).expect("a good setting"));
    let first_page = |role| {
        let task = workload.first_task().starts(Part::new(role, 0));
        let log = run_from(task, 1, 10, Loses::Nothing).logs.remove(&role).expect("the role ran");
        let mapped = log.iter().find_map(|op| if let Op::Unmap(base, _) = op { Some(*base) } else { None });
        let written = log.iter().find_map(|op| if let Op::Write(va) = op { Some(*va) } else { None });
        (written.expect("it writes") - mapped.expect("it unmaps")) / PAGE_BYTES
    };
    (1..=20).map(first_page).collect()
}

/// Tasks that began alike would end their mappings together.
#[test]
fn in_a_run_of_a_given_time_each_task_of_tlb_flush_begins_its_first_mapping_elsewhere() {
    for (pages, setting) in [(64, "pages=64"), (512, "pages=4096")] {
        let mut starts = first_pages(["rounds=0", setting]);
        assert!(starts.iter().all(|&start| start < pages), "{setting}: {starts:?}");
        starts.sort_unstable();
        starts.dedup();
        assert!(starts.len() > 12, "of twenty tasks these begin at different pages, {setting}: {starts:?}");
    }
    assert_eq!(first_pages(["rounds=1", "pages=64"]), [0; 20], "rounds are counted, so all are whole");
}
