//! What recording adds to a program for an event: measured on this program's own events when a recording begins.

use crate::sys::{cpu_time_ns, unmap_nothing};

/// CPU time that recording adds to a program for an event, in microseconds. On a guest of 2.6 GHz it was 0.6 for those
/// of an empty system call, 0.9 for switches (three pairs of runs with 400,000 of them) and 1.2 for page faults. A
/// prior for any other machine.
pub const EVENT_US: [f64; 2] = [0.6, 1.3];

/// How much more than an event of an empty system call the dearest kind of event takes.
const DEAREST: f64 = 2.0;
/// Empty system calls that are made to see what their events take, and in how many parts.
const CALLS: u32 = 500;
const PARTS: usize = 6;

/// What an empty system call with two events takes, in microseconds of CPU time: the least of some parts, as a busy
/// machine only adds to it.
pub(super) fn empty_call_us() -> f64 {
    let part = |_| {
        let before_ns = cpu_time_ns();
        (0..CALLS).for_each(|_| unmap_nothing());
        (cpu_time_ns() - before_ns) as f64 / 1e3 / f64::from(CALLS)
    };
    (0..PARTS).map(part).fold(f64::INFINITY, f64::min)
}

/// What recording adds for an event, from the cheapest kind to the dearest, in microseconds. An empty call with its two
/// events took `before_us` without recording, and `while_us` with it.
pub(super) fn event_us(before_us: f64, while_us: f64) -> [f64; 2] {
    let each_us = (while_us - before_us).max(0.0) / 2.0;
    [each_us, each_us * DEAREST]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_event_takes_half_of_what_an_empty_call_takes_longer() {
        assert_eq!(event_us(0.1, 1.3), [0.6, 1.2].map(|us: f64| us));
        assert_eq!(event_us(0.2, 0.1), [0.0; 2], "nothing takes less than no time");
        assert!(empty_call_us() > 0.0);
    }
}
