//! `perf.data` made by hand: both byte orders, file and pipe, cut short, and hostile.

use crate::common::{describe, describe_all, drain, made};
use made::{Order, Out};
use proptest::prelude::*;
use std::io::Cursor;
use tlbkit_trace::{CompactReader, CompactWriter, Error, PerfReader, Source, open_pipe};

const EXPECTED: [&str; 5] = [
    "10 [1] worker 70/71 TlbFlush { reason: LocalMmShootdown, size: Pages(1) } []",
    "20 [1] worker 70/71 TlbFlush { reason: LocalMmShootdown, size: Pages(2) } []",
    "30 [1] worker 70/71 TlbFlush { reason: LocalMmShootdown, size: Pages(3) } []",
    "40 [1] worker 70/71 Lost { count: 7 } []",
    "50 [1] worker 70/71 TlbFlush { reason: LocalMmShootdown, size: All } []",
];

fn read_file(bytes: Vec<u8>) -> Result<PerfReader<Cursor<Vec<u8>>>, Error> {
    PerfReader::from_file(Cursor::new(bytes))
}

fn read_pipe(bytes: Vec<u8>) -> Result<PerfReader<Cursor<Vec<u8>>>, Error> {
    PerfReader::from_pipe(Cursor::new(bytes))
}

fn refusal(bytes: Vec<u8>) -> String {
    match read_file(bytes) {
        Ok(mut source) => drain(&mut source).1.expect("an error").to_string(),
        Err(error) => error.to_string(),
    }
}

#[test]
fn both_byte_orders_and_forms_say_the_same_in_order_of_time() {
    for order in [Order::Little, Order::Big] {
        let records = made::records(order);
        let mut file = read_file(made::file(order, &records)).expect("a file");
        assert_eq!(describe_all(&mut file), EXPECTED, "{order:?}");
        assert_eq!((file.health().lost, file.health().late, file.health().damaged), (7, 0, 0));
        let mut pipe = read_pipe(made::pipe(order, &records)).expect("a pipe");
        assert_eq!(describe_all(&mut pipe), EXPECTED, "{order:?}");
    }
}

#[test]
fn records_packed_by_zstd_are_read_even_where_a_pack_splits_them() {
    let order = Order::Little;
    let packed = zstd::bulk::compress(&made::records(order), 3).expect("packing");
    let mut out = Out::new(order);
    for part in packed.chunks(23) {
        out.record(81, part);
    }
    let mut source = read_file(made::file(order, &out.bytes)).expect("a file");
    assert_eq!(describe_all(&mut source), EXPECTED);

    let mut newer = Out::new(order);
    let mut body = Out::new(order);
    body.u64(packed.len() as u64).raw(&packed).raw(b"pad");
    newer.record(83, &body.bytes);
    let mut source = read_file(made::file(order, &newer.bytes)).expect("a file");
    assert_eq!(describe_all(&mut source), EXPECTED);
}

#[test]
fn events_that_were_lost_count_once_though_the_recorder_counts_them_again_at_its_end() {
    for (in_all, expected) in [(9, &["50 [0] ? -1/-1 Lost { count: 2 } []"][..]), (7, &[]), (3, &[])] {
        let mut out = Out::new(Order::Little);
        out.raw(&made::records(Order::Little));
        // A part for each event and CPU.
        made::lost_in_all(&mut out, 1);
        made::lost_in_all(&mut out, in_all - 1);
        made::finished_round(&mut out);
        let mut source = read_file(made::file(Order::Little, &out.bytes)).expect("a file");
        let lines = describe_all(&mut source);
        assert_eq!((&lines[..5], &lines[5..]), (&EXPECTED.map(str::to_owned)[..], &to_owned(expected)[..]));
        assert_eq!((source.health().lost, source.health().late), (in_all.max(7), 0));
    }
}

fn to_owned(lines: &[&str]) -> Vec<String> {
    lines.iter().map(ToString::to_string).collect()
}

/// Many events may name one list of numbers, and each would have it.
#[test]
fn no_more_numbers_are_read_than_the_file_has_room_for() {
    const ATTR_BYTES: usize = 64;
    let good = made::file(Order::Little, &made::records(Order::Little));
    let attr = &good[104..104 + ATTR_BYTES];
    let (count, ids_bytes) = (100, 4096_u64);
    let attrs_bytes = (count * (ATTR_BYTES + 16)) as u64;
    let mut out = Out::new(Order::Little);
    let (attrs_at, ids_at) = (104, 104 + attrs_bytes);
    out.raw(b"PERFILE2").u64(104).u64(80).u64(attrs_at).u64(attrs_bytes).u64(ids_at).u64(ids_bytes);
    out.raw(&[0; 104 - 56]);
    for _ in 0..count {
        out.raw(attr).u64(ids_at).u64(ids_bytes);
    }
    out.raw(&vec![7; ids_bytes as usize]);
    let message = refusal(out.bytes);
    assert!(message.contains("the size of all events' numbers is 12288, limit 12200"), "{message}");
}

