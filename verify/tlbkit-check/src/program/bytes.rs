//! Programs out of bytes: from a fuzzer, or from random numbers. Every sequence of bytes is a program.

use super::pages::PAGES;
use super::small::shared;
use super::{Access, Content, Op, Program, Rights};

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

    /// The same of the later family, in which flushes are issued and waited for anywhere.
    pub(crate) fn read_later(bytes: &mut Bytes<'_>) -> Self {
        Self::read_of(bytes, later)
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
        _ => op(bytes),
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
