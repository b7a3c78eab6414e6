//! The text form: what is printed is read as the same policy, and printed as the same text again.

use proptest::prelude::*;
use tlbkit::{KEYS, PRESETS, Policy, TextError};

/// Values of each key of the list, in its order: the ends of each range, and each word.
const VALUES: [&[&str]; 26] = [
    &["off", "1", "15"],
    &["1", "15"],
    &["off", "once", "skip"],
    &["exact", "kept", "with-tables", "1", "2147483648", "with-tables/1", "with-tables/1024"],
    &["written", "unwritten"],
    &["0", "33", "262144"],
    &["above", "at-least"],
    &["on", "off"],
    &["-1", "0", "9"],
    &["0", "8", "65535"],
    &["none", "range", "1", "16"],
    &["at-once", "at-destroy"],
    &["window", "switch", "direct"],
    &["on", "off"],
    &["invpcid", "cr3"],
    &["before", "while"],
    &["off", "1", "8192"],
    &["awaited", "retired"],
    &["shared", "own"],
    &["after", "before"],
    &["flushed", "spared"],
    &["awaited", "at-reuse"],
    &["awaited", "shot-down", "counted"],
    &["on", "off"],
    &["range", "everything"],
    &["at-end", "under-lock"],
];

fn settings() -> impl Strategy<Value = Vec<(usize, usize)>> {
    prop::collection::vec((0..KEYS.len(), 0usize..1000), 0..40)
}

fn reads_back(policy: Policy) -> Result<(), TestCaseError> {
    let text = policy.to_string();
    prop_assert_eq!(Policy::parse(&text), Ok(policy), "{}", text);
    prop_assert_eq!(Policy::parse(&text).unwrap().to_string(), text);
    Ok(())
}

proptest! {
    #![proptest_config(crate::config())]

    #[test]
    fn any_policy_reads_back(preset in 0..PRESETS.len(), settings in settings()) {
        let mut policy = PRESETS[preset].policy;
        for (key, value) in settings {
            let values = VALUES[key];
            let before = policy;
            match policy.set(KEYS[key].name, values[value % values.len()]) {
                Ok(()) => {}
                Err(error) => {
                    prop_assert_eq!((error, policy), (TextError::NoCeiling, before));
                }
            }
        }
        reads_back(policy)?;
    }
}

/// True if `second`, set behind `first`, leaves nothing of it: to set `first` again changes the policy, or cannot be.
fn undoes(base: &Policy, first: (&str, &str), second: (&str, &str)) -> bool {
    let mut policy = *base;
    let mut set = |(key, value)| policy.set(key, value).map(|()| policy);
    set(first).is_ok() && set(second).is_ok_and(|both| set(first) != Ok(both))
}

/// True if a value of key number `second` undoes one of key number `first`, under any preset.
fn may_undo(first: usize, second: usize) -> bool {
    let settings = |key: usize| VALUES[key].iter().map(move |value| (KEYS[key].name, *value));
    let mut pairs = settings(first).flat_map(|first| settings(second).map(move |second| (first, second)));
    pairs.any(|(first, second)| PRESETS.iter().any(|preset| undoes(&preset.policy, first, second)))
}

#[test]
fn two_keys_contradict_each_other_where_one_undoes_what_the_other_set() {
    for (one, key) in KEYS.iter().enumerate() {
        for (two, other) in KEYS.iter().enumerate().filter(|(two, _)| *two != one) {
            let is_undone = may_undo(one, two) || may_undo(two, one);
            assert_eq!(key.contradicts(other), is_undone, "{} and {}", key.name, other.name);
        }
    }
}

#[test]
fn each_preset_is_printed_as_its_name() {
    for preset in PRESETS {
        // Two presets may be the same policy under two names: the first is printed.
        let first = PRESETS.iter().find(|other| other.policy == preset.policy).unwrap();
        assert_eq!(preset.policy.to_string(), first.name);
        assert_eq!(Policy::parse(preset.name), Ok(preset.policy));
    }
}

#[test]
fn a_ceiling_is_compared_as_the_preset_does_unless_said_otherwise() {
    for (text, printed) in [
        ("asterinas:ceiling=16", "asterinas:ceiling=16"),
        ("asterinas:ceiling=16+compare=above", "linux-3.4:ceiling=16+lazy_refs=shot-down"),
        ("linux-6.18:compare=at-least", "linux-6.18:ceiling=33+compare=at-least"),
        ("linux-6.18:ceiling=0+lazy=off", "linux-6.18:lazy=off+ceiling=0"),
    ] {
        assert_eq!(Policy::parse(text).unwrap().to_string(), printed);
    }
    assert_eq!(Policy::parse("linux-3.13:compare=above"), Err(TextError::NoCeiling));
}

#[test]
fn what_is_wrong_is_said_with_the_key_the_value_and_what_is_allowed() {
    for (text, line) in [
        ("xnu:pcid=16", "pcid=16: must be off, or 1 to 15 ASIDs in turn"),
        (
            "xnu:set=3",
            "set=3: must be exact, kept, with-tables, or a power of two of generations between trims; \
            with-tables/N for both",
        ),
        ("xnu:ceiling=262145", "ceiling=262145: must be 0 to 262144 pages; 0 for always everything"),
        ("xnu:pcid", "pcid is no KEY=VALUE, such as lazy=off"),
    ] {
        assert_eq!(Policy::parse(text).unwrap_err().to_string(), line);
    }
    let line = Policy::parse("linux-9").unwrap_err().to_string();
    assert!(line.starts_with("no policy linux-9: there are tlbkit, linux-3.4, "), "{line}");
    let line = Policy::parse("xnu:colour=red").unwrap_err().to_string();
    assert!(line.starts_with("no setting colour: there are pcid, lru, ") && line.ends_with(", shared_dirty"), "{line}");
}

#[test]
fn every_key_that_is_listed_is_known_and_no_other_value_is() {
    for key in KEYS {
        let error = Policy::parse("tlbkit").unwrap().set(key.name, "?").unwrap_err();
        assert_eq!(error, TextError::BadValue(key, "?"));
    }
}
