//! The text of `perf script`.
#![no_main]

use std::io::Cursor;

use libfuzzer_sys::fuzz_target;
use tlbkit_trace::ScriptReader;

fuzz_target!(|bytes: &[u8]| tlbkit_fuzz::read_trace(|| ScriptReader::new(Cursor::new(bytes.to_vec()))));
