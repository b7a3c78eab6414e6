//! The compact form of a trace.
#![no_main]

use std::io::Cursor;

use libfuzzer_sys::fuzz_target;
use tlbkit_trace::CompactReader;

fuzz_target!(|bytes: &[u8]| tlbkit_fuzz::read_trace(|| CompactReader::new(Cursor::new(bytes.to_vec()))));