#[test]
fn a_pipe_that_ends_within_a_record_gives_what_came_before_and_says_so() {
    let whole = made::pipe(Order::Little, &made::records(Order::Little));
    let mut source = read_pipe(whole[..whole.len() - 12].to_vec()).expect("a pipe");
    assert_eq!(describe_all(&mut source), EXPECTED[..4]);
    let damage = source.health().damages[0].to_string();
    assert!(damage.contains("ends within a record"), "{damage}");
}

#[test]
fn a_file_cut_short_names_what_is_missing() {
    let whole = made::file(Order::Little, &made::records(Order::Little));
    let end = whole.len();
    let message = refusal(whole[..end - 1].to_vec());
    assert!(message.contains("the formats of the tracepoints should end at byte"), "{message}");
    assert!(message.contains(&format!("the file ends at byte {}: it was cut short", end - 1)), "{message}");
    let message = refusal(whole[..300].to_vec());
    assert!(message.starts_with("byte 48: the data and the index behind it should end at byte"), "{message}");
    let message = refusal(whole[..50].to_vec());
    assert!(message.starts_with("byte 0: the head of the file should end at byte 104"), "{message}");
}

#[test]
fn no_beginning_of_a_file_passes_for_the_whole() {
    let records = made::records(Order::Little);
    let (file, pipe) = (made::file(Order::Little, &records), made::pipe(Order::Little, &records));
    for end in 8..file.len() {
        let message = refusal(file[..end].to_vec());
        assert!(message.starts_with("byte ") && message.ends_with("it was cut short"), "{end}: {message}");
        assert_eq!(message.lines().count(), 1, "{end}: {message}");
    }
    let begin = pipe.len() - records.len();
    let (mut next, mut boundaries) = (begin, Vec::new());
    while next < pipe.len() {
        boundaries.push(next);
        next += usize::from(u16::from_le_bytes([pipe[next + 6], pipe[next + 7]]));
    }
    for end in begin..pipe.len() {
        let mut source = read_pipe(pipe[..end].to_vec()).expect("a pipe");
        let (events, error) = drain(&mut source);
        let is_told = error.is_some() || source.health().damaged > 0;
        // Between two records nothing tells that more should come.
        assert_eq!(is_told, !boundaries.contains(&end), "{end} of {}", pipe.len());
        assert!(events.len() <= EXPECTED.len(), "{end}");
    }
}

#[test]
fn an_empty_file_is_called_so() {
    let error = open_pipe(&b""[..]).err().expect("no trace").to_string();
    assert_eq!(error, "byte 0: the file is empty");
}

#[test]
fn a_file_whose_recorder_was_killed_says_so() {
    let mut bytes = made::file(Order::Little, &made::records(Order::Little));
    bytes[48..56].fill(0);
    assert_eq!(refusal(bytes), "byte 48: no data: the recorder was killed before it could finish");
}

#[test]
fn absurd_sizes_are_refused_with_place_value_and_limit() {
    let good = made::file(Order::Little, &made::records(Order::Little));
    let with = |at: usize, value: u64| {
        let mut bytes = good.clone();
        bytes[at..at + 8].copy_from_slice(&value.to_le_bytes());
        refusal(bytes)
    };
    assert_eq!(with(16, 0), "byte 16: the size of one event's attributes is 0, limit 4096");
    assert!(
        with(32, u64::MAX).starts_with("byte 24: the size of the events' attributes is 18446744073709551615, limit")
    );
    assert!(with(40, u64::MAX).contains("should end at byte 18446744073709551615"));
    assert!(with(104 + 64 + 8, u64::MAX).starts_with("byte 168: the size of an event's numbers is"));
}

#[test]
fn a_record_smaller_than_its_head_ends_the_reading_after_what_came_before() {
    let mut records = made::records(Order::Little);
    let end = records.len();
    records.extend([9, 0, 0, 0, 0, 0, 7, 0]);
    let bytes = made::file(Order::Little, &records);
    let at = bytes.windows(8).position(|window| window == [9, 0, 0, 0, 0, 0, 7, 0]).expect("the record");
    assert!(at > end);
    let (events, error) = drain(&mut read_file(bytes).expect("a file"));
    assert_eq!(events.len(), EXPECTED.len());
    assert_eq!(error.expect("an error").to_string(), format!("byte {at}: a record's size is 7, limit 8"));
}

#[test]
fn events_beyond_the_order_that_rounds_promise_are_counted() {
    let mut out = Out::new(Order::Little);
    for time_ns in [100, 200, 10] {
        made::flush(&mut out, time_ns, 1);
        made::finished_round(&mut out);
    }
    let mut source = read_file(made::file(Order::Little, &out.bytes)).expect("a file");
    assert_eq!(drain(&mut source).0.len(), 3);
    assert_eq!(source.health().late, 1);
}

