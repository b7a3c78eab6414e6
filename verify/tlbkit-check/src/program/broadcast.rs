//! Programs about INVLPGB: spaces that move to a PCID which all CPUs share, while CPUs switch, and what is flushed
//! then.

use super::small::{Named, broadcast, shared};
use super::{Access, Content, Op, Program, Rights, directories, reclaim, walk};
use Access::{Read, Write};

pub(super) const ALL: &[Named] = &[
    broadcast("broadcast-move", "a space moves to a shared PCID while CPUs switch to it and flush it", moves),
    broadcast("broadcast-tables", "tables of a space with a shared PCID are freed under lazy CPUs", tables),
    broadcast("broadcast-ends", "spaces with shared PCIDs end, and others get them", ends),
    broadcast("broadcast-heir", "the PCID of a space that a lazy CPU held goes to the next one", heir),
    broadcast("broadcast-heirs", "CPUs that used a PCID switch to the space that is just given it", heirs),
    broadcast("broadcast-end-1-page", "a space ends under a CPU that ran it by its shared PCID alone", end),
    broadcast("broadcast-evict", "a batch takes pages of spaces that moved, that move and that did not", evict),
    broadcast("broadcast-kernel", "kernel mappings are removed by INVLPGB", kernel),
    broadcast(
        "broadcast-evict-2-pages",
        "a page is taken by a batch, and found gone by a flush of the next",
        found_gone,
    ),
    broadcast("broadcast-walk", "tables are freed by INVLPGB while CPUs read them without a lock", walk::shared_pcid),
    broadcast("broadcast-walk-kernel", "the same of the kernel's page tables", walk::of_kernel),
    broadcast("broadcast-1-page", "one CPU moves a space and gives a page back that another one uses", one_page),
];

/// Those of kernels that reclaim, or whose CPUs have upper page tables of their own.
pub(super) const OTHERS: &[Named] = &[
    broadcast(
        "reclaim-broadcast",
        "pages of a space that moved and of one that did not are reclaimed together",
        reclaim::both,
    ),
    broadcast(
        "reclaim-broadcast-1-page",
        "the reader of the space that did not move has passed, and the other one has not",
        reclaim::both_one,
    ),
    broadcast(
        "reclaim-broadcast-move",
        "a space moves to a shared PCID while the flush of its pages is deferred",
        reclaim::moving,
    ),
    broadcast(
        "directories-convert-shared",
        "a space with a shared PCID is converted while CPUs use its pages",
        directories::convert_shared,
    ),
    broadcast(
        "directories-convert-shared-lazy",
        "a space with a shared PCID is converted under CPUs that idle, and come back to what they have cached",
        directories::convert_shared_lazy,
    ),
    broadcast(
        "directories-convert-move",
        "a space is converted by one CPU and moved to a shared PCID by another",
        directories::convert_move,
    ),
];

fn moves() -> Program {
    let mover = vec![Op::Share, Op::DontNeed(0, 1), Op::Touch(0, Write), Op::Unmap(0, 2), Op::Map(2, Content::Private)];
    let flusher = vec![Op::DontNeed(1, 1), Op::Touch(1, Write), Op::Protect(0, 2, Rights::Read), Op::Share];
    let switcher = vec![Op::Run(1), Op::Run(0), Op::Touch(0, Read), Op::Compute(2), Op::Run(1), Op::Run(0)];
    let lazy = vec![Op::Idle, Op::Run(0), Op::Compute(2), Op::Touch(1, Read), Op::KernelTables, Op::Run(0)];
    Program { setup: shared(3, 3), cpus: vec![mover, flusher, switcher, lazy] }
}

fn tables() -> Program {
    let mut setup = shared(2, 2);
    setup.push((1, Op::Idle));
    let lazy = vec![Op::KernelMap, Op::Run(0), Op::Touch(0, Read), Op::Idle, Op::KernelMap, Op::Run(1), Op::Run(0)];
    let owner = vec![Op::Share, Op::Unmap(0, 2), Op::Map(2, Content::Private), Op::Touch(0, Write), Op::Clear];
    let user = vec![Op::Compute(3), Op::Touch(1, Read), Op::Compute(3), Op::Touch(0, Read)];
    Program { setup, cpus: vec![owner, lazy, user] }
}

