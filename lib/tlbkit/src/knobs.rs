//! What a kernel may change while the machine runs: the ceiling, and how the user half is flushed.

use crate::addr::PAGE_BYTES;
use crate::policy::{Policy, RangeRule, UserFlush};
use crate::sync::{AtomicU64, Ordering, const_unless_loom};

/// What may be changed while the machine runs: each flush reads it afresh.
pub struct Knobs {
    user_flush: AtomicU64,
    /// The most pages that go one by one; [`BY_RULE`] while that depends on the space.
    ceiling: AtomicU64,
}

const BY_RULE: u64 = u64::MAX;

const fn word_of(how: UserFlush) -> u64 {
    matches!(how, UserFlush::DeferredCr3) as u64
}

/// More pages than this never go one by one, whatever the ceiling: 1 GiB of base pages, beyond any TLB.
pub const MAX_CEILING_PAGES: u64 = (1 << 30) / PAGE_BYTES;

impl Knobs {
    const_unless_loom! {
        pub(crate) fn new(policy: &Policy) -> Self {
            let ceiling = match policy.range.ceiling() {
                Some(pages) => pages as u64,
                None => BY_RULE,
            };
            Self { user_flush: AtomicU64::new(word_of(policy.user_flush)), ceiling: AtomicU64::new(ceiling) }
        }
    }

    /// Flushes the user half this way from now on.
    pub fn set_user_flush(&self, how: UserFlush) {
        // Relaxed: either way is right at any moment; nothing is ordered by the choice.
        self.user_flush.store(word_of(how), Ordering::Relaxed);
    }

    /// Flushes more than `pages` pages as everything from now on, whatever the policy's rule was; 0 for always.
    /// A range of more than 1 GiB of base pages is everything whatever is said here.
    pub fn set_ceiling(&self, pages: u32) {
        // Relaxed: as above.
        self.ceiling.store(u64::from(pages), Ordering::Relaxed);
    }

    pub(crate) fn user_flush(&self) -> UserFlush {
        // Relaxed: as above.
        if self.user_flush.load(Ordering::Relaxed) == 0 { UserFlush::Invpcid } else { UserFlush::DeferredCr3 }
    }

    pub(crate) fn is_everything(&self, rule: &RangeRule, pages: u64, active_pages: u64) -> bool {
        if pages > MAX_CEILING_PAGES {
            return true;
        }
        // Relaxed: as above.
        match (self.ceiling.load(Ordering::Relaxed), rule) {
            (BY_RULE, RangeRule::FamilyShift(rule)) => rule.is_everything(pages, active_pages),
            (ceiling, _) => pages > ceiling,
        }
    }
}
