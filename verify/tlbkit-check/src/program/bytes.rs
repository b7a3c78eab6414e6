//! Programs out of bytes: from a fuzzer, or from random numbers. Every sequence of bytes is a program.

use super::pages::{GIANTS, PAGES};
use super::small::shared;
use super::{Access, Content, FlushedBy, Host, Leaves, Op, Program, Rights, TakenBy};

/// Reads bytes one by one; zeros follow the last.
pub(crate) struct Bytes<'b>(std::slice::Iter<'b, u8>);

impl<'b> Bytes<'b> {
    pub(crate) fn new(bytes: &'b [u8]) -> Self {
        Self(bytes.iter())
    }

    /// The next number below `n`.
    pub(crate) fn below(&mut self, n: u8) -> u8 {
        self.0.next().map_or(0, |byte| byte % n)
    }

    /// What has not been read.
    pub(crate) fn rest(&self) -> &'b [u8] {
        self.0.as_slice()
    }
}

/// Most CPUs of a program made of bytes.
const CPUS: u8 = 4;
/// Most operations of each.
const OPS: u8 = 7;

impl Program {
    /// The program that begins at `bytes`, which is left where it ends.
    pub(crate) fn read(bytes: &mut Bytes<'_>) -> Self {
        Self::read_of(bytes, op)
    }

    /// Reads a program of the later family, in which flushes are issued and waited for anywhere.
    pub(crate) fn read_later(bytes: &mut Bytes<'_>) -> Self {
        Self::read_of(bytes, later)
    }

    /// Reads a program of the guests' family: any of the later one, in a guest, on CPUs not to be disturbed, or both.
    pub(crate) fn read_guest(bytes: &mut Bytes<'_>) -> Self {
        let host = Host::GUESTS[usize::from(bytes.below(Host::GUESTS.len() as u8))];
        let (is_guest, isolated) =
            [(true, 0), (true, 0b1111), (false, 0b1111), (false, 0b1110)][usize::from(bytes.below(4))];
        let mut program = Self::read_of(bytes, later);
        program.surround(is_guest.then_some(host), isolated);
        program
    }

    /// A program of a fuzzer, which no seed has: any of the later or the guests' family, or one with pages of 1 GiB.
    pub(crate) fn read_any(bytes: &mut Bytes<'_>) -> Self {
        match bytes.below(4) {
            0 => {}
            1 => return Self::read_guest(bytes),
            _ => return Self::read_later(bytes),
        }
        let mut program = Self::read_of(bytes, beside_giants);
        program.setup.push((0, Op::GiantMap));
        program
    }

    fn read_of(bytes: &mut Bytes<'_>, op: fn(&mut Bytes<'_>) -> Op) -> Self {
        let cpus = 2 + bytes.below(CPUS - 1);
        let setup = shared(1 + bytes.below(4), bytes.below(cpus));
        let cpus = (0..cpus).map(|_| {
            let count = 1 + bytes.below(OPS);
            (0..count).map(|_| op(bytes)).collect()
        });
        Self { setup, cpus: cpus.collect() }
    }
}

/// A page of those that programs use, the first of them more often.
fn page(bytes: &mut Bytes<'_>) -> u8 {
    bytes.below(PAGES as u8) % (1 + bytes.below(PAGES as u8))
}

fn op(bytes: &mut Bytes<'_>) -> Op {
    // What programs do most comes most often.
    match bytes.below(32) {
        0..=4 => Op::Touch(page(bytes), Access::Read),
        5..=9 => Op::Touch(page(bytes), Access::Write),
        10..=11 => Op::Compute(1 + bytes.below(8)),
        12..=14 => Op::Unmap(page(bytes), 1 + bytes.below(6)),
        15..=16 => Op::DontNeed(page(bytes), 1 + bytes.below(6)),
        17..=18 => Op::Protect(page(bytes), 1 + bytes.below(4), rights(bytes)),
        19..=20 => Op::Map(1 + bytes.below(6), content(bytes)),
        21..=23 => Op::Run(bytes.below(3)),
        24 => Op::Idle,
        25 => Op::Fork,
        26 => [Op::KernelTables, Op::Clear][usize::from(bytes.below(2))],
        27 => Op::Exit,
        28 => Op::KernelMap,
        29 => Op::KernelUnmap,
        30 => [Op::Borrow(bytes.below(3)), Op::DeferUserFlush][usize::from(bytes.below(2))],
        _ => rare(bytes),
    }
}

fn later(bytes: &mut Bytes<'_>) -> Op {
    match bytes.below(40) {
        0..=4 => Op::Touch(page(bytes), Access::Read),
        5..=9 => Op::Touch(page(bytes), Access::Write),
        10..=11 => Op::Compute(1 + bytes.below(8)),
        12..=18 => Op::Withdraw(page(bytes), 1 + bytes.below(4)),
        19..=21 => Op::Settle,
        22..=23 => Op::Poll,
        24..=26 => Op::Adopt,
        27 => Op::Forget,
        28..=29 => Op::Evict(page(bytes), 1 + bytes.below(3)),
        30 => Op::FlushHere(page(bytes), 1 + bytes.below(3)),
        31 => Op::PassIds(bytes.below(40)),
        32..=34 => in_window(bytes),
        _ => op(bytes),
    }
}

