//! Programs whose CPUs have upper page tables of their own: a flush interrupts only CPUs that have walked there.

use super::small::{Named, named, shared};
use super::{Access, Content, Op, Program, Rights, walk};
use crate::digest;
use Access::{Read, Write};

/// All of them.
pub(super) const ALL: &[Named] = &[
    named("directories", "pages come and go below tables that CPUs hook and lose", users),
    named("directories-1-page", "a page goes while another CPU hooks its table, for all schedules", one_page),
    named("directories-migrate", "a thread goes to another CPU and takes away what it used on the first", migrate),
    named("directories-alone", "a thread takes away what only another CPU has used, of two or of three", alone),
    named("directories-lazy", "page tables are freed while CPUs that share them idle, and come back", lazy),
    named("directories-overlap", "pages are given back while an unmap has taken their table out", overlap),
    named("directories-fault", "CPUs fault for the same pages below a table that all of them have hooked", fault),
    named("directories-protect", "a permission is taken away on the only CPU that has used the page", protect),
    named("directories-spaces", "copies of a space, each with directories, change and end", spaces),
    named("directories-batch", "pages that a batch has taken are found gone by the only CPU that used them", batch),
    named("directories-walk", "tables are freed that a CPU reads without a lock, and has not hooked", walk),
    named("directories-convert", "a space is converted while CPUs use its pages, which go then", convert),
    named("directories-convert-1-page", "a space is converted under one user, for all schedules", convert_one),
    named("directories-convert-lazy", "a space is converted under idle CPUs, and its tables go", convert_lazy),
    named("directories-convert-switch", "a space is converted while CPUs leave it and come back", convert_switch),
    named("directories-convert-large", "a space with a large page is to be converted", convert_large),
];

/// Those in which pages are retired as well: what one CPU alone can hold comes back at once, the rest after a grace
/// period.
pub(super) const RETIRING: &[Named] = &[
    named("directories-retire", "pages are retired below tables that CPUs hook, one after another", retire_users),
    named(
        "directories-retire-1-page",
        "a page is retired while another CPU hooks its table, for all schedules",
        retire_one,
    ),
    named("directories-retire-migrate", "a thread retires on one CPU what it has used on another", retire_migrate),
    named("directories-retire-tables", "tables are taken out beside pages that are retired below them", retire_tables),
];

impl Program {
    /// The random program of `seed` with directories and with what is unmapped retired.
    #[must_use]
    pub fn random_retiring_with_directories(seed: u64) -> Self {
        with_directories(Self::random_retiring(seed))
    }

    /// The random program of `seed` with directories.
    #[must_use]
    pub fn random_with_directories(seed: u64) -> Self {
        with_directories_some_time(seed, Self::random_later(seed))
    }
}

/// In one program of four spaces are converted at any time, and not as soon as they are made.
fn with_directories_some_time(seed: u64, mut program: Program) -> Program {
    if !(seed / 4).is_multiple_of(4) {
        return with_directories(program);
    }
    let mut draws = digest::random(seed);
    for ops in &mut program.cpus {
        let at = draws.below(ops.len() as u64 + 1) as usize;
        ops.insert(at, Op::Directories);
    }
    program
}

fn with_directories(mut program: Program) -> Program {
    program.setup.insert(0, (0, Op::Directories));
    program
}

fn retire_users() -> Program {
    let owner =
        vec![Op::Touch(0, Write), Op::Retire(0, 1), Op::Map(1, Content::Private), Op::Touch(2, Write), Op::Poll];
    let more = vec![Op::Touch(0, Write), Op::Retire(1, 1), Op::Retire(0, 1), Op::Poll, Op::Map(2, Content::Private)];
    let user = vec![Op::Compute(3), Op::Touch(0, Read), Op::Compute(3), Op::Touch(1, Write), Op::Compute(3)];
    let setup = untouched(2, 3);
    with_directories(Program { setup, cpus: vec![[owner, more].concat(), user.clone(), user] })
}

fn retire_one() -> Program {
    let owner = vec![Op::Touch(0, Write), Op::Retire(0, 1), Op::Map(1, Content::Private), Op::Touch(0, Write)];
    let cpus = vec![owner, vec![Op::Touch(0, Read), Op::Compute(2)]];
    with_directories(Program { setup: untouched(1, 2), cpus })
}

fn retire_migrate() -> Program {
    let from = vec![Op::Touch(0, Write), Op::Touch(1, Write), Op::Compute(6), Op::Run(1), Op::Run(0), Op::Compute(2)];
    let to = vec![Op::Compute(4), Op::Retire(0, 1), Op::Poll, Op::Retire(1, 1), Op::Map(2, Content::Private), Op::Poll];
    with_directories(Program { setup: untouched(2, 2), cpus: vec![from, to] })
}

