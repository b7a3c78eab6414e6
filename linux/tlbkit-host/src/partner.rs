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
            partner.wait_for_a_turn();
        }
        Some(partner)
    }

    /// Waits until the partner is seen to do what its company says. A spinning thread may be off its CPU, and then
    /// nobody would have to interrupt it.
    pub fn settle(&self) {
        if self.company == Company::Spinning {
            self.wait_for_a_turn();
        }
    }

    fn wait_for_a_turn(&self) {
        // Partner: the Relaxed add in `live`; the count is all that matters.
        let before = self.shared.turns.load(Ordering::Relaxed);
        while self.shared.turns.load(Ordering::Relaxed) == before {
            thread::yield_now();
        }
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
        // Partner: the Relaxed loads in `wait_for_a_turn`.
        shared.turns.fetch_add(1, Ordering::Relaxed);
        match company {
            Company::Asleep => thread::park(),
            Company::Alone | Company::Spinning => std::hint::spin_loop(),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::Ordering;

    use super::{Company, Partner};
    use crate::host::MeasuringPlace;

    #[test]
    fn a_spinning_partner_turns_and_a_sleeping_one_does_not() {
        let place = MeasuringPlace::choose().unwrap();
        let Some(spinning) = Partner::start(Company::Spinning, &place) else { return assert_eq!(place.partner, None) };
        // Partner: the Relaxed add of the spinning thread.
        let turns = |partner: &Partner| partner.shared.turns.load(Ordering::Relaxed);
        let before = turns(&spinning);
        spinning.settle();
        assert!(turns(&spinning) > before);
        let asleep = Partner::start(Company::Asleep, &place).unwrap();
        let before = turns(&asleep);
        asleep.settle();
        std::thread::sleep(std::time::Duration::from_millis(200));
        // A park may end by itself, but not a thousand times.
        assert!(turns(&asleep) - before < 1000);
    }
}
