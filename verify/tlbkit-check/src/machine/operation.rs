//! One call of the kernel, and what its return promises.

use std::ops::Range;

use tlbkit::Isolation;

use super::memory::FrameName;
use super::tlb::TlbEntry;

/// What a retirement is called.
pub(crate) const RETIRE: &str = "retire";

/// One call of the kernel.
#[derive(Clone, Debug)]
pub(crate) struct Operation {
    pub(crate) name: &'static str,
    pub(crate) cpu: usize,
    pub(crate) began: u64,
    pub(crate) ended: Option<u64>,
    /// The top-level table of the space whose addresses `promise` names; nothing for the kernel's.
    pub(crate) root: Option<FrameName>,
    /// Addresses that are clean when the call returns.
    pub(crate) promise: Range<u64>,
    /// When its last flush began and ended.
    pub(crate) flush: (Option<u64>, Option<u64>),
}

impl Operation {
    /// What comes before all calls.
    pub(crate) const BOOT: Self = Self::new("boot", 0, 0, None, 0..0);

    pub(super) const fn new(
        name: &'static str,
        cpu: usize,
        began: u64,
        root: Option<FrameName>,
        promise: Range<u64>,
    ) -> Self {
        Self { name, cpu, began, ended: None, root, promise, flush: (None, None) }
    }

    /// True while it is a retirement whose grace period is not over: no other call promises anything about that.
    pub(super) fn holds_back(&self) -> bool {
        self.name == RETIRE && self.ended.is_none()
    }

    /// True if its return promises that `entry` is gone. `home` says of a CPU's own top-level table whose it is.
    pub(super) fn covers(&self, entry: &TlbEntry, isolation: Isolation, home: impl Fn(FrameName) -> FrameName) -> bool {
        let is_same_space = match self.root {
            None => entry.page.start.is_kernel(),
            Some(root) => {
                let own = home(entry.root);
                root.epoch == own.epoch && (root.at == own.at || isolation == Isolation::On && root.at + 4096 == own.at)
            }
        };
        is_same_space && self.promise.contains(&entry.page.start.0)
    }
}