fn retire_tables() -> Program {
    let owner =
        [Op::Touch(0, Write), Op::Retire(0, 1), Op::Unmap(1, 1), Op::Poll, Op::Map(2, Content::Private)].repeat(2);
    let sharer = [Op::Touch(0, Read), Op::Idle, Op::Run(0), Op::Touch(1, Write), Op::Compute(2)].repeat(2);
    let giver = [Op::Touch(1, Read), Op::DontNeed(0, 2), Op::Compute(2)].repeat(2);
    with_directories(Program { setup: untouched(2, 3), cpus: vec![owner, sharer, giver] })
}

fn users() -> Program {
    let owner = vec![Op::Touch(0, Write), Op::Unmap(0, 2), Op::Map(2, Content::Private), Op::Touch(1, Write)];
    let more = vec![Op::DontNeed(0, 2), Op::Touch(0, Read), Op::Unmap(0, 3), Op::Map(3, Content::Private)];
    let user = vec![Op::Compute(2), Op::Touch(0, Read), Op::Compute(3), Op::Touch(1, Write), Op::Compute(3)];
    with_directories(Program { setup: shared(3, 2), cpus: vec![[owner, more].concat(), user.clone(), user] })
}

fn one_page() -> Program {
    let owner = vec![Op::Touch(0, Write), Op::DontNeed(0, 1)];
    with_directories(Program { setup: shared(1, 1), cpus: vec![owner, vec![Op::Touch(0, Read), Op::Compute(2)]] })
}

fn migrate() -> Program {
    let from =
        vec![Op::Touch(0, Write), Op::Touch(1, Read), Op::Run(1), Op::Touch(0, Read), Op::Run(0), Op::Compute(4)];
    let to = vec![Op::DontNeed(0, 1), Op::Touch(0, Write), Op::Unmap(0, 2), Op::Compute(2)];
    with_directories(Program { setup: shared(2, 1), cpus: vec![from, to] })
}

/// The CPUs run the space, and each hooks what it touches.
fn untouched(pages: u8, cpus: u8) -> Vec<(u8, Op)> {
    let runs = (0..cpus).map(|cpu| (cpu, Op::Run(0)));
    runs.chain([(0, Op::Map(pages, Content::Private))]).collect()
}

fn alone() -> Program {
    let changer = vec![Op::Compute(3), Op::DontNeed(0, 1), Op::Compute(3), Op::Touch(0, Write), Op::DontNeed(0, 1)];
    let again = vec![Op::Protect(0, 2, Rights::Read), Op::Compute(2), Op::DontNeed(1, 1)];
    let user = vec![Op::Touch(0, Write), Op::Compute(4), Op::Touch(0, Read), Op::Touch(1, Write), Op::Compute(4)];
    let cpus = vec![[changer, again].concat(), vec![Op::Compute(2)], user];
    with_directories(Program { setup: untouched(2, 3), cpus })
}

fn lazy() -> Program {
    let owner = [Op::Touch(0, Write), Op::Unmap(0, 1), Op::Map(1, Content::Private), Op::Touch(0, Write)].repeat(2);
    let sharer = [Op::Touch(0, Read), Op::Idle, Op::KernelMap, Op::Run(0), Op::Compute(2)].repeat(2);
    let stranger = vec![Op::Idle, Op::KernelUnmap, Op::Run(0), Op::Idle, Op::Run(0), Op::Compute(2)];
    with_directories(Program { setup: shared(1, 2), cpus: vec![owner, sharer, stranger] })
}

fn overlap() -> Program {
    let unmapper = [Op::Unmap(0, 2), Op::Map(2, Content::Private), Op::Touch(0, Write), Op::Touch(1, Write)].repeat(2);
    let giver = [Op::Touch(0, Read), Op::DontNeed(0, 2), Op::Compute(2)].repeat(3);
    with_directories(Program { setup: shared(2, 2), cpus: vec![unmapper, giver.clone(), giver] })
}

fn fault() -> Program {
    let giver = [Op::Touch(1, Write), Op::DontNeed(0, 2), Op::Touch(0, Write)].repeat(3);
    let user = [Op::Touch(0, Write), Op::Touch(1, Write), Op::Touch(0, Read)].repeat(3);
    with_directories(Program { setup: shared(2, 2), cpus: vec![giver, user.clone(), user] })
}

fn protect() -> Program {
    let owner =
        vec![Op::Touch(0, Write), Op::Protect(0, 1, Rights::Read), Op::Touch(0, Read), Op::Reenter(0, Rights::Read)];
    let again = vec![Op::Protect(0, 1, Rights::ReadWrite), Op::Touch(0, Write), Op::Protect(0, 2, Rights::Read)];
    let other = vec![Op::Compute(3), Op::Touch(0, Read), Op::Touch(1, Write), Op::Compute(3)];
    with_directories(Program { setup: shared(2, 1), cpus: vec![[owner, again].concat(), other] })
}

