//! The words by which the command line changes a policy.
#![no_main]
#![allow(dead_code, reason = "the command's module serves more than its parser")]

#[path = "../../../cli/src/settings.rs"]
mod settings;

use libfuzzer_sys::fuzz_target;
use tlbkit_fuzz::must_be_one_line;

fuzz_target!(|text: &str| {
    match settings::policy(text) {
        Ok(policy) => assert!((1..=15).contains(&policy.slots())),
        Err(error) => must_be_one_line(text, &format!("{error:#}")),
    }
});
