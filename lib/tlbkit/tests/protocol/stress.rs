//! Four real threads that switch, idle, use and revoke: no page is used in a version that was revoked.

use tlbkit::{CpuSetUpkeep, History, Lazy, Policy, Tags};
use tlbkit_arch::SplitMix64;

use crate::machine::BATCHINGS;
use crate::machine::thread::{Machine, PAGES, Thread};

const CPUS: usize = 4;
const SPACES: usize = 5;
const ROUNDS: usize = 4_000;

fn live(machine: &'static Machine, id: usize) {
    let cpu = Thread::new(machine, id);
    let mut random = SplitMix64::new(id as u64);
    let mut running = None;
    for _ in 0..ROUNDS {
        let state = random.bits();
        let (space, page) = ((state >> 8) as usize % SPACES, (state >> 16) as usize % PAGES);
        match state >> 32 & 15 {
            0..=4 => {
                cpu.switch(space);
                running = Some(space);
            }
            5 => {
                cpu.lazy();
                running = None;
            }
            6..=7 => cpu.revoke(running.unwrap_or(space), &[page, (page + 3) % PAGES]),
            8 => cpu.revoke(space, &[page]),
            _ => {
                if let Some(space) = running {
                    (0..PAGES).for_each(|page| cpu.touch(space, page));
                }
            }
        }
        cpu.hardware.take_interrupt();
    }
    cpu.finish();
}

#[test]
fn inv_6_four_threads_never_use_a_revoked_version() {
    let base = Policy { tags: Tags::LeastRecent(3), ..Policy::default() };
    for policy in [
        base,
        Policy {
            cpu_set: CpuSetUpkeep::Trimmed { every: 4 },
            history: History { batching: BATCHINGS[BATCHINGS.len() / 2], ..History::NONE },
            ..base
        },
        Policy { cpu_set: CpuSetUpkeep::Exact, lazy: Lazy::InterruptOnce, tags: Tags::RoundRobin(2), ..base },
    ] {
        let machine = Machine::new(policy, CPUS, SPACES);
        std::thread::scope(|scope| (0..CPUS).for_each(|id| drop(scope.spawn(move || live(machine, id)))));
    }
}
