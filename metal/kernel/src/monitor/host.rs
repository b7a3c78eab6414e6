//! A host that takes CPUs away, at any trap, for longer than anybody waits by chance. What other CPUs ask of it in the
//! steal-time byte it does before the CPU goes on, and nothing more than it has promised.

use core::hint::spin_loop;

use tlbkit::HostFlush;
use tlbkit_arch::Instruction;
use tlbkit_arch::scope::Paths;

use super::state::Core;
use crate::arch::cpu;
use crate::machine::steal_time;

/// One trap in so many ends with the CPU taken away.
const ONE_OF: u64 = 16;
/// Turns until it goes on.
const TURNS: u32 = 300;

impl Core {
    /// Takes this CPU away, now and then, if the guest has such a host.
    pub(super) fn preempt_at_random(&mut self) {
        let has_paths_flushed = match self.monitor.host_flush {
            HostFlush::None => return,
            HostFlush::Translations => false,
            HostFlush::TranslationsAndPaths => true,
        };
        if !self.random.bits().is_multiple_of(ONE_OF) {
            return;
        }
        steal_time::preempt(cpu::index());
        for _ in 0..TURNS {
            spin_loop();
            self.do_asked(); // INVLPGB reaches what a preempted CPU has cached as well
        }
        if steal_time::take(cpu::index()) {
            let mut what = Instruction::TogglePge.invalidates(self.current_tag());
            if !has_paths_flushed {
                what.paths = Paths::Kept;
            }
            self.tlb.remove(&what);
            self.shadow.empty();
        }
    }
}
