//! Names and settings: what is accepted, and the one line that says why not.

use tlbkit_workloads::{by_name, describe, names};

fn refusal(setting: &str) -> String {
    by_name("ebizzy-m").unwrap().set(setting).unwrap_err().to_string()
}

#[test]
fn a_refused_setting_names_key_value_and_limit_in_one_line() {
    assert_eq!(refusal("threads"), "threads: must be key=value");
    assert_eq!(refusal("threads=x"), "threads=x: must be a whole number");
    assert_eq!(refusal("chunks=0"), "chunks=0: must be 1 to 4096");
    let keys = "threads chunks record_cycles rounds check_fresh";
    assert_eq!(refusal("colour=3"), format!("colour: no such parameter; there are {keys}"));
}

#[test]
fn an_accepted_setting_changes_that_parameter_and_no_other() {
    let mut workload = by_name("ebizzy-arena-old").unwrap();
    workload.set(" threads = 8 ").unwrap();
    for parameter in workload.parameters().list() {
        let expected = if parameter.name == "threads" { 8 } else { parameter.default };
        assert_eq!(workload.parameters().get(parameter.name), Some(expected), "{}", parameter.name);
    }
}

#[test]
fn every_name_has_a_line_and_parameters_with_a_default_in_range() {
    for name in names() {
        assert!(describe(name).is_some_and(|line| line.contains("unit:") && !line.contains('\n')), "{name}");
        for parameter in by_name(name).unwrap().parameters().list() {
            assert!((parameter.least..=parameter.most).contains(&parameter.default), "{name} {}", parameter.name);
            assert!(!parameter.meaning.is_empty() && !parameter.meaning.starts_with(' '));
        }
    }
}

#[test]
fn experiments_find_their_names() {
    assert_eq!(by_name("build"), by_name("buildsh"));
    assert_eq!(by_name("ebizzy-2013"), by_name("ebizzy-mapped"));
    assert_eq!(by_name("tlb-flush1").unwrap().parameters().get("pages"), Some(32_768));
    assert!(by_name("").is_none() && by_name("ebizzy").is_none());
}
