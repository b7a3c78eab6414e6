//! Programs whose kernel takes out without a flush what no CPU has accessed, and ages pages.

use super::small::{Named, named, shared};
use super::{Access, Content, Op, Program, Rights};
use Access::{Read, Write};

/// All of them.
pub(super) const ALL: &[Named] = &[
    named("accessed", "pages that a fault mapped around its own are taken away while CPUs begin to use them", users),
    named("accessed-1-page", "such a page is given back while another CPU loads it, for all schedules", one_page),
    named("accessed-age", "pages are aged while they are used, protected, given back and unmapped", age),
    named("accessed-age-1-page", "a page is aged and given back by two CPUs that use it, for all schedules", age_one),
    named("accessed-fork", "a child's pages, which it has not accessed yet, are copied, aged and taken away", fork),
    named("accessed-batch", "a batch takes aged pages, and others find them gone", batch),
    named("accessed-large", "a large page is aged, split and given back in part", large),
    named("accessed-tables", "page tables below which nothing was accessed are freed beside one that was used", tables),
    named("accessed-directories", "pages are aged and taken away below tables that CPUs hook", directories),
    named("accessed-retire", "pages are retired that were aged, beside some that were not", retire),
];

impl Program {
    /// The random program of `seed` with such a kernel, of any family that needs no machine of its own.
    #[must_use]
    pub fn random_sparing(seed: u64) -> Self {
        let of_family = [Self::random_later, Self::random_with_directories, Self::random_retiring];
        let mut program = of_family[(seed / 2 % 3) as usize](seed);
        program.cpus.iter_mut().flatten().for_each(|op| match *op {
            Op::Protect(page, count, Rights::ReadWrite) | Op::FlushHere(page, count) => *op = Op::Age(page, count),
            Op::Forget | Op::PassIds(_) => *op = Op::Age(0, 2),
            Op::Map(count, Content::Shared | Content::Large) => *op = Op::Map(count, Content::File),
            _ => {}
        });
        sparing(program)
    }
}

fn sparing(mut program: Program) -> Program {
    program.setup.splice(0..0, [(0, Op::SpareUnaccessed), (0, Op::FaultAround(4))]);
    program
}

/// Each of `cpus` CPUs runs a space with four pages of a file, of which nobody has loaded one.
fn of_file(cpus: u8) -> Vec<(u8, Op)> {
    (0..cpus).map(|cpu| (cpu, Op::Run(0))).chain([(0, Op::Map(4, Content::File))]).collect()
}

fn users() -> Program {
    let owner = vec![Op::Touch(0, Read), Op::Protect(1, 2, Rights::None), Op::Protect(1, 2, Rights::ReadWrite)];
    let more = vec![Op::DontNeed(0, 3), Op::Touch(0, Read), Op::DontNeed(1, 2), Op::Touch(3, Read), Op::Unmap(1, 3)];
    let user = |page| [Op::Touch(page, Read), Op::Compute(2), Op::Touch(page, Write), Op::Compute(2)].repeat(2);
    sparing(Program { setup: of_file(3), cpus: vec![[owner, more].concat(), user(1), user(2)] })
}

fn one_page() -> Program {
    let mut setup = of_file(2);
    setup.push((0, Op::Touch(0, Read)));
    let user = vec![Op::Touch(1, Read), Op::Compute(1)];
    sparing(Program { setup, cpus: vec![vec![Op::DontNeed(1, 1)], user] })
}

fn age() -> Program {
    let ager = [Op::Age(0, 3), Op::Touch(0, Write), Op::Age(1, 1), Op::Compute(2)].repeat(2);
    let taker = vec![Op::DontNeed(0, 1), Op::Protect(1, 1, Rights::Read), Op::DontNeed(1, 2), Op::Unmap(0, 2)];
    let user = [Op::Touch(0, Write), Op::Touch(1, Read), Op::Compute(3), Op::Touch(2, Write)].repeat(2);
    sparing(Program { setup: shared(3, 2), cpus: vec![ager, taker, user] })
}

fn age_one() -> Program {
    let ager = vec![Op::Age(0, 1), Op::Compute(1)];
    sparing(Program { setup: shared(1, 1), cpus: vec![ager, vec![Op::DontNeed(0, 1), Op::Compute(1)]] })
}

fn fork() -> Program {
    let parent = vec![Op::Fork, Op::Touch(0, Write), Op::Age(0, 2), Op::DontNeed(0, 1), Op::Touch(1, Write)];
    let child = vec![Op::Compute(3), Op::Run(2), Op::Touch(0, Read), Op::Fork, Op::DontNeed(0, 1), Op::Unmap(1, 1)];
    let thread = vec![Op::Compute(3), Op::Run(2), Op::Touch(1, Read), Op::Touch(0, Write), Op::Compute(3)];
    sparing(Program { setup: shared(2, 2), cpus: vec![parent, child, thread] })
}

fn batch() -> Program {
    let taker = vec![Op::Age(0, 2), Op::Evict(0, 2), Op::Touch(0, Write), Op::Age(0, 1), Op::Evict(0, 1)];
    let finder = vec![Op::DontNeed(0, 2), Op::Touch(1, Write), Op::Age(1, 1), Op::Withdraw(1, 1), Op::Settle];
    let user = [Op::Touch(0, Write), Op::Compute(2), Op::Touch(1, Read), Op::Compute(2)].repeat(2);
    sparing(Program { setup: shared(2, 2), cpus: vec![taker, finder, user] })
}

fn large() -> Program {
    let mut setup = vec![(0, Op::Run(0)), (0, Op::Map(1, Content::Large)), (0, Op::Touch(0, Write))];
    setup.extend([(1, Op::Run(0)), (1, Op::Touch(1, Read))]);
    let owner = vec![Op::Age(0, 1), Op::DontNeed(1, 1), Op::Touch(1, Write), Op::Age(1, 2), Op::Unmap(2, 1)];
    let user = vec![Op::Touch(1, Write), Op::Compute(3), Op::Touch(2, Read), Op::Compute(3), Op::Touch(1, Read)];
    sparing(Program { setup, cpus: vec![owner, user] })
}

/// The pages that are mapped around lie in the second table alone; the first one is used.
fn tables() -> Program {
    let owner =
        vec![Op::Touch(4, Read), Op::Unmap(4, 2), Op::Touch(6, Read), Op::Unmap(0, 8), Op::Map(8, Content::File)];
    let user = vec![Op::Touch(5, Read), Op::Compute(3), Op::Idle, Op::Run(0), Op::Touch(7, Read), Op::Compute(3)];
    let mut setup = of_file(2);
    setup.pop();
    setup.extend([(0, Op::Map(8, Content::File)), (0, Op::Touch(0, Read))]);
    sparing(Program { setup, cpus: vec![owner, user] })
}

fn directories() -> Program {
    let mut program = age();
    program.setup.insert(0, (0, Op::Directories));
    program
}

fn retire() -> Program {
    let owner = vec![Op::Age(0, 2), Op::Retire(0, 1), Op::Poll, Op::Retire(1, 2), Op::Map(3, Content::Private)];
    let more = vec![Op::Poll, Op::Touch(0, Write), Op::Age(0, 3), Op::Retire(0, 3), Op::Poll];
    let user = [Op::Touch(0, Write), Op::Compute(3), Op::Touch(1, Read), Op::Touch(2, Read), Op::Compute(2)].repeat(2);
    sparing(Program { setup: shared(3, 2), cpus: vec![[owner, more].concat(), user.clone(), user] })
}
