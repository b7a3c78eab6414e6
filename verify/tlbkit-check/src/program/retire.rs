//! Programs about frames that are retired: a CPU gives them away and interrupts nobody.

use super::small::{Named, named, shared};
use super::{Access, Content, Op, Program, Rights, walk};
use Access::{Read, Write};

/// All of them.
pub(super) const ALL: &[Named] = &[
    named("retire", "pages are retired under their users, and mapped elsewhere meanwhile", users),
    named("retire-1-page", "a page is retired while another CPU uses it, small enough for all schedules", one_page),
    named("retire-switch", "pages are retired while CPUs come, go and idle", switch),
    named("retire-two", "two CPUs retire in one epoch, and a third one waits for what they took", two),
    named("retire-epochs", "a CPU retires while another one ends the epoch and passes the next", epochs),
    named("retire-then-flush", "what was retired meets flushes of the same space, of pages and of everything", flush),
    named("retire-walk", "pages are retired with their tables while CPUs read these without a lock", walk::retired),
    named("retire-hotplug", "a CPU that holds frames back goes offline, or is stopped", hotplug),
];

impl Program {
    /// The random program of `seed` with what is unmapped retired.
    #[must_use]
    pub fn random_retiring(seed: u64) -> Self {
        let mut program = Self::random_later(seed);
        let ops = program.cpus.iter_mut().flatten();
        ops.for_each(|op| {
            if let Op::Unmap(page, count) = *op {
                *op = Op::Retire(page, count);
            }
        });
        program
    }
}

fn users() -> Program {
    let owner = vec![Op::Retire(0, 2), Op::Map(2, Content::Private), Op::Touch(2, Write), Op::Poll, Op::Poll];
    let again = vec![Op::Map(2, Content::Private), Op::Touch(0, Write), Op::Retire(1, 1), Op::Compute(2), Op::Settle];
    let user = vec![Op::Touch(0, Read), Op::Compute(4), Op::Touch(1, Write), Op::Compute(4), Op::Touch(0, Read)];
    Program { setup: shared(2, 2), cpus: vec![[owner, again].concat(), user.clone(), user] }
}

fn one_page() -> Program {
    let owner = vec![Op::Retire(0, 1), Op::Poll, Op::Poll, Op::Map(1, Content::Private)];
    Program { setup: shared(1, 1), cpus: vec![owner, vec![Op::Compute(2), Op::Touch(0, Read), Op::Compute(2)]] }
}

fn switch() -> Program {
    let owner = vec![Op::Retire(0, 1), Op::Poll, Op::Retire(1, 1), Op::Poll, Op::Poll, Op::Poll];
    let switcher = vec![Op::Run(1), Op::Run(0), Op::Touch(1, Read), Op::Run(1), Op::Run(0), Op::Compute(3)];
    let lazy = vec![Op::Idle, Op::KernelMap, Op::Run(0), Op::Compute(3), Op::KernelTables, Op::Run(0), Op::Compute(2)];
    Program { setup: shared(2, 2), cpus: vec![owner, switcher, lazy] }
}

fn two() -> Program {
    let owner = |page| vec![Op::Retire(page, 1), Op::Poll, Op::Touch(2, Write), Op::Poll, Op::Retire(3, 1)];
    let other = vec![Op::Compute(3), Op::Adopt, Op::Touch(2, Read), Op::Adopt, Op::Compute(2)];
    Program { setup: shared(4, 2), cpus: vec![owner(0), owner(1), other] }
}

fn epochs() -> Program {
    let owner = [0, 2].map(|page| [Op::Retire(page, 1), Op::Poll, Op::Poll, Op::Compute(2)]).concat();
    let other = [1, 3].map(|page| [Op::Retire(page, 1), Op::Poll, Op::Poll, Op::Compute(12)]).concat();
    Program { setup: shared(4, 1), cpus: vec![owner, other] }
}

fn flush() -> Program {
    let owner = vec![Op::Retire(0, 1), Op::DontNeed(1, 1), Op::Touch(1, Write), Op::Poll, Op::Retire(1, 1), Op::Poll];
    let other = vec![Op::Protect(2, 1, Rights::Read), Op::Touch(0, Read), Op::DontNeed(2, 1), Op::Touch(2, Read)];
    let user = vec![Op::Compute(3), Op::Touch(0, Write), Op::Evict(2, 1), Op::Compute(3), Op::Touch(1, Read)];
    Program { setup: shared(3, 2), cpus: vec![owner, other, user] }
}

fn hotplug() -> Program {
    let owner = vec![Op::Retire(0, 1), Op::Poll, Op::Compute(2), Op::Poll, Op::Retire(1, 1), Op::Poll, Op::Poll];
    let leaver = vec![Op::Compute(2), Op::Offline(3), Op::Run(0), Op::Compute(3)];
    let stopped = vec![Op::Compute(2), Op::Stop(4), Op::Run(0), Op::Touch(1, Read), Op::Compute(3)];
    Program { setup: shared(2, 2), cpus: vec![owner, leaver, stopped] }
}
