//! One CPU: what it has loaded and cached, what it has not written yet, which interrupts are on their way.

use tlbkit::Pcid;

use super::buffer::Buffer;
use super::guest::Hosted;
use super::memory::FrameName;
use super::tlb::Tlb;

/// What a CPU does.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Mode {
    /// A program runs: it may touch any address of its space at any time.
    User,
    /// The same, and the kernel was told so: no code of it runs before the CPU has caught up.
    Undisturbed,
    /// On the way from the kernel to there, or back: it touches only what stays mapped.
    Between,
    /// The kernel runs.
    Kernel,
    /// Offline, or on the way in or out: it touches only what stays mapped.
    Absent,
    /// The CPU executes nothing at all.
    Stopped,
}

/// Whether interrupts are taken.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Irqs {
    /// They wait.
    Off,
    /// They may come at any step.
    On,
}

/// How far it is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Progress {
    /// The CPU has work.
    Busy,
    /// Its program is over; it idles and answers.
    Idle,
    /// Everybody's is.
    Ended,
}

pub(crate) struct Core {
    pub(crate) tlb: Tlb,
    /// The top-level table in CR3, with its epoch when it was loaded.
    pub(crate) root: FrameName,
    /// The PCID in CR3.
    pub(crate) pcid: Pcid,
    pub(crate) buffer: Buffer,
    /// Senders whose interrupts have not been taken, a bit each.
    pub(crate) interrupts: u64,
    pub(crate) irqs: Irqs,
    pub(crate) mode: Mode,
    pub(crate) progress: Progress,
    /// Set while it spins: the number of changes when it last looked.
    pub(crate) spins_since: Option<u64>,
    /// The operation that it carries out.
    pub(crate) op: u32,
    /// Operations that it has begun and continues later, in the order in which they began.
    pub(crate) suspended: Vec<u32>,
    /// The CPU that it was last seen waiting for.
    pub(crate) waits_for: Option<u32>,
    /// Set while its non-maskable interrupt runs: nothing else happens then.
    pub(crate) in_nmi: bool,
    /// Whether the host runs it.
    pub(crate) host: Hosted,
    /// Its kernel defers flushes while its program runs, and non-maskable interrupts come.
    pub(crate) is_isolated: bool,
    /// The non-maskable interrupt's handler runs, which no other one interrupts.
    pub(crate) handles_nmi: bool,
    /// A digest of everything that it has read: what decides its next step.
    pub(crate) history: u64,
    /// That digest when it last began to wait, if it has only looked since.
    waited: Option<u64>,
}

impl Core {
    pub(crate) fn new(root: FrameName) -> Self {
        Self {
            tlb: Tlb::default(),
            root,
            pcid: Pcid(0),
            buffer: Buffer::default(),
            interrupts: 0,
            irqs: Irqs::On,
            mode: Mode::Kernel,
            progress: Progress::Busy,
            spins_since: None,
            op: 0,
            suspended: Vec::new(),
            waits_for: None,
            in_nmi: false,
            host: Hosted::Running,
            is_isolated: false,
            handles_nmi: false,
            history: 0,
            waited: None,
        }
    }

    /// True if its walker may walk.
    pub(crate) fn walks(&self) -> bool {
        self.mode != Mode::Stopped && self.root.at != 0 && self.host == Hosted::Running
    }

    /// True if a program runs.
    pub(crate) fn runs_a_program(&self) -> bool {
        matches!(self.mode, Mode::User | Mode::Undisturbed)
    }

    /// True if it may touch the kernel's addresses.
    pub(crate) fn runs_kernel_code(&self) -> bool {
        matches!(self.mode, Mode::User | Mode::Kernel)
    }

    /// It waits for others. A round of waiting in which it only looked leaves no trace: what it does next does not
    /// depend on how often it looked.
    pub(crate) fn spin(&mut self, changes: u64) {
        self.history = self.waited.unwrap_or(self.history);
        self.waited = Some(self.history);
        self.spins_since = Some(changes);
    }

    /// The CPU does something other than look.
    pub(crate) const fn act(&mut self) {
        self.waited = None;
    }

    /// Takes what it has read into its history.
    pub(crate) fn remember(&mut self, value: u64) {
        self.history = crate::digest::mix(self.history, value);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_round_of_looking_leaves_no_trace_and_anything_else_does() {
        let mut core = Core::new(FrameName { at: 0, epoch: 0 });
        core.spin(0);
        let before = core.history;
        core.remember(1);
        core.spin(0);
        assert_eq!(core.history, before);
        core.act();
        core.remember(1);
        core.spin(0);
        assert_ne!(core.history, before);
    }
}
