//! Host time. This crate and the recorder are the only places of the project that read a clock.

use std::time::Instant;

/// Nanoseconds that `work` takes.
pub(crate) fn nanoseconds(work: impl FnOnce()) -> f64 {
    let start = Instant::now();
    work();
    start.elapsed().as_nanos() as f64
}

/// Nanoseconds that fallible `work` takes.
pub(crate) fn try_nanoseconds<E>(work: impl FnOnce() -> Result<(), E>) -> Result<f64, E> {
    let start = Instant::now();
    work()?;
    Ok(start.elapsed().as_nanos() as f64)
}
