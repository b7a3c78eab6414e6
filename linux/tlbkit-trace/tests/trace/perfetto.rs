//! The picture is JSON that a viewer can open, and shows what lies in its window.

use crate::common::{BUILD, shared};
use serde_json::Value;
use std::collections::BTreeMap;
use tlbkit_trace::{PerfettoWriter, open};

fn picture(begin_ns: u64, end_ns: u64) -> Vec<Value> {
    let mut source = open(&shared(BUILD)).expect("the shared trace");
    let mut writer = PerfettoWriter::new(Vec::new(), begin_ns..end_ns).expect("memory takes it");
    while let Some(event) = source.next_event().expect("no error") {
        writer.add(&event, source.names()).expect("memory takes it");
    }
    let text = writer.finish().expect("memory takes it");
    let mut whole: Value = serde_json::from_slice(&text).expect("JSON");
    serde_json::from_value(whole["traceEvents"].take()).expect("a list")
}

#[test]
fn flushes_of_the_window_stand_on_their_cpus_track() {
    let events = picture(2_701_866_000_000, 2_701_867_300_000);
    let flush: Vec<_> = events.iter().filter(|event| event["name"] == "flush: local mm shootdown").collect();
    assert_eq!(flush.len(), 2);
    assert_eq!((&flush[0]["pid"], &flush[0]["tid"]), (&Value::from(-1), &Value::from(0)));
    assert_eq!(flush[0]["args"]["comm"], "build.sh");
    assert_eq!(flush[0]["ts"], 2_701_866_780.335);
}

#[test]
fn every_end_has_its_begin_and_tracks_have_names() {
    let events = picture(2_702_000_000_000, 2_702_200_000_000);
    let mut depth = BTreeMap::new();
    let mut named = Vec::new();
    for event in &events {
        let track = (event["pid"].as_i64().expect("a pid"), event["tid"].as_i64());
        match event["ph"].as_str() {
            Some("B") => *depth.entry(track).or_insert(0) += 1,
            Some("E") => *depth.entry(track).or_insert(0) -= 1,
            Some("M") => named.push(track),
            _ => {}
        }
        assert!(depth.get(&track).is_none_or(|&depth| depth >= 0), "{event}");
        assert!(named.contains(&track), "{event}");
    }
    assert!(depth.len() > 10, "{} tracks", depth.len());
}
