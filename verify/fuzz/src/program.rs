//! Bytes to a machine, a policy, a program and a schedule. Every sequence of bytes gives one.

use arbitrary::{Result, Unstructured};
use tlbkit::{Features, PRESETS};
use tlbkit_check::program::{Access, Content, Op, Program, Rights};
use tlbkit_check::{MachineConfig, Scenario};

/// Most operations of one CPU.
const OPS: usize = 8;
/// Pages that an operation can name.
const PAGES: u8 = 8;

/// What is run; what is left of the bytes is the schedule.
///
/// # Errors
/// None in practice: what is missing is taken for zeros.
pub fn scenario(bytes: &mut Unstructured<'_>) -> Result<Scenario> {
    let policy = bytes.choose(PRESETS)?.policy;
    let features = Features { pcid: bytes.ratio(7, 8)?, invpcid: bytes.ratio(3, 4)? };
    let cpus = bytes.int_in_range(2..=3)?;
    let setup = (0..cpus).map(|cpu| (cpu, Op::Run(0))).chain([(0, Op::Map(PAGES, Content::Private))]).collect();
    let cpus = (0..cpus).map(|_| ops(bytes)).collect::<Result<_>>()?;
    let config = MachineConfig { features, ..MachineConfig::default() };
    Ok(Scenario { config, policy, program: Program { setup, cpus } })
}

fn ops(bytes: &mut Unstructured<'_>) -> Result<Vec<Op>> {
    let count = bytes.int_in_range(1..=OPS)?;
    (0..count).map(|_| op(bytes)).collect()
}

fn op(bytes: &mut Unstructured<'_>) -> Result<Op> {
    let page = bytes.int_in_range(0..=PAGES - 1)?;
    let count = bytes.int_in_range(1..=4)?;
    Ok(match bytes.int_in_range(0u8..=19)? {
        0 => Op::Touch(page, Access::Read),
        1 => Op::Touch(page, Access::Write),
        2 => Op::Unmap(page, count),
        3 => Op::Protect(page, count, *bytes.choose(&[Rights::None, Rights::Read, Rights::ReadWrite])?),
        4 => Op::DontNeed(page, count),
        5 => Op::Map(count, *bytes.choose(&[Content::Private, Content::Shared, Content::File, Content::Large])?),
        6 => Op::Run(page % 3),
        7 => Op::Idle,
        8 => Op::KernelTables,
        9 => Op::Compute(count),
        10 => Op::Fork,
        11 => Op::Clear,
        12 => Op::Exit,
        13 => Op::KernelMap,
        14 => Op::KernelUnmap,
        15 => Op::Borrow(page % 3),
        16 => Op::Offline(count),
        17 => Op::Stop(count),
        18 => Op::Ceiling(count),
        _ => Op::DeferUserFlush,
    })
}
