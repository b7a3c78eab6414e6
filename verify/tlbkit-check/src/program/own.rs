//! Programs with names that make calls of the protocol by themselves, beside the page tables of `tlbkit-pmap`.

use super::small::shared;
use super::{Access, Content, FlushedBy, Leaves, Op, Program, Rights, TakenBy};
use Access::{Read, Write};
use Leaves::{Both, Small};

/// Both trees come and go in every way, while CPUs have been in two spaces and in the kernel's own tables.
pub(super) fn trees() -> Program {
    let mut setup = shared(1, 2);
    setup.extend([Op::KernelTables, Op::Run(1), Op::Run(0)].map(|op| (2, op)));
    setup.extend([(0, Op::TreeEnter(Both)), (0, Op::KernelTreeEnter(Both))]);
    let again = |by| [Op::TreeTake(by), Op::TreeEnter(Both)];
    let owner = [TakenBy::Gather, TakenBy::Range, TakenBy::Batch].map(again).concat();
    let kernel =
        [TakenBy::Gather, TakenBy::GatherOfPages].map(|by| [Op::KernelTreeTake(by), Op::KernelTreeEnter(Both)]);
    let kernel = [kernel.concat(), vec![Op::TreeTake(TakenBy::GatherOfPages)]].concat();
    let user = vec![Op::Compute(3), Op::Idle, Op::Run(0), Op::Run(1), Op::Run(0), Op::KernelTables, Op::Run(0)];
    Program { setup, cpus: vec![owner, kernel, user] }
}

/// CPU 1 has used the kernel's tree in two spaces, and comes back to the one that it had left when the tree went.
pub(super) fn kernel_tree() -> Program {
    let mut setup = vec![(0, Op::Run(0)), (0, Op::KernelTreeEnter(Small))];
    setup.extend([Op::Run(0), Op::Run(1), Op::KernelTables, Op::Run(0)].map(|op| (1, op)));
    let taken = [TakenBy::GatherOfPages, TakenBy::Gather, TakenBy::GatherOfPages].map(Op::KernelTreeTake);
    let owner = vec![taken[0], Op::KernelTreeEnter(Both), taken[1], Op::KernelTreeEnter(Small), taken[2]];
    let user = vec![Op::Compute(2), Op::Run(1), Op::Compute(2), Op::KernelTables, Op::Run(0), Op::Compute(2)];
    Program { setup, cpus: vec![owner, user] }
}

/// A space's tables go while a CPU is lazy in it, by calls that free them afterwards.
pub(super) fn lazy_trees() -> Program {
    let mut setup = shared(1, 2);
    setup.extend([(0, Op::TreeEnter(Both)), (1, Op::Idle)]);
    let ways = [TakenBy::Batch, TakenBy::BatchReused, TakenBy::Range, TakenBy::GatherOfPages];
    let owner = ways.map(|by| [Op::TreeTake(by), Op::TreeEnter(Both)]);
    let lazy = [Op::Compute(2), Op::Run(0), Op::Idle].repeat(4);
    Program { setup, cpus: vec![owner.concat(), lazy.clone(), lazy] }
}

/// A CPU flushes alone while others are lazy in the space, come and go.
pub(super) fn alone() -> Program {
    let mut setup = shared(1, 1);
    setup.extend([(1, Op::Idle), (0, Op::TreeEnter(Both))]);
    let owner = [Op::TreeTake(TakenBy::RangeAlone), Op::TreeEnter(Both)].repeat(3);
    let other = vec![Op::Compute(2), Op::Run(0), Op::Compute(2), Op::Run(1), Op::Idle, Op::Run(0), Op::Idle];
    Program { setup, cpus: vec![owner, other.clone(), other] }
}

/// CPUs flush pages that they alone use.
pub(super) fn own_pages() -> Program {
    let mut setup = shared(1, 2);
    setup.extend([Op::KernelTables, Op::Run(1), Op::Run(0)].map(|op| (1, op)));
    setup.extend([(0, Op::TreeEnter(Both)), (0, Op::KernelTreeEnter(Both))]);
    let change = |by| [Op::OwnPage(by), Op::Compute(1)].repeat(2);
    let pages = FlushedBy::ALL.map(change).concat();
    let tour = [Op::OwnPage(FlushedBy::KernelPage), Op::Run(1), Op::KernelTables, Op::OwnPage(FlushedBy::Everything)];
    let tour = [tour.to_vec(), vec![Op::Run(0), Op::OwnPage(FlushedBy::Loaded), Op::Idle, Op::Run(0)]].concat();
    Program { setup, cpus: vec![pages.clone(), tour, pages] }
}

