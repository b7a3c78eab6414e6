//! Whether somebody wants the command to end before it is done.

use std::fs;
use std::panic;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};

use crate::terminal::Ending;

/// Whether somebody wants the command to end: by Ctrl-C, by a signal, or by closing the terminal. Once this value
/// exists, none of these ends the program by itself, so it is made before there is anything to lose. A signal that was
/// ignored when the program started, as under `nohup`, is still ignored.
pub struct Stopping(Arc<AtomicUsize>);

/// The signals that are ignored, signal 1 in bit 0; none if the kernel does not tell.
fn ignored_signals() -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let set = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    set.and_then(|set| u64::from_str_radix(set.trim(), 16).ok()).unwrap_or(0)
}

/// How long it may take until a signal is noticed.
pub const LOOK_EVERY: Duration = Duration::from_millis(20);

/// What a shell adds to the number of a signal that ended a command.
pub const BY_SIGNAL: i32 = 128;

impl Stopping {
    /// Begins to listen.
    pub fn listen() -> Result<Self> {
        let wanted = Arc::new(AtomicUsize::new(0));
        let ignored = ignored_signals();
        for signal in [SIGHUP, SIGINT, SIGTERM].into_iter().filter(|signal| ignored >> (signal - 1) & 1 == 0) {
            let number = signal.cast_unsigned() as usize;
            signal_hook::flag::register_usize(signal, Arc::clone(&wanted), number).context("watching for Ctrl-C")?;
        }
        Ok(Self(wanted))
    }

    /// Whether it is wanted.
    pub fn is_wanted(&self) -> bool {
        self.signal() != 0
    }

    /// Does `work`, whose flag is set as soon as somebody wants the command to end: then it must end before it is done.
    pub fn until_wanted<T: Send>(&self, work: impl FnOnce(&AtomicBool) -> T + Send) -> T {
        let stop = AtomicBool::new(false);
        let (sender, ended) = mpsc::channel::<()>();
        thread::scope(|scope| {
            let worker = scope.spawn(|| {
                let _dropped_at_the_end = sender;
                work(&stop)
            });
            while ended.recv_timeout(LOOK_EVERY) == Err(mpsc::RecvTimeoutError::Timeout) {
                if self.is_wanted() {
                    // Partner: the load in `work`. It is a wish to stop, and orders nothing.
                    stop.store(true, Ordering::Relaxed);
                }
            }
            worker.join().unwrap_or_else(|why| panic::resume_unwind(why))
        })
    }

    /// The ending of a program that was ended by the signal, as a shell gives it.
    pub fn ending(&self) -> Ending {
        Ending::AsCommand((BY_SIGNAL + self.signal()) as u8)
    }

    /// One that listens to nothing, for tests.
    #[must_use]
    pub fn never() -> Self {
        Self(Arc::new(AtomicUsize::new(0)))
    }

    /// Does what Ctrl-C does, for tests.
    pub fn interrupt(&self) {
        self.0.store(SIGINT.cast_unsigned() as usize, Ordering::SeqCst);
    }

    /// The number of the signal; 0 if nobody wants it to end.
    pub fn signal(&self) -> i32 {
        // Partner: the SeqCst store in signal-hook's handler, in this thread or another.
        self.0.load(Ordering::SeqCst) as i32
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn work_is_told_to_end_and_its_result_is_kept() {
        let stopping = Stopping::never();
        assert_eq!(stopping.until_wanted(|_| 1), 1);
        stopping.interrupt();
        let until_told = |stop: &AtomicBool| {
            while !stop.load(Ordering::Relaxed) {
                thread::yield_now();
            }
            2
        };
        assert_eq!(stopping.until_wanted(until_told), 2);
    }
}