/// Of the stack the kernel's part is kept, without the marks that say whose part begins.
#[test]
fn a_clock_s_samples_are_read_beside_tracepoints_and_survive_in_our_own_form() {
    const KERNEL: u64 = 0xffff_ffff_8100_0000;
    let marks = [-128i64, -512].map(i64::cast_unsigned);
    for order in [Order::Little, Order::Big] {
        let mut out = Out::new(order);
        made::clock(&mut out);
        made::sample(&mut out, 10, KERNEL, &[marks[0], KERNEL, KERNEL + 8, marks[1], 0x1000]);
        made::flush(&mut out, 20, 1);
        made::sample(&mut out, 30, 0x1000, &[marks[1], 0x1000, 0x2000]);
        made::sample(&mut out, 40, KERNEL, &[]);
        let mut source = read_pipe(made::pipe(order, &out.bytes)).expect("a pipe");
        let mut writer = CompactWriter::new(Vec::new()).expect("memory takes it");
        let mut lines = Vec::new();
        while let Some(event) = source.next_event().expect("no error") {
            writer.add(&event, source.names()).expect("memory takes it");
            lines.push(describe(&event, &source));
        }
        let (kernel, own) = (format!("Sample {{ ip: Code({KERNEL}) }}"), "Sample { ip: Code(4096) }");
        assert_eq!(lines.len(), 4);
        assert!(lines[0].ends_with(&format!(r#"{kernel} ["0xffffffff81000000", "0xffffffff81000008"]"#)), "{lines:?}");
        assert!(lines[1].contains("TlbFlush") && lines[2].ends_with(&format!("{own} []")), "{lines:?}");
        assert!(lines[3].ends_with(&format!(r#"{kernel} ["0xffffffff81000000"]"#)), "no stack was recorded: {lines:?}");
        let packed = writer.finish(source.health()).expect("memory takes it");
        let mut again = CompactReader::new(&packed[..]).expect("our own form");
        assert_eq!(describe_all(&mut again), lines);
        for at in 16..packed.len() {
            let mut bad = packed.clone();
            bad[at] ^= 0x11;
            let mut reader = CompactReader::new(&bad[..]).expect("the head is whole");
            assert!(drain(&mut reader).1.is_none() && !reader.health().is_whole(), "byte {at}");
        }
    }
}

#[test]
fn a_sample_that_makes_no_sense_is_passed_over_and_told() {
    let mut out = Out::new(Order::Little);
    made::flush(&mut out, 10, 1);
    out.record(9, &made::ID.to_le_bytes());
    made::flush(&mut out, 20, 1);
    let mut source = read_file(made::file(Order::Little, &out.bytes)).expect("a file");
    assert_eq!(drain(&mut source).0.len(), 2);
    let damage = source.health().damages[0].to_string();
    assert!(damage.ends_with("a sample of 8 bytes is shorter than its event's layout"), "{damage}");
}

#[test]
fn a_recording_without_cpus_says_how_to_get_them() {
    let mut bytes = made::file(Order::Little, &made::records(Order::Little));
    // Of the sample's layout in the attributes, the bit of the CPU.
    bytes[104 + 24] &= !(1 << 7);
    assert!(refusal(bytes).ends_with("samples have no CPU (record with -a or --sample-cpu)"));
}

#[test]
fn other_files_are_refused_by_their_first_bytes() {
    let error = open_pipe(&b"\x7fELF and so on\n"[..]).err().expect("no trace").to_string();
    assert!(error.starts_with("byte 0: \"\\x7fELF and...\" begins no trace"), "{error}");
    let file = made::file(Order::Little, &[]);
    let error = open_pipe(Cursor::new(file)).err().expect("no pipe").to_string();
    assert_eq!(error, "byte 8: a perf.data file cannot be read from a pipe: name the file");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    /// Whatever the bytes, reading ends, within bounds.
    #[test]
    fn no_change_of_bytes_is_fatal(
        is_pipe: bool,
        is_big: bool,
        changes in prop::collection::vec(any::<(prop::sample::Index, u8)>(), 0..4),
        cut: Option<prop::sample::Index>,
    ) {
        let order = if is_big { Order::Big } else { Order::Little };
        let records = made::records(order);
        let mut bytes = if is_pipe { made::pipe(order, &records) } else { made::file(order, &records) };
        for (index, byte) in changes {
            let at = index.index(bytes.len());
            bytes[at] = byte;
        }
        // Mostly whole: else the changes are seldom reached.
        if let Some(cut) = cut.filter(|cut| cut.index(4) == 0) {
            bytes.truncate(cut.index(bytes.len()));
        }
        let source = if is_pipe { read_pipe(bytes) } else { read_file(bytes) };
        if let Ok(mut source) = source {
            let (events, _) = drain(&mut source);
            prop_assert!(events.len() <= EXPECTED.len() + 1);
        }
    }
}
