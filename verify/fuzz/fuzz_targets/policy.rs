//! The text of a policy: read, printed, and read as the same again.
#![no_main]

use libfuzzer_sys::fuzz_target;
use tlbkit::Policy;
use tlbkit_fuzz::must_be_one_line;

fuzz_target!(|text: &str| {
    match Policy::parse(text) {
        Ok(policy) => {
            assert!((1..=15).contains(&policy.asids()));
            assert_eq!(Policy::parse(&policy.to_string()), Ok(policy));
        }
        Err(error) => must_be_one_line(text, &error.to_string()),
    }
});
