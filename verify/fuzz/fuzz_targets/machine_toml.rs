//! A machine file: it is understood, or answered by one line that names file and line.
#![no_main]

use libfuzzer_sys::fuzz_target;
use tlbkit_fuzz::must_be_one_line;
use tlbkit_machine::Machine;

fuzz_target!(|text: &str| {
    if let Err(error) = Machine::parse("fuzz.toml", text) {
        let message = error.to_string();
        assert!(message.starts_with("fuzz.toml:"), "no file and line: {message}");
        // A file has many lines; its answer has one all the same.
        must_be_one_line("", &message);
    }
});