/// Space 0 ends while another CPU holds it lazily; the ones that are made of it get its PCID.
fn ends() -> Program {
    let mut setup = shared(1, 2);
    setup.extend([(0, Op::Share), (2, Op::Run(1)), (2, Op::Map(1, Content::Private)), (2, Op::Touch(0, Write))]);
    let first = vec![Op::Fork, Op::Exit, Op::Run(2), Op::Share, Op::Touch(0, Read), Op::Exit, Op::Run(1), Op::Share];
    let lazy = vec![Op::Idle, Op::Compute(1), Op::Run(1), Op::Share, Op::Touch(0, Read), Op::Idle, Op::Run(2)];
    let other = vec![Op::Share, Op::Touch(0, Write), Op::DontNeed(0, 1), Op::Idle, Op::Run(2), Op::Touch(0, Read)];
    Program { setup, cpus: vec![first, lazy, other] }
}

fn heir() -> Program {
    let mut setup = shared(1, 1);
    setup.extend([(0, Op::Share), (1, Op::Idle)]);
    let ender = vec![Op::Exit, Op::Run(1), Op::Share, Op::Compute(3)];
    let lazy = vec![Op::KernelMap, Op::Run(1), Op::Share, Op::Compute(3)];
    Program { setup, cpus: vec![ender, lazy] }
}

/// CPUs 1 and 2 were lazy in space 0 when it ended, so they hold paths under its PCID; they load space 1 while that
/// gets it.
fn heirs() -> Program {
    let mut setup = shared(1, 0);
    setup.push((0, Op::Share));
    setup.extend([1, 2].into_iter().flat_map(|cpu| [(cpu, Op::Run(0)), (cpu, Op::Idle)]));
    setup.extend([(0, Op::Exit), (1, Op::Run(1)), (2, Op::Run(1)), (0, Op::Run(1))]);
    let switcher = [Op::KernelTables, Op::Run(1)].repeat(5);
    Program { setup, cpus: vec![vec![Op::Compute(3), Op::Share, Op::Compute(2)], switcher.clone(), switcher] }
}

/// CPU 1 has never run space 0 under its own PCID, and holds it lazily when it ends.
fn end() -> Program {
    let mut setup = shared(1, 0);
    setup.push((0, Op::Share));
    let ender = vec![Op::Compute(2), Op::Exit, Op::KernelMap];
    let lazy = vec![Op::Run(0), Op::Idle, Op::KernelMap, Op::Run(1)];
    Program { setup, cpus: vec![ender, lazy] }
}

fn evict() -> Program {
    let mut setup = shared(2, 2);
    setup.extend([(2, Op::Run(1)), (2, Op::Map(2, Content::Private)), (2, Op::Touch(0, Write)), (0, Op::Share)]);
    let evictor = vec![Op::Evict(0, 2), Op::Touch(0, Write), Op::Evict(0, 1), Op::Compute(2)];
    let user = vec![Op::Compute(3), Op::Touch(0, Read), Op::DontNeed(0, 1), Op::Run(1), Op::Touch(0, Read)];
    let mover = vec![Op::Compute(1), Op::Share, Op::Touch(0, Write), Op::DontNeed(0, 1), Op::Run(0), Op::Compute(2)];
    Program { setup, cpus: vec![evictor, user, mover] }
}

/// CPU 1 gives both pages back, of which CPU 0 may have taken the first one and not flushed it yet.
fn found_gone() -> Program {
    let mut setup = shared(2, 1);
    setup.push((0, Op::Share));
    Program { setup, cpus: vec![vec![Op::Evict(0, 1)], vec![Op::DontNeed(0, 2), Op::Compute(1)]] }
}

fn kernel() -> Program {
    let mut setup = shared(1, 2);
    setup.extend([(0, Op::Share), (0, Op::KernelMap), (2, Op::Run(1)), (2, Op::Compute(1))]);
    let mapper = vec![Op::KernelUnmap, Op::KernelMap, Op::KernelTake(0, 1), Op::KernelUnmap, Op::KernelMap];
    let user = vec![Op::Compute(2), Op::Run(1), Op::Compute(2), Op::Run(0), Op::Touch(0, Read)];
    Program { setup, cpus: vec![mapper, user, vec![Op::Compute(2), Op::Idle, Op::Run(0), Op::KernelMap]] }
}

fn one_page() -> Program {
    let user = vec![Op::Compute(2), Op::Touch(0, Write)];
    Program { setup: shared(1, 1), cpus: vec![vec![Op::Share, Op::DontNeed(0, 1)], user] }
}
