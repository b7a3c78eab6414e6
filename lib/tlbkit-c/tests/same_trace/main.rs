//! Every function of the header beside the Rust call that it stands for: with every stride, scope, reason and policy,
//! and on CPUs with and without tags and INVPCID, both execute the same instructions, send the same interrupts, free
//! the same frames and say the same.
#![cfg(not(loom))]

mod c_side;
mod calls;
mod log;
mod rust_side;

use std::collections::BTreeSet;

use tlbkit::{Features, PRESETS, Policy};

use calls::{Side, Step};
use log::{Did, Irqs, take};

/// Settings that change what is executed, each in any preset that takes it.
const SETTINGS: &[&str] = &["", "pti=on", "pcid=off", "lazy=off", "set=exact", "ceiling=0", "local=before", "pcid=2"];

/// All policies: each preset as it is and with each setting that is possible in it.
fn policies() -> Vec<String> {
    let mut texts = vec!["tlbkit:lazy_refs=shot-down".to_owned(), "tlbkit:lru=1".to_owned()];
    for preset in PRESETS {
        let possible = SETTINGS.iter().map(|setting| match *setting {
            "" => preset.name.to_owned(),
            setting => format!("{}:{setting}", preset.name),
        });
        texts.extend(possible.filter(|text| Policy::parse(text).is_ok()));
    }
    texts
}

fn features() -> impl Iterator<Item = Features> {
    [(true, true), (true, false), (false, true), (false, false)]
        .into_iter()
        .map(|(pcid, invpcid)| Features { pcid, invpcid })
}

/// What `steps` do on one side, step by step.
fn trace(side: &dyn Side, steps: &[Step]) -> Vec<Vec<Did>> {
    let traced = steps.iter().map(|step| {
        let before = log::set_irqs(step.cpu, if step.call.wants_irqs_off() { Irqs::Off } else { Irqs::On });
        let said = side.make(step);
        log::set_irqs(step.cpu, before);
        log::did(Did::Says(said));
        take()
    });
    traced.collect()
}

#[test]
fn each_call_of_the_header_does_what_its_rust_call_does() {
    let mut kinds = BTreeSet::new();
    let policies = policies();
    for text in &policies {
        let policy = Policy::parse(text).expect("a policy");
        let steps = calls::all(&policy);
        for features in features() {
            log::begin(features);
            let rust = trace(&rust_side::World::new(policy), &steps);
            log::begin(features);
            let c = trace(&c_side::World::new(text), &steps);
            for (step, (rust, c)) in steps.iter().zip(rust.iter().zip(&c)) {
                assert_eq!(c, rust, "C on the left, {text}, {features:?}: {step:?}");
                kinds.extend(rust.iter().map(Did::kind));
            }
        }
    }
    // Two sides that do nothing agree as well.
    assert_eq!(kinds.into_iter().collect::<Vec<_>>(), Did::KINDS);
}

/// What no call of the list above is about: a function that is added to the header is added there, or here.
const ELSEWHERE: &[&str] = &[
    "count",
    "count_size",
    "share_pcid",  // moves a space only where the feature `broadcast` has INVLPGB
    "batch_defer", // here and below: compared with the feature `reuse`
    "deferred_flush",
    "deferred_fold",
    "grace_periods_init",
    "pass",
    "gather_finish_within", // here and below: with the feature `directories`
    "reach_add",
    "reach_begin",
    "reach_everybody",
    "reload_root_here",
    "reload_roots",
    "sharers_clear",
    "sharers_hook",
    "sharers_may_include",
    "defer_kernel_flushes", // with `do_deferred_flushes`: flushes only where the feature `isolated` has others defer
    "do_deferred_flushes",
    "gather_active_pages",
    "gather_interrupt_walkers", // differs only where something else than an IPI flushes
    "gather_wants_walk",
    "header_fits",
    "layout",
    "machine_init",
    "matrix_words",
    "policy_check",
    "set_panic_hook",
    "set_words",
    "space_init",
    "status_text",
    "x86_disable_tags",
    "x86_fill",
    "x86_start",
];

#[test]
fn each_function_of_the_header_is_called_or_known_to_touch_no_hardware() {
    let header = include_str!("../../include/tlbkit.h");
    let after_names = header.split("tlbkit_").skip(1).filter_map(|text| text.split_once('('));
    let functions: BTreeSet<&str> = after_names
        .map(|(name, _)| name)
        // Those are the kernel's own, which an archive may call by name.
        .filter(|name| !name.starts_with("k_"))
        .filter(|name| name.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'_'))
        .collect();
    let called: BTreeSet<&str> = calls::all(&Policy::default()).iter().flat_map(|step| step.call.functions()).collect();
    let missing: Vec<_> =
        functions.iter().filter(|name| !called.contains(*name) && !ELSEWHERE.contains(name)).collect();
    assert!(missing.is_empty(), "not compared: {missing:?}");
    assert!(called.iter().all(|name| functions.contains(name)), "{called:?}");
}
