//! What a CPU that leaves a lazily held space owes to whoever ends that space: a look, if it finds a notice.
//!
//! A space may die while CPUs hold it lazily. They are not interrupted, and nobody has counted them. The destroyer
//! takes out of the set of the space whoever does not hold it, counts the others, leaves each a notice, and looks
//! again:
//!
//! ```text
//!   CPU that leaves (switch.rs)               destroyer (destroy.rs)
//!                                             take those out of the set that are not seen lazy in the space
//!                                             references := dying + those that are left + 1
//!   presence := switching                     leave each of them a notice
//!   fence(SeqCst)                             fence(SeqCst)
//!   read the notice; if there is none, go on  read the presence of each; while it says switching, read again
//!   load CR3                                  lazy in the space: it will find the notice. Anything else: it may have
//!   if there was a notice, and the space        found none, so take its bit out of the set, and its reference back
//!   dies:                                       if the bit was still there
//!     take the own bit out of the set         give back the own reference             (AcqRel)
//!     give back the reference     (AcqRel)
//!   presence := the next space    (Release)
//!   tell the kernel, if that was the last
//! ```
//! Each side writes, then reads what the other writes, with a fence in between: either the destroyer sees that the CPU
//! is leaving, or the CPU sees the notice and that the space dies. Both may happen; then the bit in the set decides,
//! since one of them takes it out. Whoever takes it gives the reference back, so it is given back once. A CPU that sees
//! the space dying has been counted: had the destroyer seen it anywhere else before it counted, its switch would be
//! over.
//!
//! Nobody touches the space too late. A CPU touches it only while its presence says switching, or while the reference
//! that it gives back is still counted; a destroyer waits while it sees a member of the set switching. That wait is
//! short: a switch runs with interrupts off and waits for nobody. So a CPU that leaves a lazily held space does not
//! write its set afterwards, though it be exact: it stays a member until it has run the space again.

use crate::addr::SpaceToken;
use crate::cpu_set::AtomicCpuSet;
use crate::hardware::Hardware;
use crate::references::Notice;
use crate::sync::{Ordering, fence};
use crate::tlb::Cpu;

impl<H: Hardware> Cpu<'_, '_, H> {
    /// True if this CPU, which leaves a lazily held space and has said that it is switching, owes that space a look.
    pub(crate) fn is_noticed(&self) -> bool {
        // SeqCst: partner is the fence in `notify_holders`; the diagram above.
        fence(Ordering::SeqCst);
        let has_notice = self.state.notice.read() != Notice::NONE;
        if has_notice {
            self.state.notice.clear();
        }
        has_notice
    }

    /// This CPU has left the space called `token`: CR3 names other tables, and its presence still says switching. True
    /// if the space was dying and this was the last reference to it: the kernel must be told, and nobody touches the
    /// space.
    #[cold]
    pub(crate) fn give_back(&self, token: SpaceToken) -> bool {
        // Relaxed: only who takes the bit counts; what this CPU did in the space is ordered by the count.
        let has_left = |set: AtomicCpuSet<'_>| set.remove(self.id, Ordering::Relaxed);
        self.with_space_of(token, |space| {
            space.references.is_dying() && has_left(space.cpus()) && space.references.remove(1)
        })
    }
}
