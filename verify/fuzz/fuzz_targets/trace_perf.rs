//! `perf.data`, as a file and as it comes through a pipe.
#![no_main]

use std::io::Cursor;

use libfuzzer_sys::fuzz_target;
use tlbkit_fuzz::read_trace;
use tlbkit_trace::PerfReader;

fuzz_target!(|bytes: &[u8]| {
    read_trace(|| PerfReader::from_file(Cursor::new(bytes.to_vec())));
    read_trace(|| PerfReader::from_pipe(Cursor::new(bytes.to_vec())));
});