fn spaces() -> Program {
    let parent = vec![Op::Touch(0, Write), Op::Fork, Op::Touch(0, Write), Op::Clear, Op::Map(2, Content::Shared)];
    let child = vec![Op::Compute(3), Op::Run(2), Op::Touch(0, Write), Op::Touch(1, Read), Op::Exit, Op::Run(1)];
    let visitor = vec![Op::Touch(1, Write), Op::Borrow(2), Op::Borrow(0), Op::Run(2), Op::Idle, Op::Run(0), Op::Exit];
    with_directories(Program { setup: shared(2, 2), cpus: vec![parent, child, visitor] })
}

/// CPU 2 has hooked nothing.
fn walk() -> Program {
    let mut program = walk::users();
    program.cpus[2] = [Op::Walk(0), Op::Compute(1)].repeat(6);
    program.setup.retain(|&step| step != (2, Op::Touch(0, Read)));
    with_directories(program)
}

fn batch() -> Program {
    let user = vec![Op::Touch(0, Write), Op::Touch(1, Write), Op::Compute(3), Op::Touch(0, Read), Op::DontNeed(0, 2)];
    let taker = vec![Op::Compute(2), Op::Evict(0, 1), Op::Withdraw(1, 1), Op::Compute(2), Op::Settle, Op::Evict(1, 1)];
    let other = vec![Op::Compute(4), Op::Touch(1, Read), Op::DontNeed(1, 1), Op::Adopt];
    with_directories(Program { setup: shared(2, 2), cpus: vec![user, taker, other] })
}

fn convert() -> Program {
    let owner = vec![Op::Touch(0, Write), Op::Directories, Op::Unmap(0, 2), Op::Map(2, Content::Private)];
    let more = vec![Op::Touch(1, Write), Op::DontNeed(1, 2), Op::Touch(2, Read), Op::Protect(0, 3, Rights::Read)];
    let user = vec![Op::Touch(0, Read), Op::Touch(1, Write), Op::Compute(3), Op::Touch(2, Write), Op::Compute(3)];
    let giver = vec![Op::DontNeed(1, 1), Op::Touch(1, Read), Op::DontNeed(0, 3), Op::Touch(0, Write)];
    Program { setup: shared(3, 2), cpus: vec![[owner, more].concat(), user, giver] }
}

/// The space has a shared PCID before it is converted.
pub(super) fn convert_shared() -> Program {
    share(convert())
}

pub(super) fn convert_shared_lazy() -> Program {
    share(convert_lazy())
}

fn share(mut program: Program) -> Program {
    program.setup.push((0, Op::Share));
    program
}

pub(super) fn convert_move() -> Program {
    let mut program = convert_switch();
    program.cpus[1].splice(..1, [Op::Share, Op::Touch(1, Read)]);
    program
}

fn convert_one() -> Program {
    let owner = vec![Op::Directories, Op::DontNeed(0, 1)];
    Program { setup: shared(1, 1), cpus: vec![owner, vec![Op::Touch(0, Read), Op::Compute(1)]] }
}

fn convert_lazy() -> Program {
    let owner = vec![Op::Directories, Op::Unmap(0, 1), Op::Map(1, Content::Private), Op::Touch(0, Write)];
    let again = vec![Op::Unmap(0, 1), Op::Map(1, Content::Private)];
    let lazy = vec![Op::Idle, Op::Compute(2), Op::Run(0), Op::FlushHere(0, 1), Op::Touch(0, Write), Op::Idle];
    let sleeper = vec![Op::Idle, Op::KernelMap, Op::KernelUnmap, Op::Run(0), Op::Touch(0, Read), Op::Compute(2)];
    Program { setup: shared(1, 2), cpus: vec![[owner, again].concat(), lazy, sleeper] }
}

fn convert_switch() -> Program {
    let owner = vec![Op::Touch(0, Write), Op::Directories, Op::DontNeed(0, 1), Op::Touch(0, Write), Op::Unmap(0, 2)];
    let away = vec![Op::Run(1), Op::Compute(1), Op::Run(0), Op::Touch(0, Read), Op::Run(1), Op::Run(0), Op::Compute(2)];
    let other = vec![Op::Borrow(1), Op::Touch(1, Write), Op::KernelTables, Op::Run(0), Op::Touch(0, Read), Op::Fork];
    Program { setup: shared(2, 2), cpus: vec![owner, away, other] }
}

fn convert_large() -> Program {
    let owner = vec![Op::Unmap(0, 2), Op::Map(1, Content::Large), Op::Touch(0, Write), Op::Directories];
    let more = vec![Op::Unmap(0, 1), Op::Touch(1, Read), Op::DontNeed(1, 2), Op::Touch(2, Write)];
    let user = vec![Op::Directories, Op::Touch(1, Write), Op::Compute(4), Op::Touch(2, Write), Op::Compute(2)];
    Program { setup: shared(2, 1), cpus: vec![[owner, more].concat(), user] }
}
