//! The compact form gives back what was put in, and loses no more than what is damaged.

use crate::common::{BUILD, STRESS, describe, describe_all, drain, shared};
use proptest::prelude::*;
use tlbkit_trace::{CompactReader, CompactWriter, Source, open};

/// Writes all of a source.
fn pack(source: &mut dyn Source) -> Vec<u8> {
    let mut writer = CompactWriter::new(Vec::new()).expect("memory takes it");
    while let Some(event) = source.next_event().expect("no error") {
        writer.add(&event, source.names()).expect("memory takes it");
    }
    writer.finish(source.health()).expect("memory takes it")
}

fn packed_build() -> Vec<u8> {
    pack(&mut *open(&shared(BUILD)).expect("the shared trace"))
}

/// Where the blocks begin.
fn blocks(packed: &[u8]) -> Vec<usize> {
    (0..packed.len() - 4).filter(|&at| &packed[at..at + 4] == b"BLOK").collect()
}

#[test]
fn the_shared_traces_survive_word_for_word() {
    for name in [BUILD, STRESS] {
        let mut source = open(&shared(name)).expect("the shared trace");
        let mut writer = CompactWriter::new(Vec::new()).expect("memory takes it");
        let mut lines = Vec::new();
        while let Some(event) = source.next_event().expect("no error") {
            writer.add(&event, source.names()).expect("memory takes it");
            lines.push(describe(&event, &*source));
        }
        let packed = writer.finish(source.health()).expect("memory takes it");
        let mut reader = CompactReader::new(&packed[..]).expect("our own form");
        assert!(describe_all(&mut reader) == lines, "{name}: another trace came back");
        assert!(reader.health().is_whole(), "{}", reader.health());
        assert!(packed.len() < lines.len() * 8, "{name}: {} bytes for {} events", packed.len(), lines.len());
    }
}

#[test]
fn a_damaged_block_costs_its_own_events_only() {
    let good = packed_build();
    let whole = describe_all(&mut CompactReader::new(&good[..]).expect("our own form"));
    let blocks = blocks(&good);
    assert!(blocks.len() > 4, "{} blocks", blocks.len());
    // In the content, in the head, and in the mark by which a block is found.
    for at in [blocks[1] + 100, blocks[1] + 5, blocks[1]] {
        let mut bad = good.clone();
        bad[at] ^= 0x40;
        let mut reader = CompactReader::new(&bad[..]).expect("our own form");
        let lines = describe_all(&mut reader);
        assert_eq!(lines.len(), whole.len() - 32_768, "byte {at}");
        assert!(lines[..32_768] == whole[..32_768] && lines[32_768..] == whole[65_536..], "byte {at}");
        // The block, and the end mark's count that does not match.
        assert_eq!(reader.health().damaged, 2, "byte {at}: {:?}", reader.health().damages);
    }
}

#[test]
fn a_file_cut_short_says_so() {
    let good = packed_build();
    let blocks = blocks(&good);
    for end in [blocks[2], blocks[2] + 10, blocks[2] + 1000] {
        let mut reader = CompactReader::new(&good[..end]).expect("our own form");
        assert_eq!(drain(&mut reader).0.len(), 65_536);
        assert!(reader.health().damages.iter().any(|damage| damage.what.contains("cut short")), "{}", reader.health());
    }
}

#[test]
fn other_versions_and_cut_heads_are_refused() {
    let mut packed = packed_build();
    packed[8] = 9;
    let error = CompactReader::new(&packed[..]).err().expect("another version").to_string();
    assert_eq!(error, "byte 8: version 9, but only version 1 is known");
    let error = CompactReader::new(&packed[..9]).err().expect("no version").to_string();
    assert_eq!(error, "byte 0: the head should end at byte 16, but the file ends at byte 9: it was cut short");
}

