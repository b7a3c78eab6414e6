//! Code of the kernel that reads page tables without a lock and holds interrupts back instead, as fast GUP does (C-23),
//! wherever a flush may reach its CPU without one.

use tlbkit::HostFlush::TranslationsAndPaths;
use tlbkit::{Hardware, PhysAddr, VirtAddr};
use tlbkit_arch::addr::TOP_LEVEL;
use tlbkit_arch::{Pte, entry_at};

use super::small::shared;
use super::{Access, Content, Host, Leaves, Op, Program, TakenBy};
use crate::machine::memory::Use;
use crate::machine::observation::Observation;
use crate::machine::world::World;

impl World<'_> {
    /// Reads the page tables below `root` on the way to `va`. What it has read the address of stays a table until
    /// interrupts are on again.
    pub(super) fn walk_in_software(&self, cpu: usize, root: PhysAddr, va: u64) {
        let walk = |_: &_| {
            let mut table = self.machine.borrow().memory.name(root.0);
            for level in (1..=TOP_LEVEL).rev() {
                self.point();
                let mut machine = self.machine.borrow_mut();
                if machine.memory.still(table) != Some(Use::Table) {
                    return machine.report(&Observation::FreedTableRead { cpu, va, level, table });
                }
                let pte = Pte(machine.read_physical(entry_at(PhysAddr(table.at), VirtAddr(va), level).0));
                if !pte.has(Pte::PRESENT) || pte.has(Pte::LARGE) {
                    return;
                }
                table = machine.memory.name(pte.frame().0);
            }
        };
        self.with_cpu(cpu, |handle| handle.hardware().with_irqs_off(walk));
    }
}

/// A page comes and goes with its tables while two CPUs walk to it.
pub(super) fn users() -> Program {
    let owner = [Op::Unmap(0, 1), Op::Map(1, Content::Private), Op::Touch(0, Access::Write)].repeat(3);
    let walker = [Op::Walk(0), Op::Touch(0, Access::Read)].repeat(4);
    Program { setup: shared(1, 2), cpus: vec![owner, walker.clone(), [vec![Op::Idle, Op::Run(0)], walker].concat()] }
}

pub(super) fn preempted() -> Program {
    in_a_guest(Host::AtEntry(TranslationsAndPaths))
}

pub(super) fn by_call() -> Program {
    in_a_guest(Host::ByCall(TranslationsAndPaths))
}

fn in_a_guest(host: Host) -> Program {
    let mut program = users();
    program.surround(Some(host), 0);
    program
}

pub(super) fn shared_pcid() -> Program {
    let mut program = users();
    program.setup.push((0, Op::Share));
    program
}

pub(super) fn retired() -> Program {
    let mut program = users();
    let retired = [Op::Retire(0, 1), Op::Poll, Op::Map(1, Content::Private), Op::Touch(0, Access::Write), Op::Poll];
    program.cpus[0].extend(retired.repeat(2));
    program
}

/// The kernel's tables come and go; CPUs that are not to be disturbed walk them when they have entered the kernel.
pub(super) fn of_kernel() -> Program {
    let mut setup = shared(1, 2);
    setup.push((0, Op::KernelTreeEnter(Leaves::Small)));
    let taken = [TakenBy::Gather, TakenBy::GatherOfPages].map(Op::KernelTreeTake);
    let owner = taken.map(|take| [take, Op::KernelTreeEnter(Leaves::Small)]).concat().repeat(2);
    let walker = [Op::KernelWalk, Op::Compute(2)].repeat(4);
    Program { setup, cpus: vec![owner, walker.clone(), walker] }
}

pub(super) fn of_kernel_undisturbed() -> Program {
    let mut program = of_kernel();
    program.surround(None, 0b110);
    program
}
