//! A second thread of this process on another CPU: without one, nobody has to be told of a revoked translation.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::{self, JoinHandle};

use serde::Serialize;

use crate::host::MeasuringPlace;
use crate::sys;

/// Who else is in the address space.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Company {
    /// No second thread.
    Alone,
    /// A thread that sleeps after it ran on the other CPU.
    Asleep,
    /// A thread that runs on the other CPU.
    Spinning,
}

/// The second thread, if there is one; it ends when this is dropped.
pub struct Partner {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
    company: Company,
}

#[derive(Default)]
struct Shared {
    turns: AtomicU64,
    is_over: AtomicBool,
}

impl Partner {
    /// Starts a partner; none if `place` has one CPU only and the company needs two.
    #[must_use]
    pub fn start(company: Company, place: &MeasuringPlace) -> Option<Self> {
        let shared = Arc::new(Shared::default());
        let thread = match (company, place.partner) {
            (Company::Alone, _) => None,
            (_, None) => return None,
            (_, Some(cpu)) => {
                let shared = Arc::clone(&shared);
                Some(thread::spawn(move || live(&shared, company, cpu)))
            }
        };
        let partner = Self { shared, thread, company };
        if partner.thread.is_some() {
            partner.wait_for_its_first_turn();
        }
        Some(partner)
    }

    /// Waits until the partner is seen to do what its company says. A spinning thread may be off its CPU, and then
    /// nobody would have to interrupt it.
    pub fn settle(&self) {
        if self.company == Company::Spinning {
            self.wait_beyond(self.turns());
        }
    }

    /// One that sleeps takes no second turn, and may have had the first before anybody looks.
    fn wait_for_its_first_turn(&self) {
        self.wait_beyond(0);
    }

    /// Waits for another turn than the first so many.
    fn wait_beyond(&self, turns: u64) {
        while self.turns() <= turns {
            thread::yield_now();
        }
    }

    fn turns(&self) -> u64 {
        // Partner: the Relaxed add in `live`; the count is all that matters.
        self.shared.turns.load(Ordering::Relaxed)
    }
}

impl Drop for Partner {
    fn drop(&mut self) {
        // Partner: the Relaxed load in `live`; the join orders everything else.
        self.shared.is_over.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            thread.thread().unpark();
            // A partner cannot panic, and there would be nothing left to do if it had.
            let _ = thread.join();
        }
    }
}

fn live(shared: &Shared, company: Company, cpu: usize) {
    // Unpinned it still is company, only less steadily so.
    let _ = sys::pin(cpu);
    // Partner: the Relaxed store in `drop`.
    while !shared.is_over.load(Ordering::Relaxed) {
        // Partner: the Relaxed load in `turns`.
        shared.turns.fetch_add(1, Ordering::Relaxed);
        match company {
            Company::Asleep => thread::park(),
            Company::Alone | Company::Spinning => std::hint::spin_loop(),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::Ordering;
    use std::time::{Duration, Instant};

    use super::{Company, Partner};
    use crate::host::MeasuringPlace;

    #[test]
    fn a_partner_that_slept_before_anybody_looked_is_not_waited_for() {
        let partner = Partner { shared: Arc::default(), thread: None, company: Company::Asleep };
        let started = std::thread::spawn(move || {
            // Partner: the Relaxed load in `turns`.
            partner.shared.turns.fetch_add(1, Ordering::Relaxed);
            partner.wait_for_its_first_turn();
        });
        let begin = Instant::now();
        while !started.is_finished() {
            assert!(begin.elapsed() < Duration::from_secs(300), "it waits for a second turn");
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    #[test]
    fn a_spinning_partner_turns_and_a_sleeping_one_does_not() {
        let place = MeasuringPlace::choose().unwrap();
        let Some(spinning) = Partner::start(Company::Spinning, &place) else { return assert_eq!(place.partner, None) };
        let before = spinning.turns();
        spinning.settle();
        assert!(spinning.turns() > before);
        let asleep = Partner::start(Company::Asleep, &place).unwrap();
        let before = asleep.turns();
        asleep.settle();
        std::thread::sleep(Duration::from_millis(200));
        // A park may end by itself, but not a thousand times.
        assert!(asleep.turns() - before < 1000);
    }
}
