//! A program and its schedule on the adversarial machine, all oracles on.
#![no_main]

use arbitrary::Unstructured;
use libfuzzer_sys::fuzz_target;
use tlbkit_check::schedule::shrink::replay;
use tlbkit_check::{Log, Setup};

fuzz_target!(|bytes: &[u8]| {
    let mut bytes = Unstructured::new(bytes);
    let Ok(setup) = tlbkit_fuzz::program::setup(&mut bytes) else { return };
    let choices = bytes.take_rest();
    if let Some(finding) = replay(&setup, choices, Log::none()).finding {
        tell(&setup, choices, &finding.to_string());
    }
});

/// The checker catches panics, so a finding ends the process by itself.
fn tell(setup: &Setup, choices: &[u8], finding: &str) -> ! {
    eprintln!("{finding}\n{setup:?}\nchoices: {choices:?}");
    std::process::abort();
}
