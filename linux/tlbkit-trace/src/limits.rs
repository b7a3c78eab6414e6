//! What all who follow the threads of a trace assume of them.

/// A flush so soon after a user fault of the same thread is counted to the fault: copies of shared pages end sooner,
/// and in the traces tried nearly no flush was left without cause.
pub(crate) const FAULT_WINDOW_NS: u64 = 50_000;
/// More threads than this are forgotten, and learned anew.
pub(crate) const MAX_THREADS: usize = 1 << 18;
