//! Programs under a policy by which CPUs acknowledge a flush before they have flushed.

use super::small::{Named, early, pair, shared};
use super::{Access, Content, Leaves, Op, Program, Rights, TakenBy};
use Access::{Read, Write};

/// All of them.
pub(super) const ALL: &[Named] = &[
    early("early", "pages are taken and given to others while their users still flush", users),
    early("early-1-page", "a page is given back and used again, small enough for all schedules", one_page),
    early("early-write", "a permission is taken away, and pages are copied, under CPUs that write them", write),
    early("early-issue", "issued flushes share mailboxes, and are waited for elsewhere", issue),
    early("early-tables", "page tables are freed beside pages, by each call that can", tables),
    early("early-leave", "CPUs are stopped, go offline, go lazy and are not disturbed while pages go", leave),
    early("early-ends", "a space ends just after CPUs have left its set on request", ends),
];

fn users() -> Program {
    let taker = |page| {
        let again = [Op::DontNeed(page, 1), Op::Touch(page, Write), Op::Unmap(page, 1), Op::Map(1, Content::Private)];
        [again.to_vec(), vec![Op::Touch(page, Write)]].concat().repeat(2)
    };
    let user = [Op::Touch(0, Read), Op::Compute(3), Op::Touch(1, Write), Op::Compute(3)].repeat(2);
    Program { setup: shared(3, 3), cpus: vec![taker(0), taker(1), user.clone(), user] }
}

fn one_page() -> Program {
    pair(&[Op::DontNeed(0, 1), Op::Touch(0, Write)], &[Op::Touch(0, Read), Op::Compute(1)])
}

fn write() -> Program {
    let owner =
        vec![Op::Protect(0, 1, Rights::Read), Op::Fork, Op::Touch(1, Write), Op::Protect(0, 2, Rights::ReadWrite)];
    let writer = [Op::Touch(0, Write), Op::Touch(1, Write), Op::Compute(2)].repeat(3);
    Program { setup: shared(2, 2), cpus: vec![owner, writer.clone(), writer] }
}

fn issue() -> Program {
    let issuer: Vec<_> = (0..4).flat_map(|page| [Op::Withdraw(page, 1), Op::DontNeed(page, 1), Op::Poll]).collect();
    let adopter = [Op::Compute(2), Op::Adopt, Op::Touch(0, Write), Op::Adopt].repeat(2);
    let batches = vec![Op::Evict(0, 1), Op::Touch(0, Write), Op::Evict(1, 1), Op::DontNeed(0, 2), Op::Touch(1, Read)];
    Program { setup: shared(4, 2), cpus: vec![issuer, adopter, batches] }
}

fn tables() -> Program {
    let taken = [TakenBy::Gather, TakenBy::GatherOfPages, TakenBy::Range, TakenBy::Batch];
    let taker = |by| [Op::TreeEnter(Leaves::Small), Op::Compute(2), Op::TreeProtect, Op::TreeTake(by)];
    let owner = taken.map(taker).concat();
    let other = vec![Op::Unmap(0, 2), Op::Map(2, Content::Private), Op::Touch(0, Write), Op::Unmap(0, 2)];
    let user = [Op::Compute(4), Op::Touch(2, Read)].repeat(4);
    Program { setup: shared(3, 2), cpus: vec![owner, other, user] } // page 2 keeps the table above the tree
}

fn leave() -> Program {
    let mut setup = vec![(2, Op::Isolate)];
    setup.extend(shared(2, 3));
    let owner = [Op::DontNeed(0, 1), Op::Touch(0, Write), Op::KernelMap, Op::KernelUnmap].repeat(3);
    let stopped = vec![Op::Compute(2), Op::Stop(6), Op::Run(0), Op::Compute(3), Op::Offline(2), Op::Run(0)];
    let isolated = [Op::Compute(4), Op::Touch(1, Write)].repeat(3);
    let lazy = [Op::Idle, Op::Run(0), Op::Touch(0, Read), Op::Run(1), Op::Run(0)].repeat(2);
    Program { setup, cpus: vec![owner, stopped, isolated, lazy] }
}

/// CPUs 1 and 2 are in the set of space 2 and run another one when a flush trims the set; then the space ends.
fn ends() -> Program {
    let mut setup = shared(1, 2);
    setup.extend([(0, Op::Fork), (0, Op::Run(2)), (0, Op::Touch(0, Write))]);
    setup.extend([1, 2].into_iter().flat_map(|cpu| [(cpu, Op::Run(2)), (cpu, Op::Touch(0, Read)), (cpu, Op::Run(0))]));
    let owner = vec![Op::DontNeed(0, 1), Op::Touch(0, Write), Op::DontNeed(0, 1), Op::Exit, Op::Run(0), Op::Fork];
    let other = vec![Op::Compute(4), Op::Run(1), Op::Compute(2), Op::Run(0)];
    Program { setup, cpus: vec![owner, other.clone(), other] }
}
