//! Programs with names for guests, whose host preempts CPUs, and for CPUs that are not to be disturbed.

use tlbkit::HostFlush::{Translations, TranslationsAndPaths};

use super::small::{Named, named, shared};
use super::{Access, Content, Host, Op, Program, walk};
use Access::{Read, Write};

/// All of them.
pub(super) const ALL: &[Named] = &[
    named("preempted", "pages are unmapped and mapped again while their users are preempted", preempted),
    named("preempted-in-a-switch", "a CPU is preempted on its way to a space that is changed", preempted_in_a_switch),
    named(
        "preempted-lazy",
        "page tables are freed while a lazy CPU is preempted, whose host flushes paths",
        lazy_freed,
    ),
    named("preempted-lazy-paths", "the same where the host keeps paths", lazy_kept),
    named("preempted-window", "a kernel mapping is removed while its users are preempted", preempted_window),
    named("preempted-end", "spaces end while those who leave them are preempted", preempted_end),
    named("preempted-later", "flushes are issued, and batched, while their users are preempted", preempted_later),
    named("flushed-by-call", "pages and tables go by calls of the host alone", by_call),
    named("flushed-by-call-2-pages", "one of two pages is found gone when both go by calls of the host", found_gone),
    named("isolated-window", "a kernel mapping is removed while programs are not to be disturbed", isolated_window),
    named("isolated-window-again", "kernel pages go one by one, and others take their place", isolated_issue),
    named("isolated-hotplug", "CPUs that are not to be disturbed go offline, stop and come back", isolated_hotplug),
    named("walk-preempted", "page tables are freed that a CPU reads without a lock, and is preempted", walk::preempted),
    named("walk-flushed-by-call", "the same where the host flushes any CPU when called", walk::by_call),
    named("walk-isolated", "the same of the kernel's, on CPUs not to be disturbed", walk::of_kernel_undisturbed),
    named("isolated-and-preempted", "both at once", isolated_and_preempted),
];

fn in_a_guest(mut program: Program, host: Host) -> Program {
    program.surround(Some(host), 0);
    program
}

fn undisturbed(mut program: Program, cpus: u8) -> Program {
    program.surround(None, cpus);
    program
}

fn users() -> Program {
    let user = vec![Op::Compute(4), Op::Touch(0, Read), Op::Touch(1, Write), Op::Idle, Op::Run(0), Op::Compute(4)];
    let changer = vec![
        Op::DontNeed(0, 1),
        Op::Touch(0, Write),
        Op::Unmap(0, 2),
        Op::Map(2, Content::Private),
        Op::Touch(0, Write),
    ];
    Program { setup: shared(2, 2), cpus: vec![changer, user.clone(), user] }
}

fn preempted() -> Program {
    in_a_guest(users(), Host::AtEntry(TranslationsAndPaths))
}

fn by_call() -> Program {
    in_a_guest(users(), Host::ByCall(TranslationsAndPaths))
}

/// CPU 1 gives both pages back, of which CPU 0 may have taken the first one and not flushed it yet.
fn found_gone() -> Program {
    let user = vec![Op::Compute(4), Op::Touch(0, Read)];
    let program = Program { setup: shared(2, 2), cpus: vec![vec![Op::Evict(0, 1)], vec![Op::DontNeed(0, 2)], user] };
    in_a_guest(program, Host::ByCall(Translations))
}

fn preempted_in_a_switch() -> Program {
    let switcher = [Op::Run(1), Op::Run(0), Op::Compute(2)].repeat(3);
    let changer = [Op::DontNeed(0, 1), Op::Touch(0, Write)].repeat(3);
    let program = Program { setup: shared(1, 2), cpus: vec![changer, switcher.clone(), switcher] };
    in_a_guest(program, Host::AtEntry(Translations))
}

fn lazy() -> Program {
    let lazy = [Op::Idle, Op::KernelMap, Op::Run(0), Op::Compute(2)].repeat(2);
    let changer = [Op::Unmap(0, 1), Op::Map(1, Content::Private), Op::Touch(0, Write)].repeat(2);
    Program { setup: shared(1, 2), cpus: vec![changer, lazy.clone(), lazy] }
}

fn lazy_freed() -> Program {
    in_a_guest(lazy(), Host::AtEntry(TranslationsAndPaths))
}

fn lazy_kept() -> Program {
    in_a_guest(lazy(), Host::AtEntry(Translations))
}

fn window() -> Program {
    let mut setup = shared(1, 2);
    setup.push((0, Op::KernelMap));
    let mapper = [Op::KernelUnmap, Op::KernelMap].repeat(2);
    let user =
        vec![Op::Compute(3), Op::Run(1), Op::Compute(3), Op::Idle, Op::Run(0), Op::Touch(0, Read), Op::Compute(2)];
    Program { setup, cpus: vec![mapper, user.clone(), user] }
}

fn preempted_window() -> Program {
    in_a_guest(window(), Host::AtEntry(Translations))
}

fn preempted_end() -> Program {
    let setup = vec![(0, Op::Run(0)), (1, Op::Run(1)), (2, Op::Run(0)), (2, Op::Idle), (3, Op::Run(1)), (3, Op::Idle)];
    let leaver = |other| vec![Op::Run(other), Op::Idle, Op::KernelTables, Op::Run(other), Op::Idle];
    let cpus = vec![vec![Op::Fork, Op::Exit, Op::Run(2)], vec![Op::Exit, Op::Run(2), Op::Exit], leaver(2), leaver(0)];
    in_a_guest(Program { setup, cpus }, Host::AtEntry(TranslationsAndPaths))
}

fn preempted_later() -> Program {
    let issuer =
        vec![Op::Withdraw(0, 1), Op::Withdraw(1, 1), Op::Settle, Op::Evict(0, 2), Op::Touch(0, Write), Op::Settle];
    let finder = vec![Op::DontNeed(0, 2), Op::Touch(0, Write), Op::Evict(0, 1), Op::Adopt];
    let user = vec![Op::Compute(4), Op::Touch(1, Read), Op::Run(1), Op::Run(0), Op::Compute(3)];
    in_a_guest(Program { setup: shared(2, 2), cpus: vec![issuer, finder, user] }, Host::AtEntry(TranslationsAndPaths))
}

fn isolated_window() -> Program {
    undisturbed(window(), 0b110)
}

fn isolated_issue() -> Program {
    let mut setup = shared(1, 3);
    setup.push((0, Op::KernelMap));
    let issuer = vec![Op::KernelWithdraw(0, 1), Op::Compute(2), Op::Settle, Op::KernelMap, Op::KernelTake(0, 2)];
    let finder = vec![Op::KernelTake(0, 2), Op::Compute(3), Op::KernelUnmap, Op::KernelMap, Op::Compute(2)];
    let user = [Op::Compute(3), Op::Touch(0, Write)].repeat(3);
    undisturbed(Program { setup, cpus: vec![issuer, finder, user.clone(), user] }, 0b1110)
}

fn isolated_hotplug() -> Program {
    let mut setup = shared(1, 2);
    setup.push((0, Op::KernelMap));
    let mapper = [Op::KernelUnmap, Op::KernelMap, Op::DontNeed(0, 1)].repeat(2);
    let leaver =
        vec![Op::Compute(3), Op::Offline(2), Op::Run(0), Op::Compute(3), Op::Stop(4), Op::Run(0), Op::Compute(3)];
    undisturbed(Program { setup, cpus: vec![mapper, leaver.clone(), leaver] }, 0b111)
}

fn isolated_and_preempted() -> Program {
    let mut program = window();
    program.surround(Some(Host::AtEntry(Translations)), 0b110);
    program
}
