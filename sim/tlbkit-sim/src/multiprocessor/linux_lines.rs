//! Cache lines of Linux that move in place of ours, or in addition to them. No word of the host stands for such a line,
//! so each has a name.

use crate::lines::named;

/// A cache line of Linux, by what is in it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum LinuxLine {
    /// Whether the CPU is lazy.
    Lazy(usize),
    /// What the CPU has loaded, with the generations that it has flushed up to.
    Loaded(usize),
    /// What the CPU is flushing.
    Record(usize),
    /// The head of the CPU's queue.
    Queue(usize),
    /// An initiator's call for one target, by the number of the pair.
    Call(usize),
    /// The lock of a node's LRU lists, or a line that it guards, by the number of the line among those of all nodes.
    LruLock(usize),
}

impl LinuxLine {
    /// The line's name, which stands for an address. This is the one place that numbers the kinds.
    pub(super) const fn name(self) -> usize {
        let (kind, number) = match self {
            Self::Lazy(cpu) => (0, cpu),
            Self::Loaded(cpu) => (1, cpu),
            Self::Record(cpu) => (2, cpu),
            Self::Queue(cpu) => (3, cpu),
            Self::Call(pair) => (4, pair),
            Self::LruLock(part) => (5, part),
        };
        named(kind, number)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_two_kinds_share_no_name() {
        let kinds: [fn(usize) -> LinuxLine; 6] = [
            LinuxLine::Lazy,
            LinuxLine::Loaded,
            LinuxLine::Record,
            LinuxLine::Queue,
            LinuxLine::Call,
            LinuxLine::LruLock,
        ];
        let names: std::collections::BTreeSet<_> =
            kinds.iter().flat_map(|kind| (0..3).map(|n| kind(n).name())).collect();
        assert_eq!(names.len(), kinds.len() * 3);
    }
}