/// What is done to a kernel window whose pages go one by one.
fn in_window(bytes: &mut Bytes<'_>) -> Op {
    let kind = bytes.below(4);
    let (page, count) = (bytes.below(2), 1 + bytes.below(2));
    match kind {
        0 => Op::KernelMap,
        1 => Op::KernelTake(page, count),
        _ => Op::KernelWithdraw(page, count),
    }
}

/// The page tables know no pages of 1 GiB: while there may be some, nobody frees or copies the tables around them.
fn beside_giants(bytes: &mut Bytes<'_>) -> Op {
    match bytes.below(8) {
        0 => Op::GiantMap,
        1 => Op::GiantUnmap,
        2 => tree(bytes),
        3 => Op::Touch(GIANTS + bytes.below(2), [Access::Read, Access::Write][usize::from(bytes.below(2))]),
        _ => match later(bytes) {
            Op::Unmap(page, count) => Op::DontNeed(page, count),
            Op::Clear | Op::Fork | Op::Exit => Op::GiantUnmap,
            op => op,
        },
    }
}

/// What is done to page tables of the little kernel's own.
fn tree(bytes: &mut Bytes<'_>) -> Op {
    let leaves = [Leaves::Small, Leaves::Both][usize::from(bytes.below(2))];
    let (taken, flushed) = (bytes.below(TakenBy::ALL.len() as u8), bytes.below(FlushedBy::ALL.len() as u8));
    match bytes.below(8) {
        0 => Op::TreeEnter(leaves),
        1 => Op::TreeTake(TakenBy::ALL[usize::from(taken)]),
        2 => Op::KernelTreeEnter(leaves),
        3 => Op::KernelTreeTake(TakenBy::ALL[usize::from(taken)]),
        4 => Op::TreeProtect,
        5 => Op::FaultAround(1 << bytes.below(3)),
        6 => Op::Reenter(page(bytes), rights(bytes)),
        _ => Op::OwnPage(FlushedBy::ALL[usize::from(flushed)]),
    }
}

fn rare(bytes: &mut Bytes<'_>) -> Op {
    match bytes.below(5) {
        0 => Op::Ceiling(bytes.below(4)),
        1 => Op::Stop(bytes.below(32)),
        2 => Op::Die(bytes.below(32)),
        _ => Op::Offline(bytes.below(32)),
    }
}

fn rights(bytes: &mut Bytes<'_>) -> Rights {
    [Rights::Read, Rights::None, Rights::ReadWrite, Rights::Read][usize::from(bytes.below(4))]
}

fn content(bytes: &mut Bytes<'_>) -> Content {
    [Content::Private, Content::Shared, Content::File, Content::Large][usize::from(bytes.below(4))]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::digest;
    use std::collections::BTreeSet;

    /// A new operation must be added here, or it does not compile; then bytes must reach it.
    macro_rules! kinds {
        ($($kind:ident),+) => {
            const KINDS: &[&str] = &[$(stringify!($kind)),+];

            fn kind(op: Op) -> &'static str {
                match op {
                    $(Op::$kind { .. } => stringify!($kind),)+
                }
            }
        };
    }

    kinds! {
        Run, Idle, KernelTables, Map, Touch, Compute, Unmap, Protect, DontNeed, Evict, Withdraw, Retire, Settle, Poll,
        Adopt, Forget, FlushHere, PassIds, Fork, Clear, Exit, GiantMap, GiantUnmap, Reenter, TreeEnter, TreeTake,
        TreeProtect, KernelTreeEnter, KernelTreeTake, OwnPage, KernelMap, KernelUnmap, KernelTake, KernelWithdraw,
        Borrow, Offline, Stop, Die, FaultAround, Ceiling, DeferUserFlush, Host, Isolate, Share, Directories,
        Walk, KernelWalk, Age, SpareUnaccessed, Reclaim
    }

    fn drawn(seed: u64) -> Program {
        let mut numbers = digest::random(seed);
        let bytes: Vec<u8> = (0..160).map(|_| numbers.below(256) as u8).collect();
        Program::read_any(&mut Bytes::new(&bytes))
    }

    /// All but eight: in random programs spaces move to shared PCIDs by the policy, retired and reclaimed pages, CPUs'
    /// directories and kernels that go by accessed bits have families of their own, walkers in software take the place
    /// of loads (`generate.rs`), and those of the kernel's tables have programs with names.
    #[test]
    fn bytes_reach_every_operation() {
        let reached: BTreeSet<_> = (0..1000).flat_map(|seed| drawn(seed).ops().collect::<Vec<_>>()).map(kind).collect();
        const OTHERS: [&str; 8] =
            ["Share", "Retire", "Reclaim", "Directories", "Walk", "KernelWalk", "Age", "SpareUnaccessed"];
        let is_drawn = |kind: &&str| !OTHERS.contains(kind);
        assert_eq!(reached, KINDS.iter().copied().filter(is_drawn).collect());
    }

    #[test]
    fn giant_pages_meet_nobody_who_frees_their_tables() {
        let of_giants = |op: &Op| matches!(op, Op::GiantMap | Op::GiantUnmap);
        let frees = |op: &Op| matches!(op, Op::Unmap(..) | Op::Clear | Op::Fork | Op::Exit);
        let all: Vec<Vec<Op>> = (0..1000).map(|seed| drawn(seed).cpus.concat()).collect();
        let with: Vec<_> = all.iter().filter(|ops| ops.iter().any(of_giants)).collect();
        assert!(with.len() > 100 && !with.iter().copied().flatten().any(frees), "{} programs", with.len());
    }
}
