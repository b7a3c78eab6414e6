//! A program and its schedule on the adversarial machine, all oracles on.
#![no_main]

use libfuzzer_sys::fuzz_target;
use tlbkit_check::schedule::shrink::replay;
use tlbkit_check::{Log, Scenario, campaign};

fuzz_target!(|bytes: &[u8]| {
    let (scenario, choices) = campaign::spelt(bytes);
    if let Some(finding) = replay(&scenario, choices, Log::none()).finding {
        tell(&scenario, choices, &finding.to_string());
    }
});

/// The checker catches panics, so a finding ends the process by itself.
fn tell(scenario: &Scenario, choices: &[u8], finding: &str) -> ! {
    eprintln!("{finding}\n{scenario:?}\nchoices: {choices:?}");
    std::process::abort();
}
