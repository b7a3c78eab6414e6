//! What all code that follows the threads of a trace assumes of them.

/// A flush that comes at most this long after a user fault of the same thread, in nanoseconds, is taken to be caused by
/// the fault. Copies of shared pages take less time, and in the traces that were tried nearly every flush found its
/// cause.
pub(crate) const FAULT_WINDOW_NS: u64 = 50_000;
/// The most threads that are followed. If there are more, all are forgotten and learned anew.
pub(crate) const MAX_THREADS: usize = 1 << 18;
