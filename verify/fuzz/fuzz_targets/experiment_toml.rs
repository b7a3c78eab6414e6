//! An experiment file: it is understood, or answered by one line that names the file.
#![no_main]
#![allow(dead_code, reason = "the command's modules serve more than their parser")]

#[path = "../../../cli/tlbkit/src"]
mod command {
    pub(crate) mod published;
}

use command::published::read;
use libfuzzer_sys::fuzz_target;
use tlbkit_fuzz::must_be_one_line;

fuzz_target!(|text: &str| {
    if let Err(error) = read::experiment("fuzz.toml", text) {
        let message = format!("{error:#}");
        assert!(message.starts_with("fuzz.toml"), "no file: {message}");
        must_be_one_line("", &message);
    }
});