#[test]
fn a_copy_looks_no_better_than_its_original() {
    let text = "a 1/1 [000] 5.000000001: tlb:tlb_flush: pages:1 reason:x (3)\nnonsense\n\
                a 1/1 [000] 4.000000001: tlb:tlb_flush: pages:1 reason:x (3)\n";
    let mut source = tlbkit_trace::ScriptReader::new(text.as_bytes()).expect("text of perf script");
    let packed = pack(&mut source);
    let mut reader = CompactReader::new(&packed[..]).expect("our own form");
    drain(&mut reader);
    assert_eq!((reader.health().late, reader.health().damaged), (1, 1));
}

#[test]
fn an_empty_trace_is_a_trace() {
    let packed = CompactWriter::new(Vec::new()).and_then(|writer| writer.finish(&Default::default())).expect("memory");
    let mut reader = CompactReader::new(&packed[..]).expect("our own form");
    assert_eq!(drain(&mut reader).0.len(), 0);
    assert!(reader.health().is_whole());
}

/// 500 faults of five threads on three CPUs.
fn faults() -> String {
    let line = |i| {
        let (comm, cpu, ns) = (i % 5, i % 3, i * 977);
        format!(
            "c{comm} 7/{i} [00{cpu}] 5.{ns:09}: exceptions:page_fault_user: address=0x{i:x}000 ip=f error_code=0x7\n"
        )
    };
    (0..500).map(line).collect()
}

/// A file of one lost event, with so many stacks without a frame, and columns of fields without a byte.
fn with(stacks: usize, fields: usize) -> Vec<u8> {
    let number = |mut n: usize| {
        let mut bytes = Vec::new();
        while n >= 0x80 {
            bytes.push(n as u8 | 0x80);
            n >>= 7;
        }
        bytes.push(n as u8);
        bytes
    };
    let mut content = Vec::new();
    let stacks = vec![0; stacks];
    // Texts, threads, stacks, tags, times, CPUs, thread, stack, lost.
    for column in [&[1, 1, b'a'][..], &[2, 2, 0], &stacks, &[255], &[2], &[0], &[0], &[0], &[2]] {
        content.extend(number(column.len()));
        content.extend(column);
    }
    content.extend(number(fields));
    content.extend(vec![0; fields]);
    let packed = zstd::bulk::compress(&content, 3).expect("packing");
    let mut head = b"BLOK".to_vec();
    for number in [1, packed.len() as u32, content.len() as u32, crc32fast::hash(&packed)] {
        head.extend(number.to_le_bytes());
    }
    head.extend(crc32fast::hash(&head).to_le_bytes());
    [&b"tlbtrace"[..], &[1, 0], &[0; 6], &head, &packed].concat()
}

#[test]
fn a_small_file_that_asks_for_much_memory_is_damaged() {
    let events = |stacks, fields| {
        let file = with(stacks, fields);
        assert!(file.len() < 1000, "{} bytes", file.len());
        drain(&mut CompactReader::new(&file[..]).expect("our own form")).0.len()
    };
    assert_eq!([events(0, 0), events(1 << 17, 256 * 5)], [1, 1], "as many as a byte has tracepoints");
    assert_eq!([events(0, 256 * 5 + 1), events(0, 1 << 20), events((1 << 17) + 1, 0)], [0, 0, 0]);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(500))]

    /// Whatever the bytes, reading ends, and damage is told.
    #[test]
    fn no_change_of_bytes_is_fatal(changes in prop::collection::vec(any::<(prop::sample::Index, u8)>(), 0..4)) {
        let text = faults();
        let good = pack(&mut tlbkit_trace::ScriptReader::new(text.as_bytes()).expect("text of perf script"));
        let mut bad = good.clone();
        for (index, byte) in changes {
            let at = 16 + index.index(bad.len() - 16);
            bad[at] = byte;
        }
        let mut reader = CompactReader::new(&bad[..]).expect("the head is whole");
        let (events, error) = drain(&mut reader);
        prop_assert!(error.is_none());
        prop_assert!(events.len() <= 500);
        prop_assert!(bad == good || !reader.health().is_whole());
    }
}
