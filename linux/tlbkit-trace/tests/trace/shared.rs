//! The two shared traces: what they hold was counted independently, from their text.

use crate::common::{BUILD, STRESS, drain, shared};
use tlbkit_trace::{FlushReason, FlushSize, Summary, open};

fn summary(name: &str) -> (Summary, u64) {
    let mut source = open(&shared(name)).expect("the shared trace");
    let mut summary = Summary::default();
    while let Some(event) = source.next_event().expect("no error") {
        summary.add(&event);
    }
    assert!(source.health().is_whole() && source.health().unused == 0, "{}", source.health());
    (summary, source.health().events)
}

#[test]
fn the_build_is_counted_as_its_text_says() {
    let (summary, events) = summary(BUILD);
    assert_eq!(events, 247_211);
    let flushes = FlushReason::ALL.map(|reason| summary.flushes(reason));
    assert_eq!(flushes, [2800, 0, 0, 12_074, 766, 74]);
    let switches = |size| summary.sized(FlushReason::TaskSwitch, size);
    assert_eq!((switches(FlushSize::Pages(0)), switches(FlushSize::All)), (2042, 758));
    assert_eq!(summary.sized(FlushReason::LocalMmShootdown, FlushSize::Pages(1)), 10_385);
    assert_eq!(summary.requests(), Some(117));
}

#[test]
fn plain_and_packed_text_are_the_same() {
    let packed = std::fs::File::open(shared(STRESS)).expect("the shared trace");
    let text = zstd::stream::decode_all(packed).expect("packed text");
    let mut source = tlbkit_trace::open_pipe(std::io::Cursor::new(text)).expect("plain text");
    assert_eq!(drain(&mut *source).0.len(), 324_609);
}
