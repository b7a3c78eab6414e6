//! What a named program is, and those of two CPUs and one page, small enough that all their schedules can be explored.

use super::{Access, Content, Op, Program, Rights};
use Access::{Read, Write};

/// A program with its name.
#[derive(Clone, Copy, Debug)]
pub struct Named {
    /// What it is called.
    pub name: &'static str,
    /// What it looks for.
    pub purpose: &'static str,
    make: fn() -> Program,
    subject: Subject,
}

/// What a program is about, and is run with whatever its seed draws.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Subject {
    Anything,
    Broadcast,
    EarlyAcknowledgement,
}

impl Named {
    /// The program.
    #[must_use]
    pub fn program(&self) -> Program {
        (self.make)()
    }

    /// True if it is about INVLPGB: then its machine has that.
    pub(crate) fn needs_broadcast(&self) -> bool {
        self.subject == Subject::Broadcast
    }

    /// True if it is about early acknowledgement: then its policy has that.
    pub(crate) fn acknowledges_early(&self) -> bool {
        self.subject == Subject::EarlyAcknowledgement
    }
}

pub(super) const fn named(name: &'static str, purpose: &'static str, make: fn() -> Program) -> Named {
    Named { name, purpose, make, subject: Subject::Anything }
}

/// The same for a program that is about INVLPGB.
pub(super) const fn broadcast(name: &'static str, purpose: &'static str, make: fn() -> Program) -> Named {
    Named { subject: Subject::Broadcast, ..named(name, purpose, make) }
}

/// The same for a program that is about early acknowledgement.
pub(super) const fn early(name: &'static str, purpose: &'static str, make: fn() -> Program) -> Named {
    Named { subject: Subject::EarlyAcknowledgement, ..named(name, purpose, make) }
}

/// CPU 0 maps and writes pages of space 0, then `others` more CPUs run it and read them.
pub(super) fn shared(pages: u8, others: u8) -> Vec<(u8, Op)> {
    let mut setup = vec![(0, Op::Run(0)), (0, Op::Map(pages, Content::Private))];
    setup.extend((0..pages).map(|page| (0, Op::Touch(page, Write))));
    for cpu in 1..=others {
        setup.push((cpu, Op::Run(0)));
        setup.extend((0..pages).map(|page| (cpu, Op::Touch(page, Read))));
    }
    setup
}

/// All of them but the one that seeds run too.
pub(super) const ALL: &[Named] = &[
    named("remap-1-page", "a page is unmapped while another CPU maps one in its place and stores to it", remap),
    named("dontneed-1-page", "two CPUs give back the same page at once", dontneed),
    named("protect-1-page", "write permission is taken from a page that another CPU writes", protect),
    named("fork-1-page", "a page is shared with a child while another CPU writes it", fork),
    named("switch-1-page", "a CPU leaves a space and comes back while the page is given back", switch),
    named("evict-1-page", "a page is taken by a batch, and another CPU finds it gone before the flush", evict),
    named("issue-1-page", "a page's flush is issued and waited for later, and another CPU finds it gone", issue),
    named("issue-2-pages", "two CPUs have issued to each other before they wait", issue_both),
    named("issue-kernel", "a kernel page's flush is issued, and another CPU finds it gone and takes one", issue_kernel),
    named("adopt-1-page", "a page's flush is issued by one CPU and waited for by the one that it interrupted", adopt),
    named("adopt-2-pages", "a flush is waited for elsewhere while its CPU issues the next", adopt_and_issue),
    named("window-1-page", "a kernel mapping is removed while another CPU goes lazy", window),
    named("offline-1-page", "a CPU goes offline and comes back while the page is given back", offline),
    named("return-2-windows", "two kernel mappings are removed while a CPU goes offline and comes back", comeback),
    named("destroy-1-page", "a space ends while a lazy CPU has it loaded", destroy),
    named("leave-1-page", "a space ends while the lazy CPU that holds it loads the kernel's tables", leave),
];

/// Two CPUs that have run space 0 and used its page.
pub(super) fn pair(first: &[Op], second: &[Op]) -> Program {
    Program { setup: shared(1, 1), cpus: vec![first.to_vec(), second.to_vec()] }
}

pub(super) fn unmap() -> Program {
    pair(&[Op::Unmap(0, 1)], &[Op::Idle, Op::Run(0), Op::Compute(2)])
}

/// Where the other CPU comes first, it maps the page beside.
fn remap() -> Program {
    pair(&[Op::Unmap(0, 1)], &[Op::Map(1, Content::Private), Op::Touch(0, Write), Op::Compute(1), Op::Touch(0, Read)])
}

fn dontneed() -> Program {
    pair(&[Op::DontNeed(0, 1)], &[Op::DontNeed(0, 1), Op::Compute(1)])
}

fn protect() -> Program {
    pair(&[Op::Protect(0, 1, Rights::Read)], &[Op::Touch(0, Access::Write)])
}

fn fork() -> Program {
    pair(&[Op::Fork], &[Op::Touch(0, Access::Write)])
}

fn switch() -> Program {
    pair(&[Op::DontNeed(0, 1)], &[Op::Run(1), Op::Run(0), Op::Compute(1)])
}

fn evict() -> Program {
    pair(&[Op::Evict(0, 1)], &[Op::DontNeed(0, 1), Op::Compute(1)])
}

fn issue() -> Program {
    pair(&[Op::Withdraw(0, 1), Op::Settle], &[Op::DontNeed(0, 1), Op::Compute(1)])
}

fn issue_kernel() -> Program {
    let issuer = vec![Op::KernelWithdraw(0, 1), Op::Settle];
    Program { setup: vec![(0, Op::KernelMap)], cpus: vec![issuer, vec![Op::KernelTake(0, 2)]] }
}

fn issue_both() -> Program {
    let issuer = |page| vec![Op::Withdraw(page, 1), Op::Settle];
    Program { setup: shared(2, 1), cpus: vec![issuer(0), issuer(1)] }
}

fn adopt() -> Program {
    pair(&[Op::Withdraw(0, 1), Op::Poll], &[Op::Adopt, Op::Compute(1)])
}

fn adopt_and_issue() -> Program {
    let issuer = vec![Op::Withdraw(0, 1), Op::Withdraw(1, 1)];
    Program { setup: shared(2, 1), cpus: vec![issuer, vec![Op::Adopt]] }
}

fn window() -> Program {
    pair(&[Op::KernelMap, Op::KernelUnmap], &[Op::Idle, Op::Run(0)])
}

fn offline() -> Program {
    pair(&[Op::DontNeed(0, 1)], &[Op::Offline(0), Op::Run(0), Op::Compute(1)])
}

/// A request that the second removal writes may still be read by the CPU that is just coming back.
fn comeback() -> Program {
    let setup = vec![(0, Op::KernelMap), (0, Op::KernelMap)];
    Program { setup, cpus: vec![vec![Op::KernelUnmap, Op::KernelUnmap], vec![Op::Offline(0)]] }
}

fn destroy() -> Program {
    pair(&[Op::Exit], &[Op::Idle])
}

fn leave() -> Program {
    let mut program = pair(&[Op::Exit], &[Op::KernelTables]);
    program.setup.push((1, Op::Idle));
    program
}