/// A space is changed while its CPU uses a foreign one for a moment, and comes back.
pub(super) fn borrow_return() -> Program {
    let borrower = [Op::Borrow(1), Op::Compute(1)].repeat(4);
    let changer = [Op::DontNeed(0, 1), Op::Touch(0, Write)].repeat(3);
    Program { setup: shared(1, 1), cpus: vec![changer, borrower] }
}

/// Two threads write while their space is copied, and the child reads what they had written before.
pub(super) fn fork_writers() -> Program {
    let thread = [Op::Touch(0, Write), Op::Touch(0, Read)].repeat(3);
    let owner = vec![Op::Fork, Op::Touch(0, Read), Op::Run(2), Op::Touch(0, Read)];
    Program { setup: shared(1, 2), cpus: vec![owner, thread.clone(), thread] }
}

/// Loads and stores of a file's pages, each of which maps those around it.
pub(super) fn fault_around() -> Program {
    let mut setup = vec![(0, Op::FaultAround(4)), (0, Op::Run(0)), (0, Op::Map(4, Content::File))];
    setup.extend([1, 2].map(|cpu| (cpu, Op::Run(0))));
    let reader = vec![Op::Touch(0, Read), Op::Touch(1, Read), Op::DontNeed(0, 4), Op::Touch(2, Read)];
    let writer = |page: u8| [Op::Touch(page, Write), Op::Touch(page, Read), Op::Touch(3 - page, Read)].repeat(3);
    Program { setup, cpus: vec![reader, writer(1), writer(2)] }
}

/// A page's own frame is entered again with fewer rights, and with all.
pub(super) fn enter_again() -> Program {
    let owner = [Op::Reenter(0, Rights::Read), Op::Reenter(0, Rights::ReadWrite), Op::Touch(0, Write)].repeat(2);
    let user = vec![Op::Touch(0, Write), Op::Compute(3), Op::Touch(0, Write), Op::Idle, Op::Run(0), Op::Compute(3)];
    Program { setup: shared(1, 2), cpus: vec![owner, user.clone(), user] }
}

/// What was issued is forgotten, and its space ends while CPUs that have left it take the request late.
pub(super) fn forgotten_end() -> Program {
    let forget = |page| [Op::Withdraw(page, 1), Op::Forget];
    let mut setup = shared(4, 2);
    setup.extend([(1, Op::Run(1)), (2, Op::Run(1))]);
    let issuer = [forget(0), forget(1), forget(2), forget(3)].concat();
    let left = vec![Op::Compute(8), Op::Touch(0, Read), Op::Compute(8)];
    Program { setup, cpus: vec![[issuer, vec![Op::Exit]].concat(), left.clone(), left] }
}

/// A lazy CPU loads the kernel's tables, stays there for a while, and loads another space, while the one that it held
/// ends.
pub(super) fn lazy_kernel_next() -> Program {
    let mut setup = shared(1, 3);
    setup.extend([1, 2, 3].map(|cpu| (cpu, Op::Idle)));
    let leaver = vec![Op::KernelTables, Op::Compute(12), Op::Run(1), Op::Idle, Op::KernelTables, Op::Run(1)];
    Program { setup, cpus: vec![vec![Op::Exit, Op::Run(1), Op::Compute(2)], leaver.clone(), leaver.clone(), leaver] }
}

/// The last two CPUs that hold a space which has ended go on to another one at the same time.
pub(super) fn last_holders() -> Program {
    let mut setup = shared(1, 2);
    setup.extend([(1, Op::Idle), (2, Op::Idle), (0, Op::Exit)]);
    let holder = vec![Op::Run(1), Op::Compute(1)];
    Program { setup, cpus: vec![vec![Op::Run(1), Op::Compute(1)], holder.clone(), holder] }
}

/// A lazy CPU flushes what it has loaded, just when a request makes it leave the tables that are freed.
pub(super) fn lazy_flush() -> Program {
    let mut setup = shared(1, 1);
    setup.extend([(1, Op::Idle), (0, Op::TreeEnter(Both))]);
    let owner = [Op::TreeTake(TakenBy::Range), Op::TreeEnter(Small)].repeat(4);
    let flush = [Op::OwnPage(FlushedBy::Loaded); 12];
    let lazy = [flush.to_vec(), vec![Op::Run(0), Op::Idle], flush.to_vec()].concat();
    Program { setup, cpus: vec![owner, lazy] }
}

/// A page loses a right by one call, and gets it back, while others store to it, are lazy and come back.
pub(super) fn flush_range() -> Program {
    let mut setup = shared(1, 2);
    setup.push((0, Op::TreeEnter(Both)));
    let user = vec![Op::Compute(3), Op::Idle, Op::Run(0), Op::Compute(3), Op::Run(1), Op::Run(0), Op::Compute(3)];
    Program { setup, cpus: vec![vec![Op::TreeProtect; 6], user.clone(), user] }
}
