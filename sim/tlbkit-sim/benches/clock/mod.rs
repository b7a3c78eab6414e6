//! How long a piece of work took, in the processor's time where the host tells it, so that other work on the host does
//! not count.

use std::time::{Duration, Instant};

/// Does `work`; returns its result and what it took.
pub(crate) fn timed<R>(work: impl FnOnce() -> R) -> (R, Duration) {
    let (start, wall) = (processor_time(), Instant::now());
    let result = work();
    let spent = match (start, processor_time()) {
        (Some(start), Some(end)) => end.saturating_sub(start),
        _ => wall.elapsed(),
    };
    (result, spent)
}

/// Nanoseconds that this thread has run, as Linux gives them.
fn processor_time() -> Option<Duration> {
    let stat = std::fs::read_to_string("/proc/thread-self/schedstat").ok()?;
    stat.split(' ').next()?.parse().ok().map(Duration::from_nanos)
}
